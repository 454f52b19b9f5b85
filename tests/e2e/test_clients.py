"""Real clients with a scripted model: what a user gets from connecting each of them.

`make test` runs Claude Code's part, `make e2e` every client's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harnesses import HARNESSES
from sandbox import until
from selection import install, selected
from story import (
    BACK_WITHIN_S,
    FENCE,
    FOREIGN,
    INNER,
    LONG,
    OWN,
    PROMPT,
    SHARED,
    Story,
    judged,
    rated,
)

pytestmark = pytest.mark.timeout(600)


CHOSEN = [harness for harness in HARNESSES if selected(harness.name)]


@pytest.fixture(scope="module", params=CHOSEN, ids=lambda harness: harness.name)
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """A user with one client, from the day before Meritory came."""
    install(request.param.needs)
    told = Story(request.param, tmp_path_factory.mktemp("e2e", numbered=True))
    yield told
    told.close()


def test_nothing_arrives_before_connecting(story: Story) -> None:
    """The control: without Meritory the client works, and no memory is in the request."""
    story.answered(story.stranger)
    for word in ("heron-4711", "calypso-88", "zanzibar-7", "meritory notes"):
        assert word not in story.stranger.asked


def test_memory_is_in_the_request_of_a_new_session(story: Story) -> None:
    """What was stored is asked along, that of this project too, that of another not."""
    story.answered(story.first)
    assert SHARED in story.first.shown
    assert OWN in story.first.shown
    assert FOREIGN not in story.first.asked


def test_poison_stays_inside_its_fence(story: Story) -> None:
    """Hostile text is shown as data: no line of it begins a line, no tag of it is a tag."""
    asked = story.first.asked
    blocks = list(FENCE.finditer(asked))
    assert any("zanzibar-7" in block[2] for block in blocks), "the poison was not shown at all"
    assert "zanzibar-7" not in FENCE.sub("", asked)
    for block in blocks:
        # The first line is our own head; the last is what stands before the closing mark.
        for line in block[2].split("\n")[1:-1]:
            assert INNER.match(line), line
        assert "<" not in block[2]
        assert "[/meritory" not in block[2]
        assert block[1] != "0123456789abcdef0123456789abcdef"


def test_trailer_becomes_a_rating(story: Story) -> None:
    """The rating at the end of the reply is in the store, under the memory it is about."""
    story.answered(story.first)
    assert rated(story.sandbox, 0.75) == [(SHARED, story.harness.channel)]
    assert not story.harness.strips or "=0.75" not in story.first.ran.out


def test_session_is_judged_after_its_end(story: Story) -> None:
    """The end of the session reached the daemon, and its job is done."""
    _ = story.first
    verdict = judged(story.sandbox)
    assert (verdict.harness, verdict.project) == (story.harness.name, "shop")
    assert (verdict.judge, verdict.excluded, verdict.recalled) == ("rules", None, 3)
    # What was said, and nothing that the client or Meritory put beside it.
    assert verdict.said == [("user", PROMPT), ("assistant", LONG)]


def test_second_turn_repeats_no_memory(story: Story) -> None:
    """What the session has seen is in its history once, and is not shown again."""
    story.answered(story.second)
    words = ("heron-4711", "calypso-88", "zanzibar-7")
    first, second = (
        {word: heard.shown.count(word) for word in words} for heard in (story.first, story.second)
    )
    assert min(first.values()) >= 1
    assert second == first


def test_tool_call_becomes_a_rating(story: Story) -> None:
    """The agent finds the tool, calls it, and the rating is in the store."""
    story.answered(story.tool)
    assert rated(story.sandbox, -0.5) == [(SHARED, "tool")]


def test_client_answers_when_the_daemon_was_killed(story: Story) -> None:
    """The user waits for nothing, and the daemon is back soon by itself."""
    story.answered(story.killed)
    until(story.sandbox.daemon_pid, lambda: "the daemon did not come back", BACK_WITHIN_S)


def test_client_answers_when_the_daemon_hangs(story: Story) -> None:
    """A daemon that says nothing does not keep the client from its answer."""
    story.answered(story.hung)


def test_client_answers_when_the_daemon_cannot_start(story: Story) -> None:
    """A broken installation does not break the client."""
    story.answered(story.broken)
    assert "heron-4711" not in story.broken.asked


def test_client_answers_when_the_package_was_uninstalled(story: Story) -> None:
    """Removing Meritory without disconnecting first leaves a client that works."""
    story.answered(story.uninstalled)
    assert "heron-4711" not in story.uninstalled.asked


def test_disconnecting_restores_every_file(story: Story) -> None:
    """After connect, use and disconnect the user's files are what they were, byte by byte."""
    assert story.connected.out
    changed = {name for name, content in story.before.items() if story.files().get(name) != content}
    assert story.disconnected.out
    after = story.files()
    for name, content in story.before.items():
        if name in story.harness.rewritten:
            assert b"meritory" not in after[name]
        else:
            assert after[name] == content, f"{name} is not what it was; changed: {changed}"
