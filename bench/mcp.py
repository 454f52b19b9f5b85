"""How soon the MCP server is ready, and what a call costs: `python -m bench.mcp`.

Every round starts each kind of process once, one after the other, so that what else the machine
does meanwhile falls on all of them alike. A bare Python stands beside them: nobody written in it
can be ready sooner.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.sessions import Row, Timed, finish
from bench.texts import memories
from meritory.api import client
from meritory.mcp.protocol import CAPABILITIES_KEY, STATELESS, VERSION_KEY
from meritory.mcp.table import TOOLS
from meritory.text.tokens import token_estimate

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench"}}
ENVELOPE = {"_meta": {VERSION_KEY: STATELESS[0], CAPABILITIES_KEY: {}}}
MEMORIES = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and from where on a figure is too high."""

    rounds: int = 5
    starts_per_round: int = 12
    cold_starts: int = 5
    calls_per_round: int = 60
    ready_ms: float = 500.0


# -- one server -----------------------------------------------------------------------------


class Server:
    """A server as a client starts it."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-P", "-m", "meritory", "mcp", "--home", str(home)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._into: IO[bytes] = self.process.stdin
        self._out_of: IO[bytes] = self.process.stdout

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request and its result."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._into.write(json.dumps(message).encode() + b"\n")
        self._into.flush()
        return dict(json.loads(self._out_of.readline())["result"])

    def end(self) -> None:
        """Closes its stdin and waits until it is gone."""
        self.process.communicate(timeout=30)


def ready_ms(home: Path, method: str, params: dict[str, Any]) -> float:
    """From the start of the process to its first answer."""
    began = time.perf_counter()
    server = Server(home)
    server.ask(method, params)
    taken = (time.perf_counter() - began) * 1e3
    server.end()
    return taken


def bare_ms(*flags: str) -> float:
    """A Python that does nothing, from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *flags, "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1e3


@contextmanager
def daemon(folder: Path) -> Iterator[client.Daemon]:
    """A daemon with some memories, and as many requests a second as anybody likes."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[daemon]\nport = 0\nrate_limit_per_s = 0\n")
    started = client.ensure(home, 60_000)
    try:
        yield started
    finally:
        client.stop(home)


# -- the figures ----------------------------------------------------------------------------


def ready_rows(home: Path, plan: Plan) -> list[Row]:
    """First answers while a daemon runs, beside a bare Python."""
    kinds = {
        "initialize": lambda: ready_ms(home, "initialize", HELLO),
        "server/discover": lambda: ready_ms(home, "server/discover", ENVELOPE),
        "bare python": bare_ms,
        "bare python -I -S": lambda: bare_ms("-I", "-S"),
    }
    times = {kind: Timed() for kind in kinds}
    for _ in range(plan.rounds):
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(plan.starts_per_round):
            for kind, measure in kinds.items():
                taken[kind].append(measure())
        for kind, found in taken.items():
            times[kind].rounds.append(found)
    rows: list[Row] = []
    for kind, found in times.items():
        is_ours = not kind.startswith("bare")
        name = f"start to answer to {kind}" if is_ours else kind
        bar = plan.ready_ms if is_ours else None
        rows.append((f"{name}, p50 ms", found.p50, bar, ""))
        rows.append((f"{name}, p95 ms", found.p95, bar, ""))
    return rows


def cold_rows(folder: Path, plan: Plan) -> list[Row]:
    """The same where no daemon runs yet, and when the first tool answers then."""
    hello, tool = Timed(), Timed()
    first, then = [], []
    for number in range(plan.cold_starts):
        home = folder / f"cold{number}"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text("[daemon]\nport = 0\n")
        began = time.perf_counter()
        server = Server(home)
        server.ask("initialize", HELLO)
        first.append((time.perf_counter() - began) * 1e3)
        server.ask("tools/call", {"name": "memory_search", "arguments": {"query": "anything"}})
        then.append((time.perf_counter() - began) * 1e3)
        server.end()
        client.stop(home)
    hello.rounds.append(first)
    tool.rounds.append(then)
    note = f"most {max(first):.0f} ms"
    return [
        ("daemon down: start to answer to initialize, p50 ms", hello.p50, plan.ready_ms, note),
        ("daemon down: start to the first tool's answer, p50 ms", tool.p50, None, ""),
    ]


def call_rows(running: client.Daemon, plan: Plan) -> list[Row]:
    """Searches through the server, and the same straight from the daemon."""
    items = [{"content": text, "on_similar": "keep"} for text in memories(MEMORIES)]
    for start in range(0, len(items), 200):
        running.request("POST", "/api/memories", {"memories": items[start : start + 200]})
    asked = [item["content"][:60] for item in items[: plan.calls_per_round]]
    through, straight = Timed(), Timed()
    server = Server(running.home)
    server.ask("initialize", HELLO)
    for _ in range(plan.rounds):
        ours, theirs = [], []
        for query in asked:
            began = time.perf_counter()
            call = {"name": "memory_search", "arguments": {"query": query}}
            server.ask("tools/call", call)
            ours.append((time.perf_counter() - began) * 1e3)
            began = time.perf_counter()
            running.request("POST", "/api/memories/search", {"query": query, "limit": 8})
            theirs.append((time.perf_counter() - began) * 1e3)
        through.rounds.append(ours)
        straight.rounds.append(theirs)
    server.end()
    return [
        (f"memory_search of {MEMORIES:,}, p50 ms", through.p50, None, ""),
        (f"memory_search of {MEMORIES:,}, p95 ms", through.p95, None, ""),
        ("the same straight from the daemon, p50 ms", straight.p50, None, ""),
    ]


def size_rows() -> list[Row]:
    """What the list of tools costs a client that loads all of it."""
    told = [json.dumps(tool.described()) for tool in TOOLS]
    asked = [json.dumps({**tool.described(), "outputSchema": None}) for tool in TOOLS]
    note = f"{len(TOOLS)} tools"
    return [
        ("tools/list, tokens", float(sum(map(token_estimate, told))), None, note),
        (
            "the same without output schemas, tokens",
            float(sum(map(token_estimate, asked))),
            None,
            "",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.mcp", description=__doc__)
    parser.add_argument("--json", type=Path, help="result file")
    options = parser.parse_args(arguments)
    for name in [name for name in os.environ if name.startswith("MERITORY_")]:
        del os.environ[name]
    plan = Plan()
    with tempfile.TemporaryDirectory() as folder:
        with daemon(Path(folder)) as running:
            rows = ready_rows(running.home, plan)
            rows += call_rows(running, plan)
        rows += cold_rows(Path(folder), plan)
    rows += size_rows()
    return finish(rows, options.json or Path("mcp.json"), {})


if __name__ == "__main__":
    sys.exit(main())
