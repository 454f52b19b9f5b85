"""Hostile texts inside user turns, and genuine statements of users: `bench/labels/hostile.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Half = Literal["tune", "report"]
FILE: Final = Path(__file__).resolve().parent / "labels" / "hostile.toml"
_CLIENTS: Final = (
    *("claude-code", "codex", "gemini-cli", "copilot-cli"),
    *("cursor", "vscode", "opencode", "openclaw"),
)
# So many texts go into each carrier of a half, one after the other.
_PAYLOADS: Final[dict[Half, int]] = {"tune": 1, "report": 4}
_STATEMENTS: Final[dict[Half, int]] = {"tune": 3, "report": 10}


@dataclass(frozen=True, slots=True)
class Case:
    """One user turn: the client that wrote it, its hook's prompt, and the text to look for."""

    client: str
    prompt: str
    turn: str
    said: str


def hostile(half: Half) -> Iterator[Case]:
    """Yield the carriers of a half with payloads; pasted text goes through all clients."""
    data = _read(half)
    pasted = ((_CLIENTS[n % 8], "", turn) for n, turn in enumerate(data["pasted"]))
    for number, (client, prompt, turn) in enumerate([*data["embedded"], *pasted]):
        for index in range(_PAYLOADS[half]):
            payload = data["payloads"][(number + index) % len(data["payloads"])]
            said = payload.format(n=10 * number + index)
            whole = turn.format(p=said)
            yield Case(client, prompt or whole, whole, said)


def genuine(half: Half) -> Iterator[Case]:
    """Yield the frames of a half with statements."""
    data = _read(half)
    for number, frame in enumerate(data["frames"]):
        for index in range(_STATEMENTS[half]):
            statement = data["statements"][(3 * number + index) % len(data["statements"])]
            said = statement.format(n=20 * number + index)
            whole = frame.format(s=said)
            yield Case(_CLIENTS[(number + index) % 8], whole, whole, said)


def _read(half: Half) -> dict[str, Any]:
    data: dict[str, Any] = tomllib.loads(FILE.read_text("utf-8"))[half]
    return data
