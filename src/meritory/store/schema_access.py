"""The table of tokens: who else may come in, and what they may do."""

from __future__ import annotations

ACCESS_STATEMENTS = (
    # Only a hash of each secret; a token says itself whose it is, so that the user leads the key.
    """CREATE TABLE access_tokens (
        user TEXT NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        digest BLOB NOT NULL,
        created_at TEXT NOT NULL,
        expires_at TEXT,
        revoked_at TEXT,
        last_used_at TEXT,
        PRIMARY KEY (user, id)
    ) STRICT, WITHOUT ROWID""",
)
