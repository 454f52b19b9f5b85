"""The ranking of a session's candidates: the middle of START, from candidates to diversity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadReply, MeritoryError, PortTimeout
from meritory.domain.session import Candidate, CandidateSource
from meritory.engine.pipeline import Stopwatch
from meritory.engine.predictor.state import PredictorState, served_kind, state_of
from meritory.engine.services import Services
from meritory.engine.sessions.candidates import CandidatePool, epoch_days, gather_candidates
from meritory.engine.sessions.context import Context
from meritory.ports.scorer import ScoreRequest
from meritory.rank import composite as rank_composite
from meritory.rank import composite_feeds, diversity, features, usage_history
from meritory.rank import fusion as rank_fusion

EXPLORE_AFTER_DAYS = 1.0
# Worth saying whatever the session is about.
_STANDING_KINDS = frozenset({"preference", "constraint", "lesson"})
_FAULTS = {PortTimeout.code: "predictor_timeout", BadReply.code: "predictor_parse_error"}

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
    # How long the model took; with `scorer` None it gave no scores.
    score_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the baseline and the features say."""

    effective: Floats
    composite: Floats
    features: Floats


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of the scores: the final order, and in that order the final scores."""

    fusion: rank_fusion.Fusion
    predicted: Floats | None
    order: Rows
    final: Floats


def rank(services: Services, key: str, context: Context, watch: Stopwatch) -> Ranked:
    """Ranks the whole store for a context, by the baseline and, where it has a say, the model."""
    state = state_of(services, context.scope.user)
    with watch.stage("candidates"):
        field = gather_candidates(services, context)
    with watch.stage("baseline"):
        scored = _baseline(services, context, field, state.trust)
    with watch.stage("predictor"):
        predicted = _predicted(services, _request(key, context, field, scored, state), state)
    with watch.stage("fusion"):
        weight = state.alpha if predicted is not None else 1.0
        fusion = rank_fusion.fuse(
            scored.composite, predicted, field.ids, weight, services.policy.predictor.rrf_k
        )
    with watch.stage("diversity"):
        vectors = field.found.vectors[field.places]
        spread = diversity.diversify(
            fusion.scores[fusion.order],
            vectors[fusion.order],
            field.required[fusion.order],
            lambda: _told_apart(field, fusion.order, state),
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
        score_ms=watch.took_ms["predictor"],
    )


def _told_apart(field: CandidatePool, order: Rows, state: PredictorState) -> NDArray[np.bool_]:
    """Return which pairs of similar memories do not repeat each other.

    Memories with different names do not, however alike they look. Nor do memories that have
    helped together, once labels are proved to be valid.
    """
    apart = diversity.named_apart([field.traits[place].opening for place in order.tolist()])
    if state.history.is_valid:
        apart |= usage_history.helped_together(field.hindsight, field.rows[order])
    return apart


# -- scores ---------------------------------------------------------------------------------


def _baseline(
    services: Services, context: Context, field: CandidatePool, trust: composite_feeds.Trust
) -> _Scored:
    """Return the composite of every candidate and all its features."""
    parts = _parts(services, field)
    if services.policy.predictor.composite == "seed":
        # The seed's formula takes its parts as they are.
        trust = composite_feeds.FULL_TRUST
    composite = rank_composite.explain(*parts.shrunk(trust)).composite
    effective = rank_composite.effective(
        [trait.importance for trait in field.traits],
        field.age_days,
        [trait.pinned for trait in field.traits],
    )
    table = features.features(_feature_inputs(context, field, (parts, trust, composite, effective)))
    return _Scored(effective, composite, table)


def _parts(services: Services, field: CandidatePool) -> composite_feeds.HistoryParts:
    found, places, traits = field.found, field.places, field.traits
    confidence = found.confidence[places].astype(np.float64)
    weight = rank_composite.source_weight(
        found.provenance[places], confidence, found.demotion[places], services.policy.ranking
    )
    access_count = np.array([trait.access_count for trait in traits], np.float64)
    if services.policy.predictor.composite == "seed":
        return composite_feeds.HistoryParts(
            rank_composite.relevance(found.cosine[places], weight),
            rank_composite.recency(field.age_days),
            np.array([trait.usefulness for trait in traits], np.float64),
            confidence,
            rank_composite.frequency(access_count),
        )
    return composite_feeds.history_parts(
        composite_feeds.Feed(
            field.match * weight,
            field.title * weight,
            field.age_days,
            field.usage,
            confidence,
            access_count,
        )
    )


def _request(
    key: str, context: Context, field: CandidatePool, scored: _Scored, state: PredictorState
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
    except MeritoryError as error:
        services.observer.failed(_FAULTS.get(error.code, "predictor_crash"), error)
        return None
    return found


# -- what is recorded and chosen from -------------------------------------------------------


def _served(field: CandidatePool, scored: _Scored, outcome: _Outcome) -> tuple[Candidate, ...]:
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
        scored.composite[order].tolist(),
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


def _feature_inputs(
    context: Context,
    field: CandidatePool,
    scored: tuple[composite_feeds.HistoryParts, composite_feeds.Trust, Floats, Floats],
) -> features.FeatureInputs:
    found, places, traits = field.found, field.places, field.traits
    parts, trust, composite, effective = scored
    return features.FeatureInputs(
        occasion=features.Occasion(at=context.now, gap_hours=context.gap_hours),
        composite=composite,
        parts=parts,
        trust=trust,
        usage=field.usage,
        age_days=field.age_days,
        importance=[trait.importance for trait in traits],
        access_count=[trait.access_count for trait in traits],
        cosine=found.cosine[places],
        centred_cosine=found.centred[places],
        text=found.text[places],
        hybrid=field.match,
        title=field.title,
        effective=effective,
        stored_usefulness=[trait.usefulness for trait in traits],
        provenance=found.provenance[places],
        is_pinned=[trait.pinned for trait in traits],
        is_same_project=[trait.project == context.scope.project for trait in traits],
        is_constraint=[trait.kind == "constraint" for trait in traits],
    )


def _worth(services: Services, context: Context, field: CandidatePool) -> Flags:
    """What is about the context, has helped before, or always matters.

    Without a context given, everything may be: nothing speaks against it.
    """
    if not context.is_given:
        return np.ones(len(field.traits), np.bool_)
    found, places = field.found, field.places
    with np.errstate(invalid="ignore"):
        near = found.centred[places] >= services.policy.recall.relevance_floor
    always = [trait.kind in _STANDING_KINDS or trait.pinned for trait in field.traits]
    shares = (found.text[places] > 0.0) | near | (field.usage.count > 0.0)
    return np.asarray(shares | np.array(always, np.bool_) | field.required, np.bool_)


def _eligible(context: Context, field: CandidatePool) -> Flags:
    """What may be tried out: nobody gets in front of an agent on the day it was written."""
    made = np.array([trait.created_days for trait in field.traits], np.float64)
    return np.asarray(epoch_days(context.now) - made > EXPLORE_AFTER_DAYS, np.bool_)
