"""Claude Agent SDK: hooks that show memories with each prompt and take the ratings of replies."""

from __future__ import annotations

import asyncio
from typing import Any

from meritory import Memory
from meritory.integrations.claude_agent_sdk import MeritoryHooks


async def ask_claude(hooks: MeritoryHooks, prompt: str) -> str:
    """One question to Claude, through the SDK."""
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

    answer = ""
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(hooks=hooks.hooks())):
        if isinstance(message, ResultMessage):
            answer = message.result or ""
    return answer


async def chat(memory: Memory, ask: Any = ask_claude) -> str:
    """Asks with memory; leaving the block ends the session, and what helped is learned."""
    memory.remember("The staging database is called heron")
    async with MeritoryHooks(memory) as hooks:
        answer = await ask(hooks, "What is the staging database called?")
    print(answer)
    return str(answer)


def main(memory: Memory, ask: Any = ask_claude) -> str:
    """Runs the chat."""
    return asyncio.run(chat(memory, ask))


if __name__ == "__main__":
    with Memory() as own:
        main(own)
