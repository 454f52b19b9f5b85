"""A rubric: five criteria with weights, judged 1 to 5, and guardrails that hold or do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from meritory.domain.errors import InputError

SCORE_MIN, SCORE_MAX = 1, 5
# Judges this far apart disagree; a score this high needs evidence where a criterion asks for it.
DISAGREEMENT: Final = 2
EVIDENCED_SCORE: Final = 4
SCORES_LIMIT_COUNT: Final = 64
GUARDRAILS_LIMIT_COUNT: Final = 32
_NAME_LIMIT_CHARS: Final = 64
_EVIDENCE_LIMIT_CHARS: Final = 500


class Criterion(NamedTuple):
    """The weight of a criterion, its least score, and whether high scores need evidence."""

    weight: float
    minimum: float
    needs_evidence: bool = False


CRITERIA: Final[Mapping[str, Criterion]] = {
    "correctness": Criterion(0.30, 3),
    "verification_evidence": Criterion(0.25, 3, needs_evidence=True),
    "safety": Criterion(0.20, 3),
    "instruction_following": Criterion(0.15, 3),
    "clarity": Criterion(0.10, 2),
}


@dataclass(frozen=True, slots=True)
class Score:
    """One judge's score for one criterion."""

    criterion: str
    score: float
    evidence: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True)
class RubricVerdict:
    """The result of a rubric; `reasons` say why a positive report may not become a lesson."""

    # Criteria without a score do not count.
    weighted_score: float
    means: Mapping[str, float]
    failing: tuple[str, ...] = ()
    failed_guardrails: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()
    missing_evidence: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons against it, in words."""
        return (
            *(f"{name} is below its minimum" for name in self.failing),
            *(f"guardrail {name} is false" for name in self.failed_guardrails),
            *(f"judges disagree about {name}" for name in self.disagreements),
            *(f"{name} is rated high without evidence" for name in self.missing_evidence),
        )

    @property
    def is_eligible(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons


def read_scores(given: object) -> tuple[Score, ...]:
    """Return the scores of a list, or of an object from criteria to numbers."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        given = [{"criterion": name, "score": score} for name, score in given.items()]
    if not isinstance(given, list | tuple):
        raise InputError(
            "rubric_scores must be a list",
            hint='such as [{"criterion": "safety", "score": 4, "evidence": "...", "judge": "me"}]',
        )
    if len(given) > SCORES_LIMIT_COUNT:
        raise InputError(f"at most {SCORES_LIMIT_COUNT} rubric scores, not {len(given)}")
    return tuple(map(_score, given))


def _score(item: object) -> Score:
    if not isinstance(item, Mapping):
        raise InputError("a rubric score must be an object with criterion and score")
    unknown = set(item) - {"criterion", "score", "evidence", "judge"}
    if unknown:
        raise InputError(f"a rubric score has no field {min(map(str, unknown))[:40]!r}")
    criterion, value = item.get("criterion"), item.get("score")
    if not isinstance(criterion, str) or criterion not in CRITERIA:
        raise InputError(
            f"unknown criterion {str(criterion)[:40]!r}", hint=f"known: {', '.join(CRITERIA)}"
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"the score of {criterion} must be a number from 1 to 5")
    if not SCORE_MIN <= value <= SCORE_MAX:
        raise InputError(f"the score of {criterion} must lie between 1 and 5, not {value}")
    texts = {name: item.get(name) or "" for name in ("evidence", "judge")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"the {name} of {criterion} must be text")
    return Score(
        criterion,
        float(value),
        texts["evidence"].strip()[:_EVIDENCE_LIMIT_CHARS],
        texts["judge"][:_NAME_LIMIT_CHARS],
    )


def read_guardrails(given: object) -> dict[str, bool | None]:
    """Return the guardrails with whether they held; None is unknown."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > GUARDRAILS_LIMIT_COUNT:
        raise InputError(
            f"guardrails must be at most {GUARDRAILS_LIMIT_COUNT} names with true, false or null",
            hint='such as {"tests_passed": true, "path_safety": null}',
        )
    for name, held in given.items():
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT_CHARS:
            raise InputError(f"a guardrail's name has 1 to {_NAME_LIMIT_CHARS} characters")
        if held is not None and not isinstance(held, bool):
            raise InputError(f"guardrail {name[:40]!r} must be true, false or null")
    return dict(given)


def evaluate(
    scores: Sequence[Score], guardrails: Mapping[str, bool | None]
) -> RubricVerdict | None:
    """Return the verdict of all judges together; None without scores and guardrails."""
    if not scores and not guardrails:
        return None
    by_criterion: defaultdict[str, list[Score]] = defaultdict(list)
    for one in scores:
        by_criterion[one.criterion].append(one)
    means = {
        name: sum(one.score for one in by_criterion[name]) / len(by_criterion[name])
        for name in CRITERIA
        if name in by_criterion
    }
    return RubricVerdict(
        weighted_score=round(
            sum(CRITERIA[name].weight * mean / SCORE_MAX for name, mean in means.items()), 6
        ),
        means=means,
        failing=tuple(name for name, mean in means.items() if mean < CRITERIA[name].minimum),
        # An unknown guardrail has not failed.
        failed_guardrails=tuple(name for name, held in guardrails.items() if held is False),
        disagreements=tuple(name for name in means if _spread(by_criterion[name]) >= DISAGREEMENT),
        missing_evidence=tuple(
            name
            for name in means
            if CRITERIA[name].needs_evidence
            and any(one.score >= EVIDENCED_SCORE and not one.evidence for one in by_criterion[name])
        ),
    )


def _spread(scores: Sequence[Score]) -> float:
    values = [one.score for one in scores]
    return max(values) - min(values)
