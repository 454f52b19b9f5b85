"""A finished session as a case for an extractor: what the model is shown, and the reply's shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Turn
from meritory.domain.world import World
from meritory.ports.llm import Prompt
from meritory.text.ratings_trailer import strip_own
from meritory.text.secrets import redact

TRANSCRIPT_LIMIT_CHARS: Final = 14_000
# What a tool gave back is long and says little; the beginning is enough to know what it was.
RESULT_LIMIT_CHARS: Final = 600
KNOWN_LIMIT_CHARS: Final = 400
KINDS: Final = ("constraint", "preference", "decision", "procedure", "lesson", "fact")
SPEAKERS: Final[Mapping[str, str]] = {
    "user": "person",
    "assistant": "agent",
    "edit": "agent wrote",
    "tool": "agent called",
    "result": "tool gave back",
}


def _object(**fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


SCHEMA: Final[Mapping[str, Any]] = _object(
    case={"type": "string"},
    candidates={
        "type": "array",
        "items": _object(
            content={"type": "string"},
            kind={"type": "string", "enum": list(KINDS)},
            speaker={"type": "string", "enum": ["user", "assistant", "tool"]},
            quote={"type": "string"},
            confidence={"type": "number"},
            intent={"type": "string", "enum": ["new", "update_of", "skip_redundant"]},
            existing_id={"type": "string"},
            helps_later={"type": "string", "enum": ["yes", "no"]},
            why={"type": "string"},
        ),
    },
)


@dataclass(frozen=True, slots=True)
class ExtractInput:
    """What is put before a model, and what is needed to check its reply."""

    number: str
    rules: str
    # Each shown turn at its place in the transcript; the others are empty.
    turns: tuple[Turn, ...]
    known: Mapping[str, MemoryRecord]

    @property
    def prompt(self) -> Prompt:
        """The whole case in words."""
        spoken = "\n".join(
            f"[{SPEAKERS[turn.role]}] {_quoted(turn.text)}" for turn in self.turns if turn.text
        )
        known = "\n".join(
            f"{handle} {_quoted(redact(memory.content)[:KNOWN_LIMIT_CHARS])}"
            for handle, memory in self.known.items()
        )
        return Prompt(
            self.rules,
            f"case {self.number}\n\n"
            f"---- transcript {self.number} ----\n{spoken}\n"
            f"---- known memories {self.number} ----\n{known or '(none)'}\n"
            f"---- end {self.number} ----\n\n"
            "Name what is worth keeping of this transcript, at most 5 candidates.",
        )


def build_case(
    rules: str, transcript: Sequence[Turn], known: Sequence[MemoryRecord], world: World
) -> ExtractInput:
    """Return the case of a session; its number is one that nobody in it could know."""
    return ExtractInput(
        number=f"{world.random_bits(64):016x}",
        rules=rules,
        turns=_shown(transcript),
        known={f"k{place}": memory for place, memory in enumerate(known, 1)},
    )


def _shown(transcript: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns as the model sees them, the last ones if they are many; () when there are none."""
    left = TRANSCRIPT_LIMIT_CHARS
    shown: list[Turn] = []
    for turn in reversed(transcript):
        text = redact(strip_own(turn.text)).strip() if turn.role in SPEAKERS else ""
        text = text[: min(left, RESULT_LIMIT_CHARS if turn.role == "result" else left)]
        left -= len(text)
        shown.append(Turn(turn.role, text))
    return tuple(reversed(shown)) if any(turn.text for turn in shown) else ()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
