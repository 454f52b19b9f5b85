"""Saved runs over probes, for the dashboard: what was found, and how it changed."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import msgspec

from meritory.engine.quality import saved_runs
from meritory.server.table import Call, QueryParams, Route

RUNS_MAX = 100


class ProbeRunsQuery(QueryParams, kw_only=True):
    """How many runs are wanted."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=RUNS_MAX)] = 20


class FigureOut(msgspec.Struct):
    """A mean with its interval."""

    mean: float
    low: float
    high: float


class ProbeRunOut(msgspec.Struct, kw_only=True):
    """One saved run, without its single probes."""

    name: str
    at: str
    set_hash: str
    probes: int
    scored: int
    drifted: int
    moved: int
    figures: dict[str, FigureOut]
    latency_ms: dict[str, float] = {}
    tags: dict[str, dict[str, float]] = {}
    settings: dict[str, str] = {}
    memories: int = 0
    embedder: str | None = None
    with_session: bool = False


class ProbeRuns(msgspec.Struct):
    """Saved runs, latest first."""

    results: list[ProbeRunOut]


def runs(call: Call) -> ProbeRuns:
    """The runs that were saved in the data folder; none of the questions."""
    query: ProbeRunsQuery = call.query
    found = (
        run for run in map(_out, saved_runs.latest(call.engine.settings.home)) if run is not None
    )
    return ProbeRuns(list(islice(found, query.limit)))


def _out(run: dict[str, Any]) -> ProbeRunOut | None:
    try:
        return msgspec.convert(run, ProbeRunOut)
    except msgspec.ValidationError:
        # Somebody wrote into it by hand: the others are shown.
        return None


ROUTES = (
    Route(
        method="GET",
        path="/api/quality/probes",
        handler=runs,
        access="read",
        reach="daemon",
        summary="List saved runs over probes, latest first.",
        query=ProbeRunsQuery,
        reply=ProbeRuns,
    ),
)
