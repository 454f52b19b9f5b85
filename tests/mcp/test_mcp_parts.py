"""The parts by themselves: lines, schemas, the table, and codes that lead to their session."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.api.memory import Memory
from meritory.domain.errors import NotFound
from meritory.domain.memory import KINDS as KNOWN_KINDS
from meritory.mcp import protocol
from meritory.mcp.protocol import Json, McpFault, McpRequest, framed, lines
from meritory.mcp.stdio import caller
from meritory.mcp.table import BY_NAME, KINDS, TOOLS, problem, without_nulls
from meritory.server import mcp_tools
from meritory.text import render

LIMIT = 40
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
METHODS = [
    *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list"),
    *("resources/read", "resources/templates/list", "notifications/cancelled", "prompts/list", ""),
]
MESSAGES: Any = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | VALUES,
        "id": st.integers() | st.text(max_size=5) | VALUES,
        "method": st.sampled_from(METHODS) | VALUES,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "_meta": st.fixed_dictionaries(
                    {},
                    optional={
                        protocol.VERSION_KEY: st.sampled_from(protocol.VERSIONS) | VALUES,
                        protocol.CAPABILITIES_KEY: st.just({}) | VALUES,
                    },
                )
                | VALUES,
                "protocolVersion": st.sampled_from(protocol.VERSIONS) | VALUES,
                "name": st.sampled_from(sorted(BY_NAME)) | VALUES,
                "arguments": VALUES,
                "cursor": VALUES,
            },
        )
        | VALUES,
        "result": VALUES,
    },
)


# -- lines ------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60)), st.booleans())
def test_lines_come_out_as_they_were_put_in(parts: list[bytes], is_ended: bool) -> None:
    """Whatever the sizes: what is too long is noted, what is blank is not, the rest is whole."""
    stream = b"\n".join(parts) + (b"\n" if is_ended else b"")
    wanted = [
        None if len(part) > LIMIT else part.strip()
        for part in stream.split(b"\n")
        if len(part) > LIMIT or part.strip()
    ]
    assert list(lines(io.BytesIO(stream).read, LIMIT)) == wanted
    drops = iter([stream[at : at + 1] for at in range(len(stream))])
    assert list(lines(lambda _: next(drops, b""), LIMIT)) == wanted


def test_a_message_is_one_plain_line() -> None:
    sent = framed({"text": "a\nb\r\u2028ü\ud800"})
    assert sent.isascii()
    assert sent.count(b"\n") == 1


# -- the protocol -----------------------------------------------------------------------------


def live(request: McpRequest) -> Json:
    if request.method == "tools/call":
        return {"content": []}
    raise McpFault(protocol.NO_RESOURCE, "Resource not found")


@settings(max_examples=100)
@given(MESSAGES | VALUES, st.sampled_from([None, *protocol.HANDSHAKE]))
def test_every_message_has_the_answer_it_is_owed(message: Any, version: str | None) -> None:
    reply = protocol.respond(message, live, version)
    if isinstance(message, dict) and "id" not in message and "method" in message:
        assert reply is None
    for one in reply if isinstance(reply, list) else [] if reply is None else [reply]:
        assert one["jsonrpc"] == "2.0"
        assert ("result" in one) != ("error" in one)
        assert json.loads(framed(one)) == one
        if "error" in one:
            assert one["error"]["code"] in range(-32768, -31999)
        elif protocol.is_stateless(message):
            assert one["result"]["resultType"] == "complete"
            assert one["error" if "error" in one else "id"] == message["id"]


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_a_fault(raw: bytes) -> None:
    try:
        protocol.parse(raw)
    except McpFault as fault:
        assert fault.code == protocol.PARSE_ERROR


# -- the table --------------------------------------------------------------------------------


def test_every_tool_of_the_table_is_there_and_no_other() -> None:
    assert set(mcp_tools._TOOLS) == {tool.name for tool in TOOLS}
    assert sum(tool.is_shown_always for tool in TOOLS) <= 2
    assert KINDS == KNOWN_KINDS
    for tool in TOOLS:
        assert set(tool.required) <= set(tool.takes)


@settings(max_examples=100)
@given(VALUES, st.sampled_from(TOOLS))
def test_whatever_is_wrong_with_arguments_is_said(value: Any, tool: Any) -> None:
    from jsonschema import Draft202012Validator

    told = problem(tool.input_schema, value)
    if told is None:
        # Ratings are judged one by one.
        schema = json.loads(json.dumps(tool.input_schema))
        schema["properties"].get("ratings", {}).pop("additionalProperties", None)
        Draft202012Validator(schema).validate(value)
    else:
        assert told


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("memory_search", {}, "needs `query`"),
        ("memory_search", {"query": "x", "limit": True}, "`limit` must be a whole number"),
        ("memory_search", {"query": "x", "limit": 21}, "from 1 to 20"),
        ("memory_search", {"query": ""}, "1 to 2000 characters, not 0"),
        ("memory_search", {"query": "\ud800"}, "lone surrogate"),
        (
            "memory_search",
            {"query": "x", "limits": 3},
            "unknown argument 'limits'; expected one of",
        ),
        ("memory_store", {"content": "x", "kind": "facts"}, "one of fact, preference"),
        ("memory_store", {"content": "x", "tags": ["a", 5]}, "`tags`[1] must be text"),
        ("memory_store", {"content": "x", "tags": ["a"] * 17}, "at most 16"),
        ("memory_store", {"content": "x", "everywhere": 1}, "true or false"),
        ("memory_feedback", {"injection": "x", "ratings": {}}, "1 to 64"),
        ("memory_feedback", {"injection": "x", "ratings": [1]}, "an object"),
    ],
)
def test_what_is_wrong_is_said_so_that_it_can_be_put_right(
    name: str, arguments: Json, said: str
) -> None:
    assert said in (problem(BY_NAME[name].input_schema, arguments) or "")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_null_means_left_out_for_every_optional_field(tool: Any) -> None:
    given = dict.fromkeys(tool.takes)
    assert without_nulls(tool.input_schema, given) == dict.fromkeys(tool.required)
    assert without_nulls(tool.input_schema, {"unknown": 1}) == {"unknown": 1}


# -- who asks ---------------------------------------------------------------------------------


def test_the_caller_is_who_it_was_told_to_be() -> None:
    environ = {
        "CLAUDE_CODE_SESSION_ID": "abc",
        "CLAUDE_PROJECT_DIR": "/srv/shop",
        "MERITORY_USER": "anna",
        "SECRET": "x",
    }
    assert caller({}, environ) == {"user": "anna", "session_key": "abc", "cwd": "/srv/shop"}
    told = caller({"user": "bert", "project": "p"}, environ)
    assert told == {"user": "bert", "project": "p", "session_key": "abc"}
    odd = {"CLAUDE_CODE_SESSION_ID": "a\nb", "CLAUDE_PROJECT_DIR": "/x\x00", "MERITORY_USER": " "}
    assert caller({}, odd) == {}


def test_the_server_starts_with_the_standard_library_alone() -> None:
    """Without site-packages, and without what takes long to load."""
    source = mcp_tools.__file__.rpartition("/meritory/")[0]
    code = (
        f"import sys; sys.path.insert(0, {source!r})\n"
        "import meritory.mcp.stdio\n"
        "print(*sorted(sys.modules))"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "meritory.mcp.stdio" in loaded
    assert not loaded & {"click", "msgspec", "numpy", "http.client", "ssl", "asyncio", "sqlite3"}


# -- codes ------------------------------------------------------------------------------------


def test_a_code_leads_to_its_session_and_to_nobody_elses(memory: Memory) -> None:
    memory.remember("The lighthouse is painted white")
    for key in ("one", "two"):
        memory.session(key, context="the lighthouse")
    other = memory.view("somebody")
    other.remember("The lighthouse is painted white")
    other.session("one", context="the lighthouse")
    store = memory.services.store
    codes = {
        (user, key): store.injections(user, key)[0].code
        for user, key in (("default", "one"), ("default", "two"), ("somebody", "one"))
    }
    for (user, key), code in codes.items():
        assert store.session_of_code(user, code).key == key
    with pytest.raises(NotFound):
        store.session_of_code("somebody", codes["default", "two"])
    with pytest.raises(NotFound):
        store.session_of_code("default", "0" * render.CODE_CHARS)
