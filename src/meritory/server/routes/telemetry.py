"""Telemetry: whether a user lets numbers be kept, and how many there are."""

from __future__ import annotations

import msgspec

from meritory.domain.codec import moment_text
from meritory.engine.observe import consent, telemetry
from meritory.server.table import Call, Route, Scoped


class OptIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the user said."""

    enabled: bool
    user: str | None = None


class TelemetryOut(msgspec.Struct, kw_only=True):
    """The state, and what is kept on this machine; nothing is sent anywhere.

    How much there is of all users together is told to the daemon's owner alone.
    """

    training_data_opt_in: bool | None
    install_date: str | None
    last_prompted_at: str | None
    line_count: int | None
    size_bytes: int | None


def shown(call: Call) -> TelemetryOut:
    """Whether the user agreed, and how much is kept."""
    return _told(call, call.query.user)


def opt_in(call: Call) -> TelemetryOut:
    """The user's answer, as their agent passes it on."""
    body: OptIn = call.body
    memory = call.view(body.user)
    consent.answer(memory.services, memory.scope.user, body.enabled)
    return _told(call, body.user)


def _told(call: Call, user: str | None) -> TelemetryOut:
    memory = call.view(user)
    known = memory.services.store.consent(memory.scope.user)
    is_told = call.grant.user is None
    held = telemetry.kept(memory.services.telemetry_file) if is_told else None
    asked = known.last_prompted_at if known else None
    return TelemetryOut(
        training_data_opt_in=known.opt_in if known else None,
        install_date=moment_text(known.install_date) if known else None,
        last_prompted_at=moment_text(asked) if asked else None,
        line_count=held.line_count if held else None,
        size_bytes=held.size_bytes if held else None,
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/telemetry",
        handler=shown,
        access="read",
        reach="user",
        summary="Show whether numbers are kept, and how many.",
        query=Scoped,
        reply=TelemetryOut,
    ),
    Route(
        method="POST",
        path="/api/telemetry/opt-in",
        handler=opt_in,
        access="write",
        reach="user",
        summary="Say yes or no to numbers being kept on this machine.",
        body=OptIn,
        reply=TelemetryOut,
    ),
)
