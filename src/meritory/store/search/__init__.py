"""In-memory search structures that both backends share."""
