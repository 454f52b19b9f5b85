"""What the dashboard costs in a large store: `python -m bench.dashboard`.

A store of 100,000 memories and 5,000 judged sessions, a real daemon, and Chromium on this
machine. Each page is opened by browsers that have nothing of it yet. The first paint is the
browser's own figure (first contentful paint); a page is drawn when its data is on it. Weight is
every byte that the overview's first visit takes, data included.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.served import Daemon, running
from bench.sessions import Row, finish
from bench.stock import PROJECT, fill, settings_of
from bench.texts import memories, questions
from meritory.api.memory import Memory
from meritory.domain.predictor import Comparison
from meritory.domain.session import (
    Candidate,
    Injection,
    Judged,
    Labelled,
    SessionRecord,
    SessionScore,
)
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.influence import ALPHAS
from meritory.store.contract.store import Transaction

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PAGES = (
    "",
    "memories",
    "entities",
    "sessions",
    "sessions/past-4999",
    "predictor",
    "feedback",
    "rules",
    "quality",
    "pipeline",
    "logs",
)
SHOWN = 8
SETTLE_MS = 300
_BATCH = 250
_READY = "() => document.querySelector('#main [data-ready]') !== null"
_PAINT = """() => performance.getEntriesByName('first-contentful-paint')
    .map((one) => one.startTime)[0] ?? null"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and from where on a figure is too high."""

    memories: int = 100_000
    sessions: int = 5_000
    candidates: int = 30
    rounds: int = 7
    paint_ms: float = 300.0
    weight_kb: float = 500.0


@dataclass
class Seen:
    """Milliseconds of each visit by page, and the bytes of the first page."""

    paints: dict[str, list[float]] = field(default_factory=dict)
    drawn: dict[str, list[float]] = field(default_factory=dict)
    weights: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def pour_sessions(home: Path, plan: Plan) -> None:
    """Stores sessions as judged ones are, without ranking and judging each."""
    source = random.Random(5)
    began = datetime.now(UTC) - timedelta(minutes=10 * plan.sessions)
    asked = questions(500)
    with Memory(settings=settings_of(home), background=False) as memory:
        user, store = memory.scope.user, memory.services.store
        ids = [one.id for one in memory.page(10_000, everywhere=True)]
        for first in range(0, plan.sessions, _BATCH):
            numbers = range(first, min(first + _BATCH, plan.sessions))
            made = [
                (
                    began + timedelta(minutes=10 * number),
                    number,
                    asked[number % len(asked)],
                    source.sample(ids, plan.candidates),
                )
                for number in numbers
            ]

            def work(transaction: Transaction, made: Any = made) -> None:
                for at, number, context, chosen in made:
                    _pour_one(transaction, user, (at, number, context), chosen)

            store.write("default", work)


def _pour_one(
    transaction: Transaction, user: str, told: tuple[datetime, int, str], chosen: Sequence[str]
) -> None:
    at, number, context = told
    key, won = f"past-{number}", (1.0, 1.0, 0.0, 0.5, None)[number % 5]
    session = SessionRecord(
        user=user, key=key, started_at=at, project=PROJECT, context=context, state="finished"
    )
    transaction.open_session(session)
    transaction.put_candidates(user, key, [_candidate(one, at_) for at_, one in _ranked(chosen)])
    shown = tuple((f"m{place}", one) for place, one in _ranked(chosen[:SHOWN]))
    transaction.put_injection(
        user,
        key,
        Injection(number=1, kind="start", turn=0, code=key, at=at, token_count=200, memories=shown),
    )
    score = SessionScore(
        judge="rules", score=0.5, confidence=0.9, memories_recalled=SHOWN, memories_used=2, at=at
    )
    transaction.put_verdict(user, key, score, [Judged(one, 0.5, False) for one in chosen[:SHOWN]])
    labels = [Labelled(one, 0.5, {"rule": "judged"}) for one in chosen[:SHOWN]]
    transaction.put_labels(user, key, labels, dict.fromkeys(chosen[:2], 0.5))
    transaction.put_comparison(user, _comparison(key, at, won, chosen))


def _ranked(chosen: Sequence[str]) -> list[tuple[int, str]]:
    return list(enumerate(chosen, 1))


def _candidate(memory_id: str, rank: int) -> Candidate:
    return Candidate(
        memory_id=memory_id,
        source="both",
        origins=("cosine", "effective"),
        effective_score=0.3,
        composite_score=0.5,
        predictor_score=0.4,
        final_score=1.0 / (60 + rank),
        rank=rank,
        baseline_rank=rank,
        predictor_rank=rank,
        was_injected=rank <= SHOWN,
        features=(0.5,) * len(FEATURES),
        feature_version=FEATURE_VERSION,
    )


def _comparison(key: str, at: datetime, won: float | None, chosen: Sequence[str]) -> Comparison:
    return Comparison(
        session_key=key,
        at=at,
        project=PROJECT,
        scorer="features",
        model_version=3,
        predictor_ndcg=None if won is None else 0.25 + 0.5 * won,
        baseline_ndcg=None if won is None else 0.5,
        predictor_won=won,
        scorer_confidence=0.9,
        reason="nothing helped" if won is None else None,
        ema_updated=won is not None,
        success_rate=0.6,
        alpha=0.6,
        predictor_top_ids=tuple(chosen[:10]),
        baseline_top_ids=tuple(chosen[:10]),
        relevance_scores=dict.fromkeys(chosen[:SHOWN], 0.5),
        fts_overlap_score=0.5,
        replay_ndcg=(0.5,) * len(ALPHAS),
        replay_log_rank=(0.0,) * len(ALPHAS),
    )


# -- in a browser -------------------------------------------------------------------------------


def chromium() -> str | None:
    """Where the system's own browser is."""
    return next((place for name in CHROMIUM if (place := shutil.which(name))), None)


def visits(daemon: Daemon, plan: Plan) -> Seen:
    """Opens every page some times, each time in a browser that has nothing of it."""
    from playwright.sync_api import sync_playwright

    seen = Seen()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            # The first page of a browser's life pays for its start.
            _visit(browser, daemon, "", Seen())
            for _ in range(plan.rounds):
                for page in PAGES:
                    _visit(browser, daemon, page, seen)
        finally:
            browser.close()
    return seen


def _visit(browser: Browser, daemon: Daemon, name: str, seen: Seen) -> None:
    link = daemon.ask("POST", "/api/dashboard/links").body["url"]
    context = browser.new_context()
    try:
        page = context.new_page()
        # The login leaves nothing but the cookie behind.
        context.request.get(link, max_redirects=0)
        finished: list[Any] = []
        page.on("requestfinished", lambda request: finished.append(request))
        page.on("console", lambda told: _complain(told, seen))
        began = time.perf_counter()
        page.goto(f"{link.partition('/dashboard/')[0]}/dashboard/#/{name}")
        page.wait_for_function(_READY, polling=5)
        drawn_ms = (time.perf_counter() - began) * 1e3
        seen.drawn.setdefault(name, []).append(drawn_ms)
        seen.paints.setdefault(name, []).append(_painted(page))
        if not name:
            # The browser tells of what it has loaded a moment later.
            page.wait_for_timeout(SETTLE_MS)
            seen.weights.append(sum(_bytes(request) for request in finished))
    finally:
        context.close()


def _bytes(request: Any) -> int:
    sizes = request.sizes()
    return int(sizes["responseBodySize"]) + int(sizes["responseHeadersSize"])


def _complain(told: Any, seen: Seen) -> None:
    if told.type == "error":
        seen.errors.append(told.text)


def _painted(page: Page) -> float:
    page.wait_for_function(f"() => ({_PAINT})() !== null", polling=5)
    return float(page.evaluate(_PAINT))


def rows_of(seen: Seen, plan: Plan) -> list[Row]:
    """The figures, one line a page."""
    rows: list[Row] = []
    for name in PAGES:
        paints, drawn = seen.paints[name], seen.drawn[name]
        title = name or "overview"
        worst = f"worst {max(paints):.0f} ms"
        rows.append(
            (f"{title}: first paint, p50 ms", statistics.median(paints), plan.paint_ms, worst)
        )
        worst = f"worst {max(drawn):.0f} ms"
        rows.append(
            (f"{title}: drawn with its data, p50 ms", statistics.median(drawn), None, worst)
        )
    rows.append(
        ("overview: weight with its data, kB", max(seen.weights) / 1000, plan.weight_kb, "")
    )
    return rows


def api_rows(daemon: Daemon) -> list[Row]:
    """How long the daemon takes for what the pages ask."""
    rows: list[Row] = []
    for path in (
        "/api/memories/facets",
        "/api/memories?everywhere=true&limit=30",
        "/api/memories/search?query=deploy&everywhere=true",
        "/api/sessions?limit=50",
        "/api/sessions?outcome=excluded&limit=50",
        "/api/entities?everywhere=true&limit=200",
        "/api/entities/graph?limit=60",
        "/api/analytics/activity",
        "/api/predictor/status",
        "/api/predictor/comparisons?limit=200",
        "/api/diagnostics",
        "/api/stats",
        "/api/logs?limit=200",
        "/api/jobs?limit=30",
    ):
        took = []
        for _ in range(5):
            reply = daemon.ask("GET", path)
            if reply.status != 200:
                raise RuntimeError(f"{path} was answered {reply.status}")
            took.append(reply.took_ms)
        rows.append((f"GET {path.partition('?')[0]}, p50 ms", statistics.median(took), None, path))
    return rows


def look_row(home: Path) -> Row:
    """How long one look for what changed takes; it is done once a second while a page is open."""
    with Memory(settings=settings_of(home), background=False) as memory:
        store, took = memory.services.store, []
        for _ in range(200):
            began = time.perf_counter()
            store.change_numbers()
            took.append((time.perf_counter() - began) * 1e3)
    return ("one look for changes, p50 ms", statistics.median(took), 5.0, f"worst {max(took):.1f}")


def measured(home: Path, plan: Plan) -> list[Row]:
    """Everything."""
    if not home.exists():
        fill(home, memories(plan.memories), [])
        pour_sessions(home, plan)
    rows = [look_row(home)]
    with running(home, {"MERITORY_DAEMON_RATE_LIMIT_PER_S": "0"}) as daemon:
        rows += api_rows(daemon)
        seen = visits(daemon, plan)
    if seen.errors:
        raise RuntimeError(f"the browser complained: {seen.errors[0]}")
    return [*rows, *rows_of(seen, plan)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("dashboard.json"), help="result file")
    parser.add_argument("--home", type=Path, help="keep the store here, or use the one that is")
    options = parser.parse_args(arguments)
    if chromium() is None:
        print("there is no Chromium here: nothing is measured")
        return 0
    plan = Plan()
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(options.home or Path(folder) / "home", plan)
    return finish(rows, options.json, {"memories": plan.memories, "sessions": plan.sessions})


if __name__ == "__main__":
    sys.exit(main())
