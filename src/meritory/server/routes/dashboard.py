"""The dashboard: how a browser gets in, its files, and the stream of what changes."""

from __future__ import annotations

import msgspec

from meritory.domain.errors import NotFound
from meritory.server.dashboard import LINK_LIFE_S, PAGE_HEADERS, PAGES, used_link_page
from meritory.server.event_stream import EventStream
from meritory.server.table import Call, Page, QueryParams, Route

INDEX = "index.html"


class LoginLink(msgspec.Struct):
    """An address that lets one browser in, once."""

    url: str
    expires_in_s: int


class EnterQuery(QueryParams, kw_only=True):
    """The code of a one-time link."""

    code: str = ""


class LogoutQuery(QueryParams, kw_only=True):
    """Whether every browser is meant, or only the one that asks."""

    everywhere: bool = False


class LogoutReply(msgspec.Struct):
    """How many logins were ended."""

    ended: int


def new_link(call: Call) -> LoginLink:
    """Makes a link that lets one browser in."""
    dashboard = call.engine.dashboard
    code = dashboard.logins.new_link()
    return LoginLink(f"{dashboard.address}{PAGES}/enter?code={code}", LINK_LIFE_S)


def enter(call: Call) -> Page:
    """Lets a browser in whose code was not used before."""
    logins = call.engine.dashboard.logins
    secret = logins.enter(call.query.code)
    headers = {**PAGE_HEADERS, "cache-control": "no-store"}
    if secret is None:
        return Page(used_link_page(), status=401, headers=headers)
    # Only a proxy in front speaks TLS; who lies about it gets a cookie that is sent less often.
    is_https = call.headers.get("x-forwarded-proto") == "https"
    headers |= {"location": f"{PAGES}/", "set-cookie": logins.cookie(secret, is_https)}
    return Page(b"", status=303, headers=headers)


def logout(call: Call) -> LogoutReply:
    """Ends the login of the browser that asks, or all."""
    logins = call.engine.dashboard.logins
    if call.query.everywhere:
        ended = logins.end_all()
    else:
        ended = sum(
            logins.end(secret) for secret in logins.secrets_in(call.headers.get("cookie", ""))
        )
    # Pages that follow ask again, and only those that still may are let in.
    call.engine.live.close()
    return LogoutReply(ended)


def to_index(call: Call) -> Page:
    """Sends a browser to where the page's own addresses fit."""
    return Page(b"", status=308, headers={**PAGE_HEADERS, "location": f"{PAGES}/"})


def page(call: Call) -> Page:
    """One file of the dashboard, or word that the browser has it already."""
    name = call.path["name"] or INDEX
    found = call.engine.dashboard.files.get(name)
    if found is None:
        raise NotFound("there is no such page")
    headers = {**PAGE_HEADERS, "cache-control": "no-cache", "etag": found.etag}
    known = [tag.strip() for tag in call.headers.get("if-none-match", "").split(",")]
    if found.etag in known:
        return Page(b"", found.media_type, 304, headers)
    return Page(found.content, found.media_type, 200, headers)


def live(call: Call) -> EventStream:
    """Tells what changes, as it does."""
    return EventStream(
        call.engine.live, {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    )


ROUTES = (
    Route(
        method="POST",
        path="/api/dashboard/links",
        handler=new_link,
        access="admin",
        reach="daemon",
        summary="Make a link that lets one browser into the dashboard, once.",
        reply=LoginLink,
        is_quick=True,
    ),
    Route(
        method="POST",
        path="/api/dashboard/logout",
        handler=logout,
        access="write",
        reach="daemon",
        summary="End the login of the browser that asks, or every login.",
        query=LogoutQuery,
        reply=LogoutReply,
        is_quick=True,
    ),
    Route(
        method="GET",
        path="/api/live",
        handler=live,
        access="read",
        reach="daemon",
        summary="Follow what changes, as server-sent events.",
        reply=EventStream,
        is_quick=True,
    ),
    Route(
        method="GET",
        path=f"{PAGES}/enter",
        handler=enter,
        access="login",
        reach="daemon",
        summary="Let a browser in by a one-time link.",
        query=EnterQuery,
        reply=Page,
        is_quick=True,
    ),
    Route(
        method="GET",
        path=PAGES,
        handler=to_index,
        access="read",
        reach="daemon",
        summary="Show the dashboard.",
        reply=Page,
        is_quick=True,
    ),
    Route(
        method="GET",
        path=f"{PAGES}/{{name:path}}",
        handler=page,
        access="read",
        reach="daemon",
        summary="Show a file of the dashboard.",
        reply=Page,
        is_quick=True,
    ),
)
