"""The quality figures in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meritory.cli.gate import audited_text

if TYPE_CHECKING:
    from meritory.flow.quality import QualityFigures, Share, Worth


def quality_pairs(found: QualityFigures) -> list[tuple[str, str]]:
    """Every figure with its name."""
    return [
        ("gate triggered", _share_text(found.gate_trigger, "writes")),
        ("wrong merges", audited_text(found.false_merges)),
        ("redundant additions", _redundant_text(found)),
        ("shown below the floor", _below_text(found)),
        *_worth_pairs(found),
        ("extraction", _counts(found.extraction)),
        ("refused, kept aside", str(found.refusals)),
        ("found by searches", f"{found.retrievals} times"),
        ("upkeep", _counts(found.janitor)),
    ]


def _share_text(share: Share, of_what: str) -> str:
    if share.rate is None:
        return f"no {of_what} yet"
    return f"{share.rate:.1%} of {share.total} {of_what}"


def _redundant_text(found: QualityFigures) -> str:
    one = found.redundant
    if one.per_week is None:
        return f"not known; {one.additions} additions this week"
    more = "or more " if one.is_cut else ""
    return (
        f"{one.per_week:g} a week: {one.sample.count} of {one.sample.total} tried, "
        f"of {one.additions} {more}additions"
    )


def _below_text(found: QualityFigures) -> str:
    one = found.below_floor
    if one.per_turn is None:
        return "nothing was shown yet"
    return f"{one.per_turn:.2f} a turn: {one.memories} of {one.shown} memories in {one.turns} turns"


def _worth_pairs(found: QualityFigures) -> Iterator[tuple[str, str]]:
    """Raw, so that a low weight cannot hide a source that is of no use."""
    for title, worths in (("", found.by_provenance), ("by ", found.by_extractor)):
        for one in worths:
            yield f"helped, {title}{one.name}", _worth_text(one)


def _worth_text(one: Worth) -> str:
    share = one.helped
    if share.rate is None or one.mean_label is None:
        return "none was judged yet"
    return (
        f"{share.rate:.0%} of {share.total} judged "
        f"({share.low:.0%} to {share.high:.0%}), mean label {one.mean_label:+.2f}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{many} {name.replace('_', ' ')}" for name, many in counts.items()) or "none"
