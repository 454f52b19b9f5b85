"""A program's own agent: what it is shown, what it says about that, and what is learned."""

from __future__ import annotations

import re

from meritory import Memory


def model(prompt: str) -> str:
    """Stands in for a language model; a real one gets the same text."""
    code = next(iter(re.findall(r"<!--mf (\w+)", prompt)), "none")
    return f"The staging database is heron.\n<!--mf {code} m1=0.9-->"


def main(memory: Memory) -> int:
    """One session; returns how many ratings were taken."""
    memory.remember("The staging database is called heron")
    question = "What is the staging database called?"
    with memory.session("example-session", context=question) as session:
        reply = model(f"{session.inject}\n\n{question}")
        taken = session.reply(reply)
    print(f"shown: {[one.content for one in session.memories]}, ratings: {len(taken.taken)}")
    return len(taken.taken)


if __name__ == "__main__":
    with Memory() as own:
        main(own)
