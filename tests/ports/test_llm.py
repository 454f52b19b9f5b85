"""The models behind their clients, against a real server on the loopback address."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from meritory.domain.errors import (
    BadReply,
    BudgetSpent,
    InputError,
    MissingExtra,
    PortError,
    PortTimeout,
)
from meritory.domain.policy import LlmProvider, LlmSpec
from meritory.domain.session import Spending
from meritory.ports.budget import Budget, Meter
from meritory.ports.llm import Llm, Prompt, check_shape, open_llm
from ports.model_server import (
    USAGE,
    ModelServer,
    Raw,
    anthropic_envelope,
    openai_envelope,
    running,
    wrapped,
)

KEY = "sk-test-0123456789"
PROVIDERS: tuple[LlmProvider, ...] = get_args(LlmProvider)
PROMPT = Prompt("Count.", "How many?")
SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "names": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["count", "names"],
    "additionalProperties": False,
}
GOOD = {"count": 2, "names": ["a", "ü"]}
ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-env",
    "OPENAI_ADMIN_KEY": "sk-admin",
    "OPENAI_ORG_ID": "org-env",
    "OPENAI_PROJECT_ID": "proj-env",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_CUSTOM_HEADERS": "x-extra: 1\nAuthorization: Bearer sk-custom",
    "ANTHROPIC_API_KEY": "sk-env",
    "ANTHROPIC_AUTH_TOKEN": "token-env",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "ANTHROPIC_CUSTOM_HEADERS": "x-extra: 1\nx-api-key: sk-custom",
    "ANTHROPIC_PROFILE": "somebody",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "SSL_CERT_FILE": "/nowhere",
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with running() as found:
        found.speak = lambda user: json.dumps(GOOD, ensure_ascii=False)
        yield found


def opened(
    server: ModelServer, provider: LlmProvider, meter: Meter | None = None, **fields: Any
) -> Llm:
    path = "/v1" if provider == "openai" else ""
    details = {"model": "m", "url": server.url(path), "api_key": KEY, **fields}
    return open_llm(LlmSpec(provider=provider, **details), meter)


def failing(status: int, text: str = "no", **headers: str) -> Raw:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Raw(status, text.encode(), named)


both = pytest.mark.parametrize("provider", PROVIDERS)


# -- asking ---------------------------------------------------------------------------------


@both
def test_a_model_answers_in_the_agreed_shape(server: ModelServer, provider: LlmProvider) -> None:
    llm = opened(server, provider)
    reply = llm.ask(PROMPT, SCHEMA)
    assert reply.data == GOOD
    assert (reply.input_tokens, reply.output_tokens) == USAGE
    assert json.loads(reply.raw) == GOOD
    assert llm.name == f"{provider}:m"


def test_openai_is_asked_with_its_schema(server: ModelServer) -> None:
    opened(server, "openai", max_output_tokens=77).ask(PROMPT, SCHEMA)
    (seen,) = server.seen
    body = seen["body"]
    assert seen["path"] == "/v1/chat/completions"
    assert body["model"] == "m"
    assert body["max_tokens"] == 77
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert body["response_format"]["json_schema"]["strict"] is True
    system, user = body["messages"]
    assert system["content"].startswith("Count.")
    assert json.dumps(SCHEMA) in system["content"]
    assert user["content"] == "How many?"


def test_anthropic_is_made_to_call_a_tool_of_that_schema(server: ModelServer) -> None:
    opened(server, "anthropic", max_output_tokens=77).ask(PROMPT, SCHEMA)
    (seen,) = server.seen
    body = seen["body"]
    assert seen["path"] == "/v1/messages"
    assert seen["headers"]["anthropic-version"] == "2023-06-01"
    assert body["max_tokens"] == 77
    assert body["tool_choice"]["name"] == body["tools"][0]["name"]
    assert body["tools"][0]["input_schema"] == SCHEMA
    assert body["messages"] == [{"role": "user", "content": "How many?"}]


@pytest.mark.parametrize(
    ("provider", "given", "asked"),
    [
        ("openai", "/v1/", "/v1/chat/completions"),
        ("openai", "/v1/chat/completions", "/v1/chat/completions"),
        ("openai", "/api/openai", "/api/openai/chat/completions"),
        ("anthropic", "/v1", "/v1/messages"),
        ("anthropic", "/v1/messages", "/v1/messages"),
        ("anthropic", "/proxy/", "/proxy/v1/messages"),
    ],
)
def test_an_address_may_be_given_in_any_usual_way(
    server: ModelServer, provider: LlmProvider, given: str, asked: str
) -> None:
    opened(server, provider, url=server.url(given)).ask(PROMPT, SCHEMA)
    assert server.seen[0]["path"] == asked


# -- what leaves the machine ----------------------------------------------------------------


@both
@pytest.mark.parametrize("key", [KEY, ""])
def test_only_what_is_needed_is_sent_whatever_the_environment_says(
    server: ModelServer, provider: LlmProvider, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    opened(server, provider, api_key=key).ask(PROMPT, SCHEMA)
    headers = server.seen[0]["headers"]
    expected = {"host", "connection", "content-type", "content-length", "accept"}
    expected |= {"user-agent", "accept-encoding"}
    if provider == "openai":
        expected |= {"authorization"} if key else set()
        assert headers.get("authorization") == (f"Bearer {KEY}" if key else None)
    else:
        expected |= {"anthropic-version"} | ({"x-api-key"} if key else set())
        assert headers.get("x-api-key") == (KEY if key else None)
    assert headers.keys() == expected
    assert headers["user-agent"] == "meritory"


@both
def test_a_redirect_is_not_followed(server: ModelServer, provider: LlmProvider) -> None:
    with running() as elsewhere:
        server.script = [failing(307, Location=elsewhere.url("/v1/chat/completions"))]
        with pytest.raises(PortError, match=r"307.*final address"):
            opened(server, provider).ask(PROMPT, SCHEMA)
        assert elsewhere.seen == []


@both
def test_the_key_is_in_no_message(server: ModelServer, provider: LlmProvider) -> None:
    server.script = [failing(401, f"wrong key {KEY}")]
    llm = opened(server, provider)
    with pytest.raises(PortError, match=r"llm\.api_key") as caught:
        llm.ask(PROMPT, SCHEMA)
    assert KEY not in str(caught.value)
    assert KEY not in repr(llm)
    assert KEY not in repr(LlmSpec(provider=provider, model="m", api_key=KEY))


@both
def test_the_clients_are_not_imported_before_one_is_asked(provider: LlmProvider) -> None:
    """Neither costs a second when a daemon starts, nor when no model is configured."""
    code = (
        "import sys, meritory.ports.judge; from meritory.ports.llm import *; "
        f"open_llm(LlmSpec(provider={provider!r}, model='m')); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "meritory.ports.llm" in loaded
    assert not loaded & {"openai", "anthropic", "httpx2", "pydantic"}


@pytest.mark.parametrize("module", [*PROVIDERS, "httpx2"])
def test_a_missing_extra_names_the_command(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider: LlmProvider = "anthropic" if module == "anthropic" else "openai"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'meritory\[llm\]'"):
        open_llm(LlmSpec(provider=provider, model="m"))


# -- ways of asking -------------------------------------------------------------------------


def test_a_server_without_schemas_is_asked_more_simply_from_then_on(server: ModelServer) -> None:
    server.script = [failing(400, "unknown response_format"), failing(422)]
    llm = opened(server, "openai")
    assert llm.ask(PROMPT, SCHEMA).data == GOOD
    llm.ask(PROMPT, SCHEMA)
    formats = [seen["body"].get("response_format", {}).get("type") for seen in server.seen]
    assert formats == ["json_schema", "json_object", None, None]


def test_anthropic_without_forced_tools_is_asked_more_simply(server: ModelServer) -> None:
    server.script = [failing(400, "tool_choice"), failing(400, "output_config")]
    llm = opened(server, "anthropic")
    assert llm.ask(PROMPT, SCHEMA).data == GOOD
    llm.ask(PROMPT, SCHEMA)
    asked = [sorted({"tools", "output_config"} & seen["body"].keys()) for seen in server.seen]
    assert asked == [["tools"], ["output_config"], [], []]


def test_a_model_that_wants_the_newer_limit_gets_it(server: ModelServer) -> None:
    server.script = [failing(400, "use 'max_completion_tokens' instead of 'max_tokens'")]
    llm = opened(server, "openai", max_output_tokens=9)
    llm.ask(PROMPT, SCHEMA)
    llm.ask(PROMPT, SCHEMA)
    bodies = [seen["body"] for seen in server.seen]
    assert [body.get("max_completion_tokens") for body in bodies] == [None, 9, 9]
    assert [body.get("max_tokens") for body in bodies] == [9, None, None]
    assert all("json_schema" in body["response_format"] for body in bodies)


@both
def test_a_request_refused_in_every_way_is_reported_and_forgotten(
    server: ModelServer, provider: LlmProvider
) -> None:
    server.script = [failing(400, "prompt is too long")] * 3
    llm = opened(server, provider)
    with pytest.raises(PortError, match="400: prompt is too long"):
        llm.ask(PROMPT, SCHEMA)
    assert len(server.seen) == 3
    llm.ask(PROMPT, SCHEMA)
    assert server.seen[3]["body"].keys() == server.seen[0]["body"].keys()


@both
def test_one_fence_around_the_answer_is_taken_off(
    server: ModelServer, provider: LlmProvider
) -> None:
    server.script = [failing(400)] * 2
    server.speak = lambda user: f"```json\n{json.dumps(GOOD)}\n```\n"
    assert opened(server, provider).ask(PROMPT, SCHEMA).data == GOOD


# -- failures -------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "llm.api_key"),
        (403, "llm.api_key"),
        (404, "have the model 'm'"),
        (408, "check llm.model"),
        (409, "check llm.model"),
        (429, "tried again later"),
        (500, "look at its log"),
        (503, "look at its log"),
        (529, "look at its log"),
    ],
)
def test_a_refusal_is_reported_once_with_advice(
    server: ModelServer, provider: LlmProvider, status: int, hint: str
) -> None:
    server.script = [failing(status, "sorry", Retry_After="0")] * 5
    with pytest.raises(PortError, match=f"{status}: sorry.*{hint}") as caught:
        opened(server, provider).ask(PROMPT, SCHEMA)
    assert type(caught.value) is PortError
    assert len(server.seen) == 1


@both
def test_silence_ends_with_a_timeout(server: ModelServer, provider: LlmProvider) -> None:
    def hang(found: ModelServer, body: dict[str, Any]) -> Raw:
        found.release.wait(10)
        return Raw()

    server.script = [hang]
    with pytest.raises(PortTimeout, match="within 150 ms"):
        opened(server, provider, timeout_ms=150).ask(PROMPT, SCHEMA)


@both
def test_an_answer_that_drips_ends_with_a_timeout(
    server: ModelServer, provider: LlmProvider
) -> None:
    server.script = [Raw(body=b" " * 1_000, drip_s=0.05)]
    with pytest.raises(PortTimeout, match="within 250 ms"):
        opened(server, provider, timeout_ms=250).ask(PROMPT, SCHEMA)


@both
def test_nobody_listening_asks_whether_the_server_runs(provider: LlmProvider) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = LlmSpec(provider=provider, model="m", url=f"http://127.0.0.1:{port}")
    with pytest.raises(PortError, match=f"is the server running at http://127.0.0.1:{port}"):
        open_llm(spec).ask(PROMPT, SCHEMA)


@both
def test_a_dropped_connection_is_no_answer(server: ModelServer, provider: LlmProvider) -> None:
    server.script = [Raw(body=b"{", headers={"Content-Length": "999"})]
    with pytest.raises(PortError, match="no connection"):
        opened(server, provider).ask(PROMPT, SCHEMA)


@both
@pytest.mark.parametrize(
    "raw",
    [
        Raw(body=b" " * 10 * 1024 * 1024),
        Raw(body=b" " * 10 * 1024 * 1024, status=500),
        Raw(is_endless=True),
        Raw(body=gzip.compress(b" " * 10_000), headers={"Content-Encoding": "gzip"}),
    ],
    ids=["10 MB", "10 MB of error", "endless", "packed"],
)
def test_a_reply_without_end_is_cut_off(
    server: ModelServer, provider: LlmProvider, raw: Raw
) -> None:
    server.script = [raw]
    with pytest.raises(BadReply, match=r"more than 1048576 bytes|packed"):
        opened(server, provider).ask(PROMPT, SCHEMA)


# -- nonsense -------------------------------------------------------------------------------

TEXTS = [
    "",
    "   \n",
    "I would say two.",
    f"Here you are: {json.dumps(GOOD)}",
    f"{json.dumps(GOOD)}\nAnything else?",
    f"Sure!\n```json\n{json.dumps(GOOD)}\n```",
    f"<think>hm</think>{json.dumps(GOOD)}",
    json.dumps(GOOD)[:-3],
    json.dumps(GOOD) * 2,
    json.dumps([GOOD]),
    json.dumps(json.dumps(GOOD)),
    "null",
    "7",
    '{"count": NaN, "names": []}',
    '{"count": Infinity, "names": []}',
    '{"count": 1, "count": 2, "names": []}',
    '{"count": 1.5, "names": []}',
    '{"count": 1.0, "names": []}',
    '{"count": true, "names": []}',
    '{"count": "1", "names": []}',
    '{"count": null, "names": []}',
    '{"count": 1}',
    '{"count": 1, "names": "a"}',
    '{"count": 1, "names": [1]}',
    '{"count": 1, "names": [null]}',
    '{"count": 1, "names": {"0": "a"}}',
    '{"count": 1, "names": [], "more": 1}',
    '{"anzahl": 1, "namen": []}',
    '{"count": 1' + "0" * 5_000 + ', "names": []}',
    "[" * 100_000,
    '{"a":' * 50_000,
]


@both
def test_an_answer_in_another_shape_is_refused(server: ModelServer, provider: LlmProvider) -> None:
    surest, simplest = opened(server, provider), opened(server, provider)
    server.script = [failing(400), failing(400)]
    simplest.ask(PROMPT, SCHEMA)
    for text in TEXTS:
        server.speak = lambda user, text=text: text  # type: ignore[misc]
        for llm in (surest, simplest):
            with pytest.raises(BadReply):
                llm.ask(PROMPT, SCHEMA)


ENVELOPES: dict[LlmProvider, list[Any]] = {
    "openai": [
        {},
        [],
        "text",
        None,
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": None, "refusal": "I will not"}}]},
        {"choices": [{"message": {"content": [json.dumps(GOOD)]}}]},
        {"choices": {"0": {"message": {"content": json.dumps(GOOD)}}}},
        {"error": {"message": "overloaded"}},
        openai_envelope(json.dumps(GOOD), "length"),
    ],
    "anthropic": [
        {},
        [],
        "text",
        None,
        {"content": None},
        {"content": []},
        {"content": "text"},
        {"content": [None, 1]},
        {"content": [{"type": "thinking", "thinking": json.dumps(GOOD)}]},
        {"type": "error", "error": {"type": "overloaded_error"}},
        anthropic_envelope({"type": "tool_use", "name": "answer", "input": None}),
        anthropic_envelope({"type": "tool_use", "name": "answer", "input": [GOOD]}),
        anthropic_envelope({"type": "text"}),
        anthropic_envelope(*[{"type": "tool_use", "name": "answer", "input": GOOD}] * 2),
        anthropic_envelope(
            {"type": "text", "text": "Well."}, {"type": "tool_use", "name": "answer", "input": GOOD}
        ),
        anthropic_envelope(
            {"type": "tool_use", "name": "answer", "input": GOOD}, stop="max_tokens"
        ),
    ],
}


@both
def test_a_reply_in_another_envelope_is_refused(server: ModelServer, provider: LlmProvider) -> None:
    llm = opened(server, provider)
    bodies = [json.dumps(envelope).encode() for envelope in ENVELOPES[provider]]
    role = "system" if provider == "openai" else "user"
    good = wrapped({"messages": [{"role": role}]}, json.dumps(GOOD)).body
    server.script = [Raw(body=good)]
    assert llm.ask(PROMPT, SCHEMA).data == GOOD
    odd = good[:-1] + b', "odd": NaN}'
    for body in [*bodies, b"", b"<html>", b"\xff\xfe", odd]:
        server.script = [Raw(body=body)]
        with pytest.raises(BadReply):
            llm.ask(PROMPT, SCHEMA)


def test_a_cut_off_answer_says_what_to_raise(server: ModelServer) -> None:
    server.script = [lambda s, b: wrapped(b, json.dumps(GOOD), "length")]
    with pytest.raises(BadReply, match=r"cut off.*llm\.max_output_tokens"):
        opened(server, "openai").ask(PROMPT, SCHEMA)


def test_an_enumeration_and_inner_objects_are_checked() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": ["a", "b"]}, "size": {"type": "number"}},
        "required": ["kind"],
    }
    check_shape({"kind": "a"}, schema)
    check_shape({"kind": "b", "size": 1}, schema)
    for wrong in ({"kind": "c"}, {"kind": "a", "size": float("inf")}, {"kind": "a", "size": True}):
        with pytest.raises(BadReply):
            check_shape(wrong, schema)


# -- what it costs --------------------------------------------------------------------------


class Books:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.spent: list[Spending] = []

    def spent_since(self, moment: datetime) -> list[Spending]:
        return self.spent

    def record_spend(self, spend: Spending) -> None:
        self.spent.append(spend)


PRICES = {"price_per_million_input": 2.0, "price_per_million_output": 10.0}


def metered(
    server: ModelServer, provider: LlmProvider, budget: Budget, **fields: Any
) -> tuple[Llm, Books]:
    books = Books()
    meter = Meter(
        budget,
        "judge",
        books.spent_since,
        books.record_spend,
        lambda: datetime(2026, 3, 1, tzinfo=UTC),
    )
    return opened(server, provider, meter, **PRICES, **fields), books


@both
def test_every_call_is_written_down_with_its_cost(
    server: ModelServer, provider: LlmProvider
) -> None:
    llm, books = metered(server, provider, Budget())
    llm.ask(PROMPT, SCHEMA)
    (spent,) = books.spent
    assert (spent.input_tokens, spent.output_tokens) == USAGE
    assert spent.cost == pytest.approx((1_200 * 2.0 + 340 * 10.0) / 1e6)
    assert spent.model == f"{provider}:m"


def test_anthropic_counts_what_was_read_from_its_cache(server: ModelServer) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5}
    block = {"type": "tool_use", "name": "answer", "input": GOOD}
    envelope = anthropic_envelope(block) | {"usage": usage}
    server.script = [Raw(body=json.dumps(envelope).encode())]
    assert opened(server, "anthropic").ask(PROMPT, SCHEMA).input_tokens == 100


@both
@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": -1, "output_tokens": True}, "many"])
def test_a_server_that_does_not_count_is_counted_by_length(
    server: ModelServer, provider: LlmProvider, usage: Any
) -> None:
    if provider == "openai":
        envelope = openai_envelope(json.dumps(GOOD)) | {"usage": usage}
    else:
        block = {"type": "tool_use", "name": "answer", "input": GOOD}
        envelope = anthropic_envelope(block) | {"usage": usage}
    server.script = [Raw(body=json.dumps(envelope).encode())]
    reply = opened(server, provider).ask(PROMPT, SCHEMA)
    assert 50 < reply.input_tokens < 500
    assert 10 < reply.output_tokens < 500


@both
def test_a_spent_budget_sends_nothing(server: ModelServer, provider: LlmProvider) -> None:
    llm, _ = metered(server, provider, Budget(calls_per_hour=1))
    llm.ask(PROMPT, SCHEMA)
    with pytest.raises(BudgetSpent) as caught:
        llm.ask(PROMPT, SCHEMA)
    assert caught.value.retry_after_s == 3600.0
    assert len(server.seen) == 1


def test_a_call_that_might_cost_too_much_is_not_made(server: ModelServer) -> None:
    llm, books = metered(server, "openai", Budget(cost_per_day=0.01), max_output_tokens=1_001)
    with pytest.raises(BudgetSpent, match="cost_per_day"):
        llm.ask(PROMPT, SCHEMA)
    assert (server.seen, books.spent) == ([], [])


@both
def test_refusals_count_as_calls_but_cost_nothing(
    server: ModelServer, provider: LlmProvider
) -> None:
    llm, books = metered(server, provider, Budget(calls_per_day=2))
    server.script = [failing(503), failing(400)]
    with pytest.raises(PortError, match="503"):
        llm.ask(PROMPT, SCHEMA)
    with pytest.raises(BudgetSpent):
        llm.ask(PROMPT, SCHEMA)
    assert [spent.cost for spent in books.spent] == [0.0, 0.0]


@both
def test_a_timeout_is_taken_to_have_cost_everything(
    server: ModelServer, provider: LlmProvider
) -> None:
    llm, books = metered(server, provider, Budget(), timeout_ms=100, max_output_tokens=500)
    server.script = [Raw(body=b" " * 100, drip_s=0.05)]
    with pytest.raises(PortTimeout):
        llm.ask(PROMPT, SCHEMA)
    (spent,) = books.spent
    assert spent.output_tokens == 500
    assert spent.cost > 500 * 10.0 / 1e6


@both
def test_nonsense_is_paid_for_too(server: ModelServer, provider: LlmProvider) -> None:
    llm, books = metered(server, provider, Budget())
    server.speak = lambda user: "no"
    with pytest.raises(BadReply):
        llm.ask(PROMPT, SCHEMA)
    assert [(spent.input_tokens, spent.output_tokens) for spent in books.spent] == [USAGE]


# -- specs and settings --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"provider": "other"}, "choose one of openai, anthropic"),
        ({"model": ""}, "llm.model"),
        ({"timeout_ms": 0}, "above 0"),
        ({"max_output_tokens": 0}, "above 0"),
        ({"price_per_million_input": -1.0}, "price"),
        ({"price_per_million_output": float("nan")}, "price"),
        ({"api_key": "schlüssel"}, "copy it again"),
        ({"api_key": "a\nb"}, "copy it again"),
        ({"url": "ftp://example.org"}, "http://"),
        ({"url": "localhost:11434"}, "http://"),
        ({"url": "http://example.org:99999"}, "http://"),
        ({"url": "http://me:secret@example.org"}, "llm.api_key"),
    ],
)
def test_a_wrong_spec_says_what_to_set(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        open_llm(LlmSpec(**{"provider": "openai", "model": "m", **fields}))
