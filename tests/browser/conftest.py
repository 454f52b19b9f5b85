"""A real browser on real daemons: one whose predictor has not been heard yet, one whose has."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
from browsing import ODD_KEYS, Processes, Served  # noqa: E402

from meritory.api.memory import Memory  # noqa: E402
from meritory.settings import load_settings  # noqa: E402
from places import open_raw  # noqa: E402

sync_api = pytest.importorskip("playwright.sync_api")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def _tool(name: str) -> ModuleType:
    path = HERE.parents[1] / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tools_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    # Not for longer than a file: as long as it is there, its event loop runs in this thread, and
    # no other test could start one.
    found = _tool("browser").find()
    if found is None:
        pytest.skip(
            "NO BROWSER: `python tools/browser.py` installs Chromium; nothing here was tried"
        )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


def _demo(home: Path, *flags: str) -> None:
    home.mkdir(mode=0o700)
    subprocess.run(
        [sys.executable, "-m", "meritory", "demo", "--keep", str(home / "meritory.db"), *flags],
        env={**os.environ, "MERITORY_HOME": str(home), "OPENBLAS_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )


def _daemon(home: Path) -> Iterator[Served]:
    started = Processes()
    try:
        yield started.start(home, MERITORY_DAEMON_RATE_LIMIT_PER_S="0")
    finally:
        started.end(signal.SIGKILL)


@pytest.fixture(scope="session")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo's week, and reports: the predictor is not heard yet."""
    home = tmp_path_factory.mktemp("cold") / "home"
    _demo(home, "--quick")
    yield from _daemon(home)


@pytest.fixture(scope="session")
def active(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The whole demo, and what it leaves out: a merge, reports, a session of every outcome."""
    home = tmp_path_factory.mktemp("active") / "home"
    _demo(home)
    _round_off(home)
    yield from _daemon(home)


def _round_off(home: Path) -> None:
    with Memory(home / "meritory.db", settings=load_settings(home, {}), background=False) as memory:
        memory.remember("The printer for invoices is called heron")
        memory.remember("The printer for invoices is named heron")
        for _ in range(2):
            memory.capture_feedback(
                "thumbs_down",
                context="releasing the billing service",
                what_went_wrong="it pushed with --force to main and two days of history were lost",
                what_to_change="never force-push to main; use git revert and push normally",
            )
        memory.capture_feedback("thumbs_down", context="no")
        # Nobody could say what helped here: left out of the comparison.
        with memory.session("no-verdict", context="an unrelated question about lunch") as session:
            session.end(used={})
        for key in ODD_KEYS:
            with memory.session(key, context=f"a session called {key}") as session:
                session.end(used={})
    # As if its judge had never answered.
    with closing(open_raw(home / "meritory.db")) as store, store:
        store.execute("UPDATE jobs SET state = 'parked', attempt_count = 5 WHERE key = ?", ["100%"])
