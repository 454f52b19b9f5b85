"""Compare Meritory with other memory systems: python -m bench.peers."""
