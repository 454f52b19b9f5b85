"""Pure text rules: canonical form, query words, claims, secrets and mentions."""
