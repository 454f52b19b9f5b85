"""What must never happen in a browser: foreign code, foreign eyes, unreadable pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import Served, link, open_tab
from payloads import PAYLOADS
from test_dashboard_pages import PAGES

STATIC = Path(__file__).resolve().parents[2] / "src" / "meritory" / "dashboard"
PAGE_WEIGHT_LIMIT_BYTES = 500_000


def test_two_hundred_payloads_are_tried() -> None:
    assert len(set(PAYLOADS)) >= 200


def test_stored_texts_never_become_code(chromium: Any, cold: Served) -> None:
    context = chromium.new_context()
    context.add_init_script(
        "window.alert = window.confirm = window.prompt = () => { window.__xss = true }"
    )
    page = context.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for number, payload in enumerate(PAYLOADS):
        stored = cold.ask(
            "POST",
            "/api/memories",
            {"content": f"{payload} {number}", "on_similar": "keep", "tags": [], "about": []},
        )
        assert stored.status in (200, 201), (payload, stored.content)
    cold.ask(
        "POST",
        "/api/feedback",
        {
            "signal": "thumbs_down",
            "context": PAYLOADS[0],
            "what_went_wrong": PAYLOADS[1],
            "what_to_change": PAYLOADS[2],
        },
    )
    cold.ask(
        "POST",
        "/api/hooks/session-start",
        {
            "session_key": 'xss"><img src=x onerror=alert(1)>',
            "context": PAYLOADS[3],
            "project": "p",
            "harness": "claude-code",
        },
    )
    page.goto(link(cold))
    for path in (*PAGES, "/memories?q=alert"):
        page.evaluate("path => { location.hash = path }", path)
        page.wait_for_selector(".page[data-ready=yes]")
        for _ in range(8):
            more = page.get_by_role("button", name="Show more")
            if path != "/memories" or not more.count():
                break
            more.click()
            page.wait_for_timeout(120)
        page.wait_for_timeout(80)
        assert page.evaluate("window.__xss") is None
        assert (
            page.locator(
                "main script, main iframe, main img, main object, main form[action]"
            ).count()
            == 0
        )
    assert dialogs == []
    context.close()


def test_a_payload_would_be_noticed(chromium: Any) -> None:
    """The control: the same watch on a page without our care does see it."""
    context = chromium.new_context()
    context.add_init_script("window.alert = () => { window.__xss = true }")
    page = context.new_page()
    page.set_content("<img src=x onerror=alert(1)>")
    page.wait_for_function("window.__xss === true")
    context.close()


def test_no_markup_is_ever_made_from_text() -> None:
    banned = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\("
        r"|new Function|srcdoc|DOMParser"
    )
    for file in STATIC.rglob("*.js"):
        if "vendor" not in file.parts:
            assert banned.search(file.read_text("utf-8")) is None, file.name


def test_a_browser_without_the_link_sees_nothing(chromium: Any, cold: Served) -> None:
    tab = open_tab(chromium, cold)
    other = chromium.new_context().new_page()
    for path in (
        "/dashboard/",
        "/dashboard/app.js",
        "/api/memories",
        "/api/live",
        "/dashboard/pages/memories.js",
    ):
        assert other.goto(cold.url + path).status in (401, 403)
        assert "Latest memories" not in other.content()
    used = link(cold)
    first = chromium.new_context().new_page()
    assert first.goto(used).status == 200
    again = chromium.new_context().new_page()
    assert again.goto(used).status in (401, 403, 410)
    cookies = tab.page.context.cookies()
    assert len(cookies) == 1
    assert cookies[0]["httpOnly"]
    assert cookies[0]["sameSite"] == "Strict"
    for page in (other, first, again, tab.page):
        page.context.close()


def test_the_policy_forbids_inline_code(chromium: Any, cold: Served) -> None:
    tab = open_tab(chromium, cold)
    answer = tab.page.goto(cold.url + "/dashboard/")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    tab.page.evaluate(
        "() => { const s = document.createElement('script');"
        " s.textContent = 'window.__inline = 1'; document.body.append(s) }"
    )
    assert tab.page.evaluate("window.__inline") is None
    tab.page.context.close()


def test_a_page_weighs_little(chromium: Any, active: Served) -> None:
    sizes: list[int] = []
    context = chromium.new_context()
    page = context.new_page()
    page.on(
        "response",
        lambda answer: (
            sizes.append(len(answer.body()))
            if "/dashboard/" in answer.url and answer.status == 200
            else None
        ),
    )
    page.goto(link(active))
    page.wait_for_selector(".page[data-ready=yes]")
    page.evaluate("location.hash = '/predictor'")
    page.wait_for_selector(".page[data-page=predictor][data-ready=yes]")
    assert 50_000 < sum(sizes) <= PAGE_WEIGHT_LIMIT_BYTES
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium: Any, active: Served, theme: str) -> None:
    tab = open_tab(chromium, active, color_scheme=theme)
    session = active.ask("GET", "/api/sessions?limit=1").json["results"][0]["id"]
    memory = active.ask("GET", "/api/memories?limit=1&everywhere=true").json["results"][0]["id"]
    for path in (*PAGES, f"/sessions/{session}", f"/memories/{memory}"):
        page = tab.go(path)
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], [node["html"][:160] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
    tab.page.context.close()


def test_axe_would_find_something(chromium: Any) -> None:
    page = chromium.new_context().new_page()
    page.set_content(
        "<html lang=en><title>x</title><main><h1>x</h1><button></button><img src=x></main>"
    )
    found = {one["id"] for one in Axe().run(page).response["violations"]}
    assert {"button-name", "image-alt"} <= found
    page.context.close()
