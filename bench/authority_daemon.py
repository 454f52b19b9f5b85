"""Thirty agents at once: those that are served are served in time, the others hear so at once.

One part asks a real daemon for prompts. The other has a route that takes a fixed time, so that a
queue builds up on any machine; its control takes the budget of the route away.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bench import stock
from bench.agents import Lines
from bench.authority import Report, Size
from bench.served import running
from bench.texts import memories, questions
from meritory.server import app
from meritory.server.app import TABLE, WORKER_COUNT
from meritory.server.serve import serve
from meritory.server.table import Call, Route
from meritory.settings import load_settings

CLIENTS = 30
RATIO_MAX = 2.0
PROMPT = "/api/hooks/user-prompt-submit"
# A route with which all clients together need twice the budget.
SLOW, SLOW_BUDGET_MS = "/slow", 600.0
SLOW_S = 2 * SLOW_BUDGET_MS / 1e3 * WORKER_COUNT / CLIENTS
# How long an agent that was refused works on without an answer.
PAUSE_S = 0.2
READY_WITHIN_S = 60.0
Times = tuple[list[float], list[float]]


async def ask_often(socket: str, path: str, bodies: list[dict[str, Any]], seconds: float) -> Times:
    """Ask as many clients at once; return how long answers and refusals took, in ms."""
    lines, until_s = Lines(socket), time.monotonic() + seconds
    served: list[float] = []
    refused: list[float] = []

    async def client(number: int) -> None:
        turn = number
        while time.monotonic() < until_s:
            answer = await lines.ask(path, bodies[turn % len(bodies)])
            turn += CLIENTS
            assert answer.status in (200, 503), answer
            (served if answer.status == 200 else refused).append(answer.took_ms)
            if answer.status == 503:
                await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    await lines.close()
    return served, refused


def prompts(folder: Path, size: Size) -> Times:
    """Ask a daemon process for prompts of thirty sessions."""
    count, seconds = (200, 2.0) if size == "small" else (5_000, 30.0)
    stock.fill(folder, memories(count), [])
    bodies = [
        {"session_key": f"s{number % CLIENTS}", "project": stock.PROJECT, "prompt": text}
        for number, text in enumerate(questions(300))
    ]
    with running(folder) as daemon:
        # The first prompt of each session starts it, which takes longer.
        for number in range(CLIENTS):
            daemon.ask("POST", PROMPT, bodies[number])
        return asyncio.run(ask_often(daemon.socket, PROMPT, bodies, seconds))


@contextmanager
def slow_daemon(folder: Path) -> Iterator[str]:
    """Serve a slow route on a thread; yield the socket."""

    def slow(call: Call) -> dict[str, Any]:
        """Take a fixed time."""
        time.sleep(SLOW_S)
        return {}

    route = Route("POST", SLOW, slow, "write", "scope", body=None, reply=dict[str, Any])
    settings = load_settings(folder, {}).vary({"daemon.port": 0, "predictor.enabled": False})
    ready, stops = threading.Event(), []

    def note(listeners: Any, stop: Any) -> None:
        stops.append((str(listeners.unix_path), stop))
        ready.set()

    thread = threading.Thread(target=serve, args=(settings, (), None, note, (route, *TABLE)))
    thread.start()
    assert ready.wait(READY_WITHIN_S)
    socket, stop = stops[0]
    yield socket
    stop()
    thread.join()


def late_share(budgets: dict[str, float], seconds: float) -> tuple[float, Times]:
    """Return the share of answers after the budget, and all times, with these budgets in force."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(app.BUDGETS_MS, budgets),
        slow_daemon(Path(folder) / "home") as socket,
    ):
        served, refused = asyncio.run(ask_often(socket, SLOW, [{}], seconds))
    late = [took for took in served if took > SLOW_BUDGET_MS + 2 * SLOW_S * 1e3]
    return len(late) / max(1, len(served)), (served, refused)


def measure(size: Size) -> Report:
    """Measure both parts and the control."""
    report = Report("daemon")
    with tempfile.TemporaryDirectory() as folder:
        served, refused = prompts(Path(folder) / "home", size)
    p50, p99 = np.percentile(served, [50, 99]).tolist()
    note = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(served)} served, {len(refused)} refused"
    report.at_most(f"{CLIENTS} clients: prompt p99 / p50", round(p99 / p50, 2), RATIO_MAX, note)
    seconds = 2.0 if size == "small" else 10.0
    share, (served, refused) = late_share({SLOW: SLOW_BUDGET_MS}, seconds)
    note = f"{len(served)} served, {len(refused)} refused"
    report.at_most("overload: answers after the caller gave up, share", round(share, 3), 0.05, note)
    p50 = float(np.percentile(refused or [1e9], 50))
    report.at_most("overload: refusal p50, ms", round(p50, 1), SLOW_BUDGET_MS / 4)
    share, (served, refused) = late_share({}, seconds)
    note = f"{len(served)} served, {len(refused)} refused"
    report.at_least(
        "control, no budget: answers after the caller gave up", round(share, 3), 0.3, note
    )
    return report
