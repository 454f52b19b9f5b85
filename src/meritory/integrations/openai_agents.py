"""OpenAI Agents SDK: a `Session` that also remembers beyond the conversation.

The SDK's sessions are the history of one chat. This one keeps that too, or hands it to another
session, and besides shows the model what earlier chats have taught.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from meritory.api.memory import Memory
from meritory.integrations.core import Conversation, missing
from meritory.integrations.openai_tools import call_tool, openai_tools
from meritory.text.ratings_trailer import strip_trailers

try:
    from agents.items import TResponseInputItem
    from agents.memory import SessionABC
    from agents.run import CallModelData, ModelInputData, RunConfig
    from agents.tool import FunctionTool
    from agents.tool_context import ToolContext
except ImportError as error:
    raise missing("openai-agents", error) from error

HARNESS = "openai-agents"


class MeritorySession(SessionABC):
    """The history of one chat, with memory: pass it as `session` and use its `run_config`.

    Ratings at the end of the agent's replies are taken and do not stay in the history.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        history: SessionABC | None = None,
        project: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = None if history is None else history.session_settings
        self.conversation = Conversation(memory, session_id, harness=HARNESS, project=project)
        self._memory = memory
        self._history = history
        self._items: list[TResponseInputItem] = []
        # By the text of the prompt: what is put before it, whenever it is sent again.
        self._shown: dict[str, str] = {}

    # -- the history ----------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The history, oldest first."""
        if self._history is not None:
            return await self._history.get_items(limit)
        return self._items[-limit:] if limit else list(self._items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Goes on with the history; ratings in replies are taken."""
        kept = [await self._without_ratings(item) for item in items]
        if self._history is not None:
            await self._history.add_items(kept)
        else:
            self._items += kept

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes the latest back."""
        if self._history is not None:
            return await self._history.pop_item()
        return self._items.pop() if self._items else None

    async def clear_session(self) -> None:
        """Forgets the history; what was shown may be shown again."""
        if self._history is not None:
            await self._history.clear_session()
        self._items.clear()
        self._shown.clear()
        await asyncio.to_thread(self.conversation.compact)

    async def _without_ratings(self, item: Any) -> Any:
        if not isinstance(item, Mapping) or item.get("role") != "assistant":
            return item
        content = item.get("content")
        if isinstance(content, str):
            return {**item, "content": await self._replied(content)}
        if not isinstance(content, list):
            return item
        parts = [
            {**part, "text": await self._replied(part["text"])}
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
        return {**item, "content": parts}

    async def _replied(self, text: str) -> str:
        return await asyncio.to_thread(self.conversation.replied, text)

    @staticmethod
    def clean(reply: str) -> str:
        """A reply without ratings: the SDK hands out `final_output` as the model wrote it."""
        return strip_trailers(reply)

    # -- the memory -----------------------------------------------------------------------

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """The configuration of a run, with memories put before the prompts."""
        return replace(config or RunConfig(), call_model_input_filter=self.inject)

    async def inject(self, data: CallModelData[Any]) -> ModelInputData:
        """Puts before each prompt of the user what it called to mind when it was new."""
        given = data.model_data
        prompts = [_prompt(item) for item in given.input]
        latest = next((text for text in reversed(prompts) if text is not None), None)
        if latest is not None and latest not in self._shown:
            self._shown[latest] = await asyncio.to_thread(self.conversation.inject, latest)
        items: list[TResponseInputItem] = []
        for item, prompt in zip(given.input, prompts, strict=True):
            shown = self._shown.get(prompt, "") if prompt is not None else ""
            if shown:
                items.append({"role": "user", "content": shown})
            items.append(item)
        return replace(given, input=items)

    def tools(self) -> list[FunctionTool]:
        """Tools with which an agent searches and stores by itself."""
        return [self._tool(one) for one in openai_tools("responses")]

    def _tool(self, told: Mapping[str, Any]) -> FunctionTool:
        name = str(told["name"])

        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            session = self.conversation.session
            return await asyncio.to_thread(
                call_tool, self._memory, name, arguments, session=session
            )

        return FunctionTool(
            name=name,
            description=str(told["description"]),
            params_json_schema=dict(told["parameters"]),
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    async def end(self) -> None:
        """The chat is over: what helped in it is learned."""
        items = await self.get_items()
        turns = [turn for turn in map(_turn, items) if turn is not None]
        await asyncio.to_thread(self.conversation.end, turns or None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()


def _text(item: Any) -> str | None:
    """The words of a message, whichever way they are wrapped."""
    content = item.get("content") if isinstance(item, Mapping) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    words = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "\n".join(word for word in words if isinstance(word, str)) or None


def _prompt(item: Any) -> str | None:
    is_user = isinstance(item, Mapping) and item.get("role") == "user"
    return _text(item) if is_user else None


def _turn(item: Any) -> dict[str, str] | None:
    role = item.get("role") if isinstance(item, Mapping) else None
    text = _text(item) if role in ("user", "assistant") else None
    return None if text is None else {"role": str(role), "text": text}
