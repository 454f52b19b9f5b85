"""Rule-based extraction of memories from a finished transcript."""
