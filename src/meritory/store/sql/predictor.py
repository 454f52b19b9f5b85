"""The predictor: comparisons, training runs, canaries, calibration and training data."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import NotFound
from meritory.domain.predictor import (
    RELEVANCE_DECIMALS,
    Comparison,
    ComparisonQuery,
    EntitySlice,
    Rated,
    Slice,
    TaughtSession,
    TrainingRun,
)
from meritory.domain.session import ModelRows
from meritory.domain.world import moment_text
from meritory.rank.influence import ALPHAS, EMA_WEIGHT, START_RATE, Margins
from meritory.store.sql.candidates import read_candidates
from meritory.store.sql.mapper import (
    UNCHANGED,
    RecordTable,
    SqlConnection,
    SqlReader,
    as_json,
    chosen_filters,
    decode_vector,
    moment,
    vector_bytes,
)

# A model is trained after every session, and a run takes 1 kB.
RUNS_KEPT = 200
_SESSION = "(SELECT session FROM sessions WHERE user = :user AND key = :session_key)"
_COMPARISONS = RecordTable(
    "predictor_comparisons",
    Comparison,
    owner=("user", "session"),
    numbered="number",
    omit=("session_key",),
    renamed={"number": "comparison"},
    codecs={"margin": UNCHANGED},
)
_PUT_COMPARISON = _COMPARISONS.upsert("session").replace(":session", _SESSION, 1)
_SELECT_COMPARISON = f"""SELECT {_COMPARISONS.selected("c")}, s.key, s.session
    FROM predictor_comparisons c JOIN sessions s ON s.session = c.session
    WHERE c.user = :user"""  # noqa: S608 - our names
_RUNS = RecordTable(
    "predictor_training_log", TrainingRun, owner=("user",), renamed={"is_accepted": "accepted"}
)
_CALIBRATION = RecordTable("predictor_calibration", Rated, omit=("session_key",))
_TAUGHT_SESSIONS = """SELECT s.session, s.key, s.started_at, s.project, s.context, s.embedder,
        s.context_vector, c.session IS NOT NULL AND c.retired_at IS NULL
    FROM sessions s JOIN session_scores j ON j.session = s.session AND j.excluded IS NULL
    LEFT JOIN predictor_canary c ON c.session = s.session
    WHERE s.user = :user AND s.learned IS NOT NULL
        AND (EXISTS (SELECT 1 FROM session_memories m WHERE m.session = s.session
                AND m.label > 0 AND m.source <> 'fts_only' AND m.feature_version = :version)
            OR EXISTS (SELECT 1 FROM session_packs p WHERE p.session = s.session
                AND p.has_helped = 1 AND length(p.content) > 0))
        AND NOT EXISTS (SELECT 1 FROM session_packs p WHERE p.session = s.session
            AND p.thinned_count > 0)
    ORDER BY s.started_at DESC, s.session DESC LIMIT :limit"""
_TAUGHT_COLUMNS = (
    *("memory_id", "features", "label", "label_parts", "was_injected", "baseline_rank"),
    *("predictor_rank", "source", "feature_version"),
)
_FILTERS = {
    "ema_updated": "c.ema_updated = :ema_updated",
    "min_margin": "abs(c.margin) >= :min_margin",
    "since": "c.at >= :since",
    "until": "c.at <= :until",
}
_WINNERS = {
    "predictor": "c.predictor_won > 0.5",
    "baseline": "c.predictor_won < 0.5",
    "tie": "c.predictor_won = 0.5",
}


def _ranked(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of `_TAUGHT_COLUMNS` that a ranking had, in the baseline's order."""
    ranked = [row for row in rows if row[5] is not None and row[7] != "fts_only"]
    return sorted(ranked, key=lambda row: (row[5], row[0]))


def _labels(connection: SqlConnection, session: int) -> dict[str, float]:
    """Return the labels of a session's ranked candidates as relevance scores."""
    names = ("memory_id", "label", "source", "baseline_rank")
    return {
        memory_id: round(label, RELEVANCE_DECIMALS)
        for memory_id, label, source, rank in read_candidates(connection, session, names)
        if label is not None and rank is not None and source != "fts_only"
    }


def _rule(label_parts: str | None) -> str:
    """Return the rule that made a label; empty before there is one."""
    return (json.loads(label_parts).get("rule") or "") if label_parts else ""


class SqlPredictorReads(SqlReader):
    """The predictor's records, for a store and for a transaction."""

    def comparisons(self, user: str, query: ComparisonQuery) -> list[Comparison]:
        """Return the comparisons that match, latest first."""
        conditions, values = chosen_filters(query, _FILTERS)
        conditions += [_WINNERS[query.winner]] if query.winner else []
        rows = self._all(
            user,
            " AND ".join([_SELECT_COMPARISON, *conditions])
            + " ORDER BY c.at DESC, c.comparison DESC LIMIT :limit OFFSET :offset",
            {**values, "user": user, "limit": query.limit, "offset": query.offset},
        )
        return [self._comparison(user, row) for row in rows]

    def comparison(self, user: str, key: str) -> Comparison | None:
        """Return the comparison of one session; None before there is one."""
        row = self._one(user, _SELECT_COMPARISON + " AND s.key = :key", {"user": user, "key": key})
        return None if row is None else self._comparison(user, row)

    def _comparison(self, user: str, row: tuple[Any, ...]) -> Comparison:
        """Return a comparison; relevance scores that were not stored are the labels."""
        *values, key, session = row
        comparison = _COMPARISONS.decode(values, session_key=key)
        if comparison.relevance_scores:
            return comparison
        with self._reading(user) as connection:
            return replace(comparison, relevance_scores=_labels(connection, session))

    def record(self, user: str, scorer: str, limit: int) -> Margins:
        """Return the gain of every alpha in the latest sessions that count, oldest first.

        Only sessions that this scorer served: another one proves nothing for it.
        """
        rows = self._all(
            user,
            """SELECT replay_ndcg, replay_log_rank FROM predictor_comparisons
                WHERE user = ? AND predictor_won IS NOT NULL AND scorer = ?
                ORDER BY at DESC, comparison DESC LIMIT ?""",
            (user, scorer, limit),
        )
        replays = [(json.loads(ndcg), json.loads(log_rank)) for ndcg, log_rank in reversed(rows)]
        # A replay with other weights of the fusion says nothing about these.
        replays = [
            replay for replay in replays if all(len(margins) == len(ALPHAS) for margins in replay)
        ]
        shape = (len(replays), len(ALPHAS))
        return Margins(
            np.array([ndcg for ndcg, _ in replays], np.float64).reshape(shape),
            np.array([log_rank for _, log_rank in replays], np.float64).reshape(shape),
        )

    def slices(self, user: str, limit: int) -> list[Slice]:
        """Return the success rate of each project, those with the most sessions first."""
        slices: dict[str | None, Slice] = {}
        for project, won in self._all(
            user,
            """SELECT project, predictor_won FROM predictor_comparisons
                WHERE user = ? AND predictor_won IS NOT NULL ORDER BY at, comparison""",
            (user,),
        ):
            before = slices.get(project, Slice(project, 0, START_RATE))
            rate = (1.0 - EMA_WEIGHT) * before.success_rate + EMA_WEIGHT * won
            slices[project] = Slice(project, before.session_count + 1, rate)
        by_count = sorted(slices.values(), key=lambda s: (-s.session_count, s.project or ""))
        return by_count[:limit]

    def entity_slices(self, user: str, limit: int) -> list[EntitySlice]:
        """Return the success rate of each entity, those with the most sessions first."""
        rows = self._all(
            user,
            """WITH helped AS (
                SELECT DISTINCT c.session, c.predictor_won, a.entity
                FROM predictor_comparisons c
                JOIN uses u ON u.session = c.session
                JOIN memories m ON m.user = c.user AND m.id = u.memory_id
                JOIN attributes t ON t.row = m.row
                JOIN aspects a ON a.aspect = t.aspect
                WHERE c.user = ? AND c.predictor_won IS NOT NULL)
                SELECT e.kind, e.name, count(*), avg(h.predictor_won)
                FROM helped h JOIN entities e ON e.entity = h.entity
                WHERE e.kind <> 'project' GROUP BY e.entity, e.kind, e.name
                ORDER BY count(*) DESC, e.kind, e.name LIMIT ?""",
            (user, limit),
        )
        return [EntitySlice(*row) for row in rows]

    def training_runs(self, user: str, limit: int, surface: str | None = None) -> list[TrainingRun]:
        """Return the training runs, latest first; of all surfaces, or of one."""
        where = "user = ? AND surface = coalesce(?, surface) ORDER BY run DESC LIMIT ?"
        return self._records(_RUNS, user, where, (user, surface, limit))

    def canary_count(self, user: str) -> int:
        """Return how many sessions are kept out of training."""
        row = self._one(
            user,
            "SELECT count(*) FROM predictor_canary WHERE user = ? AND retired_at IS NULL",
            (user,),
        )
        return int(row[0]) if row else 0

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """Return the latest judged sessions that count, oldest first."""
        names = {"user": user, "version": feature_version, "limit": limit}
        taught = []
        with self._reading(user) as connection:
            for session, key, started_at, project, context, embedder, vector, is_canary in reversed(
                connection.execute(_TAUGHT_SESSIONS, names).fetchall()
            ):
                served = _ranked(read_candidates(connection, session, _TAUGHT_COLUMNS))
                # A session whose candidates were all erased teaches nothing. Features are compared
                # within a session, so one that lacks some of them would teach something else.
                if not served or any(row[-1] != feature_version for row in served):
                    continue
                ids, packed, labels, parts, injected, baseline, predictor, *_ = zip(
                    *served, strict=True
                )
                taught.append(
                    TaughtSession(
                        key=key,
                        started_at=moment(started_at),
                        project=project,
                        context=context,
                        embedder=embedder,
                        context_vector=None if vector is None else decode_vector(vector),
                        memory_ids=ids,
                        features=np.frombuffer(b"".join(packed), np.float64).reshape(len(ids), -1),
                        # None becomes NaN.
                        labels=np.array(labels, np.float64),
                        rules=tuple(_rule(part) for part in parts),
                        was_injected=np.array(injected, np.bool_),
                        baseline_ranks=np.array(baseline, np.int64),
                        predictor_ranks=np.array([rank or 0 for rank in predictor], np.int64),
                        is_canary=bool(is_canary),
                    )
                )
        return taught

    def calibration(self, user: str, limit: int) -> list[Rated]:
        """Return the calibration sample with the ratings of people, latest first."""
        rows = self._all(
            user,
            f"""SELECT {_CALIBRATION.selected("c")}, s.key FROM predictor_calibration c
                JOIN sessions s ON s.session = c.session WHERE c.user = ?
                ORDER BY c.offered_at DESC, c.session DESC, c.memory_id LIMIT ?""",  # noqa: S608
            (user, limit),
        )
        return [_CALIBRATION.decode(row[:-1], session_key=row[-1]) for row in rows]


class SqlPredictorWrites(SqlPredictorReads):
    """Changes of the predictor's records."""

    connection: SqlConnection

    def put_comparison(self, user: str, comparison: Comparison) -> None:
        """Store a comparison in place of an earlier one of its session.

        Relevance scores that the candidates have as labels are not stored twice.
        """
        found = self._one(
            user,
            "SELECT session FROM sessions WHERE user = ? AND key = ?",
            (user, comparison.session_key),
        )
        if found and _labels(self.connection, found[0]) == comparison.relevance_scores:
            comparison = replace(comparison, relevance_scores={})
        self.connection.execute(
            _PUT_COMPARISON,
            _COMPARISONS.values(comparison, user=user, session_key=comparison.session_key),
        )

    def add_training_run(self, user: str, run: TrainingRun) -> None:
        """Add to the log of training runs; drop the oldest above the limit."""
        self.connection.execute(_RUNS.insert, _RUNS.values(run, user=user))
        self.connection.execute(
            """DELETE FROM predictor_training_log WHERE user = :user AND surface = :surface
                AND run NOT IN (SELECT run FROM predictor_training_log
                    WHERE user = :user AND surface = :surface ORDER BY run DESC LIMIT :limit)""",
            {"user": user, "surface": run.surface, "limit": RUNS_KEPT},
        )

    def choose_canary(self, user: str, key: str, at: datetime, limit: int) -> None:
        """Keep a session out of training; above the limit retire the oldest one."""
        names = {"user": user, "session_key": key, "at": moment_text(at), "limit": limit}
        self.connection.execute(
            """INSERT INTO predictor_canary
                SELECT session, user, :at, NULL FROM sessions
                WHERE user = :user AND key = :session_key
                ON CONFLICT (session) DO NOTHING""",
            names,
        )
        self.connection.execute(
            """UPDATE predictor_canary SET retired_at = :at WHERE session IN (
                SELECT session FROM predictor_canary WHERE user = :user AND retired_at IS NULL
                ORDER BY chosen_at DESC, session DESC LIMIT 1000000 OFFSET :limit)""",
            names,
        )

    def drop_canary(self, user: str, key: str) -> None:
        """Remove a session that no longer counts from the canaries."""
        self.connection.execute(
            # A retired one was used for training and is never chosen again.
            f"DELETE FROM predictor_canary WHERE session = {_SESSION} AND retired_at IS NULL",  # noqa: S608
            {"user": user, "session_key": key},
        )

    def offer_calibration(self, user: str, items: Sequence[Rated]) -> None:
        """Add memories to the calibration sample, once each."""
        self.connection.executemany(
            """INSERT INTO predictor_calibration
                SELECT session, :memory_id, :user, :judge_label, :offered_at, NULL, NULL
                FROM sessions WHERE user = :user AND key = :session_key
                ON CONFLICT (session, memory_id) DO NOTHING""",
            [_CALIBRATION.values(item, user=user, session_key=item.session_key) for item in items],
        )

    def rate_calibration(self, user: str, rated: Rated) -> None:
        """Store the rating of a person; raise NotFound for a memory outside the sample."""
        done = self.connection.execute(
            "UPDATE predictor_calibration SET human_label = :human_label, rated_at = :rated_at"  # noqa: S608
            f" WHERE session = {_SESSION} AND memory_id = :memory_id AND user = :user",
            _CALIBRATION.values(rated, user=user, session_key=rated.session_key),
        )
        if not done.rowcount:
            raise NotFound(
                f"memory {rated.memory_id} of session {rated.session_key[:80]!r} is not in the"
                " calibration sample",
                hint="`meritory predictor calibrate` lists the sample",
            )


class TaughtReader(SqlPredictorReads):
    """The reads of the processes that train and score."""

    # None if the models are files next to the store.
    models: ModelRows | None = None
    # PostgreSQL sends vectors in another form.
    _decode_vector = staticmethod(decode_vector)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of memories in any state, by id; leave out those without one."""
        rows = self._all(
            user,
            """SELECT m.id, v.vector FROM memories m
                JOIN memory_vectors v ON v.row = m.row
                JOIN embedders e ON e.embedder = v.embedder AND e.name = :embedder
                    AND length(v.vector) = e.dimension + :scale_bytes
                WHERE m.user = :user AND m.id IN (SELECT value FROM json_each(:ids))""",
            {
                "user": user,
                "embedder": embedder,
                "ids": as_json(memory_ids),
                "scale_bytes": vector_bytes(0),
            },
        )
        return {memory_id: self._decode_vector(vector) for memory_id, vector in rows}

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of memories by id; leave out those that are gone."""
        rows = self._all(
            user,
            """SELECT id, content FROM memories WHERE user = :user
                AND id IN (SELECT value FROM json_each(:ids))""",
            {"user": user, "ids": as_json(memory_ids)},
        )
        return dict(rows)

    @abstractmethod
    def close(self) -> None:
        """Finish running work and release the files; safe to call twice."""
