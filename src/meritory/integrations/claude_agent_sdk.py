"""Claude Agent SDK: hook callbacks that show memories and take ratings.

The SDK reports neither the start nor the end of a session: the first prompt starts it, and `close`
or leaving the block ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

from meritory.api.memory import Memory
from meritory.integrations.core import Conversation, missing

HARNESS = "claude-agent-sdk"
Reply = dict[str, Any]


class MeritoryHooks:
    """The callbacks for one client; every session it runs has a conversation of its own."""

    def __init__(self, memory: Memory, *, project: str | None = None) -> None:
        self._memory = memory
        self._project = project
        self._conversations: dict[str, Conversation] = {}

    def hooks(self) -> dict[str, list[Any]]:
        """Return the value for `ClaudeAgentOptions(hooks=...)`."""
        try:
            matcher = import_module("claude_agent_sdk").HookMatcher
        except ImportError as error:
            raise missing("claude-agent-sdk", error) from error
        return {
            "UserPromptSubmit": [matcher(hooks=[self.on_prompt])],
            "Stop": [matcher(hooks=[self.on_stop])],
            "PreCompact": [matcher(hooks=[self.on_compact])],
        }

    def conversation(self, session_id: str) -> Conversation:
        """Return the conversation of a session of the client."""
        if session_id not in self._conversations:
            self._conversations[session_id] = Conversation(
                self._memory, session_id, harness=HARNESS, project=self._project
            )
        return self._conversations[session_id]

    async def on_prompt(self, event: Any, tool_use_id: str | None, context: Any) -> Reply:
        """Return the memories for a prompt of the user."""
        key, prompt = _text(event, "session_id"), _text(event, "prompt")
        text = key and prompt and await asyncio.to_thread(self.conversation(key).inject, prompt)
        if not text:
            return {}
        return {
            "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}
        }

    async def on_stop(self, event: Any, tool_use_id: str | None, context: Any) -> Reply:
        """Take the ratings in the agent's reply."""
        key, reply = _text(event, "session_id"), _text(event, "last_assistant_message")
        if key and reply:
            await asyncio.to_thread(self.conversation(key).replied, reply)
        return {}

    async def on_compact(self, event: Any, tool_use_id: str | None, context: Any) -> Reply:
        """Note that the agent's context is about to be compacted."""
        if key := _text(event, "session_id"):
            await asyncio.to_thread(self.conversation(key).compact)
        return {}

    async def close(self) -> None:
        """End every session that was started."""
        while self._conversations:
            _, conversation = self._conversations.popitem()
            await asyncio.to_thread(conversation.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _text(event: Any, name: str) -> str:
    value = event.get(name) if isinstance(event, Mapping) else None
    return value if isinstance(value, str) else ""
