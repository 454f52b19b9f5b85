"""Pydantic AI: a capability that gives an agent memory.

Memories go before the user's prompt, never into the instructions: others have said them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from meritory.api.memory import Memory
from meritory.integrations.core import Conversation, missing
from meritory.integrations.openai_tools import call_tool, openai_tools

try:
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.toolsets import FunctionToolset
except ImportError as error:
    raise missing("pydantic-ai", error) from error

HARNESS = "pydantic-ai"


@dataclass
class MeritoryMemory(AbstractCapability[Any]):
    """Memory for an agent: `Agent(model, capabilities=[MeritoryMemory(memory)])`.

    Every run is a session of its own. Ratings at the end of replies are taken and cut off.
    """

    memory: Memory
    project: str | None = None
    # Whether the agent also gets tools to search and store by itself.
    tools: bool = False
    _run: Conversation | None = field(default=None, repr=False)
    _shown: str | None = field(default=None, repr=False)

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return a copy with a conversation of its own."""
        key = str(ctx.run_id)
        run = Conversation(self.memory, key, harness=HARNESS, project=self.project)
        return replace(self, _run=run, _shown=None)

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Return the tools, if they are wanted."""
        if not self.tools:
            return None
        return FunctionToolset(tools=[self._tool(tool) for tool in openai_tools("responses")])

    def _tool(self, tool: dict[str, Any]) -> Tool[Any]:
        name, description = tool["name"], tool["description"]

        async def invoke(**arguments: Any) -> str:
            session = self._run.session if self._run is not None else None
            return await asyncio.to_thread(call_tool, self.memory, name, arguments, session=session)

        schema = tool["parameters"]
        return Tool.from_schema(invoke, name=name, description=description, json_schema=schema)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put the memories of the prompt before it, at every request of the run."""
        messages = list(request_context.messages)
        # The latest prompt of the user, from the end.
        said = [_said(one) if isinstance(one, ModelRequest) else "" for one in messages]
        number = max((index for index, text in enumerate(said) if text), default=None)
        if self._run is None or number is None:
            return request_context
        if self._shown is None:
            self._shown = await asyncio.to_thread(self._run.inject, said[number])
        if not self._shown:
            return request_context
        asked = messages[number]
        shown = UserPromptPart(content=self._shown)
        messages[number] = replace(asked, parts=[shown, *asked.parts])  # type: ignore[arg-type]
        return replace(request_context, messages=messages)

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Take the ratings of a reply, and cut them off."""
        if self._run is None or any(isinstance(part, ToolCallPart) for part in response.parts):
            return response
        parts = [
            replace(part, content=await asyncio.to_thread(self._run.replied, part.content))
            if isinstance(part, TextPart)
            else part
            for part in response.parts
        ]
        return replace(response, parts=parts)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """End the session with the run, also after an error."""
        try:
            return await handler()
        finally:
            if self._run is not None:
                turns = [
                    {"role": "user" if isinstance(one, ModelRequest) else "assistant", "text": text}
                    for one in ctx.messages
                    if (text := _said(one))
                ]
                await asyncio.to_thread(self._run.end, turns or None)


def _said(message: ModelMessage) -> str:
    words = [part.content for part in message.parts if isinstance(part, UserPromptPart | TextPart)]
    flat = [word for one in words for word in ([one] if isinstance(one, str) else one)]
    return "\n".join(word for word in flat if isinstance(word, str))
