"""What the hook adds to every prompt: `python -m bench.hook`.

A daemon runs and is warm. Each round starts the hook as a client does, asks the daemon the same
for a twin session, and starts an interpreter that does nothing: the hook's own time is its whole
time without the daemon's, and most of it is the interpreter's. `--against TREE` runs the benchmark
of another checkout, which needs its own .venv, in turn with this one, and compares.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.served import Daemon, running
from bench.sessions import Row, finish
from bench.texts import memories, questions
from meritory.api.memory import Memory
from meritory.hook import main as hook_main
from meritory.settings import load_settings

HARNESS = "claude-code"
OWN_TIME = "the hook's own time, p50 ms"
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
HOOK = [
    sys.executable,
    "-I",
    "-S",
    str(Path(hook_main.__file__).with_name("__main__.py")),
    "--harness",
    HARNESS,
]
WITHOUT_HOME = {name: value for name, value in os.environ.items() if name[:7] != "MERITORY_"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and from where on a figure is too high."""

    memories: int = 1_000
    rounds: int = 100
    downs: int = 5
    own_ms: float = 60.0
    # A client waits so long at most for a session's beginning when the daemon is down.
    down_start_ms: float = 2_000.0
    down_prompt_ms: float = 100.0


@dataclass
class Times:
    """Milliseconds of each round."""

    bare: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    daemon: list[float] = field(default_factory=list)

    @property
    def own(self) -> list[float]:
        """What is left of the whole without the daemon's."""
        return [whole - asked for whole, asked in zip(self.whole, self.daemon, strict=True)]


def run(command: Sequence[str], home: Path, payload: object = None) -> tuple[float, bytes]:
    """Milliseconds from the start of a process to its end, and what it printed."""
    sent = b"" if payload is None else json.dumps(payload).encode()
    environ = {**WITHOUT_HOME, "MERITORY_HOME": str(home)}
    began = time.perf_counter()
    done = subprocess.run(command, input=sent, capture_output=True, env=environ, check=True)
    took_ms = (time.perf_counter() - began) * 1e3
    if done.stderr:
        raise RuntimeError(f"something was written to stderr: {done.stderr[:200]!r}")
    return took_ms, done.stdout


def event(name: str, key: str, **more: object) -> dict[str, object]:
    """An event as Claude Code tells it."""
    return {"session_id": key, "hook_event_name": name, "cwd": "/", **more}


def warm_rounds(daemon: Daemon, home: Path, plan: Plan) -> Times:
    """Prompts of one session through the hook, of its twin without it."""
    times = Times()
    shown = 0
    asked = _endless(questions(plan.rounds))
    for key in ("hooked", "twin"):
        daemon.ask("POST", "/api/hooks/session-start", {"session_key": key})
    for _ in range(plan.rounds):
        prompt = next(asked)
        times.bare.append(run(BARE, home)[0])
        took_ms, printed = run(HOOK, home, event("UserPromptSubmit", "hooked", prompt=prompt))
        times.whole.append(took_ms)
        shown += bool(printed)
        twin = {"session_key": "twin", "prompt": prompt, "harness": HARNESS}
        times.daemon.append(daemon.ask("POST", "/api/hooks/user-prompt-submit", twin).took_ms)
    if not shown:
        raise RuntimeError("the hook never printed anything: there is nothing to measure")
    return times


def _endless(texts: Sequence[str]) -> Iterator[str]:
    while True:
        yield from texts


def down_rounds(plan: Plan) -> tuple[list[float], list[float]]:
    """Events that find no daemon: a prompt, which does not wait, and a session's beginning."""
    prompts, starts = [], []
    for number in range(plan.downs):
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder) / "first", Path(folder) / "second"
            prompt = event("UserPromptSubmit", f"p{number}", prompt="hello")
            prompts.append(run(HOOK, first, prompt)[0])
            _end(first)
            starts.append(run(HOOK, second, event("SessionStart", f"s{number}"))[0])
            _end(second)
    return prompts, starts


def _end(home: Path) -> None:
    command = [sys.executable, "-m", "meritory", "--home", str(home), "api", "/health"]
    # Waits until it is up: what has not begun yet cannot be ended.
    subprocess.run(command, env=WITHOUT_HOME, check=True, capture_output=True)
    command = [sys.executable, "-m", "meritory", "--home", str(home), "down"]
    subprocess.run(command, env=WITHOUT_HOME, check=True, capture_output=True)


def rows_of(times: Times, plan: Plan) -> list[Row]:
    """The figures of a warm daemon."""
    daemon = f"daemon p50 {statistics.median(times.daemon):.1f} ms"
    return [
        ("bare interpreter, p50 ms", float(np.percentile(times.bare, 50)), None, ""),
        ("bare interpreter, p95 ms", float(np.percentile(times.bare, 95)), None, ""),
        ("prompt through the hook, p50 ms", float(np.percentile(times.whole, 50)), None, daemon),
        ("prompt through the hook, p95 ms", float(np.percentile(times.whole, 95)), None, ""),
        (OWN_TIME, float(np.percentile(times.own, 50)), plan.own_ms, ""),
        ("the hook's own time, p95 ms", float(np.percentile(times.own, 95)), plan.own_ms, ""),
    ]


def measured(folder: Path, plan: Plan) -> list[Row]:
    """Everything."""
    home = folder / "home"
    settings = load_settings(home, {})
    with Memory(settings=settings, background=False) as memory:
        memory.remember_many(
            [{"content": text, "on_similar": "keep"} for text in memories(plan.memories)]
        )
    with running(home, {"MERITORY_DAEMON_RATE_LIMIT_PER_S": "0"}) as daemon:
        rows = rows_of(warm_rounds(daemon, home, plan), plan)
    prompts, starts = down_rounds(plan)
    worst = f"worst {max(prompts):.0f} ms"
    rows.append(("no daemon: prompt, ms", statistics.median(prompts), plan.down_prompt_ms, worst))
    worst = f"worst {max(starts):.0f} ms"
    rows.append(
        ("no daemon: session start, ms", statistics.median(starts), plan.down_start_ms, worst)
    )
    return rows


def compared(tree: Path, turns: int) -> int:
    """Print the hook's own time here and in another checkout; return 1 if it is slower here."""
    here = Path(__file__).parents[1]
    times: dict[Path, list[float]] = {here: [], tree: []}
    for _ in range(turns):
        for place in times:
            python = sys.executable if place == here else str(place / ".venv" / "bin" / "python")
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "hook.json"
                command = [python, "-m", "bench.hook", "--json", str(file)]
                subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
                rows = json.loads(file.read_text())["figures"]["rows"]
            times[place].append(next(row["value"] for row in rows if row["name"] == OWN_TIME))
    for place, taken in times.items():
        each = ", ".join(f"{value:.1f}" for value in taken)
        print(f"{OWN_TIME}, {'here' if place == here else 'there'}: {each}")
    ratio = statistics.median(times[here]) / statistics.median(times[tree])
    print(f"ratio of the medians: {ratio:.2f} (bar 1.00)")
    return int(ratio > 1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.hook", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("hook.json"), help="result file")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    parser.add_argument("--turns", type=int, default=3, help="runs of each checkout")
    options = parser.parse_args(arguments)
    if options.against:
        return compared(options.against.resolve(), options.turns)
    plan = Plan()
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(Path(folder), plan)
    return finish(rows, options.json, {"harness": HARNESS, "memories": plan.memories})


if __name__ == "__main__":
    sys.exit(main())
