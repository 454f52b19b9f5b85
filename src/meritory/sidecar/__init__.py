"""The predictor's own process: scores and trains for whoever holds its stdin and stdout.

JSON-RPC 2.0, one object a line. It opens the store for reading only.
"""
