"""The queue in SQLite: found by its index however much is done, and not stopped by damage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from contract.builders import NOW
from meritory.domain.job import Job, Lease
from meritory.store.sqlite.store import SqliteStore

KIND = "finish"


def put(store: SqliteStore, *keys: str) -> None:
    """Queues jobs that are due."""
    for key in keys:
        store.write("default", lambda t, key=key: t.put_job("default", KIND, key, NOW))


def take(store: SqliteStore, holder: str = "me") -> Job | None:
    """Takes a job for a minute."""
    lease = Lease(holder, NOW + timedelta(hours=1), timedelta(minutes=1))
    return store.write(None, lambda t: t.take_job(lease, [KIND]))


def change(store: SqliteStore, statement: str, *values: Any) -> None:
    """Damages something."""
    store._engine.write(lambda connection: connection.execute(statement, values).fetchall())


def test_a_job_is_taken_without_looking_at_those_that_are_done(store: SqliteStore) -> None:
    put(store, "a", "b")
    statements: list[str] = []
    store._engine._writer.set_trace_callback(statements.append)
    assert take(store) is not None
    store._engine._writer.set_trace_callback(None)
    looks = [statement for statement in statements if "ORDER BY due_at, job" in statement]
    assert len(looks) == 2
    for look in [*looks, *(s for s in statements if s.startswith("UPDATE jobs"))]:
        with store._engine.read() as connection:
            steps = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {look}")]
        assert "SCAN jobs" not in steps, steps
        assert not any("TEMP B-TREE" in step for step in steps), steps
        used = ("INDEX jobs_by_due (state=?", "INTEGER PRIMARY KEY (rowid=?)")
        assert any(name in step for step in steps for name in used), steps


@pytest.mark.parametrize("column", ["due_at", "created_at"])
@pytest.mark.parametrize("text", ["", "nonsense", "2026-99-01T00:00:00", "\x00"])
def test_a_damaged_time_stops_nothing(store: SqliteStore, column: str, text: str) -> None:
    put(store, "bad", "good")
    change(store, f"UPDATE jobs SET {column} = ? WHERE key = 'bad'", text)
    assert len(store.jobs(None, None, 9)) == 2
    assert store.oldest_due(NOW) is not None
    assert {job.key for job in (take(store, "me"), take(store, "you")) if job} == {"bad", "good"}


@pytest.mark.parametrize("text", [None, "", "nonsense"])
def test_a_damaged_lease_is_none(store: SqliteStore, text: str | None) -> None:
    put(store, "a")
    assert take(store) is not None
    assert take(store) is None
    change(store, "UPDATE jobs SET leased_until = ?", text)
    job = take(store, "you")
    assert job is not None
    assert (job.lease, job.attempt_count) == ("you", 2)


@pytest.mark.parametrize("column", ["error", "key", "user", "stage", "created_at"])
def test_a_text_that_is_none_any_more_stops_nothing(store: SqliteStore, column: str) -> None:
    put(store, "bad", "good")
    change(store, f"UPDATE jobs SET {column} = CAST(x'ff41' AS TEXT) WHERE key = 'bad'")
    assert len(store.jobs(None, None, 9)) == 2
    jobs = [take(store, "me"), take(store, "you")]
    assert [job.key for job in jobs if job][-1] == "good"
    # Whatever it says now, it can be worked on and ended.
    for job in jobs:
        assert job is not None
        passed = store.write(job.user, lambda t, job=job: t.pass_stage(job, "one", NOW))
        store.write("default", lambda t, passed=passed: t.finish_job(passed, NOW))
    assert store.job_counts()["done"] == 2
