"""`meritory predictor calibrate`: a person's word beside the judge's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import is_terminal, note, opened
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.domain.errors import InputError, MeritoryError, NotFound

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.predictor import Rated


OFFERED, OFFERED_MIN, OFFERED_MAX = 20, 20, 50
_CONTEXT_CHARS = 200
_ITEMS = (
    Column("id", "cyan"),
    Column("the session was about", wraps=True),
    Column("memory", wraps=True),
)


@dataclass(frozen=True, slots=True)
class _Item:
    """One question to a person; what the judge said is not told before the answer."""

    rated: Rated
    content: str
    context: str

    @property
    def id(self) -> str:
        """How a rating names it."""
        return f"{self.rated.session_key}/{self.rated.memory_id}"


@command(
    "calibrate",
    """meritory predictor calibrate
    meritory predictor calibrate --ask
    meritory predictor calibrate --rate 7f3c2a/01JCA2=0.5""",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="ID=SCORE",
    help="How much a memory helped, -1 to 1; as often as you like.",
)
@click.option("--ask", is_flag=True, help="Ask for one after the other.")
@click.option(
    "--count",
    type=click.IntRange(OFFERED_MIN, OFFERED_MAX),
    default=OFFERED,
    show_default=True,
    help="How many to offer.",
)
def calibrate(rates: tuple[str, ...], ask: bool, count: int) -> Answer:
    """Check the judge: rate memories that it judged, without seeing what it said.

    Nothing is learned from these ratings. -1 means that a memory misled, 0 that it did not help,
    1 that it was decisive.
    """
    if rates and ask:
        raise InputError("--rate and --ask do not go together", hint="use one of them")
    from meritory.engine.predictor import admin, status
    from meritory.engine.predictor.state import known_state

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        if rates:
            found = admin.calibrate_rate(services, user, _parsed(memory, rates))
            return Answer({**found, "results": []}, [Lines([_summary(found)])])
        items = _items(memory, admin.calibrate_offer(services, user, count))
        if ask:
            admin.calibrate_rate(services, user, _asked(items))
            items = []
        found = status.calibration(services, user, known_state(services, user))
    if not items and not ask:
        note("there is nothing to rate: it takes sessions that a judge was sure of")
    return Answer({**found, "results": [_plain(one) for one in items]}, _blocks(items, found))


def _items(memory: Memory, offered: Sequence[Rated]) -> list[_Item]:
    return [
        _Item(one, _content(memory, one.memory_id), _context(memory, one.session_key))
        for one in offered
    ]


def _content(memory: Memory, memory_id: str) -> str:
    try:
        return memory.get(memory_id).content
    except MeritoryError:
        return "(erased)"


def _context(memory: Memory, key: str) -> str:
    return memory.services.store.session(memory.scope.user, key).context[:_CONTEXT_CHARS]


def _plain(item: _Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "session_key": item.rated.session_key,
        "memory_id": item.rated.memory_id,
        "content": item.content,
        "context": item.context,
    }


def _blocks(items: Sequence[_Item], found: Mapping[str, Any]) -> list[Block]:
    rows = [(one.id, one.context, one.content) for one in items]
    told = Lines([_summary(found)])
    return [Table(_ITEMS, rows), Lines([""]), told] if rows else [told]


def _summary(found: Mapping[str, Any]) -> str:
    if not found["rated"]:
        return f"{found['asked']} offered, none rated yet"
    flag = ": too far apart" if found["is_flagged"] else ""
    mean = found["mean_absolute_error"]
    return f"{found['rated']} of {found['asked']} rated, mean error {mean:.2f}{flag}"


def _parsed(memory: Memory, rates: Sequence[str]) -> dict[tuple[str, str], float]:
    """What `ID=SCORE` says; an id may be shortened as long as it names one that was offered."""
    from meritory.engine.predictor.status import CALIBRATION_READ

    offered = memory.services.store.calibration(memory.scope.user, CALIBRATION_READ)
    known = {f"{one.session_key}/{one.memory_id}": one for one in offered}
    found: dict[tuple[str, str], float] = {}
    for text in rates:
        name, equals, score = text.rpartition("=")
        try:
            value = float(score)
        except ValueError:
            equals = ""
            value = 0.0
        if not equals or not name:
            raise InputError(
                f"{text[:80]!r} is no rating", hint="write ID=SCORE, e.g. 7f3c2a/01JCA2=0.5"
            )
        one = known[_only(name, known)]
        found[one.session_key, one.memory_id] = value
    return found


def _only(name: str, known: Mapping[str, Rated]) -> str:
    fitting = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(f"{name[:80]!r} is the start of several ids", hint="give more of it")
    raise NotFound(
        f"nobody was asked about {name[:80]!r}",
        hint="`meritory predictor calibrate` shows what is asked",
    )


def _asked(items: Sequence[_Item]) -> dict[tuple[str, str], float]:
    """Asks for one after the other until the answers end; what was said so far is kept."""
    from meritory.text.normalize import shown

    found: dict[tuple[str, str], float] = {}
    try:
        for number, item in enumerate(items, start=1):
            click.echo(f"\n{number}/{len(items)}  {shown(item.context, one_line=True)}", err=True)
            click.echo(f"  {shown(item.content, one_line=True)}", err=True)
            answer: float | None = click.prompt(
                "How much did it help (-1..1, empty: skip)",
                default="",
                show_default=False,
                value_proc=_score,
                err=True,
            )
            if answer is not None:
                found[item.rated.session_key, item.rated.memory_id] = answer
    except click.Abort:
        if not found and not is_terminal(sys.stdin):
            raise InputError("nobody is there to ask", hint="use --rate ID=SCORE") from None
    return found


def _score(text: str) -> float | None:
    """What was typed as a rating; asked again when it is none."""
    if not text.strip():
        return None
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not -1.0 <= score <= 1.0:
        raise click.BadParameter("-1 misled, 0 did not help, 1 was decisive")
    return score
