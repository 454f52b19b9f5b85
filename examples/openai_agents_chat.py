"""OpenAI Agents SDK: a chat whose agent remembers what earlier chats have taught."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from meritory import Memory
from meritory.integrations.openai_agents import MeritorySession


class ScriptedModel(Model):
    """Stands in for a model: it looks into what it was shown, and rates it. Leave it out."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    async def get_response(
        self, system_instructions: Any, input: Any, *rest: Any, **more: Any
    ) -> ModelResponse:
        """Answers with what stands in the first memory."""
        self.inputs.append(input)
        text = "\n".join(str(item.get("content")) for item in input)
        code = next(iter(re.findall(r"<!--mf (\w+)", text)), "none")
        said = f"{'heron' if 'heron' in text else 'I do not know'}\n<!--mf {code} m1=1-->"
        part = ResponseOutputText(type="output_text", text=said, annotations=[])
        message = ResponseOutputMessage(
            id="message", type="message", role="assistant", status="completed", content=[part]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        """Not needed here."""
        raise NotImplementedError


async def chat(memory: Memory, model: Model) -> list[str]:
    """Two turns of one chat."""
    agent = Agent(name="Assistant", instructions="Answer briefly.", model=model)
    answers = []
    async with MeritorySession("example-chat", memory) as session:
        config = session.run_config(RunConfig(tracing_disabled=True))
        for question in ("What is the staging database called?", "Are you sure?"):
            result = await Runner.run(agent, question, session=session, run_config=config)
            answers.append(session.clean(result.final_output))
    return answers


def main(memory: Memory, model: Model | None = None) -> list[str]:
    """Runs the chat."""
    memory.remember("The staging database is called heron")
    answers = asyncio.run(chat(memory, model or ScriptedModel()))
    print(answers)
    return answers


if __name__ == "__main__":
    with Memory() as own:
        main(own)
