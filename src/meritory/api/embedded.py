"""The backend of a `Memory` whose engine runs in this process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from meritory.api.memory import Progress, Session
from meritory.api.opening import chosen_place, open_services
from meritory.domain.errors import Busy, InputError, MeritoryError, StorageError
from meritory.domain.memory import Draft, Listing, MemoryRecord, Scope
from meritory.domain.policy import RECALL_LIMIT
from meritory.domain.world import Clock, World
from meritory.engine.memories import change, undo, write
from meritory.engine.memories import purge as purge_verbs
from meritory.engine.memories import recall as recall_verbs
from meritory.engine.memories.validate import checked_field, checked_name, make_draft
from meritory.engine.services import Services
from meritory.settings import Settings, home_folder, load_settings

if TYPE_CHECKING:
    from meritory.domain.feedback import Contested, FeedbackEvent, Status
    from meritory.domain.memory import Entity, EntityView, HistoryEntry, Recalled, WriteResult
    from meritory.engine.feedback.capture import Captured
    from meritory.engine.feedback.summary import Summary
    from meritory.engine.jobs.worker import Background
    from meritory.engine.sessions.context import StartRequest
    from meritory.engine.sessions.packing import Served
    from meritory.engine.sessions.ratings import RatingsTaken
    from meritory.rank.feedback import Pair, Risk
    from meritory.store.contract.store import Transaction

LISTING_LIMIT_MAX = 10_000
FEEDBACK_LIMIT_MAX = 1_000
RISK_DAYS_MAX = 36_500
_FEEDBACK_FILTERS = ("domain", "project", "session_key", "memory_id")
_FEEDBACK_STATUSES = ("promoted", "clarification_required", "rejected")


def open_embedded(
    path: str | os.PathLike[str] | None,
    settings: Settings | None,
    clock: Clock | World | None,
    *,
    names: tuple[object, object, object],
    actor: str,
    everywhere: bool,
    **options: bool,
) -> EmbeddedBackend:
    """Open a store, or create it; the options are those of `Memory`: background and apart."""
    settings = settings or load_settings(home_folder(os.environ), os.environ)
    scope = checked_scope(settings, *names)
    world = clock if isinstance(clock, World) else World(clock)
    place = chosen_place(path, settings)
    services = open_services(place, settings, world, actor, apart=options["apart"])
    services = replace(services, user=scope.user)
    can_work = options["background"]
    backend = EmbeddedBackend(services, Threads(services), settings, scope, everywhere, can_work)
    if can_work and services.embedding.is_changed():
        backend.works.start_reembedding(lambda done, total: None)
    jobs = services.store.job_counts() if can_work else {}
    if jobs.get("queued") or jobs.get("running"):
        backend.works.nudge()
    return backend


def checked_scope(settings: Settings, user: object, agent: object, project: object) -> Scope:
    """Return the scope of these names; without a user it is the one of the settings."""
    return Scope(
        str(checked_name("user", settings.user if user is None else user)),
        checked_name("agent", agent),
        checked_name("project", project),
    )


class Threads:
    """The background threads of one engine, made when a view needs them first.

    Most programs only remember and recall; they need not load the jobs.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self.started: Background | None = None

    def get(self) -> Background:
        """Return the threads."""
        with self._lock:
            if self.started is None:
                from meritory.engine.jobs.worker import Background

                self.started = Background(self._services)
            return self.started


@dataclass
class EmbeddedBackend:
    """The verbs of `Memory` on an engine in this process, for one scope."""

    services: Services
    threads: Threads
    settings: Settings
    scope: Scope
    # Whether ids may name memories of all the user's projects and agents.
    everywhere: bool = False
    # Whether a thread may run jobs.
    can_work: bool = True

    @property
    def works(self) -> Background:
        return self.threads.get()

    def view(
        self, user: object, agent: object, project: object, *, everywhere: bool, actor: str | None
    ) -> EmbeddedBackend:
        scope = checked_scope(self.settings, user, agent, project)
        services = replace(self.services, user=scope.user, actor=actor or self.services.actor)
        return replace(self, services=services, scope=scope, everywhere=everywhere)

    # -- writing --------------------------------------------------------------------------

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        return write.write(self.services, self.scope.user, [self.draft(item) for item in items])

    def draft(self, item: object) -> Draft | MeritoryError:
        """Return the draft of one item, or the error that rejects it."""
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
        by_person = checked_field("origin", fields.pop("origin", "user")) == "user"
        return change.update(self.services, self.get(memory_id), fields, by_person=by_person)

    def confirm(self, memory_id: str) -> MemoryRecord:
        return change.confirm(self.services, self.get(memory_id))

    def forget(self, memory_id: str, *, purge: bool, why: str) -> None:
        record = self.get(memory_id)
        if purge:
            purge_verbs.purge(self.services, record)
        else:
            purge_verbs.forget(self.services, record, why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        return undo.undo(self.services, self.get(memory_id))

    def split(self, memory_id: str, entry: int | None) -> list[MemoryRecord]:
        return undo.split(self.services, self.get(memory_id), entry)

    # -- reading --------------------------------------------------------------------------

    def recall(self, query: str, limit: int | None, explain: bool) -> list[Recalled]:
        wanted = RECALL_LIMIT if limit is None else limit
        hits = recall_verbs.recall(self.services, self.scope, query, wanted, explain=explain)
        if self.services.counter is not None:
            self.services.counter.add(self.scope.user, [hit.memory.id for hit in hits])
        return hits

    def get(self, memory_id: str) -> MemoryRecord:
        within = None if self.everywhere else self.scope
        return self.services.store.get(self.scope.user, _text("an id", memory_id), within)

    def page(
        self,
        limit: int,
        *,
        kind: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        everywhere: bool = False,
        include_gone: bool = False,
    ) -> list[MemoryRecord]:
        return self.services.store.listing(
            Listing(self.scope, everywhere, kind, tag, include_gone, after, _limit(limit))
        )

    def history(self, memory_id: str) -> list[HistoryEntry]:
        return self.services.store.history(self.scope.user, self.get(memory_id).id)

    def merges(self, limit: int) -> list[HistoryEntry]:
        return self.services.store.merges(self.scope, _limit(limit))

    def stats(self) -> dict[str, int]:
        store, user = self.services.store, self.scope.user
        counts = Counter(store.counters(user))
        counts.update(self.services.embedding.failures)
        return {**store.totals(user), **store.session_totals(user), **counts}

    def entities(self, limit: int) -> list[Entity]:
        return self.services.store.entities(self.scope, _limit(limit))

    def describe(self, entity: str) -> EntityView:
        from meritory.text.entities import entity_key, parse_about

        named = parse_about(_text("an entity", entity)).entity
        return self.services.store.describe(self.scope, entity_key(named.kind, named.name))

    def related(self, context: str) -> list[str]:
        return recall_verbs.traversal(self.services, self.scope, _text("a context", context))

    def required(self, context: str) -> list[str]:
        return recall_verbs.required(self.services, self.scope, _text("a context", context))

    # -- sessions and learning ------------------------------------------------------------

    def session(self, key: str, **options: str | None) -> Session:
        request = session_request(self.scope, key, options)
        return Session(request.key, request.scope, EmbeddedSession(self, request))

    def session_ended(self, key: str, is_known: bool) -> None:
        """Learn at once from a session whose outcome is known; a thread learns from others."""
        if is_known:
            self.works.learn(self.scope.user, key)
        if self.can_work:
            self.works.nudge()

    def drain(self) -> int:
        return self.works.drain()

    def work_meanwhile(self) -> None:
        self.works.nudge()

    def predictor_status(self) -> dict[str, Any]:
        from meritory.engine.predictor.status import predictor_status

        return predictor_status(self.services, self.scope.user)

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        from meritory.engine.predictor.why import why

        return why(self.services, self.scope.user, memory_id, session_key)

    # -- feedback -------------------------------------------------------------------------

    def capture_feedback(self, signal: str, context: str, **fields: Any) -> Captured:
        from meritory.engine.feedback import capture, reading

        report = reading.FeedbackReport(signal, {"context": context, **fields})
        return capture.capture(self.services, self.scope, report)

    def complete_feedback(self, event_id: str, signal: str | None, **fields: Any) -> Captured:
        from meritory.engine.feedback import capture, reading

        report = reading.FeedbackReport(signal, fields)
        return capture.complete(self.services, self.scope, _text("an id", event_id), report)

    def feedback_events(
        self,
        limit: int,
        *,
        signal: str | None = None,
        status: str | None = None,
        before: str | None = None,
        **wanted: str | None,
    ) -> list[FeedbackEvent]:
        from meritory.domain.feedback import FeedbackQuery
        from meritory.text.feedback import polarity

        unknown = [name for name in wanted if name not in _FEEDBACK_FILTERS]
        if unknown:
            raise InputError(
                f"unknown filter of reports: {unknown[0]!r}", hint=", ".join(_FEEDBACK_FILTERS)
            )
        side = None if signal is None else polarity(signal)
        if signal is not None and side is None:
            raise InputError(f"{str(signal)[:40]!r} is not a signal", hint="up or down")
        if status is not None and status not in _FEEDBACK_STATUSES:
            raise InputError(
                f"{str(status)[:40]!r} is not the status of a report",
                hint=", ".join(_FEEDBACK_STATUSES),
            )
        query = FeedbackQuery(
            polarity=side,
            status=cast("Status | None", status),
            before=before,
            limit=_limit(limit, FEEDBACK_LIMIT_MAX),
            **wanted,
        )
        return self.services.store.feedback_events(self.scope.user, query)

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        return self.services.store.feedback_event(self.scope.user, _text("an id", event_id))

    def feedback_summary(self) -> Summary:
        from meritory.engine.feedback.summary import summary

        return summary(self.services, self.scope.user)

    def feedback_risk(self, days: int | None) -> list[Risk]:
        from meritory.engine.feedback.summary import risk

        if days is not None and (not isinstance(days, int) or not 1 <= days <= RISK_DAYS_MAX):
            raise InputError(f"days must be a whole number from 1 to {RISK_DAYS_MAX}, not {days!r}")
        return risk(self.services, self.scope.user, days)

    def feedback_pairs(self) -> list[Pair]:
        from meritory.engine.feedback.summary import pairs

        return pairs(self.services, self.scope.user)

    def contested(self) -> list[Contested]:
        from meritory.engine.feedback.summary import contested

        return contested(self.services, self.scope.user)

    # -- maintenance ----------------------------------------------------------------------

    def backup(self, target: str | os.PathLike[str]) -> None:
        from meritory.engine.transfer import backup

        file = Path(target)
        backup.require_free(file)
        self.services.store.backup(file)
        own = self.services.store.place.file
        if own is not None:
            backup.keep_models(own, file)

    def reembed(self, progress: Progress) -> bool:
        return self.works.reembed(progress)

    def reembed_in_background(self, progress: Progress) -> threading.Thread:
        return self.works.start_reembedding(progress)

    def close(self) -> None:
        if self.threads.started is not None:
            self.threads.started.stop()
        if self.services.scorer is not None:
            self.services.scorer.close()
        if self.services.counter is not None:
            self.services.counter.close()
        failures = self.services.embedding.failures

        def count(transaction: Transaction) -> None:
            for name, amount in failures.items():
                transaction.count(self.scope.user, name, amount)

        if failures:
            # A program that is done must not fail because of a count.
            with contextlib.suppress(StorageError, Busy):
                self.services.store.write(self.scope.user, count)
            failures.clear()
        self.services.store.close()
        # Last: a training that is cut off here runs again when the store is opened next.
        if self.services.trainer is not None:
            self.services.trainer.close()


class EmbeddedSession:
    """A running session of an engine in this process."""

    def __init__(self, backend: EmbeddedBackend, request: StartRequest) -> None:
        from meritory.engine import pipeline

        self._backend = backend
        self._key = request.key
        self.served = pipeline.start(backend.services, request)
        self._scope = self.served.scope or request.scope

    def prompt(self, text: str, feedback: Mapping[str, float] | None) -> Served:
        from meritory.engine import pipeline
        from meritory.engine.sessions.prompt import PromptRequest

        request = PromptRequest(self._key, self._scope, text, feedback=feedback)
        return pipeline.prompt(self._backend.services, request)

    def reply(self, text: str) -> RatingsTaken:
        from meritory.engine.sessions import ratings

        call = ratings.ReplyCall(self._scope.user, self._key, text)
        return ratings.stop(self._backend.services, call)

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        from meritory.engine.sessions import ratings

        call = ratings.RatingCall(self._scope.user, self._key, scores, "program")
        return ratings.rate(self._backend.services, call)

    def compact(self) -> None:
        from meritory.engine.sessions import end

        end.compact(self._backend.services, end.EndRequest(self._key, self._scope.user))

    def end(self, transcript: object, used: Mapping[str, float] | None) -> None:
        from meritory.engine import pipeline
        from meritory.engine.sessions.end import EndRequest

        is_known = used is not None
        request = EndRequest(self._key, self._scope.user, transcript, used, learns_at_once=is_known)
        pipeline.end(self._backend.services, request)
        self._backend.session_ended(self._key, is_known)


def session_request(scope: Scope, key: object, options: Mapping[str, object]) -> StartRequest:
    """Return a checked request for a session; options: project, context, harness, cwd."""
    from meritory.engine.sessions.context import StartRequest

    name = str(checked_name("session key", key))
    if options.get("project") is not None:
        scope = replace(scope, project=checked_name("project", options["project"]))
    context, harness, cwd = (
        None if options.get(option) is None else _text(what, options[option])
        for option, what in (
            ("context", "a context"),
            ("harness", "a harness"),
            ("cwd", "a working directory"),
        )
    )
    return StartRequest(name, scope, context, harness, cwd)


def _limit(limit: object, most: int = LISTING_LIMIT_MAX) -> int:
    if isinstance(limit, int) and 1 <= limit <= most:
        return limit
    raise InputError(f"limit must be a whole number from 1 to {most}, not {limit!r}")


def _text(what: str, text: object) -> str:
    if isinstance(text, str):
        return text
    raise InputError(f"{what} must be text, not {type(text).__name__}")
