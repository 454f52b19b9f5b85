"""The verbs: the only layer where storage, ports, ranking and text meet."""
