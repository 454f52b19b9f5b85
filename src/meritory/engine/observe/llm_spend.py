"""The books of what language models cost, kept in the store."""

from __future__ import annotations

from datetime import datetime

from meritory.domain.session import Spending
from meritory.ports.budget import Spend
from meritory.store.contract.store import Store


class StoreLedger:
    """What was spent for one user and one purpose."""

    def __init__(self, store: Store, user: str, purpose: str) -> None:
        self._store = store
        self._user = user
        self._purpose = purpose

    def spent_since(self, moment: datetime) -> list[Spend]:
        """Every call since a moment, whatever it was for: the budget is one."""
        return [
            Spend(
                at=one.at,
                model=one.model,
                input_tokens=one.input_tokens,
                output_tokens=one.output_tokens,
                cost=one.cost,
            )
            for one in self._store.spending(self._user, moment)
        ]

    def record_spend(self, spend: Spend) -> None:
        """Notes a call."""
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
