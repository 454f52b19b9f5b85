"""The dashboard: sign-in, its files, and the stream of changes."""

from __future__ import annotations

import msgspec

from meritory.domain.errors import NotFound
from meritory.server.dashboard import LINK_LIFE_S, PAGE_HEADERS, PAGES, used_link_page
from meritory.server.event_stream import EventStream
from meritory.server.table import SAFE_HEADERS, Call, Page, QueryParams, Route

INDEX = "index.html"
EnterQuery = QueryParams.plus(code=(str, ""))
# Whether to sign out every browser, or only the caller's.
LogoutQuery = QueryParams.plus(everywhere=(bool, False))


class LoginLink(msgspec.Struct):
    """A link that signs one browser in, once."""

    url: str
    expires_in_s: int


class LogoutReply(msgspec.Struct):
    """The number of logins that ended."""

    ended: int


def new_link(call: Call) -> LoginLink:
    """Create a link that signs one browser in to the dashboard, once."""
    code = call.server.logins.new_link()
    return LoginLink(f"{call.server.page_url}{PAGES}/enter?code={code}", LINK_LIFE_S)


def enter(call: Call) -> Page:
    """Sign a browser in by a one-time link."""
    logins = call.server.logins
    secret = logins.enter(call.query.code)
    headers = {**PAGE_HEADERS, "cache-control": "no-store"}
    if secret is None:
        return Page(used_link_page(), status_code=401, headers=headers)
    # Only a proxy speaks TLS. A false header only makes the browser send the cookie less often.
    is_https = call.headers.get("x-forwarded-proto") == "https"
    headers |= {"location": f"{PAGES}/", "set-cookie": logins.cookie(secret, is_https)}
    return Page(b"", status_code=303, headers=headers)


def logout(call: Call) -> LogoutReply:
    """End the login of this browser, or every login."""
    logins = call.server.logins
    if call.query.everywhere:
        ended = logins.end_all()
    else:
        ended = sum(
            logins.end(secret) for secret in logins.secrets_in(call.headers.get("cookie", ""))
        )
    # Open pages connect again, and only valid logins succeed.
    call.server.live.close()
    return LogoutReply(ended)


def to_index(call: Call) -> Page:
    """Redirect to the dashboard, with the slash that its relative links need."""
    return Page(b"", status_code=308, headers={**PAGE_HEADERS, "location": f"{PAGES}/"})


def page(call: Call) -> Page:
    """Show a file of the dashboard, or reply 304 if the browser has it."""
    name = call.path["name"] or INDEX
    file = call.server.pages.get(name)
    if file is None:
        raise NotFound("there is no such page")
    headers = {**PAGE_HEADERS, "cache-control": "no-cache", "etag": file.etag}
    cached = [tag.strip() for tag in call.headers.get("if-none-match", "").split(",")]
    if file.etag in cached:
        return Page(b"", 304, headers, file.media_type)
    return Page(file.content, 200, headers, file.media_type)


def live(call: Call) -> EventStream:
    """Stream changes as server-sent events."""
    return EventStream(call.server.live, SAFE_HEADERS)


_LOGOUT = "/api/dashboard/logout"
ROUTES = (
    Route("POST", "/api/dashboard/links", new_link, "admin", "daemon", is_quick=True),
    Route("POST", _LOGOUT, logout, "write", "daemon", query=LogoutQuery, is_quick=True),
    Route("GET", "/api/live", live, "read", "daemon", is_quick=True),
    Route("GET", f"{PAGES}/enter", enter, "login", "daemon", query=EnterQuery, is_quick=True),
    Route("GET", PAGES, to_index, "read", "daemon", is_quick=True),
    Route("GET", f"{PAGES}/{{name:path}}", page, "read", "daemon", is_quick=True),
)
