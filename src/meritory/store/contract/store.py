"""The storage contract: what a backend promises, in verbs of the domain.

A `Store` reads and owns the files; `Store.write` runs a function on a `Transaction`, whose verbs
all take effect together or not at all, and returns once they are on disk. Every read names its
user; no verb can reach another user's rows. Records come back exactly as they were stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

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
from meritory.domain.place import Place
from meritory.domain.session import ModelRows
from meritory.store.contract.access import AccessReads, AccessVerbs, ConsentReads, ConsentVerbs
from meritory.store.contract.dashboard import DashboardReads
from meritory.store.contract.feedback import FeedbackReads, FeedbackVerbs
from meritory.store.contract.jobs import JobReads, JobVerbs
from meritory.store.contract.maintenance import ChangeReads, Locks, StoreMaintenance
from meritory.store.contract.predictor import PredictorReads, PredictorVerbs
from meritory.store.contract.quality import (
    GateReads,
    RefusalReads,
    RefusalVerbs,
    UpkeepReads,
    UpkeepVerbs,
)
from meritory.store.contract.rules import RuleReads, RuleVerbs
from meritory.store.contract.sessions import Gathered, Gathering, SessionReads, SessionVerbs, Trait
from meritory.store.contract.transfer import CarryReads, CarryVerbs

T = TypeVar("T")
FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An entity a memory is about, under which aspect, and whether somebody said so outright.

    What was only read out of the text is read anew when the text changes; what was said stays.
    """

    key: str
    kind: str
    name: str
    aspect: str
    is_stated: bool = False


@dataclass(frozen=True, slots=True)
class Indexed:
    """A memory with what is derived from it: search words, hash, vectors and entities.

    `vectors` is by embedder name; a zero vector says that the text has none.
    """

    record: MemoryRecord
    words: str
    content_hash: str
    vectors: Mapping[str, FloatArray] = field(default_factory=dict)
    attributes: tuple[Attribute, ...] = ()
    depends_on: tuple[tuple[Attribute, Attribute], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """The note that goes into a memory's history with every change."""

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
    """A memory near to a vector."""

    memory: MemoryRecord
    cosine: float


@dataclass(frozen=True, slots=True)
class NeighbourProbe:
    """Vectors whose nearest live memories in exactly one scope are wanted."""

    scope: Scope
    embedder: str
    vectors: FloatArray
    limit: int
    floor: float


@dataclass(frozen=True, slots=True)
class Search:
    """One search: words for the full-text leg, a vector for the other; either may be missing.

    Phrases lift texts that hold them; one is only looked for if all its words are.
    """

    scope: Scope
    terms: tuple[str, ...]
    embedder: str | None = None
    vector: FloatArray | None = None
    text_limit: int = 200
    vector_limit: int = 200
    posting_budget: int = 12_000
    phrases: tuple[str, ...] = ()
    # Among how many of the best text hits those with two rare words are looked for.
    hit_limit: int = 0
    # Only what may be injected unasked at this moment: trusted, and still valid.
    injectable_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SearchPool:
    """What both legs found, and the turns beside every hit, as parallel arrays.

    `text` is the full-text score (0 = no hit); `cosine` is taken after removing what all memories
    share, `raw_cosine` is the plain one; both are NaN without a vector. `previous` and `following`
    are positions in these arrays (-1: no such turn), `session` a small number (-1: none).
    `leads` says whether no stronger source spoke in its session, `session_words` how well what
    those said there matches as one text (0..1, `meritory.rank.hybrid.match_sessions`).
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
    # Of everything searched, not only of what was found.
    session_count: int
    mean_cosine: float
    mean_length_chars: float
    # Row numbers of text hits that share at least two rare words with the search.
    rare_hits: tuple[int, ...] = ()


class Transaction(
    SessionVerbs,
    JobVerbs,
    PredictorVerbs,
    FeedbackVerbs,
    RuleVerbs,
    RuleReads,
    RefusalVerbs,
    RefusalReads,
    UpkeepVerbs,
    UpkeepReads,
    ConsentVerbs,
    CarryVerbs,
    AccessVerbs,
    ConsentReads,
    Protocol,
):
    """The verbs of one transaction."""

    def get(self, user: str, memory_id: str) -> MemoryRecord:
        """The memory with exactly this id, whatever its state; NotFound otherwise."""

    def live_by_hash(self, scope: Scope, hashes: Sequence[str]) -> dict[str, MemoryRecord]:
        """The live memories of exactly this scope with these content hashes."""

    def nearest(self, probe: NeighbourProbe) -> list[list[Near]]:
        """For each vector the nearest live memories of exactly this scope, nearest first."""

    def insert(self, memory: Indexed, change: MemoryChange | None) -> None:
        """Stores a new memory with its vectors, words, entities and first history entry.

        Without a change nothing is noted: its history follows by `put_history`.
        """

    def has(self, user: str, memory_id: str) -> bool:
        """Whether this id is taken."""

    def update(self, memory: Indexed, change: MemoryChange | None) -> None:
        """Replaces a memory's fields, words, vectors and entities, with its history entry.

        Without new vectors, those it has stay if its text does. Without a change nothing is noted.
        """

    def add_usage(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Counts injections of memories; not a change of the memory."""

    def history(self, user: str, memory_id: str) -> list[HistoryEntry]:
        """All changes of a memory, oldest first."""

    def operation(self, user: str, operation: str) -> list[HistoryEntry]:
        """All changes that were made in one operation, oldest first."""

    def mark_undone(self, user: str, entries: Sequence[int]) -> None:
        """Marks history entries as undone, so that the next undo goes further back."""

    def superseded_by(self, user: str, memory_id: str) -> list[MemoryRecord]:
        """The memories that name this one as their successor."""

    def count(self, user: str, name: str, amount: int = 1) -> None:
        """Adds to a named counter."""

    def purge(self, user: str, memory_id: str) -> None:
        """Erases a memory, its history, vector, words and entity links for good."""

    def put_dependencies(self, user: str, pairs: Sequence[tuple[Attribute, Attribute]]) -> None:
        """Notes that entities depend on others."""

    def put_history(self, user: str, entries: Sequence[HistoryEntry]) -> None:
        """Adds history entries as they were exported."""

    def put_vectors(
        self, embedder: str, vectors: Sequence[tuple[MemoryRecord, FloatArray]]
    ) -> None:
        """Stores vectors for memories whose text is still what was embedded; skips the others."""

    def set_import_progress(self, user: str, digest: str, line_count: int, at: datetime) -> None:
        """Notes how many lines of a file have been taken in."""


class Store(
    SessionReads,
    JobReads,
    PredictorReads,
    FeedbackReads,
    RuleReads,
    RefusalReads,
    UpkeepReads,
    GateReads,
    DashboardReads,
    ConsentReads,
    CarryReads,
    AccessReads,
    ChangeReads,
    Locks,
    StoreMaintenance,
    Protocol,
):
    """A place for memories."""

    place: Place
    models: ModelRows | None  # None when they lie in files beside it

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Runs `work` in one transaction and returns when it is durable."""

    def memories(self, user: str, memory_ids: Sequence[str]) -> dict[str, MemoryRecord]:
        """By id the memories with exactly these ids, whatever their state; damaged ones not."""

    def get(self, user: str, prefix: str, within: Scope | None = None) -> MemoryRecord:
        """The memory whose id starts with `prefix`; NotFound for none, InputError for several.

        `within` leaves out what that scope may not see, as if it did not exist.
        """

    def search(self, search: Search) -> SearchPool:
        """Both legs of a search in everything the scope may see."""

    def gather(self, gathering: Gathering) -> Gathered:
        """Candidates of a session out of everything the scope may see, whatever its size."""

    def traits(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, Trait]:
        """What ranking needs of the live, valid memories behind row numbers."""

    def fetch(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, MemoryRecord]:
        """The live, still valid memories behind row numbers, as far as the scope may see them."""

    def listing(self, listing: Listing) -> list[MemoryRecord]:
        """A page of memories, newest first."""

    def walk(self, user: str) -> Iterator[MemoryRecord]:
        """Every readable memory of a user, oldest first, whatever its state."""

    def history(self, user: str, memory_id: str) -> list[HistoryEntry]:
        """All changes of a memory, oldest first."""

    def merges(self, scope: Scope, limit: int) -> list[HistoryEntry]:
        """The latest merges the scope may see that were not split again, newest first."""

    def counters(self, user: str) -> dict[str, int]:
        """All named counters of a user."""

    def totals(self, user: str) -> dict[str, int]:
        """Counts of memories by state, kind, provenance and trust, of history and of entities."""

    def entities(self, scope: Scope, limit: int) -> list[Entity]:
        """The entities with the most live memories that the scope may see."""

    def describe(self, scope: Scope, key: str) -> EntityView:
        """An entity with its aspects, their live memories and its dependencies; or NotFound."""

    def stated_attributes(self, user: str) -> dict[str, tuple[Attribute, ...]]:
        """By memory id, the entities that somebody said outright it is about."""

    def dependencies(self, user: str) -> list[tuple[Attribute, Attribute]]:
        """Every dependency between entities, in a fixed order."""

    def memories_about(
        self, scope: Scope, keys: Sequence[str], now: datetime, limit: int
    ) -> list[str]:
        """Ids of trusted, valid memories about these entities or what they need, newest first."""

    def required(self, scope: Scope, keys: Sequence[str], now: datetime) -> list[str]:
        """Ids of trusted, valid pins of the scope and constraints on entities in play."""

    def register_embedder(self, embedder: EmbedderInfo) -> None:
        """Makes an embedder known; while there are no memories it also becomes the serving one."""

    def serving_embedder(self) -> EmbedderInfo | None:
        """The embedder whose vectors are complete and answer searches."""

    def embedding_state(self, embedder: str) -> EmbeddingState:
        """How far the vectors of an embedder have come, over all users."""

    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        """Memories in any state that lack a vector of this embedder, in a fixed order.

        `after` continues behind the last one of the batch before, without looking at all again.
        """

    def serve_embedder(self, embedder: str) -> bool:
        """Lets an embedder serve once its vectors are complete, and drops all others' vectors."""

    def import_progress(self, user: str, digest: str) -> int:
        """How many lines of this file were taken in before."""

    def users(self) -> list[str]:
        """Every user with a memory."""
