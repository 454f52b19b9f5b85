"""Whether somebody is there to score: asked of the scorer itself, in this process or apart."""

from __future__ import annotations

from dataclasses import dataclass

from meritory.flow.services import Services


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether somebody is there to score, and how often it died; one in this process is there."""

    is_alive: bool = True
    is_ready: bool = True
    pid: int | None = None
    uptime_s: float | None = None
    crash_count: int = 0
    is_crash_disabled: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether it died and is not back; one that nobody needed yet is not dead."""
        return self.is_crash_disabled or (not self.is_alive and self.crash_count > 0)


def liveness(services: Services) -> Liveness:
    """What the scorer says of its own life."""
    if services.scorer is None:
        return Liveness(is_alive=False, is_ready=False)
    facts = getattr(services.scorer, "facts", None)
    if facts is None:
        return Liveness()
    return Liveness(
        is_alive=facts.is_alive,
        is_ready=facts.is_ready,
        pid=facts.pid,
        uptime_s=facts.uptime_s,
        crash_count=facts.crash_count,
        is_crash_disabled=facts.is_disabled,
    )
