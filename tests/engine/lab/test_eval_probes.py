"""Probe files: what is read, what is refused, and what makes two sets the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.api.memory import Memory
from meritory.domain.errors import InputError
from meritory.lab.probes import (
    Anchor,
    Anchors,
    Probe,
    generate,
    means_the_same,
    probe_line,
    read_probes,
    set_hash,
)
from places import Places

LINE = json.dumps({"question": "which port?", "expected": "The port is 5433"})


def anchors(memory: Memory) -> Anchors:
    services = memory.services
    return Anchors(services.store, services.user, services.world.now())


def probe(expected: str | list[str], **more: object) -> Probe:
    line = json.dumps({"question": "what is it?", "expected": expected, **more})
    return read_probes([line])[0]


def test_remarks_and_empty_lines_say_nothing() -> None:
    lines = ["# mine", "", LINE, "  ", '  {"question": "who?", "expected": ["Ada", "Ada L."]}']
    found = read_probes(lines)
    assert [one.question for one in found] == ["which port?", "who?"]
    assert found[1].expected == ("Ada", "Ada L.")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("[" * 5_000, "not JSON"),
        ('{"question": "a?"}', "expected must be"),
        ('{"expected": "a"}', "question is missing"),
        ('{"question": "", "expected": "a"}', "empty"),
        ('{"question": 3, "expected": "a"}', "must be text"),
        ('{"question": "a?", "expected": []}', "expected must be"),
        ('{"question": "a?", "expected": [3]}', "must be text"),
        ('{"question": "a?", "expected": "b", "expected_fact_id": 3}', "unknown field"),
        ('{"question": "a?", "expected": "b", "tags": 3}', "tags"),
        ('{"question": "a?", "expected": "b", "project": 3}', "project"),
        ('{"question": "a?", "expected": "b", "notes": 3}', "notes"),
        (json.dumps({"question": "a?", "expected": "x" * 9_000}), "at most 8,192"),
        (json.dumps({"question": "k?", "expected": "AKIA" + "IOSFODNN7ABCDEFG"}), "secret"),
        (LINE, "repeats line 1"),
        ('{"question": "' + "x" * 70_000, "more than"),
    ],
)
def test_a_bad_line_is_named_with_its_number(line: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        read_probes([LINE, line], "mine.jsonl")
    assert "line 2 of mine.jsonl" in caught.value.message


def test_a_file_of_remarks_has_no_probe() -> None:
    with pytest.raises(InputError, match="no probe in mine"):
        read_probes(["# nothing"], "mine")


def test_the_same_questions_make_the_same_set_whatever_their_order_and_tags() -> None:
    one, two = probe("a b"), probe("c d", tags=["x"])
    assert set_hash([one, two]) == set_hash([two, one])
    assert set_hash([two]) == set_hash([probe("c d", notes="other")])
    assert set_hash([one]) != set_hash([two])
    assert set_hash([probe(["a", "b"])]) == set_hash([probe(["b", "a"])])


@given(st.lists(st.text(min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=4))
@settings(max_examples=60)
def test_a_probe_survives_being_written(expected: list[str]) -> None:
    try:
        made = probe(expected)
    except InputError:
        return
    (again,) = read_probes([probe_line(made)])
    assert again == made


# -- anchors --------------------------------------------------------------------------------


def test_the_very_text_is_found_however_it_is_written(places: Places) -> None:
    with places.plain() as memory:
        wanted = memory.remember("The staging database is called heron")
        memory.remember("The mail relay is called otter")
        found = anchors(memory).find(probe("the staging  database is called heron."))
    assert found == Anchor("exact", frozenset({wanted.id}))


def test_a_part_of_a_text_is_enough_from_word_to_word(places: Places) -> None:
    with places.plain() as memory:
        wanted = memory.remember("The staging database is called heron, on port 5433")
        known = anchors(memory)
        assert known.find(probe("called heron")).memory_ids == {wanted.id}
        assert known.find(probe("called her")).how == "drifted"
        assert known.find(probe("port 543")).how == "drifted"


def test_all_values_and_rare_words_in_another_order_are_enough(places: Places) -> None:
    with places.plain() as memory:
        wanted = memory.remember("On port 5433 listens heron, the staging database")
        memory.remember("On port 5434 listens otter, the billing database")
        known = anchors(memory)
        found = known.find(probe("heron listens on port 5433"))
        assert found == Anchor("values", frozenset({wanted.id}))
        assert known.find(probe("heron listens on port 5434")).how == "drifted"
        assert known.find(probe("heron never listens on port 5433")).how == "drifted"


def test_what_was_superseded_is_followed_to_what_holds_now(places: Places) -> None:
    with places.plain() as memory:
        old = memory.remember("The staging database is called heron")
        new = memory.remember("The staging database is now called osprey", supersedes=old.id)
        found = anchors(memory).find(probe("The staging database is called heron"))
        assert found == Anchor("moved", frozenset({new.id}))
        memory.forget(new.id)
        assert anchors(memory).find(probe("The staging database is called heron")).how == "drifted"


def test_what_was_merged_is_followed_to_what_it_became(places: Places) -> None:
    with places.plain() as memory:
        memory.remember("I think the staging database is called heron")
        kept = memory.remember("The staging database is called heron")
        assert len(memory.page()) == 1
        for text in ("I think the staging database is called heron", kept.content):
            assert anchors(memory).find(probe(text)).memory_ids == {kept.id}


def test_what_is_gone_has_drifted_and_says_why(places: Places) -> None:
    with places.plain() as memory:
        old = memory.remember("The staging database is called heron")
        memory.remember("The mail relay is called otter", project="shop")
        memory.remember("The queue is called lynx", valid_until="2020-01-01")
        memory.forget(old.id)
        known = anchors(memory)
        for text, why in (
            ("The staging database is called heron", "deleted"),
            ("The queue is called lynx", "expired"),
            ("The mail relay is called otter", "belongs to shop"),
            ("Nobody ever said this", "no memory has this content"),
        ):
            found = known.find(probe(text))
            assert found.how == "drifted"
            assert why in found.why
        assert known.find(probe("The mail relay is called otter", project="shop")).how == "exact"


def test_a_text_that_fits_many_memories_means_none(places: Places) -> None:
    with places.plain() as memory:
        memory.remember_many(
            [{"content": f"Port {n} is open", "on_similar": "keep"} for n in range(8)]
        )
        found = anchors(memory).find(probe("is open"))
    assert found.how == "drifted"
    assert "fits 8 memories" in found.why


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The port is 5433", "the port is 5433.", True),
        ("port 5433", "The staging port 5433 is open", True),
        ("The user prefers tabs over spaces", "User prefers tabs over spaces in Go", True),
        ("The port is 5433", "The port is 5434", False),
        ("We use tabs in Go", "We do not use tabs in Go", False),
        ("heron", "a heron", True),
    ],
)
def test_what_a_label_says_is_recognised_in_other_words(one: str, other: str, same: bool) -> None:
    assert means_the_same(one, other) is same


# -- made probes ----------------------------------------------------------------------------


def test_made_probes_are_the_same_each_time_and_copy_no_sentence(places: Places) -> None:
    with places.plain() as memory:
        for n in range(12):
            memory.remember(
                f"The {('blue', 'green', 'red')[n % 3]} service number {n} stores invoices in "
                f"bucket archive-{n} for seven years",
                kind="fact" if n % 2 else "decision",
                on_similar="keep",
                project="shop" if n % 3 else None,
            )
        live = list(anchors(memory).live.values())
        found = generate(live, 8)
        assert found == generate(live, 8)
        assert len(found) == 8
        known = anchors(memory)
        for one in found:
            assert known.find(one).how == "exact"
            assert "generated" in one.tags
            words = one.question.split()
            assert len(set(words) & set(one.expected[0].split())) <= len(words) / 1.5
            assert one.expected[0] not in one.question
        assert {one.project for one in found} == {None, "shop"}
        assert {"fact", "decision"} <= {tag for one in found for tag in one.tags}


def test_nothing_is_made_of_secrets_or_of_too_few_words(places: Places) -> None:
    with places.plain() as memory:
        memory.remember("Tea")
        memory.remember("The relay certificate renews every spring in Lisbon")
        live = list(anchors(memory).live.values())
        # As one that came in before secrets were looked for.
        leaky = replace(live[1], content="The deploy key is AKIA" + "IOSFODNN7ABCDEFG in Lisbon")
        assert [one.expected[0] for one in generate([*live, leaky], 10)] == [live[1].content]
