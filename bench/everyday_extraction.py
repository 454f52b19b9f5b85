"""What a finished session leaves without a language model: python -m bench.everyday_extraction.

Each row of bench/labels/everyday/spoken_{tune,report}.tsv is one turn of a user, with the memories
that it must leave (the header explains the columns). Some turns of one language make a session with
short replies between them, in a project of its own. They pass the prompt hook, the end of the
session and the background jobs on a new store. Each stored memory names the turn that it is from.
A second set by another author, fresh_{tune,report}.tsv, has real chats in its half (--set fresh).
Control: the same outcomes against the expectations of other turns must miss every bar.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from bench.authority import Report
from bench.datasets import MissingData, data_root
from bench.everyday_mined import read_ref, resolve
from meritory.api.memory import Memory
from meritory.domain.memory import MemoryRecord
from meritory.domain.world import SeededWorld
from meritory.engine import pipeline
from meritory.engine.memories.validate import PROPOSALS
from meritory.engine.sessions.prompt import PromptRequest
from meritory.settings import load_settings
from meritory.text.extract import attribution

Half = Literal["tune", "report"]
SECTION: Final = "extraction"
Texts = Literal["spoken", "fresh"]
HALVES: Final[tuple[Half, ...]] = ("tune", "report")
SETS: Final[tuple[Texts, ...]] = ("spoken", "fresh")
REF: Final = "@"
# A turn of a real chat may hold a whole file.
MAX_TURN: Final = 10_000
LABELS: Final = Path(__file__).resolve().parent / "labels" / "everyday"
LANGUAGES: Final = ("en", "de", "fr", "es", "zh")
FACTS: Final = ("fact_self", "fact_team", "fact_project")
STANDING: Final = ("preference", "rule")
CORRECTION: Final = "correction"
KEPT: Final = (*FACTS, *STANDING, CORRECTION)
LEFT: Final = ("chatter", "request", "question", "hypothetical", "pasted", "quoted", "one_off")
NOTHING: Final = "-"
NEGATION: Final = "NOT"
MIN_RECALL, MIN_PRECISION, MIN_CORRECTED = 0.8, 0.95, 0.9
SESSION_TURNS: Final = 5
KEY: Final = "s"
SEED: Final = 11
_NEGATIONS: Final = {
    "en": r"\b(?:not?|never|without|none|neither|nor|cannot)\b|n['’]t\b",
    "de": r"\b(?:nicht|kein\w*|nie|niemals|ohne)\b",
    "fr": r"\b(?:ne|pas|jamais|sans|plus|aucune?)\b|\bn['’]",
    "es": r"\b(?:no|nunca|jamás|sin|tampoco|ningun[oa]?|ningún)\b",
    "zh": "[不没无别勿]",
}
_QUESTION: Final = re.compile(r"[?？]")
# What an agent says after a turn, and what it says before the user corrects a memory.
_REPLIES: Final = {
    "en": (("OK, that is done.", "I have had a look at it.", "Here you are."), "I assumed: "),
    "de": (("Gut, das ist erledigt.", "Ich habe es mir angesehen.", "Bitte sehr."), "Angenommen: "),
    "fr": (("C'est fait.", "J'ai regardé.", "Voilà."), "J'ai supposé : "),
    "es": (("Listo.", "Ya lo he mirado.", "Aquí lo tienes."), "He supuesto: "),
    "zh": (("好的，已经完成。", "我看过了。", "给你。"), "我的假设是："),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One memory that a turn must leave, or with `is_optional` may leave.

    It must have one word of each group.
    """

    groups: tuple[tuple[str, ...], ...]
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """One turn, the memories that it must leave, and the memory that was stored before it."""

    language: str
    kind: str
    wanted: tuple[Wanted, ...]
    turn: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A turn and the memories that name it as their source.

    `retires` is whether the memory stored before is gone, and was replaced by this turn.
    """

    label: Label
    stored: tuple[MemoryRecord, ...] = ()
    retires: bool = False


@dataclass(slots=True)
class Run:
    """The outcomes of one half, and the stored memories that no turn of a user is the source of."""

    outcomes: list[Outcome] = field(default_factory=list)
    unattributed: list[MemoryRecord] = field(default_factory=list)

    @property
    def stored(self) -> list[MemoryRecord]:
        """Return every memory that the sessions added."""
        return [one for each in self.outcomes for one in each.stored] + self.unattributed


# -- labels -----------------------------------------------------------------------------------


def read_labels(half: Half, folder: Path = LABELS, texts: Texts = "spoken") -> list[Label]:
    """Return the labels of one half; turns of a data set that is not here are left out."""
    labels, lost = [], 0
    for line in (folder / f"{texts}_{half}.tsv").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            try:
                labels.append(_label(line.split("\t")))
            except MissingData:
                lost += 1
    if lost:
        print(f"{lost} turns are of data sets that are not here", file=sys.stderr)
    return labels


def _label(row: Sequence[str]) -> Label:
    language, kind, expect, turn, *before = row
    wanted = () if expect == NOTHING else tuple(map(_wanted, expect.split(" && ")))
    if turn.startswith(REF):
        text = resolve(read_ref(turn.removeprefix(REF), MAX_TURN), data_root())
    else:
        text = turn.replace("\\n", "\n")
    return Label(language, kind, wanted, text, "".join(before))


def _wanted(text: str) -> Wanted:
    groups = tuple(tuple(words.split("/")) for words in text.removeprefix("?").split("|"))
    return Wanted(groups, text.startswith("?"))


@cache
def _word(word: str, language: str) -> re.Pattern[str]:
    """Return the pattern of a word, which may have another ending in a language with spaces."""
    if word == NEGATION:
        return re.compile(_NEGATIONS[language], re.IGNORECASE)
    start = r"(?<!\w)" if language != "zh" else r"(?<![0-9A-Za-z])"
    end = r"(?!\d)" if word[-1].isdigit() else ""
    return re.compile(start + re.escape(word) + end, re.IGNORECASE)


def is_met(wanted: Wanted, language: str, text: str) -> bool:
    """Return whether a text has a word of every group, and no question of its turn."""
    return _QUESTION.search(text) is None and all(
        any(_word(word, language).search(text) for word in words) for words in wanted.groups
    )


# -- sessions ---------------------------------------------------------------------------------


def sessions(labels: Sequence[Label]) -> Iterator[list[Label]]:
    """Yield the turns of each session: one language, different kinds, one stored memory at most."""
    for language in LANGUAGES:
        own = [label for label in labels if label.language == language]
        # Turns with a stored memory come first, so that each session gets one of them at most.
        own.sort(key=lambda label: (not label.before, (*KEPT, *LEFT).index(label.kind)))
        known = sum(bool(label.before) for label in own)
        count = max(known, -(-len(own) // SESSION_TURNS))
        for number in range(count):
            turns = own[number::count]
            random.Random(f"{SEED}/{language}/{number}").shuffle(turns)
            # A correction answers something that the agent said.
            if turns[0].kind == CORRECTION:
                turns.append(turns.pop(0))
            yield turns


def run(labels: Sequence[Label]) -> Run:
    """Return what sessions with these turns leave in a new store."""
    result = Run()
    groups = list(sessions(labels))
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), [datetime(2026, 3, 2, 9, tzinfo=UTC)]
        memory = Memory(
            folder / "m.db",
            settings=load_settings(folder, {}),
            clock=SeededWorld(SEED, lambda: now[0]),
            background=False,
        )
        with memory:
            views = [
                memory.view(user=f"u{number}", project=f"p{number}")
                for number in range(len(groups))
            ]
            known = [_remember(*pair) for pair in zip(views, groups, strict=True)]
            now[0] += timedelta(days=7)
            for view, turns in zip(views, groups, strict=True):
                _hold_session(view, turns)
            now[0] += timedelta(hours=1)
            memory.drain()
            for view, turns, old in zip(views, groups, known, strict=True):
                _collect(result, view, turns, old)
    return result


def _remember(view: Memory, turns: Sequence[Label]) -> MemoryRecord | None:
    """Store the memory that the turns of a session are about, if they have one."""
    stored = [view.remember(label.before) for label in turns if label.before]
    return stored[0] if stored else None


def _hold_session(view: Memory, turns: Sequence[Label]) -> None:
    """Run one session as a client does: every prompt by the hook, at last the transcript."""
    session = view.session(KEY, harness="claude-code")
    transcript = []
    for number, label in enumerate(turns):
        typed = attribution.typed_words(label.turn)
        pipeline.prompt(view.services, PromptRequest(KEY, session.scope, label.turn, typed=typed))
        replies, assumed = _REPLIES[label.language]
        following = turns[number + 1] if number + 1 < len(turns) else None
        reply = replies[number % len(replies)]
        if following is not None and following.kind == CORRECTION:
            reply = assumed + following.before
        transcript += [
            {"role": "user", "text": label.turn},
            {"role": "assistant", "text": reply},
        ]
    session.end(transcript)


def _collect(result: Run, view: Memory, turns: Sequence[Label], old: MemoryRecord | None) -> None:
    """Add the outcomes of a session, and check that nothing was cut from its transcript."""
    kept = view.services.store.transcript(view.scope.user, KEY)
    if kept and [turn.text for turn in kept[::2]] != [label.turn for label in turns]:
        raise RuntimeError("the stored transcript is not the session that was held")
    records = view.page(10_000, everywhere=True, include_gone=True)
    # A turn that only repeats the memory stored before adds itself as a source, and no memory.
    added = [
        one for one in records if old is None or (one.id, one.content) != (old.id, old.content)
    ]
    by_turn: dict[int, list[MemoryRecord]] = {}
    for record in added:
        numbers = _turns_of(record)
        if not numbers:
            result.unattributed.append(record)
        for number in numbers:
            by_turn.setdefault(number, []).append(record)
    retiring = _retiring_turns(records, old)
    for number, label in enumerate(turns):
        stored = tuple(by_turn.get(2 * number, ()))
        retires = bool(label.before) and 2 * number in retiring
        result.outcomes.append(Outcome(label, stored, retires))
    result.unattributed += [one for number in by_turn if number % 2 for one in by_turn[number]]


def _turns_of(record: MemoryRecord) -> set[int]:
    sources = (source for source in record.sources if source.session_key == KEY)
    return {int(source.turn) for source in sources if source.turn is not None}


def _retiring_turns(records: Sequence[MemoryRecord], old: MemoryRecord | None) -> set[int]:
    """Return the turns that replaced a memory or its text; empty if it is as it was."""
    if old is None:
        return set()
    by_id = {record.id: record for record in records}
    current = by_id[old.id]
    if current.superseded_by is not None:
        return _turns_of(by_id[current.superseded_by])
    return _turns_of(current) if current.content != old.content else set()


# -- figures ----------------------------------------------------------------------------------


def met(outcome: Outcome, wanted: Wanted) -> bool:
    """Return whether a stored memory has the wanted words, and a kind that its label allows."""
    language, kind = outcome.label.language, outcome.label.kind
    return any(
        is_met(wanted, language, record.content) and (kind not in STANDING or _is_standing(record))
        for record in outcome.stored
    )


def _is_standing(record: MemoryRecord) -> bool:
    return record.kind == "preference" or not PROPOSALS.keys().isdisjoint(record.tags)


def required(outcome: Outcome) -> list[Wanted]:
    """Return the memories that a turn must leave."""
    return [wanted for wanted in outcome.label.wanted if not wanted.is_optional]


def is_right(outcome: Outcome, record: MemoryRecord) -> bool:
    """Return whether a memory is one that its turn must or may leave."""
    language = outcome.label.language
    return any(is_met(wanted, language, record.content) for wanted in outcome.label.wanted)


def is_corrected(outcome: Outcome) -> bool:
    """Return whether a turn retires the memory stored before and leaves the new one."""
    wanted = required(outcome)
    return outcome.retires and bool(wanted) and all(met(outcome, one) for one in wanted)


def bars(made: Run, name: str = SECTION) -> Report:
    """Return the figures of a run beside their bars."""
    facts = [
        met(outcome, wanted)
        for outcome in made.outcomes
        if outcome.label.kind in FACTS
        for wanted in required(outcome)
    ]
    right = [is_right(outcome, record) for outcome in made.outcomes for record in outcome.stored]
    right += [False] * len(made.unattributed)
    corrected = [is_corrected(one) for one in made.outcomes if one.label.kind == CORRECTION]
    report = Report(name)
    for title, hits, bar in (
        ("stated facts that are stored", facts, MIN_RECALL),
        ("stored memories that are right", right, MIN_PRECISION),
        ("corrections that replace the memory", corrected, MIN_CORRECTED),
    ):
        share = sum(hits) / len(hits) if hits else 0.0
        report.at_least(title, round(share, 3), bar, f"{sum(hits)} of {len(hits)}")
    binding = sum(record.is_binding for record in made.stored)
    report.at_most("constraints and pins without a person", binding, 0)
    kept = [one for one in made.outcomes if one.label.before and one.label.kind != CORRECTION]
    lost = sum(one.retires for one in kept)
    report.at_most("memories retired by a turn that is no correction", lost, 0, f"of {len(kept)}")
    return report


def shuffled(made: Run) -> Run:
    """Return a run whose turns have the expectations of other turns."""
    rotated = [outcome.label for outcome in made.outcomes]
    random.Random(SEED).shuffle(rotated)
    return Run(
        [
            replace(outcome, label=replace(outcome.label, wanted=label.wanted))
            for outcome, label in zip(made.outcomes, rotated, strict=True)
        ],
        made.unattributed,
    )


def report_of(made: Run) -> Report:
    """Return the figures of a run, and as a control how many bars foreign expectations keep."""
    report = bars(made)
    control = [check for check in bars(shuffled(made)).checks if check.bar.startswith(">=")]
    still_met = sum(check.is_met for check in control)
    report.at_most("control: bars kept by shuffled expectations", still_met, 0)
    return report


def measure(half: Half, texts: Texts = "spoken") -> Report:
    """Return the figures of one half, and of their control."""
    return report_of(run(read_labels(half, texts=texts)))


# -- output -----------------------------------------------------------------------------------


def counts(made: Run) -> list[str]:
    """Return a table: by language and kind, what was wanted, met, stored, wrong and retired."""
    table: dict[tuple[str, str], Counter[str]] = {}
    for outcome in made.outcomes:
        label = outcome.label
        row = Counter(
            turns=1,
            wanted=len(required(outcome)),
            met=sum(met(outcome, wanted) for wanted in required(outcome)),
            stored=len(outcome.stored),
            wrong=sum(not is_right(outcome, record) for record in outcome.stored),
            retired=outcome.retires,
        )
        if label.kind == CORRECTION:
            row["corrected"] = is_corrected(outcome)
        for key in ((label.language, label.kind), ("all", label.kind), (label.language, "all")):
            table.setdefault(key, Counter()).update(row)
    columns = ("turns", "wanted", "met", "stored", "wrong", "retired", "corrected")
    rows = [f"{'':4} {'':13}" + "".join(f"{column:>10}" for column in columns)]
    for language in (*LANGUAGES, "all"):
        for kind in (*KEPT, *LEFT, "all"):
            if (row_of := table.get((language, kind))) is not None:
                cells = "".join(f"{row_of[column]:>10}" for column in columns)
                rows.append(f"{language:4} {kind:13}{cells}")
    return [*rows, f"stored without a turn of the user: {len(made.unattributed)}"]


def misses(made: Run) -> Iterator[str]:
    """Yield a line for each turn that left too little, too much, or the old memory."""
    for outcome in made.outcomes:
        label = outcome.label
        faults = [
            "|".join("/".join(words) for words in wanted.groups)
            for wanted in required(outcome)
            if not met(outcome, wanted)
        ]
        faults += [
            f"{'stored' if is_right(outcome, record) else 'wrong'} as {record.kind}: "
            + record.content
            for record in outcome.stored
            if faults or not is_right(outcome, record)
        ]
        if bool(label.before) and outcome.retires != (label.kind == CORRECTION):
            faults.append(f"{'retired' if outcome.retires else 'still there'}: {label.before}")
        if faults:
            said = label.turn.replace("\n", " / ")
            yield f"{label.language} {label.kind}: {said}\n    " + "\n    ".join(faults)
    for record in made.unattributed:
        yield f"not from a turn of the user: {record.content}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the figures; returns 1 if the report half misses a bar."""
    parser = argparse.ArgumentParser(prog="python -m bench.everyday_extraction")
    parser.add_argument("--half", choices=[*HALVES, "both"], default="both")
    parser.add_argument("--set", choices=SETS, default="spoken", help="whose turns")
    parser.add_argument("--list-misses", action="store_true", help="list those of the tune half")
    options: Any = parser.parse_args(arguments)
    has_missed = False
    for half in HALVES if options.half == "both" else (options.half,):
        made = run(read_labels(half, texts=options.set))
        print(f"{options.set} {half} half\n" + "\n".join(counts(made)))
        for check in report_of(made).checks:
            mark = "ok  " if check.is_met else "MISS"
            has_missed |= half == "report" and not check.is_met
            print(
                f"{mark} {check.name:52} {check.figure:>7g} {check.bar:>8}  {check.note}".rstrip()
            )
        if options.list_misses and half == "tune":
            print("\n".join(misses(made)))
    return int(has_missed)


if __name__ == "__main__":
    sys.exit(main())
