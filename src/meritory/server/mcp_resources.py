"""Memories and sessions as resources: listed page by page, and read by their address."""

from __future__ import annotations

import base64
import binascii
import contextlib
from typing import Any
from urllib.parse import quote, unquote

from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import SessionRecord
from meritory.engine.sessions.context import known_session
from meritory.mcp.protocol import INVALID_PARAMS, NO_RESOURCE, Json, McpFault
from meritory.mcp.table import MEMORY_URI, SESSION_URI
from meritory.server.mcp_tools import CUT_CHARS, block, entry, line, memory_out, title
from meritory.server.scoped_memory import AnyMemory, can_see_session
from meritory.text.render import harmless

PAGE_COUNT = 50
URI_LIMIT_CHARS = 2_000
_PLAIN = "text/plain"
_MEMORIES, _SESSIONS = "m", "s"


def listing(memory: AnyMemory, cursor: object) -> Json:
    """A page of resources: memories, newest first, then sessions, latest first."""
    kind, after = _read_cursor(cursor)
    if kind == _MEMORIES:
        records = memory.page(PAGE_COUNT, after=after)
        found = [_memory_listed(record) for record in records]
        more = _cursor(_MEMORIES, records[-1].id) if len(records) == PAGE_COUNT else None
        return {"resources": found, "nextCursor": more or _cursor(_SESSIONS, "")}
    scope = memory.scope
    sessions = memory.services.store.sessions(
        scope.user, PAGE_COUNT, project=scope.project, before=after or None
    )
    seen = (one for one in sessions if can_see_session(memory, one.agent, one.project))
    page: Json = {"resources": [_session_listed(one) for one in seen]}
    if len(sessions) == PAGE_COUNT:
        page["nextCursor"] = _cursor(_SESSIONS, sessions[-1].key)
    return page


def read(memory: AnyMemory, uri: object) -> Json:
    """What lies at an address."""
    if not isinstance(uri, str) or not 0 < len(uri) <= URI_LIMIT_CHARS:
        raise McpFault(INVALID_PARAMS, f"uri must be text of 1 to {URI_LIMIT_CHARS} characters")
    try:
        if uri.startswith(MEMORY_URI):
            text = _memory_text(memory, unquote(uri.removeprefix(MEMORY_URI), errors="strict"))
        elif uri.startswith(SESSION_URI):
            text = _session_text(memory, unquote(uri.removeprefix(SESSION_URI), errors="strict"))
        else:
            raise NotFound("no such address")
    except (NotFound, InputError, UnicodeError) as error:
        told = {"uri": uri}
        raise McpFault(NO_RESOURCE, "Resource not found", told) from error
    return {"contents": [{"uri": uri, "mimeType": _PLAIN, "text": text}]}


def _memory_listed(record: MemoryRecord) -> Json:
    words = [record.kind, *(["unverified"] if record.trust == "untrusted" else [])]
    return {
        "uri": MEMORY_URI + record.id,
        "name": title(record.content),
        "description": f"{', '.join(words)}, {moment_text(record.created_at)[:10]}",
        "mimeType": _PLAIN,
    }


def _session_listed(session: SessionRecord) -> Json:
    return {
        "uri": SESSION_URI + quote(session.key, safe=""),
        "name": title(session.context or session.key),
        "description": f"session, {session.state}, {moment_text(session.started_at)[:10]}",
        "mimeType": _PLAIN,
    }


def _memory_text(memory: AnyMemory, memory_id: str) -> str:
    record = memory.get(memory_id)
    if record.deleted_at is not None:
        raise NotFound("it was forgotten")
    return block([entry(memory_out(record))])


def _session_text(memory: AnyMemory, key: str) -> str:
    store, user = memory.services.store, memory.scope.user
    session = known_session(memory.services.store, memory.scope, key)
    is_seen = can_see_session(memory, session.agent, session.project)
    if memory.scope.project not in (None, session.project) or not is_seen:
        raise NotFound("it is a session of another project")
    ended = "" if session.ended_at is None else f", ended {moment_text(session.ended_at)}"
    lines = [
        line("session", harmless(session.key)),
        line("state", f"{session.state}, began {moment_text(session.started_at)}{ended}"),
        line("about", harmless(session.context[:CUT_CHARS])),
    ]
    for one in store.shown(user, key):
        # Of what was shown, what the caller may see and nobody took away.
        with contextlib.suppress(NotFound):
            record = memory.get(one.memory_id)
            if record.deleted_at is None:
                lines.append(entry(memory_out(record, CUT_CHARS)))
    return block(lines)


def _cursor(kind: str, last: str) -> str:
    return base64.urlsafe_b64encode(f"{kind}{last}".encode()).decode("ascii")


def _read_cursor(cursor: Any) -> tuple[str, str | None]:
    if cursor is None:
        return _MEMORIES, None
    try:
        told = base64.b64decode(str(cursor), altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError) as error:
        raise _no_cursor() from error
    if not isinstance(cursor, str) or told[:1] not in (_MEMORIES, _SESSIONS) or "\0" in told:
        raise _no_cursor()
    return told[0], told[1:]


def _no_cursor() -> McpFault:
    return McpFault(INVALID_PARAMS, "there is no such cursor; begin again without one")
