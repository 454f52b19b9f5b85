"""What the tool `capture_feedback` takes and gives."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

SIGNAL_LIMIT_CHARS: Final = 200
NAME_LIMIT_CHARS: Final = 256
TAG_LIMIT_CHARS: Final = 64
TAG_LIMIT_COUNT: Final = 16
COUNT_LIMIT: Final = 64


def _said(about: str) -> Schema:
    # Without a limit: what is too long is cut, and never a reason to lose a report.
    return {"type": "string", "description": about}


def _name(about: str, longest: int = NAME_LIMIT_CHARS) -> Schema:
    return {"type": "string", "description": about, "minLength": 1, "maxLength": longest}


def _names(about: str, count: int, longest: int) -> Schema:
    items = {"type": "string", "minLength": 1, "maxLength": longest}
    return {"type": "array", "description": about, "items": items, "maxItems": count}


def _all_of(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


_STRING: Final = {"type": "string"}
_MAYBE: Final = {"type": ["string", "null"]}
TAKES: Final[Schema] = {
    "signal": _name(
        "up or down; also positive, negative, good, bad, thumbs up, thumbs down, 👍, 👎",
        SIGNAL_LIMIT_CHARS,
    ),
    "context": _said("What it is about, in the user's words"),
    "what_went_wrong": _said("After a thumbs down: what exactly went wrong"),
    "what_to_change": _said("What to do differently next time"),
    "what_worked": _said("After a thumbs up: what exactly worked"),
    "reasoning": _said("Why"),
    "tags": _names("Words to file it under", TAG_LIMIT_COUNT, TAG_LIMIT_CHARS),
    "last_action": {
        "type": "object",
        "description": "What you did last: tool, context_key, file, timestamp",
        "properties": dict.fromkeys(("tool", "context_key", "file", "timestamp"), _STRING),
        "required": [],
    },
    "rubric_scores": {
        "type": "array",
        "description": "Scores from 1 to 5 by criterion: correctness, verification_evidence,"
        " safety, instruction_following, clarity",
        "maxItems": COUNT_LIMIT,
        "items": {
            "type": "object",
            "properties": {
                "criterion": _STRING,
                "score": {"type": "number"},
                "evidence": _STRING,
                "judge": _STRING,
            },
            "required": ["criterion", "score"],
        },
    },
    "guardrails": {
        "type": "object",
        "description": 'Whether each held, e.g. {"tests_passed": true}; null when unknown',
        "additionalProperties": {"type": ["boolean", "null"]},
        "minProperties": 0,
        "maxProperties": COUNT_LIMIT,
    },
    "visual_evidence": _said("What a screenshot shows"),
    "skill": _name("The skill that was at work"),
    "memory_ids": _names("Memories it is about, by id or handle", COUNT_LIMIT, NAME_LIMIT_CHARS),
    "event": _name("Id of an earlier report that this one completes"),
}
GIVES: Final = _all_of(
    accepted={"type": "boolean"},
    status=_STRING,
    reason=_STRING,
    message=_STRING,
    event=_MAYBE,
    memory=_MAYBE,
    occurrence={"type": "integer"},
    issues={"type": "array", "items": _all_of(field=_STRING, message=_STRING)},
    questions={
        "type": "array",
        "items": _all_of(field=_STRING, question=_STRING, example=_STRING),
    },
    missing={"type": "array", "items": _STRING},
)
