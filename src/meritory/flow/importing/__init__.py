"""Readers of what other programs remember: each yields entries, and none of them writes."""
