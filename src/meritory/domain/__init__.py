"""What things are: frozen records, errors, the clock and exact JSON encoding."""
