"""Messages on a stream of bytes, one a line, and what is done about lines that never end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

LINE_LIMIT_BYTES: Final = 2 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024


def lines(
    read: Callable[[int], bytes], limit_bytes: int = LINE_LIMIT_BYTES
) -> Iterator[bytes | None]:
    """Every line that is not blank; None stands for one over the limit, which is passed over."""
    held = bytearray()
    is_too_long = False
    while piece := read(_PIECE_BYTES):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            held += end
            if is_too_long or len(held) > limit_bytes:
                yield None
            elif line := bytes(held).strip():
                yield line
            held.clear()
            is_too_long = False
        held += rest
        if len(held) > limit_bytes:
            held.clear()
            is_too_long = True
    if is_too_long:
        yield None
    elif line := bytes(held).strip():
        yield line


def framed(message: Any) -> bytes:
    """A message as one line; plain ASCII, so that no reader can be wrong about its encoding."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
