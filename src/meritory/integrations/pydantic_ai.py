"""Pydantic AI: a capability that gives an agent memory.

Memories go before the user's prompt, never into the instructions: they are what others have said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
        """A twin with a conversation of its own."""
        key = str(ctx.run_id)
        run = Conversation(self.memory, key, harness=HARNESS, project=self.project)
        return replace(self, _run=run, _shown=None)

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """The tools, when they are wanted."""
        if not self.tools:
            return None
        return FunctionToolset(tools=[self._tool(told) for told in openai_tools("responses")])

    def _tool(self, told: dict[str, Any]) -> Tool[Any]:
        name = str(told["name"])

        async def invoke(**arguments: Any) -> str:
            session = self._run.session if self._run is not None else None
            return await asyncio.to_thread(call_tool, self.memory, name, arguments, session=session)

        return Tool.from_schema(
            invoke,
            name=name,
            description=str(told["description"]),
            json_schema=dict(told["parameters"]),
        )

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Puts what the prompt calls to mind before it, at every request of the run."""
        place = _latest_prompt(request_context.messages)
        if self._run is None or place is None:
            return request_context
        number, prompt = place
        if self._shown is None:
            self._shown = await asyncio.to_thread(self._run.inject, prompt)
        if not self._shown:
            return request_context
        messages = list(request_context.messages)
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
        """Takes the ratings of a reply, and cuts them off."""
        if self._run is None or any(isinstance(part, ToolCallPart) for part in response.parts):
            return response
        parts = [await self._replied(part) for part in response.parts]
        return replace(response, parts=parts)

    async def _replied(self, part: Any) -> Any:
        if self._run is None or not isinstance(part, TextPart):
            return part
        return replace(part, content=await asyncio.to_thread(self._run.replied, part.content))

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """Ends the session with the run, however that ends."""
        try:
            return await handler()
        finally:
            if self._run is not None:
                await asyncio.to_thread(self._run.end, _turns(ctx.messages) or None)


def _latest_prompt(messages: Sequence[ModelMessage]) -> tuple[int, str] | None:
    """Where the user last said something, and what."""
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        text = _said(message) if isinstance(message, ModelRequest) else ""
        if text:
            return number, text
    return None


def _said(message: ModelMessage) -> str:
    words = [part.content for part in message.parts if isinstance(part, UserPromptPart | TextPart)]
    flat = [word for one in words for word in ([one] if isinstance(one, str) else one)]
    return "\n".join(word for word in flat if isinstance(word, str))


def _turns(messages: Sequence[ModelMessage]) -> list[dict[str, str]]:
    roles = {True: "user", False: "assistant"}
    told = [(isinstance(message, ModelRequest), _said(message)) for message in messages]
    return [{"role": roles[is_user], "text": text} for is_user, text in told if text]
