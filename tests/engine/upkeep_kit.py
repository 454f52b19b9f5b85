"""A store with a settable clock whose sessions cost nothing, for tests of upkeep."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from session_kit import Desk

from meritory.api.memory import Memory
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.session import SessionRecord


def active(desk: Desk, days: int, scope: Scope | None = None, every_days: float = 3) -> None:
    """Lets time pass, with a session now and then that is shown nothing."""
    where = desk.memory.scope if scope is None else scope
    passed = 0.0
    sessions = []
    while passed < days:
        desk.clock.go(days=every_days)
        passed += every_days
        key = f"{where.project}-{where.agent}-{desk.clock.now:%Y%m%d%H%M}"
        sessions.append(
            SessionRecord(
                user=where.user,
                key=key,
                started_at=desk.clock.now,
                agent=where.agent,
                project=where.project,
                state="ended",
                ended_at=desk.clock.now,
            )
        )

    for session in sessions:
        desk.store.write(session.user, lambda t, one=session: t.open_session(one))


def derived(desk: Desk, *texts: str, **fields: Any) -> list[str]:
    """Memories that an assistant concluded: three months, and they are due."""
    return desk.note(*texts, provenance="assistant_derived", origin="agent", **fields)


def set_policy(desk: Desk, **janitor: Any) -> None:
    """Other settings of the janitor."""
    policy = desk.memory.services.policy
    changed = replace(policy, janitor=replace(policy.janitor, **janitor))
    desk.equip(policy=changed)


def shown(desk: Desk, memory_id: str, at: datetime) -> None:
    """Notes that a session was shown a memory."""
    desk.store.write("default", lambda t: t.add_usage("default", {memory_id: 1}, at))


def state(memory: Memory, memory_id: str) -> tuple[int, float]:
    """How far a memory was demoted, and its confidence."""
    found: MemoryRecord = memory.get(memory_id)
    return found.demotion, found.confidence


WEEK = timedelta(weeks=1)
