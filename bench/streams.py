"""Replay streams of real sessions: python -m bench.streams [--stream NAME ...] [--limit N].

Every session runs through the library in the order of time: what was known by then is stored, the
session is served, its ranking is held against what was really used, and only then is the library
told. `--shuffled` tells it about memories drawn by chance instead: what is left of the figures is
what texts and dates alone explain. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.datasets import MissingData
from bench.streams_data import STREAMS, Stream, StreamSession, load
from tenure import Memory
from tenure.rank import scores
from tenure.rank.features import FEATURE_VERSION, FEATURES
from tenure.rank.metrics import bootstrap_interval, ndcg_at
from tenure.settings import load_settings
from tenure.types import Candidate

DEPTH = 10
QUARTERS = 4
SEED = 20261115
BASELINE, SERVED = "baseline", "served"
# NDCG@10 that the baseline must reach over a whole stream, and the share of what was used that
# must be among the candidates.
LINES = {"agent_specstory": 0.446, "agent_calibrate": 0.724, "git_datasette_2h": 0.429}
POOL_LINES = {"agent_specstory": 0.90}

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Clock:
    """The time of the session that is replayed."""

    at: datetime

    def __call__(self) -> datetime:
        return self.at


@dataclass(slots=True)
class Outcome:
    """Per-session figures of one stream; NaN where nothing old enough was used."""

    name: str
    pool_recall: list[float] = field(default_factory=list)
    ndcg: dict[str, list[float]] = field(default_factory=dict)

    def mean(self, method: str) -> float:
        """The mean over the sessions that used something."""
        return float(np.nanmean(self.ndcg[method]))

    def quarters(self, method: str) -> list[float]:
        """The mean in each quarter of the stream."""
        parts = np.array_split(np.array(self.ndcg[method]), QUARTERS)
        return [float(np.nanmean(part)) for part in parts if np.isfinite(part).any()]


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


def replay(
    stream: Stream, limit: int | None = None, *, shuffled: bool = False, folder: Path | None = None
) -> Outcome:
    """Runs a stream, or its first sessions, through the library."""
    outcome, clock = Outcome(stream.name), Clock(stream.sessions[0].at)
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        # The defaults, whatever the machine's own configuration says; example keys in files are
        # no reason to leave the files out.
        settings = load_settings(Path(place), {}, {"secrets.policy": "redact"})
        path = Path(place) / "streams.db"
        with Memory(path, clock=clock, settings=settings, everywhere=True) as memory:
            keeper = Keeper(memory, stream)
            for number, session in enumerate(stream.sessions[:limit]):
                clock.at = session.at
                keeper.catch_up(session.at)
                gains = {keeper.ids[one]: gain for one, gain in session.gains.items()}
                told = _by_chance(gains, keeper, rng) if shuffled else gains
                _serve(memory, outcome, f"{number}-{session.key}", session, (gains, told))
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
) -> None:
    """One session: served, measured by what really helped, then told what is said to have."""
    real, told = gains
    labels: dict[Hashable, float] = dict(real.items())
    session = memory.session(key, project=asked.project, context=asked.context)
    served = recorded(memory, key)
    rankings = {SERVED: session.ranking, BASELINE: baseline(served), **alternatives(served)}
    for method, ranking in rankings.items():
        found = ndcg_at(ranking, labels, DEPTH)
        outcome.ndcg.setdefault(method, []).append(np.nan if found is None else found)
    pool = set(session.ranking)
    outcome.pool_recall.append(len(pool & real.keys()) / len(real) if real else np.nan)
    # The label of a memory that was edited is 1, of one that was only read a half.
    session.end(used={one: gain / 2.0 for one, gain in told.items()})


def recorded(memory: Memory, key: str) -> list[Candidate]:
    """The candidates of a session with every number as it was served."""
    store = memory._services.store
    return [one.candidate for one in store.session_memories(memory.scope.user, key)]


def baseline(served: Sequence[Candidate]) -> list[str]:
    """The order of the baseline alone."""
    ranked = [one for one in served if one.baseline_rank is not None]
    return [one.memory_id for one in sorted(ranked, key=lambda one: one.baseline_rank or 0)]


def alternatives(served: Sequence[Candidate]) -> dict[str, list[str]]:
    """What other rules make of the same candidates, computed from the numbers on record."""
    ids = [one.memory_id for one in served]
    if any(one.feature_version != FEATURE_VERSION for one in served):
        raise RuntimeError("the features on record are of another version")
    table = np.array([one.features for one in served]).reshape(len(served), len(FEATURES))
    column = dict(zip(FEATURES, table.T, strict=True))
    rules: dict[str, Callable[[Mapping[str, Floats]], Floats]] = {
        "seed feed": _seed_feed,
        "importance x recency": lambda known: known["effective"],
        "hybrid text": _hybrid,
        "hand-made mix": _mix,
    }
    return {
        name: [ids[at] for at in scores.descending(rule(column), ids)]
        for name, rule in rules.items()
    }


def _seed_feed(known: Mapping[str, Floats]) -> Floats:
    """The composite fed with the raw cosine, the creation time and the stored usefulness."""
    nothing = np.zeros_like(known["cosine"])
    weight = scores.source_weight(
        known["provenance"], known["confidence"], nothing, scores.SourceWeights()
    )
    return scores.composite(
        scores.relevance(known["cosine"], weight),
        scores.recency(np.expm1(known["log_age_days"])),
        known["stored_usefulness"],
        known["confidence"],
        known["frequency"],
    )


def _hybrid(known: Mapping[str, Floats]) -> Floats:
    return 0.7 * np.maximum(known["cosine"], 0.0) + 0.3 * known["text"]


def _mix(known: Mapping[str, Floats]) -> Floats:
    """The best rule made by hand without the composite's five weights."""
    return _hybrid(known) + 0.3 * known["association"] + 0.2 * known["frecency"]


# -- what is printed and kept ---------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and return 0, or 1 when a bar is missed."""
    options = _options(arguments)
    outcomes: list[Outcome] = []
    for name in options.stream or LINES:
        try:
            stream = load(name)
        except MissingData as missing:
            print(missing)
            continue
        outcomes.append(replay(stream, options.limit, shuffled=options.shuffled))
        show(outcomes[-1])
    is_whole = options.limit is None and not options.shuffled
    misses = [miss for outcome in outcomes for miss in missed_bars(outcome)] if is_whole else []
    for miss in misses:
        print("MISSED", miss)
    if outcomes and is_whole and not misses:
        print("All bars are met.")
    if is_whole or options.json != Path("streams.json"):
        figures = {"streams": [summary(one) for one in outcomes], "missed": misses}
        report.write(
            {**figures, "limit": options.limit, "shuffled": options.shuffled}, options.json
        )
    return 1 if misses else 0


def missed_bars(outcome: Outcome) -> list[str]:
    """Say in one line each where the baseline or the pool is below its line."""
    pool = float(np.nanmean(outcome.pool_recall))
    figures = (
        (f"NDCG@{DEPTH} of the baseline", outcome.mean(BASELINE), LINES.get(outcome.name, 0.0)),
        ("pool recall", pool, POOL_LINES.get(outcome.name, 0.0)),
    )
    return [
        f"{outcome.name}: {what} {value:.3f} is below the line {line:.3f}"
        for what, value, line in figures
        if value < line
    ]


def show(outcome: Outcome) -> None:
    """Print one stream: its pool, and every ranking with its quarters."""
    pool = np.array(outcome.pool_recall)
    counted = f"{len(pool)} sessions, {int(np.isfinite(pool).sum())} scored"
    print(f"\n{outcome.name}: {counted}, pool recall {np.nanmean(pool):.3f}")
    print(f"  {f'NDCG@{DEPTH}':24s}{'all':>8s}   by quarter")
    for method in outcome.ndcg:
        quarters = " ".join(f"{value:.3f}" for value in outcome.quarters(method))
        print(f"  {method:24s}{outcome.mean(method):8.3f}   {quarters}", flush=True)


def summary(outcome: Outcome) -> dict[str, object]:
    """Return the figures of a stream as plain values for the JSON report."""
    methods = {}
    for method, values in outcome.ndcg.items():
        found = bootstrap_interval(values, np.random.default_rng(SEED))
        methods[method] = {
            "ndcg@10": round(found.mean, 4),
            "interval": [round(found.low, 4), round(found.high, 4)],
            "quarters": [round(value, 4) for value in outcome.quarters(method)],
        }
    return {
        "name": outcome.name,
        "sessions": len(outcome.pool_recall),
        "scored": int(np.isfinite(outcome.pool_recall).sum()),
        "pool_recall": round(float(np.nanmean(outcome.pool_recall)), 4),
        "line": LINES.get(outcome.name),
        "methods": methods,
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--stream", nargs="+", choices=STREAMS, help="those with a bar, else these")
    parser.add_argument("--limit", type=int, help="replay only the first sessions")
    parser.add_argument("--shuffled", action="store_true", help="credit drawn by chance")
    parser.add_argument("--json", type=Path, default=Path("streams.json"), help="result file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
