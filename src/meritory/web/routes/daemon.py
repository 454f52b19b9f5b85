"""The daemon itself: alive or not, and what it can be asked."""

from __future__ import annotations

from typing import Any

from meritory import __version__
from meritory.web import replies
from meritory.web.table import Call, Route


def health(call: Call) -> replies.Health:
    """Alive."""
    return replies.Health("ok", __version__)


def described(call: Call) -> dict[str, Any]:
    """Every route with what goes in and out, as OpenAPI."""
    from meritory.web.app import TABLE
    from meritory.web.openapi import document

    return document(TABLE)


ROUTES = (
    Route(
        method="GET",
        path="/health",
        handler=health,
        access="health",
        reach="scope",
        summary="Say that the daemon is alive.",
        reply=replies.Health,
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handler=described,
        access="read",
        reach="scope",
        summary="Describe every route as OpenAPI.",
        reply=dict[str, Any],
    ),
)
