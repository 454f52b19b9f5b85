"""Tokens: who else may come in; a token makes others of its own user and scope alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from meritory.api.memory import Memory
from meritory.domain.access import ROLES, AccessToken, Role
from meritory.domain.codec import moment_text
from meritory.engine import access
from meritory.server.problems import Forbidden
from meritory.server.table import Call, Route, Scoped

GRACE_S = 600
_LIFE_LIMIT_S = int(access.LIFE_MAX.total_seconds())
_GRACE_LIMIT_S = int(access.GRACE_MAX.total_seconds())


class TokensQuery(Scoped, kw_only=True):
    """Whose tokens; with `every` also those that have ended."""

    every: bool = False


class NewToken(Scoped, kw_only=True):
    """A token for a user, or for one agent or project of theirs."""

    name: str
    role: Role
    expires_in_s: Annotated[int, Meta(ge=1, le=_LIFE_LIMIT_S)] | None = None


class Rotation(Scoped, kw_only=True):
    """For how long the old secret opens beside the new one."""

    grace_s: Annotated[int, Meta(ge=0, le=_GRACE_LIMIT_S)] = GRACE_S


class TokenOut(msgspec.Struct, kw_only=True):
    """A token, without its secret."""

    id: str
    user: str
    name: str
    role: Role
    agent: str | None
    project: str | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    is_valid: bool


class TokensOut(msgspec.Struct):
    """Tokens, newest first."""

    results: list[TokenOut]


class MintedOut(TokenOut, kw_only=True):
    """A new token with its text, which nobody is told a second time."""

    token: str


def listing(call: Call) -> TokensOut:
    """The tokens of a user."""
    query: TokensQuery = call.query
    memory = call.memory()
    kept = memory.services.store.access_tokens(memory.scope.user)
    found = access.sorted_tokens(kept, memory.services.world.now(), every=query.every)
    return TokensOut([_out(memory, one) for one in found if _is_seen(call, one)])


def create(call: Call) -> MintedOut:
    """A new token."""
    body: NewToken = call.body
    memory = call.view(body.user, body.agent, body.project)
    if ROLES.index(body.role) > ROLES.index(call.grant.role):
        raise Forbidden(f"a token with the role {call.grant.role} makes none that may do more")
    life = None if body.expires_in_s is None else timedelta(seconds=body.expires_in_s)
    wanted = access.Wanted(body.name, body.role, memory.scope, life, call.grant.token_id)
    return _minted(memory, access.create(memory.services, wanted))


def rotate(call: Call) -> MintedOut:
    """A new secret in place of one that goes on for a while; a token prolongs no token."""
    body: Rotation = call.body
    memory = call.memory()
    known = _known(call, memory)
    grace, maker = timedelta(seconds=body.grace_s), call.grant.token_id
    return _minted(memory, access.rotate(memory.services, known, grace, maker=maker))


def revoke(call: Call) -> TokenOut:
    """The end of a token."""
    memory = call.memory()
    return _out(memory, access.revoke(memory.services, _known(call, memory)))


def _is_seen(call: Call, token: AccessToken) -> bool:
    return call.grant.fits(token.agent, token.project)


def _known(call: Call, memory: Memory) -> AccessToken:
    # Of tokens elsewhere nobody learns that they are there, not even by an id that names two.
    is_seen = partial(_is_seen, call)
    return access.named(memory.services, memory.scope.user, call.path["id"], is_seen)


def _minted(memory: Memory, made: access.Minted) -> MintedOut:
    told = msgspec.to_builtins(_out(memory, made.token))
    return msgspec.convert({**told, "token": made.text}, MintedOut)


def _out(memory: Memory, token: AccessToken) -> TokenOut:
    return TokenOut(
        id=token.id,
        user=token.user,
        name=token.name,
        role=token.role,
        agent=token.agent,
        project=token.project,
        created_at=moment_text(token.created_at),
        expires_at=_moment(token.expires_at),
        revoked_at=_moment(token.revoked_at),
        last_used_at=_moment(token.last_used_at),
        is_valid=token.is_valid(memory.services.world.now()),
    )


def _moment(at: datetime | None) -> str | None:
    return None if at is None else moment_text(at)


ROUTES = (
    Route(
        method="GET",
        path="/api/tokens",
        handler=listing,
        access="admin",
        reach="scope",
        summary="List tokens, newest first.",
        query=TokensQuery,
        reply=TokensOut,
    ),
    Route(
        method="POST",
        path="/api/tokens",
        handler=create,
        access="admin",
        reach="scope",
        summary="Make a token; its text is in the answer, and nowhere else.",
        body=NewToken,
        reply=MintedOut,
    ),
    Route(
        method="POST",
        path="/api/tokens/{id}/rotate",
        handler=rotate,
        access="admin",
        reach="scope",
        summary="Make a new token in place of one, which opens for a while yet.",
        body=Rotation,
        reply=MintedOut,
    ),
    Route(
        method="DELETE",
        path="/api/tokens/{id}",
        handler=revoke,
        access="admin",
        reach="scope",
        summary="End a token.",
        query=Scoped,
        reply=TokenOut,
    ),
)
