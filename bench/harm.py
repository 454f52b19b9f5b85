"""What becomes of memories that mislead: `python -m bench.harm`.

Streams of real sessions are replayed with ratings of the shown memories. Some memories are planted:
each has the words that the sessions ask with most, and misleads. The agent rates it low in every
session that shows it. After two such sessions it must be out of the first ten, and stay out.

Then the same number of low ratings falls on shown memories by lot. That must not cost the served
ranking more than the bar, compared with a replay in which those ratings are 0.

`--control` leaves the planted memories unrated, so they must stay among the first ten.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench.authority import Report
from bench.datasets import MissingData
from bench.streams_bars import RATED_STREAMS
from bench.streams_data import load
from bench.streams_regimes import FULL_GAIN, WRONG_RATING_SHARE
from bench.streams_replay import SETTINGS, Clock, Keeper
from bench.streams_rows import labelled
from bench.streams_types import Stream, StreamSession
from meritory import Memory
from meritory.api.session import Session
from meritory.domain.world import SeededWorld
from meritory.rank.metrics import ndcg_at
from meritory.settings import load_settings
from meritory.text.terms import query_terms
from meritory.text.tokens import MAX_WORDS

# planted: planted memories are rated low. silent: they are not rated. lot: shown memories are rated
# low by lot. nil: the same draws, but rated 0.
Way = Literal["planted", "silent", "lot", "nil"]
DEPTH = 10
PLANTED_COUNT = 5
# Sessions before the memories are planted.
PLANTED_AFTER = 10
SHOWN_MAX = 2
LOW_RATING = -0.8
# The chance of a shown memory to be rated low by lot.
LOW_SHARE = 0.05
MEAN_LOSS_MAX, WORST_LOSS_MAX = 0.003, 0.01
PLANTED_TERMS = 12
MISLEADING = "The former plan says:"


@dataclass(slots=True)
class Planted:
    """A memory that misleads: how many sessions showed it, and its places before and after."""

    shown: int = 0
    places_before: list[int] = field(default_factory=list)
    places_after: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Replayed:
    """The figures of one replay."""

    stream: str
    planted: dict[str, Planted] = field(default_factory=dict)
    ndcg: list[float] = field(default_factory=list)


class Replay:
    """One replay of a stream with ratings."""

    def __init__(self, memory: Memory, stream: Stream, way: Way, seed: int) -> None:
        self._memory, self._stream, self._way = memory, stream, way
        self._keeper = Keeper(memory, stream)
        self._rng = np.random.default_rng(seed)
        # Draws of low ratings do not move the other ones.
        self._lot = np.random.default_rng(seed + 1)
        self.result = Replayed(stream.name)

    def step(self, number: int, asked: StreamSession) -> None:
        """Replay one session."""
        self._keeper.catch_up(asked.at)
        if number == PLANTED_AFTER and self._way in ("planted", "silent"):
            self._plant()
        gains = {self._keeper.ids[one]: gain for one, gain in asked.gains.items()}
        session = self._memory.session(asked.key, project=asked.project, context=asked.context)
        found = ndcg_at(session.ranking, labelled(gains), DEPTH)
        self.result.ndcg.append(np.nan if found is None else found)
        for memory_id, one in self.result.planted.items():
            place = [*session.ranking, memory_id].index(memory_id) + 1
            places = one.places_after if one.shown >= SHOWN_MAX else one.places_before
            places.append(place)
        session.rate(self._ratings(session, gains))
        session.end()
        self._memory.drain()

    def _plant(self) -> None:
        """Store misleading notes made of the words that the later sessions ask with most."""
        left = self._stream.sessions[PLANTED_AFTER:]
        asked = Counter(term for one in left for term in set(query_terms(one.context, MAX_WORDS)))
        terms = [term for term, _ in asked.most_common(PLANTED_COUNT * PLANTED_TERMS)]
        for number in range(PLANTED_COUNT):
            text = f"{MISLEADING} {' '.join(terms[number::PLANTED_COUNT])}"
            stored = self._memory.remember(text, on_similar="keep")
            self.result.planted[stored.id] = Planted()

    def _ratings(self, session: Session, gains: dict[str, float]) -> dict[str, float]:
        ratings = {}
        for shown in session.memories:
            is_wrong = self._rng.random() < WRONG_RATING_SHARE
            is_low = self._lot.random() < LOW_SHARE
            gain = gains.get(shown.id, 0.0) / FULL_GAIN
            ratings[shown.id] = float(gain <= 0.0) if is_wrong else gain
            if shown.id in self.result.planted:
                del ratings[shown.id]
                self.result.planted[shown.id].shown += 1
                if self._way == "planted":
                    ratings[shown.id] = LOW_RATING
            elif is_low and self._way in ("lot", "nil"):
                ratings[shown.id] = LOW_RATING if self._way == "lot" else 0.0
        return ratings


def replay(name: str, way: Way, seed: int, limit: int | None) -> Replayed:
    """Replay a stream, or its first sessions, in one way."""
    stream = load(name)
    clock = Clock(stream.sessions[0].at)
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(Path(folder), {}).vary(SETTINGS)
        world = SeededWorld(seed, clock)
        path = Path(folder) / "harm.db"
        with Memory(
            path, clock=world, settings=settings, everywhere=True, background=False
        ) as memory:
            made = Replay(memory, stream, way, seed)
            for number, session in enumerate(stream.sessions[:limit]):
                clock.at = session.at
                made.step(number, session)
    return made.result


def planted_report(streams: Sequence[str], way: Way, seed: int, limit: int | None) -> Report:
    """Return whether memories that mislead leave the first ten."""
    report = Report("planted")
    planted = [one for name in streams for one in replay(name, way, seed, limit).planted.values()]
    early = [place for one in planted for place in one.places_before]
    late = [place for one in planted for place in one.places_after]
    often = [one for one in planted if one.shown >= SHOWN_MAX]
    note = f"{sum(place <= DEPTH for place in early)} of {len(early)} sessions"
    report.at_least("in the first ten before two bad sessions", _share(early), 0.02, note)
    report.at_least("planted memories shown in two sessions", len(often), 3)
    note = f"{sum(place <= DEPTH for place in late)} of {len(late)} sessions"
    report.at_most("in the first ten after two bad sessions", _share(late), 0.0, note)
    most = max((one.shown for one in planted), default=0)
    report.at_most("most sessions that showed one of them", most, SHOWN_MAX)
    return report


def _share(places: Sequence[int]) -> float:
    return round(float(np.mean([place <= DEPTH for place in places])), 3) if places else 0.0


def lot_report(streams: Sequence[str], seeds: int, limit: int | None) -> Report:
    """Return what low ratings by lot cost."""
    report = Report("lot")
    losses = []
    for name in streams:
        for seed in range(seeds):
            nil, lot = (replay(name, way, seed, limit).ndcg for way in ("nil", "lot"))
            losses.append(float(np.nanmean(nil) - np.nanmean(lot)))
    note = ", ".join(f"{loss:+.4f}" for loss in losses)
    report.at_most("mean loss of NDCG@10", round(float(np.mean(losses)), 4), MEAN_LOSS_MAX, note)
    report.at_most("worst loss of NDCG@10", round(max(losses), 4), WORST_LOSS_MAX)
    return report


def main(arguments: Sequence[str]) -> int:
    """Print the figures; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.harm", description=__doc__)
    parser.add_argument("--control", action="store_true", help="leave planted memories unrated")
    parser.add_argument("--seeds", type=int, default=1, help="replays of each stream by lot")
    parser.add_argument("--limit", type=int, help="replay only the first sessions")
    options = parser.parse_args(arguments)
    way: Way = "silent" if options.control else "planted"
    try:
        reports = [planted_report(RATED_STREAMS, way, 0, options.limit)]
    except MissingData as missing:
        print(missing)
        return 0
    if not options.control:
        reports.append(lot_report(RATED_STREAMS, options.seeds, options.limit))
    checks = [(report.section, check) for report in reports for check in report.checks]
    for section, check in checks:
        mark = "ok  " if check.is_met else "MISS"
        row = f"{mark} {section:8} {check.name:50} {check.figure:8g} {check.bar:>9}  {check.note}"
        print(row.rstrip())
    return int(not all(check.is_met for _, check in checks))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
