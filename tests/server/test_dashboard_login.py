"""How a browser gets into the dashboard, what it may do there, and who stays outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from test_auth_matrix import CELLS, PATHS, covers, known, let_through, real
from web_types import Serve, Served, wait_for

from meritory.server.app import TABLE
from meritory.server.auth import DASHBOARD, OWNER, WRONG_TOKENS_PER_MINUTE, Guard, own_hosts
from meritory.server.dashboard import (
    LINK_LIFE_S,
    LINK_LIMIT,
    LOGIN_LIFE_S,
    LOGIN_LIMIT,
    OFFERED,
    Logins,
    own_address,
)
from meritory.server.problems import Forbidden, TooMany, Unauthorized
from meritory.settings.home import LOGINS_NAME, write_private
from meritory.store.sqlite.store import SqliteStore

LOGOUT = "/api/dashboard/logout"
PORT = 7737
REFUSED = {401, 403}


class Clock:
    """Milliseconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def allowed(path: str, method: str) -> bool:
    """Whether the dashboard offers what a route does."""
    found = (route for route in TABLE if route.method == method and covers(route.path, real(path)))
    return any(
        route.access in ("read", "write") or (route.method, route.path) in OFFERED
        for route in list(found)[:1]
    )


def own(daemon: Served) -> dict[str, str]:
    """What a page of the daemon's own sends along."""
    return {"origin": daemon.url, "sec-fetch-site": "same-origin"}


# -- the link -----------------------------------------------------------------------------------


def test_a_link_works_once_and_leaves_a_cookie_no_script_can_read(daemon: Served) -> None:
    told = daemon.ask("POST", "/api/dashboard/links").json
    assert told["expires_in_s"] == LINK_LIFE_S
    place = told["url"].removeprefix(daemon.url)
    assert len(place.partition("code=")[2]) >= 43  # 256 bits
    first = daemon.ask("GET", place, tcp=True)
    assert first.status == 303
    assert first.headers["location"] == "/dashboard/"
    flags = {part.strip() for part in first.headers["set-cookie"].split(";")[1:]}
    assert flags == {"Path=/", f"Max-Age={LOGIN_LIFE_S}", "HttpOnly", "SameSite=Strict"}
    assert first.headers["cache-control"] == "no-store"
    again = daemon.ask("GET", place, tcp=True)
    assert again.status == 401
    assert "set-cookie" not in again.headers
    assert b"meritory dashboard" in again.content
    cookie = {"cookie": first.headers["set-cookie"].partition(";")[0]}
    assert daemon.ask("GET", "/dashboard/", tcp=True, headers=cookie).status == 200
    assert daemon.ask("GET", "/api/stats", tcp=True, headers=cookie).status == 200


def test_behind_a_proxy_with_tls_the_cookie_keeps_to_it(daemon: Served) -> None:
    link = daemon.ask("POST", "/api/dashboard/links").json["url"].removeprefix(daemon.url)
    reply = daemon.ask("GET", link, tcp=True, headers={"x-forwarded-proto": "https"})
    assert "Secure" in reply.headers["set-cookie"]


def test_only_the_owner_makes_links(daemon: Served) -> None:
    links = "/api/dashboard/links"
    assert daemon.ask("POST", links, tcp=True).status == 401
    assert daemon.ask("POST", links, tcp=True, headers=daemon.bearer).status == 200
    browser = {**daemon.enter(), **own(daemon)}
    assert daemon.ask("POST", links, tcp=True, headers=browser).status == 403


@pytest.mark.parametrize("code", ["", "?code=", "?code=nothing", "?code=%00", "?other=1"])
def test_a_wrong_link_lets_nobody_in(daemon: Served, code: str) -> None:
    reply = daemon.ask("GET", f"/dashboard/enter{code}", tcp=True)
    assert reply.status in (401, 422)
    assert "set-cookie" not in reply.headers


def test_a_page_of_somebody_elses_cannot_use_a_link_up(daemon: Served) -> None:
    link = daemon.ask("POST", "/api/dashboard/links").json["url"].removeprefix(daemon.url)
    for name, value in (("sec-fetch-site", "cross-site"), ("origin", "http://evil.example")):
        assert daemon.ask("GET", link, tcp=True, headers={name: value}).status == 403
    assert daemon.ask("GET", link, tcp=True, headers={"sec-fetch-site": "none"}).status == 303


def test_who_only_looks_at_a_link_does_not_use_it_up(daemon: Served) -> None:
    link = daemon.ask("POST", "/api/dashboard/links").json["url"].removeprefix(daemon.url)
    looked = daemon.ask("HEAD", link, tcp=True)
    assert looked.status == 405
    assert "set-cookie" not in looked.headers
    assert daemon.ask("GET", link, tcp=True).status == 303


def test_secrets_are_nowhere_in_the_data_folder(daemon: Served) -> None:
    link = daemon.ask("POST", "/api/dashboard/links").json["url"]
    secrets = [daemon.enter()["cookie"].partition("=")[2], link.partition("code=")[2]]
    daemon.ask("GET", "/dashboard/enter?code=wrong", tcp=True)
    for path in daemon.home.rglob("*"):
        if path.is_file() and not path.is_socket():
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), path


# -- every route, every caller --------------------------------------------------------------------


def test_what_the_dashboard_offers_beyond_plain_routes_is_there() -> None:
    listed = {(route.method, route.path) for route in TABLE}
    assert listed >= OFFERED
    plain = {(route.method, route.path) for route in TABLE if route.access in ("read", "write")}
    assert not OFFERED & plain
    assert not any("purge" in path or "backup" in path or "links" in path for _, path in OFFERED)


def test_a_browser_reads_with_its_cookie_alone(daemon: Served) -> None:
    cookie = daemon.enter()
    for path in PATHS:
        for site in ({}, {"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}):
            status = daemon.ask("GET", real(path), tcp=True, headers={**cookie, **site}).status
            assert let_through(status, path, "GET"), (path, status)


def test_a_browser_changes_only_what_pages_of_ours_offer(daemon: Served) -> None:
    cookie = daemon.enter()
    changing = [(path, method) for path, method in CELLS if method != "GET"]
    for path, method in changing:
        if path == LOGOUT and method == "POST":
            continue
        bare = daemon.ask(method, real(path), tcp=True, headers=cookie).status
        typed = daemon.ask(
            method, real(path), tcp=True, headers={**cookie, "sec-fetch-site": "none"}
        ).status
        if path not in ("/dashboard/enter", "/health"):
            assert (bare, typed) == (403, 403), (path, method)
        status = daemon.ask(method, real(path), tcp=True, headers={**cookie, **own(daemon)}).status
        if known(path, method) and not allowed(path, method):
            assert status == 403, (path, method)
        else:
            assert let_through(status, path, method), (path, method, status)


FOREIGN = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    # Another port of this machine is the same site, and gets the cookie sent along.
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"},
    {"host": "evil.example"},
)


def test_other_pages_get_nothing_out_of_a_cookie(daemon: Served) -> None:
    cookie = daemon.enter()
    for number, (path, method) in enumerate(CELLS):
        headers = {**cookie, **FOREIGN[number % len(FOREIGN)]}
        assert daemon.ask(method, real(path), tcp=True, headers=headers).status == 403, path
    for foreign in FOREIGN:
        for path, method in (("/api/stats", "GET"), ("/dashboard/", "GET"), (LOGOUT, "POST")):
            headers = {**cookie, **foreign}
            assert daemon.ask(method, path, tcp=True, headers=headers).status == 403, foreign
    assert daemon.ask("GET", "/api/stats", tcp=True, headers=cookie).status == 200


def test_a_wrong_token_is_not_made_good_by_a_cookie(daemon: Served) -> None:
    headers = {**daemon.enter(), "authorization": "Bearer wrong"}
    assert daemon.ask("GET", "/api/stats", tcp=True, headers=headers).status == 401


def test_reading_changes_nothing(daemon: Served) -> None:
    def state() -> object:
        store = SqliteStore(daemon.home / "meritory.db")
        try:
            return {**store.change_numbers(), "users": store.users()}
        finally:
            store.close()

    daemon.ask("POST", "/api/memories", {"content": "We deploy on Mondays"})
    cookie, before = daemon.enter(), state()
    for path in PATHS:
        for method in ("GET", "HEAD"):
            daemon.ask(method, real(path), tcp=True, headers=cookie)
    assert state() == before
    assert daemon.ask("GET", "/api/stats", tcp=True, headers=cookie).status == 200


# -- leaving ------------------------------------------------------------------------------------


def test_a_browser_leaves_alone_or_all_do(daemon: Served) -> None:
    one, other, third = daemon.enter(), daemon.enter(), daemon.enter()

    def is_in(cookie: dict[str, str]) -> bool:
        return daemon.ask("GET", "/api/stats", tcp=True, headers=cookie).status == 200

    done = daemon.ask("POST", LOGOUT, tcp=True, headers={**one, **own(daemon)})
    assert done.json == {"ended": 1}
    assert [is_in(one), is_in(other), is_in(third)] == [False, True, True]
    everyone = daemon.ask("POST", f"{LOGOUT}?everywhere=true")
    assert everyone.json["ended"] >= 2
    assert [is_in(other), is_in(third)] == [False, False]
    assert daemon.ask("POST", LOGOUT).json == {"ended": 0}


def test_one_browser_is_in_two_daemons_at_once(daemon: Served, serve: Serve) -> None:
    other = serve()
    both = {"cookie": f"{daemon.enter()['cookie']}; {other.enter()['cookie']}"}
    for one in (daemon, other):
        assert one.ask("GET", "/api/stats", tcp=True, headers=both).status == 200
    left = daemon.ask("POST", LOGOUT, tcp=True, headers={**both, **own(daemon)})
    assert left.json == {"ended": 1}
    assert daemon.ask("GET", "/api/stats", tcp=True, headers=both).status == 401
    assert other.ask("GET", "/api/stats", tcp=True, headers=both).status == 200


def test_a_secret_of_another_daemon_is_a_wrong_token(daemon: Served, serve: Serve) -> None:
    other = serve()
    secret = daemon.enter()["cookie"].partition("=")[2]
    cookie = {"cookie": f"{other.enter()['cookie'].partition('=')[0]}={secret}"}
    seen = [
        other.ask("GET", "/api/stats", tcp=True, headers=cookie).status
        for _ in range(WRONG_TOKENS_PER_MINUTE + 2)
    ]
    assert seen == [401] * WRONG_TOKENS_PER_MINUTE + [429] * 2
    # A browser is told what to do in both cases, and who knows better is not locked out.
    page = other.ask("GET", "/dashboard/", tcp=True, headers=cookie)
    assert page.status == 429
    assert b"meritory dashboard" in page.content
    assert other.ask("GET", "/api/stats", tcp=True, headers=other.enter()).status == 200


def test_a_restart_keeps_logins_but_not_those_that_ended(serve: Serve) -> None:
    first = serve()
    kept, ended = first.enter(), first.enter()
    out = {**ended, **own(first)}
    assert first.ask("POST", LOGOUT, tcp=True, headers=out).json == {"ended": 1}
    first.stop()
    wait_for(lambda: bool(first.finished), "it did not end")
    file = first.home / LOGINS_NAME
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept["cookie"].partition("=")[2] not in file.read_text()
    second = serve(port=first.address[1])
    assert second.ask("GET", "/dashboard/", tcp=True, headers=kept).status == 200
    assert second.ask("GET", "/dashboard/", tcp=True, headers=ended).status == 401
    second.ask("POST", f"{LOGOUT}?everywhere=true")
    second.stop()
    wait_for(lambda: bool(second.finished), "it did not end")
    third = serve(port=first.address[1])
    assert third.ask("GET", "/dashboard/", tcp=True, headers=kept).status == 401


# -- the parts ------------------------------------------------------------------------------------


def test_links_and_logins_end_by_themselves() -> None:
    clock = Clock()
    logins = Logins(clock, PORT)
    early, late = logins.new_link(), logins.new_link()
    clock.now = LINK_LIFE_S * 1000 - 1
    secret = logins.enter(early)
    assert secret is not None
    clock.now += 1
    assert logins.enter(late) is None
    assert logins.is_valid(secret)
    clock.now += LOGIN_LIFE_S * 1000
    assert not logins.is_valid(secret)
    assert logins.end_all() == 0


def test_a_kept_login_ends_when_it_would_have_ended(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "logins.json"
    first = Logins(clock, PORT, file)
    secret = str(first.enter(first.new_link()))
    clock.now = LOGIN_LIFE_S * 1000 - 1.0
    second = Logins(clock, PORT, file)
    assert second.is_valid(secret)
    clock.now += 1
    assert not second.is_valid(secret)
    assert not Logins(clock, PORT, file).is_valid(secret)
    # A clock that was far ahead must not prolong a login.
    clock.now = -1.0
    assert not Logins(clock, PORT, file).is_valid(secret)


@pytest.mark.parametrize("content", ["", "[]", '{"zz": 1}', '{"00": "never"}', '{"00": null}'])
def test_a_damaged_file_of_logins_is_empty(tmp_path: Path, content: str) -> None:
    file = tmp_path / "logins.json"
    write_private(file, content)
    logins = Logins(Clock(), PORT, file)
    assert logins.end_all() == 0


def test_a_file_of_logins_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "logins.json"
    first = Logins(Clock(), PORT, file)
    secret = str(first.enter(first.new_link()))
    assert Logins(Clock(), PORT, file).is_valid(secret)
    file.chmod(0o622)
    assert not Logins(Clock(), PORT, file).is_valid(secret)


def test_a_login_that_ended_does_not_come_back_when_the_file_cannot_be_written(
    tmp_path: Path,
) -> None:
    file = tmp_path / "logins.json"
    first = Logins(Clock(), PORT, file)
    secret = str(first.enter(first.new_link()))
    # The name of the temporary file is taken by a folder.
    (tmp_path / f"logins.json.{os.getpid()}.new" / "x").mkdir(parents=True)
    assert first.end(secret) == 1
    assert not Logins(Clock(), PORT, file).is_valid(secret)


def test_there_are_never_many_links_and_logins() -> None:
    logins = Logins(Clock(), PORT)
    links = [logins.new_link() for _ in range(LINK_LIMIT + 1)]
    assert logins.enter(links[0]) is None
    assert logins.enter(links[-1]) is not None
    entered = [logins.enter(logins.new_link()) for _ in range(LOGIN_LIMIT + 1)]
    assert not logins.is_valid(str(entered[0]))
    assert logins.is_valid(str(entered[-1]))


def test_a_cookie_is_found_among_others() -> None:
    logins = Logins(Clock(), PORT)
    name = logins.cookie_name
    assert logins.secrets_in("") == []
    assert logins.secrets_in(f"a=b; {name}=one;{name}=two; x{name}=no; {name}1=no") == [
        "one",
        "two",
    ]
    assert logins.secrets_in(f"{name}; {name}=") == []
    assert logins.cookie("x", True).endswith("Secure")
    assert Logins(Clock(), PORT + 1).secrets_in(f"{name}=one") == []


def test_a_planted_cookie_does_not_hide_the_right_one() -> None:
    clock = Clock()
    logins = Logins(clock, PORT)
    guard = Guard("a1" * 32, own_hosts(PORT), clock, logins)
    name = logins.cookie_name
    secret = logins.enter(logins.new_link())
    host = (b"host", b"127.0.0.1:7737")
    both = (b"cookie", f"{name}=planted; {name}={secret}".encode())
    wrong = (b"cookie", f"{name}=\xff".encode("latin-1"))
    assert guard.check("tcp", [host, both], b"", is_reading=True) == DASHBOARD
    with pytest.raises(Forbidden):
        guard.check("tcp", [host, both], b"")
    for _ in range(WRONG_TOKENS_PER_MINUTE):
        with pytest.raises(Unauthorized):
            guard.check("tcp", [host, wrong], b"", is_reading=True)
    with pytest.raises(TooMany):
        guard.check("tcp", [host, wrong], b"", is_reading=True)
    assert guard.check("socket", [wrong], b"") == OWNER


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:7737", "http://127.0.0.1:7737"),
        ("http://localhost:7737", "http://localhost:7737"),
        ("http://0.0.0.0:7737", "http://127.0.0.1:7737"),
        ("http://[::]:7737", "http://[::1]:7737"),
        ("http://[::1]:7737", "http://[::1]:7737"),
    ],
)
def test_the_link_names_an_address_that_a_browser_can_use(url: str, expected: str) -> None:
    assert own_address(url) == expected


def test_the_refusal_of_an_api_route_stays_json(daemon: Served) -> None:
    reply = daemon.ask("GET", "/api/live", tcp=True)
    assert reply.status == 401
    assert json.loads(reply.content)["code"] == "unauthorized"
