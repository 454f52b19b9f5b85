"""Extraction of memories from a transcript by rules, without a model.

A sentence of the user becomes a claim when it matches a cue and is stated, not asked,
supposed or quoted. Claims that would not help later are declined with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Literal, cast

from meritory.domain.memory import Kind, Origin, Provenance
from meritory.domain.session import Turn
from meritory.text.claims.compare import says_change
from meritory.text.extract.attribution import Spoken, sentences
from meritory.text.normalize import canonical
from meritory.text.terms import query_terms
from meritory.text.words import words

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
    pattern: str

    @property
    def corrects(self) -> bool:
        """Whether it corrects an earlier action of the agent."""
        return self.way == "correction"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a cue's pattern, which is compiled at its first use."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _cue(way: Way, kind: Kind, confidence: float, needs: str, pattern: str) -> Cue:
    return Cue(way, kind, confidence, tuple(needs.split("|")), pattern)


_rule = partial(_cue, "rule", "constraint")
_correction = partial(_cue, "correction", "fact", STATED_PLAINLY)
_decision = partial(_cue, "decision", "decision", STATED_PLAINLY)
_preference = partial(_cue, "preference", "preference", STATED_PLAINLY)
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
_NOT_PAST: Final = (
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
        rf"|for future reference|fyi)\b{_NOT_PAST}[,:\s-]*"
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

NAME: Final = "rules/1"
TOPIC_LIMIT_CHARS: Final = 100
# Two claims that share this many distinctive words, and this share of all, are one.
SAME_SHARE: Final = 0.72
SAME_WORDS: Final = 4
MIN_WORDS: Final = 3
_AGENT_ROLES: Final = frozenset({"assistant", "edit", "tool"})

# A request about the current task that follows a statement in the same sentence.
_TRAILING_QUESTION: Final = re.compile(
    r"\s*+[,;:(\u2013\u2014-]++\s*(?:so|but|and|or|then|also)?,?\s*"
    r"(?:can|could|would|will|do|does|did|is|are|am|should|what|what's|how|which|where|who|why|when"
    r"|any|if so|right|ok|okay|got it|yeah|please|isn't|don't you)\b[^,;]*(?:[,;][^,;]*)*\?\W*$"
    r"|\s+(?:so|and|but) (?:can|could|would|how|what|which|do|is|are|should)\b[^?]*\?\W*$",
    re.IGNORECASE,
)
_TRAILING_REQUEST: Final = re.compile(
    r"\s*+[,;\u2013\u2014-]++\s*(?:so|but|and|though|which is why)\s+(?:now )?"
    r"(?:i'm|i am|i was|i'd|i wonder|i need|i want|i don't know|i guess|can|could|how|what|do|does"
    r"|is|are|should|would|maybe|please|let me|let's|any)\b.*$"
    r"|\s*[,;]\s*(?:can|could|would) you\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_POLITE: Final = re.compile(
    r"^\W*(?:\w+[,!]?\s+){0,3}?(?:can|could|will|would) you (?:please |also )?"
    r"(?:always|never|not|remember|remind me|memori[sz]e|keep in mind|stop|from now on"
    r"|in future)\b",
    re.IGNORECASE,
)
_GIVEN: Final = re.compile(r"\b(?:since|because|as|considering|given(?: that)?)\s+$", re.IGNORECASE)
_SUPPOSED: Final = re.compile(
    r"(?:\b(?:if|whether|unless|suppose|supposing|imagine|maybe|perhaps|in case|even though|as if"
    r"|what if|wish|pretend|hypothetically|let's say|would|might)\b[^,;:.]*)$",
    re.IGNORECASE,
)

# Case matters: a name is a third person too.
_OTHERS: Final = re.compile(
    r"\b(?:he|she|they|it|you|someone|somebody|people|everyone|boss|manager|mom|mum|dad|mother"
    r"|father|friend|wife|husband|partner|teacher|reviewer|author|docs?|documentation|readme"
    r"|claude\.md|agents\.md|guide|spec|rule|linter|error|message|comment|plan|post|article|log"
    r"|page|prompt|model|tool|assistant|[A-Z]\w+)(?: (?:also|always|once|just))? "
    r"(?:said|says?|told|tells|wrote|writes|states?|mentioned|suggest(?:s|ed)|claim(?:s|ed)?"
    r"|recommend(?:s|ed)|reads|advised|asked|wants|warned|insists?|keeps? saying)\b"
    r"|\baccording to\b|\b(?:said|called|titled|named|quote)\s*[:\x01]",
)
_POINTS_BACK: Final = re.compile(r"(?:it|it's|that|that's|this|there|there's|they|they're)\b", re.I)
_KINDS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"(?:please )?(?:always|never|don't|do not|only|stop|avoid|use|not to)\b", "constraint"),
        (r"you (?:should|must|are to)\b", "constraint"),
        (r"(?:i|we)\b[^,]{0,20} (?:prefer|like|love|hate|dislike)\b", "preference"),
        (r"(?:my|our) (?:favou?rite|preference|preferred)\b", "preference"),
        (r"(?:i|we)(?:'ve| have)? (?:decided|agreed|use|settled|don't use)\b", "decision"),
    )
)

# Loose ends are stripped without a pattern, which could take minutes on a long run of them.
_ENDS: Final = " ,;:.!"
_LOOSE_ENDS: Final = f"{_ENDS}\u2013\u2014-"
_COURTESY: Final = re.compile(r",? (?:please|thanks|thank you|ok|okay)$", re.IGNORECASE)


_WORD: Final = re.compile(r"[^\W_][\w'’./@+-]*")
_POINTING: Final = words(
    "it it's its this that that's these those they they're them he she him his her one ones there"
    " same such above below"
)

# Words that do not say what a sentence is about.
_EMPTY: Final = words(
    "a an the here and or but so to of in on at by for with from as than then not no never always"
    " please again ever only just also too very really more most much be is are was were am been"
    " being do does did doing done don't doesn't didn't have has had i i'm i've i'd i'll me my we"
    " we're we've our us you your you're will would can could should must may might shall let's"
    " want need prefer decided decide use using used make making get go put keep try stop like"
    " what when where which who how why if all any every each some now off up out remember"
    " way thing things stuff something anything everything future going forward time times plan"
    " option approach idea decision choice"
)

# A subject that only the previous turn explains.
_POINTER: Final = re.compile(
    r"(?:it|it's|that's|they|they're|he|she|there|there's"
    r"|(?:this|that|these|those) (?:is|was|are|were))\b",
    re.IGNORECASE,
)

# Introduces the topic of a claim that is unclear without it.
ABOUT: Final = " (about: "
_PRAISE: Final = words(
    "right correct correctly good better best well properly proper careful carefully accurate"
    " helpful nice great perfect quality high clean mistake mistakes wrong bad error errors work"
    " works working job answer answers result results clear clearly"
)
_SPAN: Final = (
    "(?:week|month|night|year|weekend|monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
)
_PASSING: Final = re.compile(
    r"\b(?:for now|right now|at the moment|this (?:time|once|morning|week|afternoon|evening)|today"
    r"|tonight|tomorrow|just once|(?:for|in|on|to|with|of) (?:this|that|the current|your)"
    r" (?:\w+ )?(?:pr|pull request|branch|task|session|commit|change|changes|issue|file|function"
    r"|chat|conversation|message|reply|answer|response|step|test|example|one|plan|draft|version"
    r"|trip|case|ticket|job|run|fix|patch|diff)|yet"
    r"|until (?!i (?:ask|say|tell|approve|confirm))(?:i|we|it|the|this|that|you)\b[^.]*"
    rf"|next {_SPAN})\b",
    re.IGNORECASE,
)

# Events in the past are over, unless the sentence states a change that still holds.
_PAST: Final = re.compile(
    rf"\b(?:yesterday|last {_SPAN}|(?:an? )?(?:few|couple of) (?:days|weeks|minutes|hours) ago)\b",
    re.IGNORECASE,
)
_PROGRESS: Final = re.compile(
    r"^(?:ok(?:ay)?[, ]+)?(?:i|we)(?:'ve| have)?(?: just| already| now)? (?:merged|pushed|committed"
    r"|deployed|ran|run|finished|fixed|tested|installed|restarted|reverted|rebased|updated|added"
    r"|removed|started|stopped|opened|closed|tried|checked|reviewed|approved|undid)\b",
    re.IGNORECASE,
)
_SELF: Final = re.compile(
    r"^(?:the |an? )?(?P<subject>.{3,60}?) (?:is|are|means) (?:the |an? )?(?P=subject)\W*$"
)


def read(turns: Sequence[Turn]) -> Extraction:
    """Return what the user stated outright, at most five claims, and the declined ones."""
    useful: list[FoundClaim] = []
    declined: list[Declined] = []
    has_acted, topic = False, ""
    for index, turn in enumerate(turns):
        has_acted = has_acted or turn.role in _AGENT_ROLES
        if turn.role != "user":
            continue
        spoken = sentences(turn.text)
        is_denied = False
        for sentence in spoken:
            cues = (*CUES, AFTER_DENIAL) if is_denied else CUES
            usable = [cue for cue in cues if has_acted or not cue.corrects]
            claim = _claim(sentence, index, topic, usable)
            if claim and (reason := reason_to_decline(claim.content)):
                declined.append(Declined(claim, reason))
            elif claim:
                useful.append(claim)
            is_denied = DENIAL.fullmatch(sentence.bare.replace("\u2019", "'")) is not None
        topic = spoken[-1].text[:TOPIC_LIMIT_CHARS] if spoken else ""
    best: list[FoundClaim] = []
    best_terms: list[frozenset[str]] = []
    for claim in sorted(useful, key=lambda claim: (-claim.confidence, -claim.turn)):
        terms = frozenset(query_terms(claim.content)) | {canonical(claim.content)}
        if not any(_is_same(terms, other) for other in best_terms):
            best.append(claim)
            best_terms.append(terms)
    too_many = (
        Declined(claim, "the session had better ones", "refused")
        for claim in best[CANDIDATE_LIMIT:]
    )
    return Extraction(tuple(best[:CANDIDATE_LIMIT]), (*declined, *too_many))


def reason_to_decline(content: str) -> str | None:
    """Return why a claim would not help later, None when it may."""
    said = [word.lower().replace("’", "'") for word in _WORD.findall(content)]
    if len(said) < MIN_WORDS:
        return "it says too little"
    passing = _PASSING.search(content) or (not says_change(content) and _PAST.search(content))
    if passing:
        return f"it is about the current task ({passing.group().lower()[:40]!r})"
    if _PROGRESS.match(content):
        return "it only reports progress"
    if _POINTER.match(content) and ABOUT not in content:
        return "it does not say what it is about"
    specific = [word for word in said if word not in _EMPTY and word not in _POINTING]
    points = said[0] in _POINTING or any(word in _POINTING for word in said[-2:])
    if not specific or (points and len(specific) < 2):
        return "it does not say what it is about"
    if all(word in _PRAISE for word in specific) or _SELF.match(content.lower()):
        return "it states the obvious"
    return None


def _claim(sentence: Spoken, index: int, topic: str, cues: Sequence[Cue]) -> FoundClaim | None:
    """Return the claim of the first cue that a sentence matches, None when it only asks."""
    plain = sentence.bare.replace("\u2019", "'")
    lowered = plain.lower()
    for cue in cues:
        is_likely = any(word in lowered for word in cue.needs)
        match = _compiled(cue.pattern).search(plain) if is_likely else None
        if match is None:
            continue
        before = plain[: match.start("claim")]
        if _SUPPOSED.search(before) or _OTHERS.search(before):
            return None
        statement = _statement(sentence, cue, match.span("claim"))
        if not statement.strip():
            return None
        # One line, a capital letter, no loose end.
        content = " ".join(statement.split()).rstrip("?")
        content = _COURTESY.sub("", content.rstrip(_ENDS)).rstrip(_LOOSE_ENDS)
        if content.count(")") > content.count("("):
            content = content.rstrip(")")
        content = content[:1].upper() + content[1:]
        if cue.corrects and _POINTS_BACK.match(content) and topic:
            # The topic is in the user's own words too: the request that the agent got wrong.
            content = f"{content}{ABOUT}{topic})"
        kind = cue.kind
        if cue.way in ("remember", "correction"):
            matched = (kind for pattern, kind in _KINDS if pattern.match(content))
            kind = cast("Kind", next(matched, cue.kind))
            # "Remember to ..." always asks for an action.
            kind = "constraint" if before.lower().endswith(" to ") else kind
        return FoundClaim(
            content, kind, "user_stated", "user", cue.confidence, index, sentence.text
        )
    return None


def _statement(sentence: Spoken, cue: Cue, span: tuple[int, int]) -> str:
    """Return the statement without the question or request around it; empty when it only asks."""
    start, end = span
    stated = sentence.text[start:end]
    if sentence.is_question:
        cut = _TRAILING_QUESTION.sub("", stated)
        if cut != stated:
            stated = cut
        elif _GIVEN.search(sentence.bare[:start]):
            # "What else is there, since we decided ...?" states the part after "since".
            stated = re.split(r"[,?]", stated)[0]
        elif not _POLITE.match(sentence.bare):
            return ""
    if cue.way in ("preference", "decision"):
        stated = _TRAILING_REQUEST.sub("", stated)
    return stated


def _is_same(terms: frozenset[str], other: frozenset[str]) -> bool:
    if len(terms) == 2 or len(other) == 2:
        return terms == other
    shared = len(terms & other)
    return shared >= SAME_WORDS and shared >= SAME_SHARE * len(terms | other)
