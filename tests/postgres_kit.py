"""A throw-away PostgreSQL with pgvector: started once a run, one fresh database for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from bench.postgres import Unavailable, address_of, throw_away_server
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from meritory.store.postgres.schema import migrate

__all__ = ["Server", "Unavailable", "address_of", "running_server", "throw_away_server"]

# Deletes what there is, and makes a new secret, for no two stores have the same.
_EMPTIED = """DO $$ DECLARE name text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'meritory' AND tablename NOT IN ('schema_version', 'meta') LOOP
        EXECUTE format('DELETE FROM meritory.%I', name);
    END LOOP;
    -- Those of large tenants are made for vectors of one length.
    FOR name IN SELECT indexrelid::regclass FROM pg_stat_user_indexes
        WHERE schemaname = 'meritory' AND indexrelname ~ '^memory_vectors_[0-9]' LOOP
        EXECUTE format('DROP INDEX %s', name);
    END LOOP;
    -- Numbers begin again, as in a database that was just made.
    FOR name IN SELECT sequencename FROM pg_sequences
        WHERE schemaname = 'meritory' AND last_value IS NOT NULL LOOP
        EXECUTE format('ALTER SEQUENCE meritory.%I RESTART', name);
    END LOOP;
    DELETE FROM meritory.meta WHERE key <> 'secret';
    UPDATE meritory.meta SET value = encode(sha256(gen_random_uuid()::text::bytea), 'hex');
END $$"""


def execute_raw(address: str, statement: str) -> list[tuple[Any, ...]]:
    """Runs a statement on the tables of a store as the owner of them all."""
    with psycopg.connect(address) as connection:
        connection.execute("SET search_path TO meritory")
        done = connection.execute(sql.SQL(statement))  # type: ignore[arg-type]
        return done.fetchall() if done.description else []


def tables_with(address: str, needle: str) -> list[str]:
    """The tables in which some row holds a text, as characters or as bytes."""
    # Bytes are told in hexadecimal digits.
    forms = (needle.lower(), needle.lower().encode().hex())
    with psycopg.connect(address) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'meritory' ORDER BY 1"
        ).fetchall()
        return [
            table
            for (table,) in tables
            if connection.execute(
                f"SELECT 1 FROM meritory.{table} t WHERE strpos(lower(t::text), %s) > 0"
                " OR strpos(lower(t::text), %s) > 0 LIMIT 1",
                forms,
            ).fetchone()
        ]


class Server:
    """A PostgreSQL server; databases made here are copies of one that has our schema."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._names = (f"meritory_{secrets.token_hex(4)}_{n}" for n in itertools.count())
        self._template = next(self._names)
        self._made: list[str] = []
        self._free: list[str] = []
        self.execute(f'CREATE DATABASE "{self._template}"')
        with psycopg.connect(self.address(self._template), autocommit=True) as connection:
            migrate(connection)

    def address(self, database: str) -> str:
        """The address of one database of this server."""
        return address_of({**conninfo_to_dict(self.url), "dbname": database})

    def execute(self, statement: str) -> None:
        """Runs a statement on the server as such."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement))  # type: ignore[arg-type]

    def fresh(self) -> str:
        """The address of a database that holds nothing but our schema; give it back afterwards."""
        if self._free:
            name = self._free.pop()
        else:
            name = next(self._names)
            self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}"')
            self._made.append(name)
        with psycopg.connect(self.address(name), autocommit=True) as connection:
            connection.execute(_EMPTIED)
        return self.address(name)

    def give_back(self, address: str) -> None:
        """Lets others have a database: making one takes much longer than emptying one."""
        self._free.append(str(conninfo_to_dict(address)["dbname"]))

    def empty(self) -> str:
        """The address of a new database that holds nothing at all."""
        name = next(self._names)
        self.execute(f'CREATE DATABASE "{name}"')
        self._made.append(name)
        return self.address(name)

    def drop(self) -> None:
        """Removes every database made here."""
        for name in (*self._made, self._template):
            self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """The server of MERITORY_TEST_DATABASE_URL, or one of our own; without one, skips."""
    given = os.environ.get("MERITORY_TEST_DATABASE_URL")
    with contextlib.ExitStack() as held:
        try:
            server = Server(given or held.enter_context(throw_away_server()))
        except Unavailable as reason:
            pytest.skip(f"NO POSTGRESQL, SO NOTHING OF IT IS TESTED: {reason}")
        yield server
        if given:
            server.drop()
