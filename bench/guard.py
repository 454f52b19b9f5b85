"""The guard before tools, on harmless calls and planted mistakes: `python -m bench.guard`.

Harmless calls are the files that agents really read and edited in the recorded streams, and
ordinary shell commands. Some of them are complained about in words that forbid nothing. Among them
mistakes are made four times each and reported each time: the second is to be warned of, the fourth
to be blocked. Twice: in a store that has seen the harmless calls before, and in an empty one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

import numpy as np

from bench.guard_cases import NOISE, PLANTED, Made, Planted, commands, files
from bench.hook import HOOK, run
from bench.served import Daemon, running
from bench.sessions import Row, finish
from meritory.api.memory import Memory
from meritory.engine.rules.guard import GuardVerdict, ToolCall, check
from meritory.settings import load_settings
from meritory.text.commands.triggers import ordinary_actions

BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)
# After so many harmless calls somebody complains about one, in words that forbid nothing.
NOISE_EVERY = 15
EXPECTED = ("allow", "warn", "warn", "deny")
LARGE_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and from where on a figure is too high."""

    rounds: int = 300
    large_rounds: int = 40
    hook_rounds: int = 40
    p95_ms: float = 50.0
    false_warning_share: float = 0.01


class Desk:
    """A store whose time is ours, and an agent that works in it."""

    def __init__(self, folder: Path) -> None:
        self.now = BEGAN
        settings = load_settings(folder / "home", {})
        self.memory = Memory(
            folder / "guard.db", settings=settings, clock=lambda: self.now, background=False
        )

    def call(self, made: Made, key: str, *, seconds: float = 30.0) -> GuardVerdict:
        """A call, some time after the last one."""
        self.now += timedelta(seconds=seconds)
        asked = ToolCall(key, self.memory.scope, made.tool, made.given)
        return check(self.memory.services, asked)

    def complain(self, text: str, key: str) -> None:
        """A thumbs down, a moment later."""
        self.now += timedelta(seconds=20)
        self.memory.capture_feedback("down", text, session_key=key)


@dataclass
class Harmless:
    """What harmless calls were answered."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, made: Made, verdict: GuardVerdict) -> None:
        """Counts one."""
        self.answers[verdict.decision] += 1
        if verdict.decision != "allow":
            self.wrong.append(f"{verdict.decision} {made.given}"[:120])

    @property
    def count(self) -> int:
        """How many calls there were."""
        return self.answers.total()

    @property
    def warning_share(self) -> float:
        """How many of them were warned of for nothing."""
        return self.answers["warn"] / max(1, self.count)


def work(desk: Desk, calls: Sequence[Made], day: str, *, noisy: bool) -> Harmless:
    """Harmless calls one after the other, in sessions of fifty."""
    found, noise = Harmless(), cycle(NOISE)
    for place, made in enumerate(calls):
        key = f"{day}-{place // 50}"
        found.add(made, desk.call(made, key))
        if noisy and place % NOISE_EVERY == NOISE_EVERY - 1:
            desk.complain(next(noise), key)
    return found


def ladder(desk: Desk, planted: Planted) -> list[str]:
    """What each case of a mistake was answered; it is reported unless it was denied."""
    answers = []
    for number, made in enumerate(planted.calls):
        key = f"{planted.name} {number}"
        verdict = desk.call(made, key)
        answers.append(verdict.decision)
        if verdict.decision != "deny":
            desk.complain(planted.complaint, key)
        desk.now += planted.gap
    return answers


@dataclass
class Played:
    """All that came out of one order of events."""

    harmless: Harmless
    ladders: dict[str, list[str]]

    @property
    def off_count(self) -> int:
        """Mistakes that were not warned of at the second and blocked at the fourth case."""
        return sum(tuple(answers) != EXPECTED for answers in self.ladders.values())


def play(calls: Sequence[Made], *, is_warm: bool) -> Played:
    """Mistakes after a past of harmless calls, or without any; then all harmless calls again."""
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        before = work(desk, calls, "before", noisy=True) if is_warm else Harmless()
        desk.now += timedelta(days=1)
        ladders = {planted.name: ladder(desk, planted) for planted in PLANTED}
        after = work(desk, calls, "after", noisy=not is_warm)
        desk.memory.close()
    whole = Harmless(before.answers + after.answers, before.wrong + after.wrong)
    return Played(whole, ladders)


def large_calls() -> list[Made]:
    """Commands of a megabyte: a long script, a document with a command behind it, a long word."""
    line = (
        "git add src/app.py && pytest -q tests/login --maxfail=1 | tail -5; echo 'done' > out.txt\n"
    )
    script = line * (LARGE_CHARS // len(line))
    document = f"cat > notes.md <<'EOF'\n{script}EOF\ngit status"
    word = f"echo {'QUJD0a9z' * (LARGE_CHARS // 8)} | base64 -d > out.bin"
    return [Made("Bash", {"command": one}) for one in (script, document, word)]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds of the guard over the socket, of its largest calls, of the whole hook."""

    asked: list[float]
    large: list[float]
    hooked: list[float]


def latencies(plan: Plan, calls: Sequence[Made]) -> Latencies:
    """How long calls take that are really made."""
    hooked = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with running(home, {"MERITORY_DAEMON_RATE_LIMIT_PER_S": "0"}) as daemon:
            for made in calls:
                _ask(daemon, made)
            turn = cycle(calls)
            asked = [_ask(daemon, next(turn)) for _ in range(plan.rounds)]
            huge = cycle(large_calls())
            large = [_ask(daemon, next(huge)) for _ in range(plan.large_rounds)]
            for number in range(plan.hook_rounds):
                made = next(turn)
                event = {"session_id": f"h{number}", "hook_event_name": "PreToolUse", "cwd": "/"}
                event |= {"tool_name": made.tool, "tool_input": made.given}
                hooked.append(run(HOOK, home, event)[0])
    return Latencies(asked, large, hooked)


def _ask(daemon: Daemon, made: Made) -> float:
    body = {"session_key": "bench", "tool_name": made.tool, "tool_input": made.given}
    reply = daemon.ask("POST", "/api/hooks/pre-tool", body)
    if reply.status != 200:
        raise RuntimeError(f"the guard answered {reply.status}: {reply.body}")
    return reply.took_ms


def rows_of(name: str, played: Played, plan: Plan) -> list[Row]:
    """The figures of one order of events."""
    harmless = played.harmless
    note = "; ".join(harmless.wrong[:3])
    off = ", ".join(
        f"{k}: {' '.join(v)}" for k, v in played.ladders.items() if tuple(v) != EXPECTED
    )
    return [
        (f"{name}: harmless calls", float(harmless.count), None, ""),
        (f"{name}: false blocks", float(harmless.answers["deny"]), 0.0, note),
        (f"{name}: false warnings, share", harmless.warning_share, plan.false_warning_share, note),
        (f"{name}: mistakes off the ladder", float(played.off_count), 0.0, off),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("guard.json"), help="result file")
    options = parser.parse_args(arguments)
    plan = Plan()
    shell, touched = commands(), list(files())
    shipped = {one.argument for one in ordinary_actions()}
    unseen = sum(made.given["command"] not in shipped for made in shell)
    calls = [*touched, *shell]
    began = time.perf_counter()
    rows = rows_of("with a past", play(calls, is_warm=True), plan)
    rows += rows_of("empty store", play(calls, is_warm=False), plan)
    took_s = time.perf_counter() - began
    took = latencies(plan, calls)
    rows += [
        ("guard over the socket, p50 ms", float(np.percentile(took.asked, 50)), None, ""),
        ("guard over the socket, p95 ms", float(np.percentile(took.asked, 95)), plan.p95_ms, ""),
        ("guard, commands of 1 MB, p95 ms", float(np.percentile(took.large, 95)), plan.p95_ms, ""),
        ("whole hook process, p50 ms", float(np.percentile(took.hooked, 50)), None, ""),
    ]
    figures = {
        "files": len(touched),
        "commands": len(shell),
        "commands_not_in_the_shipped_list": unseen,
        "planted": len(PLANTED),
        "expected": list(EXPECTED),
        "replay_s": round(took_s, 1),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", ""),
    }
    return finish(rows, options.json, figures)


if __name__ == "__main__":
    sys.exit(main())
