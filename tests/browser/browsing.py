"""How a test looks at the dashboard: a page that notes what must not happen on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from web_types import Processes, Served

__all__ = ["ODD_KEYS", "Processes", "Served", "Tab", "link", "open_tab"]

# Names of sessions that an address could trip over.
ODD_KEYS = ("a/b/../c", "100%", "q?x=1#y", '"><img src=x>', "javascript:alert(1)", "__proto__")

# The page before must not pass for the new one, nor one that is asked for twice.
SHOW = """path => {
    const before = location.href;
    document.querySelector(".page")?.removeAttribute("data-ready");
    location.hash = path;
    if (location.href === before) dispatchEvent(new Event("hashchange"));
}"""


def link(daemon: Served) -> str:
    """A one-time link, as `meritory dashboard` gets it."""
    made = daemon.ask("POST", "/api/dashboard/links", {})
    assert made.status in (200, 201), made.content
    return str(json.loads(made.content)["url"])


class Tab:
    """A page that notes what must not happen: errors in the console, requests to elsewhere."""

    def __init__(self, page: Any, daemon: Served) -> None:
        self.page, self.daemon = page, daemon
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda said: self._heard(said))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _heard(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(f"{said.type}: {said.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.daemon.url, "data:", "blob:")):
            self.foreign.append(url)

    def go(self, path: str) -> Any:
        """Shows a page of the dashboard and waits until it is drawn."""
        self.page.evaluate(SHOW, path)
        self.ready()
        return self.page

    def ready(self) -> None:
        self.page.wait_for_selector(".page[data-ready=yes]", timeout=30_000)

    def assert_clean(self) -> None:
        assert self.complaints == []
        assert self.foreign == []


def open_tab(browser: Any, daemon: Served, **how: Any) -> Tab:
    context = browser.new_context(
        viewport=how.pop("viewport", {"width": 1280, "height": 900}), **how
    )
    tab = Tab(context.new_page(), daemon)
    tab.page.goto(link(daemon))
    tab.ready()
    return tab
