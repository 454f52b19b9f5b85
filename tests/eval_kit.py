"""A store to measure: memories, probes, and a fingerprint of everything in its file."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from meritory.api.memory import Memory
from meritory.domain.place import Place
from meritory.lab.measure import Sandbox, copied
from meritory.lab.probes import Probe
from meritory.settings import load_settings

NAMED = {
    "staging database": "heron",
    "mail relay": "otter",
    "build server": "lynx",
    "backup disk": "badger",
    "payment gateway": "falcon",
    "search cluster": "marten",
    "metrics board": "stork",
    "login page": "bison",
    "invoice worker": "ibex",
    "image cache": "raven",
    "queue broker": "newt",
    "release branch": "viper",
    "feature flag": "gecko",
    "audit log": "tapir",
    "export job": "quokka",
    "health check": "civet",
    "load balancer": "dingo",
    "session store": "egret",
    "asset bundle": "ferret",
    "api client": "grouse",
    "cron schedule": "hyena",
    "error tracker": "impala",
    "design system": "jackal",
    "test runner": "kudu",
    "style guide": "lemur",
}


def facts() -> list[str]:
    """Claims of which each has a value of its own."""
    return [f"The {thing} is called {animal}" for thing, animal in NAMED.items()]


def probes() -> tuple[Probe, ...]:
    """A question for every claim."""
    return tuple(
        Probe(question=f"what is the {thing} called?", expected=(fact,), tags=("names",))
        for thing, fact in zip(NAMED, facts(), strict=True)
    )


def opened(file: Path, **settings: object) -> Memory:
    """A store with the defaults, whatever the machine's own settings say."""
    chosen = {name.replace("__", "."): value for name, value in settings.items()}
    made = load_settings(file.parent, {}, chosen)
    return Memory(file, settings=made, background=False)


@contextmanager
def sandboxed(file: Path) -> Iterator[Sandbox]:
    """A copy of a store, ready to be measured."""
    with copied(Place(file=file)) as copy, opened(copy) as memory:
        yield Sandbox(memory.services)


def fingerprint(file: Path) -> dict[str, str]:
    """A hash of the file and of every row of every table."""
    found = {"the file": hashlib.sha256(file.read_bytes()).hexdigest()}
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            rows = sorted(map(repr, connection.execute(f'SELECT * FROM "{table}"')))
            found[table] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        found["version"] = str(connection.execute("PRAGMA user_version").fetchone())
    return found
