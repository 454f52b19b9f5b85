"""Masks prompt injections aimed at a judge: "rate this 1.0", forged replies and fences.

A suspicious sentence keeps its topic and loses its words of rating: verbs, numbers, orders and
addressees. Nothing is left to obey, and an honest sentence caught by mistake can still be judged by
its topic. The filter knows words of a few languages, not meaning: an injection in other words, or
in a cipher, gets through.
"""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from typing import Final

from meritory.text.language import pattern
from meritory.text.normalize import unified

MASK: Final = "…"

_pattern: Final = partial(pattern, "injection")
_NUMBERS = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,/]\d+)*\s?%?(?!\w)")
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
    names = ("values", "orders", "addressees", "elsewhere")
    masks = (_MARKUP, _pattern("rates"), _pattern("praises"), _NUMBERS, *map(_pattern, names))
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

    def has(name: str) -> bool:
        return _pattern(name).search(text) is not None

    if _MARKUP.search(text) or has("overrides") or has("elsewhere"):
        return True
    has_number = _NUMBERS.search(text) is not None
    has_value = has_number or has("values")
    has_judge, has_order, has_subject = has("judges"), has("orders"), has("named")
    if has("rates"):
        return has_value or has_judge or has_subject or has("this")
    praise_count = len(_pattern("praises").findall(text))
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
