"""Reports about an agent's work: capture, reading and summaries."""
