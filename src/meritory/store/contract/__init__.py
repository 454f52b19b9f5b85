"""The storage contract: `Store`, `Transaction`, and the records of searches and writes."""
