"""Serve one memory system over JSON lines: python worker.py ADAPTER [VARIANT].

This file runs inside the environment of a peer, so it uses the standard library alone. A request
is one line with `op`; a reply is one line with `ok`, or with `error`. Each adapter has:

    class Adapter:
        def __init__(self, folder, vector): vector(text) returns the row handed in for a text.
        def store(self, items): return one id for each item, None when it was not stored.
        def search(self, text, limit, at): return ids, best first.
        def close(self): write everything to disk.

`PACKAGES` of an adapter names what to report the version of; `VARIANT` is set to the variant of
the command line, so that one adapter can offer two searches of a peer. Plain FTS5 is timed
between the calls of the peer, in the same process, so that a busy machine slows both.
"""

from __future__ import annotations

import array
import base64
import importlib.metadata
import importlib.util
import json
import os
import re
import sqlite3
import sys
import time
import traceback

STOP = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can could
    did do does for from get had has have he her him his how i if in into is it its just may me
    more most my no not now of off on only or our out over own same she should so some such than
    that the their them then there these they this those through to too under up us very was we
    were what when where which while who whose why will with would you your s t d ll m re ve
    """.split()  # noqa: SIM905
)
WORD = re.compile(r"\w+")


class Fts5:
    """Plain SQLite FTS5 in a file: what every time is compared with."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS docs USING fts5(text, tokenize='porter unicode61')"
        )

    def store(self, texts: list) -> None:
        """Insert texts in one transaction."""
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO docs(text) VALUES (?)", ((text,) for text in texts))
        self.db.execute("COMMIT")

    def search(self, text: str, limit: int) -> list:
        """Return the best rows for the content words of a question, joined by OR."""
        words = list(dict.fromkeys(WORD.findall(text.lower())))
        words = [word for word in words if word not in STOP] or words
        match = " OR ".join(f'"{word}"' for word in words)
        sql = "SELECT rowid FROM docs WHERE docs MATCH ? ORDER BY rank LIMIT ?"
        return [row for (row,) in self.db.execute(sql, (match, limit))] if match else []

    def close(self) -> int:
        """Close the file and return its size."""
        self.db.close()
        return os.path.getsize(self.path)


class Worker:
    """Answers the requests of one client."""

    def __init__(self, adapter: object) -> None:
        self.module = adapter
        self.peer = None
        self.plain = None
        self.given: dict = {}

    def vector(self, text: str) -> list:
        """Return the vector that was handed in for a text."""
        return self.given[text]

    def hello(self, request: dict) -> dict:
        """Report versions; the adapter's imports happened before."""
        packages = getattr(self.module, "PACKAGES", ())
        return {
            "versions": {name: importlib.metadata.version(name) for name in packages},
            "python": sys.version.split()[0],
            "sqlite": sqlite3.sqlite_version,
        }

    def open(self, request: dict) -> dict:
        """Open an empty store in a folder."""
        folder = request["folder"]
        self.peer = self.module.Adapter(os.path.join(folder, "peer"), self.vector)
        self.plain = Fts5(os.path.join(folder, "plain.db")) if request.get("beside") else None
        return {}

    def store(self, request: dict) -> dict:
        """Store items in one call."""
        items = request["items"]
        self._take(items)
        cpu, wall = time.process_time(), time.perf_counter()
        ids = self.peer.store(items)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        reply = {"ids": ids, "cpu_ms": cpu * 1e3, "wall_ms": wall * 1e3}
        if self.plain is not None:
            begun = time.thread_time()
            self.plain.store([item["text"] for item in items])
            reply["plain_cpu_ms"] = (time.thread_time() - begun) * 1e3
        return reply

    def search(self, request: dict) -> dict:
        """Answer one question."""
        self._take([request])
        return {"ids": self.peer.search(request["text"], request["limit"], request.get("at"))}

    def time_stores(self, request: dict) -> dict:
        """Store one item at a time, with plain FTS5 between."""
        self._take(request["items"])
        return self._timed(
            request["items"],
            lambda item: self.peer.store([item]),
            lambda item: self.plain.store([item["text"]]),
        )

    def time_searches(self, request: dict) -> dict:
        """Search one question at a time, with plain FTS5 between; the first is not counted."""
        self._take(request["items"])
        limit = request["limit"]
        self.peer.search(request["items"][0]["text"], limit, None)
        self.plain.search(request["items"][0]["text"], limit)
        return self._timed(
            request["items"],
            lambda item: self.peer.search(item["text"], limit, None),
            lambda item: self.plain.search(item["text"], limit),
        )

    def close(self, request: dict) -> dict:
        """Close the store and report memory and disk."""
        memory = {"rss_mb": status_mb("VmRSS"), "peak_mb": status_mb("VmHWM")}
        self.peer.close()
        self.peer = None
        if self.plain is not None:
            memory["plain_bytes"] = self.plain.close()
            self.plain = None
        return memory

    def _timed(self, items: list, peer: object, plain: object) -> dict:
        rows: dict = {"cpu_ms": [], "wall_ms": [], "plain_cpu_ms": []}
        whole, beside = time.process_time(), 0.0
        for item in items:
            cpu, wall = time.process_time(), time.perf_counter()
            peer(item)
            rows["cpu_ms"].append((time.process_time() - cpu) * 1e3)
            rows["wall_ms"].append((time.perf_counter() - wall) * 1e3)
            begun = time.thread_time()
            plain(item)
            taken = time.thread_time() - begun
            beside += taken
            rows["plain_cpu_ms"].append(taken * 1e3)
        # What a peer's threads do between its calls is in the mean alone.
        whole = time.process_time() - whole - beside
        return {**rows, "mean_cpu_ms": whole * 1e3 / len(items)}

    def _take(self, items: list) -> None:
        self.given = {}
        for item in items:
            packed = item.pop("vector", None)
            if packed is not None:
                row = array.array("f")
                row.frombytes(base64.b64decode(packed))
                # Some peers trim what they are given.
                self.given[item["text"].strip()] = self.given[item["text"]] = row.tolist()


OPS = ("hello", "open", "store", "search", "time_stores", "time_searches", "close")


def status_mb(name: str) -> float:
    """Return a line of /proc/self/status in MB, or 0 where there is none."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        return 0.0


def load(path: str) -> object:
    """Import an adapter by its path, so that its name hides no package."""
    spec = importlib.util.spec_from_file_location("adapter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Answer until the input ends. What a peer prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if worker is None:
                adapter = load(sys.argv[1])
                adapter.VARIANT = "".join(sys.argv[2:3])
                worker = Worker(adapter)
            if request["op"] not in OPS:
                raise ValueError(f"unknown op {request['op']!r}")
            reply = {"ok": True, **getattr(worker, request["op"])(request)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()
    # Threads of a peer must not keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
