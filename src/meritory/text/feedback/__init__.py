"""Feedback as words: what was signalled, what it is about, whether it says enough, and why."""
