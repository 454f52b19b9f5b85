"""Trace one call of each kind and print how many files, functions and file switches it takes.

    python tools/walk.py [NAME ...] [--json] [--files]

A walk is what a reader has to follow to understand a call. Files and functions are those under
src/meritory that the call enters, on all threads. Switches are how often the active file changes
between two consecutive calls on the busiest thread. Every walk runs once before it is traced, so
that imports and first reads do not count. The learn walk is the job alone, as a worker runs it:
the threads are fetched from `Memory` and retrievals are written beforehand. The figures vary by a
few switches between runs.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "meritory"
# They are written inside a function: a reader does not go anywhere for them.
INLINE = frozenset({"<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
# A daemon may still log a request when its reply has arrived.
SETTLE_S = 0.03
WAIT_S = 60.0
USER = "default"
PROMPT = "How do we deploy the billing service to staging?"
MEMORIES = (
    "The billing service deploys to staging with `make deploy-staging` from the main branch.",
    "Never push to production on a Friday.",
    "Integration tests of the billing service need a PostgreSQL on port 5433.",
    "The team prefers small pull requests with one change each.",
    "Releases are tagged by hand after the smoke tests pass.",
    "The staging cluster runs in Frankfurt and is rebuilt every Sunday night.",
    "Invoices are rounded to cents after tax, never before.",
    "Feature flags of the billing service are kept in the file flags.yaml.",
)
TRANSCRIPT = [
    {"role": "user", "content": PROMPT},
    {
        "role": "assistant",
        "content": "The billing service deploys to staging with `make deploy-staging` from the"
        " main branch, so I run that now and watch the smoke tests afterwards. " * 6,
    },
    {"role": "user", "content": "Thanks, that worked. Tag the release by hand as always."},
]


@dataclass(frozen=True, slots=True)
class Walk:
    """What one traced call entered."""

    name: str
    files: tuple[str, ...]
    function_count: int
    switch_count: int

    def to_json(self) -> dict[str, object]:
        """Return the walk as JSON values."""
        return {
            "name": self.name,
            "files": len(self.files),
            "functions": self.function_count,
            "switches": self.switch_count,
            "paths": list(self.files),
        }


class Tracer:
    """Records calls into one folder, on every thread that starts after `install`."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder) + "/"
        self._calls: dict[int, list[CodeType]] = defaultdict(list)
        self._is_recording = False

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Watch this thread and those that start within the block."""
        sys.setprofile(self._on_event)
        threading.setprofile(self._on_event)
        try:
            yield
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    def trace(self, name: str, call: Callable[[], object]) -> Walk:
        """Run a call and return its walk."""
        self._calls = defaultdict(list)
        self._is_recording = True
        try:
            call()
            time.sleep(SETTLE_S)
        finally:
            self._is_recording = False
        threads = list(self._calls.values())
        busiest = [code.co_filename for code in max(threads, key=len, default=[])]
        # Code objects are compared without their file.
        entered = {(code.co_filename, code) for calls in threads for code in calls}
        paths = {path.removeprefix(self._folder) for path, _ in entered}
        switches = sum(before != after for before, after in pairwise(busiest))
        return Walk(name, tuple(sorted(paths)), len(entered), switches)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not self._is_recording:
            return
        code = frame.f_code
        if code.co_filename.startswith(self._folder) and code.co_name not in INLINE:
            self._calls[threading.get_ident()].append(code)


# -- an embedded memory ---------------------------------------------------------------------


def trace_embedded(tracer: Tracer, home: Path) -> Iterator[Walk]:
    """Trace the calls of a program that opens its own SQLite file."""
    from meritory import Memory
    from meritory.engine.rules import guard

    with Memory(home / "walk.db", settings=load(home), background=False) as memory:
        memory.remember_many(MEMORIES)
        memory.remember("The build cache is kept for a week.")
        yield tracer.trace(
            "remember", lambda: memory.remember("Error budgets are reviewed on the first Monday.")
        )
        memory.recall("invoices")
        yield tracer.trace("recall", lambda: memory.recall(PROMPT))

        ended, works = [], memory.works
        for key in ("first", "second"):
            session = memory.session(key, context=PROMPT)
            session.prompt("And where are the feature flags?")
            if key == "first":
                session.end(TRANSCRIPT)
                works.learn(USER, key)
            ended.append(session)
        yield tracer.trace("end", lambda: ended[1].end(TRANSCRIPT))
        memory.services.counter.flush()
        yield tracer.trace("learn", lambda: works.learn(USER, "second"))

        def report(tool: str) -> None:
            memory.capture_feedback(
                "down",
                f"The agent ran {tool} on the main branch",
                what_went_wrong=f"it ran {tool} without asking first",
                what_to_change=f"never run {tool} without asking",
                last_action={"tool": "bash", "argument": tool},
            )

        report("git reset --hard")
        yield tracer.trace("feedback", lambda: report("git push --force"))

        def ask_guard(command: str) -> None:
            guard.check(
                memory.services, guard.ToolCall("third", memory.scope, "Bash", {"command": command})
            )

        ask_guard("ls")
        yield tracer.trace("guard", lambda: ask_guard("git push --force origin main"))


def trace_postgres(tracer: Tracer, home: Path) -> Iterator[Walk]:
    """Trace a search on a PostgreSQL server of our own; nothing if there is none."""
    sys.path.insert(0, str(ROOT))
    try:
        from bench.postgres import Unavailable, throw_away_server
    except ImportError:
        return

    from meritory import Memory

    try:
        with throw_away_server() as url, Memory(url, settings=load(home), background=False) as own:
            own.remember_many(MEMORIES)
            own.recall("invoices")
            yield tracer.trace("recall-postgres", lambda: own.recall(PROMPT))
    except Unavailable as error:
        print(f"recall-postgres is left out: {error}", file=sys.stderr)


# -- a daemon -------------------------------------------------------------------------------


def trace_daemon(tracer: Tracer, home: Path) -> Iterator[Walk]:
    """Trace the calls of a harness over HTTP, with a daemon on a thread of this process."""
    with running_daemon(home) as ask:
        for content in MEMORIES:
            ask("POST", "/api/memories", {"content": content})

        def start(key: str, harness: str | None = None) -> None:
            body = {"session_key": key, "context": PROMPT, "harness": harness}
            ask("POST", "/api/hooks/session-start", body)

        def prompt(key: str, text: str) -> None:
            body = {"session_key": key, "prompt": text}
            ask("POST", "/api/hooks/user-prompt-submit", body)

        start("first")
        yield tracer.trace("start", lambda: start("second", "claude-code"))
        prompt("first", "Where are the feature flags?")
        yield tracer.trace("prompt", lambda: prompt("second", "Where are the feature flags?"))
        ask("POST", "/api/hooks/session-start", {"session_key": "third"})
        # A session that began without a context is ranked again by its first prompt.
        yield tracer.trace("first-prompt", lambda: prompt("third", PROMPT))


@contextlib.contextmanager
def running_daemon(home: Path) -> Iterator[Callable[[str, str, object], Any]]:
    """Serve on a thread, and yield a function that sends one request."""
    from meritory.server.serve import serve
    from meritory.settings.home import TOKEN_NAME

    ready: list[Callable[[], None]] = []
    urls: list[str] = []

    def announce(listeners: Any, stop: Callable[[], None]) -> None:
        urls.append(listeners.url)
        ready.append(stop)

    options = {"ready": announce}
    thread = threading.Thread(target=serve, args=(load(home),), kwargs=options, name="walk-daemon")
    thread.start()
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not ready:
            raise SystemExit("the daemon did not start")
        token = (home / TOKEN_NAME).read_text().strip()
        host = urls[0].removeprefix("http://")

        def ask(method: str, path: str, body: object) -> Any:
            connection = http.client.HTTPConnection(host, timeout=WAIT_S)
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            connection.request(method, path, json.dumps(body).encode(), headers)
            reply = connection.getresponse()
            content = reply.read()
            connection.close()
            if reply.status >= 400:
                raise SystemExit(f"{method} {path}: {reply.status} {content.decode()}")
            return json.loads(content)

        yield ask
    finally:
        for stop in ready:
            stop()
        thread.join(WAIT_S)


def load(home: Path) -> Any:
    """Return the default settings for a home folder, with time enough for the model."""
    from meritory.settings import load_settings

    return load_settings(home, {}, {"daemon.port": 0, "predictor.score_timeout_ms": 60_000})


SOURCES = {
    trace_embedded: ("remember", "recall", "end", "learn", "feedback", "guard"),
    trace_postgres: ("recall-postgres",),
    trace_daemon: ("start", "prompt", "first-prompt"),
}
NAMES = tuple(name for names in SOURCES.values() for name in names)


def trace_all(wanted: Sequence[str]) -> list[Walk]:
    """Return the walks with these names."""
    walks: list[Walk] = []
    tracer = Tracer(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="meritory-walk-") as folder, tracer.install():
        for source, names in SOURCES.items():
            if not set(names) & set(wanted):
                continue
            home = Path(folder) / source.__name__
            home.mkdir()
            walks += [walk for walk in source(tracer, home) if walk.name in wanted]
    return walks


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the walks that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--files", action="store_true", help="list the files of each walk")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"unknown walk: {unknown[0]!r}; known: {', '.join(NAMES)}")
    walks = trace_all(options.names or NAMES)
    if options.json:
        print(json.dumps([walk.to_json() for walk in walks], indent=2))
        return
    print(f"{'walk':<16} {'files':>6} {'functions':>10} {'switches':>9}")
    for walk in walks:
        counts = f"{len(walk.files):>6} {walk.function_count:>10} {walk.switch_count:>9}"
        print(f"{walk.name:<16} {counts}")
        if options.files:
            print("".join(f"    {path}\n" for path in walk.files), end="")


if __name__ == "__main__":
    main()
