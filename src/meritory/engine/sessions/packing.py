"""From a ranking to the text an agent sees: choosing what fits, giving handles, rendering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meritory.domain.harness import traits_of
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.session import Candidate, SessionRecord
from meritory.engine.predictor.state import PredictorState, standing_of, state_of
from meritory.engine.services import Services
from meritory.engine.sessions.ranking import Ranked
from meritory.rank import exploration
from meritory.rank import packing as rank_packing
from meritory.text import render

# What fits is looked for among this many of the best; reading more texts would cost more than
# the last of them are worth.
READ_AHEAD = 32
DISPUTED_READ = 10


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory in front of the agent."""

    handle: str
    memory: MemoryRecord
    source: str
    rank: int

    @property
    def id(self) -> str:
        """The memory's id."""
        return self.memory.id

    @property
    def content(self) -> str:
        """The memory's text."""
        return self.memory.content


@dataclass(frozen=True, slots=True)
class Served:
    """What a session or a prompt is answered; `injection` is the code that ratings must name."""

    key: str
    inject: str
    injection: str | None
    memories: tuple[ShownMemory, ...]
    status_line: str
    # Ids of all candidates in final order.
    ranking: tuple[str, ...] = ()
    # False when the store could not note it down: the agent is served all the same.
    is_recorded: bool = True
    # Of a session that was known already: its own, whatever was asked for.
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class PackedMemories:
    """The memories chosen for an injection, in the order they are shown."""

    memories: tuple[MemoryRecord, ...]
    # The candidates with what chance and the budget made of them.
    candidates: tuple[Candidate, ...]
    overflow: tuple[str, ...]
    explored: str | None = None


def pack_start(services: Services, ranked: Ranked, empty: render.Block) -> PackedMemories:
    """Chooses what opens a session: required first, then the best that fits."""
    policy = services.policy.session
    limits = _limits(empty, policy.start_tokens, policy.start_limit)
    texts = _Texts(services, ranked)
    packing = _pack_near(texts, ranked, limits)
    rate = services.policy.predictor.exploration_rate if ranked.alpha < 1.0 else 0.0
    if rate:
        texts.read(_disputed(ranked))
    rankings = exploration.Rankings(ranked.baseline_ranks, ranked.predictor_ranks, ranked.eligible)
    tried = exploration.explore(packing, texts.load, rankings, _draw(services), rate)
    return _packed(ranked, tried, texts.records)


class _Texts:
    """The candidates' texts, as far as they were read, and what they cost."""

    def __init__(self, services: Services, ranked: Ranked) -> None:
        self._services = services
        self._ranked = ranked
        self.records: dict[int, MemoryRecord] = {}
        # One whose text was not read can never fit.
        self._tokens = np.full(len(ranked.rows), np.iinfo(np.int32).max, np.int64)
        self._chars = self._tokens.copy()

    def read(self, places: NDArray[np.intp]) -> None:
        """Reads the texts of places that were not read yet."""
        wanted = [place for place in places.tolist() if place not in self.records]
        rows, context = self._ranked.rows[wanted], self._ranked.context
        found = self._services.store.fetch(context.scope, rows, context.now)
        for place, row in zip(wanted, rows.tolist(), strict=True):
            if row in found:
                self.records[place] = found[row]
                cost = render.cost(as_shown("m999", found[row]))
                self._tokens[place], self._chars[place] = cost

    @property
    def load(self) -> rank_packing.Load:
        """What each candidate costs."""
        return rank_packing.Load(self._tokens, self._chars, self._ranked.required)


def _pack_near(texts: _Texts, ranked: Ranked, limits: rank_packing.Limits) -> rank_packing.Packing:
    """Fills the budget with the best; more than usually fit are only read when room is left."""
    worth, must = np.flatnonzero(ranked.worth), np.flatnonzero(ranked.required)
    count = limits.count or 0
    near = np.union1d(must, worth[: count + len(must)])
    texts.read(near)
    packing = pack(_readable(near, texts), texts.load, limits)
    if len(packing.chosen) - np.count_nonzero(ranked.required[list(packing.chosen)]) < count:
        near = np.union1d(must, worth[: max(READ_AHEAD, 2 * count)])
        texts.read(near)
        packing = pack(_readable(near, texts), texts.load, limits)
    return packing


def _readable(places: NDArray[np.intp], texts: _Texts) -> list[int]:
    return [place for place in places.tolist() if place in texts.records]


def _disputed(ranked: Ranked) -> NDArray[np.intp]:
    """The candidates on which the rankings disagree most; one of them may be tried out."""
    gaps = np.where(ranked.eligible, np.abs(ranked.baseline_ranks - ranked.predictor_ranks), -1)
    return np.argsort(-gaps, kind="stable")[:DISPUTED_READ]


def pack(
    order: Sequence[int], load: rank_packing.Load, limits: rank_packing.Limits
) -> rank_packing.Packing:
    """Fills the budget; what is required and does not fit is named, which takes room as well."""
    packing = rank_packing.pack(order, load, limits)
    if not packing.overflow:
        return packing
    left = max(0, limits.tokens - render.OVERFLOW_LIMIT_TOKENS)
    return rank_packing.pack(order, load, replace(limits, tokens=left))


def _limits(empty: render.Block, tokens: int, count: int) -> rank_packing.Limits:
    spent = render.overhead_tokens(empty, start=True)
    return rank_packing.Limits(
        tokens=max(0, tokens - spent), chars=render.MEMORIES_LIMIT_CHARS, count=count
    )


def _draw(services: Services) -> float:
    return services.world.random_bits(53) / 2.0**53


def _packed(
    ranked: Ranked, tried: exploration.Exploration, texts: dict[int, MemoryRecord]
) -> PackedMemories:
    chosen = tried.packing.chosen
    candidates = list(ranked.candidates)
    for place, propensity in enumerate(tried.propensities.tolist()):
        if propensity < 1.0:
            candidates[place] = candidates[place]._replace(propensity=propensity)
    for place in chosen:
        source = "exploration" if place == tried.explored else candidates[place].source
        candidates[place] = candidates[place]._replace(was_injected=True, source=source)
    explored = None if tried.explored is None else candidates[tried.explored].memory_id
    return PackedMemories(
        memories=tuple(texts[place] for place in chosen),
        candidates=tuple(candidates),
        overflow=tuple(name_of(texts[place]) for place in tried.packing.overflow),
        explored=explored,
    )


def name_of(record: MemoryRecord) -> str:
    """How a memory is named for which there is no room."""
    return f"{record.id[:8]} {record.content}"


def as_shown(handle: str, record: MemoryRecord) -> render.RenderedMemory:
    """A memory as the fence writes it."""
    return render.RenderedMemory(
        handle, record.content, record.kind, record.provenance, record.trust
    )


def numbered(records: Sequence[MemoryRecord], first: int) -> list[tuple[str, MemoryRecord]]:
    """The memories with their handles, counted on through the session."""
    return [(f"m{first + place}", record) for place, record in enumerate(records)]


def block(services: Services, session: SessionRecord, number: int) -> render.Block:
    """An injection's block before anything is in it."""
    code, nonce = render.codes(services.store.secret(), f"{session.user}\0{session.key}", number)
    return render.Block(
        code=code,
        nonce=nonce,
        ask=services.policy.predictor.agent_feedback,
        plain=traits_of(session.harness).escapes_brackets,
    )


def standing_line(services: Services, user: str, state: PredictorState | None = None) -> str:
    """How far learning has come for a user; `state` is for who has read it already."""
    known = state_of(services, user) if state is None else state
    return render.status_line(standing_of(services, user, known))
