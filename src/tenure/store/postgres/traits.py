"""What ranking needs of one tenant's memories, kept in step by the tenant's own changes."""

from __future__ import annotations

from tenure.store.gather import Traits
from tenure.store.postgres.views import change_of
from tenure.store.sql import Connection


class TenantTraits(Traits):
    """Knows of changes by the tenant's number of them."""

    def _last_change(self, connection: Connection) -> int:
        return change_of(connection, self._user)[0]
