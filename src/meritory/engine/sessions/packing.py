"""Packing: which memories fit into a block, under which handles, and how the block begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meritory.domain import harness
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.policy import PredictorPolicy
from meritory.domain.session import Candidate, SessionRecord
from meritory.engine.memories.chains import dates_of
from meritory.engine.sessions.ranking import Ranking
from meritory.rank import exploration
from meritory.rank import packing as rank_packing
from meritory.store.contract.store import Store
from meritory.text import render

# Texts are read for this many of the best candidates. The rest rarely fits.
READ_AHEAD = 32
DISPUTED_READ = 4
# A handle of the greatest length, to estimate what a memory costs.
_LONG_HANDLE = "m999"
# The milliseconds of an id and 30 of its random bits: enough to tell memories apart.
_NAME_ID_CHARS = 16


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory in the agent's context."""

    handle: str
    memory: MemoryRecord
    source: str
    rank: int

    @property
    def id(self) -> str:
        """Return the memory's id."""
        return self.memory.id

    @property
    def content(self) -> str:
        """Return the memory's text."""
        return self.memory.content


@dataclass(frozen=True, slots=True)
class Served:
    """The reply to a session start or a prompt; ratings must name the code `injection`."""

    key: str
    inject: str
    injection: str | None
    memories: tuple[ShownMemory, ...]
    status_line: str
    # Ids of all candidates in final order.
    ranking: tuple[str, ...] = ()
    # False if the store could not record it. The agent is served anyway.
    is_recorded: bool = True
    # The scope of a session that existed already, which may differ from the requested one.
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class PackedMemories:
    """The memories chosen for a block, in the order they are shown."""

    memories: tuple[MemoryRecord, ...]
    # All candidates, with their propensities.
    candidates: tuple[Candidate, ...]
    overflow: tuple[str, ...]
    # By memory id, of those whose age matters.
    dates: Mapping[str, str]
    explored: str | None = None


def pack_start(run: Ranking, empty: render.Block) -> PackedMemories:
    """Choose the memories that open a session: required ones first, then the best that fit."""
    policy = run.services.policy.session
    count = policy.start_limit
    limits = rank_packing.Limits(
        tokens=max(0, policy.start_tokens - render.overhead_tokens(empty, start=True)),
        chars=render.MEMORIES_LIMIT_CHARS,
        count=count,
    )
    texts = _Texts(run)
    worth, required = np.flatnonzero(run.is_worth), np.flatnonzero(run.required)
    rate = run.services.policy.predictor.exploration_rate if run.alpha < 1.0 else 0.0
    if rate:
        # One of the candidates that the two rankings disagree on most may be tried out.
        gaps = np.where(run.can_explore, np.abs(run.baseline_ranks - run.predictor_ranks), -1)
        disputed = np.argsort(-gaps, kind="stable")[:DISPUTED_READ]
        # One query for all: a second one costs as much as the texts.
        texts.read(np.union1d(disputed, np.union1d(required, worth[: count + len(required)])))
    packing = texts.pack(np.union1d(required, worth[: count + len(required)]), limits)
    # More texts than usually fit are only read if there is room left.
    if len(packing.chosen) - np.count_nonzero(run.required[list(packing.chosen)]) < count:
        packing = texts.pack(np.union1d(required, worth[: max(READ_AHEAD, 2 * count)]), limits)
    rankings = exploration.Rankings(run.baseline_ranks, run.predictor_ranks, run.can_explore)
    draw = run.services.world.random_bits(53) / 2.0**53
    tried = exploration.explore(packing, texts.load, rankings, draw, rate)
    candidates = list(run.candidates)
    for index, propensity in enumerate(tried.propensities.tolist()):
        if propensity < 1.0:
            candidates[index] = candidates[index]._replace(propensity=propensity)
    for index in tried.packing.chosen:
        source = "exploration" if index == tried.explored else candidates[index].source
        candidates[index] = candidates[index]._replace(source=source)
    memories = tuple(texts.records[index] for index in tried.packing.chosen)
    return PackedMemories(
        memories=memories,
        candidates=tuple(candidates),
        overflow=tuple(short_name(texts.records[index]) for index in tried.packing.overflow),
        dates=texts.dates_of(memories),
        explored=None if tried.explored is None else candidates[tried.explored].memory_id,
    )


class _Texts:
    """The candidates' texts as far as they were read, and what they cost."""

    def __init__(self, run: Ranking) -> None:
        self._run = run
        self.records: dict[int, MemoryRecord] = {}
        # A candidate whose text was not read never fits.
        self._tokens = np.full(len(run.rows), np.iinfo(np.int32).max, np.int64)
        self._chars = self._tokens.copy()

    def read(self, indices: NDArray[np.intp]) -> None:
        """Read the texts of candidates that were not read yet."""
        unread = [index for index in indices.tolist() if index not in self.records]
        if not unread:
            return
        rows, context = self._run.rows[unread], self._run.context
        records = self._run.services.store.fetch(context.scope, rows, context.now)
        read = [
            (index, records[row])
            for index, row in zip(unread, rows.tolist(), strict=True)
            if row in records
        ]
        self.records.update(read)
        costs = costs_of([record for _, record in read], self.dates_of(self.records.values()))
        for (index, _), cost in zip(read, costs, strict=True):
            self._tokens[index], self._chars[index] = cost

    def dates_of(self, records: Collection[MemoryRecord]) -> dict[str, str]:
        """Return the dates of memories that are shown together."""
        store, context = self._run.services.store, self._run.context
        return dates_of(store, context.scope, records, context.text, context.now)

    def pack(self, indices: NDArray[np.intp], limits: rank_packing.Limits) -> rank_packing.Packing:
        """Fill the budget with these candidates, best first."""
        self.read(indices)
        readable = [index for index in indices.tolist() if index in self.records]
        return pack(readable, self.load, limits)

    @property
    def load(self) -> rank_packing.Load:
        """Return what each candidate costs."""
        return rank_packing.Load(self._tokens, self._chars, self._run.required)


def pack(
    order: Sequence[int], load: rank_packing.Load, limits: rank_packing.Limits
) -> rank_packing.Packing:
    """Fill the budget; names of required memories that do not fit need room as well."""
    packing = rank_packing.pack(order, load, limits)
    if not packing.overflow:
        return packing
    left = max(0, limits.tokens - render.OVERFLOW_LIMIT_TOKENS)
    return rank_packing.pack(order, load, replace(limits, tokens=left))


def costs_of(records: Sequence[MemoryRecord], dates: Mapping[str, str]) -> list[render.Cost]:
    """Return what each memory costs in a block."""
    shown = as_shown(((_LONG_HANDLE, one) for one in records), dates)
    return [render.cost(memory) for memory in shown]


def short_name(record: MemoryRecord) -> str:
    """Return how a required memory is named that does not fit."""
    return f"{record.id[:_NAME_ID_CHARS]} {record.content}"


def as_shown(
    handled: Iterable[tuple[str, MemoryRecord]], dates: Mapping[str, str]
) -> tuple[render.RenderedMemory, ...]:
    """Return memories with their handles and dates in the form that a block renders."""
    return tuple(
        render.RenderedMemory(
            handle,
            record.content,
            record.kind,
            record.provenance,
            record.trust,
            dates.get(record.id, ""),
        )
        for handle, record in handled
    )


def numbered(records: Sequence[MemoryRecord], first: int) -> list[tuple[str, MemoryRecord]]:
    """Return memories with their handles, which count on through the session."""
    return [(f"m{number}", record) for number, record in enumerate(records, first)]


def empty_block(
    store: Store, policy: PredictorPolicy, session: SessionRecord, number: int
) -> render.Block:
    """Return the block of an injection, still without memories."""
    code, nonce = render.codes(store.secret(), f"{session.user}\0{session.key}", number)
    return render.Block(
        code=code,
        nonce=nonce,
        ask=policy.agent_feedback,
        plain=harness.BY_NAME.get(session.harness or "", harness.UNLISTED).escapes_brackets,
    )
