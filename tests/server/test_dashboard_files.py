"""The dashboard's files: which there are, how they are sent, and that no others ever are."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from web_types import Served

from meritory.domain.errors import InputError
from meritory.server.dashboard import POLICY, read_files, refusal_page
from meritory.server.problems import Forbidden, Unauthorized

PAGE_WEIGHT_LIMIT_BYTES = 500_000
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def guarded(headers: dict[str, str]) -> dict[str, str]:
    """The headers that keep a browser safe."""
    return {name: headers[name] for name in HEADERS if name in headers}


def test_every_file_is_sent_as_what_it_is(daemon: Served) -> None:
    cookie, found = daemon.enter(), read_files()
    assert "index.html" in found
    for name, file in found.items():
        reply = daemon.ask("GET", f"/dashboard/{name}", tcp=True, headers=cookie)
        assert reply.status == 200
        assert reply.content == file.content
        kind = TYPES.get(Path(name).suffix)
        assert kind is None or reply.headers["content-type"] == kind
        assert guarded(dict(reply.headers)) == HEADERS
        assert reply.headers["cache-control"] == "no-cache"
    index = daemon.ask("GET", "/dashboard/", tcp=True, headers=cookie)
    assert index.content == found["index.html"].content
    short = daemon.ask("GET", "/dashboard", tcp=True, headers=cookie)
    assert (short.status, short.headers["location"]) == (308, "/dashboard/")


def test_what_a_browser_has_is_not_sent_again(daemon: Served) -> None:
    cookie = daemon.enter()
    etag = daemon.ask("GET", "/dashboard/", tcp=True, headers=cookie).headers["etag"]
    for known in (etag, f'"other", {etag}'):
        headers = {**cookie, "if-none-match": known}
        again = daemon.ask("GET", "/dashboard/", tcp=True, headers=headers)
        assert (again.status, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    other = {**cookie, "if-none-match": '"other"'}
    assert daemon.ask("GET", "/dashboard/", tcp=True, headers=other).status == 200


@pytest.mark.parametrize(
    "place",
    [
        "../../../../../../etc/passwd",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/token",
        "..\\..\\token",
        "/etc/passwd",
        "//etc/passwd",
        "lib/../../../token",
        "index.html/",
        "index.html%00.js",
        "lib",
        "lib/",
        "INDEX.HTML",
        "vendor/uplot.LICENSE",
        "__init__.py",
    ],
)
def test_nothing_else_can_be_asked_for(daemon: Served, place: str) -> None:
    reply = daemon.ask("GET", f"/dashboard/{place}", tcp=True, headers=daemon.enter())
    assert reply.status == 404
    assert daemon.token.encode() not in reply.content
    assert reply.headers["content-type"].startswith("text/html")
    assert guarded(dict(reply.headers)) == HEADERS


def test_outsiders_cannot_tell_which_files_there_are(daemon: Served) -> None:
    seen = {
        daemon.ask("GET", f"/dashboard/{name}", tcp=True).content
        for name in ("", "app.js", "index.html", "nothing.js", "../token")
    }
    assert len(seen) == 1
    assert guarded(dict(daemon.ask("GET", "/dashboard/", tcp=True).headers)) == HEADERS


def test_only_known_kinds_of_files_are_taken_in(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in ("a.js", "b.py", "c", ".hidden", "lib/d.css", "e.js.map", "lib/f.woff2"):
        (tmp_path / name).write_bytes(name.encode())
    found = read_files(tmp_path)
    assert set(found) == {"a.js", "lib/d.css", "lib/f.woff2"}
    assert found["a.js"].etag != found["lib/d.css"].etag
    assert read_files(tmp_path / "nowhere") == {}


def test_refusals_are_pages_without_any_markup_of_others() -> None:
    told = refusal_page(InputError("<script>alert(1)</script>", hint="<img src=x onerror=y>"))
    assert b"<script" not in told
    assert b"<img" not in told
    assert b"&lt;script&gt;" in told
    for error in (Unauthorized(), Forbidden("no"), InputError("x")):
        page = refusal_page(error).decode()
        assert page.startswith('<!doctype html>\n<html lang="en">')
        assert len(re.findall("<h1>", page)) == 1
        assert "style=" not in page


def test_pages_hold_nothing_that_the_policy_would_have_to_allow() -> None:
    """No inline script, style or handler, and nothing from elsewhere."""
    for name, file in read_files().items():
        text = file.content.decode("utf-8")
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>", text), name
            assert not re.search(r"\son\w+=|\sstyle=|<style", text), name
            assert not re.search(r"(src|href)=[\"']?(https?:)?//", text), name
        if name.endswith(".js") and not name.startswith("vendor/"):
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert word not in text, (name, word)


def test_the_dashboard_is_light_and_lies_in_the_package() -> None:
    weight = sum(len(file.content) for file in read_files().values())
    assert weight <= PAGE_WEIGHT_LIMIT_BYTES
    assert (files("meritory") / "dashboard" / "index.html").is_file()
