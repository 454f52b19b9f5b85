"""Commands that measure Tenure on public data; nothing here ships in the wheel."""
