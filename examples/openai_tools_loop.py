"""Function tools for any model API of the OpenAI kind: the model searches and stores by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from meritory import Memory
from meritory.integrations.openai_tools import call_tool, openai_tools

Complete = Callable[[list[dict[str, Any]], list[dict[str, Any]]], dict[str, Any]]


def scripted(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Stands in for `client.chat.completions.create(...).choices[0].message.model_dump()`."""
    last = messages[-1]
    if last["role"] == "tool":
        found = json.loads(last["content"])["results"]
        return {"role": "assistant", "content": f"I remember: {found[0]['content']}"}
    asked = {"name": "memory_search", "arguments": json.dumps({"query": last["content"]})}
    call = {"id": "call-1", "type": "function", "function": asked}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def main(memory: Memory, complete: Complete = scripted) -> str:
    """Asks until the model answers in words."""
    memory.remember("Releases are cut on Thursdays")
    messages: list[dict[str, Any]] = [{"role": "user", "content": "When do we cut releases?"}]
    while True:
        reply = complete(messages, openai_tools())
        messages.append(reply)
        if not reply.get("tool_calls"):
            print(reply["content"])
            return str(reply["content"])
        for call in reply["tool_calls"]:
            asked = call["function"]
            answer = call_tool(memory, asked["name"], asked["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})


if __name__ == "__main__":
    with Memory() as own:
        main(own)
