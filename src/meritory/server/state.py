"""What all requests share: the open memory, what is observed, and views of single scopes."""

from __future__ import annotations

import threading
from datetime import datetime
from urllib.parse import urlsplit

from meritory.api.memory import Memory
from meritory.domain.memory import EveryScope
from meritory.engine.observe.consent import note_start
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
    """One open store and the views that requests have of it."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._memory = Memory(settings=settings, actor="daemon", everywhere=True, apart=True)
        # Who asks first shall not wait for the embedder and the index to be loaded.
        self._memory.works.warm_up(self._memory.scope)
        self._memory.works.schedule_maintenance()
        note_start(self._memory.services, settings.user)
        # Jobs that others left behind are gone on with, and later ones found.
        self._memory.work_meanwhile()
        self.settings = settings
        self.world = self._memory.services.world
        self.observer = self._memory.services.observer
        self.tokens = Tokens(self._memory.services)
        # Held by the one request that works through jobs, or waits for those under way.
        self.draining = threading.Lock()
        self.duplicates = DuplicateFilter(self.world.monotonic_ms)
        logins = Logins(self.world.monotonic_ms, urlsplit(url).port or 80)
        self.dashboard = Dashboard(own_address(url), logins, read_files())
        self.live = LiveEvents(self._numbers, self._memory.services.store.follow)
        self.started_at: datetime = self.world.now()
        self._started_ms = self.world.monotonic_ms()

    def view(self, grant: Grant, named: Scoped, *, everywhere: bool = False) -> AnyMemory:
        """The memory for the scope that a request names, as far as whoever asks may go.

        One that names neither agent nor project is a person's, and its ids may name any memory of
        the user; otherwise ids keep to the scope as searches do. With `everywhere` searches see
        all of the user's too.
        """
        user, agent, project = grant.scope(
            named.user, named.agent, named.project, everywhere=everywhere
        )
        is_own = agent is None and project is None
        found = self._memory.view(user, agent, project, everywhere=everywhere or is_own)
        if everywhere:
            found.scope = EveryScope(found.scope.user)
        return ScopedMemory(found, grant) if grant.is_narrow else found

    def agents_view(
        self, grant: Grant, named: Scoped, *, actor: str, any_id: bool = False
    ) -> AnyMemory:
        """The memory for an agent or a program: ids keep to the scope unless all are asked for."""
        user, agent, project = grant.scope(
            named.user, named.agent, named.project, everywhere=any_id
        )
        found = self._memory.view(user, agent, project, everywhere=any_id, actor=actor)
        return ScopedMemory(found, grant) if grant.is_narrow else found

    def _numbers(self) -> dict[str, int]:
        """By topic a number that is another one once something happened."""
        return {
            **self._memory.services.store.change_numbers(),
            "error": sum(self.observer.failure_counts().values()),
            "log": file_number(self.settings.home / LOG_NAME),
        }

    def uptime_s(self) -> float:
        """How long the engine has been open."""
        return (self.world.monotonic_ms() - self._started_ms) / 1000

    def close(self) -> None:
        """Finishes what is under way and lets go of the store."""
        self.tokens.close()
        self._memory.close()
