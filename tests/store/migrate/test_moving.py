"""A store moved from a file into a database and back: every row, and all that goes on with it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from learning_kit import WORDS
from meritory.api.memory import Memory
from meritory.domain.place import Place
from meritory.engine.transfer.backup import ModelFiles
from meritory.engine.transfer.migrate import MigrationRequest, verify
from meritory.settings import load_settings
from meritory.store import open_store
from meritory.store.migrate.endpoint import COMMON, DERIVED, GIVEN, TABLES
from meritory.store.sql.tables import BY_NAME
from meritory.store.sqlite.store import SqliteStore
from migrate_kit import all_rows, lived_in, made, moved, raw_rows, side, silent
from places import open_raw


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that a user lived with; nobody writes to it."""
    path = tmp_path_factory.mktemp("lived") / "meritory.db"
    lived_in(path)
    return path


def opened(place: Place, user: str = "default") -> Memory:
    """The front door on a store."""
    settings = load_settings(Path("/nonexistent"), {} if place.file else place.environment)
    return Memory(place.file, user=user, settings=settings, background=False, everywhere=True)


# -- every row ----------------------------------------------------------------------------------


def test_there_and_back_every_row_of_every_table_is_the_same(
    lived: Path, database: Place, tmp_path: Path
) -> None:
    first, second = Place(file=lived), Place(file=tmp_path / "second.db")
    before = all_rows(first, "default")
    assert [name for name, rows in before.items() if not rows] == []
    there = moved(first, database)
    assert there.is_equal
    assert there.total("copied") == there.total("compared")
    assert sum(there.total("copied").values()) == sum(map(len, before.values()))
    assert all_rows(database, "default") == before
    assert moved(database, second).is_equal
    assert all_rows(second, "default") == before
    assert sorted(path.name for path in tmp_path.iterdir() if "moving" in path.name) == []
    store = SqliteStore(tmp_path / "second.db")
    assert store.check(deep=True) == []
    store.close()


def test_no_table_and_no_column_is_forgotten(database: Place, tmp_path: Path) -> None:
    """A new table is migrated unless an engine derives it or all users share it."""
    migrated = {table.name for table in TABLES}
    known = migrated | DERIVED | COMMON
    place = made(tmp_path / "a.db")
    with contextlib.closing(sqlite3.connect(place.file or "")) as raw:
        found = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    own = {name for (name,) in found if not name.startswith(("sqlite_", "memories_fts_"))}
    assert own <= known
    there = raw_rows(
        database,
        """SELECT table_name, column_name FROM information_schema.columns
            WHERE table_schema = 'meritory'""",
    )
    assert {table for table, _ in there} <= known
    assert migrated == {table for table, _ in there} - DERIVED - COMMON
    for table in TABLES:
        columns = {column.name for column in table.columns}
        assert columns | {"user"} == {column for name, column in there if name == table.name}


def test_a_read_finds_the_same_on_both_sides(lived: Path, database: Place) -> None:
    moved(Place(file=lived), database)
    asked = [*WORDS[:4], "which team runs the sierra service?", "staging database", "nonsense"]
    answers: list[Any] = []
    scores: list[list[float]] = []
    for place in (Place(file=lived), database):
        with opened(place) as memory:
            found = [memory.recall(query, 5) for query in asked]
            ids = [[one.memory.id for one in some] for some in found]
            assert all(ids[:-1])
            scores.append([one.score for some in found for one in some])
            answers.append((ids, memory.page(limit=100), memory.stats(), memory.entities()))
    for one, other in zip(*answers, strict=True):
        assert one == other
    # The engines' means over all vectors are not quite the same.
    assert scores[0] == pytest.approx(scores[1], abs=0.005)


def test_what_is_written_afterwards_comes_behind_what_was_moved(
    lived: Path, database: Place, tmp_path: Path
) -> None:
    back = Place(file=tmp_path / "back.db")
    moved(Place(file=lived), database)
    moved(database, back)
    for place in (database, back):
        before = all_rows(place, "default")
        with opened(place) as memory:
            kept = memory.remember("The osprey cluster has nine nodes", tags=["osprey"])
            memory.feedback("down", what_went_wrong="It forgot the osprey", memory_ids=[kept.id])
            session = memory.session("after", None, "count the nodes of the osprey cluster")
            session.end(used={kept.id: 1.0})
            memory.drain()
            assert [one.memory.id for one in memory.recall("osprey nodes", 1)] == [kept.id]
            assert memory.undo(kept.id)
        after = all_rows(place, "default")
        for name in ("memories", "memory_history", "sessions", "events", "feedback_events"):
            fresh = [row for row in after[name] if row not in before[name]]
            highest = max(row[0] for row in before[name])
            assert fresh and any(row[0] > highest for row in fresh), name
            assert {row[0] for row in before[name]} <= {row[0] for row in after[name]}


# -- numbers and names ----------------------------------------------------------------------------


def test_users_of_one_file_keep_their_numbers(database: Place, tmp_path: Path) -> None:
    first, second = made(tmp_path / "a.db", "anna", "ben", "åsa"), tmp_path / "b.db"
    assert moved(first, database).is_equal
    assert moved(database, Place(file=second)).is_equal
    for user in ("anna", "ben", "åsa"):
        assert all_rows(Place(file=second), user) == all_rows(first, user)


def test_several_files_go_into_one_database_under_other_names(
    lived: Path, database: Place, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    lived_in(other, "old-name-of-ben")
    moved(Place(file=lived), database, MigrationRequest(user="default", new_name="anna"))
    assert moved(Place(file=other), database, MigrationRequest(new_name="ben")).is_equal
    back = Place(file=tmp_path / "back.db")
    # Both have the same numbers, of which a file has each but once.
    assert moved(database, back).is_equal
    for place in (database, back):
        store = open_store(place)
        assert store.users() == ["anna", "ben"]
        assert store.check(deep=True) == []
        store.close()
    told = [value for rows in all_rows(database, "ben").values() for row in rows for value in row]
    assert [value for value in told if "old-name-of-ben" in str(value)] == []
    with opened(back, "ben") as memory:
        found = memory.recall("alpha service", 1)[0].memory
        assert found.user == "ben"
        assert memory.undo(found.id)[0].user == "ben"
        assert memory.get(found.id).content.startswith("The alpha service has port")
    with opened(database, "anna") as memory:
        assert memory.recall("alpha service", 1)[0].memory.content.startswith("The alpha service m")


def test_no_number_that_another_table_gave_is_overlooked() -> None:
    """By their names: not every reference is known to the database as one."""
    given = {*GIVEN.values(), "aspect", "on_entity", "replayed_through"}
    for table in TABLES:
        numbers = {one.name for one in table.columns if one.type == "INTEGER"} & given
        assert numbers == set(table.numbers) - {"embedder"}, table.name


def test_every_reference_is_raised_with_its_number(database: Place, tmp_path: Path) -> None:
    for user in ("anna", "ben"):
        moved(made(tmp_path / f"{user}.db", user), database)
    back = Place(file=tmp_path / "back.db")
    assert moved(database, back).is_equal
    mine, theirs = all_rows(back, "ben"), all_rows(Place(file=tmp_path / "ben.db"), "ben")
    for table in TABLES:
        names = [column.name for column in table.columns]
        for new, old in zip(mine.get(table.name, ()), theirs.get(table.name, ()), strict=True):
            changed = {name for name, a, b in zip(names, new, old, strict=True) if a != b}
            assert changed == set(table.numbers), table.name
    with side(back) as opened_side, opened_side.reading() as reading:
        raised = reading.progress("ben")
        assert raised is not None and set(raised.raised.values()) == {3}
    with side(database) as one, side(back) as other:
        assert verify(one, other, MigrationRequest(), silent).is_equal
    store = SqliteStore(tmp_path / "back.db")
    assert [line for line in store.check(deep=True) if "points at nothing" in line] == []
    store.close()


def test_a_number_that_is_gone_is_not_given_again_in_a_file_of_several(
    database: Place, tmp_path: Path
) -> None:
    for user in ("anna", "ben"):
        moved(made(tmp_path / f"{user}.db", user), database)
    raw_rows(database, "UPDATE meritory.tenants SET row = 10 WHERE \"user\" = 'ben'")
    back = tmp_path / "back.db"
    assert moved(database, Place(file=back)).is_equal
    with contextlib.closing(sqlite3.connect(back)) as raw:
        (given,) = raw.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'").fetchone()
    # Three of the other were in the way.
    assert given == 10 + 3


def test_what_is_damaged_is_not_called_whole_under_another_name(
    database: Place, tmp_path: Path
) -> None:
    """A hash that goes over the user's name is made anew, but only where it was right."""
    moved(made(tmp_path / "a.db", "anna"), database, MigrationRequest(new_name="ben"))
    hashes = raw_rows(database, "SELECT row_hash FROM meritory.memories")
    assert hashes == [(bytes(range(256)),)] * 3


def test_what_is_no_number_yet_stays_none(database: Place, tmp_path: Path) -> None:
    """Nought says of a rule that it was tried on nothing so far."""
    for user in ("anna", "ben"):
        moved(made(tmp_path / f"{user}.db", user), database)
    raw_rows(database, "UPDATE meritory.rules SET replayed_through = 0")
    back = Place(file=tmp_path / "back.db")
    assert moved(database, back).is_equal
    at = [column.name for column in BY_NAME["rules"].columns].index("replayed_through")
    assert {row[at] for row in all_rows(back, "ben")["rules"]} == {0}


def test_a_file_that_others_use_never_counts_backwards(database: Place, tmp_path: Path) -> None:
    """What is held in memory is known to be old by these numbers."""
    moved(made(tmp_path / "anna.db", "anna"), database)
    back = made(tmp_path / "ben.db", "ben")
    counted = "SELECT value FROM meta WHERE key IN ('change', 'learned')"
    with contextlib.closing(open_raw(tmp_path / "ben.db")) as raw, raw:
        raw.execute("UPDATE meta SET value = '99' WHERE key IN ('change', 'learned')")
    assert moved(database, back).is_equal
    with contextlib.closing(sqlite3.connect(tmp_path / "ben.db")) as raw:
        assert [int(value) for (value,) in raw.execute(counted)] == [99, 99]


def test_all_words_of_all_batches_are_counted(lived: Path, database: Place) -> None:
    """A text is weighed by how long it is beside the others."""
    moved(Place(file=lived), database, MigrationRequest(batch_rows=2))
    counted = raw_rows(database, "SELECT document_count, token_count FROM meritory.tenants")
    there = """SELECT count(*), sum(length) FROM
        (SELECT DISTINCT row, token_count AS length FROM meritory.memory_terms) texts"""
    assert counted == raw_rows(database, there)
    assert counted[0][0] > 2


def test_one_user_of_several_can_be_moved_alone(database: Place, tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", "anna", "ben")
    report = moved(first, database, MigrationRequest(user="ben"))
    assert [tally.user for tally in report.users] == ["ben"]
    assert all_rows(database, "ben") == all_rows(first, "ben")
    assert not any(all_rows(database, "anna").values())
    # The other one comes later.
    assert moved(first, database).is_equal
    assert all_rows(database, "anna") == all_rows(first, "anna")


# -- what is no user's ----------------------------------------------------------------------------


def secrets_of(*places: Place) -> list[str]:
    found = []
    for place in places:
        with side(place) as opened_side, opened_side.reading() as reading:
            found.append(reading.noted("secret") or "")
    return found


def test_a_store_that_is_moved_whole_keeps_its_secret_and_joining_another_does_not(
    database: Place, tmp_path: Path
) -> None:
    first, second = made(tmp_path / "a.db", "anna"), made(tmp_path / "b.db", "ben")
    moved(first, database)
    moved(second, database)
    own, other, shared = secrets_of(first, second, database)
    assert shared == own != other
    alone = Place(file=tmp_path / "alone.db")
    moved(database, alone, MigrationRequest(user="ben"))
    assert secrets_of(alone) != [shared]


def test_vectors_of_another_embedder_stay_behind_and_are_made_anew(
    lived: Path, database: Place, tmp_path: Path
) -> None:
    moved(Place(file=lived), database)
    report = moved(made(tmp_path / "b.db", "ben"), database)
    assert report.is_equal
    assert [tally.left_behind for tally in report.users] == [["made-up"]]
    store = open_store(database)
    serving = store.serving_embedder()
    assert serving is not None and serving.name != "made-up"
    lacking = store.without_vector(serving.name, 10)
    assert {one.user for one in lacking} <= {"ben"}
    state = store.embedding_state(serving.name)
    store.close()
    assert state.memory_count - state.embedded_count == 3


def test_a_text_with_a_nul_character_is_mended_and_still_whole(
    database: Place, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    with opened(Place(file=path)) as memory:
        kept = memory.remember("The gate is green", tags=["x"])
    with contextlib.closing(open_raw(path)) as raw, raw:
        from meritory.store.sql.memories import MEMORIES, SELECT_RECORD, row_hash

        found = raw.execute(SELECT_RECORD).fetchone()
        values = [*found[1 : 1 + len(MEMORIES.columns)]]
        values[1] = "The gate\0is green"
        raw.execute("UPDATE memories SET content = ?, row_hash = ?", (values[1], row_hash(values)))
    assert moved(Place(file=path), database).is_equal
    with opened(database) as memory:
        assert memory.get(kept.id).content == "The gate\ufffdis green"


def test_long_texts_and_large_models_come_over(database: Place, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first, last = made(path, "anna"), Place(file=tmp_path / "last.db")
    models = ModelFiles(path)
    for version in (1, 2, 12):
        models.put("anna", version, bytes([version]) * 600_000)
    with contextlib.closing(open_raw(path)) as raw, raw:
        raw.execute(
            "UPDATE sessions SET transcript = ?, digest = ?",
            ("long ☃ ".encode() * 60_000, bytes(range(256)) * 600),
        )
    assert moved(first, database).is_equal
    assert moved(database, last).is_equal
    assert all_rows(last, "anna") == all_rows(first, "anna")
    assert [version for _, version, *_ in all_rows(database, "anna")["models"]] == [1, 2, 12]


def test_a_session_goes_on_under_the_code_it_was_told(database: Place, tmp_path: Path) -> None:
    file = Place(file=tmp_path / "one.db")
    with opened(file) as memory:
        memory.remember("The staging database is called heron")
        told = memory.session("run-1", context="staging database").injection
    assert moved(file, database, MigrationRequest(user="default", new_name="ann")).is_equal
    with opened(database, "ann") as memory:
        session = memory.session("run-1", context="staging database")
        assert session.injection == told is not None
        session.end(used={"m1": 1.0})
        memory.drain()
        (shown,) = memory.services.store.session_memories("ann", "run-1")
        assert shown.label is not None
        assert shown.label > 0
