"""kill -9 while searches are counted: no count older than a flush interval is lost.

A child searches as fast as it can and tells each search, with its moment, on a pipe. What it told
longer ago than the interval, and the moment that writing takes, must be in the store.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from meritory.api.memory import Memory
from meritory.engine.memories import recall as recall_module
from meritory.engine.memories.recall import RETRIEVED
from meritory.store.sqlite.store import SqliteStore

KILLS = int(os.environ.get("MERITORY_TEST_COUNT_KILLS", "4"))
INTERVAL_S = 0.05
# Time for a write on a machine that does other things too; more of it when that was too little.
WRITE_S = 0.6
PATIENCES = (1.0, 4.0, 16.0)
NEVER_MS = 600_000


def search_and_kill(path: Path, lifetime_s: float) -> tuple[list[float], float]:
    """Searches until killed; returns the moments of all searches told, and of the kill."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            memory = Memory(path, background=False)
            while True:
                memory.recall("heron", limit=1)
                os.write(writing, f"{time.monotonic()}\n".encode())
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        first = pipe.readline()
        time.sleep(lifetime_s)
        killed_at = time.monotonic()
        os.kill(child, signal.SIGKILL)
        told = first + pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "it died by itself"
    return [float(line) for line in told.split(b"\n")[:-1]], killed_at


def counted(path: Path) -> int:
    """What the store says, by the sum and by the memory itself."""
    store = SqliteStore(path)
    try:
        (made,) = store.walk("default")
        found = store.retrievals("default", [made.id])
        total = store.counters("default").get(RETRIEVED, 0)
        assert total == (found[made.id].count if found else 0)
        return total
    finally:
        store.close()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one memory, and words only: this is about counts."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MERITORY_EMBEDDER_KIND", "none")
    monkeypatch.setattr(recall_module, "FLUSH_INTERVAL_MS", int(INTERVAL_S * 1000))
    with Memory(tmp_path / "meritory.db", background=False) as memory:
        memory.remember("The staging database is called heron")
    return tmp_path / "meritory.db"


def lost(path: Path, more_s: float, write_s: float = WRITE_S) -> int:
    """How many counts of long enough ago are missing."""
    before = counted(path)
    moments, killed_at = search_and_kill(path, write_s + more_s)
    settled = sum(at < killed_at - INTERVAL_S - write_s for at in moments)
    assert settled > 0
    stored = counted(path) - before
    # One that was counted and not told any more may be there, but never more than that.
    assert stored <= len(moments) + 1
    return max(0, settled - stored)


def test_a_kill_loses_at_most_one_interval(path: Path) -> None:
    chance = random.Random(23)
    for _ in range(KILLS):
        more_s = 0.2 + chance.random() * 0.3
        assert any(lost(path, more_s, WRITE_S * patience) == 0 for patience in PATIENCES)


def test_counts_that_are_never_written_are_missed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: if nothing is missed here, the test above proves nothing."""
    monkeypatch.setattr(recall_module, "FLUSH_INTERVAL_MS", NEVER_MS)
    assert lost(path, 0.2) > 0
