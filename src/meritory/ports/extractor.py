"""Extractors: the prompt for a finished session, the shape of the reply, and its checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from meritory.domain.errors import BadReply, InputError
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Turn
from meritory.domain.world import World
from meritory.ports.llm import Llm, Prompt, object_schema, quote
from meritory.text.extract import rules
from meritory.text.extract.attribution import QuoteAttribution, attribute_quote
from meritory.text.extract.rules import (
    CANDIDATE_LIMIT,
    CONFIRMED,
    IMPLIED,
    Declined,
    Extraction,
    FoundClaim,
)
from meritory.text.judge.prompt_injection import visible
from meritory.text.normalize import check_text
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


SCHEMA: Final[Mapping[str, Any]] = object_schema(
    case={"type": "string"},
    candidates={
        "type": "array",
        "items": object_schema(
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
    """A prompt for a model, and the data to check its reply."""

    number: str
    rules: str
    # Each shown turn at its place in the transcript; the others are empty.
    turns: tuple[Turn, ...]
    known: Mapping[str, MemoryRecord]

    @property
    def prompt(self) -> Prompt:
        """The whole case in words."""
        spoken = "\n".join(
            f"[{SPEAKERS[turn.role]}] {quote(turn.text)}" for turn in self.turns if turn.text
        )
        known = "\n".join(
            f"{handle} {quote(redact(memory.content)[:KNOWN_LIMIT_CHARS])}"
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
    """Return the prompt for a session, with an unguessable number."""
    return ExtractInput(
        number=f"{world.random_bits(64):016x}",
        rules=rules,
        turns=_shown(transcript),
        known={f"k{number}": memory for number, memory in enumerate(known, 1)},
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


KNOWN_LIMIT: Final = 8


class Extractor(Protocol):
    """Says what of a transcript is worth keeping; a transcript is evidence, never an order."""

    @property
    def name(self) -> str:
        """The name and version stored with every memory it brings."""
        ...

    def extract(self, turns: Sequence[Turn], known: Sequence[MemoryRecord] = ()) -> Extraction:
        """Return the candidates, best first; `known` are memories that they may repeat or renew."""
        ...


class RulesExtractor:
    """Keeps what the user said outright, without any model; equal input, equal answer."""

    name = rules.NAME

    def extract(self, turns: Sequence[Turn], known: Sequence[MemoryRecord] = ()) -> Extraction:
        """Return what the rules find."""
        return rules.read(turns)


def open_extractor(kind: str, llm: Llm | None = None, world: World | None = None) -> Extractor:
    """Return the extractor of a kind (rules or llm), or a model's with the prompt in a file."""
    if kind == "rules":
        return RulesExtractor()
    if llm is None:
        raise InputError("an extractor with a prompt needs a model", hint="set llm.model")
    prompt = shipped_prompt() if kind == "llm" else read_prompt(Path(kind))
    return LlmExtractor(llm, prompt, world)


PROMPT_LIMIT_CHARS: Final = 20_000
CONTENT_LIMIT_CHARS: Final = 500
WHY_LIMIT_CHARS: Final = 200
QUOTE_MIN_CHARS: Final = 12
_SHIPPED: Final = Path(__file__).resolve().parents[1] / "data" / "prompts" / "extract-1.txt"
_VERSION: Final = re.compile(r"[\w.-]{1,40}")


@dataclass(frozen=True, slots=True)
class ExtractionPrompt:
    """The instructions of a model, and the version stored with its memories."""

    version: str
    text: str


def shipped_prompt() -> ExtractionPrompt:
    """Return the prompt that comes with Meritory."""
    return ExtractionPrompt("1", _SHIPPED.read_text("utf-8").strip())


def read_prompt(file: Path) -> ExtractionPrompt:
    """Return the prompt in a file; its version is the file's name."""
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as a prompt", hint="name a text file") from error
    if not 0 < len(text) <= PROMPT_LIMIT_CHARS:
        raise InputError(f"a prompt has 1 to {PROMPT_LIMIT_CHARS:,} characters")
    return ExtractionPrompt("-".join(_VERSION.findall(file.stem)) or "file", text)


class LlmExtractor:
    """Asks a model for candidates, and checks each of them."""

    def __init__(
        self, llm: Llm, prompt: ExtractionPrompt | None = None, world: World | None = None
    ) -> None:
        self._llm = llm
        self._prompt = prompt or shipped_prompt()
        self._world = world or World()

    @property
    def name(self) -> str:
        """The name and the prompt's version, stored with every memory."""
        return f"llm/{self._prompt.version}"

    def extract(self, turns: Sequence[Turn], known: Sequence[MemoryRecord] = ()) -> Extraction:
        """Return the candidates that hold, and the others with what speaks against them."""
        case = build_case(self._prompt.text, turns, known[:KNOWN_LIMIT], self._world)
        if not case.turns:
            return Extraction()
        data = self._llm.ask(case.prompt, SCHEMA).data
        if data["case"] != case.number:
            # The number stands nowhere in the data, so a reply copied from there can not have it.
            raise BadReply("the extractor's reply is about another case")
        cited: set[str] = set()
        results = [_candidate(case, row, cited) for row in data["candidates"][:CANDIDATE_LIMIT]]
        return Extraction(
            tuple(result for result in results if isinstance(result, FoundClaim)),
            tuple(result for result in results if isinstance(result, Declined)),
        )


def _candidate(
    case: ExtractInput, row: Mapping[str, Any], cited: set[str]
) -> FoundClaim | Declined | None:
    """Return a proposal after every check; None for one that is known already."""
    quoted = " ".join(row["quote"].split())
    content = _clean(row["content"], CONTENT_LIMIT_CHARS)
    is_long = len(quoted) >= QUOTE_MIN_CHARS
    attribution = attribute_quote(case.turns, quoted, content) if is_long else None
    # A claim without a speaker counts for least.
    speaker = attribution or QuoteAttribution("assistant_derived", "agent", 0, quoted)
    ceiling = 1.0 if speaker.provenance == "user_stated" else CONFIRMED
    claim = FoundClaim(
        content=content,
        kind=row["kind"],
        provenance=speaker.provenance,
        origin=speaker.origin,
        confidence=min(max(float(row["confidence"]), IMPLIED), ceiling),
        turn=speaker.turn,
        quote=redact(speaker.quote),
    )
    if attribution is None:
        return Declined(claim, "its quote is not in the transcript", "refused")
    try:
        check_text(content)
    except InputError:
        return Declined(claim, "it is no text that can be stored", "refused")
    if rules.only_asks(content):
        return Declined(claim, "it only asks", "refused")
    if row["helps_later"] != "yes":
        why = _clean(row["why"], WHY_LIMIT_CHARS)
        return Declined(claim, "it would not help later" + (f": {why}" if why else ""))
    if row["intent"] == "new":
        return claim
    handle = row["existing_id"].strip()
    memory = case.known.get(handle)
    if memory is None or handle in cited:
        reason = "it names a memory twice" if memory else "it names a memory that was not shown"
        return Declined(claim, reason, "refused")
    cited.add(handle)
    return None if row["intent"] == "skip_redundant" else replace(claim, supersedes=memory.id)


def _clean(text: str, limit_chars: int) -> str:
    """Return free text as it may be stored: one line, bounded, nothing hidden, no secret."""
    return redact(" ".join(visible(text).split())[:limit_chars]).strip()
