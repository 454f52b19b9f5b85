"""The front door: where the store is, who may share it, the async twin, the counters."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from pathlib import Path

import pytest

from meritory import AsyncMemory, InputError, Memory, StorageError
from meritory.api.async_memory import AsyncSession
from meritory.api.session import Session
from meritory.domain.errors import Busy
from meritory.store.sqlite import backup


def test_without_a_path_the_store_is_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "deep" / "home"
    monkeypatch.setenv("MERITORY_HOME", str(home))
    with Memory() as memory:
        memory.remember("something")
    assert (home / "meritory.db").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_bad_paths_get_clear_errors(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "m.db", "no folder"),
        ("a\0b", "NUL"),
    ):
        with pytest.raises(InputError, match=message):
            Memory(path)


@pytest.mark.parametrize("field", ["user", "agent", "project"])
@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 257, 5])
def test_bad_names_are_refused(tmp_path: Path, field: str, name: object) -> None:
    with pytest.raises(InputError, match=field):
        Memory(tmp_path / "m.db", **{field: name})  # type: ignore[arg-type]


def test_a_clock_without_an_offset_is_refused(tmp_path: Path) -> None:
    with (
        Memory(tmp_path / "m.db", clock=lambda: datetime(2026, 1, 1)) as memory,
        pytest.raises(InputError, match="without an offset"),
    ):
        memory.remember("something")


def test_a_closed_memory_says_so(memory: Memory) -> None:
    memory.remember("something")
    memory.close()
    memory.close()
    for call in (lambda: memory.remember("x"), lambda: memory.recall("x"), memory.stats):
        with pytest.raises(StorageError, match="closed"):
            call()


def test_two_memories_share_one_file(memory: Memory) -> None:
    with Memory(memory.services.store.path) as other:
        made = other.remember("The badger sleeps")
        assert [found.id for found in memory.recall("badger")] == [made.id]
        memory.forget(made.id)
        assert other.recall("badger") == []


def test_reading_and_writing_from_many_threads(memory: Memory) -> None:
    memory.remember_many([f"note {n} about badgers and barn {n}" for n in range(50)])
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(30):
                assert memory.recall("badgers barn")
        except BaseException as error:  # handed to the main thread
            problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(30):
        memory.remember(f"another note {number} on weasels {number * 7}")
    for thread in threads:
        thread.join()
    assert problems == []


def test_paging_goes_through_everything_once(memory: Memory) -> None:
    made = {memory.remember(f"note {n}", on_similar="keep").id for n in range(25)}
    seen: list[str] = []
    after = None
    while page := memory.page(10, after=after):
        seen += [record.id for record in page]
        after = page[-1].id
    assert len(seen) == 25
    assert set(seen) == made
    assert seen == sorted(seen, reverse=True)


def test_the_async_twin_does_the_same(tmp_path: Path) -> None:
    async def story() -> list[str]:
        async with AsyncMemory(tmp_path / "m.db") as memory:
            made = await memory.remember("The badger sleeps")
            results = await memory.remember_many(["The heron fishes", "The otter swims"])
            assert [result.outcome for result in results] == ["stored", "stored"]
            await memory.update(made.id, importance=0.9)
            await memory.forget(made.id)
            assert made.id not in [hit.id for hit in await memory.recall("badger")]
            await memory.undo(made.id)
            assert (await memory.get(made.id)).importance == 0.9
            assert [e.action for e in await memory.history(made.id)][-1] == "undo"
            found = await asyncio.gather(*(memory.recall(q) for q in ("badger", "heron", "otter")))
            return [hits[0].content for hits in found]

    assert asyncio.run(story()) == ["The badger sleeps", "The heron fishes", "The otter swims"]


def test_an_async_session_has_every_verb_and_does_the_same(tmp_path: Path) -> None:
    wanted = {name for name in vars(Session) if not name.startswith("_")} - {"scope"}
    assert wanted - set(vars(AsyncSession)) == set()

    async def story() -> None:
        async with AsyncMemory(tmp_path / "m.db") as memory:
            made = await memory.remember("The badger sleeps under the oak")
            async with await memory.session("one", context="where does the badger sleep?") as run:
                assert made.content in run.inject
                assert run.ranking == [made.id]
                await run.prompt("and the heron?")
                await run.rate({run.memories[0].handle: 0.5})
                await run.end(used={made.id: 1.0})
            assert await memory.drain() == 0

    asyncio.run(story())


def test_the_async_twin_has_every_verb() -> None:
    verbs = {name for name in vars(Memory) if not name.startswith("_")}
    # Parts for our own surfaces, and a thread of its own that an event loop does not need.
    apart = {"services", "works", "work_meanwhile", "view", "reembed_in_background"}
    apart |= {"scope", "settings"}
    assert verbs - apart - {name for name in vars(AsyncMemory)} == set()


def test_backup_and_restore(memory: Memory, tmp_path: Path) -> None:
    made = memory.remember("The badger sleeps")
    memory.backup(tmp_path / "copy.db")
    memory.forget(made.id, purge=True)
    store = memory.services.store.path
    now = memory.services.world.now()
    with pytest.raises(Busy, match="in use"):
        backup.restore(store, tmp_path / "copy.db", now)
    memory.close()
    aside = backup.restore(store, tmp_path / "copy.db", now)
    assert aside is not None
    assert (aside / store.name).exists()
    with Memory(store) as again:
        assert again.get(made.id) == made
