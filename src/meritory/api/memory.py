"""The front door's verbs about feedback, embedded; `meritory.api.remote` has their twins."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from meritory.api.backend import chosen_daemon
from meritory.api.opening import chosen_place, open_services
from meritory.api.session import Session
from meritory.domain.errors import Busy, InputError, MeritoryError, StorageError
from meritory.domain.feedback import Contested, FeedbackEvent, FeedbackQuery
from meritory.domain.memory import (
    Entity,
    EntityView,
    HistoryEntry,
    Listing,
    MemoryRecord,
    Recalled,
    Scope,
    WriteResult,
)
from meritory.domain.policy import RECALL_LIMIT
from meritory.domain.world import Clock, World
from meritory.engine.feedback import capture as capturing
from meritory.engine.feedback import summary
from meritory.engine.feedback.capture import Captured
from meritory.engine.feedback.reading import FeedbackReport
from meritory.engine.feedback.summary import Summary
from meritory.engine.jobs.worker import Background
from meritory.engine.memories import change, undo
from meritory.engine.memories import purge as erasing
from meritory.engine.memories import recall as recalling
from meritory.engine.memories import write as writing
from meritory.engine.memories.validate import checked_field, checked_name, make_draft
from meritory.engine.predictor import status
from meritory.engine.predictor import why as predictor_why
from meritory.engine.services import Services
from meritory.engine.sessions.context import StartRequest
from meritory.engine.transfer import backup
from meritory.rank.feedback import Pair
from meritory.rank.risk import Risk
from meritory.settings import Settings, home_folder, load_settings
from meritory.store.contract.store import Transaction
from meritory.text.entities import entity_key, parse_about
from meritory.text.feedback import polarity

PAGE_LIMIT_MAX = 1_000


class FeedbackMethods:
    """What a person or an agent says about the work, and what all of it together says."""

    scope: Scope
    _services: Services

    def capture_feedback(self, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keeps a thumbs up or down; what says enough becomes a lesson, or strengthens one.

        Fields: what_went_wrong, what_to_change, what_worked, tags, rubric_scores, guardrails,
        last_action, reasoning, visual_evidence, skill, memory_ids, session_key, origin.
        """
        report = FeedbackReport(signal, {"context": context, **fields})
        return capturing.capture(self._services, self.scope, report)

    # The short name, for programs.
    feedback = capture_feedback

    def complete_feedback(
        self, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Adds to a report what it lacked; it is decided about anew."""
        named = _checked_id(event_id)
        return capturing.complete(self._services, self.scope, named, FeedbackReport(signal, fields))

    def feedback_events(
        self,
        limit: int = 50,
        *,
        signal: str | None = None,
        status: str | None = None,
        before: str | None = None,
        **wanted: str | None,
    ) -> list[FeedbackEvent]:
        """A page of reports, latest first; also by domain, project, session_key, memory_id."""
        query = feedback_query(
            limit, {"signal": signal, "status": status, "before": before} | wanted
        )
        return self._services.store.feedback_events(self.scope.user, query)

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        """The report with this id, or the only one whose id starts so."""
        return self._services.store.feedback_event(self.scope.user, _checked_id(event_id))

    def feedback_summary(self) -> Summary:
        """All reports in numbers: totals, domains, approval and its trend."""
        return summary.summary(self._services, self.scope.user)

    def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """Which tags, tools and domains fail more often than the rest, with intervals."""
        if days is not None and (not isinstance(days, int) or not 1 <= days <= 36_500):
            raise InputError(f"days must be a whole number from 1 to 36500, not {days!r}")
        return summary.risk(self._services, self.scope.user, days)

    def feedback_pairs(self) -> list[Pair]:
        """Pairs of what to do and what not to do, for preference training."""
        return summary.pairs(self._services, self.scope.user)

    def contested(self) -> list[Contested]:
        """Memories with much for and much against them, for a person to review."""
        return summary.contested(self._services, self.scope.user)


_WANTED = ("domain", "project", "session_key", "memory_id")
_STATUSES = ("promoted", "clarification_required", "rejected")


def feedback_query(limit: int, wanted: dict[str, Any]) -> FeedbackQuery:
    """Which reports are wanted, checked."""
    told = dict(wanted)
    signal, status, before = (told.pop(name, None) for name in ("signal", "status", "before"))
    unknown = [name for name in told if name not in _WANTED]
    if unknown:
        raise InputError(f"reports are not found by {unknown[0]!r}", hint=", ".join(_WANTED))
    if not isinstance(limit, int) or not 1 <= limit <= PAGE_LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {PAGE_LIMIT_MAX}, not {limit!r}")
    side = None if signal is None else polarity(signal)
    if signal is not None and side is None:
        raise InputError(f"{str(signal)[:40]!r} is no signal", hint="up or down")
    if status is not None and status not in _STATUSES:
        raise InputError(f"no report is {str(status)[:40]!r}", hint=", ".join(_STATUSES))
    return FeedbackQuery(polarity=side, status=status, before=before, limit=limit, **told)


def _checked_id(event_id: object) -> str:
    if isinstance(event_id, str):
        return event_id
    raise InputError(f"an id is text, not {type(event_id).__name__}")


LISTING_LIMIT_MAX = 10_000


class Memory(FeedbackMethods):
    """Memories of one user, in a file of its own or a daemon's; safe to share between threads."""

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        """Says who does the work: this process, or a daemon that is named or runs already."""
        found = chosen_daemon(args, fields) if cls is Memory else None
        if found is None:
            return super().__new__(cls)
        made: Any = object.__new__(_remote_kind())
        # For __init__, which Python calls next with the same arguments.
        made._daemon = found
        remote: Self = made
        return remote

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
    ) -> None:
        """Opens the store, or makes it; with `url` it is a daemon's, which `token` opens.

        With neither path nor url, settings or clock, the daemon of the data folder is asked if it
        runs. `everywhere` lets ids name memories of all the user's projects and agents, for
        people's tools; searches keep to their scope all the same. `background` lets a changed
        embedder's vectors be made meanwhile. `clock` replaces the time, for replays; a whole world
        also what is drawn. `apart` has the model score in a process of its own, as the daemon does.
        """
        if url is not None or token is not None:
            raise InputError(
                "this is an engine of its own, not a daemon's", hint="use meritory.Memory with url="
            )
        home = home_folder(os.environ)
        self.settings = settings or load_settings(home, os.environ)
        self.scope = self._checked_scope(user, agent, project)
        place = chosen_place(path, self.settings)
        world = clock if isinstance(clock, World) else World(clock)
        services = open_services(place, self.settings, world, actor, apart=apart)
        self._services = replace(services, user=self.scope.user)
        self._everywhere = everywhere
        self._works = Background(self._services)
        self._may_work = background
        if background and self._services.embedding.is_changed():
            self.reembed_in_background()
        if background and self._works.has_waiting():
            self._works.nudge()

    # So that help() and editors show what it takes.
    __new__.__wrapped__ = __init__  # type: ignore[attr-defined]

    def view(
        self,
        user: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        *,
        everywhere: bool = False,
        actor: str | None = None,
    ) -> Self:
        """The same open store for another scope; only the first of them is to be closed."""
        # Not `copy`, which would ask again who does the work.
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.scope = self._checked_scope(user, agent, project)
        other._services = replace(
            self._services, user=other.scope.user, actor=actor or self._services.actor
        )
        other._everywhere = everywhere
        return other

    def _checked_scope(self, user: object, agent: object, project: object) -> Scope:
        return Scope(
            str(checked_name("user", self.settings.user if user is None else user)),
            checked_name("agent", agent),
            checked_name("project", project),
        )

    # -- writing --------------------------------------------------------------------------

    def remember(self, content: str, **fields: Any) -> MemoryRecord:
        """Stores a text and returns the memory it lives on in, which may be an older one."""
        result = self.remember_many([{"content": content, **fields}])[0]
        if result.memory is None:
            raise result.error or InputError(result.reason)
        return result.memory

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Stores many texts at once; one bad item never keeps the others out."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        return writing.write(self._services, [self._draft(item) for item in items])

    def _draft(self, item: object) -> Any:
        try:
            if isinstance(item, str):
                return make_draft(item, self.scope, {})
            if not isinstance(item, Mapping):
                raise InputError(f"a memory is a text or its fields, not {type(item).__name__}")
            fields = dict(item)
            content = fields.pop("content", None)
            if fields.get("supersedes") is not None:
                fields["supersedes"] = self.get(fields["supersedes"]).id
            return make_draft(content, self.scope, fields)
        except MeritoryError as error:
            return error

    def update(self, memory_id: str, **fields: Any) -> MemoryRecord:
        """Changes fields of a memory; what it was stays in its history."""
        by_person = checked_field("origin", fields.pop("origin", "user")) == "user"
        return change.update(self._services, self.get(memory_id), fields, by_person=by_person)

    def confirm(self, memory_id: str) -> MemoryRecord:
        """A person vouches for a memory: it becomes trusted, and what was proposed takes effect."""
        return change.confirm(self._services, self.get(memory_id))

    def forget(self, memory_id: str, *, purge: bool = False, why: str = "") -> None:
        """Hides a memory; with `purge` it is erased for good, history and all."""
        record = self.get(memory_id)
        if purge:
            erasing.purge(self._services, record)
        else:
            erasing.forget(self._services, record, why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Takes back the last change of a memory and returns all that changed by it."""
        return undo.undo(self._services, self.get(memory_id))

    def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Takes a merge apart again."""
        return undo.split(self._services, self.get(memory_id), entry)

    # -- reading --------------------------------------------------------------------------

    def recall(self, query: str, limit: int | None = None, explain: bool = False) -> list[Recalled]:
        """The memories that answer a query best; `explain` adds every number behind the score."""
        wanted = RECALL_LIMIT if limit is None else limit
        found = recalling.recall(self._services, self.scope, query, wanted, explain=explain)
        if self._services.counter is not None:
            self._services.counter.add(self.scope.user, [hit.memory.id for hit in found])
        return found

    def get(self, memory_id: str) -> MemoryRecord:
        """The memory with this id, or the only one whose id starts so."""
        if not isinstance(memory_id, str):
            raise InputError(f"an id is text, not {type(memory_id).__name__}")
        within = None if self._everywhere else self.scope
        return self._services.store.get(self.scope.user, memory_id, within)

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
        """A page of memories, newest first; `after` is the last id of the page before."""
        checked_limit(limit)
        return self._services.store.listing(
            Listing(self.scope, everywhere, kind, tag, include_gone, after, limit)
        )

    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Every change of a memory, oldest first."""
        return self._services.store.history(self.scope.user, self.get(memory_id).id)

    def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """The latest merges, newest first; each can be split again."""
        return self._services.store.merges(self.scope, checked_limit(limit))

    def stats(self) -> dict[str, int]:
        """Counts of memories, of sessions, of every write outcome and of every fallback."""
        store = self._services.store
        counted = Counter(store.counters(self.scope.user))
        counted.update(self._services.embedding.failures)
        user = self.scope.user
        return {**store.totals(user), **store.session_totals(user), **counted}

    # -- sessions -------------------------------------------------------------------------

    def session(
        self,
        key: str,
        project: str | None = None,
        context: str | None = None,
        *,
        harness: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Begins a session, or goes on with it: what it should be shown is on the result."""
        name = str(checked_name("session key", key))
        scope = (
            self.scope
            if project is None
            else replace(self.scope, project=checked_name("project", project))
        )
        text = None if context is None else _checked_text("a context", context)
        for what, given in (("a harness", harness), ("a working directory", cwd)):
            if given is not None:
                _checked_text(what, given)
        request = StartRequest(name, scope, text, harness, cwd)
        return Session(self._services, request, self._session_ended)

    def drain(self) -> int:
        """Runs every job that is due now, and waits for what its own thread has begun.

        Returns how many it got done itself.
        """
        return self._works.drain()

    def work_meanwhile(self) -> None:
        """Lets a thread run the jobs that are due, now and from now on."""
        self._works.nudge()

    def _session_ended(self, key: str, is_known: bool) -> None:
        """What is known to have helped is noted at once; the rest is done meanwhile."""
        if is_known:
            self._works.learn(self.scope.user, key)
        if self._may_work:
            self._works.nudge()

    # -- learning -------------------------------------------------------------------------

    def predictor_status(self) -> dict[str, Any]:
        """Everything about this user's predictor: its phase, its influence and why, its models."""
        return status.predictor_status(self._services, self.scope.user)

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Every number that put a memory into a session, or kept it out."""
        return predictor_why.why(self._services, self.scope.user, memory_id, session_key)

    # -- structure ------------------------------------------------------------------------

    def entities(self, limit: int = 100) -> list[Entity]:
        """What memories are about, most often first."""
        return self._services.store.entities(self.scope, checked_limit(limit))

    def describe(self, entity: str) -> EntityView:
        """All that is known about an entity: aspects, constraints, dependencies."""
        named = parse_about(_checked_text("an entity", entity)).entity
        return self._services.store.describe(self.scope, entity_key(named.kind, named.name))

    def related(self, context: str) -> list[str]:
        """Ids of memories about what a context names and what that depends on."""
        return recalling.traversal(self._services, self.scope, _checked_text("a context", context))

    def required(self, context: str = "") -> list[str]:
        """Ids of memories that must always be shown: pins, and constraints on what is in play."""
        return recalling.required(self._services, self.scope, _checked_text("a context", context))

    # -- care -----------------------------------------------------------------------------

    @property
    def works(self) -> Background:
        """What runs beside the calls, for surfaces of ours."""
        return self._works

    @property
    def services(self) -> Services:
        """The parts, for the command line and other surfaces of ours."""
        return self._services

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Writes a verified copy while the store stays in use, its models in a folder beside it."""
        file = Path(target)
        backup.demand_free(file)
        self._services.store.backup(file)
        own = self._services.store.place.file
        if own is not None:
            backup.keep_models(own, file)

    def reembed(self, progress: Callable[[int, int], None] = lambda done, total: None) -> bool:
        """Makes all missing vectors now; says whether the configured embedder serves."""
        return self._works.reembed(progress)

    def reembed_in_background(
        self, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> threading.Thread:
        """Makes missing vectors while the store stays in use; searches stay correct meanwhile."""
        return self._works.reembed_meanwhile(progress)

    def close(self) -> None:
        """Finishes what is under way and lets go of the file; safe to call twice."""
        self._works.stop()
        if self._services.scorer is not None:
            self._services.scorer.close()
        if self._services.counter is not None:
            self._services.counter.close()
        self._keep_failures()
        self._services.store.close()
        # Last: what it would have written down is done again by whoever opens the store next.
        if self._services.trainer is not None:
            self._services.trainer.close()

    def _keep_failures(self) -> None:
        """Adds what went wrong in this process to the store's counters."""
        failures = self._services.embedding.failures

        def work(transaction: Transaction) -> None:
            for name, amount in failures.items():
                transaction.count(self.scope.user, name, amount)

        if failures:
            # Counting must not be what fails a program that is done.
            with contextlib.suppress(StorageError, Busy):
                self._services.store.write(work)
            failures.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@cache
def _remote_kind() -> Any:
    """The class that talks to a daemon, made when it is needed: most programs need no HTTP."""
    from meritory.api.remote import RemoteVerbs

    class RemoteMemory(RemoteVerbs, Memory):
        """The memories of a daemon."""

    return RemoteMemory


def checked_limit(limit: object) -> int:
    """How many of something are wanted."""
    if isinstance(limit, int) and 1 <= limit <= LISTING_LIMIT_MAX:
        return limit
    raise InputError(f"limit must be a whole number from 1 to {LISTING_LIMIT_MAX}, not {limit!r}")


def _checked_text(what: str, text: object) -> str:
    if isinstance(text, str):
        return text
    raise InputError(f"{what} must be text, not {type(text).__name__}")
