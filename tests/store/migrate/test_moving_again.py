"""Moves that are called again: after others wrote, after the source changed, for other users."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest

from meritory.domain.errors import Conflict, Corrupt, InputError, NotFound
from meritory.domain.place import Place
from meritory.engine.transfer.backup import ModelFiles
from meritory.engine.transfer.migrate import MigrationRequest, preview
from meritory.lab.measure import copied
from meritory.store.migrate.postgres_endpoint import PostgresEndpoint
from migrate_kit import all_rows, made, moved, raw_rows, side
from places import open_raw


class Stopped(Exception):
    """Stands for whatever ends a process."""


def stopped_at(row_count: int, source: Place, target: Place) -> None:
    """A move that ends once so many rows were handled."""

    def watch(done: int, total: int) -> None:
        if done >= row_count:
            raise Stopped

    with pytest.raises(Stopped):
        moved(source, target, MigrationRequest(), watch)


def execute(file: Path, statement: str, *values: object) -> None:
    """Changes a file as somebody else would who works with it."""
    with contextlib.closing(open_raw(file)) as raw, raw:
        raw.execute(statement, values)
        raw.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'change'")


# -- what others wrote ----------------------------------------------------------------------------


@pytest.mark.parametrize("row_count", [0, 40])
def test_what_was_written_as_the_user_after_a_broken_off_move_is_not_thrown_away_unasked(
    row_count: int, database: Place, tmp_path: Path
) -> None:
    first = made(tmp_path / "a.db", "anna")
    stopped_at(row_count, first, database)
    raw_rows(database, "INSERT INTO meritory.imports VALUES ('anna', 'theirs', 1, 'today')")
    execute(tmp_path / "a.db", "UPDATE scopes SET agent = 'new' WHERE scope = 1")
    with pytest.raises(Conflict, match="imports of 'anna' that were not moved there") as refused:
        moved(first, database)
    assert "--restart" in (refused.value.hint or "")
    assert ("anna", "theirs", 1, "today") in all_rows(database, "anna")["imports"]
    assert moved(first, database, MigrationRequest(restart=True)).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


def test_the_same_holds_for_a_file_that_others_use(database: Place, tmp_path: Path) -> None:
    moved(made(tmp_path / "a.db", "anna"), database)
    shared = made(tmp_path / "b.db", "ben")
    stopped_at(0, database, shared)
    execute(tmp_path / "b.db", "INSERT INTO imports VALUES ('anna', 'theirs', 1, 'today')")
    raw_rows(database, "UPDATE meritory.tenants SET change = change + 1")
    with pytest.raises(Conflict, match="imports of 'anna' that were not moved there"):
        moved(database, shared)


# -- a source that changed ------------------------------------------------------------------------


def test_a_user_who_changed_after_the_move_is_not_said_to_be_moved(
    database: Place, tmp_path: Path
) -> None:
    first = made(tmp_path / "a.db", "anna", "ben")
    moved(first, database)
    execute(tmp_path / "a.db", "INSERT INTO imports VALUES ('anna', 'new', 1, 'today')")
    report = moved(first, database)
    assert [tally.was_complete for tally in report.users] == [True, True]
    # A file counts changes for all its users together: the other one is the same.
    assert [tally.is_equal for tally in report.users] == [False, True]
    (difference,) = report.differences
    assert (difference.table, difference.key, difference.what) == (
        "imports", {"digest": "new"}, "missing"
    )  # fmt: skip
    assert report.total("copied").total() == 0


def test_a_user_who_changed_before_the_new_file_was_whole_is_copied_anew(
    database: Place, tmp_path: Path
) -> None:
    moved(made(tmp_path / "a.db", "anna", "ben"), database)
    last = Place(file=tmp_path / "last.db")
    stopped_at(sum(map(len, all_rows(database, "anna").values())) * 2 + 20, database, last)
    raw_rows(database, "INSERT INTO meritory.imports VALUES ('anna', 'new', 1, 'today')")
    raw_rows(database, "UPDATE meritory.tenants SET change = change + 1 WHERE \"user\" = 'anna'")
    report = moved(database, last)
    assert report.is_equal
    assert [tally.was_begun_anew for tally in report.users] == [True, False]
    for user in ("anna", "ben"):
        assert all_rows(last, user) == all_rows(database, user)


# -- what an earlier move left --------------------------------------------------------------------


def test_half_a_user_never_appears_with_another_one(database: Place, tmp_path: Path) -> None:
    moved(made(tmp_path / "a.db", "anna", "ben"), database)
    last = Place(file=tmp_path / "last.db")
    stopped_at(50, database, last)
    with pytest.raises(Conflict, match=r"last\.db\.moving holds .* of anna"):
        moved(database, last, MigrationRequest(user="ben"))
    assert not (tmp_path / "last.db").exists()
    assert moved(database, last).is_equal
    assert all_rows(last, "anna") == all_rows(database, "anna")


def test_a_second_name_that_a_kill_left_is_taken_away(database: Place, tmp_path: Path) -> None:
    moved(made(tmp_path / "a.db", "anna"), database)
    last, left = tmp_path / "last.db", tmp_path / "last.db.moving"
    moved(database, Place(file=last))
    os.link(last, left)
    assert moved(database, Place(file=last)).users[0].was_complete
    assert (last.exists(), left.exists()) == (True, False)


# -- what is said before anything is done ---------------------------------------------------------


def test_what_was_moved_before_is_not_counted_again(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    moved(first, database)
    with side(first) as one, side(database) as other:
        report = preview(one, other, MigrationRequest())
    assert report.users[0].was_complete
    assert report.total("found").total() == 0
    with pytest.raises(NotFound) as refused:
        moved(first, database, MigrationRequest(user="carl"))
    assert refused.value.hint == "its users are anna"


def test_models_lie_beside_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    ModelFiles(tmp_path / "real.db").put("anna", 1, b"model")
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    assert ModelFiles(tmp_path / "link.db").versions("anna") == [1]


def test_a_vector_that_no_database_takes_is_named(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    damaged = np.float32(np.nan).tobytes() + bytes(4)
    execute(tmp_path / "a.db", "UPDATE memory_vectors SET vector = ? WHERE row = 2", damaged)
    execute(tmp_path / "a.db", "UPDATE memory_vectors SET vector = x'' WHERE row = 1")
    with pytest.raises(Corrupt, match="the vector of row 2 is damaged"):
        moved(first, database)


def test_nothing_is_measured_on_a_copy_that_is_not_the_same(
    database: Place, tmp_path: Path
) -> None:
    moved(made(tmp_path / "a.db", "anna"), database)
    # A file has no such number, and keeps nothing in its place.
    raw_rows(database, "UPDATE meritory.sessions SET gap_hours = 'NaN' WHERE session = 2")
    with pytest.raises(Corrupt, match="a row of sessions"), copied(database, "anna"):
        pass


@pytest.mark.parametrize("asked", ["pasword=swordfish", "swordfish"])
def test_an_address_that_cannot_be_read_is_not_quoted(asked: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match="cannot be read") as refused:
        PostgresEndpoint(Place(url=f"postgresql://127.0.0.1:1/none?{asked}"))
    assert "swordfish" not in f"{refused.value.message} {refused.value.hint}"
