"""Moves a store between SQLite and PostgreSQL: resumable, and compared row by row afterwards."""
