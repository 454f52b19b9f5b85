"""Export and import: exact round trip, foreign files, resuming, hostile lines."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from meritory import InputError, Memory
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import Conflict
from meritory.engine.transfer import entries as import_lines
from meritory.engine.transfer import export, import_
from meritory.engine.transfer.import_ import ImportReport
from meritory.settings import load_settings
from places import Places
from transfer_kit import import_file


def bring_in(memory: Memory, path: Path, **options: object) -> ImportReport:
    return import_file(memory.services, memory.scope, path, **options)  # type: ignore[arg-type]


def write_lines(path: Path, lines: list[object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def exported(memory: Memory) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export.export_lines(memory.services, "default")]


def lived_in(memory: Memory) -> None:
    """A store in which everything that can happen to a memory has happened."""
    memory.remember("I think the staging database is called heron", tags=["a"])
    memory.remember("The staging database is called heron", tags=["b"])
    gone = memory.remember("Lunch is at noon", about="lunch/time", depends_on=["kitchen"])
    memory.forget(gone.id)
    old = memory.remember("We deploy on Mondays", project="p", agent="claude")
    memory.remember("Deploys happen on Friday", project="p", agent="claude", supersedes=old.id)
    pinned = memory.remember("Ünïcode 🦡 \u202e text", pinned=True, kind="constraint")
    memory.update(pinned.id, importance=0.9)
    memory.undo(pinned.id)
    memory.remember("From a page", origin="web", valid_until="2030-01-01")


def test_an_export_comes_back_exactly(memory: Memory, places: Places, tmp_path: Path) -> None:
    lived_in(memory)
    target = tmp_path / "out.jsonl"
    count = export.write_export(memory.services, "default", target, lambda done, total: None)
    assert count == 6
    assert target.stat().st_mode & 0o777 == 0o600
    with places.memory("copy.db") as copy:
        report = bring_in(copy, target)
        assert dict(report.outcomes) == {"stored": 6}
        assert report.problems == []
        before, after = exported(memory), exported(copy)
        for line in (*before, *after):
            line.pop("at", None)
            for entry in line.get("history", []):
                entry.pop("entry")
        assert after == before
        assert [r.content for r in copy.recall("staging heron")] == [
            r.content for r in memory.recall("staging heron")
        ]
        again = bring_in(copy, target)
        assert (again.resumed_at, dict(again.outcomes)) == (0, {"duplicate": 6})
        assert len(exported(copy)) == len(after)


def test_importing_an_export_into_the_store_it_came_from_changes_nothing(
    memory: Memory, tmp_path: Path
) -> None:
    lived_in(memory)
    target = tmp_path / "out.jsonl"
    export.write_export(memory.services, "default", target, lambda done, total: None)
    before = exported(memory)[1:]
    assert dict(bring_in(memory, target).outcomes) == {"duplicate": 6}
    assert exported(memory)[1:] == before


def test_an_export_never_overwrites(memory: Memory, tmp_path: Path) -> None:
    target = tmp_path / "there.jsonl"
    target.write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        export.write_export(memory.services, "default", target, lambda done, total: None)
    with pytest.raises(InputError, match="folder not found"):
        export.write_export(
            memory.services, "default", tmp_path / "no" / "x", lambda done, total: None
        )
    assert target.read_text() == "mine"


def test_foreign_lines_go_through_the_write_path(memory: Memory, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "in.jsonl",
        [
            {"content": "The badger sleeps", "tags": ["x"], "provenance": "user_stated"},
            "a bare text",
            {"content": "the badger sleeps."},
            {"content": "Never push", "kind": "constraint", "pinned": True},
        ],
    )
    report = bring_in(memory, path)
    assert dict(report.outcomes) == {"stored": 3, "duplicate": 1}
    found = {item.content: item for item in memory.page()}
    assert found["The badger sleeps"].origin == "import"
    assert found["Never push"].kind == "fact"
    assert "proposed:constraint" in found["Never push"].tags


def test_a_file_may_begin_with_a_byte_order_mark(
    memory: Memory, places: Places, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"content": "\ufeffThe badger sleeps"}])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert dict(bring_in(memory, path).outcomes) == {"stored": 1}
    assert [item.content for item in memory.page()] == ["The badger sleeps"]

    target = tmp_path / "out.jsonl"
    export.write_export(memory.services, "default", target, lambda done, total: None)
    target.write_bytes(b"\xef\xbb\xbf" + target.read_bytes())
    with places.memory("copy.db") as copy:
        assert bring_in(copy, target).problems == []
        assert [item.content for item in copy.page()] == ["The badger sleeps"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("user", "import"),
        ("import", "import"),
        ("tool", "tool"),
        ("web", "web"),
        ("agent", "agent"),
    ],
)
def test_no_file_speaks_for_a_person(memory: Memory, tmp_path: Path, said: str, kept: str) -> None:
    line = {"content": "Never push", "origin": said, "pinned": True, "kind": "constraint"}
    bring_in(memory, write_lines(tmp_path / "in.jsonl", [line]))
    (found,) = memory.page()
    assert (found.origin, found.pinned, found.kind) == (kept, False, "fact")
    assert {"proposed:pin", "proposed:constraint"} <= set(found.tags)


def test_bad_lines_are_named_and_the_rest_comes_in(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines: list[bytes] = [
        b'{"content": "the badger"}',
        b"not json",
        b"",
        b"[1, 2]",
        b'{"content": "x", "importance": NaN}',
        b'{"content": "x", "importance": 1e999}',
        b'{"content": "\xff"}',
        b"[" * 100_000,
        b'{"content": "x", "user": "mallory"}',
        b'{"content": "x", "supersedes": "01m7f6zmc3zbwkvh1qw1y6qvsz"}',
        b'{"contents": "x"}',
        b'{"content": "' + b"x" * 3_000_000 + b'"}',
        b'{"content": "x", "importance": 1' + b"0" * 400 + b"}",
        b'{"content": "x", "kind": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"content": "x", "about": "/"}',
        b'{"content": "x", "origin": "martian"}',
        b'{"content": "a heron"}',
    ]
    path.write_bytes(b"\n".join(lines))
    report = bring_in(memory, path)
    assert dict(report.outcomes) == {"stored": 2, "refused": 14}
    assert [number for number, _ in report.problems] == [2, *range(4, 17)]
    assert {item.content for item in memory.page()} == {"the badger", "a heron"}


def test_an_import_goes_on_where_it_was_interrupted(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_lines, "BATCH_LIMIT", 10)
    path = write_lines(
        tmp_path / "in.jsonl", [{"content": f"fact number {n} of {n * 37}"} for n in range(45)]
    )
    seen: list[int] = []

    def stop_at_third(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_in(memory, path, progress=stop_at_third)
    assert memory.stats()["live"] == 30
    report = bring_in(memory, path)
    assert (report.resumed_at, sum(report.outcomes.values())) == (30, 15)
    assert memory.stats()["live"] == 45
    stats = memory.stats()
    assert stats["write.stored"] + stats["write.kept_both"] == 45


def test_progress_reaches_the_end(memory: Memory, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"content": f"fact {n}"} for n in range(5)])
    seen: list[tuple[int, int]] = []
    bring_in(memory, path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)


def test_only_plain_files_are_read(memory: Memory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "pipe", tmp_path / "none", Path("a\0b")):
        with pytest.raises(InputError):
            bring_in(memory, path)
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="has no lines"):
        bring_in(memory, tmp_path / "empty")


def test_a_newer_export_is_refused(memory: Memory, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"meritory_export": 99}, {"memory": {}}])
    with pytest.raises(Conflict, match="format 99"):
        bring_in(memory, path)


@pytest.mark.parametrize(
    "damage",
    [
        {"id": "../../x"},
        {"id": None},
        {"content": ""},
        {"kind": "rumour"},
        {"trust": "very"},
        {"confidence": 7},
        {"usefulness": "high"},
        {"access_count": -1},
        {"demotion": True},
        {"created_at": None},
        {"sources": "none"},
        {"superseded_by": "x"},
        {"extra": 1},
    ],
)
def test_a_tampered_export_line_is_refused(
    memory: Memory, places: Places, tmp_path: Path, damage: dict[str, object]
) -> None:
    record = record_to_dict(memory.remember("The badger sleeps"))
    settings = load_settings(tmp_path, {})
    lines = [{"meritory_export": 1}, {"memory": {**record, **damage}, "about": [], "history": []}]
    path = write_lines(tmp_path / "in.jsonl", list(lines))
    with places.memory("copy.db", settings=settings) as copy:
        report = bring_in(copy, path)
        assert dict(report.outcomes) == {"refused": 1}
        assert copy.stats()["live"] == 0


def test_an_export_belongs_to_whoever_imports_it(
    memory: Memory, places: Places, tmp_path: Path
) -> None:
    lived_in(memory)
    target = tmp_path / "out.jsonl"
    export.write_export(memory.services, "default", target, lambda done, total: None)
    with places.memory("copy.db", user="zoe") as copy:
        bring_in(copy, target)
        assert {item.user for item in copy.page(everywhere=True)} == {"zoe"}


LINK = {"key": "topic:api", "kind": "topic", "name": "api", "aspect": "owner"}


def memory_line(memory: Memory) -> dict[str, Any]:
    """The export line of a memory that was merged into."""
    lived_in(memory)
    return next(
        line
        for line in exported(memory)
        if any(entry["other"] for entry in line.get("history", []))
    )


def damaged_entry(line: dict[str, Any], **damage: object) -> dict[str, Any]:
    (merge,) = (entry for entry in line["history"] if entry["other"])
    return {**line, "history": [{**merge, **damage}]}


BAD_LINES: dict[str, Callable[[dict[str, Any]], object]] = {
    "huge count": lambda line: {"counters": {"x": 10**30}},
    "count below zero": lambda line: {"counters": {"x": -1}},
    "count as truth": lambda line: {"counters": {"x": True}},
    "no counters": lambda line: {"counters": [1]},
    "long counter name": lambda line: {"counters": {"x" * 257: 1}},
    "unstorable counter name": lambda line: {"counters": {"\ud800": 1}},
    "nothing": lambda line: {},
    "something else": lambda line: {"counters": {}, "more": 1},
    "dependency on nothing": lambda line: {"dependency": [LINK]},
    "dependency of numbers": lambda line: {"dependency": [1, 2]},
    "dependency of texts": lambda line: {"dependency": "ab"},
    "dependency of strangers": lambda line: {"dependency": [{}, {}]},
    "about a number": lambda line: {**line, "about": 5},
    "about numbers": lambda line: {**line, "about": [5]},
    "about an object": lambda line: {**line, "about": [{**LINK, "key": {}}]},
    "about too much": lambda line: {**line, "about": [{**LINK, "more": 1}]},
    "about another key": lambda line: {**line, "about": [{**LINK, "key": "topic:web"}]},
    "about no aspect": lambda line: {**line, "about": [{**LINK, "aspect": ""}]},
    "about no text": lambda line: {**line, "about": [{**LINK, "aspect": "\ud800"}]},
    "about at length": lambda line: {**line, "about": [{**LINK, "aspect": "x" * 257}]},
    "history as text": lambda line: {**line, "history": "none"},
    "history of texts": lambda line: {**line, "history": ["none"]},
    "why no text": lambda line: damaged_entry(line, why="\ud800"),
    "why a number": lambda line: damaged_entry(line, why=5),
    "undone a number": lambda line: damaged_entry(line, undone=1),
    "entry too large": lambda line: damaged_entry(line, entry=10**30),
    "at never": lambda line: damaged_entry(line, at=None),
    "other not its id": lambda line: damaged_entry(line, other_id=line["memory"]["id"]),
    "other without id": lambda line: damaged_entry(line, other_id=None),
    "before of another": lambda line: damaged_entry(
        line, before={**line["memory"], "id": line["memory"]["id"][::-1]}
    ),
    "too large a number": lambda line: {**line, "memory": {**line["memory"], "trust": 10**400}},
    "too large a share": lambda line: {**line, "memory": {**line["memory"], "usefulness": 10**400}},
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_of_an_export_does_not_stop_the_others(
    memory: Memory, places: Places, tmp_path: Path, kind: str
) -> None:
    line = memory_line(memory)
    bad = BAD_LINES[kind](line)
    good = [line, {"dependency": [{**LINK, "aspect": ""}] * 2}, {"counters": {"x": 3}}]
    path = write_lines(tmp_path / "in.jsonl", [{"meritory_export": 1}, bad, *good])
    with places.memory("copy.db") as copy:
        report = bring_in(copy, path)
        assert dict(report.outcomes) == {"stored": 1, "refused": 1}
        assert [number for number, _ in report.problems] == [2]
        assert copy.get(line["memory"]["id"]).content == line["memory"]["content"]
        assert copy.services.store.counters("default")["x"] == 3
        assert len(copy.services.store.dependencies("default")) == 1


def test_counters_of_two_lines_are_not_added_up(memory: Memory, tmp_path: Path) -> None:
    lines = [{"meritory_export": 1}, {"counters": {"x": 3}}, {"counters": {"x": 2, "y": 1}}]
    path = write_lines(tmp_path / "in.jsonl", list(lines))
    bring_in(memory, path)
    bring_in(memory, path)
    assert memory.services.store.counters("default") == {"x": 3, "y": 1}


def test_a_finished_import_is_forgotten_an_interrupted_one_is_not(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_lines, "BATCH_LIMIT", 2)
    path = write_lines(tmp_path / "in.jsonl", [f"claim {n} of {n * 37}" for n in range(4)])

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_in(memory, path, progress=stop)
    report = bring_in(memory, path)
    assert (report.resumed_at, report.line_count) == (2, 4)
    assert sum(report.outcomes.values()) == 2
    report = bring_in(memory, path)
    assert (report.resumed_at, report.line_count) == (0, 4)
    assert sum(report.outcomes.values()) == 4
    assert memory.stats()["live"] == 4


def test_a_long_history_comes_back(memory: Memory, places: Places, tmp_path: Path) -> None:
    line = memory_line(memory)
    line["history"] *= 1 + 2_100_000 // len(json.dumps(line["history"]))
    path = write_lines(tmp_path / "in.jsonl", [{"meritory_export": 1}, line])
    assert path.stat().st_size > import_lines.LINE_LIMIT_BYTES
    with places.memory("copy.db") as copy:
        assert dict(bring_in(copy, path).outcomes) == {"stored": 1}
        (again,) = (held for held in exported(copy) if "memory" in held)
        assert len(again["history"]) == len(line["history"])


def test_even_a_line_of_an_export_has_a_limit(
    memory: Memory, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_lines, "EXPORT_LINE_LIMIT_BYTES", 5_000)
    line = memory_line(memory)
    path = write_lines(
        tmp_path / "in.jsonl", [{"meritory_export": 1}, {**line, "more": "x" * 20_000}, line]
    )
    with places.memory("copy.db") as copy:
        report = bring_in(copy, path)
    assert dict(report.outcomes) == {"stored": 1, "refused": 1}
    assert report.problems == [(2, "longer than 5000 bytes")]


def test_long_lines_make_small_batches(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held in memory at a time is limited in bytes, not only in lines."""
    monkeypatch.setattr(import_lines, "BATCH_LIMIT_BYTES", 3_000)
    path = write_lines(tmp_path / "in.jsonl", [f"{n} " * 400 for n in range(1, 9)])
    seen: list[int] = []
    bring_in(memory, path, progress=lambda done, total: seen.append(done))
    steps = [later - earlier for earlier, later in pairwise([0, *seen])]
    assert len(steps) == 3
    assert max(steps) <= 3_000


def test_the_report_is_changed_by_one_thread(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()

    class Watched(Counter[str]):
        def __setitem__(self, key: str, value: int) -> None:
            threads.add(threading.get_ident())
            super().__setitem__(key, value)

        def update(self, *args: Any, **more: Any) -> None:
            threads.add(threading.get_ident())
            super().update(*args, **more)

    made = ImportReport
    monkeypatch.setattr(import_, "ImportReport", lambda: made(outcomes=Watched()))
    threads.clear()
    bring_in(memory, write_lines(tmp_path / "in.jsonl", ["a badger", 5]))
    lines = [{"meritory_export": 1}, {"counters": {}}, {}]
    report = bring_in(memory, write_lines(tmp_path / "out.jsonl", list(lines)))
    assert dict(report.outcomes) == {"refused": 1}
    assert threads == {threading.get_ident()}


def test_damaged_memories_are_counted(memory: Memory, places: Places, tmp_path: Path) -> None:
    memory.remember("The badger sleeps")
    memory.remember("Lunch is at noon")
    assert memory.services.store.damaged_count() == 0
    places.execute("UPDATE memories SET kind = 'rumour' WHERE content LIKE 'Lunch%'")
    target = tmp_path / "out.jsonl"
    assert export.write_export(memory.services, "default", target, lambda done, total: None) == 1
    assert memory.services.store.damaged_count() == 1
    assert "Lunch" not in target.read_text("utf-8")
