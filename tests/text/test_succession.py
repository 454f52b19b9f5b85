"""What the model of unsure chains reads of two texts."""

from __future__ import annotations

import pytest

from meritory.text.succession import NAMES, READ_CHARS, features, sight

OLD = "I have a deadline of May 3 for the draft of the leaflet"
NEW = "My new deadline for the leaflet is May 17, so I moved the proofreading"


def read(old: str, new: str, cosine: float = 0.5) -> dict[str, float]:
    return dict(zip(NAMES, features(sight(old), sight(new), cosine), strict=True))


def test_every_feature_has_a_name_and_a_finite_number() -> None:
    for pair in ((OLD, NEW), ("", ""), ("?", "123"), ("a" * 9_000, NEW)):
        found = read(*pair)
        assert len(found) == len(NAMES)
        assert all(abs(value) < 100 for value in found.values())


def test_the_order_of_two_texts_matters() -> None:
    forth, back = read(OLD, NEW), read(NEW, OLD)
    assert (forth["only new changed"], back["only new changed"]) == (1, 0)
    assert forth["ratio"] == pytest.approx(-back["ratio"])
    assert forth["shared"] == back["shared"] > 0


def test_numbers_count_with_the_words_around_them() -> None:
    found = read(OLD, NEW)
    assert (found["both numbers"], found["equal numbers"], found["other number"]) == (1, 0, 1)
    assert found["both months"] == 1
    apart = read("The tent weighs 3 kilos", "Omar has 5 goats")
    assert (apart["both numbers"], apart["other number"]) == (1, 0)


@pytest.mark.parametrize(
    "text",
    [
        "The call was rescheduled",
        "Der Termin wurde verschoben",
        "Le rendez-vous est reporté",
        "La cita fue aplazado",
        "会议推迟了",
    ],
)
def test_words_of_change_of_five_languages_are_seen(text: str) -> None:
    assert sight(text).changed_count == 1


def test_names_negations_and_the_speaker_are_seen() -> None:
    found = read("Priya keeps the keys", "Olga doesn't keep the keys of Priya")
    assert found["other first name"] == 1
    assert (found["one negated"], found["new negated"]) == (1, 1)
    assert read("I swim", "my pool")["both I"] == 1
    assert read("我游泳", "我的泳池")["both I"] == 1


def test_chinese_is_read_by_characters() -> None:
    assert read("仓库在三楼", "仓库现在在五楼")["shared"] > 1


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert sight("x " * READ_CHARS + "deadline").stems == sight("x " * READ_CHARS).stems
