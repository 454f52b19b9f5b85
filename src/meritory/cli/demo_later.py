"""The second half of the demo: how the predictor came to be heard, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from meritory.cli.answer import Block, Column, Lines, Table
from meritory.cli.insight import why_blocks
from meritory.cli.progress import bar

if TYPE_CHECKING:
    from meritory.demo.later import Step
    from meritory.demo.week import Week

_STATUS = (Column("session", "cyan"), Column("day"), Column("status line", wraps=True))
_MOVES = (Column("after", "cyan"), Column("alpha"), Column("why", wraps=True))
_TRAININGS = (Column("after", "cyan"), Column("training", wraps=True))


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of the weeks after the first."""

    title: str
    steps: Sequence[Step]
    status: dict[str, Any]
    # What `meritory why` says about a memory that the predictor lifted; None when it lifted none.
    why: dict[str, Any] | None

    @property
    def is_active(self) -> bool:
        """Whether the predictor is heard at the end."""
        return bool(self.status["alpha"] < 1.0)


def played(week: Week) -> Told:
    """Plays on until the predictor is heard, with a bar where somebody looks."""
    from meritory.demo.later import SESSIONS_MAX, Later

    later, steps = Later(week), []
    with bar("learning") as report:
        for step in later.play():
            steps.append(step)
            report(step.number, SESSIONS_MAX)
    found = later.telling()
    why = None if found is None else week.memory.why(found[1], found[0])
    return Told(later.title, steps, week.memory.predictor_status(), why)


def plain(told: Told) -> dict[str, Any]:
    """As JSON values."""
    return {
        "title": told.title,
        "is_active": told.is_active,
        "alpha": told.status["alpha"],
        "model_version": told.status["model_version"],
        "results": [
            {**asdict(one), "at": one.at.isoformat(), "id": one.key, "trained": list(one.trained)}
            for one in told.steps
        ],
        "why": told.why,
    }


def blocks(told: Told) -> list[Block]:
    """For people: the lines that changed, what moved alpha, the trainings, and one memory."""
    changed = [
        one
        for before, one in zip((None, *told.steps), told.steps, strict=False)
        if before is None or _kind(before.status_line) != _kind(one.status_line)
    ]
    last = [] if changed[-1] is told.steps[-1] else [told.steps[-1]]
    lines = [(one.key, f"{one.at:%d %b}", one.status_line) for one in (*changed, *last)]
    moves = [
        (one.key, f"{one.alpha:g} -> {one.next_alpha:g}", one.why) for one in told.steps if one.why
    ]
    trainings = [(one.key, training) for one in told.steps for training in one.trained]
    found: list[Block] = [
        Lines(["", told.title, f"{len(told.steps)} sessions; what the agent was told:"]),
        Table(_STATUS, lines),
        Lines(["", "How alpha, the baseline's weight, moved (1: the baseline ranks alone):"]),
        Table(_MOVES, moves),
        Lines(["", "Trainings, each in a process of its own:"]),
        Table(_TRAININGS, trainings),
    ]
    if told.why is None:
        return found
    head = f"What `meritory why` says about a memory that helped in {told.why['session']}:"
    return [*found, Lines(["", head]), *why_blocks(told.why)]


def _kind(status_line: str) -> tuple[str, str]:
    """The phase of a status line, and alpha where there is one."""
    parts = status_line.strip("[]").split(" | ")
    return parts[0], next((part for part in parts if part.startswith("α")), "")
