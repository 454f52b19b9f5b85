"""janitor, gate and the quality figures of stats, as a person would run them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_types import Run

from meritory.api.memory import Memory
from meritory.domain.session import SessionRecord
from meritory.store.contract.store import Transaction

HERON = "The staging database is called heron"
AGAIN = "I think the staging database is called heron"
Stored = Callable[..., str]


@pytest.fixture
def stale(home: Path, run: Run) -> str:
    """A memory that a busy half year had no use for."""
    now = datetime.now(UTC)
    begun = now - timedelta(days=200)
    home.mkdir(mode=0o700)
    clock = [begun]
    with Memory(home / "meritory.db", clock=lambda: clock[0], background=False) as memory:
        made = memory.remember(HERON, provenance="assistant_derived", origin="agent")
        sessions = [
            SessionRecord(user="default", key=f"s{n}", started_at=begun + timedelta(days=2 * n))
            for n in range(99)
        ]

        def work(transaction: Transaction) -> None:
            for session in sessions:
                transaction.open_session(session)

        memory.services.store.write("default", work)
    return made.id


def merged(run: Run, stored: Stored) -> int:
    stored(HERON)
    stored(AGAIN)
    (one,) = run("gate", "audit", "--json").object["results"]
    return int(one["entry"])


# -- janitor ----------------------------------------------------------------------------------


def test_a_dry_run_lists_and_changes_nothing(run: Run, stale: str) -> None:
    for arguments in (("janitor", "--dry-run"), ("janitor", "run", "--dry-run")):
        told = run(*arguments, "--json").object
        (one,) = told["results"]
        assert (one["id"], one["fate"], one["active_months"]) == (stale, "demote", 6)
        assert (told["due"], told["looked_at"], told["is_cut"]) == (1, 1, False)
        assert set(told["erase"]) == {"transcripts", "events", "actions", "refusals"}
        shown = run(*arguments)
        assert "although sessions went on in 6 months" in " ".join(shown.out.split())
    assert run("show", stale, "--json").object["memory"]["demotion"] == 0


def test_a_sweep_is_run_told_and_undone(run: Run, stale: str) -> None:
    assert run("janitor", "--json").object["janitor"]["state"] == "not yet"
    told = run("janitor", "run", "--json").object
    assert (told["demoted"], told["forgotten"]) == (1, 0)
    assert run("janitor", "run", "--json").object["demoted"] == 0
    memory = run("show", stale, "--json").object["memory"]
    assert (memory["demotion"], memory["confidence"]) == (1, 0.64)
    assert "demoted" in run("show", stale).out
    status = run("janitor", "status", "--json").object
    assert (status["demoted"], status["janitor"]["state"]) == (1, "done")
    assert "never shown" in run("history", stale).out
    assert run("janitor", "undo", "--json").object["restored"] == 1
    assert run("show", stale, "--json").object["memory"]["demotion"] == 0
    again = run("janitor", "undo", "--json")
    assert (again.code, again.object["error"]["code"]) == (1, "conflict")


def test_one_memory_of_a_sweep_is_undone_alone(run: Run, stale: str) -> None:
    run("janitor", "run")
    assert run("undo", stale, "--json").object["results"][0]["demotion"] == 0


def test_what_is_exempt_is_not_listed(run: Run, stale: str) -> None:
    assert run("edit", stale, "--pin").code == 0
    assert run("janitor", "--dry-run", "--json").object["results"] == []


# -- gate -------------------------------------------------------------------------------------


def test_merges_are_audited(run: Run, stored: Stored) -> None:
    entry = merged(run, stored)
    listed = run("gate", "audit").out
    assert HERON.split()[-1] in listed
    told = run("gate", "audit", "--right", str(entry), "--json").object
    assert (told["audited"]["total"], told["audited"]["wrong"]) == (1, 0)
    assert run("gate", "audit", "--json").object["results"] == []
    wrong = run("gate", "audit", "--wrong", str(entry))
    assert f"--entry {entry}" in wrong.err + wrong.out
    metrics = run("gate", "metrics", "--json").object
    assert metrics["outcomes"]["merged"] == 1
    assert metrics["trigger_rate"] == 0.5
    assert metrics["audited"]["rate"] == 1.0
    assert {one["outcome"] for one in metrics["results"]} == {"stored", "merged"}


def test_a_split_counts_as_wrong(run: Run, stored: Stored) -> None:
    entry = merged(run, stored)
    memory_id = run("merges", "--json").object["results"][0]["id"]
    assert run("split", memory_id, "--entry", str(entry)).code == 0
    metrics = run("gate", "--json").object
    assert (metrics["split"], metrics["audited"]["wrong"]) == (1, 1)


@pytest.mark.parametrize(
    "given",
    [
        ("--right", "999999"),
        ("--wrong", "0"),
        ("--right", "-1"),
        ("--wrong", "x"),
        ("--limit", "0"),
    ],
)
def test_nonsense_marks_nothing(run: Run, stored: Stored, given: tuple[str, ...]) -> None:
    entry = merged(run, stored)
    done = run("gate", "audit", "--right", str(entry), *given, "--json")
    assert done.code in (1, 2)
    assert "error" in done.object
    assert run("gate", "--json").object["audited"]["total"] == 0


def test_a_merge_is_not_right_and_wrong_and_not_anothers(run: Run, stored: Stored) -> None:
    entry = str(merged(run, stored))
    assert run("gate", "audit", "--right", entry, "--wrong", entry).code != 0
    assert run("gate", "audit", "--right", entry, "--user", "eve").code != 0
    assert run("gate", "--json").object["audited"]["total"] == 0


def test_tuning_shows_thresholds_and_writes_nothing(run: Run, stored: Stored) -> None:
    stored("Anna needs an invoice for the hotel")
    stored("Anna requires an invoice for the hotel", "--keep")
    before = run("export").out
    told = run("gate", "tune", "--json").object
    assert [row["threshold"] for row in told["results"]][:2] == [0.5, 0.55]
    assert told["results"][0]["merged"] == 1
    assert (told["recommended"], told["looked_at"]) == (None, 2)
    shown = run("gate", "tune", "--threshold", "0.6", "--sample", "1")
    assert "0.75 (now)" in shown.out
    assert "No change is recommended" in shown.out
    assert run("export").out == before
    assert run("gate", "tune", "--threshold", "2").code == 2


# -- figures ----------------------------------------------------------------------------------


def test_stats_have_a_section_on_quality(run: Run, stored: Stored) -> None:
    merged(run, stored)
    told = run("stats", "--json").object["quality"]
    assert told["gate_trigger"]["rate"] == 0.5
    assert [one["name"] for one in told["by_provenance"]] == [
        "user_stated",
        "assistant_derived",
        "episode_summary",
    ]
    lines = run("stats").out
    for words in ("Quality", "wrong merges", "redundant additions", "shown below the floor"):
        assert words in lines


def test_searches_are_shown_with_the_memory(run: Run, stored: Stored) -> None:
    made = stored(HERON)
    assert run("show", made, "--json").object["retrieval_count"] == 0
    run("recall", "heron")
    run("recall", "heron")
    told = run("show", made, "--json").object
    assert told["retrieval_count"] == 2
    assert told["last_retrieved"]
    assert "by 2 searches" in run("show", made).out
