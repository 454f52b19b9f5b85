"""Reads a rendered block back into the memories it was made of."""

from __future__ import annotations

import re

from meritory.domain.errors import InputError
from meritory.text.render import INNER_LINE

_ENTITY = re.compile(r"&(?:(amp)|(lt)|#([0-9]{1,7}));")


def read_back(text: str, nonce: str) -> list[tuple[str, str]]:
    """Return the handles and texts of a block, as `render.cleaned` leaves them."""
    opening, closing = f"[meritory notes {nonce}]", f"[/meritory notes {nonce}]"
    if text.count(opening) != 1 or text.count(closing) != 1:
        raise InputError("the text does not contain exactly one block with this nonce")
    inside = text[text.index(opening) : text.index(closing)].split("\n")[1:-1]
    memories: list[tuple[str, list[str]]] = []
    for line in inside:
        start = INNER_LINE.match(line)
        if start is None or (start["handle"] is None and not memories and line[0] == "|"):
            raise InputError(f"not a line of a block: {line[:80]!r}")
        if start["handle"]:
            memories.append((start["handle"], [line[start.end() :]]))
        elif line[0] == "|":
            memories[-1][1].append(line[start.end() :])
    return [(handle, _ENTITY.sub(_unescaped, "\n".join(lines))) for handle, lines in memories]


def _unescaped(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return "&" if match[1] else "<"
    return chr(int(match[3]))
