"""The SQLite schema as an ordered list of migrations; a released one is never edited again."""

from __future__ import annotations

from dataclasses import dataclass

from meritory.store.schema_access import ACCESS_STATEMENTS
from meritory.store.schema_feedback import FEEDBACK_STATEMENTS
from meritory.store.schema_predictor import PREDICTOR
from meritory.store.schema_quality import QUALITY_STATEMENTS
from meritory.store.schema_rules import RULES_STATEMENTS


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema; its statements and the record of it share one transaction."""

    version: int
    name: str
    statements: tuple[str, ...]


# Rows are numbered by `row` inside one database; the outside world only ever sees (user, id).
# `memory_stats` is narrow on purpose: full-text search joins it for the scope, and counters
# change without rewriting the memory, its hash or its index entries.
_FOUNDATION = (
    """CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "INSERT INTO meta VALUES ('change', '0')",
    """CREATE TABLE scopes (
        scope INTEGER PRIMARY KEY,
        user TEXT NOT NULL,
        agent TEXT,
        project TEXT
    ) STRICT""",
    """CREATE UNIQUE INDEX scopes_by_name
        ON scopes (user, coalesce(agent, ''), coalesce(project, ''))""",
    """CREATE TABLE memories (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        id TEXT NOT NULL,
        scope INTEGER NOT NULL REFERENCES scopes (scope),
        content TEXT NOT NULL,
        words TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        kind TEXT NOT NULL,
        provenance TEXT NOT NULL,
        origin TEXT NOT NULL,
        trust TEXT NOT NULL,
        confidence REAL NOT NULL,
        importance REAL NOT NULL,
        pinned INTEGER NOT NULL,
        demotion INTEGER NOT NULL,
        tags TEXT NOT NULL,
        sources TEXT NOT NULL,
        session_key TEXT,
        turn INTEGER,
        valid_from TEXT,
        valid_until TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        superseded_by TEXT,
        deleted_at TEXT,
        change INTEGER NOT NULL,
        row_hash BLOB NOT NULL,
        UNIQUE (user, id)
    ) STRICT""",
    """CREATE INDEX memories_by_hash ON memories (user, content_hash, scope)
        WHERE deleted_at IS NULL AND superseded_by IS NULL""",
    "CREATE INDEX memories_by_change ON memories (user, change)",
    """CREATE INDEX memories_by_turn ON memories (user, session_key, turn)
        WHERE session_key IS NOT NULL""",
    """CREATE INDEX memories_by_successor ON memories (user, superseded_by)
        WHERE superseded_by IS NOT NULL""",
    "CREATE INDEX memories_pinned ON memories (user, scope) WHERE pinned = 1",
    """CREATE TABLE memory_stats (
        row INTEGER PRIMARY KEY REFERENCES memories (row) ON DELETE CASCADE,
        scope INTEGER NOT NULL REFERENCES scopes (scope),
        access_count INTEGER NOT NULL,
        last_accessed TEXT,
        usefulness REAL NOT NULL
    ) STRICT""",
    """CREATE TABLE embedders (
        embedder INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        dimension INTEGER NOT NULL,
        spec TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE memory_vectors (
        embedder INTEGER NOT NULL REFERENCES embedders (embedder) ON DELETE CASCADE,
        row INTEGER NOT NULL REFERENCES memories (row) ON DELETE CASCADE,
        vector BLOB NOT NULL,
        PRIMARY KEY (embedder, row)
    ) STRICT""",
    "CREATE INDEX memory_vectors_by_row ON memory_vectors (row)",
    """CREATE VIRTUAL TABLE memories_fts USING fts5 (
        content, words, content = 'memories', content_rowid = 'row',
        tokenize = 'porter unicode61 remove_diacritics 2'
    )""",
    "CREATE VIRTUAL TABLE memories_vocabulary USING fts5vocab ('memories_fts', 'row')",
    # Only live memories are in the full-text index: a forgotten one cannot be found by accident.
    """CREATE TRIGGER memories_indexed AFTER INSERT ON memories
        WHEN new.deleted_at IS NULL AND new.superseded_by IS NULL BEGIN
        INSERT INTO memories_fts (rowid, content, words)
            VALUES (new.row, new.content, new.words);
    END""",
    """CREATE TRIGGER memories_unindexed AFTER DELETE ON memories
        WHEN old.deleted_at IS NULL AND old.superseded_by IS NULL BEGIN
        INSERT INTO memories_fts (memories_fts, rowid, content, words)
            VALUES ('delete', old.row, old.content, old.words);
    END""",
    """CREATE TRIGGER memories_reindexed
        AFTER UPDATE OF content, words, deleted_at, superseded_by ON memories BEGIN
        INSERT INTO memories_fts (memories_fts, rowid, content, words)
            SELECT 'delete', old.row, old.content, old.words
            WHERE old.deleted_at IS NULL AND old.superseded_by IS NULL;
        INSERT INTO memories_fts (rowid, content, words)
            SELECT new.row, new.content, new.words
            WHERE new.deleted_at IS NULL AND new.superseded_by IS NULL;
    END""",
    """CREATE TABLE memory_history (
        entry INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        operation TEXT NOT NULL,
        at TEXT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        why TEXT NOT NULL,
        before TEXT,
        other TEXT,
        other_id TEXT,
        undone INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    "CREATE INDEX memory_history_by_memory ON memory_history (user, memory_id, entry)",
    "CREATE INDEX memory_history_by_operation ON memory_history (user, operation)",
    """CREATE INDEX memory_history_merges ON memory_history (user, entry)
        WHERE action = 'merge'""",
    """CREATE TABLE counters (
        user TEXT NOT NULL,
        name TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (user, name)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE entities (
        entity INTEGER PRIMARY KEY,
        user TEXT NOT NULL,
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        UNIQUE (user, key)
    ) STRICT""",
    """CREATE TABLE aspects (
        aspect INTEGER PRIMARY KEY,
        entity INTEGER NOT NULL REFERENCES entities (entity) ON DELETE CASCADE,
        name TEXT NOT NULL,
        UNIQUE (entity, name)
    ) STRICT""",
    """CREATE TABLE attributes (
        aspect INTEGER NOT NULL REFERENCES aspects (aspect) ON DELETE CASCADE,
        row INTEGER NOT NULL REFERENCES memories (row) ON DELETE CASCADE,
        is_stated INTEGER NOT NULL,
        PRIMARY KEY (aspect, row)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX attributes_by_row ON attributes (row)",
    """CREATE TABLE dependencies (
        entity INTEGER NOT NULL REFERENCES entities (entity) ON DELETE CASCADE,
        on_entity INTEGER NOT NULL REFERENCES entities (entity) ON DELETE CASCADE,
        PRIMARY KEY (entity, on_entity)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE imports (
        user TEXT NOT NULL,
        digest TEXT NOT NULL,
        line_count INTEGER NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (user, digest)
    ) STRICT, WITHOUT ROWID""",
)

# Candidates are kept by memory id, not by row: what a session was served outlives a memory that
# was replaced. `learned` counts up with every labelling, so that a history in memory can catch up.
_SESSIONS = (
    "CREATE INDEX memories_constraints ON memories (user, scope) WHERE kind = 'constraint'",
    "INSERT INTO meta VALUES ('secret', lower(hex(randomblob(32)))), ('learned', '0')",
    """CREATE TABLE sessions (
        session INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        key TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        harness TEXT,
        cwd TEXT,
        state TEXT NOT NULL,
        context TEXT NOT NULL,
        has_prompt INTEGER NOT NULL,
        embedder TEXT,
        context_vector BLOB,
        gap_hours REAL,
        alpha REAL NOT NULL,
        started_at TEXT NOT NULL,
        ended_at TEXT,
        prompt_count INTEGER NOT NULL DEFAULT 0,
        injection_count INTEGER NOT NULL DEFAULT 0,
        handle_count INTEGER NOT NULL DEFAULT 0,
        is_explained INTEGER NOT NULL DEFAULT 0,
        summary TEXT NOT NULL DEFAULT '',
        transcript TEXT,
        used TEXT,
        learned INTEGER,
        UNIQUE (user, key)
    ) STRICT""",
    "CREATE INDEX sessions_by_start ON sessions (user, started_at, session)",
    "CREATE INDEX sessions_by_learning ON sessions (user, learned) WHERE learned IS NOT NULL",
    """CREATE TABLE session_memories (
        session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
        memory_id TEXT NOT NULL,
        source TEXT NOT NULL,
        origins TEXT NOT NULL,
        effective_score REAL,
        composite_score REAL,
        predictor_score REAL,
        final_score REAL NOT NULL,
        rank INTEGER NOT NULL,
        baseline_rank INTEGER,
        predictor_rank INTEGER,
        was_injected INTEGER NOT NULL,
        propensity REAL NOT NULL,
        feature_version INTEGER NOT NULL,
        features BLOB NOT NULL,
        handle TEXT,
        injection INTEGER,
        in_context INTEGER NOT NULL DEFAULT 0,
        is_harmful INTEGER NOT NULL DEFAULT 0,
        relevance_score REAL,
        is_missing INTEGER NOT NULL DEFAULT 0,
        fts_hit_count INTEGER NOT NULL DEFAULT 0,
        agent_relevance_score REAL,
        agent_feedback_count INTEGER NOT NULL DEFAULT 0,
        label REAL,
        label_parts TEXT,
        PRIMARY KEY (session, memory_id)
    ) STRICT, WITHOUT ROWID""",
    # Of what was shown alone: an index over all candidates would touch a page for each of them at
    # every start, and only a purge would ever use it.
    """CREATE INDEX session_memories_shown ON session_memories (memory_id, session)
        WHERE was_injected = 1""",
    """CREATE TABLE injections (
        session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        turn INTEGER NOT NULL,
        code TEXT NOT NULL,
        at TEXT NOT NULL,
        token_count INTEGER NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT, WITHOUT ROWID""",
    # Append-only: means and counts are derived from these.
    """CREATE TABLE rating_events (
        event INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
        memory_id TEXT NOT NULL,
        turn INTEGER NOT NULL,
        channel TEXT NOT NULL,
        score REAL NOT NULL,
        at TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX rating_events_by_memory ON rating_events (session, memory_id, turn)",
    """CREATE TABLE session_scores (
        session INTEGER PRIMARY KEY REFERENCES sessions (session) ON DELETE CASCADE,
        judge TEXT NOT NULL,
        score REAL,
        confidence REAL NOT NULL,
        memories_recalled INTEGER NOT NULL,
        memories_used INTEGER NOT NULL,
        novel_context_count INTEGER NOT NULL,
        missing_topics TEXT NOT NULL,
        continuity_reasoning TEXT NOT NULL,
        raw TEXT NOT NULL,
        excluded TEXT,
        at TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE uses (
        session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
        memory_id TEXT NOT NULL,
        gain REAL NOT NULL,
        PRIMARY KEY (session, memory_id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE jobs (
        job INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        stage TEXT NOT NULL DEFAULT '',
        state TEXT NOT NULL,
        attempt_count INTEGER NOT NULL DEFAULT 0,
        due_at TEXT NOT NULL,
        lease TEXT,
        leased_until TEXT,
        error TEXT,
        created_at TEXT NOT NULL,
        finished_at TEXT,
        UNIQUE (user, kind, key)
    ) STRICT""",
    "CREATE INDEX jobs_by_due ON jobs (state, due_at, job)",
    """CREATE TABLE events (
        event INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        at TEXT NOT NULL,
        category TEXT NOT NULL,
        name TEXT NOT NULL,
        session_key TEXT,
        memory_id TEXT,
        request_id TEXT,
        details TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX events_by_session ON events (user, session_key, event)",
    "CREATE INDEX events_by_memory ON events (user, memory_id, event) WHERE memory_id IS NOT NULL",
    """CREATE INDEX events_by_request ON events (user, request_id, event)
        WHERE request_id IS NOT NULL""",
    """CREATE TABLE spending (
        spend INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        at TEXT NOT NULL,
        purpose TEXT NOT NULL,
        model TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost REAL NOT NULL
    ) STRICT""",
    "CREATE INDEX spending_by_time ON spending (user, at)",
)

# The digest of a whole session, as `meritory.text.digest` encodes it.
_DIGESTS = ("ALTER TABLE sessions ADD COLUMN digest BLOB",)

MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "foundation", _FOUNDATION),
    Migration(2, "sessions", _SESSIONS),
    Migration(3, "predictor", PREDICTOR),
    Migration(4, "feedback", (*FEEDBACK_STATEMENTS, *RULES_STATEMENTS)),
    Migration(5, "quality", QUALITY_STATEMENTS),
    Migration(6, "access", ACCESS_STATEMENTS),
    Migration(7, "digests", _DIGESTS),
)
