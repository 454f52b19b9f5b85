"""What ranking needs of tenants' memories, kept in step by each tenant's own changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from meritory.store.gather import Traits
from meritory.store.postgres.views import change_of
from meritory.store.sql import Connection

# So many of each may be kept: see TRAITS_LIMIT.
TENANTS_KEPT = 64


class TenantTraits(Traits):
    """Knows of changes by the tenant's number of them."""

    def __init__(self, user: str) -> None:
        super().__init__(user)
        self.lock = threading.Lock()

    def _last_change(self, connection: Connection) -> int:
        return change_of(connection, self._user)[0]


class TraitShelf:
    """The traits of the tenants that were asked for lately; one thread at a time has a tenant's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, TenantTraits] = OrderedDict()

    @contextmanager
    def of(self, user: str) -> Iterator[TenantTraits]:
        """The traits of one tenant, for the length of the block."""
        with self._lock:
            known = self._known.setdefault(user, TenantTraits(user))
            self._known.move_to_end(user)
            while len(self._known) > TENANTS_KEPT:
                self._known.popitem(last=False)
        with known.lock:
            yield known
