"""Start the worker of one peer and talk to it over JSON lines."""

from __future__ import annotations

import base64
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
WORKER = HERE / "worker.py"
TIMEOUT_S = 1800.0
_LAST_CHARS = 300
# Nothing listens there: what a peer wants from the network fails at once, as it does offline.
_NOWHERE = "http://127.0.0.1:9"


class PeerFailed(RuntimeError):
    """A peer could not do what it was asked, with its own words."""


class Client:
    """One worker process in the environment of a peer."""

    def __init__(self, python: Path, adapter: Path, home: Path, variant: str = "") -> None:
        home.mkdir(parents=True, exist_ok=True)
        # A file: a pipe that is not read would block a peer that prints much.
        self._log = (home / "worker.log").open("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [str(python), "-I", str(WORKER), str(adapter), variant],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(home),
            cwd=home,
        )
        self._rest = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def call(self, op: str, timeout: float = TIMEOUT_S, **fields: object) -> dict[str, Any]:
        """Send a request and return the reply. PeerFailed carries the peer's error."""
        line = json.dumps({"op": op, **fields}) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
            reply = json.loads(self._line(time.monotonic() + timeout))
        except (BrokenPipeError, EOFError) as error:
            raise PeerFailed(f"its process ended: {self._last_words()}") from error
        if "error" in reply:
            raise PeerFailed(str(reply["error"])[:_LAST_CHARS])
        return dict(reply)

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _line(self, deadline: float) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(timeout=max(0.0, deadline - time.monotonic())):
                    self._process.kill()
                    raise PeerFailed("it did not answer in time")
                part = os.read(pipe.fileno(), 1 << 20)
                if not part:
                    raise EOFError
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return (lines or ["it printed nothing"])[-1][-_LAST_CHARS:]


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a worker: a home of its own, one thread, no network, no telemetry."""
    folder = str(home)
    return {
        "PATH": os.environ.get("PATH", ""),
        "LANG": "C.UTF-8",
        "HOME": folder,
        "TMPDIR": folder,
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _NOWHERE),
        **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"),
        "TOKENIZERS_PARALLELISM": "false",
        "MEM0_TELEMETRY": "False",
        "ANONYMIZED_TELEMETRY": "False",
        "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
    }


def packed(row: NDArray[np.float32]) -> str:
    """Return a vector as text for a request."""
    return base64.b64encode(np.asarray(row, "<f4").tobytes()).decode()


def with_vectors(
    items: Sequence[Mapping[str, object]], rows: NDArray[np.float32] | None
) -> list[dict[str, object]]:
    """Return the items of a request, each with its vector where vectors are handed in."""
    if rows is None:
        return [dict(item) for item in items]
    return [{**item, "vector": packed(row)} for item, row in zip(items, rows, strict=True)]
