"""The memory of a narrow token, which reaches one agent or project: nothing leads out of it.

Searches and ids keep to their scope by themselves. `ScopedMemory` checks the other arguments that
name a scope: fields of a memory to store or change, session keys, and ids of reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from meritory.api.embedded import EmbeddedBackend
from meritory.api.memory import Memory, Session
from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.memory import (
    Draft,
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    WriteResult,
)
from meritory.engine.feedback.capture import Captured
from meritory.engine.memories import write
from meritory.server.auth import Grant
from meritory.server.problems import Forbidden


class ScopedMemory:
    """The methods of `Memory` that a narrow token may use; there are no others.

    A method that `Memory` gains is out of reach until it is added here with its checks.
    """

    def __init__(self, memory: Memory, grant: Grant) -> None:
        self._memory = memory
        self.grant = grant
        self.scope = memory.scope
        self.settings = memory.settings
        self.services = memory.services

    # -- checked --------------------------------------------------------------------------

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Store many texts; one for another agent or project becomes an error in its place."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        backend = cast(EmbeddedBackend, self._memory.backend)
        drafts = [backend.draft(item) for item in items]
        for index, draft in enumerate(drafts):
            if isinstance(draft, Draft) and not self.grant.fits(draft.agent, draft.project):
                drafts[index] = _outside()
        return write.write(self.services, backend.scope.user, drafts)

    def update(self, /, memory_id: str, **fields: Any) -> MemoryRecord:
        """Change fields of a memory, but not to another agent or project."""
        self._require_own(fields)
        return self._memory.update(memory_id, **fields)

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
        """Return a page of memories of the scope."""
        if everywhere:
            raise _outside()
        return self._memory.page(limit, kind=kind, tag=tag, after=after, include_gone=include_gone)

    def session(
        self,
        key: str,
        project: str | None = None,
        context: str | None = None,
        *,
        harness: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Start or continue a session of the scope."""
        if project is not None:
            self._require_own({"project": project})
        self.require_session(key)
        return self._memory.session(key, project, context, harness=harness, cwd=cwd)

    def capture_feedback(self, /, signal: str, context: str = "", **fields: Any) -> Captured:
        """Store a report on sessions and memories of the scope."""
        self.require_report(fields)
        return self._memory.capture_feedback(signal, context, **fields)

    def complete_feedback(
        self, /, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Add missing fields to a report of the scope."""
        scope = self._memory.feedback_event(event_id).scope
        if not self.grant.fits(scope.agent, scope.project):
            # The store's own words: the caller must not learn that the report exists.
            raise NotFound(
                f"no feedback {event_id[:40]!r}", hint="`meritory feedback list` shows the ids"
            )
        self.require_report(fields)
        return self._memory.complete_feedback(event_id, signal, **fields)

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Explain a memory in a session of the scope."""
        self.require_session(session_key)
        return self._memory.why(memory_id, session_key)

    # -- within the scope by themselves ---------------------------------------------------

    def confirm(self, memory_id: str) -> MemoryRecord:
        """Confirm a memory."""
        return self._memory.confirm(memory_id)

    def forget(self, memory_id: str, *, purge: bool = False, why: str = "") -> None:
        """Forget or erase a memory."""
        self._memory.forget(memory_id, purge=purge, why=why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Undo the last change of a memory."""
        return self._memory.undo(memory_id)

    def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Split a merge."""
        return self._memory.split(memory_id, entry)

    def recall(self, query: str, limit: int | None = None, explain: bool = False) -> list[Recalled]:
        """Find memories."""
        return self._memory.recall(query, limit, explain)

    def get(self, memory_id: str) -> MemoryRecord:
        """Return one memory."""
        return self._memory.get(memory_id)

    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Return every change of a memory."""
        return self._memory.history(memory_id)

    def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """Return the latest merges."""
        return self._memory.merges(limit)

    def entities(self, limit: int = 100) -> list[Entity]:
        """Return entities."""
        return self._memory.entities(limit)

    def describe(self, entity: str) -> EntityView:
        """Describe an entity."""
        return self._memory.describe(entity)

    def related(self, context: str) -> list[str]:
        """Return ids of memories about the entities of a context."""
        return self._memory.related(context)

    def required(self, context: str = "") -> list[str]:
        """Return ids of memories that must be shown."""
        return self._memory.required(context)

    def work_meanwhile(self) -> None:
        """Run due jobs in the background."""
        self._memory.work_meanwhile()

    def _session_ended(self, key: str, is_known: bool) -> None:
        self._memory._session_ended(key, is_known)

    # -- checks ---------------------------------------------------------------------------

    def require_report(self, fields: Mapping[str, Any]) -> None:
        """Refuse a report on sessions or memories of others; handles are those of its session."""
        key, ids = fields.get("session_key"), fields.get("memory_ids")
        handles: set[str] = set()
        if isinstance(key, str):
            self.require_session(key)
            handles = {row.handle for row in self.services.store.shown(self.scope.user, key)}
        for name in ids if isinstance(ids, list | tuple) else [ids]:
            if isinstance(name, str) and name.lower() not in handles:
                self.get(name)

    def can_use_session(self, key: str) -> bool:
        """Return whether a session belongs to the token's agent and project, or is new."""
        session = self.services.store.find_session(self.scope.user, key)
        return session is None or self.grant.fits(session.agent, session.project)

    def require_session(self, key: object) -> None:
        """Refuse a session of another agent or project."""
        if isinstance(key, str) and not self.can_use_session(key):
            raise Forbidden(
                "the session belongs to another agent or project", hint="choose another session key"
            )

    def _require_own(self, fields: Mapping[str, Any]) -> None:
        own = {"agent": self.grant.agent, "project": self.grant.project}
        for name, value in own.items():
            if value is not None and name in fields and fields[name] != value:
                raise _outside()


AnyMemory = Memory | ScopedMemory


def require_session(memory: AnyMemory, key: object) -> None:
    """Refuse a session that a narrow token must not use."""
    if isinstance(memory, ScopedMemory):
        memory.require_session(key)


def require_report(memory: AnyMemory, fields: Mapping[str, Any]) -> None:
    """Refuse a report that a narrow token must not give."""
    if isinstance(memory, ScopedMemory):
        memory.require_report(fields)


def can_see_session(memory: AnyMemory, agent: str | None, project: str | None) -> bool:
    """Return whether a list may contain a session."""
    return not isinstance(memory, ScopedMemory) or memory.grant.fits(agent, project)


def _outside() -> MeritoryError:
    return Forbidden("this is outside the token's agent or project", hint="leave it out")
