"""The public class `Memory`. Each method runs in this process, or a daemon runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from meritory.api.address import choose_daemon
from meritory.domain.errors import InputError, MeritoryError

if TYPE_CHECKING:
    import threading
    from datetime import datetime

    from meritory.api.embedded import EmbeddedBackend
    from meritory.api.remote import RemoteBackend
    from meritory.api.session import Session
    from meritory.domain.feedback import Contested, FeedbackEvent
    from meritory.domain.memory import (
        Draft,
        Entity,
        EntityView,
        HistoryEntry,
        MemoryRecord,
        Recalled,
        Scope,
        WriteResult,
    )
    from meritory.domain.quality import KeptText, ReviewPage
    from meritory.domain.world import Clock, World
    from meritory.engine.feedback.capture import Captured
    from meritory.engine.feedback.summary import Summary
    from meritory.engine.jobs.runner import Background
    from meritory.engine.services import Services
    from meritory.rank.feedback import Pair, Risk
    from meritory.settings import Settings

LISTING_LIMIT_MAX = 10_000
FEEDBACK_LIMIT_MAX = 1_000
RISK_DAYS_MAX = 36_500
Progress = Callable[[int, int], None]
F = TypeVar("F", bound=Callable[..., Any])


def verb(method: F) -> F:
    """Return a method of `Memory` that the daemon runs where the store is a daemon's.

    The engine's modules are imported inside the methods, so that importing `Memory` stays cheap.
    """

    @wraps(method)
    def call(self: Memory, /, *args: Any, **fields: Any) -> Any:
        send = self.backend.send
        return method(self, *args, **fields) if send is None else send(method, args, fields)

    return cast(F, call)


def _ignore(done: int, total: int) -> None:
    """Report no progress."""


class Memory:
    """Memories of one user, in a file of its own or a daemon's; safe to share between threads."""

    backend: EmbeddedBackend | RemoteBackend

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
        backend: EmbeddedBackend | RemoteBackend | None = None,
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

    @verb
    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Store many texts at once; a bad item does not keep the others out."""
        from meritory.engine.memories import resolution

        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        with self.services.observer.timed("remember"):
            drafts = [self._draft(item) for item in items]
            return resolution.remember(self.services, self.scope.user, drafts)

    def _draft(self, item: object) -> Draft | MeritoryError:
        """Return the draft of one item, or the error that rejects it."""
        from meritory.engine.memories.validate import make_draft

        try:
            if isinstance(item, str):
                item = {"content": item}
            if not isinstance(item, Mapping):
                raise InputError(f"a memory is a text or its fields, not {type(item).__name__}")
            fields = dict(item)
            content = fields.pop("content", None)
            if fields.get("supersedes") is not None:
                fields["supersedes"] = self.get(fields["supersedes"]).id
            draft = make_draft(content, self.scope, fields, is_person=self.services.is_person)
            for resolution in draft.resolves:
                if self.get(resolution.memory_id).id != resolution.memory_id:
                    raise InputError(
                        f"resolves needs whole ids, not {resolution.memory_id[:40]!r}",
                        hint="ids are in the result of the write and in every search",
                    )
            return draft
        except MeritoryError as error:
            return error

    @verb
    def update(self, /, memory_id: str, **fields: Any) -> MemoryRecord:
        """Change fields of a memory; its history keeps the old values."""
        from meritory.engine.memories import write
        from meritory.engine.memories.validate import checked_field

        origin = checked_field("origin", fields.pop("origin", "user"))
        return write.update(self.services, self.get(memory_id), fields, origin=origin)

    @verb
    def confirm(self, memory_id: str) -> MemoryRecord:
        """Vouch for a memory as a person: it becomes trusted, and its proposals take effect."""
        from meritory.engine.memories import write

        return write.confirm(self.services, self.get(memory_id))

    @verb
    def reject(self, memory_id: str) -> MemoryRecord:
        """Reject a proposed pin or constraint as a person; the memory itself is kept."""
        from meritory.engine.memories import write

        return write.reject(self.services, self.get(memory_id))

    @verb
    def proposals(self, limit: int = 100, *, everywhere: bool = False) -> list[MemoryRecord]:
        """Return memories with a proposed pin or constraint, latest first, for review."""
        from meritory.engine.memories import write

        return write.proposals(self.services, self.scope, _limit(limit), everywhere=everywhere)

    @verb
    def merge(self, a: str, b: str, keep: KeptText | None = None) -> MemoryRecord:
        """Merge two memories into one; the text that says more stays, or the one that `keep` names.

        An undo or a split of either memory takes it back.
        """
        from meritory.engine.memories import pairs
        from meritory.engine.memories.validate import checked_choice

        if keep is not None:
            checked_choice("keep", keep, ("a", "b"))
        return pairs.merge(self.services, self.get(a), self.get(b), keep)[0]

    @verb
    def review(self, limit: int = 50, offset: int = 0) -> ReviewPage:
        """Return questions about memories for a person: pairs, proposals, contested memories.

        The most used memories come first. A memory opened with `everywhere`, without a project and
        an agent, covers all of them.
        """
        from meritory.domain.memory import EveryScope
        from meritory.engine.quality import review

        scope = self.scope
        if self.backend.everywhere and scope.agent is None and scope.project is None:
            scope = EveryScope(scope.user)
        if not isinstance(offset, int) or offset < 0:
            raise InputError(f"offset must be a whole number from 0, not {offset!r}")
        return review.review(self.services, scope, _limit(limit), offset)

    @verb
    def decide(self, item: str, action: str, keep: KeptText | None = None) -> list[MemoryRecord]:
        """Answer a question of the review list and return the memories that changed.

        `item` is its id: that of one memory, or those of a pair with a colon in between. An undo of
        the first memory in the result takes the decision back.
        """
        from meritory.engine.memories.validate import checked_choice
        from meritory.engine.quality import review

        if keep is not None:
            checked_choice("keep", keep, ("a", "b"))
        ids = require_text("an item", item).split(review.PAIR_MARK)
        records = [self.get(memory_id) for memory_id in ids[:3]]
        return review.decide(self.services, records, action, keep)

    @verb
    def forget(
        self, memory_id: str, *, purge: bool = False, why: str = "", origin: str = "user"
    ) -> None:
        """Hide a memory; with `purge` erase it. Only origin `user` forgets a constraint."""
        from meritory.engine.memories import purge as purge_verbs
        from meritory.engine.memories.validate import checked_field

        record, author = self.get(memory_id), checked_field("origin", origin)
        if purge:
            purge_verbs.purge(self.services, record)
        else:
            purge_verbs.forget(self.services, record, why, origin=author)

    @verb
    def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Take back the last change of a memory and return all memories that this changed."""
        from meritory.engine.memories import undo

        return undo.undo(self.services, self.get(memory_id))

    @verb
    def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Take a merge apart again."""
        from meritory.engine.memories import undo

        return undo.split(self.services, self.get(memory_id), entry)

    # -- reading --------------------------------------------------------------------------

    @verb
    def recall(
        self,
        query: str,
        limit: int | None = None,
        explain: bool = False,
        session: str | None = None,
        *,
        min_score: float | None = None,
        kind: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
        projects: str | Sequence[str] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Recalled]:
        """Return the memories that answer a query best; `explain` adds the parts of each score.

        A score is the probability that a memory answers. Without `min_score` nothing is returned
        if nothing is known; 0 returns the best in any case. `kind` and `projects` are one or more
        (an empty project: memories without one); a memory needs all tags and all metadata, and
        holds not before `since` and before `until`. With the key of a running session the search is
        recorded, and learned from at its end.
        """
        from meritory.engine.memories import recall

        fields = {"kind": kind, "tags": tags, "since": since, "until": until, "metadata": metadata}
        given = {**fields, "projects": projects, "min_score": min_score}
        services, scope = self.services, self.scope
        return recall.answer(services, scope, query, limit, given, explain=explain, session=session)

    @verb
    def get(self, memory_id: str) -> MemoryRecord:
        """Return the memory with this id, or the only one whose id starts with it."""
        within = None if self.backend.everywhere else self.scope
        return self.services.store.get(self.scope.user, require_text("an id", memory_id), within)

    @verb
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
        from meritory.domain.memory import Listing

        return self.services.store.listing(
            Listing(self.scope, everywhere, kind, tag, include_gone, after, _limit(limit))
        )

    @verb
    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Return every change of a memory, oldest first."""
        return self.services.store.history(self.scope.user, self.get(memory_id).id)

    @verb
    def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """Return the latest merges, newest first; each can be split again."""
        return self.services.store.merges(self.scope, _limit(limit))

    @verb
    def stats(self) -> dict[str, int]:
        """Count memories, sessions, write outcomes and fallbacks."""
        from collections import Counter

        store, user = self.services.store, self.scope.user
        counts = Counter(store.counters(user))
        counts.update(self.services.embedding.failures)
        return {**store.totals(user), **store.session_totals(user), **counts}

    @verb
    def entities(self, limit: int = 100) -> list[Entity]:
        """Return the entities of the memories, most frequent first."""
        return self.services.store.entities(self.scope, _limit(limit))

    @verb
    def describe(self, entity: str) -> EntityView:
        """Return the aspects, constraints and dependencies of an entity."""
        from meritory.text.entities import entity_key, parse_about

        named = parse_about(require_text("an entity", entity)).entity
        return self.services.store.describe(self.scope, entity_key(named.kind, named.name))

    @verb
    def related(self, context: str) -> list[str]:
        """Return ids of memories about the entities of a context and their dependencies."""
        from meritory.engine.memories import recall

        return recall.traversal(self.services, self.scope, require_text("a context", context))

    @verb
    def required(self, context: str = "") -> list[str]:
        """Return ids of memories that must be shown: pins, and constraints of a context."""
        from meritory.engine.memories import recall

        return recall.required(self.services, self.scope, require_text("a context", context))

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
        from meritory.engine.memories.validate import checked_name
        from meritory.engine.sessions.context import StartRequest

        name, scope = str(checked_name("session key", key)), self.scope
        if project is not None:
            scope = replace(scope, project=checked_name("project", project))
        texts = {"a context": context, "a harness": harness, "a working directory": cwd}
        for what, text in texts.items():
            if text is not None:
                require_text(what, text)
        return self.backend.start(StartRequest(name, scope, context, harness, cwd))

    @verb
    def drain(self) -> int:
        """Run every job that is due, wait for those in progress, and return how many ran here."""
        return self.works.drain()

    @verb
    def work_meanwhile(self) -> None:
        """Let a thread run the jobs that are due, now and later."""
        self.works.nudge()

    @verb
    def predictor_status(self) -> dict[str, Any]:
        """Return the phase, influence and models of this user's predictor, with reasons."""
        from meritory.engine.predictor.status import predictor_status

        return predictor_status(self.services, self.scope.user)

    @verb
    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Return every number that put a memory into a session or kept it out."""
        from meritory.engine.predictor.why import why

        return why(self.services, self.scope.user, memory_id, session_key)

    # -- feedback -------------------------------------------------------------------------

    @verb
    def capture_feedback(self, /, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keep a thumbs up or down; one that says enough becomes or confirms a lesson.

        Fields: what_went_wrong, what_to_change, what_worked, tags, rubric_scores, guardrails,
        last_action, reasoning, visual_evidence, skill, memory_ids, session_key, origin.
        """
        from meritory.engine.feedback import capture, reading

        report = reading.FeedbackReport(signal, {"context": context, **fields})
        return capture.capture(self.services, self.scope, report)

    # The short name, for programs.
    feedback = capture_feedback

    @verb
    def complete_feedback(
        self, /, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Add missing fields to a report and decide about it again."""
        from meritory.engine.feedback import capture, reading

        report = reading.FeedbackReport(signal, fields)
        return capture.complete(self.services, self.scope, require_text("an id", event_id), report)

    @verb
    def feedback_events(
        self,
        /,
        limit: int = 50,
        *,
        signal: str | None = None,
        status: str | None = None,
        before: str | None = None,
        **fields: str | None,
    ) -> list[FeedbackEvent]:
        """Return a page of reports, latest first.

        They can also be filtered by domain, project, session_key and memory_id.
        """
        from meritory.engine.feedback.summary import make_query

        count = _limit(limit, FEEDBACK_LIMIT_MAX)
        query = make_query(count, signal=signal, status=status, before=before, fields=fields)
        return self.services.store.feedback_events(self.scope.user, query)

    @verb
    def feedback_event(self, event_id: str) -> FeedbackEvent:
        """Return the report with this id, or the only one whose id starts with it."""
        return self.services.store.feedback_event(self.scope.user, require_text("an id", event_id))

    @verb
    def feedback_summary(self) -> Summary:
        """Return all reports in numbers: totals, domains, approval and its trend."""
        from meritory.engine.feedback.summary import summary

        return summary(self.services, self.scope.user)

    @verb
    def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """Return the tags, tools and domains that fail more often than the rest."""
        from meritory.engine.feedback.summary import risk

        if days is not None and (not isinstance(days, int) or not 1 <= days <= RISK_DAYS_MAX):
            raise InputError(f"days must be a whole number from 1 to {RISK_DAYS_MAX}, not {days!r}")
        return risk(self.services, self.scope.user, days)

    @verb
    def feedback_pairs(self) -> list[Pair]:
        """Return pairs of a good and a bad answer, for preference training."""
        from meritory.engine.feedback.summary import pairs

        return pairs(self.services, self.scope.user)

    @verb
    def contested(self) -> list[Contested]:
        """Return memories with much evidence for and against them, for a person to review."""
        from meritory.engine.feedback.summary import contested

        return contested(self.services, self.scope.user)

    # -- maintenance ----------------------------------------------------------------------

    @verb
    def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a verified copy while the store stays in use; its models go into a folder.

        A daemon writes it on its own machine, over TCP only into its data folder.
        """
        from pathlib import Path

        from meritory.engine.transfer import backup

        file, own = Path(target), self.services.store.place.file
        backup.require_free(file)
        self.services.store.backup(file)
        if own is not None:
            backup.keep_models(own, file)

    @verb
    def reembed(self, progress: Progress = _ignore) -> bool:
        """Make all missing vectors now; return whether the configured embedder serves."""
        return self.works.reembed(progress)

    @verb
    def reembed_in_background(self, progress: Progress = _ignore) -> threading.Thread:
        """Make missing vectors on a thread; searches stay correct meanwhile."""
        return self.works.start_reembedding(progress)

    def close(self) -> None:
        """Finish the work in progress and release the store; safe to call twice."""
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _limit(limit: object, most: int = LISTING_LIMIT_MAX) -> int:
    if isinstance(limit, int) and 1 <= limit <= most:
        return limit
    raise InputError(f"limit must be a whole number from 1 to {most}, not {limit!r}")


def require_text(what: str, text: object) -> str:
    """Return a value that must be text, or raise an error that says what it is."""
    if isinstance(text, str):
        return text
    raise InputError(f"{what} must be text, not {type(text).__name__}")
