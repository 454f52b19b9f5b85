"""Every page with real data in a real browser, in both modes of the predictor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import ODD_KEYS, Served, Tab, open_tab

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images" / "dashboard"
# By page what must stand on it, all of it out of the demo's store.
PAGES = {
    "/": ["Latest sessions", "Latest memories", "Who decides the ranking"],
    "/memories": ["Newest first", "Edit"],
    "/entities": ["How they hang together", "All"],
    "/sessions": ["Latest first", "Outcome"],
    "/predictor": ["Status", "The evidence for each weight", "Training"],
    "/predictor/calibration": ["You and the judge"],
    "/feedback": ["Approval", "Reports", "Lessons"],
    "/rules": ["Rules"],
    "/quality": ["Gate", "Proposals", "Merges", "Janitor", "Probes"],
    "/pipeline": ["Workers", "Queue", "Every stage of a session"],
    "/logs": ["Latest first"],
}


@pytest.fixture(scope="module")
def tab(chromium: Any, active: Served) -> Iterator[Tab]:
    made = open_tab(chromium, active)
    yield made
    made.page.context.close()


def picture(tab: Tab, name: str) -> None:
    """Kept for the docs when they are asked for; elsewhere only taken."""
    wanted = os.environ.get("MERITORY_TEST_SCREENSHOTS")
    path = IMAGES / f"{name}.png" if wanted else None
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    taken = tab.page.screenshot(path=path, full_page=False)
    assert len(taken) > 5_000


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_real_data(tab: Tab, path: str) -> None:
    page = tab.go(path)
    text = page.inner_text("main")
    for wanted in PAGES[path]:
        assert wanted in text
    assert "could not be shown" not in text
    assert re.search(r"undefined|NaN|\[object", text) is None
    tab.assert_clean()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_in_both_themes_is_photographed(
    chromium: Any, active: Served, path: str, theme: str, shared_tabs: dict[str, Tab]
) -> None:
    if theme not in shared_tabs:
        shared_tabs[theme] = open_tab(chromium, active, color_scheme=theme)
    tab = shared_tabs[theme]
    page = tab.go(path)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    shade = sum(int(number) for number in re.findall(r"\d+", ground)[:3])
    assert (shade > 600) == (theme == "light")
    page.wait_for_timeout(150)
    picture(tab, f"{path.strip('/').replace('/', '-') or 'overview'}-{theme}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("noun", ["sessions?outcome=win&", "memories?everywhere=true&"])
def test_what_a_page_is_about_is_photographed_too(
    chromium: Any, active: Served, noun: str, theme: str, shared_tabs: dict[str, Tab]
) -> None:
    if theme not in shared_tabs:
        shared_tabs[theme] = open_tab(chromium, active, color_scheme=theme)
    (one,) = active.ask("GET", f"/api/{noun}limit=1").json["results"]
    name = noun.partition("?")[0]
    page = shared_tabs[theme].go(f"/{name}/{one['id']}")
    assert page.get_attribute(".page", "data-page") in ("session", "memory")
    picture(shared_tabs[theme], f"{name}-one-{theme}")


@pytest.fixture(scope="module")
def shared_tabs() -> Iterator[dict[str, Tab]]:
    tabs: dict[str, Tab] = {}
    yield tabs
    for tab in tabs.values():
        tab.page.context.close()


def test_before_it_is_heard_the_predictor_says_what_is_missing(chromium: Any, cold: Served) -> None:
    tab = open_tab(chromium, cold)
    page = tab.go("/predictor")
    assert page.get_attribute(".page", "data-mode") == "cold"
    assert "judged sessions" in page.inner_text("main")
    assert page.locator("progress").count() == 1
    picture(tab, "predictor-cold-light")
    tab.assert_clean()
    tab.page.context.close()


def test_once_it_is_heard_wins_and_losses_can_be_asked(tab: Tab, active: Served) -> None:
    page = tab.go("/predictor")
    assert page.get_attribute(".page", "data-mode") == "active"
    told = active.ask("GET", "/api/predictor/comparisons?limit=120").json["results"]
    assert page.locator("g.dot").count() == len(told)
    kinds = {
        page.locator("g.dot").nth(place).get_attribute("data-outcome") for place in range(len(told))
    }
    assert {"win", "loss"} <= kinds
    page.locator("g.dot[data-outcome=win]").last.hover()
    tip = page.inner_text(".tooltip")
    assert re.search(r"win; predictor [01]\.\d+, baseline [01]\.\d+, margin \+0\.\d+", tip)
    assert page.locator(".chart canvas").count() >= 1
    page.locator("g.dot[data-outcome=win]").last.press("Enter")
    page.wait_for_selector(".page[data-page=session][data-ready=yes]")
    assert "Both rankings" in page.inner_text("main")


@pytest.mark.parametrize("kind", ["win", "loss", "tie", "excluded"])
def test_the_inspector_opens_for_every_kind_of_session(tab: Tab, kind: str) -> None:
    page = tab.go(f"/sessions?outcome={kind}")
    rows = page.locator("tbody tr")
    assert rows.count() > 0, f"the demo has no {kind}"
    rows.first.locator("a").first.click()
    page.wait_for_selector(".page[data-page=session][data-ready=yes]")
    text = page.inner_text("main")
    for wanted in (
        "Both rankings",
        "Rule of thumb",
        "Predictor",
        "As served",
        "Candidates with every number",
        "In order",
    ):
        assert wanted in text
    assert kind in page.inner_text(".page-head")
    if kind == "win":
        page.get_by_role("button", name=re.compile("^Why ")).first.click()
        page.wait_for_selector("h3:text-is('Why')")
    tab.assert_clean()


def test_an_edit_is_kept_and_can_be_taken_back(tab: Tab, active: Served) -> None:
    page = tab.go("/memories")
    before = page.locator("tbody tr").first.locator("a").first.inner_text()
    memory_id = page.locator("tbody tr").first.get_attribute("data-key")
    page.locator("tbody tr").first.get_by_role("button", name=re.compile("^Edit")).click()
    page.get_by_label("Text").fill("Edited on the dashboard <b>not bold</b>")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector("text=Memory changed.")
    stored = active.ask("GET", f"/api/memories/{memory_id}").json
    assert stored["content"] == "Edited on the dashboard <b>not bold</b>"
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("text=Taken back.")
    assert active.ask("GET", f"/api/memories/{memory_id}").json["content"].startswith(before[:40])


def test_what_is_learned_elsewhere_appears_by_itself(tab: Tab, active: Served) -> None:
    page = tab.go("/memories")
    active.ask("POST", "/api/memories", {"content": "Live updates reach the page within a second"})
    page.wait_for_selector("text=Live updates reach the page within a second", timeout=30_000)
    tab.assert_clean()


def test_search_finds_and_explains(tab: Tab) -> None:
    page = tab.go("/memories")
    page.get_by_role("searchbox").fill("invoices")
    page.wait_for_selector("text=Found for")
    page.get_by_label("show the parts of each score").check()
    page.wait_for_selector("text=relevance")
    tab.assert_clean()


def test_a_merge_is_split_with_one_click(tab: Tab, active: Served) -> None:
    page = tab.go("/quality")
    page.get_by_role("button", name=re.compile("^Split")).first.click()
    page.wait_for_selector("text=split", timeout=30_000)
    tab.assert_clean()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone(
    chromium: Any, active: Served, path: str, shared_tabs: dict[str, Tab]
) -> None:
    if "phone" not in shared_tabs:
        shared_tabs["phone"] = open_tab(chromium, active, viewport={"width": 360, "height": 740})
    page = shared_tabs["phone"].go(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    if path == "/":
        picture(shared_tabs["phone"], "overview-phone")


def test_everything_can_be_reached_with_the_keyboard(tab: Tab) -> None:
    page = tab.go("/")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.keyboard.press("/")
    page.wait_for_selector(".page[data-page=memories][data-ready=yes]")
    page.wait_for_function("document.activeElement.type === 'search'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches(':focus-visible')")


def test_what_is_drawn_anew_keeps_the_focus(tab: Tab, active: Served) -> None:
    page = tab.go("/memories")
    focused = "document.activeElement.getAttribute('aria-label')"
    page.locator("tbody tr").nth(2).get_by_role("button", name=re.compile("^Edit")).focus()
    before = page.evaluate(focused)
    assert before.startswith("Edit ")
    active.ask("POST", "/api/memories", {"content": "Rows move down when this one arrives"})
    page.wait_for_selector("text=Rows move down when this one arrives", timeout=30_000)
    assert page.evaluate(focused) == before


def test_the_skip_link_stays_on_the_page(tab: Tab) -> None:
    page = tab.go("/memories")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.inner_text("h1") == "Memories"


def test_a_memory_says_at_once_why_it_was_shown(tab: Tab, active: Served) -> None:
    told = active.ask("GET", "/api/sessions?outcome=win&limit=1").json["results"][0]["id"]
    ranked = active.ask("GET", f"/api/predictor/audit/{told}").json["results"]
    shown = next(one["id"] for one in ranked if one["was_injected"])
    text = tab.go(f"/memories/{shown}").inner_text("main")
    for wanted in ("both joined", "diversity", "Rule of thumb", "recency", "Predictor (", "label"):
        assert wanted in text
    tab.assert_clean()


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_session_opens_whatever_it_is_called(tab: Tab, key: str) -> None:
    page = tab.go("/sessions")
    page.get_by_role("link", name=f"a session called {key}", exact=True).click()
    page.wait_for_selector(".page[data-page=session][data-ready=yes]")
    assert page.inner_text("h1") == f"a session called {key}"
    assert key in page.inner_text("main code")
    tab.assert_clean()


def test_a_job_that_gave_up_is_tried_again(tab: Tab) -> None:
    page = tab.go("/pipeline")
    again = page.get_by_role("button", name="Retry finish-session 100%")
    again.click()
    page.wait_for_selector("text=It is tried again.")
    again.wait_for(state="detached")
    tab.assert_clean()


def test_the_judge_is_rated_by_keyboard_and_watched_over_time(tab: Tab, active: Served) -> None:
    page = tab.go("/predictor/calibration")
    page.get_by_role("button", name=re.compile("^Rate ")).click()
    page.wait_for_selector(".choices")
    while page.locator(".choices").count():
        left = page.inner_text("h2:has-text('How much')")
        page.keyboard.press("4")
        page.wait_for_function(
            "left => !document.querySelector('main').innerText.includes(left)", arg=left
        )
    page.wait_for_selector(".chart canvas")
    days = active.ask("GET", "/api/predictor/calibration").json["days"]
    assert sum(day["rated"] for day in days) >= 20
    tab.assert_clean()


def test_who_logs_out_is_out(chromium: Any, active: Served) -> None:
    tab = open_tab(chromium, active)
    tab.page.get_by_role("button", name="Log out").click()
    tab.page.wait_for_selector("h1:text-is('Not signed in')")
    tab.page.context.close()


def test_nonsense_in_the_address_says_so(tab: Tab) -> None:
    for path in (
        "/nonsense",
        "/memories/doesnotexist",
        "/sessions/%00",
        "/sessions/%",
        "/entities/x:y",
    ):
        page = tab.go(path)
        assert re.search("no such page|could not be shown", page.inner_text("main"))
    tab.complaints.clear()
