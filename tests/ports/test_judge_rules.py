"""The judge without a model, through the protocol that every judge keeps."""

from __future__ import annotations

from meritory.domain.session import JudgedMemory, Turn
from meritory.ports.judge import Judge, RulesJudge
from meritory.text.judge.digest import Digest, TurnDigest
from meritory.text.judge.evidence import judge_session

TRANSCRIPT = [
    Turn("user", "Bound the uploads, they hang when the network is down"),
    Turn("edit", "src/upload/limits.py\nRETRY_LIMIT = 7"),
]
EXHIBITS = [
    JudgedMemory("Retry uploads at most 7 times; see src/upload/limits.py.", was_shown=True),
    JudgedMemory("Anna reviews every migration.", was_shown=True),
    JudgedMemory("Staging runs in Frankfurt.", was_shown=False),
]


def test_the_rules_keep_the_protocol_and_sign_their_verdict() -> None:
    judge: Judge = RulesJudge()
    verdict = judge.judge(TRANSCRIPT, EXHIBITS)
    assert verdict.judge == judge.name == "rules"
    assert verdict == judge_session(TRANSCRIPT, EXHIBITS)


def test_the_digest_reaches_the_rules() -> None:
    judge: Judge = RulesJudge()
    digest = Digest((TurnDigest(pieces=(("edit", ("anna", "review", "migration")),)),))
    plain = judge.judge(TRANSCRIPT, EXHIBITS).relevance
    told = judge.judge(TRANSCRIPT, EXHIBITS, digest).relevance
    assert told == judge_session(TRANSCRIPT, EXHIBITS, digest).relevance
    # The digest covers the whole session: what it does not hold did not happen.
    assert plain[1] is not None and told[1] is not None
    assert told[1] > 0.4 > plain[1]
    assert plain[0] is not None and told[0] is not None
    assert told[0] < plain[0]
