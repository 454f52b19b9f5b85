"""Memories: validation, the similarity gate, writing, changing and recall."""
