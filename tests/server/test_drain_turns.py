"""Draining may wait for minutes: it never takes the threads that agents are served by."""

from __future__ import annotations

import threading

from web_types import WAIT_S, Serve

from meritory import Memory
from meritory.server.app import WORKER_COUNT
from meritory.server.table import Call, Route, ServerState


def test_who_drains_while_a_job_runs_keeps_no_agent_waiting(serve: Serve) -> None:
    engines: list[ServerState] = []

    def look(call: Call) -> str:
        engines.append(call.server)
        return "seen"

    route = Route(
        method="GET",
        path="/look",
        handler=look,
        access="read",
        reach="daemon",
        summary="Look.",
        reply=str,
    )
    served = serve([route], rate_limit_per_s=0)
    served.ask("GET", "/look")
    done: list[int] = []

    def drain() -> None:
        with Memory(url=f"unix://{served.socket}") as memory:
            done.append(memory.drain())

    drainers = [threading.Thread(target=drain) for _ in range(WORKER_COUNT + 1)]
    # As long as the daemon's own thread is at a job.
    with engines[0].engine.works.runner._lock:
        for drainer in drainers:
            drainer.start()
        drainers[0].join(0.3)
        asked: list[int] = []
        agent = threading.Thread(
            target=lambda: asked.append(served.ask("GET", "/api/stats").status), daemon=True
        )
        agent.start()
        agent.join(10.0)
        assert (asked, done) == ([200], [])
    for drainer in drainers:
        drainer.join(WAIT_S)
    # All of them were patient, and none was refused in the end.
    assert done == [0] * len(drainers)
