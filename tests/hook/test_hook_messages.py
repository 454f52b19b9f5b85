"""Transcripts of every client, read as what was said and done, without what was put in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meritory.connect.transcripts import read_messages, without_context
from meritory.server.dedupe import WINDOW_MS, DuplicateFilter
from meritory.text.transcript import read_transcript

NOTES = "[meritory notes " + "0" * 32 + "] x\nm1: put in\n[/meritory notes " + "0" * 32 + "]"


def turns(*entries: Any) -> list[tuple[str, str]]:
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    return [(turn.role, turn.text) for turn in read_transcript(read_messages(text))]


def test_claude_code() -> None:
    found = turns(
        {"type": "queue-operation", "operation": "enqueue", "content": "put in"},
        {"type": "attachment", "attachment": {"type": "hook_additional_context", "content": NOTES}},
        {"type": "user", "promptId": "1", "message": {"role": "user", "content": "where is it?"}},
        {"type": "user", "isMeta": True, "message": {"role": "user", "content": "put in"}},
        {
            "type": "user",
            "isCompactSummary": True,
            "message": {"role": "user", "content": "put in"},
        },
        {
            "type": "assistant",
            "isSidechain": True,
            "message": {"role": "assistant", "content": "no"},
        },
        {
            "type": "assistant",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
        },
        {
            "type": "user",
            "toolUseResult": {},
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "content": [{"type": "text", "text": "a b"}]}],
            },
        },
        {"type": "system", "subtype": "stop_hook_summary", "content": "put in"},
    )
    said = [turn for turn in found if turn[0] != "system"]
    assert said == [
        ("user", "where is it?"),
        ("assistant", "I look."),
        ("tool", 'Bash {"command": "ls"}'),
        ("result", "a b"),
    ]


def test_codex() -> None:
    def item(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "t", "type": kind, "payload": payload}

    def message(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        return item("response_item", type="message", role=role, content=content)

    found = turns(
        item("session_meta", id="1", cwd="/", instructions="put in"),
        message("developer", NOTES),
        message("user", "# AGENTS.md instructions for /shop\nput in"),
        message("user", "<environment_context>put in</environment_context>"),
        message("user", "where is it?"),
        item("event_msg", type="user_message", message="where is it?"),
        item("event_msg", type="agent_reasoning", text="put in"),
        item("response_item", type="reasoning", summary=[], content=None),
        item("response_item", type="function_call", name="shell", arguments='{"command": ["ls"]}'),
        item("response_item", type="function_call_output", call_id="1", output="a b"),
        item("response_item", type="custom_tool_call", name="apply_patch", input="*** Begin Patch"),
        item("response_item", type="custom_tool_call_output", call_id="2", output="done"),
        message("assistant", "There.\n<!--mf 0123456789 m1=1-->"),
        item("compacted", message="put in", replacement_history=[]),
    )
    assert found == [
        ("user", "where is it?"),
        ("tool", 'shell {"command": ["ls"]}'),
        ("result", "a b"),
        ("edit", "*** Begin Patch"),
        ("result", "done"),
        ("assistant", "There."),
    ]


def test_gemini() -> None:
    def message(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"id": f"i{number}", "timestamp": "t", "type": kind, "content": content, **more}

    call = {"id": "c", "name": "ls", "args": {"dir": "."}, "resultDisplay": "a b"}
    entries = [
        {"sessionId": "s", "projectHash": "h", "startTime": "t", "kind": "main"},
        message(1, "user", f"<hook_context>{NOTES}</hook_context>\n\nwhere is it?"),
        message(2, "gemini", "I lo", thoughts=[{"subject": "hm"}]),
        message(2, "gemini", "I look.", toolCalls=[call]),
        {"$set": {"lastUpdated": "t"}},
        message(3, "user", [{"text": "never mind"}]),
        message(4, "gemini", "Fine."),
        {"$rewindTo": "i3"},
        message(5, "user", [{"text": "thanks"}]),
    ]
    said = [
        ("user", "where is it?"),
        ("assistant", "I look."),
        ("tool", 'ls {"dir": "."}'),
        ("result", "a b"),
        ("user", "thanks"),
    ]
    assert turns(*entries) == said
    whole = {"sessionId": "s", "messages": [one for one in entries if "type" in one][:3]}
    document = json.dumps(whole, indent=2)
    assert [turn.text for turn in read_transcript(read_messages(document))] == [
        text for _, text in said[:4]
    ]


def test_copilot_and_vs_code() -> None:
    def entry(kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": "i", "timestamp": "t", "parentId": None}

    requests = [{"toolCallId": "1", "name": "bash", "arguments": {"command": "ls"}}]
    found = turns(
        entry("session.start", sessionId="s", content="put in"),
        entry("user.message", content="where is it?", transformedContent=f"where is it? {NOTES}"),
        entry("user.message", content="put in", source="system"),
        entry("assistant.message", content="", toolRequests=requests),
        entry("assistant.message", content="put in", parentToolCallId="1"),
        entry("tool.execution_start", toolName="bash", arguments={}),
        entry("tool.execution_complete", success=True, result={"content": "a b"}),
        entry("assistant.message", content="There."),
        entry("hook.end", output={"additionalContext": NOTES}),
    )
    assert found == [
        ("user", "where is it?"),
        ("tool", 'bash {"command": "ls"}'),
        ("result", "a b"),
        ("assistant", "There."),
    ]


def test_cursor() -> None:
    def entry(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}

    asked = "<attached_files>put in</attached_files>\n<user_query>\nwhere is it?\n</user_query>"
    found = turns(entry("user", asked), entry("assistant", "There."), {"type": "turn_ended"})
    assert found == [("user", "where is it?"), ("assistant", "There.")]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "{", "[]", "null", "{}", '{"messages": 5}', '{\n"messages": [1, null]}']
)
def test_what_says_nothing_is_nothing(text: str) -> None:
    assert read_messages(text) == []


@pytest.mark.parametrize("wrong", [5, None, [], {}, "x", [5], [[]], {"content": 5}, True])
@pytest.mark.parametrize(
    "name", ["type", "data", "payload", "message", "content", "toolCalls", "id"]
)
@pytest.mark.parametrize("kind", ["gemini", "user", "assistant.message", "response_item"])
def test_no_field_needs_to_be_what_it_should(kind: str, name: str, wrong: Any) -> None:
    entry = {"type": kind, "id": "i", "content": "x", "$rewindTo": wrong, name: wrong}
    told = json.dumps(entry) + "\n" + json.dumps({"role": "user", "content": "last"})
    found = read_messages(told)
    assert found[-1]["content"] == "last"
    read_transcript(found)


def test_context_is_taken_out_of_a_prompt_and_half_of_one_is_left() -> None:
    assert without_context("plain") == "plain"
    assert without_context("<hook_context>a</hook_context>b<hook_context>c</hook_context>") == "b"
    assert without_context("a <hook_context> b") == "a <hook_context> b"
    # Many openings must not take for ever.
    assert len(without_context("<hook_context>" * 200_000)) > 0


def test_an_echo_is_the_same_within_two_seconds() -> None:
    now = [0.0]
    duplicates = DuplicateFilter(lambda: now[0])
    assert not duplicates.is_duplicate("s", "prompt", "hello")
    assert not duplicates.is_duplicate("s", "prompt", "hello", "")
    assert not duplicates.is_duplicate("s", "promp", "thello")
    assert duplicates.is_duplicate("s", "prompt", "hello")
    now[0] = WINDOW_MS - 1
    assert duplicates.is_duplicate("s", "prompt", "hello")
    now[0] = WINDOW_MS
    assert not duplicates.is_duplicate("s", "prompt", "hello")
    assert not duplicates.is_duplicate("\ud800")
