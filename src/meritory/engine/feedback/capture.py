"""Capture feedback: store every report, and turn an actionable one into a lesson.

A report is read (`reading.py`) and stored before anything else is tried. Then it may become a
lesson, changes the belief in memories, and teaches rules. None of these steps can fail the report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from meritory.domain.errors import Conflict, InputError, MeritoryError
from meritory.domain.feedback import FeedbackEvent, Issue, Testimony, Witness
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.session import Event
from meritory.engine.feedback.reading import (
    FeedbackReport,
    ReportReading,
    fields_of,
    read,
    still_wrong,
)
from meritory.engine.learning.label import count_testimony
from meritory.engine.memories.validate import make_draft
from meritory.engine.memories.write import (
    Prepared,
    PreparedBatch,
    decide_batch,
    prepare_batch,
    update,
)
from meritory.engine.observe.observer import publish
from meritory.engine.rules.learn import learn_from
from meritory.engine.services import Services
from meritory.store.contract.memories import NeighbourProbe
from meritory.store.contract.store import Transaction
from meritory.text import feedback

T = TypeVar("T")
# A warning matters more than a success.
IMPORTANCE = {feedback.DOWN: 0.7, feedback.UP: 0.5}
KIND_TAGS = {feedback.DOWN: "mistake", feedback.UP: "success"}
STAGE = "feedback"
_SUCCESSOR_STEPS = 8
_TAGS_KEPT = 32
# How many near lessons are compared with a new one, and from which cosine on.
_NEAR_LIMIT, _NEAR_COSINE = 8, 0.5
_SHORT_ID_CHARS = 40


@dataclass(frozen=True, slots=True)
class Captured:
    """The result of a report; `questions` name the missing fields."""

    accepted: bool
    status: Literal["promoted", "clarification_required", "rejected", "blocked"]
    reason: str
    message: str
    # None only for a quote of Meritory's own text, which is not stored.
    event: FeedbackEvent | None
    memory: MemoryRecord | None = None
    issues: tuple[Issue, ...] = ()
    questions: tuple[feedback.Question, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields that should be filled in."""
        return tuple(question.field for question in self.questions)


def capture(services: Services, scope: Scope, report: FeedbackReport) -> Captured:
    """Store a new report and act on it."""
    with services.observer.timed("capture_feedback"):
        reading = read(report, scope, services.world.new_id(), services.world.now())
        if reading.is_own:
            message = "the text is Meritory's own output, not feedback; nothing was stored"
            return Captured(False, "blocked", "own_text", message, None)
        return _process(services, reading, report.request_id, "captured")


def complete(services: Services, scope: Scope, event_id: str, report: FeedbackReport) -> Captured:
    """Add missing fields to a stored report and act on it again."""
    old = services.store.feedback_event(scope.user, event_id)
    if old.status == "promoted":
        raise Conflict(
            f"{old.id} has already become a lesson",
            hint=f"send a new report, or edit the lesson: `meritory edit {old.memory_id}`",
        )
    given = {name: value for name, value in report.fields.items() if value is not None}
    signal = old.signal if report.signal is None else report.signal
    whole = FeedbackReport(
        signal, fields_of(old) | given, report.request_id, still_wrong(old, given)
    )
    reading = read(whole, old.scope, old.id, old.at)
    reading = replace(reading, event=replace(reading.event, completed_at=services.world.now()))
    return _process(services, reading, report.request_id, "completed")


def _process(
    services: Services,
    reading: ReportReading,
    request_id: str | None,
    action: Literal["captured", "completed"],
) -> Captured:
    """Store a report, then promote it, update beliefs and learn rules."""
    event, message = reading.event, reading.message
    if not services.is_person:
        event = replace(event, origin="agent")
    event = _resolve_memory_ids(services, event)

    def store(transaction: Transaction) -> None:
        put = transaction.add_feedback if action == "captured" else transaction.replace_feedback
        put(event)
        transaction.count(event.user, f"feedback.{action}")
        transaction.log_events(event.user, [_timeline_event(event, action, request_id)])

    services.store.write(event.user, store)
    if not reading.may_promote:
        final = event
        if event.polarity and event.memory_ids:
            write = partial(services.store.write, event.user)
            _attempt(services, "belief", lambda: write(partial(_update_beliefs, services, event)))
    else:
        promoted = _attempt(services, "promotion", lambda: _promote(services, event, request_id))
        final = promoted or event
        if promoted is None:
            message = (
                "stored, but it could not be made a lesson now; "
                f"`meritory feedback complete {event.id}` tries again"
            )
        elif promoted.occurrence > 1:
            message = f"reported before: its lesson now has {promoted.occurrence} reports"
        else:
            message = "it became a lesson"
    if final.polarity:
        _attempt(services, "rules", lambda: learn_from(services, final))
    ids = [final.memory_id] if final.memory_id else []
    memories = _attempt(services, "reading", lambda: services.store.memories(final.user, ids))
    return Captured(
        final.status == "promoted",
        final.status,
        final.reason,
        message,
        final,
        (memories or {}).get(final.memory_id or ""),
        final.issues,
        reading.questions,
    )


def _attempt(services: Services, stage: str, work: Callable[[], T]) -> T | None:
    """Run one step after a report; a failure is counted and does not fail the report."""
    try:
        return work()
    except Exception as error:
        services.observer.failed(f"{STAGE}_{stage}", error)
        return None


def _timeline_event(
    event: FeedbackEvent, action: str, request_id: str | None, memory_id: str | None = None
) -> Event:
    return Event(
        at=event.completed_at or event.at,
        category="feedback",
        name=f"feedback.{action}",
        session_key=event.session_key,
        memory_id=memory_id,
        request_id=event.id,
        details={
            "id": event.id,
            "signal": feedback.polarity_name(event.polarity),
            "status": event.status,
            "reason": event.reason,
            "domain": event.domain,
            "occurrence": event.occurrence,
            "request": request_id,
        },
    )


def _resolve_memory_ids(services: Services, event: FeedbackEvent) -> FeedbackEvent:
    """Replace handles and prefixes by memory ids; unknown ones become issues."""
    if not event.memory_ids:
        return event
    key, is_person = event.session_key, event.origin == "user"
    rows = [] if key is None else services.store.shown(event.user, key)
    shown = {row.handle: row.memory_id for row in rows}
    ids: dict[str, None] = {}
    issues = list(event.issues)
    for given in event.memory_ids:
        memory_id = shown.get(given.lower())
        try:
            if memory_id is None:
                # A person may name any memory of theirs, an agent only those shown to it.
                within = None if is_person else event.scope
                memory_id = services.store.get(event.user, given, within).id
                if not is_person and memory_id not in shown.values():
                    raise InputError(f"{given[:_SHORT_ID_CHARS]!r} was not shown in this session")
            ids[memory_id] = None
        except MeritoryError as error:
            issues.append(Issue("memory_ids", error.message))
    return replace(event, memory_ids=tuple(ids), issues=tuple(issues))


# -- lessons ----------------------------------------------------------------------------------


def _promote(services: Services, event: FeedbackEvent, request_id: str | None) -> FeedbackEvent:
    """Make a report a lesson, or count it for the lesson that says the same."""
    mark = feedback.fingerprint(event.polarity, feedback.main_text(event.polarity, event.texts))
    lesson = _existing_lesson(services, event, mark)
    target: MemoryRecord | PreparedBatch
    if lesson is not None:
        target = lesson
    else:
        fields = {
            "kind": "lesson",
            "origin": event.origin,
            "importance": IMPORTANCE[event.polarity],
            "tags": (KIND_TAGS[event.polarity], *event.tags)[:_TAGS_KEPT],
            "source": {"harness": STAGE, "session_key": event.session_key},
        }
        draft = make_draft(feedback.lesson_text(event.polarity, event.texts), event.scope, fields)
        target = prepare_batch(services, [draft])

    def work(transaction: Transaction) -> tuple[FeedbackEvent, Event]:
        found = target
        if isinstance(found, PreparedBatch):
            found = _find_or_store_lesson(services, transaction, event, found)
        memory_id = found.id
        count = transaction.count_report(event.user, memory_id, event.polarity, event.at)
        transaction.put_wording(event.scope, mark, memory_id)
        promoted = replace(
            event,
            status="promoted",
            reason="recurrence" if count > 1 else "lesson",
            memory_id=memory_id,
            occurrence=count,
        )
        transaction.replace_feedback(promoted)
        transaction.count(event.user, "feedback.promoted")
        _update_beliefs(services, promoted, transaction)
        logged = _timeline_event(promoted, "promoted", request_id, memory_id)
        transaction.log_events(event.user, [logged])
        return promoted, logged

    promoted, logged = services.store.write(event.user, work)
    publish(services, [logged])
    better = None if lesson is None else feedback.with_advice(lesson.content, event.texts)
    if lesson is not None and better is not None:
        content, origin = {"content": better}, event.origin
        _attempt(services, "advice", lambda: update(services, lesson, content, origin=origin))
    return promoted


def _existing_lesson(services: Services, event: FeedbackEvent, mark: str) -> MemoryRecord | None:
    """Return the live lesson with this wording, or its successor."""
    memory_id = services.store.lesson_for(event.scope, mark)
    for _ in range(_SUCCESSOR_STEPS):
        records = services.store.memories(event.user, [memory_id]) if memory_id else {}
        record = records.get(memory_id or "")
        if record is None or record.deleted_at is not None:
            # A lesson that a person deleted is made again.
            return None
        if record.superseded_by is None:
            return record
        memory_id = record.superseded_by
    return None


def _find_or_store_lesson(
    services: Services, transaction: Transaction, event: FeedbackEvent, prepared: PreparedBatch
) -> MemoryRecord:
    """Return a near lesson that says the same in other words, else store a new one."""
    (item,) = prepared.items
    gate = prepared.gate
    vector = item.memory.vectors.get(gate.embedder) if gate and isinstance(item, Prepared) else None
    if gate is not None and vector is not None:
        asked = (event.scope, gate.embedder, vector[None, :], _NEAR_LIMIT, _NEAR_COSINE)
        (neighbours,) = transaction.nearest(NeighbourProbe(*asked))
        main = feedback.main_text(event.polarity, event.texts)
        for neighbour in neighbours:
            if feedback.is_same(
                feedback.lesson_subject(event.polarity, neighbour.memory.content), main
            ):
                return neighbour.memory
    (result,) = decide_batch(services, transaction, prepared)
    if result.memory is None:
        raise result.error or InputError(result.reason)
    return result.memory


def _update_beliefs(services: Services, event: FeedbackEvent, transaction: Transaction) -> None:
    """Count the report as evidence for its lesson, and for or against the memories it names."""
    now = event.completed_at or event.at
    witness: Witness = "person" if event.origin == "user" else "agent"

    def testimony(value: int) -> Testimony:
        return Testimony(now, witness, float(value), event.session_key)

    added = {memory_id: testimony(event.polarity) for memory_id in event.memory_ids}
    if event.memory_id is not None:
        added[event.memory_id] = testimony(feedback.UP)
    count_testimony(services.store, transaction, event.user, event.id, added)
