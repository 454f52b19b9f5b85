"""Who may do what: every caller at every route with every method, on a real daemon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from web_types import Served

from meritory.server.app import TABLE
from meritory.server.auth import WRONG_TOKENS_PER_MINUTE

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PATHS = tuple(dict.fromkeys(route.path for route in TABLE))
HEALTH = {route.path for route in TABLE if route.access == "health"}
LOGIN = {route.path for route in TABLE if route.access == "login"}
PLACES = (*PATHS, "/", "/nothing")
CELLS = [(path, method) for path in PLACES for method in METHODS]
ALL_CELLS = CELLS + [(path, method) for path in PLACES for method in ("HEAD", "OPTIONS")]
REFUSED = {401, 403}


def real(path: str) -> str:
    """A path of the table with something in the place of its parameters."""
    return re.sub(r"\{[^}]+\}", "0000nobody", path)


def known(path: str, method: str) -> bool:
    method = "GET" if method == "HEAD" else method
    return any(route.method == method and covers(route.path, real(path)) for route in TABLE)


def covers(path: str, place: str) -> bool:
    """Whether a path of the table stands for an address."""
    # A parameter of the form {key:path} holds slashes, too.
    pattern = re.sub(r"\\{\w+:path\\}", ".+", re.escape(path))
    pattern = re.sub(r"\\{\w+\\}", "[^/]+", pattern)
    return re.fullmatch(pattern, place) is not None


def let_through(status: int, path: str, method: str) -> bool:
    """Whether an answer is one of the route itself, or of the router."""
    if path not in PATHS:
        return status == 404
    if path in LOGIN and known(path, method):
        # Nobody is let in without a code, whoever asks; and only looking uses no code up.
        return status == (405 if method == "HEAD" else 401)
    return status not in REFUSED | {405, 429} if known(path, method) else status == 405


def test_the_table_has_what_the_matrix_is_about() -> None:
    assert {"/health"} == HEALTH
    assert {"/dashboard/enter"} == LOGIN
    assert len(CELLS) >= 80
    assert {route.access for route in TABLE} >= {"health", "read", "write", "admin"}


def test_the_owner_comes_in_by_token_and_by_socket(daemon: Served) -> None:
    for path, method in ALL_CELLS:
        for status in (
            daemon.ask(method, real(path), tcp=True, headers=daemon.bearer).status,
            daemon.ask(method, real(path)).status,
        ):
            assert let_through(status, path, method), (path, method, status)


def test_without_a_token_only_health_and_the_login_answer(daemon: Served) -> None:
    for path, method in ALL_CELLS:
        reply = daemon.ask(method, real(path), tcp=True)
        if path in HEALTH | LOGIN:
            assert let_through(reply.status, path, method)
        else:
            assert reply.status == 401, (path, method)
            assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", ["host", "origin", "sec-fetch-site"])
def test_foreign_names_and_pages_are_refused_whatever_they_know(
    daemon: Served, header: str
) -> None:
    foreign = {
        "host": "evil.example",
        "origin": "http://evil.example",
        "sec-fetch-site": "cross-site",
    }
    for path, method in CELLS:
        for token in ({}, daemon.bearer):
            headers = {**token, header: foreign[header]}
            assert daemon.ask(method, real(path), tcp=True, headers=headers).status == 403, path


def test_a_token_in_the_address_is_refused_everywhere(daemon: Served) -> None:
    for path, method in CELLS:
        place = f"{real(path)}?token={daemon.token}"
        assert daemon.ask(method, place, tcp=True).status == 400
        assert daemon.ask(method, place, tcp=True, headers=daemon.bearer).status == 400


def test_wrong_tokens_are_refused_alike_and_then_told_to_wait(daemon: Served) -> None:
    seen: list[int] = []
    nobody = daemon.ask("GET", "/api/stats", tcp=True)
    browser = daemon.ask("GET", "/dashboard/", tcp=True)
    wrong = ["Bearer " + "0" * 64, "Bearer", f"Basic {daemon.token}", daemon.token, "Bearer é"]
    wrong += [f"Bearer {daemon.token[:-1]}", f"Bearer {daemon.token}0"]
    cells = [cell for cell in CELLS if cell[0] not in HEALTH | LOGIN]
    for number, (path, method) in enumerate(cells):
        headers = {"authorization": wrong[number % len(wrong)]}
        reply = daemon.ask(method, real(path), tcp=True, headers=headers)
        seen.append(reply.status)
        if reply.status == 401 and path.startswith("/dashboard"):
            assert reply.content == browser.content
        elif reply.status == 401:
            told, other = reply.json, nobody.json
            assert {**told, "request_id": ""} == {**other, "request_id": ""}
    assert seen[:WRONG_TOKENS_PER_MINUTE] == [401] * WRONG_TOKENS_PER_MINUTE
    assert set(seen[WRONG_TOKENS_PER_MINUTE:]) == {429}
    # Whoever guesses must not lock the owner out, nor hide that the daemon is alive.
    assert daemon.ask("GET", "/api/stats", tcp=True, headers=daemon.bearer).status == 200
    assert daemon.ask("GET", "/health", tcp=True).status == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_at_the_socket(daemon: Served) -> None:
    """Even when the file's own rights would let them through."""
    assert Path(daemon.socket).stat().st_mode & 0o777 == 0o600
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); os.chdir(sys.argv[1])\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try:\n    s.connect('meritory.sock')\n"
        "except PermissionError:\n    sys.exit(13)\n"
        "print(s.recv(1000).split()[1].decode())\n"
    )
    command = [sys.executable, "-c", code, str(daemon.home)]
    assert subprocess.run(command, timeout=60, check=False).returncode == 13
    daemon.home.chmod(0o711)
    os.chmod(daemon.socket, 0o666)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.chmod(daemon.socket, 0o600)
        daemon.home.chmod(0o700)
    assert done.stdout.strip() == "403", done
