"""Commands about tokens: told once, listed without a secret, renewed and ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cli_types import Run
from test_cli_shapes import misfits

from meritory.domain.access import AccessToken
from meritory.engine.access import proves, read_claim
from meritory.server.auth import load_token
from meritory.store.sqlite.store import SqliteStore

TOKEN = {
    "id": "str",
    "user": "str",
    "name": "str",
    "role": "str",
    "agent": "str?",
    "project": "str?",
    "created_at": "str",
    "expires_at": "str?",
    "revoked_at": "str?",
    "last_used_at": "str?",
    "is_valid": "bool",
}


def kept(home: Path, user: str = "default") -> dict[str, AccessToken]:
    store = SqliteStore(home / "meritory.db")
    found = {one.id: one for one in store.access_tokens(user)}
    store.close()
    return found


def span(token: AccessToken) -> timedelta:
    assert token.expires_at is not None
    return token.expires_at - token.created_at


def test_a_token_is_told_once_on_stdout_with_how_to_use_it(run: Run, home: Path) -> None:
    done = run("token", "create", "laptop", "--role", "write")
    text = done.out.strip()
    assert done.code == 0
    claim = read_claim(text.encode())
    assert claim is not None
    token = kept(home)[claim.token_id]
    assert proves(claim, token, token.created_at)
    assert (token.user, token.name, token.role) == ("default", "laptop", "write")
    assert "Authorization: Bearer" in done.err
    assert "Memory(url=..., token=...)" in done.err
    secret = text.split("_")[3]
    for command in (("token",), ("token", "list"), ("token", "list", "--json")):
        again = run(*command)
        assert token.id in again.out
        assert secret not in again.out + again.err
    for path in home.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()


def test_a_token_is_for_whom_it_was_made(run: Run, home: Path) -> None:
    options = ("--role", "read", "--user", "ada", "--agent", "claude", "--project", "api")
    done = run("token", "create", "ci", *options, "--expires", "90d", "--json")
    assert misfits(done.object, {**TOKEN, "token": "str", "notes": ["str"]}) == []
    (token,) = kept(home, "ada").values()
    assert (token.role, token.agent, token.project) == ("read", "claude", "api")
    assert span(token) == timedelta(days=90)
    assert kept(home) == {}
    shown = run("token", "list", "--user", "ada").out
    assert "agent claude api" in shown
    assert run("token", "list", "--json").object["results"] == []
    listed = run("token", "list", "--user", "ada", "--json").object["results"]
    assert misfits(listed, [TOKEN]) == []


def test_a_rotated_token_opens_for_a_while(run: Run, home: Path) -> None:
    old = run("token", "create", "x", "--role", "admin", "--expires", "7d", "--json").object
    new = run("token", "rotate", old["id"][:5], "--grace", "2h", "--json").object
    assert (new["name"], new["role"]) == ("x", "admin")
    assert new["token"] != old["token"]
    found = kept(home)
    made = datetime.fromisoformat(new["created_at"])
    assert found[old["id"]].expires_at == made + timedelta(hours=2)
    assert span(found[new["id"]]) == timedelta(days=7)
    run("token", "rotate", new["id"], "--grace", "0s")
    valid = run("token", "list", "--json").object["results"]
    assert new["id"] not in {one["id"] for one in valid}
    assert len(run("token", "list", "--all", "--json").object["results"]) == 3
    again = run("token", "rotate", new["id"])
    assert again.code == 1
    assert "has expired" in again.err


def test_a_revoked_token_is_ended(run: Run, home: Path) -> None:
    made = run("token", "create", "x", "--role", "read", "--json").object
    done = run("token", "revoke", made["id"], "--json")
    assert misfits(done.object, TOKEN) == []
    assert not done.object["is_valid"]
    assert run("token", "list", "--json").object["results"] == []
    assert "revoked" in run("token", "list", "--all").out
    assert run("token", "revoke", made["id"]).code == 0


def test_the_owners_token_is_rotated(run: Run, home: Path) -> None:
    assert run("token", "rotate", "--owner").code == 2
    home.mkdir(mode=0o700)
    former, _ = load_token(home)
    done = run("token", "rotate", "--owner", "--json")
    assert misfits(done.object, {"file": "str", "running": "bool", "notes": ["str"]}) == []
    present, is_new = load_token(home)
    assert not is_new
    assert present != former
    assert present not in done.out + done.err
    assert (home / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("create", "x"), 2),
        (("create", "x", "--role", "root"), 2),
        (("create", "", "--role", "read"), 2),
        (("create", "x", "--role", "read", "--expires", "soon"), 2),
        (("create", "x", "--role", "read", "--expires", "0d"), 2),
        (("create", "x", "--role", "read", "--expires", "9999w"), 2),
        (("rotate",), 2),
        (("rotate", "x", "--owner"), 2),
        (("rotate", "--owner", "--grace", "1h"), 2),
        (("rotate", "nobody"), 1),
        (("revoke", "nobody"), 1),
        (("revoke",), 2),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, home: Path, command: tuple[str, ...], code: int
) -> None:
    done = run("token", *command)
    assert done.code == code, done
    assert done.err.startswith("error: ")
