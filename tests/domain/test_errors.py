"""The error tree: the drawing in the docstring is the truth, and every error helps."""

from __future__ import annotations

import pickle
import re

import pytest

from meritory.domain import errors
from meritory.domain.errors import MeritoryError

ROW = re.compile(
    r"^(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)\s{2,}(?P<what>.*?)(?:\s+(?P<status>\d{3}))?$"
)
CLASSES: dict[str, type[MeritoryError]] = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, MeritoryError)
}


def drawn_tree() -> dict[str, tuple[str | None, int | None]]:
    """Each name in the docstring's drawing with its parent and HTTP status."""
    tree: dict[str, tuple[str | None, int | None]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        row = ROW.match(line)
        if row is None:
            continue
        depth = len(row["branch"]) // 4
        path = [*path[:depth], row["name"]]
        parent = path[-2] if depth else None
        tree[row["name"]] = (parent, int(row["status"]) if row["status"] else None)
    return tree


def test_the_drawing_names_exactly_the_classes_there_are() -> None:
    assert set(drawn_tree()) == set(CLASSES)
    assert len(CLASSES) > 10


@pytest.mark.parametrize("name", CLASSES)
def test_the_drawing_shows_the_right_parent_and_status(name: str) -> None:
    parent, status = drawn_tree()[name]
    found = CLASSES[name]
    assert found.__bases__ == (CLASSES[parent] if parent else Exception,)
    if status is not None:
        assert found.status == status


def test_codes_are_unique_and_stable_looking() -> None:
    codes = [found.code for found in CLASSES.values()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


@pytest.mark.parametrize("found", CLASSES.values(), ids=CLASSES)
def test_every_error_says_what_happened_and_what_to_do(found: type[MeritoryError]) -> None:
    assert str(found("it broke")) == "it broke"
    error = found("it broke", hint="mend it")
    assert str(error) == "it broke (mend it)"
    assert (error.message, error.hint) == ("it broke", "mend it")
    assert 400 <= error.status < 600
    assert found.__doc__


@pytest.mark.parametrize("found", CLASSES.values(), ids=CLASSES)
def test_errors_travel_between_processes(found: type[MeritoryError]) -> None:
    error = pickle.loads(pickle.dumps(found("it broke", hint="mend it")))
    assert type(error) is found
    assert str(error) == "it broke (mend it)"
