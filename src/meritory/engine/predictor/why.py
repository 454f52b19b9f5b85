"""In words: why a memory was shown in a session, left out of it, or not even considered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Candidate, SessionMemory, SessionRecord
from meritory.engine.predictor.state import load_checkpoint
from meritory.engine.services import Services
from meritory.engine.sessions.start import FIRST_INJECTION
from meritory.model.base import RankingQuery
from meritory.model.checkpoint import restored
from meritory.model.ranker import Ranker, standardised
from meritory.rank import composite
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.fusion import rrf
from meritory.rank.hybrid import REQUIRED
from meritory.rank.packing import REQUIRED_SHARE

# What is worth saying whatever a session is about.
_ALWAYS = ("is_constraint", "is_pinned")
_STANDING_KINDS = ("preference", "constraint", "lesson")
_EVEN = 0.5


@dataclass(frozen=True, slots=True)
class WhyFacts:
    """One memory in one session; it is no longer there when it was erased."""

    session: SessionRecord
    memory: MemoryRecord | None
    records: Sequence[SessionMemory]


def of_candidate(services: Services, case: WhyFacts, one: SessionMemory) -> list[str]:
    """Why a candidate was shown, or was not."""
    if one.handle is not None:
        return [*_shown(services, case, one), *_harmful(one)]
    return [*_harmful(one), _kept_out(services, case, one)]


def _harmful(one: SessionMemory) -> list[str]:
    if not one.is_harmful:
        return []
    return ["it was rated as harmful here, so it is not shown again in this session"]


def _shown(services: Services, case: WhyFacts, one: SessionMemory) -> list[str]:
    served = one.candidate
    shown = services.store.injections(case.session.user, case.session.key)
    injection = next((found for found in shown if found.number == one.injection), None)
    when = "at the start"
    if injection is not None and injection.kind == "prompt":
        when = f"with prompt {injection.turn}"
    told = [f"shown {when} as {one.handle}"]
    if REQUIRED in served.origins:
        told.append("required: pinned, or a constraint on what the session is about")
    elif served.source == "exploration":
        told.append(f"on trial: chance gave it the last place (1 in {1 / served.propensity:.0f})")
    elif served.baseline_rank is not None:
        told.append(f"rank {served.rank} was good enough")
    return told


def _kept_out(services: Services, case: WhyFacts, one: SessionMemory) -> str:
    served, policy = one.candidate, services.policy.session
    if served.source == "fts_only":
        return "words of a prompt hit it, but no ranking had it among its candidates"
    if REQUIRED in served.origins:
        share = f"{REQUIRED_SHARE:.0%} of {policy.start_tokens} tokens"
        return f"required, but what is required had used up its room ({share}): only named"
    if not _is_worth(services, case, one):
        return (
            "not worth saying: no word in common with the context, not near it in meaning"
            f" (floor {services.policy.recall.relevance_floor:g}), and it never helped before"
        )
    others = [other.candidate for other in case.records if _is_chosen(other)]
    if served.propensity < _EVEN and any(other.source == "exploration" for other in others):
        return "chance gave its place to one on trial"
    if len(others) >= policy.start_limit:
        last = max(other.rank for other in others if other.source != "exploration")
        return f"rank {served.rank}: the {len(others)} places went to better ones, down to {last}"
    return (
        f"rank {served.rank}: the budget of {policy.start_tokens} tokens was used up,"
        " or too little of it was left for a text of this length"
    )


def _is_chosen(one: SessionMemory) -> bool:
    """Whether it took one of the places that the start of a session has."""
    return one.injection == FIRST_INJECTION and REQUIRED not in one.candidate.origins


def _is_worth(services: Services, case: WhyFacts, one: SessionMemory) -> bool:
    """Whether anything spoke for it; without a context given, nothing speaks against anything."""
    served = one.candidate
    if not case.session.has_prompt or served.feature_version != FEATURE_VERSION:
        return True
    known = dict(zip(FEATURES, served.features, strict=True))
    is_standing = case.memory is not None and case.memory.kind in _STANDING_KINDS
    return (
        is_standing
        or any(known[name] > 0.0 for name in _ALWAYS)
        or known["text"] > 0.0
        or known["log_useful_count"] > 0.0
        or known["centred_cosine"] >= services.policy.recall.relevance_floor
    )


def of_stranger(services: Services, case: WhyFacts) -> list[str]:
    """Why a memory was not even a candidate, by what is known of it now."""
    if case.memory is None:
        return ["it is not there any more"]
    session, memory = case.session, case.memory
    began = session.started_at
    tests = (
        (memory.created_at > began, "it was stored after the session had begun"),
        (not _is_open(memory.project, session.project), f"it belongs to project {memory.project}"),
        (not _is_open(memory.agent, session.agent), f"it belongs to agent {memory.agent}"),
        (memory.deleted_at is not None, "it was forgotten"),
        (memory.superseded_by is not None, f"{memory.superseded_by} took its place"),
        (memory.trust == "untrusted", "it is untrusted: `meritory confirm` makes it trusted"),
        (_is_over(memory, session), "it no longer held when the session began"),
    )
    found = [told for holds, told in tests if holds]
    if found:
        return found
    pool = sum(one.candidate.source != "fts_only" for one in case.records)
    return [
        "no search found it: neither importance, meaning and words, nor past use or what the"
        f" context names put it among the {pool} candidates (at most"
        f" {services.policy.predictor.candidate_pool_size})"
    ]


def _is_open(owner: str | None, asker: str | None) -> bool:
    return owner is None or owner == asker


def _is_over(memory: MemoryRecord, session: SessionRecord) -> bool:
    return memory.valid_until is not None and memory.valid_until <= session.started_at


_WEIGHTS = {
    "relevance": composite.WEIGHT_RELEVANCE,
    "recency": composite.WEIGHT_RECENCY,
    "usefulness": composite.WEIGHT_USEFULNESS,
    "confidence": composite.WEIGHT_CONFIDENCE,
    "frequency": composite.WEIGHT_FREQUENCY,
}
# Sums of the same numbers in another order differ by less.
_ROUNDING = 1e-6


def why(services: Services, user: str, memory_id: str, session_key: str) -> dict[str, Any]:
    """Every number that put a memory in or kept it out, as JSON values.

    The memory is named by its id, the beginning of one, or its handle in that session.
    """
    for name, given in (("an id", memory_id), ("a session key", session_key)):
        if not isinstance(given, str):
            raise InputError(f"{name} is text, not {type(given).__name__}")
    session = services.store.session(user, session_key)
    records = services.store.session_memories(user, session_key)
    found_id = _named(services, user, records, memory_id)
    memory = services.store.memories(user, [found_id]).get(found_id)
    case = WhyFacts(session, memory, records)
    one = next((record for record in records if record.memory_id == found_id), None)
    told: dict[str, Any] = {
        "id": found_id,
        "session": session.key,
        "content": None if memory is None else memory.content,
        "was_candidate": one is not None,
        "was_injected": one is not None and one.handle is not None,
    }
    if one is None:
        return {**told, "reasons": of_stranger(services, case)}
    return {
        **told,
        "reasons": of_candidate(services, case, one),
        **_origins(one),
        "baseline": _baseline(one.candidate),
        "predictor": _predictor(services, session, records, one),
        **_final(services, session, records, one),
        **_outcome(one),
    }


def _named(services: Services, user: str, records: Sequence[SessionMemory], memory_id: str) -> str:
    """The id that is meant; one that was erased since is still known to its session."""
    for record in records:
        if memory_id in (record.memory_id, record.handle):
            return record.memory_id
    try:
        return services.store.get(user, memory_id).id
    except NotFound:
        starting = [one.memory_id for one in records if one.memory_id.startswith(memory_id)]
        if memory_id and len(starting) == 1:
            return starting[0]
        raise


def _origins(one: SessionMemory) -> dict[str, Any]:
    served = one.candidate
    return {
        "source": served.source,
        "origins": list(served.origins),
        "rank": served.rank or None,
        "baseline_rank": served.baseline_rank,
        "predictor_rank": served.predictor_rank,
        "handle": one.handle,
        "propensity": served.propensity,
    }


# -- the baseline -----------------------------------------------------------------------------


def _baseline(served: Candidate) -> dict[str, Any]:
    """The composite with its parts, and the effective score that let it in."""
    told: dict[str, Any] = {
        "composite": served.composite_score,
        "effective": served.effective_score,
        "parts": [],
    }
    known = _features(served)
    if known:
        trust = composite.Trust(known["recency_trust"], known["usefulness_trust"])
        parts = composite.HistoryParts(*(np.array([known[name]]) for name in _WEIGHTS))
        told["history"] = {"recency": trust.recency, "usefulness": trust.usefulness}
        told["title"] = known["title"]
        told["parts"] = [
            {"name": name, "value": value, "weight": weight, "adds": value * weight}
            for (name, weight), value in zip(
                _WEIGHTS.items(), (float(part[0]) for part in parts.shrunk(trust)), strict=True
            )
        ]
    return told


def _features(served: Candidate) -> dict[str, float]:
    """What was recorded, by name; empty for what was recorded by another version."""
    if served.feature_version != FEATURE_VERSION or len(served.features) != len(FEATURES):
        return {}
    return dict(zip(FEATURES, served.features, strict=True))


# -- the predictor ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """The candidates that were scored together, and the place of the one in question."""

    table: NDArray[np.float64]
    place: int


def _predictor(
    services: Services, session: SessionRecord, records: Sequence[SessionMemory], one: SessionMemory
) -> dict[str, Any]:
    """The model's score and, where it is a sum, what each feature added to it."""
    known = _features(one.candidate)
    told: dict[str, Any] = {
        "scorer": session.scorer,
        "model_version": session.model_version,
        "score": one.candidate.predictor_score,
        "features": [{"name": name, "value": value} for name, value in known.items()],
        "note": None,
    }
    if one.candidate.predictor_score is None:
        told["note"] = "the model did not score it"
        return told
    field = _field(records, one)
    if field is None:
        told["note"] = "its features were recorded by another version: they cannot be weighed"
        return told
    try:
        kept = load_checkpoint(services, session.user, session.model_version or 0)
        model = restored(kept)
    except MeritoryError:
        told["note"] = f"model {session.model_version} is no longer there: only its score is known"
        return told
    if not isinstance(model, Ranker):
        told["note"] = f"a model of kind {model.kind} is no sum of features"
        return told
    again = float(model.score(RankingQuery(features=field.table))[field.place])
    if abs(again - one.candidate.predictor_score) > _ROUNDING:
        told["note"] = f"{session.scorer} did not score it by these features alone"
        return told
    return {**told, **_weighed(model, field, one.candidate.predictor_score)}


def _field(records: Sequence[SessionMemory], one: SessionMemory) -> _Field | None:
    ranked = [
        record.candidate
        for record in records
        if record.candidate.source != "fts_only" and record.candidate.baseline_rank is not None
    ]
    if not all(_features(served) for served in ranked) or one.candidate not in ranked:
        return None
    return _Field(np.array([served.features for served in ranked]), ranked.index(one.candidate))


def _weighed(model: Ranker, field: _Field, score: float) -> dict[str, Any]:
    """Each feature with its weight, what told the most first."""
    added = model.explained(field.table)[field.place]
    within = standardised(field.table)[field.place]
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "value": float(field.table[field.place, at]),
            "within_session": float(within[at]),
            "weight": float(model.weights[at]),
            "adds": float(added[at]),
        }
        for at, name in enumerate(FEATURES)
    ]
    rows.sort(key=lambda row: -abs(row["adds"]))
    rest = score - math.fsum(added.tolist())
    return {"features": rows, "hidden_layer_adds": rest if abs(rest) > _ROUNDING else 0.0}


# -- what came of both ------------------------------------------------------------------------


def _final(
    services: Services, session: SessionRecord, records: Sequence[SessionMemory], one: SessionMemory
) -> dict[str, Any]:
    """Both ranks fused, and what was taken off for saying the same as a better one."""
    served = one.candidate
    told: dict[str, Any] = {"fusion": None, "diversity": None, "final_score": served.final_score}
    if served.baseline_rank is None:
        return told
    ranked_count = sum(record.candidate.baseline_rank is not None for record in records)
    # One without a score ranks behind all that have one.
    predictor_rank = served.predictor_rank or ranked_count + 1
    k = services.policy.predictor.rrf_k
    fused = float(rrf([served.baseline_rank], [predictor_rank], session.alpha, k)[0])
    left = min(1.0, served.final_score / fused)
    return {
        **told,
        "fusion": {"alpha": session.alpha, "k": k, "score": fused},
        "diversity": {
            "factor": left if left < 1.0 - _ROUNDING else 1.0,
            "was_lowered": left < 1.0 - _ROUNDING,
        },
    }


def _outcome(one: SessionMemory) -> dict[str, Any]:
    return {
        "label": one.label,
        "label_parts": dict(one.label_parts),
        "relevance_score": one.relevance_score,
        "is_missing": one.is_missing,
        "is_harmful": one.is_harmful,
        "fts_hit_count": one.fts_hit_count,
        "agent_relevance_score": one.agent_relevance_score,
        "agent_feedback_count": one.agent_feedback_count,
    }
