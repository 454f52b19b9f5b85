"""One stream of real sessions through the library, learning as it goes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.streams_data import Stream, StreamSession
from tenure import Memory
from tenure.flow.predictor import state_of
from tenure.rank import fuse, scores
from tenure.rank.features import FEATURE_VERSION, FEATURES
from tenure.rank.metrics import ndcg_at
from tenure.rank.seed_feed import seed_composite
from tenure.settings import load_settings
from tenure.types import Candidate
from tenure.world import SeededWorld

DEPTH = 10
QUARTERS = 4
BASELINE, SERVED, PREDICTOR = "baseline", "served", "predictor"
SEED_FUSION = "seed fusion"

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Clock:
    """The time of the session that is replayed."""

    at: datetime

    def __call__(self) -> datetime:
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a stream is replayed."""

    # Keys decide which sessions examine models and how the replay deals them: another seed,
    # other keys.
    seed: int = 0
    limit: int | None = None
    # What the library is told helped is drawn by chance.
    shuffled: bool = False
    # Settings beside the defaults.
    settings: Mapping[str, object] = field(default_factory=dict)
    # Whether to keep what was recorded, for ablations.
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A session as it was recorded, and what it really used."""

    features: Floats
    baseline_ranks: NDArray[np.int64]
    gains: Floats
    told: Floats
    ideal: float


@dataclass(slots=True)
class Outcome:
    """Per-session figures of one stream; NaN where nothing old enough was used."""

    name: str
    seed: int = 0
    pool_recall: list[float] = field(default_factory=list)
    ndcg: dict[str, list[float]] = field(default_factory=dict)
    # As served, and the model that scored.
    alpha: list[float] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    def mean(self, method: str, part: slice = slice(None)) -> float:
        """The mean over the sessions of a part that used something."""
        return float(np.nanmean(self.ndcg[method][part]))

    @property
    def second_half(self) -> slice:
        """The later sessions."""
        return slice(len(self.pool_recall) // 2, None)

    def ratio(self, method: str) -> float:
        """How a ranking does against the baseline in the second half."""
        half = self.second_half
        return self.mean(method, half) / self.mean(BASELINE, half)

    def quarters(self, method: str) -> list[float]:
        """The mean in each quarter of the stream."""
        parts = np.array_split(np.array(self.ndcg[method]), QUARTERS)
        return [float(np.nanmean(part)) for part in parts if np.isfinite(part).any()]

    @property
    def first_influence(self) -> int | None:
        """How many sessions came before the first in which the predictor was heard."""
        return next((place for place, alpha in enumerate(self.alpha) if alpha < 1.0), None)

    @property
    def win_rate(self) -> float:
        """The share of sessions that the predictor ranked better, ties counting half."""
        margins = np.array(self.ndcg[PREDICTOR]) - np.array(self.ndcg[BASELINE])
        margins = margins[np.isfinite(margins)]
        return float(np.mean(np.where(np.abs(margins) < 1e-6, 0.5, margins > 0.0)))


class Keeper:
    """Brings a store to what was known at each moment."""

    def __init__(self, memory: Memory, stream: Stream) -> None:
        self._memory = memory
        self._stream = stream
        self._texts: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def catch_up(self, moment: datetime) -> None:
        """Stores what is new, changes what has changed and forgets what is gone."""
        known = {one.id: one.text_before(moment) for one in self._stream.memories}
        fresh = [one for one in self._stream.memories if known[one.id] and one.id not in self.ids]
        results = self._memory.remember_many(
            {
                "content": known[one.id],
                "project": one.project,
                "created_at": one.created_at,
                "on_similar": "keep",
            }
            for one in fresh
        )
        for one, result in zip(fresh, results, strict=True):
            if result.memory is None or result.outcome != "stored":
                raise RuntimeError(f"{one.id} was not stored: {result.reason or result.error}")
            self.ids[one.id] = result.memory.id
            self._texts[one.id] = str(known[one.id])
        for one_id in [one_id for one_id, text in self._texts.items() if text != known[one_id]]:
            self._renew(one_id, known[one_id])

    def _renew(self, one_id: str, text: str | None) -> None:
        if text is None:
            self._memory.forget(self.ids.pop(one_id))
            del self._texts[one_id]
        else:
            self._memory.update(self.ids[one_id], content=text)
            self._texts[one_id] = text


def replay(stream: Stream, run: Run | None = None) -> Outcome:
    """Runs a stream, or its first sessions, through the library."""
    run = run or Run()
    outcome, clock = Outcome(stream.name, run.seed), Clock(stream.sessions[0].at)
    rng = np.random.default_rng(run.seed)
    with tempfile.TemporaryDirectory() as place:
        # The defaults, whatever the machine's own configuration says; example keys in files are
        # no reason to leave the files out.
        chosen = {"secrets.policy": "redact", **run.settings}
        settings = load_settings(Path(place), {}, chosen)
        path = Path(place) / "streams.db"
        # Ids break ties: the same seed gives the same ones.
        world = SeededWorld(run.seed, clock)
        with Memory(
            path, clock=world, settings=settings, everywhere=True, background=False
        ) as memory:
            keeper = Keeper(memory, stream)
            for number, session in enumerate(stream.sessions[: run.limit]):
                clock.at = session.at
                keeper.catch_up(session.at)
                gains = {keeper.ids[one]: gain for one, gain in session.gains.items()}
                told = _by_chance(gains, keeper, rng) if run.shuffled else gains
                key = f"{run.seed}-{number}-{session.key}"
                served = _serve(memory, outcome, key, session, (gains, told))
                if run.keep:
                    outcome.kept.append(_kept(served, gains, told))
    return outcome


def _by_chance(
    gains: Mapping[str, float], keeper: Keeper, rng: np.random.Generator
) -> dict[str, float]:
    """The same gains, given to memories drawn by chance."""
    drawn = rng.choice(sorted(keeper.ids), len(gains), replace=False)
    return dict(zip((keeper.ids[one] for one in drawn.tolist()), gains.values(), strict=True))


def _serve(
    memory: Memory,
    outcome: Outcome,
    key: str,
    asked: StreamSession,
    gains: tuple[Mapping[str, float], Mapping[str, float]],
) -> list[Candidate]:
    """One session: served, measured by what really helped, then told what is said to have."""
    real, told = gains
    labels: dict[Hashable, float] = dict(real.items())
    state = state_of(memory._services, memory.scope.user)
    session = memory.session(key, project=asked.project, context=asked.context)
    served = recorded(memory, key)
    rankings = {
        SERVED: session.ranking,
        BASELINE: by_rank(served, lambda one: one.baseline_rank),
        PREDICTOR: by_rank(served, lambda one: one.predictor_rank),
        **alternatives(served),
    }
    for method, ranking in rankings.items():
        found = ndcg_at(ranking, labels, DEPTH)
        outcome.ndcg.setdefault(method, []).append(np.nan if found is None else found)
    pool = set(session.ranking)
    outcome.pool_recall.append(len(pool & real.keys()) / len(real) if real else np.nan)
    outcome.alpha.append(state.alpha)
    outcome.version.append(state.version)
    # The label of a memory that was edited is 1, of one that was only read a half.
    session.end(used={one: gain / 2.0 for one, gain in told.items()})
    # A training is over before the next session begins, so that every run is the same.
    memory.drain()
    return served


def recorded(memory: Memory, key: str) -> list[Candidate]:
    """The candidates of a session with every number as it was served."""
    store = memory._services.store
    return [one.candidate for one in store.session_memories(memory.scope.user, key)]


def by_rank(served: Sequence[Candidate], rank: Callable[[Candidate], int | None]) -> list[str]:
    """The order of one ranking alone."""
    ranked = [one for one in served if rank(one) is not None]
    return [one.memory_id for one in sorted(ranked, key=lambda one: rank(one) or 0)]


def _kept(
    served: Sequence[Candidate], gains: Mapping[str, float], told: Mapping[str, float]
) -> Kept:
    best = np.sort(list(gains.values()) or [0.0])[::-1][:DEPTH]
    return Kept(
        features=np.array([one.features for one in served]).reshape(len(served), len(FEATURES)),
        baseline_ranks=np.array([one.baseline_rank or 0 for one in served], np.int64),
        gains=np.array([gains.get(one.memory_id, 0.0) for one in served]),
        told=np.array([told.get(one.memory_id, 0.0) for one in served]),
        ideal=float((best / np.log2(np.arange(len(best)) + 2.0)).sum()),
    )


def alternatives(served: Sequence[Candidate]) -> dict[str, list[str]]:
    """What other rules make of the same candidates, computed from the numbers on record."""
    ids = [one.memory_id for one in served]
    if any(one.feature_version != FEATURE_VERSION for one in served):
        raise RuntimeError("the features on record are of another version")
    table = np.array([one.features for one in served]).reshape(len(served), len(FEATURES))
    column = dict(zip(FEATURES, table.T, strict=True))
    rules: dict[str, Callable[[Mapping[str, Floats]], Floats]] = {
        "seed feed": lambda known: seed_composite(known, scores.SourceWeights()),
        SEED_FUSION: lambda known: _seed_fusion(known, ids),
        "importance x recency": lambda known: known["effective"],
        "hybrid text": _hybrid,
        "hand-made mix": _mix,
    }
    return {
        name: [ids[at] for at in scores.descending(rule(column), ids)]
        for name, rule in rules.items()
    }


def _seed_fusion(known: Mapping[str, Floats], ids: Sequence[str]) -> Floats:
    """Seed 001's own: importance by recency fused with the cosine, both alike."""
    return fuse.fuse(known["effective"], known["cosine"], ids, 0.5).scores


def _hybrid(known: Mapping[str, Floats]) -> Floats:
    return 0.7 * np.maximum(known["cosine"], 0.0) + 0.3 * known["text"]


def _mix(known: Mapping[str, Floats]) -> Floats:
    """The best rule made by hand without the composite's five weights."""
    return _hybrid(known) + 0.3 * known["association"] + 0.2 * known["frecency"]
