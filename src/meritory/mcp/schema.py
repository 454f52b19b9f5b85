"""Check arguments against a tool's schema (the part of JSON Schema that tools use); frame lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Found = str | None
_SHOWN_CHARS: Final = 40
_TYPES: Final[Mapping[str, tuple[Any, str]]] = {
    "string": (str, "text"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list"),
    "object": (dict, "an object"),
}


def problem(schema: Mapping[str, Any], value: object, where: str = "arguments") -> Found:
    """Return what is wrong with a value and what is expected; None for a valid one.

    The tool itself checks the values of an object with free names.
    """
    kind = schema["type"]
    wanted, words = _TYPES[kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean"):
        return f"{where} must be {words}"
    check = _CHECKS.get(kind)
    return check(schema, value, where) if check else None


def _text(schema: Mapping[str, Any], value: str, where: str) -> Found:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return f"{where} contains a lone surrogate"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(schema['enum'])}"
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
    if longest is not None and not shortest <= len(value) <= longest:
        return f"{where} must have {shortest} to {longest} characters, not {len(value)}"
    return None


def _whole(schema: Mapping[str, Any], value: int, where: str) -> Found:
    least, most = schema["minimum"], schema["maximum"]
    return None if least <= value <= most else f"{where} must be from {least} to {most}"


def _list(schema: Mapping[str, Any], value: list[Any], where: str) -> Found:
    if len(value) > schema["maxItems"]:
        return f"{where} may have at most {schema['maxItems']} entries, not {len(value)}"
    found = (problem(schema["items"], one, f"{where}[{at}]") for at, one in enumerate(value))
    return next((fault for fault in found if fault), None)


def _object(schema: Mapping[str, Any], value: dict[str, Any], where: str) -> Found:
    known = schema.get("properties")
    if known is None:
        least, most = schema["minProperties"], schema["maxProperties"]
        count = len(value)
        return None if least <= count <= most else f"{where} must have {least} to {most} entries"
    for name in schema["required"]:
        if name not in value:
            return f"{where} needs `{name}`"
    for name, inner in value.items():
        if name not in known:
            names = ", ".join(known)
            return f"unknown argument {name[:_SHOWN_CHARS]!r}; expected one of {names}"
        if found := problem(known[name], inner, f"`{name}`"):
            return found
    return None


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any], Any, str], Found]]] = {
    "string": _text,
    "integer": _whole,
    "array": _list,
    "object": _object,
}


LINE_LIMIT_BYTES: Final = 2 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024


def lines(
    read: Callable[[int], bytes], limit_bytes: int = LINE_LIMIT_BYTES
) -> Iterator[bytes | None]:
    """Yield the lines that are not blank; None for one over the limit, which is skipped."""
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
    """Return a message as one line of ASCII."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
