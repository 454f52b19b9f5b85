"""Export and import: exact round trip, foreign files, resuming, hostile lines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tenure import InputError, Memory
from tenure.codec import record_to_dict
from tenure.errors import Conflict
from tenure.flow import export, transfer
from tenure.settings import load_settings


def bring_in(memory: Memory, path: Path, **options: object) -> transfer.ImportReport:
    return transfer.import_file(memory.services, memory.scope, path, **options)  # type: ignore[arg-type]


def write_lines(path: Path, lines: list[object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def exported(memory: Memory) -> list[dict[str, object]]:
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


def test_an_export_comes_back_exactly(memory: Memory, tmp_path: Path) -> None:
    lived_in(memory)
    target = tmp_path / "out.jsonl"
    count = export.write_export(memory.services, "default", target, lambda done, total: None)
    assert count == 6
    assert target.stat().st_mode & 0o777 == 0o600
    with Memory(tmp_path / "copy.db") as copy:
        report = bring_in(copy, target)
        assert dict(report.outcomes) == {"stored": 6}
        assert report.problems == []
        before, after = exported(memory), exported(copy)
        for line in (*before, *after):
            line.pop("at", None)
            for entry in line.get("history", []):  # type: ignore[union-attr]
                entry.pop("entry")
        assert after == before
        assert [r.content for r in copy.recall("staging heron")] == [
            r.content for r in memory.recall("staging heron")
        ]
        again = bring_in(copy, target)
        assert again.resumed_at > 0
        assert exported(copy)[1:] == [*after[1:]] or len(exported(copy)) == len(after)


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
    with pytest.raises(InputError, match="exists already"):
        export.write_export(memory.services, "default", target, lambda done, total: None)
    with pytest.raises(InputError, match="no folder"):
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
        b'{"content": "a heron"}',
    ]
    path.write_bytes(b"\n".join(lines))
    report = bring_in(memory, path)
    assert dict(report.outcomes) == {"stored": 2, "refused": 10}
    assert [number for number, _ in report.problems] == [2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert {item.content for item in memory.page()} == {"the badger", "a heron"}


def test_an_import_goes_on_where_it_was_interrupted(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "BATCH_LIMIT", 10)
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
    with pytest.raises(InputError, match="no lines"):
        bring_in(memory, tmp_path / "empty")


def test_a_newer_export_is_refused(memory: Memory, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"tenure_export": 99}, {"memory": {}}])
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
    memory: Memory, tmp_path: Path, damage: dict[str, object]
) -> None:
    record = record_to_dict(memory.remember("The badger sleeps"))
    settings = load_settings(tmp_path, {})
    lines = [{"tenure_export": 1}, {"memory": {**record, **damage}, "about": [], "history": []}]
    path = write_lines(tmp_path / "in.jsonl", list(lines))
    with Memory(tmp_path / "copy.db", settings=settings) as copy:
        report = bring_in(copy, path)
        assert dict(report.outcomes) == {"refused": 1}
        assert copy.stats()["live"] == 0


def test_an_export_belongs_to_whoever_imports_it(memory: Memory, tmp_path: Path) -> None:
    lived_in(memory)
    target = tmp_path / "out.jsonl"
    export.write_export(memory.services, "default", target, lambda done, total: None)
    with Memory(tmp_path / "copy.db", user="zoe") as copy:
        bring_in(copy, target)
        assert {item.user for item in copy.page(everywhere=True)} == {"zoe"}
