"""Moves a store between SQLite and PostgreSQL and verifies the copy."""
