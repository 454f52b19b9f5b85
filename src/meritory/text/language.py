"""The words of a language: lists and patterns in `data/language`, whose README has the format.

This is the only module of `text` that reads files, and it reads only files of the package.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache

# Not importlib.resources, whose import takes longer than reading every file.
from pkgutil import get_data
from typing import Any, Final

_REFERENCE: Final = re.compile(r"\{([a-z_]+)\}")


def words(text: str) -> frozenset[str]:
    """Return the set of words in a list written as text."""
    return frozenset(text.split())


@cache
def read_language(name: str) -> dict[str, Any]:
    """Return the content of one file, e.g. `en/words`."""
    content = get_data("meritory", f"data/language/{name}.toml")
    return tomllib.loads((content or b"").decode())


def read_bytes(name: str) -> bytes:
    """Return the content of a file that is no text, e.g. learned weights."""
    return get_data("meritory", f"data/language/{name}") or b""


@cache
def word_set(name: str, key: str) -> frozenset[str]:
    """Return a word list of a file."""
    return words(read_language(name)["words"][key])


@cache
def pattern(name: str, key: str) -> re.Pattern[str]:
    """Return a pattern of a file, which is compiled at its first use."""
    return re.compile(written_out(name, read_language(name)["patterns"][key]))


def written_out(name: str, text: str) -> str:
    """Return a pattern on one line, with the patterns of the file that it refers to."""
    parts = read_language(name).get("patterns", {})
    line = "".join(map(str.strip, text.splitlines()))
    return _REFERENCE.sub(lambda match: written_out(name, parts[match[1]]), line)
