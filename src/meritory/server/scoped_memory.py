"""A memory for whoever holds a token of one agent or project: nothing leads out of it.

Searches and ids keep to a scope by themselves. Here is what else names a place: fields of a
memory that is stored or changed, sessions by their key, and reports by their id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from meritory.api.memory import Memory
from meritory.domain.errors import MeritoryError, NotFound
from meritory.domain.memory import Draft, MemoryRecord
from meritory.engine.feedback.capture import Captured
from meritory.server.permissions import Grant
from meritory.server.problems import Forbidden


class ScopedMemory(Memory):
    """The verbs of `Memory`, for the scope of a narrow token."""

    grant: Grant

    @classmethod
    def of(cls, memory: Memory, grant: Grant) -> Self:
        """The same view of the same store, confined."""
        # Not by its constructor, which would open a store.
        made = object.__new__(cls)
        vars(made).update(vars(memory))
        made.grant = grant
        return made

    def _draft(self, item: object) -> Any:
        draft = super()._draft(item)
        if isinstance(draft, Draft) and not self.grant.fits(draft.agent, draft.project):
            return _outside()
        return draft

    def update(self, memory_id: str, **fields: Any) -> MemoryRecord:
        self._demand_fields(fields)
        return super().update(memory_id, **fields)

    def page(self, *given: Any, **wanted: Any) -> list[MemoryRecord]:
        """A page of memories within."""
        if wanted.get("everywhere"):
            raise _outside()
        return super().page(*given, **wanted)

    def session(self, key: str, project: str | None = None, *given: Any, **more: Any) -> Any:
        """A session within."""
        if project is not None:
            self._demand_fields({"project": project})
        self.demand_session(key)
        return super().session(key, project, *given, **more)

    # So that a program's arguments are checked as everywhere.
    page.__wrapped__ = Memory.page  # type: ignore[attr-defined]
    session.__wrapped__ = Memory.session  # type: ignore[attr-defined]

    def capture_feedback(self, signal: str, context: str = "", **fields: Any) -> Captured:
        self.demand_report(fields)
        return super().capture_feedback(signal, context, **fields)

    feedback = capture_feedback

    def complete_feedback(
        self, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        known = self.feedback_event(event_id).scope
        if not self.grant.fits(known.agent, known.project):
            # In the words of the store: nobody learns that others have such a one.
            raise NotFound(
                f"no feedback {event_id[:40]!r}", hint="`meritory feedback list` shows the ids"
            )
        self.demand_report(fields)
        return super().complete_feedback(event_id, signal, **fields)

    def demand_report(self, fields: Mapping[str, Any]) -> None:
        """A report is about sessions and memories within; handles are those of its session."""
        key, ids = fields.get("session_key"), fields.get("memory_ids")
        if isinstance(key, str):
            self.demand_session(key)
        shown = self._services.store.shown(self.scope.user, key) if isinstance(key, str) else []
        handles = {one.handle for one in shown}
        for name in ids if isinstance(ids, list | tuple) else [ids]:
            if isinstance(name, str) and name.lower() not in handles:
                self.get(name)

    def knows_session(self, key: str) -> bool:
        """Whether a session is of the token's agent and project; one that is new may begin."""
        try:
            known = self._services.store.session(self.scope.user, key)
        except NotFound:
            return True
        return self.grant.fits(known.agent, known.project)

    def demand_session(self, key: object) -> None:
        """Refuses a session of another agent or project."""
        if isinstance(key, str) and not self.knows_session(key):
            raise Forbidden("the session is of another agent or project", hint="use another key")

    def _demand_fields(self, fields: Mapping[str, Any]) -> None:
        own = {"agent": self.grant.agent, "project": self.grant.project}
        for name, value in own.items():
            if value is not None and name in fields and fields[name] != value:
                raise _outside()


def demand_session(memory: Memory, key: object) -> None:
    """Refuses a session that the holder of a narrow token has nothing to do with."""
    if isinstance(memory, ScopedMemory):
        memory.demand_session(key)


def demand_report(memory: Memory, fields: Mapping[str, Any]) -> None:
    """Refuses a report on what the holder of a narrow token has nothing to do with."""
    if isinstance(memory, ScopedMemory):
        memory.demand_report(fields)


def sees_session(memory: Memory, agent: str | None, project: str | None) -> bool:
    """Whether a session may be listed."""
    return not isinstance(memory, ScopedMemory) or memory.grant.fits(agent, project)


def _outside() -> MeritoryError:
    return Forbidden("this lies outside of the token's agent or project", hint="leave it out")
