"""A session is erased with everything that was recorded of it; a purge also erases its words."""

from __future__ import annotations

from typing import Any

import pytest
from session_kit import HERON, NOTES, Desk

from meritory.domain.errors import NotFound
from meritory.engine.quality import maintenance
from meritory.engine.sessions.erasure import erase_session
from meritory.store.sql.erasure import tables_of_sessions
from meritory.store.sql.tables import TABLES
from meritory.text.judge.digest import decode_digest

NAME = "Zwetschgenbaum"
SECRET = f"my therapist is called {NAME}"
KEY = "run-erased"


def scan(desk: Desk, words: str) -> list[str]:
    """Every table that still has these words, compressed or not."""
    found = []
    with desk.store._reading(desk.memory.scope.user) as connection:
        for table in TABLES:
            if table.engine is None or table.engine == _engine_of(desk):
                rows = connection.execute(f"SELECT * FROM {table.name}").fetchall()
                if any(words.lower() in _text(value).lower() for row in rows for value in row):
                    found.append(table.name)
    user = desk.memory.scope.user
    for session in desk.store.sessions(user, 100):
        turns = desk.store.transcript(user, session.key)
        digest = desk.store.digest(user, session.key)
        said = repr(turns) + (repr(decode_digest(digest)) if digest else "")
        if words.lower() in said.lower():
            found.append(f"transcript or digest of {session.key}")
    return found


def _engine_of(desk: Desk) -> str:
    return "postgres" if desk.store.place.file is None else "sqlite"


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def talk(desk: Desk, key: str = KEY) -> None:
    """Holds a session about a secret that is extracted."""
    session = desk.memory.session(key, context=f"planning with {NAME}")
    session.prompt(f"Remember that {SECRET}.")
    session.rate({shown.handle: 0.5 for shown in session.memories})
    session.end(
        [
            {"role": "user", "text": f"Remember that {SECRET}."},
            {"role": "assistant", "text": f"I noted it: {NAME}. How do you spell {NAME}?"},
            {"role": "user", "text": "Which database does staging use?"},
            {"role": "assistant", "text": "The staging database is heron."},
        ]
    )
    desk.memory.drain()


def test_every_table_of_sessions_is_erased(desk: Desk) -> None:
    desk.note(*NOTES)
    talk(desk)
    user = desk.memory.scope.user
    columns = {
        table.name: {column.name for column in table.columns} & {"session", "session_key"}
        for table in TABLES
    }
    covered = {table.name for table, _ in tables_of_sessions()}
    # A memory outlives its session; a new table with one of the columns must be erased.
    # `session` in the table of tenants is a count.
    uncovered = {name for name, found in columns.items() if found} - covered
    assert uncovered == {"memories", "tenants"}

    erased = erase_session(desk.memory.services, user, KEY)
    assert erased.rows["sessions"] == 1
    assert {"events", "session_memories", "jobs"} <= erased.rows.keys()
    with pytest.raises(NotFound):
        desk.record(KEY)
    left = [name for name in scan(desk, KEY) if not name.startswith("memor")]
    assert left == []


def test_other_sessions_stay(desk: Desk) -> None:
    desk.note(*NOTES)
    talk(desk)
    talk(desk, "other")
    before = desk.state("other")
    erase_session(desk.memory.services, desk.memory.scope.user, KEY)
    assert desk.state("other") == before


def test_memories_stay_unless_they_are_named(desk: Desk) -> None:
    talk(desk)
    user = desk.memory.scope.user
    (learned,) = [one for one in desk.store.walk(user) if NAME in one.content]
    kept = erase_session(desk.memory.services, user, KEY)
    assert (kept.memory_ids, kept.kept_memory_count) == ((), 1)
    assert desk.memory.get(learned.id).content == learned.content

    desk.memory.forget(learned.id, purge=True)
    talk(desk, "second")
    (again,) = [one for one in desk.store.walk(user) if NAME in one.content]
    gone = erase_session(desk.memory.services, user, "second", with_memories=True)
    assert gone.memory_ids == (again.id,)
    assert scan(desk, NAME) == []


def test_an_unknown_session_is_refused(desk: Desk) -> None:
    with pytest.raises(NotFound):
        erase_session(desk.memory.services, desk.memory.scope.user, "never")


def test_a_purge_erases_the_words_from_all_records(desk: Desk) -> None:
    desk.note(HERON)
    talk(desk)
    desk.memory.capture_feedback("down", context=f"you forgot that {SECRET}", what_went_wrong="-")
    user = desk.memory.scope.user
    for one in list(desk.store.walk(user)):
        if NAME in one.content:
            desk.memory.forget(one.id, purge=True)
    assert scan(desk, NAME) == []
    # The rest of the conversation stays, with a mark.
    said = [turn.text for turn in desk.store.transcript(user, KEY)]
    assert "The staging database is heron." in said
    assert any("[purged]" in text for text in said)


def test_a_purge_finds_a_memory_in_packed_candidates(desk: Desk) -> None:
    ids = desk.note(*NOTES)
    talk(desk)
    maintenance.pack(desk.memory.services, desk.memory.scope.user)
    assert ids[0] in desk.rows(KEY)
    desk.memory.forget(ids[0], purge=True)
    maintenance.pack(desk.memory.services, desk.memory.scope.user)
    assert ids[0] not in desk.rows(KEY)
    assert len(desk.rows(KEY)) >= len(ids) - 1
