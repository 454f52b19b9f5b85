"""Models behind the vendors' clients: OpenAI's for all servers that speak like it, Anthropic's."""

from __future__ import annotations

import importlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from meritory.domain.errors import BadReply, MissingExtra, PortError, PortTimeout
from meritory.domain.policy import LlmSpec
from meritory.domain.world import World
from meritory.ports.budget import Meter
from meritory.ports.llm import (
    CHARS_PER_TOKEN,
    DEFAULT_URLS,
    LlmReply,
    Prompt,
    check_shape,
    read_answer,
    read_json,
)

MAX_QUOTED_CHARS = 200
MAX_TOKEN_COUNT = 10**9
# A server says with one of these that it does not know a way of asking for JSON.
REFUSED_FORM_STATUSES = frozenset({400, 415, 422, 501})
ANSWER_NAME = "answer"
_SHAPE = (
    "Answer with one JSON object and nothing else, no text before or after it. "
    "It must fit this JSON schema:\n"
)
# The clients insist on a key; where there is none, the header it would go into is not sent.
_NO_KEY = "none"


class _LlmRefused(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class _LlmUnreachable(PortError):
    """No answer came back, so nothing can have been charged."""


class _ClientLlm(ABC):
    """What both clients share: the ways of asking, the meter, and one tree of errors."""

    # The ways of asking for JSON, the surest first; the first that a server takes is kept.
    FORMS: tuple[str, ...]

    def __init__(self, spec: LlmSpec, meter: Meter | None, world: World | None = None) -> None:
        self._spec = spec
        self._meter = meter
        self._forms = self.FORMS
        self._base_url = _base_url(spec)
        self._server = "{0.scheme}://{0.netloc}".format(urlsplit(self._base_url))
        self._world = world or World()
        _check_installed(spec.provider)

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
        """The vendor's client on our own wire."""
        return self._opened()

    def ask(self, prompt: Prompt, schema: Mapping[str, Any]) -> LlmReply:
        """Return an answer in the shape of the schema."""
        # Told in words too: some servers take the schema and then ignore it.
        rules = f"{prompt.system}\n\n{_SHAPE}{json.dumps(schema, ensure_ascii=False)}"
        envelope, taken = self._first_taken(Prompt(rules, prompt.user), schema)
        text = self._text(envelope)
        data = read_answer(text, self.name)
        check_shape(data, schema)
        # Half a character can be written in JSON, but in no file.
        raw = text.encode("utf-8", "replace").decode("utf-8")
        return LlmReply(data=data, input_tokens=taken[0], output_tokens=taken[1], raw=raw)

    def _first_taken(
        self, prompt: Prompt, schema: Mapping[str, Any]
    ) -> tuple[Any, tuple[int, int]]:
        """Ask in the surest way that the server takes, and remember which that was."""
        forms = self._forms
        while True:
            try:
                found = self._exchange(prompt, schema, forms[0])
            except _LlmRefused as refusal:
                if self._adapts(refusal):
                    continue
                if refusal.status not in REFUSED_FORM_STATUSES or len(forms) == 1:
                    raise self._refusal_error(refusal) from refusal
                forms = forms[1:]
            else:
                self._forms = forms
                return found

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
        except (_LlmRefused, _LlmUnreachable):
            taken = (0, 0)
            raise
        finally:
            if self._meter is not None:
                self._meter.after(self.name, *taken, self._spec.cost(*taken))
        return envelope, taken

    def _sent(self, prompt: Prompt, schema: Mapping[str, Any], form: str) -> bytes:
        from meritory.ports.llm_transport import TooLong, UnreadableReply

        try:
            found: bytes = self._create(prompt, schema, form).http_response.content
        except self._sdk.APIStatusError as error:
            raise _LlmRefused(error.status_code, error.response.text) from error
        except self._sdk.APITimeoutError as error:
            raise PortTimeout(
                f"{self._server} gave no answer within {self._spec.timeout_ms} ms",
                hint="raise llm.timeout_ms, or look at the server's load",
            ) from error
        except self._sdk.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, TooLong | UnreadableReply):
                raise BadReply(f"{self._server}: {cause}") from error
            raise _LlmUnreachable(
                f"no connection to the model: {cause or error}",
                hint=f"is the server running at {self._server}?",
            ) from error
        return found

    def _refusal_error(self, refusal: _LlmRefused) -> PortError:
        key = self._spec.api_key
        body = refusal.body.replace(key, "***") if key else refusal.body
        said = " ".join(body[: 10 * MAX_QUOTED_CHARS].split())[:MAX_QUOTED_CHARS]
        return PortError(
            f"{self._server} answered {refusal.status}: {said}",
            hint=_hint(refusal.status, self._spec),
        )

    def _adapts(self, refusal: _LlmRefused) -> bool:
        """Whether the next request will differ in what the server complained about."""
        return False

    @abstractmethod
    def _opened(self) -> Any:
        """A new client."""

    @abstractmethod
    def _create(self, prompt: Prompt, schema: Mapping[str, Any], form: str) -> Any:
        """One request, its reply unread."""

    @abstractmethod
    def _text(self, envelope: Any) -> str:
        """The model's answer inside a server's reply."""

    @abstractmethod
    def _usage(self, envelope: Any) -> tuple[int, int] | None:
        """The tokens in and out, if the server says."""


class OpenAiLlm(_ClientLlm):
    """Asks OpenAI, or whatever speaks its chat completions: Ollama, llama.cpp, vLLM."""

    FORMS = ("json_schema", "json_object", "plain")
    # The older name first: local servers know no other.
    _limit_name = "max_tokens"

    def _opened(self) -> Any:
        from meritory.ports.llm_transport import Wire, guarded_client

        key = self._spec.api_key
        wire = Wire({"authorization": f"Bearer {key}"} if key else {}, self._spec.timeout_ms)
        return self._sdk.OpenAI(
            api_key=key or _NO_KEY,
            base_url=self._base_url,
            timeout=self._spec.timeout_ms / 1000.0,
            max_retries=0,
            http_client=guarded_client(wire, self._world),
        )

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

    def _adapts(self, refusal: _LlmRefused) -> bool:
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

    def _usage(self, envelope: Any) -> tuple[int, int] | None:
        return _counts(envelope, ("prompt_tokens",), "completion_tokens")


class AnthropicLlm(_ClientLlm):
    """Asks Anthropic, or whatever speaks its messages."""

    FORMS = ("tool", "json_schema", "plain")

    def _opened(self) -> Any:
        from meritory.ports.llm_transport import Wire, guarded_client

        headers = {"anthropic-version": "2023-06-01"}
        if self._spec.api_key:
            headers["x-api-key"] = self._spec.api_key
        return self._sdk.Anthropic(
            api_key=self._spec.api_key or _NO_KEY,
            base_url=self._base_url,
            timeout=self._spec.timeout_ms / 1000.0,
            max_retries=0,
            # Otherwise a host program that records traces would record what was judged.
            open_telemetry=False,
            http_client=guarded_client(Wire(headers, self._spec.timeout_ms), self._world),
        )

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

    def _usage(self, envelope: Any) -> tuple[int, int] | None:
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        return _counts(envelope, ("input_tokens", *cached), "output_tokens")


def _check_installed(package: str) -> None:
    if not all(importlib.util.find_spec(name) for name in (package, "httpx2")):
        raise MissingExtra(
            f"the client for {package} models is not installed", hint="pip install 'meritory[llm]'"
        )


def _base_url(spec: LlmSpec) -> str:
    """The address that the vendor's client puts its own paths behind."""
    url = (spec.url or DEFAULT_URLS[spec.provider]).rstrip("/")
    if spec.provider == "anthropic":
        return url.removesuffix("/messages").removesuffix("/v1")
    return url.removesuffix("/chat/completions")


def _dig(value: Any, *path: str | int) -> Any:
    """What lies at a path inside a server's reply."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError) as error:
            raise BadReply("the model's server did not reply as agreed") from error
    return value


def _counts(envelope: Any, inputs: tuple[str, ...], output: str) -> tuple[int, int] | None:
    """The tokens that a server says it counted; None when it does not, or absurdly."""
    usage = envelope.get("usage") if isinstance(envelope, dict) else None
    if not isinstance(usage, dict) or inputs[0] not in usage or output not in usage:
        return None
    found = [usage.get(name) or 0 for name in (*inputs, output)]
    if not all(type(count) is int and 0 <= count <= MAX_TOKEN_COUNT for count in found):
        return None
    return sum(found[:-1]), found[-1]


def _cut_off() -> BadReply:
    return BadReply("the model's answer was cut off", hint="raise llm.max_output_tokens")


def _hint(status: int, spec: LlmSpec) -> str:
    if status in {401, 403}:
        return "check llm.api_key"
    if status == 404:
        return f"does the server have the model {spec.model!r}, and is llm.url right?"
    if status == 429:
        return "the server limits requests; it is tried again later"
    if 300 <= status < 400:
        return "redirects are not followed; give the final address as llm.url"
    if status >= 500:
        return "the server failed; look at its log"
    return "check llm.model and llm.url"
