"""Commands about jobs: what waits and why, another try, and doing it now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_types import Run
from test_cli_shapes import misfits

from meritory.domain.job import Lease
from meritory.store.sqlite.store import SqliteStore

KIND = "finish-session"
JOB = {
    "id": "str",
    "kind": "str",
    "key": "str",
    "state": "str",
    "stage": "str?",
    "attempt_count": "int",
    "created_at": "str",
    "due_at": "str",
    "finished_at": "str?",
    "error": "str?",
}


@pytest.fixture
def queue(home: Path, run: Run) -> Path:
    """A store with a job of every state: `late` waits for long, `bad` is parked after a stage."""
    run("stats")
    store = SqliteStore(home / "meritory.db")
    now = datetime.now(UTC)
    long_ago = now - timedelta(days=3)
    for key in ("bad", "good", "held"):
        store.write("default", lambda t, key=key: t.put_job("default", KIND, key, long_ago))
        job = store.write(None, lambda t: t.take_job(Lease("me", now, timedelta(hours=1)), [KIND]))
        assert job is not None
        assert job.key == key
        if key == "bad":
            job = store.write(job.user, lambda t, job=job: t.pass_stage(job, "judge", now))
            store.write(job.user, lambda t, job=job: t.fail_job(job, "label: it broke", None))
        elif key == "good":
            store.write(job.user, lambda t, job=job: t.finish_job(job, now))
    store.write("default", lambda t: t.put_job("default", KIND, "late", now + timedelta(days=3)))
    store.write(
        "somebody", lambda t: t.put_job("somebody", KIND, "secret", now + timedelta(days=3))
    )
    store.close()
    return home / "meritory.db"


def job(path: Path, key: str) -> tuple[str, str, bool]:
    """State and stage of a job, and whether it is due."""
    store = SqliteStore(path)
    found = store.job("default", KIND, key)
    store.close()
    return found.state, found.stage, found.due_at <= datetime.now(UTC)


def test_jobs_are_listed(run: Run, queue: Path) -> None:
    done = run("jobs")
    assert done.code == 0
    rows = [line.split(maxsplit=6) for line in done.out.splitlines()]
    assert rows == [
        ["KIND", "KEY", "STATE", "STAGE", "ATTEMPTS", "AGE", "ERROR"],
        [KIND, "late", "queued", "-", "0", "now"],
        [KIND, "held", "running", "-", "1", "3d"],
        [KIND, "good", "done", "-", "1", "3d"],
        [KIND, "bad", "parked", "judge", "1", "3d", "label: it broke"],
    ]


def test_jobs_are_listed_by_state_and_for_programs(run: Run, queue: Path) -> None:
    for arguments in (("jobs", "--json"), ("--json", "jobs")):
        done = run(*arguments)
        assert misfits(done.object, {"results": [JOB]}) == []
        assert [found["key"] for found in done.object["results"]] == ["late", "held", "good", "bad"]
    (bad,) = run("jobs", "--state", "parked", "--json").object["results"]
    assert (bad["id"], bad["stage"], bad["error"]) == (f"{KIND}/bad", "judge", "label: it broke")
    assert len(run("jobs", "--limit", "2", "--json").object["results"]) == 2
    assert run("jobs", "--state", "lost").code == 2
    assert [j["key"] for j in run("jobs", "--user", "somebody", "--json").object["results"]] == [
        "secret"
    ]


def test_no_jobs_are_no_failure(run: Run) -> None:
    done = run("jobs", "--json")
    assert (done.code, done.object) == (0, {"results": [], "notes": ["there are no jobs"]})
    assert run("jobs", "--state", "parked", "--json").object["notes"] == ["no job is parked"]


@pytest.mark.parametrize("name", ["bad", f"{KIND}/bad"])
def test_a_parked_job_is_queued_again_where_it_stopped(run: Run, queue: Path, name: str) -> None:
    done = run("jobs", "retry", name, "--json")
    assert done.code == 0
    assert misfits(done.object, {"results": [JOB], "notes": "list"}) == []
    (found,) = done.object["results"]
    assert (found["key"], found["state"], found["stage"]) == ("bad", "queued", "judge")
    assert job(queue, "bad") == ("queued", "judge", True)


def test_a_job_that_waits_need_not_wait(run: Run, queue: Path) -> None:
    assert job(queue, "late") == ("queued", "", False)
    done = run("jobs", "retry", "late")
    assert done.code == 0
    assert "meritory jobs run" in done.err + done.out
    assert job(queue, "late") == ("queued", "", True)


@pytest.mark.parametrize("key", ["good", "held", "unheard-of", "secret", ""])
def test_what_does_not_wait_cannot_be_retried(run: Run, queue: Path, key: str) -> None:
    done = run("jobs", "retry", key, "--json")
    assert done.code == 1
    assert done.object["error"]["code"] == "not_found"


def test_jobs_can_be_run_now(run: Run, queue: Path) -> None:
    done = run("jobs", "run", "--json")
    assert done.code == 1
    assert done.object["done_count"] == 0
    assert done.object["counts"] == {"queued": 2, "running": 1, "done": 1, "parked": 1}
    done = run("jobs", "run")
    assert "0 jobs done; now 2 queued, 1 running, 1 done, 1 parked" in done.out
    assert "meritory jobs retry KEY" in done.out + done.err


def test_nothing_to_run_is_no_failure(run: Run) -> None:
    done = run("jobs", "run")
    assert (done.code, done.out) == (0, "0 jobs done; now 0 queued, 0 running, 0 done, 0 parked\n")
