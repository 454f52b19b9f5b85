"""Validate the fields of a memory; each error names the field."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from meritory.domain.errors import InputError, SecretFound
from meritory.domain.memory import (
    KINDS,
    METADATA_LIMIT_CHARS,
    METADATA_LIMIT_COUNT,
    NAME_LIMIT_CHARS,
    ORIGINS,
    PROVENANCES,
    RESOLVES_AS,
    TAG_LIMIT_CHARS,
    TAG_LIMIT_COUNT,
    UNTRUSTED_ORIGINS,
    Draft,
    Kind,
    MemoryRecord,
    Resolution,
    ResolvesAs,
    Scope,
    Source,
    metadata_text,
)
from meritory.domain.world import parse_moment
from meritory.text.entities import parse_about
from meritory.text.extract.rules import only_asks
from meritory.text.normalize import check_text, checked_content
from meritory.text.secrets import find_secrets, redact

PROPOSED_PIN, PROPOSED_CONSTRAINT = "proposed:pin", "proposed:constraint"
# A proposal, and the tag that replaces it after its rejection. Callers cannot set these tags.
PROPOSALS = {PROPOSED_PIN: "rejected:pin", PROPOSED_CONSTRAINT: "rejected:constraint"}
_CHOICES = {
    "kind": KINDS,
    "provenance": PROVENANCES,
    "origin": ORIGINS,
    "on_similar": ("gate", "keep"),
}
_SHARES = ("confidence", "importance")
_MOMENTS = ("valid_from", "valid_until", "created_at")
# A `Memory` belongs to one user, so a caller cannot write for another user.
_FIELDS = tuple(field.name for field in fields(Draft) if field.name not in ("content", "user"))
DEFAULT_PROVENANCE = dict.fromkeys(ORIGINS, "assistant_derived") | {"user": "user_stated"}
_SOURCE_FIELDS = tuple(field.name for field in fields(Source))
_ENTITY_LIMIT_COUNT = 16
QUOTE_LIMIT_CHARS = 600
RESOLVES_LIMIT_COUNT = 8
T = TypeVar("T", Draft, MemoryRecord)


def make_draft(
    content: object, scope: Scope, given: Mapping[str, Any], *, is_person: bool = True
) -> Draft:
    """Return a draft from a text and named fields; InputError names the wrong field.

    Only a person speaks for the user: the words of others are the agent's.
    """
    text = checked_content(content)
    known_fields(given, _FIELDS)
    values: dict[str, Any] = {"agent": scope.agent, "project": scope.project}
    values |= {name: checked_field(name, value) for name, value in given.items()}
    if not is_person:
        origin = values.get("origin", "user")
        origin = "agent" if origin == "user" else origin
        values |= {"origin": origin, "provenance": "assistant_derived"}
        if values["origin"] == "agent" and only_asks(text):
            raise InputError(
                f"content only asks: {text[:40]!r}",
                hint="store what is known; for an open question, say that it is open",
            )
    values["tags"] = kept_tags(values.get("tags", ()))
    values.setdefault("provenance", DEFAULT_PROVENANCE.get(values.get("origin", "user")))
    draft = Draft(content=text, user=scope.user, **values)
    if draft.origin in UNTRUSTED_ORIGINS and draft.provenance == "user_stated":
        raise InputError(
            f"provenance cannot be user_stated for origin {draft.origin!r}",
            hint="leave out provenance, or use assistant_derived",
        )
    check_validity(draft.valid_from, draft.valid_until)
    if draft.depends_on and not draft.about:
        raise InputError("depends_on needs about", hint="name the dependent: about='api'")
    return draft


def known_fields(given: Iterable[str], allowed: tuple[str, ...]) -> None:
    """Reject unknown fields, and suggest the most similar known one."""
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            raise InputError(
                f"unknown field {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(allowed)}",
            )


def checked_field(name: str, value: object) -> Any:
    """Return the value of one field in its own type."""
    if name in _CHOICES:
        return checked_choice(name, value, _CHOICES[name])
    if name in _SHARES:
        return checked_share(name, value)
    if name in _MOMENTS:
        return None if value is None else parse_moment(value, name)
    if name in ("agent", "project"):
        return checked_name(name, value)
    if name == "pinned":
        if not isinstance(value, bool):
            raise InputError("pinned must be true or false")
        return value
    if name in ("about", "depends_on"):
        return _checked_entities(name, value)
    if name in _CHECKS:
        return _CHECKS[name](value)
    return None if value is None else checked_name(name, value)


def checked_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return the value if it is one of the choices."""
    if isinstance(value, str) and value in choices:
        return value
    near = difflib.get_close_matches(str(value)[:40], choices, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(choices)}"
    raise InputError(f"invalid {name}: {str(value)[:40]!r}", hint=hint)


def checked_share(name: str, value: object) -> float:
    """Return the value if it is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number from 0 to 1, not {str(value)[:40]!r}")
    # Compare before converting: an integer may be too large for a float.
    if not 0 <= value <= 1:
        raise InputError(f"{name} must be between 0 and 1, not {str(value)[:40]}")
    return float(value)


def checked_name(name: str, value: object) -> str | None:
    """Return a short printable name; None for agent and project means everywhere."""
    if value is None and name in ("agent", "project"):
        return None
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} must be a name, not {str(value)[:40]!r}")
    if len(value) > NAME_LIMIT_CHARS or not value.isprintable():
        raise InputError(f"{name} must have at most {NAME_LIMIT_CHARS} printable characters")
    return value


def checked_tags(value: object) -> tuple[str, ...]:
    """Return distinct tags from a list or a comma-separated text."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple | set | frozenset):
        raise InputError("tags must be a list or a comma-separated text")
    if len(items) > TAG_LIMIT_COUNT:
        raise InputError(f"at most {TAG_LIMIT_COUNT} tags, not {len(items)}")
    ordered = items if isinstance(items, list | tuple) else sorted(map(str, items))
    tags = [tag.strip() if isinstance(tag, str) else tag for tag in ordered]
    for tag in tags:
        if not isinstance(tag, str) or not tag.isprintable() or len(tag) > TAG_LIMIT_CHARS:
            raise InputError(
                f"a tag must be text of at most {TAG_LIMIT_CHARS} characters: {str(tag)[:40]!r}"
            )
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def checked_metadata(value: object) -> dict[str, Any]:
    """Return metadata as JSON reads it back: named values, and no whole number as 1.0."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"metadata must be a dictionary, not {type(value).__name__}")
    if len(value) > METADATA_LIMIT_COUNT:
        raise InputError(f"metadata has at most {METADATA_LIMIT_COUNT} fields, not {len(value)}")
    for name in value:
        checked_name("a name in metadata", name)
    try:
        text = metadata_text(_plain(value))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metadata must be JSON: {error}") from error
    if len(text) > METADATA_LIMIT_CHARS:
        raise InputError(f"metadata has at most {METADATA_LIMIT_CHARS} characters as JSON")
    found: dict[str, Any] = json.loads(text)
    return found


def _plain(value: Any) -> Any:
    """Return a value that JSON has one text for; ValueError for one that JSON does not have."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"a name must be text, not {type(name).__name__}")
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number of JSON")
        return int(value) if value.is_integer() else value
    return value


def checked_source(value: object) -> Source | None:
    """Return a source from a Source or a dictionary of its fields."""
    if value is None or isinstance(value, Source):
        source = value
    elif isinstance(value, Mapping):
        known_fields(value, _SOURCE_FIELDS)
        source = Source(**value)
    else:
        raise InputError(
            "source must be a Source or a dictionary of its fields",
            hint=f"fields: {', '.join(_SOURCE_FIELDS)}",
        )
    if source is not None:
        for name in _SOURCE_FIELDS:
            if (text := getattr(source, name)) is not None:
                checked_name(f"source.{name}", text)
    return source


def _checked_entities(name: str, value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or len(items) > _ENTITY_LIMIT_COUNT:
        raise InputError(f"{name} must be a name or a list of at most {_ENTITY_LIMIT_COUNT}")
    names = tuple(str(checked_name(name, item)) for item in items)
    for text in names:
        parse_about(text)
    return names


def _checked_quote(value: object) -> str | None:
    if value is not None:
        check_text(value, what="a quote", max_chars=QUOTE_LIMIT_CHARS)
    return value if isinstance(value, str) else None


def _checked_resolves(value: object) -> tuple[Resolution, ...]:
    """Return resolutions from a list of {id, as}."""
    if not isinstance(value, list | tuple) or len(value) > RESOLVES_LIMIT_COUNT:
        raise InputError(f"resolves must be a list of at most {RESOLVES_LIMIT_COUNT}")
    found: dict[str, Resolution] = {}
    for item in value:
        if not isinstance(item, Mapping) or set(item) != {"id", "as"}:
            raise InputError("resolves needs entries of the form {id, as}")
        memory_id = str(checked_name("id", item["id"]))
        relation = checked_choice("as", item["as"], RESOLVES_AS)
        found[memory_id] = Resolution(memory_id, cast(ResolvesAs, relation))
    if len(found) < len(value):
        raise InputError("resolves names a memory twice")
    return tuple(found.values())


# The fields whose check needs nothing but the value.
_CHECKS: Mapping[str, Callable[[object], Any]] = {
    "tags": checked_tags,
    "metadata": checked_metadata,
    "source": checked_source,
    "quote": _checked_quote,
    "resolves": _checked_resolves,
}


def check_validity(valid_from: datetime | None, valid_until: datetime | None) -> None:
    """Reject a validity that ends before it begins."""
    if valid_from is not None and valid_until is not None and valid_until < valid_from:
        raise InputError("valid_until is before valid_from")


def only_proposed(item: T) -> T:
    """Turn the pin or constraint of a draft or memory into a proposal."""
    tags: tuple[str, ...] = item.tags
    kind: Kind = item.kind
    if item.pinned:
        tags = (*tags, PROPOSED_PIN)
    if kind == "constraint":
        tags = (*tags, PROPOSED_CONSTRAINT)
        kind = "preference" if item.provenance == "user_stated" else "fact"
    return replace(item, pinned=False, kind=kind, tags=tuple(dict.fromkeys(tags)))


def kept_tags(given: Iterable[str], current: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the given tags with the current marks of proposals, which no caller may set."""
    marks = {*PROPOSALS, *PROPOSALS.values()}
    own = (tag for tag in current if tag in marks)
    return tuple(dict.fromkeys((*(tag for tag in given if tag not in marks), *own)))


def settled(record: MemoryRecord) -> MemoryRecord:
    """Return a memory without the proposals that a person has accepted or rejected."""
    accepted = {PROPOSED_PIN: record.pinned, PROPOSED_CONSTRAINT: record.kind == "constraint"}
    done: set[str] = set()
    for proposal, rejection in PROPOSALS.items():
        if accepted[proposal]:
            done |= {proposal, rejection}
        elif rejection in record.tags:
            done.add(proposal)
    return replace(record, tags=tuple(tag for tag in record.tags if tag not in done))


def screened_draft(draft: Draft, policy: str) -> Draft:
    """Return the draft without secrets; a secret in a name, tag or source is always refused."""
    source = draft.source or Source()
    names = [draft.agent, draft.project, source.harness, source.session_key, source.turn]
    names += metadata_texts(draft.metadata)
    for text in filter(None, (*names, *draft.tags, *draft.about, *draft.depends_on)):
        screened(text, "refuse")
    return replace(draft, content=screened(draft.content, policy))


def metadata_texts(metadata: Mapping[str, Any]) -> list[str]:
    """Return each field of metadata as one text, to search it for secrets."""
    return [f"{name}: {value}" for name, value in metadata.items()]


def screened(text: str, policy: str) -> str:
    """Return the text without secrets: redact them, or raise SecretFound with their kinds."""
    secrets = find_secrets(text)
    if not secrets:
        return text
    if policy == "redact":
        clean = redact(text)
        check_text(clean, what="a memory without its secrets")
        return clean
    kinds = ", ".join(dict.fromkeys(match.kind for match in secrets))
    raise SecretFound(
        f"the text seems to contain a secret ({kinds}); it was not stored",
        hint='leave it out, or set secrets.policy = "redact" to store the rest',
    )
