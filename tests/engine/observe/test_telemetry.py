"""Telemetry: the stored answer, and that only numbers are kept."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from session_kit import HERON, NOTES, Desk

from meritory.domain.access import Consent
from meritory.engine.observe import telemetry

Desks = Callable[..., Desk]
INSTALLED = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def test_a_session_never_asks_and_leaves_no_trace(desks: Desks) -> None:
    desk = desks()
    desk.note(*NOTES)
    for harness in (None, "claude-code", "codex", "my own program"):
        session = desk.memory.session(f"run {harness}", context=HERON, harness=harness)
        assert session.memories
        assert "telemetry" not in session.inject
    assert desk.store.consent("default") is None


def test_an_answer_can_be_changed_and_keeps_the_date_of_the_first_start(desks: Desks) -> None:
    desk = desks()
    services = desk.memory.services
    telemetry.note_start(services, "default")
    first = Consent(INSTALLED)
    assert desk.store.consent("default") == first
    desk.clock.go(days=1)
    telemetry.note_start(services, "default")
    assert desk.store.consent("default") == first
    asked = telemetry.answer(services, "default", True, is_asked=True)
    assert asked == replace(first, opt_in=True, last_prompted_at=INSTALLED + timedelta(days=1))
    assert telemetry.answer(services, "default", False) == replace(asked, opt_in=False)
    assert desk.store.consent("default") == replace(asked, opt_in=False)


# -- what is kept -----------------------------------------------------------------------------

MARKS = ("xyzzymemory", "xyzzyprompt", "xyzzyreply", "xyzzyproject", "xyzzypath", "xyzzykey")


def judged(desk: Desk, key: str = "xyzzykey") -> None:
    (memory_id,) = desk.note(f"{HERON} xyzzymemory in xyzzypath/file.py", project="xyzzyproject")
    session = desk.memory.session(
        key,
        "xyzzyproject",
        "what is the staging database called? xyzzyprompt",
        harness="codex",
        cwd="/srv/xyzzypath",
    )
    desk.finish(session, "user: xyzzyprompt\nassistant: xyzzyreply heron", used={memory_id: 1.0})


def numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for held in value.values():
            yield from numbers(held)
    elif isinstance(value, list):
        for held in value:
            yield from numbers(held)
    else:
        yield value


def test_a_yes_keeps_numbers_of_judged_sessions_and_nothing_else(
    desks: Desks, tmp_path: Path
) -> None:
    desk = desks()
    file = tmp_path / "home" / "telemetry.jsonl"
    file.parent.mkdir(exist_ok=True)
    judged(desk, "before xyzzykey")
    assert not file.exists()
    telemetry.answer(desk.memory.services, "default", True)
    judged(desk)
    raw = file.read_text("utf-8")
    assert not any(mark in raw for mark in (*MARKS, "heron", "default", "codex"))
    ids = [record.id for record in desk.store.walk("default")]
    assert not any(one in raw for one in ids)
    (line,) = map(json.loads, raw.splitlines())
    assert all(value is None or isinstance(value, int | float) for value in numbers(line))
    assert (line["injected_count"], line["labelled_count"]) == (2, 2)
    candidate = max(line["candidates"], key=lambda one: one["label"])
    assert (candidate["label"], candidate["was_injected"]) == (1.0, 1)
    assert {one["rank"] for one in line["candidates"]} == {1, 2}
    assert len(candidate["features"]) > 30
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(line) == set(json.loads(telemetry.EXAMPLE))
    assert set(candidate) == set(json.loads(telemetry.EXAMPLE)["candidates"][0])
    telemetry.answer(desk.memory.services, "default", False)
    judged(desk, "after xyzzykey")
    assert file.read_text("utf-8") == raw


def test_what_cannot_be_kept_is_counted_and_learning_goes_on(desks: Desks, tmp_path: Path) -> None:
    desk = desks()
    telemetry.answer(desk.memory.services, "default", True)
    (tmp_path / "home" / "telemetry.jsonl").mkdir(parents=True)
    judged(desk)
    assert "telemetry" in [stage for stage, _ in desk.failures()]
    assert desk.record("xyzzykey").state == "finished"


def test_a_full_file_makes_way_and_both_are_erased(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(telemetry, "FILE_LIMIT_BYTES", 400)
    file = tmp_path / "telemetry.jsonl"
    for number in range(60):
        telemetry.append(file, {"n": number})
    sizes = [one.stat().st_size for one in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 400
    kept = [json.loads(line)["n"] for line in telemetry.kept_lines(file)]
    assert kept == list(range(60 - len(kept), 60))
    assert telemetry.kept(file).size_bytes == sum(sizes)
    assert telemetry.erase(file) == len(kept)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_files_place_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "telemetry.jsonl").symlink_to(target)
    try:
        telemetry.append(tmp_path / "telemetry.jsonl", {"n": 1})
    except OSError:
        assert not target.exists()
    else:
        raise AssertionError("it was written through the link")


def test_a_damaged_file_can_still_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(b"\xff\xfe{}\n")
    assert telemetry.kept(path).line_count == 1
    assert telemetry.erase(path) == 1 and not path.exists()
