"""Real clients that were connected with `--ask-to-keep`: the agent is asked once, and goes on."""

from __future__ import annotations

import pytest
from harnesses import HARNESSES, Harness
from selection import install, selected
from story import Story, stock

from meritory.domain.harness import BY_NAME
from meritory.engine.sessions.keeping import ASK_AFTER_PROMPTS
from meritory.text.render import KEEP_QUESTION

pytestmark = pytest.mark.timeout(600)
ASKED = [one for one in HARNESSES if BY_NAME.get(one.name) and BY_NAME[one.name].asks_at_reply]
START = KEEP_QUESTION[:60]
LAST_PROMPT = ASK_AFTER_PROMPTS + 5


@pytest.mark.parametrize(
    "harness", [one for one in ASKED if selected(one.name)], ids=lambda one: one.name
)
def test_a_client_goes_on_once(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> None:
    install(harness.needs)
    story = Story(harness, tmp_path_factory.mktemp("keeping"))
    try:
        stock(story.sandbox)
        words = ("connect", harness.name, "--ask-to-keep", "--yes")
        story.sandbox.meritory(*words).ok()
        asked: list[tuple[int, bool]] = []
        # One turn more than the question; a hook that a busy machine stops asks at the next reply.
        while len(asked) < LAST_PROMPT and not (len(asked) > 1 and asked[-2][1]):
            heard = story.say(f"Please do step {len(asked)}.", is_next=bool(asked))
            story.answered(heard)
            own = [one for one in heard.requests if one["body"].get("tools")]
            # How often the model was asked in this turn, and whether by the question.
            asked.append((len(own), START in heard.asked))
        usual = asked[0][0]
        *before, put, after = asked
        assert before == [(usual, False)] * len(before)
        assert len(before) >= ASK_AFTER_PROMPTS - 1
        # The question stays in the conversation, but is put once.
        assert (put, after) == ((usual + 1, True), (usual, True))
    finally:
        story.close()
