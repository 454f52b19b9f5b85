"""The review list: questions about memories for a person, the answers, and merges by hand."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from meritory.domain.memory import MemoryRecord
from meritory.domain.quality import KeptText, ReviewAction, ReviewPage
from meritory.server.table import Call, Route, Scoped

PAGE_LIMIT, PAGE_LIMIT_MAX = 50, 500
ReviewQuery = Scoped.plus(
    limit=(Annotated[int, Meta(ge=1, le=PAGE_LIMIT_MAX)], PAGE_LIMIT),
    offset=(Annotated[int, Meta(ge=0, le=1 << 31)], 0),
)


class DecisionIn(Scoped, kw_only=True):
    """The answer to a question; `keep` says for a merge whose text stays."""

    action: ReviewAction
    keep: KeptText | None = None


class MergeIn(Scoped, kw_only=True):
    """The memory to merge with; `keep` is `a` for the text of the one in the path, else `b`."""

    other: str
    keep: KeptText | None = None


class DecisionOut(msgspec.Struct):
    """The memories that a decision changed; `POST /api/memories/{undo}/restore` takes it back."""

    results: list[MemoryRecord]
    undo: str


def list_items(call: Call) -> ReviewPage:
    """List questions about memories: pairs, proposals and contested ones, the most used first."""
    return call.memory().review(call.query.limit, call.query.offset)


def decide(call: Call) -> DecisionOut:
    """Answer a question of the review list; the answers that it takes are its `actions`."""
    body: DecisionIn = call.body
    changed = call.memory().decide(call.path["item"], body.action, body.keep)
    return DecisionOut(changed, changed[0].id)


def merge(call: Call) -> MemoryRecord:
    """Merge two memories into one, and return it."""
    body: MergeIn = call.body
    return call.memory().merge(call.path["id"], body.other, body.keep)


ROUTES = (
    Route("GET", "/api/review", list_items, "read", "scope", query=ReviewQuery),
    Route("POST", "/api/review/{item}", decide, "write", "scope", body=DecisionIn),
    Route("POST", "/api/memories/{id}/merge", merge, "write", "scope", body=MergeIn),
)
