"""In words: why a memory was shown in a session, left out of it, or not even considered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.feedback import MISLED_USEFULNESS
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Candidate, SessionMemory, SessionRecord
from meritory.engine.memories.learned import FETCHED
from meritory.engine.predictor.state import load_checkpoint
from meritory.engine.predictor.why_search import searches_of
from meritory.engine.services import Services
from meritory.engine.sessions.ranking import STANDING_KINDS
from meritory.engine.sessions.start import FIRST_INJECTION
from meritory.model.base import RankingQuery
from meritory.model.checkpoint import restored
from meritory.model.ranker import Ranker, standardised
from meritory.rank import composite
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.fusion import rrf
from meritory.rank.hybrid import REQUIRED
from meritory.rank.packing import REQUIRED_SHARE

# Worth showing whatever a session is about.
_ALWAYS = ("is_constraint", "is_pinned")
_EVEN = 0.5
_WEIGHTS = {
    "relevance": composite.WEIGHT_RELEVANCE,
    "recency": composite.WEIGHT_RECENCY,
    "usefulness": composite.WEIGHT_USEFULNESS,
    "confidence": composite.WEIGHT_CONFIDENCE,
    "frequency": composite.WEIGHT_FREQUENCY,
}
# Sums of the same numbers in another order differ by less.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class WhyFacts:
    """One memory in one session; None if it was erased since."""

    services: Services
    session: SessionRecord
    memory: MemoryRecord | None
    records: Sequence[SessionMemory]


def why(services: Services, user: str, memory_id: str, session_key: str) -> dict[str, Any]:
    """Return every number that put a memory in or kept it out, as JSON values.

    The memory is named by its id, the beginning of one, or its handle in that session.
    """
    for name, given in (("an id", memory_id), ("a session key", session_key)):
        if not isinstance(given, str):
            raise InputError(f"{name} is text, not {type(given).__name__}")
    session = services.store.session(user, session_key)
    records = services.store.session_memories(user, session_key)
    record = next((one for one in records if memory_id in (one.memory_id, one.handle)), None)
    if record is None:
        try:
            full_id = services.store.get(user, memory_id).id
        except NotFound:
            # The session still knows a memory that was erased since.
            starting = [one.memory_id for one in records if one.memory_id.startswith(memory_id)]
            if not memory_id or len(starting) != 1:
                raise
            full_id = starting[0]
        record = next((one for one in records if one.memory_id == full_id), None)
    else:
        full_id = record.memory_id
    memory = services.store.memories(user, [full_id]).get(full_id)
    facts = WhyFacts(services, session, memory, records)
    answer: dict[str, Any] = {
        "id": full_id,
        "session": session.key,
        "content": None if memory is None else memory.content,
        "was_candidate": record is not None,
        "was_injected": record is not None and record.handle is not None,
        "searches": searches_of(services, user, session.key, full_id),
    }
    if record is None:
        return {**answer, "reasons": _absent_reasons(facts)}
    candidate = record.candidate
    return {
        **answer,
        "reasons": _candidate_reasons(facts, record),
        "source": candidate.source,
        "origins": list(candidate.origins),
        "rank": candidate.rank or None,
        **{name: getattr(candidate, name) for name in ("baseline_rank", "predictor_rank")},
        "handle": record.handle,
        "propensity": candidate.propensity,
        "baseline": _baseline(candidate),
        "predictor": _predictor(facts, candidate),
        **_final(facts, candidate),
        "label": record.label,
        "label_parts": dict(record.label_parts),
        **{name: getattr(record, name) for name in _OUTCOME},
    }


_OUTCOME = (
    *("relevance_score", "is_missing", "is_harmful", "fts_hit_count", "agent_relevance_score"),
    "agent_feedback_count",
)


def _candidate_reasons(facts: WhyFacts, record: SessionMemory) -> list[str]:
    """Return why a candidate was shown, or was not."""
    harmful = []
    if record.is_harmful:
        harmful = ["it was rated as harmful here, so it is not shown again in this session"]
    if FETCHED in record.candidate.origins and record.handle is None:
        return [*harmful, "the agent found it by a search of its own"]
    if record.handle is None:
        return [*harmful, _left_out_reason(facts, record.candidate)]
    candidate, session = record.candidate, facts.session
    injections = facts.services.store.injections(session.user, session.key)
    injection = next((one for one in injections if one.number == record.injection), None)
    when = "at the start"
    if injection is not None and injection.kind == "prompt":
        when = f"with prompt {injection.turn}"
    reasons = [f"shown {when} as {record.handle}"]
    if REQUIRED in candidate.origins:
        reasons.append("required: pinned, or a constraint on what the session is about")
    elif candidate.source == "exploration":
        chance = f"1 in {1 / candidate.propensity:.0f}"
        reasons.append(f"on trial: chance gave it the last place ({chance})")
    elif candidate.baseline_rank is not None:
        reasons.append(f"rank {candidate.rank} was good enough")
    return [*reasons, *harmful]


def _left_out_reason(facts: WhyFacts, candidate: Candidate) -> str:
    policy, floor = facts.services.policy.session, facts.services.policy.recall.relevance_floor
    if candidate.source == "fts_only":
        return "words of a prompt hit it, but no ranking had it among its candidates"
    if REQUIRED in candidate.origins:
        share = f"{REQUIRED_SHARE:.0%} of {policy.start_tokens} tokens"
        return f"required, but what is required had used up its room ({share}): only named"
    values = _features(candidate)
    # Without a context, every candidate is worth showing.
    is_worth = (
        not facts.session.has_prompt
        or not values
        or (facts.memory is not None and facts.memory.kind in STANDING_KINDS)
        or any(values[name] > 0.0 for name in (*_ALWAYS, "text", "log_useful_count"))
        or values["centred_cosine"] >= floor
    )
    if not is_worth:
        return (
            "not worth saying: no word in common with the context, not near it in meaning"
            f" (floor {floor:g}), and it never helped before"
        )
    if values and values["stored_usefulness"] < MISLED_USEFULNESS:
        return (
            f"it misled more than it helped: usefulness {values['stored_usefulness']:.2f};"
            " confirm or forget it in `meritory review`"
        )
    others = [
        one.candidate
        for one in facts.records
        if one.injection == FIRST_INJECTION and REQUIRED not in one.candidate.origins
    ]
    if candidate.propensity < _EVEN and any(other.source == "exploration" for other in others):
        return "chance gave its place to one on trial"
    if len(others) >= policy.start_limit:
        last = max(other.rank for other in others if other.source != "exploration")
        return (
            f"rank {candidate.rank}: the {len(others)} places went to better ones, down to {last}"
        )
    return (
        f"rank {candidate.rank}: the budget of {policy.start_tokens} tokens was used up,"
        " or too little of it was left for a text of this length"
    )


def _absent_reasons(facts: WhyFacts) -> list[str]:
    """Return why a memory was not even a candidate, by what is known of it now."""
    session, memory = facts.session, facts.memory
    if memory is None:
        return ["it is not there any more"]
    began, until = session.started_at, memory.valid_until
    tests: tuple[tuple[bool, str], ...] = (
        (memory.created_at > began, "it was stored after the session had begun"),
        (
            memory.project not in (None, session.project),
            f"it belongs to project {memory.project}",
        ),
        (memory.agent not in (None, session.agent), f"it belongs to agent {memory.agent}"),
        (memory.deleted_at is not None, "it was forgotten"),
        (memory.superseded_by is not None, f"{memory.superseded_by} took its place"),
        (memory.trust == "untrusted", "it is untrusted: `meritory confirm` makes it trusted"),
        (until is not None and until <= began, "it no longer held when the session began"),
    )
    if thinned := facts.services.store.thinned_count(session.user, session.key):
        tests += (
            (
                True,
                f"{thinned} candidates of this old session that were neither shown nor labelled are"
                " no longer recorded; it may have been one of them",
            ),
        )
    pool = sum(one.candidate.source != "fts_only" for one in facts.records)
    return [reason for holds, reason in tests if holds] or [
        "no search found it: neither importance, meaning and words, nor past use or what the"
        f" context names put it among the {pool} candidates (at most"
        f" {facts.services.policy.predictor.candidate_pool_size})"
    ]


# -- the baseline -----------------------------------------------------------------------------


def _baseline(candidate: Candidate) -> dict[str, Any]:
    """Return the composite with its parts, and the effective score that let it in."""
    answer: dict[str, Any] = {
        "composite": candidate.composite_score,
        "effective": candidate.effective_score,
        "parts": [],
    }
    values = _features(candidate)
    if values:
        trust = composite.Trust(values["recency_trust"], values["usefulness_trust"])
        parts = composite.HistoryParts(*(np.array([values[name]]) for name in _WEIGHTS))
        answer["history"] = {"recency": trust.recency, "usefulness": trust.usefulness}
        answer["title"] = values["title"]
        answer["parts"] = [
            {"name": name, "value": value, "weight": weight, "adds": value * weight}
            for (name, weight), value in zip(
                _WEIGHTS.items(), (float(part[0]) for part in parts.shrunk(trust)), strict=True
            )
        ]
    return answer


def _features(candidate: Candidate) -> dict[str, float]:
    """Return the recorded features by name; none if another version recorded them."""
    if candidate.feature_version != FEATURE_VERSION or len(candidate.features) != len(FEATURES):
        return {}
    return dict(zip(FEATURES, candidate.features, strict=True))


# -- the predictor ----------------------------------------------------------------------------


def _predictor(facts: WhyFacts, candidate: Candidate) -> dict[str, Any]:
    """Return the model's score and, where it is a sum, what each feature added to it."""
    session, score, values = facts.session, candidate.predictor_score, _features(candidate)
    answer: dict[str, Any] = {
        "scorer": session.scorer,
        "model_version": session.model_version,
        "score": score,
        "features": [{"name": name, "value": value} for name, value in values.items()],
        "note": None,
    }
    if score is None:
        return {**answer, "note": "the model did not score it"}
    # The candidates that were scored together.
    ranked = [
        one.candidate
        for one in facts.records
        if one.candidate.source != "fts_only" and one.candidate.baseline_rank is not None
    ]
    if candidate not in ranked or not all(map(_features, ranked)):
        note = "its features were recorded by another version: they cannot be weighed"
        return {**answer, "note": note}
    try:
        stored = load_checkpoint(facts.services, session.user, session.model_version or 0)
        model = restored(stored)
    except MeritoryError:
        note = f"model {session.model_version} is no longer there: only its score is known"
        return {**answer, "note": note}
    if not isinstance(model, Ranker):
        return {**answer, "note": f"a model of kind {model.kind} is no sum of features"}
    if facts.services.store.thinned_count(session.user, session.key):
        note = "other candidates of this old session are no longer recorded: it cannot be weighed"
        return {**answer, "note": note}
    table, at = np.array([one.features for one in ranked]), ranked.index(candidate)
    if abs(float(model.score(RankingQuery(features=table))[at]) - score) > _ROUNDING:
        return {**answer, "note": f"{session.scorer} did not score it by these features alone"}
    added, within = model.explained(table)[at].tolist(), standardised(table)[at].tolist()
    columns = zip(FEATURES, table[at].tolist(), within, model.weights.tolist(), added, strict=True)
    names = ("name", "value", "within_session", "weight", "adds")
    rows: list[dict[str, Any]] = [dict(zip(names, column, strict=True)) for column in columns]
    rows.sort(key=lambda row: -abs(row["adds"]))
    rest = score - math.fsum(added)
    return {
        **answer,
        "features": rows,
        "hidden_layer_adds": rest if abs(rest) > _ROUNDING else 0.0,
    }


# -- both together ----------------------------------------------------------------------------


def _final(facts: WhyFacts, candidate: Candidate) -> dict[str, Any]:
    """Return both ranks fused, and how far the score was lowered for repeating a better one."""
    if candidate.baseline_rank is None:
        return {"fusion": None, "diversity": None, "final_score": candidate.final_score}
    ranked_count = sum(one.candidate.baseline_rank is not None for one in facts.records)
    # One without a score ranks behind all that have one.
    predictor_rank = candidate.predictor_rank or ranked_count + 1
    k, alpha = facts.services.policy.predictor.rrf_k, facts.session.alpha
    fused = float(rrf([candidate.baseline_rank], [predictor_rank], alpha, k)[0])
    left = min(1.0, candidate.final_score / fused)
    was_lowered = left < 1.0 - _ROUNDING
    return {
        "fusion": {"alpha": alpha, "k": k, "score": fused},
        "diversity": {"factor": left if was_lowered else 1.0, "was_lowered": was_lowered},
        "final_score": candidate.final_score,
    }
