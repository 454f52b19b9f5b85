"""What is old goes, what somebody needs stays, and memories are never touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from session_kit import HERON, Desk

from meritory.domain.policy import RetentionPolicy
from meritory.domain.session import SessionRecord, Turn
from meritory.engine.quality import maintenance


def talked(desk: Desk, key: str, at: datetime, user: str = "default") -> None:
    """A session that ended, with its transcript."""
    session = SessionRecord(user=user, key=key, started_at=at, state="finished", ended_at=at)
    desk.store.write(user, lambda t: t.open_session(session))
    desk.store.write(user, lambda t: t.put_transcript(user, key, [Turn("user", f"said in {key}")]))


def keep(desk: Desk, **days: Any) -> None:
    policy = replace(desk.memory.services.policy, retention=RetentionPolicy(**days))
    desk.equip(policy=policy)


def left(desk: Desk, *keys: str) -> list[str]:
    return [key for key in keys if desk.store.transcript("default", key)]


def test_transcripts_go_after_their_days(desk: Desk) -> None:
    desk.note(HERON)
    talked(desk, "old", desk.clock.now)
    desk.clock.go(days=60)
    talked(desk, "new", desk.clock.now)
    desk.clock.go(days=29)
    services = desk.memory.services
    assert maintenance.erase(services, "default")["transcripts"] == 0
    desk.clock.go(days=2)
    assert maintenance.due(services, "default")["transcripts"] == 1
    assert left(desk, "old", "new") == ["old", "new"]
    assert maintenance.erase(services, "default")["transcripts"] == 1
    assert left(desk, "old", "new") == ["new"]
    assert desk.counters()["retention.transcripts"] == 1
    assert [one.content for one in desk.memory.page()] == [HERON]


def test_typed_prompts_go_with_transcripts_also_of_a_session_that_never_ended(desk: Desk) -> None:
    session = SessionRecord(user="default", key="open", started_at=desk.clock.now)
    desk.store.write("default", lambda t: t.open_session(session))
    assert desk.store.typed("default", "open") is None
    desk.store.write("default", lambda t: t.add_typed("default", "open", "one\ntwo", 12))
    desk.store.write("default", lambda t: t.add_typed("default", "open", "", 12))
    desk.store.write("default", lambda t: t.add_typed("default", "open", "three", 12))
    assert (desk.store.typed("default", "open") or "").split() == ["two", "three"]
    desk.clock.go(days=91)
    assert maintenance.erase(desk.memory.services, "default")["transcripts"] == 1
    assert desk.store.typed("default", "open") is None


def test_nothing_goes_that_is_kept_for_ever(desk: Desk) -> None:
    keep(desk, transcript_days=0, event_days=0, action_days=0, refusal_days=0, feedback_days=0)
    talked(desk, "old", desk.clock.now)
    desk.clock.go(days=4_000)
    services = desk.memory.services
    assert (maintenance.due(services, "default"), maintenance.erase(services, "default")) == (
        {},
        {},
    )
    assert left(desk, "old") == ["old"]


def test_a_transcript_that_is_yet_to_be_learned_from_stays(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context=HERON)
    session.end([{"role": "user", "text": "where is the heron?"}])
    desk.clock.go(days=100)
    services = desk.memory.services
    assert maintenance.erase(services, "default")["transcripts"] == 0
    assert left(desk, "run") == ["run"]
    desk.memory.drain()
    assert maintenance.erase(services, "default")["transcripts"] == 1
    assert desk.record().state == "finished"


def test_more_than_a_batch_goes_in_one_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BATCH_SIZE", 2)
    keys = [f"s{number}" for number in range(5)]
    for key in keys:
        talked(desk, key, desk.clock.now)
    talked(desk, "theirs", desk.clock.now, "eve")
    desk.clock.go(days=91)
    assert maintenance.erase(desk.memory.services, "default")["transcripts"] == 5
    assert left(desk, *keys) == []
    assert desk.store.transcript("eve", "theirs")


def test_the_job_of_a_day_erases_once(desk: Desk) -> None:
    talked(desk, "old", desk.clock.now)
    desk.clock.go(days=91)
    now = desk.clock.now
    day = maintenance.day_of(now)
    desk.store.write("default", lambda t: t.put_job("default", maintenance.RETENTION_JOB, day, now))
    assert desk.memory.drain() == 1
    assert left(desk, "old") == []
    assert desk.store.job("default", maintenance.RETENTION_JOB, day).state == "done"
    assert desk.memory.drain() == 0
