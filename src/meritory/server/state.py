"""The state that all requests share: the open memory, the observer, and views by scope."""

from __future__ import annotations

import threading
from datetime import datetime
from urllib.parse import urlsplit

from meritory.api.memory import Memory
from meritory.domain.memory import EveryScope
from meritory.engine.observe.telemetry import note_start
from meritory.server.auth import Grant
from meritory.server.dashboard import Dashboard, Logins, own_address, read_files
from meritory.server.dedupe import DuplicateFilter
from meritory.server.event_stream import LiveEvents, file_number
from meritory.server.scoped_memory import AnyMemory, ScopedMemory
from meritory.server.table import Scoped
from meritory.server.token_cache import Tokens
from meritory.settings import Settings
from meritory.settings.home import LOG_NAME


class ServerState:
    """One open store and the views that requests get of it."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._memory = Memory(settings=settings, actor="daemon", everywhere=True, apart=True)
        # The first request must not wait for the embedder and the index to load.
        self._memory.works.warm_up(self._memory.scope)
        self._memory.works.schedule_maintenance()
        note_start(self._memory.services, settings.user)
        # Continue jobs that other processes left behind, and find later ones.
        self._memory.work_meanwhile()
        self.settings = settings
        self.world = self._memory.services.world
        self.observer = self._memory.services.observer
        self.tokens = Tokens(self._memory.services)
        # Held by the one request that runs jobs, or waits for running ones.
        self.draining = threading.Lock()
        self.duplicates = DuplicateFilter(self.world.monotonic_ms)
        logins = Logins(self.world.monotonic_ms, urlsplit(url).port or 80)
        self.dashboard = Dashboard(own_address(url), logins, read_files())
        self.live = LiveEvents(self._numbers, self._memory.services.store.follow)
        self.started_at: datetime = self.world.now()
        self._started_ms = self.world.monotonic_ms()

    def view(self, grant: Grant, named: Scoped, *, everywhere: bool = False) -> AnyMemory:
        """Return the memory for the scope of a request, limited to the caller's grant.

        A scope without agent and project is a person's: its ids may name any memory of the user.
        Otherwise ids keep to the scope as searches do. With `everywhere` searches cover all of the
        user's memories too.
        """
        user, agent, project = grant.scope(
            named.user, named.agent, named.project, everywhere=everywhere
        )
        is_own = agent is None and project is None
        memory = self._memory.view(user, agent, project, everywhere=everywhere or is_own)
        if everywhere:
            memory.scope = EveryScope(memory.scope.user)
        return ScopedMemory(memory, grant) if grant.is_narrow else memory

    def agents_view(
        self, grant: Grant, named: Scoped, *, actor: str, any_id: bool = False
    ) -> AnyMemory:
        """Return the memory for an agent or a program: ids keep to the scope unless `any_id`."""
        user, agent, project = grant.scope(
            named.user, named.agent, named.project, everywhere=any_id
        )
        memory = self._memory.view(user, agent, project, everywhere=any_id, actor=actor)
        return ScopedMemory(memory, grant) if grant.is_narrow else memory

    def _numbers(self) -> dict[str, int]:
        """Return a number by topic that changes whenever something of the topic changes."""
        return {
            **self._memory.services.store.change_numbers(),
            "error": sum(self.observer.failure_counts().values()),
            "log": file_number(self.settings.home / LOG_NAME),
        }

    def uptime_s(self) -> float:
        """Return how long the engine has been open."""
        return (self.world.monotonic_ms() - self._started_ms) / 1000

    def close(self) -> None:
        """Finish running work and close the store."""
        self.tokens.close()
        self._memory.close()
