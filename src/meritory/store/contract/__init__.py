"""The storage contract: one protocol per noun, and `Store` and `Transaction`."""
