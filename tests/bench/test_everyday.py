"""The everyday bench: the shape of its labels, what it reads from a store, and its control."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from bench.everyday_cases import (
    EXPECTED,
    HALVES,
    LABELLINGS,
    LANGUAGES,
    NEAR,
    QUESTION_KINDS,
    Pair,
    Question,
    read_pairs,
    read_questions,
)
from bench.everyday_pairs import RELATIONS, PairOutcome
from bench.everyday_questions import Answer

from bench import everyday, everyday_pairs, everyday_questions

# The least number of pairs in one half, for English and for each of the other languages.
MIN_PAIRS = {"same": (65, 9), "update": (55, 9), "newer": (30, 4), "other": (130, 11)}
MIN_QUESTIONS = (65, 7)
CASES = (
    Pair("en", "repeated", "same", "The gym is on Elm Street.", "The gym is on Elm Street."),
    Pair("en", "topic", "other", "The gym is on Elm Street.", "Rosa likes strong tea."),
)


def test_the_labels_hold_allowed_values_and_enough_of_each() -> None:
    for half in HALVES:
        counts = Counter((pair.language, pair.expected) for pair in read_pairs(half))
        assert set(counts) == {(one, kind) for one in LANGUAGES for kind in EXPECTED}
        for (language, expected), count in counts.items():
            assert count >= MIN_PAIRS[expected][language != "en"], (half, language, expected)
        asked = Counter(question.language for question in read_questions(half))
        assert set(asked) == set(LANGUAGES)
        for language, count in asked.items():
            assert count >= MIN_QUESTIONS[language != "en"], (half, language)
        kinds = {(one.language, one.kind) for one in read_questions(half)}
        # Events and lists are in the tune half only.
        wanted = QUESTION_KINDS if half == "tune" else ("current", "past")
        assert kinds == {(one, kind) for one in LANGUAGES for kind in wanted}


def test_no_case_is_there_twice_and_the_halves_are_alike() -> None:
    pairs = [pair for half in HALVES for pair in read_pairs(half)]
    texts = [frozenset((pair.first.casefold(), pair.second.casefold())) for pair in pairs]
    assert len(texts) == len(set(texts))
    assert all(pair.first != pair.second for pair in pairs)
    questions = [question for half in HALVES for question in read_questions(half)]
    asked = [(one.language, one.text.casefold()) for one in questions]
    assert len(asked) == len(set(asked)) and all(one.old != one.new for one in questions)
    sizes = [
        Counter((pair.expected, pair.language) for pair in read_pairs(half)) for half in HALVES
    ]
    # The tune half has further pairs, which no text of the report half was written beside.
    assert all(sizes[0][group] - sizes[1][group] >= -1 for group in sizes[1])
    # Texts of a question must not be those of a pair, which fill the same store.
    stored = {text for pair in pairs for text in (pair.first, pair.second)}
    assert stored.isdisjoint(text for one in questions for text in (one.old, one.new))


def test_a_line_without_all_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tune_pairs.tsv").write_text("# columns\nen\tnow\tupdate\tOnly one text.\n")
    with pytest.raises(ValueError, match=r"tune_pairs\.tsv line 2"):
        read_pairs("tune", tmp_path)


def test_relations_are_read_from_the_store() -> None:
    relations = [one.relation for one in everyday_pairs.outcomes(CASES)]
    assert relations == ["merged", "apart"]
    with everyday_pairs.empty_store() as (memory, _):
        (first,) = memory.remember_many(["The depot opens at seven."])
        assert first.memory is not None
        item = {"content": "Opening time: eight.", "supersedes": first.memory.id}
        (second,) = memory.remember_many([item])
        assert everyday_pairs.relation(memory, first, second) == "superseded"
        (refused,) = memory.remember_many([""])
        assert everyday_pairs.relation(memory, first, refused) == "apart"


def test_a_linked_pair_is_a_chain_and_in_one_direction() -> None:
    with everyday_pairs.empty_store() as (memory, _):
        items = [{"content": text, "on_similar": "keep"} for text in ("Two trams.", "Six trams.")]
        first, second = memory.remember_many(items)
        assert everyday_pairs.relation(memory, first, second) == "apart"
        everyday_questions._link(memory, [first], [second])
        assert everyday_pairs.relation(memory, first, second) == "chained"
        assert everyday_pairs.relation(memory, second, first) == "apart"


def test_an_unsure_link_is_told_from_a_chain() -> None:
    texts = ("I've collected 14 beer mats since spring", "I now have 19 beer mats in my collection")
    pair = Pair("en", "made", "newer", *texts)
    (made,) = everyday_pairs.outcomes([pair])
    assert made.relation == "unsure"
    wrong = [replace(made, pair=replace(pair, expected="other"))] * 9
    found = [check.is_met for check in everyday_pairs.chains_of(wrong, "made").checks]
    assert found == [True, False]
    sure = [replace(one, relation="chained") for one in wrong]
    found = [check.is_met for check in everyday_pairs.chains_of(sure, "made").checks]
    assert found == [False, True]


def test_linked_texts_are_answered_by_the_newer_one() -> None:
    question = Question(
        "en", "current", "Who feeds Momo?", "Ada feeds Momo.", "Momo eats at Raj's."
    )
    unlinked = everyday_questions.answers([question], CASES)
    assert all(one.old is not None for one in unlinked)
    linked = everyday_questions.answers([question], CASES, is_linked=True)
    assert [(one.old, one.is_newest_first) for one in linked] == [(None, True)] * 2


def test_answers_name_the_places_of_both_texts() -> None:
    question = Question("en", "current", "Who feeds Momo?", "Ada feeds Momo.", "Raj feeds Momo.")
    found = everyday_questions.answers([question], CASES)
    assert [one.way for one in found] == ["recall", "injection"]
    assert all(one.is_found for one in found)
    # A text that was never stored is not found.
    planted = Answer(question, "recall", 3, None)
    assert planted.is_old_alone and not planted.is_newest_first
    assert Answer(question, "recall", 1, 0).is_newest_first
    assert not Answer(question, "recall", 0, 1).is_newest_first


def test_what_is_right_depends_on_what_is_asked_for() -> None:
    places = ((0, 1), (1, 0), (0, None), (None, 0))
    right = {"current": {(1, 0), (None, 0)}, "past": {(0, 1), (1, 0), (0, None)}}
    right |= {"event": {(0, 1), (0, None)}, "list": {(0, 1), (1, 0)}}
    for kind in QUESTION_KINDS:
        question = Question("en", kind, "Who feeds Momo?", "Ada feeds Momo.", "Raj feeds Momo.")
        found = {at for at in places if Answer(question, "recall", *at).is_right}
        assert found == right[kind], kind


def test_events_and_lists_have_a_bar_only_where_they_are_asked() -> None:
    def checks(*kinds: str) -> dict[str, bool]:
        asked = [Question("en", kind, "Who fed Momo?", "Ada did.", "Raj did.") for kind in kinds]
        made = [Answer(one, "recall", 1, 0) for one in asked]
        return {
            check.name: check.is_met for check in everyday_questions.report_of(made, "x").checks
        }

    name = "recall: events and lists"
    assert name not in checks("current", "past")
    assert checks("list")[name] and not checks("event")[name]


def test_bars_are_kept_by_right_outcomes_only() -> None:
    relations = ("merged", "superseded", "apart", "apart")
    right = [
        PairOutcome(Pair("en", "made", expected, "a", "b"), relation, "stored")
        for expected, relation in zip(EXPECTED, relations, strict=True)
    ]
    assert all(check.is_met for check in everyday_pairs.report_of(right, "made").checks)
    for place, relation in ((0, "apart"), (1, "apart"), (2, "merged"), (3, "superseded")):
        wrong = list(right)
        wrong[place] = PairOutcome(right[place].pair, relation, "stored")
        report = everyday_pairs.report_of(wrong, "made")
        assert not all(check.is_met for check in report.checks), right[place].pair.expected
        assert len(list(everyday_pairs.misses(wrong))) == 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_near_pairs_have_a_row_and_no_bar(relation: str) -> None:
    near = PairOutcome(Pair("en", "made", NEAR, "a", "b"), relation, "stored")
    right = PairOutcome(Pair("en", "made", "same", "a", "b"), "merged", "stored")
    assert everyday_pairs.report_of([right, near], "made") == everyday_pairs.report_of(
        [right], "made"
    )
    assert everyday_pairs.report_of_all([near], "made").checks[0].figure == 0
    (row,) = (
        line.split() for line in everyday_pairs.table([near]) if line.startswith("near    all")
    )
    assert row[2] == "1" and row[3 + 2 * RELATIONS.index(relation)] == "1"
    # Neither text says that the other no longer holds.
    assert len(list(everyday_pairs.misses([near]))) == (relation == "superseded")


def test_the_control_goes_red() -> None:
    # Enough of each relation that shuffled labels cannot fit by chance.
    made = [
        PairOutcome(Pair("en", "made", "same", f"a{number}", f"b{number}"), relation, "stored")
        for relation in ("merged", "superseded", "apart")
        for number in range(8)
    ]
    assert all(check.is_met for check in everyday_pairs.control(made, "made").checks)
    # Without a merge or a supersede no bar of theirs can be missed, which the control reports.
    idle = [one for one in made if one.relation == "apart"]
    assert not all(check.is_met for check in everyday_pairs.control(idle, "made").checks)
    questions = read_questions("tune")
    answers = [Answer(one, way, 0, 1) for one in questions for way in everyday_questions.WAYS]
    assert all(check.is_met for check in everyday_questions.control(answers, "made").checks)


def test_misses_of_the_report_half_are_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        everyday.main(["--half", "report", "--list-misses"])
    assert ended.value.code == 2 and "only counted" in capsys.readouterr().err


@pytest.mark.parametrize(("labelling", "name"), [("first", "tune first"), ("audited", "tune")])
def test_the_control_runs_on_the_labels(
    labelling: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--control", "--section", "pairs", "--half", "tune", "--labels", labelling]
    assert everyday.main(arguments) == 0
    lines = [line for line in capsys.readouterr().out.split("\n") if line.startswith("ok")]
    assert len(lines) == 3 and all(f"pairs {name}  " in line for line in lines)


def test_both_labellings_have_the_same_texts() -> None:
    for half in HALVES:
        first, audited = (everyday.pairs_of(half, labelling) for labelling in LABELLINGS)
        assert [(one.first, one.second) for one in first] == [
            (one.first, one.second) for one in audited
        ]
        changed = [pair for pair, now in zip(first, audited, strict=True) if pair != now]
        assert NEAR not in {pair.expected for pair in first}
        assert {pair.source for pair in changed}.isdisjoint({"hand"})
        assert {pair.expected for pair in changed} <= {"same", "update"}
