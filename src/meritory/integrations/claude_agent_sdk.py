"""Claude Agent SDK: hook callbacks that show memories and take ratings.

The SDK tells neither when a session begins nor when it is over: the first prompt begins it, and
`close` or leaving the block ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
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
        """What `ClaudeAgentOptions(hooks=...)` takes."""
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
        """The conversation of a session of the client."""
        if session_id not in self._conversations:
            self._conversations[session_id] = Conversation(
                self._memory, session_id, harness=HARNESS, project=self._project
            )
        return self._conversations[session_id]

    def _of(self, told: Mapping[str, Any]) -> Conversation | None:
        key = told.get("session_id") if isinstance(told, Mapping) else None
        return self.conversation(key) if isinstance(key, str) and key else None

    async def on_prompt(
        self, told: Mapping[str, Any], tool_use_id: str | None, context: Any
    ) -> Reply:
        """The user has typed something: what it calls to mind goes along."""
        conversation, prompt = self._of(told), _text(told, "prompt")
        if conversation is None or prompt is None:
            return {}
        text = await asyncio.to_thread(conversation.inject, prompt)
        if not text:
            return {}
        return {
            "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}
        }

    async def on_stop(
        self, told: Mapping[str, Any], tool_use_id: str | None, context: Any
    ) -> Reply:
        """The agent has replied: the ratings in its text are taken."""
        conversation, reply = self._of(told), _text(told, "last_assistant_message")
        if conversation is not None and reply is not None:
            await asyncio.to_thread(conversation.replied, reply)
        return {}

    async def on_compact(
        self, told: Mapping[str, Any], tool_use_id: str | None, context: Any
    ) -> Reply:
        """The agent is about to forget what it was shown."""
        conversation = self._of(told)
        if conversation is not None:
            await asyncio.to_thread(conversation.compact)
        return {}

    async def close(self) -> None:
        """Ends every session that was begun."""
        while self._conversations:
            _, conversation = self._conversations.popitem()
            await asyncio.to_thread(conversation.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _text(told: Mapping[str, Any], name: str) -> str | None:
    found = told.get(name) if isinstance(told, Mapping) else None
    return found if isinstance(found, str) and found else None
