"""What a database must hold after many sessions, counted row by row; every fault is named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

LEARN, EXTRACT = "finish-session", "extract"
ONCE = ("session.start", "session.end", "session.learned")
Rows = list[tuple[Any, ...]]


@dataclass
class Diary:
    """What clients were told is done; whatever is not in here may or may not be there."""

    # By user and key what a session was acknowledged to have had.
    begun: set[tuple[str, str]] = field(default_factory=set)
    ended: dict[tuple[str, str], int] = field(default_factory=dict)
    prompts: Counter[tuple[str, str]] = field(default_factory=Counter)
    rated: set[tuple[str, str, str]] = field(default_factory=set)
    # By user and text the id it was stored under.
    stored: dict[tuple[str, str], str] = field(default_factory=dict)
    # How many of the user's own turns the transcripts had, by user.
    turns: Counter[str] = field(default_factory=Counter)


class Audit:
    """One look at everything; it changes nothing."""

    def __init__(self, connection: Connection[Any], diary: Diary) -> None:
        self._connection = connection
        self._diary = diary
        connection.execute("SET search_path TO meritory")

    def faults(self) -> list[str]:
        """All that is wrong."""
        return [
            *self._sessions(),
            *self._events(),
            *self._learned(),
            *self._jobs(),
            *self._ratings(),
            *self._memories(),
            *self._counters(),
            *self._standing(),
        ]

    def _rows(self, statement: str) -> Rows:
        return self._connection.execute(statement).fetchall()  # type: ignore[arg-type]

    def _sessions(self) -> Iterator[str]:
        found = {
            (user, key): (state, ended_at, prompts)
            for user, key, state, ended_at, prompts in self._rows(
                'SELECT "user", key, state, ended_at, prompt_count FROM sessions'
            )
        }
        yield from (f"lost session {one}" for one in self._diary.begun - set(found))
        yield from (f"a session that nobody began: {one}" for one in set(found) - self._diary.begun)
        for one, (state, ended_at, prompts) in found.items():
            if state != "finished" or ended_at is None:
                yield f"session {one} is {state}"
            if prompts < self._diary.prompts[one]:
                yield f"lost prompt of {one}"

    def _events(self) -> Iterator[str]:
        named = ", ".join(f"'{name}'" for name in ONCE)
        counted = {
            (user, key, name): count
            for user, key, name, count in self._rows(
                f"""SELECT "user", session_key, name, count(*) FROM events
                    WHERE name IN ({named}) GROUP BY 1, 2, 3"""
            )
        }
        for user, key in self._diary.begun:
            for name in ONCE:
                if counted.get((user, key, name), 0) != 1:
                    yield f"{name} of {user} {key}: {counted.get((user, key, name), 0)} times"

    def _learned(self) -> Iterator[str]:
        """Each session has one score, one comparison, and labels for all that it ranked."""
        for user, key, scores, comparisons, labelled, memories in self._rows(
            """SELECT s."user", s.key,
                (SELECT count(*) FROM session_scores o
                    WHERE o."user" = s."user" AND o.session = s.session),
                (SELECT count(*) FROM predictor_comparisons c
                    WHERE c."user" = s."user" AND c.session = s.session),
                (SELECT count(label_parts) FROM session_memories m
                    WHERE m."user" = s."user" AND m.session = s.session),
                (SELECT count(*) FROM session_memories m
                    WHERE m."user" = s."user" AND m.session = s.session)
                FROM sessions s"""
        ):
            if (scores, comparisons) != (1, 1):
                yield f"{user} {key} has {scores} scores and {comparisons} comparisons"
            if not memories or labelled != memories:
                yield f"{user} {key} has labels for {labelled} of {memories} memories"

    def _jobs(self) -> Iterator[str]:
        rows = self._rows('SELECT "user", key, kind, state FROM jobs')
        yield from (f"job {row} is not done" for row in rows if row[3] != "done")
        there = Counter(row[:3] for row in rows)
        for user, key in self._diary.ended:
            for kind in (LEARN, EXTRACT):
                if there[(user, key, kind)] != 1:
                    yield f"{there[(user, key, kind)]} jobs {kind} of {user} {key}"

    def _ratings(self) -> Iterator[str]:
        found = Counter(
            self._rows(
                """SELECT r."user", s.key, r.memory_id FROM rating_events r JOIN sessions s
                    ON s."user" = r."user" AND s.session = r.session"""
            )
        )
        yield from (f"lost rating {one}" for one in self._diary.rated - set(found))
        told = Counter(
            self._rows("""SELECT "user", session_key, memory_id FROM events
                WHERE name = 'feedback.rated'""")
        )
        if told != found:
            yield "ratings and what was told of them differ"

    def _memories(self) -> Iterator[str]:
        live = self._rows(
            """SELECT "user", content, id FROM memories
                WHERE deleted_at IS NULL AND superseded_by IS NULL"""
        )
        there = {(user, content): id_ for user, content, id_ in live}
        for one, id_ in self._diary.stored.items():
            if there.get(one) != id_:
                yield f"lost memory {one}"
        twice = Counter(row[:2] for row in live)
        yield from (f"memory {one} is there {n} times" for one, n in twice.items() if n > 1)
        for user, id_, counted, shown in self._rows(
            """SELECT m."user", m.id, t.access_count,
                (SELECT count(*) FROM session_memories o WHERE o."user" = m."user"
                    AND o.memory_id = m.id AND o.was_injected = 1)
                FROM memories m JOIN memory_stats t ON t."user" = m."user" AND t.row = m.row"""
        ):
            if counted != shown:
                yield f"memory {id_} of {user} was shown {shown} times and counted {counted}"

    def _counters(self) -> Iterator[str]:
        found = {
            (user, name): int(value)
            for user, name, value in self._rows('SELECT "user", name, value FROM counters')
        }
        for user, turns in self._diary.turns.items():
            if found.get((user, "turns.user")) != turns:
                yield f"{user} said {turns} turns, counted {found.get((user, 'turns.user'))}"
        for user, count in self._rows('SELECT "user", count(*) FROM rating_events GROUP BY 1'):
            if found.get((user, "feedback.taken")) != count:
                yield f"{user} has {count} ratings, counted {found.get((user, 'feedback.taken'))}"
        for user, count in self._rows('SELECT "user", count(*) FROM memories GROUP BY 1'):
            made = sum(found.get((user, f"write.{name}"), 0) for name in ("stored", "kept_both"))
            if made != count:
                yield f"{user} has {count} memories, counted {made}"

    def _standing(self) -> Iterator[str]:
        moved = dict(
            self._rows(
                """SELECT "user", count(*) FROM predictor_comparisons
                    WHERE ema_updated = 1 GROUP BY 1"""
            )
        )
        for user, state in self._rows('SELECT "user", state FROM predictor_state'):
            judged = json.loads(state)["standing"]["judged"]
            if judged != moved.get(user, 0):
                yield f"{user}: {judged} judged, {moved.get(user, 0)} sessions counted"


def planted(connection: Connection[Any], statements: Iterable[str], diary: Diary) -> list[str]:
    """What the same look finds after a fault that is taken back afterwards."""
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]
        return Audit(connection, diary).faults()
