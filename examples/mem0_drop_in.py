"""mem0's calls on Meritory: only the import is another."""

from __future__ import annotations

from typing import Any

from meritory.integrations.mem0 import Memory


def main(memory: Memory) -> list[dict[str, Any]]:
    """Stores a conversation and finds what matters in it."""
    messages = [
        {"role": "user", "content": "I am vegetarian and allergic to nuts"},
        {"role": "assistant", "content": "Noted! I will keep that in mind."},
        {"role": "user", "content": "My flight to Lisbon leaves on Friday"},
    ]
    memory.add(messages, user_id="ann", metadata={"from": "chat"})
    found = memory.search("what can Ann eat?", filters={"user_id": "ann"}, top_k=1)["results"]
    for one in found:
        print(f"{one['score']:.2f}  {one['memory']}")
    return found


if __name__ == "__main__":
    with Memory() as own:
        main(own)
