"""Cases for the judge: real sessions with the candidates that the product gathers for them.

The candidates come from a replay without a predictor, in which the library learns from the truth
(the regime "complete"). A candidate is shown when the replay put it into the context. The truth is
the stream's: files that a coding session read or changed, memories that a reply used.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import realmem, streams_data
from bench.judge_mask import mask_memory, mask_text
from bench.streams_regimes import FULL_GAIN
from bench.streams_replay import SETTINGS, Clock, Keeper, recorded
from bench.streams_types import Message, Stream, StreamSession
from meritory import Memory
from meritory.domain.session import JudgedMemory, Turn
from meritory.domain.world import SeededWorld
from meritory.engine.sessions.end import Intake
from meritory.settings import load_settings
from meritory.text.judge.digest import Digest, Digester, vocabulary_of
from meritory.text.transcript import iter_turns

CODING = "agent_entire_s"
MASKED = f"{CODING} masked"
REALMEM = "realmem"
SETS = (CODING, MASKED, REALMEM)
SEED = 0
# The store's secret decides how long the frame around the shown memories is, and so now and then
# which memories fit. A fixed one makes every run the same.
SECRET = bytes(32)

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Case:
    """One session before the judge."""

    stream: str
    key: str
    exhibits: tuple[JudgedMemory, ...]
    # Which exhibits truly helped.
    helped: Flags
    # Reads the transcript, which is too long to keep.
    messages: Callable[[], list[Message]]
    is_masked: bool = False

    def turns(self) -> Iterator[Turn]:
        """Yield the turns of the transcript."""
        found = iter_turns(self.messages())
        return (
            (Turn(turn.role, mask_text(turn.text)) for turn in found) if self.is_masked else found
        )

    def read(self, extra_texts: Iterable[str] = ()) -> Reading:
        """Read the transcript as the library does at the end of a session.

        The digest also keeps the terms of `extra_texts`.
        """
        texts = [exhibit.text for exhibit in self.exhibits]
        intake = Intake(Digester(vocabulary_of([*texts, *extra_texts])))
        intake.read(self.turns())
        return Reading(intake.kept(), intake.digest())


@dataclass(frozen=True, slots=True)
class Reading:
    """A transcript as the judge receives it: the stored part, and a digest of the whole."""

    told: tuple[Turn, ...]
    digest: Digest


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases on which choices are made, and those on which figures are reported."""

    name: str
    tuning: list[Case]
    reported: list[Case]


def load_sets(names: Iterable[str], root: Path | None = None) -> Iterator[CaseSet]:
    """Yield the sets of these names. One replay serves both forms of the coding sessions."""
    wanted = set(names)
    if wanted & {CODING, MASKED}:
        plain = _coding_set(streams_data.load(CODING, root))
        if CODING in wanted:
            yield plain
        if MASKED in wanted:
            tuning, reported = (list(map(masked, part)) for part in (plain.tuning, plain.reported))
            yield CaseSet(MASKED, tuning, reported)
    if REALMEM in wanted:
        parts = [
            [case for one in people for case in cases(realmem_stream(one, root))]
            for people in (realmem.DEVELOPED, realmem.REPORTED_PEOPLE)
        ]
        yield CaseSet(REALMEM, *parts)


def realmem_stream(person: str, root: Path | None = None) -> Stream:
    """Return the stream of one of RealMem's people."""
    return streams_data.load(f"{realmem.PREFIX}{person}", root)


def _coding_set(stream: Stream) -> CaseSet:
    found = list(cases(stream))
    half = len(found) // 2
    return CaseSet(stream.name, found[:half], found[half:])


def cases(stream: Stream) -> Iterator[Case]:
    """Yield a case for every session of a stream for which the library finds a candidate."""
    clock = Clock(stream.sessions[0].at)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        chosen = {**SETTINGS, "predictor.enabled": False}
        settings = load_settings(folder, {}, chosen)
        world = SeededWorld(SEED, clock)
        with Memory(
            folder / "judge.db", clock=world, settings=settings, everywhere=True, background=False
        ) as memory:
            store: Any = memory.services.store
            store._secret = SECRET
            keeper = Keeper(memory, stream)
            for number, asked in enumerate(stream.sessions):
                clock.at = asked.at
                case = _replayed(memory, keeper, f"{number}-{asked.key}", asked)
                if case.exhibits:
                    yield replace(case, stream=stream.name)


def _replayed(memory: Memory, keeper: Keeper, key: str, asked: StreamSession) -> Case:
    """Serve one session, end it with the truth, and return it as a case."""
    if asked.transcript is None:
        raise ValueError(f"session {asked.key!r} has no transcript")
    keeper.catch_up(asked.at)
    gains = {keeper.ids[one]: gain for one, gain in asked.gains.items()}
    session = memory.session(key, project=asked.project, context=asked.context)
    served = recorded(memory, key)
    store, user = memory.services.store, memory.scope.user
    known = store.memories(user, [one.memory_id for one in served])
    exhibits = tuple(
        JudgedMemory(record.content, one.was_injected, record.provenance)
        for one in served
        for record in [known[one.memory_id]]
    )
    session.end(used={one: gain / FULL_GAIN for one, gain in gains.items()})
    # The next session has learned from this one, as in the product.
    memory.drain()
    helped = np.array([one.memory_id in gains for one in served], np.bool_)
    return Case("", key, exhibits, helped, asked.transcript)


def masked(case: Case) -> Case:
    """Return a case without paths and file names in its memories and its transcript."""
    exhibits = tuple(replace(exhibit, text=mask_memory(exhibit.text)) for exhibit in case.exhibits)
    return replace(case, exhibits=exhibits, is_masked=True)
