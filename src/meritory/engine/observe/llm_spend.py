"""Spending on language models, recorded in the store."""

from __future__ import annotations

from datetime import datetime

from meritory.domain.session import Spending
from meritory.ports.budget import Spend
from meritory.store.contract.store import Store


class StoreLedger:
    """The spending of one user for one purpose."""

    def __init__(self, store: Store, user: str, purpose: str) -> None:
        self._store = store
        self._user = user
        self._purpose = purpose

    def spent_since(self, moment: datetime) -> list[Spend]:
        """Return every call since a moment, for any purpose: they share one budget."""
        return [
            Spend(
                at=call.at,
                model=call.model,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cost=call.cost,
            )
            for call in self._store.spending(self._user, moment)
        ]

    def record_spend(self, spend: Spend) -> None:
        """Record a call."""
        made = Spending(
            spend.at,
            self._purpose,
            spend.model,
            spend.input_tokens,
            spend.output_tokens,
            spend.cost,
        )
        self._store.write(
            self._user, lambda transaction: transaction.add_spending(self._user, made)
        )
