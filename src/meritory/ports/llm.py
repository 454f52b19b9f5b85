"""A language model that answers in JSON: the contract, how one is opened, and the check of replies.

Every reply is checked against the schema here, however much the server promised to keep to it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, get_args
from urllib.parse import urlsplit

from meritory.domain.errors import BadReply, InputError
from meritory.domain.policy import LlmProvider, LlmSpec
from meritory.ports.budget import Meter

DEFAULT_URLS: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
# Rough on purpose: only used when a server does not say, and before a call.
CHARS_PER_TOKEN = 3
# One fence around the whole reply is how many models write JSON; anything more is prose.
_FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL | re.IGNORECASE)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked: the rules, and the case at hand."""

    system: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmReply:
    """What a model answered, in the agreed shape, and what that took."""

    data: dict[str, Any]
    input_tokens: int
    output_tokens: int
    # The answer as it came, for people who want to check.
    raw: str


class Llm(Protocol):
    """A model that answers in JSON."""

    @property
    def name(self) -> str:
        """The provider and the model, as stored beside what came of an answer."""
        ...

    def ask(self, prompt: Prompt, schema: Mapping[str, Any]) -> LlmReply:
        """Return an answer in the shape of the schema, or raise PortError, a timeout or BadReply.

        The schema keeps to what every server understands: type, properties, required,
        additionalProperties, items, enum, description. Bounds are for the caller to check.
        """
        ...


def open_llm(spec: LlmSpec, meter: Meter | None = None) -> Llm:
    """Return the model that the spec names; nothing is sent until it is asked."""
    _check_spec(spec)
    from meritory.ports.llm_clients import AnthropicLlm, OpenAiLlm

    return OpenAiLlm(spec, meter) if spec.provider == "openai" else AnthropicLlm(spec, meter)


def _check_spec(spec: LlmSpec) -> None:
    if spec.provider not in get_args(LlmProvider):
        raise InputError(
            f"unknown model provider {spec.provider!r}",
            hint="choose one of " + ", ".join(get_args(LlmProvider)),
        )
    if not spec.model:
        raise InputError("no model is named", hint="set llm.model")
    if not (spec.api_key.isascii() and spec.api_key.isprintable()):
        raise InputError("llm.api_key holds characters that no key has", hint="copy it again")
    if spec.timeout_ms <= 0 or spec.max_output_tokens <= 0:
        raise InputError("llm.timeout_ms and llm.max_output_tokens must be above 0")
    for price in (spec.price_per_million_input, spec.price_per_million_output):
        if not 0.0 <= price < math.inf:
            raise InputError("a price is 0 or more")
    if spec.url:
        _check_url(spec.url)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    try:
        port_known = parts.port is None or parts.port > 0
    except ValueError:
        port_known = False
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_known:
        raise InputError(
            "the model's url must be an http:// or https:// address",
            hint="e.g. http://127.0.0.1:11434/v1",
        )
    if parts.username or parts.password:
        raise InputError("the model's url holds a login", hint="put the key into llm.api_key")


def read_json(raw: str | bytes, what: str) -> Any:
    """Return the JSON value that a text is, whole; no NaN, no key twice, nothing around it."""
    try:
        return json.loads(raw, parse_constant=_no_constant, object_pairs_hook=_no_double)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"{what} is not JSON") from error


def read_answer(text: str, model: str) -> dict[str, Any]:
    """Return the one JSON object that a model's text is; JSON inside prose is refused.

    Whatever is dug out of prose may be a quotation of the data that the model was shown.
    """
    trimmed = text.strip()
    fenced = _FENCED.fullmatch(trimmed)
    found = read_json(fenced[1] if fenced else trimmed, f"the answer of {model}")
    if not isinstance(found, dict):
        raise BadReply(f"the answer of {model} is not a JSON object")
    return found


def check_shape(value: Any, schema: Mapping[str, Any], place: str = "the answer") -> None:
    """Raise BadReply unless the value has exactly the shape of the schema."""
    kind = schema["type"]
    # True and False are whole numbers to Python, never to people.
    is_flag_instead = isinstance(value, bool) and kind != "boolean"
    is_right = isinstance(value, _KINDS[kind]) and not is_flag_instead
    if not is_right:
        raise BadReply(f"{place} should be {kind}, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadReply(f"{place} is not a finite number")
    if "enum" in schema and value not in schema["enum"]:
        raise BadReply(f"{place} is none of the agreed values")
    if kind == "object":
        _check_fields(value, schema, place)
    elif kind == "array":
        for at, item in enumerate(value):
            check_shape(item, schema["items"], f"{place}[{at}]")


def _check_fields(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> None:
    fields: Mapping[str, Mapping[str, Any]] = schema["properties"]
    missing = sorted(set(schema.get("required", fields)) - value.keys())
    if missing:
        raise BadReply(f"{place} lacks {missing[0]!r}")
    if len(value.keys() - fields.keys()) > 0:
        # Not named: what stands there is the model's own invention.
        raise BadReply(f"{place} has a field that was not asked for")
    for name, inner in fields.items():
        if name in value:
            check_shape(value[name], inner, f"{place}.{name}")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
