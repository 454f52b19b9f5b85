"""Agent frameworks: what the model is sent, what stays in the history, what is learned."""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import pytest

from meritory import Memory
from meritory.domain.errors import MissingExtra
from meritory.integrations.claude_agent_sdk import MeritoryHooks

HERON = "The staging database is called heron"


# -- OpenAI Agents SDK ------------------------------------------------------------------------


def test_a_chat_keeps_its_history_without_ratings_and_shows_each_memory_once(
    memory: Memory,
) -> None:
    from openai_agents_chat import ScriptedModel

    from agents import Agent, RunConfig, Runner
    from meritory.integrations.openai_agents import MeritorySession

    memory.remember(HERON)
    model = ScriptedModel()

    async def chat() -> MeritorySession:
        session = MeritorySession("chat", memory, project="shop")
        agent = Agent(name="a", model=model, tools=session.tools())
        config = session.run_config(RunConfig(tracing_disabled=True))
        for question in ("what is the staging database?", "what is the staging database again?"):
            await Runner.run(agent, question, session=session, run_config=config)
        return session

    session = asyncio.run(chat())
    first, second = ([str(item.get("content")) for item in sent] for sent in model.inputs)
    assert HERON in first[0]
    assert "staging database?" in first[1]
    # The second request shows it where it was, and not again.
    assert sum(HERON in one for one in second) == 1
    items = asyncio.run(session.get_items())
    assert [item["role"] for item in items] == ["user", "assistant"] * 2  # type: ignore[typeddict-item]
    assert "<!--mf" not in str(items)
    assert HERON not in str(items)
    assert memory.stats()["feedback.taken"] == 2
    assert asyncio.run(session.get_items(1)) == items[-1:]
    assert asyncio.run(session.pop_item()) == items[-1]
    asyncio.run(session.end())
    assert memory.drain() >= 0
    asyncio.run(session.clear_session())
    assert asyncio.run(session.get_items()) == []
    assert asyncio.run(session.pop_item()) is None


def test_another_session_can_keep_the_history(memory: Memory) -> None:
    from agents import SQLiteSession
    from meritory.integrations.openai_agents import MeritorySession

    async def use() -> tuple[Any, ...]:
        own = SQLiteSession("kept")
        session = MeritorySession("kept", memory, history=own)
        text = {"type": "output_text", "text": "yes <!--mf abcdef1 m1=1-->"}
        odd = {"role": "assistant", "content": None}
        await session.add_items(
            [
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": [text, {"type": "refusal"}]},  # type: ignore[list-item]
                odd,  # type: ignore[list-item]
            ]
        )
        kept = await own.get_items()
        assert await session.get_items() == kept
        last = await session.pop_item()
        await session.clear_session()
        left = await own.get_items()
        own.close()
        return kept, last, left

    kept, last, left = asyncio.run(use())
    assert kept[1]["content"][0]["text"] == "yes"
    assert last["content"] is None
    assert left == []


def test_a_tool_of_the_agents_sdk_stores(memory: Memory) -> None:
    from meritory.integrations.openai_agents import MeritorySession

    session = MeritorySession("tools", memory)
    tool = next(one for one in session.tools() if one.name == "memory_store")
    arguments = '{"content": "Releases are cut on Thursdays"}'
    told = asyncio.run(tool.on_invoke_tool(None, arguments))  # type: ignore[arg-type]
    assert "stored" in told
    assert memory.page()[0].origin == "agent"


# -- Pydantic AI ------------------------------------------------------------------------------


def test_a_run_with_tools_sees_the_memory_at_every_request(memory: Memory) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from meritory.integrations.pydantic_ai import MeritoryMemory

    memory.remember(HERON)
    requests: list[str] = []

    def scripted(messages: list[Any], info: Any) -> ModelResponse:
        requests.append(str(messages))
        assert HERON not in str(info.instructions)
        if len(requests) == 1:
            told = {"content": "Releases are cut on Thursdays"}
            return ModelResponse(parts=[ToolCallPart("memory_store", told)])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(scripted), capabilities=[MeritoryMemory(memory, tools=True)])
    result = asyncio.run(agent.run("what is the staging database?"))
    assert result.output == "done"
    assert [one.count(HERON) for one in requests] == [1, 1]
    assert HERON not in str(result.all_messages())
    assert {one.content for one in memory.page()} == {HERON, "Releases are cut on Thursdays"}
    again = asyncio.run(
        agent.run("and the staging database?", message_history=result.all_messages())
    )
    assert again.output == "done"
    assert requests[2].count(HERON) == 1


def test_a_run_that_fails_ends_its_session_too(memory: Memory) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    from meritory.integrations.pydantic_ai import MeritoryMemory

    def broken(messages: list[Any], info: Any) -> Any:
        raise RuntimeError("no model today")

    memory.remember(HERON)
    agent = Agent(FunctionModel(broken), capabilities=[MeritoryMemory(memory)])
    with pytest.raises(RuntimeError):
        asyncio.run(agent.run("what is the staging database?"))
    states = {one.state for one in memory.services.store.sessions(memory.scope.user, 10)}
    assert states <= {"ended", "finished"}
    assert states


# -- Claude Agent SDK -------------------------------------------------------------------------


def test_claudes_hooks_show_rate_compact_and_end(memory: Memory) -> None:
    memory.remember(HERON)

    async def use() -> None:
        async with MeritoryHooks(memory, project="shop") as hooks:
            told: dict[str, Any] = {"session_id": "s", "prompt": "the staging database?"}
            shown = await hooks.on_prompt(told, None, None)
            assert shown["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
            again = await hooks.on_prompt(told, None, None)
            assert HERON not in str(again)
            await hooks.on_compact({"session_id": "s"}, None, None)
            assert HERON in str(await hooks.on_prompt(told, None, None))

    asyncio.run(use())
    sessions = memory.services.store.sessions(memory.scope.user, 10)
    assert [(one.key, one.project, one.harness) for one in sessions] == [
        ("s", "shop", "claude-agent-sdk")
    ]
    assert sessions[0].state != "open"


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"session_id": None},
        {"session_id": 5},
        {"session_id": "s"},
        {"session_id": "s", "prompt": 5},
        None,
    ],
)
def test_odd_events_do_nothing(memory: Memory, told: Any) -> None:
    hooks = MeritoryHooks(memory)
    for call in (hooks.on_prompt, hooks.on_stop, hooks.on_compact):
        assert asyncio.run(call(told, None, None)) == {}


def test_the_sdk_is_only_needed_for_its_own_shapes(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = MeritoryHooks(memory)
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(MissingExtra, match="claude-agent-sdk"):
        hooks.hooks()
    fake = types.ModuleType("claude_agent_sdk")
    fake.HookMatcher = lambda hooks: hooks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", fake)
    assert set(hooks.hooks()) == {"UserPromptSubmit", "Stop", "PreCompact"}
    assert hooks.hooks()["Stop"] == [[hooks.on_stop]]


# -- LangChain --------------------------------------------------------------------------------


def test_documents_carry_what_is_known(memory: Memory) -> None:
    from meritory.integrations.langchain import MeritoryRetriever

    made = memory.remember(HERON, tags=["db"])
    memory.remember("Releases are cut on Thursdays")
    found = MeritoryRetriever(memory=memory, limit=1).invoke("the staging database?")
    assert [(one.page_content, one.id) for one in found] == [(HERON, made.id)]
    assert found[0].metadata["tags"] == ["db"]
    assert found[0].metadata["score"] > 0
    with memory.session("chain") as session:
        retriever = MeritoryRetriever(memory=memory, session=session)
        found = asyncio.run(retriever.ainvoke("when are releases cut?"))
        told = {one.metadata["handle"]: one for one in found}
        assert all(one.metadata["injection"] for one in found)
        shown = {one.id for one in session.memories}
        assert {one.id for one in told.values()} <= shown
