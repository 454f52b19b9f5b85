"""The weekly sweep: demotes what had occasion and was of no use, and only that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from session_kit import HERON, LOGIN, NOTES, SHIP, STRIPE, TABS, Desk
from upkeep_kit import active, derived, set_policy, shown, state

from meritory.api.memory import Memory
from meritory.domain.errors import Conflict
from meritory.domain.memory import Scope
from meritory.engine.jobs.runner import Background
from meritory.engine.pipeline import job_handlers
from meritory.engine.quality import janitor
from meritory.engine.quality.maintenance import FIRST_LOOK_AFTER, LOOK_EVERY, Schedule


def due(desk: Desk) -> set[str]:
    """The texts of what a sweep would touch."""
    return {one.memory.content for one in janitor.plan(desk.memory.services, "default").due}


def run(desk: Desk) -> janitor.Sweep:
    services = desk.memory.services
    return janitor.run_now(services, Background(services, job_handlers(services)).runner, "default")


# -- who is due -------------------------------------------------------------------------------


def test_each_provenance_has_its_own_time(desk: Desk) -> None:
    derived(desk, HERON)
    desk.note(TABS, provenance="episode_summary")
    desk.note(SHIP)
    fell_due: dict[str, int] = {}
    for month in range(1, 15):
        active(desk, 30)
        for text in due(desk):
            fell_due.setdefault(text, month)
    assert fell_due == {HERON: 3, TABS: 6, SHIP: 12}


def test_a_memory_that_was_shown_is_not_due(desk: Desk) -> None:
    (heron, tabs) = derived(desk, HERON, TABS)
    active(desk, 60)
    shown(desk, heron, desk.clock.now)
    active(desk, 35)
    assert due(desk) == {TABS}
    active(desk, 60)
    assert due(desk) == {HERON, TABS}
    assert tabs


def test_a_scope_that_rests_loses_nothing(desk: Desk) -> None:
    derived(desk, HERON)
    active(desk, 60)
    for _ in range(24):
        desk.clock.go(days=30)
        assert due(desk) == set()
    # The first session after two years is no reason either; a third active month is.
    active(desk, 3)
    assert due(desk) == set()
    active(desk, 30)
    assert due(desk) == {HERON}


def test_a_few_sessions_are_no_occasion(desk: Desk) -> None:
    derived(desk, HERON)
    # Four a month, for two years.
    active(desk, 730, every_days=7.5)
    assert due(desk) == set()


@pytest.mark.parametrize(
    ("memory", "session", "counts"),
    [
        ({}, {"project": "shop"}, True),
        ({}, {"project": "other"}, False),
        ({"project": None}, {"project": "other"}, True),
        ({"project": None}, {}, True),
        ({"agent": "coder"}, {"project": "shop", "agent": "coder"}, True),
        ({"agent": "coder"}, {"project": "shop"}, False),
        ({"agent": "coder", "project": None}, {"project": "x", "agent": "coder"}, True),
        ({}, {"project": "shop", "user": "eve"}, False),
    ],
)
def test_only_sessions_that_may_see_a_memory_count(
    desk: Desk, memory: dict[str, Any], session: dict[str, Any], counts: bool
) -> None:
    derived(desk, HERON, **memory)
    active(desk, 95, Scope(**session))
    assert due(desk) == ({HERON} if counts else set())


@pytest.mark.parametrize(
    "fields",
    [
        {"pinned": True, "origin": "user"},
        {"kind": "constraint", "origin": "user"},
        {"origin": "web"},
        {"valid_until": "2026-04-01"},
    ],
    ids=["pinned", "constraint", "untrusted", "expired"],
)
def test_some_are_exempt(desk: Desk, fields: dict[str, Any]) -> None:
    (made,) = desk.note(HERON, **{"provenance": "assistant_derived", "origin": "agent", **fields})
    derived(desk, TABS)
    active(desk, 200)
    assert due(desk) == {TABS}
    run(desk)
    assert state(desk.memory, made)[0] == 0


def test_what_waits_for_a_person_is_exempt(desk: Desk) -> None:
    derived(desk, HERON, pinned=True)
    active(desk, 200)
    assert desk.memory.page()[0].tags == ("proposed:pin",)
    assert due(desk) == set()


def test_what_is_gone_is_left_alone(desk: Desk) -> None:
    (heron, tabs) = derived(desk, HERON, TABS)
    desk.memory.forget(heron)
    desk.memory.remember(SHIP, supersedes=tabs)
    active(desk, 200)
    assert due(desk) == set()


def test_saying_it_again_begins_its_time_anew(desk: Desk) -> None:
    derived(desk, HERON)
    active(desk, 80)
    desk.memory.remember(HERON, provenance="assistant_derived", origin="agent")
    active(desk, 60)
    assert due(desk) == set()


# -- what a sweep does ------------------------------------------------------------------------


def test_a_sweep_demotes_one_notch_and_says_why(desk: Desk) -> None:
    (heron,) = derived(desk, HERON)
    active(desk, 100)
    before = desk.memory.get(heron)
    assert run(desk) == janitor.Sweep("janitor/2026-W24", 1, 0)
    after = desk.memory.get(heron)
    assert (after.demotion, after.confidence) == (1, round(before.confidence * 0.8, 6))
    assert (after.provenance, after.content) == (before.provenance, before.content)
    entry = desk.memory.history(heron)[-1]
    assert (entry.action, entry.actor, entry.operation) == ("demote", "janitor", "janitor/2026-W24")
    assert entry.why.startswith("never shown, although sessions went on in 3 months since 2026-03")
    assert desk.counters()["janitor.demoted"] == 1
    # It is still found, only lower.
    assert [hit.id for hit in desk.memory.recall(HERON)] == [heron]


def test_demotions_stop_at_the_last_notch(desk: Desk) -> None:
    (told,) = desk.note(SHIP)
    (heron,) = derived(desk, HERON)
    levels = set()
    for _ in range(13):
        active(desk, 120)
        run(desk)
        levels.add(state(desk.memory, heron)[0])
    assert levels == {1}
    assert state(desk.memory, told) == (2, 0.512)
    assert desk.memory.get(heron).is_live


def test_the_weeks_after_change_nothing_more(desk: Desk) -> None:
    (told,) = desk.note(SHIP)
    active(desk, 361)
    run(desk)
    for _ in range(8):
        active(desk, 7)
        run(desk)
    assert state(desk.memory, told)[0] == 1


def test_culling_is_a_choice_and_only_of_what_nobody_looks_for(desk: Desk) -> None:
    (heron, tabs) = derived(desk, HERON, TABS)
    set_policy(desk, cull=True)
    active(desk, 95)
    assert (run(desk).demoted, run(desk).forgotten) == (2, 0)
    desk.memory.recall(TABS, limit=1)
    assert desk.memory.services.counter is not None
    active(desk, 95)
    desk.memory.services.counter.flush()
    assert run(desk).forgotten == 1
    assert not desk.memory.get(heron).is_live
    assert desk.memory.get(tabs).is_live
    entry = desk.memory.history(heron)[-1]
    assert (entry.action, entry.actor) == ("delete", "janitor")
    desk.memory.undo(heron)
    assert desk.memory.get(heron).is_live


def test_a_sweep_has_a_limit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "SWEEP_LIMIT", 4)
    monkeypatch.setattr(janitor, "BATCH_SIZE", 3)
    derived(desk, *NOTES)
    active(desk, 100)
    assert janitor.plan(desk.memory.services, "default", 4).is_cut
    assert [run(desk).demoted for _ in range(3)] == [4, 2, 0]


# -- undo -------------------------------------------------------------------------------------


def test_one_undo_takes_back_the_whole_sweep(desk: Desk) -> None:
    made = derived(desk, HERON, TABS, SHIP)
    active(desk, 95)
    before = [state(desk.memory, one) for one in made]
    run(desk)
    desk.memory.undo(made[0])
    desk.memory.update(made[1], content="The lathe is blue", confidence=0.9)
    week, count = janitor.undo_sweep(desk.memory.services, "default")
    assert (week, count) == ("2026-W23", 2)
    assert state(desk.memory, made[0]) == before[0]
    # What somebody changed since stays as they want it.
    assert state(desk.memory, made[1]) == (0, 0.9)
    assert desk.memory.get(made[1]).content == "The lathe is blue"
    assert state(desk.memory, made[2]) == before[2]
    # Nothing of it is due again at once.
    assert run(desk).demoted == 0
    with pytest.raises(Conflict, match="no sweep to undo"):
        janitor.undo_sweep(desk.memory.services, "default")


def test_undoing_goes_back_sweep_by_sweep(desk: Desk) -> None:
    (told,) = desk.note(SHIP)
    for _ in range(2):
        active(desk, 365)
        run(desk)
    assert state(desk.memory, told)[0] == 2
    for left in (1, 0):
        janitor.undo_sweep(desk.memory.services, "default")
        assert state(desk.memory, told)[0] == left


def test_nobody_undoes_anothers_sweep(desk: Desk) -> None:
    derived(desk, HERON)
    active(desk, 95)
    run(desk)
    with pytest.raises(Conflict):
        janitor.undo_sweep(desk.memory.services, "eve")


# -- the job ----------------------------------------------------------------------------------


def test_the_calendar_queues_each_job_once(desk: Desk) -> None:
    desk.note(HERON)
    desk.memory.view("eve").remember(TABS)
    calendar = Schedule(desk.memory.services)
    assert calendar.look() == 0
    desk.clock.go(seconds=FIRST_LOOK_AFTER.total_seconds())
    assert calendar.look() == 6
    assert calendar.look() == 0
    again = Schedule(desk.memory.services)
    desk.clock.go(seconds=LOOK_EVERY.total_seconds())
    assert (calendar.look(), again.look()) == (0, 0)
    desk.clock.go(days=1)
    assert calendar.look() == 4
    jobs = [(job.user, job.kind, job.key) for job in desk.store.jobs(None, None, 99)]
    assert sorted(jobs) == sorted(
        (user, kind, key)
        for user in ("default", "eve")
        for kind, key in (
            ("janitor", "2026-W10"),
            ("retention", "2026-03-02"),
            ("retention", "2026-03-03"),
            ("pairs", "2026-03-02"),
            ("pairs", "2026-03-03"),
        )
    )


def test_the_worker_of_a_daemon_looks_at_the_calendar(desk: Desk) -> None:
    (heron,) = derived(desk, HERON)
    services = desk.memory.services
    works = Background(services, job_handlers(services))
    works.schedule(Schedule(services).look)
    active(desk, 100)
    works.nudge()
    deadline = time.monotonic() + 10
    while state(desk.memory, heron)[0] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    works.stop()
    assert {job.kind for job in desk.store.jobs(None, None, 9)} == {"janitor", "retention", "pairs"}


def test_a_janitor_that_is_switched_off_is_not_queued(desk: Desk) -> None:
    set_policy(desk, enabled=False)
    calendar = Schedule(desk.memory.services)
    desk.clock.go(hours=1)
    assert calendar.look() == 2
    assert {job.kind for job in desk.store.jobs(None, None, 9)} == {"retention", "pairs"}


def test_a_sweep_that_was_cut_off_goes_on_and_does_nothing_twice(
    desk: Desk, desks: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "BATCH_SIZE", 1)
    made = derived(desk, HERON, TABS, SHIP, LOGIN, STRIPE)
    active(desk, 95)
    week = janitor.week_of(desk.clock.now)
    desk.store.write(
        "default", lambda t: t.put_job("default", janitor.JANITOR_JOB, week, desk.clock.now)
    )
    writes = 0
    whole = desk.store.write

    def cut(user: str, work: Callable[..., Any]) -> Any:
        nonlocal writes
        writes += 1
        if writes > 3:
            raise KeyboardInterrupt
        return whole(user, work)

    monkeypatch.setattr(desk.store, "write", cut)
    with pytest.raises(KeyboardInterrupt):
        desk.memory.drain()
    monkeypatch.setattr(desk.store, "write", whole)
    levels = [state(desk.memory, one)[0] for one in made]
    assert sorted(levels) == [0, 0, 0, 1, 1]
    other = desks()
    desk.clock.go(hours=2)
    assert other.memory.drain() >= 1
    assert [state(other.memory, one)[0] for one in made] == [1] * 5
    assert [len(other.memory.history(one)) for one in made] == [2] * 5
    assert other.counters()["janitor.demoted"] == 5
    assert other.memory.drain() == 0


def test_two_processes_at_once_demote_once(desk: Desk, desks: Callable[..., Desk]) -> None:
    (heron,) = derived(desk, HERON)
    active(desk, 95)
    other = desks()
    week = janitor.week_of(desk.clock.now)
    first = janitor.sweep(desk.memory.services, "default", week)
    planned: Memory = other.memory
    assert (first.demoted, janitor.sweep(planned.services, "default", week).demoted) == (1, 0)
    assert state(desk.memory, heron)[0] == 1


def test_weeks_are_named_as_iso_has_it() -> None:
    from datetime import UTC, datetime

    assert janitor.week_of(datetime(2027, 1, 3, tzinfo=UTC)) == "2026-W53"
    assert janitor.week_of(datetime(2027, 1, 4, tzinfo=UTC)) == "2027-W01"
