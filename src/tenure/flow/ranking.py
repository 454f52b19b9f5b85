"""The ranking of a session's candidates: the middle of START, from candidates to diversity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from tenure.errors import BadReply, PortTimeout, TenureError
from tenure.flow.context import Context
from tenure.flow.pipeline import Stopwatch
from tenure.flow.predictor import PredictorState, served_kind, state_of
from tenure.flow.services import Services
from tenure.ports.scorer import ScoreRequest
from tenure.rank import candidates, diversify, features, fuse, history, living, scores
from tenure.store.base import Search
from tenure.store.candidates import Gathered, Gathering, Trait
from tenure.text.terms import MAX_TERMS, query_pairs
from tenure.types import Candidate, CandidateSource

# How many each side may name; words to the cap, for a long context has many (ADR 0010).
SOURCE_LIMIT = 50
TRAVERSAL_LIMIT = 50
EXPLORE_AFTER_DAYS = 1.0
# Worth saying whatever the session is about.
_STANDING_KINDS = frozenset({"preference", "constraint", "lesson"})
_FAULTS = {PortTimeout.code: "predictor_timeout", BadReply.code: "predictor_parse_error"}
_SECONDS_PER_DAY = 86_400.0

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates in final order, and what choosing among them needs, in the same order."""

    context: Context
    state: PredictorState
    alpha: float
    candidates: tuple[Candidate, ...]
    rows: Rows
    required: Flags
    worth: Flags
    eligible: Flags
    baseline_ranks: Rows
    predictor_ranks: Rows
    overlaps: Rows
    scorer: str | None = None
    model_version: int | None = None


@dataclass(frozen=True, slots=True)
class _Field:
    """The candidates before they are ranked, all arrays side by side."""

    found: Gathered
    # Places of the candidates in what was gathered.
    places: Rows
    origins: tuple[frozenset[str], ...]
    traits: tuple[Trait, ...]
    hindsight: history.Hindsight
    usage: history.Usage
    # Of what helps this user, the share that has helped before.
    recurrence: float
    required: Flags
    age_days: Floats
    # How well each goes with the context, by meaning and words.
    match: Floats

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trait.id for trait in self.traits)

    @property
    def rows(self) -> Rows:
        return self.found.rows[self.places]


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the baseline and the features say."""

    effective: Floats
    composition: scores.Composition
    features: Floats


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of the scores: the final order, and in that order the final scores."""

    fusion: fuse.Fusion
    predicted: Floats | None
    order: Rows
    final: Floats


def rank(services: Services, key: str, context: Context, watch: Stopwatch) -> Ranked:
    """Ranks the whole store for a context, by the baseline and, where it has a say, the model."""
    state = state_of(services, context.scope.user)
    with watch.stage("candidates"):
        field = _candidates(services, context)
    with watch.stage("baseline"):
        scored = _baseline(services, context, field)
    with watch.stage("predictor"):
        predicted = _predicted(services, _request(key, context, field, scored, state), state)
    with watch.stage("fusion"):
        composite = scored.composition.composite
        weight = state.alpha if predicted is not None else 1.0
        fusion = fuse.fuse(composite, predicted, field.ids, weight, services.policy.session.rrf_k)
    with watch.stage("diversity"):
        vectors = field.found.vectors[field.places]
        spread = diversify.diversify(
            fusion.scores[fusion.order],
            vectors[fusion.order],
            field.required[fusion.order],
            lambda: history.helped_together(field.hindsight, field.rows[fusion.order]),
        )
        order = fusion.order[spread.order]
    final = np.empty(len(order))
    final[fusion.order] = spread.scores
    return Ranked(
        context=context,
        state=state,
        alpha=weight,
        candidates=_served(field, scored, _Outcome(fusion, predicted, order, final[order])),
        rows=field.rows[order],
        required=field.required[order],
        worth=_worth(services, context, field)[order],
        eligible=_eligible(context, field)[order],
        baseline_ranks=fusion.baseline_ranks[order],
        predictor_ranks=fusion.predictor_ranks[order],
        overlaps=spread.overlaps[spread.order],
        scorer=served_kind(services, state) if predicted is not None else None,
        model_version=state.version if predicted is not None else None,
    )


# -- candidates -----------------------------------------------------------------------------


def _candidates(services: Services, context: Context) -> _Field:
    store, scope, now = services.store, context.scope, context.now
    past, project = store.past(scope, context.vector.embedder)
    hindsight = history.look_back(past, _moment(context, project))
    # More than are taken: what helped in other projects is of no use in this one.
    helped = history.top_rows(hindsight, 4 * SOURCE_LIMIT)
    named = [key for key in context.entity_keys if key != context.project_key]
    about = store.memories_about(scope, named, now, TRAVERSAL_LIMIT)
    required = store.required(scope, context.entity_keys, now)
    size = services.policy.session.pool_size
    found = store.gather(
        Gathering(_search(context, size), SOURCE_LIMIT, helped, tuple({*about, *required}))
    )
    pool = candidates.pool(
        {
            "effective": found.by_effective.tolist(),
            "cosine": found.by_cosine.tolist(),
            "text": found.by_text.tolist(),
            "history": _known(found, helped)[:SOURCE_LIMIT],
            "traversal": [found.row_of_id[one] for one in about if one in found.row_of_id],
        },
        [found.row_of_id[one] for one in required if one in found.row_of_id],
        size,
    )
    return _field(services, context, found, pool, hindsight)


def _moment(context: Context, project: int) -> history.Moment:
    vector = context.vector.vector
    return history.Moment(
        _days(context.now),
        np.empty(0, np.float32) if vector is None else vector,
        project,
        context.words,
    )


def _days(moment: datetime) -> float:
    return moment.timestamp() / _SECONDS_PER_DAY


def _search(context: Context, size: int) -> Search:
    return Search(
        context.scope,
        context.terms[:MAX_TERMS],
        context.vector.embedder,
        context.vector.vector,
        text_limit=size,
        vector_limit=SOURCE_LIMIT,
        phrases=query_pairs(context.text),
        injectable_at=context.now,
    )


def _known(found: Gathered, rows: Rows) -> list[int]:
    """The rows that the scope may see, in their order."""
    known = set(found.rows.tolist())
    return [row for row in rows.tolist() if row in known]


def _field(
    services: Services,
    context: Context,
    found: Gathered,
    pool: candidates.Pool,
    hindsight: history.Hindsight,
) -> _Field:
    # What expired or changed meanwhile has no traits, and is no candidate.
    wanted = np.array(pool.rows, np.int64)
    traits = services.store.traits(context.scope, wanted, context.now)
    kept = [at for at, row in enumerate(pool.rows) if row in traits]
    places = np.searchsorted(found.rows, wanted[kept])
    origins = tuple(pool.origins[at] for at in kept)
    known = tuple(traits[pool.rows[at]] for at in kept)
    return _Field(
        found=found,
        places=places,
        origins=origins,
        traits=known,
        hindsight=hindsight,
        usage=history.usage(hindsight, wanted[kept]),
        recurrence=history.recurrence(hindsight.past),
        required=np.array([candidates.REQUIRED in names for names in origins], np.bool_),
        age_days=_days(context.now) - np.array([trait.since_days for trait in known], np.float64),
        match=living.context_match(found.cosine[places], found.text[places]),
    )


# -- scores ---------------------------------------------------------------------------------


def _baseline(services: Services, context: Context, field: _Field) -> _Scored:
    found, places, traits = field.found, field.places, field.traits
    age_days, match = field.age_days, field.match
    weight = scores.source_weight(
        found.provenance[places],
        found.confidence[places],
        found.demotion[places],
        services.policy.sources,
    )
    access_count = np.array([trait.access_count for trait in traits], np.float64)
    usefulness = np.array([trait.usefulness for trait in traits], np.float64)
    confidence = found.confidence[places].astype(np.float64)
    if services.policy.session.composite == "living":
        parts = living.living_parts(
            living.Feed(
                match * weight, age_days, field.usage, confidence, access_count, field.recurrence
            )
        )
    else:
        parts = (
            scores.relevance(found.cosine[places], weight),
            scores.recency(age_days),
            usefulness,
            confidence,
            scores.frequency(access_count),
        )
    composition = scores.explain(*parts)
    effective = scores.effective(
        [trait.importance for trait in traits], age_days, [trait.pinned for trait in traits]
    )
    return _Scored(effective, composition, _features(context, field, composition, effective))


def _request(
    key: str, context: Context, field: _Field, scored: _Scored, state: PredictorState
) -> ScoreRequest:
    return ScoreRequest(
        session_key=key,
        memory_ids=field.ids,
        features=scored.features,
        feature_version=features.FEATURE_VERSION,
        user=context.scope.user,
        version=state.version,
        embedder=context.vector.embedder,
        context=context.vector.vector,
        context_text=context.text,
        project=context.scope.project,
        vectors=field.found.vectors[field.places],
    )


def _predicted(services: Services, request: ScoreRequest, state: PredictorState) -> Floats | None:
    """The model's scores; without them the baseline ranks alone, and that is counted."""
    if services.scorer is None or not state.is_enabled or not request.memory_ids:
        return None
    try:
        with services.observer.timed("predictor_score"):
            found = services.scorer.score(request)
        count = len(request.memory_ids)
        if found.shape != (count,):
            raise BadReply(f"{count} candidates, but scores of shape {found.shape}")
    except TenureError as error:
        services.observer.failed(_FAULTS.get(error.code, "predictor_crash"), error)
        return None
    return found


# -- what is recorded and chosen from -------------------------------------------------------


def _served(field: _Field, scored: _Scored, outcome: _Outcome) -> tuple[Candidate, ...]:
    """The records of the candidates in their final order."""
    fusion, predicted, order = outcome.fusion, outcome.predicted, outcome.order
    # Column by column as plain lists: taking single numbers out of arrays is slow.
    model_ranks: list[int | None] = fusion.predictor_ranks[order].tolist()
    told: list[float | None] = [None] * len(order)
    if predicted is not None:
        told = [one if math.isfinite(one) else None for one in predicted[order].tolist()]
    known = [has if one is not None else None for has, one in zip(model_ranks, told, strict=True)]
    origins = [field.origins[place] for place in order.tolist()]
    in_order = {names: tuple(sorted(names)) for names in set(origins)}
    columns = (
        [field.traits[place].id for place in order.tolist()],
        [
            _source(names, has_predicted=one is not None)
            for names, one in zip(origins, told, strict=True)
        ],
        outcome.final.tolist(),
        range(1, len(order) + 1),
        [in_order[names] for names in origins],
        scored.effective[order].tolist(),
        scored.composition.composite[order].tolist(),
        told,
        fusion.baseline_ranks[order].tolist(),
        known,
        repeat(False),
        repeat(1.0),
        map(tuple, scored.features[order].tolist()),
        repeat(features.FEATURE_VERSION),
    )
    return tuple(map(Candidate, *columns))


def _source(names: frozenset[str], *, has_predicted: bool) -> CandidateSource:
    """Which ranking put it forward: that of importance, the model's, or both."""
    if not has_predicted:
        return "effective"
    return "both" if "effective" in names else "predictor"


def _features(
    context: Context, field: _Field, composition: scores.Composition, effective: Floats
) -> Floats:
    found, places, traits = field.found, field.places, field.traits
    return features.features(
        features.FeatureInputs(
            occasion=features.Occasion(at=context.now, gap_hours=context.gap_hours),
            composition=composition,
            usage=field.usage,
            age_days=field.age_days,
            importance=[trait.importance for trait in traits],
            access_count=[trait.access_count for trait in traits],
            cosine=found.cosine[places],
            centred_cosine=found.centred[places],
            text=found.text[places],
            hybrid=field.match,
            effective=effective,
            stored_usefulness=[trait.usefulness for trait in traits],
            provenance=found.provenance[places],
            is_pinned=[trait.pinned for trait in traits],
            is_same_project=[trait.project == context.scope.project for trait in traits],
            is_constraint=[trait.kind == "constraint" for trait in traits],
        )
    )


def _worth(services: Services, context: Context, field: _Field) -> Flags:
    """What is about the context, has helped before, or always matters.

    Without a context given, everything may be: nothing speaks against it.
    """
    if not context.is_given:
        return np.ones(len(field.traits), np.bool_)
    found, places = field.found, field.places
    with np.errstate(invalid="ignore"):
        near = found.centred[places] >= services.policy.relevance_floor
    always = [trait.kind in _STANDING_KINDS or trait.pinned for trait in field.traits]
    shares = (found.text[places] > 0.0) | near | (field.usage.count > 0.0)
    return np.asarray(shares | np.array(always, np.bool_) | field.required, np.bool_)


def _eligible(context: Context, field: _Field) -> Flags:
    """What may be tried out: nobody gets in front of an agent on the day it was written."""
    made = np.array([trait.created_days for trait in field.traits], np.float64)
    return np.asarray(_days(context.now) - made > EXPLORE_AFTER_DAYS, np.bool_)
