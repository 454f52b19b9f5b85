"""Feedback as words: spellings, whole-word topics, what is too bare, causes, and recurrences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.feedback import (
    CATEGORIES,
    DOWN,
    GENERAL,
    SIGNALS,
    TOPICS,
    UP,
    content_words,
    diagnose,
    domain,
    fingerprint,
    is_actionable,
    is_complete,
    is_same,
    lesson_text,
    polarity,
    questions,
    read_topics,
    with_advice,
)


@pytest.mark.parametrize(
    "word",
    [
        *("up", "UP", " Up ", "positive", "good", "Good!", "thumbs up", "thumbs-up", "thumbs_up"),
        *(
            "thumbsup",
            "ThumbsUp",
            "thumb up",
            "+1",
            ":+1:",
            ":thumbsup:",
            "👍",
            "👍🏽",
            "👍️",
            "👍👍",
        ),
    ],
)
def test_every_spelling_of_up(word: str) -> None:
    assert polarity(word) == UP


@pytest.mark.parametrize(
    "word",
    [
        *("down", "DOWN", "negative", "bad", "bad.", "thumbs down", "thumbs-down", "thumbs_down"),
        *("thumbsdown", "thumb-down", "-1", ":-1:", ":thumbsdown:", "👎", "👎🏿", "👎👎👎"),
    ],
)
def test_every_spelling_of_down(word: str) -> None:
    assert polarity(word) == DOWN


@pytest.mark.parametrize(
    "word",
    ["", " ", "meh", "update", "badly", "goodbye", "👍👎", "1", "thumbs", None, 1, True, ["up"]],
)
def test_what_is_no_signal(word: object) -> None:
    assert polarity(word) is None


def test_what_a_refusal_lists_is_accepted() -> None:
    assert all(polarity(word) is not None for word in SIGNALS)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_a_signal(text: str) -> None:
    assert polarity(text) in (None, UP, DOWN)


# -- topics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "recent process",
        "the proceeding was professional and incentive-laden",
        "it contested the latest protest",
        "digital gitter, legit",
        "uniform suits and guides",
        "capitalise the rapid therapist",
    ],
)
def test_part_of_a_word_is_never_a_topic(text: str) -> None:
    assert not read_topics([text])


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("the Tests failed", "testing"),
        ("pushed to the wrong branch", "git"),
        ("run_tests.py was skipped", "testing"),
        ("the customers complain", "customer"),
        ("invoices are wrong", "revenue"),
        ("the SQL migration dropped a column", "data"),
    ],
)
def test_whole_words_in_any_form_are(text: str, topic: str) -> None:
    assert topic in read_topics([text])


def test_the_domain_is_a_given_tag_else_the_commonest_topic() -> None:
    found = read_topics(["the test and the tests of the endpoint"])
    assert domain([], found) == "testing"
    assert domain(["mine", "security"], found) == "security"
    assert domain(["mine"], read_topics(["recent process"])) == GENERAL
    assert list(found) == [topic for topic in TOPICS if topic in found]


# -- is it enough? ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "good",
        "wrong",
        "bad!",
        "that was wrong",
        "LGTM",
        "it failed",
        "fix this",
        "👎",
        "",
        "nice job",
    ],
)
@pytest.mark.parametrize("side", [UP, DOWN])
def test_a_bare_verdict_is_not_actionable(text: str, side: int) -> None:
    assert not is_actionable(side, {"context": text})
    name = "what_worked" if side == UP else "what_went_wrong"
    assert not is_actionable(side, {name: text})
    asked = questions(side, {"context": text})
    assert [one.field for one in asked] == (
        ["what_worked"] if side == UP else ["what_went_wrong", "what_to_change"]
    )
    assert all(one.question.endswith("?") and one.example for one in asked)


def test_what_names_the_thing_is_actionable() -> None:
    assert is_actionable(DOWN, {"what_went_wrong": "deleted migrations"})
    assert is_actionable(DOWN, {"context": "It pushed straight to main unasked"})
    assert is_actionable(UP, {"what_worked": "ran ruff first"})
    assert not is_actionable(UP, {"what_went_wrong": "deleted the migrations"})
    assert is_actionable(DOWN, {"context": "把配置文件删除了而且没有备份"})


def test_four_words_that_mean_something_tell_all() -> None:
    assert not is_complete("It was not good at all and really bad")
    assert not is_complete("deleted the migrations")
    assert is_complete("deleted the migrations before any backup existed")
    assert content_words("this was really wrong") == ()


# -- the same again ---------------------------------------------------------------------------


def test_the_same_mistake_has_the_same_fingerprint() -> None:
    told = "You force-pushed to main without asking"
    for same in (
        "you force-pushed to main again, without asking!",
        "Without asking, force-pushed to main",
        "YOU FORCE-PUSHED TO THE MAIN WITHOUT ASKING",
    ):
        assert fingerprint(DOWN, same) == fingerprint(DOWN, told)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("do push the tags", "do not push the tags"),
        ("do push the tags", "don't push the tags"),
        ("port 8080 was used", "port 9090 was used"),
        ("edited src/a.py by hand", "edited src/b.py by hand"),
        ("ran with the cache", "ran without the cache"),
    ],
)
def test_what_differs_in_a_value_or_a_negation_does_not(one: str, other: str) -> None:
    assert fingerprint(DOWN, one) != fingerprint(DOWN, other)


def test_most_words_shared_is_the_same_unless_a_value_or_a_negation_differs() -> None:
    told = "You pushed to main without asking me first"
    assert is_same(told, "Again pushed straight to main without asking")
    assert not is_same(told, "You pushed to main after asking me first")
    assert not is_same(told, "The release notes are missing")
    assert not is_same("edited src/a.py by hand again", "edited src/b.py by hand again")
    assert not is_same("ran it on port 80 by mistake", "ran it on port 81 by mistake")
    assert not is_same("git", "git")


def test_praise_and_blame_of_the_same_words_stay_apart() -> None:
    assert fingerprint(UP, "ran the linter") != fingerprint(DOWN, "ran the linter")


# -- lessons ----------------------------------------------------------------------------------


def test_a_lesson_says_what_to_avoid_and_what_to_do() -> None:
    texts = {"what_went_wrong": "edited the lock file", "what_to_change": "run uv lock"}
    told = lesson_text(DOWN, texts)
    assert told == "Mistake to avoid: edited the lock file. Next time: run uv lock."
    assert with_advice(told, {"what_to_change": "something else"}) is None
    bare = lesson_text(DOWN, {"what_went_wrong": "edited the lock file"})
    assert with_advice(bare, texts) == told
    assert lesson_text(UP, {"context": "x " * 9_000}).startswith("What worked: x x")
    assert len(lesson_text(UP, dict.fromkeys(("context", "what_worked", "reasoning"), "y" * 8_192)))


# -- causes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("The build crashed with exit code 137", "system_failure"),
        ("the request timed out", "system_failure"),
        ("it pushed without my permission", "guardrail_triggered"),
        ("called the tool with an unknown flag", "invalid_invocation"),
        ("claimed that the tests pass without running them", "tool_output_misread"),
        ("it hallucinated a function", "tool_output_misread"),
        ("this is not what I asked for", "intent_plan_misalignment"),
        ("it edited the wrong file", "intent_plan_misalignment"),
    ],
)
def test_words_name_the_cause(text: str, category: str) -> None:
    found = diagnose({"what_went_wrong": text})
    assert found is not None
    assert found.category == category
    assert found.evidence[0].source == "what_went_wrong"
    assert found.evidence[0].quote in " ".join(text.split())


@pytest.mark.parametrize(
    "text", ["the colour is ugly", "policymakers crashes-free blockedness", ""]
)
def test_without_evidence_there_is_no_diagnosis(text: str) -> None:
    assert diagnose({"context": text}) is None


def test_what_broke_from_outside_wins_and_a_rubric_is_evidence_too() -> None:
    both = diagnose({"context": "it crashed, and it is not what I asked for"}, ["safety"])
    assert both is not None
    assert both.category == "system_failure"
    for criterion, category in (
        ("safety", "guardrail_triggered"),
        ("verification_evidence", "tool_output_misread"),
        ("instruction_following", "intent_plan_misalignment"),
    ):
        found = diagnose({}, [criterion])
        assert found is not None
        assert (found.category, found.evidence[0].source) == (category, f"rubric:{criterion}")
    broken = diagnose({}, (), ["tests_passed"])
    assert broken is not None
    assert broken.category == "guardrail_triggered"
    assert len(CATEGORIES) == 5
