"""Faults between the daemon and the hook: what counts as shown, and which sessions are lost.

Real daemon processes and the real hook command. Sessions of several agents run at once; in one of
their events the daemon is stopped, killed or away, or a proxy delays or cuts the connection. What
a hook printed is what was delivered. The control is the same with a hook that neither reports what
it printed nor keeps what no daemon took.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.authority import Report, Size
from meritory.api import client
from meritory.hook import main as hook_main

HARNESS = "claude-code"
EVENTS = ("SessionStart", "UserPromptSubmit", "UserPromptSubmit", "SessionEnd")
# Each is a way in which an event goes wrong. The first three hit the daemon, the rest a connection.
DAEMON_FAULTS = ("stop", "kill", "down")
CONNECTION_FAULTS = ("cut request", "cut answer", "cut receipt", "delay request", "delay answer")
SERVICES = (
    "kiwi",
    "heron",
    "maple",
    "cedar",
    "otter",
    "raven",
    "tulip",
    "walnut",
    "zebra",
    "lotus",
)
FACTS = tuple(f"The service {name} listens on port {8000 + n}" for n, name in enumerate(SERVICES))
# Longer than the hook waits for anything.
HOLD_S = 2.3
UP_WAIT_S = 60.0
# A job of a killed daemon may wait for the end of its lease.
DRAIN_WAIT_S = 400.0
HOOK_FILES = ("__main__.py", "main.py", "shapes.py", "wake.py", "spool.py")


@dataclass(frozen=True, slots=True)
class Plan:
    """The rounds of one size, each a fault and the event that it hits."""

    rounds: tuple[tuple[str, int], ...]
    agents: int

    @classmethod
    def of(cls, size: Size, chance: random.Random) -> Plan:
        """Return the plan of a size."""
        if size == "small":
            # The first kill finds no job at work, which would wait for the end of its lease.
            return cls((("kill", 1), ("stop", 0), ("connection", 1), ("down", 0)), 5)
        kinds = [*DAEMON_FAULTS, "connection", "connection"]
        faults = [kinds[number % len(kinds)] for number in range(50)] + ["down"]
        return cls(tuple((kind, chance.randrange(len(EVENTS))) for kind in faults), 10)


@dataclass
class Agent:
    """One session, and the facts that its agent really got."""

    key: str
    folder: Path
    got: set[str] = field(default_factory=set)

    def payload(self, event: int) -> dict[str, Any]:
        """Return an event as Claude Code tells it."""
        name = EVENTS[event]
        told: dict[str, Any] = {"session_id": self.key, "hook_event_name": name}
        told["cwd"] = str(self.folder / "shop")
        if name == "SessionStart":
            told["source"] = "startup"
        elif name == "UserPromptSubmit":
            told["prompt"] = f"{event}: which port has {random.Random(self.key).choice(SERVICES)}?"
        else:
            told |= {"reason": "other", "transcript_path": str(self.transcript())}
        return told

    def transcript(self) -> Path:
        """Write what was said, and return where."""
        folder = self.folder / ".claude" / "projects" / "shop"
        folder.mkdir(parents=True, exist_ok=True)
        said = (("user", "Which port does it have? " * 20), ("assistant", "It is the usual. " * 30))
        lines = [
            {"type": role, "sessionId": self.key, "message": {"role": role, "content": text}}
            for role, text in said
        ]
        path = folder / f"{self.key}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path


class Proxy:
    """A socket in front of the daemon's; every connection has the fault that is next."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.path = str(folder / "proxy.sock")
        self.faults: list[str] = []
        self._chance = chance
        self._target = ""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def between(self, home: Path) -> Iterator[None]:
        """Stand between the daemon of a folder and its hooks."""
        file = home / "daemon.json"
        announced = file.read_text()
        told = json.loads(announced)
        self._target = told["socket"]
        _replace(file, json.dumps({**told, "socket": self.path}))
        try:
            yield
        finally:
            _replace(file, announced)

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            fault = self.faults.pop() if self.faults else ""
            at = self._chance.randrange(1, 400)
            threading.Thread(target=self._pass, args=(made, fault, at), daemon=True).start()

    def _pass(self, hook: socket.socket, fault: str, at: int) -> None:
        """Pass a request, its answer and the receipt on, as far as the fault lets them."""
        with hook, socket.socket(socket.AF_UNIX) as daemon, contextlib.suppress(OSError):
            daemon.connect(self._target)
            request = hook.recv(1 << 20)
            if fault == "delay request":
                time.sleep(HOLD_S)
            daemon.sendall(request[:at] if fault == "cut request" else request)
            if fault == "cut request":
                return
            answer = daemon.recv(1 << 20)
            if fault == "delay answer":
                time.sleep(HOLD_S)
            hook.sendall(answer[:at] if fault == "cut answer" else answer)
            if fault == "cut answer":
                return
            receipt = hook.recv(1 << 20)
            if receipt and fault != "cut receipt":
                daemon.sendall(receipt)
                daemon.recv(1 << 20)


def _replace(file: Path, content: str) -> None:
    fresh = file.with_name("fresh.json")
    fresh.write_text(content)
    os.replace(fresh, file)


class Trial:
    """A data folder, its daemon as long as it lives, and the sessions that were run."""

    def __init__(self, folder: Path, script: Path, seed: int) -> None:
        self.folder, self.home = folder, folder / "home"
        self._script = script
        self._chance = random.Random(seed)
        (folder / "shop" / ".git").mkdir(parents=True)
        self.agents: list[Agent] = []
        self.fault_count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._proxy = Proxy(folder, self._chance)
        self._environ = {
            **{name: value for name, value in os.environ.items() if name[:9] != "MERITORY_"},
            "HOME": str(folder),
            "MERITORY_HOME": str(self.home),
            "MERITORY_HOOK": "nostart",
            "MERITORY_DAEMON_RATE_LIMIT_PER_S": "0",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.up()
        for fact in FACTS:
            self.ask("POST", "/api/memories", {"content": fact, "project": "shop"})

    def up(self) -> None:
        """Start the daemon if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        (self.home / "daemon.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "meritory", "up", "--detached", "--port", "0"]
        self._process = subprocess.Popen(
            command, env=self._environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait(lambda: client.find(self.home) is not None, UP_WAIT_S)

    def signal(self, number: int) -> None:
        """Send a signal to the daemon."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def _end(self) -> None:
        self.signal(signal.SIGTERM)
        assert self._process is not None
        self._process.wait()

    def close(self) -> None:
        """End the daemon."""
        self.signal(signal.SIGKILL)
        self._proxy.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the daemon."""
        daemon = client.find(self.home)
        assert daemon is not None
        return daemon.request(method, path, body)

    def round(self, fault: str, hit: int, count: int) -> None:
        """Run sessions at once, event by event, with a fault in one of the events."""
        first = len(self.agents)
        agents = [Agent(f"run-{first + n}", self.folder) for n in range(count)]
        self.agents += agents
        if fault == "down":
            # For the whole session, as a one-shot run may find it.
            self._end()
        for event in range(len(EVENTS)):
            is_hit = event == hit and fault != "down"
            if is_hit and fault == "connection":
                self._proxy.faults = [CONNECTION_FAULTS[n % 5] for n in range(count)]
                with self._proxy.between(self.home):
                    self._event(agents, event)
            else:
                self._event(agents, event, fault if is_hit else "")
        self.fault_count += count
        self.up()

    def _event(self, agents: list[Agent], event: int, fault: str = "") -> None:
        with ThreadPoolExecutor(len(agents)) as pool:
            running = [pool.submit(self._hook, agent, event) for agent in agents]
            if fault:
                # Before the hooks reach the daemon, or somewhere in their work.
                time.sleep(self._chance.choice((0.0, self._chance.uniform(0.02, 0.15))))
                self.signal(signal.SIGSTOP if fault == "stop" else signal.SIGKILL)
            for one in running:
                one.result()
        if fault == "stop":
            self.signal(signal.SIGCONT)
        elif fault == "kill":
            self.up()

    def _hook(self, agent: Agent, event: int) -> None:
        command = [sys.executable, "-I", "-S", str(self._script), "--harness", HARNESS]
        sent = json.dumps(agent.payload(event)).encode()
        done = subprocess.run(
            command, input=sent, capture_output=True, env=self._environ, check=True
        )
        agent.got |= {fact for fact in FACTS if fact in done.stdout.decode()}

    def drain(self, wait_s: float) -> None:
        """Let the daemon take and learn everything; the last round started it again."""

        def is_done() -> bool:
            has_kept = any((self.home / "spool").glob("*"))
            jobs = self.ask("GET", "/api/jobs")["counts"]
            return not has_kept and not jobs["queued"] and not jobs["running"]

        self._wait(is_done, wait_s)

    def _wait(self, condition: Any, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)

    def figures(self) -> dict[str, int]:
        """Return what went wrong, by name."""
        found = {"undelivered": 0, "lost": 0, "twice": 0, "unreported": 0, "shown": 0}
        for agent in self.agents:
            try:
                state = self.ask("GET", f"/api/sessions/{agent.key}")["state"]
            except client.MeritoryError:
                found["lost"] += 1
                continue
            if state != "finished":
                found["lost"] += 1
                found[f"{state}: {agent.key}"] = 1
            events = self.ask("GET", f"/api/timeline/{agent.key}")["results"]
            found["twice"] += [one["event"] for one in events].count("session.end") > 1
            rows = self.ask("GET", f"/api/sessions/{agent.key}/memories")["results"]
            content = self._contents()
            shown = {content[row["id"]] for row in rows if row["was_injected"]}
            found["shown"] += len(shown)
            found["undelivered"] += len(shown - agent.got)
            found["unreported"] += len(agent.got - shown)
        return found

    def _contents(self) -> dict[str, str]:
        rows = self.ask("GET", "/api/memories?project=shop&limit=100")["results"]
        return {row["id"]: row["content"] for row in rows}


def run(plan: Plan, script: Path, seed: int, wait_s: float) -> tuple[int, dict[str, int]]:
    """Return how many faults there were, and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        trial = Trial(Path(folder), script, seed)
        try:
            for fault, hit in plan.rounds:
                trial.round(fault, hit, plan.agents)
            trial.drain(wait_s)
            return trial.fault_count, trial.figures()
        finally:
            trial.close()


def careless_script(folder: Path) -> Path:
    """Return a copy of the hook that neither reports nor keeps anything."""
    source = Path(hook_main.__file__).parent
    for name in HOOK_FILES[:4]:
        shutil.copy(source / name, folder / name)
    shapes = folder / "shapes.py"
    text = shapes.read_text("utf-8")
    assert text.count('request["receipts"] = True') == 1
    shapes.write_text(text.replace('request["receipts"] = True', "pass"), "utf-8")
    return folder / HOOK_FILES[0]


def measure(size: Size) -> Report:
    """Return the checks of this section."""
    report = Report("faults")
    plan = Plan.of(size, random.Random(18))
    count, found = run(plan, Path(hook_main.__file__).with_name(HOOK_FILES[0]), 18, DRAIN_WAIT_S)
    report.at_least("faults injected", count, 500 if size == "full" else 20)
    report.at_least("memories delivered and counted as shown", found["shown"], 1)
    report.at_most("memories counted as shown that no agent got", found["undelivered"], 0)
    report.at_most("sessions lost or never judged", found["lost"], 0)
    report.at_most("sessions ended more than once", found["twice"], 0)
    note = "got by an agent, but not reported: offered again"
    report.at_most("memories in doubt, counted as not shown", found["unreported"], 10**6, note)
    few = Plan((("connection", 0), ("down", 0)), 5)
    with tempfile.TemporaryDirectory(prefix="careless-") as folder:
        _, worse = run(few, careless_script(Path(folder)), 18, 1.0)
    report.at_least("control, no receipts: counted as shown, never got", worse["undelivered"], 1)
    report.at_least("control, nothing kept: sessions lost", worse["lost"], 1)
    return report
