"""The predictor in its own process, as the daemon sees it: slow, silent, mad or dead, it may be.

One thread looks after the process: starts it, reads what it says, and sees to it that nothing of
it is left when it ends. Whoever asks waits for the answer only as long as was agreed.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from threading import Condition, Lock, Thread

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadReply, PortError, PortTimeout
from meritory.domain.world import World
from meritory.ports.child import Child, LineReader
from meritory.ports.score_call import ScoreReply, call_line, read_reply, read_scores, score_line
from meritory.ports.scorer import ModelFolders, ScoreRequest
from meritory.ports.trainer_process import Where

LINE_LIMIT_BYTES = 4 << 20
HOUR_MS = 3_600_000.0
# A request, or a start, that is not answered for so long is a crash.
HANG_LIMIT_MS = 10_000.0
FIRST_PAUSE_MS = 500.0
LONGEST_PAUSE_MS = 60_000.0
# How long it may take to end when it is asked to, told to, and killed.
_ASK_LIMIT_S, _TERM_LIMIT_S, _KILL_LIMIT_S = 0.3, 0.2, 5.0
_GREETING = 0
_READY_LOOK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSpec:
    """What process is started, and how patient one is with it."""

    store: Where
    shelves: ModelFolders
    score_timeout_ms: float
    crash_disable_threshold: int = 3
    hang_limit_ms: float = HANG_LIMIT_MS
    first_pause_ms: float = FIRST_PAUSE_MS
    # Another program that speaks the same language.
    command: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command that is run."""
        if self.command:
            return self.command
        # -P: whatever lies in the folder where the daemon was started is not ours.
        ours = (sys.executable, "-P", "-m", "meritory.sidecar")
        where = (self.store.argument, str(self.shelves.folder))
        return (*ours, *where, "--base-weights", str(self.shelves.base))


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFacts:
    """How the process is."""

    is_alive: bool
    # It has answered, and can score.
    is_ready: bool
    pid: int | None
    uptime_s: float | None
    crash_count: int
    is_disabled: bool
    scores_processed: int
    timeout_count: int
    last_latency_ms: float | None
    # Of the last crash.
    last_error: str | None


@dataclass(slots=True, eq=False)
class _Life:
    """One life of the process."""

    child: Child
    begun_ms: float
    # The request that is not answered yet, and since when; at first the greeting.
    pending: int | None
    pending_since_ms: float
    # The answer to the last request that was answered.
    reply: ScoreReply | None = None
    # Why nothing more is to be expected of it.
    failure: PortError | None = None


class SidecarScorer:
    """Scores in a process of its own, which is started when it is first needed."""

    reads_models = True

    def __init__(self, spec: SidecarSpec, name: str, world: World) -> None:
        self.name = name
        self._spec = spec
        self._world = world
        # Held by whoever speaks to the process: one request at a time.
        self._turn = Lock()
        # Guards all that follows.
        self._changed = Condition()
        self._thread: Thread | None = None
        self._life: _Life | None = None
        self._is_closed = False
        self._crashes_ms: deque[float] = deque(maxlen=spec.crash_disable_threshold)
        self._resume_ms = 0.0
        self._crash_count = 0
        self._score_count = 0
        self._timeout_count = 0
        self._request_count = 0
        self._last_latency_ms: float | None = None
        self._last_error: str | None = None

    # -- what the daemon calls --------------------------------------------------------------

    def warm(self, wait_s: float = 0.0) -> None:
        """Starts the process, and waits until it is ready, but not for longer."""
        until_ms = self._world.monotonic_ms() + wait_s * 1e3
        with self._changed:
            self._ensure_thread()
        while not self.facts.is_ready and self._world.monotonic_ms() < until_ms:
            with self._changed:
                self._changed.wait(_READY_LOOK_S)

    def enable(self) -> None:
        """Forgives all crashes and starts it again."""
        with self._changed:
            self._crashes_ms.clear()
            self._resume_ms = 0.0
            self._ensure_thread()
            self._changed.notify_all()

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """One score per candidate; PortTimeout when they do not come in time."""
        began_ms = self._world.monotonic_ms()
        try:
            found = self._in_turn(request, began_ms + self._spec.score_timeout_ms)
        except PortTimeout:
            with self._changed:
                self._timeout_count += 1
            raise
        with self._changed:
            self._score_count += 1
            self._last_latency_ms = self._world.monotonic_ms() - began_ms
        return found

    @property
    def facts(self) -> SidecarFacts:
        """How the process is, at this moment."""
        with self._changed:
            life, now_ms = self._sound_life(), self._world.monotonic_ms()
            return SidecarFacts(
                is_alive=life is not None,
                is_ready=life is not None and life.pending != _GREETING,
                pid=None if life is None else life.child.pid,
                uptime_s=None if life is None else (now_ms - life.begun_ms) / 1e3,
                crash_count=self._crash_count,
                is_disabled=self._is_disabled(),
                scores_processed=self._score_count,
                timeout_count=self._timeout_count,
                last_latency_ms=self._last_latency_ms,
                last_error=self._last_error,
            )

    def close(self) -> None:
        """Ends the process: it is asked to, then told to, then killed; safe to call twice."""
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
            (self._ask_to_end, _ASK_LIMIT_S),
            (Child.terminate, _TERM_LIMIT_S),
            (Child.kill, _KILL_LIMIT_S),
        ):
            end(life.child)
            thread.join(patience_s)
            if not thread.is_alive():
                return

    def _ask_to_end(self, child: Child) -> None:
        if self._turn.acquire(timeout=_ASK_LIMIT_S):
            try:
                if not child.has_unsent:
                    child.send(call_line(self._request_count + 1, "shutdown", {}))
                    child.push(lambda: 0.0)
                child.end_input()
            finally:
                self._turn.release()

    # -- one request ------------------------------------------------------------------------

    def _in_turn(self, request: ScoreRequest, deadline_ms: float) -> NDArray[np.float64]:
        if not self._turn.acquire(timeout=self._left_s(deadline_ms)):
            raise PortTimeout("the predictor was busy with other sessions all the time")
        try:
            life = self._free(deadline_ms)
            self._request_count += 1
            line = score_line(self._request_count, request)
            with self._changed:
                life.pending = self._request_count
                life.pending_since_ms = self._world.monotonic_ms()
            life.child.send(line)
            life.child.push(lambda: self._left_s(deadline_ms))
            reply = self._reply(life, deadline_ms)
        finally:
            self._turn.release()
        return read_scores(reply, request)

    def _free(self, deadline_ms: float) -> _Life:
        """The process, once it has answered all that it was asked before."""
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
            if life.failure is None:
                self._demand_alive(life)
            if life.failure is not None:
                raise life.failure
            if life.pending is not None:
                word = "starting" if life.pending == _GREETING else "busy with an earlier request"
                raise PortTimeout(f"the predictor is still {word}")
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

    # -- how it stands; with the lock held ---------------------------------------------------

    def _ensure_thread(self) -> None:
        if self._is_closed or self._is_disabled():
            raise self._absence()
        if self._thread is None:
            self._thread = Thread(target=self._look_after, name="meritory-sidecar", daemon=True)
            self._thread.start()

    def _sound_life(self) -> _Life | None:
        life = self._life
        return None if life is None or life.failure is not None else life

    def _is_settled(self) -> bool:
        """Whether waiting changes nothing."""
        life = self._life
        if self._is_closed or life is None:
            return self._is_closed or self._is_paused()
        return life.pending is None or life.failure is not None

    def _demand_alive(self, life: _Life) -> None:
        silent_ms = self._world.monotonic_ms() - life.pending_since_ms
        if life.pending is not None and silent_ms > self._spec.hang_limit_ms:
            life.failure = PortError("the predictor hung and was ended")
            life.child.kill()

    def _is_disabled(self) -> bool:
        """Whether it crashed too often within the last hour."""
        if len(self._crashes_ms) < self._spec.crash_disable_threshold:
            return False
        return self._world.monotonic_ms() - self._crashes_ms[0] < HOUR_MS

    def _is_paused(self) -> bool:
        return self._is_disabled() or self._world.monotonic_ms() < self._resume_ms

    def _absence(self) -> PortError:
        """Why there is no process."""
        if self._is_closed:
            return PortError("the predictor was closed")
        if self._is_disabled():
            return PortError(
                f"the predictor is switched off after {self._spec.crash_disable_threshold} "
                f"crashes within an hour, the last: {self._last_error}",
                hint="it is tried again after an hour, or by `meritory predictor enable`",
            )
        if self._is_paused():
            return PortError(f"the predictor is started again after a crash: {self._last_error}")
        return PortTimeout("the predictor is still starting")

    def _crashed(self, error: PortError) -> None:
        now_ms = self._world.monotonic_ms()
        self._crash_count += 1
        self._last_error = error.message
        self._crashes_ms.append(now_ms)
        recent = sum(now_ms - at_ms < HOUR_MS for at_ms in self._crashes_ms)
        pause_ms = self._spec.first_pause_ms * 2.0 ** min(recent - 1, 30)
        self._resume_ms = now_ms + min(pause_ms, LONGEST_PAUSE_MS)

    # -- the thread that looks after the process ---------------------------------------------

    def _look_after(self) -> None:
        is_needed = True
        while is_needed:
            error = self._one_life()
            with self._changed:
                self._life = None
                if not self._is_closed:
                    self._crashed(error)
                self._changed.notify_all()
                if not self._is_disabled():
                    pause_s = self._left_s(self._resume_ms)
                    self._changed.wait_for(
                        lambda: self._is_closed or not self._is_paused(), pause_s
                    )
                is_needed = not self._is_closed and not self._is_disabled()
                if not is_needed:
                    self._thread = None

    def _one_life(self) -> PortError:
        """From the start of the process to its end, and why that came."""
        try:
            child = Child(self._spec.arguments, self._spec.store.environment)
        except OSError as error:
            return PortError(f"no process for the predictor: {error}")
        now_ms = self._world.monotonic_ms()
        # A fresh pipe has room for this. Who answers it is ready.
        child.send(call_line(_GREETING, "status", {}))
        child.push(lambda: 0.0)
        life = _Life(child, now_ms, _GREETING, now_ms)
        with self._changed:
            self._life = life
            if self._is_closed:
                child.kill()
        self._listen(life)
        return self._buried(life)

    def _listen(self, life: _Life) -> None:
        """Until it says no more, or nonsense."""
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
                    # Anything else is late, double or nobody's.
                    if life.pending is not None and reply.id == life.pending:
                        life.pending, life.reply = None, reply
                self._changed.notify_all()

    def _buried(self, life: _Life) -> PortError:
        """Waits for the end of a process that is of no use any more, and tidies up."""
        code = life.child.buried(0.0 if life.failure else _ASK_LIMIT_S)
        with self._changed:
            if life.failure is None:
                told = life.child.complaints
                life.failure = PortError(f"the predictor ended with {code}: {told}".rstrip(": "))
            self._changed.notify_all()
        # Whoever speaks to it must have noticed before its pipes are closed.
        with self._turn:
            life.child.close()
        return life.failure
