"""The rows of an export file: how an export writes each field, and how an import checks it.

A memory and its history are described by a table of columns, other records by their dataclass.
A row that passes the check cannot fail when it is stored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec

from meritory.domain.codec import source_to_dict
from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.feedback import FeedbackEvent, FeedbackQuery
from meritory.domain.memory import Action, HistoryEntry, MemoryRecord, Source, Trust
from meritory.domain.quality import (
    Carried,
    CarriedAudit,
    CarriedBelief,
    CarriedLesson,
    CarriedRefusal,
    CarriedTestimony,
    CarriedWording,
    MergeVerdict,
    Retrieval,
)
from meritory.domain.rule import Rule, RuleEvent, State
from meritory.domain.world import moment_text, parse_moment
from meritory.engine.memories.validate import (
    checked_choice,
    checked_field,
    checked_name,
    checked_share,
    checked_source,
)
from meritory.engine.services import Services
from meritory.store.contract.memories import Attribute
from meritory.text.entities import entity_key
from meritory.text.normalize import checked_content

_ID = re.compile(r"[0-9a-z]{26}")
# The id of a refusal is shorter, because it is a hash.
_EXTRA_ID = re.compile(r"[0-9a-z]{24}|[0-9a-z]{26}")
_NUMBER_MAX = 1 << 62
_PAGE = 500
_EVENT_LIMIT = 100_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExportColumn:
    """How an import checks a field, and how an export writes it."""

    check: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


Columns = Mapping[str, ExportColumn]


def _optional(column: ExportColumn) -> ExportColumn:
    return ExportColumn(
        lambda value: None if value is None else column.check(value),
        lambda value: None if value is None else column.write(value),
    )


def _check_id(value: Any) -> str:
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise InputError(f"invalid id: {str(value)[:40]!r}")


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _NUMBER_MAX:
        raise InputError(f"{name} must be a whole number, not {str(value)[:40]!r}")
    return value


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false")
    return value


def _check_text(name: str, value: Any) -> str:
    """Return a text of any length, if it can be stored."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name} is not valid Unicode: it has a lone surrogate") from error
    return value


def _check_sources(value: Any) -> tuple[Source, ...]:
    if not isinstance(value, list):
        raise InputError("sources must be a list")
    return tuple(source for item in value if (source := checked_source(item)))


def _moment(name: str) -> ExportColumn:
    return ExportColumn(lambda value: parse_moment(value, name), moment_text)


def _count(name: str) -> ExportColumn:
    return ExportColumn(partial(_check_count, name))


def _name(name: str) -> ExportColumn:
    return ExportColumn(partial(checked_name, name))


def _draft_field(name: str) -> ExportColumn:
    return ExportColumn(partial(checked_field, name))


def _choice(name: str, choices: tuple[str, ...]) -> ExportColumn:
    return ExportColumn(lambda value: checked_choice(name, value, choices))


MEMORY: Columns = {
    "id": ExportColumn(_check_id),
    "content": ExportColumn(checked_content),
    "kind": _draft_field("kind"),
    # An import gives every memory to the importing user.
    "user": ExportColumn(lambda value: value),
    "agent": _name("agent"),
    "project": _name("project"),
    "provenance": _draft_field("provenance"),
    "origin": _draft_field("origin"),
    "trust": _choice("trust", get_args(Trust)),
    "confidence": _draft_field("confidence"),
    "importance": _draft_field("importance"),
    "pinned": _draft_field("pinned"),
    "demotion": _count("demotion"),
    "tags": ExportColumn(partial(checked_field, "tags"), list),
    "sources": ExportColumn(_check_sources, lambda sources: [source_to_dict(s) for s in sources]),
    "valid_from": _optional(_moment("valid_from")),
    "valid_until": _optional(_moment("valid_until")),
    "created_at": _moment("created_at"),
    "updated_at": _moment("updated_at"),
    "superseded_by": _optional(ExportColumn(_check_id)),
    "deleted_at": _optional(_moment("deleted_at")),
    "access_count": _count("access_count"),
    "last_accessed": _optional(_moment("last_accessed")),
    "usefulness": ExportColumn(partial(checked_share, "usefulness")),
    "embedder": _optional(_name("embedder")),
    "dimension": _optional(_count("dimension")),
}
_RECORD = _optional(
    ExportColumn(
        lambda value: MemoryRecord(**_check(MEMORY, value, "the memory")),
        lambda record: _write(MEMORY, record),
    )
)
# `after` is not written: it is the `before` of the next entry.
HISTORY: Columns = {
    "entry": _count("entry"),
    "operation": _name("operation"),
    "at": _moment("at"),
    "actor": _name("actor"),
    "action": _choice("action", get_args(Action)),
    "why": ExportColumn(partial(_check_text, "why")),
    "before": _RECORD,
    "other": _RECORD,
    "other_id": _optional(ExportColumn(_check_id)),
    "undone": ExportColumn(partial(_check_flag, "undone")),
}
AUDIT: Columns = {"at": _moment("at"), "verdict": _choice("verdict", get_args(MergeVerdict))}
RETRIEVAL: Columns = {"count": _count("count"), "last_at": _moment("last_at")}


def _write(columns: Columns, record: object) -> dict[str, Any]:
    return {name: column.write(getattr(record, name)) for name, column in columns.items()}


def _check(columns: Columns, value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != columns.keys():
        raise InputError(f"{what} has unknown or missing fields; expected {', '.join(columns)}")
    return {name: column.check(value[name]) for name, column in columns.items()}


# -- memories ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportedMemory:
    """A memory of an export, with its stated links and its history."""

    record: MemoryRecord
    about: tuple[Attribute, ...]
    history: tuple[HistoryEntry, ...]
    # Verdicts on merges, by the index of the entry in the history.
    audits: tuple[tuple[int, CarriedAudit], ...] = ()
    retrieved: Retrieval | None = None


def write_memory(
    record: MemoryRecord,
    about: tuple[Attribute, ...],
    history: list[HistoryEntry],
    audits: Mapping[int, CarriedAudit],
    retrieved: Retrieval | None,
) -> dict[str, Any]:
    """Return the row of a memory."""
    entries = []
    for entry in history:
        audit = audits.get(entry.entry)
        entries.append(
            ({} if audit is None else {"audit": _write(AUDIT, audit)}) | _write(HISTORY, entry)
        )
    row = {
        "memory": _write(MEMORY, record),
        "about": [asdict(attribute) for attribute in about],
        "history": entries,
    }
    return row if retrieved is None else {**row, "retrieved": _write(RETRIEVAL, retrieved)}


def _check_memory(row: dict[str, Any], user: str) -> ExportedMemory:
    record = MemoryRecord(**_check(MEMORY, row["memory"], "the memory") | {"user": user})
    about, entries = row.get("about", []), row.get("history", [])
    if not isinstance(about, list) or not isinstance(entries, list):
        raise InputError("about and history must be lists")
    links = tuple(_check_link(link) for link in about)
    history = tuple(_check_entry(entry, record.id, user) for entry in entries)
    audits = []
    for index, entry in enumerate(entries):
        if entry.get("audit") is not None:
            values = _check(AUDIT, entry["audit"], "an audit")
            audits.append((index, CarriedAudit(entry=0, **values)))
    retrieved = row.get("retrieved")
    if retrieved is not None:
        retrieved = Retrieval(**_check(RETRIEVAL, retrieved, "retrieved"))
    return ExportedMemory(record, links, history, tuple(audits), retrieved)


def _check_entry(value: Any, memory_id: str, user: str) -> HistoryEntry:
    if not isinstance(value, dict):
        raise InputError("a history entry must be an object")
    if missing := HISTORY.keys() - value.keys():
        raise InputError(f"a history entry has no {', '.join(sorted(missing))}")
    values = {name: column.check(value[name]) for name, column in HISTORY.items()}
    for name in ("before", "other"):
        if values[name] is not None:
            values[name] = replace(values[name], user=user)
    before, other = values["before"], values["other"]
    # An undo writes `before` back by its id: it must not change another memory.
    if before is not None and before.id != memory_id:
        raise InputError("a history entry belongs to another memory")
    if other is not None and other.id != values["other_id"]:
        raise InputError("other_id of a history entry is not the id of its other memory")
    return HistoryEntry(memory_id=memory_id, after=None, **values)


def _check_link(value: Any, *, needs_aspect: bool = True) -> Attribute:
    """Return an entity that a memory is about; one of a dependency has no aspect."""
    names = {item.name for item in fields(Attribute)}
    if not isinstance(value, dict) or value.keys() | {"is_stated"} != names:
        raise InputError("an entity link has unknown or missing fields")
    kind = str(checked_name("the kind of an entity", value["kind"]))
    name = str(checked_name("the name of an entity", value["name"]))
    aspect = value["aspect"]
    if needs_aspect or aspect != "":
        aspect = str(checked_name("the aspect of an entity", aspect))
    if value["key"] != entity_key(kind, name):
        raise InputError("the key of an entity does not match its kind and name")
    return Attribute(value["key"], kind, name, aspect, is_stated=True)


# -- other records ----------------------------------------------------------------------------

_CARRIED: Mapping[str, type[Carried]] = {
    "wording": CarriedWording,
    "lesson": CarriedLesson,
    "testimony": CarriedTestimony,
    "belief": CarriedBelief,
    "refusal": CarriedRefusal,
}
EXTRA_NAMES = (*_CARRIED, "feedback", "rule")


@dataclass(frozen=True, slots=True)
class ExportedRule:
    """A rule with its events."""

    rule: Rule
    events: tuple[RuleEvent, ...]


ExtraRow = Carried | FeedbackEvent | ExportedRule


def extra_rows(services: Services, user: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of reports, lessons, beliefs, refusals and rules, in order of import."""
    store = services.store
    reports: list[FeedbackEvent] = []
    while page := store.feedback_events(
        user, FeedbackQuery(limit=_PAGE, before=reports[-1].id if reports else None)
    ):
        reports += page
    for report in reversed(reports):
        row = msgspec.to_builtins(report)
        del row["user"]
        yield {"feedback": row}
    for name, kind in _CARRIED.items():
        for record in store.carried(user, kind):
            yield {name: msgspec.to_builtins(record)}
    for rule in sorted(store.rules(user, get_args(State)), key=lambda rule: rule.id):
        events = reversed(store.rule_events(user, rule.id, _EVENT_LIMIT))
        yield {
            "rule": msgspec.to_builtins(_without_replay(rule)),
            "events": [msgspec.to_builtins(_portable(event)) for event in events],
        }


def _without_replay(rule: Rule) -> Rule:
    """Restart the replay of a rule: an export contains no recorded actions."""
    return replace(rule, replayed_through=0)


def _portable(event: RuleEvent) -> RuleEvent:
    before = None if event.before is None else _without_replay(event.before)
    return replace(event, number=0, action=None, before=before)


def _check_extra(row: Mapping[str, Any], user: str) -> ExtraRow:
    _check_values(row)
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError("the line has a lone surrogate", hint="decode it as UTF-8") from error
    if "rule" in row:
        return _check_rule(row)
    if "feedback" in row:
        report = row["feedback"]
        return _convert(
            {**report, "user": user} if isinstance(report, dict) else report, FeedbackEvent
        )
    name = next((name for name in _CARRIED if name in row), None)
    if name is None or len(row) != 1:
        raise InputError("unknown kind of line")
    return _convert(row[name], _CARRIED[name])


def _check_rule(row: Mapping[str, Any]) -> ExportedRule:
    rule = _convert(row["rule"], Rule)
    values = row.get("events", [])
    if not isinstance(values, list):
        raise InputError("the events of a rule must be a list")
    events = tuple(_portable(_convert(value, RuleEvent)) for value in values)
    if any(event.rule_id != rule.id for event in events):
        raise InputError("an event belongs to another rule")
    for version in (rule, *(event.before for event in events if event.before is not None)):
        # The guard reads the trigger of every rule before every action.
        try:
            str(version.trigger)
        except (MeritoryError, ValueError, TypeError, IndexError) as error:
            raise InputError(f"invalid trigger of a rule: {version.pattern[:80]}") from error
    return ExportedRule(_without_replay(rule), events)


def _convert(value: Any, kind: type[T]) -> T:
    """Return the record of a JSON value, with its times in UTC."""
    try:
        record = msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InputError(f"not a {kind.__name__}: {str(error)[:200]}") from error
    names = [item.name for item in fields(record)]  # type: ignore[arg-type]
    if isinstance(value, dict) and value.keys() - set(names):
        raise InputError(f"unknown fields for a {kind.__name__}")
    moments: dict[str, datetime] = {}
    for name in names:
        at = getattr(record, name)
        if isinstance(at, datetime):
            if at.tzinfo is None:
                raise InputError("a time needs an offset", hint="e.g. 2026-11-15T08:30:00+00:00")
            moments[name] = at.astimezone(UTC)
    record_id = getattr(record, "id", None)
    if record_id is not None and not _EXTRA_ID.fullmatch(record_id):
        raise InputError(f"invalid id: {record_id[:40]!r}")
    return replace(record, **moments) if moments else record  # type: ignore[type-var]


def _check_values(value: Any) -> None:
    """Reject numbers that a store cannot hold, at any depth."""
    is_wide = isinstance(value, int) and not -_NUMBER_MAX < value < _NUMBER_MAX
    if is_wide or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError("a number is too large")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_values(item)


# -- lines ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportedLine:
    """The content of one line of an export."""

    memory: ExportedMemory | None = None
    dependency: tuple[Attribute, Attribute] | None = None
    counters: dict[str, int] = field(default_factory=dict)
    extra: ExtraRow | None = None


def check_line(value: Any, user: str) -> ExportedLine:
    """Check a line of an export and give its content to the importing user."""
    if isinstance(value, dict) and "memory" in value:
        return ExportedLine(memory=_check_memory(value, user))
    if isinstance(value, dict) and value.keys() & set(EXTRA_NAMES):
        return ExportedLine(extra=_check_extra(value, user))
    if not isinstance(value, dict) or not value or value.keys() - {"dependency", "counters"}:
        raise InputError("expected a memory, a dependency or counters")
    pair, counters = value.get("dependency"), value.get("counters", {})
    dependency = None
    if pair is not None:
        if not isinstance(pair, list) or len(pair) != 2:
            raise InputError("a dependency must be a list of two entities")
        first, second = (_check_link(link, needs_aspect=False) for link in pair)
        dependency = (first, second)
    if not isinstance(counters, dict):
        raise InputError("counters must be an object of names and counts")
    checked = {
        str(checked_name("a counter", name)): _check_count("a counter", count)
        for name, count in counters.items()
    }
    return ExportedLine(dependency=dependency, counters=checked)
