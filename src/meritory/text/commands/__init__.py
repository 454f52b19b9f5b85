"""Shell commands and tool calls: parsing, risk, triggers and prohibitions."""
