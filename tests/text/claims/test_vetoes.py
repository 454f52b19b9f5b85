"""A change of value, person, polarity or scope that is planted in a paraphrase keeps both texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meritory.text.claims.compare import compare
from meritory.text.claims.reading import read_claim

NAMES = ("Rosa", "Emil", "Vera", "Paul", "Mila")
THINGS = ("invoices", "reports", "servers", "tickets", "windows")
VERBS = (("checks", "checked"), ("reviews", "reviewed"), ("closes", "closed"))
PLACES = ("in Kiel", "in Rome", "on Monday", "after lunch", "with care")
PLANTED = (
    lambda text: text.replace("4", "7"),
    lambda text: text.replace("Anna", "Hanna"),
    lambda text: text.replace("/srv/app", "/srv/api"),
    lambda text: text.replace(" in staging", " in production"),
    lambda text: text.replace(" in staging", ""),
    lambda text: text.replace("The ", "Some ", 1),
    lambda text: text.replace("The ", "Only the ", 1),
    lambda text: f"{text[:-1]}?",
    lambda text: f"{text[:-1]} if it rains.",
    lambda text: f"{text[:-1]}, except on Sundays.",
    lambda text: text.replace(" hours", " days"),
    lambda text: text.replace(" before ", " after "),
)
MARKED = (
    "The log of Anna in /srv/app is rotated every 4 hours before the backup in staging.",
    "The log of Anna in /srv/app is rotated before the backup in staging every 4 hours.",
    "Anna's log in /srv/app is rotated every four hours before the backup in staging.",
)
NEGATIONS = (
    ("sends", "does not send"),
    ("sends", "never sends"),
    ("sends", "may send"),
    ("sends", "should send"),
    ("sends", "will send"),
    ("sends", "used to send"),
    ("sends", "sent"),
)
VOCABULARY = """
    user i we anna likes tea not must the my a in on is 3 and or never every `x` team berlin
"""
WORDS = st.sampled_from(VOCABULARY.split())


@st.composite
def paraphrases(draw: st.DrawFn) -> tuple[str, str]:
    """Return one claim in the active and in the passive voice, its parts in any order."""
    name, thing, place = draw(st.sampled_from(NAMES)), draw(st.sampled_from(THINGS)), ""
    verb, participle = draw(st.sampled_from(VERBS))
    count = draw(st.integers(2, 99))
    place = draw(st.sampled_from(PLACES))
    active = f"{name} {verb} {count} {thing} {place}."
    passive = f"{count} {thing} are {participle} by {name} {place}."
    return active, passive


@given(paraphrases())
def test_a_paraphrase_is_merged_in_both_orders(pair: tuple[str, str]) -> None:
    assert compare(*pair).relation == "merge"
    assert compare(*pair[::-1]).relation == "merge"


@given(paraphrases(), st.data())
def test_another_value_in_a_paraphrase_is_never_merged(
    pair: tuple[str, str], data: st.DataObject
) -> None:
    one, other = pair
    name, _, count, thing, *_ = one.split()
    old, new = data.draw(
        st.sampled_from(
            [
                (name, "Zoe"),
                (thing, "bicycles"),
                (count, str(int(count) + 1)),
                (count, f"about {count}"),
                (f"{count} ", ""),
                (f" {thing}", f" old {thing}"),
                (thing, f"{thing} and mails"),
                (".", " again."),
                (".", " unless Bob is away."),
                (".", "?"),
            ]
        )
    )
    changed = other.replace(old, new, 1)
    assert changed != other
    assert compare(one, changed).relation != "merge"
    assert compare(changed, one).relation != "merge"


@given(st.sampled_from(MARKED), st.sampled_from(MARKED), st.sampled_from(PLANTED))
def test_a_planted_change_is_never_merged(one: str, other: str, plant: object) -> None:
    changed = plant(other)  # type: ignore[operator]
    if changed != other:
        assert compare(one, changed).relation != "merge"
        assert compare(changed, one).relation != "merge"


@given(st.sampled_from(NEGATIONS), st.sampled_from(["Rosa", "The parser", "Our team"]))
def test_polarity_modality_and_tense_are_never_merged(pair: tuple[str, str], who: str) -> None:
    said, other = pair
    old, new = f"{who} {said} the mail", f"{who} {other} the mail"
    assert compare(old, new).relation != "merge"
    assert compare(new, old).relation != "merge"


@given(st.lists(WORDS, min_size=1, max_size=9).map(" ".join))
def test_the_normal_form_of_a_normal_form_is_its_own(text: str) -> None:
    def read_again(keys: tuple[str, ...]) -> tuple[str, ...]:
        return read_claim(" ".join(keys).replace(" 's", "'s"), "en").keys

    # The first reading may leave what is no sentence, such as "i never likes".
    keys = read_again(read_claim(text, "en").keys)
    assert read_again(keys) == keys
