"""Every example runs as it is shown, offline."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from claude_server import ModelServer, said, used

from meritory import Memory

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DONE = {
    "session": 1,
    "openai_tools_loop": "I remember: Releases are cut on Thursdays",
    "langchain_retriever": "Through the payments queue.",
    "langgraph_store": "Ann likes to eat ramen",
    "openai_agents_chat": ["heron", "heron"],
    "pydantic_ai_agent": "heron",
}
RATED = {"session": 1, "openai_agents_chat": 2, "pydantic_ai_agent": 1}
APART = {"mem0_drop_in", "anthropic_memory_tool", "claude_agent_sdk_hooks"}


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*DONE, *APART}
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert all(f"({name}.py)" in listed for name in {*DONE, *APART})


@pytest.mark.parametrize("name", sorted(DONE))
def test_an_example_does_what_it_says(name: str, memory: Memory) -> None:
    example = importlib.import_module(name)
    assert example.main(memory) == DONE[name]
    assert memory.stats().get("feedback.taken", 0) == RATED.get(name, 0)
    assert memory.stats().get("feedback.refused", 0) == 0


def test_mem0s_calls_find_what_they_stored(tmp_path: Path) -> None:
    example = importlib.import_module("mem0_drop_in")
    with example.Memory(path=tmp_path / "mem0.db") as memory:
        found = example.main(memory)
    assert [one["memory"] for one in found] == ["I am vegetarian and allergic to nuts"]


def test_claude_keeps_a_file_and_it_is_a_memory(memory: Memory) -> None:
    from anthropic import Anthropic

    file = "/memories/deploys.md"
    script = [
        used(command="view", path="/memories"),
        used(command="create", path=file, file_text="The user deploys on Tuesdays.\n"),
        used(command="create", path=file, file_text="twice"),
        said("I will remember."),
    ]
    example = importlib.import_module("anthropic_memory_tool")
    with ModelServer(script) as server:
        client = Anthropic(base_url=server.url, api_key="none", max_retries=0)
        assert example.main(memory, client) == "I will remember."
        client.close()
    told = [message["messages"][-1]["content"][0] for message in server.asked[1:]]
    assert "two levels" in str(told[0]["content"])
    assert "exists already" in str(told[2]["content"])
    assert told[2]["is_error"] is True
    assert memory.recall("when does the user deploy?")[0].content.startswith("The user deploys")


def test_the_hooks_are_called_as_the_sdk_calls_them(memory: Memory) -> None:
    """The real client runs elsewhere; here its part is played with the dictionaries it sends."""

    async def ask(hooks: Any, prompt: str) -> str:
        told: dict[str, Any] = {"session_id": "s-1", "transcript_path": "/x", "cwd": "/x"}
        shown = await hooks.on_prompt({**told, "prompt": prompt}, None, {"signal": None})
        text = shown["hookSpecificOutput"]["additionalContext"]
        code = hooks.conversation("s-1").session.injection
        reply = f"heron\n<!--mf {code} m1=1-->"
        assert await hooks.on_stop({**told, "last_assistant_message": reply}, None, {}) == {}
        return "heron" if "heron" in text else "nothing"

    example = importlib.import_module("claude_agent_sdk_hooks")
    assert example.main(memory, ask) == "heron"
    assert memory.stats()["feedback.taken"] == 1
