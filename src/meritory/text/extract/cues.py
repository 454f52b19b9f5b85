"""The results of an extractor, and the cues by which the rules find claims."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from meritory.domain.memory import Kind, Origin, Provenance

# The confidence in a claim, by the way it was stated.
STATED: Final = 0.95
STATED_PLAINLY: Final = 0.9
CONFIRMED: Final = 0.7
IMPLIED: Final = 0.5
CANDIDATE_LIMIT: Final = 5


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """One claim worth keeping, with its quote and the turn of the quote."""

    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    # The index of the turn in the transcript.
    turn: int
    quote: str
    # The stored memory that it replaces.
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """A candidate that is not stored: not useful later, or rejected by a check."""

    found: FoundClaim
    reason: str
    outcome: Literal["floored", "refused"] = "floored"


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of an extractor for one transcript, best candidates first."""

    candidates: tuple[FoundClaim, ...] = ()
    refused: tuple[Declined, ...] = ()


Way = Literal["remember", "rule", "correction", "decision", "preference"]


@dataclass(frozen=True, slots=True)
class Cue:
    """One phrasing, with the kind and confidence of a claim in it."""

    way: Way
    kind: Kind
    confidence: float
    # The sentence must contain one of these, in lower case; this check is fast.
    needs: tuple[str, ...]
    pattern: re.Pattern[str]

    @property
    def corrects(self) -> bool:
        """Whether it corrects an earlier action of the agent."""
        return self.way == "correction"


def _cue(way: Way, kind: Kind, confidence: float, needs: str, pattern: str) -> Cue:
    compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL)
    return Cue(way, kind, confidence, tuple(needs.split("|")), compiled)


def _rule(confidence: float, needs: str, pattern: str) -> Cue:
    return _cue("rule", "constraint", confidence, needs, pattern)


def _correction(needs: str, pattern: str) -> Cue:
    return _cue("correction", "fact", STATED_PLAINLY, needs, pattern)


def _decision(needs: str, pattern: str) -> Cue:
    return _cue("decision", "decision", STATED_PLAINLY, needs, pattern)


def _preference(needs: str, pattern: str) -> Cue:
    return _cue("preference", "preference", STATED_PLAINLY, needs, pattern)


_PLEASE: Final = (
    r"[(\s*_]*(?:(?:please|pls|kindly|and|but|so|also|then|ok(?:ay)?|yes|yeah|well|oh|hey|hi|btw"
    r"|by the way|one more thing|lastly|finally|just|again|important|note|rule|reminder)"
    r"[,:!.\s-]+)*"
)
# "Can you always ..." asks for the future as well as "always ..." does.
_ASKED: Final = (
    r"(?:(?:can|could|will|would) you (?:please )?"
    r"|(?:i(?:'d| would)? (?:like|want|need|expect)|i'd prefer(?: it if)?|i'm asking) (?:for )?you"
    r" (?:to )?"
    r"|you (?:should|must|need to|have to|are to|can|may|shall) "
    r"|we (?:should|must|need to|have to) "
    r"|(?:make|be) sure (?:to |that )?(?:you )?"
    r"|let's |try to )?(?:please )?"
)
_START: Final = rf"^{_PLEASE}{_ASKED}"
# Where a statement may begin inside a sentence.
_WITHIN: Final = r"(?:^|[,;:(.]\s*|\b(?:and|but|so|because|since|that|as|though|which|{more})\s+)"
_INSIDE: Final = _WITHIN.replace("|{more}", "")
_GRANTED: Final = _WITHIN.replace("{more}", "considering|given(?: that)?")
# In an order, an infinitive follows "always" or "never".
_VERB: Final = (
    r"(?!(?:been|had|has|have|was|were|is|are|am|did|a|an|the|my|i|it|so|in|at|on|by|up|here|there"
    r"|too|enough|ever|mind|good|great|nice|fun|happy|glad|saw|seen|heard|thought|knew|known"
    r"|happened|wanted|going|gonna|fails?|seems?|works?|gets|love[ds]?|like[ds]?|enjoy\w*"
    r"|remember(?:s|ed)|forget(?: about it| the))\b)"
    r"(?!\w+(?:ed|ing)\b(?<!need)(?<!embed)(?<!feed)(?<!bring)(?<!string))[a-z]"
)
_LATER: Final = (
    r"(?:from now on(?:wards?)?|from here on(?: out)?|going forward|moving forward|henceforth"
    r"|in (?:the )?future|for (?:the )?future|next time|every time|each time|at all times"
    r"|as a (?:general )?rule|by default)"
)
_LATER_WORDS: Final = "from now|from here|forward|henceforth|future| time|as a |by default"
_ORDER_VERB: Final = (
    r"(?:add|address|always|answer|ask|assume|avoid|be|call|check|cite|commit|confirm|consider"
    r"|copy|create|cut|delete|deploy|do|do not|don't|double-check|edit|end|ensure|explain|fix"
    r"|follow|format|give|go|have|highlight|ignore|include|keep|leave|let|limit|link|list|log|look"
    r"|make|mark|mention|merge|move|name|never|no|number|omit|only|open|place|prefix|provide|push"
    r"|put|quote|read|refer|remind|remove|rename|reply|report|respond|return|run|save|say|search"
    r"|send|set|show|sign|skip|sort|speak|spell|start|state|stay|stick|stop|store|suggest"
    r"|summari[sz]e|talk|tell|test|track|translate|treat|try|type|update|use|validate|verify|wait"
    r"|warn|work|wrap|write)"
)
# Not "remember when ...", which is about the past.
_PAST: Final = (
    r"(?! (?:when|how|if|what|why|who|where|me\b|him|her|us\b|them|those (?:days|times)"
    r"|the (?:time|day|good|old)"
    r"|that (?:time|trip|day|night|one|movie|show|song|thing|guy)\b))"
)
_NOT_WE: Final = r"(?<!\bwe)(?<!\bi)(?<!\byou)(?<!\bthey)(?<!\bhave)(?<!\b've)(?<!\bcan)"
_I: Final = r"(?:i|we|my (?:team|company|family)(?: and i)?|our team|the team)"
_BY_NATURE: Final = (
    r"(?: really| strongly| generally| usually| much| personally| also| still| always| definitely"
    r"| actually| tend to)?"
)
_WRONG: Final = (
    r"(?:no|nope|wrong|incorrect|not (?:quite|right|correct|true)"
    r"|(?:no,? )?(?:that|this|it)(?:'s| is) (?:wrong|incorrect|false|a mistake"
    r"|not (?:right|correct|true|it|what i (?:said|asked|meant|wanted)))"
    r"|you(?:'re| are) (?:wrong|mistaken))"
)

CUES: Final = (
    _cue(
        "remember",
        "fact",
        STATED,
        "remember|memori|mind|forget|note|record|reference|fyi",
        rf"{_START}(?:remember|memori[sz]e|(?:keep|bear) in mind"
        r"|(?:don't (?:ever )?|do not |never )forget|make a (?:mental )?note|take note"
        r"|note(?= that\b|:)|for the record"
        rf"|for future reference|fyi)\b{_PAST}[,:\s-]*"
        r"(?:(?:this|that|of this)(?: fact)?(?:[,:]|(?= [a-z])))?\s*(?:to (?=[a-z]))?"
        r"(?P<claim>\S.*)$",
    ),
    _rule(
        STATED,
        _LATER_WORDS,
        rf"^{_PLEASE}(?P<claim>{_LATER},?\s+"
        r"(?!(?:i|i'll|i'm|i've|i'd|it|it's|there|this|they|he|she|maybe|perhaps|would)\b)"
        rf"{_ASKED}\S.*)$",
    ),
    _rule(STATED, _LATER_WORDS, rf"{_START}(?P<claim>{_ORDER_VERB}\b.{{3,}}\b{_LATER})\W*$"),
    _rule(STATED, "always|never", rf"{_START}(?P<claim>(?:always|never)\s+{_VERB}.*)$"),
    _rule(
        STATED,
        "always|never",
        r"^(?P<claim>(?:when(?:ever)?|if|each time|every time|(?:for|in) (?:all|any|every)|before"
        rf"|after|unless)\b[^?]{{3,160}}?{_NOT_WE},?\s(?:you (?:should|must) |please )?"
        rf"(?:always|never)\s+{_VERB}.*)$",
    ),
    _rule(
        STATED_PLAINLY,
        "whenever| time ",
        rf"^{_PLEASE}(?P<claim>(?:whenever|every time|each time) (?:i|you|we)\b[^?]{{3,120}}?,\s*"
        rf"(?:you (?:should|must) |please )?{_ORDER_VERB}\b.*)$",
    ),
    _rule(
        STATED_PLAINLY,
        "don't|do not|dont|no|stop|quit",
        rf"{_START}(?P<claim>(?:don't|do not|dont|no|stop|quit)\b.{{3,}}\b"
        r"(?:again|ever(?! again)|any ?more"
        r"|without (?:asking|my|permission|approval|telling|checking)[^.]*"
        r"|(?:unless|until|before) i (?:ask|say|tell|approve|confirm|explicitly)[^.]*))\W*$",
    ),
    _rule(
        STATED_PLAINLY,
        " ever|stop|quit| me |only",
        rf"{_START}(?P<claim>(?:don't|do not) ever\b.*|(?:stop|quit) (?!\w+ing\W*$)\w+ing\b.+"
        r"|(?:ask|check with|tell|warn) me (?:first )?before\b.*"
        r"|only\b.{3,80}\b(?:when|if|after) i (?:ask|say|tell|approve|confirm)\b.*)$",
    ),
    _rule(
        STATED_PLAINLY,
        "always|never",
        r"^(?P<claim>(?!(?:why|what|how|when|if|he|she|they|it|i)\b)[^,?]{2,80}?"
        r"\b(?:must|should|may|shall|has to|have to|needs? to|is to|are to) (?:always|never) "
        rf"{_VERB}.*)$",
    ),
    _rule(
        STATED_PLAINLY,
        "you are ",
        rf"^{_PLEASE}(?P<claim>you are (?:not |never |always )?to (?!blame\b)\w+.*)$",
    ),
    _rule(
        STATED_PLAINLY,
        "remind me",
        rf"{_START}(?:also )?(?P<claim>remind me (?:to|about|of)\b.{{3,}}"
        r"\b(?:every|each|whenever|when|after|before)\b.*)$",
    ),
    _decision(
        "decided|settled|final",
        rf"^{_PLEASE}(?P<claim>.{{8,}}?),? (?:that's|it's|this is|that is) "
        r"(?:decided|settled|final)\W*$",
    ),
    _correction(
        "said|told|asked",
        rf"^{_PLEASE}(?:i (?:already )?(?:said|told you|asked you)"
        r"|i(?:'ve| have) (?:already )?(?:said|told you)(?: \w+ times)?)"
        r"(?: already| before| earlier| twice)?[,:]?(?: that| to(?= \w)|(?= not to))?\s+"
        r"(?!i |it |something|so\b|yes|no\b|hi\b|what|the same)(?P<claim>\S.*)$",
    ),
    _correction(
        "no|wrong|incorrect|mistake|false",
        rf"^{_WRONG}(?: man| no)*\s*[,.!:;\u2014\u2013-]+\s*(?:actually,? )?"
        r"(?P<claim>(?:the|our|my|we|it's|it is|that's|there's|i'm|i am|i meant|i use|always|never"
        r"|use|\w+(?: \w+){0,3} (?:is|are|uses?|has|runs?|lives?|goes|means))\b.*)$",
    ),
    _decision(
        "decided|settled|standard|agreed|chosen|opted|committed|going with|switching",
        rf"{_GRANTED}{_PLEASE}(?P<claim>{_I}(?:'ve| have|'re| are)?"
        r"(?: now| finally| already| also| just| all)? (?:decided|settled on|standardi[sz]ed on"
        r"|agreed(?: with(?: \w+){1,3}?)? (?:to|on|that)|chosen|opted|committed to|going with"
        r"|switching to)\b.*)$",
    ),
    _decision(
        "we ",
        rf"^{_PLEASE}(?P<claim>(?:in this (?:repo|project|codebase|team)|here|at work)?,?\s*"
        r"we (?:only |always |exclusively )?(?:use|run|deploy|target|support|write|follow)\b.{2,}?"
        r"(?:,? not\b| instead of\b| rather than\b| never\b|,? (?:and )?no \w+).*"
        r"|we (?:always|never) (?:use|run|deploy|commit|push|write|merge|name|put|test|ship|release"
        r"|follow|keep|call|squash|rebase)\b.*"
        r"|we (?:don't|do not) (?:use|deploy|support|allow|commit|push|merge|ship|write)\b.*)$",
    ),
    _preference(
        "prefer|dislike|hate|stand|want|like|insist",
        rf"{_INSIDE}(?P<claim>{_I}{_BY_NATURE} (?:prefer(?! not to say)|dislike|hate it when you"
        r"|can't stand|don't (?:want|like) (?:it when )?you (?:to )?|insist on)\b.*)$",
    ),
    _preference(
        "prefer|favo",
        rf"{_INSIDE}(?P<claim>(?:my|our) (?:preference|preferred|favou?rite)\b[^,?]{{0,60}}? "
        r"(?:is|are)\b.*)$",
    ),
)
# A sentence that only says no, and the cue for the correction after it.
DENIAL: Final = re.compile(
    rf"\W*(?:no+|{_WRONG}|you(?:'re| are) (?:still )?missing the point)(?: man)?\W*", re.IGNORECASE
)
AFTER_DENIAL: Final = _correction(
    " ",
    r"^(?P<claim>(?:the|our|my|we (?:use|won't|don't|will|always|never|have|only)"
    r"|(?!(?:i|it|this|that|they|you)\b)\w+(?: \w+){0,2} (?:is|are|needs?|uses?|has|runs?|lives?"
    r"|goes|means))\b.*)$",
)
