"""The table of tokens: who else may come in, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

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


PREDICTOR = (
    "ALTER TABLE sessions ADD COLUMN scorer TEXT",
    "ALTER TABLE sessions ADD COLUMN model_version INTEGER",
    """CREATE TABLE predictor_state (
        user TEXT PRIMARY KEY,
        state TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE predictor_comparisons (
        comparison INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        session INTEGER NOT NULL UNIQUE REFERENCES sessions (session) ON DELETE CASCADE,
        at TEXT NOT NULL,
        project TEXT,
        scorer TEXT,
        model_version INTEGER,
        predictor_ndcg REAL,
        baseline_ndcg REAL,
        predictor_won REAL,
        margin REAL,
        scorer_confidence REAL NOT NULL,
        ema_updated INTEGER NOT NULL,
        reason TEXT,
        success_rate REAL NOT NULL,
        alpha REAL NOT NULL,
        predictor_top_ids TEXT NOT NULL,
        baseline_top_ids TEXT NOT NULL,
        relevance_scores TEXT NOT NULL,
        fts_overlap_score REAL,
        replay_ndcg TEXT NOT NULL,
        replay_log_rank TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX predictor_comparisons_by_time ON predictor_comparisons (user, at, comparison)",
    """CREATE TABLE predictor_training_log (
        run INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        at TEXT NOT NULL,
        model_version INTEGER NOT NULL,
        scorer TEXT NOT NULL,
        reason TEXT NOT NULL,
        loss REAL,
        sample_count INTEGER NOT NULL,
        skipped_count INTEGER NOT NULL,
        duration_ms REAL NOT NULL,
        accepted INTEGER NOT NULL,
        canary_ndcg REAL,
        canary_ndcg_delta REAL,
        canary_score_variance REAL,
        canary_topk_churn REAL,
        gates TEXT NOT NULL,
        train_validation_failures INTEGER NOT NULL,
        drift_resets INTEGER NOT NULL,
        error TEXT
    ) STRICT""",
    "CREATE INDEX predictor_training_by_user ON predictor_training_log (user, run)",
    """CREATE TABLE predictor_canary (
        session INTEGER PRIMARY KEY REFERENCES sessions (session) ON DELETE CASCADE,
        user TEXT NOT NULL,
        chosen_at TEXT NOT NULL,
        retired_at TEXT
    ) STRICT""",
    "CREATE INDEX predictor_canary_by_user ON predictor_canary (user, retired_at, session)",
    """CREATE TABLE predictor_calibration (
        session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
        memory_id TEXT NOT NULL,
        user TEXT NOT NULL,
        judge_label REAL NOT NULL,
        offered_at TEXT NOT NULL,
        human_label REAL,
        rated_at TEXT,
        PRIMARY KEY (session, memory_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX predictor_calibration_by_user ON predictor_calibration (user, offered_at)",
)


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

# The digest of a whole session, as `meritory.text.judge.digest` encodes it.
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
