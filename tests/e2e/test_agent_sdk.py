"""The Claude Agent SDK with our hooks, in a program of its own, with a scripted model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from harnesses import claude_env, clients
from sandbox import HERE, Sandbox
from selection import install
from story import (
    ANSWER,
    FIND,
    FOREIGN,
    LONG,
    OWN,
    PROMPT,
    SHARED,
    TRAILER,
    Heard,
    judged,
    ratings,
    stock,
)

NAME = "claude-agent-sdk"
AGAIN = f"Again, please: {PROMPT}"
LIMIT_S = 60
pytestmark = pytest.mark.timeout(300)


class Chat(NamedTuple):
    """A conversation of two turns, and where it took place."""

    sandbox: Sandbox
    heard: Heard

    @property
    def turns(self) -> list[Heard]:
        """Each turn's own request."""
        return [Heard(self.heard.ran, [one]) for one in self.heard.requests]


@pytest.fixture(scope="module", params=[NAME])
def chat(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    """A program that has had its conversation."""
    install((request.param,))
    sandbox = Sandbox(tmp_path_factory.mktemp("sdk"))
    try:
        stock(sandbox)
        sandbox.model.script(text=f"{LONG}\n{TRAILER}", find=FIND)
        package = clients().find(clients().named(NAME)).folder
        program = [sys.executable, str(HERE / "agent_program.py"), str(package), PROMPT, AGAIN]
        ran = sandbox.run(program, LIMIT_S, claude_env(sandbox))
        yield Chat(sandbox, Heard(ran, sandbox.model.requests()))
    finally:
        sandbox.close()


def test_memory_is_in_the_request_of_a_new_session(chat: Chat) -> None:
    """What was stored is asked along, that of this project too, that of another not."""
    assert [ANSWER in answer for answer in chat.heard.ran.json()] == [True, True]
    first = chat.turns[0]
    assert SHARED in first.shown
    assert OWN in first.shown
    assert FOREIGN not in first.asked


def test_second_turn_repeats_no_memory(chat: Chat) -> None:
    """What the session has seen is in its history once, and is not shown again."""
    words = ("heron-4711", "calypso-88", "zanzibar-7")
    first, second = ({word: turn.shown.count(word) for word in words} for turn in chat.turns)
    assert min(first.values()) >= 1
    assert second == first


def test_trailer_becomes_a_rating(chat: Chat) -> None:
    """The ratings of both replies are in the store, under the memory they are about."""
    rated = [(one.content, one.score) for one in ratings(chat.sandbox)]
    assert rated == [(SHARED, 0.75)] * 2


def test_session_is_judged_after_its_end(chat: Chat) -> None:
    """The end of the block is the end of the session, and its job is done."""
    verdict = judged(chat.sandbox)
    assert (verdict.harness, verdict.project) == (NAME, "shop")
    assert verdict.recalled == 3
