"""The predictor's records in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from meritory.domain.codec import moment_text
from meritory.domain.errors import NotFound
from meritory.domain.predictor import (
    Comparison,
    ComparisonQuery,
    EntitySlice,
    Rated,
    Slice,
    TaughtSession,
    TrainingRun,
)
from meritory.rank.influence import ALPHAS, EMA_WEIGHT, START_RATE, Margins
from meritory.store.sql.rows import SqlConnection, SqlReader, moment
from meritory.store.sql.training_reader import taught_sessions

_SESSION = "(SELECT session FROM sessions WHERE user = :user AND key = :session_key)"
_COMPARISON_COLUMNS = (
    *("at", "project", "scorer", "model_version", "predictor_ndcg", "baseline_ndcg"),
    *("predictor_won", "margin", "scorer_confidence", "ema_updated", "reason", "success_rate"),
    *("alpha", "predictor_top_ids", "baseline_top_ids", "relevance_scores"),
    *("fts_overlap_score", "replay_ndcg", "replay_log_rank"),
)
_PUT_COMPARISON = (  # names of ours alone
    f"INSERT INTO predictor_comparisons (user, session, {', '.join(_COMPARISON_COLUMNS)})"  # noqa: S608
    f" VALUES (:user, {_SESSION}, {', '.join(':' + name for name in _COMPARISON_COLUMNS)})"
    " ON CONFLICT (session) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COMPARISON_COLUMNS)
)
_SELECT_COMPARISON = f"""SELECT c.comparison, s.key, {", ".join("c." + name for name in _COMPARISON_COLUMNS)}
    FROM predictor_comparisons c JOIN sessions s ON s.session = c.session
    WHERE c.user = :user"""  # noqa: S608, E501
_RUN_COLUMNS = (
    *("at", "model_version", "scorer", "reason", "loss", "sample_count", "skipped_count"),
    *("duration_ms", "accepted", "canary_ndcg", "canary_ndcg_delta", "canary_score_variance"),
    *("canary_topk_churn", "gates", "train_validation_failures", "drift_resets", "error"),
)
_WINNERS = {
    "predictor": "c.predictor_won > 0.5",
    "baseline": "c.predictor_won < 0.5",
    "tie": "c.predictor_won = 0.5",
}


class SqlPredictor:
    """What a transaction can do with the predictor's records."""

    connection: SqlConnection

    def set_predictor_state(self, user: str, state: str) -> None:
        self.connection.execute(
            """INSERT INTO predictor_state VALUES (?, ?)
                ON CONFLICT (user) DO UPDATE SET state = excluded.state""",
            (user, state),
        )

    def predictor_state_of(self, user: str) -> str | None:
        return _state(self.connection, user)

    def put_comparison(self, user: str, comparison: Comparison) -> None:
        self.connection.execute(_PUT_COMPARISON, {"user": user, **_comparison_values(comparison)})

    def add_training_run(self, user: str, run: TrainingRun) -> None:
        values = {name: getattr(run, name, None) for name in _RUN_COLUMNS}
        values |= {
            "at": moment_text(run.at),
            "accepted": int(run.is_accepted),
            "gates": json.dumps(list(run.gates)),
        }
        self.connection.execute(
            f"INSERT INTO predictor_training_log (user, {', '.join(_RUN_COLUMNS)})"  # noqa: S608
            f" VALUES (:user, {', '.join(':' + name for name in _RUN_COLUMNS)})",
            {"user": user, **values},
        )

    def choose_canary(self, user: str, key: str, at: datetime, limit: int) -> None:
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
        self.connection.execute(
            # One that was retired has been learned from, and is never chosen again.
            f"DELETE FROM predictor_canary WHERE session = {_SESSION} AND retired_at IS NULL",  # noqa: S608
            {"user": user, "session_key": key},
        )

    def offer_calibration(self, user: str, items: Sequence[Rated]) -> None:
        self.connection.executemany(
            """INSERT INTO predictor_calibration
                SELECT session, :memory_id, :user, :judge_label, :offered_at, NULL, NULL
                FROM sessions WHERE user = :user AND key = :session_key
                ON CONFLICT (session, memory_id) DO NOTHING""",
            [
                {
                    "user": user,
                    "session_key": one.session_key,
                    "memory_id": one.memory_id,
                    "judge_label": one.judge_label,
                    "offered_at": moment_text(one.offered_at),
                }
                for one in items
            ],
        )

    def rate_calibration(self, user: str, rated: Rated) -> None:
        done = self.connection.execute(
            f"UPDATE predictor_calibration SET human_label = :label, rated_at = :at"  # noqa: S608
            f" WHERE session = {_SESSION} AND memory_id = :memory_id AND user = :user",
            {
                "user": user,
                "session_key": rated.session_key,
                "memory_id": rated.memory_id,
                "label": rated.human_label,
                "at": None if rated.rated_at is None else moment_text(rated.rated_at),
            },
        )
        if not done.rowcount:
            raise NotFound(
                f"nobody was asked about {rated.memory_id} in session {rated.session_key[:80]!r}",
                hint="`meritory predictor calibrate` shows what is asked",
            )


class SqlPredictorReads:
    """What can be asked about the predictor."""

    _engine: SqlReader

    def predictor_state(self, user: str) -> str | None:
        with self._engine.read() as connection:
            return _state(connection, user)

    def comparisons(self, user: str, query: ComparisonQuery) -> list[Comparison]:
        wanted = [_WINNERS[query.winner]] if query.winner else []
        names: dict[str, Any] = {"user": user, "limit": query.limit, "offset": query.offset}
        for value, name, condition in (
            (query.ema_updated, "ema", "c.ema_updated = :ema"),
            (query.min_margin, "margin", "abs(c.margin) >= :margin"),
            (query.since, "since", "c.at >= :since"),
            (query.until, "until", "c.at <= :until"),
        ):
            if value is not None:
                wanted.append(condition)
                names[name] = moment_text(value) if isinstance(value, datetime) else value
        with self._engine.read() as connection:
            rows = connection.execute(
                " AND ".join([_SELECT_COMPARISON, *wanted])
                + " ORDER BY c.at DESC, c.comparison DESC LIMIT :limit OFFSET :offset",
                names,
            ).fetchall()
        return [_comparison(row) for row in rows]

    def comparison(self, user: str, key: str) -> Comparison | None:
        with self._engine.read() as connection:
            row = connection.execute(
                _SELECT_COMPARISON + " AND s.key = :key", {"user": user, "key": key}
            ).fetchone()
        return None if row is None else _comparison(row)

    def record(self, user: str, scorer: str, limit: int) -> Margins:
        with self._engine.read() as connection:
            rows = connection.execute(
                """SELECT replay_ndcg, replay_log_rank FROM predictor_comparisons
                    WHERE user = ? AND predictor_won IS NOT NULL AND scorer = ?
                    ORDER BY at DESC, comparison DESC LIMIT ?""",
                (user, scorer, limit),
            ).fetchall()[::-1]
        # One that was made with other weights of the fusion says nothing about these.
        alike = [pair for pair in (tuple(map(json.loads, row)) for row in rows) if _is_alike(pair)]
        shape = (len(alike), len(ALPHAS))
        return Margins(
            np.array([pair[0] for pair in alike], np.float64).reshape(shape),
            np.array([pair[1] for pair in alike], np.float64).reshape(shape),
        )

    def slices(self, user: str, limit: int) -> list[Slice]:
        with self._engine.read() as connection:
            rows = connection.execute(
                """SELECT project, predictor_won FROM predictor_comparisons
                    WHERE user = ? AND predictor_won IS NOT NULL ORDER BY at, comparison""",
                (user,),
            ).fetchall()
        found: dict[str | None, Slice] = {}
        for project, won in rows:
            before = found.get(project, Slice(project, 0, START_RATE))
            rate = (1.0 - EMA_WEIGHT) * before.success_rate + EMA_WEIGHT * won
            found[project] = Slice(project, before.session_count + 1, rate)
        ordered = sorted(found.values(), key=lambda one: (-one.session_count, one.project or ""))
        return ordered[:limit]

    def entity_slices(self, user: str, limit: int) -> list[EntitySlice]:
        with self._engine.read() as connection:
            rows = connection.execute(
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
            ).fetchall()
        return [EntitySlice(*row) for row in rows]

    def training_runs(self, user: str, limit: int) -> list[TrainingRun]:
        with self._engine.read() as connection:
            rows = connection.execute(
                f"SELECT {', '.join(_RUN_COLUMNS)} FROM predictor_training_log"  # noqa: S608
                " WHERE user = ? ORDER BY run DESC LIMIT ?",
                (user, limit),
            ).fetchall()
        return [_run(dict(zip(_RUN_COLUMNS, row, strict=True))) for row in rows]

    def canary_count(self, user: str) -> int:
        with self._engine.read() as connection:
            found = connection.execute(
                "SELECT count(*) FROM predictor_canary WHERE user = ? AND retired_at IS NULL",
                (user,),
            ).fetchone()
        return int(found[0])

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        with self._engine.read() as connection:
            return taught_sessions(connection, user, feature_version, limit)

    def calibration(self, user: str, limit: int) -> list[Rated]:
        with self._engine.read() as connection:
            rows = connection.execute(
                """SELECT s.key, c.memory_id, c.judge_label, c.offered_at, c.human_label,
                    c.rated_at FROM predictor_calibration c
                    JOIN sessions s ON s.session = c.session WHERE c.user = ?
                    ORDER BY c.offered_at DESC, c.session DESC, c.memory_id LIMIT ?""",
                (user, limit),
            ).fetchall()
        return [
            Rated(
                key, memory_id, label, moment(at), human, None if rated is None else moment(rated)
            )
            for key, memory_id, label, at, human, rated in rows
        ]


def _state(connection: SqlConnection, user: str) -> str | None:
    found = connection.execute(
        "SELECT state FROM predictor_state WHERE user = ?", (user,)
    ).fetchone()
    return None if found is None else str(found[0])


def _comparison_values(comparison: Comparison) -> dict[str, Any]:
    values = {name: getattr(comparison, name) for name in _COMPARISON_COLUMNS}
    packed = ("predictor_top_ids", "baseline_top_ids", "replay_ndcg", "replay_log_rank")
    return {
        **values,
        **{name: json.dumps(values[name]) for name in packed},
        "session_key": comparison.session_key,
        "at": moment_text(comparison.at),
        "ema_updated": int(comparison.ema_updated),
        "relevance_scores": json.dumps(dict(comparison.relevance_scores)),
    }


def _comparison(row: Sequence[Any]) -> Comparison:
    known = dict(zip(("number", "session_key", *_COMPARISON_COLUMNS), row, strict=True))
    del known["margin"]
    known["ema_updated"] = bool(known["ema_updated"])
    for name in ("predictor_top_ids", "baseline_top_ids", "replay_ndcg", "replay_log_rank"):
        known[name] = tuple(json.loads(known[name]))
    known["relevance_scores"] = json.loads(known["relevance_scores"])
    known["at"] = moment(known["at"])
    return Comparison(**known)


def _run(known: Mapping[str, Any]) -> TrainingRun:
    values = {name: value for name, value in known.items() if name != "accepted"}
    values |= {"at": moment(known["at"]), "gates": json.loads(known["gates"])}
    return TrainingRun(**values, is_accepted=bool(known["accepted"]))


def _is_alike(pair: Sequence[Sequence[float]]) -> bool:
    return all(len(margins) == len(ALPHAS) for margins in pair)
