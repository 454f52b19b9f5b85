"""Which memories helped in which sessions, held in memory beside the database.

The database stays the truth; this is a copy that catches up when sessions were labelled since.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tenure.rank.history import Past
from tenure.store.reads import as_json
from tenure.store.session_rows import moment

_SECONDS_PER_DAY = 86_400.0
_NONE = -1


@dataclass(frozen=True, slots=True)
class _Lesson:
    """One finished session."""

    at_days: float
    project: int
    embedder: str | None
    vector: bytes
    rows: NDArray[np.int64]
    gains: NDArray[np.float64]


class PastIndex:
    """The finished sessions of one user; not for several threads at once."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._learned = 0
        self._lessons: dict[int, _Lesson] = {}
        self._projects: dict[str, int] = {}
        self._built: tuple[str | None, Past] | None = None

    def project_number(self, project: str | None) -> int:
        """The small number of a project, -1 for none."""
        if project is None:
            return _NONE
        return self._projects.setdefault(project, len(self._projects))

    def caught_up(self, connection: sqlite3.Connection, embedder: str | None) -> Past:
        """All that is known by now, with contexts of one embedder."""
        if self._read_on(connection):
            self._built = None
        if self._built is None or self._built[0] != embedder:
            self._built = (embedder, self._build(embedder))
        return self._built[1]

    def _read_on(self, connection: sqlite3.Connection) -> bool:
        fresh = connection.execute(
            """SELECT session, started_at, project, embedder, coalesce(context_vector, x''), learned
                FROM sessions WHERE user = ? AND learned > ? ORDER BY learned""",
            (self._user, self._learned),
        ).fetchall()
        if not fresh:
            return False
        uses: dict[int, list[tuple[int, float]]] = {}
        for session, row, gain in connection.execute(
            """SELECT u.session, m.row, u.gain FROM uses u
                JOIN memories m ON m.user = ? AND m.id = u.memory_id
                WHERE u.session IN (SELECT value FROM json_each(?)) ORDER BY m.row""",
            (self._user, as_json(row[0] for row in fresh)),
        ):
            uses.setdefault(session, []).append((row, gain))
        for session, started_at, project, embedder, vector, learned in fresh:
            helped = uses.get(session, [])
            self._lessons[session] = _Lesson(
                moment(started_at).timestamp() / _SECONDS_PER_DAY,
                self.project_number(project),
                embedder,
                vector,
                np.array([row for row, _ in helped], np.int64),
                np.array([gain for _, gain in helped], np.float64),
            )
            self._learned = max(self._learned, learned)
        return True

    def _build(self, embedder: str | None) -> Past:
        lessons = sorted(self._lessons.items(), key=lambda pair: (pair[1].at_days, pair[0]))
        kept = [lesson for _, lesson in lessons]
        counts = [len(lesson.rows) for lesson in kept]
        return Past(
            times_days=np.array([lesson.at_days for lesson in kept], np.float64),
            contexts=_contexts(kept, embedder),
            projects=np.array([lesson.project for lesson in kept], np.int64),
            use_session=np.repeat(np.arange(len(kept), dtype=np.int64), counts),
            use_memory=np.concatenate([np.empty(0, np.int64), *(one.rows for one in kept)]),
            use_gain=np.concatenate([np.empty(0, np.float64), *(one.gains for one in kept)]),
        )


def _contexts(lessons: list[_Lesson], embedder: str | None) -> NDArray[np.float32]:
    """A row per session; one of another embedder says nothing here."""
    usable = [
        lesson.vector if lesson.embedder == embedder and embedder is not None else b""
        for lesson in lessons
    ]
    width = max((len(vector) for vector in usable), default=0)
    blob = b"".join(vector if len(vector) == width else bytes(width) for vector in usable)
    return np.frombuffer(blob, np.float32).reshape(len(lessons), width // 4)
