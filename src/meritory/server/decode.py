"""From bytes to typed requests: strict JSON, nothing guessed, nothing silently dropped."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec

from meritory.domain.errors import InputError
from meritory.server.problems import BadRequest

_QUERY_LIMIT_COUNT = 50
_NUMBER_LIMIT_CHARS = 40
_WHOLE_LIMIT = 2**63
_HINT = "`GET /openapi.json` describes what each route takes"
_BOM = b"\xef\xbb\xbf"
T = TypeVar("T", bound=msgspec.Struct)


def decode_body(raw: bytes, kind: type[T]) -> T:
    """The body as its type; what is not JSON is a bad request, what does not fit is refused."""
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
            parse_constant=_not_json,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError as error:
        raise BadRequest("the JSON is nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    if "\\u" in text:
        _refuse_half_characters(value)
    return _converted(value, kind, strict=True)


def decode_query(query_string: bytes, kind: type[T]) -> T:
    """The query string as its type."""
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
    return _converted(dict(pairs), kind, strict=False)


def _converted(value: Any, kind: type[T], *, strict: bool) -> T:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InputError(
            str(error).replace("`$.", "`").replace("`$`", "the top"), hint=_HINT
        ) from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _not_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _bounded(text: str) -> int:
    if len(text) > _NUMBER_LIMIT_CHARS or abs(value := int(text)) >= _WHOLE_LIMIT:
        raise ValueError("a whole number is too large")
    return value


def _refuse_half_characters(value: Any) -> None:
    """A lone half of a pair is no text that could be stored or sent back."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise InputError("the body holds half a character (a lone surrogate)") from error
