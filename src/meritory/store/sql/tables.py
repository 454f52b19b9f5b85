"""Every table of a store, described once; each engine writes its schema from here.

Columns are written as in SQL, with three differences: a column is NOT NULL unless it says NULL, a
foreign key refers to the key of its table, and the columns of the key say KEY or how the table
numbers its rows. The types are those of SQLite, and VECTOR.

A SQLite file numbers rows once for all users. In PostgreSQL every table of a tenant has the column
`user`, which leads its keys, its unique constraints and its indexes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

TENANT = "user"
Engine = Literal["sqlite", "postgres"]
# How a table numbers its rows. `serial` numbers are never given twice; `reused` numbers may be,
# in SQLite, after a row is deleted; `counted` numbers are consecutive for each tenant: PostgreSQL
# counts them in the table `tenants`.
Numbering = Literal["serial", "reused", "counted"]


class Migration(NamedTuple):
    """One version of a schema; an engine runs its statements and records it in one transaction."""

    version: int
    name: str
    statements: tuple[str, ...]


class SqlIndex(NamedTuple):
    """An index; `columns` and `where` are SQL."""

    name: str
    columns: str
    where: str | None
    is_unique: bool


class SqlColumn(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    is_nullable: bool
    default: str | None
    # The table whose numbers it holds, by a foreign key.
    references: str | None
    cascades: bool


@dataclass(frozen=True, eq=False)
class SqlTable:
    """A table with its keys and indexes."""

    name: str
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...]
    unique: tuple[str, ...] = ()
    numbering: Numbering | None = None
    # The column that says whose a row is: `user`, or one whose table says it. None: all share it.
    tenant: str | None = TENANT
    # By column the table whose numbers it holds without a foreign key.
    unenforced: Mapping[str, str] = field(default_factory=dict)
    indexes: tuple[SqlIndex, ...] = ()
    # The only engine that has the table; None for both.
    engine: Engine | None = None

    @cached_property
    def numbers(self) -> Mapping[str, str]:
        """By column the table that gives the numbers in it."""
        given = {self.number: self.name} if self.number else {}
        referred = {column.name: column.references for column in self.columns if column.references}
        return {**given, **referred, **self.unenforced}

    @property
    def number(self) -> str | None:
        """The column whose numbers the table gives."""
        return self.key[0] if self.numbering else None

    @property
    def owner(self) -> tuple[str, str] | None:
        """The table that says whose a row is, and the column that leads there."""
        if self.tenant is None or self.tenant == TENANT:
            return None
        return self.numbers[self.tenant], self.tenant

    def column(self, name: str) -> SqlColumn:
        """Return a column by name."""
        return next(column for column in self.columns if column.name == name)


_COLUMN = re.compile(
    r"(?P<name>\w+) (?P<type>[A-Z]+)(?: (?P<key>KEY|SERIAL|REUSED|COUNTED))?(?P<null> NULL)?"
    r"(?: DEFAULT (?P<default>\S+))?"
    r"(?: REFERENCES (?P<references>\w+)(?P<cascades> ON DELETE CASCADE)?)?"
)
_INDEX = re.compile(r"(UNIQUE )?(\w+) \((.*?)\)(?: WHERE (.*))?")


def _parsed(pattern: re.Pattern[str], text: str) -> tuple[Any, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"not a column or an index: {text!r}")
    return match.groups()


def _table(name: str, columns: str, *indexes: str, **details: Any) -> SqlTable:
    """Return a table from its columns and its indexes, `[UNIQUE] name (columns) [WHERE ...]`."""
    parsed = [_parsed(_COLUMN, text) for text in re.split(r",\s+", columns)]
    marks = {column: mark for column, _, mark, *_ in parsed if mark}
    numbering = next((mark.lower() for mark in marks.values() if mark != "KEY"), None)
    return SqlTable(
        name,
        tuple(
            SqlColumn(column, type_, bool(null), default, references, bool(cascades))
            for column, type_, _, null, default, references, cascades in parsed
        ),
        key=tuple(marks),
        numbering=numbering,
        indexes=tuple(
            SqlIndex(index, covered, where, bool(unique))
            for unique, index, covered, where in (_parsed(_INDEX, text) for text in indexes)
        ),
        **details,
    )


# In the order in which a migration copies them: a table comes after those that it refers to.
TABLES: tuple[SqlTable, ...] = (
    # One row for each tenant. A writer locks it, so that writes of one tenant follow each other, as
    # in a SQLite file. `row`, `event` and `action` are the last numbers given; the columns from
    # `session` on count changes, for daemons that follow them.
    _table(
        "tenants",
        """user TEXT KEY, change INTEGER DEFAULT 0, purge INTEGER DEFAULT 0,
            learned INTEGER DEFAULT 0, row INTEGER DEFAULT 0, event INTEGER DEFAULT 0,
            action INTEGER DEFAULT 0, document_count INTEGER DEFAULT 0,
            token_count INTEGER DEFAULT 0, session INTEGER DEFAULT 0, predictor INTEGER DEFAULT 0,
            rules INTEGER DEFAULT 0, job INTEGER DEFAULT 0, feedback INTEGER DEFAULT 0""",
        engine="postgres",
    ),
    _table("meta", "key TEXT KEY, value TEXT", tenant=None),
    _table(
        "embedders",
        "embedder INTEGER REUSED, name TEXT, dimension INTEGER, spec TEXT",
        unique=("name",),
        tenant=None,
    ),
    _table(
        "scopes",
        "scope INTEGER REUSED, user TEXT, agent TEXT NULL, project TEXT NULL",
        "UNIQUE scopes_by_name (user, coalesce(agent, ''), coalesce(project, ''))",
    ),
    _table(
        "memories",
        """row INTEGER COUNTED, user TEXT, id TEXT, scope INTEGER REFERENCES scopes, content TEXT,
            words TEXT, content_hash TEXT, kind TEXT, provenance TEXT, origin TEXT, trust TEXT,
            confidence REAL, importance REAL, pinned INTEGER, demotion INTEGER, tags TEXT,
            metadata TEXT, sources TEXT, session_key TEXT NULL, turn INTEGER NULL,
            valid_from TEXT NULL, valid_until TEXT NULL, created_at TEXT, updated_at TEXT,
            superseded_by TEXT NULL, deleted_at TEXT NULL, change INTEGER, row_hash BLOB""",
        "memories_by_hash (user, content_hash, scope)"
        " WHERE deleted_at IS NULL AND superseded_by IS NULL",
        "memories_by_change (user, change)",
        "memories_by_turn (user, session_key, turn) WHERE session_key IS NOT NULL",
        "memories_by_successor (user, superseded_by) WHERE superseded_by IS NOT NULL",
        "memories_pinned (user, scope) WHERE pinned = 1",
        "memories_constraints (user, scope) WHERE kind = 'constraint'",
        unique=("user", "id"),
    ),
    # Before the counters, by which a daemon finds memories that lack a vector.
    _table(
        "memory_vectors",
        """embedder INTEGER KEY REFERENCES embedders ON DELETE CASCADE,
            row INTEGER KEY REFERENCES memories ON DELETE CASCADE, vector VECTOR""",
        "memory_vectors_by_row (row)",
        tenant="row",
    ),
    # Narrow on purpose: full-text search joins it for the scope, and counters change without
    # rewriting the memory, its hash or its index entries.
    _table(
        "memory_stats",
        """row INTEGER KEY REFERENCES memories ON DELETE CASCADE, scope INTEGER REFERENCES scopes,
            access_count INTEGER, last_accessed TEXT NULL, usefulness REAL""",
        tenant="row",
    ),
    _table(
        "memory_history",
        """entry INTEGER SERIAL, user TEXT, memory_id TEXT, operation TEXT, at TEXT, actor TEXT,
            action TEXT, why TEXT, before TEXT NULL, other TEXT NULL, other_id TEXT NULL,
            undone INTEGER DEFAULT 0""",
        "memory_history_by_memory (user, memory_id, entry)",
        "memory_history_by_operation (user, operation)",
        "memory_history_merges (user, entry) WHERE action = 'merge'",
    ),
    # Pairs of memories whose claims are related: `newer_id` gives another value to the claim of
    # `older_id`, or both look alike. `decision` is what a person or an agent made of it.
    _table(
        "memory_links",
        """user TEXT KEY, older_id TEXT KEY, newer_id TEXT KEY, kind TEXT, cosine REAL, reason TEXT,
            at TEXT, decision TEXT NULL, decided_by TEXT NULL, decided_at TEXT NULL""",
        "memory_links_by_newer (user, newer_id)",
        "memory_links_open (user, at) WHERE decision IS NULL",
    ),
    _table("counters", "user TEXT KEY, name TEXT KEY, value INTEGER"),
    _table(
        "entities",
        "entity INTEGER REUSED, user TEXT, key TEXT, kind TEXT, name TEXT",
        unique=("user", "key"),
    ),
    _table(
        "aspects",
        "aspect INTEGER REUSED, entity INTEGER REFERENCES entities ON DELETE CASCADE, name TEXT",
        unique=("entity", "name"),
        tenant="entity",
    ),
    _table(
        "attributes",
        """aspect INTEGER KEY REFERENCES aspects ON DELETE CASCADE,
            row INTEGER KEY REFERENCES memories ON DELETE CASCADE, is_stated INTEGER""",
        "attributes_by_row (row)",
        tenant="row",
    ),
    _table(
        "dependencies",
        """entity INTEGER KEY REFERENCES entities ON DELETE CASCADE,
            on_entity INTEGER KEY REFERENCES entities ON DELETE CASCADE""",
        tenant="entity",
    ),
    _table("imports", "user TEXT KEY, digest TEXT KEY, line_count INTEGER, at TEXT"),
    # `learned` counts up with every labelling, so that a history in memory can catch up.
    # `digest` is the digest of the whole session, as `meritory.text.judge.digest` encodes it;
    # `transcript` is compressed JSON.
    # `typed` has the user's own sentences in the prompts that a hook reported, one on a line.
    _table(
        "sessions",
        """session INTEGER SERIAL, user TEXT, key TEXT, agent TEXT NULL, project TEXT NULL,
            harness TEXT NULL, cwd TEXT NULL, state TEXT, context TEXT, has_prompt INTEGER,
            embedder TEXT NULL, context_vector BLOB NULL, gap_hours REAL NULL, alpha REAL,
            started_at TEXT, ended_at TEXT NULL, prompt_count INTEGER DEFAULT 0,
            injection_count INTEGER DEFAULT 0, handle_count INTEGER DEFAULT 0,
            is_explained INTEGER DEFAULT 0, summary TEXT DEFAULT '', transcript BLOB NULL,
            used TEXT NULL, learned INTEGER NULL, scorer TEXT NULL, model_version INTEGER NULL,
            digest BLOB NULL, typed TEXT NULL""",
        "sessions_by_start (user, started_at, session)",
        "sessions_by_learning (user, learned) WHERE learned IS NOT NULL",
        unique=("user", "key"),
    ),
    # Candidates go by memory id, not by row: the record of a session outlives a memory that was
    # replaced. The index covers shown memories only: one over all candidates would touch a page for
    # each of them at every session start, and only a purge would use it.
    _table(
        "session_memories",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, memory_id TEXT KEY,
            source TEXT, origins TEXT, effective_score REAL NULL, composite_score REAL NULL,
            predictor_score REAL NULL, final_score REAL, rank INTEGER, baseline_rank INTEGER NULL,
            predictor_rank INTEGER NULL, was_injected INTEGER, propensity REAL,
            feature_version INTEGER, features BLOB, handle TEXT NULL, injection INTEGER NULL,
            in_context INTEGER DEFAULT 0, is_harmful INTEGER DEFAULT 0, relevance_score REAL NULL,
            is_missing INTEGER DEFAULT 0, fts_hit_count INTEGER DEFAULT 0,
            agent_relevance_score REAL NULL, agent_feedback_count INTEGER DEFAULT 0,
            label REAL NULL, label_parts TEXT NULL""",
        "session_memories_shown (memory_id, session) WHERE was_injected = 1",
        tenant="session",
    ),
    # All candidates of a session whose rows were packed, as `meritory.store.sql.candidates`
    # encodes them. `has_helped` says whether a ranked one did. Maintenance has looked at an old
    # pack and erased `thinned_count` of its candidates.
    _table(
        "session_packs",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, has_helped INTEGER,
            is_old INTEGER DEFAULT 0, thinned_count INTEGER DEFAULT 0, content BLOB""",
        tenant="session",
    ),
    _table(
        "injections",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, number INTEGER KEY, kind TEXT,
            turn INTEGER, code TEXT, at TEXT, token_count INTEGER, is_explained INTEGER,
            is_delivered INTEGER, offer TEXT""",
        tenant="session",
    ),
    # Append-only: means and counts are derived from these.
    _table(
        "rating_events",
        """event INTEGER SERIAL, session INTEGER REFERENCES sessions ON DELETE CASCADE,
            memory_id TEXT, turn INTEGER, channel TEXT, score REAL, at TEXT""",
        "rating_events_by_memory (session, memory_id, turn)",
        tenant="session",
    ),
    _table(
        "session_scores",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, judge TEXT, score REAL NULL,
            confidence REAL, memories_recalled INTEGER, memories_used INTEGER,
            novel_context_count INTEGER, missing_topics TEXT, continuity_reasoning TEXT, raw TEXT,
            excluded TEXT NULL, at TEXT""",
        tenant="session",
    ),
    _table(
        "uses",
        "session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, memory_id TEXT KEY, gain REAL",
        tenant="session",
    ),
    _table(
        "events",
        """event INTEGER COUNTED, user TEXT, at TEXT, category TEXT, name TEXT,
            session_key TEXT NULL, memory_id TEXT NULL, request_id TEXT NULL, details TEXT""",
        "events_by_session (user, session_key, event)",
        "events_by_memory (user, memory_id, event) WHERE memory_id IS NOT NULL",
        "events_by_request (user, request_id, event) WHERE request_id IS NOT NULL",
    ),
    _table(
        "spending",
        """spend INTEGER SERIAL, user TEXT, at TEXT, purpose TEXT, model TEXT, input_tokens INTEGER,
            output_tokens INTEGER, cost REAL""",
        "spending_by_time (user, at)",
    ),
    _table("predictor_state", "user TEXT KEY, state TEXT"),
    _table(
        "predictor_comparisons",
        """comparison INTEGER SERIAL, user TEXT,
            session INTEGER REFERENCES sessions ON DELETE CASCADE, at TEXT, project TEXT NULL,
            scorer TEXT NULL, model_version INTEGER NULL, predictor_ndcg REAL NULL,
            baseline_ndcg REAL NULL, predictor_won REAL NULL, margin REAL NULL,
            scorer_confidence REAL, ema_updated INTEGER, reason TEXT NULL, success_rate REAL,
            alpha REAL, predictor_top_ids TEXT, baseline_top_ids TEXT, relevance_scores TEXT,
            fts_overlap_score REAL NULL, replay_ndcg TEXT, replay_log_rank TEXT""",
        "predictor_comparisons_by_time (user, at, comparison)",
        unique=("session",),
    ),
    # The searches of a session with their candidates: ids, shown places and ranks as JSON, features
    # in half precision. The second half is empty until the session is labelled.
    _table(
        "searches",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, number INTEGER KEY,
            surface TEXT, at TEXT, model_version INTEGER, alpha REAL, feature_version INTEGER,
            memory_ids TEXT, shown TEXT, predictor_ranks TEXT, features BLOB, labels TEXT,
            predictor_ndcg REAL NULL, baseline_ndcg REAL NULL, predictor_won REAL NULL,
            reason TEXT NULL, success_rate REAL NULL, alpha_after REAL NULL, replay_ndcg TEXT,
            replay_log_rank TEXT""",
        "searches_by_time (surface, at, session, number)",
        tenant="session",
    ),
    _table(
        "predictor_training_log",
        """run INTEGER SERIAL, user TEXT, surface TEXT, at TEXT, model_version INTEGER,
            scorer TEXT, reason TEXT, loss REAL NULL, sample_count INTEGER, skipped_count INTEGER,
            duration_ms REAL, accepted INTEGER, canary_ndcg REAL NULL, canary_ndcg_delta REAL NULL,
            canary_score_variance REAL NULL, canary_topk_churn REAL NULL, gates TEXT,
            train_validation_failures INTEGER, drift_resets INTEGER, error TEXT NULL""",
        "predictor_training_by_user (user, run)",
    ),
    _table(
        "predictor_canary",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, user TEXT, chosen_at TEXT,
            retired_at TEXT NULL""",
        "predictor_canary_by_user (user, retired_at, session)",
    ),
    _table(
        "predictor_calibration",
        """session INTEGER KEY REFERENCES sessions ON DELETE CASCADE, memory_id TEXT KEY, user TEXT,
            judge_label REAL, offered_at TEXT, human_label REAL NULL, rated_at TEXT NULL""",
        "predictor_calibration_by_user (user, offered_at)",
    ),
    _table(
        "feedback_events",
        """event INTEGER SERIAL, user TEXT, id TEXT, at TEXT, project TEXT NULL, agent TEXT NULL,
            session_key TEXT NULL, origin TEXT, signal TEXT, polarity INTEGER, status TEXT,
            reason TEXT, domain TEXT, tool TEXT NULL, tags TEXT, texts TEXT, details TEXT,
            quality REAL, memory_id TEXT NULL, occurrence INTEGER, completed_at TEXT NULL""",
        "feedback_by_time (user, at, polarity)",
        "feedback_by_kind (user, domain, polarity, status, at)",
        "feedback_by_tool (user, tool, polarity, at) WHERE tool IS NOT NULL",
        "feedback_by_lesson (user, memory_id, event) WHERE memory_id IS NOT NULL",
        unique=("user", "id"),
    ),
    # The lesson of each wording, so that a report need not be compared with all others.
    _table(
        "feedback_wordings",
        "user TEXT KEY, agent TEXT KEY, project TEXT KEY, fingerprint TEXT KEY, memory_id TEXT",
        "feedback_wordings_by_lesson (user, memory_id)",
    ),
    _table(
        "feedback_lessons",
        """user TEXT KEY, memory_id TEXT KEY, polarity INTEGER, report_count INTEGER, first_at TEXT,
            last_at TEXT""",
    ),
    # Reports about the claims of memories; ids of reports ascend with time.
    _table(
        "feedback_evidence",
        """user TEXT KEY, memory_id TEXT KEY, feedback_id TEXT KEY, at TEXT, witness TEXT,
            value REAL, session_key TEXT NULL""",
    ),
    # The belief behind a memory's usefulness, as of the last report about it.
    _table(
        "memory_beliefs",
        """user TEXT KEY, memory_id TEXT KEY, support REAL, doubt REAL, undecided REAL,
            as_of_day REAL, is_contested INTEGER""",
        "memory_beliefs_contested (user, memory_id) WHERE is_contested = 1",
    ),
    # Tool calls as clients report them before each tool runs.
    _table(
        "actions",
        """action INTEGER COUNTED, user TEXT, session_key TEXT, at TEXT, project TEXT NULL,
            harness TEXT NULL, tool TEXT, tool_name TEXT, argument TEXT, heads TEXT, risk INTEGER,
            decision TEXT, rule_id TEXT NULL, blame_count INTEGER DEFAULT 0,
            praise_count INTEGER DEFAULT 0""",
        "actions_by_session (user, session_key, action)",
        "actions_by_tool (user, tool, action)",
        "actions_by_time (user, at, action)",
        "actions_by_rule (user, rule_id, action) WHERE rule_id IS NOT NULL",
    ),
    _table(
        "action_feedback",
        """user TEXT KEY, feedback_id TEXT KEY, action INTEGER KEY, polarity INTEGER, score REAL,
            is_primary INTEGER, at TEXT""",
        unenforced={"action": "actions"},
    ),
    _table(
        "rules",
        """user TEXT KEY, id TEXT KEY, project TEXT NULL, tool TEXT, pattern TEXT, text TEXT,
            state TEXT, risk INTEGER, is_forbidden INTEGER, is_approved INTEGER, weight REAL,
            weighed_at TEXT, report_count INTEGER, held_count INTEGER, replay_count INTEGER,
            alarm_count INTEGER, replayed_through INTEGER, memory_id TEXT NULL, created_at TEXT,
            updated_at TEXT, reported_at TEXT NULL, expires_at TEXT""",
        "rules_by_state (user, state, tool)",
        unenforced={"replayed_through": "actions"},
    ),
    # Changes made by the system; reports by people are in feedback_events.
    _table(
        "rule_events",
        """event INTEGER SERIAL, user TEXT, rule_id TEXT, at TEXT, kind TEXT, reason TEXT,
            actor TEXT, session_key TEXT NULL, action INTEGER NULL, feedback_id TEXT NULL,
            before TEXT NULL, is_undone INTEGER DEFAULT 0""",
        "rule_events_by_rule (user, rule_id, event)",
        unenforced={"action": "actions"},
    ),
    _table(
        "session_constraints",
        """user TEXT KEY, session_key TEXT KEY, kind TEXT KEY, argument TEXT KEY, said TEXT,
            feedback_id TEXT NULL, at TEXT, lifted_at TEXT NULL""",
    ),
    # Proposals of an extractor that a check rejected; they can be restored.
    _table(
        "refusals",
        """user TEXT KEY, id TEXT KEY, at TEXT, agent TEXT NULL, project TEXT NULL,
            session_key TEXT NULL, content TEXT, kind TEXT, provenance TEXT, origin TEXT,
            confidence REAL, turn TEXT NULL, quote TEXT, reason TEXT, extractor TEXT,
            memory_id TEXT NULL""",
        "refusals_by_time (user, at)",
        "refusals_by_memory (user, memory_id) WHERE memory_id IS NOT NULL",
    ),
    # How often a memory was recalled; injections are counted in memory_stats.
    _table(
        "retrievals",
        "row INTEGER KEY REFERENCES memories ON DELETE CASCADE, count INTEGER, last_at TEXT",
        tenant="row",
    ),
    # A person's verdict on a merge, by the number of its history entry.
    _table(
        "merge_audits",
        "user TEXT KEY, entry INTEGER KEY, at TEXT, verdict TEXT",
        unenforced={"entry": "memory_history"},
    ),
    # The project of every folder that was used, by what tells folders of one name apart.
    _table("project_folders", "user TEXT KEY, identity TEXT KEY, project TEXT, path TEXT, at TEXT"),
    _table(
        "consents",
        "user TEXT KEY, install_date TEXT, opt_in INTEGER NULL, last_prompted_at TEXT NULL",
    ),
    # Holds a hash of each secret, never the secret.
    _table(
        "access_tokens",
        """user TEXT KEY, id TEXT KEY, name TEXT, role TEXT, agent TEXT NULL, project TEXT NULL,
            digest BLOB, created_at TEXT, expires_at TEXT NULL, revoked_at TEXT NULL,
            last_used_at TEXT NULL""",
    ),
    # SQLite stores keep models as files next to the database.
    _table(
        "models", "user TEXT KEY, version INTEGER KEY, content BLOB, digest TEXT", engine="postgres"
    ),
    # Last: a daemon takes up any job it sees, so a migration copies jobs at the very end.
    _table(
        "jobs",
        """job INTEGER SERIAL, user TEXT, kind TEXT, key TEXT, stage TEXT DEFAULT '', state TEXT,
            attempt_count INTEGER DEFAULT 0, due_at TEXT, lease TEXT NULL, leased_until TEXT NULL,
            error TEXT NULL, created_at TEXT, finished_at TEXT NULL""",
        "jobs_by_due (state, due_at, job)",
        unique=("user", "kind", "key"),
    ),
)
BY_NAME: Mapping[str, SqlTable] = {table.name: table for table in TABLES}
