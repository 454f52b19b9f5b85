"""What all requests share: the open memory, what is observed, and views of single scopes."""

from __future__ import annotations

from datetime import datetime

from tenure.memory import Memory
from tenure.settings import Settings
from tenure.web.echoes import Echoes


class Engine:
    """One open store and the views that requests have of it."""

    def __init__(self, settings: Settings) -> None:
        self._memory = Memory(settings=settings, actor="daemon", everywhere=True, apart=True)
        # Who asks first shall not wait for the embedder and the index to be loaded.
        self._memory.works.warm_up(self._memory.scope)
        # Jobs that others left behind are gone on with, and later ones found.
        self._memory.work_meanwhile()
        self.settings = settings
        self.world = self._memory.services.world
        self.observer = self._memory.services.observer
        self.echoes = Echoes(self.world.monotonic_ms)
        self.started_at: datetime = self.world.now()
        self._started_ms = self.world.monotonic_ms()

    def view(self, user: str | None, agent: str | None, project: str | None) -> Memory:
        """The memory for one scope.

        A request that names neither agent nor project is the owner's own, and its ids may name
        any memory of the user; otherwise ids keep to the scope as searches do.
        """
        return self._memory.view(user, agent, project, everywhere=agent is None and project is None)

    def uptime_s(self) -> float:
        """How long the engine has been open."""
        return (self.world.monotonic_ms() - self._started_ms) / 1000

    def close(self) -> None:
        """Finishes what is under way and lets go of the store."""
        self._memory.close()
