"""kill -9 at any instant: what was acknowledged is there, and nothing is there by half.

A child process writes batches through the library from two threads and acknowledges each on a
pipe as soon as the call returns. MERITORY_TEST_KILLS sets the number of kills.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from meritory.api.memory import Memory
from meritory.store.sqlite.store import SqliteStore

KILLS = int(os.environ.get("MERITORY_TEST_KILLS", "150"))
CONTROL_KILLS = 6
BATCH_SIZE = 5
BATCH = re.compile(r"batch (\w+) item (\d)")


def write_batches(path: Path, run: int, acknowledge: int, *, hasty: bool) -> None:
    """Writes until killed; a hasty writer acknowledges before the write, which is a lie."""
    memory = Memory(path)

    def write(thread: str) -> None:
        for number in range(10_000):
            name = f"{thread}r{run}n{number}"
            if hasty:
                os.write(acknowledge, f"{name}\n".encode())
            memory.remember_many(
                {"content": f"batch {name} item {item}", "on_similar": "keep"}
                for item in range(BATCH_SIZE)
            )
            if not hasty:
                os.write(acknowledge, f"{name}\n".encode())

    other = threading.Thread(target=write, args=("b",), daemon=True)
    other.start()
    write("a")


def run_and_kill(path: Path, run: int, chance: random.Random, *, hasty: bool) -> set[str]:
    """Starts a writer, kills it at some moment and returns what it had acknowledged by then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            write_batches(path, run, writing, hasty=hasty)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        first = b""
        if chance.random() < 0.8:
            # Now and then the kill comes while the store is still being opened or made.
            for _ in range(chance.randint(1, 4)):
                first += pipe.readline()
        time.sleep(chance.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        acknowledged = first + pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "the writer died by itself"
    # A kill in the middle of an acknowledgement is not one: the line has no end.
    return {line.decode() for line in acknowledged.split(b"\n")[:-1]}


def examine(path: Path) -> tuple[Counter[str], list[str]]:
    """How many items of each batch are stored, and what is wrong with the files."""
    store = SqliteStore(path)
    try:
        found: Counter[str] = Counter()
        for memory in store.walk("default"):
            match = BATCH.fullmatch(memory.content)
            assert match is not None
            found[match[1]] += 1
            assert len(store.history("default", memory.id)) == 1
        assert store.counters("default").get("write.stored", 0) == found.total()
        return found, store.check(deep=True)
    finally:
        store.close()


def losses(path: Path, kills: int, *, hasty: bool) -> tuple[int, int, int]:
    """Acknowledged batches, those of them that are lost, and batches there by half."""
    chance = random.Random(11)
    acknowledged: set[str] = set()
    for run in range(kills):
        acknowledged |= run_and_kill(path, run, chance, hasty=hasty)
        if run % 10 == 9 or run == kills - 1:
            _, damage = examine(path)
            assert damage == []
    found, _ = examine(path)
    lost = sum(1 for batch in acknowledged if batch not in found)
    partial = sum(1 for count in found.values() if count != BATCH_SIZE)
    return len(acknowledged), lost, partial


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of nobody, and no embedder: this is about the files."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MERITORY_EMBEDDER_KIND", "none")


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    acknowledged, lost, partial = losses(tmp_path / "meritory.db", KILLS, hasty=False)
    assert acknowledged >= KILLS
    assert (lost, partial) == (0, 0)
    left = {p.name for p in tmp_path.iterdir()}
    assert {n for n in left if ".new-" not in n} == {"meritory.db", "meritory.db.lock"}


def test_a_writer_that_acknowledges_too_early_is_caught(tmp_path: Path) -> None:
    """The control: if this passes unnoticed, the test above proves nothing."""
    _, lost, partial = losses(tmp_path / "meritory.db", CONTROL_KILLS, hasty=True)
    assert lost > 0
    assert partial == 0
