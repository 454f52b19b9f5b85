"""Evidence in the transcripts of every client: the paths of calls, and no results of our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from meritory.connect.transcripts import read_messages
from meritory.domain.session import Turn
from meritory.text.transcript import read_turns

Entry = dict[str, Any]
# One call and its result, as a client writes them: name, arguments, id, result.
Shape = Callable[[str, Any, str, str], list[Entry]]
OWN, OTHER = "heron is the staging database", "found in a file"
PATCH = """*** Begin Patch
*** Update File: src/app.py
@@
-a = 1
+a = 2
*** Add File: docs/new.md
+text
*** Delete File: old.py
*** Update File: a.py
*** Move to: b.py
*** End Patch"""
PATCHED = ("src/app.py", "docs/new.md", "old.py", "a.py", "b.py")


def claude(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"type": "tool_use", "id": call_id, "name": name, "input": given}
    back = {"type": "tool_result", "tool_use_id": call_id, "content": result}
    return [
        {"type": "assistant", "message": {"role": "assistant", "content": [call]}},
        {"type": "user", "message": {"role": "user", "content": [back]}},
    ]


def codex(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"type": "function_call", "name": name, "arguments": json.dumps(given)}
    back = {"type": "function_call_output", "output": result}
    if isinstance(given, str):
        call = {"type": "custom_tool_call", "name": name, "input": given}
        back = {"type": "custom_tool_call_output", "output": result}
    return [
        {"type": "response_item", "payload": {**one, "id": f"fc{call_id}", "call_id": call_id}}
        for one in (call, back)
    ]


def local_shell(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"type": "local_shell_call", "call_id": call_id, "action": given}
    back = {"type": "function_call_output", "call_id": call_id, "output": result}
    return [{"type": "response_item", "payload": one} for one in (call, back)]


def gemini(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"id": call_id, "name": name, "args": given, "resultDisplay": result}
    return [{"id": f"m{call_id}", "type": "gemini", "content": "", "toolCalls": [call]}]


def copilot(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"toolCallId": call_id, "name": name, "arguments": given}
    back = {"toolCallId": call_id, "success": True, "result": {"content": result}}
    return [
        {"type": "assistant.message", "data": {"content": "", "toolRequests": [call]}},
        {"type": "tool.execution_complete", "data": back},
    ]


def cursor(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"type": "tool_use", "name": name, "input": given}
    back = {"type": "tool_result", "content": result}
    return [
        {"role": "assistant", "message": {"content": [call]}},
        {"role": "user", "message": {"content": [back]}},
    ]


def chat(name: str, given: Any, call_id: str, result: str) -> list[Entry]:
    call = {"id": call_id, "function": {"name": name, "arguments": json.dumps(given)}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def turns(*entries: Entry) -> list[Turn]:
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    return list(read_turns(read_messages(text)))


CALLS: list[tuple[Shape, str, Any, str, tuple[str, ...]]] = [
    (claude, "Edit", {"file_path": "a.py", "new_string": "y"}, "edit", ("a.py",)),
    (claude, "Write", {"file_path": "/b/c.md", "content": "y"}, "edit", ("/b/c.md",)),
    (claude, "MultiEdit", {"file_path": "a.py", "edits": [{"new_string": "y"}]}, "edit", ("a.py",)),
    (claude, "NotebookEdit", {"notebook_path": "n.ipynb", "new_source": "y"}, "edit", ("n.ipynb",)),
    (claude, "Read", {"file_path": "a.py"}, "tool", ("a.py",)),
    (claude, "Grep", {"pattern": "x", "path": "src"}, "tool", ("src",)),
    (claude, "Bash", {"command": "ls src"}, "tool", ()),
    (claude, "mcp__files__write_file", {"path": "a.py", "content": "y"}, "edit", ("a.py",)),
    (codex, "apply_patch", PATCH, "edit", PATCHED),
    (codex, "apply_patch", {"input": PATCH}, "edit", PATCHED),
    (codex, "shell", {"command": ["apply_patch", PATCH]}, "edit", PATCHED),
    (codex, "exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}, "edit", PATCHED),
    (codex, "shell", {"command": ["cat", "a.py"]}, "tool", ()),
    (codex, "view_image", {"path": "a.png"}, "tool", ("a.png",)),
    (local_shell, "", {"command": ["apply_patch", PATCH]}, "edit", PATCHED),
    (gemini, "write_file", {"file_path": "a.py", "content": "y"}, "edit", ("a.py",)),
    (gemini, "replace", {"file_path": "a.py", "new_string": "y"}, "edit", ("a.py",)),
    (gemini, "read_file", {"absolute_path": "/a.py"}, "tool", ("/a.py",)),
    (gemini, "read_many_files", {"paths": ["a.py", "b.py"]}, "tool", ("a.py", "b.py")),
    (copilot, "create", {"path": "a.py", "file_text": "y"}, "edit", ("a.py",)),
    (copilot, "edit", {"path": "a.py", "old_str": "x", "new_str": "y"}, "edit", ("a.py",)),
    (copilot, "view", {"path": "a.py"}, "tool", ("a.py",)),
    (copilot, "str_replace_editor", {"command": "view", "path": "a.py"}, "tool", ("a.py",)),
    (copilot, "replace_string_in_file", {"filePath": "a.py", "newString": "y"}, "edit", ("a.py",)),
    (copilot, "insert_edit_into_file", {"filePath": "a.py", "code": "y"}, "edit", ("a.py",)),
    (
        copilot,
        "multi_replace_string_in_file",
        {"replacements": [{"filePath": "a.py", "newString": "y"}, {"filePath": "b.py"}]},
        "edit",
        ("a.py", "b.py"),
    ),
    (copilot, "read_file", {"filePath": "a.py"}, "tool", ("a.py",)),
    (copilot, "delete_file", {"path": "a.py"}, "tool", ("a.py",)),
    (cursor, "StrReplace", {"path": "a.py", "new_string": "y"}, "edit", ("a.py",)),
    (cursor, "edit_file", {"target_file": "a.py", "code_edit": "y"}, "edit", ("a.py",)),
    (cursor, "Write", {"path": "a.py", "contents": "y"}, "edit", ("a.py",)),
    (cursor, "Delete", {"path": "a.py"}, "tool", ("a.py",)),
    (chat, "edit", {"filePath": "a.py", "newString": "y"}, "edit", ("a.py",)),
    (chat, "open", {"filename": "a.py"}, "tool", ("a.py",)),
    (chat, "read", {"files": [{"path": "a.py"}, {"path": "b.py"}]}, "tool", ("a.py", "b.py")),
]


@pytest.mark.parametrize(("shape", "name", "given", "role", "paths"), CALLS)
def test_every_call_names_its_files(
    shape: Shape, name: str, given: Any, role: str, paths: tuple[str, ...]
) -> None:
    called, result = [
        turn for turn in turns(*shape(name, given, "1", "ok")) if turn.role != "assistant"
    ]
    assert (called.role, called.paths) == (role, paths)
    assert result == Turn("result", "ok")
    if role == "edit":
        assert called.text in ("y", PATCH) or PATCH in called.text


@pytest.mark.parametrize(
    "given",
    [
        {"file_path": "a.py", "content": PATCH},
        {"file_path": "a.py", "path": "a.py", "paths": ["a.py", 5, None]},
        {"file_path": " a.py\n"},
        {"file_path": "a.py", "path": "x" * 2_000, "filename": "two\nlines", "file": ""},
    ],
)
def test_what_is_no_path_is_left_out(given: Any) -> None:
    (called, _) = turns(*claude("Write", given, "1", "ok"))
    assert called.paths == ("a.py",)


def test_deep_arguments_and_many_paths_have_an_end() -> None:
    deep: Any = {"path": "a.py"}
    for _ in range(500):
        deep = {"inner": deep}
    (called, _) = turns(*claude("tool", deep, "1", "ok"))
    assert called.paths == ()
    many = {"paths": [f"f{number}.py" for number in range(10_000)]}
    (called, _) = turns(*claude("read_many_files", many, "1", "ok"))
    assert 100 <= len(called.paths) <= 1_000


OWN_CALLS = [
    ("memory_search", {"query": "staging"}),
    ("mcp__meritory__memory_search", {"query": "staging"}),
    ("Bash", {"command": "meritory recall staging"}),
]


@pytest.mark.parametrize("shape", [claude, codex, gemini, copilot, cursor, chat])
@pytest.mark.parametrize(("name", "given"), OWN_CALLS)
def test_results_of_our_own_tools_are_dropped(shape: Shape, name: str, given: Any) -> None:
    entries = [
        *shape("Read", {"path": "a.py"}, "1", OTHER),
        *shape(name, given, "2", OWN),
        *shape("Bash", {"command": "grep meritory a.py"}, "3", OTHER),
    ]
    found = turns(*entries)
    assert [turn.text for turn in found if turn.role == "result"] == [OTHER, OTHER]
    # What the agent asked for is its own word.
    assert sum(turn.role == "tool" for turn in found) == 3


def test_own_results_of_calls_made_together_are_dropped() -> None:
    one = claude("Read", {"path": "a.py"}, "1", OTHER)
    two = claude("memory_search", {"query": "x"}, "2", OWN)
    found = turns(one[0], two[0], two[1], one[1])
    assert [turn.text for turn in found if turn.role == "result"] == [OTHER]
