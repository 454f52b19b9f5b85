"""Meritory in the agents people already use: connect, disconnect, check, and read transcripts."""
