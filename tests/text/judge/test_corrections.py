"""Corrections: harm, doubt and forgetting, what was explained again, and how use is measured."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.session import ROLES, JudgedMemory, Role, Turn
from meritory.text.judge.corrections import (
    FORGOTTEN,
    MAX_TOPICS,
    MIN_USE,
    Corrections,
    Numbers,
    read_corrections,
    read_exchanges,
    read_wording,
    use_of,
)

PNPM, PORT, RETRY, ANNA, COMMITS = range(5)
SHOWN = (
    "This project installs packages with pnpm, never npm.",
    "The API server listens on port 8080 behind Caddy.",
    "Retry uploads at most 7 times; the limit lives in src/upload/limits.py.",
    "Anna reviews every database migration before it is merged.",
    "The user prefers short commit messages in the imperative.",
)
STAGING, INVOICES, MOBILE, COLOURS, BACKUPS, SEARCH = range(5, 11)
NOT_SHOWN = (
    "Staging runs in Frankfurt on three small machines.",
    "Invoices are numbered per year, starting at 1000.",
    "The mobile app still talks to the v1 endpoints.",
    "Dark mode colours come from theme/tokens.json.",
    "Nightly backups go to the bucket acme-cold-storage.",
    "The search index is rebuilt every Sunday at 03:00.",
)
EXHIBITS = [JudgedMemory(text, was_shown=True) for text in SHOWN] + [
    JudgedMemory(text, was_shown=False) for text in NOT_SHOWN
]
HEALTH = (
    Turn("user", "write a health check script"),
    Turn("edit", "scripts/health.sh\ncurl -f http://localhost:8080/health"),
    Turn("assistant", "The script asks port 8080."),
)
GO = Turn("user", "make it ready")


def corrected(*turns: Turn, memories: list[JudgedMemory] | None = None) -> Corrections:
    return read_corrections(turns, EXHIBITS if memories is None else memories)


def used(*turns: Turn, memories: list[JudgedMemory] | None = None) -> Numbers:
    """Return how much of each memory the agent used, as the corrections measure it."""
    texts = read_wording(EXHIBITS if memories is None else memories)
    shown = [texts.terms[place] for place, is_shown in enumerate(texts.shown) if is_shown]
    exchanges = read_exchanges(turns, shown)
    return use_of(texts, [piece for exchange in exchanges for piece in exchange.pieces])


# -- harm -----------------------------------------------------------------------------------


def test_a_memory_that_the_person_contradicts_after_it_was_used_did_harm() -> None:
    found = corrected(
        *HEALTH,
        Turn("user", "no, that's wrong: the server moved to port 9090"),
        Turn("edit", "scripts/health.sh\ncurl -f http://localhost:9090/health"),
    )
    assert set(found.harmed) == {PORT}
    assert -1.0 <= found.harmed[PORT] < -0.5
    assert found.doubted == frozenset()


def test_more_use_means_more_harm() -> None:
    objection = Turn("user", "no, that's wrong: the server moved to port 9090")
    little = corrected(GO, Turn("assistant", "listens on 8080"), objection).harmed[PORT]
    much = corrected(GO, Turn("edit", "caddy listens on port 8080"), objection).harmed[PORT]
    assert much < little < -0.5


def test_a_memory_that_was_not_used_did_no_harm() -> None:
    objection = Turn("user", "no, that's wrong: the server moved to port 9090")
    assert corrected(GO, Turn("edit", "print()"), objection).harmed == {}
    # The objection must follow: before the agent acted there was nothing to object to.
    assert corrected(objection, *HEALTH[1:]).harmed == {}


def test_a_memory_that_was_not_shown_did_no_harm() -> None:
    hidden = [JudgedMemory(memory.text, was_shown=False) for memory in EXHIBITS]
    objection = Turn("user", "no, that's wrong: the server moved to port 9090")
    assert corrected(*HEALTH, objection, memories=hidden).harmed == {}


def test_an_objection_without_a_subject_only_casts_doubt() -> None:
    found = corrected(*HEALTH, Turn("user", "no, that's wrong."), Turn("assistant", "Sorry."))
    assert found.harmed == {}
    assert found.doubted == {PORT}


def test_nothing_is_doubted_when_nothing_was_used() -> None:
    found = corrected(GO, Turn("edit", "print()"), Turn("user", "no, that's wrong."))
    assert found.doubted == frozenset()


def test_an_objection_in_line_with_a_memory_does_not_count_against_it() -> None:
    found = corrected(
        Turn("user", "Add a date library"),
        Turn("tool", "npm install date-fns"),
        Turn("user", "no, never npm here, use pnpm"),
        Turn("tool", "pnpm add date-fns"),
    )
    assert found.harmed == {}


def test_two_negations_agree() -> None:
    memories = [*EXHIBITS, JudgedMemory("Never use mocks of our own parts.", was_shown=True)]

    def harmed(objection: str) -> bool:
        turns = (
            Turn("user", "write the tests"),
            Turn("edit", "tests/test_a.py\nimport mocks"),
            Turn("user", objection),
        )
        return len(EXHIBITS) in corrected(*turns, memories=memories).harmed

    assert not harmed("don't use mocks")
    assert harmed("no, that's wrong: mocks are what we want, from unittest")


@pytest.mark.parametrize(
    "reply",
    ["no problem, port 8080 it is", "No, thanks, port 8080 is fine", "now the port in docs"],
)
def test_not_every_no_is_an_objection(reply: str) -> None:
    found = corrected(*HEALTH, Turn("user", reply), Turn("assistant", "Fine."))
    assert (found.harmed, found.doubted) == ({}, frozenset())


def test_an_objection_to_something_else_leaves_a_used_memory_alone() -> None:
    found = corrected(
        *HEALTH, Turn("user", "no, write it in python instead"), Turn("edit", "import http")
    )
    assert (found.harmed, found.doubted) == ({}, frozenset())


# -- forgetting -----------------------------------------------------------------------------

FORGET_ANNA = "forget the note about Anna reviewing database migrations, she left"


@pytest.mark.parametrize(
    "turn",
    [
        Turn("user", FORGET_ANNA),
        Turn("tool", 'memory_forget {"text": "Anna reviews every database migration"}'),
    ],
)
def test_a_memory_that_the_person_asks_to_forget_is_lowered(turn: Turn) -> None:
    assert corrected(turn, Turn("assistant", "Done.")).harmed == {ANNA: FORGOTTEN}


@pytest.mark.parametrize(
    "turn",
    [
        Turn("assistant", FORGET_ANNA),
        Turn("result", FORGET_ANNA),
        Turn("user", "delete the file src/upload/limits.py"),
        Turn("user", "forget the note about lunch"),
        # One word of a memory, and a few words of it among many others.
        Turn("user", "delete the note about the migration"),
        Turn("user", "forget the note: Anna reviews the zebra garden, lunch, hammock and tulips"),
        Turn("user", "forget that"),
        Turn("user", "Anna reviews every database migration"),
    ],
)
def test_other_words_forget_nothing(turn: Turn) -> None:
    assert corrected(turn, Turn("assistant", "Done.")).harmed == {}


def test_harm_that_is_worse_than_forgetting_stays() -> None:
    found = corrected(
        *HEALTH,
        Turn("user", "no, that's wrong: the server moved to port 9090"),
        Turn("assistant", "Sorry."),
        Turn("user", "forget the note about the API server port 8080 behind Caddy"),
    )
    assert found.harmed[PORT] < FORGOTTEN


# -- what was explained again ---------------------------------------------------------------

NIGHT = (
    Turn("user", "Make the header darker at night"),
    Turn("edit", "header.css\n.header { background: #111 }"),
    Turn("user", "the colours come from theme/tokens.json, use the dark mode ones"),
    Turn("edit", "header.css\n@import theme/tokens.json"),
)


def test_what_the_person_had_to_explain_again_is_missing() -> None:
    found = corrected(*NIGHT)
    assert found.missing == (COLOURS,)
    assert found.topics == ("colours theme/tokens.json dark",)
    assert (found.explained_count, found.unmatched_count) == (1, 0)


def test_nothing_is_missing_when_it_was_shown() -> None:
    everything = [JudgedMemory(memory.text, was_shown=True) for memory in EXHIBITS]
    assert corrected(*NIGHT, memories=everything).missing == ()
    twin = JudgedMemory("Take dark mode colours from theme/tokens.json, says Mia.", was_shown=True)
    assert corrected(*NIGHT, memories=[*EXHIBITS, twin]).missing == ()


def test_nothing_is_missing_when_the_person_said_it_at_once() -> None:
    assert corrected(NIGHT[2], NIGHT[3]).missing == ()


def test_nothing_is_missing_when_the_agent_had_said_it() -> None:
    said = Turn("assistant", "I could take the dark mode colours from theme/tokens.json.")
    assert corrected(NIGHT[0], said, NIGHT[2], NIGHT[3]).missing == ()


def test_a_document_is_never_explained_again() -> None:
    """The everyday words of a prompt stand in some long document by chance."""
    document = JudgedMemory(f"Colours\n{NOT_SHOWN[COLOURS - STAGING]}", was_shown=False)
    claim = JudgedMemory(NOT_SHOWN[COLOURS - STAGING], was_shown=False)
    assert corrected(*NIGHT, memories=[*EXHIBITS[:5], claim]).missing == (5,)
    assert corrected(*NIGHT, memories=[*EXHIBITS[:5], document]).missing == ()


def test_a_complaint_of_saying_it_twice_counts_without_a_memory() -> None:
    again = Turn("user", "as I said, the release train leaves on thursday")
    found = corrected(*HEALTH, again, Turn("assistant", "Noted."))
    assert found.missing == ()
    assert (found.explained_count, found.unmatched_count) == (1, 1)
    assert found.topics == ("release train thursday",)
    # Before the agent acted, it complains of another session.
    assert corrected(again, *HEALTH).explained_count == 0


def test_there_are_a_few_topics_at_most() -> None:
    turns = [*HEALTH]
    for n in range(MAX_TOPICS + 3):
        turns += [Turn("user", f"as I said, zebra{n} gnu{n}"), Turn("assistant", "Noted.")]
    found = corrected(*turns)
    assert found.explained_count == MAX_TOPICS + 3
    assert len(found.topics) == MAX_TOPICS


# -- how much of a memory was used ----------------------------------------------------------


def acted(role: Role, text: str) -> float:
    return float(used(GO, Turn(role, text))[PORT])


def test_an_edit_weighs_more_than_a_call_and_a_call_more_than_a_reply() -> None:
    edit, call, reply = (acted(role, "listen 8080") for role in ("edit", "tool", "assistant"))
    assert edit > call > reply > 0.1


def test_a_value_weighs_more_than_a_word() -> None:
    assert acted("assistant", "It is 8080.") > 1.3 * acted("assistant", "It listens.")


def test_what_the_person_had_typed_is_no_use() -> None:
    told = used(Turn("user", "make it listen on 8080"), Turn("edit", "listen: 8080"))
    assert told[PORT] < MIN_USE < acted("edit", "listen: 8080")


def test_what_the_person_repeats_afterwards_is_still_use() -> None:
    after = used(*HEALTH, Turn("user", "8080 is fine"), Turn("assistant", "Good."))
    assert after[PORT] == used(*HEALTH)[PORT]


def test_what_a_tool_gave_back_is_no_use_and_weakens_what_follows() -> None:
    read = Turn("result", "listen 8080")
    assert used(GO, read, Turn("assistant", "Ready."))[PORT] == 0.0
    copied = used(GO, read, Turn("edit", "listen: 8080"))[PORT]
    assert 0.0 < copied < acted("edit", "listen: 8080")


def test_a_term_that_several_shown_memories_hold_is_shared() -> None:
    def with_rival(*, was_shown: bool) -> float:
        rival = JudgedMemory("Health probes go to 8080 too.", was_shown)
        return float(used(*HEALTH, memories=[*EXHIBITS, rival])[PORT])

    alone = float(used(*HEALTH)[PORT])
    assert 0.0 < with_rival(was_shown=True) < with_rival(was_shown=False) < alone


def test_what_memories_that_were_not_shown_reach_too_is_chance() -> None:
    names = ("red", "blue", "green")
    twins = [JudgedMemory(f"Port 8080 serves tenant {name}.", False) for name in names]
    assert used(*HEALTH, memories=[*EXHIBITS, *twins])[PORT] < used(*HEALTH)[PORT]


def test_scattered_words_are_worth_less_than_the_same_words_in_one_line() -> None:
    together = acted("edit", "caddy reverse_proxy listens 8080")
    assert together > acted("edit", "caddy\n" + "x = 1\n" * 5 + "listens\nfoo\n8080")


def test_a_long_memory_does_not_gain_by_its_length() -> None:
    padded = list(EXHIBITS)
    words = " ".join(f"padding{n}" for n in range(80))
    padded[PORT] = JudgedMemory(f"{SHOWN[PORT]} {words}", was_shown=True)
    assert used(*HEALTH, memories=padded)[PORT] < used(*HEALTH)[PORT]


def test_reading_the_block_out_is_no_use() -> None:
    reply = "From memory I know:\n" + "\n".join(f"- {text}" for text in SHOWN)
    assert used(GO, Turn("assistant", reply)).max() < 0.05
    # The use that follows still counts.
    assert used(GO, Turn("assistant", reply), *HEALTH[1:])[PORT] > MIN_USE


def test_one_memory_restated_is_use() -> None:
    assert used(Turn("user", "Who looks at it?"), Turn("assistant", SHOWN[ANNA]))[ANNA] > MIN_USE


# -- whatever comes in ----------------------------------------------------------------------

TEXTS = st.sampled_from(
    [*SHOWN, *NOT_SHOWN, "no, that's wrong", "as I said", "forget that note", "8080", "", "日本語"]
)
TURNS = st.lists(st.builds(Turn, st.sampled_from(ROLES), TEXTS), max_size=8)
POOLS = st.lists(st.builds(JudgedMemory, TEXTS, st.booleans()), max_size=8)


@settings(max_examples=60, deadline=None)
@given(turns=TURNS, pool=POOLS, order=st.randoms(use_true_random=False))
def test_corrections_are_in_bounds_and_blind_to_the_order(
    turns: list[Turn], pool: list[JudgedMemory], order: random.Random
) -> None:
    found = read_corrections(turns, pool)
    assert all(-1.0 <= score <= FORGOTTEN for score in found.harmed.values())
    assert all(not pool[place].was_shown for place in found.missing)
    assert all(pool[place].was_shown for place in found.doubted)
    assert 0 <= found.unmatched_count <= found.explained_count
    places = list(range(len(pool)))
    order.shuffle(places)
    mixed = read_corrections(turns, [pool[place] for place in places])
    assert {places[place] for place in mixed.harmed} == set(found.harmed)
    assert sorted(places[place] for place in mixed.missing) == list(found.missing)
