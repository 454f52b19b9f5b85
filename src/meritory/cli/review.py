"""`meritory review` and `meritory merge`: a person decides about memories, one key each."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    command,
    count_option,
    handles,
    limit_option,
    opened,
    scope_options,
)
from meritory.cli.memories import memory_table
from meritory.cli.output import (
    Answer,
    current_flags,
    flat,
    is_terminal,
    note,
    single_keys,
    to_json,
    wants_colour,
)
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.quality import REVIEW_ACTIONS, KeptText, ReviewItem
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import MemoryRecord

REVIEW_LIMIT_MAX = 500
_EMPTY = "nothing to review"
_QUESTIONS = {
    "alike": "Do these say the same?",
    "newer": "Two values of one claim?",
    "unsure": "Perhaps two values of one claim?",
    "proposal": "Should this bind the agent?",
    "contested": "Is this right?",
}
# The keys of a terminal; the first letter of an action, but for `undo` and `quit`.
_KEYS = {action[0]: action for action in REVIEW_ACTIONS}
_WORDS = {
    "merge": "merge",
    "newer": "newer wins",
    "keep": "keep both",
    "confirm": "confirm",
    "reject": "reject",
    "forget": "forget",
}
_DONE = {
    "merge": "merged: {text}",
    "newer": "superseded: {text}",
    "keep": "kept both",
    "confirm": "confirmed",
    "reject": "rejected; the memory stays",
    "forget": "forgot: {text}",
}
_CTRL_C, _CTRL_D, _ESCAPE = b"\x03", b"\x04", b"\x1b"
# The bytes of an arrow or function key arrive together, even over a slow line.
_SEQUENCE_S = 0.05
keep_option = click.option(
    "--keep",
    type=click.Choice(["A", "B"], case_sensitive=False),
    help="Whose text stays: of the first or of the second. Default: the one that says more.",
)


@command("merge", "meritory merge 01kx3f9qz2 01kx4a7bn5 --keep A")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@keep_option
def merge(a: str, b: str, keep: str | None) -> Answer:
    """Merge two memories into one.

    A and B are ids. The text that says more stays, with the tags, sources and uses of both; the
    other memory is superseded by it. `meritory undo` of either takes it back.
    """
    with opened() as memory:
        record = memory.merge(a, b, _kept(keep))
        names = handles(memory, [record.id])
    note(f"`meritory undo {names[record.id]}` takes it back")
    plain = {"id": record.id, "memory": record_to_dict(record)}
    return Answer(plain, memory_table([record], names))


@command(
    "review",
    "meritory review",
    "meritory review --list --limit 10",
    "meritory review merge 01kx3f9qz2 01kx4a7bn5",
)
@click.argument("action", required=False, type=click.Choice(REVIEW_ACTIONS))
@click.argument("ids", metavar="ID", nargs=-1)
@click.option("--list", "as_list", is_flag=True, help="List the items and exit.")
@limit_option(50, REVIEW_LIMIT_MAX, "How many items to list at most.")
@count_option("--offset", 0, 1_000_000, "How many items of the list to leave out.", minimum=0)
@keep_option
@scope_options
def review(
    action: str | None, ids: tuple[str, ...], as_list: bool, keep: str | None, **options: Any
) -> Answer:
    """Answer questions about memories that only you can answer.

    Pairs that look like duplicates or contradictions, proposed pins and constraints, and memories
    that reports disagree about; the most used ones come first. On a terminal each answer is one
    key. Otherwise the items are listed, and ACTION with the ids of an item answers it: merge, newer
    (the newer one wins) and keep (both) take two ids; confirm, reject and forget take one.
    """
    limit, offset = options.pop("limit"), options.pop("offset")
    if action is not None:
        if as_list:
            raise InputError("an action and --list were given", hint="choose one")
        return _act(action, ids, _kept(keep))
    if keep is not None:
        raise InputError("--keep is only for merge", hint="`meritory review merge A B --keep A`")
    with opened(**options) as memory:
        flags = current_flags()
        is_seen = is_terminal(sys.stdin) and is_terminal(sys.stdout)
        if is_seen and not (as_list or flags.as_json):
            return _Walk(memory).run()
        page = memory.review(limit, offset)
        names = handles(memory, (one.id for item in page.results for one in item.memories))
    plain = {"results": [_plain(item) for item in page.results], "total": page.total}
    if not page.results:
        note(_EMPTY if not page.total else f"there are only {page.total} items")
        return Answer(plain)
    last = offset + len(page.results)
    blocks = [_counted(page.total, offset + 1, last)]
    for place, item in enumerate(page.results, offset + 1):
        blocks += ["", *_lines(item, names, f"{place}. ")]
        blocks.append(f"   answers: {', '.join(item.actions)}")
    note("`meritory review ACTION ID [ID]` answers one, `meritory review` on a terminal all")
    return Answer(plain, *blocks)


def _act(action: str, ids: Sequence[str], keep: KeptText | None) -> Answer:
    """Answer one item by its ids."""
    if not ids:
        raise InputError(
            f"`{action}` needs the ids of an item", hint="`meritory review --list` shows them"
        )
    with opened() as memory:
        records = memory.decide(":".join(ids), action, keep)
        names = handles(memory, (record.id for record in records))
    note(f"`meritory undo {names[records[0].id]}` takes it back")
    plain = {
        "results": [record_to_dict(record) for record in records],
        "undo": records[0].id,
    }
    return Answer(plain, memory_table(records, names))


def _kept(keep: str | None) -> KeptText | None:
    return None if keep is None else "a" if keep.lower() == "a" else "b"


def _plain(item: ReviewItem) -> dict[str, Any]:
    """Return an item as JSON values."""
    plain: dict[str, Any] = to_json(item)
    return {**plain, "memories": [record_to_dict(record) for record in item.memories]}


def _counted(total: int, first: int, last: int) -> str:
    items = "1 item" if total == 1 else f"{total} items"
    return items if (first, last) == (1, total) else f"{items}, {first} to {last} shown"


def _lines(item: ReviewItem, names: Mapping[str, str], lead: str) -> list[str]:
    """Return an item for people: the question, why it is asked, and its texts with their dates."""
    uses = ((item.shown_count, "shown"), (item.found_count, "found"))
    used = ", ".join(f"{verb} {'once' if n == 1 else f'{n} times'}" for n, verb in uses if n)
    lines = [f"{lead}{_QUESTIONS[item.kind]} ({flat(item.why)})"]
    lines += [
        f"   {line}"
        for place, one in enumerate(item.memories, 1)
        for line in _memory_lines(one, names[one.id], place if len(item.memories) > 1 else 0)
    ]
    return [*lines, f"   {used}"] if used else lines


def _memory_lines(record: MemoryRecord, name: str, place: int) -> list[str]:
    since = record.valid_from or record.created_at
    facts = [f"{since:%Y-%m-%d}", record.provenance]
    facts += [f"project {record.project}"] if record.project else []
    facts += ["pinned"] if record.pinned else []
    facts += ["constraint"] if record.kind == "constraint" else []
    lead = f"{place}  " if place else ""
    return [f"{lead}{name}  {', '.join(facts)}", f"{' ' * len(lead)}{flat(record.content)}"]


# -- on a terminal ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Walk:
    """Shows one item after the other and takes a key for each."""

    memory: Memory
    skipped: set[str] = field(default_factory=set)
    # The items that were answered, and the memories whose undo takes the answers back.
    answered: list[tuple[str, str]] = field(default_factory=list)
    # Shown before all others: the answer was taken back.
    first: str | None = None

    def run(self) -> Answer:
        """Show all items until there is none left or the user quits."""
        with single_keys():
            try:
                while self._ask_next():
                    pass
            except KeyboardInterrupt:
                _print("")
        left = self.memory.review(1).total
        decided = len(self.answered)
        plain = {"decided": decided, "left": left}
        if decided:
            note(f"`meritory undo {self.answered[-1][1]}` takes the last answer back")
        if not decided and not left:
            return Answer(plain, _EMPTY)
        return Answer(plain, f"{decided} decided, {left} left")

    def _ask_next(self) -> bool:
        """Ask about the next item; return whether to go on."""
        page = self.memory.review(REVIEW_LIMIT_MAX)
        items = [item for item in page.results if item.id not in self.skipped]
        if not items:
            return False
        item = next((one for one in items if one.id == self.first), items[0])
        names = handles(self.memory, (record.id for record in item.memories))
        _drop_keys()
        _print("", *_lines(item, names, ""))
        keys = [f"{action[0]} {_WORDS[action]}" for action in item.actions]
        keys += ["s skip", *(["u undo"] if self.answered else []), "q quit"]
        left = "1 item" if len(items) == 1 else f"{len(items)} items"
        _print(f"   {', '.join(keys)}  [{left}]", is_dim=True)
        while (key := _read_key()) not in ("q", ""):
            action = _KEYS.get(key)
            if key == "s":
                self.skipped.add(item.id)
            elif key == "u" and self.answered:
                self._undo()
            elif action in item.actions:
                if not self._answer(item, str(action)):
                    continue
            else:
                _drop_keys()
                _print(f"   {key!r} is no answer here: {', '.join(keys)}", is_dim=True)
                continue
            return True
        return False

    def _answer(self, item: ReviewItem, action: str) -> bool:
        """Answer an item; return False if the user did not say which memory is meant."""
        target = item.id
        if action == "forget" and len(item.memories) == 2:
            _drop_keys()
            _print("   forget 1 or 2? any other key: neither", is_dim=True)
            which = _read_key()
            if which not in ("1", "2"):
                _print("   neither was forgotten")
                return False
            target = item.memories[int(which) - 1].id
        self.first = None
        try:
            changed = self.memory.decide(target, action)
        except MeritoryError as error:
            # Another program may have changed it since it was shown.
            _print(f"   {error}")
            self.skipped.add(item.id)
            return True
        self.answered.append((item.id, changed[0].id))
        _print(f"   {_DONE[action].format(text=flat(changed[0].content))}")
        return True

    def _undo(self) -> None:
        """Take the last answer back."""
        self.first, memory_id = self.answered.pop()
        try:
            self.memory.undo(memory_id)
        except MeritoryError as error:
            _print(f"   {error}")
        else:
            _print("   taken back")


def _print(*lines: str, is_dim: bool = False) -> None:
    for line in lines:
        click.secho(shown(line), dim=is_dim or None, color=wants_colour())


def _drop_keys() -> None:
    """Drop keys that were pressed before a question was printed, and the rest of a paste."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _read_key() -> str:
    """Return the next key, empty at the end."""
    source = sys.stdin.fileno()
    pressed = os.read(source, 64)
    if pressed.startswith(_ESCAPE):
        # An arrow or function key: its letters are no answers.
        while select.select([source], [], [], _SEQUENCE_S)[0] and os.read(source, 64):
            pass
        return "Escape"
    if pressed in (b"", _CTRL_C, _CTRL_D):
        return ""
    return pressed.decode("utf-8", "replace")
