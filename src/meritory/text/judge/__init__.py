"""Evidence in a transcript that a memory was used."""
