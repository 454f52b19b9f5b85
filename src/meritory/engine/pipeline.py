"""The whole of what happens in a session, on one screen: every stage, in order, with its budget.

`meritory pipeline` prints these tables with live timings, and a test fails when a session runs a
stage that is not listed here or leaves out one that is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from meritory.domain.world import World


@dataclass(frozen=True, slots=True)
class Stage:
    """One step, what it does, and how long it may usually take."""

    name: str
    about: str
    budget_ms: float


START = (
    Stage("context", "what the session is about, embedded once", 2.0),
    Stage("candidates", "the whole store's best from six sides, at most 150", 8.0),
    Stage("baseline", "composite of relevance, recency, usefulness, confidence, frequency", 2.0),
    Stage("predictor", "the learned ranking's scores, or none in time", 120.0),
    Stage("fusion", "both rankings joined by reciprocal ranks, weight alpha", 0.5),
    Stage("diversity", "what repeats something better counts for less", 1.0),
    Stage("packing", "required first, then the best that fits; now and then one on trial", 3.0),
    Stage("record", "every candidate with every number as served, one transaction", 10.0),
)
PROMPT = (
    Stage("recall", "words and meaning of the prompt, rare-word hits", 6.0),
    Stage("packing", "up to five memories not shown yet, and the request for ratings", 1.0),
    Stage("record", "hits, ratings and what was shown, one transaction", 8.0),
)
END = (
    Stage("transcript", "read, shortened, secrets blacked out, late ratings taken", 5.0),
    Stage("record", "stored with one durable job", 8.0),
)
LEARN = (
    Stage("judge", "who helped, by what happened; blind and with decoys", 60_000.0),
    Stage("label", "ratings, hits and verdict into one label each; belief, usefulness", 50.0),
    Stage("compare", "both rankings against what helped; what the predictor has earned", 50.0),
)
EXTRACT = (
    Stage("rules", "what the user said outright, through the one write path", 50.0),
    Stage("model", "what a model adds, each quote checked; nothing without one", 60_000.0),
    Stage("summary", "the session as one memory, where that is wanted", 50.0),
)
TRAIN = (Stage("train", "a challenger in its own process, its gates, its replay", 30_000.0),)
FLOWS = {
    "start": START,
    "prompt": PROMPT,
    "end": END,
    "learn": LEARN,
    "extract": EXTRACT,
    "train": TRAIN,
}


class Stopwatch:
    """How long each stage of one run took."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.took_ms: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a block under the name of its stage; a stage that runs twice adds up."""
        start = self._world.monotonic_ms()
        try:
            yield
        finally:
            taken = self._world.monotonic_ms() - start
            self.took_ms[name] = self.took_ms.get(name, 0.0) + taken
