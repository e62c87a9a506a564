"""The ABI doctor: reads what an environment is made of without importing any of it, and says what will break and how to mend it.

    facts (tree, wheels, lock, host) -> rules -> findings

Facts are plain data and rules are pure functions of them. Everything here needs the standard library and `packaging`.
"""
