"""The second half of the demo: how the predictor came to be heard, for people and programs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import note
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.cli.render import bar
from meritory.cli.why import why_blocks
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    from meritory.demo.recording import Played, Step, Week
    from meritory.domain.memory import MemoryRecord
    from meritory.domain.session import SessionMemory


_STATUS = (Column("session", "cyan"), Column("day"), Column("status line", wraps=True))
_MOVES = (Column("after", "cyan"), Column("alpha"), Column("why", wraps=True))
_TRAININGS = (Column("after", "cyan"), Column("training", wraps=True))


@dataclass(frozen=True, slots=True)
class DemoStory:
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


def played(week: Week) -> DemoStory:
    """Plays on until the predictor is heard, with a bar where somebody looks."""
    from meritory.demo.recording import SESSIONS_MAX, Later

    later, steps = Later(week), []
    with bar("learning") as report:
        for step in later.play():
            steps.append(step)
            report(step.number, SESSIONS_MAX)
    found = later.telling()
    why = None if found is None else week.memory.why(found[1], found[0])
    return DemoStory(later.title, steps, week.memory.predictor_status(), why)


def plain(told: DemoStory) -> dict[str, Any]:
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


def blocks(told: DemoStory) -> list[Block]:
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


_COLUMNS = (
    Column("", "cyan"),
    Column("rated"),
    Column("judged"),
    Column("label"),
    Column("memory", wraps=True),
)
_LEARNED = (Column("shown"), Column("useful"), Column("memory", wraps=True))
_SHOWN_PER_SESSION = 6
_TEXT_CHARS = 72


@command(
    "demo",
    """
    meritory demo
    meritory demo --quick
    meritory demo --keep demo.db
    """,
)
@click.option("--keep", metavar="FILE", help="Keep the store under this name to look around in.")
@click.option("--quick", is_flag=True, help="Stop after the week.")
def demo(keep: str | None, quick: bool) -> Answer:
    """Play a recorded week, then go on until the predictor is heard.

    Nothing of yours is touched, and all settings are the defaults. Each session is shown
    memories, the agent in it rates them, the judge looks at what was really used, and the next
    session is served better for it. After the week more sessions follow, until the learned
    ranking has proved that it is better than the fixed one.
    """
    with tempfile.TemporaryDirectory(prefix="meritory-demo-") as folder, ExitStack() as held:
        file = Path(folder) / "demo.db" if keep is None else _kept(keep)
        with bar("playing the week"):
            week = held.enter_context(closing(_week(file, Path(folder))))
            played = list(week.play())
        learned = _learned(week)
        answer = Answer(_plain(week, played, learned), _blocks(week, played, learned))
        if not quick:
            answer = _with_later(answer, week)
    if keep:
        note(f"the store is kept: `meritory --store {keep} sessions` looks into it")
    else:
        note("that was a throw-away store; yours starts with `meritory remember ...`")
    return answer


def _week(file: Path, home: Path) -> Week:
    from meritory.demo.recording import Week
    from meritory.settings import load_settings

    return Week(file, load_settings(home, {}))


def _with_later(answer: Answer, week: Week) -> Answer:
    """With the sessions after the week; ends with 1 should the predictor not be heard."""
    told = played(week)
    return Answer(
        {**answer.plain, "later": plain(told)},
        [*answer.blocks, *blocks(told)],
        0 if told.is_active else 1,
    )


def _kept(name: str) -> Path:
    path = Path(os.path.abspath(os.path.expanduser(name)))
    if not name:
        raise InputError("--keep needs a name", hint="e.g. --keep demo.db")
    if path.exists():
        raise InputError(f"{path} is there already", hint="choose another name")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", hint="create it first")
    return path


def _learned(week: Week) -> list[MemoryRecord]:
    records = [week.memory.get(memory_id) for memory_id in week.ids.values()]
    live = [record for record in records if record.is_live]
    return sorted(live, key=lambda record: (-record.usefulness, record.id))


def _blocks(week: Week, played: list[Played], learned: list[MemoryRecord]) -> list[Block]:
    blocks: list[Block] = [Lines([week.title, ""])]
    for number, session in enumerate(played):
        blocks += _session_blocks(session, with_text=number == 0)
    rows = [
        (f"{record.access_count} x", f"{record.usefulness:.2f}", _brief(record.content))
        for record in (*learned[:5], *learned[-3:])
    ]
    blocks.append(Lines(["What the week taught (0.50 is where every memory begins):"]))
    blocks.append(Table(_LEARNED, rows))
    return blocks


def _session_blocks(session: Played, *, with_text: bool) -> list[Block]:
    head = [f"{session.at:%a %H:%M}  {session.prompt}"]
    head += [f"  + stored: {_brief(text)}" for text in session.stored[:3]]
    if len(session.stored) > 3:
        head.append(f"  + and {len(session.stored) - 3} more")
    blocks: list[Block] = [Lines(head)]
    if with_text:
        told = [f"  | {line}" for line in session.inject.splitlines()]
        blocks.append(Lines(["  What the agent is shown:", *told]))
    shown = session.results[:_SHOWN_PER_SESSION]
    # What did harm is the point of a session as much as what helped.
    shown += tuple(pair for pair in session.results[_SHOWN_PER_SESSION:] if _did_harm(pair[1]))
    blocks.append(Table(_COLUMNS, [_row(record, one) for record, one in shown]))
    score = session.score
    tail = [f"  {session.candidate_count} considered, {len(session.results)} shown"]
    if score is not None and score.score is not None:
        tail[0] += f"; judge: continuity {score.score:.2f}, confidence {score.confidence:.2f}"
    tail += [f"  - forgotten by the user: {_brief(text)}" for text in session.forgotten]
    return [*blocks, Lines([*tail, f"  {session.status_line}", ""])]


def _did_harm(one: SessionMemory) -> bool:
    return one.label is not None and one.label <= -0.3


def _row(record: MemoryRecord, one: SessionMemory) -> tuple[str, ...]:
    return (
        f"  {one.handle}",
        _number(one.agent_relevance_score),
        _number(one.relevance_score),
        _number(one.label),
        _brief(record.content),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _brief(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 1] + "…"


def _plain(week: Week, played: list[Played], learned: list[MemoryRecord]) -> dict[str, Any]:
    return {
        "title": week.title,
        "results": [_session_plain(session) for session in played],
        "learned": [
            {
                "id": record.id,
                "content": record.content,
                "usefulness": record.usefulness,
                "access_count": record.access_count,
            }
            for record in learned
        ],
    }


def _session_plain(session: Played) -> dict[str, Any]:
    score = session.score
    return {
        "id": session.key,
        "prompt": session.prompt,
        "inject": session.inject,
        "candidate_count": session.candidate_count,
        "status_line": session.status_line,
        "continuity": score.score if score else None,
        "confidence": score.confidence if score else None,
        "excluded": score.excluded if score else None,
        "stored": list(session.stored),
        "forgotten": list(session.forgotten),
        "memories": [
            {
                "id": record.id,
                "handle": one.handle,
                "content": record.content,
                "rank": one.candidate.rank,
                "rated": one.agent_relevance_score,
                "judged": one.relevance_score,
                "label": one.label,
                "rule": one.label_parts.get("rule"),
            }
            for record, one in session.results
        ],
    }
