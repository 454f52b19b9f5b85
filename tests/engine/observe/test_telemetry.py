"""Telemetry: who is asked, when and how often, and that what is kept are numbers alone."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from session_kit import HERON, NOTES, Desk

from meritory.domain.access import Consent
from meritory.engine.observe import consent, telemetry
from meritory.engine.observe.consent import ASKED_EVERY, ASKED_FOR, QUESTION, next_step
from meritory.text.render import OWN_REMARK

Desks = Callable[..., Desk]
DAY = timedelta(days=1)
INSTALLED = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SPANS = st.timedeltas(-timedelta(days=30), timedelta(days=30))


def stepped(known: Consent, now: datetime) -> tuple[Consent, str]:
    step = next_step(known, now)
    if step == "ask":
        return replace(known, last_prompted_at=now), step
    return (replace(known, opt_in=False) if step == "close" else known), step


@settings(max_examples=300)
@given(st.lists(SPANS, max_size=40))
def test_over_any_clock_it_is_asked_rarely_early_and_never_after_the_end(
    spans: list[timedelta],
) -> None:
    """The clock may jump to and fro; every look is at any distance from the install."""
    known, is_over = Consent(INSTALLED), False
    asked: list[datetime] = []
    for span in spans:
        now = INSTALLED + span
        known, step = stepped(known, now)
        if step == "ask":
            assert not is_over
            assert timedelta(0) <= now - INSTALLED < ASKED_FOR
            assert all(abs(now - before) >= ASKED_EVERY for before in asked)
            asked.append(now)
        is_over = is_over or step == "close"
        assert known.opt_in is (False if is_over else None)
    assert len(asked) <= ASKED_FOR // ASKED_EVERY


@given(st.booleans(), SPANS, st.none() | SPANS)
def test_who_answered_is_never_asked(said: bool, span: timedelta, asked: timedelta | None) -> None:
    last = None if asked is None else INSTALLED + asked
    assert next_step(Consent(INSTALLED, said, last), INSTALLED + span) == "nothing"


@given(st.lists(st.timedeltas(timedelta(0), timedelta(hours=20)), max_size=60))
def test_on_a_clock_that_runs_forward_it_ends_after_a_week(steps: list[timedelta]) -> None:
    known, now, asked = Consent(INSTALLED), INSTALLED, 0
    for step in steps:
        now += step
        known, done = stepped(known, now)
        asked += done == "ask"
        assert (known.opt_in is False) == (now - INSTALLED >= ASKED_FOR)
    assert asked <= 7
    assert not steps or asked >= 1 or now - INSTALLED >= ASKED_FOR


def test_every_line_of_the_question_is_known_as_ours() -> None:
    for line in QUESTION.split("\n"):
        assert OWN_REMARK.fullmatch(line)
    for word in ("never text", "prompts", "replies", "paths", "project names", "telemetry off"):
        assert word in QUESTION


def test_an_agent_is_asked_once_a_day_in_the_first_week(desks: Desks) -> None:
    desk = desks()
    desk.note(*NOTES)
    asked = []
    for day in range(12):
        for turn in ("a", "b"):
            key = f"{day}{turn}"
            session = desk.memory.session(key, context=HERON, harness="claude-code")
            if QUESTION in session.inject:
                asked.append(key)
                assert session.inject.endswith(QUESTION)
                assert session.memories
        desk.clock.go(days=1)
    assert asked == [f"{day}a" for day in range(7)]
    known = desk.store.consent("default")
    assert known is not None
    assert (known.opt_in, known.install_date) == (False, INSTALLED)


def test_with_nothing_to_show_it_is_still_asked_and_no_code_is_given(desks: Desks) -> None:
    session = desks().memory.session("first", harness="codex")
    assert session.inject == QUESTION
    assert (session.injection, session.memories) == (None, [])


def test_a_program_is_never_asked_and_leaves_no_trace(desks: Desks) -> None:
    desk = desks()
    desk.note(*NOTES)
    for harness in (None, "pydantic-ai", "claude-agent-sdk", "my own program"):
        session = desk.memory.session(f"run {harness}", context=HERON, harness=harness)
        assert session.memories
        assert "telemetry" not in session.inject
    assert desk.store.consent("default") is None


def test_the_question_takes_no_room_from_memories(desks: Desks) -> None:
    desk = desks()
    desk.note(*NOTES)
    plain = desk.memory.session("plain", context=HERON)
    asked = desk.memory.session("asked", context=HERON, harness="codex")
    assert [one.id for one in asked.memories] == [one.id for one in plain.memories]
    assert asked.inject.endswith(QUESTION)
    desk.clock.go(days=2)
    tokens = desk.store.injections("default", "plain")[0].token_count
    desk.tune(start_tokens=tokens + 60)
    full = desk.memory.session("full", context=HERON, harness="codex")
    assert full.memories
    assert QUESTION not in full.inject
    # Where there was no room, nobody was asked.
    known = desk.store.consent("default")
    assert known is not None
    assert known.last_prompted_at == INSTALLED


def test_an_answer_ends_the_questions_and_can_be_changed(desks: Desks) -> None:
    desk = desks()
    for said in (True, False, True):
        made = consent.answer(desk.memory.services, "default", said)
        assert made.opt_in is said
        desk.clock.go(days=1)
        key = f"after {said} {desk.clock.now}"
        assert desk.memory.session(key, harness="codex").inject == ""


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
    consent.answer(desk.memory.services, "default", True)
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
    consent.answer(desk.memory.services, "default", False)
    judged(desk, "after xyzzykey")
    assert file.read_text("utf-8") == raw


def test_what_cannot_be_kept_is_counted_and_learning_goes_on(desks: Desks, tmp_path: Path) -> None:
    desk = desks()
    consent.answer(desk.memory.services, "default", True)
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
