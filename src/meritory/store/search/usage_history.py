"""Which memories helped in which sessions, held in memory beside the database.

The database stays the truth; this is a copy that catches up when sessions were labelled since.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from meritory.rank.usage_history import WORD_SESSIONS, Past
from meritory.store.sql.connection import SqlConnection, as_json
from meritory.store.sql.mapper import moment
from meritory.text.terms import query_terms
from meritory.text.tokens import MAX_WORDS, imprint

LESSONS_KEPT = 256
_SECONDS_PER_DAY = 86_400.0
_NONE = -1
_LESSONS = """SELECT session, started_at, project, embedder, coalesce(context_vector, x''),
    context, learned FROM sessions"""
_LEARNED_SINCE = "WHERE user = ? AND learned > ?"
_THESE = "WHERE session IN (SELECT value FROM json_each(?))"
_USES = """SELECT u.session, m.row, u.gain FROM uses u
    JOIN memories m ON m.user = ? AND m.id = u.memory_id
    WHERE u.session IN (SELECT value FROM json_each(?)) ORDER BY m.row"""

Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Lesson:
    """One finished session."""

    at_days: float
    project: int
    embedder: str | None
    vector: bytes
    rows: NDArray[np.int64]
    gains: NDArray[np.float64]
    words: NDArray[np.uint16]
    # Counts what was learned, of whichever session.
    learned: int = 0

    @classmethod
    def nothing(cls, at_days: float) -> _Lesson:
        """A session of which nothing is left but its moment."""
        none = np.empty(0, np.int64)
        return cls(at_days, _NONE, None, b"", none, none.astype(np.float64), imprint(()))

    def vector_of(self, embedder: str | None) -> bytes:
        """The context's vector, if it is one of this embedder."""
        return self.vector if embedder is not None and embedder == self.embedder else b""


class _Column(Generic[Kind]):
    """An array that changes at its end only; what was handed out before is never disturbed."""

    def __init__(self, empty: NDArray[Kind]) -> None:
        self._array = empty
        self._count = 0

    @property
    def values(self) -> NDArray[Kind]:
        """What there is by now."""
        return self._array[: self._count]

    def put(self, at: int, values: Any) -> None:
        """Puts values in place of everything from a place on."""
        needed = at + len(values)
        if at < self._count or needed > len(self._array):
            room = np.empty((needed + needed // 2, *self._array.shape[1:]), self._array.dtype)
            room[:at] = self._array[:at]
            self._array = room
        self._array[at:needed] = values
        self._count = needed


class _Arrays:
    """Finished sessions side by side, with contexts of one embedder."""

    def __init__(self, embedder: str | None, width: int) -> None:
        self.embedder, self.width = embedder, width
        self._times = _Column(np.empty(0, np.float64))
        self._contexts = _Column(np.empty((0, width), np.float32))
        self._projects = _Column(np.empty(0, np.int64))
        self._use_session = _Column(np.empty(0, np.int64))
        self._use_memory = _Column(np.empty(0, np.int64))
        self._use_gain = _Column(np.empty(0, np.float64))
        self._word_session = _Column(np.empty(0, np.int64))
        self._word = _Column(np.empty(0, np.uint16))

    def put(self, at: int, lessons: Sequence[_Lesson]) -> None:
        """Puts sessions in place of all from a place on."""
        places = np.arange(at, at + len(lessons))
        used_at = int(np.searchsorted(self._use_session.values, at))
        self._times.put(at, [lesson.at_days for lesson in lessons])
        self._contexts.put(at, self._vectors(lessons))
        self._projects.put(at, [lesson.project for lesson in lessons])
        self._use_session.put(used_at, np.repeat(places, [len(one.rows) for one in lessons]))
        self._use_memory.put(used_at, np.concatenate([one.rows for one in lessons]))
        self._use_gain.put(used_at, np.concatenate([one.gains for one in lessons]))
        said_at = int(np.searchsorted(self._word_session.values, at))
        self._word_session.put(said_at, np.repeat(places, [len(one.words) for one in lessons]))
        self._word.put(said_at, np.concatenate([one.words for one in lessons]))

    def _vectors(self, lessons: Sequence[_Lesson]) -> NDArray[np.float32]:
        """A row per session; one of another embedder says nothing here."""
        usable = [lesson.vector_of(self.embedder) for lesson in lessons]
        missing = bytes(4 * self.width)
        blob = b"".join(one if len(one) == len(missing) else missing for one in usable)
        return np.frombuffer(blob, np.float32).reshape(len(lessons), self.width)

    def past(self) -> Past:
        """All of it."""
        return Past(
            times_days=self._times.values,
            contexts=self._contexts.values,
            projects=self._projects.values,
            use_session=self._use_session.values,
            use_memory=self._use_memory.values,
            use_gain=self._use_gain.values,
            word_session=self._word_session.values,
            word=self._word.values,
        )


class UsageHistory:
    """The finished sessions of one user; not for several threads at once."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._learned = 0
        # Of the latest sessions: one that ends late is put in before them. Older ones are read
        # again in the rare case that they are needed.
        self._lessons: dict[int, _Lesson] = {}
        # By time, with the session's number, which tells apart what began at the same moment.
        self._order: list[tuple[float, int]] = []
        self._projects: dict[str, int] = {}
        self._arrays = _Arrays(None, 0)

    def project_number(self, project: str | None) -> int:
        """The small number of a project, -1 for none."""
        if project is None:
            return _NONE
        return self._projects.setdefault(project, len(self._projects))

    def caught_up(self, connection: SqlConnection, embedder: str | None) -> Past:
        """All that is known by now, with contexts of one embedder."""
        fresh = self._read_on(connection)
        self._lessons.update(fresh)
        # What began before is as it was: only the sessions since then are put in anew.
        changed = min((self._placed(session) for session in fresh), default=len(self._order))
        width = max((len(one.vector_of(embedder)) // 4 for one in fresh.values()), default=0)
        if embedder != self._arrays.embedder or width > self._arrays.width:
            changed = 0
        if changed < len(self._order):
            lessons = self._from(connection, changed)
            if changed == 0:
                every = (len(lesson.vector_of(embedder)) // 4 for lesson in lessons)
                self._arrays = _Arrays(embedder, max(every))
            self._arrays.put(changed, lessons)
            latest = (session for _, session in self._order[-LESSONS_KEPT:])
            self._lessons = {one: self._lessons[one] for one in latest if one in self._lessons}
        return self._arrays.past()

    def _placed(self, session: int) -> int:
        """The place of a session in the order, into which a new one is put."""
        key = (self._lessons[session].at_days, session)
        place = bisect_left(self._order, key)
        if self._order[place : place + 1] != [key]:
            self._order.insert(place, key)
        return place

    def _from(self, connection: SqlConnection, place: int) -> list[_Lesson]:
        """The sessions from a place on, those read that are not at hand."""
        wanted = [session for _, session in self._order[place:]]
        missing = [session for session in wanted if session not in self._lessons]
        again = {} if not missing else self._read(connection, _THESE, (as_json(missing),))
        known = {**again, **self._lessons}
        # What was purged meanwhile stays in the order, and says nothing.
        return [known.get(session, _Lesson.nothing(at)) for at, session in self._order[place:]]

    def _read_on(self, connection: SqlConnection) -> dict[int, _Lesson]:
        """What was learned since the last time."""
        fresh = self._read(connection, _LEARNED_SINCE, (self._user, self._learned))
        # Not by what is read again: others may have learned in between.
        self._learned = max((one.learned for one in fresh.values()), default=self._learned)
        return fresh

    def _read(
        self, connection: SqlConnection, which: str, values: tuple[Any, ...]
    ) -> dict[int, _Lesson]:
        rows = connection.execute(f"{_LESSONS} {which} ORDER BY learned", values).fetchall()
        if not rows:
            return {}
        uses: dict[int, list[tuple[int, float]]] = {}
        for session, row, gain in connection.execute(
            _USES, (self._user, as_json(row[0] for row in rows))
        ):
            uses.setdefault(session, []).append((row, gain))
        found: dict[int, _Lesson] = {}
        for left, (session, started_at, project, embedder, vector, context, learned) in zip(
            range(len(rows))[::-1], rows, strict=True
        ):
            helped = uses.get(session, [])
            found[session] = _Lesson(
                moment(started_at).timestamp() / _SECONDS_PER_DAY,
                self.project_number(project),
                embedder,
                vector,
                np.array([row for row, _ in helped], np.int64),
                np.array([gain for _, gain in helped], np.float64),
                # Older words are not looked at, so they are not read either.
                imprint(query_terms(context, MAX_WORDS) if left < WORD_SESSIONS else ()),
                learned,
            )
        return found
