"""Counts, pages and graphs for the dashboard."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar

from meritory.domain.memory import Entity, EveryScope, Scope
from meritory.domain.session import (
    OUTCOMES,
    EntityGraph,
    MemoryDelivery,
    SessionQuery,
    SessionSummary,
)
from meritory.domain.world import moment_text
from meritory.store.sql.mapper import SqlEngine, SqlReader, as_json, chosen_filters, moment
from meritory.store.sql.sessions import SESSIONS, no_session
from meritory.store.sql.visibility import LIVE, visible_scopes

T = TypeVar("T")
# Numbers that only grow, each at the end of an index: every statement reads one row.
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
# Tables whose rows change in place; they are small enough to read as a whole.
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
    # By creation, not by id: an imported memory keeps the moment of its source.
    "memories": "SELECT count(*) FROM memories WHERE user = :user AND created_at >= :since",
    "sessions": "SELECT count(*) FROM sessions WHERE user = :user AND started_at >= :since",
    "injected": """SELECT sum(handle_count) FROM sessions
        WHERE user = :user AND started_at >= :since""",
    "reports": "SELECT count(*) FROM feedback_events WHERE user = :user AND at >= :since",
}
_JUDGED = """LEFT JOIN predictor_comparisons c ON c.session = s.session
    LEFT JOIN session_scores r ON r.session = s.session"""
_SUMMARIES = f"""SELECT {SESSIONS.selected("found")}, outcome, margin, excluded_because FROM (
    SELECT s.*, {_OUTCOME} AS outcome, c.margin AS margin,
        coalesce(c.reason, r.excluded) AS excluded_because
    FROM sessions s {_JUDGED} WHERE s.user = :user"""  # noqa: S608 - ours
_LATEST_FIRST = ") AS found ORDER BY started_at DESC, session DESC LIMIT :limit"
_FILTERS = {
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
_TOP_ENTITIES = f"""SELECT n.entity, n.kind, n.name, count(DISTINCT m.row) AS many
    FROM entities n JOIN aspects p ON p.entity = n.entity
    JOIN attributes a ON a.aspect = p.aspect
    JOIN memories m ON m.row = a.row AND {LIVE}
    WHERE n.user = :user AND m.scope IN (SELECT value FROM json_each(:scopes))
    GROUP BY n.entity, n.kind, n.name, n.key ORDER BY many DESC, n.key LIMIT :limit"""  # noqa: S608 - ours
# Only the latest memories of each entity: one that everything is about connects nothing.
_ROWS_OF_NODE = f"""SELECT DISTINCT a.row FROM aspects p JOIN attributes a ON a.aspect = p.aspect
    JOIN memories m ON m.row = a.row AND {LIVE}
    WHERE p.entity = ? AND m.scope IN (SELECT value FROM json_each(?))
    ORDER BY a.row DESC LIMIT ?"""  # noqa: S608 - ours
# One scan counts every combination; the sums are over a few hundred rows.
_FACETS = """SELECT CASE WHEN m.deleted_at IS NOT NULL THEN 'forgotten'
        WHEN m.superseded_by IS NOT NULL THEN 'superseded' ELSE 'live' END,
        m.kind, m.provenance, m.trust, coalesce(c.project, ''), m.pinned, count(*)
    FROM memories m JOIN scopes c ON c.scope = m.scope
    WHERE m.user = :user AND m.scope IN (SELECT value FROM json_each(:scopes))
    GROUP BY 1, 2, 3, 4, 5, 6"""
ROWS_PER_NODE = 1_000
CACHE_LIMIT = 32
_OUTCOMES_SINCE = f"""SELECT {_OUTCOME} AS outcome, count(*) FROM sessions s {_JUDGED}
    WHERE s.user = :user AND s.started_at >= :since GROUP BY outcome"""  # noqa: S608 - ours


class SqlDashboardReads(SqlReader):
    """Queries that only the dashboard and the status reports make."""

    _engine: SqlEngine

    def change_numbers(self) -> dict[str, int]:
        """Return a number per topic that changes with every write to that topic.

        It covers all users and is cheap however large the store is.
        """
        with self._engine.read_across() as connection:
            numbers = {
                topic: int(connection.execute(statement).fetchone()[0])
                for topic, statement in _NUMBERS.items()
            }
            for topic, statement in _CONTENTS.items():
                content = repr(connection.execute(statement).fetchall()).encode()
                numbers[topic] = (numbers.get(topic, 0) << 32) + zlib.crc32(content)
        return numbers

    @cached_property
    def _counted(self) -> dict[Hashable, tuple[int, Any]]:
        """Cached results, each with the number of the change that it covers."""
        return {}

    def _while_unchanged(self, name: Hashable, count: Callable[[], T]) -> T:
        """Return a cached result of `count`, which scans all memories, until one changes."""
        change = self.change_numbers()["memory"]
        cached = self._counted.get(name)
        if cached is None or cached[0] != change:
            cached = (change, count())
            if len(self._counted) >= CACHE_LIMIT:
                self._counted.clear()
            self._counted[name] = cached
        result: T = cached[1]
        return result

    def facets(self, scope: Scope) -> dict[str, dict[str, int]]:
        """Return counts of visible memories by state, and of the live ones by other fields."""

        def count() -> dict[str, dict[str, int]]:
            with self._reading(scope.user) as connection:
                scopes = as_json(visible_scopes(connection, scope))
                rows = connection.execute(
                    _FACETS, {"user": scope.user, "scopes": scopes}
                ).fetchall()
            names = ("kind", "provenance", "trust", "project", "pinned")
            facets = {name: Counter[str]() for name in ("state", *names)}
            for state, *values, pinned, number in rows:
                facets["state"][state] += number
                # Superseded and forgotten memories count by state only.
                if state == "live":
                    values.append("yes" if pinned else "no")
                    for name, value in zip(names, values, strict=True):
                        facets[name][value] += number
            return {name: dict(sorted(counts.items())) for name, counts in facets.items()}

        return self._while_unchanged(("facets", scope), count)

    def entities(self, scope: Scope, limit: int) -> list[Entity]:
        """Return the entities with the most live memories that the scope may see."""

        def count() -> list[Entity]:
            with self._reading(scope.user) as connection:
                values = {"user": scope.user, "limit": limit}
                scopes = as_json(visible_scopes(connection, scope))
                rows = connection.execute(_TOP_ENTITIES, {**values, "scopes": scopes}).fetchall()
            return [Entity(kind, name, memory_count) for _, kind, name, memory_count in rows]

        return list(self._while_unchanged(("entities", scope, limit), count))

    def totals(self, user: str) -> dict[str, int]:
        """Return counts of memories by state, kind, provenance and trust, and of their history."""
        facets = self.facets(EveryScope(user))
        states = facets["state"]
        totals = {
            "live": states.get("live", 0),
            "deleted": states.get("forgotten", 0),
            "superseded": states.get("superseded", 0),
        }
        for name, table in (("history", "memory_history"), ("entities", "entities")):
            counted = f"SELECT count(*) FROM {table} WHERE user = ?"  # noqa: S608 - constants
            ((totals[name],),) = self._all(user, counted, (user,))
        for column in ("kind", "provenance", "trust"):
            totals |= {f"{column}.{value}": count for value, count in facets[column].items()}
        return totals

    def activity(self, user: str, since: datetime) -> dict[str, int]:
        """Return counts since a moment: memories, sessions, injections, reports and outcomes."""
        values = {"user": user, "since": moment_text(since)}
        with self._reading(user) as connection:
            figures = {
                name: int(connection.execute(statement, values).fetchone()[0] or 0)
                for name, statement in _ACTIVITY.items()
            }
            outcomes = dict(connection.execute(_OUTCOMES_SINCE, values).fetchall())
        return figures | {outcome: outcomes.get(outcome, 0) for outcome in OUTCOMES}

    def session_page(self, user: str, query: SessionQuery) -> list[SessionSummary]:
        """Return a page of sessions with their outcomes, latest first."""
        conditions, values = chosen_filters(query, _FILTERS)
        return self._summaries(conditions, {**values, "user": user, "limit": query.limit})

    def session_summary(self, user: str, key: str) -> SessionSummary:
        """Return one session with its outcome; raise NotFound otherwise."""
        summaries = self._summaries(["s.key = :key"], {"user": user, "key": key, "limit": 1})
        if not summaries:
            raise no_session(key)
        return summaries[0]

    def _summaries(self, conditions: list[str], values: Mapping[str, Any]) -> list[SessionSummary]:
        statement = " AND ".join([_SUMMARIES, *conditions]) + _LATEST_FIRST
        rows = self._all(values["user"], statement, values)
        return [SessionSummary(SESSIONS.decode(row[:-3]), *row[-3:]) for row in rows]

    def shown_in(self, user: str, memory_id: str, limit: int) -> list[MemoryDelivery]:
        """Return the sessions that a memory was injected into, latest first."""
        rows = self._all(user, _SHOWN, (memory_id, user, limit))
        return [MemoryDelivery(key, project, moment(at), *rest) for key, project, at, *rest in rows]

    def entity_graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        """Return the entities with the most visible live memories, and their connections."""
        return self._while_unchanged(
            ("graph", scope, node_limit, edge_limit),
            lambda: self._graph(scope, node_limit, edge_limit),
        )

    def _graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        with self._reading(scope.user) as connection:
            scopes = as_json(visible_scopes(connection, scope))
            values = {"user": scope.user, "scopes": scopes, "limit": node_limit}
            nodes = connection.execute(_TOP_ENTITIES, values).fetchall()
            about = [
                {row for (row,) in connection.execute(_ROWS_OF_NODE, (key, scopes, ROWS_PER_NODE))}
                for key, *_ in nodes
            ]
            index = {key: number for number, (key, *_) in enumerate(nodes)}
            needs = connection.execute(
                """SELECT entity, on_entity FROM dependencies
                    WHERE entity IN (SELECT value FROM json_each(:nodes))
                    AND on_entity IN (SELECT value FROM json_each(:nodes))""",
                {"nodes": as_json(index)},
            ).fetchall()
        edges = [
            (first, second, shared)
            for first, second in combinations(range(len(nodes)), 2)
            if (shared := len(about[first] & about[second]))
        ]
        edges.sort(key=lambda edge: (-edge[2], edge))
        return EntityGraph(
            tuple(Entity(kind, name, memory_count) for _, kind, name, memory_count in nodes),
            tuple(edges[:edge_limit]),
            tuple(sorted((index[entity], index[needed]) for entity, needed in needs)),
        )
