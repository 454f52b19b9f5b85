"""The MCP server: what its tools are, how the protocol is spoken, and the process on stdio."""
