"""What all adapters share, and what each says when its framework is not there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from meritory import Memory
from meritory.domain.errors import MissingExtra
from meritory.integrations.core import Conversation, all_tagged

EXTRAS = {
    "langgraph": ("langgraph.store.base", "langgraph"),
    "langchain": ("langchain_core.callbacks", "langchain"),
    "openai_agents": ("agents.items", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "anthropic_memory": ("anthropic.lib.tools", "anthropic"),
}


@pytest.mark.parametrize("name", sorted(EXTRAS))
@pytest.mark.usefixtures("fresh")
def test_without_its_framework_a_module_names_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign, extra = EXTRAS[name]
    monkeypatch.setitem(sys.modules, foreign, None)
    with pytest.raises(MissingExtra) as missing:
        importlib.import_module(f"meritory.integrations.{name}")
    assert f"meritory[{extra}]" in str(missing.value)


def test_the_extras_are_the_packages_own() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text("utf-8")
    for _, extra in (*EXTRAS.values(), ("", "claude-agent-sdk")):
        assert f"\n{extra} = [" in text


def test_a_conversation_shows_rates_and_ends(memory: Memory) -> None:
    made = memory.remember("The staging database is called heron")
    talk = Conversation(memory, "c-1", harness="test", project="shop")
    shown = talk.inject("what is the staging database called?")
    assert "heron" in shown
    assert talk.session is not None
    assert talk.session.scope.project == "shop"
    reply = f"It is heron.\n<!--mf {talk.session.injection} m1=0.7-->"
    assert talk.replied(reply) == "It is heron."
    assert memory.stats()["feedback.taken"] == 1
    assert "heron" not in talk.inject("and the staging database again?")
    talk.compact()
    assert "heron" in talk.inject("and the staging database again?")
    talk.end([{"role": "user", "text": "thanks"}])
    talk.end()
    assert memory.why(made.id, "c-1")
    assert talk.session is None
    assert talk.last_error is None


def test_an_agent_is_served_although_its_memory_fails(memory: Memory) -> None:
    talk = Conversation(memory, "a\nkey that no session has", harness="test")
    assert talk.inject("anything") == ""
    assert talk.last_error is not None
    assert talk.replied("fine <!--mf abcdef1 m1=1-->") == "fine"
    talk.compact()
    talk.end()


def test_every_page_is_read(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meritory.integrations.core._PAGE_LIMIT", 3)
    memory.remember_many(
        [{"content": f"fact {n} of seven", "tags": "x", "on_similar": "keep"} for n in range(7)]
    )
    assert len({one.id for one in all_tagged(memory, "x")}) == 7
