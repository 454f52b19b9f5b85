"""The bench of what a session leaves: its labels, its figures, and a control that goes red."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from bench.everyday_extraction import (
    CORRECTION,
    HALVES,
    KEPT,
    LANGUAGES,
    LEFT,
    Label,
    Outcome,
    Run,
    Wanted,
    bars,
    counts,
    is_corrected,
    is_met,
    met,
    misses,
    read_labels,
    report_of,
    required,
    run,
    sessions,
    shuffled,
)

from meritory.domain.memory import Kind, MemoryRecord

NEGATIVE = {"en": "never", "de": "nie", "fr": "jamais", "es": "nunca", "zh": "不"}
NOW = datetime(2026, 3, 2, tzinfo=UTC)
ALL = [label for half in HALVES for label in read_labels(half)]


def memory(content: str, kind: Kind = "preference") -> MemoryRecord:
    return MemoryRecord(id="m", content=content, kind=kind, created_at=NOW, updated_at=NOW)


def ideal(label: Label) -> list[MemoryRecord]:
    texts = [
        " ".join(NEGATIVE[label.language] if words[0] == "NOT" else words[0] for words in groups)
        for groups in (wanted.groups for wanted in label.wanted if not wanted.is_optional)
    ]
    return [memory(text) for text in texts]


def made_by(extractor: Callable[[Label], list[MemoryRecord]]) -> Run:
    return Run(
        [
            Outcome(label, tuple(extractor(label)), label.kind == CORRECTION)
            for label in read_labels("tune")
        ]
    )


def missed(made: Run) -> list[str]:
    return [check.name.split()[0] for check in bars(made).checks if not check.is_met]


def test_the_halves_have_enough_turns_of_every_language_and_kind() -> None:
    for language, turns, kept, corrections in (
        ("en", 220, 110, 35),
        *((language, 44, 20, 8) for language in LANGUAGES[1:]),
    ):
        own = [label for label in ALL if label.language == language]
        assert len(own) >= turns
        assert sum(bool(label.wanted) for label in own) >= kept
        assert sum(not label.wanted for label in own) >= kept
        assert sum(label.kind == CORRECTION for label in own) >= corrections
    sizes = [Counter((one.language, one.kind) for one in read_labels(half)) for half in HALVES]
    assert sizes[0].keys() == sizes[1].keys()
    assert {kind for _, kind in sizes[0]} == {*KEPT, *LEFT}
    # The tune half may grow, the report half stays as it is.
    assert all(sizes[0][key] >= sizes[1][key] - 1 for key in sizes[0])


def test_no_turn_is_there_twice() -> None:
    said = [" ".join(label.turn.lower().split()) for label in ALL]
    assert len(set(said)) == len(said) > 400


def test_a_turn_wants_what_it_says_and_a_correction_has_a_memory() -> None:
    for label in ALL:
        assert bool(label.wanted) == (label.kind in KEPT), label.turn
        assert not label.wanted or not all(one.is_optional for one in label.wanted), label.turn
        assert bool(label.before) or label.kind != CORRECTION, label.turn
        statement = label.turn.replace("?", ".").replace("？", "。")
        for wanted in label.wanted:
            assert is_met(wanted, label.language, statement), (wanted, label.turn)
            # The new memory says what the old one does not.
            is_old = is_met(wanted, label.language, label.before)
            assert label.kind != CORRECTION or wanted.is_optional or not is_old, label.turn


@pytest.mark.parametrize("half", HALVES)
def test_a_session_has_one_language_and_one_stored_memory_at_most(half: str) -> None:
    groups = list(sessions(read_labels("tune" if half == "tune" else "report")))
    assert sum(map(len, groups)) == len(read_labels("tune" if half == "tune" else "report"))
    assert all(3 <= len(turns) <= 6 for turns in groups)
    assert all(len({label.language for label in turns}) == 1 for turns in groups)
    assert all(sum(bool(label.before) for label in turns) <= 1 for turns in groups)
    assert all(turns[0].kind != CORRECTION for turns in groups)


def test_the_bars_tell_a_right_extractor_from_wrong_ones() -> None:
    assert missed(made_by(ideal)) == []
    assert missed(made_by(lambda label: [])) == ["stated", "stored", "corrections"]
    assert missed(shuffled(made_by(ideal))) == ["stated", "stored", "corrections"]
    assert [check.is_met for check in report_of(made_by(ideal)).checks] == [True] * 6
    everything = made_by(lambda label: [*ideal(label), memory(label.turn)])
    assert missed(everything) == ["stored"]
    binding = made_by(lambda label: [memory(one.content, "constraint") for one in ideal(label)])
    assert missed(binding) == ["constraints"]
    retiring = made_by(ideal)
    retiring.outcomes = [
        Outcome(one.label, one.stored, bool(one.label.before)) for one in retiring.outcomes
    ]
    assert missed(retiring) == ["memories"]


def test_a_lost_negation_or_value_is_no_match() -> None:
    wanted = Wanted((("Redis",), ("NOT",)))
    assert is_met(wanted, "en", "We don't use Redis")
    assert not is_met(wanted, "en", "We use Redis")
    assert not is_met(wanted, "en", "can you add a cache? we don't use Redis")
    port = Wanted((("808",), ("port", "ports")))
    assert not is_met(port, "en", "The ports are 8081")
    assert is_met(Wanted((("纯素",), ("NOT",))), "zh", "我不吃纯素")
    assert not is_met(Wanted((("lint",),)), "en", "We splint")


def test_the_product_is_seen_to_store_and_to_retire() -> None:
    nothing: tuple[Wanted, ...] = ()
    made = run(
        [
            Label("en", "chatter", nothing, "good morning!"),
            Label(
                "en", "rule", (Wanted((("linter",),)),), "Always run the linter before a commit."
            ),
            Label(
                *("en", CORRECTION, (Wanted((("8081",),)),), "No, the staging port is 8081 now."),
                before="The staging port is 8080.",
            ),
        ]
    )
    by_kind = {one.label.kind: one for one in made.outcomes}
    assert by_kind["chatter"].stored == () and not by_kind["rule"].retires
    assert all(met(by_kind["rule"], wanted) for wanted in required(by_kind["rule"]))
    assert is_corrected(by_kind[CORRECTION])
    assert made.unattributed == [] and list(misses(made)) == []
    row = next(line.split() for line in counts(made) if line.startswith(f"all  {CORRECTION}"))
    assert row == ["all", CORRECTION, "1", "1", "1", "1", "0", "1", "1"]


def test_the_control_goes_red_on_a_small_part() -> None:
    made = run(read_labels("tune")[::6])
    assert len(made.outcomes) == len(read_labels("tune")[::6])
    assert {"stated", "stored", "corrections"} <= set(missed(shuffled(made)))
