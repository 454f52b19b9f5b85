"""Training: judged sessions in, a challenger out, and whether it may serve.

It runs in a process of its own, reads the store without being able to write to it, and leaves a
checkpoint on the shelf only when every gate was passed. Who ordered it writes down the outcome.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meritory.domain.errors import MeritoryError
from meritory.domain.predictor import TaughtSession
from meritory.model import ranker
from meritory.model.base import Floats, Model, RankingQuery, TrainingExample, words_of
from meritory.model.canary import Terms, examine
from meritory.model.checkpoint import Checkpoint, CheckpointFlags, restored
from meritory.model.fit import crossed
from meritory.ports.scorer import BASE_VERSION, ModelFolders
from meritory.ports.trainer_process import CANARY_NAMES, TrainOrder, TrainReport
from meritory.rank import labels
from meritory.rank.features import FEATURE_VERSION, FEATURES, project_slot

if TYPE_CHECKING:
    from meritory.store.sql.predictor import TaughtReader

# More sessions than these tell nothing new about a user, and cost time (decision 14).
TRAIN_SESSIONS = 1_000
# Of the latest sessions, so many examine a challenger by models that never saw them.
EXAM_SESSIONS = 200
TIME_LIMIT_MS = 30_000.0
FRESH_LIMIT_S = 30.0
_COSINE = FEATURES.index("cosine")


@dataclass(frozen=True, slots=True)
class Workshop:
    """What training needs: the store to read, the shelves to fill, and a clock that only counts."""

    reader: TaughtReader
    shelves: ModelFolders
    monotonic_ms: Callable[[], float]


def train(workshop: Workshop, order: TrainOrder) -> TrainReport:
    """Trains a challenger on all judged sessions but the canaries, and examines it."""
    began_ms = workshop.monotonic_ms()
    taught = workshop.reader.taught_sessions(order.user, FEATURE_VERSION, TRAIN_SESSIONS)
    learned = [session for session in taught if not session.is_canary]
    canary = [session for session in taught if session.is_canary]
    study = _Study(workshop, order)
    until_ms = began_ms + TIME_LIMIT_MS
    model, losses = study.learned(learned, lambda: workshop.monotonic_ms() > until_ms)
    shelf = workshop.shelves.of(order.user)
    path = shelf.put(
        Checkpoint(
            kind=model.kind,
            params=model.params,
            model_version=order.version,
            embedder=order.embedder or "",
            features=FEATURES,
            feature_version=FEATURE_VERSION,
            flags=CheckpointFlags.FINE_TUNED,
            trained_at=order.at,
            session_count=len(learned),
        )
    )
    terms = Terms(
        losses=losses,
        loads_afresh=_loads_afresh(path),
        incumbent=study.kept(order.incumbent),
        best_kept=study.kept(order.best),
        after_reset=order.after_reset,
        crossed=study.crossed(learned),
    )
    report = examine(model, study.lessons(canary), terms, _rng(order))
    if report.passed:
        # The incumbent still serves, and may have to come back; the best is what later ones are
        # held against.
        shelf.prune(order.incumbent, order.best)
    else:
        shelf.drop(order.version)
    return TrainReport(
        version=order.version,
        scorer=order.scorer,
        is_accepted=report.passed,
        sample_count=len(learned),
        skipped_count=len(taught) - len(learned),
        loss=float(losses[-1]) if losses else None,
        **{name: getattr(report, name) for name in CANARY_NAMES},
        gates=tuple(asdict(check) for check in report.checks),
        duration_ms=workshop.monotonic_ms() - began_ms,
    )


def _rng(order: TrainOrder) -> np.random.Generator:
    """The same order is carried out the same way."""
    return np.random.default_rng([order.version, zlib.crc32(order.user.encode())])


def _loads_afresh(path: Path) -> bool:
    """Whether a new process can load the model and score with it."""
    command = [sys.executable, "-P", "-m", "meritory.model.canary", str(path)]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, timeout=FRESH_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class _Study:
    """One training: sessions as lessons, and the scorer that learns from them."""

    def __init__(self, workshop: Workshop, order: TrainOrder) -> None:
        self._workshop = workshop
        self._order = order
        base = restored(workshop.shelves.checkpoint(order.user, BASE_VERSION))
        self._prior = ranker.baseline_weights()
        if isinstance(base, ranker.Ranker):
            self._prior = base.weights

    def learned(
        self, sessions: Sequence[TaughtSession], should_stop: Callable[[], bool]
    ) -> tuple[Model, Sequence[float]]:
        """The challenger and its losses."""
        if self._order.scorer == ranker.KIND:
            lessons = self.lessons(sessions)
            model, loss = ranker.fitted(lessons, self._prior, should_stop=should_stop)
            return model, (loss,)
        # Here, because few choose this scorer.
        from meritory.model.attention import Attention
        from meritory.model.fit import FitPlan, fit

        rng = _rng(self._order)
        lessons = self.lessons(sessions)
        width = max((_width(one) for one in sessions), default=0)
        return fit(Attention.fresh(width, rng), lessons, FitPlan(), rng, should_stop)

    def kept(self, version: int) -> Model | None:
        """A model that is on the shelf; None when it cannot be used any more."""
        try:
            return restored(self._workshop.shelves.checkpoint(self._order.user, version))
        except MeritoryError:
            return None

    def crossed(self, sessions: Sequence[TaughtSession]) -> list[tuple[TrainingExample, Floats]]:
        """Sessions with scores by models that learned from the others; none for slow scorers."""
        if self._order.scorer != ranker.KIND:
            return []
        prior, latest = self._prior, sessions[-EXAM_SESSIONS:]
        lessons = self.lessons(latest)
        scored = crossed(
            [one.key for one in latest], lessons, lambda some: ranker.fitted(some, prior)[0]
        )
        return list(zip(lessons, scored, strict=True))

    def lessons(self, sessions: Sequence[TaughtSession]) -> list[TrainingExample]:
        """Return sessions as training examples."""
        return [lesson_of(one, self._query(one)) for one in sessions]

    def _query(self, session: TaughtSession) -> RankingQuery:
        if self._order.scorer == ranker.KIND:
            return RankingQuery(features=session.features)
        user, reader = self._order.user, self._workshop.reader
        found = reader.vectors(user, session.embedder or "", session.memory_ids)
        width = _width(session)
        nothing = np.zeros(width, np.float32)
        rows = [found.get(one, nothing) for one in session.memory_ids]
        texts = reader.texts(user, session.memory_ids)
        return RankingQuery(
            features=session.features,
            context=session.context_vector,
            vectors=np.stack([row if len(row) == width else nothing for row in rows]),
            context_words=words_of(session.context),
            words=tuple(words_of(texts.get(one, "")) for one in session.memory_ids),
            project_slot=project_slot(session.project),
        )


def _width(session: TaughtSession) -> int:
    return 0 if session.context_vector is None else len(session.context_vector)


def lesson_of(
    session: TaughtSession, query: RankingQuery, cosine: int = _COSINE
) -> TrainingExample:
    """Return a session with its labels; some unjudged memories serve as soft negatives.

    `cosine` is the column of the plain cosine, which tells near misses.
    """
    known = np.isfinite(session.labels)
    # A harmful memory stands in its list several times: the more harm, the further down it goes.
    harm = np.where(known, np.maximum(-session.labels, 0.0), 0.0)
    weights = np.where(known, 1.0 + labels.HARM_WEIGHT * harm, 0.0)
    values = np.where(known, session.labels, 0.0)
    # Some memories that were neither shown nor missed, always the same ones.
    unseen = np.flatnonzero([rule == "unjudged" for rule in session.rules])
    wanted = min(len(unseen), labels.SOFT_NEGATIVES_PER_LABEL * int(known.sum()))
    drawn = np.random.default_rng(zlib.crc32(session.key.encode())).permutation(unseen)
    soft = np.sort(drawn[:wanted])
    values[soft] = labels.soft_negatives(session.features[soft, cosine])
    weights[soft] = labels.SOFT_NEGATIVE_WEIGHT
    return TrainingExample(query=query, labels=values, weights=weights)
