"""Count the memories that searches return, and write the counts in batches.

Counting takes a lock and a dict, so no search waits for the disk. A thread writes after half an
interval and exists only while there are counts. A crash loses the counts of at most one interval.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterable, Mapping

from meritory.domain.errors import Busy, StorageError
from meritory.domain.world import World
from meritory.engine.observe.observer import Observer
from meritory.store.contract.store import Store, Transaction

FLUSH_INTERVAL_MS = 2_000
# The most memories in one write, and the number of waiting memories that starts a flush.
FLUSH_MEMORIES = 1_000
FLUSH_EARLY_MEMORIES = 50_000
RETRIEVED = "recall.retrieved"
_CLOSE_WAIT_S = 2.0


class Counter:
    """The retrieval counts of one open engine; safe to share between threads."""

    def __init__(
        self,
        store: Store,
        world: World,
        observer: Observer,
        interval_ms: int | None = None,
    ) -> None:
        self._store = store
        self._world = world
        self._observer = observer
        # The other half of the interval is for the write itself.
        self._wait_s = (interval_ms or FLUSH_INTERVAL_MS) / 1000 / 2
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, user: str, memory_ids: Iterable[str]) -> None:
        """Count one retrieval of each of these memories."""
        with self._lock:
            if self._closed:
                return
            counts = self._counts.get(user)
            if counts is None:
                counts = self._counts[user] = {}
            for memory_id in memory_ids:
                counts[memory_id] = counts.get(memory_id, 0) + 1
            is_full = len(counts) >= FLUSH_EARLY_MEMORIES
            if self._thread is None and counts:
                self._thread = threading.Thread(
                    target=self._serve, name="meritory-counts", daemon=True
                )
                self._thread.start()
        if is_full:
            self._woken.set()

    def flush(self) -> int:
        """Write all counts and return the number of memories; counts that fail are kept."""
        with self._flushing:
            with self._lock:
                pending, self._counts = self._counts, {}
            written = 0
            try:
                for user, counts in pending.items():
                    while counts:
                        batch = dict(itertools.islice(counts.items(), FLUSH_MEMORIES))
                        self._write(user, batch)
                        written += len(batch)
                        for memory_id in batch:
                            del counts[memory_id]
            finally:
                with self._lock:
                    for user, counts in pending.items():
                        if counts:
                            current = self._counts.setdefault(user, {})
                            for memory_id, count in counts.items():
                                current[memory_id] = current.get(memory_id, 0) + count
            return written

    def _write(self, user: str, batch: Mapping[str, int]) -> None:
        at = self._world.now()

        def work(transaction: Transaction) -> None:
            transaction.add_retrievals(user, batch, at)
            transaction.count(user, RETRIEVED, sum(batch.values()))

        self._store.write(user, work)

    def _serve(self) -> None:
        while True:
            self._woken.wait(self._wait_s)
            self._woken.clear()
            try:
                written = self.flush()
            except (StorageError, Busy) as error:
                self._observer.failed("retrieval_counts", error)
                written = 1
            with self._lock:
                # Keep the thread for one more interval: another search often follows.
                if self._closed or (not written and not self._counts):
                    self._thread = None
                    return

    def close(self) -> None:
        """Write the remaining counts and end the thread; later counts are ignored."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._woken.set()
        if thread is not None:
            thread.join(_CLOSE_WAIT_S)
        # A failed count must not fail a program that is about to end.
        with contextlib.suppress(StorageError, Busy):
            self.flush()
