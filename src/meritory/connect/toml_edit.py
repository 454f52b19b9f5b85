"""Edit TOML text in place: add a table at the end, and remove it."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from meritory.connect.desired import Member
from meritory.connect.json_edit import newline_of
from meritory.connect.managed import our_argv
from meritory.domain.errors import InputError

BOM = "\ufeff"
HEADS_TRIED_COUNT = 4
_HEADER = re.compile(r"[ \t]*\[\[?(?P<name>[^\]\r\n]+)\]\]?[ \t]*(?:#[^\r\n]*)?\r?\n?")
_NOTHING = re.compile(r"[ \t]*(?:#[^\r\n]*)?\r?\n?")
_BY_HAND = "remove the lines of `{}` by hand, and try again; nothing was changed"


def value_of(text: str, path: tuple[str, ...]) -> Any:
    """Return the value at a path, None without one."""
    value: Any = _parsed(text)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def merged(text: str, wish: Member, harness: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the text with the table at its end, the added text, and conflicts."""
    present = value_of(text, wish.path)
    dotted = ".".join(wish.path)
    if present is not None:
        if our_argv(present, harness):
            return text, "", ()
        conflict = f"`{dotted}` exists and is not Meritory's; it stays, and Meritory's is missing"
        return text, "", (conflict,)
    newline = newline_of(text)
    lines = [f"[{dotted}]"]
    for name, value in wish.value.items():
        # JSON's texts and lists are TOML as well, except for one control character.
        lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f"))
    bare = text.removeprefix(BOM)
    before = newline * 2 if bare and not bare.endswith("\n") else newline if bare else ""
    chunk = before + newline.join(lines) + newline
    try:
        _parsed(text + chunk)
    except InputError as error:
        raise InputError(
            f"a table [{dotted}] cannot be added to this file: {error.message}",
            hint=f"write `{wish.path[0]}` as tables, [{wish.path[0]}.NAME], and try again; "
            "nothing was changed",
        ) from error
    return text + chunk, chunk, ()


def is_merged(text: str, wish: Member, harness: str) -> bool:
    """Return whether the table exists and is up to date, or is another program's."""
    present = value_of(text, wish.path)
    if present is None:
        return False
    argv = our_argv(present, harness)
    return argv is None or argv == our_argv(wish.value, harness)


def says_the_same(one: str, other: str) -> bool:
    """Return whether both texts hold the same values."""
    return _parsed(one) == _parsed(other)


def unmerged(text: str, wish: Member, harness: str, chunk: str) -> str:
    """Return the text without the table and its subtables."""
    if our_argv(value_of(text, wish.path), harness) is None:
        return text
    wanted = _without(_parsed(text), wish.path)
    candidates = [text.replace(chunk, "", 1)] if chunk and text.count(chunk) == 1 else []
    # A line inside a multi-line string may look like the head of the table.
    candidates += (_without_lines(text, wish.path, skipped) for skipped in range(HEADS_TRIED_COUNT))
    for candidate in candidates:
        try:
            # A parent that held only the table may be gone with it.
            if _without(_parsed(candidate), wish.path) == wanted:
                return candidate
        except InputError:
            continue
    dotted = ".".join(wish.path)
    raise InputError(f"`{dotted}` is not written as a table", hint=_BY_HAND.format(dotted))


def _without(parsed: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    name, rest = path[0], path[1:]
    copy = dict(parsed)
    if rest and isinstance(copy.get(name), dict):
        copy[name] = _without(copy[name], rest)
    if not rest or copy.get(name) == {}:
        copy.pop(name, None)
    return copy


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not valid TOML: {error}",
            hint="fix that line, or move the file away, and try again; nothing was changed",
        ) from error


def _without_lines(text: str, path: tuple[str, ...], heads_skipped: int) -> str:
    kept: list[str] = []
    skipped: list[str] = []
    inside = False
    heads = 0
    for line in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(line.removeprefix(BOM))
        if header is not None:
            if inside:
                # Comments and blank lines before the next table belong to it.
                kept += _tail(skipped)
            is_head = _names(header["name"])[: len(path)] == list(path)
            heads += is_head
            was_inside, inside = inside, is_head and heads > heads_skipped
            if inside and not was_inside and kept and not kept[-1].strip():
                kept.pop()
            skipped = []
        (skipped if inside else kept).append(line)
    return "".join(kept) + "".join(_tail(skipped) if inside else ())


def _tail(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and _NOTHING.fullmatch(lines[end - 1]):
        end -= 1
    return lines[end:]


def _names(header: str) -> list[str]:
    try:
        value: Any = tomllib.loads(f"[{header}]")
    except tomllib.TOMLDecodeError:
        return []
    names: list[str] = []
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        names.append(name)
    return names
