"""The tables of recorded actions, the rules that came of them, and constraints of a session."""

from __future__ import annotations

RULES_STATEMENTS = (
    # What agents did or wanted to do, as their clients told it before each tool.
    """CREATE TABLE actions (
        action INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        session_key TEXT NOT NULL,
        at TEXT NOT NULL,
        project TEXT,
        harness TEXT,
        tool TEXT NOT NULL,
        tool_name TEXT NOT NULL,
        argument TEXT NOT NULL,
        heads TEXT NOT NULL,
        risk INTEGER NOT NULL,
        decision TEXT NOT NULL,
        rule_id TEXT,
        blame_count INTEGER NOT NULL DEFAULT 0,
        praise_count INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    "CREATE INDEX actions_by_session ON actions (user, session_key, action)",
    "CREATE INDEX actions_by_tool ON actions (user, tool, action)",
    "CREATE INDEX actions_by_time ON actions (user, at, action)",
    "CREATE INDEX actions_by_rule ON actions (user, rule_id, action) WHERE rule_id IS NOT NULL",
    """CREATE TABLE action_feedback (
        user TEXT NOT NULL,
        feedback_id TEXT NOT NULL,
        action INTEGER NOT NULL,
        polarity INTEGER NOT NULL,
        score REAL NOT NULL,
        is_primary INTEGER NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (user, feedback_id, action)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE rules (
        user TEXT NOT NULL,
        id TEXT NOT NULL,
        project TEXT,
        tool TEXT NOT NULL,
        pattern TEXT NOT NULL,
        text TEXT NOT NULL,
        state TEXT NOT NULL,
        risk INTEGER NOT NULL,
        is_forbidden INTEGER NOT NULL,
        is_approved INTEGER NOT NULL,
        weight REAL NOT NULL,
        weighed_at TEXT NOT NULL,
        report_count INTEGER NOT NULL,
        held_count INTEGER NOT NULL,
        replay_count INTEGER NOT NULL,
        alarm_count INTEGER NOT NULL,
        replayed_through INTEGER NOT NULL,
        memory_id TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        reported_at TEXT,
        expires_at TEXT NOT NULL,
        PRIMARY KEY (user, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX rules_by_state ON rules (user, state, tool)",
    # The system's own doings: they are kept apart from what people reported.
    """CREATE TABLE rule_events (
        event INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        rule_id TEXT NOT NULL,
        at TEXT NOT NULL,
        kind TEXT NOT NULL,
        reason TEXT NOT NULL,
        actor TEXT NOT NULL,
        session_key TEXT,
        action INTEGER,
        feedback_id TEXT,
        before TEXT,
        is_undone INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    "CREATE INDEX rule_events_by_rule ON rule_events (user, rule_id, event)",
    """CREATE TABLE session_constraints (
        user TEXT NOT NULL,
        session_key TEXT NOT NULL,
        kind TEXT NOT NULL,
        argument TEXT NOT NULL,
        said TEXT NOT NULL,
        feedback_id TEXT,
        at TEXT NOT NULL,
        lifted_at TEXT,
        PRIMARY KEY (user, session_key, kind, argument)
    ) STRICT, WITHOUT ROWID""",
)

_ITS_RULES = "(SELECT id FROM rules WHERE user = :user AND memory_id = :id)"
_ITS_REPORTS = "(SELECT id FROM feedback_events WHERE user = :user AND memory_id = :id)"
# What goes with a memory that is erased: its rules, and the words of its reports. Before the
# reports themselves are erased.
RULES_ERASURES = (
    f"DELETE FROM rule_events WHERE user = :user AND rule_id IN {_ITS_RULES}",  # noqa: S608 - ours
    "DELETE FROM rules WHERE user = :user AND memory_id = :id",
    f"UPDATE rule_events SET reason = '' WHERE user = :user AND feedback_id IN {_ITS_REPORTS}",  # noqa: S608
    f"DELETE FROM action_feedback WHERE user = :user AND feedback_id IN {_ITS_REPORTS}",  # noqa: S608
    f"UPDATE session_constraints SET said = '' WHERE user = :user AND feedback_id IN {_ITS_REPORTS}",  # noqa: S608, E501
)
