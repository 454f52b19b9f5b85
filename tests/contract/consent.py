"""What every backend promises about a user's consent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from contract.shelf import Shelf
from meritory.domain.access import Consent
from meritory.domain.errors import InputError
from meritory.store.contract.store import Transaction

MORNING = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)


def _put(user: str, consent: Consent, transaction: Transaction) -> None:
    transaction.put_consent(user, consent)


class Consents:
    """Kept exactly, one per user, in place of what was there."""

    def test_nobody_has_said_anything_at_first(self, shelf: Shelf) -> None:
        assert shelf.store.consent("ada") is None
        assert shelf.store.write("ada", lambda t: t.consent("ada")) is None

    def test_a_consent_comes_back_exactly_after_a_restart(self, shelf: Shelf) -> None:
        asked = Consent(MORNING, None, MORNING + timedelta(days=1))
        for consent in (Consent(MORNING), asked, replace(asked, opt_in=True)):
            shelf.store.write("ada", partial(_put, "ada", consent))
            assert shelf.store.consent("ada") == consent
            shelf.reopen()
            assert shelf.store.consent("ada") == consent

    def test_one_user_does_not_answer_for_another(self, shelf: Shelf) -> None:
        shelf.store.write("ada", lambda t: t.put_consent("ada", Consent(MORNING, True)))
        shelf.store.write("bob", lambda t: t.put_consent("bob", Consent(MORNING, False)))
        assert shelf.store.consent("eve") is None
        ada, bob = shelf.store.consent("ada"), shelf.store.consent("bob")
        assert (ada and ada.opt_in, bob and bob.opt_in) == (True, False)

    def test_a_transaction_sees_what_it_wrote_and_leaves_nothing_when_it_fails(
        self, shelf: Shelf
    ) -> None:
        seen: list[Consent | None] = []

        def work(transaction: Transaction) -> None:
            transaction.put_consent("ada", Consent(MORNING, True))
            seen.append(transaction.consent("ada"))
            raise InputError("stop")

        with pytest.raises(InputError):
            shelf.store.write("ada", work)
        assert seen == [Consent(MORNING, True)]
        assert shelf.store.consent("ada") is None
