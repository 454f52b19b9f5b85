"""Rules learned from reports, and the guard that applies them to tool calls."""
