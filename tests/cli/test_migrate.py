"""The command that moves a store between a file and a database, as a person sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cli_types import Process, Run, Stored

from meritory.ports.file_lock import held

if TYPE_CHECKING:
    from postgres_kit import Server

VARIABLE = "MERITORY_DATABASE_URL"


@pytest.fixture
def file(home: Path, stored: Stored) -> Path:
    """The store of the settings, with two memories in it."""
    stored("The staging database is called heron", "--tag", "x")
    stored("Tea, not coffee", "--project", "p")
    return home / "meritory.db"


def test_a_store_goes_into_the_database_and_is_found_there(
    run: Run, file: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run("list", "--json").object
    monkeypatch.setenv(VARIABLE, address)
    assert run("list", "--json").object["results"] == []
    done = run("migrate")
    assert done.code == 0, done.err
    assert "every row was compared" in done.out
    assert "memories" in done.out
    assert f"set {VARIABLE}" in done.out
    assert run("list", "--json").object == before
    assert "heron" in run("recall", "staging database").out
    again = run("migrate", "--json")
    assert again.code == 0
    assert [one["was_complete"] for one in again.object["users"]] == [True]


def test_it_goes_back_into_a_file(
    run: Run, file: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, address)
    run("migrate")
    done = run("migrate", "--to", str(tmp_path / "back.db"))
    assert done.code == 0, done.err
    assert f"unset {VARIABLE}" in done.out
    monkeypatch.delenv(VARIABLE)
    one, other = run("list", "--json"), run("--store", str(tmp_path / "back.db"), "list", "--json")
    assert one.object == other.object


def test_a_dry_run_counts_and_writes_nothing(
    run: Run, file: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = postgres.empty()
    monkeypatch.setenv(VARIABLE, empty)
    found = run("migrate", "--dry-run", "--json").object
    counts = {one["table"]: one["rows"] for one in found["results"]}
    assert (found["dry_run"], counts["memories"], counts["memory_vectors"]) == (True, 2, 2)
    assert "nothing was written" in run("migrate", "--dry-run").out
    import psycopg

    with psycopg.connect(empty) as raw:
        assert raw.execute("SELECT to_regnamespace('meritory')").fetchone() == (None,)


def test_in_a_database_that_is_only_read_nothing_is_made(
    run: Run, file: Path, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = postgres.empty()
    monkeypatch.setenv(VARIABLE, empty)
    for done in (run("migrate", "--verify-only"), run("migrate", "--to", str(tmp_path / "x.db"))):
        assert (done.code, "there is no store in" in done.err) == (2, True)
    import psycopg

    with psycopg.connect(empty) as raw:
        assert raw.execute("SELECT to_regnamespace('meritory')").fetchone() == (None,)
    assert not (tmp_path / "x.db").exists()


def test_what_came_to_a_file_after_the_move_fails_and_says_what_to_do(
    run: Run, file: Path, stored: Stored, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, address)
    run("migrate")
    assert "default was already moved" in run("migrate", "--dry-run").out
    monkeypatch.delenv(VARIABLE)
    stored("Kites fly")
    monkeypatch.setenv(VARIABLE, address)
    done = run("migrate")
    assert done.code == 1
    assert "memories of default: row 3: missing" in done.out
    assert "nothing was copied again; `meritory export`" in done.out
    assert "--restart" not in done.out


def test_a_difference_is_named_and_fails(
    run: Run, file: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setenv(VARIABLE, address)
    run("migrate")
    assert run("migrate", "--verify-only").code == 0
    with psycopg.connect(address, autocommit=True) as raw:
        raw.execute("UPDATE meritory.memories SET content = 'Coffee' WHERE row = 2")
    done = run("migrate", "--verify-only")
    assert done.code == 1
    assert "memories of default: row 2: differs in content" in done.out
    assert "Coffee" not in done.out
    found = run("migrate", "--verify-only", "--json")
    assert (found.code, found.object["equal"]) == (1, False)
    assert found.object["differences"] == [
        {"user": "default", "table": "memories", "key": {"row": 2}, "what": "content"}
    ]


def test_one_user_gets_another_name(
    run: Run, file: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remember", "Ben likes tea", "--user", "ben")
    monkeypatch.setenv(VARIABLE, address)
    refused = run("migrate", "--as", "anna")
    assert (refused.code, "--user" in refused.err) == (2, True)
    assert run("migrate", "--user", "default", "--as", "anna").code == 0
    assert "heron" in run("list", "--user", "anna").out
    assert run("list", "--user", "ben", "--json").object["results"] == []
    # The other one under his own name, and the first cannot come twice.
    assert run("migrate", "--user", "ben").code == 0
    refused = run("migrate", "--user", "ben", "--as", "anna")
    assert (refused.code, "of 'anna' already" in refused.err) == (1, True)


def test_a_served_file_is_refused_with_the_name_of_who_serves_it(
    run: Run, file: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, address)
    with held(file.with_name(file.name + ".daemon"), str(file), "2026-01-01"):
        done = run("migrate")
    assert done.code == 1
    assert "another daemon already serves" in done.err
    assert "meritory down" in done.err


def test_places_that_make_no_sense_are_told_apart(
    run: Run, file: Path, address: str, tmp_path: Path
) -> None:
    done = run("migrate")
    assert (done.code, VARIABLE in done.err) == (2, True)
    both = run("migrate", "--from", str(file), "--to", str(tmp_path / "x.db"))
    assert (both.code, "meritory backup" in both.err) == (2, True)
    nowhere = run("migrate", "--from", address, "--to", str(tmp_path / "no" / "x.db"))
    assert (nowhere.code, "there is no folder" in nowhere.err) == (2, True)
    none = run("migrate", "--from", str(tmp_path / "none.db"), "--to", address)
    assert (none.code, "there is no store" in none.err) == (2, True)


def test_a_password_is_never_shown(run: Run, file: Path) -> None:
    told = "postgresql://anna:hunter2-swordfish@127.0.0.1:1/none"
    done = run("migrate", "--to", told)
    assert done.code == 1
    assert "hunter2" not in done.out + done.err


def test_a_process_moves_a_store(file: Path, address: str, process: Process) -> None:
    done = process("migrate", "--json", **{VARIABLE: address})
    assert done.returncode == 0, done.stderr
    assert b'"equal": true' in done.stdout
