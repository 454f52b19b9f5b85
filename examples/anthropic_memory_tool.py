"""Anthropic's memory tool: the files that Claude keeps are memories, found by every other agent."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic

from meritory import Memory
from meritory.integrations.anthropic_memory import MeritoryMemoryTool


def main(memory: Memory, client: Any = None) -> str:
    """Lets the SDK's runner call the tool until Claude is done."""
    runner = (client or Anthropic()).beta.messages.tool_runner(
        model="claude-sonnet-5-5",
        max_tokens=1_000,
        betas=["context-management-2025-06-27"],
        messages=[{"role": "user", "content": "Remember that I deploy on Tuesdays."}],
        tools=[MeritoryMemoryTool(memory)],
    )
    last = runner.until_done()
    answer = "".join(block.text for block in last.content if block.type == "text")
    print(answer)
    return answer


if __name__ == "__main__":
    with Memory() as own:
        main(own)
