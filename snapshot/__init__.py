"""The pinned SGLang: which bytes it is made of, how to get exactly those, and how a host's package differs from them."""
