"""Where the stores of a test lie: in files of its folder, or in databases of a server."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meritory.api.memory import Memory
from meritory.domain.place import Place
from meritory.domain.rule import ActionReport
from meritory.settings import Settings, home_folder, load_settings
from meritory.settings.model import BY_NAME
from meritory.store import open_store
from meritory.store.contract.store import Store
from meritory.store.sql.rules import ACTION_REPORTS
from meritory.store.sql.store import SqlStore
from meritory.store.sqlite.schema import add_functions

if TYPE_CHECKING:
    from postgres_kit import Server

USUAL = "meritory.db"
# How the results of tests tell what they ran on.
STORE_PROPERTY = "store"
NO_STORE = "no store"
FILES_ONLY = "files only: "


def open_raw(file: Path) -> sqlite3.Connection:
    """A connection of SQLite itself that can write the rows of a store behind its back."""
    connection = sqlite3.connect(file)
    add_functions(connection)
    return connection


class Chosen:
    """Settings and constants of the policy for one test, named like predictor_rrf_k."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._constants: dict[str, object] = {}

    def settings(self, **chosen: object) -> Settings:
        """Return the settings with these values and those of earlier calls."""
        for name, value in chosen.items():
            dotted = name.replace("_", ".", 1)
            if dotted in BY_NAME:
                self._monkeypatch.setenv(BY_NAME[dotted].variable, str(value))
            else:
                self._constants[dotted] = str(value) if isinstance(value, Path) else value
        settings = load_settings(home_folder(os.environ), os.environ)
        return settings.vary(self._constants)


@dataclass
class Places:
    """By name the stores of one test: a name always means the same store."""

    folder: Path
    server: Server | None = None
    _addresses: dict[str, str] = field(default_factory=dict)

    def place(self, name: str = USUAL) -> Place:
        """Where a store lies."""
        if self.server is None:
            return Place(file=self.folder / name)
        if name not in self._addresses:
            self._addresses[name] = self.server.fresh()
        return Place(url=self._addresses[name])

    def fields(self, name: str = USUAL, settings: Settings | None = None) -> dict[str, Any]:
        """What `Memory` is to be given to open a store."""
        place = self.place(name)
        if place.file is not None:
            return {"path": place.file, "settings": settings}
        # As a team does it: no path is named, and the settings say where the database is.
        chosen = settings or load_settings(home_folder(os.environ), os.environ)
        return {"settings": replace(chosen, database=replace(chosen.database, url=place.url))}

    def store(self, name: str = USUAL) -> Store:
        """A store, opened; the test closes it."""
        return open_store(self.place(name))

    def memory(self, name: str = USUAL, settings: Settings | None = None, **fields: Any) -> Memory:
        """The front door on a store; the test closes it."""
        return Memory(**self.fields(name, settings), **fields)

    def plain(self, name: str = USUAL) -> Memory:
        """The same with the defaults, whatever the machine's own settings say."""
        settings = load_settings(self.folder, {})
        return self.memory(name, settings=settings, background=False)

    def execute(self, statement: str, name: str = USUAL) -> list[tuple[Any, ...]]:
        """Runs a statement on a store behind its back."""
        place = self.place(name)
        if place.file is not None:
            with closing(open_raw(place.file)) as raw, raw:
                return raw.execute(statement).fetchall()
        from postgres_kit import execute_raw

        return execute_raw(place.url, statement)

    def traces(self, needle: str, name: str = USUAL) -> list[str]:
        """The files of the folder, or tables, in which a text is still to be found, in any case."""
        place = self.place(name)
        if place.file is not None:
            wanted = needle.lower().encode()
            files = [one for one in self.folder.rglob("*") if one.is_file()]
            return [one.name for one in files if wanted in one.read_bytes().lower()]
        from postgres_kit import tables_with

        return tables_with(place.url, needle)

    def give_back(self) -> None:
        """Lets others have the databases."""
        if self.server is not None:
            for address in self._addresses.values():
                self.server.give_back(address)


def action_reports(store: Store, user: str, feedback_id: str) -> list[ActionReport]:
    """Return the actions that a report is about, the primary one first."""
    assert isinstance(store, SqlStore)
    rows = store._all(
        user,
        f"{ACTION_REPORTS.select} WHERE user = ? AND feedback_id = ?"
        " ORDER BY is_primary DESC, score DESC",
        (user, feedback_id),
    )
    return [ACTION_REPORTS.decode(row) for row in rows]
