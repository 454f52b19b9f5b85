"""Export: memories as lines of JSON, sessions and models on request; or Markdown notes.

An import restores the lines exactly. A memory and its history are checked field by field, other
records by their dataclass; a row that passes the check cannot fail when it is stored.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from meritory.domain.codec import prepared, record_to_dict
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
    MemoryLink,
    MergeVerdict,
    Retrieval,
)
from meritory.domain.rule import Rule, RuleEvent, State
from meritory.domain.world import moment_text, parse_moment
from meritory.engine.memories import validate
from meritory.engine.services import Services
from meritory.engine.transfer.learned import NAMES as LEARNED_NAMES
from meritory.engine.transfer.learned import LearnedLine, check_learned, learned_rows
from meritory.store.contract.memories import Attribute
from meritory.text.entities import entity_key
from meritory.text.normalize import checked_content

FORMAT_VERSION = 2
# Formats that an import reads.
READABLE_VERSIONS = (1, 2)
_PROGRESS_STEP = 512
_MEMORY_START = '{"memory":'
_ID = re.compile(r"[0-9a-z]{26}")
# The id of a refusal is shorter, because it is a hash.
_EXTRA_ID = re.compile(r"[0-9a-z]{24}|[0-9a-z]{26}")
_NUMBER_MAX = 1 << 62
_PAGE = 500
_EVENT_LIMIT = 100_000
T = TypeVar("T")
Progress = Callable[[int, int], None]


def export_lines(services: Services, user: str, *, with_learned: bool = False) -> Iterator[str]:
    """Yield a header, then the memories of a user and their records, as lines of JSON.

    With `with_learned` sessions, the predictor's state and models follow.
    """
    store = services.store
    yield json_line({"meritory_export": FORMAT_VERSION, "at": moment_text(services.world.now())})
    stated = store.stated_attributes(user)
    audits = {audit.entry: audit for audit in store.carried(user, CarriedAudit)}
    for record in store.walk(user):
        row: dict[str, Any] = {
            "memory": record_to_dict(record),
            "about": [asdict(attribute) for attribute in stated.get(record.id, ())],
            "history": [_write(HISTORY, entry) for entry in store.history(user, record.id)],
        }
        for entry in row["history"]:
            if audit := audits.get(entry["entry"]):
                entry["audit"] = _write(AUDIT, audit)
        if retrieved := store.retrievals(user, [record.id]).get(record.id):
            row["retrieved"] = _write(RETRIEVAL, retrieved)
        yield json_line(row)
    for pair in store.dependencies(user):
        yield json_line({"dependency": [asdict(attribute) for attribute in pair]})
    yield from map(json_line, _extra_rows(services, user))
    yield json_line({"counters": store.counters(user)})
    if with_learned:
        yield from map(json_line, learned_rows(services, user))


def _extra_rows(services: Services, user: str) -> Iterator[dict[str, Any]]:
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


def write_export(
    services: Services, user: str, target: Path, progress: Progress, *, with_learned: bool = False
) -> int:
    """Write an export file atomically and return the number of its memories."""
    if target.exists():
        raise InputError(f"{target} already exists", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"folder not found: {target.parent}", hint="create it first")
    figures = services.store.totals(user)
    total = figures["live"] + figures["deleted"] + figures["superseded"]
    temporary = target.with_name(f"{target.name}.part-{os.getpid()}")
    memory_count = 0
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            lines = export_lines(services, user, with_learned=with_learned)
            for count, line in enumerate(lines):
                file.write(line + "\n")
                memory_count += line.startswith(_MEMORY_START)
                if count % _PROGRESS_STEP == 0:
                    progress(min(count, total), total)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    progress(total, total)
    return memory_count


def json_line(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- checks ----------------------------------------------------------------------------------------

# By field the function that returns its checked value.
Checks = Mapping[str, Callable[[Any], Any]]


def _optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _check_id(value: Any) -> str:
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise InputError(f"invalid id: {str(value)[:40]!r}")


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _NUMBER_MAX:
        raise InputError(f"{name} must be a whole number, not {str(value)[:40]!r}")
    return value


def _check_sources(value: Any) -> tuple[Source, ...]:
    sources = (
        validate.checked_source(item) for item in _typed(list, "sources must be a list")(value)
    )
    return tuple(source for source in sources if source)


def _typed(kind: type, message: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise InputError(message)
        return value

    return check


def _moment(name: str) -> Callable[[Any], Any]:
    return lambda value: parse_moment(value, name)


def _count(name: str) -> Callable[[Any], Any]:
    return partial(_check_count, name)


def _choice(name: str, choices: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda value: validate.checked_choice(name, value, choices)


# All other fields are checked as those of a draft.
_MEMORY: Checks = {
    "id": _check_id,
    "content": checked_content,
    # An import gives every memory to the importing user.
    "user": lambda value: value,
    "trust": _choice("trust", get_args(Trust)),
    "demotion": _count("demotion"),
    "sources": _check_sources,
    "created_at": _moment("created_at"),
    "updated_at": _moment("updated_at"),
    "superseded_by": _optional(_check_id),
    "deleted_at": _optional(_moment("deleted_at")),
    "access_count": _count("access_count"),
    "last_accessed": _optional(_moment("last_accessed")),
    "usefulness": partial(validate.checked_share, "usefulness"),
    "dimension": _optional(_count("dimension")),
}
MEMORY: Checks = {
    item.name: _MEMORY.get(item.name, partial(validate.checked_field, item.name))
    for item in fields(MemoryRecord)
}
_RECORD = _optional(lambda value: MemoryRecord(**_check(MEMORY, value, "the memory")))
# `after` is not written: it is the `before` of the next entry.
HISTORY: Checks = {
    "entry": _count("entry"),
    "operation": partial(validate.checked_name, "operation"),
    "at": _moment("at"),
    "actor": partial(validate.checked_name, "actor"),
    "action": _choice("action", get_args(Action)),
    "why": _typed(str, "why must be text"),
    "before": _RECORD,
    "other": _RECORD,
    "other_id": _optional(_check_id),
    "undone": _typed(bool, "undone must be true or false"),
}
AUDIT: Checks = {"at": _moment("at"), "verdict": _choice("verdict", get_args(MergeVerdict))}
RETRIEVAL: Checks = {"count": _count("count"), "last_at": _moment("last_at")}


def _write(names: Iterable[str], record: object) -> dict[str, Any]:
    """Return fields of a record as JSON values."""
    values = {name: getattr(record, name) for name in names}
    for name, value in values.items():
        if isinstance(value, MemoryRecord):
            values[name] = record_to_dict(value)
        elif isinstance(value, datetime):
            values[name] = moment_text(value)
    return values


def _check(checks: Checks, value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != checks.keys():
        raise InputError(f"{what} has unknown or missing fields; expected {', '.join(checks)}")
    return {name: check(value[name]) for name, check in checks.items()}


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


def _check_memory(row: dict[str, Any], user: str) -> ExportedMemory:
    record = MemoryRecord(**_check(MEMORY, row["memory"], "the memory") | {"user": user})
    about, entries = row.get("about", []), row.get("history", [])
    if not isinstance(about, list) or not isinstance(entries, list):
        raise InputError("about and history must be lists")
    links = tuple(_check_link(link) for link in about)
    history = tuple(_check_entry(entry, record.id, user) for entry in entries)
    audits = tuple(
        (index, CarriedAudit(entry=0, **_check(AUDIT, entry["audit"], "an audit")))
        for index, entry in enumerate(entries)
        if entry.get("audit") is not None
    )
    retrieved = row.get("retrieved")
    if retrieved is not None:
        retrieved = Retrieval(**_check(RETRIEVAL, retrieved, "retrieved"))
    return ExportedMemory(record, links, history, audits, retrieved)


def _check_entry(value: Any, memory_id: str, user: str) -> HistoryEntry:
    if isinstance(value, dict):
        # An audit is checked separately.
        value = {name: value[name] for name in HISTORY if name in value}
    values = _check(HISTORY, value, "a history entry")
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
    kind = str(validate.checked_name("the kind of an entity", value["kind"]))
    name = str(validate.checked_name("the name of an entity", value["name"]))
    aspect = value["aspect"]
    if needs_aspect or aspect != "":
        aspect = str(validate.checked_name("the aspect of an entity", aspect))
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
    "link": MemoryLink,
}
EXTRA_NAMES = (*_CARRIED, "feedback", "rule")


@dataclass(frozen=True, slots=True)
class ExportedRule:
    """A rule with its events."""

    rule: Rule
    events: tuple[RuleEvent, ...]


ExtraRow = Carried | FeedbackEvent | ExportedRule


def _without_replay(rule: Rule) -> Rule:
    """Restart the replay of a rule: an export contains no recorded actions."""
    return replace(rule, replayed_through=0)


def _portable(event: RuleEvent) -> RuleEvent:
    before = None if event.before is None else _without_replay(event.before)
    return replace(event, number=0, action=None, before=before)


def _check_extra(row: Mapping[str, Any], user: str) -> ExtraRow:
    _check_values(row)
    if "rule" in row:
        return _check_rule(row)
    if "feedback" in row:
        report = row["feedback"]
        return _convert(
            {**report, "user": user} if isinstance(report, dict) else report, FeedbackEvent
        )
    if len(row) != 1:
        raise InputError("unknown kind of line")
    ((name, value),) = row.items()
    record = _convert(value, _CARRIED[name])
    if isinstance(record, MemoryLink) and record.decision == "newer":
        # A chain may hide a memory, and a file has no person's authority to say so.
        return replace(record, kind="newer", decision=None, decided_by=None, decided_at=None)
    return record


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
        record = msgspec.convert(value, prepared(kind), strict=True)
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
    learned: LearnedLine | None = None


def check_line(value: Any, user: str) -> ExportedLine:
    """Check a line of an export and give its content to the importing user."""
    try:
        json_line(value).encode()
    except UnicodeEncodeError as error:
        raise InputError("the line has a lone surrogate", hint="decode it as UTF-8") from error
    if isinstance(value, dict) and "memory" in value:
        return ExportedLine(memory=_check_memory(value, user))
    if isinstance(value, dict) and value.keys() & set(EXTRA_NAMES):
        return ExportedLine(extra=_check_extra(value, user))
    if isinstance(value, dict) and value.keys() & set(LEARNED_NAMES):
        return ExportedLine(learned=check_learned(value))
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
        str(validate.checked_name("a counter", name)): _check_count("a counter", count)
        for name, count in counters.items()
    }
    return ExportedLine(dependency=dependency, counters=checked)


# -- notes -----------------------------------------------------------------------------------------

EVERYWHERE = "everywhere"
# The kinds of memories in the order of a note.
_KINDS = ("constraint", "preference", "decision", "procedure", "lesson", "fact", "episode")
_SOURCES = {"assistant_derived": "inferred", "episode_summary": "summary"}
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_LIMIT_CHARS = 80


def write_notes(services: Services, user: str, folder: Path) -> tuple[int, int]:
    """Write live memories as notes into a new folder; return the numbers of memories and files."""
    try:
        folder.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"cannot create {folder}: {why}", hint="name a folder that does not exist yet"
        ) from error
    projects: dict[str | None, list[MemoryRecord]] = {}
    for record in services.store.walk(user):
        if record.is_live:
            projects.setdefault(record.project, []).append(record)
    taken: set[str] = set()
    for project, records in sorted(projects.items(), key=lambda item: item[0] or ""):
        # The file name of a project is safe and unique.
        stem = _UNSAFE.sub("-", project or EVERYWHERE).strip("-.")[:_NAME_LIMIT_CHARS] or "project"
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        path = folder / f"{name}.md"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(notes(project or "Everywhere", records))
    return sum(map(len, projects.values())), len(projects)


def notes(title: str, records: Iterable[MemoryRecord]) -> str:
    """Return the note of a project: a heading for each kind, the oldest memory first."""
    parts = [f"# {' '.join(title.split())}"]
    by_kind: dict[str, list[MemoryRecord]] = {kind: [] for kind in _KINDS}
    for record in records:
        by_kind[record.kind].append(record)
    for kind, group in by_kind.items():
        if group:
            ordered = sorted(group, key=lambda record: (record.created_at, record.id))
            parts.append(f"## {kind.capitalize()}s")
            parts.append("\n".join(map(_bullet, ordered)))
    return "\n\n".join(parts) + "\n"


def _bullet(record: MemoryRecord) -> str:
    text = record.content.strip().replace("\n", "\n  ")
    about = [f"{record.created_at:%Y-%m-%d}", _SOURCES.get(record.provenance, "")]
    about += ["pinned" if record.pinned else "", "unverified" * (record.trust == "untrusted")]
    about += [f"#{tag}" for tag in record.tags]
    return f"- {text} ({', '.join(word for word in about if word)})"
