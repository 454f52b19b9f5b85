"""Tokens made, read, renewed and ended; a secret is told once, and only its hash is kept.

A token says whose it is, so that it is looked up among its own user's tokens and nowhere else:
`meritory_USER_ID_SECRET`, the user in base 32.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

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
# More valid ones are nobody's on purpose.
TOKENS_LIMIT_COUNT = 1_000
# The rows of ended ones stay: whoever makes and revokes without end would fill the store with them.
MADE_LIMIT_PER_DAY = 1_000
LIFE_MAX, GRACE_MAX = timedelta(days=3_650), timedelta(days=30)
TEXT_LIMIT_CHARS = 2_000
# Compared with when there is no such token, so that it takes as long as a wrong secret.
_NOBODYS = bytes(32)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token that somebody wants; without a span it does not end by itself."""

    name: str
    role: str
    scope: Scope
    life: timedelta | None = None
    # The id of the token that makes it, which must still open: it ends no later than that one.
    maker: str | None = None


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token, and the text that opens: nobody is told it a second time."""

    token: AccessToken
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """What a token's text says, yet to be proved."""

    user: str
    token_id: str
    digest: bytes


def create(services: Services, wanted: Wanted) -> Minted:
    """Makes a token."""
    now, scope = services.world.now(), wanted.scope
    name = str(checked_name("the token's name", wanted.name))
    checked_choice("role", wanted.role, ROLES)
    role: Role = next(role for role in ROLES if role == wanted.role)
    _check_span("a token's life", wanted.life, timedelta(seconds=1), LIFE_MAX)
    ends = None if wanted.life is None else now + wanted.life
    user = str(checked_name("user", scope.user))

    def work(transaction: Transaction) -> Minted:
        made = _mint(
            services,
            transaction,
            AccessToken(
                user=user,
                id="",
                name=name,
                role=role,
                agent=checked_name("agent", scope.agent),
                project=checked_name("project", scope.project),
                digest=b"",
                created_at=now,
                expires_at=_earlier(ends, _end_of(transaction, user, wanted.maker, now)),
            ),
        )
        _log(transaction, made.token, now, "created", **_by(wanted.maker))
        return made

    return services.store.write(user, work)


def rotate(
    services: Services, known: AccessToken, grace: timedelta, *, maker: str | None = None
) -> Minted:
    """Makes a token in place of another, which still opens for a while.

    One that ends by itself gets as long a life again, unless a token makes it: that one must still
    open, prolongs none, and what it makes ends no later than itself.
    """
    _check_span("the grace", grace, timedelta(0), GRACE_MAX)
    now = services.world.now()

    def work(transaction: Transaction) -> Minted:
        old = _still_valid(transaction, known.user, known.id, now)
        life = None if old.expires_at is None else old.expires_at - old.created_at
        ends = now + life if life is not None and maker is None else old.expires_at
        ends = _earlier(ends, _end_of(transaction, old.user, maker, now))
        fresh = replace(old, created_at=now, expires_at=ends, last_used_at=None)
        made = _mint(services, transaction, fresh)
        until = _earlier(old.expires_at, now + grace)
        transaction.put_access_token(replace(old, expires_at=until))
        _log(transaction, made.token, now, "rotated", replaces=old.id, **_by(maker))
        return made

    return services.store.write(known.user, work)


def revoke(services: Services, known: AccessToken) -> AccessToken:
    """Ends a token for good."""
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
    """The token of a user with this id, or the only one whose id starts so, among those seen."""
    seen = filter(is_seen, services.store.access_tokens(user))
    found = [one for one in seen if one.id.startswith(name)]
    exact = [one for one in found if one.id == name] or found
    if not name or not exact:
        raise NotFound(f"no token {name[:40]!r}", hint="`meritory token list --all` shows them")
    if len(exact) > 1:
        raise InputError(f"{name!r} is the start of several ids", hint="give more of it")
    return exact[0]


def read_claim(text: bytes) -> TokenClaim | None:
    """What a text claims to be; None when it cannot be a token."""
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
    """Whether a claim holds; whatever is wrong with it, finding out takes the same time."""
    digest = _NOBODYS if known is None else known.digest
    is_same = hmac.compare_digest(claim.digest, digest)
    return is_same and known is not None and known.is_valid(now)


def _mint(services: Services, transaction: Transaction, like: AccessToken) -> Minted:
    now, user = services.world.now(), like.user
    kept = transaction.access_tokens(user)
    valid = sum(one.is_valid(now) for one in kept)
    if valid >= TOKENS_LIMIT_COUNT:
        raise Conflict(f"{user} has {valid} tokens already", hint="revoke some that nobody uses")
    if sum(one.created_at > now - timedelta(days=1) for one in kept) >= MADE_LIMIT_PER_DAY:
        raise Conflict(
            f"{MADE_LIMIT_PER_DAY} tokens were made for {user} within a day", hint="use those"
        )
    while True:
        token_id = _base32(_random(services, ID_BITS))
        secret = _random(services, SECRET_BITS).hex()
        text = "_".join((WORD, _base32(user.encode()), token_id, secret))
        # What nobody would take for a secret could end up in a memory one day.
        if transaction.access_token(user, token_id) is None and find_secrets(text):
            break
    token = replace(like, id=token_id, digest=_digest(secret))
    transaction.put_access_token(token)
    return Minted(token, text)


def _still_valid(transaction: Transaction, user: str, token_id: str, now: datetime) -> AccessToken:
    found = transaction.access_token(user, token_id)
    if found is not None and found.is_valid(now):
        return found
    raise Conflict(f"token {token_id} has ended already", hint="make a new one")


def _end_of(
    transaction: Transaction, user: str, maker: str | None, now: datetime
) -> datetime | None:
    """When the token ends that makes another; at the door it was proved a moment ago only."""
    return None if maker is None else _still_valid(transaction, user, maker, now).expires_at


def _by(maker: str | None) -> dict[str, str]:
    return {} if maker is None else {"by": maker}


def _log(
    transaction: Transaction, token: AccessToken, at: datetime, what: str, **more: str
) -> None:
    """A line of the timeline, under the token's own id."""
    details = {"id": token.id, "name": token.name, "role": token.role, **more}
    event = Event(
        at=at, category="access", name=f"token.{what}", request_id=token.id, details=details
    )
    transaction.log_events(token.user, [event])


def _check_span(what: str, span: timedelta | None, low: timedelta, high: timedelta) -> None:
    if span is not None and not low <= span <= high:
        raise InputError(f"{what} must be at most {high.days} days, and no less than {low}")


def _earlier(*moments: datetime | None) -> datetime | None:
    return min((one for one in moments if one is not None), default=None)


def _random(services: Services, bits: int) -> bytes:
    return services.world.random_bits(bits).to_bytes(bits // 8, "big")


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode("ascii").rstrip("=").lower()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def sorted_tokens(found: Sequence[AccessToken], now: datetime, *, every: bool) -> list[AccessToken]:
    """The tokens that still open, or with `every` all, newest first."""
    return [one for one in reversed(found) if every or one.is_valid(now)]
