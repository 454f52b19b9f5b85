"""The tables that a team needs: tokens with roles, and models that any daemon can serve."""

from __future__ import annotations

TEAMS = (
    """CREATE TABLE access_tokens (
        "user" TEXT NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        digest BYTEA NOT NULL,
        created_at TEXT NOT NULL,
        expires_at TEXT,
        revoked_at TEXT,
        last_used_at TEXT,
        PRIMARY KEY ("user", id)
    )""",
    # Checkpoints as they lie in files elsewhere; the digest tells one content from another.
    """CREATE TABLE models (
        "user" TEXT NOT NULL,
        version BIGINT NOT NULL,
        content BYTEA NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY ("user", version)
    )""",
    # How often each kind of thing was changed: who follows asks for these instead of looking.
    """ALTER TABLE tenants
        ADD COLUMN session BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN predictor BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN rules BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN job BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN feedback BIGINT NOT NULL DEFAULT 0""",
)
