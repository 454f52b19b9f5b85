"""A child process with pipes, and a reader of lines with a size limit."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence


class LineReader:
    """Splits a stream into lines and drops lines over the limit, to bound memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that this piece completes; None for a line that is too long."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for piece in ended:
            self._hold(piece)
            lines.append(None if self.is_too_long else b"".join(self._pieces))
            self._pieces.clear()
            self._held_bytes = 0
        self._hold(rest)
        return lines

    @property
    def is_too_long(self) -> bool:
        """Whether the current incomplete line is over the limit."""
        return self._held_bytes > self._limit_bytes

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self.is_too_long:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)


_READ_BYTES = 1 << 16
_ERROR_BYTES = 2_000
_LAST_READS = 4
# More threads for numpy would compete with the agent.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def environment_of(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: this one's and the extra variables."""
    return {**os.environ, **extra, **_ONE_THREAD}


class Child:
    """A process with three pipes; one thread may write while another one reads."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Run a command; `environment` is added to the environment of this process."""
        self._process = subprocess.Popen(  # noqa: S603 - the caller's own command
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # Ctrl-C in the terminal is for the parent process.
            process_group=0,
            env=environment_of(environment or {}),
        )
        pipes = self._process.stdin, self._process.stdout, self._process.stderr
        self._input, self._output, self._errors = (pipe for pipe in pipes if pipe is not None)
        os.set_blocking(self._input.fileno(), False)
        self._unsent = memoryview(b"")
        self._complaints: deque[int] = deque(maxlen=_ERROR_BYTES)
        self.pid = self._process.pid

    @property
    def complaints(self) -> str:
        """The end of its stderr."""
        return bytes(self._complaints).decode("utf-8", "replace").strip()

    @property
    def has_unsent(self) -> bool:
        """Whether some data is not written yet."""
        return len(self._unsent) > 0

    def send(self, data: bytes) -> None:
        """Set the data for `push`; earlier data must be written first."""
        self._unsent = memoryview(data)

    def push(self, left_s: Callable[[], float]) -> None:
        """Write the data, as much as the process accepts in the time left."""
        if self._input.closed:
            return
        room = select.poll()
        room.register(self._input, select.POLLOUT)
        while self.has_unsent:
            try:
                self._unsent = self._unsent[os.write(self._input.fileno(), self._unsent) :]
            except BlockingIOError:
                if not room.poll(left_s() * 1e3):
                    return
            except BrokenPipeError:
                # The reader of its output notices the end too, and the reason.
                return

    def says(self) -> Iterator[bytes]:
        """Yield its stdout piece by piece until it closes it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._errors, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    data = os.read(key.fd, _READ_BYTES)
                    if key.fileobj is self._errors:
                        self._complaints.extend(data)
                        if not data:
                            selector.unregister(self._errors)
                    elif data:
                        yield data
                    else:
                        self._read_last_errors()
                        return

    def _read_last_errors(self) -> None:
        """Read the rest of its stderr, with a limit in case it is still running."""
        os.set_blocking(self._errors.fileno(), False)
        for _ in range(_LAST_READS):
            try:
                self._complaints.extend(os.read(self._errors.fileno(), _READ_BYTES))
            except BlockingIOError:
                return

    def end_input(self) -> None:
        """Close its stdin; no thread may be writing."""
        self._input.close()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def wait_or_kill(self, patience_s: float) -> int:
        """Return its exit code; kill it when it does not end in time."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Close the pipes; no thread may be writing."""
        for pipe in (self._input, self._output, self._errors):
            pipe.close()
