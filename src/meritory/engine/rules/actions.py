"""Actions of agents: kept as they come, and found again when somebody reports on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from meritory.domain.feedback import EventFacts
from meritory.domain.memory import Scope
from meritory.domain.rule import ActionQuery, ActionReport, RecordedAction
from meritory.engine.sessions.context import storable
from meritory.rank.attribution import WINDOW_S, Match, Seen, attribute
from meritory.store.contract.store import Store
from meritory.text.commands.actions import (
    ToolAction,
    kept_argument,
    read_action,
    recorded_tool_action,
    stems,
)

RECENT_LIMIT_COUNT: Final = 80
_NAME_LIMIT_CHARS: Final = 200
_QUOTED_CHARS_MIN: Final = 6
_FILE_CHARS_MIN: Final = 4


@dataclass(frozen=True)
class ToolCall:
    """A tool that an agent is about to call, as its client tells it."""

    session_key: str
    scope: Scope
    tool_name: str
    tool_input: Any
    harness: str | None = None
    request_id: str | None = None
    # Told a moment ago already, by another file of the same client.
    is_echo: bool = False

    @cached_property
    def action(self) -> ToolAction:
        """What it would do."""
        return read_action(self.tool_name[:_NAME_LIMIT_CHARS], self.tool_input)


def recorded(call: ToolCall, at: datetime) -> RecordedAction:
    """A call as it is kept, without secrets, before anything was said to it."""
    whole = call.action
    # What is derived from the argument must not tell more than it does.
    action = replace(whole, argument=storable(kept_argument(whole.argument)))
    return RecordedAction(
        session_key=call.session_key,
        at=at,
        project=call.scope.project,
        harness=call.harness,
        tool=action.tool,
        tool_name=action.name,
        argument=action.argument,
        heads=action.heads,
        risk=whole.risk,
        decision="allow",
    )


@dataclass(frozen=True, slots=True)
class Attribution:
    """What a report is about: recent actions, the likeliest first."""

    matches: tuple[Match, ...] = ()
    primary: RecordedAction | None = None

    @property
    def is_evidence(self) -> bool:
        """Whether something can be learned about the likeliest one."""
        return bool(self.matches) and self.matches[0].is_evidence

    def reports(self, facts: EventFacts) -> list[ActionReport]:
        """The links between the report and its actions."""
        return [
            ActionReport(
                facts.event_id, match.action, facts.polarity, match.score, place == 0, facts.at
            )
            for place, match in enumerate(self.matches)
        ]


def attributed(store: Store, scope: Scope, facts: EventFacts) -> Attribution:
    """The recent actions that a report is about.

    Tags are not looked at: a word to file a report under says nothing about what was done.
    """
    query = ActionQuery(
        session_key=facts.session_key,
        since=facts.at - timedelta(seconds=WINDOW_S),
        # A report that is completed later is still about what came before it.
        until=facts.at + timedelta.resolution,
        limit=RECENT_LIMIT_COUNT,
    )
    found = [one for one in store.actions(scope.user, query) if _may_be(one, scope, facts)]
    text = "\n".join(facts.texts)
    seen = [_seen(one, facts, text) for one in found]
    matches = tuple(attribute(stems(text), facts.polarity, seen))
    by_number = {one.number: one for one in found}
    return Attribution(matches, by_number[matches[0].action] if matches else None)


def _may_be(one: RecordedAction, scope: Scope, facts: EventFacts) -> bool:
    """Whether an action was really done, and where the report comes from."""
    is_near = facts.session_key is not None or scope.project in (None, one.project)
    return one.decision != "deny" and is_near


def _seen(one: RecordedAction, facts: EventFacts, text: str) -> Seen:
    age_s = (facts.at - one.at).total_seconds()
    named = _is_quoted(one, text) or _is_last(one, facts.last_action)
    return Seen(one.number, age_s, one.risk, recorded_tool_action(one).words, named)


def _is_quoted(one: RecordedAction, text: str) -> bool:
    """Whether a report has the very command, path or file name in it; a word is no quote."""
    wanted = one.argument.strip()
    files = one.heads if one.tool in ("edit", "read") else ()
    if any("." in file and len(file) >= _FILE_CHARS_MIN and file in text for file in files):
        return True
    is_telling = len(wanted) >= _QUOTED_CHARS_MIN and any(mark in wanted for mark in " /.")
    return is_telling and wanted in text


def _is_last(one: RecordedAction, last: Mapping[str, str] | None) -> bool:
    """Whether a report says that this was the last thing done: the same tool on the same file."""
    if not last or not last.get("tool") or not last.get("file"):
        return False
    tool = read_action(last["tool"], {}).tool
    return tool == one.tool and any(value.endswith(last["file"]) for value in _values(one))


def _values(one: RecordedAction) -> Sequence[str]:
    return recorded_tool_action(one).values or (one.argument,)
