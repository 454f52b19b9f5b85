"""Access tokens; the holder of a token can only manage tokens of the same user and scope."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from meritory.domain.access import ROLES, AccessToken, Role
from meritory.engine import access
from meritory.server.auth import AnyMemory
from meritory.server.problems import Forbidden
from meritory.server.table import Call, ReplyShape, Results, Route, Scoped

GRACE_S = 600
_LIFE_LIMIT_S = int(access.LIFE_MAX.total_seconds())
_GRACE_LIMIT_S = int(access.GRACE_MAX.total_seconds())
# `every` includes revoked and expired tokens.
TokensQuery = Scoped.plus(every=(bool, False))


class NewToken(Scoped, kw_only=True):
    """A token for a user, or for one agent or project of the user."""

    name: str
    role: Role
    expires_in_s: Annotated[int, Meta(ge=1, le=_LIFE_LIMIT_S)] | None = None


class Rotation(Scoped, kw_only=True):
    """How long the old secret stays valid."""

    grace_s: Annotated[int, Meta(ge=0, le=_GRACE_LIMIT_S)] = GRACE_S


class TokenOut(
    ReplyShape,
    record=AccessToken,
    names="id user name role agent project created_at expires_at revoked_at last_used_at is_valid",
    kw_only=True,
):
    """A token without the hash of its secret, and whether it is valid now."""

    is_valid: bool


class MintedOut(TokenOut, kw_only=True):
    """A new token with its text, which no later reply contains."""

    token: str


def list_tokens(call: Call) -> Results[TokenOut]:
    """List access tokens, newest first."""
    memory = call.memory()
    now = memory.services.world.now()
    stored = memory.services.store.access_tokens(memory.scope.user)
    tokens = access.sorted_tokens(stored, now, every=call.query.every)
    visible = [token for token in tokens if call.grant.fits(token.agent, token.project)]
    return Results([TokenOut.of(token, is_valid=token.is_valid(now)) for token in visible])


def create(call: Call) -> MintedOut:
    """Create an access token; only this reply contains its text."""
    body: NewToken = call.body
    memory = call.memory()
    if ROLES.index(body.role) > ROLES.index(call.grant.role):
        raise Forbidden(
            f"a token with the role {call.grant.role} cannot create one with the role {body.role}"
        )
    life = None if body.expires_in_s is None else timedelta(seconds=body.expires_in_s)
    services, maker = memory.services, call.grant.token_id
    made = access.create(services, body.name, body.role, memory.scope, life, maker)
    return _minted(memory, made)


def rotate(call: Call) -> MintedOut:
    """Replace an access token; the old secret stays valid for a while."""
    body: Rotation = call.body
    memory = call.memory()
    token = _find(call, memory)
    grace, maker = timedelta(seconds=body.grace_s), call.grant.token_id
    return _minted(memory, access.rotate(memory.services, token, grace, maker=maker))


def revoke(call: Call) -> TokenOut:
    """Revoke an access token."""
    memory = call.memory()
    token = access.revoke(memory.services, _find(call, memory))
    return TokenOut.of(token, is_valid=token.is_valid(memory.services.world.now()))


def _find(call: Call, memory: AnyMemory) -> AccessToken:
    # An id prefix that only matches tokens outside the caller's scope is unknown.
    return access.named(
        memory.services,
        memory.scope.user,
        call.path["id"],
        lambda token: call.grant.fits(token.agent, token.project),
    )


def _minted(memory: AnyMemory, minted: access.Minted) -> MintedOut:
    is_valid = minted.token.is_valid(memory.services.world.now())
    return MintedOut.of(minted.token, is_valid=is_valid, token=minted.text)


ROUTES = (
    Route("GET", "/api/tokens", list_tokens, "admin", "scope", query=TokensQuery),
    Route("POST", "/api/tokens", create, "admin", "scope", body=NewToken),
    Route("POST", "/api/tokens/{id}/rotate", rotate, "admin", "scope", body=Rotation),
    Route("DELETE", "/api/tokens/{id}", revoke, "admin", "scope", query=Scoped),
)
