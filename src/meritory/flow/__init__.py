"""The verbs: the only place where storage, ports, ranking and text meet."""
