"""Function tools: what a model asks for is done, and what it makes up is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meritory import Memory
from meritory.integrations.openai_tools import TOOLS, call_tool, openai_tools


def asked(memory: Memory, name: str, arguments: Any, **more: Any) -> Any:
    return json.loads(call_tool(memory, name, arguments, **more))


def test_the_two_forms_say_the_same() -> None:
    chat, responses = openai_tools(), openai_tools("responses")
    assert [one["function"]["name"] for one in chat] == [one["name"] for one in responses]
    assert [one["name"] for one in responses] == list(TOOLS)
    for one in responses:
        assert set(one["parameters"]["required"]) <= set(one["parameters"]["properties"])
        assert one["parameters"]["additionalProperties"] is False
        assert one["description"]
    json.dumps(chat)


def test_a_model_stores_finds_reads_rates_and_forgets(memory: Memory) -> None:
    told = {"content": "Releases are cut on Thursdays", "kind": "procedure", "tags": ["release"]}
    name = asked(memory, "memory_store", json.dumps(told))["id"]
    record = memory.get(name)
    assert (record.origin, record.provenance, record.kind) == (
        "agent",
        "assistant_derived",
        "procedure",
    )
    found = asked(memory, "memory_search", {"query": "when are releases cut?", "limit": 3})
    assert found["results"][0]["id"] == name
    assert asked(memory, "memory_get", {"id": name})["content"] == record.content
    session = memory.session("s", context="when are releases cut?")
    rated = asked(memory, "memory_feedback", {"ratings": {"m1": 1, "m9": 1}}, session=session)
    assert rated == {"accepted": 1, "ignored": ["m9"]}
    assert asked(memory, "memory_forget", {"id": name, "why": "wrong"}) == {"forgotten": name}
    assert asked(memory, "memory_search", {"query": "releases"})["results"] == []


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("memory_erase", {}, "not_found"),
        ("memory_search", "{", "invalid_input"),
        ("memory_search", "[]", "invalid_input"),
        ("memory_search", None, "invalid_input"),
        ("memory_search", {}, "invalid_input"),
        ("memory_search", {"query": 5}, "invalid_input"),
        ("memory_search", {"query": None}, "invalid_input"),
        ("memory_search", {"query": "x", "limit": True}, "invalid_input"),
        ("memory_search", {"query": "x", "limit": 10**9}, "invalid_input"),
        ("memory_search", {"query": "x", "of": 1}, "invalid_input"),
        ("memory_store", {"content": ""}, "invalid_input"),
        ("memory_store", {"content": "x", "kind": "rumour"}, "invalid_input"),
        ("memory_store", {"content": "ghp_" + "a1B2c3D4e5" * 4}, "secret_found"),
        ("memory_get", {"id": "nobody"}, "not_found"),
        ("memory_forget", {"id": "nobody"}, "not_found"),
        ("memory_feedback", {"ratings": {"m1": 1}}, "invalid_input"),
        ("memory_feedback", {"ratings": [1]}, "invalid_input"),
    ],
)
def test_what_goes_wrong_is_told(memory: Memory, name: str, arguments: Any, code: str) -> None:
    told = asked(memory, name, arguments)
    assert told["error"] == code
    assert told["message"]
