"""Instruction and memory files in Markdown: CLAUDE.md, AGENTS.md, MEMORY.md and their like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meritory.errors import InputError
from meritory.flow.importing.entries import (
    Entry,
    Found,
    Skipped,
    changed_at,
    filled,
    read_text,
    source,
)
from meritory.flow.importing.sections import REFERENCE, Claim, claims
from meritory.flow.importing.wording import kind_of

# Written by people for their agents.
INSTRUCTION_NAMES = (
    *("claude.md", "claude.local.md", "agents.md", "agent.md", "gemini.md", "copilot.md"),
    *("copilot-instructions.md", "conventions.md", ".cursorrules", ".windsurfrules"),
    *(".clinerules", ".goosehints", ".rules"),
)
# Written by agents for themselves.
MEMORY_NAMES = ("memory.md", "memories.md")
INSTRUCTION_ENDINGS = (".mdc", ".instructions.md")
_CONFIDENCE = {"user_stated": 0.8, "assistant_derived": 0.6}


def is_instruction(path: Path) -> bool:
    """Whether a person wrote this file for agents, by its name."""
    name = path.name.lower()
    return name in INSTRUCTION_NAMES or name.endswith(INSTRUCTION_ENDINGS)


def read(found: Found) -> Iterator[Entry]:
    """Every claim of the files."""
    for path in found.files:
        name = path.relative_to(found.path).as_posix() if found.path.is_dir() else path.name
        try:
            text = read_text(path)
        except InputError as error:
            yield Entry(name, error)
            continue
        yield from _of_file(path, name, text)


def _of_file(path: Path, name: str, text: str) -> Iterator[Entry]:
    provenance = "user_stated" if is_instruction(path) else "assistant_derived"
    created_at = changed_at(path)
    for claim in claims(text):
        place = f"{name}:{claim.line}"
        if REFERENCE.match(claim.text):
            skipped = Skipped(f"{claim.text[:80]} is not followed; import that file by itself")
            yield Entry(place, skipped, len(claim.text))
            continue
        content = claim.whole
        fields = {
            "content": content,
            "kind": kind_of(claim.text, " ".join(claim.path)),
            "provenance": provenance,
            "confidence": _CONFIDENCE[provenance],
            "created_at": created_at,
            "source": source("markdown", _where(name, claim), content),
        }
        yield Entry(place, filled(fields), len(content.encode("utf-8", "replace")))


def _where(name: str, claim: Claim) -> str:
    return " > ".join((name, *claim.path))
