"""Everything outside the process, each thing behind a protocol."""
