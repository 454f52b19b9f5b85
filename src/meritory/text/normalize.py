"""The canonical form of a text, what may be stored at all, and how it is shown in a terminal.

Case: a plain word is folded ("Rex" and "rex" are one), because people type capitals at random.
Anything whose capitals carry meaning is left alone: tokens with an inner capital, a digit, an
underscore, a slash or a dot, words written all in capitals, and everything between backticks.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

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


def canonical(text: str) -> str:
    """Return the form under which two writings of the same text are equal; idempotent."""
    current = text
    # Folding can expose another fold (a trimmed mark, a recomposed letter), so go to a fixed point.
    for _ in range(8):
        following = _canonical_once(current)
        if following == current:
            break
        current = following
    return current


def unified(text: str) -> str:
    """Return the text with one writing for equal characters, quotes and dashes, case kept."""
    return _compatible(text).translate(_UNIFIED)


def content_hash(text: str) -> str:
    """Return the SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(text).encode("utf-8", "surrogatepass")).hexdigest()


def strip_byte_order_mark(text: str) -> str:
    """Return the text without the byte order mark that some programs write at its start."""
    return text.lstrip(BYTE_ORDER_MARK)


def checked_content(content: object) -> str:
    """Return the text of a memory as it is stored; raise InputError if it cannot be."""
    text = strip_byte_order_mark(content) if isinstance(content, str) else content
    check_text(text)
    return str(text)


def check_text(text: object, *, what: str = "a memory", max_chars: int = MAX_CHARS) -> None:
    """Raise InputError unless the value is text that can be stored exactly as it is."""
    if not isinstance(text, str):
        raise InputError(f"{what} must be text, not {type(text).__name__}")
    if len(text) > max_chars:
        raise TooLarge(
            f"{what} may have at most {max_chars:,} characters, this one has {len(text):,}",
            hint="split it into single claims",
        )
    if "\x00" in text:
        raise InputError(f"{what} may not hold a NUL character", hint="remove U+0000")
    if _SURROGATE.search(text):
        raise InputError(
            f"{what} must be valid Unicode; it holds a lone surrogate",
            hint="decode the source as UTF-8",
        )
    if not any(_is_visible(char) for char in text):
        raise InputError(f"{what} must have 1 to {max_chars:,} characters, this one is empty")


def shown(text: str, *, one_line: bool = False) -> str:
    """Return the text with every invisible or terminal-steering character written as an escape."""
    kept = "" if one_line else _SHOWN_AS_IS
    if text.isprintable() and text.isascii():
        return text
    pieces: list[str] = []
    for index, char in enumerate(text):
        if char in kept or not _needs_escape(char) or _joins_emoji(text, index):
            pieces.append(char)
        else:
            pieces.append(_escape(char))
    return "".join(pieces)


def _canonical_once(text: str) -> str:
    folded = _TOKEN.sub(lambda match: _fold_case(match.group()), unified(text))
    collapsed = _SPACES.sub(" ", _compatible(folded)).strip()
    return _TRAILING.sub("", collapsed)


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


def _fold_case(token: str) -> str:
    if token.startswith("`") or token == token.lower():
        return token
    if _CODE_MARK.search(token.rstrip(_CLOSERS)):
        return token
    return _PLAIN_WORD.sub(lambda match: _fold_word(match.group()), token)


def _fold_word(word: str) -> str:
    return word.lower() if word[1:] == word[1:].lower() else word


def _is_visible(char: str) -> bool:
    return unicodedata.category(char) not in {"Cc", "Cf", "Zs", "Zl", "Zp"}


def _needs_escape(char: str) -> bool:
    if char == " ":
        return False
    if "\U000e0100" <= char <= "\U000e01ef":
        return True
    return unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def _joins_emoji(text: str, index: int) -> bool:
    if text[index] != _EMOJI_JOINER or not 0 < index < len(text) - 1:
        return False
    before = unicodedata.category(text[index - 1])
    return before in {"So", "Sk", "Mn"} and unicodedata.category(text[index + 1]) == "So"


def _escape(char: str) -> str:
    point = ord(char)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
