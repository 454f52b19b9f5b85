"""Recall memories: search by words and by vectors, rank by one hybrid score, count the results."""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import Busy, InputError, StorageError
from meritory.domain.memory import (
    CONTENT_LIMIT_CHARS,
    Kind,
    Listing,
    MemoryRecord,
    Parts,
    ProjectsScope,
    Recalled,
    RecallFilter,
    Scope,
)
from meritory.domain.policy import RECALL_LIMIT
from meritory.domain.world import World, epoch_days
from meritory.engine.memories.chains import (
    PresentValue,
    earlier_values,
    newer_first,
    present_values,
    unsure_values,
)
from meritory.engine.memories.filters import make_filter, narrowed
from meritory.engine.memories.gate import since
from meritory.engine.memories.learned import (
    FormulaOrder,
    learned_order,
    record_search,
    running_session,
)
from meritory.engine.memories.order import PoolMatch, match_pool, pool_scores, relevant
from meritory.engine.memories.question import SearchQuestion, read_question
from meritory.engine.memories.relevance import match_of
from meritory.engine.observe.observer import Observer
from meritory.engine.services import Services
from meritory.rank import composite, hybrid
from meritory.rank.relevance import QueryMatch, descending, numbers_of, probabilities
from meritory.store.contract.memories import NO_FILTER, SearchPool
from meritory.store.contract.store import Store, Transaction
from meritory.text.entities import keys_in_play
from meritory.text.newest import MAX_PLACES, READ_COUNT, Note, newest_first
from meritory.text.requests import asks_for_state
from meritory.text.time import asks_about_now, asks_about_past

LIMIT_MAX = 1_000
TRAVERSAL_LIMIT = 50
# The newest note about a subject may be this far behind the last that is returned.
_READ_AHEAD = MAX_PLACES
# A question about the state of the work is answered by these, all with one score.
STATE_KINDS: tuple[Kind, ...] = ("episode", "decision")
STATE_SCORE = 0.5
STATE_NOTE = "the state of the work: newest first"
# So many of the best results bring what is probably newer and was not found: further ones cost
# other results more places than they mend.
BRINGING = 1
# At least so many are scored, so that a score does not depend on the limit of most searches.
_SCORED_COUNT = 10
FLUSH_INTERVAL_MS = 2_000
# The most memories in one write, and the number of waiting memories that starts a flush.
FLUSH_MEMORIES = 1_000
FLUSH_EARLY_MEMORIES = 50_000
RETRIEVED = "recall.retrieved"
_CLOSE_WAIT_S = 2.0

Floats = NDArray[np.float64]


class _Ranked(NamedTuple):
    """A memory with the index in the pool that its place comes from."""

    at: int
    memory: MemoryRecord
    until: datetime | None = None


def answer(
    services: Services,
    scope: Scope,
    query: str,
    limit: int | None,
    given: Mapping[str, Any],
    *,
    explain: bool,
    session: str | None = None,
) -> list[Recalled]:
    """Return the memories that answer a query best, by the filters given, and count them."""
    count = RECALL_LIMIT if limit is None else limit
    wanted = make_filter(given)
    within = narrowed(scope, given.get("projects"))
    with services.observer.timed("recall"):
        hits = recall(
            services, within, query, count, explain=explain, session=session, wanted=wanted
        )
    if services.counter is not None:
        services.counter.add(scope.user, [hit.memory.id for hit in hits])
    return hits


def recall(
    services: Services,
    scope: Scope,
    query: str,
    limit: int,
    *,
    explain: bool = False,
    session: str | None = None,
    wanted: RecallFilter = NO_FILTER,
) -> list[Recalled]:
    """Return the memories that answer a query best, best first.

    Of a chain only the memory with the present value is returned, at the best place of the chain.
    Of short notes about one subject the newest comes first. A question about the past also gets
    the earlier values. Without a lowest score nothing is returned if no memory is likely to answer;
    with one, each result has at least that score. A search within a session is recorded, to learn
    from what helped.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {LIMIT_MAX}, not {limit!r}")
    text, policy, min_score = checked_query(query), services.policy, wanted.min_score
    if _may_tell_state(scope, wanted, text) and (
        newest := _newest(services, scope, limit, explain=explain)
    ):
        return newest
    floor = None if min_score == 0 else policy.recall.relevance_floor
    found = _find(services, scope, text, wanted, floor)
    running = running_session(services, scope.user, session)
    learned = learned_order(services, scope, found.formula, is_recorded=running is not None)
    found = found.ranked(learned.scores)
    choose = _with_earlier if asks_about_past(text) else _present_only
    read: list[_Ranked] = []
    best: list[_Ranked] = []
    present: dict[str, PresentValue] = {}
    # Some of the best may have expired, changed or another value: read until there are enough.
    for batch in _batches(services, scope, found, limit):
        read += batch
        values = present_values(
            services.store, scope, [one.memory.id for one in batch], services.world.now()
        )
        present |= {one: value for one, value in values.items() if wanted.allows(value.memory)}
        # Equal scores are ordered by id, so that every machine gives the same answer.
        read.sort(key=lambda one: (-found.final[one.at], one.memory.id))
        best = choose(services.store, scope, read, present)
        best = [one for one in best if wanted.allows(one.memory)]
        if len(best) >= limit:
            break
    if asks_about_now(text):
        ranked = [(one.memory, float(found.final[one.at])) for one in best[: limit + _READ_AHEAD]]
        embedder = found.question.vector.embedder
        best = [best[index] for index in order_in_time(services, scope, embedder, ranked)]
        best = _newer_first(services.store, scope, best, services.world.now())
        best = [one for one in best if wanted.allows(one.memory)]
    score_of = dict(
        zip((one.at for one in read), probabilities(_match(found, read)).tolist(), strict=True)
    )
    scores = descending([score_of[one.at] for one in best])
    if min_score is None:
        kept = len(scores) if scores and scores[0] >= policy.recall.known_score else 0
    else:
        kept = sum(score >= min_score for score in scores)
    del best[min(limit, kept) :]
    if running is not None:
        got = [(one.at, one.memory, _rounded(found.final[one.at])) for one in best]
        record_search(services, running, learned, got)
    parts = _explain(services, found, best) if explain else [None] * len(best)
    return [
        Recalled(one.memory, _rounded(score), part, one.until)
        for one, score, part in zip(best, scores[: len(best)], parts, strict=True)
    ]


def _may_tell_state(scope: Scope, wanted: RecallFilter, text: str) -> bool:
    """Return whether the newest memories may answer: they pass no filter, and have one score."""
    is_plain = wanted.is_empty and not isinstance(scope, ProjectsScope) and asks_for_state(text)
    return is_plain and (wanted.min_score is None or wanted.min_score <= STATE_SCORE)


class _Found(NamedTuple):
    """What a search found: its pool, and by index in it the source weight and the rank score."""

    question: SearchQuestion
    pool: SearchPool
    weight: Floats
    match: PoolMatch
    final: Floats
    # The indexes of all that are relevant, best first.
    order: NDArray[np.intp]

    @property
    def formula(self) -> FormulaOrder:
        """Return the order as the learned ranking takes it."""
        return FormulaOrder("recall", self.pool, self.match, self.weight, self.final, self.order)

    def ranked(self, final: Floats) -> _Found:
        """Return the same in the order of other scores."""
        order = self.order[np.argsort(-final[self.order], kind="stable")]
        return self._replace(final=final, order=order)


def _find(
    services: Services, scope: Scope, text: str, wanted: RecallFilter, floor: float | None
) -> _Found:
    """Search by words and by meaning, and rank what is above the relevance floor."""
    policy, question = services.policy, read_question(services, scope, text)
    pool = services.store.search(question.search(scope, wanted=wanted))
    weight = hybrid.source_weight(pool.provenance, pool.confidence, pool.demotion, policy.ranking)
    match = match_pool(services, scope, question, pool, weight)
    final = pool_scores(services, pool, weight, match)
    is_kept = np.ones(len(final), np.bool_)
    if floor is not None:
        is_kept = relevant(pool, floor) & (final > 0.0)
    candidates = np.flatnonzero(is_kept)
    order = candidates[np.argsort(-final[candidates], kind="stable")]
    return _Found(question, pool, weight, match, final, order)


def _batches(
    services: Services, scope: Scope, found: _Found, limit: int
) -> Iterator[list[_Ranked]]:
    """Read the memories that were found, best first, a few more at a time than are wanted."""
    now, count = services.world.now(), max(limit, _SCORED_COUNT) + _READ_AHEAD
    for start in range(0, len(found.order), count):
        indices = found.order[start : start + count]
        rows = found.pool.rows[indices]
        records = services.store.fetch(scope, rows, now)
        yield [
            _Ranked(index, records[row])
            for index, row in zip(indices.tolist(), rows.tolist(), strict=True)
            if row in records
        ]


def _match(found: _Found, read: Sequence[_Ranked]) -> QueryMatch:
    pairs = [(one.at, one.memory) for one in read]
    return match_of(found.question, found.pool, found.final, pairs)


def match_best(
    services: Services, scope: Scope, query: str, count: int
) -> tuple[list[MemoryRecord], QueryMatch]:
    """Return the memories that rank highest for a query, and how they match it."""
    found = _find(services, scope, checked_query(query), NO_FILTER, None)
    read = next(_batches(services, scope, found, count), [])
    return [one.memory for one in read], _match(found, read)


def best_score(
    services: Services, scope: Scope, query: str, filters: Mapping[str, Any]
) -> float | None:
    """Return the best score of any memory, for a query that found nothing; None without one.

    The filters are those of `Memory.recall`, which has checked them before.
    """
    within = narrowed(scope, filters.get("projects"))
    wanted = make_filter({**filters, "min_score": 0.0})
    hits = recall(services, within, query, 1, wanted=wanted)
    return hits[0].score if hits else None


def _newest(
    services: Services, scope: Scope, limit: int, *, explain: bool = False
) -> list[Recalled]:
    """Return the newest episodes and decisions of the project, which tell where the work stands.

    Other kinds fill the remaining places; without an episode or a decision there is no answer.
    """
    now, store = services.world.now(), services.store
    found: dict[str, MemoryRecord] = {}
    for kinds in (STATE_KINDS, (None,)):
        pages = [
            store.listing(Listing(scope, kind=kind, of_project=scope.project, limit=limit))
            for kind in kinds
        ]
        valid = (
            record
            for page in pages
            for record in page
            if record.valid_until is None or record.valid_until > now
        )
        # Since sorting is stable, the newest id is first among equal moments.
        ordered = sorted(valid, key=lambda one: (since(one), one.id), reverse=True)
        found |= {record.id: record for record in ordered if record.id not in found}
        if not found:
            return []
    parts = Parts(*[0.0] * 10, read_as=STATE_NOTE) if explain else None
    return [Recalled(record, STATE_SCORE, parts) for record in [*found.values()][:limit]]


def _present_only(
    store: Store, scope: Scope, read: list[_Ranked], present: Mapping[str, PresentValue]
) -> list[_Ranked]:
    """Return the memories with present values, each at the best place of its chain."""
    chosen: dict[str, _Ranked] = {}
    for one in read:
        held = present.get(one.memory.id)
        memory = one.memory if held is None else held.memory
        chosen.setdefault(memory.id, one._replace(memory=memory))
    return list(chosen.values())


def _newer_first(store: Store, scope: Scope, best: list[_Ranked], now: datetime) -> list[_Ranked]:
    """Return ranked memories, each behind the one that probably gives its claim a newer value."""
    ranked = {one.memory.id: one for one in best}
    newer = unsure_values(store, scope, list(ranked), now)
    for old_id, memory in newer.items():
        ranked.setdefault(memory.id, ranked[old_id]._replace(memory=memory))
    ids = {old_id: one.id for old_id, one in newer.items()}
    order = newer_first([one.memory.id for one in best], ids, BRINGING)
    return [ranked[memory_id] for memory_id in order]


def order_in_time(
    services: Services,
    scope: Scope,
    embedder: str | None,
    ranked: Sequence[tuple[MemoryRecord, float]],
) -> list[int]:
    """Return the indexes of ranked memories, the newest note about one subject first."""
    notes = [
        Note(score, epoch_days(since(memory)), memory.content)
        for memory, score in ranked[:READ_COUNT]
    ]
    ids = [memory.id for memory, _ in ranked[:READ_COUNT]]
    known = services.store.vectors(scope.user, embedder, ids) if embedder and ids else {}
    none = np.zeros(len(next(iter(known.values()), ())), np.float32)
    vectors = np.array([known.get(memory_id, none) for memory_id in ids], np.float32)
    return [*newest_first(notes, vectors), *range(len(notes), len(ranked))]


def _with_earlier(
    store: Store, scope: Scope, read: list[_Ranked], present: Mapping[str, PresentValue]
) -> list[_Ranked]:
    """Return all memories, and the present and earlier values that the search did not find."""
    earlier = earlier_values(store, scope, [one.memory for one in read])
    found = {one.memory.id for one in read}
    chosen: list[_Ranked] = []
    for one in _present_leading(read, present):
        held = present.get(one.memory.id)
        waiting = [one if held is None else one._replace(until=held.until)]
        if held is not None and held.memory.id not in found:
            found.add(held.memory.id)
            chosen.append(one._replace(memory=held.memory))
        while waiting:
            current = waiting.pop()
            chosen.append(current)
            for value in reversed(earlier.get(current.memory.id, [])):
                if value.memory.id not in found:
                    found.add(value.memory.id)
                    waiting.append(_Ranked(one.at, value.memory, value.until))
    return chosen


def _present_leading(read: list[_Ranked], present: Mapping[str, PresentValue]) -> list[_Ranked]:
    """Return the memories, each present value at the best place of its chain."""
    by_id = {one.memory.id: one for one in read}
    ordered: dict[str, _Ranked] = {}
    for one in read:
        held = present.get(one.memory.id)
        if held is not None and held.memory.id in by_id:
            ordered.setdefault(held.memory.id, by_id[held.memory.id]._replace(at=one.at))
        ordered.setdefault(one.memory.id, one)
    return list(ordered.values())


def checked_query(query: object) -> str:
    """Return the query without the parts that a search cannot use."""
    if not isinstance(query, str):
        raise InputError(f"a query must be text, not {type(query).__name__}")
    # Lone surrogates cannot be stored, so no memory contains one.
    text = query[:CONTENT_LIMIT_CHARS].encode("utf-8", "ignore").decode()
    if not text.strip():
        raise InputError("the query is empty", hint="say what to look for")
    return text


def _explain(services: Services, found: _Found, best: list[_Ranked]) -> list[Parts]:
    """Return the parts of each score. The composite uses the raw cosine (seed 004)."""
    pool, weight, match = found.pool, found.weight, found.match
    share = numbers_of(_match(found, best))["share"]
    indices = np.array([one.at for one in best], np.int64)
    memories = [one.memory for one in best]
    cosine = np.nan_to_num(pool.raw_cosine[indices].astype(np.float64))
    ages = composite.age_days(
        services.world.now(), [memory.valid_from or memory.created_at for memory in memories]
    )
    whole = composite.explain(
        hybrid.relevance(cosine, weight[indices]),
        composite.recency(ages),
        [memory.usefulness for memory in memories],
        [memory.confidence for memory in memories],
        composite.frequency([memory.access_count for memory in memories]),
    )
    numbers = (cosine, pool.text[indices], match.own[indices], weight[indices])
    fits = (
        match.asked[indices],
        match.told[indices],
        match.soft[indices],
        match.condition[indices],
        share,
        found.final[indices],
    )
    return [
        Parts(
            *whole.row(i).values(),
            *map(_rounded, row),
            is_standing=bool(match.standing[indices[i]]),
            read_as=found.question.note,
        )
        for i, row in enumerate(zip(*numbers, *fits, strict=True))
    ]


def _rounded(value: float) -> float:
    return round(float(value), composite.SCORE_DECIMALS)


def traversal(services: Services, scope: Scope, context: str) -> list[str]:
    """Return the ids of memories about the context's entities and their dependencies."""
    keys, now = keys_in_play(context, scope.project), services.world.now()
    return services.store.memories_about(scope, keys, now, TRAVERSAL_LIMIT)


def required(services: Services, scope: Scope, context: str) -> list[str]:
    """Return the ids of pins and of the constraints on entities that the context names."""
    keys = keys_in_play(context, scope.project)
    return services.store.required(scope, keys, services.world.now())


class Counter:
    """Counts the memories that searches return; safe to share between threads.

    Counting takes a lock and a dict, so no search waits for the disk. A thread writes after half
    an interval and exists only while there are counts. A crash loses those of one interval.
    """

    def __init__(
        self, store: Store, world: World, observer: Observer, interval_ms: int | None = None
    ) -> None:
        self._store = store
        self._world = world
        self._observer = observer
        # The other half of the interval is for the write itself.
        self._wait_s = (interval_ms or FLUSH_INTERVAL_MS) / 1000 / 2
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._counts: dict[str, collections.Counter[str]] = {}
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, user: str, memory_ids: Iterable[str]) -> None:
        """Count one retrieval of each of these memories."""
        with self._lock:
            if self._closed:
                return
            counts = self._counts.setdefault(user, collections.Counter())
            counts.update(memory_ids)
            is_full = len(counts) >= FLUSH_EARLY_MEMORIES
            if self._thread is None and counts:
                self._thread = threading.Thread(
                    target=self._serve, name="meritory-counts", daemon=True
                )
                self._thread.start()
        if is_full:
            self._woken.set()

    def flush(self) -> int:
        """Write all counts and return the number of memories; counts that fail are kept."""
        with self._flushing:
            with self._lock:
                pending, self._counts = self._counts, {}
            written = 0
            try:
                for user, counts in pending.items():
                    while counts:
                        batch = dict(itertools.islice(counts.items(), FLUSH_MEMORIES))
                        self._write(user, batch)
                        written += len(batch)
                        for memory_id in batch:
                            del counts[memory_id]
            finally:
                with self._lock:
                    for user, counts in pending.items():
                        if counts:
                            self._counts.setdefault(user, collections.Counter()).update(counts)
            return written

    def _write(self, user: str, batch: Mapping[str, int]) -> None:
        at = self._world.now()

        def work(transaction: Transaction) -> None:
            transaction.add_retrievals(user, batch, at)
            transaction.count(user, RETRIEVED, sum(batch.values()))

        self._store.write(user, work)

    def _serve(self) -> None:
        while True:
            self._woken.wait(self._wait_s)
            self._woken.clear()
            try:
                written = self.flush()
            except (StorageError, Busy) as error:
                self._observer.failed("retrieval_counts", error)
                written = 1
            with self._lock:
                # Keep the thread for one more interval: another search often follows.
                if self._closed or (not written and not self._counts):
                    self._thread = None
                    return

    def close(self) -> None:
        """Write the remaining counts and end the thread; later counts are ignored."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._woken.set()
        if thread is not None:
            thread.join(_CLOSE_WAIT_S)
        # A failed count must not fail a program that is about to end.
        with contextlib.suppress(StorageError, Busy):
            self.flush()
