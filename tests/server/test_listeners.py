"""Sockets and locks: private, out of the way of others, and never two of a kind."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from web_types import wait_for

from meritory.api import client
from meritory.domain.errors import Conflict, SettingsError
from meritory.ports.file_lock import held
from meritory.server.connection import is_loopback, open_listeners
from meritory.settings import Settings, load_settings
from meritory.settings.home import SOCKET_NAME


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def settings(home: Path, **chosen: object) -> Settings:
    return load_settings(home, {}, {f"daemon.{name}": value for name, value in chosen.items()})


def test_a_port_in_use_is_refused_when_it_was_asked_for(home: Path) -> None:
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Conflict, match=f"port {port} .* is in use"),
            open_listeners(settings(home, port=port)),
        ):
            pass


def test_the_default_port_gives_way(home: Path) -> None:
    home.mkdir()
    chosen = load_settings(home, {})
    with open_listeners(chosen) as first, open_listeners(load_settings(home.parent, {})) as second:
        assert first.url != second.url
        assert any("is in use" in note for note in second.notes)


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = home / ("x" * 110)
    long.mkdir(parents=True)
    short = tmp_path / "t"
    short.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(short))
    with open_listeners(settings(long, port=0)) as doors:
        assert doors.unix_path is not None
        assert doors.unix_path.parent == short / f"meritory-{os.geteuid()}"
        assert doors.unix_path.parent.stat().st_mode & 0o777 == 0o700
        assert doors.unix_path.stat().st_mode & 0o777 == 0o600
        assert any("too long" in note for note in doors.notes)
    assert os.listdir(short / f"meritory-{os.geteuid()}") == []
    (short / f"meritory-{os.geteuid()}").chmod(0o755)
    with open_listeners(settings(long, port=0)) as doors:
        assert doors.unix_path is None
        assert doors.sockets == [doors.tcp]
        assert any("TCP only" in note for note in doors.notes)


def test_what_is_no_socket_is_left_alone(home: Path) -> None:
    home.mkdir()
    (home / SOCKET_NAME).write_text("precious")
    with pytest.raises(SettingsError, match="not a socket"), open_listeners(settings(home, port=0)):
        pass
    assert (home / SOCKET_NAME).read_text() == "precious"


def test_a_remote_address_is_warned_about(home: Path) -> None:
    home.mkdir()
    with open_listeners(settings(home, port=0, host="0.0.0.0"), ["meritory.lan"]) as doors:
        assert any("not speak TLS" in note for note in doors.notes)
        assert "meritory.lan" in doors.hosts
        assert not any(name.startswith("0.0.0.0") for name in doors.hosts)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_names_of_this_machine_need_the_port(home: Path, host: str) -> None:
    home.mkdir()
    with open_listeners(settings(home, port=0, host=host), ["meritory.lan"]) as doors:
        port = doors.tcp.getsockname()[1]
        assert f"{host}:{port}" in doors.hosts
        # Another program may serve the default port of this machine.
        assert {name for name in doors.hosts if ":" not in name} == {"meritory.lan"}


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_what_counts_as_this_machine(host: str, own: bool) -> None:
    assert is_loopback(host) == own


def test_a_lock_outlives_somebody_who_only_looks(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    with held(path, "it", "then"):
        assert client.holder_pid(tmp_path) == os.getpid()
        with (
            pytest.raises(Conflict, match=f"process {os.getpid()}, since then"),
            held(path, "it", "now"),
        ):
            pass
        path.write_text("garbage")
        with pytest.raises(Conflict, match="just starting or ending"), held(path, "it", "now"):
            pass
        assert client.holder_pid(tmp_path) == 0
    assert client.holder_pid(tmp_path) is None
    wait_for(lambda: client.holder_pid(tmp_path) is None, "still held")
