"""OpenAI Agents SDK: a `Session` that also remembers beyond the conversation.

The SDK's sessions are the history of one chat. This one keeps the history too, or passes it to
another session, and it shows the model memories of earlier chats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
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
        """Return the history, oldest first."""
        if self._history is not None:
            return await self._history.get_items(limit)
        return self._items[-limit:] if limit else list(self._items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add to the history; ratings in replies are taken."""
        kept = [await self._without_ratings(item) for item in items]
        if self._history is not None:
            await self._history.add_items(kept)
        else:
            self._items += kept

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it."""
        if self._history is not None:
            return await self._history.pop_item()
        return self._items.pop() if self._items else None

    async def clear_session(self) -> None:
        """Clear the history; memories may be shown again."""
        if self._history is not None:
            await self._history.clear_session()
        self._items.clear()
        self._shown.clear()
        await asyncio.to_thread(self.conversation.compact)

    async def _without_ratings(self, item: Any) -> Any:
        if not isinstance(item, Mapping) or item.get("role") != "assistant":
            return item
        content = item.get("content")
        take = self.conversation.replied
        if isinstance(content, str):
            return {**item, "content": await asyncio.to_thread(take, content)}
        if not isinstance(content, list):
            return item
        parts = [
            {**part, "text": await asyncio.to_thread(take, part["text"])}
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
        return {**item, "content": parts}

    @staticmethod
    def clean(reply: str) -> str:
        """Return a reply without ratings: `final_output` is as the model wrote it."""
        return strip_trailers(reply)

    # -- the memory -----------------------------------------------------------------------

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """Return the configuration of a run, with memories put before the prompts."""
        return replace(config or RunConfig(), call_model_input_filter=self.inject)

    async def inject(self, data: CallModelData[Any]) -> ModelInputData:
        """Put the memories of each prompt before it, also when it is sent again."""
        given = data.model_data
        said = [_role_and_text(item) for item in given.input]
        prompts = [text if role == "user" else None for role, text in said]
        latest = next((text for text in reversed(prompts) if text is not None), None)
        if latest is not None and latest not in self._shown:
            self._shown[latest] = await asyncio.to_thread(self.conversation.inject, latest)
        items: list[TResponseInputItem] = []
        for item, prompt in zip(given.input, prompts, strict=True):
            shown = self._shown.get(prompt, "") if prompt is not None else ""
            items += [{"role": "user", "content": shown}, item] if shown else [item]
        return replace(given, input=items)

    def tools(self) -> list[FunctionTool]:
        """Return tools with which an agent searches and stores by itself."""
        return [self._tool(tool) for tool in openai_tools("responses")]

    def _tool(self, tool: Mapping[str, Any]) -> FunctionTool:
        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            session = self.conversation.session
            return await asyncio.to_thread(
                call_tool, self._memory, tool["name"], arguments, session=session
            )

        return FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    async def end(self) -> None:
        """End the chat and learn from it."""
        said = [_role_and_text(item) for item in await self.get_items()]
        turns = [
            {"role": role, "text": text}
            for role, text in said
            if role in ("user", "assistant") and text is not None
        ]
        await asyncio.to_thread(self.conversation.end, turns or None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.end()


def _role_and_text(item: Any) -> tuple[Any, str | None]:
    """Return who wrote a message and its text, None without one."""
    if not isinstance(item, Mapping):
        return None, None
    role, content = item.get("role"), item.get("content")
    if not isinstance(content, list):
        return role, content if isinstance(content, str) else None
    words = [part.get("text") for part in content if isinstance(part, Mapping)]
    return role, "\n".join(word for word in words if isinstance(word, str)) or None
