"""Calls of Meritory's own tools are recognised, and their results are told from all others."""

from __future__ import annotations

import pytest

from meritory.server.mcp_tools import _TOOLS
from meritory.text.transcript import OPEN_CALLS_LIMIT, OWN_TOOLS, CallLinks, is_own_call, read_turns


def test_the_tools_are_those_of_the_server() -> None:
    assert frozenset(_TOOLS) == OWN_TOOLS


@pytest.mark.parametrize(
    "name",
    [
        "memory_search",
        "mcp__meritory__memory_search",
        "mcp__plugin_meritory_meritory__memory_get",
        "mcp_meritory_memory_explain",
        "meritory-memory_search",
        "meritory_describe_entity",
        "Meritory__Memory_Search",
    ],
)
def test_a_tool_of_the_server_under_any_clients_name(name: str) -> None:
    assert is_own_call(name, {"query": "x"})


@pytest.mark.parametrize(
    "name",
    ["", "Read", "mcp__notes__memory_search", "memory_searches", "meritory", "my_memory_get"],
)
def test_a_tool_of_others(name: str) -> None:
    assert not is_own_call(name, {"query": "memory_search"})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("CallMcpTool", {"server": "user-meritory", "toolName": "memory_search"}),
        ("ReadMcpResourceTool", {"server": "meritory", "uri": "meritory://memories"}),
        ("Bash", {"command": "cd shop && meritory recall heron | head"}),
        ("shell", {"command": ["bash", "-lc", "meritory list"]}),
        ("run_shell_command", {"command": "python3 -m meritory why m1"}),
        ("bash", {"command": "uv run meritory recall x"}),
        ("bash", {"command": "uvx meritory recall x"}),
        ("exec_command", '{"cmd": "/usr/local/bin/meritory stats"}'),
    ],
)
def test_other_ways_to_the_same(name: str, given: object) -> None:
    assert is_own_call(name, given)


@pytest.mark.parametrize(
    "command",
    [
        "grep -rn meritory README.md",
        "cd /srv/meritory && pytest",
        "python -m pytest meritory",
        "echo 'meritory recall heron'",
        "uv run pytest meritory",
        "",
    ],
)
def test_a_command_that_only_names_it(command: str) -> None:
    assert not is_own_call("Bash", {"command": command})


def call(name: str, **more: str) -> dict[str, object]:
    return {"type": "tool_use", "name": name, "input": {}, **more}


def result(text: str, **more: str) -> dict[str, object]:
    return {"type": "tool_result", "content": text, **more}


def results(*items: object) -> list[str]:
    return [turn.text for turn in read_turns(list(items)) if turn.role == "result"]


def test_ids_link_results_that_come_in_any_order() -> None:
    assert results(
        call("memory_search", id="a"),
        call("Read", id="b"),
        result("kept", tool_use_id="b"),
        result("own", tool_use_id="a"),
        result("of an earlier call", tool_use_id="z"),
        # Some clients write a result again.
        result("own", tool_use_id="a"),
    ) == ["kept", "of an earlier call"]


def test_without_ids_the_order_of_the_calls_links() -> None:
    assert results(
        call("Read"),
        call("memory_search"),
        call("Read"),
        result("one"),
        result("own"),
        result("two"),
        result("more"),
    ) == ["one", "two", "more"]


def test_a_result_without_an_id_answers_the_oldest_call() -> None:
    assert results(call("memory_get", id="a"), result("own"), result("other")) == ["other"]


def test_a_prompt_ends_what_was_called_without_an_id() -> None:
    """An interrupted call of ours must not take the next result away."""
    stopped = {"role": "user", "text": "stop"}
    assert results(call("memory_search"), stopped, call("Read"), result("file")) == ["file"]
    late = result("own", tool_use_id="a")
    assert results(call("memory_search", id="a"), stopped, late) == []


def test_a_result_that_names_its_tool() -> None:
    assert results(
        result("own", name="mcp__meritory__memory_search"), result("x", name="Read")
    ) == ["x"]


def test_results_in_the_chat_format() -> None:
    calls = [
        {"id": "1", "function": {"name": "memory_search", "arguments": '{"query": "x"}'}},
        {"id": "2", "function": {"name": "run", "arguments": "{}"}},
    ]
    assert results(
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "own"},
        {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "kept"}]},
    ) == ["kept"]


def test_a_namespace_belongs_to_the_name() -> None:
    for namespace, kept in (("mcp__meritory__", []), ("mcp__notes__", ["found"])):
        item = {"type": "function_call", "call_id": "1", "namespace": namespace}
        output = {"type": "function_call_output", "call_id": "1", "output": "found"}
        assert results({**item, "name": "memory_search", "arguments": "{}"}, output) == kept


def test_calls_that_never_end_take_no_memory() -> None:
    links = CallLinks()
    for number in range(3 * OPEN_CALLS_LIMIT):
        links.note_call({"id": str(number)}, "memory_search", None)
    assert len(links._open) == OPEN_CALLS_LIMIT
    assert not links.is_own_result({"tool_use_id": "0"})
    assert links.is_own_result({"tool_use_id": str(3 * OPEN_CALLS_LIMIT - 1)})
    for number in range(3 * OPEN_CALLS_LIMIT):
        links.is_own_result({"tool_use_id": f"r{number}", "name": "memory_search"})
    assert len(links._answered) == OPEN_CALLS_LIMIT
