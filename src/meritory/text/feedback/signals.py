"""Thumbs up and thumbs down in every spelling that people and agents use."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from meritory.text.stopwords import words

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
