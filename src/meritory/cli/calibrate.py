"""`meritory predictor calibrate`: compare ratings of the user with those of the judge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from meritory.cli.command import command, note
from meritory.cli.context import opened
from meritory.cli.output import Answer, Block, Field, Lines, RecordView, is_terminal
from meritory.cli.sessions import content_of
from meritory.domain.errors import InputError, NotFound
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.predictor import Rated

OFFERED, OFFERED_MIN, OFFERED_MAX = 20, 20, 50
_CONTEXT_CHARS = 200
Ratings = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class CalibrationItem:
    """One memory to rate; the judge's rating is not shown before the answer."""

    rated: Rated
    content: str
    context: str

    @property
    def id(self) -> str:
        """The name of the item in `--rate`."""
        return f"{self.rated.session_key}/{self.rated.memory_id}"


_ITEMS: RecordView[CalibrationItem] = RecordView(
    Field("id", "id", style="cyan"),
    Field("session_key", read=lambda item: item.rated.session_key),
    Field("memory_id", read=lambda item: item.rated.memory_id),
    Field("context", "session context", wraps=True),
    Field("content", "memory", wraps=True),
)


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
    help="How much a memory helped, -1 to 1; may be repeated.",
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
    """Check the judge: rate memories that it judged, without seeing its rating.

    The predictor does not learn from these ratings. -1 means that a memory misled, 0 that it did
    not help, 1 that it was decisive.
    """
    if rates and ask:
        raise InputError("--rate and --ask exclude each other", hint="use one of them")
    from meritory.engine.predictor import admin
    from meritory.engine.predictor.drift import calibration
    from meritory.engine.predictor.state import known_state

    items: list[CalibrationItem] = []
    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        if rates:
            result = admin.calibrate_rate(services, user, _parsed(memory, rates))
        else:
            for rated in admin.calibrate_offer(services, user, count):
                context = services.store.session(user, rated.session_key).context
                text = content_of(memory, rated.memory_id)
                items.append(CalibrationItem(rated, text, context[:_CONTEXT_CHARS]))
            if ask:
                admin.calibrate_rate(services, user, _asked(items))
                items = []
            result = calibration(services.store, user, known_state(services, user))
    if not items and not ask and not rates:
        note("there is nothing to rate yet: the judge must first be sure about some sessions")
    plain = {**result, "results": [_ITEMS.json(item) for item in items]}
    blocks: list[Block] = [_ITEMS.table(items), Lines([""])] if items else []
    summary = f"{result['asked']} offered, none rated yet"
    if result["rated"]:
        flag = ": too far apart" if result["is_flagged"] else ""
        mean = result["mean_absolute_error"]
        summary = f"{result['rated']} of {result['asked']} rated, mean error {mean:.2f}{flag}"
    return Answer(plain, [*blocks, Lines([summary])])


def _parsed(memory: Memory, rates: Sequence[str]) -> Ratings:
    """Parse `ID=SCORE`; an id may be shortened as long as it names one offered item."""
    from meritory.engine.predictor.drift import CALIBRATION_READ

    offered = memory.services.store.calibration(memory.scope.user, CALIBRATION_READ)
    by_name = {f"{rated.session_key}/{rated.memory_id}": rated for rated in offered}
    ratings: Ratings = {}
    for text in rates:
        name, equals, score = text.rpartition("=")
        try:
            value = float(score)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(
                f"{text[:80]!r} is not a rating", hint="write ID=SCORE, e.g. 7f3c2a/01JCA2=0.5"
            )
        matches = [name] if name in by_name else [key for key in by_name if key.startswith(name)]
        if len(matches) > 1:
            raise InputError(f"several ids start with {name[:80]!r}", hint="give more of it")
        if not matches:
            raise NotFound(
                f"{name[:80]!r} was not offered for rating",
                hint="`meritory predictor calibrate` lists the offered items",
            )
        rated = by_name[matches[0]]
        ratings[rated.session_key, rated.memory_id] = value
    return ratings


def _asked(items: Sequence[CalibrationItem]) -> Ratings:
    """Ask for one rating after the other; keep those given before the answers end."""
    ratings: Ratings = {}
    try:
        for index, item in enumerate(items, start=1):
            click.echo(f"\n{index}/{len(items)}  {shown(item.context, one_line=True)}", err=True)
            click.echo(f"  {shown(item.content, one_line=True)}", err=True)
            answer: float | None = click.prompt(
                "How much did it help (-1..1, empty: skip)",
                default="",
                show_default=False,
                value_proc=_score,
                err=True,
            )
            if answer is not None:
                ratings[item.rated.session_key, item.rated.memory_id] = answer
    except click.Abort:
        if not ratings and not is_terminal(sys.stdin):
            raise InputError("stdin is not a terminal", hint="use --rate ID=SCORE") from None
    return ratings


def _score(text: str) -> float | None:
    """Parse a typed rating; click asks again when it is invalid."""
    if not text.strip():
        return None
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not -1.0 <= score <= 1.0:
        raise click.BadParameter("-1 misled, 0 did not help, 1 was decisive")
    return score
