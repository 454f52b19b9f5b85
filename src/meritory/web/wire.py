"""What comes over the wire: the types of bodies and query strings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from meritory.types import CONTENT_LIMIT_CHARS, Kind, OnSimilar, Origin, Provenance, Trust
from meritory.web.table import Query, Scoped

Share = Annotated[float, Meta(ge=0, le=1)]
# Told, not enforced, here: the write path says more about a text that it refuses.
Content = Annotated[
    str,
    Meta(extra_json_schema={"minLength": 1, "maxLength": CONTENT_LIMIT_CHARS}),
]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Moment = Annotated[str, Meta(description="ISO 8601; without an offset it is UTC")]
PAGE_LIMIT = 100
MANY_LIMIT_COUNT = 200


class SourceIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where something was learned."""

    harness: str | None = None
    session_key: str | None = None
    turn: str | None = None
    quote_hash: str | None = None


class NewMemory(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A memory to be stored; what is left out is filled in."""

    content: Content | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    provenance: Provenance | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    importance: Share | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    source: SourceIn | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_until: Moment | UnsetType | None = UNSET
    created_at: Moment | UnsetType | None = UNSET
    about: list[str] | UnsetType = UNSET
    depends_on: list[str] | UnsetType = UNSET
    supersedes: str | UnsetType | None = UNSET
    on_similar: OnSimilar | UnsetType = UNSET


class Remember(NewMemory, kw_only=True):
    """One memory, or many under `memories`."""

    user: str | None = None
    agent: str | None = None
    project: str | None = None
    memories: list[NewMemory] | UnsetType = UNSET


class Patch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields to change; null empties one that may be empty."""

    content: Content | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    importance: Share | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    agent: str | UnsetType | None = UNSET
    project: str | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_until: Moment | UnsetType | None = UNSET


class Search(Scoped, kw_only=True):
    """What to look for; `everywhere` in all projects and agents, for people."""

    query: str
    limit: Limit | None = None
    explain: bool = False
    everywhere: bool = False


class Purge(Scoped, kw_only=True):
    """What cannot be undone is asked for twice: `confirm` repeats the memory's whole id."""

    confirm: str


class ListQuery(Scoped, kw_only=True):
    """A page of memories."""

    limit: Limit = PAGE_LIMIT
    after: str | None = None
    kind: Kind | None = None
    tag: str | None = None
    everywhere: bool = False
    gone: bool = False
    provenance: Provenance | None = None
    trust: Trust | None = None
    state: Literal["live", "superseded", "forgotten"] | None = None
    of_project: Annotated[
        str | None, Meta(description="Only of this project; empty: only of none")
    ] = None


class SearchQuery(Scoped, kw_only=True):
    """What to look for, as query parameters."""

    query: str
    limit: Limit | None = None
    explain: bool = False
    everywhere: bool = False


class DeleteQuery(Scoped, kw_only=True):
    """Why a memory is forgotten."""

    why: str = ""


class EverywhereQuery(Scoped, kw_only=True):
    """Whether all projects and agents are meant."""

    everywhere: bool = False


class LimitQuery(EverywhereQuery, kw_only=True):
    """How many are wanted."""

    limit: Limit = PAGE_LIMIT


class StageQuery(Query, kw_only=True):
    """Which errors are wanted; a stage such as `job_extract`, or a group such as `job`."""

    stage: str | None = None
    limit: Limit = PAGE_LIMIT


def given(body: msgspec.Struct, *apart: str) -> dict[str, Any]:
    """The fields that a request really named."""
    found: dict[str, Any] = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if value is not UNSET and name not in apart:
            found[name] = msgspec.to_builtins(value) if name == "source" else value
    return found
