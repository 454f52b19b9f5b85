"""Candidates of sessions that are over are packed; those of old sessions are thinned."""

from __future__ import annotations

import pytest
from session_kit import NOTES, Desk

from meritory.domain.errors import DiskFull
from meritory.engine.quality import maintenance
from meritory.rank.features import FEATURE_VERSION
from meritory.store.sql import quality

USER = "default"


def hold(desk: Desk, key: str = "run") -> list[str]:
    """A finished session with candidates that were not shown, and one that helped."""
    ids = [one.id for one in desk.store.walk(USER)] or desk.note(*NOTES)
    session = desk.memory.session(key, context=NOTES[0])
    session.rate({shown.handle: 0.9 for shown in session.memories[:1]})
    desk.finish(session, [{"role": "user", "text": NOTES[0]}, {"role": "assistant", "text": "ok"}])
    desk.clock.go(hours=1)
    return ids


def rows_of(desk: Desk) -> int:
    """How many rows of candidates the store has."""
    with desk.store._reading(USER) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM session_memories").fetchall()
    return int(count)


def test_a_packed_session_reads_as_before(desk: Desk) -> None:
    desk.tune(start_limit=2)
    hold(desk)
    before, state, count = desk.rows(), desk.state(), rows_of(desk)
    shown = [memory_id for memory_id, row in before.items() if row.candidate.was_injected]
    proofs = desk.store.proofs(USER, shown)
    assert any(proof.agent_score == 0.9 for found in proofs.values() for proof in found)
    taught = desk.store.taught_sessions(USER, FEATURE_VERSION, 9)
    figures = desk.store.shown_lately(USER, 9)
    whys = [desk.memory.why(memory_id, "run") for memory_id in before]
    maintenance.pack(desk.memory.services, USER)
    assert rows_of(desk) < count
    assert desk.counters()["sessions.packed"] == 1
    assert desk.rows() == before
    assert desk.state() == state
    assert [desk.memory.why(memory_id, "run") for memory_id in before] == whys
    assert desk.store.shown_lately(USER, 9) == figures
    assert desk.store.proofs(USER, shown) == proofs
    again = desk.store.taught_sessions(USER, FEATURE_VERSION, 9)
    assert [one.memory_ids for one in again] == [one.memory_ids for one in taught]
    assert all((a.features == b.features).all() for a, b in zip(taught, again, strict=True))
    # A second run finds nothing to do.
    maintenance.pack(desk.memory.services, USER)
    assert desk.counters()["sessions.packed"] == 1


def test_a_write_unpacks_the_session(desk: Desk) -> None:
    desk.tune(start_limit=2)
    ids = hold(desk)
    maintenance.pack(desk.memory.services, USER)
    before = desk.rows()
    unshown = next(one for one in ids if not before[one].candidate.was_injected)
    desk.store.write(USER, lambda t: t.add_hits(USER, "run", [unshown]))
    after = desk.rows()
    assert after[unshown].fts_hit_count == before[unshown].fts_hit_count + 1
    assert after.keys() == before.keys()
    maintenance.pack(desk.memory.services, USER)
    assert desk.rows() == after


def test_a_session_that_never_ended_is_packed_later(desk: Desk) -> None:
    desk.note(*NOTES)
    desk.memory.session("open", context=NOTES[0])
    maintenance.pack(desk.memory.services, USER)
    assert "sessions.packed" not in desk.counters()
    desk.clock.go(days=3)
    maintenance.pack(desk.memory.services, USER)
    assert desk.counters()["sessions.packed"] == 1


def test_old_sessions_are_thinned(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.tune(start_limit=2)
    monkeypatch.setattr(quality, "FULL_SESSIONS", 1)
    hold(desk, "first")
    hold(desk, "second")
    first, second = desk.rows("first"), desk.rows("second")
    compared = {key: desk.store.comparison(USER, key) for key in ("first", "second")}
    assert compared["first"] is not None and compared["first"].relevance_scores
    unlabelled = {
        memory_id
        for memory_id, row in first.items()
        if not row.candidate.was_injected and row.label is None
    }
    assert unlabelled
    maintenance.pack(desk.memory.services, USER)
    assert desk.counters()["sessions.thinned"] == 1
    assert desk.rows("second") == second
    assert {key: desk.store.comparison(USER, key) for key in compared} == compared
    left = desk.rows("first")
    assert left.keys() == {i for i in first if i not in unlabelled}
    for memory_id, row in left.items():
        # Numbers of a session that no longer trains are kept as exactly as `why` shows them.
        was, kept = first[memory_id].candidate, row.candidate
        assert kept.features == pytest.approx(was.features, rel=1e-3, abs=1e-6)
        assert kept.final_score == pytest.approx(was.final_score, rel=1e-6)
        assert (kept.rank, kept.source, row.handle) == (
            was.rank,
            was.source,
            first[memory_id].handle,
        )
        assert row.label == pytest.approx(first[memory_id].label, rel=1e-6)
    # Features are compared within a session: what is left of one teaches nothing.
    taught = desk.store.taught_sessions(USER, FEATURE_VERSION, 9)
    assert [one.key for one in taught] in ([], ["second"])
    reasons = desk.memory.why(next(iter(unlabelled)), "first")["reasons"]
    assert any("no longer recorded" in reason for reason in reasons)
    # A later write does not make it look whole.
    shown = next(iter(left))
    desk.store.write(USER, lambda t: t.add_hits(USER, "first", [shown]))
    taught = desk.store.taught_sessions(USER, FEATURE_VERSION, 9)
    assert "first" not in [one.key for one in taught]


def test_the_store_is_compacted_once_a_month(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten: list[int] = []
    erase = desk.store.erase_traces

    def counted() -> None:
        rewritten.append(1)
        erase()

    monkeypatch.setattr(desk.store, "erase_traces", counted)
    services = desk.memory.services
    maintenance.compact(services, "eve")
    assert rewritten == []
    for expected in (1, 2):
        for _ in range(2):
            maintenance.compact(services, USER)
        assert len(rewritten) == expected
        desk.clock.go(days=31)


def test_a_compaction_without_room_does_not_stop_retention(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def full() -> None:
        tried.append(1)
        raise DiskFull("no space left")

    monkeypatch.setattr(desk.store, "erase_traces", full)
    services = desk.memory.services
    for _ in range(2):
        maintenance.compact(services, USER)
    # The next month tries again, not the next day.
    assert tried == [1]
    failures = services.observer.failures()
    assert [(one.stage, one.code) for one in failures] == [("compaction", "disk_full")]


def test_a_compacted_store_is_smaller(desk: Desk) -> None:
    ids = desk.note(*(f"{note} {number}" * 20 for number in range(40) for note in NOTES))
    for memory_id in ids:
        desk.memory.update(memory_id, content=f"short {memory_id}")
    services, before = desk.memory.services, desk.store.size_bytes()
    maintenance.compact(services, USER)
    if "SQLite" in desk.store.engine_name():
        assert desk.store.size_bytes() < before
    assert desk.store.check(deep=True) == []


def test_a_session_without_shown_memories_can_be_thinned(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "FULL_SESSIONS", 1)
    desk.note(*NOTES)
    desk.tune(start_limit=0)
    desk.memory.session("silent", context=NOTES[0])
    assert desk.rows("silent")
    desk.clock.go(days=3)
    hold(desk, "second")
    maintenance.pack(desk.memory.services, USER)
    assert desk.counters()["sessions.thinned"] == 1
    assert desk.rows("silent") == {}
    # It can still be written to.
    desk.memory.session("silent", context=NOTES[0])
