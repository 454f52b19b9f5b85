"""What the dashboard asks, in SQL."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from meritory.domain.codec import moment_text
from meritory.domain.memory import Entity, Scope
from meritory.domain.session import (
    OUTCOMES,
    EntityGraph,
    MemoryShowing,
    SessionQuery,
    SessionSummary,
)
from meritory.store.sql.memory_reads import SqlReads, as_json
from meritory.store.sql.rows import SELECT_SESSION, SqlReader, decode_session, moment
from meritory.store.sql.sessions import no_session

T = TypeVar("T")
_LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL"
# Numbers that only grow, each at the end of an index: none of these looks at more than a row.
_NUMBERS = {
    "memory": """SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'change'""",
    "session": """SELECT (SELECT coalesce(max(session), 0) FROM sessions)
        + (SELECT coalesce(max(event), 0) FROM events)
        + (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'learned')""",
    "predictor": """SELECT (SELECT coalesce(max(comparison), 0) FROM predictor_comparisons)
        + (SELECT coalesce(max(run), 0) FROM predictor_training_log)""",
    "rules": """SELECT (SELECT coalesce(max(event), 0) FROM rule_events)
        + (SELECT count(*) FROM rules)""",
    "job": """SELECT coalesce(max(job), 0) FROM jobs""",
}
# What changes in place is small, so that reading all of it is cheap.
_CONTENTS = {
    "predictor": "SELECT user, state FROM predictor_state ORDER BY user",
    "job": """SELECT state, count(*), max(due_at), max(stage), max(attempt_count) FROM jobs
        WHERE state <> 'done' GROUP BY state""",
    "feedback": "SELECT max(event), count(*) FROM feedback_events",
}
_OUTCOME = """CASE
        WHEN c.predictor_won = 1 THEN 'win' WHEN c.predictor_won = 0 THEN 'loss'
        WHEN c.predictor_won IS NOT NULL THEN 'tie'
        WHEN c.session IS NOT NULL OR r.excluded IS NOT NULL THEN 'excluded' END"""
_ACTIVITY = {
    # Ids begin with the moment they were made at, but imports keep the moment of the source.
    "memories": "SELECT count(*) FROM memories WHERE user = :user AND created_at >= :since",
    "sessions": "SELECT count(*) FROM sessions WHERE user = :user AND started_at >= :since",
    "injected": """SELECT sum(handle_count) FROM sessions
        WHERE user = :user AND started_at >= :since""",
    "reports": "SELECT count(*) FROM feedback_events WHERE user = :user AND at >= :since",
}
_JUDGED = """LEFT JOIN predictor_comparisons c ON c.session = s.session
    LEFT JOIN session_scores r ON r.session = s.session"""
_SUMMARIES = f"""{SELECT_SESSION.replace(" FROM sessions", "")},
        outcome, margin, told FROM (
    SELECT s.*, {_OUTCOME} AS outcome, c.margin AS margin, coalesce(c.reason, r.excluded) AS told
    FROM sessions s {_JUDGED} WHERE s.user = :user"""  # noqa: S608 - ours
_LATEST_FIRST = ") AS found ORDER BY started_at DESC, session DESC LIMIT :limit"
_CONDITIONS = {
    "project": "s.project = :project",
    "outcome": f"{_OUTCOME} = :outcome",
    "since": "s.started_at >= :since",
    "until": "s.started_at < :until",
    "before": """(s.started_at, s.session) <
        (SELECT started_at, session FROM sessions WHERE user = :user AND key = :before)""",
}
_SHOWN = f"""SELECT s.key, s.project, s.started_at, m.handle, m.source, m.rank, m.label, {_OUTCOME}
    FROM session_memories m JOIN sessions s ON s.session = m.session {_JUDGED}
    WHERE m.memory_id = ? AND m.was_injected = 1 AND s.user = ?
    ORDER BY m.session DESC LIMIT ?"""  # noqa: S608 - ours
_NODES = f"""SELECT n.entity, n.kind, n.name, count(DISTINCT m.row) AS many
    FROM entities n JOIN aspects p ON p.entity = n.entity
    JOIN attributes a ON a.aspect = p.aspect
    JOIN memories m ON m.row = a.row AND {_LIVE}
    WHERE n.user = :user AND m.scope IN (SELECT value FROM json_each(:scopes))
    GROUP BY n.entity, n.kind, n.name, n.key ORDER BY many DESC, n.key LIMIT :limit"""  # noqa: S608 - ours
# Of each entity only the latest memories are looked at: what is about everything ties nothing.
_ROWS_OF_NODE = f"""SELECT DISTINCT a.row FROM aspects p JOIN attributes a ON a.aspect = p.aspect
    JOIN memories m ON m.row = a.row AND {_LIVE}
    WHERE p.entity = ? AND m.scope IN (SELECT value FROM json_each(?))
    ORDER BY a.row DESC LIMIT ?"""  # noqa: S608 - ours
ROWS_PER_NODE = 1_000
KEPT_LIMIT = 32
_OUTCOMES_SINCE = f"""SELECT {_OUTCOME} AS outcome, count(*) FROM sessions s {_JUDGED}
    WHERE s.user = :user AND s.started_at >= :since GROUP BY outcome"""  # noqa: S608 - ours


class SqlDashboardReads:
    """What can be asked of a store at a glance."""

    _engine: SqlReader
    # By topic the statement that tells its number; another database counts in other places.
    _numbers: Mapping[str, str] = _NUMBERS

    def change_numbers(self) -> dict[str, int]:
        with self._engine.read_across() as connection:
            found = {
                topic: int(connection.execute(statement).fetchone()[0])
                for topic, statement in self._numbers.items()
            }
            for topic, statement in _CONTENTS.items():
                told = repr(connection.execute(statement).fetchall()).encode()
                found[topic] = (found.get(topic, 0) << 32) + zlib.crc32(told)
        return found

    def facets(self, scope: Scope) -> dict[str, dict[str, int]]:
        return self._while_unchanged(("facets", scope), lambda: self._facets(scope))

    def _facets(self, scope: Scope) -> dict[str, dict[str, int]]:
        with self._engine.read() as connection:
            scopes = as_json(SqlReads(connection).visible_scopes(scope))
            # One walk over all; the rest is adding up a few hundred rows.
            rows = connection.execute(
                """SELECT CASE WHEN m.deleted_at IS NOT NULL THEN 'forgotten'
                        WHEN m.superseded_by IS NOT NULL THEN 'superseded' ELSE 'live' END,
                    m.kind, m.provenance, m.trust, coalesce(c.project, ''), m.pinned, count(*)
                FROM memories m JOIN scopes c ON c.scope = m.scope
                WHERE m.user = :user AND m.scope IN (SELECT value FROM json_each(:scopes))
                GROUP BY 1, 2, 3, 4, 5, 6""",
                {"user": scope.user, "scopes": scopes},
            ).fetchall()
        return _added_up(rows)

    @cached_property
    def _kept(self) -> dict[Hashable, tuple[int, Any]]:
        """What was counted, with the number of the change until which that holds."""
        return {}

    def _while_unchanged(self, name: Hashable, make: Callable[[], T]) -> T:
        """What walks over all memories is done anew only when one of them has changed."""
        change = self.change_numbers()["memory"]
        known = self._kept.get(name)
        if known is None or known[0] != change:
            known = (change, make())
            if len(self._kept) >= KEPT_LIMIT:
                self._kept.clear()
            self._kept[name] = known
        found: T = known[1]
        return found

    def activity(self, user: str, since: datetime) -> dict[str, int]:
        values = {"user": user, "since": moment_text(since)}
        with self._engine.read() as connection:
            found = {
                name: int(connection.execute(statement, values).fetchone()[0] or 0)
                for name, statement in _ACTIVITY.items()
            }
            counted = dict(connection.execute(_OUTCOMES_SINCE, values).fetchall())
        return found | {outcome: counted.get(outcome, 0) for outcome in OUTCOMES}

    def session_page(self, user: str, query: SessionQuery) -> list[SessionSummary]:
        values: dict[str, Any] = {
            "project": query.project,
            "outcome": query.outcome,
            "since": None if query.since is None else moment_text(query.since),
            "until": None if query.until is None else moment_text(query.until),
            "before": query.before,
        }
        asked = [_CONDITIONS[name] for name, value in values.items() if value is not None]
        return self._summaries(
            "".join(f" AND {condition}" for condition in asked),
            {**values, "user": user, "limit": query.limit},
        )

    def session_summary(self, user: str, key: str) -> SessionSummary:
        found = self._summaries(" AND s.key = :key", {"user": user, "key": key, "limit": 1})
        if not found:
            raise no_session(key)
        return found[0]

    def _summaries(self, conditions: str, values: Mapping[str, Any]) -> list[SessionSummary]:
        with self._engine.read() as connection:
            rows = connection.execute(_SUMMARIES + conditions + _LATEST_FIRST, values).fetchall()
        return [SessionSummary(decode_session(row), *row[-3:]) for row in rows]

    def shown_in(self, user: str, memory_id: str, limit: int) -> list[MemoryShowing]:
        with self._engine.read() as connection:
            rows = connection.execute(_SHOWN, (memory_id, user, limit)).fetchall()
        return [MemoryShowing(key, project, moment(at), *rest) for key, project, at, *rest in rows]

    def entity_graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        return self._while_unchanged(
            ("graph", scope, node_limit, edge_limit),
            lambda: self._graph(scope, node_limit, edge_limit),
        )

    def _graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        with self._engine.read() as connection:
            scopes = as_json(SqlReads(connection).visible_scopes(scope))
            nodes = connection.execute(
                _NODES, {"user": scope.user, "scopes": scopes, "limit": node_limit}
            ).fetchall()
            about = [
                {row for (row,) in connection.execute(_ROWS_OF_NODE, (key, scopes, ROWS_PER_NODE))}
                for key, *_ in nodes
            ]
            place = {key: at for at, (key, *_) in enumerate(nodes)}
            needs = connection.execute(
                """SELECT entity, on_entity FROM dependencies
                    WHERE entity IN (SELECT value FROM json_each(:nodes))
                    AND on_entity IN (SELECT value FROM json_each(:nodes))""",
                {"nodes": as_json(place)},
            ).fetchall()
        ties = [
            (one, other, len(about[one] & about[other]))
            for one in range(len(nodes))
            for other in range(one + 1, len(nodes))
        ]
        ties = sorted((tie for tie in ties if tie[2]), key=lambda tie: (-tie[2], tie))
        return EntityGraph(
            tuple(Entity(kind, name, many) for _, kind, name, many in nodes),
            tuple(ties[:edge_limit]),
            tuple(sorted((place[one], place[other]) for one, other in needs)),
        )


def _added_up(rows: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, int]]:
    """Facets out of counts of every combination; those that are gone count by state only."""
    names = ("kind", "provenance", "trust", "project", "pinned")
    found: dict[str, dict[str, int]] = {"state": {}, **{name: {} for name in names}}
    for state, kind, provenance, trust, project, pinned, many in rows:
        found["state"][state] = found["state"].get(state, 0) + many
        if state == "live":
            values = (kind, provenance, trust, project, "yes" if pinned else "no")
            for name, value in zip(names, values, strict=True):
                found[name][value] = found[name].get(value, 0) + many
    return {name: dict(sorted(counts.items())) for name, counts in found.items()}
