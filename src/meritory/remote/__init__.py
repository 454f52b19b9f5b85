"""`Memory` at a daemon: the same verbs, values and errors, over a socket or HTTP."""
