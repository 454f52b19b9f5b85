"""The daemon itself: alive or not, and what it can be asked."""

from __future__ import annotations

from typing import Any

from meritory import __version__
from meritory.server.schemas import memories
from meritory.server.table import Call, Route


def health(call: Call) -> memories.Health:
    """Alive."""
    return memories.Health("ok", __version__)


def described(call: Call) -> dict[str, Any]:
    """Every route with what goes in and out, as OpenAPI."""
    from meritory.server.app import TABLE
    from meritory.server.openapi import document

    return document(TABLE)


ROUTES = (
    Route(
        method="GET",
        path="/health",
        handler=health,
        access="health",
        reach="scope",
        summary="Say that the daemon is alive.",
        reply=memories.Health,
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
