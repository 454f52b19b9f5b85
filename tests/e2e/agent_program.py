"""A program with an agent in it, as somebody would write it: the Claude Agent SDK and our hooks.

python agent_program.py SDK_FOLDER PROMPT...
"""

from __future__ import annotations

import asyncio
import json
import sys


async def main(prompts: list[str]) -> None:
    """One conversation; what the agent says to each prompt is printed as JSON."""
    from claude_agent_sdk import (  # type: ignore[import-not-found,unused-ignore]
        ClaudeAgentOptions,
        ClaudeSDKClient,
        ResultMessage,
    )

    from meritory import Memory
    from meritory.integrations.claude_agent_sdk import MeritoryHooks

    answers = []
    with Memory() as memory:
        async with (
            MeritoryHooks(memory, project="shop") as hooks,
            ClaudeSDKClient(ClaudeAgentOptions(hooks=hooks.hooks())) as client,
        ):
            for prompt in prompts:
                await client.query(prompt)
                async for message in client.receive_response():
                    if isinstance(message, ResultMessage):
                        answers.append(message.result)
    print(json.dumps(answers))


if __name__ == "__main__":
    # Behind our own packages: those that both need are there already.
    sys.path.append(sys.argv[1])
    asyncio.run(main(sys.argv[2:]))
