"""Replay one stream of real sessions through the library, which learns on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.streams_kept import DEPTH, Kept, keep, learned
from bench.streams_outcome import LabelCount, Outcome
from bench.streams_regimes import Control, Evidence, Occasion, Regime, Reporter, Shown
from bench.streams_rows import (
    COLD_LINEAR,
    SERVED_BASELINE,
    References,
    labelled,
    product_rankings,
    served_baseline,
)
from bench.streams_types import Stream, StreamMemory, StreamSession
from meritory import Memory
from meritory.domain.session import Candidate
from meritory.domain.world import SeededWorld
from meritory.engine.predictor.state import state_of
from meritory.rank.metrics import ndcg_at
from meritory.settings import load_settings

# Files hold example keys: they are blacked out, and the file is stored. Memories that the library
# extracts from transcripts have no known gain, so nothing is extracted.
SETTINGS: Mapping[str, object] = {"secrets.policy": "redact", "extraction.kind": "none"}


@dataclass(slots=True)
class Clock:
    """The time of the session that is replayed."""

    at: datetime

    def __call__(self) -> datetime:
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a stream is replayed."""

    # Session keys decide which sessions test models and how the product's own replay splits them:
    # another seed gives other keys. The seed also drives all chance in the evidence.
    seed: int = 0
    limit: int | None = None
    # The evidence that the library receives, and the control that replaces it.
    regime: Regime = "complete"
    control: Control | None = None
    # Settings and constants of the policy that differ from the defaults.
    settings: Mapping[str, object] = field(default_factory=dict)
    # Whether to return the recorded sessions, for ablations.
    keep: bool = False


class Keeper:
    """Brings a store to the state of each moment."""

    def __init__(self, memory: Memory, stream: Stream) -> None:
        self._memory = memory
        self._stream = stream
        self._texts: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    @property
    def texts(self) -> dict[str, str]:
        """The text of each memory in the store, by its id in the store."""
        return {self.ids[one]: text for one, text in self._texts.items()}

    def catch_up(self, moment: datetime) -> None:
        """Store new memories, update changed ones and forget deleted ones."""
        known = {one.id: one.text_before(moment) for one in self._stream.memories}
        fresh = [one for one in self._stream.memories if known[one.id] and one.id not in self.ids]
        results = self._memory.remember_many(self._item(one, str(known[one.id])) for one in fresh)
        for one, result in zip(fresh, results, strict=True):
            if result.memory is None or result.outcome != "stored":
                raise RuntimeError(f"{one.id} was not stored: {result.reason or result.error}")
            self.ids[one.id] = result.memory.id
            self._texts[one.id] = str(known[one.id])
        for one_id in [one_id for one_id, text in self._texts.items() if text != known[one_id]]:
            self._renew(one_id, known[one_id])

    def _item(self, one: StreamMemory, text: str) -> dict[str, Any]:
        """Return what is stored of a new memory."""
        return {
            "content": text,
            "project": one.project,
            "created_at": one.created_at,
            "on_similar": "keep",
        }

    def _renew(self, one_id: str, text: str | None) -> None:
        if text is None:
            self._memory.forget(self.ids.pop(one_id))
            del self._texts[one_id]
        else:
            self._memory.update(self.ids[one_id], content=text)
            self._texts[one_id] = text


def replay(stream: Stream, run: Run | None = None) -> Outcome:
    """Run a stream, or its first sessions, through the library and return the figures."""
    run = run or Run()
    reporter = Reporter(stream, run.regime, run.control, np.random.default_rng(run.seed))
    clock = Clock(stream.sessions[0].at)
    with tempfile.TemporaryDirectory() as place:
        # The defaults of the product, whatever this machine's own configuration says.
        settings = load_settings(Path(place), {}).vary({**SETTINGS, **run.settings})
        path = Path(place) / "streams.db"
        # Ids break ties: the same seed gives the same ids.
        world = SeededWorld(run.seed, clock)
        with Memory(
            path, clock=world, settings=settings, everywhere=True, background=False
        ) as memory:
            replayed = _Replay(memory, stream, run, reporter)
            for number, session in enumerate(stream.sessions[: run.limit]):
                clock.at = session.at
                replayed.step(number, session)
    return replayed.result()


class _Replay:
    """One run: serves each session, measures it, then hands the evidence to the library."""

    def __init__(self, memory: Memory, stream: Stream, run: Run, reporter: Reporter) -> None:
        self._memory = memory
        self._run = run
        self._reporter = reporter
        self._keeper = Keeper(memory, stream)
        self._references = References()
        self._kept: list[Kept] = []
        self._outcome = Outcome(stream.name, run.seed, regime=run.regime, control=run.control)

    def step(self, number: int, asked: StreamSession) -> None:
        """Replay one session."""
        self._keeper.catch_up(asked.at)
        gains = {self._keeper.ids[one]: gain for one, gain in asked.gains.items()}
        key = f"{self._run.seed}-{number}-{asked.key}"
        state = state_of(self._memory.services, self._memory.scope.user)
        alone = None
        if state.alpha < 1.0:
            alone = served_baseline(self._memory, key, asked.project, asked.context)
        session = self._memory.session(key, project=asked.project, context=asked.context)
        served = recorded(self._memory, key)
        rankings = product_rankings(self._memory, served, session.ranking)
        # Without weight of the model, the baseline is served as it is.
        rankings[SERVED_BASELINE] = session.ranking if alone is None else alone
        rankings |= self._references.rankings(asked.at, asked.context, self._keeper.texts)
        self._measure(rankings, gains)
        self._outcome.alpha.append(state.alpha)
        self._outcome.version.append(state.version)
        shown = [Shown(one.id, one.content) for one in session.memories]
        stored = [self._keeper.ids[one] for one in sorted(self._keeper.ids)]
        evidence = self._reporter.evidence(Occasion(number, asked.context, shown, gains, stored))
        evidence.deliver(session)
        # Training ends before the next session begins, so that every run is the same.
        self._memory.drain()
        self._learn(key, served, gains, evidence)
        self._references.add(asked.at, gains)

    def _measure(self, rankings: Mapping[str, Sequence[str]], gains: Mapping[str, float]) -> None:
        for method, ranking in rankings.items():
            found = ndcg_at(ranking, labelled(gains), DEPTH)
            self._outcome.ndcg.setdefault(method, []).append(np.nan if found is None else found)
        pool = gains.keys() & set(rankings[SERVED_BASELINE])
        self._outcome.pool_recall.append(len(pool) / len(gains) if gains else np.nan)

    def _learn(
        self,
        key: str,
        served: Sequence[Candidate],
        gains: Mapping[str, float],
        evidence: Evidence,
    ) -> None:
        """Keep the session with its labels, and count how many of them are right."""
        labels = recorded_labels(self._memory, key)
        pool = {one.memory_id for one in served}
        self._outcome.label_counts.append(LabelCount.of(labels, pool & gains.keys()))
        if evidence.used is not None:
            labels = {one: evidence.used.get(one, 0.0) for one in pool}
        self._kept.append(keep(served, gains, labels))

    def result(self) -> Outcome:
        """Return the figures, with those of the model that the bench trains itself."""
        self._outcome.ndcg[COLD_LINEAR] = learned(self._kept)
        if self._run.keep:
            self._outcome.kept = self._kept
        return self._outcome


def recorded(memory: Memory, key: str) -> list[Candidate]:
    """Return the candidates of a session with every number as it was served."""
    store = memory.services.store
    return [one.candidate for one in store.session_memories(memory.scope.user, key)]


def recorded_labels(memory: Memory, key: str) -> dict[str, float]:
    """Return by memory id the labels that the library made; a candidate may have none."""
    found = memory.services.store.session_memories(memory.scope.user, key)
    return {one.memory_id: one.label for one in found if one.label is not None}
