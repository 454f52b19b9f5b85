"""The searches of sessions: candidates as served, labels, comparisons, and training data."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from meritory.domain.predictor import (
    Comparison,
    ComparisonQuery,
    RankedSearch,
    Surface,
    TaughtSession,
)
from meritory.rank.influence import ALPHAS, Margins
from meritory.rank.search_features import RECORDED
from meritory.store.sql.mapper import (
    ColumnCodec,
    RecordTable,
    SqlConnection,
    SqlReader,
    chosen_filters,
)
from meritory.store.sql.sessions import OF_SESSION, SqlOneSession

# More are never trained on. The oldest of a surface go first.
SEARCHES_KEPT = 1_000
_JSON = ColumnCodec(
    lambda values: json.dumps(list(values), separators=(",", ":")),
    lambda text: tuple(json.loads(text)),
)
_HALVES = ColumnCodec(
    lambda table: np.ascontiguousarray(table, RECORDED).tobytes(),
    lambda blob: np.frombuffer(bytes(blob), RECORDED).astype(np.float64),
)
_SEARCHES = RecordTable(
    "searches",
    RankedSearch,
    owner=("session",),
    codecs={
        **dict.fromkeys(("memory_ids", "shown", "predictor_ranks", "labels"), _JSON),
        "features": _HALVES,
    },
)
_OF_USER = f"""SELECT {_SEARCHES.selected("q")}, s.key, s.project FROM searches q
    JOIN sessions s ON s.session = q.session
    WHERE s.user = :user AND q.surface = :surface"""  # noqa: S608 - our names
_LATEST = " ORDER BY q.at DESC, q.session DESC, q.number DESC LIMIT :limit"
_REPLAYS = f"""SELECT q.replay_ndcg, q.replay_log_rank FROM searches q
    JOIN sessions s ON s.session = q.session
    WHERE s.user = :user AND q.surface = :surface AND q.predictor_won IS NOT NULL{_LATEST}"""  # noqa: S608
_FILTERS = {
    "min_margin": "abs(q.predictor_ndcg - q.baseline_ndcg) >= :min_margin",
    "since": "q.at >= :since",
    "until": "q.at <= :until",
}
TOP_COUNT = 10
_WINNERS = {"predictor": "> 0.5", "baseline": "< 0.5", "tie": "= 0.5"}
_ADD = _SEARCHES.insert.replace(
    ":number",
    "(SELECT coalesce(max(number), 0) + 1 FROM searches WHERE session = :session)",
    1,
)
_PUT = _SEARCHES.upsert("session", "number")


class SqlSearchReads(SqlReader):
    """The recorded searches, for a store and for a transaction."""

    def searches(self, user: str, key: str) -> list[RankedSearch]:
        """Return the recorded searches of a session in their order."""
        return self._records(_SEARCHES, user, f"{OF_SESSION} ORDER BY number", (user, key))

    def searches_count(self, user: str, key: str) -> int:
        """Return how many searches of a session are on record."""
        query = f"SELECT count(*) FROM searches WHERE {OF_SESSION}"  # noqa: S608 - our names
        row = self._one(user, query, (user, key))
        return int(row[0]) if row else 0

    def fetched(self, user: str, key: str) -> list[str]:
        """Return the ids of memories that a session got by its own searches alone."""
        rows = self._all(
            user,
            f"""SELECT memory_id FROM session_memories
                WHERE {OF_SESSION} AND was_injected = 1 AND handle IS NULL""",  # noqa: S608
            (user, key),
        )
        return [memory_id for (memory_id,) in rows]

    def search_record(self, user: str, surface: Surface, limit: int) -> Margins:
        """Return the gain of every alpha in the latest searches that count, oldest first."""
        rows = self._all(
            user,
            _REPLAYS,
            {"user": user, "surface": surface, "limit": limit},
        )
        replays = [(json.loads(ndcg), json.loads(log_rank)) for ndcg, log_rank in reversed(rows)]
        replays = [
            replay for replay in replays if all(len(margins) == len(ALPHAS) for margins in replay)
        ]
        shape = (len(replays), len(ALPHAS))
        return Margins(
            np.array([ndcg for ndcg, _ in replays], np.float64).reshape(shape),
            np.array([log_rank for _, log_rank in replays], np.float64).reshape(shape),
        )

    def taught_searches(
        self, user: str, surface: Surface, feature_version: int, limit: int
    ) -> list[TaughtSession]:
        """Return the latest searches of which something helped, oldest first."""
        rows = self._all(
            user,
            f"{_OF_USER} AND q.predictor_won IS NOT NULL AND q.feature_version = :version{_LATEST}",
            {"user": user, "surface": surface, "version": feature_version, "limit": limit},
        )
        return [
            taught_search(_SEARCHES.decode(row[:-2]), str(row[-2]), row[-1])
            for row in reversed(rows)
        ]

    def search_comparisons(
        self, user: str, surface: Surface, query: ComparisonQuery
    ) -> list[Comparison]:
        """Return the comparisons of a surface that match, latest first."""
        conditions, values = chosen_filters(query, _FILTERS)
        if query.winner is not None:
            conditions.append(f"q.predictor_won {_WINNERS[query.winner]}")
        if query.ema_updated is not None:
            conditions.append(f"q.predictor_won IS {'NOT ' * query.ema_updated}NULL")
        rows = self._all(
            user,
            " AND ".join([_OF_USER, "q.labels <> '[]'", *conditions]) + _LATEST + " OFFSET :offset",
            {**values, "user": user, "surface": surface}
            | {"limit": query.limit, "offset": query.offset},
        )
        return [_comparison(_SEARCHES.decode(row[:-2]), row[-2], row[-1]) for row in rows]


def taught_search(search: RankedSearch, key: str, project: str | None) -> TaughtSession:
    """Return a labelled search as training data."""
    count = len(search.memory_ids)
    labels = np.array(search.labels, np.float64)
    was_shown = np.isin(np.arange(count), search.shown)
    return TaughtSession(
        key=f"{key}#{search.number}",
        started_at=search.at,
        project=project,
        context="",
        embedder=None,
        context_vector=None,
        memory_ids=search.memory_ids,
        features=search.table,
        labels=labels,
        # Like a candidate of a session that was neither shown nor judged.
        rules=tuple(
            "unjudged" if unseen else "" for unseen in (np.isnan(labels) & ~was_shown).tolist()
        ),
        was_injected=was_shown,
        baseline_ranks=np.arange(1, count + 1),
        predictor_ranks=np.array(search.predictor_ranks, np.int64),
        is_canary=False,
    )


def _comparison(search: RankedSearch, key: str, project: str | None) -> Comparison:
    by_rank = np.argsort(search.predictor_ranks, kind="stable")[:TOP_COUNT].tolist()
    return Comparison(
        session_key=key,
        at=search.at,
        project=project,
        scorer="features",
        model_version=search.model_version,
        predictor_ndcg=search.predictor_ndcg,
        baseline_ndcg=search.baseline_ndcg,
        predictor_won=search.predictor_won,
        scorer_confidence=0.0,
        reason=search.reason,
        ema_updated=search.predictor_won is not None,
        success_rate=search.success_rate or 0.0,
        alpha=1.0 if search.alpha_after is None else search.alpha_after,
        predictor_top_ids=tuple(search.memory_ids[place] for place in by_rank),
        baseline_top_ids=search.memory_ids[:TOP_COUNT],
        relevance_scores={
            memory_id: label
            for memory_id, label in zip(search.memory_ids, search.labels, strict=True)
            if label is not None and memory_id
        },
        fts_overlap_score=None,
        replay_ndcg=search.replay_ndcg,
        replay_log_rank=search.replay_log_rank,
        number=search.number,
    )


class SqlSearchWrites(SqlSearchReads, SqlOneSession):
    """Changes of recorded searches."""

    connection: SqlConnection

    def add_search(
        self, user: str, key: str, search: RankedSearch, fetched: Sequence[str] = ()
    ) -> None:
        """Record a search, and which memories the agent got by asking for them."""
        session = self._session(user, key)
        self.connection.execute(
            _ADD,
            _SEARCHES.values(search, session=session),
        )
        self.connection.executemany(
            """UPDATE session_memories SET was_injected = 1,
                    source = CASE WHEN source = 'fts_only' THEN 'effective' ELSE source END
                WHERE session = ? AND memory_id = ?""",
            [(session, memory_id) for memory_id in fetched],
        )

    def put_search(self, user: str, key: str, search: RankedSearch) -> None:
        """Store a search again, with its labels and its comparison."""
        session = self._session(user, key)
        self.connection.execute(_PUT, _SEARCHES.values(search, session=session))

    def trim_searches(self, user: str, surface: Surface) -> int:
        """Erase the oldest searches of a surface above the limit; return their number."""
        found = self._one(
            user,
            """SELECT q.at FROM searches q JOIN sessions s ON s.session = q.session
                WHERE s.user = :user AND q.surface = :surface
                ORDER BY q.at DESC LIMIT 1 OFFSET :limit""",
            {"user": user, "surface": surface, "limit": SEARCHES_KEPT},
        )
        if found is None:
            return 0
        done = self.connection.execute(
            """DELETE FROM searches WHERE surface = :surface AND at <= :at
                AND session IN (SELECT session FROM sessions WHERE user = :user)""",
            {"user": user, "surface": surface, "at": found[0]},
        )
        return done.rowcount
