"""A login that lacks rights: the doctor says so once, and what to do."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from contract.builders import insert, record
from meritory.domain.errors import Busy
from meritory.domain.place import Place
from meritory.domain.policy import EmbedderSpec
from meritory.engine.observe.health import HealthCheck, HealthFacts, examine
from meritory.store import open_store
from postgres_kit import Server, address_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def owned(postgres: Server, role: str) -> Place:
    """A new database of a new login, on a server on which others made the roles already."""
    # A name that has to be quoted wherever it stands in a statement.
    name, address = f"login-{secrets.token_hex(4)}", postgres.empty()
    postgres.execute(f'CREATE ROLE "{name}" {role}')
    database = str(conninfo_to_dict(address)["dbname"])
    postgres.execute(f'ALTER DATABASE "{database}" OWNER TO "{name}"')
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute("CREATE EXTENSION vector")
        for group in ("meritory_app", "meritory_steward"):
            administrator.execute(
                f"DO $$ BEGIN CREATE ROLE {group} NOLOGIN;"
                " EXCEPTION WHEN duplicate_object THEN NULL; END $$".encode()
            )
    return Place(url=address_of({**conninfo_to_dict(address), "user": name}))


def login_of(place: Place) -> str:
    return str(conninfo_to_dict(place.url)["user"])


def test_a_login_that_may_not_take_the_roles_is_told_once(postgres: Server, tmp_path: Path) -> None:
    place = owned(postgres, "LOGIN NOINHERIT")
    checks = examine(HealthFacts(tmp_path, place, tmp_path / "backups", EmbedderSpec(), NOW))
    (failed,) = (check for check in checks if check.status == "fail")
    assert (failed.name, "permission denied" in failed.detail) == ("store", True)
    assert "GRANT meritory_app, meritory_steward TO" in failed.hint


def test_a_password_that_opens_all_rows_is_told_and_how_to_close_them(
    postgres: Server, tmp_path: Path
) -> None:
    """What is warned of is true, and what is advised helps."""
    place = owned(postgres, "LOGIN INHERIT")
    # As an administrator may have done it before Meritory came.
    postgres.execute(f'GRANT meritory_app, meritory_steward TO "{login_of(place)}"')
    store = open_store(place)
    for user in ("ann", "bob"):
        insert(store, record(1, f"{user} said so", user=user))

    def seen() -> int:
        with psycopg.connect(place.url) as raw:
            try:
                return len(raw.execute("SELECT content FROM meritory.memories").fetchall())
            except psycopg.errors.InsufficientPrivilege:
                return 0

    def told() -> HealthCheck:
        patient = HealthFacts(tmp_path, place, tmp_path / "backups", EmbedderSpec(kind="none"), NOW)
        (found,) = (check for check in examine(patient) if check.name == "schema")
        return found

    assert seen() == 2
    warned = told()
    assert warned.status == "warn"
    assert f'the password of "{login_of(place)}" opens all' in warned.hint
    postgres.execute(warned.hint.split("`")[-2])
    assert seen() == 0
    assert (told().status, told().hint) == ("ok", "")
    assert [one.content for one in store.walk("ann")] == ["ann said so"]
    store.close()


def test_a_server_that_goes_in_the_middle_ends_no_examination(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(connection: object) -> list[str]:
        raise Busy("the connection to the database was lost", hint="try again")

    monkeypatch.setattr("meritory.store.postgres.store.about_login", gone)
    place = owned(postgres, "LOGIN NOINHERIT")
    postgres.execute(f'GRANT meritory_app, meritory_steward TO "{login_of(place)}"')
    patient = HealthFacts(tmp_path, place, tmp_path / "backups", EmbedderSpec(kind="none"), NOW)
    found = {check.name: (check.status, check.hint) for check in examine(patient)}
    assert found["schema"] == ("fail", "try again")
    assert found["embedder"][0] == "ok"


def test_what_is_advised_lets_a_login_work_on_that_owns_nothing(postgres: Server) -> None:
    """It looks at the tables' version with rights of its own, or not at all."""
    place = owned(postgres, "LOGIN NOINHERIT")
    postgres.execute(f'GRANT meritory_app, meritory_steward TO "{login_of(place)}"')
    open_store(place).close()
    guest = f"guest-{secrets.token_hex(4)}"
    postgres.execute(f'CREATE ROLE "{guest}" LOGIN INHERIT IN ROLE meritory_app, meritory_steward')
    theirs = Place(url=address_of({**conninfo_to_dict(place.url), "user": guest}))
    store = open_store(theirs)
    (advice,) = store.advice()
    store.close()
    address = postgres.address(str(conninfo_to_dict(place.url)["dbname"]))
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute(advice.split("`")[-2].encode())
    again = open_store(theirs)
    insert(again, record(1, "We deploy on Mondays"))
    assert again.advice() == []
    again.close()
