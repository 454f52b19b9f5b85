"""Vectors for texts while the embedder may be changing, slow or gone.

The *wanted* embedder is the configured one. The *serving* one is that whose vectors are complete:
it answers searches and the gate until re-embedding is done. New texts get vectors of both. When
an embedder fails, the text is stored and found by its words, the failure is counted, and the
missing vectors are made up for later: nothing is lost and nobody waits.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from meritory.domain.errors import InputError, PortError
from meritory.domain.memory import EmbedderInfo, MemoryRecord
from meritory.domain.world import World
from meritory.ports.embedder import Embedder, EmbedderSpec, Vectors, open_embedder
from meritory.store.contract.store import Store, Transaction

REEMBED_BATCH = 256
# How soon to ask again when another process makes the vectors: it may die.
TURN_EVERY_S = 1.0
# Calibrated for the bundled embedder (ADR 0005). Words decide, so a poor value elsewhere costs
# duplicates and never a fact.
GATE_THRESHOLDS = {"static-minilm-256-v1": 0.75}
GATE_THRESHOLD_DEFAULT = 0.80
# A new value moves a short text far: "... is now called osprey" lies at .62 of "... heron". Texts
# that say something changed are therefore held against neighbours from further away.
CHANGE_THRESHOLD = 0.50

# How long an embedder that failed is left alone: nobody waits for it at every prompt.
RETRY_AFTER_MS = 30_000.0
_WANTED = "wanted"

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A question's vector and whose it is; the vector is None when words alone must do."""

    embedder: str | None
    vector: Vectors | None


class Embedding:
    """The wanted embedder, the serving one, and the way from one to the other."""

    def __init__(self, store: Store, spec: EmbedderSpec, world: World) -> None:
        self._store = store
        self._spec = spec
        self._world = world
        self._open: dict[str, Embedder] = {}
        self._retry_at_ms: dict[str, float] = {}
        self._lock = threading.Lock()
        self.failures: dict[str, int] = {}

    @property
    def kind(self) -> str:
        """Which kind of embedder is configured."""
        return self._spec.kind

    @property
    def is_off(self) -> bool:
        """Whether searches go by words only, by choice."""
        return self._spec.kind == "none"

    def wanted(self) -> Embedder:
        """The configured embedder, opened and made known to the store on first use."""
        with self._lock:
            if _WANTED not in self._open:
                embedder = open_embedder(self._spec)
                self._store.register_embedder(self._info(embedder))
                self._open[_WANTED] = embedder
            return self._open[_WANTED]

    def _info(self, embedder: Embedder) -> EmbedderInfo:
        return EmbedderInfo(embedder.name, embedder.dimension, _spec_text(self._spec))

    def is_changed(self) -> bool:
        """Whether another embedder than the configured one still serves."""
        info = None if self.is_off else self._store.serving_embedder()
        return info is not None and info.spec != _spec_text(self._spec)

    def serving(self) -> Embedder | None:
        """The embedder whose vectors answer searches; None when none can be reached."""
        return self._serving_beside(self._attempt(_WANTED, self.wanted))

    def _serving_beside(self, wanted: Embedder | None) -> Embedder | None:
        info = None if self.is_off else self._store.serving_embedder()
        if info is None or (wanted is not None and info.name == wanted.name):
            return wanted
        return self._attempt(info.name, partial(self._old, info)) or wanted

    def _old(self, info: EmbedderInfo) -> Embedder:
        with self._lock:
            if info.name not in self._open:
                old = open_embedder(_spec_from(info.spec, self._spec))
                if old.name != info.name:
                    raise PortError(f"embedder {info.name} gives other vectors by now")
                self._open[info.name] = old
            return self._open[info.name]

    def _attempt(self, name: str, call: Callable[[], T]) -> T | None:
        """Tries what may fail outside the process; after a failure it is left alone for a while."""
        if self.is_off:
            return None
        if self._world.monotonic_ms() < self._retry_at_ms.get(name, 0.0):
            self._note_failure("embedder.left_alone")
            return None
        try:
            return call()
        except (PortError, InputError) as error:
            self._retry_at_ms[name] = self._world.monotonic_ms() + RETRY_AFTER_MS
            self._note_failure(f"embedder.{error.code}")
            return None

    def _note_failure(self, counter: str) -> None:
        self.failures[counter] = self.failures.get(counter, 0) + 1

    def query(self, text: str) -> QueryVector:
        """The vector of a question."""
        serving = self.serving()
        if serving is None:
            return QueryVector(None, None)
        vector = self._attempt(serving.name, partial(serving.embed_query, text))
        return QueryVector(None if vector is None else serving.name, vector)

    def documents(self, texts: Sequence[str]) -> list[dict[str, Vectors]]:
        """For each text its vectors by embedder; empty where no embedder could give one."""
        made: list[dict[str, Vectors]] = [{} for _ in texts]
        if not texts:
            return made
        wanted = self._attempt(_WANTED, self.wanted)
        found = (wanted, self._serving_beside(wanted))
        for name, embedder in {e.name: e for e in found if e is not None}.items():
            rows = self._attempt(name, partial(embedder.embed_documents, texts))
            for vectors, row in zip(made, [] if rows is None else rows, strict=False):
                vectors[name] = row
        return made

    def serving_name(self) -> str | None:
        """The name of the serving embedder, or None when there is none to be had."""
        serving = self.serving()
        return None if serving is None else serving.name

    def stored_name(self) -> str | None:
        """The name of the embedder whose vectors are searched, whether it can be reached or not."""
        info = None if self.is_off else self._store.serving_embedder()
        return None if info is None else info.name

    def is_complete(self) -> bool:
        """Whether the wanted embedder serves; if not, `reembed` has work to do."""
        if self.is_off:
            return True
        info = self._store.serving_embedder()
        name = self.wanted().name
        return info is not None and info.name == name and not self._store.without_vector(name, 1)

    def reembed(self, progress: Progress, should_stop: Callable[[], bool]) -> bool:
        """Makes every missing vector, batch by batch; says whether the wanted one serves now."""
        if self.is_off:
            return True
        while not should_stop():
            with self._store.turn("reembed") as is_ours:
                if is_ours:
                    return self._reembed(progress, should_stop)
            # Another process is at it: no text need be embedded twice.
            time.sleep(TURN_EVERY_S)
        return False

    def _reembed(self, progress: Progress, should_stop: Callable[[], bool]) -> bool:
        embedder = self.wanted()
        # Again, for another process may have retired it since.
        self._store.register_embedder(self._info(embedder))
        self._retry_at_ms.clear()
        last: MemoryRecord | None = None
        while not should_stop():
            batch = self._store.without_vector(embedder.name, REEMBED_BATCH, last)
            if not batch:
                if self._store.serve_embedder(embedder.name):
                    return True
                if last is None:
                    return False
                # What changed behind us is found by another pass from the start.
                last = None
                continue
            last = batch[-1]
            rows = embedder.embed_documents([record.content for record in batch])
            vectors = list(zip(batch, rows, strict=True))
            self._store.write(partial(_put_vectors, embedder.name, vectors))
            state = self._store.embedding_state(embedder.name)
            progress(state.embedded_count, state.memory_count)
        return False


def gate_threshold(embedder: str) -> float:
    """The calibrated threshold of the similarity gate for an embedder's vectors."""
    return GATE_THRESHOLDS.get(embedder, GATE_THRESHOLD_DEFAULT)


def _put_vectors(
    name: str, vectors: list[tuple[MemoryRecord, Vectors]], transaction: Transaction
) -> None:
    transaction.put_vectors(name, vectors)


def _spec_text(spec: EmbedderSpec) -> str:
    """How to open the embedder again, without its key."""
    return json.dumps(
        {
            "kind": spec.kind,
            "model": spec.model,
            "url": spec.url,
            "dimension": spec.dimension,
            "query_prefix": spec.query_prefix,
            "document_prefix": spec.document_prefix,
        },
        sort_keys=True,
    )


def _spec_from(text: str, current: EmbedderSpec) -> EmbedderSpec:
    plain: dict[str, Any] = json.loads(text)
    # The key of today's server is only shown to the same server.
    key = current.api_key if plain.get("url") == current.url else ""
    return replace(EmbedderSpec(**plain), api_key=key, timeout_ms=current.timeout_ms)
