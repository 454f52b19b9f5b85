"""JSON in and out: strict requests into their types, replies into bytes."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec

from meritory.domain.errors import InputError
from meritory.domain.world import moment_text
from meritory.server.problems import BadRequest

_QUERY_LIMIT_COUNT = 50
_NUMBER_LIMIT_CHARS = 40
_WHOLE_LIMIT = 2**63
_HINT = "`GET /openapi.json` describes what each route takes"
_BOM = b"\xef\xbb\xbf"
T = TypeVar("T", bound=msgspec.Struct)


def decode_body(raw: bytes, kind: type[T]) -> T:
    """Return the body as its type; reject malformed JSON with 400 and wrong values with 422."""
    if not raw.strip():
        raise BadRequest("a JSON body is needed", hint=_HINT)
    if raw.startswith(_BOM):
        raise InputError("the body begins with a byte order mark", hint="send plain UTF-8")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte {error.start + 1} does not fit") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError as error:
        raise BadRequest("the JSON is nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    if "\\u" in text:
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            # Such text can neither be stored nor sent back.
            raise InputError("the body holds half a character (a lone surrogate)") from error
    return _convert(value, kind, strict=True)


def decode_query(query_string: bytes, kind: type[T]) -> T:
    """Return the query string as its type."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=_QUERY_LIMIT_COUNT,
        )
    except UnicodeDecodeError as error:
        raise InputError("the query string is not UTF-8") from error
    except ValueError as error:
        raise BadRequest("the query string cannot be read") from error
    if len(dict(pairs)) != len(pairs):
        raise BadRequest("a query parameter is given twice")
    return _convert(dict(pairs), kind, strict=False)


def _convert(value: Any, kind: type[T], *, strict: bool) -> T:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InputError(
            str(error).replace("`$.", "`").replace("`$`", "the top"), hint=_HINT
        ) from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is given twice")
    return members


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _bounded(text: str) -> int:
    if len(text) > _NUMBER_LIMIT_CHARS or abs(value := int(text)) >= _WHOLE_LIMIT:
        raise ValueError("a whole number is too large")
    return value


def encode_reply(reply: object) -> bytes:
    """Return a reply as JSON."""
    return msgspec.json.encode(to_json(reply))


def to_json(reply: object) -> Any:
    """Return records and structs as JSON values; times are UTC text of one width."""
    # Not by msgspec alone: it writes "Z" and drops zero microseconds, so that widths differ.
    return _write_times(msgspec.to_builtins(reply, builtin_types=(datetime,)))


def _write_times(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, dict):
        return {name: _write_times(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_write_times(inner) for inner in value]
    return value
