"""The judge without a model, seen as any other judge."""

from __future__ import annotations

from tenure.ports.judge import Judge, RulesJudge
from tenure.text.judging import judge_session
from tenure.types import Exhibit, Turn

TRANSCRIPT = [
    Turn("user", "Bound the uploads, they hang when the network is down"),
    Turn("edit", "src/upload/limits.py\nRETRY_LIMIT = 7"),
]
EXHIBITS = [
    Exhibit("Retry uploads at most 7 times; see src/upload/limits.py.", was_shown=True),
    Exhibit("Anna reviews every migration.", was_shown=True),
    Exhibit("Staging runs in Frankfurt.", was_shown=False),
]


def test_the_rules_keep_the_protocol_and_sign_their_verdict() -> None:
    judge: Judge = RulesJudge()
    verdict = judge.judge(TRANSCRIPT, EXHIBITS)
    assert verdict.judge == judge.name == "rules"
    assert verdict == judge_session(TRANSCRIPT, EXHIBITS)


def test_a_cosine_reaches_the_rules() -> None:
    judge = RulesJudge()
    plain = judge.judge(TRANSCRIPT, EXHIBITS, [0.1, 0.1, 0.1]).relevance
    leaning = judge.judge(TRANSCRIPT, EXHIBITS, [0.1, 0.9, 0.1]).relevance
    assert leaning[1] is not None and plain[1] is not None
    assert leaning[1] > plain[1]
