"""Explicit prohibitions in a user's text: of an action in general, or for one session."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from meritory.domain.rule import Trigger
from meritory.text.commands.actions import ToolAction, stems
from meritory.text.commands.triggers import fits
from meritory.text.language import pattern, read_language

SAID_LIMIT_CHARS: Final = 200
_TEXT_LIMIT_CHARS: Final = 20_000
_SENTENCE: Final = re.compile(r"[^.!?\n;]+")
_MASKED: Final = re.compile("\x01+")
_CLAUSE_END: Final = re.compile(r"[,:]")
_FILE: Final = "en/commands"
_pattern: Final = partial(pattern, _FILE)
_LIFTS: Final[dict[str, tuple[str, ...]]] = {
    "push": ("no_push", "local_only"),
    "commit": ("no_commit", "local_only"),
    "publish": ("no_publish", "local_only"),
    "deploy": ("no_publish", "local_only"),
    "delete": ("no_delete",),
    "install": ("no_install",),
    "use": ("no_network",),
    **dict.fromkeys(("edit", "touch", "change", "modify"), ("no_edit",)),
}


def _shell(*names: str) -> tuple[Trigger, ...]:
    """Return the triggers for the lists of commands in `data/language/shell.toml`."""
    lists = read_language("shell")["ruled_out"]
    return tuple(Trigger("shell", tuple(line.split())) for name in names for line in lists[name])


# The actions that each kind of constraint rules out.
_RULED_OUT: Final = {
    "local_only": _shell("pushes", "publishes"),
    "no_push": _shell("pushes"),
    "no_commit": _shell("commits"),
    "no_publish": _shell("publishes"),
    "no_delete": _shell("deletes"),
    "no_install": _shell("installs"),
    "no_network": (*_shell("network", "pushes"), Trigger("web", ("*",))),
}
KINDS: Final = (*_RULED_OUT, "no_edit")
# The kind of constraint that each pattern states.
_STATED_KINDS: Final = {**{kind: kind for kind in KINDS}, "no_push_to": "no_push"}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule for one session, and the sentence that stated it."""

    kind: str
    said: str
    argument: str = ""


def stated_constraints(text: str) -> tuple[Constraint, ...]:
    """Return what a text forbids for the session, each kind once."""
    return _constraints(text, lambda _sentence, _match: True)


def ordered_constraints(text: str, bare: str) -> tuple[Constraint, ...]:
    """Return what a sentence of a prompt orders the agent not to do.

    `bare` is the sentence with quoted words masked. Quoted names count, quoted sentences do not.
    """

    def unmasked(match: re.Match[str]) -> str:
        quoted = text[match.start() : match.end()]
        return " " * len(quoted) if re.search(r"\s", quoted) else quoted

    found = _constraints(_MASKED.sub(unmasked, bare), _is_order)
    return tuple(replace(one, said=text[:SAID_LIMIT_CHARS]) for one in found)


def _is_order(sentence: str, match: re.Match[str]) -> bool:
    before = sentence[: match.start()]
    is_modal = match[0].lower().startswith(("must", "should", "may"))
    if _pattern("clause_of_others").search(before):
        return False
    is_to_agent = is_modal and _pattern("modal_order").search(before)
    return bool(is_to_agent or _pattern("order").search(before))


def _constraints(
    text: str, is_meant: Callable[[str, re.Match[str]], bool]
) -> tuple[Constraint, ...]:
    constraints: dict[tuple[str, str], Constraint] = {}
    for sentence in _sentences(text):
        said = sentence[:SAID_LIMIT_CHARS]
        for key, kind in _STATED_KINDS.items():
            for match in _pattern(key).finditer(sentence):
                if _is_whole(sentence, match) and is_meant(sentence, match):
                    name = match.groupdict().get("name", "")
                    constraints.setdefault((kind, name), Constraint(kind, said, name))
    return tuple(constraints.values())


def _is_whole(sentence: str, match: re.Match[str]) -> bool:
    """Return whether a sentence forbids something altogether, not only under a condition."""
    rest = sentence[match.end() : match.end() + SAID_LIMIT_CHARS]
    if match[0].lower().startswith("no ") and _pattern("report_rest").match(rest):
        return False
    if not _pattern("alternatives").search(rest):
        # A condition at the end of a list applies to all of it; otherwise it ends at a comma.
        rest = _CLAUSE_END.split(rest, 1)[0]
    return not (_pattern("condition").search(rest) or _pattern("condition").match(sentence))


def lifted_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of constraints that a text takes back."""
    verbs = [
        match["verb"].lower()
        for sentence in _sentences(text)
        for match in _pattern("lifted").finditer(sentence)
        if not _pattern("no_permission").search(sentence[: match.start()])
    ]
    return tuple(dict.fromkeys(kind for verb in verbs for kind in _LIFTS[verb]))


def _sentences(text: str) -> list[str]:
    """Return the sentences that may forbid something; a dot inside a name does not end one."""
    masked = re.sub(r"\.(?=\S)", "\0", text[:_TEXT_LIMIT_CHARS].replace("\u2019", "'"))
    # Each sentence with the mark that ends it.
    spans = [(match.start(), match.end() + 1) for match in _SENTENCE.finditer(masked)]
    sentences = [masked[start:end].replace("\0", ".").strip(" .!;\n") for start, end in spans]
    report = _pattern("report")
    return [sentence for sentence in sentences if sentence and not report.search(sentence)]


def is_ruled_out(kind: str, argument: str, action: ToolAction) -> bool:
    """Return whether a constraint of a session rules out an action."""
    if kind == "no_edit":
        paths = (argument, f"*/{argument}", f"{argument}/*", f"*/{argument}/*")
        return any(fits(Trigger("edit", (path,)), action) for path in paths)
    if argument:
        branches = (argument, f"+{argument}", f"*:{argument}", f"*/{argument}")
        return any(fits(Trigger("shell", ("git", "push", name)), action) for name in branches)
    return any(fits(trigger, action) for trigger in _RULED_OUT.get(kind, ()))


def claim(kind: str, argument: str) -> str:
    """Return a constraint as a sentence that can be stored as a memory."""
    if kind == "no_edit":
        return f"Do not edit {argument}"
    sentence = str(read_language(_FILE)["claims"][kind])
    return f"{sentence} to {argument}" if argument else sentence


def forbids(text: str, words: Collection[str]) -> bool:
    """Return whether a text explicitly forbids an action with these stems."""
    return any(
        any(_is_whole(sentence, match) for match in _pattern("forbidding").finditer(sentence))
        and len(stems(sentence) & set(words)) >= 2
        for sentence in _sentences(text)
    )
