"""Language models that answer in JSON: the contract, the check of replies, the vendors' clients.

Every reply is checked against the schema here, however much the server promised to keep to it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Protocol, get_args
from urllib.parse import urlsplit

from meritory.domain.errors import BadReply, InputError, MissingExtra, PortError, PortTimeout
from meritory.domain.policy import LlmProvider, LlmSpec
from meritory.domain.world import World
from meritory.ports.budget import Meter

DEFAULT_URLS: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
MAX_QUOTED_CHARS = 200
MAX_TOKEN_COUNT = 10**9
# A server says with one of these that it does not know a way of asking for JSON.
REFUSED_FORM_STATUSES = frozenset({400, 415, 422, 501})
ANSWER_NAME = "answer"
_SHAPE = (
    "Answer with one JSON object and nothing else, no text before or after it. "
    "It must fit this JSON schema:\n"
)
_HINTS = {
    401: "check llm.api_key",
    403: "check llm.api_key",
    429: "the server limits requests; it is tried again later",
}
# The clients insist on a key; where there is none, the header it would go into is not sent.
_NO_KEY = "none"
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


def object_schema(**fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def quote(text: str) -> str:
    """Return a text as one JSON string: it cannot pass for a part of the prompt."""
    return json.dumps(text, ensure_ascii=False)


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
    prices = (spec.price_per_million_input, spec.price_per_million_output)
    if not all(0.0 <= price < math.inf for price in prices):
        raise InputError("a price is 0 or more")
    if spec.url:
        check_url(spec.url, "model", "llm.api_key")
    return OpenAiLlm(spec, meter) if spec.provider == "openai" else AnthropicLlm(spec, meter)


def check_url(url: str, what: str, key_setting: str) -> None:
    """Raise InputError unless this is an http address without a login in it."""
    parts = urlsplit(url)
    try:
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
    if parts.scheme not in {"http", "https"} or not parts.hostname or not has_port:
        raise InputError(
            f"the {what}'s url must be an http:// or https:// address with a usable port",
            hint="e.g. http://127.0.0.1:11434/v1",
        )
    if parts.username or parts.password:
        raise InputError(
            f"the {what}'s url holds a user name or password", hint=f"use {key_setting} instead"
        )


class HttpRefusal(Exception):
    """A server answered with an error status."""

    def __init__(self, status: int, body: str, retry_after: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.retry_after = retry_after

    def error(self, server: str, key: str, hints: Mapping[int, str], other: str) -> PortError:
        """Return the error to raise: the server's words without the key, and a hint."""
        # Some servers repeat the key in their errors.
        hidden = self.body.replace(key, "***") if key else self.body
        said = " ".join(hidden[: 10 * MAX_QUOTED_CHARS].split())[:MAX_QUOTED_CHARS]
        hint = hints.get(self.status, other)
        if 300 <= self.status < 400:
            hint = "redirects are not followed; give the final address as url"
        return PortError(f"{server} answered {self.status}: {said}", hint=hint)


def read_json(raw: str | bytes, what: str) -> Any:
    """Return the JSON value that a text is, whole; no NaN, no key twice, nothing around it."""

    def refuse_constant(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice")
        return found

    try:
        return json.loads(raw, parse_constant=refuse_constant, object_pairs_hook=distinct_keys)
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
        fields: Mapping[str, Mapping[str, Any]] = schema["properties"]
        missing = sorted(set(schema.get("required", fields)) - value.keys())
        if missing:
            raise BadReply(f"{place} lacks {missing[0]!r}")
        if value.keys() - fields.keys():
            # Not named, because the model invented it.
            raise BadReply(f"{place} has a field that was not asked for")
        for name, inner in fields.items():
            if name in value:
                check_shape(value[name], inner, f"{place}.{name}")
    elif kind == "array":
        for at, item in enumerate(value):
            check_shape(item, schema["items"], f"{place}[{at}]")


# -- the vendors' clients -------------------------------------------------------------------------


class _LlmUnreachable(PortError):
    """No answer came back, so nothing can have been charged."""


class _ClientLlm(ABC):
    """What both clients share: the ways of asking, the meter, and one tree of errors."""

    # The ways of asking for JSON, the surest first; the first that a server takes is kept.
    FORMS: tuple[str, ...]
    URL_ENDS: tuple[str, ...]
    # The fields of a server's token counts: those for input, and at last that for output.
    COUNTS: tuple[str, ...]
    # The class of the vendor's client, its own options, and the headers with and without a key.
    CLIENT: str
    OPTIONS: Mapping[str, Any] = {}
    HEADERS: Mapping[str, str] = {}
    KEY_HEADER: tuple[str, str]

    def __init__(self, spec: LlmSpec, meter: Meter | None, world: World | None = None) -> None:
        self._spec = spec
        self._meter = meter
        self._forms = self.FORMS
        # The vendor's client puts its own paths behind this address.
        self._base_url = (spec.url or DEFAULT_URLS[spec.provider]).rstrip("/")
        for end in self.URL_ENDS:
            self._base_url = self._base_url.removesuffix(end)
        self._server = "{0.scheme}://{0.netloc}".format(urlsplit(self._base_url))
        self._world = world or World()
        if not all(importlib.util.find_spec(name) for name in (spec.provider, "httpx2")):
            raise MissingExtra(
                f"the client for {spec.provider} models is not installed",
                hint="pip install 'meritory[llm]'",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, server={self._server!r})"

    @property
    def name(self) -> str:
        """The provider and the model."""
        return f"{self._spec.provider}:{self._spec.model}"

    @cached_property
    def _sdk(self) -> Any:
        """The vendor's package, imported when first asked: that takes up to a second."""
        return importlib.import_module(self._spec.provider)

    @cached_property
    def _client(self) -> Any:
        """The vendor's client on our own transport."""
        from meritory.ports.llm_transport import guarded_client

        key, timeout_ms = self._spec.api_key, self._spec.timeout_ms
        name, value = self.KEY_HEADER
        headers = {**self.HEADERS, **({name: value.format(key)} if key else {})}
        return getattr(self._sdk, self.CLIENT)(
            api_key=key or _NO_KEY,
            base_url=self._base_url,
            timeout=timeout_ms / 1000.0,
            max_retries=0,
            http_client=guarded_client(headers, timeout_ms, self._world),
            **self.OPTIONS,
        )

    def ask(self, prompt: Prompt, schema: Mapping[str, Any]) -> LlmReply:
        """Return an answer in the shape of the schema."""
        # Told in words too: some servers take the schema and then ignore it.
        rules = f"{prompt.system}\n\n{_SHAPE}{json.dumps(schema, ensure_ascii=False)}"
        asked = Prompt(rules, prompt.user)
        forms = self._forms
        while True:
            # In the surest way that the server takes, which is remembered.
            try:
                envelope, taken = self._exchange(asked, schema, forms[0])
                self._forms = forms
                break
            except HttpRefusal as refusal:
                if self._adapts(refusal):
                    continue
                if refusal.status not in REFUSED_FORM_STATUSES or len(forms) == 1:
                    missing = f"does the server have the model {self._spec.model!r}"
                    hints = {**_HINTS, 404: f"{missing}, and is llm.url right?"}
                    other = "check llm.model and llm.url"
                    if refusal.status >= 500:
                        other = "the server failed; look at its log"
                    raise refusal.error(self._server, self._spec.api_key, hints, other) from refusal
                forms = forms[1:]
        text = self._text(envelope)
        data = read_answer(text, self.name)
        check_shape(data, schema)
        # Half a character can be written in JSON, but in no file.
        raw = text.encode("utf-8", "replace").decode("utf-8")
        return LlmReply(data=data, input_tokens=taken[0], output_tokens=taken[1], raw=raw)

    def _exchange(
        self, prompt: Prompt, schema: Mapping[str, Any], form: str
    ) -> tuple[Any, tuple[int, int]]:
        """Send one request and write down what it took, however it ends."""
        guess = (len(prompt.system) + len(prompt.user)) // CHARS_PER_TOKEN + 1
        # Until the server says otherwise, the worst: a call that timed out may be charged in full.
        taken = (guess, self._spec.max_output_tokens)
        if self._meter is not None:
            self._meter.before(self._spec.cost(*taken))
        try:
            body = self._sent(prompt, schema, form)
            taken = (guess, len(body) // CHARS_PER_TOKEN + 1)
            envelope = read_json(body, f"the reply of {self._server}")
            taken = self._usage(envelope) or taken
        except (HttpRefusal, _LlmUnreachable):
            taken = (0, 0)
            raise
        finally:
            if self._meter is not None:
                self._meter.after(self.name, *taken, self._spec.cost(*taken))
        return envelope, taken

    def _sent(self, prompt: Prompt, schema: Mapping[str, Any], form: str) -> bytes:
        from meritory.ports.llm_transport import UnreadableReply

        try:
            content: bytes = self._create(prompt, schema, form).http_response.content
        except self._sdk.APIStatusError as error:
            raise HttpRefusal(error.status_code, error.response.text) from error
        except self._sdk.APITimeoutError as error:
            raise PortTimeout(
                f"{self._server} gave no answer within {self._spec.timeout_ms} ms",
                hint="raise llm.timeout_ms, or look at the server's load",
            ) from error
        except self._sdk.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, UnreadableReply):
                raise BadReply(f"{self._server}: {cause}") from error
            raise _LlmUnreachable(
                f"no connection to the model: {cause or error}",
                hint=f"is the server running at {self._server}?",
            ) from error
        return content

    def _adapts(self, refusal: HttpRefusal) -> bool:
        """Return whether the next request differs in what the server complained about."""
        return False

    @abstractmethod
    def _create(self, prompt: Prompt, schema: Mapping[str, Any], form: str) -> Any:
        """One request, its reply unread."""

    @abstractmethod
    def _text(self, envelope: Any) -> str:
        """The model's answer inside a server's reply."""

    def _usage(self, envelope: Any) -> tuple[int, int] | None:
        """Return the tokens in and out that a server counted; None without sensible counts."""
        usage = envelope.get("usage") if isinstance(envelope, dict) else None
        needed = {self.COUNTS[0], self.COUNTS[-1]}
        if not isinstance(usage, dict) or not needed <= usage.keys():
            return None
        counts = [usage.get(name) or 0 for name in self.COUNTS]
        if not all(type(count) is int and 0 <= count <= MAX_TOKEN_COUNT for count in counts):
            return None
        return sum(counts[:-1]), counts[-1]


class OpenAiLlm(_ClientLlm):
    """Asks OpenAI, or whatever speaks its chat completions: Ollama, llama.cpp, vLLM."""

    FORMS = ("json_schema", "json_object", "plain")
    URL_ENDS = ("/chat/completions",)
    COUNTS = ("prompt_tokens", "completion_tokens")
    CLIENT = "OpenAI"
    KEY_HEADER = ("authorization", "Bearer {}")
    # The older name first: local servers know no other.
    _limit_name = "max_tokens"

    def _create(self, prompt: Prompt, schema: Mapping[str, Any], form: str) -> Any:
        agreed = {"name": ANSWER_NAME, "schema": schema, "strict": True}
        formats: dict[str, dict[str, Any]] = {
            "json_schema": {"response_format": {"type": "json_schema", "json_schema": agreed}},
            "json_object": {"response_format": {"type": "json_object"}},
            "plain": {},
        }
        return self._client.chat.completions.with_raw_response.create(
            model=self._spec.model,
            messages=[
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            **{self._limit_name: self._spec.max_output_tokens},
            **formats[form],
        )

    def _adapts(self, refusal: HttpRefusal) -> bool:
        newer = "max_completion_tokens"
        if refusal.status != 400 or self._limit_name == newer or newer not in refusal.body:
            return False
        self._limit_name = newer
        return True

    def _text(self, envelope: Any) -> str:
        choice = _dig(envelope, "choices", 0)
        if isinstance(choice, dict) and choice.get("finish_reason") == "length":
            raise _cut_off()
        text = _dig(choice, "message", "content")
        if not isinstance(text, str):
            raise BadReply(f"{self.name} gave no answer")
        return text


class AnthropicLlm(_ClientLlm):
    """Asks Anthropic, or whatever speaks its messages."""

    FORMS = ("tool", "json_schema", "plain")
    URL_ENDS = ("/messages", "/v1")
    COUNTS = (
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
    )
    CLIENT = "Anthropic"
    # Otherwise a host program that records traces would record what was judged.
    OPTIONS: Mapping[str, Any] = {"open_telemetry": False}
    HEADERS: Mapping[str, str] = {"anthropic-version": "2023-06-01"}
    KEY_HEADER = ("x-api-key", "{}")

    def _create(self, prompt: Prompt, schema: Mapping[str, Any], form: str) -> Any:
        tool = {"name": ANSWER_NAME, "description": "Give the answer.", "input_schema": schema}
        formats: dict[str, dict[str, Any]] = {
            "tool": {
                "tools": [tool],
                "tool_choice": {
                    "type": "tool",
                    "name": ANSWER_NAME,
                    "disable_parallel_tool_use": True,
                },
            },
            "json_schema": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
            "plain": {},
        }
        return self._client.messages.with_raw_response.create(
            model=self._spec.model,
            max_tokens=self._spec.max_output_tokens,
            system=prompt.system,
            messages=[{"role": "user", "content": prompt.user}],
            **formats[form],
        )

    def _text(self, envelope: Any) -> str:
        if isinstance(envelope, dict) and envelope.get("stop_reason") == "max_tokens":
            raise _cut_off()
        blocks = _dig(envelope, "content")
        answers = [
            json.dumps(block.get("input"), ensure_ascii=False)
            if block.get("type") == "tool_use"
            else block.get("text")
            for block in (blocks if isinstance(blocks, list) else ())
            if isinstance(block, dict) and block.get("type") in ("tool_use", "text")
        ]
        # Two answers, or an answer and a remark: it is unclear which one is meant.
        if len(answers) != 1 or not isinstance(answers[0], str):
            raise BadReply(f"{self.name} gave {len(answers)} answers instead of one")
        return answers[0]


def _dig(value: Any, *path: str | int) -> Any:
    """What lies at a path inside a server's reply."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError) as error:
            raise BadReply("the model's server did not reply as agreed") from error
    return value


def _cut_off() -> BadReply:
    return BadReply("the model's answer was cut off", hint="raise llm.max_output_tokens")
