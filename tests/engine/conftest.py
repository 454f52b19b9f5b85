"""Every flow on both kinds of store; and a desk to hold sessions at, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from session_kit import Clock, Desk

from meritory.api.memory import Memory
from meritory.domain.place import URL_VARIABLE
from meritory.domain.world import SeededWorld
from meritory.store.contract.store import Store
from places import FILES_ONLY, NO_STORE, STORE_PROPERTY, Chosen, Places

BACKENDS = ("sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives every test that opens a store both kinds of it, unless it is about files."""
    if "backend" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("files_only")
        metafunc.parametrize("backend", BACKENDS[:1] if marked else BACKENDS, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notes with each test what it runs on, which its result carries along, to be counted."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            marked = item.get_closest_marker("files_only")
            called = getattr(item, "callspec", None)
            kind = called.params.get("backend", NO_STORE) if called else NO_STORE
            told = f"{FILES_ONLY}{marked.args[0]}" if marked else kind
            item.user_properties.append((STORE_PROPERTY, told))


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The kind of store that a test runs on."""
    kind: str = request.param
    return kind


@pytest.fixture
def places(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Places]:
    """Where the stores of a test lie."""
    server = request.getfixturevalue("postgres") if backend == "postgres" else None
    made = Places(tmp_path, server)
    yield made
    made.give_back()


@pytest.fixture
def home(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose settings name the usual store, as `Memory()` finds it."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path))
    place = places.place()
    if place.file is None:
        monkeypatch.setenv(URL_VARIABLE, place.url)
    return tmp_path


@pytest.fixture
def store(places: Places) -> Iterator[Store]:
    """A new store of its own."""
    opened = places.store()
    yield opened
    opened.close()


@pytest.fixture
def memory(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: SeededWorld
) -> Iterator[Memory]:
    """The front door on a new store, apart from the settings of whoever runs the tests."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    with places.memory(clock=world.now, everywhere=True) as opened:
        yield opened


@pytest.fixture
def desks(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Desk]]:
    """Opens desks on one store; settings are given by their dotted names."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    clock = Clock()
    opened: list[Memory] = []
    chosen = Chosen(monkeypatch)

    def open_desk(name: str = "meritory.db", **settings: object) -> Desk:
        # Ids break ties, and the order of a session's records: the same ones in every run, others
        # in every desk.
        world = SeededWorld(len(opened), clock)
        memory = places.memory(
            name, chosen.settings(**settings), project="shop", clock=world, background=False
        )
        opened.append(memory)
        return Desk(memory, clock)

    yield open_desk
    for memory in opened:
        memory.close()


@pytest.fixture
def desk(desks: Callable[..., Desk]) -> Desk:
    """One desk with the usual settings."""
    return desks()
