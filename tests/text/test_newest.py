"""The newest of short notes about one subject comes first."""

from __future__ import annotations

from meritory.text.newest import (
    MAX_PLACES,
    NOTE_LIMIT_CHARS,
    READ_COUNT,
    Note,
    newest_first,
    subject_words,
)

OLD = Note(0.9, 10.0, "The ferry to Hiiumaa costs 12 euros.")
NEW = Note(0.8, 30.0, "The ferry to Hiiumaa costs 14 euros.")


def other(score: float, since_days: float = 40.0) -> Note:
    """Return a note about another subject."""
    return Note(score, since_days, "Lunch orders close at ten in the morning.")


def test_a_newer_value_comes_before_the_one_that_matched_better() -> None:
    assert newest_first([OLD, NEW]) == [1, 0]
    assert newest_first([NEW, OLD]) == [0, 1]


def test_notes_between_the_two_keep_their_order() -> None:
    assert newest_first([OLD, other(0.85), NEW]) == [2, 0, 1]


def test_of_three_values_the_newest_is_first() -> None:
    newest = Note(0.7, 50.0, "The ferry to Hiiumaa costs 15 euros now.")
    assert newest_first([OLD, NEW, newest]) == [2, 1, 0]
    assert newest_first([NEW, OLD, newest]) == [2, 0, 1]


def test_another_subject_keeps_its_place() -> None:
    assert newest_first([OLD, other(0.8)]) == [0, 1]


def test_notes_of_one_day_keep_their_order() -> None:
    assert newest_first([OLD, NEW._replace(since_days=10.9)]) == [0, 1]


def test_a_note_that_hardly_answers_keeps_its_place() -> None:
    assert newest_first([OLD, NEW._replace(score=0.2)]) == [0, 1]


def test_a_note_passes_few_others() -> None:
    between = [other(0.85) for _ in range(MAX_PLACES)]
    assert newest_first([OLD, *between[1:], NEW])[0] == MAX_PLACES
    assert newest_first([OLD, *between, NEW])[0] == 0


def test_only_the_best_results_are_read() -> None:
    before = [other(1.0) for _ in range(READ_COUNT)]
    assert newest_first([*before, OLD, NEW])[-2:] == [READ_COUNT, READ_COUNT + 1]


def test_longer_texts_have_no_one_subject() -> None:
    long = "The ferry to Hiiumaa costs 14 euros" + ", and it is often late" * 6
    assert len(long) >= NOTE_LIMIT_CHARS
    assert subject_words(long) == frozenset()
    assert newest_first([OLD, NEW._replace(text=long)]) == [0, 1]


def test_no_notes_have_no_order() -> None:
    assert newest_first([]) == []


def test_chinese_characters_count_as_words() -> None:
    old = Note(0.9, 10.0, "渡轮票价是十二欧元。")
    new = Note(0.8, 30.0, "渡轮票价是十四欧元。")
    assert newest_first([old, new]) == [1, 0]
    assert newest_first([old, new._replace(text="午餐请在十点前预订")]) == [0, 1]
