"""Two extractors on the same transcripts: each in a store of its own, judged by the labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from eval_kit import NAMED, opened
from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Turn
from meritory.lab.extraction import (
    Arm,
    ExpectedClaim,
    Transcripts,
    compared,
    extraction_run,
    read_labels,
)
from meritory.lab.measure import Sandbox, folder
from meritory.text.extract.rules import FoundClaim

pytestmark = pytest.mark.files_only("measures on throw-away files")


def transcripts() -> Transcripts:
    return {
        f"talk-{number}": (
            Turn("user", f"The {thing} is called {animal}."),
            Turn("assistant", f"Let me look at the {thing}."),
        )
        for number, (thing, animal) in enumerate(NAMED.items())
    }


def labels() -> list[ExpectedClaim]:
    return [
        ExpectedClaim(
            expected=(f"The {thing} is called {animal}",),
            transcript=f"talk-{number}",
            question=f"what is the {thing} called?",
        )
        for number, (thing, animal) in enumerate(NAMED.items())
    ]


def whole(turns: Sequence[Turn], known: Sequence[MemoryRecord]) -> list[FoundClaim]:
    """Keeps what the user said."""
    return [
        FoundClaim(turn.text, "fact", "user_stated", "user", 0.9, place, turn.text)
        for place, turn in enumerate(turns)
        if turn.role == "user"
    ]


def careless(turns: Sequence[Turn], known: Sequence[MemoryRecord]) -> list[FoundClaim]:
    """Keeps what the agent said as well, and of the user's words only the beginning."""
    return [
        FoundClaim(turn.text[:24], "fact", "user_stated", "user", 0.9, place, turn.text)
        for place, turn in enumerate(turns)
    ]


@contextmanager
def arm(name: str, extract: object) -> Iterator[Arm]:
    with folder() as place, opened(place / "arm.db") as memory:
        yield Arm(name, extract, Sandbox(memory.services))  # type: ignore[arg-type]


def test_a_worse_extractor_is_refused_and_a_better_one_passes() -> None:
    with arm("whole", whole) as good, arm("careless", careless) as bad:
        left = extraction_run(good, transcripts(), labels())
        right = extraction_run(bad, transcripts(), labels())
    refused = compared(("whole", "careless"), (left, right), 0.02)
    assert refused["verdict"] == "fail"
    assert refused["metrics"]["recall"]["verdict"] == "fail"
    assert refused["metrics"]["precision"]["verdict"] == "fail"
    passed = compared(("careless", "whole"), (right, left), 0.02)
    assert passed["verdict"] == "pass"
    one, other = passed["results"]
    assert (other["id"], other["precision"], other["recall"]) == ("whole", 1.0, 1.0)
    assert one["precision"] < 0.2
    assert passed["metrics"]["p@1"]["after"] == 1.0


def test_few_labels_are_not_enough_to_compare() -> None:
    with arm("whole", whole) as good, arm("careless", careless) as bad:
        some = dict(list(transcripts().items())[:5])
        sides = tuple(extraction_run(one, some, labels()[:5]) for one in (good, bad))
    found = compared(("a", "b"), (sides[0], sides[1]), 0.02)
    assert found["verdict"] == "not enough data"


def test_the_second_transcript_sees_what_was_learned_from_the_first() -> None:
    seen: list[int] = []

    def counting(turns: Sequence[Turn], known: Sequence[MemoryRecord]) -> list[FoundClaim]:
        seen.append(len(known))
        return whole(turns, known)

    twice = dict.fromkeys(("talk-0", "again"), transcripts()["talk-0"])
    with arm("counting", counting) as made:
        found = extraction_run(made, twice, labels()[:1])
        assert made.sandbox.services.store.totals("default")["live"] == 1
    assert seen == [0, 1]
    assert found.stored == {"stored": 1, "duplicate": 1}


def test_what_an_arm_never_extracted_its_store_does_not_find() -> None:
    with arm("nothing", lambda turns, known: []) as made:
        found = extraction_run(made, transcripts(), labels())
    assert not any(found.is_found)
    assert {hit.rank for hit in found.hits} == {None}


def test_labels_are_read_line_by_line() -> None:
    lines = ["# mine", "", json.dumps({"expected": ["a b", "b a"], "question": "which?"})]
    assert read_labels(lines, "x") == (ExpectedClaim(expected=("a b", "b a"), question="which?"),)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("3", "not an object"),
        ('{"question": "a?"}', "expected must be"),
        ('{"expected": "a", "question": 3}', "question must be text"),
        ('{"expected": "a", "transcript": 3}', "transcript must be"),
        ('{"expected": "a", "answer": "b"}', "unknown field"),
    ],
)
def test_a_bad_label_is_named_with_its_line(line: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        read_labels(["# first", line], "labels.jsonl")
    assert "line 2 of labels.jsonl" in caught.value.message


def test_no_labels_and_labels_of_unknown_transcripts_are_refused() -> None:
    with pytest.raises(InputError, match="no label"):
        read_labels(["# nothing"], "labels.jsonl")
    with arm("whole", whole) as made, pytest.raises(InputError, match="unknown transcript"):
        extraction_run(made, transcripts(), [ExpectedClaim(expected=("a",), transcript="nowhere")])
