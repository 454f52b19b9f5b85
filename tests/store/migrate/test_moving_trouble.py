"""Moves that are cut off, refused, or found to be wrong."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from meritory.domain.errors import Busy, Conflict, Corrupt, InputError, NotFound, StorageError
from meritory.domain.job import Lease
from meritory.domain.place import Place
from meritory.engine.transfer.backup import ModelFiles
from meritory.engine.transfer.migrate import MigrationRequest, move, preview, verify
from meritory.store import open_store
from meritory.store.migrate.endpoint import EndpointWriter
from meritory.store.sql.tables import BY_NAME
from meritory.store.sqlite.store import SqliteStore
from migrate_kit import all_rows, made, moved, raw_rows, side
from places import open_raw
from postgres_kit import Server, address_of

SMALL = MigrationRequest(batch_rows=2)


class Stopped(Exception):
    """Stands for whatever ends a process."""


class Stop:
    """Ends a move after so many batches."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, done: int, total: int) -> None:
        assert 0 <= done <= total
        self.left -= 1
        if self.left < 0:
            raise Stopped


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_move_that_is_stopped_after_every_batch_goes_on(
    goes_back: bool, database: Place, tmp_path: Path
) -> None:
    first, last = made(tmp_path / "a.db", "anna"), Place(file=tmp_path / "last.db")
    before = all_rows(first, "anna")
    source, target = first, database
    if goes_back:
        moved(first, database)
        source, target = database, last
    stops = 0
    # Copying goes on after every stop; comparing begins anew, so that there it must come further.
    for after in itertools.chain(range(1, 9), itertools.count(9, 9)):
        try:
            moved(source, target, SMALL, Stop(after))
        except Stopped:
            stops += 1
            assert not (tmp_path / "last.db").exists()
        else:
            break
    assert stops >= 10
    assert all_rows(target, "anna") == before


def test_a_move_that_is_stopped_between_two_models_goes_on(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    for version in range(1, 4):
        ModelFiles(tmp_path / "a.db").put("anna", version, bytes([version]))
    jobs = len(all_rows(first, "anna")["jobs"])
    for left in (2, 1):

        def stop(done: int, total: int, left: int = left) -> None:
            # Only jobs come after models.
            if done == total // 2 - jobs - left:
                raise Stopped

        with pytest.raises(Stopped):
            moved(first, database, SMALL, stop)
    assert moved(first, database, SMALL).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


def test_every_batch_is_one_transaction_with_its_note(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    copied = set()
    for after in range(1, 12):
        with pytest.raises(Stopped):
            moved(first, database, SMALL, Stop(1))
        with side(database) as opened, opened.reading() as reading:
            noted = reading.progress("anna")
            assert noted is not None and not noted.is_complete
            for name, count in noted.copied.items():
                assert reading.count("anna", BY_NAME[name]) == count
            copied.add(sum(noted.copied.values()))
        assert len(copied) == after
    assert moved(first, database).users[0].copied_before == max(copied)


_CHILD = """
import sys
from migrate_kit import moved
from meritory.engine.transfer.migrate import MigrationRequest
from meritory.domain.place import Place
def watch(done, total):
    print(done, total, flush=True)
moved(Place.of(sys.argv[1]), Place.of(sys.argv[2]), MigrationRequest(batch_rows=1), watch)
"""


@pytest.mark.parametrize("is_file", [False, True])
def test_what_fails_within_a_batch_leaves_nothing_of_it(
    is_file: bool, database: Place, tmp_path: Path
) -> None:
    place = Place(file=tmp_path / "last.db") if is_file else database

    def work(writing: EndpointWriter) -> None:
        writing.note("moving anna", "half")
        raise Stopped

    with side(place, is_target=True) as opened:
        with pytest.raises(Stopped):
            opened.write("anna", work)
        with opened.reading() as reading:
            assert reading.progress("anna") is None


def test_a_file_that_came_to_be_there_meanwhile_is_kept(database: Place, tmp_path: Path) -> None:
    moved(made(tmp_path / "a.db", "anna"), database)
    last = tmp_path / "last.db"
    with pytest.raises(StorageError):
        moved(database, Place(file=last), watch=lambda done, total: last.write_text("mine"))
    assert last.read_text() == "mine"


@pytest.mark.parametrize(("goes_back", "waits_ms"), [(False, (0, 7)), (True, (3,))])
def test_a_killed_process_leaves_nothing_that_cannot_be_gone_on_with(
    goes_back: bool, waits_ms: tuple[int, ...], database: Place, tmp_path: Path
) -> None:
    first, last = made(tmp_path / "a.db", "anna", "ben"), Place(file=tmp_path / "last.db")
    source, target = first, database
    if goes_back:
        moved(first, database)
        source, target = database, last
    names = [place.url or str(place.file) for place in (source, target)]
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    reached = 0
    for wait_ms in waits_ms:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, *names],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(folders)},
        )
        assert child.stdout is not None
        with child, child.stdout:
            for line in child.stdout:
                reached = int(line.split()[0])
                if reached >= 30 * (1 + wait_ms % 5):
                    break
            time.sleep(wait_ms / 1000)
            child.kill()
    assert reached > 0
    report = moved(source, target)
    assert report.is_equal
    assert sum(tally.copied_before for tally in report.users) > 0
    for user in ("anna", "ben"):
        assert all_rows(target, user) == all_rows(first, user)


def test_nobody_sees_a_user_who_is_only_half_there(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    with contextlib.closing(open_raw(tmp_path / "a.db")) as raw, raw:
        raw.execute("UPDATE jobs SET state = 'queued', due_at = '2020-01-01T00:00:00.000Z'")
    store = open_store(database)
    lease = Lease("me", datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1))
    seen: list[object] = []
    kind = "kind 0 ☃ '\"\\\t{}"

    def look(done: int, total: int) -> None:
        if done == total:
            return
        seen.extend(store.users())
        seen.extend(filter(None, [store.write(None, lambda t: t.take_job(lease, [kind]))]))

    assert moved(first, database, SMALL, look).is_equal
    assert seen == []
    assert store.users() == ["anna"]
    assert store.write(None, lambda t: t.take_job(lease, [kind])) is not None
    store.close()


@pytest.mark.parametrize("is_late", [False, True])
def test_somebody_who_writes_as_the_user_meanwhile_is_noticed(
    is_late: bool, database: Place, tmp_path: Path
) -> None:
    """Also when all is copied, and looked at already."""
    first = made(tmp_path / "a.db", "anna")
    store = open_store(database)

    def write(done: int, total: int) -> None:
        if done > (total // 2 if is_late else 20):
            store.write("anna", lambda t: t.count("anna", "writes"))

    with pytest.raises(Conflict, match="another process writes as 'anna'"):
        moved(first, database, SMALL, write)
    store.close()


# -- differences ----------------------------------------------------------------------------------

PLANTED = {
    "UPDATE memory_stats SET usefulness = usefulness + 1e-12 WHERE row = 2": (
        "memory_stats", {"row": 2}, "usefulness"),
    "DELETE FROM uses WHERE memory_id LIKE '% 1 %'": (
        "uses", {"session": 2, "memory_id": "memory_id 1 ☃ '\"\\\t{}"}, "missing"),
    "INSERT INTO counters VALUES ('anna', 'more', 1)": ("counters", {"name": "more"}, "extra"),
    "UPDATE memory_vectors SET vector = '[0,0,0,1]' WHERE row = 1": (
        "memory_vectors", {"row": 1}, "vector"),
    "UPDATE consents SET opt_in = NULL": ("consents", {}, "opt_in"),
    "UPDATE jobs SET error = '' WHERE job = 3": ("jobs", {"job": 3}, "error"),
}  # fmt: skip


def test_every_planted_difference_is_found_and_named(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    moved(first, database)
    with side(first) as one, side(database) as other:
        clean = verify(one, other, SMALL, lambda done, total: None)
        assert clean.is_equal and clean.differences == []
    for statement in PLANTED:
        raw_rows(database, f"SET search_path = meritory, public; {statement}")
    with side(first) as one, side(database) as other:
        report = verify(one, other, SMALL, lambda done, total: None)
    assert not report.is_equal
    found = [(one.table, one.key, one.what) for one in report.differences]
    assert sorted(map(str, found)) == sorted(map(str, PLANTED.values()))
    assert report.total("differing").total() == len(PLANTED)
    digests = [
        {name: one.digests for name, one in each.users[0].tables.items()}
        for each in (clean, report)
    ]
    changed = {name for name in digests[0] if digests[0][name] != digests[1][name]}
    assert changed == {table for table, _, _ in PLANTED.values()}


def test_a_difference_that_comes_up_on_the_way_leaves_the_move_unfinished(
    database: Place, tmp_path: Path
) -> None:
    first = made(tmp_path / "a.db", "anna")

    def plant(done: int, total: int) -> None:
        if done == 30:
            raw_rows(database, "UPDATE meritory.scopes SET agent = 'other' WHERE scope = 2")

    for watch in (plant, Stop(1_000)):
        report = moved(first, database, SMALL, watch)
        (difference,) = report.differences
        assert (difference.table, difference.key) == ("scopes", {"scope": 2})
        with side(database) as opened, opened.reading() as reading:
            noted = reading.progress("anna")
            assert noted is not None and not noted.is_complete
            assert reading.users() == []
    assert moved(first, database, MigrationRequest(restart=True)).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


def test_jobs_that_come_out_otherwise_leave_the_move_unfinished(
    database: Place, tmp_path: Path
) -> None:
    """They are compared last, before anybody could see the user."""
    first = made(tmp_path / "a.db", "anna")
    raw_rows(
        database,
        """CREATE FUNCTION meritory.spoilt() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.error := 'spoilt'; RETURN NEW; END $$""",
    )
    spoil = "CREATE TRIGGER spoilt BEFORE INSERT ON meritory.jobs FOR EACH ROW EXECUTE FUNCTION "
    raw_rows(database, f"{spoil} meritory.spoilt()")
    try:
        report = moved(first, database)
    finally:
        raw_rows(database, "DROP FUNCTION meritory.spoilt CASCADE")
    assert {(one.table, one.what) for one in report.differences} == {("jobs", "error")}
    assert raw_rows(database, "SELECT 1 FROM meritory.jobs") == []
    with side(database) as opened, opened.reading() as reading:
        assert reading.users() == []
    assert moved(first, database).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


# -- refusals -------------------------------------------------------------------------------------


def test_a_target_that_has_something_of_the_user_is_refused(
    database: Place, tmp_path: Path
) -> None:
    first, other = made(tmp_path / "a.db", "anna"), made(tmp_path / "b.db", "anna")
    assert moved(first, database).is_equal
    # The same one again has nothing to do.
    again = moved(first, database)
    assert again.is_equal and again.users[0].was_complete
    assert again.total("copied").total() == 0
    for wish in (MigrationRequest(), MigrationRequest(restart=True)):
        with pytest.raises(Conflict, match="of 'anna' already") as refused:
            moved(other, database, wish)
        assert "--as NAME" in (refused.value.hint or "")
    with side(other) as one, side(database) as two, pytest.raises(Conflict):
        preview(one, two, MigrationRequest())
    assert moved(other, database, MigrationRequest(new_name="ben")).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


def test_an_unfinished_move_from_elsewhere_is_refused_until_it_is_given_up(
    database: Place, tmp_path: Path
) -> None:
    first, other = made(tmp_path / "a.db", "anna"), made(tmp_path / "b.db", "anna")
    with pytest.raises(Stopped):
        moved(first, database, SMALL, Stop(9))
    with pytest.raises(Conflict, match="unfinished move of 'anna' from elsewhere"):
        moved(other, database)
    assert moved(other, database, MigrationRequest(restart=True)).is_equal
    assert all_rows(database, "anna") == all_rows(other, "anna")


def test_what_changed_since_the_move_was_begun_is_copied_anew(
    database: Place, tmp_path: Path
) -> None:
    first = made(tmp_path / "a.db", "anna")
    with pytest.raises(Stopped):
        moved(first, database, SMALL, Stop(9))
    with contextlib.closing(open_raw(tmp_path / "a.db")) as raw, raw:
        raw.execute("UPDATE scopes SET agent = 'new' WHERE scope = 1")
        raw.execute("UPDATE meta SET value = '99' WHERE key = 'change'")
    report = moved(first, database)
    assert report.is_equal and report.users[0].was_begun_anew
    assert all_rows(database, "anna") == all_rows(first, "anna")


def test_a_database_that_is_written_meanwhile_is_read_as_it_was(
    database: Place, tmp_path: Path
) -> None:
    first, last = made(tmp_path / "a.db", "anna"), Place(file=tmp_path / "last.db")
    moved(first, database)

    def write(done: int, total: int) -> None:
        if done == 2:
            raw_rows(database, "UPDATE meritory.memories SET content = 'other'")
            raw_rows(database, "UPDATE meritory.tenants SET change = change + 1")

    report = moved(database, last, SMALL, write)
    assert report.is_equal and report.changed_meanwhile == ["anna"]
    assert all_rows(last, "anna") == all_rows(first, "anna")


def test_what_merely_opening_a_store_left_gives_way(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    store = open_store(database)
    store.write("anna", lambda t: t.count("anna", "writes"))
    store.close()
    assert moved(first, database).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


def test_a_file_that_is_open_elsewhere_is_refused(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna")
    store = SqliteStore(tmp_path / "a.db")
    with pytest.raises(Busy, match="in use by another process"):
        moved(first, database)
    store.close()
    assert moved(first, database).is_equal
    with pytest.raises(InputError, match="there is no store"):
        moved(Place(file=tmp_path / "none.db"), database)
    assert not (tmp_path / "none.db").exists()


def test_a_login_needs_no_more_rights_than_a_daemon(
    postgres: Server, database: Place, tmp_path: Path
) -> None:
    name = f"plain_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE ROLE {name} LOGIN IN ROLE meritory_app, meritory_steward")
    parts = {**conninfo_to_dict(database.url), "user": name}
    plain = Place(url=address_of(parts))
    first = made(tmp_path / "a.db", "anna")
    assert moved(first, plain).is_equal
    last = Place(file=tmp_path / "last.db")
    assert moved(plain, last).is_equal
    assert all_rows(last, "anna") == all_rows(first, "anna")


def test_two_moves_of_one_user_do_not_mix(database: Place, tmp_path: Path) -> None:
    first, other = made(tmp_path / "a.db", "anna"), made(tmp_path / "b.db", "anna")
    refused: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        if not refused:
            with pytest.raises(Conflict, match="by another process") as error:
                moved(other, database)
            refused.append(error.value.message)

    assert moved(first, database, SMALL, meanwhile).is_equal
    assert refused


def test_a_damaged_file_and_a_wrong_wish_are_told_at_once(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna", "ben")
    with pytest.raises(InputError, match="2 users"):
        moved(first, database, MigrationRequest(new_name="carl"))
    with pytest.raises(NotFound, match="nothing of a user 'carl'"):
        moved(first, database, MigrationRequest(user="carl"))
    with side(first) as one, pytest.raises(InputError, match="from a file into a database"):
        move(one, one, MigrationRequest(), lambda done, total: None)
    with contextlib.closing(open_raw(tmp_path / "a.db")) as raw, raw:
        raw.execute("DELETE FROM sessions WHERE session = 1")
    with pytest.raises(Corrupt, match="points at nothing"):
        moved(first, database)
