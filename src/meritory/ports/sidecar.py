"""Client of the predictor's process, which may be slow, silent, wrong or dead.

One thread supervises the process: it starts it, reads its output, and cleans up when it ends.
Callers wait for an answer only up to a deadline. Requests and replies are one JSON line each.
Features travel as base64, which is ten times faster to encode than decimal numbers.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Condition, Lock, Thread

import msgspec
import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadReply, PortError, PortTimeout
from meritory.domain.place import Place
from meritory.domain.world import World
from meritory.model.base import MAX_CHARS
from meritory.ports.breaker import FIRST_PAUSE_MS, CircuitBreaker
from meritory.ports.scorer import ModelFolders, ScoreRequest, ScorerFacts
from meritory.ports.trainer_process import environment_of

LINE_LIMIT_BYTES = 4 << 20
# A request or a start without an answer for this long counts as a crash.
HANG_LIMIT_MS = 10_000.0
# The time to end after a request, after SIGTERM, and after SIGKILL.
_ASK_LIMIT_S, _TERM_LIMIT_S, _KILL_LIMIT_S = 0.3, 0.2, 5.0
_GREETING = 0
_READY_LOOK_S = 0.01
_READ_BYTES = 1 << 16
_ERROR_BYTES = 2_000
_LAST_READS = 4
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# -- requests and replies ---------------------------------------------------------------------


class ScoreRefusal(msgspec.Struct, frozen=True):
    """The error of a refused call."""

    code: int
    message: str


class ScoreReply(msgspec.Struct, frozen=True):
    """The reply to one call."""

    id: int | str | float | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: ScoreRefusal | None = None


class _Score(msgspec.Struct, frozen=True):
    id: str
    score: float


class _Scores(msgspec.Struct, frozen=True):
    scores: list[_Score]
    model_version: int


_REPLIES = msgspec.json.Decoder(ScoreReply)
_RESULTS = msgspec.json.Decoder(_Scores)


def call_line(number: int, method: str, params: dict[str, object]) -> bytes:
    """Return a call as a line."""
    call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return msgspec.json.encode(call) + b"\n"


def score_line(number: int, request: ScoreRequest) -> bytes:
    """Return the call for scores as a line."""
    params: dict[str, object] = {
        "user": request.user,
        "version": request.version,
        "embedder": request.embedder or "",
        "feature_version": request.feature_version,
        "candidate_ids": request.memory_ids,
        "features_b64": np.ascontiguousarray(request.features, "<f8").tobytes(),
        "context_text": request.context_text[:MAX_CHARS].encode("utf-8", "replace").decode(),
        "project_slot": request.project_slot,
    }
    if request.context is not None:
        params["context_b64"] = np.ascontiguousarray(request.context, "<f4").tobytes()
    return call_line(number, "score", params)


def read_reply(line: bytes | None) -> ScoreReply:
    """Return the reply of a line; None is a line that was too long."""
    try:
        if line is not None:
            return _REPLIES.decode(line)
    except _UNREADABLE as error:
        raise BadReply(f"the predictor's answer cannot be read: {error}") from error
    raise BadReply("the predictor's answer is too long")


def read_scores(reply: ScoreReply, request: ScoreRequest) -> NDArray[np.float64]:
    """Return the scores of a reply, after checking that it answers the request."""
    if reply.error is not None:
        raise PortError(f"the predictor refused ({reply.error.code}): {reply.error.message}")
    try:
        result = _RESULTS.decode(reply.result)
    except _UNREADABLE as error:
        raise BadReply(f"the predictor's scores cannot be read: {error}") from error
    if tuple(item.id for item in result.scores) != request.memory_ids:
        raise BadReply("the predictor scored other candidates than it was asked about")
    if result.model_version != request.version:
        raise BadReply(f"model {result.model_version} answered for model {request.version}")
    scores = np.array([item.score for item in result.scores], np.float64)
    if not np.isfinite(scores).all():
        raise BadReply("the predictor returned a score that is not finite")
    return scores


# -- the process ------------------------------------------------------------------------------


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
        self.input, self._output, self._errors = (pipe for pipe in pipes if pipe is not None)
        os.set_blocking(self.input.fileno(), False)
        self._unsent = memoryview(b"")
        self._complaints: deque[int] = deque(maxlen=_ERROR_BYTES)
        self.pid = self._process.pid
        self.terminate, self.kill = self._process.terminate, self._process.kill

    @property
    def complaints(self) -> str:
        """The end of its stderr."""
        return bytes(self._complaints).decode("utf-8", "replace").strip()

    @property
    def has_unsent(self) -> bool:
        """Whether some data is not written yet."""
        return len(self._unsent) > 0

    def send(self, data: bytes, left_s: Callable[[], float] = lambda: 0.0) -> None:
        """Write data in the time left; earlier data must be written first."""
        self._unsent = memoryview(data)
        self.push(left_s)

    def push(self, left_s: Callable[[], float]) -> None:
        """Write the unsent data, as much as the process accepts in the time left."""
        if self.input.closed:
            return
        room = select.poll()
        room.register(self.input, select.POLLOUT)
        while self.has_unsent:
            try:
                self._unsent = self._unsent[os.write(self.input.fileno(), self._unsent) :]
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
                        # The rest of its stderr, with a limit in case it is still running.
                        os.set_blocking(self._errors.fileno(), False)
                        with contextlib.suppress(BlockingIOError):
                            for _ in range(_LAST_READS):
                                self._complaints.extend(os.read(self._errors.fileno(), _READ_BYTES))
                        return

    def wait_or_kill(self, patience_s: float) -> int:
        """Return its exit code; kill it when it does not end in time."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def close(self) -> None:
        """Close the pipes; no thread may be writing."""
        for pipe in (self.input, self._output, self._errors):
            pipe.close()


# -- the scorer -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSpec:
    """The process to start, and its timeouts."""

    store: Place
    shelves: ModelFolders
    score_timeout_ms: float
    crash_disable_threshold: int = 3
    hang_limit_ms: float = HANG_LIMIT_MS
    first_pause_ms: float = FIRST_PAUSE_MS
    # Another program with the same protocol.
    command: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line of the process."""
        if self.command:
            return self.command
        # -P: never import from the folder in which the daemon was started.
        program = (sys.executable, "-P", "-m", "meritory.sidecar")
        paths = (self.store.argument, str(self.shelves.folder))
        return (*program, *paths, "--base-weights", str(self.shelves.base))


@dataclass(slots=True, eq=False)
class _Life:
    """One run of the process."""

    child: Child
    begun_ms: float
    # The open request and its start; at first the greeting.
    pending: int | None
    pending_since_ms: float
    # The last reply.
    reply: ScoreReply | None = None
    # Why it is no longer usable.
    failure: PortError | None = None


class SidecarScorer:
    """Scores in a separate process, which starts on first use."""

    reads_models = True

    def __init__(self, spec: SidecarSpec, name: str, world: World) -> None:
        self.name = name
        self._spec = spec
        self._world = world
        # Held during a request: one at a time.
        self._request_lock = Lock()
        # Guards everything below.
        self._changed = Condition()
        self._thread: Thread | None = None
        self._life: _Life | None = None
        self._is_closed = False
        self.breaker = CircuitBreaker(world, spec.crash_disable_threshold, spec.first_pause_ms)
        self._score_count = 0
        self._timeout_count = 0
        self._request_count = 0
        self._last_latency_ms: float | None = None

    # -- what the daemon calls --------------------------------------------------------------

    def warm(self, wait_s: float = 0.0) -> None:
        """Start the process, and wait until it is ready, at most `wait_s` seconds."""
        until_ms = self._world.monotonic_ms() + wait_s * 1e3
        with self._changed:
            self._ensure_thread()
        while not self.facts.is_ready and self._world.monotonic_ms() < until_ms:
            with self._changed:
                self._changed.wait(_READY_LOOK_S)

    def enable(self) -> None:
        """Reset the circuit breaker and start the process again."""
        with self._changed:
            self.breaker.reset()
            self._ensure_thread()
            self._changed.notify_all()

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """Return one score per candidate; PortTimeout after the deadline."""
        began_ms = self._world.monotonic_ms()
        deadline_ms = began_ms + self._spec.score_timeout_ms
        try:
            if not self._request_lock.acquire(timeout=self._spec.score_timeout_ms / 1e3):
                raise PortTimeout("the predictor was busy with other sessions")
            try:
                life = self._idle_life(deadline_ms)
                self._request_count += 1
                line = score_line(self._request_count, request)
                with self._changed:
                    life.pending = self._request_count
                life.child.send(line, lambda: self._left_s(deadline_ms))
                reply = self._reply(life, deadline_ms)
            finally:
                self._request_lock.release()
        except PortTimeout:
            with self._changed:
                self._timeout_count += 1
            raise
        scores = read_scores(reply, request)
        with self._changed:
            self._score_count += 1
            self._last_latency_ms = self._world.monotonic_ms() - began_ms
        return scores

    @property
    def facts(self) -> ScorerFacts:
        """The current state of the process."""
        with self._changed:
            life, now_ms = self._sound_life(), self._world.monotonic_ms()
            return ScorerFacts(
                is_alive=life is not None,
                is_ready=life is not None and life.pending != _GREETING,
                pid=None if life is None else life.child.pid,
                uptime_s=None if life is None else (now_ms - life.begun_ms) / 1e3,
                crash_count=self.breaker.crash_count,
                is_disabled=self.breaker.is_open,
                scores_processed=self._score_count,
                timeout_count=self._timeout_count,
                last_latency_ms=self._last_latency_ms,
                last_error=self.breaker.last_error,
            )

    def close(self) -> None:
        """End the process: by a request, then SIGTERM, then SIGKILL; safe to call twice."""
        with self._changed:
            self._is_closed = True
            thread, life = self._thread, self._life
            self._changed.notify_all()
        if thread is None:
            return
        if life is None:
            thread.join(_KILL_LIMIT_S)
            return
        for end, patience_s in (
            (partial(self._ask_to_end, life.child), _ASK_LIMIT_S),
            (life.child.terminate, _TERM_LIMIT_S),
            (life.child.kill, _KILL_LIMIT_S),
        ):
            end()
            thread.join(patience_s)
            if not thread.is_alive():
                return

    def _ask_to_end(self, child: Child) -> None:
        if self._request_lock.acquire(timeout=_ASK_LIMIT_S):
            try:
                if not child.has_unsent:
                    child.send(call_line(self._request_count + 1, "shutdown", {}))
                child.input.close()
            finally:
                self._request_lock.release()

    # -- one request ------------------------------------------------------------------------

    def _idle_life(self, deadline_ms: float) -> _Life:
        """Return the running process when it has no open request; the next one begins now."""
        with self._changed:
            self._ensure_thread()
            life = self._sound_life()
        if life is not None and life.child.has_unsent:
            life.child.push(lambda: self._left_s(deadline_ms))
        with self._changed:
            self._changed.wait_for(self._is_settled, self._left_s(deadline_ms))
            life = self._life
            if self._is_closed or life is None:
                raise self._absence()
            now_ms = self._world.monotonic_ms()
            silent_ms = now_ms - life.pending_since_ms
            is_hung = life.pending is not None and silent_ms > self._spec.hang_limit_ms
            if is_hung and life.failure is None:
                life.failure = PortError("the predictor did not respond and was killed")
                life.child.kill()
            if life.failure is not None:
                raise life.failure
            if life.pending is not None:
                word = "starting" if life.pending == _GREETING else "busy with an earlier request"
                raise PortTimeout(f"the predictor is still {word}")
            life.pending_since_ms = now_ms
            return life

    def _reply(self, life: _Life, deadline_ms: float) -> ScoreReply:
        with self._changed:
            self._changed.wait_for(
                lambda: life.pending is None or life.failure is not None or self._is_closed,
                self._left_s(deadline_ms),
            )
            if life.pending is None and life.reply is not None:
                return life.reply
            if life.failure is not None:
                raise life.failure
            if self._is_closed:
                raise self._absence()
            raise PortTimeout(f"no scores within {self._spec.score_timeout_ms:g} ms")

    def _left_s(self, deadline_ms: float) -> float:
        return max(0.0, deadline_ms - self._world.monotonic_ms()) / 1e3

    # -- its state; with the lock held ------------------------------------------------------

    def _ensure_thread(self) -> None:
        if self._is_closed:
            raise self._absence()
        if self._thread is None:
            # The thread ends when the breaker opens.
            if self.breaker.is_open:
                raise self._absence()
            self._thread = Thread(target=self._supervise, name="meritory-sidecar", daemon=True)
            self._thread.start()

    def _sound_life(self) -> _Life | None:
        life = self._life
        return None if life is None or life.failure is not None else life

    def _is_settled(self) -> bool:
        """Return whether waiting would not change anything."""
        life = self._life
        if self._is_closed or life is None:
            return self._is_closed or self.breaker.is_paused
        return life.pending is None or life.failure is not None

    def _absence(self) -> PortError:
        """Return the error for a missing process."""
        if self._is_closed:
            return PortError("the predictor was closed")
        if self.breaker.is_open:
            return PortError(
                f"the predictor is disabled after {self.breaker.threshold} "
                f"crashes within an hour, the last: {self.breaker.last_error}",
                hint="it restarts after an hour, or with `meritory predictor enable`",
            )
        if self.breaker.is_paused:
            return PortError(f"the predictor restarts after a crash: {self.breaker.last_error}")
        return PortTimeout("the predictor is still starting")

    # -- the supervising thread ---------------------------------------------

    def _supervise(self) -> None:
        is_needed = True
        while is_needed:
            error = self._run_once()
            with self._changed:
                self._life = None
                if not self._is_closed:
                    self.breaker.record_crash(error.message)
                self._changed.notify_all()
                if not self.breaker.is_open:
                    pause_s = self._left_s(self.breaker.resume_ms)
                    self._changed.wait_for(
                        lambda: self._is_closed or not self.breaker.is_paused, pause_s
                    )
                is_needed = not self._is_closed and not self.breaker.is_open
                if not is_needed:
                    self._thread = None

    def _run_once(self) -> PortError:
        """Run the process from start to end, and return why it ended."""
        try:
            child = Child(self._spec.arguments, self._spec.store.environment)
        except OSError as error:
            return PortError(f"no process for the predictor: {error}")
        now_ms = self._world.monotonic_ms()
        # A new pipe has room for this. A process that answers is ready.
        child.send(call_line(_GREETING, "status", {}))
        life = _Life(child, now_ms, _GREETING, now_ms)
        with self._changed:
            self._life = life
            if self._is_closed:
                child.kill()
        self._read_replies(life)
        # Wait for the end of a process that is no longer usable, and close its pipes.
        code = child.wait_or_kill(0.0 if life.failure else _ASK_LIMIT_S)
        with self._changed:
            if life.failure is None:
                errors = child.complaints
                life.failure = PortError(f"the predictor ended with {code}: {errors}".rstrip(": "))
            self._changed.notify_all()
        # A caller must notice the end before the pipes are closed.
        with self._request_lock:
            child.close()
        return life.failure

    def _read_replies(self, life: _Life) -> None:
        """Read replies until the process closes stdout or sends an invalid one."""
        lines = LineReader(LINE_LIMIT_BYTES)
        for data in life.child.says():
            try:
                replies = [read_reply(line) for line in lines.feed(data)]
                if lines.is_too_long:
                    read_reply(None)
            except BadReply as error:
                with self._changed:
                    life.failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                for reply in replies:
                    # Other replies are late or unknown.
                    if life.pending is not None and reply.id == life.pending:
                        life.pending, life.reply = None, reply
                self._changed.notify_all()
