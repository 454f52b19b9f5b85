"""Counts what searches found, in memory, and writes it down now and then in one go.

An increment is a lock and a dict: nobody who searches waits for a disk. A thread begins to write
when half an interval has passed, and only exists while there are counts. So a crash loses those of
one interval, unless a write takes the other half, and who never searches never has the thread.
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
# So many different memories are written at once at most, and as many waiting start a flush.
FLUSH_MEMORIES = 1_000
FLUSH_EARLY_MEMORIES = 50_000
RETRIEVED = "recall.retrieved"
_CLOSE_WAIT_S = 2.0

_Counts = dict[str, dict[str, int]]


class Counter:
    """The retrieval counts of one open engine; safe to share between threads."""

    def __init__(
        self,
        store: Store,
        world: World,
        observer: Observer,
        interval_ms: int = FLUSH_INTERVAL_MS,
    ) -> None:
        self._store = store
        self._world = world
        self._observer = observer
        # Half of it: the other half is for the write, so that a crash loses no more than the whole.
        self._wait_s = interval_ms / 1000 / 2
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._counts: _Counts = {}
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def counted(self, user: str, memory_ids: Iterable[str]) -> None:
        """Notes that somebody who asked was shown these memories."""
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
        """Writes all counts down; returns of how many memories. What fails is kept for later."""
        with self._flushing:
            with self._lock:
                taken, self._counts = self._counts, {}
            written = 0
            try:
                for user, counts in taken.items():
                    while counts:
                        batch = _first(counts, FLUSH_MEMORIES)
                        self._write(user, batch)
                        written += len(batch)
                        for memory_id in batch:
                            del counts[memory_id]
            finally:
                self._put_back(taken)
            return written

    def _write(self, user: str, batch: Mapping[str, int]) -> None:
        at = self._world.now()

        def work(transaction: Transaction) -> None:
            transaction.add_retrievals(user, batch, at)
            transaction.count(user, RETRIEVED, sum(batch.values()))

        self._store.write(work)

    def _put_back(self, left: _Counts) -> None:
        with self._lock:
            for user, counts in left.items():
                if counts:
                    known = self._counts.setdefault(user, {})
                    for memory_id, count in counts.items():
                        known[memory_id] = known.get(memory_id, 0) + count

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
                # Not after the first empty look: whoever searches once may search again.
                if self._closed or (not written and not self._counts):
                    self._thread = None
                    return

    def close(self) -> None:
        """Writes down what is left and ends the thread; later counts are passed over."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._woken.set()
        if thread is not None:
            thread.join(_CLOSE_WAIT_S)
        # Counting must not be what fails a program that is done.
        with contextlib.suppress(StorageError, Busy):
            self.flush()


def _first(counts: Mapping[str, int], limit: int) -> dict[str, int]:
    return dict(itertools.islice(counts.items(), limit))
