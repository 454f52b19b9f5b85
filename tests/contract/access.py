"""What every backend promises about tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from contract.shelf import Shelf
from meritory.domain.access import AccessToken
from meritory.domain.errors import InputError
from meritory.store.contract.store import Transaction

NOON = datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC)
PLAIN = AccessToken("ada", "abcdefgh", "laptop", "write", None, None, bytes(range(32)), NOON)
FULL = AccessToken(
    user="ada",
    id="bcdefghi",
    name="ein Würfel \u2684",
    role="admin",
    agent="claude",
    project="api",
    digest=b"\x00\xff" * 16,
    created_at=NOON + timedelta(microseconds=1),
    expires_at=NOON + timedelta(days=90),
    revoked_at=NOON + timedelta(days=1),
    last_used_at=NOON + timedelta(hours=1),
)


class Access:
    """Kept exactly, found by their own user alone."""

    def test_tokens_come_back_exactly_after_a_restart(self, shelf: Shelf) -> None:
        for token in (PLAIN, FULL):
            shelf.store.write("ada", lambda t, token=token: t.put_access_token(token))
            assert shelf.store.access_token("ada", token.id) == token
        shelf.reopen()
        assert list(shelf.store.access_tokens("ada")) == [PLAIN, FULL]
        assert shelf.store.write("ada", lambda t: t.access_token("ada", FULL.id)) == FULL
        assert list(shelf.store.write("ada", lambda t: t.access_tokens("ada"))) == [PLAIN, FULL]

    def test_a_token_is_put_in_the_place_of_the_one_with_its_id(self, shelf: Shelf) -> None:
        shelf.store.write("ada", lambda t: t.put_access_token(PLAIN))
        ended = replace(PLAIN, revoked_at=NOON, role="read", digest=bytes(32))
        shelf.store.write("ada", lambda t: t.put_access_token(ended))
        assert list(shelf.store.access_tokens("ada")) == [ended]

    def test_one_user_has_no_token_of_another(self, shelf: Shelf) -> None:
        others = replace(PLAIN, user="bob", name="bob's", digest=b"b" * 32)
        shelf.store.write("ada", lambda t: t.put_access_token(PLAIN))
        shelf.store.write("bob", lambda t: t.put_access_token(others))
        assert shelf.store.access_token("ada", PLAIN.id) == PLAIN
        assert shelf.store.access_token("bob", PLAIN.id) == others
        for user in ("eve", "ADA", "ada ", "%", "ada\0"):
            assert shelf.store.access_token(user, PLAIN.id) is None
            assert list(shelf.store.access_tokens(user)) == []
        assert shelf.store.access_token("ada", PLAIN.id[:-1]) is None
        assert shelf.store.access_token("ada", FULL.id) is None

    def test_uses_are_noted_and_only_ever_go_on(self, shelf: Shelf) -> None:
        shelf.store.write("ada", lambda t: t.put_access_token(PLAIN))
        later, latest = NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)
        for at, expected in ((later, later), (latest, latest), (later, latest)):
            shelf.store.write("ada", lambda t, at=at: t.note_access("ada", PLAIN.id, at))
            assert shelf.store.access_token("ada", PLAIN.id) == replace(
                PLAIN, last_used_at=expected
            )
        shelf.store.write(
            "bob", lambda t: t.note_access("bob", PLAIN.id, latest + timedelta(days=1))
        )
        shelf.store.write("ada", lambda t: t.note_access("ada", "nobody", latest))
        assert list(shelf.store.access_tokens("ada")) == [replace(PLAIN, last_used_at=latest)]
        assert list(shelf.store.access_tokens("bob")) == []

    def test_a_transaction_that_fails_leaves_no_token(self, shelf: Shelf) -> None:
        def work(transaction: Transaction) -> None:
            transaction.put_access_token(PLAIN)
            assert transaction.access_token("ada", PLAIN.id) == PLAIN
            raise InputError("stop")

        with pytest.raises(InputError):
            shelf.store.write("ada", work)
        assert shelf.store.access_token("ada", PLAIN.id) is None
