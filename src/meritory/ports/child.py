"""Lines out of a stream of bytes, none longer than agreed: how the predictor's process is heard."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence


class LineReader:
    """Cuts a stream into lines and forgets what is too long, so that it never fills the memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that this piece completes; None stands for one that was too long."""
        *ended, rest = data.split(b"\n")
        found = []
        for piece in ended:
            self._hold(piece)
            found.append(self._taken())
        self._hold(rest)
        return found

    @property
    def is_too_long(self) -> bool:
        """Whether the line that is not complete yet is longer than agreed already."""
        return self._held_bytes > self._limit_bytes

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self.is_too_long:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _taken(self) -> bytes | None:
        line = None if self.is_too_long else b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        return line


_READ_BYTES = 1 << 16
_TOLD_BYTES = 2_000
_LAST_READS = 4
# Two threads for the numbers would fight the agent for the machine.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def environment_of(told: Mapping[str, str]) -> dict[str, str]:
    """What a process of ours is told: what we were told ourselves, and something besides."""
    return {**os.environ, **told, **_ONE_THREAD}


class Child:
    """A process with three pipes; one thread may write while another one reads."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Runs a command; `environment` is told besides what this process was told itself."""
        self._process = subprocess.Popen(  # noqa: S603 - the caller's own command
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # Ctrl-C in the terminal is for the one who started it.
            process_group=0,
            env=environment_of(environment or {}),
        )
        pipes = self._process.stdin, self._process.stdout, self._process.stderr
        self._input, self._output, self._errors = (pipe for pipe in pipes if pipe is not None)
        os.set_blocking(self._input.fileno(), False)
        self._unsent = memoryview(b"")
        self._complaints: deque[int] = deque(maxlen=_TOLD_BYTES)
        self.pid = self._process.pid

    @property
    def complaints(self) -> str:
        """The end of what it wrote to stderr."""
        return bytes(self._complaints).decode("utf-8", "replace").strip()

    @property
    def has_unsent(self) -> bool:
        """Whether it has not taken all that it was sent."""
        return len(self._unsent) > 0

    def send(self, data: bytes) -> None:
        """Lays out something to be written; what was sent before must be written first."""
        self._unsent = memoryview(data)

    def push(self, left_s: Callable[[], float]) -> None:
        """Writes what was sent, as far as the process takes it in the time that is left."""
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
                # Whoever reads what it says will notice its end as well, and why it came.
                return

    def says(self) -> Iterator[bytes]:
        """What it writes to stdout, piece by piece until it closes it."""
        with selectors.DefaultSelector() as heard:
            heard.register(self._output, selectors.EVENT_READ)
            heard.register(self._errors, selectors.EVENT_READ)
            while True:
                for key, _ in heard.select():
                    data = os.read(key.fd, _READ_BYTES)
                    if key.fileobj is self._errors:
                        self._complaints.extend(data)
                        if not data:
                            heard.unregister(self._errors)
                    elif data:
                        yield data
                    else:
                        self._hear_complaints()
                        return

    def _hear_complaints(self) -> None:
        """What it wrote to stderr before it ended; not for ever, should it not have ended."""
        os.set_blocking(self._errors.fileno(), False)
        for _ in range(_LAST_READS):
            try:
                self._complaints.extend(os.read(self._errors.fileno(), _READ_BYTES))
            except BlockingIOError:
                return

    def end_input(self) -> None:
        """Closes its stdin; nobody may be writing meanwhile."""
        self._input.close()

    def terminate(self) -> None:
        """Tells it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it, whatever it is doing."""
        self._process.kill()

    def buried(self, patience_s: float) -> int:
        """Its exit code; it is killed when it does not end by itself in time."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Closes the pipes; nobody may be writing meanwhile."""
        for pipe in (self._input, self._output, self._errors):
            pipe.close()
