"""Entries that several harnesses share: groups of hooks, MCP servers, and disabled hooks."""

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
# Tools that only read, and the one that rates: agents may call them without asking.
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
    """Return a group with one hook for each event, some of them for certain tools only."""
    named = {event: {"matcher": tools} for event, tools in (matchers or {}).items()}
    return tuple(
        Item(("hooks", event), {**named.get(event, {}), "hooks": [handler]}) for event in events
    )


def flat(events: Iterable[str], handler: dict[str, Any]) -> tuple[Item, ...]:
    """Return one hook for each event, without groups."""
    return tuple(Item(("hooks", event), handler) for event in events)


def server(argv: Sequence[str], *path: str, **more: Any) -> Member:
    """Return the entry of an MCP server."""
    return Member(path, {**more, "command": argv[0], "args": list(argv[1:])})


def settings_at(path: Path) -> dict[str, Any]:
    """Return the values of a settings file; none if it is missing or unreadable."""
    try:
        text = text_of(path, read_file(path)).removeprefix("\ufeff")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        values = plain(read(text, "json5", ()))
    except (MeritoryError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def at(values: Any, *path: str) -> Any:
    """Return the value at a path, None without one."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def forbidding(
    name: str, files: Iterable[Path], switches: Iterable[tuple[tuple[str, ...], bool]]
) -> list[Finding]:
    """Return a warning for every switch that disables hooks."""
    switches = tuple(switches)
    findings = []
    for file in files:
        values = settings_at(file)
        for path, off in switches:
            if at(values, *path) is off:
                dotted = ".".join(path)
                findings.append(
                    Finding(
                        name,
                        "warn",
                        f"{file} has {dotted} = {json.dumps(off)}, so hooks do not run",
                        "change it there, or ask the administrator of this machine",
                    )
                )
    return findings
