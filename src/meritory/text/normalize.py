"""The canonical form of a text, the check before it is stored, and its form for a terminal.

Case: a plain word is folded ("Rex" and "rex" are one), because people type capitals at random.
Capitals that carry meaning stay: tokens with an inner capital, a digit, an
underscore, a slash or a dot, words written all in capitals, and everything between backticks.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import lru_cache

from meritory.domain.errors import InputError, TooLarge

MAX_CHARS = 8192
BYTE_ORDER_MARK = "\ufeff"

# NFKC would turn these into plain digits and change a value: 10² is not 102, 1½ is not 11/2.
_KEPT_FORMS = ("<super>", "<sub>", "<fraction>", "<circle>")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")
_TOKEN = re.compile(r"`[^`]*`|[^\s`]+")
_PLAIN_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_CODE_MARK = re.compile(r"[\d_/\\.@#:=<>{}$~]")
_TRAILING = re.compile(r"(?<=[\w)\]\"'`%])[.,;!]+$")
_LOOSE_END = ".,;! \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
_CLOSERS = ".,;:!?)]}\"'"
_UNIFIED = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′＇", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−﹘﹣", "-"),
        **dict.fromkeys("\u00ad\u200b\u2060\ufeff\u200e\u200f\u061c", None),
        **dict.fromkeys("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", None),
    }
)
_EMOJI_JOINER = "\u200d"
_SHOWN_AS_IS = "\n\t"
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def canonical(text: str) -> str:
    """Return the form in which two spellings of the same text are equal; idempotent."""
    current = text
    # One fold can expose another (a trimmed mark, a recomposed letter), so repeat to a fixed point.
    for _ in range(8):
        folded = _folded(unified(current))
        collapsed = _SPACES.sub(" ", _compatible(folded)).strip()
        following = _TRAILING.sub("", collapsed)
        if following == current:
            break
        current = following
    return current


def is_same_text(one: str, other: str) -> bool:
    """Return whether two texts have the same canonical form."""
    if one.isascii() and other.isascii() and _loose(one) != _loose(other):
        # The form changes nothing but the case, the spaces and the end of such a text.
        return False
    return canonical(one) == canonical(other)


def _loose(text: str) -> list[str]:
    return text.lower().rstrip(_LOOSE_END).split()


def unified(text: str) -> str:
    """Return the text with one form for equal characters, quotes and dashes; case stays."""
    return _compatible(text).translate(_UNIFIED)


def content_hash(text: str) -> str:
    """Return the SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(text).encode("utf-8", "surrogatepass")).hexdigest()


def strip_byte_order_mark(text: str) -> str:
    """Return the text without the byte order mark that some programs write at its start."""
    return text.lstrip(BYTE_ORDER_MARK)


def checked_content(content: object) -> str:
    """Return the text of a memory as it is stored; raise InputError if it is not storable."""
    text = strip_byte_order_mark(content) if isinstance(content, str) else content
    check_text(text)
    return str(text)


def check_text(text: object, *, what: str = "a memory", max_chars: int = MAX_CHARS) -> None:
    """Raise InputError unless the value is text that can be stored unchanged."""
    if not isinstance(text, str):
        raise InputError(f"{what} must be text, not {type(text).__name__}")
    if len(text) > max_chars:
        raise TooLarge(
            f"{what} may have at most {max_chars:,} characters, this one has {len(text):,}",
            hint="split it into single claims",
        )
    if "\x00" in text:
        raise InputError(f"{what} must not contain a NUL character", hint="remove U+0000")
    if _SURROGATE.search(text):
        raise InputError(
            f"{what} must be valid Unicode; it contains a lone surrogate",
            hint="decode the source as UTF-8",
        )
    if all(unicodedata.category(char) in {"Cc", "Cf", "Zs", "Zl", "Zp"} for char in text):
        raise InputError(f"{what} must have 1 to {max_chars:,} characters, this one is empty")


def shown(text: str, *, one_line: bool = False) -> str:
    """Return the text with invisible characters and terminal controls written as escapes."""
    kept = "" if one_line else _SHOWN_AS_IS
    if text.isprintable() and text.isascii():
        return text
    pieces: list[str] = []
    for index, char in enumerate(text):
        is_hidden = "\U000e0100" <= char <= "\U000e01ef" or unicodedata.category(char) in _HIDDEN
        if char == _EMOJI_JOINER and 0 < index < len(text) - 1:
            before, after = map(unicodedata.category, (text[index - 1], text[index + 1]))
            is_hidden = before not in {"So", "Sk", "Mn"} or after != "So"
        if char in kept or not is_hidden:
            pieces.append(char)
            continue
        point = ord(char)
        wide = f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
        pieces.append(f"\\x{point:02x}" if point <= 0xFF else wide)
    return "".join(pieces)


def _compatible(text: str) -> str:
    if text.isascii():
        return text
    pieces: list[str] = []
    start = 0
    for index, char in enumerate(text):
        if unicodedata.decomposition(char).startswith(_KEPT_FORMS):
            pieces += (unicodedata.normalize("NFKC", text[start:index]), char)
            start = index + 1
    pieces.append(unicodedata.normalize("NFKC", text[start:]))
    return "".join(pieces)


def _folded(text: str) -> str:
    """Return the text with the case of its plain words folded; spaces may be collapsed."""
    if "`" in text:
        return _TOKEN.sub(lambda match: _fold_case(match.group()), text)
    return " ".join(map(_fold_case, text.split()))


# Words repeat.
@lru_cache(maxsize=8_192)
def _fold_case(token: str) -> str:
    if token.startswith("`") or token == token.lower():
        return token
    if _CODE_MARK.search(token.rstrip(_CLOSERS)):
        return token

    def fold(match: re.Match[str]) -> str:
        word = match.group()
        return word.lower() if word[1:] == word[1:].lower() else word

    return _PLAIN_WORD.sub(fold, token)
