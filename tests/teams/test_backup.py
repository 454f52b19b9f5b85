"""The dump and the restore that docs/operations/teams.md describes, with PostgreSQL's own tools."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from bench.postgres import address_of, binary
from psycopg.conninfo import conninfo_to_dict
from team_kit import environment

from meritory.api.memory import Memory
from meritory.domain.errors import SchemaTooNew
from meritory.domain.place import Place
from meritory.model.checkpoint import read
from meritory.ports.scorer import base_weights
from meritory.settings import load_settings
from meritory.store import open_store
from postgres_kit import Server

LOGIN = "meritory_plain_login"


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one of PostgreSQL's programs."""
    return subprocess.run(
        [str(binary(name)), *arguments], capture_output=True, text=True, check=False
    )


def owned_by_login(server: Server) -> str:
    """The address of a new database for a login without any rights beyond it."""
    address = server.empty()
    name = conninfo_to_dict(address)["dbname"]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    server.execute(
        f"""DO $$ BEGIN CREATE ROLE {LOGIN} LOGIN NOINHERIT;
        EXCEPTION WHEN duplicate_object THEN NULL; END $$"""
    )
    server.execute(f'ALTER DATABASE "{name}" OWNER TO {LOGIN}')
    server.execute(f"GRANT meritory_app, meritory_steward TO {LOGIN}")
    return address


def as_login(address: str) -> str:
    """The same database, for the login."""
    return address_of({**conninfo_to_dict(address), "user": LOGIN})


def opened(address: str, home: Path, user: str = "ann") -> Memory:
    settings = load_settings(home, environment(home, address))
    return Memory(user=user, settings=settings, background=False, everywhere=True)


@pytest.fixture
def address(postgres: Server, tmp_path: Path) -> Iterator[str]:
    """A database that a plain login filled for two users, with a model."""
    made = owned_by_login(postgres)
    plain = as_login(made)
    for user, text in (("ann", "The staging database is called heron"), ("bob", "Bob's kettle")):
        with opened(plain, tmp_path / "home", user) as memory:
            memory.remember(text)
            memory.session("run-1", context=text).end(used={"m1": 1.0})
            memory.drain()
    store = open_store(Place(url=plain))
    assert store.models is not None
    store.models.put("ann", 1, base_weights().read_bytes())
    store.close()
    yield made


def test_a_dump_that_is_restored_is_the_same_store(
    address: str, postgres: Server, tmp_path: Path
) -> None:
    dump = tmp_path / "team.dump"
    options = ("--format=custom", "--schema=meritory", f"--file={dump}")
    refused = tool("pg_dump", *options, as_login(address))
    # The walls stand for the owner of the tables too: a dump is the administrator's.
    assert refused.returncode
    assert "row-level security" in refused.stderr
    done = tool("pg_dump", *options, address)
    assert done.returncode == 0, done.stderr

    other = owned_by_login(postgres)
    back = tool("pg_restore", "--exit-on-error", f"--dbname={other}", str(dump))
    assert back.returncode == 0, back.stderr
    store = open_store(Place(url=as_login(other)))
    assert store.check(deep=True) == []
    assert store.users() == ["ann", "bob"]
    assert store.models is not None
    content = store.models.content("ann", 1)
    store.close()
    (tmp_path / "copy.sgpt").write_bytes(content or b"")
    assert read(tmp_path / "copy.sgpt").kind == read(base_weights()).kind
    with opened(as_login(other), tmp_path / "other") as memory:
        assert [one.content for one in memory.recall("what is staging called?")] == [
            "The staging database is called heron"
        ]
        assert memory.services.store.session("ann", "run-1").state == "finished"
        # Numbers go on behind those that were restored.
        memory.remember("The production database is called osprey")


def test_an_older_meritory_refuses_a_newer_database_untouched(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("INSERT INTO meritory.schema_version VALUES (99)")
    with pytest.raises(SchemaTooNew, match="newer Meritory"):
        open_store(Place(url=as_login(address)))
