"""Rates the memories of a finished session from its transcript, without a model.

A memory's score is the probability that it helped (evidence.py), lower for a document that was read
and not edited. The score is negative when the user contradicted the memory after the agent had
acted on it, or asked to forget it. Ratings, full-text hits and a memory's claims about itself do
not count.

A memory that was not shown gets a score only when the evidence is strong: a trace that leaves
little doubt, or no trace although there would be one. The others get none.
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
    build_table,
    chances,
    echoed,
    limits,
    only_opened,
)

# A memory with at least this score counts as useful; labels use the same limit.
USEFUL: Final = 0.4
# The factor for the memory that an objection without a subject most likely meant.
DOUBTED_SHARE: Final = 0.3
# A memory that was not shown gets a score of at least the first, or at most the second, or none.
STRONG_CHANCE: Final = 0.7
NO_TRACE_CHANCE: Final = 0.1
# A document that was read helped, but less than one that was edited.
OPENED_WORTH: Final = 0.6


def judge_session(
    transcript: Sequence[Turn], memories: Sequence[JudgedMemory], digest: Digest | None = None
) -> Verdict:
    """Return the verdict on a finished session; equal input gives an equal verdict.

    `digest` covers the whole session; without one it is read from the transcript.
    """
    if digest is None:
        digest = read_digest(transcript, vocabulary_of(memory.text for memory in memories))
    has_acts = digest.has_acts or any(turn.role in ACTS for turn in transcript)
    if not memories or not has_acts:
        return Verdict(
            score=None,
            confidence=0.0,
            relevance=(None,) * len(memories),
            reasoning="Nothing to judge: there were no memories, or the agent did nothing.",
        )
    table = build_table(memories)
    corrections = read_corrections(transcript, memories)
    scores = chances(table, digest)
    for index in corrections.doubted:
        scores[index] *= DOUBTED_SHARE
    for index, score in corrections.harmed.items():
        scores[index] = min(float(scores[index]), score)
    is_known = known(scores, table.shown, limits(table, digest)) & ~echoed(table, digest)
    scores = np.where(only_opened(table, digest) & (scores > 0.0), OPENED_WORTH * scores, scores)
    likely = np.abs(scores[is_known])[np.abs(scores[is_known]) >= USEFUL]
    known_scores = np.where(is_known, scores, 0.0)
    return Verdict(
        score=_continuity(known_scores, table, corrections),
        confidence=round(float(likely.mean()), 4) if len(likely) else 0.0,
        relevance=tuple(
            round(float(score), 4) if has_score else None
            for score, has_score in zip(scores, is_known, strict=True)
        ),
        missing=corrections.missing,
        missing_topics=corrections.topics,
        novel_context_count=corrections.explained_count,
        reasoning=_reasoning(known_scores, table, corrections),
    )


def known(scores: Numbers, shown: Flags, largest: Numbers) -> Flags:
    """Return which scores are reliable enough to be labels; `largest` are the largest possible.

    If no trace could be strong enough, a missing one means nothing: labels that can only be bad
    would teach that memories which were not shown are bad.
    """
    is_strong = scores >= STRONG_CHANCE
    has_no_trace = (scores <= NO_TRACE_CHANCE) & (largest >= STRONG_CHANCE)
    return np.asarray(shown | is_strong | has_no_trace)


def _continuity(scores: Numbers, table: EvidenceTable, corrections: Corrections) -> float:
    """Return the share of the useful memories that were shown; harm counts as a missing one."""
    useful = np.where(scores >= USEFUL, scores, 0.0)
    useful[list(corrections.missing)] = 1.0
    harm = float(-scores[scores < 0.0].sum())
    given = float(useful[table.shown].sum())
    lacking = float(useful[~table.shown].sum()) + harm + corrections.unmatched_count
    return round((given + 0.5) / (given + lacking + 1.0), 4)


def _reasoning(scores: Numbers, table: EvidenceTable, corrections: Corrections) -> str:
    useful_count = int((table.shown & (scores >= USEFUL)).sum())
    parts = [f"{useful_count} of {int(table.shown.sum())} shown memories left traces of use"]
    if unseen_count := int((~table.shown & (scores >= USEFUL)).sum()):
        parts.append(f"used without being shown: {unseen_count}")
    if harmful_count := int((scores < 0.0).sum()):
        parts.append(f"contradicted or to be forgotten: {harmful_count}")
    if corrections.missing:
        parts.append(f"not shown and explained again: {len(corrections.missing)}")
    return "; ".join(parts) + "."
