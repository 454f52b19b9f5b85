"""The tables of quality: what extraction refused, what retrieval counted, audits and consent."""

from __future__ import annotations

QUALITY_STATEMENTS = (
    # What an extractor proposed and the floor or a check refused; nothing is lost by that.
    """CREATE TABLE refusals (
        user TEXT NOT NULL,
        id TEXT NOT NULL,
        at TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        session_key TEXT,
        content TEXT NOT NULL,
        kind TEXT NOT NULL,
        provenance TEXT NOT NULL,
        origin TEXT NOT NULL,
        confidence REAL NOT NULL,
        turn TEXT,
        quote TEXT NOT NULL,
        reason TEXT NOT NULL,
        extractor TEXT NOT NULL,
        memory_id TEXT,
        PRIMARY KEY (user, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX refusals_by_time ON refusals (user, at)",
    "CREATE INDEX refusals_by_memory ON refusals (user, memory_id) WHERE memory_id IS NOT NULL",
    # How often a memory was found by somebody who asked; what was injected is in memory_stats.
    """CREATE TABLE retrievals (
        row INTEGER PRIMARY KEY REFERENCES memories (row) ON DELETE CASCADE,
        count INTEGER NOT NULL,
        last_at TEXT NOT NULL
    ) STRICT""",
    # What a person said about a merge, by the number of its history entry.
    """CREATE TABLE merge_audits (
        user TEXT NOT NULL,
        entry INTEGER NOT NULL,
        at TEXT NOT NULL,
        verdict TEXT NOT NULL,
        PRIMARY KEY (user, entry)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE consents (
        user TEXT PRIMARY KEY,
        install_date TEXT NOT NULL,
        opt_in INTEGER,
        last_prompted_at TEXT
    ) STRICT, WITHOUT ROWID""",
)
# A purge takes along what was refused and later restored as this memory, or said the same, and
# audits of merges whose history goes with it. Retrievals go with the row.
QUALITY_ERASURES = (
    """DELETE FROM refusals WHERE user = :user AND (memory_id = :id OR content =
        (SELECT content FROM memories WHERE user = :user AND id = :id))""",
    """DELETE FROM merge_audits WHERE user = :user AND entry NOT IN
        (SELECT entry FROM memory_history WHERE user = :user)""",
)
