"""Readers for the formats of other memory programs."""
