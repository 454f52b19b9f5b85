"""Why something went wrong, as far as the words of a report and its rubric show it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Category = Literal[
    "system_failure",
    "guardrail_triggered",
    "invalid_invocation",
    "tool_output_misread",
    "intent_plan_misalignment",
]
# In the order in which they win: what broke from outside explains more than what was thought.
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
_QUOTE_CHARS: Final = 160
_AROUND_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class DiagnosisEvidence:
    """What speaks for a category: where it stands, and the words."""

    source: str
    quote: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The category with everything that speaks for it."""

    category: Category
    evidence: tuple[DiagnosisEvidence, ...]


def _words(*phrases: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(phrases)})(?![\w-])", re.IGNORECASE)


_PATTERNS: Final[Mapping[Category, re.Pattern[str]]] = {
    "system_failure": _words(
        r"crash(?:ed|es)?",
        r"segfault\w*",
        r"out of memory",
        r"oom",
        r"timed? ?out",
        r"time-?out",
        r"connection (?:refused|reset|lost)",
        r"disk (?:is |was )?full",
        r"no space left",
        r"exit(?:ed)?(?: code| with| status)+ [1-9]\d*",
        r"non-?zero exit",
        r"traceback",
        r"unhandled exception",
        r"service unavailable",
        r"rate.?limit(?:ed)?",
        r"network (?:error|failure|down)",
    ),
    "guardrail_triggered": _words(
        r"guardrails?",
        r"not allowed",
        r"not permitted",
        r"permission denied",
        r"forbidden",
        r"blocked",
        r"policy",
        r"without (?:my |the |any )?(?:permission|approval|consent|asking)",
        r"unsafe",
        r"dangerous(?:ly)?",
        r"protected branch",
        r"force.?push(?:ed)?",
    ),
    "invalid_invocation": _words(
        r"(?:invalid|bad|wrong|unknown|missing) (?:\w+ )?(?:argument|flag|option|parameter)s?",
        r"(?:missing|required) (?:field|value)s?",
        r"no such (?:file|command|option|table|tool)\w*",
        r"command not found",
        r"syntax error",
        r"wrong (?:path|directory|folder|working directory|command|tool|arguments?)",
        r"unknown (?:command|tool|function)",
        r"does(?:n't| not) exist",
        r"malformed",
    ),
    "tool_output_misread": _words(
        r"misread",
        r"misinterpret(?:ed|s)?",
        r"hallucinat\w+",
        r"fabricat\w+",
        r"made up",
        r"invented",
        r"assum(?:ed|es|ing)",
        r"claim(?:ed|s|ing)",
        r"pretend(?:ed|s)?",
        r"overlook(?:ed|s)?",
        r"without (?:verif\w+|check\w*|test\w*|evidence|running|reading|looking)",
        r"(?:skipped|ignored) (?:the |all )?(?:tests?|checks?|output|errors?|warnings?|result)",
        r"(?:never|didn't|did not) (?:ran|run|check(?:ed)?|verif\w+|read|look(?:ed)?)",
        r"said (?:it|the tests?) passed",
    ),
    "intent_plan_misalignment": _words(
        r"not what (?:i|we) (?:asked|wanted|meant|said)",
        r"(?:i|we) (?:asked|wanted|told) (?:you |it )?(?:for|to|not)",
        r"instead of",
        r"(?:ignored|against|disregarded) (?:my |the |our )?(?:instructions?|plan|request|spec)",
        r"(?:didn't|did not|doesn't) (?:follow|do what|listen)",
        r"misunderst\w+",
        r"wrong (?:file|approach|branch|function|feature|thing|order|place|project)",
        r"(?:unasked|unrequested|unwanted|unneeded)",
        r"out of scope",
        r"should(?:n't| not)? have",
        r"over-?engineer\w+",
    ),
}
# What a failed criterion points to when no words say more.
_CRITERIA: Final[Mapping[str, Category]] = {
    "safety": "guardrail_triggered",
    "verification_evidence": "tool_output_misread",
    "correctness": "tool_output_misread",
    "instruction_following": "intent_plan_misalignment",
    "clarity": "intent_plan_misalignment",
}


def diagnose(
    texts: Mapping[str, str], failing: Sequence[str] = (), guardrails: Sequence[str] = ()
) -> Diagnosis | None:
    """The category that the most telling evidence names; None when nothing does."""
    found: dict[Category, list[DiagnosisEvidence]] = {}
    for category, evidence in _all_evidence(texts, failing, guardrails):
        found.setdefault(category, []).append(evidence)
    for category in CATEGORIES:
        if category in found:
            return Diagnosis(category, tuple(found[category]))
    return None


def _all_evidence(
    texts: Mapping[str, str], failing: Sequence[str], guardrails: Sequence[str]
) -> Iterator[tuple[Category, DiagnosisEvidence]]:
    for name in guardrails:
        yield "guardrail_triggered", DiagnosisEvidence(f"guardrail:{name}", f"{name} is false")
    for name, text in texts.items():
        for category, pattern in _PATTERNS.items():
            match = pattern.search(text)
            if match is not None:
                yield category, DiagnosisEvidence(name, _quoted(text, match))
    for criterion in failing:
        told = DiagnosisEvidence(f"rubric:{criterion}", f"{criterion} is below its minimum")
        yield _CRITERIA[criterion], told


def _quoted(text: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - _AROUND_CHARS)
    return " ".join(text[start : match.end() + _AROUND_CHARS].split())[:_QUOTE_CHARS]
