"""The newest of short notes about one subject comes first."""

from __future__ import annotations

import numpy as np

from meritory.text import newest
from meritory.text.newest import (
    MAX_PLACES,
    NOTE_LIMIT_CHARS,
    READ_COUNT,
    TURN_LIMIT_CHARS,
    VERY_NEAR,
    Note,
    amounts,
    subject_words,
)

OLD = Note(0.9, 10.0, "The ferry to Hiiumaa costs 12 euros.")
NEW = Note(0.8, 30.0, "The ferry to Hiiumaa costs 14 euros.")
TICKET = Note(0.8, 30.0, "Ferry tickets went up on Monday: 14 euros.")


def newest_first(notes: list[Note], cosine: float | None = None) -> list[int]:
    """Return the order of notes that all have this cosine, or of notes without vectors."""
    if cosine is None:
        return newest.newest_first(notes, np.zeros((len(notes), 0), np.float32))
    # Each vector has one part that all share, and one of its own.
    own = np.eye(len(notes)) * np.sqrt(1.0 - cosine)
    shared = np.full((len(notes), 1), np.sqrt(cosine))
    return newest.newest_first(notes, np.hstack([own, shared]).astype(np.float32))


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


def test_notes_of_near_meaning_need_few_common_words() -> None:
    assert newest_first([OLD, TICKET], cosine=0.5) == [1, 0]
    assert newest_first([OLD, TICKET], cosine=0.1) == [0, 1]
    # Some are needed: texts of one kind are near each other as well.
    assert newest_first([OLD, other(0.8)], cosine=0.9) == [0, 1]


def test_common_words_are_not_enough_where_the_meaning_is_far() -> None:
    storm = Note(0.8, 30.0, "The ferry to Hiiumaa stays in port in a storm from the west.")
    assert newest_first([OLD, storm]) == [1, 0]
    assert newest_first([OLD, storm], cosine=0.1) == [0, 1]


LONG = "I took the ferry to Hiiumaa, it costs 14 euros now" + ", and the coffee was cold" * 6


def test_longer_texts_need_an_amount_of_the_same_thing() -> None:
    assert NOTE_LIMIT_CHARS <= len(LONG) < TURN_LIMIT_CHARS
    assert newest_first([OLD, NEW._replace(text=LONG)]) == [1, 0]
    assert newest_first([OLD, NEW._replace(text=LONG.replace("14 euros", "more"))]) == [0, 1]
    assert newest_first([OLD, NEW._replace(text=LONG * 2)]) == [0, 1]


def test_a_longer_text_passes_only_the_one_before_it() -> None:
    long = NEW._replace(text=LONG)
    assert newest_first([other(0.95), OLD, long]) == [0, 2, 1]
    assert newest_first([OLD, other(0.85), long]) == [0, 1, 2]


def test_amounts_are_named_by_what_follows_the_number() -> None:
    assert amounts("I have 1,240 words in the deck") & amounts("850 words so far") == {"word"}
    assert amounts("zwölf Hühner") & amounts("Wir haben 9 Hühner") == {"hühn"}
    assert amounts("It costs $12.99/month") & amounts("now $15") == {"$"}
    assert amounts("Coverage is 71%") & amounts("at 48 % of the lines") == {"%"}
    assert amounts("one of the hens") == frozenset()


def test_a_question_at_the_end_of_a_note_states_nothing() -> None:
    asked = "I counted 14 plants, what can I do about the greenfly on the roses?"
    assert subject_words(asked) == subject_words("I counted 14 plants")
    assert subject_words("Where is the ferry?") == frozenset()


def test_notes_that_are_very_near_change_places_from_afar() -> None:
    notes = [OLD, *(other(0.85) for _ in range(2 * MAX_PLACES)), NEW]
    vectors = np.zeros((len(notes), 2), np.float32)
    vectors[:, 1] = 1.0
    vectors[[0, -1]] = (1.0, 0.0)
    assert newest.newest_first(notes, vectors)[0] == 0
    found = newest.newest_first(notes, vectors, reach=len(notes), nearness=VERY_NEAR)
    assert found[:2] == [len(notes) - 1, 0]


def test_no_notes_have_no_order() -> None:
    assert newest_first([]) == []


def test_chinese_characters_count_as_words() -> None:
    old = Note(0.9, 10.0, "渡轮票价是十二欧元。")
    new = Note(0.8, 30.0, "渡轮票价是十四欧元。")
    assert newest_first([old, new]) == [1, 0]
    assert newest_first([old, new._replace(text="午餐请在十点前预订")]) == [0, 1]
