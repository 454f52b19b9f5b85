"""Embed texts while the embedder may be changing, slow or unavailable.

The *wanted* embedder is the configured one. The *serving* embedder is the one with a complete set
of vectors: it answers searches and the gate until re-embedding is done. New texts get vectors of
both. If an embedder fails, the text is stored without vectors and found by its words, the failure
is counted, and a later re-embedding fills in the missing vectors.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

from meritory.domain.errors import InputError, PortError
from meritory.domain.memory import EmbedderInfo, EmbeddingState, MemoryRecord
from meritory.domain.policy import EmbedderSpec
from meritory.domain.world import World
from meritory.ports.embedder import FILE_KINDS, Embedder, Vectors, open_embedder
from meritory.store.contract.store import Store

REEMBED_BATCH = 256
# Pause between attempts to get the lock of re-embedding: its owner may die.
TURN_EVERY_S = 1.0
# How long a failed embedder is not called again, so that not every prompt waits for it.
RETRY_AFTER_MS = 30_000.0
_WANTED = "wanted"

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query and its embedder; None if the search uses words only."""

    embedder: str | None
    vector: Vectors | None


class Embedding:
    """The wanted and the serving embedder, and the re-embedding from one to the other."""

    def __init__(self, store: Store, spec: EmbedderSpec, world: World) -> None:
        self._store = store
        self._spec = spec
        self._world = world
        self._open: dict[str, Embedder] = {}
        self._retry_at_ms: dict[str, float] = {}
        self._lock = threading.Lock()
        self.failures: Counter[str] = Counter()

    @property
    def kind(self) -> str:
        """The kind of the configured embedder."""
        return self._spec.kind

    @property
    def is_off(self) -> bool:
        """Whether the configuration turns embedding off."""
        return self._spec.kind == "none"

    def wanted(self) -> Embedder:
        """Return the configured embedder; the first call opens and registers it."""
        with self._lock:
            if _WANTED not in self._open:
                embedder = open_embedder(self._spec)
                self._register(embedder)
                self._open[_WANTED] = embedder
            return self._open[_WANTED]

    def _register(self, embedder: Embedder) -> None:
        info = EmbedderInfo(embedder.name, embedder.dimension, _spec_text(self._spec))
        self._store.register_embedder(info)

    def _stored(self) -> EmbedderInfo | None:
        """Return the serving embedder as it is stored; None if embedding is off."""
        return None if self.is_off else self._store.serving_embedder()

    def is_changed(self) -> bool:
        """Return whether another embedder than the configured one still serves."""
        info = self._stored()
        if info is None:
            return False
        if info.spec != _spec_text(self._spec):
            return True
        # A release may bring other vectors under the same settings.
        wanted = self._attempt(_WANTED, self.wanted) if self.kind in FILE_KINDS else None
        return wanted is not None and wanted.name != info.name

    def in_making(self) -> tuple[str, EmbeddingState] | None:
        """Return the embedder whose vectors are being made and their number; None if none is."""
        if not self.is_changed():
            return None
        wanted = self._attempt(_WANTED, self.wanted)
        if wanted is None:
            return None
        return wanted.name, self._store.embedding_state(wanted.name)

    def serving(self) -> Embedder | None:
        """Return the embedder whose vectors answer searches; None if none is available."""
        return self._wanted_and_serving()[1]

    def _wanted_and_serving(self) -> tuple[Embedder | None, Embedder | None]:
        wanted = self._attempt(_WANTED, self.wanted)
        info = self._stored()
        if info is None or (wanted is not None and info.name == wanted.name):
            return wanted, wanted
        return wanted, self._attempt(info.name, partial(self._previous, info)) or wanted

    def _previous(self, info: EmbedderInfo) -> Embedder:
        """Return the embedder that served before the configured one."""
        with self._lock:
            if info.name not in self._open:
                settings: dict[str, Any] = json.loads(info.spec)
                current = self._spec
                # Send the current server's key to the same server only.
                key = current.api_key if settings.get("url") == current.url else ""
                spec = EmbedderSpec(**settings)
                previous = open_embedder(replace(spec, api_key=key, timeout_ms=current.timeout_ms))
                if previous.name != info.name:
                    raise PortError(f"embedder {info.name} returns different vectors now")
                self._open[info.name] = previous
            return self._open[info.name]

    def _attempt(self, name: str, call: Callable[[], T]) -> T | None:
        """Call an embedder; after a failure it is not called again for a while."""
        if self.is_off:
            return None
        if self._world.monotonic_ms() < self._retry_at_ms.get(name, 0.0):
            self.failures["embedder.left_alone"] += 1
            return None
        try:
            return call()
        except (PortError, InputError) as error:
            self._retry_at_ms[name] = self._world.monotonic_ms() + RETRY_AFTER_MS
            self.failures[f"embedder.{error.code}"] += 1
            return None

    def query(self, text: str) -> QueryVector:
        """Embed a query."""
        serving, vector = self.serving(), None
        if serving is not None:
            vector = self._attempt(serving.name, partial(serving.embed_query, text))
        return QueryVector(serving.name if serving and vector is not None else None, vector)

    def documents(self, texts: Sequence[str]) -> list[dict[str, Vectors]]:
        """Return for each text its vectors by embedder; empty if all embedders failed."""
        embedded: list[dict[str, Vectors]] = [{} for _ in texts]
        if not texts:
            return embedded
        embedders = self._wanted_and_serving()
        for name, embedder in {e.name: e for e in embedders if e is not None}.items():
            rows = self._attempt(name, partial(embedder.embed_documents, texts))
            for vectors, row in zip(embedded, [] if rows is None else rows, strict=False):
                vectors[name] = row
        return embedded

    def serving_name(self) -> str | None:
        """Return the name of the serving embedder; None if none is available."""
        serving = self.serving()
        return None if serving is None else serving.name

    def stored_name(self) -> str | None:
        """Return the name of the serving embedder, even if it is unavailable."""
        info = self._stored()
        return None if info is None else info.name

    def is_complete(self) -> bool:
        """Return whether the wanted embedder serves; if not, `reembed` has work to do."""
        if self.is_off:
            return True
        info, name = self._stored(), self.wanted().name
        return info is not None and info.name == name and not self._store.without_vector(name, 1)

    def reembed(self, progress: Progress, should_stop: Callable[[], bool]) -> bool:
        """Make all missing vectors in batches; return whether the wanted embedder serves now."""
        if self.is_off:
            return True
        while not should_stop():
            with self._store.try_lock("reembed") as has_lock:
                if has_lock:
                    return self._reembed(progress, should_stop)
            # Another process re-embeds: do not embed any text twice.
            time.sleep(TURN_EVERY_S)
        return False

    def _reembed(self, progress: Progress, should_stop: Callable[[], bool]) -> bool:
        embedder = self.wanted()
        # Register it again, for another process may have retired it since.
        self._register(embedder)
        self._retry_at_ms.clear()
        last: MemoryRecord | None = None
        while not should_stop():
            batch = self._store.without_vector(embedder.name, REEMBED_BATCH, last)
            if not batch:
                if self._store.serve_embedder(embedder.name):
                    return True
                if last is None:
                    return False
                # Memories before the cursor have changed: make another pass from the start.
                last = None
                continue
            last = batch[-1]
            rows = embedder.embed_documents([record.content for record in batch])
            for user in dict.fromkeys(record.user for record in batch):
                pairs = zip(batch, rows, strict=True)
                vectors = [(record, row) for record, row in pairs if record.user == user]
                self._store.write(user, methodcaller("put_vectors", embedder.name, vectors))
            state = self._store.embedding_state(embedder.name)
            progress(state.embedded_count, state.memory_count)
        return False


def _spec_text(spec: EmbedderSpec) -> str:
    """Return the settings to open an embedder again, without its key."""
    names = ("kind", "model", "url", "dimension", "query_prefix", "document_prefix")
    return json.dumps({name: getattr(spec, name) for name in names}, sort_keys=True)
