"""The chance that each memory helped in a session, from the digest of what the agent did.

Three kinds of traces count, and each is compared with what the other candidates reach by chance:

- *named*: a call wrote or opened the file that the memory is about, or named it in passing;
- *brought in*: an edit, a call or a reply holds the memory's terms, which the user had not typed;
- *looked up*: the output of tools holds them, so the agent needed what the memory says.

Everyday words count little, and so does what many candidates share.

The chance is a logistic function of these signals. Its weights were fitted on sessions whose truth
is known (`python -m bench.judge --fit`): whole files as memories on real coding sessions, one
sentence claims on dialogues that name the memories a reply used. Files and claims have weights
of their own.
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

from meritory.domain.session import JudgedMemory
from meritory.text.judge.digest import Digest, digest_terms, paths_in
from meritory.text.overlap import COMMON, MIN_VALUE_CHARS

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
Pair = tuple[str, str]

# A memory of several lines, or this long, is a document; a shorter one is a claim.
DOCUMENT_CHARS: Final = 600
# How much a trace in each kind of act counts. Talk is cheap.
ACT_WEIGHTS: Final = {"edit": 1.5, "tool": 1.2, "assistant": 1.0}
# A term that at most this many candidates hold tells one from another.
RARE_HOLDERS: Final = 2
# Terms that more than this share of the candidates hold tell nothing.
COMMON_SHARE: Final = 0.5
# Among a few candidates every term is rare. Rarity is that among at least so many.
LEAST_CANDIDATES: Final = 20
# What everyday words and short numbers are worth: sentences are full of them.
COMMON_WEIGHT: Final = 0.05
# Pieces that several memories could explain are shared by this power of their overlap.
SHARING_POWER: Final = 3.0
# Added to the sum that is shared, so that one weak overlap is no full share.
LEAST_SHARED: Final = 30.0
# So many shown memories, and this share of them, restated: the agent read the block out.
MIN_ECHOED: Final = 3
ECHOED_SHARE: Final = 0.7
# Added to a memory's weight, so that one made of everyday words has no large shares.
LEAST_WEIGHT: Final = 5.0
# A memory of more weight than this has words for every occasion: its overlaps count for less.
LARGE_WEIGHT: Final = 400.0
# A memory is restated when one sentence holds this share of its weight.
RESTATED_SHARE: Final = 0.5
_CHUNK: Final = 512

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
    """A logistic function of the signals; `limit` is the largest chance it gives."""

    bias: float
    limit: float
    by_signal: Mapping[str, float]

    def chances(self, found: Numbers) -> Numbers:
        """Return the chance of every row of signals."""
        weights = np.array([self.by_signal.get(name, 0.0) for name in SIGNALS])
        return np.asarray(self.limit / (1.0 + np.exp(-(self.bias + found @ weights))))


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
    """The candidate memories of one session, with their terms and how rare these are."""

    terms: tuple[frozenset[str], ...]
    # Terms that stand side by side.
    pairs: tuple[frozenset[Pair], ...]
    pair_rarity: Mapping[Pair, float]
    paths: tuple[frozenset[str], ...]
    # 1 for documents, 0 for claims.
    is_document: Flags
    shown: Flags
    rarity: Mapping[str, float]
    holders: Mapping[str, int]

    @property
    def count(self) -> int:
        """Return how many memories there are."""
        return len(self.terms)

    def weight(self, terms: Iterable[str]) -> float:
        """Return the rarity of all these terms together."""
        return math.fsum(self.rarity[term] for term in terms)


def open_docket(exhibits: Sequence[JudgedMemory]) -> EvidenceTable:
    """Return the memories with their terms, their own paths and how rare each term is."""
    in_order = [digest_terms(exhibit.text) for exhibit in exhibits]
    terms = tuple(map(frozenset, in_order))
    pairs = tuple(frozenset(pairwise(found)) for found in in_order)
    holders = Counter(term for found in terms for term in found)
    pair_holders = Counter(pair for found in pairs for pair in found)
    count = len(terms)
    return EvidenceTable(
        terms=terms,
        pairs=pairs,
        pair_rarity={pair: _rarity(held, count) for pair, held in pair_holders.items()},
        paths=tuple(_own_paths(exhibit.text) for exhibit in exhibits),
        is_document=np.array([is_document(exhibit.text) for exhibit in exhibits], np.bool_),
        shown=np.array([exhibit.was_shown for exhibit in exhibits], np.bool_),
        rarity={term: _worth(term) * _rarity(held, count) for term, held in holders.items()},
        holders=holders,
    )


def _rarity(held: int, count: int) -> float:
    return math.log((max(count, LEAST_CANDIDATES) + 1.0) / (held + 0.5))


def _worth(term: str) -> float:
    is_common = term in COMMON or (term.isdigit() and len(term) < MIN_VALUE_CHARS)
    return COMMON_WEIGHT if is_common else 1.0


def is_document(text: str) -> bool:
    """Return whether a memory is a document rather than a claim."""
    return len(text) >= DOCUMENT_CHARS or "\n" in text.strip()


def signals(docket: EvidenceTable, digest: Digest) -> Numbers:
    """Return one row per memory, one column per name in `SIGNALS`."""
    if not docket.count:
        return np.zeros((0, len(SIGNALS)))
    acted, named = _acted(digest), _endings(path for turn in digest.turns for path in turn.named)
    results = frozenset(term for turn in digest.turns for term in turn.results)
    by_chance = _chance_of_results(docket, results)
    looked_up = [terms & results for terms in docket.terms]
    expected = [
        math.fsum(docket.rarity[term] * by_chance[term] for term in terms) for terms in docket.terms
    ]
    pieces = _pieces(digest)
    said_pairs = frozenset(pair for piece in pieces for pair in piece.pairs)
    total = np.array([docket.weight(terms) for terms in docket.terms])
    best, alone = _brought(docket, pieces, total)
    found = np.array([docket.weight(terms) for terms in looked_up])
    columns: dict[str, Sequence[float] | Numbers | Flags] = {
        "acted": [bool(paths & acted) for paths in docket.paths],
        "named": [bool(paths & named) for paths in docket.paths],
        "looked_up": (found - expected) / (total + LEAST_WEIGHT),
        "looked_up_rare": [math.log1p(_rare_count(docket, terms)) for terms in looked_up],
        "brought": np.sqrt(np.minimum(best / (total + LEAST_WEIGHT), 1.0)),
        "brought_above_chance": _above_chance(best),
        "brought_alone": alone,
        "brought_pairs": [
            math.log1p(math.fsum(docket.pair_rarity[pair] for pair in pairs & said_pairs))
            for pairs in docket.pairs
        ],
        "size": [math.log1p(len(terms)) for terms in docket.terms],
        "shown": docket.shown,
    }
    return np.column_stack([np.asarray(columns[name], np.float64) for name in SIGNALS])


def chances(docket: EvidenceTable, digest: Digest) -> Numbers:
    """Return the chance that each memory helped, 0..1."""
    found = signals(docket, digest)
    names = weights_names(docket, digest)
    by_name = {name: one.chances(found) for name, one in WEIGHTS.items()}
    return np.select([names == name for name in by_name], list(by_name.values()))


def limits(docket: EvidenceTable, digest: Digest) -> Numbers:
    """Return the largest chance that each memory can have in this session."""
    names = weights_names(docket, digest)
    return np.array([WEIGHTS[name].limit for name in names.tolist()])


def weights_names(docket: EvidenceTable, digest: Digest) -> NDArray[np.str_]:
    """Return by memory the name of the weights that fit it, a key of `WEIGHTS`.

    Where calls name files, a document whose file no call names was not used. Where no tool
    returned anything, words are all there is, for documents as for claims.
    """
    names_files = any(turn.edited or turn.opened for turn in digest.turns)
    has_results = any(turn.results for turn in digest.turns)
    has_paths = np.array([bool(paths) for paths in docket.paths], np.bool_)
    untitled = "untitled" if has_results else "claim"
    document = np.where(has_paths & names_files, "titled", untitled)
    return np.where(docket.is_document, document, "claim")


def echoed(docket: EvidenceTable, digest: Digest) -> Flags:
    """Return the shown memories that the agent only read out.

    A reply that restates a memory may be an answer. Replies that restate nearly everything that
    was shown are the block read out, and say nothing about any memory in it.
    """
    none = np.zeros(docket.count, np.bool_)
    if docket.shown.sum() < MIN_ECHOED:
        return none
    pieces = [piece for turn in digest.turns for piece in turn.pieces]
    said = [frozenset(terms) for act, terms in pieces if act == "assistant"]
    restated = np.array([_is_restated(docket, place, said) for place in range(docket.count)])
    is_read_out = restated[docket.shown].mean() >= ECHOED_SHARE
    acted = _acted(digest)
    is_acted = np.array([bool(paths & acted) for paths in docket.paths], np.bool_)
    return docket.shown & restated & ~is_acted if is_read_out else none


def _is_restated(docket: EvidenceTable, place: int, said: Sequence[frozenset[str]]) -> bool:
    terms = docket.terms[place]
    best = max((docket.weight(terms & piece) for piece in said), default=0.0)
    return docket.shown[place] and best >= RESTATED_SHARE * docket.weight(terms) > 0.0


def only_opened(docket: EvidenceTable, digest: Digest) -> Flags:
    """Return the documents whose file a call opened and no call wrote."""
    edited = _endings(path for turn in digest.turns for path in turn.edited)
    opened = _endings(path for turn in digest.turns for path in turn.opened)
    return docket.is_document & np.array(
        [bool(paths & opened) and not paths & edited for paths in docket.paths], np.bool_
    )


def _own_paths(text: str) -> frozenset[str]:
    """Return the paths by which calls can name a memory: a document's title, a claim's paths."""
    where = text
    if is_document(text):
        # Prose may mention a path; only a first line that is one is the document's name.
        where = text.strip().split("\n", 1)[0].strip("#*` ")
        if " " in where:
            return frozenset()
    return frozenset(path.strip("./").lower() for path in paths_in(where))


def _acted(digest: Digest) -> frozenset[str]:
    """Return every ending of the paths that calls wrote or opened."""
    return _endings(path for turn in digest.turns for path in (*turn.edited, *turn.opened))


def _endings(paths: Iterable[str]) -> frozenset[str]:
    """Return every ending of these paths that begins at a folder or the file name."""
    found: set[str] = set()
    for path in paths:
        steps = path.strip("./").lower().split("/")
        found.update("/".join(steps[start:]) for start in range(len(steps)))
    return frozenset(found)


def _rare_count(docket: EvidenceTable, terms: frozenset[str]) -> int:
    return sum(docket.holders[term] <= RARE_HOLDERS for term in terms)


def _chance_of_results(docket: EvidenceTable, results: frozenset[str]) -> Mapping[str, float]:
    """Return by term how often the output of tools holds terms that are as common as it is."""
    kind = {term: int(2.0 * math.log2(held)) for term, held in docket.holders.items()}
    counted = Counter(kind.values())
    found = Counter(kind[term] for term in kind.keys() & results)
    return {term: (found[one] + 0.5) / (counted[one] + 1.0) for term, one in kind.items()}


@dataclass(frozen=True, slots=True)
class _TermPiece:
    """What one line of the agent brought in: terms and pairs that the user had not typed before."""

    weight: float
    terms: tuple[str, ...]
    pairs: tuple[Pair, ...]


def _pieces(digest: Digest) -> list[_TermPiece]:
    typed: set[str] = set()
    found = []
    for turn in digest.turns:
        typed.update(turn.typed)
        for act, terms in turn.pieces:
            new = tuple(term for term in terms if term not in typed)
            pairs = tuple(pair for pair in pairwise(terms) if not typed.issuperset(pair))
            found.append(_TermPiece(ACT_WEIGHTS[act], new, pairs))
    return found


def _brought(
    docket: EvidenceTable, pieces: Sequence[_TermPiece], total: Numbers
) -> tuple[Numbers, Numbers]:
    """Return each memory's best overlap with one piece, and its largest share of a piece.

    A piece that several memories overlap with is shared among them: the one with the largest
    overlap gets nearly all of it.
    """
    best, alone = np.zeros(docket.count), np.zeros(docket.count)
    left = np.minimum(1.0, LARGE_WEIGHT / np.maximum(total, 1.0))
    postings = _postings(docket)
    for start in range(0, len(pieces), _CHUNK):
        overlap = left * _overlaps(pieces[start : start + _CHUNK], postings, docket)
        best = np.maximum(best, overlap.max(axis=0, initial=0.0))
        raised = overlap**SHARING_POWER
        share = raised / (raised.sum(axis=1, keepdims=True) + LEAST_SHARED)
        alone = np.maximum(alone, share.max(axis=0, initial=0.0))
    return best, alone


def _postings(docket: EvidenceTable) -> Mapping[str, Rows]:
    """Return by term the places of the memories that hold it; common terms are left out."""
    held: dict[str, list[int]] = {}
    limit = max(RARE_HOLDERS, COMMON_SHARE * docket.count)
    for place, terms in enumerate(docket.terms):
        for term in terms:
            if docket.holders[term] <= limit:
                held.setdefault(term, []).append(place)
    return {term: np.array(places, np.int64) for term, places in held.items()}


def _overlaps(
    pieces: Sequence[_TermPiece], postings: Mapping[str, Rows], docket: EvidenceTable
) -> Numbers:
    """Return the weighted overlap of every piece (a row) with every memory (a column)."""
    cells, worth = [], []
    for number, piece in enumerate(pieces):
        for term in piece.terms:
            places = postings.get(term)
            if places is not None:
                cells.append(number * docket.count + places)
                worth.append(np.full(len(places), piece.weight * docket.rarity[term]))
    size = len(pieces) * docket.count
    if not cells:
        return np.zeros((len(pieces), docket.count))
    flat = np.bincount(np.concatenate(cells), np.concatenate(worth), minlength=size)
    return np.asarray(flat.reshape(len(pieces), docket.count))


def _above_chance(overlap: Numbers) -> Numbers:
    """Return how far each overlap is above the others', in deviations, between -2 and 6.

    Among a few candidates, the missing ones count as without any overlap.
    """
    others = np.pad(overlap, (0, max(LEAST_CANDIDATES - len(overlap), 0)))
    deviation = (overlap - others.mean()) / (others.std() + 0.5)
    return np.asarray(np.clip(deviation, -2.0, 6.0))
