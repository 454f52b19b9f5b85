"""The predictor's own process: scores and trains for the process at its stdin and stdout.

JSON-RPC 2.0, one object a line. It opens the store for reading only.
"""
