"""An export carries reports, lessons, beliefs, rules, refusals, audits and counts, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from session_kit import NOTES, Desk

from meritory import Memory
from meritory.domain.errors import InputError
from meritory.domain.memory import HistoryEntry, MemoryRecord
from meritory.domain.quality import MemoryLink, Refusal
from meritory.engine import pipeline
from meritory.engine.predictor.state import known_state
from meritory.engine.quality import maintenance
from meritory.engine.rules.book import propose
from meritory.engine.sessions.prompt import PromptRequest
from meritory.engine.transfer import export
from meritory.engine.transfer.export import EXTRA_NAMES as NAMES
from meritory.engine.transfer.export import HISTORY, MEMORY
from meritory.rank.features import FEATURE_VERSION
from places import Places
from transfer_kit import import_file

Desks = Callable[..., Desk]
WRONG = {"what_went_wrong": "It deleted the migrations folder", "tags": ["git"]}


def lived_in(desk: Desk) -> None:
    """A store with something of everything that is no memory."""
    memory, services = desk.memory, desk.memory.services
    memory.remember("I think the staging database is called heron")
    kept = memory.remember("The staging database is called heron")
    beside = memory.remember("Tea is served at four", on_similar="keep")
    (merge,) = services.store.merges(memory.scope, 10)
    now = services.world.now()
    refusal = Refusal(
        id="r" * 26,
        at=now,
        user="default",
        agent=None,
        project="shop",
        session_key="run",
        content="Perhaps tea",
        kind="fact",
        provenance="user_stated",
        origin="user",
        confidence=0.3,
        turn="4",
        quote="perhaps tea",
        reason="below the floor",
        extractor="rules/1",
        memory_id=kept.id,
    )

    def work(transaction: Any) -> None:
        transaction.put_merge_audit("default", merge.entry, "right", now)
        transaction.add_retrievals("default", {kept.id: 7}, now)
        transaction.put_refusals([refusal])
        ends = {"older_id": kept.id, "newer_id": beside.id}
        link = MemoryLink(**ends, kind="alike", cosine=0.6, reason="alike", at=now)
        transaction.put_links("default", [link])

    services.store.write("default", work)
    for _ in range(3):
        memory.feedback("down", **WRONG)
        desk.clock.go(hours=1)
    memory.feedback("up", memory_ids=[kept.id], what_worked="The name was right")
    propose(services, memory.scope, "shell: git push --force", "it overwrites others")
    memory.drain()


def exported(memory: Memory) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in export.export_lines(memory.services, "default")]
    for line in lines:
        line.pop("at", None)
        for entry in line.get("history", []):
            entry.pop("entry")
    return lines


def written(memory: Memory, path: Path) -> Path:
    export.write_export(memory.services, "default", path, lambda done, total: None)
    return path


def test_everything_comes_back_exactly_and_only_once(desks: Desks, tmp_path: Path) -> None:
    desk = desks()
    lived_in(desk)
    before = exported(desk.memory)
    held = {name for line in before for name in line}
    assert held >= {*NAMES, "memory", "counters"}
    assert any("audit" in entry for line in before for entry in line.get("history", []))
    assert any(line.get("retrieved", {}).get("count") == 7 for line in before)
    path = written(desk.memory, tmp_path / "all.jsonl")
    copy = desks("copy.db").memory
    for _ in range(2):
        report = import_file(copy.services, copy.scope, path)
        assert report.problems == []
        assert exported(copy) == before
    # Into the store it came from it brings nothing.
    import_file(desk.memory.services, desk.memory.scope, path)
    assert exported(desk.memory) == before


def test_what_came_back_goes_on_as_before(desks: Desks, tmp_path: Path) -> None:
    desk = desks()
    lived_in(desk)
    path = written(desk.memory, tmp_path / "all.jsonl")
    copy = desks("copy.db").memory
    import_file(copy.services, copy.scope, path)
    event = copy.feedback("down", **WRONG).event
    assert event is not None
    assert event.occurrence == 4


def test_the_former_format_is_still_read(memory: Memory, places: Places, tmp_path: Path) -> None:
    memory.remember("The port is 5432")
    lines = [json.loads(line) for line in export.export_lines(memory.services, "default")]
    path = tmp_path / "old.jsonl"
    old = [{**lines[0], "meritory_export": 1}, *lines[1:]]
    path.write_text("".join(json.dumps(line) + "\n" for line in old), "utf-8")
    with places.memory("copy.db") as copy:
        report = import_file(copy.services, copy.scope, path)
        assert dict(report.outcomes) == {"stored": 1}


def test_an_imported_decision_hides_no_memory(memory: Memory, tmp_path: Path) -> None:
    old = memory.remember("Tea is served at four", on_similar="keep")
    new = memory.remember("The kettle is red", on_similar="keep")
    path = tmp_path / "links.jsonl"
    at = "2026-11-15T08:30:00+00:00"
    link = {"older_id": old.id, "newer_id": new.id, "kind": "alike", "cosine": 0.6, "reason": "x"}
    link |= {"at": at, "decision": "newer", "decided_by": "a person", "decided_at": at}
    lines = [{"meritory_export": 2}, {"link": link}]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    import_file(memory.services, memory.scope, path)
    (kept,) = memory.services.store.links_of("default", [old.id])
    assert (kept.kind, kept.decision, kept.decided_by) == ("newer", None, None)


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"lesson": {"memory_id": 5}}, "not a CarriedLesson"),
    ({"lesson": 7}, "not a CarriedLesson"),
    ({"belief": {"memory_id": "x"}}, "not a CarriedBelief"),
    ({"feedback": {"id": "x"}}, "not a FeedbackEvent"),
    ({"feedback": "x"}, "not a FeedbackEvent"),
    ({"wording": {"agent": "", "project": "", "fingerprint": "\ud800", "memory_id": "x"}}, "lone"),
    ({"rule": {}, "events": []}, "not a Rule"),
    ({"rule": 5}, "not a Rule"),
    ({"refusal": {"id": 1 << 80}}, "too large"),
    ({"wording": {}, "lesson": {}}, "unknown kind of line"),
)


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_line_that_is_not_sound_is_refused_with_its_number(
    memory: Memory, tmp_path: Path, line: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "bad.jsonl"
    lines = [{"meritory_export": 2}, line, {"counters": {}}]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    report = import_file(memory.services, memory.scope, path)
    ((number, told),) = report.problems
    assert number == 2
    assert reason in told


def test_damage_in_a_sound_line_never_breaks_the_import(desks: Desks, tmp_path: Path) -> None:
    """Every field of every keepsake is replaced by nonsense once."""
    desk = desks()
    lived_in(desk)
    lines = [line for line in exported(desk.memory) if set(line) & set(NAMES)]
    broken: list[dict[str, Any]] = [{"meritory_export": 2}]
    for line in lines:
        (name,) = set(line) & set(NAMES)
        for key in line[name]:
            for nonsense in (None, -1, "x", [], {"a": 1}, True, 1.5):
                broken.append({**line, name: {**line[name], key: nonsense}})
    path = tmp_path / "broken.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in broken), "utf-8")
    copy = desks("copy.db").memory
    report = import_file(copy.services, copy.scope, path)
    assert report.outcomes["refused"] > len(broken) // 3
    # What came in can be read and written out again.
    assert exported(copy)


def test_the_columns_of_a_memory_are_its_fields() -> None:
    names = [field.name for field in fields(MemoryRecord)]
    assert list(MEMORY) == names
    assert {*HISTORY, "memory_id", "after"} == {field.name for field in fields(HistoryEntry)}


# -- sessions and models ------------------------------------------------------------------------


def learned(desk: Desk, count: int = 14) -> None:
    """Sessions that the predictor learns from, some of them packed."""
    ids = desk.note(*NOTES)
    for number in range(count):
        session = desk.memory.session(f"run-{number}", context=NOTES[number % len(NOTES)])
        desk.finish(session, used={ids[number % len(NOTES)]: 1.0})
        desk.clock.go(hours=5)
        if number == count // 2:
            maintenance.pack(desk.memory.services, "default")


def with_learned(memory: Memory, path: Path) -> Path:
    export.write_export(
        memory.services, "default", path, lambda done, total: None, with_learned=True
    )
    return path


def test_sessions_labels_and_models_come_back(desks: Desks, tmp_path: Path) -> None:
    desk = desks()
    learned(desk)
    path = with_learned(desk.memory, tmp_path / "all.jsonl")
    copy = desks("copy.db")
    for _ in range(2):
        report = import_file(copy.memory.services, copy.memory.scope, path)
        assert report.problems == []
    store, restored = desk.store, copy.store
    keys = [one.key for one in store.sessions("default", 100)]
    assert [one.key for one in restored.sessions("default", 100)] == keys
    for key in keys:
        assert copy.state(key) == desk.state(key)
        assert restored.comparison("default", key) is not None
    before, after = (one.memory.predictor_status() for one in (desk, copy))
    assert before["phase"] != "collecting"
    assert after["phase"] == before["phase"]
    states = [known_state(one.memory.services, "default") for one in (desk, copy)]
    assert states[0] == states[1]
    shelves, others = desk.memory.services.shelves, copy.memory.services.shelves
    assert shelves is not None and others is not None
    versions = shelves.of("default").versions()
    assert versions and others.of("default").versions() == versions
    # Training reads the same numbers, to the last bit.
    taught, again = (
        one.taught_sessions("default", FEATURE_VERSION, 100) for one in (store, restored)
    )
    assert [one.key for one in again] == [one.key for one in taught]
    assert all((a.features == b.features).all() for a, b in zip(taught, again, strict=True))
    # The history of use goes on.
    session = copy.memory.session("next", context=NOTES[0])
    assert session.memories


def test_texts_of_a_session_may_begin_like_json(desks: Desks, tmp_path: Path) -> None:
    desk = desks()
    learned(desk, 1)
    said = "[ci] The font server is slow"
    session = desk.memory.session("{run}", context=said)
    pipeline.prompt(
        desk.memory.services, PromptRequest("{run}", session.scope, said, cwd="[x]", typed=said)
    )
    session.end()
    path = with_learned(desk.memory, tmp_path / "all.jsonl")
    copy = desks("copy.db")
    assert import_file(copy.memory.services, copy.memory.scope, path).problems == []
    assert copy.store.typed("default", "{run}") == said


def test_an_export_leaves_sessions_out_unless_they_are_asked_for(desk: Desk) -> None:
    learned(desk, 2)
    names = {name for line in exported(desk.memory) for name in line}
    assert not names & {"session", "model", "predictor_state"}


@pytest.mark.parametrize(
    "line",
    [
        {"session": {}},
        {"session": {"sessions": [{}]}},
        {"session": {"secrets": []}},
        {"model": "AAAA"},
        {"model": 3},
        {"predictor_state": "[]"},
        {"session": None, "model": None},
    ],
)
def test_a_learned_line_that_does_not_fit_is_refused(line: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        export.check_line(line, "default")
