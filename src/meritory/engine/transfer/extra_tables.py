"""What an export carries besides memories: reports, lessons, beliefs, rules and refusals."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

import msgspec

from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.feedback import FeedbackEvent, FeedbackQuery
from meritory.domain.quality import (
    Carried,
    CarriedBelief,
    CarriedLesson,
    CarriedRefusal,
    CarriedTestimony,
    CarriedWording,
)
from meritory.domain.rule import Rule, RuleEvent, State
from meritory.engine.services import Services

_PAGE = 500
_EVENT_LIMIT = 100_000
_NUMBER_MAX = 1 << 62
_ROWS: Mapping[str, type[Carried]] = {
    "wording": CarriedWording,
    "lesson": CarriedLesson,
    "testimony": CarriedTestimony,
    "belief": CarriedBelief,
    "refusal": CarriedRefusal,
}
NAMES = (*_ROWS, "feedback", "rule")
# A refusal's is shorter: it is made of what was refused.
_ID = re.compile(r"[0-9a-z]{24}|[0-9a-z]{26}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeptRule:
    """A rule with what happened to it."""

    rule: Rule
    events: tuple[RuleEvent, ...]


Keepsake = Carried | FeedbackEvent | KeptRule


def keepsakes(services: Services, user: str) -> Iterator[dict[str, Any]]:
    """All of them as JSON values, in an order in which they can come in again."""
    store = services.store
    for event in _reports(services, user):
        yield {"feedback": _without_user(event)}
    for name, kind in _ROWS.items():
        for row in store.carried(user, kind):
            yield {name: msgspec.to_builtins(row)}
    for rule in sorted(store.rules(user, get_args(State)), key=lambda one: one.id):
        events = reversed(store.rule_events(user, rule.id, _EVENT_LIMIT))
        yield {
            "rule": msgspec.to_builtins(_afresh(rule)),
            "events": [msgspec.to_builtins(_told(event)) for event in events],
        }


def _reports(services: Services, user: str) -> list[FeedbackEvent]:
    found: list[FeedbackEvent] = []
    while page := services.store.feedback_events(
        user, FeedbackQuery(limit=_PAGE, before=found[-1].id if found else None)
    ):
        found += page
    return found[::-1]


def _without_user(event: FeedbackEvent) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event)
    del plain["user"]
    return plain


def _afresh(rule: Rule) -> Rule:
    """Recorded actions stay where they are, so a replay begins anew elsewhere."""
    return replace(rule, replayed_through=0)


def _told(event: RuleEvent) -> RuleEvent:
    before = None if event.before is None else _afresh(event.before)
    return replace(event, number=0, action=None, before=before)


def checked_keepsake(plain: Mapping[str, Any], user: str) -> Keepsake:
    """What a line of an export holds besides memories; what is left cannot fail later."""
    _check_values(plain)
    if "rule" in plain:
        return _checked_rule(plain)
    if "feedback" in plain:
        held = plain["feedback"]
        return _made({**held, "user": user} if isinstance(held, dict) else held, FeedbackEvent)
    name = next((name for name in _ROWS if name in plain), None)
    if name is None or len(plain) != 1:
        raise InputError("the line holds nothing that is known")
    return _made(plain[name], _ROWS[name])


def _checked_rule(plain: Mapping[str, Any]) -> KeptRule:
    rule = _made(plain["rule"], Rule)
    events = plain.get("events", [])
    if not isinstance(events, list):
        raise InputError("the events of a rule must be a list")
    made = tuple(_told(_made(event, RuleEvent)) for event in events)
    if any(event.rule_id != rule.id for event in made):
        raise InputError("an event tells of another rule")
    for one in (rule, *(event.before for event in made if event.before is not None)):
        _check_trigger(one)
    return KeptRule(_afresh(rule), made)


def _check_trigger(rule: Rule) -> None:
    """A rule that cannot be read would be in the way of every action."""
    try:
        str(rule.trigger)
    except (MeritoryError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the trigger of a rule cannot be read: {rule.pattern[:80]}") from error


def _made(plain: Any, kind: type[T]) -> T:
    try:
        made = msgspec.convert(plain, kind, strict=True)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InputError(f"it is no {kind.__name__}: {str(error)[:200]}") from error
    if isinstance(plain, dict) and plain.keys() - {item.name for item in fields(made)}:  # type: ignore[arg-type]
        raise InputError(f"it has fields that a {kind.__name__} has not")
    moments = {
        item.name: _in_utc(getattr(made, item.name))
        for item in fields(made)  # type: ignore[arg-type]
        if isinstance(getattr(made, item.name), datetime)
    }
    given = getattr(made, "id", None)
    if given is not None and not _ID.fullmatch(given):
        raise InputError(f"{given[:40]!r} is not an id")
    return replace(made, **moments) if moments else made  # type: ignore[type-var]


def _in_utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise InputError("a time needs an offset", hint="e.g. 2026-11-15T08:30:00+00:00")
    return at.astimezone(UTC)


def _check_values(value: Any) -> None:
    """Everything can be stored: no half characters, no number that is none or too large."""
    _walk(value, _check_number)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError("it holds a lone surrogate", hint="decode the source as UTF-8") from error


def _check_number(value: Any) -> None:
    is_wide = isinstance(value, int) and not -_NUMBER_MAX < value < _NUMBER_MAX
    if is_wide or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError("a number is too large")


def _walk(value: Any, check: Callable[[Any], None]) -> None:
    check(value)
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for held in inner:
            _walk(held, check)
