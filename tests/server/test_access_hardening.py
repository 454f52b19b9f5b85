"""Ways in that somebody tried: tokens that outlive their end, tenants that crowd others out."""

from __future__ import annotations

import asyncio
import http.server
import json
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from access_kit import holder, id_of, make_token
from web_types import Serve, Served, clean_environment

from meritory.api import client
from meritory.api.address import read_url
from meritory.api.memory import Memory
from meritory.domain.errors import Conflict, InputError
from meritory.domain.memory import Scope
from meritory.engine import access
from meritory.hook import main
from meritory.server import app
from meritory.server import token_cache as door
from meritory.server.app import RateLimit, Workers
from meritory.server.problems import Overloaded, TooMany
from meritory.server.table import Call, Route, TextReply
from meritory.server.token_cache import Tokens

HOUR = timedelta(hours=1)


def wanted(**fields: object) -> dict[str, Any]:
    return {"name": "laptop", "role": "admin", "scope": Scope("ada"), **fields}


# -- tokens that make tokens --------------------------------------------------------------------


def test_a_token_that_ends_gets_none_that_does_not_by_rotating_another(daemon: Served) -> None:
    short = holder(daemon, "admin", user="ada", expires_in_s=3_600)
    endless = make_token(daemon, "admin", user="ada")
    known = daemon.ask("GET", "/api/tokens?user=ada").json["results"]
    end = next(one["expires_at"] for one in known if one["id"] == id_of(short.token))
    turned = short.ask("POST", f"/api/tokens/{id_of(endless)}/rotate", {})
    assert turned.json["expires_at"] == end is not None


def test_a_token_that_was_revoked_a_moment_ago_makes_none(daemon: Served) -> None:
    """The door may let it in for a second yet: what it made would open for ever."""
    admin = holder(daemon, "admin", user="bob")
    other = make_token(daemon, "read", user="bob")
    assert admin.ask("GET", "/api/tokens").status == 200
    assert daemon.ask("DELETE", f"/api/tokens/{id_of(admin.token)}?user=bob").status == 200
    made = admin.ask("POST", "/api/tokens", {"name": "x", "role": "admin"})
    turned = admin.ask("POST", f"/api/tokens/{id_of(other)}/rotate", {})
    assert {made.status, turned.status} <= {401, 409}
    left = daemon.ask("GET", "/api/tokens?user=bob").json["results"]
    assert [one["id"] for one in left] == [id_of(other)]


def test_a_maker_must_open_and_is_named_in_the_timeline(memory: Memory) -> None:
    services = memory.services
    maker = access.create(services, **wanted(life=HOUR)).token
    made = access.create(services, **wanted(maker=maker.id))
    assert made.token.expires_at == maker.expires_at
    (line,) = services.store.events("ada", request_id=made.token.id)
    assert line.details["by"] == maker.id
    access.revoke(services, maker)
    with pytest.raises(Conflict, match="has expired or is revoked"):
        access.create(services, **wanted(maker=maker.id))
    with pytest.raises(Conflict, match="has expired or is revoked"):
        access.rotate(services, made.token, timedelta(0), maker=maker.id)
    assert made.text not in repr(made)


def test_rows_of_tokens_do_not_grow_without_end(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MADE_LIMIT_PER_DAY", 2)
    for _ in range(2):
        access.revoke(memory.services, access.create(memory.services, **wanted()).token)
    with pytest.raises(Conflict, match="within a day"):
        access.create(memory.services, **wanted())


def test_a_narrow_token_does_not_learn_what_else_there_is(daemon: Served) -> None:
    narrow = holder(daemon, "admin", user="cem", project="api")
    wide = holder(daemon, "admin", user="cem")
    said = {"signal": "down", "context": "It broke"}
    event = wide.ask("POST", "/api/feedback", said).json["event"]["id"]
    nothing = "0" * len(event)
    pairs = [
        *((("DELETE", f"/api/tokens/{name}", None)) for name in (id_of(wide.token), "zzzzzzzz")),
        *(
            ("POST", "/api/library/complete-feedback", {"arguments": {"event_id": name}})
            for name in (event, nothing)
        ),
    ]
    told = []
    for method, path, body in pairs:
        reply = narrow.ask(method, path, body)
        assert reply.status == 404, reply.content
        shown = {**reply.json, "request_id": ""}
        shown["detail"] = shown["detail"].rpartition(" ")[0]
        told.append(shown)
    assert told[0] == told[1]
    assert told[2] == told[3]
    # A beginning that names one of theirs and one of others' names theirs.
    assert narrow.ask("DELETE", f"/api/tokens/{id_of(narrow.token)[:8]}").status == 200


# -- tenants that crowd others out ----------------------------------------------------------------


def test_one_tenant_takes_half_of_the_requests_and_no_more() -> None:
    now = [0.0]
    rate = RateLimit(10, lambda: now[0])
    for _ in range(5):
        rate.take("bob")
    with pytest.raises(TooMany):
        rate.take("bob")
    # What was refused took nothing from the others.
    for _ in range(3):
        rate.take("ada")
    for _ in range(2):
        rate.take()
    with pytest.raises(TooMany):
        rate.take()
    now[0] = 200.0
    rate.take("bob")
    RateLimit(0, lambda: 0.0).take("bob")


def test_the_shares_of_many_tenants_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "TENANT_LIMIT_COUNT", 3)
    rate = RateLimit(1_000, lambda: 0.0)
    for number in range(10):
        rate.take(f"tenant {number}")
    assert len(rate._shares) <= 3


def test_one_tenant_holds_half_of_the_places_and_no_more() -> None:
    async def scenario() -> None:
        workers, release = Workers(4, lambda: 0.0), threading.Event()
        held = [asyncio.create_task(workers.run(lambda: release.wait(30), "bob")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await workers.run(lambda: True, "bob")
        assert await workers.run(lambda: 7, "ada") == 7
        release.set()
        assert await asyncio.gather(*held) == [True, True]
        while workers.in_flight:
            await asyncio.sleep(0.001)
        assert not workers._by_tenant
        assert await workers.run(lambda: 8, "bob") == 8
        workers.close()

    asyncio.run(scenario())


def test_whoever_keeps_a_daemon_busy_keeps_no_other_tenant_out(serve: Serve) -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(call: Call) -> TextReply:
        entered.set()
        assert release.wait(30)
        return TextReply("done")

    route = Route(
        method="GET",
        path="/api/slow",
        handler=slow,
        access="read",
        reach="scope",
        summary="",
        reply=TextReply,
    )
    daemon = serve([route], in_flight_limit=2)
    ada, bob = (holder(daemon, "read", user=name) for name in ("ada", "bob"))
    held: list[int] = []
    thread = threading.Thread(target=lambda: held.append(bob.ask("GET", "/api/slow").status))
    thread.start()
    assert entered.wait(30)
    told = [one.ask("GET", "/api/memories").status for one in (bob, ada, bob)]
    release.set()
    thread.join(30)
    assert told == [503, 200, 503]
    assert held == [200]


def test_who_was_let_in_is_looked_up_again_while_others_guess(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = access.create(memory.services, **wanted())
    claim = access.read_claim(made.text.encode())
    assert claim is not None
    guess = access.TokenClaim("ada", "aaaaaaaa", bytes(32))
    tokens = Tokens(memory.services)

    async def scenario() -> None:
        assert await tokens.redeem(claim) is not None
        monkeypatch.setattr(door, "LOOKUP_LIMIT_COUNT", 0)
        monkeypatch.setattr(door, "FRESH_MS", 0.0)
        with pytest.raises(Overloaded):
            await tokens.redeem(guess)
        assert await tokens.redeem(claim) is not None

    asyncio.run(scenario())
    tokens.close()


# -- what a client sends, and where ---------------------------------------------------------------

TOKEN = "meritory_mfsgc_abcdefgh_" + "5e" * 32


def test_a_token_is_in_no_text_of_what_holds_it(tmp_path: Path) -> None:
    found = client.elsewhere({"MERITORY_URL": "https://far", "MERITORY_TOKEN": TOKEN}, tmp_path)
    assert found is not None
    assert found.token == TOKEN
    assert TOKEN not in repr(found) + repr(read_url("https://far", TOKEN))


@pytest.mark.parametrize(
    ("url", "token"),
    [("https://far", f"{TOKEN}\nX-Other: 1"), ("https://ann:5e5e@far", TOKEN)],
)
def test_what_cannot_be_sent_is_refused_without_being_quoted(
    url: str, token: str, tmp_path: Path
) -> None:
    """Sent on, the one is quoted by a traceback, the other too."""
    with pytest.raises(InputError) as refused:
        client.elsewhere({"MERITORY_URL": url, "MERITORY_TOKEN": token}, tmp_path)
    assert "5e5e" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    ("url", "is_exposed"),
    [
        ("http://memory.example", True),
        ("http://10.0.0.7:7737", True),
        ("http://127.0.0.1.example", True),
        ("https://memory.example", False),
        ("http://localhost:7737", False),
        ("http://127.0.0.1:7737", False),
        ("http://[::1]:7737", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_a_way_that_others_can_read_along(url: str, is_exposed: bool) -> None:
    assert client.is_exposed(url) is is_exposed


def test_a_hook_follows_no_redirect_with_its_token(tmp_path: Path) -> None:
    asked: list[tuple[str, str | None]] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, self.headers["authorization"]))
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(307)
            port = self.server.server_address[1]
            self.send_header("location", f"http://localhost:{port}/stolen")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    event = {"hook_event_name": "SessionStart", "session_id": "k", "source": "startup"}
    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        server.timeout = 10.0
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        script = Path(main.__file__).with_name("__main__.py")
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script), "--harness", "claude-code"],
            input=json.dumps(event).encode(),
            env=clean_environment(HOME=str(tmp_path), MERITORY_URL=url, MERITORY_TOKEN=TOKEN),
            capture_output=True,
            timeout=30,
            check=False,
        )
        thread.join()
        # Whoever had followed would have asked again by now.
        server.timeout = 0.1
        server.handle_request()
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert asked == [("/api/hooks/session-start", f"Bearer {TOKEN}")]
