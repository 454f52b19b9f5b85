"""The ranking of a session's candidates: the stages from candidates to diversity.

Each stage takes a `Ranking`, reads what earlier stages put into it and adds its own part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadReply
from meritory.domain.feedback import MISLED_USEFULNESS
from meritory.domain.policy import SourceWeights
from meritory.domain.session import Candidate, CandidateSource
from meritory.domain.world import epoch_days
from meritory.engine.memories.chains import present_values, unsure_values
from meritory.engine.predictor.state import PredictorState, served_kind, state_of
from meritory.engine.services import Services
from meritory.engine.sessions.context import Context, StartRequest
from meritory.ports.scorer import ScoreRequest
from meritory.rank import composite as rank_composite
from meritory.rank import features, usage_history
from meritory.rank import fusion as rank_fusion
from meritory.rank import hybrid as rank_candidates
from meritory.store.contract.memories import Gathered, Gathering, Search, Trait
from meritory.text.entities import entity_key
from meritory.text.newest import (
    MAX_PLACES,
    MIN_NEARNESS,
    READ_COUNT,
    VERY_NEAR,
    Note,
    newest_first,
)
from meritory.text.terms import MAX_TERMS, query_pairs, title_scores, title_words
from meritory.text.time import asks_about_now, asks_about_past

# How many memories each source may name: a third of the pool, and never fewer than this. Words
# may fill the pool, because a long context has many (ADR 0010).
SOURCE_LIMIT = 50
TRAVERSAL_LIMIT = 50
# The origin of a candidate that is in the pool for the earlier values of its claim.
CHAIN = "chain"
# A memory younger than this is never shown for exploration.
EXPLORE_AFTER_DAYS = 1.0
# The final score of a memory that misled is this share of its own, which puts it behind the others.
MISLED_FACTOR = 0.01
# Worth showing whatever the session is about.
STANDING_KINDS = frozenset({"preference", "constraint", "lesson"})

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
RankArray = rank_fusion.RankArray


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """The candidates before they are ranked; every array has one entry per candidate."""

    gathered: Gathered
    # Indices of the candidates in `gathered`.
    at: Rows
    origins: tuple[frozenset[str], ...]
    traits: tuple[Trait, ...]
    hindsight: usage_history.Hindsight
    usage: usage_history.Usage
    required: Flags
    age_days: Floats
    # How well each matches the context by meaning and words, and how well its title does.
    match: Floats
    title: Floats

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the candidates."""
        return tuple(trait.id for trait in self.traits)

    @property
    def rows(self) -> Rows:
        """Return the candidates' rows in the store."""
        return self.gathered.rows[self.at]


@dataclass(slots=True)
class Ranking:
    """One ranking under way: what it is made for, and what each stage has added so far."""

    services: Services
    request: StartRequest
    took_ms: dict[str, float] = field(default_factory=dict, init=False)
    # Stage context.
    context: Context = field(init=False)
    # Stage candidates.
    pool: CandidatePool = field(init=False)
    # By the id of a candidate the id of the one with the present value of its claim.
    present: Mapping[str, str] = field(default_factory=dict, init=False)
    # By the id of a candidate the id of one that probably gives its claim a newer value.
    newer: Mapping[str, str] = field(default_factory=dict, init=False)
    # Stage baseline.
    state: PredictorState = field(init=False)
    effective: Floats = field(init=False)
    composite: Floats = field(init=False)
    features: Floats = field(init=False)
    # Stage predictor; None when the model gave no scores, then the baseline ranks alone.
    predicted: Floats | None = field(default=None, init=False)
    # The kind and version of the model that scored.
    scorer: str | None = field(default=None, init=False)
    model_version: int | None = field(default=None, init=False)
    # Stage fusion.
    alpha: float = field(default=1.0, init=False)
    fusion: rank_fusion.Fusion = field(init=False)
    # Stage diversity: the candidates in final order, and arrays in the same order.
    candidates: tuple[Candidate, ...] = field(init=False)
    rows: Rows = field(init=False)
    required: Flags = field(init=False)
    is_worth: Flags = field(init=False)
    can_explore: Flags = field(init=False)
    baseline_ranks: Rows = field(init=False)
    predictor_ranks: Rows = field(init=False)
    overlaps: Rows = field(init=False)

    def session_fields(self) -> dict[str, Any]:
        """Return the fields of a session that its ranking sets."""
        return {
            "context": self.context.text,
            "has_prompt": self.context.is_given,
            "embedder": self.context.vector.embedder,
            "context_vector": self.context.vector.vector,
            "alpha": self.alpha,
            "scorer": self.scorer,
            "model_version": self.model_version,
        }


# -- candidates -----------------------------------------------------------------------------


def gather_candidates(run: Ranking) -> None:
    """Collect the memories that each source puts forward, up to the size of the pool."""
    store, context = run.services.store, run.context
    scope, vector, now = context.scope, context.vector, context.now
    size = run.services.policy.predictor.candidate_pool_size
    limit = max(SOURCE_LIMIT, size // 3)
    now_days = epoch_days(now)
    past, project = store.past(scope, vector.embedder)
    moment = usage_history.Moment(
        now_days,
        np.empty(0, np.float32) if vector.vector is None else vector.vector,
        project,
        context.words,
    )
    hindsight = usage_history.look_back(past, moment)
    # More than are taken, because memories of other projects drop out.
    helped = usage_history.top_rows(hindsight, 4 * limit)
    # Every memory here is about the project, so it selects none.
    project_key = None if scope.project is None else entity_key("project", scope.project)
    named = [key for key in context.entity_keys if key != project_key]
    about = store.memories_about(scope, named, now, TRAVERSAL_LIMIT)
    required = store.required(scope, context.entity_keys, now)
    search = Search(
        scope,
        context.terms[:MAX_TERMS],
        vector.embedder,
        vector.vector,
        text_limit=size,
        vector_limit=limit,
        phrases=query_pairs(context.text),
        injectable_at=now,
    )
    gathering = Gathering(search, limit, helped, tuple({*about, *required}))
    gathered = store.gather(gathering)
    visible = set(gathered.rows.tolist())
    row_of = gathered.row_of_id
    pooled = rank_candidates.pool(
        {
            "effective": gathered.by_effective.tolist(),
            "cosine": gathered.by_cosine.tolist(),
            "text": gathered.by_text.tolist(),
            "history": [row for row in helped.tolist() if row in visible][:limit],
            "traversal": [row_of[memory_id] for memory_id in about if memory_id in row_of],
        },
        [row_of[memory_id] for memory_id in required if memory_id in row_of],
        size,
    )
    run.pool = _describe(run, gathered, pooled, hindsight)
    values = present_values(store, scope, run.pool.ids, now, trusted=True)
    run.present = {old_id: value.memory.id for old_id, value in values.items()}
    if asks_about_now(context.text):
        unsure = unsure_values(store, scope, run.pool.ids, now, trusted=True)
        run.newer = {old_id: one.id for old_id, one in unsure.items()}
    missing = {*run.present.values(), *run.newer.values()} - set(run.pool.ids)
    if missing:
        gathered = store.gather(replace(gathering, ids=(*gathering.ids, *sorted(missing))))
        run.pool = _describe(run, gathered, _with_chain(pooled, gathered, missing), hindsight)


def _with_chain(
    pooled: rank_candidates.PooledCandidates, gathered: Gathered, missing: Collection[str]
) -> rank_candidates.PooledCandidates:
    """Return the pool with memories that hold the present values of candidates."""
    origins = dict(zip(pooled.rows, pooled.origins, strict=True))
    for memory_id in missing:
        if memory_id in gathered.row_of_id:
            origins.setdefault(gathered.row_of_id[memory_id], frozenset({CHAIN}))
    # Some may be gone since the first search.
    rows = sorted(origins.keys() & set(gathered.rows.tolist()))
    return rank_candidates.PooledCandidates(tuple(rows), tuple(origins[row] for row in rows))


def _describe(
    run: Ranking,
    gathered: Gathered,
    pooled: rank_candidates.PooledCandidates,
    hindsight: usage_history.Hindsight,
) -> CandidatePool:
    """Return the pool with everything that ranking reads about its candidates."""
    context, now_days = run.context, epoch_days(run.context.now)
    rows = np.array(pooled.rows, np.int64)
    traits_of = run.services.store.traits(context.scope, rows, context.now)
    # A memory that changed or expired since the search has no traits.
    live = [index for index, row in enumerate(pooled.rows) if row in traits_of]
    at = np.searchsorted(gathered.rows, rows[live])
    origins = tuple(pooled.origins[index] for index in live)
    traits = tuple(traits_of[pooled.rows[index]] for index in live)
    since_days = np.array([trait.since_days for trait in traits], np.float64)
    return CandidatePool(
        gathered=gathered,
        at=at,
        origins=origins,
        traits=traits,
        hindsight=hindsight,
        usage=usage_history.usage(hindsight, rows[live]),
        required=np.array([rank_candidates.REQUIRED in names for names in origins], np.bool_),
        age_days=now_days - since_days,
        match=rank_composite.context_match(gathered.cosine[at], gathered.text[at]),
        title=title_scores(context.text, [title_words(trait.opening) for trait in traits]),
    )


# -- scores ---------------------------------------------------------------------------------


def score_baseline(run: Ranking) -> None:
    """Compute the composite score and the features of every candidate."""
    run.state = state_of(run.services, run.context.scope.user)
    policy, context, pool = run.services.policy, run.context, run.pool
    gathered, at, traits = pool.gathered, pool.at, pool.traits
    is_seed = policy.predictor.composite == "seed"
    # The seed formula uses its parts unweighted.
    trust = rank_composite.FULL_TRUST if is_seed else run.state.history.trust
    parts = _composite_parts(pool, policy.ranking, is_seed=is_seed)
    importance = [trait.importance for trait in traits]
    is_pinned = [trait.pinned for trait in traits]
    run.composite = rank_composite.explain(*parts.shrunk(trust)).composite
    run.effective = rank_composite.effective(importance, pool.age_days, is_pinned)
    run.features = features.features(
        features.FeatureInputs(
            at=context.now,
            gap_hours=context.gap_hours,
            composite=run.composite,
            parts=parts,
            trust=trust,
            usage=pool.usage,
            age_days=pool.age_days,
            importance=importance,
            access_count=[trait.access_count for trait in traits],
            cosine=gathered.cosine[at],
            centred_cosine=gathered.centred[at],
            text=gathered.text[at],
            hybrid=pool.match,
            title=pool.title,
            effective=run.effective,
            stored_usefulness=[trait.usefulness for trait in traits],
            provenance=gathered.provenance[at],
            is_pinned=is_pinned,
            is_same_project=[trait.project == context.scope.project for trait in traits],
            is_constraint=[trait.kind == "constraint" for trait in traits],
        )
    )


def _composite_parts(
    pool: CandidatePool, sources: SourceWeights, *, is_seed: bool
) -> rank_composite.HistoryParts:
    """Return the five parts of the composite, from usage history or by the seed formula."""
    gathered, at = pool.gathered, pool.at
    confidence = gathered.confidence[at].astype(np.float64)
    weight = rank_candidates.source_weight(
        gathered.provenance[at], confidence, gathered.demotion[at], sources
    )
    access_count = np.array([trait.access_count for trait in pool.traits], np.float64)
    if is_seed:
        return rank_composite.HistoryParts(
            rank_candidates.relevance(gathered.cosine[at], weight),
            rank_composite.recency(pool.age_days),
            np.array([trait.usefulness for trait in pool.traits], np.float64),
            confidence,
            rank_composite.frequency(access_count),
        )
    return rank_composite.history_parts(
        rank_composite.Feed(
            pool.match * weight,
            pool.title * weight,
            pool.age_days,
            pool.usage,
            confidence,
            access_count,
        )
    )


def score_predictor(run: Ranking) -> None:
    """Let the model score the candidates, if it is enabled and there are any."""
    scorer, context, pool = run.services.scorer, run.context, run.pool
    if scorer is None or not run.state.is_enabled or not pool.traits:
        return
    request = ScoreRequest(
        session_key=run.request.key,
        memory_ids=pool.ids,
        features=run.features,
        feature_version=features.FEATURE_VERSION,
        user=context.scope.user,
        version=run.state.version,
        embedder=context.vector.embedder,
        context=context.vector.vector,
        context_text=context.text,
        project_slot=features.project_slot(context.scope.project),
        vectors=pool.gathered.vectors[pool.at],
    )
    with run.services.observer.timed("predictor_score"):
        scores = scorer.score(request)
    if scores.shape != (len(pool.traits),):
        raise BadReply(f"{len(pool.traits)} candidates, but scores of shape {scores.shape}")
    run.predicted = scores
    run.scorer, run.model_version = served_kind(scorer, run.state), run.state.version


# -- the final order ------------------------------------------------------------------------


def fuse(run: Ranking) -> None:
    """Combine both rankings by reciprocal rank fusion."""
    run.alpha = run.state.alpha if run.predicted is not None else 1.0
    run.fusion = rank_fusion.fuse(
        run.composite, run.predicted, run.pool.ids, run.alpha, run.services.policy.predictor.rrf_k
    )


def _in_time(run: Ranking) -> RankArray:
    """Return the fused order with the newest of notes about one subject first.

    Without a context nothing says what is relevant: then only notes that are very near each other
    change places, however far apart they are.
    """
    pool, order, context = run.pool, run.fusion.order, run.context
    if not asks_about_now(context.text):
        return order
    read = order[:READ_COUNT] if context.is_given else order
    reach, nearness = (MAX_PLACES, MIN_NEARNESS) if context.is_given else (len(order), VERY_NEAR)
    traits, match = pool.traits, pool.match
    # The opening of a short note is its whole text.
    notes = [
        Note(float(match[index]), traits[index].since_days, traits[index].opening)
        for index in read.tolist()
    ]
    by_time = newest_first(notes, pool.gathered.vectors[pool.at][read], reach, nearness)
    return np.concatenate([read[by_time], order[len(read) :]])


def diversify(run: Ranking) -> None:
    """Lower candidates that repeat a better one, and put everything into the final order."""
    pool, fusion = run.pool, run.fusion
    ordered = _in_time(run)

    def apart() -> Flags:
        """Return which pairs of similar memories do not repeat each other.

        Memories with different names do not. Nor do memories that helped together, once the
        record proves that labels are valid.
        """
        openings = [pool.traits[index].opening for index in ordered.tolist()]
        differ = rank_fusion.named_apart(openings)
        if run.state.history.is_valid:
            differ |= usage_history.helped_together(pool.hindsight, pool.rows[ordered])
        return differ

    spread = rank_fusion.diversify(
        # A note that moved up takes over the score of its place.
        fusion.scores[fusion.order],
        pool.gathered.vectors[pool.at][ordered],
        pool.required[ordered],
        apart,
    )
    final, overlaps = np.empty(len(ordered)), np.empty(len(ordered), np.int64)
    final[ordered], overlaps[ordered] = spread.scores, spread.overlaps
    has_misled = _has_misled(run)
    final = np.where(has_misled, MISLED_FACTOR * final, final)
    is_worth, is_old = _is_worth(run) & ~has_misled, np.zeros(len(final), np.bool_)
    place = {memory_id: index for index, memory_id in enumerate(pool.ids)}
    is_about_past = bool(run.present) and asks_about_past(run.context.text)
    for old_id, new_id in run.present.items():
        if old_id in place and new_id in place:
            # The present value takes the best place of its chain. The others are shown only when
            # the session is about the past.
            old, new = place[old_id], place[new_id]
            final[new] = max(final[new], final[old])
            is_worth[new] |= is_worth[old] and not has_misled[new]
            is_old[old] = not is_about_past
    order = ordered[spread.order]
    order = order[np.lexsort((is_old[order], -final[order]))]
    if _lift_newer(run, order, final, is_worth, has_misled):
        order = order[np.lexsort((is_old[order], -final[order]))]
    run.candidates = _candidates(run, order, final[order])
    run.rows = pool.rows[order]
    run.required = pool.required[order]
    run.is_worth = (is_worth & ~is_old)[order]
    created_days = np.array([trait.created_days for trait in pool.traits], np.float64)
    is_settled = epoch_days(run.context.now) - created_days > EXPLORE_AFTER_DAYS
    run.can_explore = (is_settled & ~is_old & ~has_misled)[order]
    run.baseline_ranks = fusion.baseline_ranks[order]
    run.predictor_ranks = fusion.predictor_ranks[order]
    run.overlaps = overlaps[order]


def _lift_newer(
    run: Ranking, order: RankArray, final: Floats, is_worth: Flags, has_misled: Flags
) -> bool:
    """Raise what is probably newer right before the older one, and return whether any was."""
    place = {memory_id: index for index, memory_id in enumerate(run.pool.ids)}
    is_changed = False
    for old in order.tolist() if run.newer else ():
        new = place.get(run.newer.get(run.pool.ids[old], ""))
        if new is None or has_misled[new]:
            continue
        is_worth[new] |= is_worth[old]
        if final[new] <= final[old]:
            final[new], is_changed = np.nextafter(final[old], np.inf), True
    return is_changed


def _candidates(run: Ranking, order: Rows, final: Floats) -> tuple[Candidate, ...]:
    """Return the records of the candidates in their final order."""
    pool, fusion = run.pool, run.fusion
    # Column by column as plain lists: taking single numbers out of arrays is slow.
    ranks: list[int | None] = fusion.predictor_ranks[order].tolist()
    scores: list[float | None] = [None] * len(order)
    if run.predicted is not None:
        predicted = run.predicted[order].tolist()
        scores = [score if math.isfinite(score) else None for score in predicted]
    origins = [pool.origins[index] for index in order.tolist()]
    sorted_origins = {names: tuple(sorted(names)) for names in set(origins)}
    sources: list[CandidateSource] = [
        "effective" if score is None else "both" if "effective" in names else "predictor"
        for names, score in zip(origins, scores, strict=True)
    ]
    columns = (
        [pool.traits[index].id for index in order.tolist()],
        sources,
        final.tolist(),
        range(1, len(order) + 1),
        [sorted_origins[names] for names in origins],
        run.effective[order].tolist(),
        run.composite[order].tolist(),
        scores,
        fusion.baseline_ranks[order].tolist(),
        [None if score is None else rank for rank, score in zip(ranks, scores, strict=True)],
        repeat(False),
        repeat(1.0),
        map(tuple, run.features[order].tolist()),
        repeat(features.FEATURE_VERSION),
    )
    return tuple(map(Candidate, *columns))


def _has_misled(run: Ranking) -> Flags:
    """Return which candidates misled more than they helped; what is required is never one.

    The seed's formula already ranks by usefulness, and stays as it is.
    """
    if run.services.policy.predictor.composite == "seed":
        return np.zeros(len(run.pool.traits), np.bool_)
    usefulness = np.array([trait.usefulness for trait in run.pool.traits], np.float64)
    return np.asarray((usefulness < MISLED_USEFULNESS) & ~run.pool.required, np.bool_)


def _is_worth(run: Ranking) -> Flags:
    """Return which candidates match the context, have helped before or always matter.

    All of them, if the session began without a context.
    """
    pool = run.pool
    if not run.context.is_given:
        return np.ones(len(pool.traits), np.bool_)
    with np.errstate(invalid="ignore"):
        is_near = pool.gathered.centred[pool.at] >= run.services.policy.recall.relevance_floor
    always = [trait.kind in STANDING_KINDS or trait.pinned for trait in pool.traits]
    matches = (pool.gathered.text[pool.at] > 0.0) | is_near | (pool.usage.count > 0.0)
    return np.asarray(matches | np.array(always, np.bool_) | pool.required, np.bool_)
