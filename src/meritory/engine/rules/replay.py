"""Tries a rule's trigger on actions that nobody minded, before it may warn of or block anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from meritory.domain.rule import ActionQuery, RecordedAction, Rule, Trigger
from meritory.rank.attribution import WINDOW_S
from meritory.store.contract.rules import RuleReads
from meritory.text.commands.actions import recorded_tool_action
from meritory.text.commands.triggers import fits, ordinary_actions

# What was done longer ago says little about what is harmless now.
REPLAY_DAYS: Final = 30
REPLAY_LIMIT: Final = 1_000
_EXAMPLE_LIMIT_COUNT: Final = 5
WINDOW: Final = timedelta(seconds=WINDOW_S)


@dataclass(frozen=True, slots=True)
class Replay:
    """How many harmless actions a trigger was tried on, and which of them it fits."""

    tried_count: int
    alarm_count: int
    through: int
    examples: tuple[str, ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether there was no false alarm."""
        return self.alarm_count == 0


@dataclass(frozen=True, slots=True)
class RuleTrial:
    """What is tried, for whom, and when."""

    user: str
    trigger: Trigger
    project: str | None
    now: datetime


def replay(reads: RuleReads, trial: RuleTrial, after: int | None = None) -> Replay:
    """Tries a trigger on recorded harmless actions and on ordinary ones.

    Nobody complained about a harmless action while it was fresh; what was done just now may still
    be complained about, and what was denied was never done. `after` is where the replay before
    ended, to go on from there. Only actions with the trigger's own program or file can fit: the
    rest is not read.
    """
    query = ActionQuery(
        tool=trial.trigger.tool,
        head=trial.trigger.head,
        since=trial.now - timedelta(days=REPLAY_DAYS),
        until=trial.now - WINDOW,
        after=after or 0,
        limit=REPLAY_LIMIT,
    )
    found = reads.actions(trial.user, query)
    alarms = [one.argument for one in found if is_alarm(one, trial.trigger, trial.project)]
    ordinary = ordinary_actions() if after is None else ()
    alarms += [one.argument for one in ordinary if fits(trial.trigger, one)]
    through = max([after or 0, *(one.number for one in found)])
    examples = tuple(dict.fromkeys(alarms))[:_EXAMPLE_LIMIT_COUNT]
    return Replay(len(found) + len(ordinary), len(alarms), through, examples)


def is_alarm(one: RecordedAction, trigger: Trigger, project: str | None) -> bool:
    """Whether a trigger would be in the way of an action that nobody minded."""
    is_harmless = one.blame_count == 0 and one.decision != "deny"
    return (
        is_harmless and project in (None, one.project) and fits(trigger, recorded_tool_action(one))
    )


def tried(rule: Rule, found: Replay, *, anew: bool) -> Rule:
    """A rule with what a replay of its trigger showed, in place of or beside the one before."""
    return replace(
        rule,
        replay_count=found.tried_count + (0 if anew else rule.replay_count),
        alarm_count=found.alarm_count + (0 if anew else rule.alarm_count),
        replayed_through=found.through,
    )
