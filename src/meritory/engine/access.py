"""Access tokens: create, check, rotate and revoke them. Only the hash of a secret is stored.

A token names its user, so that it is looked up among the tokens of that user only:
`meritory_USER_ID_SECRET`, with the user in base 32.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

from meritory.domain.access import ROLES, AccessToken, Role
from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.memory import NAME_LIMIT_CHARS, Scope
from meritory.domain.session import Event
from meritory.engine.memories.validate import checked_choice, checked_name
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text.secrets import find_secrets

WORD = "meritory"
SECRET_BITS, ID_BITS = 256, 40
# The most valid tokens of a user.
TOKENS_LIMIT_COUNT = 1_000
# Rows of ended tokens are kept, so the number of new ones is limited.
MADE_LIMIT_PER_DAY = 1_000
LIFE_MAX, GRACE_MAX = timedelta(days=3_650), timedelta(days=30)
TEXT_LIMIT_CHARS = 2_000
# Compared with if there is no such token, so that this takes as long as a wrong secret.
_NO_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token and its text, which is shown only once."""

    token: AccessToken
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """The parts of a token's text, not yet verified."""

    user: str
    token_id: str
    digest: bytes


def create(
    services: Services,
    name: str,
    role: str,
    scope: Scope,
    life: timedelta | None = None,
    maker: str | None = None,
) -> Minted:
    """Create a token; without a life it does not expire.

    If another token creates it, named by its id, that one must be valid, and the new one expires no
    later.
    """
    now = services.world.now()
    _check_span("a token's life", life, timedelta(seconds=1), LIFE_MAX)
    like = AccessToken(
        user=str(checked_name("user", scope.user)),
        id="",
        name=str(checked_name("the token's name", name)),
        role=cast("Role", checked_choice("role", role, ROLES)),
        agent=checked_name("agent", scope.agent),
        project=checked_name("project", scope.project),
        digest=b"",
        created_at=now,
        expires_at=None if life is None else now + life,
    )

    def work(transaction: Transaction) -> Minted:
        return _mint(services, transaction, like, maker, "created")

    return services.store.write(like.user, work)


def rotate(
    services: Services, known: AccessToken, grace: timedelta, *, maker: str | None = None
) -> Minted:
    """Create a successor of a token, which remains valid for a grace period.

    The successor gets the same life. If another token creates it, that one must be valid, the
    life is not extended, and the successor expires no later than its creator.
    """
    _check_span("the grace", grace, timedelta(0), GRACE_MAX)
    now = services.world.now()

    def work(transaction: Transaction) -> Minted:
        old = _still_valid(transaction, known.user, known.id, now)
        life = None if old.expires_at is None else old.expires_at - old.created_at
        ends = now + life if life is not None and maker is None else old.expires_at
        fresh = replace(old, created_at=now, expires_at=ends, last_used_at=None)
        made = _mint(services, transaction, fresh, maker, "rotated", replaces=old.id)
        until = _earlier(old.expires_at, now + grace)
        transaction.put_access_token(replace(old, expires_at=until))
        return made

    return services.store.write(known.user, work)


def revoke(services: Services, known: AccessToken) -> AccessToken:
    """Revoke a token."""
    now = services.world.now()

    def work(transaction: Transaction) -> AccessToken:
        old = transaction.access_token(known.user, known.id) or known
        if old.revoked_at is not None:
            return old
        ended = replace(old, revoked_at=now)
        transaction.put_access_token(ended)
        _log(transaction, ended, now, "revoked")
        return ended

    return services.store.write(known.user, work)


def named(
    services: Services,
    user: str,
    name: str,
    is_seen: Callable[[AccessToken], bool] = lambda token: True,
) -> AccessToken:
    """Return the visible token of a user with this id or this unique prefix of an id."""
    seen = filter(is_seen, services.store.access_tokens(user))
    starting = [token for token in seen if token.id.startswith(name)]
    exact = [token for token in starting if token.id == name] or starting
    if not name or not exact:
        raise NotFound(
            f"unknown token: {name[:40]!r}", hint="tokens are listed by `meritory token list --all`"
        )
    if len(exact) > 1:
        raise InputError(f"{name!r} is the prefix of several ids", hint="give more characters")
    return exact[0]


def read_claim(text: bytes) -> TokenClaim | None:
    """Return the parts of a token's text; None if it is not a token."""
    if len(text) > TEXT_LIMIT_CHARS or not text.isascii():
        return None
    parts = text.decode("ascii").split("_")
    if len(parts) != 4 or parts[0] != WORD or not all(parts):
        return None
    try:
        padded = parts[1].upper() + "=" * (-len(parts[1]) % 8)
        user = base64.b32decode(padded).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    if not 0 < len(user) <= NAME_LIMIT_CHARS or not user.isprintable():
        return None
    return TokenClaim(user, parts[2], _digest(parts[3]))


def proves(claim: TokenClaim, known: AccessToken | None, now: datetime) -> bool:
    """Return whether a token is valid; the check always takes the same time."""
    digest = _NO_DIGEST if known is None else known.digest
    is_same = hmac.compare_digest(claim.digest, digest)
    return is_same and known is not None and known.is_valid(now)


def _mint(
    services: Services,
    transaction: Transaction,
    like: AccessToken,
    maker: str | None,
    action: str,
    **details: str,
) -> Minted:
    """Store and log a new token; it expires no later than its maker, which must be valid."""
    now, user = services.world.now(), like.user
    if maker is not None:
        last = _still_valid(transaction, user, maker, now).expires_at
        like = replace(like, expires_at=_earlier(like.expires_at, last))
        details["by"] = maker
    tokens = transaction.access_tokens(user)
    valid = sum(token.is_valid(now) for token in tokens)
    if valid >= TOKENS_LIMIT_COUNT:
        raise Conflict(f"{user} already has {valid} tokens", hint="revoke unused ones")
    if sum(token.created_at > now - timedelta(days=1) for token in tokens) >= MADE_LIMIT_PER_DAY:
        raise Conflict(
            f"{MADE_LIMIT_PER_DAY} tokens were made for {user} within a day", hint="use those"
        )
    while True:
        token_id = _base32(_random(services, ID_BITS))
        secret = _random(services, SECRET_BITS).hex()
        text = "_".join((WORD, _base32(user.encode()), token_id, secret))
        # The secret scanner must recognise it, so that no memory ever contains it.
        if transaction.access_token(user, token_id) is None and find_secrets(text):
            break
    token = replace(like, id=token_id, digest=_digest(secret))
    transaction.put_access_token(token)
    _log(transaction, token, like.created_at, action, **details)
    return Minted(token, text)


def _still_valid(transaction: Transaction, user: str, token_id: str, now: datetime) -> AccessToken:
    token = transaction.access_token(user, token_id)
    if token is not None and token.is_valid(now):
        return token
    raise Conflict(f"token {token_id} has expired or is revoked", hint="create a new one")


def _log(
    transaction: Transaction, token: AccessToken, at: datetime, what: str, **more: str
) -> None:
    """Log an event under the id of the token."""
    details = {"id": token.id, "name": token.name, "role": token.role, **more}
    event = Event(
        at=at, category="access", name=f"token.{what}", request_id=token.id, details=details
    )
    transaction.log_events(token.user, [event])


def _check_span(what: str, span: timedelta | None, low: timedelta, high: timedelta) -> None:
    if span is not None and not low <= span <= high:
        raise InputError(f"{what} must be at most {high.days} days, and no less than {low}")


def _earlier(*moments: datetime | None) -> datetime | None:
    return min(filter(None, moments), default=None)


def _random(services: Services, bits: int) -> bytes:
    return services.world.random_bits(bits).to_bytes(bits // 8, "big")


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode("ascii").rstrip("=").lower()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def sorted_tokens(
    tokens: Sequence[AccessToken], now: datetime, *, every: bool
) -> list[AccessToken]:
    """Return the valid tokens, or with `every` all, newest first."""
    return [token for token in reversed(tokens) if every or token.is_valid(now)]
