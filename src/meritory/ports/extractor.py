"""What finds claims worth keeping in a finished transcript: the protocol, and how one is opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from meritory.errors import InputError
from meritory.ports.llm import Llm
from meritory.text.extracting import rules
from meritory.text.extracting.found import Declined as Declined
from meritory.text.extracting.found import Extraction as Extraction
from meritory.text.extracting.found import Found as Found
from meritory.types import MemoryRecord, Turn
from meritory.world import World

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
    from meritory.ports.extractor_llm import LlmExtractor, read_prompt, shipped_prompt

    if kind == "rules":
        return RulesExtractor()
    if llm is None:
        raise InputError("an extractor with a prompt needs a model", hint="set llm.model")
    prompt = shipped_prompt() if kind == "llm" else read_prompt(Path(kind))
    return LlmExtractor(llm, prompt, world)
