"""The learned order of a search: the formula's best candidates, ranked again by a small model.

The model has influence only as far as the searches of this user have proved it. The formula serves
alone whenever anything is missing. A search within a session is recorded as it was served.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import MeritoryError
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.predictor import RankedSearch, Surface
from meritory.domain.session import Candidate, SessionRecord
from meritory.domain.world import epoch_days
from meritory.engine.memories.order import PoolMatch
from meritory.engine.predictor.state import known_state
from meritory.engine.predictor.surfaces import ranker_of, usable
from meritory.engine.services import Services
from meritory.model.base import RankingQuery
from meritory.rank import fusion, hybrid, usage_history
from meritory.rank.search_features import (
    SEARCH_CANDIDATES,
    SEARCH_FEATURE_VERSION,
    SearchFeatureInputs,
    search_features,
)
from meritory.store.contract.memories import SearchPool
from meritory.store.contract.store import Transaction

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

# More searches of one session are not recorded.
SEARCHES_PER_SESSION = 50
STANDING_KINDS = frozenset({"preference", "constraint"})
# The origin of a memory that the agent searched for.
FETCHED = "search"


@dataclass(frozen=True, slots=True)
class FormulaOrder:
    """The hits of a search as the formula ranks them."""

    surface: Surface
    pool: SearchPool
    # By hit: how its text fits, the source weights, the scores.
    match: PoolMatch
    weight: Floats
    scores: Floats
    # The hits that may be returned, best first.
    order: Rows


@dataclass(frozen=True, slots=True)
class LearnedOrder:
    """The scores that a search ranks by, and the record of it."""

    scores: Floats
    # The candidates, in the order of the formula.
    at: Rows
    record: RankedSearch | None = None


def learned_order(
    services: Services, scope: Scope, found: FormulaOrder, *, is_recorded: bool
) -> LearnedOrder:
    """Return the scores in the learned order; the formula's own if the model has no influence.

    A memory that moves takes over the score of its new place.
    """
    alone = LearnedOrder(found.scores, found.order[:0])
    if services.scorer is None or not len(found.order):
        return alone
    try:
        state = usable(known_state(services, scope.user).surface(found.surface))
        if not state.is_enabled or (state.alpha == 1.0 and not is_recorded):
            return alone
        at, ids, table = _described(services, scope, found)
        predicted = ranker_of(state).score(RankingQuery(features=table))
        k = services.policy.predictor.rrf_k
        fused = fusion.fuse(-np.arange(len(at)), predicted, ids, state.alpha, k)
    except MeritoryError as error:
        services.observer.failed("predictor_search", error)
        return alone
    scores = found.scores.copy()
    if state.alpha < 1.0:
        scores[at[fused.order]] = found.scores[at]
    record = RankedSearch(
        surface=found.surface,
        at=services.world.now(),
        model_version=state.version,
        alpha=state.alpha,
        feature_version=SEARCH_FEATURE_VERSION,
        memory_ids=ids,
        shown=(),
        predictor_ranks=tuple(fused.predictor_ranks.tolist()),
        features=table.ravel(),
    )
    return LearnedOrder(scores, at, record)


def _described(
    services: Services, scope: Scope, found: FormulaOrder
) -> tuple[Rows, tuple[str, ...], Floats]:
    """Return the candidates, their ids and their features."""
    store, now, pool = services.store, services.world.now(), found.pool
    at = found.order[:SEARCH_CANDIDATES]
    traits_of = store.traits(scope, pool.rows[at], now)
    # A memory that changed or expired since the search has no traits.
    at = at[[row in traits_of for row in pool.rows[at].tolist()]]
    rows = pool.rows[at]
    traits = [traits_of[row] for row in rows.tolist()]
    past, project = store.past(scope, None)
    moment = usage_history.Moment(epoch_days(now), np.empty(0, np.float32), project)
    used = usage_history.usage(usage_history.look_back(past, moment), rows)
    links = hybrid.Links(
        pool.previous, pool.following, pool.session, session_words=pool.session_words
    )
    inputs = SearchFeatureInputs(
        score=found.scores,
        own_score=found.match.own * found.weight,
        text=pool.text,
        cosine=pool.cosine,
        plain_cosine=pool.raw_cosine,
        soft_match=found.match.soft,
        told=found.match.told,
        length_chars=pool.length_chars,
        source_weight=found.weight,
        links=links,
        at=at,
        age_days=[epoch_days(now) - trait.since_days for trait in traits],
        is_same_project=[trait.project == scope.project for trait in traits],
        is_standing=found.match.standing[at] | [trait.kind in STANDING_KINDS for trait in traits],
        importance=[trait.importance for trait in traits],
        stored_usefulness=[trait.usefulness for trait in traits],
        usage=used,
    )
    return at, tuple(trait.id for trait in traits), search_features(inputs)


# -- the record -------------------------------------------------------------------------------


def running_session(services: Services, user: str, key: str | None) -> SessionRecord | None:
    """Return an open session by its key; None if it is unknown or over."""
    session = services.store.find_session(user, key) if isinstance(key, str) else None
    return session if session is not None and session.state == "open" else None


def with_shown(record: RankedSearch, memory_ids: Iterable[str]) -> RankedSearch:
    """Return a record with what the agent got of the candidates."""
    place = {memory_id: number for number, memory_id in enumerate(record.memory_ids)}
    shown = dict.fromkeys(place[one] for one in memory_ids if one in place)
    return replace(record, shown=tuple(shown))


def record_search(
    services: Services,
    session: SessionRecord,
    learned: LearnedOrder,
    got: Sequence[tuple[int, MemoryRecord, float]],
) -> None:
    """Record a search of a running session with what it returned: hits, memories and scores.

    The present value of a claim counts for the hit whose place it took.

    They count as shown: the agent may rate them, and the judge reads them. An error is counted and
    does not reach the agent.
    """
    user, key = session.user, session.key
    if learned.record is None:
        return
    id_of = dict(zip(learned.at.tolist(), learned.record.memory_ids, strict=True))
    record = with_shown(learned.record, [id_of[hit] for hit, _, _ in got if hit in id_of])
    fetched = [
        Candidate(
            memory_id=memory.id,
            source="effective",
            origins=(FETCHED,),
            final_score=score,
            rank=0,
            was_injected=True,
        )
        for _, memory, score in got
    ]

    def work(transaction: Transaction) -> None:
        current = transaction.session(user, key)
        if current.state != "open" or transaction.searches_count(user, key) >= SEARCHES_PER_SESSION:
            return
        transaction.add_candidates(user, key, fetched)
        transaction.add_search(user, key, record, [one.memory_id for one in fetched])

    try:
        services.store.write(user, work)
    except MeritoryError as error:
        services.observer.failed("predictor_record", error)
