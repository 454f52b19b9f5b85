"""The probability that each memory helped in a session, from the digest of the agent's actions.

Three kinds of evidence count. Each is compared with what the other candidates reach by chance:

- *named*: a call wrote or opened the file that the memory is about, or mentioned it;
- *brought in*: an edit, a call or a reply contains terms of the memory that the user had
  not typed;
- *looked up*: the output of tools contains them, so the agent needed what the memory says.

Everyday words, and terms that many candidates share, count little.

The probability is a logistic function of these signals. Its weights were fitted on sessions whose
truth is known (`python -m bench.judge --fit`): whole files as memories on real coding sessions, and
one-sentence claims on dialogues that name the memories a reply used. Files and claims have separate
weights.

`judge_session` rates the memories of a finished session from it, without a model. The score is
lower for a document that was read and not edited, and negative when the user contradicted the
memory after the agent had acted on it, or asked to forget it. Ratings, full-text hits and a
memory's claims about itself do not count. A memory that was not shown gets a score only when the
evidence is strong: a trace that leaves little doubt, or no trace although there would be one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.domain.session import JudgedMemory, Turn, Verdict
from meritory.text.judge.corrections import read_corrections
from meritory.text.judge.digest import (
    ACTS,
    Digest,
    digest_terms,
    is_document,
    paths_in,
    read_digest,
    vocabulary_of,
)
from meritory.text.terms import MIN_VALUE_CHARS, common_stems

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Pair = tuple[str, str]
# The weight of a line and its terms.
_Line = tuple[float, tuple[str, ...]]

# The weight of a term by the action that contains it. Talk is cheap.
ACT_WEIGHTS: Final = {"edit": 1.5, "tool": 1.2, "assistant": 1.0}
# A term that at most this many candidates contain is distinctive.
RARE_HOLDERS: Final = 2
# Terms that more than this share of the candidates contain are ignored.
COMMON_SHARE: Final = 0.5
# Among a few candidates every term is rare, so rarity assumes at least this many.
LEAST_CANDIDATES: Final = 20
# The weight of everyday words and short numbers, which fill every sentence.
COMMON_WEIGHT: Final = 0.05
# A line that several memories overlap with is shared by this power of their overlaps.
SHARING_POWER: Final = 3.0
# Added to the shared sum, so that a single weak overlap does not get a full share.
LEAST_SHARED: Final = 30.0
# When this many shown memories, and this share of them, are restated, the agent read the block out.
MIN_ECHOED: Final = 3
ECHOED_SHARE: Final = 0.7
# Added to a memory's weight, so that a memory of everyday words does not get large shares.
LEAST_WEIGHT: Final = 5.0
# Overlaps of a heavier memory are scaled down: long texts overlap with anything.
LARGE_WEIGHT: Final = 400.0
# A memory is restated when one sentence contains this share of its weight.
RESTATED_SHARE: Final = 0.5
_CHUNK: Final = 512

# A memory with at least this score counts as useful; labels use the same limit.
USEFUL: Final = 0.4
# The factor for the memory that an objection without a subject most likely meant.
DOUBTED_SHARE: Final = 0.3
# A memory that was not shown gets a score of at least the first, or at most the second, or none.
STRONG_CHANCE: Final = 0.7
NO_TRACE_CHANCE: Final = 0.1
# A document that was read helped, but less than one that was edited.
OPENED_WORTH: Final = 0.6

SIGNALS: Final = (
    "acted",
    "named",
    "looked_up",
    "looked_up_rare",
    "brought",
    "brought_above_chance",
    "brought_alone",
    "brought_pairs",
    "size",
    "shown",
)


@dataclass(frozen=True, slots=True)
class Weights:
    """A logistic function of the signals; `limit` is the largest probability it gives."""

    bias: float
    limit: float
    by_signal: Mapping[str, float]

    def chances(self, rows: Numbers) -> Numbers:
        """Return the probability for every row of signals."""
        weights = np.array([self.by_signal.get(name, 0.0) for name in SIGNALS])
        return np.asarray(self.limit / (1.0 + np.exp(-(self.bias + rows @ weights))))


# Fitted by `python -m bench.judge --fit` on the first half of agent_entire_s: documents that calls
# can name by their path, and the same documents with every path masked.
TITLED: Final = Weights(-6.9, 0.98, {"acted": 10.8, "named": 3.0})
UNTITLED: Final = Weights(
    -5.0, 0.98, {"looked_up": 10.3, "looked_up_rare": 0.56, "brought_above_chance": 0.24}
)

# Fitted on two of RealMem's people. Words alone never make a claim more likely than the limit.
# "acted" is set by hand: those dialogues have no calls.
CLAIM: Final = Weights(
    -4.94,
    0.6,
    {
        "acted": 1.0,
        "brought": 0.83,
        "brought_above_chance": 0.58,
        "brought_alone": 2.28,
        "brought_pairs": 0.46,
        "size": -0.1,
        "shown": 1.86,
    },
)

WEIGHTS: Final = {"titled": TITLED, "untitled": UNTITLED, "claim": CLAIM}


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """The candidate memories of one session, with their terms and the rarity of these."""

    terms: tuple[frozenset[str], ...]
    # Terms next to each other.
    pairs: tuple[frozenset[Pair], ...]
    pair_rarity: Mapping[Pair, float]
    paths: tuple[frozenset[str], ...]
    is_document: Flags
    shown: Flags
    rarity: Mapping[str, float]
    holders: Mapping[str, int]

    @property
    def count(self) -> int:
        """Return the number of memories."""
        return len(self.terms)

    def weight(self, terms: Iterable[str]) -> float:
        """Return the total rarity of these terms."""
        return math.fsum(self.rarity[term] for term in terms)

    def has_path(self, paths: frozenset[str]) -> Flags:
        """Return which memories have one of these paths."""
        return np.array([bool(own & paths) for own in self.paths], np.bool_)


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
    # The share of the useful memories that were shown; harm counts as a missing one.
    useful = np.where(known_scores >= USEFUL, known_scores, 0.0)
    useful[list(corrections.missing)] = 1.0
    harm = float(-known_scores[known_scores < 0.0].sum())
    given = float(useful[table.shown].sum())
    lacking = float(useful[~table.shown].sum()) + harm + corrections.unmatched_count
    useful_count = int((table.shown & (known_scores >= USEFUL)).sum())
    reasons = [f"{useful_count} of {int(table.shown.sum())} shown memories left traces of use"]
    if unseen_count := int((~table.shown & (known_scores >= USEFUL)).sum()):
        reasons.append(f"used without being shown: {unseen_count}")
    if harmful_count := int((known_scores < 0.0).sum()):
        reasons.append(f"contradicted or to be forgotten: {harmful_count}")
    if corrections.missing:
        reasons.append(f"not shown and explained again: {len(corrections.missing)}")
    return Verdict(
        score=round((given + 0.5) / (given + lacking + 1.0), 4),
        confidence=round(float(likely.mean()), 4) if len(likely) else 0.0,
        relevance=tuple(
            round(float(score), 4) if has_score else None
            for score, has_score in zip(scores, is_known, strict=True)
        ),
        missing=corrections.missing,
        missing_topics=corrections.topics,
        novel_context_count=corrections.explained_count,
        reasoning="; ".join(reasons) + ".",
    )


def known(scores: Numbers, shown: Flags, largest: Numbers) -> Flags:
    """Return which scores are reliable enough to be labels; `largest` are the largest possible.

    If no trace could be strong enough, a missing one means nothing: labels that can only be bad
    would teach that memories which were not shown are bad.
    """
    is_strong = scores >= STRONG_CHANCE
    has_no_trace = (scores <= NO_TRACE_CHANCE) & (largest >= STRONG_CHANCE)
    return np.asarray(shown | is_strong | has_no_trace)


def build_table(memories: Sequence[JudgedMemory]) -> EvidenceTable:
    """Return the memories with their terms, their own paths and the rarity of each term."""
    in_order = [digest_terms(memory.text) for memory in memories]
    terms = tuple(map(frozenset, in_order))
    pairs = tuple(frozenset(pairwise(ordered)) for ordered in in_order)
    holders = Counter(term for distinct in terms for term in distinct)
    pair_holders = Counter(pair for distinct in pairs for pair in distinct)

    common = common_stems()

    def rarity(holder_count: int) -> float:
        return math.log((max(len(terms), LEAST_CANDIDATES) + 1.0) / (holder_count + 0.5))

    def worth(term: str) -> float:
        is_common = term in common or (term.isdigit() and len(term) < MIN_VALUE_CHARS)
        return COMMON_WEIGHT if is_common else 1.0

    return EvidenceTable(
        terms=terms,
        pairs=pairs,
        pair_rarity={pair: rarity(count) for pair, count in pair_holders.items()},
        paths=tuple(_own_paths(memory.text) for memory in memories),
        is_document=np.array([is_document(memory.text) for memory in memories], np.bool_),
        shown=np.array([memory.was_shown for memory in memories], np.bool_),
        rarity={term: worth(term) * rarity(count) for term, count in holders.items()},
        holders=holders,
    )


def signals(table: EvidenceTable, digest: Digest) -> Numbers:
    """Return one row per memory, one column per name in `SIGNALS`."""
    if not table.count:
        return np.zeros((0, len(SIGNALS)))
    named = _endings(path for turn in digest.turns for path in turn.named)
    results = frozenset(term for turn in digest.turns for term in turn.results)
    looked_up = [terms & results for terms in table.terms]
    # By term: how often the output of tools contains terms that are as common as it is.
    band = {term: int(2.0 * math.log2(count)) for term, count in table.holders.items()}
    band_size = Counter(band.values())
    band_hits = Counter(band[term] for term in band.keys() & results)
    by_chance = {
        term: (band_hits[number] + 0.5) / (band_size[number] + 1.0) for term, number in band.items()
    }
    expected = [
        math.fsum(table.rarity[term] * by_chance[term] for term in terms) for terms in table.terms
    ]
    # Each line of the agent: its weight, and its terms that the user had not typed before.
    lines: list[_Line] = []
    said_pairs: set[Pair] = set()
    typed: set[str] = set()
    for turn in digest.turns:
        typed.update(turn.typed)
        for act, terms in turn.pieces:
            lines.append((ACT_WEIGHTS[act], tuple(term for term in terms if term not in typed)))
            said_pairs.update(pair for pair in pairwise(terms) if not typed.issuperset(pair))
    total = np.array([table.weight(terms) for terms in table.terms])
    best, alone = _brought(table, lines, total)
    # How far each overlap exceeds the others; with few candidates, missing ones count as zero.
    others = np.pad(best, (0, max(LEAST_CANDIDATES - len(best), 0)))
    deviation = (best - others.mean()) / (others.std() + 0.5)
    looked_up_weight = np.array([table.weight(terms) for terms in looked_up])
    columns: dict[str, Sequence[float] | Numbers | Flags] = {
        "acted": table.has_path(_acted(digest)),
        "named": table.has_path(named),
        "looked_up": (looked_up_weight - expected) / (total + LEAST_WEIGHT),
        "looked_up_rare": [
            math.log1p(sum(table.holders[term] <= RARE_HOLDERS for term in terms))
            for terms in looked_up
        ],
        "brought": np.sqrt(np.minimum(best / (total + LEAST_WEIGHT), 1.0)),
        "brought_above_chance": np.clip(deviation, -2.0, 6.0),
        "brought_alone": alone,
        "brought_pairs": [
            math.log1p(math.fsum(table.pair_rarity[pair] for pair in pairs & said_pairs))
            for pairs in table.pairs
        ],
        "size": [math.log1p(len(terms)) for terms in table.terms],
        "shown": table.shown,
    }
    return np.column_stack([np.asarray(columns[name], np.float64) for name in SIGNALS])


def chances(table: EvidenceTable, digest: Digest) -> Numbers:
    """Return the probability that each memory helped, 0..1."""
    rows = signals(table, digest)
    names = weights_names(table, digest)
    by_name = {name: weights.chances(rows) for name, weights in WEIGHTS.items()}
    return np.select([names == name for name in by_name], list(by_name.values()))


def limits(table: EvidenceTable, digest: Digest) -> Numbers:
    """Return the largest probability that each memory can have in this session."""
    names = weights_names(table, digest)
    return np.array([WEIGHTS[name].limit for name in names.tolist()])


def weights_names(table: EvidenceTable, digest: Digest) -> NDArray[np.str_]:
    """Return for each memory the name of its weights, a key of `WEIGHTS`.

    If calls name files, a document whose file no call names was not used. If no tool returned
    anything, only words are left to compare, for documents as for claims.
    """
    names_files = any(turn.edited or turn.opened for turn in digest.turns)
    has_results = any(turn.results for turn in digest.turns)
    has_paths = np.array([bool(paths) for paths in table.paths], np.bool_)
    untitled = "untitled" if has_results else "claim"
    document = np.where(has_paths & names_files, "titled", untitled)
    return np.where(table.is_document, document, "claim")


def echoed(table: EvidenceTable, digest: Digest) -> Flags:
    """Return the shown memories that the agent only read out.

    A reply that restates a memory may be an answer. Replies that restate nearly all shown memories
    read the block out, and are not evidence for any memory in it.
    """
    none = np.zeros(table.count, np.bool_)
    if table.shown.sum() < MIN_ECHOED:
        return none
    pieces = [piece for turn in digest.turns for piece in turn.pieces]
    said = [frozenset(terms) for act, terms in pieces if act == "assistant"]
    restated = none.copy()
    for index, terms in enumerate(table.terms):
        best = max((table.weight(terms & piece) for piece in said), default=0.0)
        is_restated = best >= RESTATED_SHARE * table.weight(terms) > 0.0
        restated[index] = table.shown[index] and is_restated
    if restated[table.shown].mean() < ECHOED_SHARE:
        return none
    return table.shown & restated & ~table.has_path(_acted(digest))


def only_opened(table: EvidenceTable, digest: Digest) -> Flags:
    """Return the documents whose file a call opened and no call wrote."""
    edited = _endings(path for turn in digest.turns for path in turn.edited)
    opened = _endings(path for turn in digest.turns for path in turn.opened)
    return table.is_document & table.has_path(opened) & ~table.has_path(edited)


def _own_paths(text: str) -> frozenset[str]:
    """Return the paths by which calls can name a memory: a document's title, a claim's paths."""
    source = text
    if is_document(text):
        # Prose may mention a path; only a first line that is a path is the document's name.
        source = text.strip().split("\n", 1)[0].strip("#*` ")
        if " " in source:
            return frozenset()
    return frozenset(path.strip("./").lower() for path in paths_in(source))


def _acted(digest: Digest) -> frozenset[str]:
    """Return every ending of the paths that calls wrote or opened."""
    return _endings(path for turn in digest.turns for path in (*turn.edited, *turn.opened))


def _endings(paths: Iterable[str]) -> frozenset[str]:
    """Return every ending of these paths that starts at a folder or at the file name."""
    endings: set[str] = set()
    for path in paths:
        steps = path.strip("./").lower().split("/")
        endings.update("/".join(steps[start:]) for start in range(len(steps)))
    return frozenset(endings)


def _brought(
    table: EvidenceTable, lines: Sequence[_Line], total: Numbers
) -> tuple[Numbers, Numbers]:
    """Return each memory's best overlap with one line, and its largest share of a line.

    Memories that overlap with the same line share it: the one with the largest overlap gets nearly
    all of it.
    """
    best, alone = np.zeros(table.count), np.zeros(table.count)
    scale = np.minimum(1.0, LARGE_WEIGHT / np.maximum(total, 1.0))
    # By term, the indices of the memories that contain it; common terms are left out.
    held: dict[str, list[int]] = {}
    limit = max(RARE_HOLDERS, COMMON_SHARE * table.count)
    for index, terms in enumerate(table.terms):
        for term in terms:
            if table.holders[term] <= limit:
                held.setdefault(term, []).append(index)
    postings = {term: np.array(indices, np.int64) for term, indices in held.items()}
    for start in range(0, len(lines), _CHUNK):
        overlap = scale * _overlaps(lines[start : start + _CHUNK], postings, table)
        best = np.maximum(best, overlap.max(axis=0, initial=0.0))
        raised = overlap**SHARING_POWER
        share = raised / (raised.sum(axis=1, keepdims=True) + LEAST_SHARED)
        alone = np.maximum(alone, share.max(axis=0, initial=0.0))
    return best, alone


def _overlaps(
    lines: Sequence[_Line],
    postings: Mapping[str, NDArray[np.int64]],
    table: EvidenceTable,
) -> Numbers:
    """Return the weighted overlap of every line (a row) with every memory (a column)."""
    cells, worth = [], []
    for number, (weight, terms) in enumerate(lines):
        for term in terms:
            indices = postings.get(term)
            if indices is not None:
                cells.append(number * table.count + indices)
                worth.append(np.full(len(indices), weight * table.rarity[term]))
    if not cells:
        return np.zeros((len(lines), table.count))
    size = len(lines) * table.count
    flat = np.bincount(np.concatenate(cells), np.concatenate(worth), minlength=size)
    return np.asarray(flat.reshape(len(lines), table.count))
