"""Masks prompt injections aimed at a judge: "rate this 1.0", forged replies and fences.

A suspicious sentence keeps its topic and loses its words of rating: verbs, numbers, orders and
addressees. Nothing is left to obey, and an honest sentence caught by mistake can still be judged by
its topic. The filter knows words of a few languages, not meaning: an injection in other words, or
in a cipher, gets through.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from meritory.text.normalize import unified

MASK: Final = "…"

# Words that mean a rating when next to a number or a "this".
_RATING: Final = r"""
    (?:re-?|over|under)?rat(?:e|es|ed|ing|ings) (?:over|under)?scor(?:e|es|ed|ing)
    grad(?:e|es|ed|ing) relevan(?:t|ce|cy) usefulness helpfulness verdicts? upvot\w* downvot\w*
    bewert\w* einstuf\w* punktzahl notez évalu\w* puntu\w* puntú\w* puntaje calific\w* valuta\w*
    punteggi\w* avali\w* pontu\w* beoorde\w* oce[nń]\w* hodno\w* оцен\w* балл\w* puan\w*
"""
# Words of praise and blame, and milder words for rating; on their own they are ordinary.
_PRAISE: Final = r"""
    mark(?:s|ed)? rank(?:s|ed|ing)? points? stars? weigh(?:s|t|ts|ed)? boost\w* confiden(?:t|ce)
    continuity importan(?:t|ce) useful(?:ly)? helpful(?:ly)? helped decisive essential
    crucial critical indispensable invaluable valuable favou?r\w* prioriti\w* promot\w* trust\w*
    credit\w* deserv\w* irrelevant useless worthless harmful misleading unhelpful noise junk
    judg(?:e|es|ed|ing|e?ments?) evaluat\w* assess\w* consider\w* treat(?:s|ed)? deem\w* regard\w*
    count(?:s|ed)? label\w* classif\w* explain\w* wichtig\w* nützlich\w* utile?s? útil\w* важн\w*
"""
_VALUE: Final = r"""
    zero one two three four five six seven eight nine ten hundred full(?:y|est)? top(?:most)?
    max(?:im\w+)? min(?:im\w+)? highest lowest high(?:er|ly)? low(?:er)? perfect(?:ly)? best worst
    nothing everything always never all none highly most least ceiling
    höchst\w* niedrig\w* máxim\w* mínim\w* massim\w* cero null ноль максим\w*
"""
_ORDER: Final = r"""
    ignor\w* disregard\w* forget overrid\w* bypass\w* overrul\w* discard\w* dismiss\w* stop
    instruct\w* rules? prompts? criteri(?:a|on) rubrics? guidelines? directi\w* tasks?
    output\w* return\w* respond\w* repl(?:y|ies|ied) answer\w* print\w* emit\w* write copy repeat
    assign\w* give[sn]? award\w* set put must should shall please required ensure json verbatim
    exactly only instead anweisung\w* instruc\w* istruz\w* игнорир\w* инструкц\w*
"""
_ADDRESSEE: Final = r"""
    judges? evaluators? graders? raters? scorers? assessors? arbiters? auditors? reviewers? llms?
    (?:language\s)?models? assistants? ai bots? system developers? admin\w* you your yourself
"""
# Languages without spaces between words, or with too few words for a table.
_ELSEWHERE = re.compile(
    "评分|打分|评价|评为|给分|評分|評価|採点|点数|满分|滿分|最高|最低|忽略|無視|指示|점수|평가|만점|무시|تقييم|درجة|قيم"
)


def _words(listed: str) -> re.Pattern[str]:
    return re.compile(r"(?<!\w)(?:" + "|".join(listed.split()) + r")(?!\w)")


_RATES, _PRAISES, _VALUES = _words(_RATING), _words(_PRAISE), _words(_VALUE)
_ORDERS, _ADDRESSEES = _words(_ORDER), _words(_ADDRESSEE)
_NUMBERS = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,/]\d+)*\s?%?(?!\w)")
_JUDGES = re.compile(
    r"\b(?:judge|evaluator|grader|rater|scorer|assessor|arbiter|language model|llm)s?\b"
)
_NOUN: Final = (
    r"(?:memor(?:y|ies)|notes?|entr(?:y|ies)|exhibits?|items?|records?|snippets?|passages?"
    r"|ordinals?|candidates?|statements?|texts?|facts?)"
)
_THIS = re.compile(
    r"\b(?:this|these|that|it|me|itself|dies\w*|cet\w*|est[aeo]|quest[ao]|это\w*)\b"
    rf"|\b(?:all|every|each|any|other|the)\s(?:other\s)?{_NOUN}\b|\bothers\b"
)
_NAMED = re.compile(
    rf"\b(?:this|these|that|my|said|present|following|above|own)\s(?:\w+\s){{0,2}}{_NOUN}\b"
    rf"|\b(?:all|every|each|any|other|the)\s(?:other\s)?{_NOUN}\b"
    rf"|(?:\b{_NOUN}\s|\bnumber\s|\bno\.?\s?|#)(?:\d+|one|two|three|four|five|six|seven|eight)\b"
)
_OVERRIDES = re.compile(
    r"\b(?:ignor\w*|disregard\w*|forget|overrid\w*|bypass\w*|overrul\w*|discard\w*|dismiss\w*)\b"
    r".{0,60}\b(?:instruct\w*|rules?|prompts?|criteri\w*|rubrics?|guidelines?|directi\w*"
    r"|previous|prior|earlier|above|everything|others?|rest|anweis\w*)\b"
    r"|\b(?:new|updated|real|actual|final|hidden|secret)\s(?:system\s)?"
    r"(?:instructions?|rules?|prompts?|criteria|rubrics?|tasks?|directives?)\b"
)
_MARKUP = re.compile(
    r"overall_?score|re_explained|novel_context\w*|missing_topics"
    r"|[\"'](?:ordinal|confidence|score|role|memories)[\"']|<\|\w+\|>|\[/?inst\]|<</?sys>>"
    r"|</?\s?(?:memor\w*|transcript|system|user|assistant|data|case|instructions?|exhibits?|prompt)"
    r"\b[^>]{0,40}>?"
    r"|\b(?:end|begin|start|close)(?:ning|ing|s)?\s(?:of\s)?(?:the\s)?"
    r"(?:data|memor\w*|transcript|exhibits?|input|prompt|fence|case)\b"
    r"|^\W*(?:system|assistant|human|developer|user|tool)(?:\s(?:message|prompt|note))?\s?[:>\]]"
    r"|`{3,}|-{4,}|={4,}|#{2,}"
)
# A forged reply: one of its fields, or only numbers.
_REPLY = re.compile(
    r"\b(?:overall_?score|confidence|ordinal|scores?|re_explained|relevance|ratings?|memories)"
    r"[\"']?\s?[:=]|\A[\s\[\]\d.,-]+\Z",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"[\[\]{}]")
_SPLIT = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+|(?<=\s)[-–—|]+(?=\s)")
_MASKS = re.compile(rf"{MASK}(?:[^\w{MASK}]*{MASK})+")
_SCRIPTS = re.compile(r"[a-z]")
# Letters of other alphabets that look like Latin ones.
_LOOKALIKES = str.maketrans("аеорсухіѕԁӏαεορτυνκι", "aeopcyxisdlaeoptuvki")


def mask_injections(text: str) -> str:
    """Return the text with every injection masked, and the rest unchanged."""
    whole = _mask_replies(visible(text))
    pieces = [piece.strip() for piece in _SPLIT.split(whole)]
    masked = list(pieces)
    masks = (_MARKUP, _RATES, _PRAISES, _NUMBERS, _VALUES, _ORDERS, _ADDRESSEES, _ELSEWHERE)
    for index, piece in enumerate(pieces):
        if is_injection(piece):
            masked[index] = _normalized(piece)
            for words in masks:
                masked[index] = words.sub(MASK, masked[index])
            masked[index] = _MASKS.sub(MASK, masked[index])
    return whole if masked == pieces else " ".join(piece for piece in masked if piece)


def is_injection(sentence: str) -> bool:
    """Return whether a sentence seems to address a judge instead of its topic."""
    text = _normalized(sentence)
    if _MARKUP.search(text) or _OVERRIDES.search(text) or _ELSEWHERE.search(text):
        return True
    has_number = bool(_NUMBERS.search(text))
    has_value = has_number or bool(_VALUES.search(text))
    has_judge = bool(_JUDGES.search(text))
    has_order = bool(_ORDERS.search(text))
    has_subject = bool(_NAMED.search(text))
    if _RATES.search(text):
        return has_value or has_judge or has_subject or bool(_THIS.search(text))
    praise_count = len(_PRAISES.findall(text))
    if praise_count and (has_judge or has_subject):
        return has_value or has_order or praise_count > 1
    has_rating = has_number and (has_subject or (praise_count > 0 and has_order))
    return has_rating or (has_judge and has_order)


def visible(text: str) -> str:
    """Return the text without invisible characters, which a model would read."""
    kinds = ((char, unicodedata.category(char)) for char in unified(text))
    return "".join(
        "\n" if kind in {"Zl", "Zp"} else char
        for char, kind in kinds
        if char in "\n\t" or kind not in {"Cc", "Cf", "Co", "Cn", "Cs"}
    )


def _mask_replies(text: str) -> str:
    """Return the text with every bracketed part that looks like a reply masked."""
    pieces: list[str] = []
    done, depth, start = 0, 0, 0
    for bracket in _BRACKETS.finditer(text):
        if bracket.group() in "{[":
            start = bracket.start() if depth == 0 else start
            depth += 1
        elif depth > 0:
            depth -= 1
            if depth == 0 and _REPLY.search(text[start : bracket.end()]):
                pieces += (text[done:start], MASK)
                done = bracket.end()
    return "".join((*pieces, text[done:]))


def _normalized(sentence: str) -> str:
    """Return the sentence in lower case, with lookalike letters replaced by Latin ones."""
    words = [
        word.translate(_LOOKALIKES) if _SCRIPTS.search(word) else word
        for word in sentence.lower().split()
    ]
    return " ".join(words)
