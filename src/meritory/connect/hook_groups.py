"""Shapes that several harnesses share: groups of hooks, servers, and what administrators forbid."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from meritory.connect.desired import Finding, Item, Member
from meritory.connect.files import read_file, text_of
from meritory.connect.json_syntax import plain, read
from meritory.domain.errors import MeritoryError

TIMEOUT_S: Final = 5
# Tools that only look, and the one that rates: what an agent may call without asking each time.
HARMLESS_TOOLS: Final = (
    "memory_search",
    "memory_get",
    "memory_explain",
    "describe_entity",
    "memory_feedback",
    "prevention_rules",
)


def grouped(
    events: Iterable[str], handler: dict[str, Any], matchers: Mapping[str, str] | None = None
) -> tuple[Item, ...]:
    """One group with one hook for each event, as Claude Code has it; some for certain tools."""
    named = {event: {"matcher": tools} for event, tools in (matchers or {}).items()}
    return tuple(
        Item(("hooks", event), {**named.get(event, {}), "hooks": [handler]}) for event in events
    )


def flat(events: Iterable[str], handler: dict[str, Any]) -> tuple[Item, ...]:
    """One hook for each event, without groups."""
    return tuple(Item(("hooks", event), handler) for event in events)


def server(argv: Sequence[str], *path: str, **more: Any) -> Member:
    """The entry of a server of tools."""
    return Member(path, {**more, "command": argv[0], "args": list(argv[1:])})


def settings_at(path: Path) -> dict[str, Any]:
    """A settings file as values; one that is absent or cannot be read holds nothing."""
    try:
        text = text_of(path, read_file(path)).removeprefix("\ufeff")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        found = plain(read(text, "json5", ()))
    except (MeritoryError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def at(values: Any, *path: str) -> Any:
    """What stands at a path, None when nothing does."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def forbidding(
    name: str, files: Iterable[Path], switches: Iterable[tuple[tuple[str, ...], bool]]
) -> list[Finding]:
    """A warning for every switch that keeps hooks from running."""
    switches = tuple(switches)
    found = []
    for file in files:
        values = settings_at(file)
        for path, off in switches:
            if at(values, *path) is off:
                dotted = ".".join(path)
                found.append(
                    Finding(
                        name,
                        "warn",
                        f"{file} has {dotted} = {json.dumps(off)}, so hooks do not run",
                        "change it there, or ask whoever looks after this machine",
                    )
                )
    return found
