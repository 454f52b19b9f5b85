"""Memory for AI agents that has to earn its place."""
