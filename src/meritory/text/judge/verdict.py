"""Rates a finished session's memories from what happened in it, without any model.

A memory's score is the chance that it helped (see evidence.py), lower for a document that was read
and not edited. It is below zero when the person contradicted the memory after the agent had gone by
it, or asked for it to be forgotten. Neither ratings nor full-text hits enter, and nothing a memory
says about itself does.

A memory that was not shown gets a score only when the evidence is strong either way: a trace that
leaves little doubt, or no trace at all where there would be one. All others stay without one.

Confidence is the share of the helpful memories that really helped, as the chances predict it: their
mean. It is 0 when no memory is likely to have helped.

Continuity is the share of what the agent needed that memory gave it: useful memories shown over
these and all that was lacking, each side with half a memory to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from meritory.domain.session import JudgedMemory, Turn, Verdict
from meritory.text.judge.corrections import Corrections, read_corrections
from meritory.text.judge.digest import ACTS, Digest, read_digest, vocabulary_of
from meritory.text.judge.evidence import (
    EvidenceTable,
    Flags,
    Numbers,
    chances,
    echoed,
    limits,
    only_opened,
    open_docket,
)

# A score from which a memory counts as useful, the same as for labels.
USEFUL: Final = 0.4
# What is left of the score of the memory that an objection without a subject most likely meant.
DOUBTED_SHARE: Final = 0.3
# A memory that was not shown gets a score at least this high, or at most that low, or none.
STRONG_CHANCE: Final = 0.7
NO_TRACE_CHANCE: Final = 0.1
# A document that was read helped, but less than one that was edited.
OPENED_WORTH: Final = 0.6


def judge_session(
    transcript: Sequence[Turn], exhibits: Sequence[JudgedMemory], digest: Digest | None = None
) -> Verdict:
    """Return the verdict on a finished session; equal input gives an equal verdict.

    `digest` covers the whole session; without one it is read from the transcript.
    """
    if digest is None:
        digest = read_digest(transcript, vocabulary_of(exhibit.text for exhibit in exhibits))
    has_acts = digest.has_acts or any(turn.role in ACTS for turn in transcript)
    if not exhibits or not has_acts:
        return _no_verdict(len(exhibits))
    docket = open_docket(exhibits)
    found = read_corrections(transcript, exhibits)
    scores = chances(docket, digest)
    for place in found.doubted:
        scores[place] *= DOUBTED_SHARE
    for place, score in found.harmed.items():
        scores[place] = min(float(scores[place]), score)
    is_known = known(scores, docket.shown, limits(docket, digest)) & ~echoed(docket, digest)
    scores = np.where(only_opened(docket, digest) & (scores > 0.0), OPENED_WORTH * scores, scores)
    return Verdict(
        score=_continuity(np.where(is_known, scores, 0.0), docket, found),
        confidence=_confidence(scores[is_known]),
        relevance=tuple(
            round(float(score), 4) if known else None
            for score, known in zip(scores, is_known, strict=True)
        ),
        missing=found.missing,
        missing_topics=found.topics,
        novel_context_count=found.told_count,
        reasoning=_reasoning(np.where(is_known, scores, 0.0), docket, found),
    )


def known(scores: Numbers, shown: Flags, largest: Numbers) -> Flags:
    """Return which scores are reliable enough to be labels; `largest` are the largest possible.

    Where no trace could be strong enough, a missing one says nothing either: labels that can only
    be bad would teach that what was not shown is bad.
    """
    is_strong = scores >= STRONG_CHANCE
    has_no_trace = (scores <= NO_TRACE_CHANCE) & (largest >= STRONG_CHANCE)
    return np.asarray(shown | is_strong | has_no_trace)


def _confidence(scores: Numbers) -> float:
    likely = np.abs(scores)[np.abs(scores) >= USEFUL]
    return round(float(likely.mean()), 4) if len(likely) else 0.0


def _continuity(scores: Numbers, docket: EvidenceTable, found: Corrections) -> float:
    useful = np.where(scores >= USEFUL, scores, 0.0)
    useful[list(found.missing)] = 1.0
    harm = float(-scores[scores < 0.0].sum())
    given = float(useful[docket.shown].sum())
    lacking = float(useful[~docket.shown].sum()) + harm + found.unmatched_count
    return round((given + 0.5) / (given + lacking + 1.0), 4)


def _reasoning(scores: Numbers, docket: EvidenceTable, found: Corrections) -> str:
    useful_count = int((docket.shown & (scores >= USEFUL)).sum())
    parts = [f"{useful_count} of {int(docket.shown.sum())} shown memories left traces of use"]
    if unseen_count := int((~docket.shown & (scores >= USEFUL)).sum()):
        parts.append(f"used without being shown: {unseen_count}")
    if harmful_count := int((scores < 0.0).sum()):
        parts.append(f"contradicted or to be forgotten: {harmful_count}")
    if found.missing:
        parts.append(f"not shown and explained again: {len(found.missing)}")
    return "; ".join(parts) + "."


def _no_verdict(exhibit_count: int) -> Verdict:
    return Verdict(
        score=None,
        confidence=0.0,
        relevance=(None,) * exhibit_count,
        reasoning="Nothing to judge: no memory was put forward, or the agent did nothing.",
    )
