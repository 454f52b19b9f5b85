"""Read a report: cut and redact its fields, diagnose it, and decide whether it becomes a lesson."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, cast

from meritory.domain.errors import InputError
from meritory.domain.feedback import TEXTS, FeedbackEvent, Issue
from meritory.domain.memory import NAME_LIMIT_CHARS, TAG_LIMIT_CHARS, TAG_LIMIT_COUNT, Origin, Scope
from meritory.domain.world import moment_text, parse_moment
from meritory.engine.memories.validate import checked_choice, checked_name, known_fields, screened
from meritory.rank.feedback import (
    RubricVerdict,
    evaluate,
    quality,
    read_guardrails,
    read_scores,
)
from meritory.text import feedback
from meritory.text.ratings_trailer import strip_own
from meritory.text.secrets import find_secrets, redact

TEXT_LIMIT_CHARS = 8_192
SKILL_LIMIT_CHARS = 256
PARTS_LIMIT_CHARS = 65_536
SIGNAL_LIMIT_CHARS = 64
MEMORY_IDS_LIMIT_COUNT = 64
# A secret that is cut in two is not recognised, so more is searched than is stored.
_MARGIN_CHARS = 1_024
_CONTEXT_CHARS_MIN = 20
# The guard's message when it blocks a call.
_OWN_BLOCK = re.compile(r"Meritory blocks this\b[^\n]*")
ACTION_FIELDS = ("tool", "context_key", "file", "timestamp")
FIELDS = (
    *TEXTS,
    *("tags", "rubric_scores", "guardrails", "last_action", "memory_ids", "session_key", "origin"),
)
_RUBRIC = "rubric"
_MAIN_FIELDS = {feedback.UP: "what_worked", feedback.DOWN: "what_went_wrong"}


@dataclass(frozen=True, slots=True)
class FeedbackReport:
    """Feedback as it is given; a wrong value becomes an issue, not an error."""

    signal: object
    fields: Mapping[str, Any]
    request_id: str | None = None
    # Issues of an earlier version of the report that are not fixed.
    issues: tuple[Issue, ...] = ()

    def __post_init__(self) -> None:
        known_fields(self.fields, FIELDS)


@dataclass(frozen=True, slots=True)
class ReportReading:
    """The event of a report, whether it may become a lesson, and the questions if not."""

    event: FeedbackEvent
    may_promote: bool = False
    message: str = ""
    questions: tuple[feedback.Question, ...] = ()
    # The report contains nothing but Meritory's own text.
    is_own: bool = False


def read(report: FeedbackReport, scope: Scope, event_id: str, now: datetime) -> ReportReading:
    """Return the event of a report and the decision about it."""
    reader = _ReportReader(report)
    polarity = feedback.polarity(report.signal) or 0
    texts: dict[str, Any] = {name: reader.text(name) for name in TEXTS}
    is_own = reader.was_own and not any(texts.values())
    main = _MAIN_FIELDS.get(polarity)
    if main and not texts[main] and feedback.is_complete(texts["context"]):
        texts[main] = texts["context"]
    tags, topics = reader.tags(), feedback.read_topics(set(texts.values()))
    rubric, verdict = reader.rubric()
    origin = checked_choice("origin", report.fields.get("origin") or "user", ("user", "agent"))
    event = FeedbackEvent(
        id=event_id,
        at=now,
        # Redact before cutting: half a secret is not recognised.
        signal=redact(storable(str(report.signal)))[:SIGNAL_LIMIT_CHARS],
        polarity=polarity,
        status="rejected",
        user=scope.user,
        project=scope.project,
        agent=scope.agent,
        session_key=reader.session_key(),
        origin=cast("Origin", origin),
        tags=tuple(dict.fromkeys((*tags, *topics))),
        domain=feedback.domain(tags, topics),
        last_action=reader.action(),
        rubric=rubric,
        memory_ids=tuple(reader.items("memory_ids", MEMORY_IDS_LIMIT_COUNT)),
        issues=tuple(dict.fromkeys(reader.issues)),
        **texts,
    )
    is_down = polarity == feedback.DOWN
    is_actionable = polarity != 0 and feedback.is_actionable(polarity, event.texts)
    facts = {
        "is_actionable": is_actionable,
        "has_context": len(event.context) >= _CONTEXT_CHARS_MIN,
        "has_advice": bool(event.what_to_change if is_down else event.reasoning),
        "has_action": event.last_action is not None,
        "has_rubric": verdict is not None,
        "has_tags": bool(event.tags),
    }
    failing = verdict.failing if verdict else ()
    failed_guardrails = verdict.failed_guardrails if verdict else ()
    diagnosis = None
    if is_down or failing or failed_guardrails:
        # Advice and praise name no cause. Of equal texts the first field counts.
        names = ("what_went_wrong", "context", "reasoning") if is_down else ()
        field_of = {event.texts[name]: name for name in reversed(names) if name in event.texts}
        causes = {name: text for text, name in field_of.items()}
        diagnosis = feedback.diagnose(causes, failing, failed_guardrails)
    event = replace(
        event,
        diagnosis=None if diagnosis is None else _lists_for_tuples(asdict(diagnosis)),
        quality=quality(facts),
    )
    return replace(_decide(event, verdict, is_actionable), is_own=is_own)


def _decide(
    event: FeedbackEvent, verdict: RubricVerdict | None, is_actionable: bool
) -> ReportReading:
    """Decide whether a report becomes a lesson. A rubric can veto praise, but not a complaint."""
    if event.polarity == 0:
        message = (
            f"unknown signal: {event.signal[:40]!r}. Known signals: {', '.join(feedback.SIGNALS)}."
            f" The text is stored: complete {event.id} with a signal"
        )
        return ReportReading(replace(event, reason="unknown_signal"), message=message)
    problems = [issue.message for issue in event.issues if issue.field == _RUBRIC]
    if event.polarity == feedback.UP and (problems or (verdict and not verdict.is_eligible)):
        reasons = problems if verdict is None else verdict.reasons
        reason = "rubric_malformed" if verdict is None else "rubric_veto"
        message = f"stored, but it does not become a lesson: {'; '.join(reasons)}"
        return ReportReading(replace(event, reason=reason), message=message)
    if not is_actionable:
        questions = feedback.questions(event.polarity, event.texts)
        event = replace(event, status="clarification_required", reason="not_actionable")
        missing = ", ".join(question.field for question in questions)
        message = f"stored, but not actionable. {questions[0].question} (missing: {missing})"
        return ReportReading(event, message=message, questions=questions)
    return ReportReading(replace(event, reason="not_promoted"), may_promote=True)


class _ReportReader:
    """Reads the fields of one report and collects their issues."""

    def __init__(self, report: FeedbackReport) -> None:
        self._fields = report.fields
        self.issues = list(report.issues)
        self.was_own = False

    def note(self, field: str, message: str) -> None:
        """Add an issue."""
        self.issues.append(Issue(field, message))

    def text(self, name: str) -> str:
        """Return a text without secrets and Meritory's own output, cut to its limit."""
        value = self._fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.note(name, f"must be text, not {type(value).__name__}; stored as JSON")
            value = _json_text(value)
        limit = SKILL_LIMIT_CHARS if name == "skill" else TEXT_LIMIT_CHARS
        if len(value) > limit:
            self.note(name, f"has {len(value):,} characters; the first {limit:,} are stored")
        raw = storable(value[: limit + _MARGIN_CHARS])
        text = _OWN_BLOCK.sub("", strip_own(raw)).strip()
        self.was_own = self.was_own or text != raw.strip()
        if find_secrets(text):
            self.note(name, "contained a secret, which was redacted")
            text = redact(text)
        return text[:limit]

    def items(self, name: str, limit: int) -> list[str]:
        """Return the words of a list or of a comma-separated text."""
        value = self._fields.get(name)
        if value is None:
            return []
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, list | tuple | set | frozenset):
            self.note(name, "must be a list or a comma-separated text")
            return []
        words = [word.strip() for word in given if isinstance(word, str) and word.strip()]
        clean = [word for word in words if not find_secrets(word[:_MARGIN_CHARS])]
        if len(clean) < len(words):
            self.note(name, "one entry contained a secret and was left out")
            words = clean
        if len(words) > limit:
            self.note(name, f"has {len(words)} entries; the first {limit} count")
        return list(dict.fromkeys(words))[:limit]

    def tags(self) -> list[str]:
        """Return the given tags in lower case."""
        tags = []
        for word in self.items("tags", TAG_LIMIT_COUNT):
            tag = storable(word).lstrip("#").strip().casefold()
            if not tag or len(tag) > TAG_LIMIT_CHARS or not tag.isprintable():
                self.note("tags", f"a tag has 1 to {TAG_LIMIT_CHARS} printable characters")
            else:
                tags.append(tag)
        return tags

    def clean(self, name: str) -> Any:
        """Return a structured value without secrets; None if it is too long."""
        value = self._fields.get(name)
        if value is None:
            return None
        text = _json_text(value)
        if len(text) > PARTS_LIMIT_CHARS:
            self.note(name, f"has more than {PARTS_LIMIT_CHARS:,} characters and was left out")
            return None
        if not find_secrets(text):
            return value
        self.note(name, "contained a secret, which was redacted")
        try:
            return json.loads(redact(text))
        except ValueError:
            return None

    def action(self) -> dict[str, str] | None:
        """Return the last action of the agent."""
        value = self.clean("last_action")
        if value is None:
            return None
        if isinstance(value, str):
            value = {"tool": value}
        if not isinstance(value, Mapping):
            self.note("last_action", f"must be an object with {', '.join(ACTION_FIELDS)}")
            return None
        action = {}
        for name, given in value.items():
            if name not in ACTION_FIELDS:
                self.note("last_action", f"unknown field {str(name)[:40]!r}")
            elif isinstance(given, datetime):
                action[name] = moment_text(given)
            elif isinstance(given, str) and given.strip():
                action[name] = storable(given)[:NAME_LIMIT_CHARS].strip()
            elif given is not None:
                self.note("last_action", f"{name} must be text")
        if "timestamp" in action:
            try:
                action["timestamp"] = moment_text(parse_moment(action["timestamp"], "timestamp"))
            except InputError as error:
                self.note("last_action", error.message)
                del action["timestamp"]
        return action or None

    def session_key(self) -> str | None:
        """Return the key of the session that the report is about."""
        value = self._fields.get("session_key")
        if value is None:
            return None
        try:
            return screened(str(checked_name("session_key", value)), "refuse")
        except InputError as error:
            self.note("session_key", error.message)
            return None

    def rubric(self) -> tuple[dict[str, Any] | None, RubricVerdict | None]:
        """Return the rubric as it is stored, and its verdict; None if it is malformed."""

        def part(name: str) -> Any:
            value = self.clean(name)
            if value is None and self._fields.get(name) is not None:
                raise InputError(f"{name} could not be read")
            return value

        try:
            scores = read_scores(part("rubric_scores"))
            held = read_guardrails(part("guardrails"))
            guardrails = {storable(name): is_held for name, is_held in held.items()}
        except InputError as error:
            self.note(_RUBRIC, str(error))
            return None, None
        verdict = evaluate(scores, guardrails)
        if verdict is None:
            return None, None
        rows = [
            asdict(score) | {"evidence": storable(score.evidence), "judge": storable(score.judge)}
            for score in scores
        ]
        details = asdict(verdict) | {"reasons": verdict.reasons, "is_eligible": verdict.is_eligible}
        return {"scores": rows, "guardrails": guardrails, **_lists_for_tuples(details)}, verdict


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _lists_for_tuples(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value as the store reads it back."""
    return {name: list(item) if isinstance(item, tuple) else item for name, item in value.items()}


def storable(text: str) -> str:
    """Replace the characters that a database cannot store."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def fields_of(event: FeedbackEvent) -> dict[str, Any]:
    """Return the fields of a stored report, to be read again with additions."""
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
    """Return the issues of a report that the given fields do not replace."""
    replaced = {_RUBRIC if name in ("rubric_scores", "guardrails") else name for name in given}
    return tuple(issue for issue in event.issues if issue.field not in replaced)
