"""Section pairs of bench.everyday: what becomes of two texts that a person stores."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.authority import Report
from bench.everyday_cases import EXPECTED, NEAR, Pair
from meritory import Memory
from meritory.domain.memory import MemoryRecord, WriteResult
from meritory.domain.world import SeededWorld
from meritory.settings import load_settings

SECTION = "pairs"
# unsure: linked as a chain of which both stay visible.
RELATIONS = ("merged", "superseded", "chained", "unsure", "apart")
LINKED = ("superseded", "chained", "unsure")
DAYS_BETWEEN = 20
MIN_MERGED, MIN_SUPERSEDED, MIN_LINKED, MAX_WRONG_SUPERSEDES = 0.70, 0.75, 0.90, 0.005
# A sure chain hides the older text; an unsure one only moves it behind the newer one.
MAX_WRONG_CHAINS, MAX_WRONG_UNSURE = 0.01, 0.10
# Fewer contrasts would say little about a share of wrong merges that must be 0.
MIN_CONTRASTS = 400
SEED = 19
# The relation that each expected outcome asks for, for the control.
_FITTING = {
    "merged": "same",
    "superseded": "update",
    "chained": "newer",
    "unsure": "newer",
    "apart": "other",
}


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """A pair, the relation of its two memories in the store, and the result of the second."""

    pair: Pair
    relation: str
    outcome: str
    reason: str = ""
    cosine: float | None = None


class Calendar:
    """The clock of a store; a second passes each time it is read."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the present moment."""
        self.now += timedelta(seconds=1)
        return self.now


@contextmanager
def empty_store() -> Iterator[tuple[Memory, Calendar]]:
    """Yield a store of its own with the settings as shipped, and its clock."""
    calendar = Calendar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory = Memory(
            folder / "everyday.db",
            settings=load_settings(folder, {}),
            clock=SeededWorld(SEED, calendar),
            background=False,
        )
        with memory:
            yield memory, calendar


# -- outcomes ---------------------------------------------------------------------------------


def outcomes(pairs: Sequence[Pair]) -> list[PairOutcome]:
    """Return what becomes of each pair; a pair has a user of its own, so no pair meets another."""
    with empty_store() as (memory, calendar):
        views = [memory.view(user=f"u{number}") for number in range(len(pairs))]
        cases = list(zip(views, pairs, strict=True))
        firsts = [view.remember_many([pair.first])[0] for view, pair in cases]
        calendar.now += timedelta(days=DAYS_BETWEEN)
        seconds = [view.remember_many([pair.second])[0] for view, pair in cases]
        return [
            PairOutcome(
                pair,
                relation(view, first, second),
                second.outcome,
                second.reason,
                second.cosine,
            )
            for (view, pair), first, second in zip(cases, firsts, seconds, strict=True)
        ]


def relation(memory: Memory, first: WriteResult, second: WriteResult) -> str:
    """Return the relation of two stored texts, one of RELATIONS."""
    if first.memory is None or second.memory is None:
        return "apart"
    if second.memory.id == first.memory.id or second.outcome in ("merged", "duplicate"):
        return "merged"
    old = memory.get(first.memory.id)
    if old.superseded_by == second.memory.id:
        return "superseded"
    return linked(memory, old, second.memory)


def linked(memory: Memory, old: MemoryRecord, new: MemoryRecord) -> str:
    """Return how two memories are linked as the older and the newer value of one claim."""
    links = memory.services.store.links_of(memory.scope.user, [old.id])
    values = [link for link in links if link.newer_id == new.id]
    if any(link.is_chain for link in values):
        return "chained"
    return "unsure" if any(link.is_unsure for link in values) else "apart"


# -- figures ----------------------------------------------------------------------------------


def report_of(made: Sequence[PairOutcome], name: str) -> Report:
    """Return the shares of the expected outcomes beside their bars."""
    same, update, newer, other = (
        [one for one in made if one.pair.expected == expected] for expected in EXPECTED
    )
    report = Report(name)
    _at_least(report, "paraphrases merged", same, MIN_MERGED, "merged")
    _at_least(report, "updates superseded", update, MIN_SUPERSEDED, "superseded")
    _at_least(report, "updates superseded or chained", update, MIN_LINKED, *LINKED)
    contrasts = [*newer, *other]
    merged = _count(contrasts, "merged")
    report.at_most("wrong merges", merged, 0, f"of {len(contrasts)} contrasts")
    superseded = _count(other, "superseded")
    share = superseded / len(other) if other else 0.0
    note = f"{superseded} of {len(other)}"
    report.at_most("wrong supersedes", round(share, 4), MAX_WRONG_SUPERSEDES, note)
    return report


def chains_of(made: Sequence[PairOutcome], name: str) -> Report:
    """Return the shares of two claims that are linked as one, beside their bars."""
    other = [one for one in made if one.pair.expected == "other"]
    report = Report(name)
    bars = {"chained": ("sure", MAX_WRONG_CHAINS), "unsure": ("unsure", MAX_WRONG_UNSURE)}
    for relation, (word, bar) in bars.items():
        count = _count(other, relation)
        share = round(count / len(other), 4) if other else 0.0
        report.at_most(f"wrong chains, {word}", share, bar, f"{count} of {len(other)}")
    return report


def report_of_all(made: Sequence[PairOutcome], name: str) -> Report:
    """Return the wrong merges of all halves together, and whether the contrasts are enough."""
    contrasts = [one for one in made if one.pair.expected in ("newer", "other")]
    report = Report(name)
    report.at_least("contrasts", len(contrasts), MIN_CONTRASTS)
    report.at_most("wrong merges", _count(contrasts, "merged"), 0, f"of {len(contrasts)}")
    return report


def _at_least(
    report: Report, name: str, made: Sequence[PairOutcome], bar: float, *relations: str
) -> None:
    hits = _count(made, *relations)
    share = hits / len(made) if made else 0.0
    report.at_least(name, round(share, 3), bar, f"{hits} of {len(made)}")


def _count(made: Iterable[PairOutcome], *relations: str) -> int:
    return sum(one.relation in relations for one in made)


def table(made: Sequence[PairOutcome]) -> list[str]:
    """Return the relations by expected outcome, and by source, language and class within it."""
    title = f"{'':8}{'':28}{'pairs':>6}"
    rows = [title + "".join(f"{name:>17}" for name in (*RELATIONS, "not stored"))]
    keys: tuple[Callable[[Pair], str], ...] = (
        lambda pair: "all",
        lambda pair: pair.source,
        lambda pair: pair.language,
        lambda pair: pair.kind,
    )
    for expected in (*EXPECTED, NEAR):
        within = [one for one in made if one.pair.expected == expected]
        for key in keys:
            names = sorted({key(one.pair) for one in within})
            for name in names:
                rows.append(_row(expected, name, [one for one in within if key(one.pair) == name]))
    return rows


def _row(expected: str, name: str, made: Sequence[PairOutcome]) -> str:
    counts = Counter(one.relation for one in made)
    counts["not stored"] = sum(one.outcome in ("refused", "floored") for one in made)
    cells = "".join(
        f"{counts[column]:>10} {counts[column] / len(made):>6.3f}"
        for column in (*RELATIONS, "not stored")
    )
    return f"{expected:8}{name:28}{len(made):>6}{cells}"


def misses(made: Sequence[PairOutcome]) -> Iterator[str]:
    """Yield a line for each pair whose relation is not an expected one."""
    allowed = {
        "same": ("merged",),
        "update": LINKED,
        "newer": (*LINKED, "apart"),
        "other": ("chained", "unsure", "apart"),
        NEAR: ("merged", "chained", "unsure", "apart"),
    }
    for one in made:
        pair = one.pair
        if one.relation not in allowed[pair.expected]:
            near = "" if one.cosine is None else f" {one.cosine:.2f}"
            place = f"{pair.expected} -> {one.relation} | {one.outcome}{near} {one.reason}".rstrip()
            yield f"{place} | {pair.language} {pair.kind} | {pair.first} | {pair.second}"


# -- control ----------------------------------------------------------------------------------


def control(made: Sequence[PairOutcome], name: str) -> Report:
    """Return how many bars are missed by labels that fit what happened, and by shuffled ones.

    Contrasts that are all linked must miss the bars of wrong chains.
    """
    fitting = [
        replace(one, pair=replace(one.pair, expected=_FITTING[one.relation])) for one in made
    ]
    expected = [one.pair.expected for one in fitting]
    random.Random(SEED).shuffle(expected)
    shuffled = [
        replace(one, pair=replace(one.pair, expected=label))
        for one, label in zip(fitting, expected, strict=True)
    ]
    report = Report(name)
    kept, missed = report_of(fitting, name), report_of(shuffled, name)
    report.at_most("control: bars missed by labels that fit", _missed(kept), 0)
    report.at_least("control: bars missed by shuffled labels", _missed(missed), len(missed.checks))
    chains = [
        replace(
            one,
            pair=replace(one.pair, expected="other"),
            relation="unsure" if place % 2 else "chained",
        )
        for place, one in enumerate(made)
    ]
    wrong = chains_of(chains, name)
    report.at_least("control: bars missed by contrasts that are linked", _missed(wrong), 2)
    return report


def _missed(report: Report) -> int:
    return sum(not check.is_met for check in report.checks)
