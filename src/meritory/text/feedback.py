"""Thumbs up and thumbs down in every spelling that people and agents use."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from meritory.text.terms import query_terms, split_identifier, stem
from meritory.text.words import STOP_WORDS, words

UP: Final = 1
DOWN: Final = -1
# What a refusal lists; each also counts in capitals, and with - or _ for the space.
SIGNALS: Final = (
    *("up", "down", "positive", "negative", "good", "bad", "thumbs up", "thumbs down"),
    *("+1", "-1", "👍", "👎"),
)
_SPELLINGS: Final = {
    **dict.fromkeys(words("up positive good thumbsup thumbup thumbs👍 +1 👍"), UP),
    **dict.fromkeys(words("down negative bad thumbsdown thumbdown thumbs👎 -1 👎"), DOWN),
}
# Skin tones and the mark that asks for a picture instead of a sign.
_SHADES: Final = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]")
_REPEATED: Final = re.compile("([👍👎])\\1+")
_SHORTCODE: Final = re.compile(r":(.+):")
_JOINTS: Final = re.compile(r"[\s_-]+")


def polarity(signal: object) -> int | None:
    """1 for up, -1 for down, None for what is neither."""
    if not isinstance(signal, str):
        return None
    plain = unicodedata.normalize("NFKC", _SHADES.sub("", signal)).casefold().strip(" \t\n.!\"'")
    code = _SHORTCODE.fullmatch(plain)
    word = _REPEATED.sub(r"\1", code[1] if code else plain)
    return _SPELLINGS.get(word, _SPELLINGS.get(_JOINTS.sub("", word)))


def name(of: int | None) -> str:
    """A polarity as a word."""
    return {UP: "up", DOWN: "down"}.get(of or 0, "unknown")


GENERAL: Final = "general"
# Part of a word never counts: "recent process" is neither about cents nor about professionals.
_CUES: Final = {
    "testing": words("test tests testing pytest unittest jest coverage fixture assertion mock ci"),
    "security": words(
        "security secret secrets credential credentials password token vulnerability injection"
        " permission permissions authentication authorization auth encryption csrf xss"
    ),
    "performance": words(
        "performance slow latency speed memory-leak throughput timeout cache profiling benchmark"
    ),
    "git": words(
        "git commit commits push pushed rebase merge branch checkout stash pull-request cherry-pick"
    ),
    "api": words(
        "api endpoint endpoints http rest graphql webhook request response client-library"
    ),
    "data": words("database sql schema migration migrations query table column sqlite postgres"),
    "ui": words("ui css html button layout component components page dashboard frontend"),
    "documentation": words("documentation docs readme docstring comment comments changelog"),
    "debugging": words("bug bugs debug debugging traceback stacktrace exception crash error"),
    "architecture": words("architecture refactor refactoring module dependency abstraction layer"),
    "deployment": words("deploy deployed deployment release docker kubernetes rollback staging"),
    "revenue": words("revenue pricing invoice invoices billing subscription refund"),
    "customer": words("customer customers buyer buyers churn"),
    "funnel": words("funnel conversion onboarding signup checkout-flow"),
}
TOPICS: Final = tuple(_CUES)
_TOPIC_OF: Final = {stem(word): topic for topic, found in _CUES.items() for word in found}
_CHUNK: Final = re.compile(r"[\w-]+")


def word_list(text: str) -> list[str]:
    """Every whole word of a text in lower case; identifiers also fall into their parts."""
    found: list[str] = []
    for chunk in _CHUNK.findall(unicodedata.normalize("NFKC", text)):
        whole = chunk.strip("-_").lower()
        parts = [part.lower() for part in split_identifier(chunk)]
        found += [whole, *parts] if parts and parts != [whole] else [whole]
    return [word for word in found if word]


def read_topics(texts: Iterable[str]) -> Counter[str]:
    """How often the words of each topic stand in the texts, in the order of the table."""
    found = Counter(
        topic
        for text in texts
        for word in word_list(text)
        if (topic := _TOPIC_OF.get(stem(word))) is not None
    )
    return Counter({topic: found[topic] for topic in TOPICS if topic in found})


def domain(tags: Iterable[str], found: Mapping[str, int]) -> str:
    """The one topic that feedback is counted under: a tag somebody gave, else the commonest."""
    given = next((tag for tag in tags if tag in _CUES), None)
    return given or max(found, key=lambda topic: found[topic], default=GENERAL)


# Words that only say how it was, not what: a text made of them is as bare as the signal itself.
_VERDICTS: Final = words(
    """
    ace amazing annoying approved awesome awful bad better best blah brilliant broken bug buggy
    correct cool crap dislike dont down error excellent fail failed failing fails failure fantastic
    fine fix garbage good great hate horrible hm hmm incorrect issue job like liked lgtm lol
    looked looking looks love loved mess nah neat negative nice no nope not ok okay perfect please
    poor positive pretty problem really right shit sloppy stupid sucks super sweet terrible thank
    thanks thing things thumb thumbs thx trash try up useless well wonderful work worked working
    works worse worst wow wrong yay yeah yes stuff job answer result output response nice1
    """
)
FIELD_WORDS: Final = 2
CONTEXT_WORDS: Final = 3
# From here on a text says by itself what went wrong, or what worked.
TELLING_WORDS: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask the user, with the field that the answer goes into."""

    field: str
    question: str
    example: str


_WENT_WRONG: Final = Question(
    "what_went_wrong",
    "What exactly went wrong?",
    "It edited the generated file instead of the template that makes it.",
)
_TO_CHANGE: Final = Question(
    "what_to_change",
    "What should be done differently next time?",
    "Edit templates/api.j2 and run make generate.",
)
_WORKED: Final = Question(
    "what_worked",
    "What exactly worked, so that it can be done again?",
    "Running the linter before the commit caught the unused import.",
)


def content_words(text: str) -> tuple[str, ...]:
    """The distinct words that say something beyond good or bad."""
    return tuple(
        term
        for term in query_terms(text)
        if term not in _VERDICTS and term not in STOP_WORDS and any(map(str.isalnum, term))
    )


def tells_all(text: str) -> bool:
    """Whether a text can stand for what went wrong, or what worked."""
    return len(content_words(text)) >= TELLING_WORDS


def is_actionable(polarity: int, texts: Mapping[str, str]) -> bool:
    """Whether somebody could act on it: one field, or the context, says something specific."""
    named = ("what_worked",) if polarity == UP else ("what_went_wrong", "what_to_change")
    return any(len(content_words(texts.get(name, ""))) >= FIELD_WORDS for name in named) or (
        len(content_words(texts.get("context", ""))) >= CONTEXT_WORDS
    )


def questions(polarity: int, texts: Mapping[str, str]) -> tuple[Question, ...]:
    """What is missing, as questions; the first is the one to ask."""
    wanted = (_WORKED,) if polarity == UP else (_WENT_WRONG, _TO_CHANGE)
    return tuple(
        one for one in wanted if len(content_words(texts.get(one.field, ""))) < FIELD_WORDS
    )


# Said of a mistake that happened before; "do push" and "do not push" stay apart.
_REPEATS: Final = words(
    """
    again already always another before constantly ever every just keep keeps kept once repeatedly
    same second seventh still third time times today twice yet
    """
)
_NEGATIONS: Final = words("no not never without cannot can't don't didn't doesn't won't n't")
_UNSAID: Final = (STOP_WORDS | _REPEATS) - _NEGATIONS
# Two reports share so many words, and such a share of all their words.
SHARED_WORDS_MIN: Final = 3
SHARED_SHARE: Final = 0.6
_VALUE: Final = re.compile(r"[\d/\\_=]|\w[.:]\w|^--?\w")
_SHORT: Final = re.compile(r"n['’]t\b")


def fingerprint(polarity: int, text: str) -> str:
    """A short hash of what a report says, the same for the same claim in other words' order."""
    said, values = _read(text)
    told = "\x1f".join((str(polarity), *sorted(said), "", *sorted(values)))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_same(one: str, other: str) -> bool:
    """Whether two texts tell of one thing: most words shared, no value or negation apart."""
    (said, values), (told, others) = _read(one), _read(other)
    if values != others or said & _NEGATIONS != told & _NEGATIONS:
        return False
    both = len(said & told)
    return both >= SHARED_WORDS_MIN and both >= SHARED_SHARE * len(said | told)


def _read(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The stems of what is said, and the values in it."""
    spread = _SHORT.sub(" not", text.casefold())
    said = frozenset(stem(word) for word in word_list(spread) if word not in _UNSAID)
    # Numbers, paths and versions hold together in what stands between spaces.
    chunks = (chunk.strip(".,;:!?()\"'`") for chunk in spread.split())
    return said, frozenset(chunk for chunk in chunks if _VALUE.search(chunk))


MISTAKE, SUCCESS = "Mistake to avoid", "What worked"
# Not "instead": in a claim that word says that another one no longer holds.
ADVICE: Final = "Next time"
_LABELS: Final = re.compile(rf" (?:{ADVICE}|Why|When): ")
_MAIN_CHARS: Final = 2_000
_MORE_CHARS: Final = 600


def main_text(polarity: int, texts: Mapping[str, str]) -> str:
    """What the report is about: what went wrong, or what worked, else its context."""
    name = "what_worked" if polarity == UP else "what_went_wrong"
    return texts.get(name) or texts.get("context") or texts.get("what_to_change", "")


def lesson_text(polarity: int, texts: Mapping[str, str]) -> str:
    """The lesson that feedback becomes."""
    main = main_text(polarity, texts)
    parts = [_part(SUCCESS if polarity == UP else MISTAKE, main, _MAIN_CHARS)]
    for label, name in ((ADVICE, "what_to_change"), ("Why", "reasoning"), ("When", "context")):
        text = texts.get(name, "")
        if text and text != main:
            parts.append(_part(label, text, _MORE_CHARS))
    return " ".join(parts)


def told_in(polarity: int, lesson: str) -> str:
    """What a lesson is about, without its labels; nothing when it is a lesson of another kind."""
    label = f"{SUCCESS if polarity == UP else MISTAKE}: "
    if not lesson.startswith(label):
        return ""
    return _LABELS.split(lesson.removeprefix(label), maxsplit=1)[0]


def with_advice(lesson: str, texts: Mapping[str, str]) -> str | None:
    """The lesson with advice that it lacked; None when there is nothing to add."""
    advice = texts.get("what_to_change", "")
    if not advice or f"{ADVICE}: " in lesson or advice.casefold() in lesson.casefold():
        return None
    return f"{lesson} {_part(ADVICE, advice, _MORE_CHARS)}"


def _part(label: str, text: str, limit: int) -> str:
    flat = " ".join(text.split())
    short = flat if len(flat) <= limit else flat[: limit - 3] + "..."
    return f"{label}: {short}" + ("" if short.endswith((".", "!", "?")) else ".")


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
