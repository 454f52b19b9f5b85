"""Every question is searched once; each setting only scores what was found anew."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.calibrate_data import CONFIDENCES, LONGMEMEVAL, Collection, Note, Question
from bench.calibrate_rule import Floats, Sweep, Table
from bench.datasets import MAX_MEMORY_CHARS
from bench.measures import mrr, recall_at
from meritory import Memory
from meritory.domain.memory import Scope
from meritory.domain.policy import RELEVANCE_FLOOR, SessionPolicy, SourceWeights
from meritory.engine.memories.order import PoolMatch, own_scores, pool_scores, relevant
from meritory.engine.services import Services
from meritory.engine.sessions.prompt import HIT_LIMIT, near_prompt
from meritory.rank import composite as rank_composite
from meritory.rank import hybrid
from meritory.rank.metrics import ndcg_at
from meritory.rank.usage_history import Usage
from meritory.settings import load_settings
from meritory.store.contract.memories import Search, SearchPool
from meritory.text.terms import OPENING_CHARS, query_pairs, query_terms, title_scores, title_words

# "quiet": the share of the places of a prompt that stay empty where nothing answers it.
MEASURES = ("p@3", "mrr", "ndcg@10", "quiet")
DEPTH = 10
# So many turns are folded into sessions.
_FOLDED = 100
HALF_LIFE_DAYS = math.log(2.0) / rank_composite.RECENCY_DECAY_PER_DAY
_HALF_LIFE = round(HALF_LIFE_DAYS)
_SOURCES = SourceWeights()
_PROMPT_LIMIT = SessionPolicy().prompt_limit

DERIVED = Sweep(
    "assistant_derived", _SOURCES.assistant_derived, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
)
SUMMARY = Sweep(
    "episode_summary", _SOURCES.episode_summary, (0.4, 0.55, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
)
SLOPE = Sweep(
    "confidence_slope", _SOURCES.confidence_slope, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
)
FLOOR = Sweep("relevance_floor", RELEVANCE_FLOOR, (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4))
HALF_LIFE = Sweep(
    "half_life_days", float(_HALF_LIFE), (2.0, 4.0, 7.0, float(_HALF_LIFE), 28.0, 56.0, 112.0, 365)
)

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Found:
    """What one question found, as far as a setting needs it."""

    services: Services
    pool: SearchPool
    # By place in the pool.
    notes: list[list[Note]]
    age_days: Floats
    # How well the question matches each title.
    title: Floats
    # By the name of what stands in for it.
    confidence: dict[str, NDArray[np.float32]]


@dataclass(slots=True)
class Draft:
    """A table while it is filled."""

    rows: list[Floats] = field(default_factory=list)
    is_tuning: list[bool] = field(default_factory=list)

    def table(self) -> Table:
        """What was filled in, without measures that apply to no question."""
        values = np.stack(self.rows, axis=1)
        used = np.flatnonzero(np.isfinite(values).any(axis=(0, 1))).tolist()
        names = tuple(MEASURES[place] for place in used)
        return Table(names, values[:, :, used], np.array(self.is_tuning))


Drafts = dict[str, dict[str, Draft]]


def measure(drafts: Drafts, collection: Collection, wanted: Sequence[Sweep]) -> None:
    """Adds what each setting makes of each question to the tables, by sweep and data set."""
    with _stored(collection) as library:
        for question in collection.questions:
            found = library.search(question)
            for sweep in wanted:
                for name, rows in _answered(sweep, collection.name, found, question):
                    _add(drafts, sweep, name, rows, question)
        for question in collection.strangers if FLOOR in wanted else ():
            found = library.search(question)
            rows = np.full((len(FLOOR.values), len(MEASURES)), np.nan)
            rows[:, -1] = [
                1.0 - len(_prompted(found, floor)) / _PROMPT_LIMIT for floor in FLOOR.values
            ]
            _add(drafts, FLOOR, f"{collection.name}, prompt", rows, question)


def figures(ranking: Sequence[str], relevant: frozenset[str]) -> list[float]:
    """The measures of one ranking, none of them for a question without an answer."""
    top = list(dict.fromkeys(ranking))[:DEPTH]
    share = recall_at(top, relevant, 3)
    found = (
        None if share is None else float(share > 0.0),
        mrr(top, relevant),
        ndcg_at(top, dict.fromkeys(relevant, 1.0), DEPTH),
        None,
    )
    return [float("nan") if one is None else one for one in found]


# -- settings -------------------------------------------------------------------------------


def _answered(
    sweep: Sweep, name: str, found: Found, question: Question
) -> Iterator[tuple[str, Floats]]:
    """The measures by setting, for each way the data set is judged."""
    if sweep is FLOOR:
        yield f"{name}, recall", _judged(found, question, sweep, _recalled_above)
        yield f"{name}, prompt", _judged(found, question, sweep, _prompted)
        return
    if sweep is HALF_LIFE:
        yield f"{name}, start", _judged(found, question, sweep, _started)
        return
    if sweep is SLOPE:
        for stand_in in CONFIDENCES:
            pool = replace(found.pool, confidence=found.confidence[stand_in])
            doubted = replace(found, pool=pool)
            yield from _weighed(sweep, f"{name}, {stand_in}", doubted, question)
        return
    yield from _weighed(sweep, name, found, question)


def _weighed(
    sweep: Sweep, name: str, found: Found, question: Question
) -> Iterator[tuple[str, Floats]]:
    """Recall with other weights, judged by turn and, where sessions were asked for, by session."""
    sources = [replace(_SOURCES, **{sweep.name: value}) for value in sweep.values]
    orders = [_recalled(found.services, found.pool, one) for one in sources]
    yield name, np.array([figures(_ids(found, order), question.answers) for order in orders])
    if name.startswith(LONGMEMEVAL):
        folded = [_sessions(found, order) for order in orders]
        rows = [figures(one, question.sessions) for one in folded]
        yield name.replace(LONGMEMEVAL, f"{LONGMEMEVAL} sessions"), np.array(rows)


def _judged(
    found: Found, question: Question, sweep: Sweep, ranked: Callable[[Found, float], Places]
) -> Floats:
    return np.array(
        [figures(_ids(found, ranked(found, value)), question.answers) for value in sweep.values]
    )


def _recalled_above(found: Found, floor: float) -> Places:
    return _recalled(found.services, found.pool, _SOURCES, floor)


def _recalled(
    services: Services,
    pool: SearchPool,
    sources: SourceWeights,
    floor: float = RELEVANCE_FLOOR,
) -> Places:
    weight = hybrid.source_weight(pool.provenance, pool.confidence, pool.demotion, sources)
    final = pool_scores(services, pool, weight, PoolMatch.unread(own_scores(services, pool)))
    about = np.flatnonzero(relevant(pool, floor) & (final > 0.0))
    return about[np.argsort(-final[about], kind="stable")][:_FOLDED]


def _prompted(found: Found, floor: float) -> Places:
    """What a prompt would be shown with."""
    pool = found.pool
    weight = hybrid.source_weight(pool.provenance, pool.confidence, pool.demotion, _SOURCES)
    unread = PoolMatch.unread(own_scores(found.services, pool))
    final = pool_scores(found.services, pool, weight, unread)
    return near_prompt(pool, weight, final, floor)[:_PROMPT_LIMIT]


def _started(found: Found, half_life_days: float) -> Places:
    """Return what a session about the question would begin with, without any history.

    Recency counts in full, as for a user whose record shows that it helps.
    """
    pool = found.pool
    there = np.flatnonzero(found.age_days >= 0.0)
    weight = hybrid.source_weight(pool.provenance, pool.confidence, pool.demotion, _SOURCES)
    match = rank_composite.context_match(pool.raw_cosine, pool.text) * weight
    none = np.zeros(len(there))
    parts = rank_composite.history_parts(
        rank_composite.Feed(
            match=match[there],
            title=(found.title * weight)[there],
            age_days=found.age_days[there] * HALF_LIFE_DAYS / half_life_days,
            usage=Usage(*[none] * 12),
            confidence=pool.confidence[there],
            access_count=none,
        )
    )
    composite = rank_composite.explain(*parts.shrunk(rank_composite.FULL_TRUST)).composite
    return there[np.argsort(-composite, kind="stable")][:DEPTH]


def _ids(found: Found, order: Places) -> list[str]:
    return [note.id for place in order[:DEPTH].tolist() for note in found.notes[place]]


def _sessions(found: Found, order: Places) -> list[str]:
    return [note.session_key for place in order.tolist() for note in found.notes[place]]


def _add(drafts: Drafts, sweep: Sweep, name: str, rows: Floats, question: Question) -> None:
    draft = drafts.setdefault(sweep.name, {}).setdefault(name, Draft())
    draft.rows.append(rows)
    draft.is_tuning.append(question.is_tuning)


# -- the store ------------------------------------------------------------------------------


class Library:
    """A stored collection, and which notes each of its rows stands for."""

    def __init__(self, memory: Memory, notes_of: dict[str, list[Note]]) -> None:
        self._services: Services = memory.services
        self._scope: Scope = memory.scope
        self._notes_of = notes_of
        self._by_row: dict[int, list[Note]] = {}
        self._confidence = {
            row[0].id: {name: rule(row[0].text) for name, rule in CONFIDENCES.items()}
            for row in notes_of.values()
        }

    def search(self, question: Question) -> Found:
        """Both legs of the search, as recall asks for them."""
        text = question.text
        asked = self._services.embedding.query(text)
        pool = self._services.store.search(
            Search(
                self._scope,
                query_terms(text),
                asked.embedder,
                asked.vector,
                phrases=query_pairs(text),
                hit_limit=HIT_LIMIT,
            )
        )
        notes = self._notes(pool)
        return Found(
            services=self._services,
            pool=pool,
            notes=notes,
            age_days=_ages(question.asked_at, notes),
            title=title_scores(text, [title_words(row[0].text[:OPENING_CHARS]) for row in notes]),
            confidence={
                name: np.array([self._confidence[row[0].id][name] for row in notes], np.float32)
                for name in CONFIDENCES
            },
        )

    def _notes(self, pool: SearchPool) -> list[list[Note]]:
        rows = pool.rows.tolist()
        unseen = np.array([row for row in rows if row not in self._by_row], np.int64)
        records = self._services.store.fetch(self._scope, unseen, self._services.world.now())
        self._by_row |= {row: self._notes_of[one.id] for row, one in records.items()}
        return [self._by_row[row] for row in rows]


def _ages(asked_at: datetime | None, notes: Sequence[Sequence[Note]]) -> Floats:
    if asked_at is None:
        return np.zeros(len(notes))
    return rank_composite.age_days(asked_at, [row[0].at for row in notes])


@contextmanager
def _stored(collection: Collection) -> Iterator[Library]:
    with tempfile.TemporaryDirectory() as folder:
        # The defaults, whatever the machine's own configuration says; example keys are no reason
        # to leave a turn out.
        settings = load_settings(Path(folder), {}, {"secrets.policy": "redact"})
        path = Path(folder) / "calibrate.db"
        with Memory(path, settings=settings, background=False) as memory:
            yield Library(memory, _remembered(memory, collection.notes))


def _remembered(memory: Memory, notes: Sequence[Note]) -> dict[str, list[Note]]:
    results = memory.remember_many(
        {
            "content": note.text[:MAX_MEMORY_CHARS],
            "source": {"session_key": note.session_key, "turn": note.turn},
            "provenance": note.provenance,
            "created_at": note.at,
            "on_similar": "keep",
        }
        for note in notes
    )
    notes_of: dict[str, list[Note]] = {}
    for note, result in zip(notes, results, strict=True):
        if result.memory is None:
            raise RuntimeError(f"{note.id} was not stored: {result.reason or result.error}")
        notes_of.setdefault(result.memory.id, []).append(note)
    return notes_of
