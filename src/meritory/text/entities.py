"""The entities that a text names: paths, identifiers, tags, names and issue numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from meritory.domain.errors import InputError
from meritory.text.language import word_set
from meritory.text.terms import query_pairs, query_terms

Kind = Literal["path", "identifier", "tag", "name", "issue", "topic"]

MAX_MENTIONS = 64
MAX_NAME_CHARS = 120

_BACKTICKED = re.compile(r"`([^`\n]{1,200})`")
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s<>\"'`]{1,2000}")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_TAG = re.compile(r"(?<![\w/&#.@])#([^\W\d_][\w-]{0,63}|\d[\w-]{0,63})")
_NAME = re.compile(r"(?<![\w/.@`])@([A-Za-z][\w-]{0,38}+)(?![\w/(]|\.\w)")
_PATH = re.compile(
    r"(?<![\w./\\~@-])"
    r"(?:[A-Za-z]:[\\/]|~[\\/]|\.{1,2}[\\/]|[\\/])?[\w.@+-]{1,100}(?:[\\/][\w.@+-]{1,100}){0,30}[\\/]?"
)
_LINE_SUFFIX = re.compile(r"(?::\d+){1,2}$")
_CALL_SUFFIX = re.compile(r"\([^()]*\)$")
_MAY_BE_PATH = re.compile(r"[/\\]|\.[^.\s]")
_HEX_COLOUR = re.compile(r"(?=.*\d|(.)\1+$)[0-9a-fA-F]+")

_list: Final = partial(word_set, "entities")
_FILE_ENDINGS: Final = _list("file_endings")
_KNOWN_FOLDERS: Final = _list("known_folders")
_HOST_ENDINGS: Final = _list("host_endings")
_NOT_PEOPLE: Final = _list("not_people")
_NOT_THINGS: Final = _list("not_things")


@dataclass(frozen=True, slots=True)
class Mention:
    """One entity in a text, with its kind and normalised name."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class About:
    """The value of `--about`: an entity and, if given, one aspect of it."""

    entity: Mention
    aspect: str | None


def mentions(text: str) -> tuple[Mention, ...]:
    """Return the distinct entities of a text in order of first mention."""
    found: list[tuple[int, Mention]] = []
    rest = _blank(_EMAIL, _blank(_URL, text))
    for match in _BACKTICKED.finditer(rest):
        name = match.group(1).strip()
        if not name or len(name) > MAX_NAME_CHARS or any(char.isspace() for char in name):
            continue
        path = _as_path(name)
        name = _CALL_SUFFIX.sub("", name).strip(".,;:")
        if path:
            found.append((match.start(), Mention("path", path)))
        # A flag, a number or a lone operator is not an entity.
        elif re.search(r"[^\W\d_]", name) and name.lower() not in _NOT_THINGS and name[0] != "-":
            found.append((match.start(), Mention("identifier", name)))
    rest = _blank(_BACKTICKED, rest)
    for match in _TAG.finditer(rest):
        tag = match.group(1)
        if tag.isdigit() and len(tag) <= 5:
            found.append((match.start(), Mention("issue", f"#{tag}")))
        elif not tag[0].isdigit() and not (len(tag) in {3, 4, 6, 8} and _HEX_COLOUR.fullmatch(tag)):
            found.append((match.start(), Mention("tag", tag.rstrip("-_").casefold())))
    for match in _NAME.finditer(rest):
        if match.group(1).lower() not in _NOT_PEOPLE:
            found.append((match.start(), Mention("name", match.group(1).rstrip("-_").casefold())))
    # Most texts have none: a path needs a separator, or a dot inside.
    for match in _PATH.finditer(rest) if _MAY_BE_PATH.search(rest) else ():
        raw = match.group().rstrip(".")
        path = _as_path(raw) if _MAY_BE_PATH.search(raw) else None
        if path:
            found.append((match.start(), Mention("path", path)))
    found.sort(key=lambda pair: pair[0])
    return tuple(dict.fromkeys(mention for _, mention in found))[:MAX_MENTIONS]


def entity_key(kind: str, name: str) -> str:
    """Return the stored key of an entity; paths and identifiers keep their case."""
    plain = name.strip()
    return f"{kind}:{plain if kind in {'path', 'identifier'} else plain.casefold()}"


def keys_in_play(text: str, project: str | None) -> list[str]:
    """Return the keys of the entities that a context names, and of its project."""
    keys = [entity_key(mention.kind, mention.name) for mention in mentions(text)]
    # A topic given with `--about` is in play when the context contains its words.
    keys += [entity_key("topic", topic) for topic in (*query_terms(text), *query_pairs(text))]
    if project is not None:
        keys.append(entity_key("project", project))
    return list(dict.fromkeys(keys))


def parse_about(text: str) -> About:
    """Read "entity/aspect"; a file path is one entity, and an aspect may follow it."""
    cleaned = text.strip()
    if not cleaned or len(cleaned) > MAX_NAME_CHARS or not cleaned.isprintable():
        raise InputError(
            f"about must have 1 to {MAX_NAME_CHARS} printable characters",
            hint='write "entity" or "entity/aspect"',
        )
    parts = cleaned.split("/")
    files = (end for end, part in enumerate(parts[:-1], 1) if _has_file_ending(part))
    entity, aspect = cleaned, None
    if end := next(files, 0):
        entity, aspect = "/".join(parts[:end]), "/".join(parts[end:]).strip()
    elif len(parts) > 1 and not _as_path(cleaned):
        entity, aspect = "/".join(parts[:-1]).strip(), parts[-1].strip()
    if not entity or aspect == "":
        raise InputError(
            f"about needs an entity, and an aspect after the slash: {cleaned!r}",
            hint='write "entity" or "entity/aspect"',
        )
    return About(_as_entity(entity), aspect)


def _as_path(raw: str) -> str | None:
    candidate = _LINE_SUFFIX.sub("", raw).replace("\\", "/")
    if not re.search(r"\w", candidate) or re.search(r"[^\w./~@+: -]", candidate):
        return None
    parts = [part for part in candidate.split("/") if part not in {"", "."}]
    if not parts:
        return None
    first = parts[0]
    has_ending = _has_file_ending(parts[-1])
    if "/" not in candidate:
        is_path = has_ending
    elif candidate.startswith(("./", "../", "~/")) or re.match(r"[A-Za-z]:/", candidate):
        is_path = True
    else:
        is_host = first.rpartition(".")[2].lower() in _HOST_ENDINGS and "." in first
        is_path = first in _KNOWN_FOLDERS or has_ending
        is_path = is_path and (candidate.startswith("/") or not is_host)
    lead = "/" if candidate.startswith("/") else ""
    return (lead + "/".join(parts))[:MAX_NAME_CHARS] if is_path else None


def _has_file_ending(part: str) -> bool:
    stem, dot, ending = part.rpartition(".")
    if not dot or ending.lower() not in _FILE_ENDINGS:
        return False
    # Node.js and its relatives are products, not files.
    return not (ending == "js" and stem[:1].isupper()) and (stem != "" or ending in {"env"})


def _as_entity(name: str) -> Mention:
    path = _as_path(name)
    if path:
        return Mention("path", path)
    if name.startswith("@") and len(name) > 1:
        return Mention("name", name[1:].casefold())
    if name.startswith("#") and len(name) > 1:
        number = name[1:].isdigit()
        return Mention("issue", name) if number else Mention("tag", name[1:].casefold())
    if name.startswith("`") and name.endswith("`") and len(name) > 2:
        return Mention("identifier", name[1:-1])
    return Mention("topic", " ".join(name.split()).casefold())


def _blank(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: " " * len(match.group()), text)
