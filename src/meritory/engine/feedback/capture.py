"""Feedback: every report is kept; what says enough becomes a lesson, or strengthens one.

The report is on disk before anything else is tried, and nothing that follows can fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from meritory.domain.errors import Conflict, InputError, MeritoryError
from meritory.domain.feedback import EventFacts, FeedbackEvent, Issue, Testimony, Witness
from meritory.domain.memory import Draft, MemoryRecord, Scope
from meritory.domain.session import Event
from meritory.engine.feedback.reading import (
    FeedbackReport,
    ReportReading,
    fields_of,
    read,
    still_wrong,
)
from meritory.engine.learning.job import believed, keep
from meritory.engine.memories import change
from meritory.engine.memories.validate import make_draft
from meritory.engine.memories.write import Prepared, PreparedBatch, decide_batch, prepare_batch
from meritory.engine.observe.observer import publish
from meritory.engine.rules import learn
from meritory.engine.services import Services
from meritory.store.contract.store import NeighbourProbe, Transaction
from meritory.text import feedback
from meritory.text.feedback import (
    Question,
    fingerprint,
    is_same,
    lesson_text,
    main_text,
    told_in,
    with_advice,
)

T = TypeVar("T")
# What is warned of matters more than what went well anyway.
IMPORTANCE = {feedback.DOWN: 0.7, feedback.UP: 0.5}
KIND_TAGS = {feedback.DOWN: "mistake", feedback.UP: "success"}
STAGE = "feedback"
_SUCCESSOR_STEPS = 8
_TAGS_KEPT = 32
# Among so many lessons the same one in other words is looked for; its words decide.
_NEAR_LIMIT, _NEAR_COSINE = 8, 0.5
_SHORT_ID_CHARS = 40


@dataclass(frozen=True, slots=True)
class Captured:
    """What became of a report; `questions` say what is missing, each with its field."""

    accepted: bool
    status: Literal["promoted", "clarification_required", "rejected", "blocked"]
    reason: str
    message: str
    # None only for Meritory's own words, which are no feedback and are not kept.
    event: FeedbackEvent | None
    memory: MemoryRecord | None = None
    issues: tuple[Issue, ...] = ()
    questions: tuple[Question, ...] = field(default=())

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields that should be filled in."""
        return tuple(one.field for one in self.questions)


def capture(services: Services, scope: Scope, report: FeedbackReport) -> Captured:
    """Keeps a report and makes of it what it allows."""
    with services.observer.timed("capture_feedback"):
        reading = read(report, scope, services.world.new_id(), services.world.now())
        if reading.is_own:
            message = "this is Meritory's own text, not feedback on it; nothing was kept"
            return Captured(False, "blocked", "own_text", message, None)
        reading = _known_memories(services, reading)
        services.store.write(
            lambda transaction: _keep_raw(transaction, reading.event, "captured", report)
        )
        return _finish(services, reading, report)


def complete(services: Services, scope: Scope, event_id: str, report: FeedbackReport) -> Captured:
    """Adds to a report what it lacked, and decides about it again."""
    old = services.store.feedback_event(scope.user, event_id)
    if old.status == "promoted":
        raise Conflict(
            f"{old.id} has become a lesson already",
            hint=f"report it anew, or edit the lesson: `meritory edit {old.memory_id}`",
        )
    given = {name: value for name, value in report.fields.items() if value is not None}
    signal = old.signal if report.signal is None else report.signal
    whole = FeedbackReport(
        signal, fields_of(old) | given, report.request_id, still_wrong(old, given)
    )
    reading = read(whole, old.scope, old.id, old.at)
    reading = replace(reading, event=replace(reading.event, completed_at=services.world.now()))
    reading = _known_memories(services, reading)
    services.store.write(
        lambda transaction: _keep_raw(transaction, reading.event, "completed", whole)
    )
    return _finish(services, reading, whole)


def _keep_raw(
    transaction: Transaction, event: FeedbackEvent, what: str, report: FeedbackReport
) -> None:
    if what == "captured":
        transaction.add_feedback(event)
    else:
        transaction.replace_feedback(event)
    transaction.count(event.user, f"feedback.{what}")
    transaction.log_events(event.user, [_told(event, what, report)])


def _told(
    event: FeedbackEvent, what: str, report: FeedbackReport, memory_id: str | None = None
) -> Event:
    """A line of the timeline: of its session, of its lesson, and under the report's own id."""
    return Event(
        at=event.completed_at or event.at,
        category="feedback",
        name=f"feedback.{what}",
        session_key=event.session_key,
        memory_id=memory_id,
        request_id=event.id,
        details={
            "id": event.id,
            "signal": feedback.name(event.polarity),
            "status": event.status,
            "reason": event.reason,
            "domain": event.domain,
            "occurrence": event.occurrence,
            "request": report.request_id,
        },
    )


# -- what memories it is about ----------------------------------------------------------------


def _known_memories(services: Services, reading: ReportReading) -> ReportReading:
    """The event with whole ids in place of prefixes and handles; others are named as issues."""
    event = reading.event
    if not event.memory_ids:
        return reading
    shown = _shown(services, event)
    found: dict[str, None] = {}
    issues = list(event.issues)
    for name in event.memory_ids:
        try:
            found[_named(services, event, shown, name)] = None
        except MeritoryError as error:
            issues.append(Issue("memory_ids", error.message))
    event = replace(event, memory_ids=tuple(found), issues=tuple(issues))
    return replace(reading, event=event)


def _shown(services: Services, event: FeedbackEvent) -> dict[str, str]:
    if event.session_key is None:
        return {}
    rows = services.store.shown(event.user, event.session_key)
    return {one.handle: one.memory_id for one in rows}


def _named(services: Services, event: FeedbackEvent, shown: Mapping[str, str], name: str) -> str:
    """The whole id; an agent speaks only of what it was shown, a person of anything of theirs."""
    if name.lower() in shown:
        return shown[name.lower()]
    within = None if event.origin == "user" else event.scope
    memory_id = services.store.get(event.user, name, within).id
    if event.origin != "user" and memory_id not in shown.values():
        raise InputError(f"{name[:_SHORT_ID_CHARS]!r} was not shown in this session")
    return memory_id


# -- what follows -----------------------------------------------------------------------------


def _finish(services: Services, reading: ReportReading, report: FeedbackReport) -> Captured:
    event, message = reading.event, reading.message
    if reading.may_promote:
        event = _aside(services, "promotion", lambda: _promoted(services, event, report)) or event
        message = _promoted_message(event)
    elif event.polarity and event.memory_ids:
        _aside(services, "belief", lambda: _rated(services, event))
    if event.polarity:
        _aside(services, "rules", lambda: _teach(services, event))
    named = [event.memory_id] if event.memory_id else []
    known = _aside(services, "reading", lambda: services.store.memories(event.user, named)) or {}
    return Captured(
        event.status == "promoted",
        event.status,
        event.reason,
        message,
        event,
        known.get(event.memory_id or ""),
        event.issues,
        reading.questions,
    )


def _aside(services: Services, stage: str, work: Callable[[], T]) -> T | None:
    """Does what follows from a report; whatever goes wrong is counted, the report stands."""
    try:
        return work()
    except Exception as error:
        services.observer.failed(f"{STAGE}_{stage}", error)
        return None


def _promoted_message(event: FeedbackEvent) -> str:
    if event.status != "promoted":
        return (
            "kept, but no lesson could be made of it just now; "
            f"`meritory feedback complete {event.id}` tries again"
        )
    if event.occurrence > 1:
        return f"the same as before: its lesson is now backed by {event.occurrence} reports"
    return "a lesson was made of it"


def _promoted(services: Services, event: FeedbackEvent, report: FeedbackReport) -> FeedbackEvent:
    """The event with the lesson it became, or the one that it strengthens."""
    mark = fingerprint(event.polarity, main_text(event.polarity, event.texts))
    link, lesson = _Link(event, report, mark), _lesson(services, event, mark)
    if lesson is not None:
        return _repeated(services, link, lesson)
    prepared = prepare_batch(services, [_draft(event)])
    promoted = services.store.write(lambda t: _told_or_written(services, t, link, prepared))
    publish(services, [_told(promoted, "promoted", report, promoted.memory_id)])
    return promoted


def _repeated(services: Services, link: _Link, lesson: MemoryRecord) -> FeedbackEvent:
    """The event, counted for the lesson, which takes over advice that it lacked."""
    event = services.store.write(lambda t: _linked(services, t, link, lesson))
    publish(services, [_told(event, "promoted", link.report, event.memory_id)])
    better = with_advice(lesson.content, event.texts)
    if better is not None:
        _aside(services, "advice", lambda: _advised(services, event, lesson, better))
    return event


def _advised(services: Services, event: FeedbackEvent, lesson: MemoryRecord, better: str) -> None:
    change.update(services, lesson, {"content": better}, by_person=event.origin == "user")


def _lesson(services: Services, event: FeedbackEvent, mark: str) -> MemoryRecord | None:
    """The live lesson that this wording stands for, or what took its place."""
    memory_id = services.store.lesson_for(event.scope, mark)
    for _ in range(_SUCCESSOR_STEPS):
        found = services.store.memories(event.user, [memory_id]) if memory_id else {}
        record = found.get(memory_id or "")
        if record is None or record.deleted_at is not None:
            # What a person took away is told anew.
            return None
        if record.superseded_by is None:
            return record
        memory_id = record.superseded_by
    return None


def _told_or_written(
    services: Services, transaction: Transaction, link: _Link, prepared: PreparedBatch
) -> FeedbackEvent:
    """The lesson that says the same in other words, else one of its own, made as any memory is."""
    lesson = _near(transaction, link.event, prepared)
    if lesson is None:
        (result,) = decide_batch(services, transaction, prepared)
        lesson = result.memory
        if lesson is None:
            raise result.error or InputError(result.reason)
    return _linked(services, transaction, link, lesson)


def _near(
    transaction: Transaction, event: FeedbackEvent, prepared: PreparedBatch
) -> MemoryRecord | None:
    """The same lesson among those nearest in meaning; its words decide."""
    (item,) = prepared.items
    if prepared.gate is None or not isinstance(item, Prepared):
        return None
    embedder = prepared.gate.embedder
    vector = item.memory.vectors.get(embedder)
    if vector is None:
        return None
    (found,) = transaction.nearest(
        NeighbourProbe(event.scope, embedder, vector[None, :], _NEAR_LIMIT, _NEAR_COSINE)
    )
    main = main_text(event.polarity, event.texts)
    same = (
        one.memory for one in found if is_same(told_in(event.polarity, one.memory.content), main)
    )
    return next(same, None)


def _draft(event: FeedbackEvent) -> Draft:
    return make_draft(
        lesson_text(event.polarity, event.texts),
        event.scope,
        {
            "kind": "lesson",
            "origin": event.origin,
            "importance": IMPORTANCE[event.polarity],
            "tags": (KIND_TAGS[event.polarity], *event.tags)[:_TAGS_KEPT],
            "source": {"harness": STAGE, "session_key": event.session_key},
        },
    )


@dataclass(frozen=True, slots=True)
class _Link:
    """A report, and the wording by which it is known again."""

    event: FeedbackEvent
    report: FeedbackReport
    mark: str


def _linked(
    services: Services, transaction: Transaction, link: _Link, lesson: MemoryRecord
) -> FeedbackEvent:
    """Counts the report for its lesson: a mistake that happens again confirms what warns of it."""
    event, user, lesson_id = link.event, link.event.user, lesson.id
    count = transaction.count_report(user, lesson_id, event.polarity, event.at)
    transaction.put_wording(event.scope, link.mark, lesson_id)
    event = replace(
        event,
        status="promoted",
        reason="recurrence" if count > 1 else "lesson",
        memory_id=lesson_id,
        occurrence=count,
    )
    transaction.replace_feedback(event)
    transaction.count(user, "feedback.promoted")
    _believe(services, transaction, event)
    transaction.log_events(user, [_told(event, "promoted", link.report, lesson_id)])
    return event


def _rated(services: Services, event: FeedbackEvent) -> None:
    services.store.write(lambda transaction: _believe(services, transaction, event))


def _believe(services: Services, transaction: Transaction, event: FeedbackEvent) -> None:
    """Lets the report speak for its lesson, and for or against the memories it names."""
    now = event.completed_at or event.at
    said = {one: _word(event, event.polarity, now) for one in event.memory_ids}
    if event.memory_id is not None:
        said[event.memory_id] = _word(event, feedback.UP, now)
    proofs = services.store.proofs(event.user, list(said))
    heard = transaction.add_testimony(event.user, event.id, said)
    beliefs = {one: believed(proofs.get(one, ()), words, now) for one, words in heard.items()}
    keep(transaction, event.user, beliefs)


def _word(event: FeedbackEvent, value: int, now: datetime) -> Testimony:
    witness: Witness = "person" if event.origin == "user" else "agent"
    return Testimony(now, witness, float(value), event.session_key)


def _teach(services: Services, event: FeedbackEvent) -> Any:
    """Lets rules be learned from the report."""
    facts = EventFacts(
        event_id=event.id,
        at=event.at,
        session_key=event.session_key,
        polarity=event.polarity,
        texts=tuple(event.texts.values()),
        tags=event.tags,
        domain=event.domain,
        last_action=event.last_action,
        memory_id=event.memory_id,
        count=event.occurrence,
        origin=event.origin,
    )
    return learn.learn_from(services, event.scope, facts)
