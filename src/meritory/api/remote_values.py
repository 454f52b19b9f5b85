"""Values on their way to a daemon and back: nothing guessed on the way out, exact on the way in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from meritory.api.client import refusal
from meritory.domain.codec import WrittenReply, source_to_dict
from meritory.domain.errors import BadReply, InputError
from meritory.domain.memory import Source, WriteResult
from meritory.domain.session import Turn

_WHOLE_LIMIT = 2**63


def result_of(written: WrittenReply) -> WriteResult:
    """The result as the library has it, with an error that can be raised."""
    fault, error = written.error, None
    if fault is not None:
        told = {"code": fault.code, "detail": fault.message, "hint": fault.hint}
        error = refusal(fault.status, told)
    return WriteResult(
        written.outcome, written.memory, written.reason, written.other_id, written.cosine, error
    )


def plain(value: object) -> Any:
    """A value as JSON has it; what JSON would only approximate is refused."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Source):
        return source_to_dict(value)
    if isinstance(value, Turn):
        return {"role": value.role, "text": value.text}
    if isinstance(value, Mapping):
        return {_key(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(inner) for inner in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    raise InputError(f"a {type(value).__name__} cannot be sent to a daemon")


def _number(value: float) -> float:
    if isinstance(value, int):
        if abs(value) >= _WHOLE_LIMIT:
            raise InputError("a whole number is too large")
        return int(value)
    if not math.isfinite(value):
        raise InputError(f"{value} is not a number that can be sent")
    return float(value)


def _key(name: object) -> str:
    if isinstance(name, str):
        return str(name)
    raise InputError(f"a name must be text, not {type(name).__name__}")


def scores(told: object) -> Any:
    """Ratings as they are; one that is no number is sent as a word, and refused for itself."""
    if not isinstance(told, Mapping):
        return plain(told)
    return {
        str(name): str(score) if isinstance(score, float) and not math.isfinite(score) else score
        for name, score in told.items()
    }


def read(raw: bytes, kind: Any) -> Any:
    """The daemon's answer as the type it must have."""
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReply(
            "the daemon's answer is not what was agreed",
            hint="the daemon may be of another version: restart it",
        ) from error


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
