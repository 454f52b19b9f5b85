"""From what somebody reported to an event that can be kept: cut, redacted, read and decided."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, cast

from meritory.domain.codec import moment_text, parse_moment
from meritory.domain.errors import InputError
from meritory.domain.feedback import TEXTS, FeedbackEvent, Issue
from meritory.domain.memory import NAME_LIMIT_CHARS, TAG_LIMIT_CHARS, TAG_LIMIT_COUNT, Origin, Scope
from meritory.engine.memories.validate import checked_choice, checked_name, known_fields, screened
from meritory.rank.feedback import QualityFacts, quality
from meritory.rank.rubric import RubricVerdict, evaluate, read_guardrails, read_scores
from meritory.text import feedback
from meritory.text import feedback as feedback_questions
from meritory.text.feedback import diagnose
from meritory.text.ratings_trailer import strip_own
from meritory.text.secrets import find_secrets, redact

TEXT_LIMIT_CHARS = 8_192
SKILL_LIMIT_CHARS = 256
PARTS_LIMIT_CHARS = 65_536
SIGNAL_LIMIT_CHARS = 64
MEMORY_IDS_LIMIT_COUNT = 64
# A secret that is cut in two is not known as one any more, so more is read than is kept.
_MARGIN_CHARS = 1_024
_CONTEXT_CHARS_MIN = 20
# What the guard says when it stops a call; its warnings are remarks like any other of ours.
_OWN_BLOCK = re.compile(r"Meritory blocks this\b[^\n]*")
ACTION_FIELDS = ("tool", "context_key", "file", "timestamp")
FIELDS = (
    *("context", "what_went_wrong", "what_to_change", "what_worked", "reasoning"),
    *("visual_evidence", "skill", "tags", "rubric_scores", "guardrails", "last_action"),
    *("memory_ids", "session_key", "origin"),
)
_RUBRIC = "rubric"
_WITNESSES = ("user", "agent")


@dataclass(frozen=True, slots=True)
class FeedbackReport:
    """Feedback as somebody gives it; whatever is wrong with it is told, not raised."""

    signal: object
    fields: Mapping[str, Any]
    request_id: str | None = None
    # What was found wrong with it before, and was not put right since.
    issues: tuple[Issue, ...] = ()

    def __post_init__(self) -> None:
        known_fields(self.fields, FIELDS)


@dataclass(frozen=True, slots=True)
class ReportReading:
    """An event as it was read, whether it may become a lesson, and what to ask if not."""

    event: FeedbackEvent
    may_promote: bool = False
    message: str = ""
    questions: tuple[feedback_questions.Question, ...] = ()
    # Nothing is left when Meritory's own text is taken out of it.
    is_own: bool = False


class _ReportReader:
    """Reads the fields of one report and notes what is wrong with them."""

    def __init__(self, report: FeedbackReport) -> None:
        self._fields = report.fields
        self.issues = list(report.issues)
        self.was_own = False

    def note(self, field: str, message: str) -> None:
        """Notes what is wrong with a field."""
        self.issues.append(Issue(field, message))

    def text(self, name: str) -> str:
        """A text without secrets, without what is ours, and not too long."""
        value = self._fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.note(name, f"must be text, not {type(value).__name__}; kept as it came")
            value = _written_out(value)
        limit = SKILL_LIMIT_CHARS if name == "skill" else TEXT_LIMIT_CHARS
        if len(value) > limit:
            self.note(name, f"has {len(value):,} characters; the first {limit:,} are kept")
        raw = storable(value[: limit + _MARGIN_CHARS])
        own = _OWN_BLOCK.sub("", strip_own(raw)).strip()
        self.was_own = self.was_own or own != raw.strip()
        return self._redacted(name, own)[:limit]

    def _redacted(self, name: str, text: str) -> str:
        if not find_secrets(text):
            return text
        self.note(name, "held a secret, which was taken out of it")
        return redact(text)

    def items(self, name: str, limit: int) -> list[str]:
        """A list of words, or one text with commas."""
        value = self._fields.get(name)
        if value is None:
            return []
        found = value.split(",") if isinstance(value, str) else value
        if not isinstance(found, list | tuple | set | frozenset):
            self.note(name, "must be a list of words, or one text with commas")
            return []
        words = [one.strip() for one in found if isinstance(one, str) and one.strip()]
        clean = [one for one in words if not find_secrets(one[:_MARGIN_CHARS])]
        if len(clean) < len(words):
            self.note(name, "one held a secret and was left out")
            words = clean
        if len(words) > limit:
            self.note(name, f"has {len(words)} entries; the first {limit} count")
        return list(dict.fromkeys(words))[:limit]

    def tags(self) -> list[str]:
        """The tags that somebody gave, in lower case."""
        kept = []
        for tag in self.items("tags", TAG_LIMIT_COUNT):
            plain = storable(tag).lstrip("#").strip().casefold()
            if not plain or len(plain) > TAG_LIMIT_CHARS or not plain.isprintable():
                self.note("tags", f"a tag has 1 to {TAG_LIMIT_CHARS} printable characters")
            else:
                kept.append(plain)
        return kept

    def clean(self, name: str) -> Any:
        """A value of several parts without secrets; nothing when it is far too long."""
        value = self._fields.get(name)
        if value is None:
            return None
        told = _written_out(value)
        if len(told) > PARTS_LIMIT_CHARS:
            self.note(name, f"has more than {PARTS_LIMIT_CHARS:,} characters and was left out")
            return None
        if not find_secrets(told):
            return value
        self.note(name, "held a secret, which was taken out of it")
        try:
            return json.loads(redact(told))
        except ValueError:
            return None

    def action(self) -> dict[str, str] | None:
        """What the agent did last, as far as it was told."""
        value = self.clean("last_action")
        if value is None:
            return None
        if isinstance(value, str):
            value = {"tool": value}
        if not isinstance(value, Mapping):
            self.note("last_action", f"must be an object with {', '.join(ACTION_FIELDS)}")
            return None
        found = {}
        for name, told in value.items():
            if name not in ACTION_FIELDS:
                self.note("last_action", f"has no field {str(name)[:40]!r}")
            elif isinstance(told, datetime):
                found[name] = moment_text(told)
            elif isinstance(told, str) and told.strip():
                found[name] = storable(told)[:NAME_LIMIT_CHARS].strip()
            elif told is not None:
                self.note("last_action", f"{name} must be text")
        if "timestamp" in found:
            self._check_moment(found)
        return found or None

    def _check_moment(self, action: dict[str, str]) -> None:
        try:
            action["timestamp"] = moment_text(parse_moment(action["timestamp"], "timestamp"))
        except InputError as error:
            self.note("last_action", error.message)
            del action["timestamp"]

    def session_key(self) -> str | None:
        """The session it happened in."""
        value = self._fields.get("session_key")
        if value is None:
            return None
        try:
            return screened(str(checked_name("session_key", value)), "refuse")
        except InputError as error:
            self.note("session_key", error.message)
            return None

    def _judgement(self, name: str) -> Any:
        found = self.clean(name)
        if found is None and self._fields.get(name) is not None:
            raise InputError(f"{name} could not be read")
        return found

    def rubric(self) -> tuple[dict[str, Any] | None, RubricVerdict | None]:
        """What was scored, and the verdict; nothing when it cannot be read."""
        try:
            scores = read_scores(self._judgement("rubric_scores"))
            told = read_guardrails(self._judgement("guardrails"))
            guardrails = {storable(name): held for name, held in told.items()}
        except InputError as error:
            self.note(_RUBRIC, str(error))
            return None, None
        verdict = evaluate(scores, guardrails)
        if verdict is None:
            return None, None
        kept = [
            asdict(one) | {"evidence": storable(one.evidence), "judge": storable(one.judge)}
            for one in scores
        ]
        seen = asdict(verdict) | {"reasons": verdict.reasons, "is_eligible": verdict.is_eligible}
        return {"scores": kept, "guardrails": guardrails, **_as_read(seen)}, verdict


def _written_out(value: object) -> str:
    """Any value as JSON, or however it shows itself."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _as_read(told: dict[str, Any]) -> dict[str, Any]:
    """The same with lists for tuples, as it comes back from the store."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in told.items()
    }


def storable(text: str) -> str:
    """The text without what no database can keep."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def read(report: FeedbackReport, scope: Scope, event_id: str, now: datetime) -> ReportReading:
    """The event that a report is, with the decision about it."""
    reader = _ReportReader(report)
    polarity = feedback.polarity(report.signal) or 0
    texts: dict[str, Any] = {name: reader.text(name) for name in TEXTS}
    is_own = reader.was_own and not any(texts.values())
    _let_context_speak(polarity, texts)
    given, about = reader.tags(), feedback.read_topics(set(texts.values()))
    rubric, verdict = reader.rubric()
    origin = checked_choice("origin", report.fields.get("origin") or "user", _WITNESSES)
    event = FeedbackEvent(
        id=event_id,
        at=now,
        # Cut afterwards: half a secret is not known for one.
        signal=redact(storable(str(report.signal)))[:SIGNAL_LIMIT_CHARS],
        polarity=polarity,
        status="rejected",
        user=scope.user,
        project=scope.project,
        agent=scope.agent,
        session_key=reader.session_key(),
        origin=cast("Origin", origin),
        tags=tuple(dict.fromkeys((*given, *about))),
        domain=feedback.domain(given, about),
        last_action=reader.action(),
        rubric=rubric,
        memory_ids=tuple(reader.items("memory_ids", MEMORY_IDS_LIMIT_COUNT)),
        issues=tuple(dict.fromkeys(reader.issues)),
    )
    event = replace(event, **texts)
    is_actionable = polarity != 0 and feedback_questions.is_actionable(polarity, event.texts)
    reading = _decided(_judged(event, verdict, is_actionable), verdict, is_actionable)
    return replace(reading, is_own=is_own)


def _let_context_speak(polarity: int, texts: dict[str, str]) -> None:
    """A context that says enough stands for what went wrong, or for what worked."""
    main = {feedback.UP: "what_worked", feedback.DOWN: "what_went_wrong"}.get(polarity)
    if main and not texts[main] and feedback_questions.tells_all(texts["context"]):
        texts[main] = texts["context"]


def _judged(
    event: FeedbackEvent, verdict: RubricVerdict | None, is_actionable: bool
) -> FeedbackEvent:
    """The event with its diagnosis and its quality."""
    is_down = event.polarity == feedback.DOWN
    found = None
    if is_down or (verdict and (verdict.failing or verdict.failed_guardrails)):
        # What to change is advice, and praise names no cause.
        about = ("what_went_wrong", "context", "reasoning") if is_down else ()
        said = {event.texts[name]: name for name in reversed(about) if name in event.texts}
        found = diagnose(
            {name: text for text, name in said.items()},
            verdict.failing if verdict else (),
            verdict.failed_guardrails if verdict else (),
        )
    facts = QualityFacts(
        is_actionable=is_actionable,
        has_context=len(event.context) >= _CONTEXT_CHARS_MIN,
        has_advice=bool(event.what_to_change if is_down else event.reasoning),
        has_action=event.last_action is not None,
        has_rubric=verdict is not None,
        has_tags=bool(event.tags),
    )
    told = None if found is None else _as_read(asdict(found))
    return replace(event, diagnosis=told, quality=quality(facts))


def _decided(
    event: FeedbackEvent, verdict: RubricVerdict | None, is_actionable: bool
) -> ReportReading:
    """Whether it may become a lesson; a rubric speaks against praise only, never against blame."""
    if event.polarity == 0:
        known = ", ".join(feedback.SIGNALS)
        return _refused(
            event,
            "unknown_signal",
            f"{event.signal[:40]!r} is no signal; known are {known}. The text is kept: complete"
            f" {event.id} with a signal",
        )
    is_malformed = any(issue.field == _RUBRIC for issue in event.issues)
    if event.polarity == feedback.UP and (is_malformed or (verdict and not verdict.is_eligible)):
        told = _told(event.issues, _RUBRIC) if verdict is None else verdict.reasons
        reason = "rubric_malformed" if verdict is None else "rubric_veto"
        return _refused(event, reason, f"kept, but it becomes no lesson: {'; '.join(told)}")
    if not is_actionable:
        asked = feedback_questions.questions(event.polarity, event.texts)
        event = replace(event, status="clarification_required", reason="not_actionable")
        missing = ", ".join(one.field for one in asked)
        message = f"kept, but nobody could act on it. {asked[0].question} (missing: {missing})"
        return ReportReading(event, message=message, questions=asked)
    return ReportReading(replace(event, reason="not_promoted"), may_promote=True)


def _refused(event: FeedbackEvent, reason: str, message: str) -> ReportReading:
    return ReportReading(replace(event, reason=reason), message=message)


def _told(issues: Iterable[Issue], field: str) -> tuple[str, ...]:
    return tuple(issue.message for issue in issues if issue.field == field)


def fields_of(event: FeedbackEvent) -> dict[str, Any]:
    """What was reported, as the fields of a report, to be read again with more."""
    rubric = event.rubric or {}
    return {
        **event.texts,
        "tags": list(event.tags),
        "rubric_scores": rubric.get("scores"),
        "guardrails": rubric.get("guardrails"),
        "last_action": event.last_action,
        "memory_ids": list(event.memory_ids),
        "session_key": event.session_key,
        "origin": event.origin,
    }


def still_wrong(event: FeedbackEvent, given: Iterable[str]) -> tuple[Issue, ...]:
    """The issues of a report that what is given now does not put right."""
    mended = {_RUBRIC if name in ("rubric_scores", "guardrails") else name for name in given}
    return tuple(issue for issue in event.issues if issue.field not in mended)
