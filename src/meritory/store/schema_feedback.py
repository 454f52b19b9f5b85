"""The tables of feedback: events, the lessons they became, and what they say about memories.

Some 2 kB an event with its indexes: 50 reports a day are about 36 MB a year, kept for ever.
"""

from __future__ import annotations

FEEDBACK_STATEMENTS = (
    """CREATE TABLE feedback_events (
        event INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        id TEXT NOT NULL,
        at TEXT NOT NULL,
        project TEXT,
        agent TEXT,
        session_key TEXT,
        origin TEXT NOT NULL,
        signal TEXT NOT NULL,
        polarity INTEGER NOT NULL,
        status TEXT NOT NULL,
        reason TEXT NOT NULL,
        domain TEXT NOT NULL,
        tool TEXT,
        tags TEXT NOT NULL,
        texts TEXT NOT NULL,
        details TEXT NOT NULL,
        quality REAL NOT NULL,
        memory_id TEXT,
        occurrence INTEGER NOT NULL,
        completed_at TEXT,
        UNIQUE (user, id)
    ) STRICT""",
    "CREATE INDEX feedback_by_time ON feedback_events (user, at, polarity)",
    "CREATE INDEX feedback_by_kind ON feedback_events (user, domain, polarity, status, at)",
    """CREATE INDEX feedback_by_tool ON feedback_events (user, tool, polarity, at)
        WHERE tool IS NOT NULL""",
    """CREATE INDEX feedback_by_lesson ON feedback_events (user, memory_id, event)
        WHERE memory_id IS NOT NULL""",
    # Which lesson a wording stands for, so that a report need not be compared with all others.
    """CREATE TABLE feedback_wordings (
        user TEXT NOT NULL,
        agent TEXT NOT NULL,
        project TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        PRIMARY KEY (user, agent, project, fingerprint)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX feedback_wordings_by_lesson ON feedback_wordings (user, memory_id)",
    """CREATE TABLE feedback_lessons (
        user TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        polarity INTEGER NOT NULL,
        report_count INTEGER NOT NULL,
        first_at TEXT NOT NULL,
        last_at TEXT NOT NULL,
        PRIMARY KEY (user, memory_id)
    ) STRICT, WITHOUT ROWID""",
    # What reports say about memories' claims; ids of reports ascend with time.
    """CREATE TABLE feedback_evidence (
        user TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        feedback_id TEXT NOT NULL,
        at TEXT NOT NULL,
        witness TEXT NOT NULL,
        value REAL NOT NULL,
        session_key TEXT,
        PRIMARY KEY (user, memory_id, feedback_id)
    ) STRICT, WITHOUT ROWID""",
    # The belief behind a memory's usefulness, as it was when last something was said about it.
    """CREATE TABLE memory_beliefs (
        user TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        support REAL NOT NULL,
        doubt REAL NOT NULL,
        undecided REAL NOT NULL,
        as_of_day REAL NOT NULL,
        is_contested INTEGER NOT NULL,
        PRIMARY KEY (user, memory_id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE INDEX memory_beliefs_contested ON memory_beliefs (user, memory_id)
        WHERE is_contested = 1""",
)
# What goes with a memory that is erased: its lesson, and the reports that told it.
FEEDBACK_ERASURES = (
    "DELETE FROM feedback_events WHERE user = :user AND memory_id = :id",
    "DELETE FROM feedback_wordings WHERE user = :user AND memory_id = :id",
    "DELETE FROM feedback_lessons WHERE user = :user AND memory_id = :id",
    "DELETE FROM feedback_evidence WHERE user = :user AND memory_id = :id",
    "DELETE FROM memory_beliefs WHERE user = :user AND memory_id = :id",
)
