"""`meritory demo`: play a recorded week, then sessions until the predictor is active."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, new_file
from meritory.cli.output import Answer, Block, Field, RecordView, bar, note, number, to_json
from meritory.cli.sessions import why_blocks
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    from meritory.demo.recording import Played, Step, Week

_SHOWN_PER_SESSION = 6
_HARMFUL_LABEL = -0.3
_TEXT_CHARS = 72


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 1] + "…"


_MEMORIES = RecordView(
    "0.id",
    Field("1.handle", "", show=lambda handle: f"  {handle}", style="cyan"),
    "1.candidate.rank",
    Field("rated", "rated", "1.agent_relevance_score", number("+.2f")),
    Field("judged", "judged", "1.relevance_score", number("+.2f")),
    Field("1.label", "label", show=number("+.2f")),
    Field("rule", read=lambda pair: pair[1].label_parts.get("rule")),
    Field("0.content", "memory", show=_cut, wraps=True),
)
_LEARNED = RecordView(
    "id",
    Field("access_count", "shown", show=lambda count: f"{count} x"),
    Field("usefulness", "useful", show=number(".2f")),
    Field("content", "memory", show=_cut, wraps=True),
)
_PLAYED = RecordView(
    Field("id", read="key"),
    "prompt inject candidate_count status_line",
    Field("continuity", read="score.score"),
    "score.confidence score.excluded stored forgotten",
    Field("memories", read=lambda played: [_MEMORIES.json(pair) for pair in played.results]),
)
_STATUS = RecordView(
    Field("key", "session", style="cyan"),
    Field("", "day", lambda step: f"{step.at:%d %b}"),
    Field("status_line", "status line", wraps=True),
)
_MOVES = RecordView(
    Field("key", "after", style="cyan"),
    Field("", "alpha", lambda step: f"{step.alpha:g} -> {step.next_alpha:g}"),
    Field("why", "why", wraps=True),
)
_TRAININGS = RecordView(
    Field("", "after", "0", style="cyan"),
    Field("", "training", "1", wraps=True),
)


@command("demo", "meritory demo", "meritory demo --quick", "meritory demo --keep demo.db")
@click.option("--keep", metavar="FILE", help="Keep the store in this file.")
@click.option("--quick", is_flag=True, help="Stop after the week.")
def demo(keep: str | None, quick: bool) -> Answer:
    """Play a recorded week, then sessions until the predictor is active.

    It uses a temporary store and the default settings. In each session the agent sees memories and
    rates them, the judge checks which it really used, and the next session is ranked better. After
    the week more sessions follow, until the learned ranking has proved that it is better than the
    fixed one.
    """
    from meritory.demo.recording import Week
    from meritory.settings import load_settings

    with tempfile.TemporaryDirectory(prefix="meritory-demo-") as folder, ExitStack() as stack:
        if keep == "":
            raise InputError("--keep needs a file name", hint="e.g. --keep demo.db")
        file = Path(folder) / "demo.db" if keep is None else new_file(keep)
        with bar("playing the week"):
            week = Week(file, load_settings(Path(folder), {}))
            stack.enter_context(week.memory)
            played = list(week.play())
        records = [week.memory.get(memory_id) for memory_id in week.ids.values()]
        live = [record for record in records if record.is_live]
        learned = sorted(live, key=lambda record: (-record.usefulness, record.id))
        blocks: list[Block] = [week.title, ""]
        for index, session in enumerate(played):
            blocks += _session_blocks(session, with_text=index == 0)
        blocks.append("What the week taught (every memory starts at 0.50):")
        blocks.append(_LEARNED.table([*learned[:5], *learned[-3:]]))
        plain = {
            "title": week.title,
            "results": [_PLAYED.json(session) for session in played],
            "learned": [_LEARNED.json(record) for record in learned],
        }
        answer = Answer(plain, *blocks)
        if not quick:
            answer = _with_later(answer, week)
    if keep:
        note(f"the store is kept: `meritory --store {keep} sessions` lists its sessions")
    else:
        note("that was a temporary store; yours starts with `meritory remember ...`")
    return answer


def _session_blocks(session: Played, *, with_text: bool) -> list[Block]:
    head = [f"{session.at:%a %H:%M}  {session.prompt}"]
    head += [f"  + stored: {_cut(text)}" for text in session.stored[:3]]
    if len(session.stored) > 3:
        head.append(f"  + and {len(session.stored) - 3} more")
    if with_text:
        head.append("  The text for the agent:")
        head += [f"  | {line}" for line in session.inject.splitlines()]
    # Harmful memories are shown too, wherever they rank.
    shown = [
        pair
        for index, pair in enumerate(session.results)
        if index < _SHOWN_PER_SESSION or (pair[1].label or 0.0) <= _HARMFUL_LABEL
    ]
    score = session.score
    tail = [f"  {session.candidate_count} considered, {len(session.results)} shown"]
    if score is not None and score.score is not None:
        tail[0] += f"; judge: continuity {score.score:.2f}, confidence {score.confidence:.2f}"
    tail += [f"  - forgotten by the user: {_cut(text)}" for text in session.forgotten]
    tail += [f"  {session.status_line}", ""]
    return [*head, _MEMORIES.table(shown), *tail]


def _with_later(answer: Answer, week: Week) -> Answer:
    """Add the sessions after the week; the code is 1 if the predictor does not become active."""
    from meritory.demo.recording import SESSIONS_MAX, Later

    later = Later(week)
    steps: list[Step] = []
    with bar("learning") as report:
        for step in later.play():
            steps.append(step)
            report(step.number, SESSIONS_MAX)
    lifted = later.most_lifted()
    why = None if lifted is None else week.memory.why(lifted[1], lifted[0])
    status = week.memory.predictor_status()
    is_active = bool(status["alpha"] < 1.0)
    plain: dict[str, Any] = {
        "title": later.title,
        "is_active": is_active,
        "alpha": status["alpha"],
        "model_version": status["model_version"],
        "results": [{**to_json(step), "at": step.at.isoformat(), "id": step.key} for step in steps],
        "why": why,
    }
    blocks: list[Block] = []
    if why is not None:
        head = f"`meritory why` for a memory that helped in {why['session']}:"
        blocks += ["", head, *why_blocks(why)]

    def phase(step: Step) -> tuple[str, str]:
        parts = step.status_line.strip("[]").split(" | ")
        return parts[0], next((part for part in parts if part.startswith("α")), "")

    changed = [
        step
        for before, step in zip((None, *steps), steps, strict=False)
        if before is None or phase(before) != phase(step) or step is steps[-1]
    ]
    trainings = [(step.key, training) for step in steps for training in step.trained]
    return Answer(
        {**answer.plain, "later": plain},
        *answer.blocks,
        "",
        later.title,
        f"{len(steps)} sessions; the status line for the agent:",
        _STATUS.table(changed),
        "",
        "How alpha, the baseline's weight, changed (1: only the baseline ranks):",
        _MOVES.table([step for step in steps if step.why]),
        "",
        "Trainings, each in its own process:",
        _TRAININGS.table(trainings),
        *blocks,
        code=0 if is_active else 1,
    )
