"""The benchmark for users: no speculation, DFLASH and DDTREE on the same host, release and flags, measured and drawn.

It knows a server by HTTP and by its inventory entry. It stands on `deploy`, which starts the servers as it does for a release.
"""
