"""The guard itself: names, origins, tokens and the file the token lives in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meritory.domain.errors import MeritoryError, SettingsError, StorageError
from meritory.server.auth import (
    WRONG_TOKENS_PER_MINUTE,
    Guard,
    load_token,
    own_hosts,
)
from meritory.server.dashboard import Logins
from meritory.settings.home import write_private

TOKEN = "a1" * 32
PORT = 7737


class Clock:
    """Milliseconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def status(guard: Guard, *headers: tuple[str, str], door: str = "tcp", query: str = "") -> int:
    """How a request with these headers is answered; 200 when it is let through."""
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    try:
        guard.check(door, pairs, query.encode())  # type: ignore[arg-type]
    except MeritoryError as error:
        return error.status
    return 200


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> Guard:
    return Guard(TOKEN, own_hosts(PORT), clock, Logins(clock, PORT))


RIGHT = ("authorization", f"Bearer {TOKEN}")


@pytest.mark.parametrize("host", ["localhost:7737", "127.0.0.1:7737", "[::1]:7737"])
def test_own_names_with_the_port_are_let_through(guard: Guard, host: str) -> None:
    assert status(guard, ("host", host), RIGHT) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:7737",
        "localhost.:7737",
        "localhost:07737",
        "localhost:7738",
        "localhost:7737 ",
        "::1:7737",
        "127.0.0.1",
        "127.1:7737",
        "0.0.0.0:7737",
        "evil.example:7737",
        "localhost:7737.evil.example",
        "localhost:7737, localhost:7737",
        "user@localhost:7737",
    ],
)
def test_every_other_name_is_refused(guard: Guard, host: str) -> None:
    assert status(guard, ("host", host), RIGHT) == 403


def test_no_name_and_two_names_are_refused(guard: Guard) -> None:
    own = ("host", "localhost:7737")
    assert status(guard, RIGHT) == 403
    assert status(guard, own, own, RIGHT) == 403


def test_names_that_were_allowed_count_with_and_without_the_port() -> None:
    clock = Clock()
    guard = Guard(TOKEN, own_hosts(PORT, ["meritory.lan"]), clock, Logins(clock, PORT))
    for host, expected in (
        ("meritory.lan", 200),
        ("meritory.lan:7737", 200),
        ("meritory.lan:80", 403),
        ("x.meritory.lan", 403),
        ("localhost:7737", 200),
        ("localhost", 403),
    ):
        assert status(guard, ("host", host), RIGHT) == expected
    assert "localhost" in own_hosts(80)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("origin", "http://localhost:7737", 200),
        ("origin", "http://127.0.0.1:7737", 200),
        ("origin", "null", 403),
        ("origin", "http://localhost:3000", 403),
        ("origin", "http://localhost", 403),
        ("origin", "file://", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "cross-site", 403),
    ],
)
@pytest.mark.parametrize("door", ["tcp", "socket"])
def test_web_pages_of_others_are_refused(
    guard: Guard, name: str, value: str, expected: int, door: str
) -> None:
    headers = [("host", "localhost:7737"), RIGHT, (name, value)]
    assert status(guard, *headers, door=door) == expected


def test_the_socket_needs_neither_token_nor_name(guard: Guard) -> None:
    assert status(guard, door="socket") == 200
    assert status(guard, ("host", "whatever"), door="socket") == 200


@pytest.mark.parametrize("word", ["token", "access_token", "AUTHORIZATION", "api_key", "to%6ben"])
@pytest.mark.parametrize("door", ["tcp", "socket"])
def test_a_token_in_the_address_is_refused(guard: Guard, word: str, door: str) -> None:
    own = ("host", "localhost:7737")
    assert status(guard, own, RIGHT, door=door, query=f"limit=3&{word}=") == 400
    assert status(guard, own, RIGHT, door=door, query="limit=3&q=token") == 200


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN} {TOKEN}",
    ],
)
def test_only_the_whole_token_opens(guard: Guard, given: str) -> None:
    own = ("host", "localhost:7737")
    assert status(guard, own, ("authorization", given)) == 401
    assert status(guard, own, RIGHT, ("authorization", given)) == 401
    assert status(guard, own, ("authorization", f"bearer {TOKEN}")) == 200


def test_guessing_is_slowed_down_for_a_minute(guard: Guard, clock: Clock) -> None:
    own, wrong = ("host", "localhost:7737"), ("authorization", "Bearer nonsense")
    for number in range(WRONG_TOKENS_PER_MINUTE):
        clock.now = number * 100.0
        assert status(guard, own, wrong) == 401
    clock.now = 59_999.0
    assert status(guard, own, wrong) == 429
    assert status(guard, own, RIGHT) == 200
    assert status(guard, own) == 401
    clock.now = 60_000.0
    assert status(guard, own, wrong) == 401
    assert status(guard, own, wrong) == 429


def test_a_new_token_is_private_and_stays(tmp_path: Path) -> None:
    token, is_new = load_token(tmp_path)
    assert is_new
    assert len(bytes.fromhex(token)) == 32
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert load_token(tmp_path) == (token, False)
    assert os.listdir(tmp_path) == ["token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_token_that_others_could_read_is_replaced(tmp_path: Path, mode: int) -> None:
    token, _ = load_token(tmp_path)
    (tmp_path / "token").chmod(mode)
    other, is_new = load_token(tmp_path)
    assert is_new
    assert other != token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "short", "z" * 63, "../" * 30, "\u00e9" * 64])
def test_a_damaged_token_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    (tmp_path / "token").chmod(0o600)
    token, is_new = load_token(tmp_path)
    assert is_new
    assert len(token) == 64


def test_a_token_behind_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("a" * 64)
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match="not a plain file"):
        load_token(tmp_path)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "taken", tmp_path / "nowhere" / "token"):
        with pytest.raises(StorageError):
            write_private(path, "text")
    assert os.listdir(tmp_path) == ["taken"]
