"""The daemon's own log."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text, parse_moment
from meritory.server.logs import Level, LineQuery, latest_lines
from meritory.server.schemas.memories import PAGE_LIMIT, Moment
from meritory.server.table import Call, QueryParams, Route
from meritory.settings.home import LOG_NAME


class LogsQuery(QueryParams, kw_only=True):
    """Which lines are wanted, newest first: of this level or worse."""

    level: Level = "debug"
    category: str | None = None
    since: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = PAGE_LIMIT


class LineOut(msgspec.Struct):
    """One line of the log."""

    at: str
    level: str
    category: str
    event: str
    request_id: str | None
    details: dict[str, Any]


class LogLinesOut(msgspec.Struct):
    """The latest lines of the log, newest first."""

    results: list[LineOut]


def listing(call: Call) -> LogLinesOut:
    """The latest lines of the log that fit."""
    asked: LogsQuery = call.query
    since = None if asked.since is None else parse_moment(asked.since, "since")
    found = latest_lines(
        call.engine.settings.home / LOG_NAME,
        LineQuery(asked.level, asked.category, since, asked.limit),
    )
    return LogLinesOut(
        [
            LineOut(
                moment_text(one.at),
                one.level,
                one.category,
                one.event,
                one.request_id,
                one.details,
            )
            for one in found
        ]
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/logs",
        handler=listing,
        access="read",
        reach="daemon",
        summary="Show the latest lines of the daemon's log.",
        query=LogsQuery,
        reply=LogLinesOut,
    ),
)
