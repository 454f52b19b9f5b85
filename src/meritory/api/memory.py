"""The public classes `Memory` and `Session`, and the protocols of the backends that do the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from meritory.api.address import choose_daemon
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from meritory.domain.feedback import Contested, FeedbackEvent
    from meritory.domain.memory import (
        Entity,
        EntityView,
        HistoryEntry,
        MemoryRecord,
        Recalled,
        Scope,
        WriteResult,
    )
    from meritory.domain.world import Clock, World
    from meritory.engine.feedback.capture import Captured
    from meritory.engine.feedback.summary import Summary
    from meritory.engine.jobs.worker import Background
    from meritory.engine.services import Services
    from meritory.engine.sessions.packing import Served, ShownMemory
    from meritory.engine.sessions.ratings import RatingsTaken
    from meritory.rank.feedback import Pair, Risk
    from meritory.settings import Settings

Progress = Callable[[int, int], None]


def _ignore(done: int, total: int) -> None:
    """Report no progress."""


class SessionBackend(Protocol):
    """The part of a session that runs in this process or in a daemon."""

    served: Served

    def prompt(self, text: str, feedback: Mapping[str, float] | None) -> Served: ...
    def reply(self, text: str) -> RatingsTaken: ...
    def rate(self, scores: Mapping[str, float]) -> RatingsTaken: ...
    def compact(self) -> None: ...
    def end(self, transcript: object, used: Mapping[str, float] | None) -> None: ...


class MemoryBackend(Protocol):
    """The verbs of `Memory` for one scope: `embedded` runs them here, `remote` asks a daemon."""

    scope: Scope
    settings: Settings

    @property
    def services(self) -> Services: ...
    @property
    def works(self) -> Background: ...
    def view(
        self, user: object, agent: object, project: object, *, everywhere: bool, actor: str | None
    ) -> MemoryBackend: ...
    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]: ...
    def update(self, memory_id: str, **fields: Any) -> MemoryRecord: ...
    def confirm(self, memory_id: str) -> MemoryRecord: ...
    def forget(self, memory_id: str, *, purge: bool, why: str) -> None: ...
    def undo(self, memory_id: str) -> list[MemoryRecord]: ...
    def split(self, memory_id: str, entry: int | None) -> list[MemoryRecord]: ...
    def recall(self, query: str, limit: int | None, explain: bool) -> list[Recalled]: ...
    def get(self, memory_id: str) -> MemoryRecord: ...
    def page(
        self,
        limit: int,
        *,
        kind: str | None,
        tag: str | None,
        after: str | None,
        everywhere: bool,
        include_gone: bool,
    ) -> list[MemoryRecord]: ...
    def history(self, memory_id: str) -> list[HistoryEntry]: ...
    def merges(self, limit: int) -> list[HistoryEntry]: ...
    def stats(self) -> dict[str, int]: ...
    def session(self, key: str, **options: str | None) -> Session: ...
    def session_ended(self, key: str, is_known: bool) -> None: ...
    def drain(self) -> int: ...
    def work_meanwhile(self) -> None: ...
    def predictor_status(self) -> dict[str, Any]: ...
    def why(self, memory_id: str, session_key: str) -> dict[str, Any]: ...
    def entities(self, limit: int) -> list[Entity]: ...
    def describe(self, entity: str) -> EntityView: ...
    def related(self, context: str) -> list[str]: ...
    def required(self, context: str) -> list[str]: ...
    def capture_feedback(self, signal: str, context: str, **fields: Any) -> Captured: ...
    def complete_feedback(self, event_id: str, signal: str | None, **fields: Any) -> Captured: ...
    def feedback_events(self, limit: int, **wanted: str | None) -> list[FeedbackEvent]: ...
    def feedback_event(self, event_id: str) -> FeedbackEvent: ...
    def feedback_summary(self) -> Summary: ...
    def feedback_risk(self, days: int | None) -> list[Risk]: ...
    def feedback_pairs(self) -> list[Pair]: ...
    def contested(self) -> list[Contested]: ...
    def backup(self, target: str | os.PathLike[str]) -> None: ...
    def reembed(self, progress: Progress) -> bool: ...
    def reembed_in_background(self, progress: Progress) -> threading.Thread: ...
    def close(self) -> None: ...


class Memory:
    """Memories of one user, in a file of its own or a daemon's; safe to share between threads."""

    backend: MemoryBackend

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        clock: Clock | World | None = None,
        settings: Settings | None = None,
        actor: str = "library",
        everywhere: bool = False,
        background: bool = True,
        apart: bool = False,
        backend: MemoryBackend | None = None,
    ) -> None:
        """Open the store, or create it; with `url` use the daemon there, with its `token`.

        Without path, url, settings and clock the daemon of the data folder is used if it runs.
        `everywhere` lets ids name memories of all the user's projects and agents, for people's
        tools; searches keep to their scope. `background` lets a thread make the vectors of a
        changed embedder. `clock` replaces the time, for replays; a `World` also replaces chance.
        `apart` runs the model in a process of its own, as the daemon does. `backend` is one that
        is open already.
        """
        if backend is not None:
            self.backend = backend
            return
        options: dict[str, Any] = {"path": path, "settings": settings, "clock": clock}
        daemon = choose_daemon({**options, "url": url, "token": token, "apart": apart})
        if daemon is not None:
            from meritory.api.remote import open_remote

            self.backend = open_remote(
                daemon, settings, user=user, agent=agent, project=project, everywhere=everywhere
            )
            return
        if token is not None:
            raise InputError("a token is for a daemon, not for a store", hint="give its url too")
        from meritory.api.embedded import open_embedded

        self.backend = open_embedded(
            **options,
            names=(user, agent, project),
            actor=actor,
            everywhere=everywhere,
            background=background,
            apart=apart,
        )

    @property
    def scope(self) -> Scope:
        """The user, agent and project whose memories these are."""
        return self.backend.scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        self.backend.scope = scope

    @property
    def settings(self) -> Settings:
        """The settings of the data folder."""
        return self.backend.settings

    @property
    def services(self) -> Services:
        """The parts of the engine, for surfaces of this package."""
        return self.backend.services

    @property
    def works(self) -> Background:
        """The background threads of the engine, for surfaces of this package."""
        return self.backend.works

    def view(
        self,
        user: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        *,
        everywhere: bool = False,
        actor: str | None = None,
    ) -> Memory:
        """Return the same open store for another scope; only the first one is to be closed."""
        return Memory(
            backend=self.backend.view(user, agent, project, everywhere=everywhere, actor=actor)
        )

    # -- writing --------------------------------------------------------------------------

    def remember(self, /, content: str, **fields: Any) -> MemoryRecord:
        """Store a text and return its memory, which may be an older one."""
        result = self.remember_many([{"content": content, **fields}])[0]
        if result.memory is None:
            raise result.error or InputError(result.reason)
        return result.memory

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Store many texts at once; a bad item does not keep the others out."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        return self.backend.remember_many(items)

    def update(self, /, memory_id: str, **fields: Any) -> MemoryRecord:
        """Change fields of a memory; its history keeps the old values."""
        return self.backend.update(memory_id, **fields)

    def confirm(self, memory_id: str) -> MemoryRecord:
        """Vouch for a memory as a person: it becomes trusted, and its proposals take effect."""
        return self.backend.confirm(memory_id)

    def forget(self, memory_id: str, *, purge: bool = False, why: str = "") -> None:
        """Hide a memory; with `purge` erase it and its history."""
        self.backend.forget(memory_id, purge=purge, why=why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Take back the last change of a memory and return all memories that this changed."""
        return self.backend.undo(memory_id)

    def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Take a merge apart again."""
        return self.backend.split(memory_id, entry)

    # -- reading --------------------------------------------------------------------------

    def recall(self, query: str, limit: int | None = None, explain: bool = False) -> list[Recalled]:
        """Return the memories that answer a query best; `explain` adds the parts of each score."""
        return self.backend.recall(query, limit, explain)

    def get(self, memory_id: str) -> MemoryRecord:
        """Return the memory with this id, or the only one whose id starts with it."""
        return self.backend.get(memory_id)

    def page(
        self,
        limit: int = 100,
        *,
        kind: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        everywhere: bool = False,
        include_gone: bool = False,
    ) -> list[MemoryRecord]:
        """Return a page of memories, newest first; `after` is the last id of the page before."""
        return self.backend.page(
            limit, kind=kind, tag=tag, after=after, everywhere=everywhere, include_gone=include_gone
        )

    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Return every change of a memory, oldest first."""
        return self.backend.history(memory_id)

    def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """Return the latest merges, newest first; each can be split again."""
        return self.backend.merges(limit)

    def stats(self) -> dict[str, int]:
        """Count memories, sessions, write outcomes and fallbacks."""
        return self.backend.stats()

    def entities(self, limit: int = 100) -> list[Entity]:
        """Return the entities of the memories, most frequent first."""
        return self.backend.entities(limit)

    def describe(self, entity: str) -> EntityView:
        """Return the aspects, constraints and dependencies of an entity."""
        return self.backend.describe(entity)

    def related(self, context: str) -> list[str]:
        """Return ids of memories about the entities of a context and their dependencies."""
        return self.backend.related(context)

    def required(self, context: str = "") -> list[str]:
        """Return ids of memories that must be shown: pins, and constraints of a context."""
        return self.backend.required(context)

    # -- sessions and learning ------------------------------------------------------------

    def session(
        self,
        key: str,
        project: str | None = None,
        context: str | None = None,
        *,
        harness: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Begin a session, or resume it; the result has the text to show at its start."""
        return self.backend.session(key, project=project, context=context, harness=harness, cwd=cwd)

    def _session_ended(self, key: str, is_known: bool) -> None:
        """Learn from a session that a surface of this package ended."""
        self.backend.session_ended(key, is_known)

    def drain(self) -> int:
        """Run every job that is due, wait for those in progress, and return how many ran here."""
        return self.backend.drain()

    def work_meanwhile(self) -> None:
        """Let a thread run the jobs that are due, now and later."""
        self.backend.work_meanwhile()

    def predictor_status(self) -> dict[str, Any]:
        """Return the phase, influence and models of this user's predictor, with reasons."""
        return self.backend.predictor_status()

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Return every number that put a memory into a session or kept it out."""
        return self.backend.why(memory_id, session_key)

    # -- feedback -------------------------------------------------------------------------

    def capture_feedback(self, /, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keep a thumbs up or down; one that says enough becomes or confirms a lesson.

        Fields: what_went_wrong, what_to_change, what_worked, tags, rubric_scores, guardrails,
        last_action, reasoning, visual_evidence, skill, memory_ids, session_key, origin.
        """
        return self.backend.capture_feedback(signal, context, **fields)

    # The short name, for programs.
    feedback = capture_feedback

    def complete_feedback(
        self, /, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Add missing fields to a report and decide about it again."""
        return self.backend.complete_feedback(event_id, signal, **fields)

    def feedback_events(
        self,
        /,
        limit: int = 50,
        *,
        signal: str | None = None,
        status: str | None = None,
        before: str | None = None,
        **wanted: str | None,
    ) -> list[FeedbackEvent]:
        """Return a page of reports, latest first.

        They can also be filtered by domain, project, session_key and memory_id.
        """
        return self.backend.feedback_events(
            limit, signal=signal, status=status, before=before, **wanted
        )

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        """Return the report with this id, or the only one whose id starts with it."""
        return self.backend.feedback_event(event_id)

    def feedback_summary(self) -> Summary:
        """Return all reports in numbers: totals, domains, approval and its trend."""
        return self.backend.feedback_summary()

    def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """Return the tags, tools and domains that fail more often than the rest."""
        return self.backend.feedback_risk(days)

    def feedback_pairs(self) -> list[Pair]:
        """Return pairs of a good and a bad answer, for preference training."""
        return self.backend.feedback_pairs()

    def contested(self) -> list[Contested]:
        """Return memories with much evidence for and against them, for a person to review."""
        return self.backend.contested()

    # -- maintenance ----------------------------------------------------------------------

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a verified copy while the store stays in use; its models go into a folder."""
        self.backend.backup(target)

    def reembed(self, progress: Progress = _ignore) -> bool:
        """Make all missing vectors now; return whether the configured embedder serves."""
        return self.backend.reembed(progress)

    def reembed_in_background(self, progress: Progress = _ignore) -> threading.Thread:
        """Make missing vectors on a thread; searches stay correct meanwhile."""
        return self.backend.reembed_in_background(progress)

    def close(self) -> None:
        """Finish the work in progress and release the store; safe to call twice."""
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Session:
    """A running session; it is its own context manager, and leaving the block ends it."""

    def __init__(self, key: str, scope: Scope, backend: SessionBackend) -> None:
        self._backend = backend
        self._key = key
        self._scope = backend.served.scope or scope
        self._memories = list(backend.served.memories)
        self._ranking = list(backend.served.ranking)
        self._is_over = False

    @property
    def key(self) -> str:
        """The session's name."""
        return self._key

    @property
    def scope(self) -> Scope:
        """The user, agent and project whose memories it may see."""
        return self._scope

    @property
    def inject(self) -> str:
        """The text that opens the session; empty when no memory is worth showing."""
        return self._backend.served.inject

    @property
    def injection(self) -> str | None:
        """The code that ratings of the opening text must name."""
        return self._backend.served.injection

    @property
    def memories(self) -> list[ShownMemory]:
        """The memories shown so far, each with its handle and id."""
        return list(self._memories)

    @property
    def ranking(self) -> list[str]:
        """Ids of all candidates in final order."""
        return list(self._ranking)

    @property
    def status_line(self) -> str:
        """The progress of learning, in one line."""
        return self._backend.served.status_line

    def prompt(self, text: str, feedback: Mapping[str, float] | None = None) -> Served:
        """Return the memories for a prompt of the user that the session has not shown yet."""
        served = self._backend.prompt(text, feedback)
        # After a compaction some are shown again, under the handles they had.
        shown = {memory.handle for memory in self._memories}
        self._memories += [memory for memory in served.memories if memory.handle not in shown]
        self._ranking = list(served.ranking) or self._ranking
        return served

    def reply(self, text: str) -> RatingsTaken:
        """Take the ratings at the end of the agent's reply."""
        return self._backend.reply(text)

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """Rate memories by handle or id: -1 misled, 0 unused, 1 decisive."""
        return self._backend.rate(scores)

    def compact(self) -> None:
        """Note that the agent lost its context, so that memories may be shown again."""
        self._backend.compact()

    def end(self, transcript: object = None, used: Mapping[str, float] | None = None) -> None:
        """End the session; again is fine. `used` says what helped, for programs that know it."""
        if not self._is_over:
            self._backend.end(transcript, used)
            self._is_over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
