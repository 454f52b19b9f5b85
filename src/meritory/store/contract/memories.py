"""The records that searches and writes of memories take and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.domain.memory import Action, MemoryRecord, RecallFilter, Scope

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An entity that a memory is about, under which aspect.

    A stated attribute was given by the writer and stays when the text changes; the others are
    read from the text again.
    """

    key: str
    kind: str
    name: str
    aspect: str
    is_stated: bool = False


@dataclass(frozen=True, slots=True)
class Indexed:
    """A memory with the values derived from it: search words, hash, vectors and entities.

    `vectors` is by embedder name; a zero vector means that the text has none.
    """

    record: MemoryRecord
    words: str
    content_hash: str
    vectors: Mapping[str, FloatArray] = field(default_factory=dict)
    attributes: tuple[Attribute, ...] = ()
    depends_on: tuple[tuple[Attribute, Attribute], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """The history entry to write with a change of a memory."""

    operation: str
    at: datetime
    actor: str
    action: Action
    why: str = ""
    before: MemoryRecord | None = None
    other: MemoryRecord | None = None
    other_id: str | None = None


@dataclass(frozen=True, slots=True)
class Near:
    """A memory and its cosine to a vector."""

    memory: MemoryRecord
    cosine: float


class LaterValue(NamedTuple):
    """A memory, and one that gives its claim a later value."""

    older_id: str
    newer_id: str
    # By a person or an agent, or because the newer one superseded the other.
    is_decided: bool
    # Since when the newer value holds.
    since: datetime
    # Whether a search may show the newer one now.
    is_present: bool


@dataclass(frozen=True, slots=True)
class NeighbourProbe:
    """A search for the live memories of exactly one scope that are nearest to vectors."""

    scope: Scope
    embedder: str
    vectors: FloatArray
    limit: int
    floor: float
    # Whether a neighbour is wanted, by the index of the vector, its text and its cosine. Only
    # then all of it is read.
    is_wanted: Callable[[int, str, float], bool] | None = None


NO_FILTER = RecallFilter()


@dataclass(frozen=True, slots=True)
class Search:
    """One search: words for the full-text leg, a vector for the other; either may be missing.

    A text that contains a phrase scores higher; a phrase counts only if all its words are terms.
    """

    scope: Scope
    terms: tuple[str, ...]
    embedder: str | None = None
    vector: FloatArray | None = None
    text_limit: int = 200
    vector_limit: int = 200
    posting_budget: int = 12_000
    phrases: tuple[str, ...] = ()
    # Corrected words and other spellings, which count less than the terms.
    near_terms: tuple[str, ...] = ()
    # How many of the best text hits are checked for two rare words.
    hit_limit: int = 0
    # Only memories that may be injected at this moment: trusted and still valid.
    injectable_at: datetime | None = None
    filter: RecallFilter = NO_FILTER


@dataclass(frozen=True, slots=True)
class SearchPool:
    """The hits of both legs and the turns next to every hit, as parallel arrays.

    `text` is the full-text score (0 = no hit). `raw_cosine` is the plain cosine, `cosine` the one
    after removing the mean of all memories; both are NaN without a vector. `previous` and
    `following` are positions in these arrays (-1: no such turn), `session` a small number (-1:
    none). `leads` says that no stronger source spoke in the session, `session_words` how well the
    texts of the strongest source match as one text (0..1, `meritory.rank.hybrid.match_sessions`).
    """

    rows: IntArray
    text: FloatArray
    cosine: FloatArray
    raw_cosine: FloatArray
    length_chars: IntArray
    provenance: IntArray
    confidence: FloatArray
    demotion: IntArray
    session: IntArray
    previous: IntArray
    following: IntArray
    leads: BoolArray
    session_words: FloatArray
    # Over everything that was searched, not only the hits.
    session_count: int
    mean_cosine: float
    mean_length_chars: float
    # In how many memories each term of the search occurs, and how many memories were searched.
    term_counts: Mapping[str, int] = field(default_factory=dict)
    memory_count: int = 0
    # The embedder whose vectors were compared; None: none were.
    embedder: str | None = None
    # Row numbers of text hits that share at least two rare words with the search.
    rare_hits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathering:
    """A search for a session's candidates, of trusted memories only.

    `rows` and `ids` are added to the hits of the searches, if the scope may see them.
    """

    search: Search
    effective_limit: int
    rows: IntArray
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """The candidates as parallel arrays, rows ascending; the `by_` lists are best first."""

    rows: IntArray
    text: FloatArray
    # NaN without a vector; `centred` is the cosine after removing the mean of all memories.
    cosine: FloatArray
    centred: FloatArray
    provenance: IntArray
    confidence: FloatArray
    demotion: IntArray
    # Unit vectors, zero where there is none.
    vectors: FloatArray
    by_effective: IntArray
    by_cosine: IntArray
    by_text: IntArray
    row_of_id: Mapping[str, int]
    # How many memories were open to the search.
    corpus_count: int


class Trait(NamedTuple):
    """The fields of a memory that ranking needs; moments are days since the epoch."""

    id: str
    kind: str
    project: str | None
    importance: float
    pinned: bool
    # `valid_from` or, without one, the creation.
    since_days: float
    created_days: float
    # The beginning of the text, from which the title is made.
    opening: str
    access_count: int
    usefulness: float
