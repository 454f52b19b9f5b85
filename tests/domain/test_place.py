"""Where a store lies, and how a process of ours is told without everybody reading along."""

from __future__ import annotations

from pathlib import Path

import pytest

from meritory.domain.errors import InputError
from meritory.domain.place import Place

URL = "postgresql://ann:pass-word@db.example:5433/team?sslmode=require"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "postgresql://db.example:5433/team"),
        ("postgres://db/team", "postgresql://db/team"),
        ("postgresql:///team?host=/run/sockets&user=ann", "postgresql:///run/sockets/team"),
        ("postgresql://?dbname=team", "postgresql://localhost/team"),
        ("postgresql://a,b/team", "postgresql://a,b/team"),
    ],
)
def test_people_are_shown_no_password(url: str, name: str) -> None:
    place = Place.of(url)
    assert place.name == name
    assert "pass-word" not in f"{place!r} {place.name}"


def test_a_path_is_a_file() -> None:
    assert Place.of("some/meritory.db") == Place(file=Path("some/meritory.db"))
    assert Place.of("~/meritory.db").file == Path.home() / "meritory.db"
    # A file may be called so.
    assert Place.of("postgresql:").file == Path("postgresql:")


def test_another_process_is_told_the_address_by_its_environment() -> None:
    place = Place(url=URL)
    assert "pass-word" not in place.argument
    assert Place.from_process(place.argument, place.environment) == place
    file = Place(file=Path("/data/meritory.db"))
    assert file.environment == {}
    assert Place.from_process(file.argument, place.environment) == file


@pytest.mark.parametrize("text", ["mysql://host/db", "https://host/db", "postgresql://h/a/b"])
def test_other_addresses_are_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(InputError) as refused:
        Place.of(text)
    assert text not in str(refused.value)


@pytest.mark.parametrize("sign", ["@", "/", "?", "#", "%", "%0", "%00", " ", "\n", "[", "\0"])
def test_a_password_that_would_be_read_as_something_else_is_refused(sign: str) -> None:
    """We would show a part of it as the host, or the driver would quote it when it complains."""
    for rest in ("@db.example/team", "@db.example:5433", "@db.example/team?sslmode=require"):
        with pytest.raises(InputError) as refused:
            Place.of(f"postgresql://ann:pass{sign}word{rest}")
        told = f"{refused.value} {refused.value.hint}"
        assert "pass" not in told.replace("password", "")
    assert Place.of("postgresql://ann:pass%40%2Fword@db.example/team").name.endswith("example/team")


def test_it_is_one_or_the_other() -> None:
    for wrong in ({}, {"file": Path("a"), "url": URL}):
        with pytest.raises(InputError):
            Place(**wrong)  # type: ignore[arg-type]
