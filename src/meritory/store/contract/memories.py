"""Memories: reading, searching, writing, history, entities and embedders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.domain.memory import (
    Action,
    EmbedderInfo,
    EmbeddingState,
    Entity,
    EntityView,
    HistoryEntry,
    Listing,
    MemoryRecord,
    Scope,
)

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


@dataclass(frozen=True, slots=True)
class NeighbourProbe:
    """A search for the live memories of exactly one scope that are nearest to vectors."""

    scope: Scope
    embedder: str
    vectors: FloatArray
    limit: int
    floor: float


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
    # How many of the best text hits are checked for two rare words.
    hit_limit: int = 0
    # Only memories that may be injected at this moment: trusted and still valid.
    injectable_at: datetime | None = None


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


class MemoryLookups(Protocol):
    """The reads that a store and a transaction share."""

    def nearest(self, probe: NeighbourProbe) -> list[list[Near]]:
        """Return for each vector the nearest live memories of exactly one scope, nearest first."""

    def history(self, user: str, memory_id: str) -> list[HistoryEntry]:
        """Return all changes of a memory, oldest first."""

    def merge_entry(self, user: str, entry: int) -> HistoryEntry:
        """Return one merge by its history entry; raise NotFound otherwise."""


class MemoryReads(MemoryLookups, Protocol):
    """Reads of memories, their history, entities and embedders."""

    def get(self, user: str, prefix: str, within: Scope | None = None) -> MemoryRecord:
        """Return the memory whose id starts with `prefix`.

        Raise NotFound for none, InputError for several. A memory that `within` may not see does
        not exist.
        """

    def memories(self, user: str, memory_ids: Sequence[str]) -> dict[str, MemoryRecord]:
        """Return the undamaged memories with these ids, in any state, by id."""

    def fetch(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, MemoryRecord]:
        """Return the live and valid memories of these rows that the scope may see."""

    def listing(self, listing: Listing) -> list[MemoryRecord]:
        """Return a page of memories, newest first."""

    def walk(self, user: str) -> Iterator[MemoryRecord]:
        """Yield every undamaged memory of a user, in any state, oldest first."""

    def users(self) -> list[str]:
        """Return every user with a memory."""

    def counters(self, user: str) -> dict[str, int]:
        """Return all named counters of a user."""

    def import_progress(self, user: str, digest: str) -> int:
        """Return how many lines of the file with this digest were imported."""

    def search(self, search: Search) -> SearchPool:
        """Run both legs of a search over all memories that the scope may see."""

    def gather(self, gathering: Gathering) -> Gathered:
        """Return the candidates of a session from all memories that the scope may see."""

    def traits(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, Trait]:
        """Return the traits of the live, trusted and valid memories of these rows."""

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of memories in any state, by id; leave out those without one."""

    # -- history --------------------------------------------------------------------------

    def merges(self, scope: Scope, limit: int) -> list[HistoryEntry]:
        """Return the latest merges that the scope may see and that were not split again."""

    def merges_of(self, user: str, limit: int, before: int | None = None) -> list[HistoryEntry]:
        """Return the latest merges of a user in all scopes, also those split again.

        `before` is the last entry of the page before.
        """

    # -- entities -------------------------------------------------------------------------

    def entities(self, scope: Scope, limit: int) -> list[Entity]:
        """Return the entities with the most live memories that the scope may see."""

    def describe(self, scope: Scope, key: str) -> EntityView:
        """Return an entity with its aspects, live memories and dependencies, or raise NotFound."""

    def stated_attributes(self, user: str) -> dict[str, tuple[Attribute, ...]]:
        """Return the stated attributes of memories, by memory id."""

    def dependencies(self, user: str) -> list[tuple[Attribute, Attribute]]:
        """Return every dependency between entities, in a fixed order."""

    def memories_about(
        self, scope: Scope, keys: Sequence[str], now: datetime, limit: int
    ) -> list[str]:
        """Return ids of trusted, valid memories about entities or their dependencies.

        The newest come first.
        """

    def required(self, scope: Scope, keys: Sequence[str], now: datetime) -> list[str]:
        """Return ids of trusted, valid pins of the scope and of constraints on these entities."""

    # -- embedders ------------------------------------------------------------------------

    def register_embedder(self, embedder: EmbedderInfo) -> None:
        """Add an embedder; in a store without memories it also becomes the serving one."""

    def serving_embedder(self) -> EmbedderInfo | None:
        """Return the embedder whose vectors are complete and answer searches."""

    def serve_embedder(self, embedder: str) -> bool:
        """Let an embedder serve if its vectors are complete, and drop all other vectors."""

    def embedding_state(self, embedder: str) -> EmbeddingState:
        """Return how many memories of all users have a vector of this embedder."""

    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        """Return memories in any state that lack a vector of this embedder, in a fixed order.

        `after` is the last memory of the batch before.
        """


class MemoryWrites(MemoryLookups, Protocol):
    """Changes of memories, and the reads that decide them."""

    def get(self, user: str, memory_id: str) -> MemoryRecord:
        """Return the memory with exactly this id, in any state; raise NotFound otherwise."""

    def has(self, user: str, memory_id: str) -> bool:
        """Return whether a memory has this id."""

    def live_by_hash(self, scope: Scope, hashes: Sequence[str]) -> dict[str, MemoryRecord]:
        """Return the live memories of exactly this scope with these content hashes."""

    def superseded_by(self, user: str, memory_id: str) -> list[MemoryRecord]:
        """Return the memories that this one supersedes."""

    def insert(self, memory: Indexed, change: MemoryChange | None) -> None:
        """Store a new memory with its vectors, words, entities and first history entry.

        Without a change there is no history entry: an import adds its own by `put_history`.
        """

    def update(self, memory: Indexed, change: MemoryChange | None) -> None:
        """Replace a memory's fields, words, vectors and entities, and add a history entry.

        Without new vectors the old ones stay if the text does. Without a change there is no
        history entry.
        """

    def purge(self, user: str, memory_id: str) -> None:
        """Erase a memory, its history, vectors, words and entity links permanently."""

    def put_vectors(
        self, embedder: str, vectors: Sequence[tuple[MemoryRecord, FloatArray]]
    ) -> None:
        """Store vectors; skip memories whose text is no longer the one that was embedded."""

    def put_dependencies(self, user: str, pairs: Sequence[tuple[Attribute, Attribute]]) -> None:
        """Record that the first entity of each pair depends on the second."""

    def operation(self, user: str, operation: str) -> list[HistoryEntry]:
        """Return all changes of one operation, oldest first."""

    def put_history(self, user: str, entries: Sequence[HistoryEntry]) -> None:
        """Add history entries of an export."""

    def mark_undone(self, user: str, entries: Sequence[int]) -> None:
        """Mark history entries as undone; the next undo goes further back."""

    def count(self, user: str, name: str, amount: int = 1) -> None:
        """Add to a named counter."""

    def set_import_progress(self, user: str, digest: str, line_count: int, at: datetime) -> None:
        """Record how many lines of a file were imported."""
