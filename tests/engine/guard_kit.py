"""An agent at work before the guard, and somebody who says what they think of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from meritory.api.memory import Memory
from meritory.domain.memory import Scope
from meritory.domain.rule import Rule
from meritory.engine.rules.guard import GuardVerdict, ToolCall, check

FORCE = "git push --force origin main"
OVERWRITTEN = "You force-pushed to main and overwrote other people's commits"
BEGAN = datetime(2026, 3, 1, 9, tzinfo=UTC)


class Clock:
    """A clock that goes on by ten seconds at every look, and when told to."""

    def __init__(self) -> None:
        self.at = BEGAN

    def __call__(self) -> datetime:
        self.at += timedelta(seconds=10)
        return self.at

    def skip(self, **much: float) -> None:
        self.at += timedelta(**much)


class Bench:
    """A memory with its guard."""

    def __init__(self, memory: Memory, clock: Clock) -> None:
        self.memory, self.clock = memory, clock

    def call(self, given: str, key: str = "s1", tool: str = "Bash", **more: Any) -> GuardVerdict:
        """A tool is about to be called."""
        name = "command" if tool == "Bash" else "file_path"
        scope = more.pop("scope", self.memory.scope)
        return check(self.memory.services, ToolCall(key, scope, tool, {name: given}, **more))

    def down(self, text: str, key: str | None = "s1", **fields: Any) -> None:
        """A thumbs down, through the front door."""
        self.memory.capture_feedback("down", text, session_key=key, **fields)

    def up(self, text: str, key: str | None = "s1") -> None:
        """A thumbs up."""
        self.memory.capture_feedback("up", text, session_key=key)

    def rules(self) -> list[Rule]:
        """All rules, whatever their state."""
        from meritory.rank.ladder import STATES

        return self.memory.services.store.rules("default", STATES)

    @property
    def rule(self) -> Rule:
        """The only rule."""
        (one,) = self.rules()
        return one

    def cases(self, line: str = FORCE, text: str = OVERWRITTEN, count: int = 4) -> Iterator[str]:
        """The same mistake again and again, reported unless it was denied."""
        for _ in range(count):
            verdict = self.call(line)
            if verdict.decision != "deny":
                self.down(text)
            yield verdict.decision

    def in_project(self, name: str) -> Scope:
        """The scope of a project."""
        return Scope("default", None, name)
