"""Extraction, the janitor, retention and the quality figures."""
