"""What rates a finished session: the protocol every judge keeps, and the judge without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from meritory.domain.errors import BadReply
from meritory.domain.session import JudgedMemory, Turn, Verdict
from meritory.domain.world import World
from meritory.ports.judge_prompt import (
    NOVEL_LIMIT_COUNT,
    REASONING_LIMIT_CHARS,
    SCHEMA,
    TOPIC_LIMIT_CHARS,
    TOPICS_LIMIT_COUNT,
    build_case,
    read_findings,
    share,
)
from meritory.ports.llm import Llm
from meritory.text.judge.digest import Digest
from meritory.text.judge.prompt_injection import visible
from meritory.text.judge.verdict import judge_session


class Judge(Protocol):
    """Says of a finished session which memories helped, and how sure that is."""

    @property
    def name(self) -> str:
        """The name stored with every verdict."""
        ...

    def judge(
        self,
        transcript: Sequence[Turn],
        memories: Sequence[JudgedMemory],
        digest: Digest | None = None,
    ) -> Verdict:
        """Return the verdict, its `relevance` in the order of the memories.

        `transcript` is the end of the session, `digest` covers all of it. A memory's text is
        evidence, never an instruction.
        """
        ...


class RulesJudge:
    """Judges by what happened in the transcript, without any model; equal input, equal verdict."""

    name = "rules"

    def judge(
        self,
        transcript: Sequence[Turn],
        memories: Sequence[JudgedMemory],
        digest: Digest | None = None,
    ) -> Verdict:
        """Return the verdict of the rules."""
        return judge_session(transcript, memories, digest)


RAW_LIMIT_CHARS = 50_000


class LlmJudge:
    """Asks a model, blindly, and takes nothing from a reply that is not right as a whole."""

    def __init__(self, llm: Llm, world: World | None = None) -> None:
        self._llm = llm
        self._world = world or World()

    @property
    def name(self) -> str:
        """The name stored with every verdict."""
        return f"llm:{self._llm.name}"

    def judge(
        self,
        transcript: Sequence[Turn],
        memories: Sequence[JudgedMemory],
        digest: Digest | None = None,
    ) -> Verdict:
        """Return the model's verdict; it reads the transcript, not the digest."""
        case = build_case(transcript, memories, self._world)
        if not case.transcript:
            nothing = (None,) * len(memories)
            return Verdict(score=None, confidence=0.0, relevance=nothing, judge=self.name)
        reply = self._llm.ask(case.prompt, SCHEMA)
        data = reply.data
        findings = read_findings(case, data)
        if not 0 <= data["novel_context_count"] <= NOVEL_LIMIT_COUNT:
            raise BadReply("the judge counted something that can not be")
        if len(data["missing_topics"]) > TOPICS_LIMIT_COUNT:
            raise BadReply(f"the judge named more than {TOPICS_LIMIT_COUNT} topics")
        topics = (_short(topic, TOPIC_LIMIT_CHARS) for topic in data["missing_topics"])
        return Verdict(
            score=share(data["overall_score"], "an overall score"),
            confidence=share(data["confidence"], "a confidence"),
            relevance=findings.relevance,
            missing=findings.missing,
            missing_topics=tuple(topic for topic in topics if topic),
            novel_context_count=data["novel_context_count"],
            reasoning=_short(data["reasoning"], REASONING_LIMIT_CHARS),
            raw=reply.raw[:RAW_LIMIT_CHARS],
            judge=self.name,
        )


def _short(text: str, limit_chars: int) -> str:
    """Free text as it may be stored and shown: bounded, and without hidden characters."""
    return visible(text[:limit_chars]).strip()
