"""Commands that measure Meritory on public data; nothing here ships in the wheel."""
