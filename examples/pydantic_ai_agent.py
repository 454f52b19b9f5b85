"""Pydantic AI: an agent with memory is an agent with one capability more."""

from __future__ import annotations

import asyncio
import re

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from meritory import Memory
from meritory.integrations.pydantic_ai import MeritoryMemory


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model: it looks into what it was shown, and rates it."""
    text = "\n".join(str(getattr(part, "content", "")) for one in messages for part in one.parts)
    code = next(iter(re.findall(r"<!--mf (\w+)", text)), "none")
    known = "heron" if "heron" in text else "I do not know"
    return ModelResponse(parts=[TextPart(f"{known}\n<!--mf {code} m1=0.8-->")])


def main(memory: Memory) -> str:
    """One run."""
    memory.remember("The staging database is called heron")
    # FunctionModel is the scripted one; "anthropic:..." or "openai:..." goes here.
    agent = Agent(FunctionModel(scripted), capabilities=[MeritoryMemory(memory)])
    output = asyncio.run(agent.run("What is the staging database called?")).output
    print(output)
    return output


if __name__ == "__main__":
    with Memory() as own:
        main(own)
