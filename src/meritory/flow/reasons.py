"""In words: why a memory was shown in a session, left out of it, or not even considered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meritory.flow.services import Services
from meritory.flow.start import FIRST_INJECTION
from meritory.rank.candidates import REQUIRED
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.pick import REQUIRED_SHARE
from meritory.store.sessions import SessionRecord
from meritory.types import MemoryRecord, SessionMemory

# What is worth saying whatever a session is about.
_ALWAYS = ("is_constraint", "is_pinned")
_STANDING_KINDS = ("preference", "constraint", "lesson")
_EVEN = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """One memory in one session; it is no longer there when it was erased."""

    session: SessionRecord
    memory: MemoryRecord | None
    records: Sequence[SessionMemory]


def of_candidate(services: Services, case: Case, one: SessionMemory) -> list[str]:
    """Why a candidate was shown, or was not."""
    if one.handle is not None:
        return [*_shown(services, case, one), *_harmful(one)]
    return [*_harmful(one), _kept_out(services, case, one)]


def _harmful(one: SessionMemory) -> list[str]:
    if not one.is_harmful:
        return []
    return ["it was rated as harmful here, so it is not shown again in this session"]


def _shown(services: Services, case: Case, one: SessionMemory) -> list[str]:
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


def _kept_out(services: Services, case: Case, one: SessionMemory) -> str:
    served, policy = one.candidate, services.policy.session
    if served.source == "fts_only":
        return "words of a prompt hit it, but no ranking had it among its candidates"
    if REQUIRED in served.origins:
        share = f"{REQUIRED_SHARE:.0%} of {policy.start_tokens} tokens"
        return f"required, but what is required had used up its room ({share}): only named"
    if not _is_worth(services, case, one):
        return (
            "not worth saying: no word in common with the context, not near it in meaning"
            f" (floor {services.policy.relevance_floor:g}), and it never helped before"
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


def _is_worth(services: Services, case: Case, one: SessionMemory) -> bool:
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
        or known["centred_cosine"] >= services.policy.relevance_floor
    )


def of_stranger(services: Services, case: Case) -> list[str]:
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
        (memory.trust == "untrusted", "nobody vouched for it: `meritory confirm` does"),
        (_is_over(memory, session), "it no longer held when the session began"),
    )
    found = [told for holds, told in tests if holds]
    if found:
        return found
    pool = sum(one.candidate.source != "fts_only" for one in case.records)
    return [
        "no search found it: neither importance, meaning and words, nor past use or what the"
        f" context names put it among the {pool} candidates (predictor.candidate_pool_size"
        f" {services.policy.session.pool_size})"
    ]


def _is_open(owner: str | None, asker: str | None) -> bool:
    return owner is None or owner == asker


def _is_over(memory: MemoryRecord, session: SessionRecord) -> bool:
    return memory.valid_until is not None and memory.valid_until <= session.started_at
