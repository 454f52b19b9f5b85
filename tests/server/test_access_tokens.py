"""Tokens at a daemon: shown, wrong, ended, renewed, and made by tokens."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from access_kit import Holder, holder, id_of, make_token
from hypothesis import given
from hypothesis import strategies as st
from web_types import Serve, Served, wait_for

from meritory.api.memory import Memory
from meritory.domain.access import AccessToken
from meritory.domain.errors import Busy, Conflict, InputError
from meritory.domain.memory import Scope
from meritory.engine import access
from meritory.server import token_cache as door
from meritory.server.auth import WRONG_TOKENS_PER_MINUTE, Grant, OwnToken, load_token, rotate_token
from meritory.server.problems import Overloaded
from meritory.server.token_cache import FRESH_MS, Tokens
from meritory.store.sqlite.store import SqliteStore
from meritory.text.secrets import find_secrets, redact

WEEK = timedelta(days=7)


def wanted(role: str = "write", user: str = "ada", life: timedelta | None = None) -> dict[str, Any]:
    return {"name": "laptop", "role": role, "scope": Scope(user), "life": life}


# -- the text -----------------------------------------------------------------------------------


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=256))
def test_a_token_says_whose_it_is_and_is_known_as_a_secret(user: str) -> None:
    text = "_".join((access.WORD, access._base32(user.encode()), "abcd2345", "a1b2c3d4" * 8))
    claim = access.read_claim(text.encode())
    assert claim is not None
    assert (claim.user, claim.token_id) == (user, "abcd2345")
    told = f"use {text}, it works"
    assert [one.kind for one in find_secrets(told)] == ["meritory_token"]
    assert "a1b2c3d4" not in redact(told)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"meritory",
        b"meritory___",
        b"meritory_mfsgc_abcd2345",
        b"meritory_mfsgc_abcd2345_",
        b"meritory_mfsgc_abcd2345_secret_more",
        b"other_mfsgc_abcd2345_secret",
        b"meritory_1!_abcd2345_secret",
        b"meritory_mfsgc_abcd2345_secr\xc3\xa9t",
        b"meritory_" + b"a" * 3_000 + b"_abcd2345_secret",
        b"meritory_7777_abcd2345_secret",
        b"meritory_aa_abcd2345_secret",
    ],
)
def test_what_is_no_token_claims_nothing(text: bytes) -> None:
    assert access.read_claim(text) is None


def test_every_minted_token_is_a_secret_of_256_bits_and_kept_as_a_hash(memory: Memory) -> None:
    made = [access.create(memory.services, **wanted()) for _ in range(50)]
    secrets = {one.text.split("_")[3] for one in made}
    assert len(secrets) == 50
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets)
    assert all(find_secrets(one.text) for one in made)
    assert all(access.read_claim(one.text.encode()) for one in made)
    for one in made:
        kept = memory.services.store.access_token("ada", one.token.id)
        assert kept == one.token
        assert one.text.split("_")[3] not in repr(kept)


# -- making, renewing, ending -------------------------------------------------------------------


def test_a_claim_holds_only_with_the_right_secret_in_its_time(memory: Memory) -> None:
    made = access.create(memory.services, **wanted(life=WEEK))
    claim = access.read_claim(made.text.encode())
    now, token = memory.services.world.now(), made.token
    assert claim is not None
    assert access.proves(claim, token, now)
    assert not access.proves(claim, None, now)
    assert not access.proves(dataclasses.replace(claim, digest=bytes(32)), token, now)
    assert not access.proves(dataclasses.replace(claim, digest=bytes(32)), None, now)
    assert not access.proves(claim, token, now + WEEK)
    assert not access.proves(claim, dataclasses.replace(token, revoked_at=now), now)


def test_a_rotated_token_opens_for_its_grace_and_no_longer(memory: Memory) -> None:
    services = memory.services
    old = access.create(services, **wanted(life=WEEK))
    new = access.rotate(services, old.token, timedelta(minutes=10))
    kept = services.store.access_token("ada", old.token.id)
    assert kept is not None
    assert kept.expires_at is not None
    assert kept.is_valid(new.token.created_at + timedelta(minutes=9))
    assert not kept.is_valid(new.token.created_at + timedelta(minutes=10))
    same = ("user", "name", "role", "agent", "project")
    assert all(getattr(new.token, name) == getattr(old.token, name) for name in same)
    assert new.token.expires_at == new.token.created_at + WEEK
    again = access.rotate(services, new.token, timedelta(0), maker=new.token.id)
    assert again.token.expires_at == new.token.expires_at
    gone = services.store.access_token("ada", new.token.id)
    assert gone is not None
    assert not gone.is_valid(again.token.created_at)
    with pytest.raises(Conflict, match="has expired or is revoked"):
        access.rotate(services, gone, timedelta(0))


def test_a_grace_prolongs_nothing(memory: Memory) -> None:
    services = memory.services
    old = access.create(services, **wanted(life=timedelta(minutes=1)))
    access.rotate(services, old.token, timedelta(minutes=10))
    kept = services.store.access_token("ada", old.token.id)
    assert kept is not None
    assert kept.expires_at == old.token.expires_at


def test_a_token_prolongs_no_other_however_long_it_lives_itself(memory: Memory) -> None:
    services = memory.services
    maker, old = access.create(services, **wanted()), access.create(services, **wanted(life=WEEK))
    made = access.rotate(services, old.token, timedelta(0), maker=maker.token.id)
    assert made.token.expires_at == old.token.expires_at


def test_what_is_wrong_with_a_token_is_said(memory: Memory) -> None:
    for bad in (
        ("", "read", Scope("ada"), None),
        ("x", "root", Scope("ada"), None),
        ("x", "read", Scope(""), None),
        ("x", "read", Scope("ada", "a\nb"), None),
        ("x", "read", Scope("ada"), timedelta(0)),
        ("x", "read", Scope("ada"), timedelta(days=9_999)),
    ):
        with pytest.raises(InputError):
            access.create(memory.services, *bad)
    assert list(memory.services.store.access_tokens("ada")) == []


def test_a_user_has_so_many_tokens_and_no_more(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "TOKENS_LIMIT_COUNT", 2)
    first = access.create(memory.services, **wanted())
    access.create(memory.services, **wanted())
    with pytest.raises(Conflict, match="already has 2 tokens"):
        access.create(memory.services, **wanted())
    access.create(memory.services, **wanted(user="bob"))
    access.revoke(memory.services, first.token)
    access.create(memory.services, **wanted())


# -- at the door --------------------------------------------------------------------------------


def redeemed(tokens: Tokens, text: str, times: int = 1) -> list[object]:
    claim = access.read_claim(text.encode())
    assert claim is not None

    async def all_of_them() -> list[object]:
        return [await tokens.redeem(claim) for _ in range(times)]

    return asyncio.run(all_of_them())


def test_a_token_is_looked_up_once_a_second_and_its_use_noted_once_a_minute(
    memory: Memory,
) -> None:
    assert FRESH_MS < 1_000
    made = access.create(memory.services, **wanted())
    tokens = Tokens(memory.services)
    looked: list[str] = []
    store = memory.services.store
    plain = store.access_token
    try:
        store.access_token = lambda user, name: (looked.append(name), plain(user, name))[1]  # type: ignore[method-assign]
        assert redeemed(tokens, made.text, 20) == [made.token] * 20
        assert looked == [made.token.id]
    finally:
        del store.access_token  # type: ignore[method-assign]
    wait_for(lambda: plain("ada", made.token.id) != made.token, "its use was not noted")
    tokens.close()
    noted = plain("ada", made.token.id)
    assert noted is not None
    assert noted.last_used_at is not None
    tokens = Tokens(memory.services)
    redeemed(tokens, made.text)
    tokens.close()
    assert plain("ada", made.token.id) == noted


def test_a_busy_token_is_written_down_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    made = access.create(memory.services, **wanted())
    tokens = Tokens(memory.services)
    store, written = memory.services.store, itertools.count()
    plain = store.write
    monkeypatch.setattr(store, "write", lambda user, work: (next(written), plain(user, work))[1])
    redeemed(tokens, made.text, 20)
    tokens._pool.shutdown(wait=True)
    assert next(written) == 1


def test_a_token_that_was_kept_ends_when_it_ends(memory: Memory) -> None:
    """The clock of this memory goes on by a second whenever somebody looks."""
    made = access.create(memory.services, **wanted(life=timedelta(seconds=10)))
    tokens = Tokens(memory.services)
    first, *_, last = redeemed(tokens, made.text, 20)
    tokens.close()
    assert (first, last) == (made.token, None)


def test_what_was_looked_up_is_as_old_as_the_question(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a slow store answers may have been revoked while it was on its way."""
    monkeypatch.setattr(door, "FRESH_MS", 50.0)
    made = access.create(memory.services, **wanted())
    tokens = Tokens(memory.services)
    looked: list[str] = []
    store = memory.services.store
    plain = store.access_token

    def slowly(user: str, token_id: str) -> AccessToken | None:
        found = plain(user, token_id)
        looked.append(token_id)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(store, "access_token", slowly)
    redeemed(tokens, made.text, 2)
    tokens.close()
    assert len(looked) == 2


def test_who_is_let_in_no_more_is_nobody_special(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "FRESH_MS", 0.0)
    made = access.create(memory.services, **wanted())
    tokens = Tokens(memory.services)
    assert redeemed(tokens, made.text) == [made.token]
    access.revoke(memory.services, made.token)
    assert redeemed(tokens, made.text) == [None]
    monkeypatch.setattr(door, "LOOKUP_LIMIT_COUNT", 0)
    with pytest.raises(Overloaded):
        redeemed(tokens, made.text)
    tokens.close()


def test_a_lookup_that_is_over_counts_no_more(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "LOOKUP_LIMIT_COUNT", 1)
    made = access.create(memory.services, **wanted())
    tokens = Tokens(memory.services)
    assert redeemed(tokens, made.text[:-1] + "x", 5) == [None] * 5
    assert redeemed(tokens, made.text) == [made.token]
    tokens.close()


def test_a_token_is_revoked_once(memory: Memory) -> None:
    services = memory.services
    made = access.create(services, **wanted())
    first = access.revoke(services, made.token)
    assert access.revoke(services, made.token) == first
    assert services.store.access_token("ada", made.token.id) == first
    told = services.store.events("ada", request_id=made.token.id)
    assert [one.name for one in told] == ["token.created", "token.revoked"]


def test_a_store_that_is_away_lets_nobody_in(memory: Memory) -> None:
    made = access.create(memory.services, **wanted())
    tokens = Tokens(memory.services)
    memory.close()
    for text in (made.text, made.text[:-1] + "0"):
        with pytest.raises(Busy) as refused:
            redeemed(tokens, text)
        assert refused.value.status == 503
    tokens.close()


def test_lookups_are_bounded(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LOOKUP_LIMIT_COUNT", 0)
    tokens = Tokens(memory.services)
    with pytest.raises(Overloaded):
        redeemed(tokens, access.create(memory.services, **wanted()).text)
    tokens.close()


def test_the_owners_token_is_taken_from_its_file_as_it_is_now(tmp_path: Path) -> None:
    home = tmp_path
    first, _ = load_token(home)
    own = OwnToken(first, home / "token")
    assert own.is_right(first.encode())
    second = rotate_token(home)
    assert own.is_right(second.encode())
    assert not own.is_right(first.encode())
    (home / "token").write_text("nonsense")
    assert own.is_right(second.encode())
    (home / "token").write_text("0" * 64)
    (home / "token").chmod(0o644)
    assert not own.is_right(b"0" * 64)
    (home / "token").unlink()
    assert own.is_right(second.encode())


# -- at a daemon --------------------------------------------------------------------------------


def test_wrong_tokens_are_refused_alike_whatever_is_wrong_with_them(serve: Serve) -> None:
    daemon = serve()
    right = make_token(daemon, "read", user="ada")
    word, user, name, secret = right.split("_")
    other = make_token(daemon, "read", user="bob").split("_")
    wrong = [
        "_".join(parts)
        for parts in (
            (word, user, name, secret[:-1] + ("0" if secret[-1] != "0" else "1")),
            (word, user, "aaaaaaaa", secret),
            (word, other[1], name, secret),
            (word, user, other[2], secret),
            (word, "orsxg5a", name, secret),
            (word, user, name, secret.upper()),
        )
    ]
    nobody = daemon.ask("GET", "/api/stats", tcp=True)
    assert nobody.status == 401
    for text in wrong:
        reply = Holder(daemon, text).ask("GET", "/api/stats")
        assert reply.status == 401, text
        assert {**reply.json, "request_id": ""} == {**nobody.json, "request_id": ""}
    for _ in range(WRONG_TOKENS_PER_MINUTE):
        last = Holder(daemon, wrong[0]).ask("GET", "/api/stats").status
    assert last == 429
    # Whoever guesses locks nobody out.
    assert Holder(daemon, right).ask("GET", "/api/stats").status == 200
    told = (daemon.home / "daemon.log").read_text()
    assert secret not in told


def test_a_revoked_token_opens_nothing_whoever_revoked_it(daemon: Served) -> None:
    someone = holder(daemon, "write", user="ada")
    assert someone.ask("GET", "/api/stats").status == 200
    # Another process on the same store, as another daemon would be.
    store = SqliteStore(daemon.home / "meritory.db")
    known = store.access_token("ada", id_of(someone.token))
    assert known is not None
    ended = dataclasses.replace(known, revoked_at=known.created_at)
    store.write("default", lambda transaction: transaction.put_access_token(ended))
    store.close()
    wait_for(lambda: someone.ask("GET", "/api/stats").status == 401, "it was let in for ever")


def test_the_owner_makes_lists_rotates_and_revokes(daemon: Served) -> None:
    made = daemon.ask(
        "POST",
        "/api/tokens",
        {"name": "ci", "role": "read", "user": "cem", "project": "api", "expires_in_s": 3_600},
    ).json
    assert (made["user"], made["role"], made["project"]) == ("cem", "read", "api")
    found = daemon.ask("GET", "/api/tokens?user=cem").json["results"]
    assert [one["id"] for one in found] == [made["id"]]
    assert "token" not in found[0]
    assert made["token"].split("_")[3] not in json.dumps(found)
    fresh = daemon.ask("POST", f"/api/tokens/{made['id']}/rotate", {"user": "cem", "grace_s": 60})
    old, new = Holder(daemon, made["token"]), Holder(daemon, fresh.json["token"])
    assert [one.ask("GET", "/api/memories").status for one in (old, new)] == [200, 200]
    gone = daemon.ask("DELETE", f"/api/tokens/{made['id']}?user=cem").json
    assert not gone["is_valid"]
    wait_for(lambda: old.ask("GET", "/api/memories").status == 401, "it was not revoked")
    assert new.ask("GET", "/api/memories").status == 200
    assert len(daemon.ask("GET", "/api/tokens?user=cem&every=true").json["results"]) == 2
    assert daemon.ask("DELETE", "/api/tokens/nobody?user=cem").status == 404
    named = daemon.ask("GET", f"/api/timeline/{made['id']}?user=cem").json["results"]
    assert [one["event"] for one in named] == ["token.created", "token.revoked"]


def test_a_token_makes_tokens_of_its_own_user_and_scope_alone(daemon: Served) -> None:
    admin = holder(daemon, "admin", user="dora", expires_in_s=3_600)
    narrow = holder(daemon, "admin", user="dora", agent="claude", project="api")
    strangers = make_token(daemon, "read", user="eve")

    def made(by: Holder, **fields: object) -> int:
        return by.ask("POST", "/api/tokens", {"name": "x", "role": "read", **fields}).status

    assert made(admin) == made(admin, user="dora") == made(admin, project="any") == 200
    assert made(admin, user="eve") == 403
    assert made(narrow) == made(narrow, agent="claude") == 200
    assert made(narrow, project="other") == made(narrow, agent="other") == 403
    assert made(holder(daemon, "write", user="dora")) == 403
    # What a token makes lasts no longer than it does.
    mine = admin.ask("POST", "/api/tokens", {"name": "y", "role": "admin"}).json
    assert mine["expires_at"] is not None
    far = {"name": "z", "role": "admin", "expires_in_s": 10**8}
    assert admin.ask("POST", "/api/tokens", far).json["expires_at"] == mine["expires_at"]
    turned = admin.ask("POST", f"/api/tokens/{id_of(admin.token)}/rotate", {}).json
    assert turned["expires_at"] == mine["expires_at"]
    seen = narrow.ask("GET", "/api/tokens").json["results"]
    assert {(one["agent"], one["project"]) for one in seen} == {("claude", "api")}
    for path in (f"/api/tokens/{id_of(strangers)}", f"/api/tokens/{id_of(admin.token)}"):
        assert narrow.ask("DELETE", path).status == 404
    assert admin.ask("DELETE", f"/api/tokens/{id_of(strangers)}").status == 404
    assert admin.ask("DELETE", f"/api/tokens/{id_of(strangers)}?user=eve").status == 403
    assert admin.ask("GET", "/api/tokens?user=eve").status == 403
    assert Holder(daemon, strangers).ask("GET", "/api/stats").status == 200


def test_the_owners_token_is_rotated_while_the_daemon_runs(serve: Serve) -> None:
    daemon = serve()
    assert daemon.ask("GET", "/api/logs", tcp=True, headers=daemon.bearer).status == 200
    former = dict(daemon.bearer)
    daemon.token = rotate_token(daemon.home)
    assert daemon.ask("GET", "/api/logs", tcp=True, headers=daemon.bearer).status == 200
    assert daemon.ask("GET", "/api/logs", tcp=True, headers=former).status == 401


def test_a_request_is_written_down_with_the_token_that_made_it(serve: Serve) -> None:
    daemon = serve(log_level="debug")
    someone = holder(daemon, "read", user="ada")
    someone.ask("GET", "/api/stats")
    lines = [json.loads(line) for line in (daemon.home / "daemon.log").read_text().splitlines()]
    told = [line.get("token") for line in lines if line.get("path") == "/api/stats"]
    assert told == [id_of(someone.token)]


def test_a_grant_names_what_it_may_not() -> None:
    narrow = Grant("token", "write", "ada", None, "api")
    assert narrow.scope(None, None, None) == ("ada", None, "api")
    assert narrow.scope("ada", "claude", "api") == ("ada", "claude", "api")
    assert narrow.is_narrow
    assert not Grant("token", "admin", "ada").is_narrow
