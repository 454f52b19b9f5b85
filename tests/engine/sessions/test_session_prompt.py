"""A prompt in a session: what it calls to mind, what it hits, and what is never said twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from session_kit import (
    HERON,
    LOGIN,
    NOTES,
    RULE,
    STRIPE,
    Between,
    Desk,
    contents,
    filler,
    handles,
    trailer,
)

from meritory import Conflict, InputError
from meritory.domain.session import Turn
from meritory.engine.pipeline import prompt
from meritory.engine.sessions.prompt import PromptRequest
from meritory.text.render import BLOCK_LIMIT_CHARS, token_estimate

ABOUT_STRIPE = "why do the stripe webhooks fail on the signature header?"
ABOUT_LOGIN = "the login page in src/login/page.tsx is broken"


def hits(desk: Desk, key: str = "run") -> dict[str, int]:
    """By text how often a memory was hit."""
    return {
        desk.memory.get(one.memory_id).content: one.fts_hit_count
        for one in desk.rows(key).values()
        if one.fts_hit_count
    }


# -- what is shown ------------------------------------------------------------------------


def test_a_prompt_brings_what_is_new_under_the_next_handles(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="where is heron?")
    first = len(session.memories)
    served = session.prompt(ABOUT_STRIPE)
    assert contents(served.memories) == [STRIPE]
    assert handles(served.memories) == [f"m{first + 1}"]
    asked = " ".join(f"m{n}=N" for n in range(1, first + 2))
    assert f"<!--mf {served.injection} {asked}-->" in served.inject
    assert handles(session.memories) == [f"m{n}" for n in range(1, first + 2)]
    assert served.injection != session.injection
    assert served.status_line in served.inject
    shown = desk.rows()[served.memories[0].id]
    assert shown.candidate.was_injected
    assert (shown.handle, shown.injection) == (f"m{first + 1}", 2)
    assert desk.record().prompt_count == 1


def test_a_request_names_new_notes_and_those_not_rated_yet(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context=None)
    code = session.prompt("qqqq").injection
    session.reply(trailer(code, ("m1", 0.0), ("m3", 0.5)))
    again = session.prompt("zzzz")
    assert f"<!--mf {again.injection} m2=N m4=N m5=N m6=N-->" in again.inject
    # Three requests named them. They are not repeated with every prompt.
    assert session.prompt("qqqq").inject == ""
    desk.note("The zebrafish tank stands in the attic")
    new = session.prompt("where is the zebrafish tank?")
    assert f"<!--mf {new.injection} m7=N-->" in new.inject
    session.reply(trailer(new.injection, ("m7", 1.0)))
    assert session.prompt("where is the zebrafish tank?").inject == ""


def test_nothing_is_shown_twice(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context=ABOUT_STRIPE)
    assert STRIPE in contents(session.memories)
    for _ in range(2):
        served = session.prompt(ABOUT_STRIPE + " I ask again")
        assert STRIPE not in contents(served.memories)
        assert "m1=N" in served.inject
    assert len(set(contents(session.memories))) == len(session.memories)


def test_after_a_compaction_it_is_shown_again_under_its_old_handle(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    before = {one.content: one.handle for one in session.memories}
    session.compact()
    served = session.prompt("what is the staging database heron called?")
    again = {one.content: one.handle for one in served.memories}
    assert again[HERON] == before[HERON]
    assert session.prompt("and the staging database heron?").memories == ()
    assert len({one.handle for one in session.memories}) == len(session.memories)
    assert len(desk.store.shown("default", "run")) == desk.record().handle_count


def test_the_rule_is_explained_once(desk: Desk) -> None:
    desk.note(STRIPE, LOGIN)
    session = desk.memory.session("run", context="nothing of this qqqq")
    served = [session.prompt(text) for text in (ABOUT_STRIPE, ABOUT_LOGIN, "thanks")]
    told = [text for text in (session.inject, *(one.inject for one in served)) if text]
    assert ["-1 misled" in text for text in told] == [True] + [False] * (len(told) - 1)
    assert all("<!--mf" in text for text in told)


def test_no_more_than_five_come_with_a_prompt(desk: Desk) -> None:
    desk.note("Something else altogether")
    session = desk.memory.session("run", context="qqqq")
    desk.note(*(f"The zebrafish saltwater tank number {n} is full" for n in range(9)))
    seen: list[str] = []
    for _ in range(3):
        served = session.prompt("clean the zebrafish saltwater tank")
        seen += contents(served.memories)
        assert len(served.memories) <= 5
        assert token_estimate(served.inject) <= 500
        assert len(served.inject) <= BLOCK_LIMIT_CHARS
    assert len(seen) == len(set(seen)) == 9


def test_a_prompt_about_nothing_known_only_asks_for_ratings(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    served = session.prompt("qqqq zzzz")
    assert served.memories == ()
    assert "[meritory notes" not in served.inject
    assert "<!--mf" in served.inject


def test_before_anything_was_shown_nothing_is_asked(desk: Desk) -> None:
    desk.note("The kiln is cold")
    session = desk.memory.session("run", context="qqqq")
    assert session.inject == ""
    served = session.prompt("zzzz")
    assert (served.inject, served.injection, served.memories) == ("", None, ())
    assert desk.record().prompt_count == 1


def test_what_was_shown_does_not_stand_in_the_way_of_the_rest(desk: Desk) -> None:
    """The best matches are before the agent's eyes already; the next best come now."""
    shown = [f"The zebrafish saltwater tank {n}" for n in range(15)]
    desk.note(*shown)
    session = desk.memory.session("run", context="zebrafish saltwater tank")
    assert len(session.memories) == 15
    late = "The zebrafish saltwater tank " + " ".join(filler(12))
    desk.note(late)
    assert contents(session.prompt("the zebrafish saltwater tank please").memories) == [late]


def test_untrusted_matches_are_neither_shown_nor_in_the_way(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    desk.note(*(f"The zebrafish saltwater tank {n}" for n in range(30)), origin="web")
    late = "The zebrafish saltwater tank " + " ".join(filler(12))
    (good,) = desk.note(late)
    served = session.prompt("the zebrafish saltwater tank please")
    assert contents(served.memories) == [late]
    assert {desk.memory.get(one).trust for one in desk.rows()} == {"trusted"}
    assert good in desk.rows()


def test_what_did_harm_is_out_at_once(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context=ABOUT_STRIPE)
    handle = {one.content: one.handle for one in session.memories}[STRIPE]
    session.rate({handle: -0.5})
    session.compact()
    served = session.prompt(ABOUT_STRIPE)
    assert STRIPE not in served.inject
    assert handle not in served.inject.split()


def test_a_mild_no_leaves_it_in(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context=ABOUT_STRIPE)
    handle = {one.content: one.handle for one in session.memories}[STRIPE]
    session.rate({handle: -0.45})
    session.compact()
    assert STRIPE in contents(session.prompt(ABOUT_STRIPE).memories)


# -- required -----------------------------------------------------------------------------


def test_a_constraint_comes_with_the_prompt_that_brings_it_into_play(
    desks: Callable[..., Desk],
) -> None:
    desk = desks(session_start_limit=0)
    (rule,) = desk.note(RULE, kind="constraint", about=["git"], project=None)
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    assert rule not in {one.id for one in session.memories}
    served = session.prompt("now commit with git")
    assert served.memories[0].id == rule
    assert "m" in served.memories[0].handle
    assert RULE not in session.prompt("git again").inject


def test_a_pin_made_meanwhile_comes_with_the_next_prompt(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    (pin,) = desk.note("The office cat is Minka", pinned=True)
    assert [one.id for one in session.prompt("qqqq").memories] == [pin]
    assert session.prompt("qqqq").memories == ()


def test_more_required_ones_than_usual_are_all_shown(desk: Desk) -> None:
    """Five is for what comes to mind; what is required is always injected."""
    session = desk.memory.session("run", context="heron")
    pins = desk.note(*(f"Pin {n}" for n in range(8)), pinned=True)
    (zebra,) = desk.note("The zebrafish tank needs saltwater")
    served = session.prompt("zebrafish saltwater")
    assert {one.id for one in served.memories} == {*pins, zebra}


def test_required_ones_that_do_not_fit_are_named(desk: Desk) -> None:
    session = desk.memory.session("run", context="heron")
    desk.note(*(f"Pinned rule {n}: {'never ever do it ' * 9}" for n in range(12)), pinned=True)
    (zebra,) = desk.note("The zebrafish tank needs saltwater")
    served = session.prompt("zebrafish saltwater")
    assert "over the budget" in served.inject
    assert zebra in {one.id for one in served.memories}
    assert token_estimate(served.inject) <= 500


def test_nothing_is_named_as_overflow_that_was_shown(desk: Desk) -> None:
    desk.note(*(f"Pin {n}" for n in range(3)), pinned=True)
    session = desk.memory.session("run")
    assert "over the budget" not in session.prompt("qqqq").inject


# -- ranking by the first prompt ----------------------------------------------------------


def test_the_first_prompt_ranks_a_session_that_began_without_one(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    session = desk.memory.session("run")
    before, shown = desk.rows(), {one.id for one in session.memories}
    first = session.ranking
    served = session.prompt(ABOUT_STRIPE)
    rows = desk.rows()
    stripe = next(one for one in rows if desk.memory.get(one).content == STRIPE)
    assert session.ranking != first
    assert session.ranking[0] == stripe
    ranked = [one for one in rows.values() if one.candidate.rank]
    assert [one.memory_id for one in ranked] == session.ranking
    assert [one.candidate.rank for one in ranked] == list(range(1, len(ranked) + 1))
    # What was considered is still on record, and what was shown was shown.
    assert set(before) <= set(rows)
    assert all(rows[one].candidate.was_injected and rows[one].handle for one in shown)
    assert {one.handle for one in served.memories}.isdisjoint(handles(session.memories[:15]))
    record = desk.record()
    assert (record.has_prompt, record.context) == (True, ABOUT_STRIPE)
    assert rows[stripe].candidate.features != before[stripe].candidate.features
    # The ranking was made from this prompt: its words are no evidence.
    assert hits(desk) == {}
    logged = desk.store.events("default", session_key="run")
    scores = [one.details for one in logged if one.name == "predictor.score"]
    first_pick = min(ranked, key=lambda one: one.candidate.predictor_rank or len(rows))
    assert (len(scores), scores[-1]["top_pick"]) == (2, first_pick.memory_id)
    names = [one.name for one in logged]
    assert names.count("predictor.prefilter") == names.count("predictor.diversity") == 2


def test_only_the_first_prompt_ranks(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    session = desk.memory.session("run")
    session.prompt(ABOUT_STRIPE)
    ranking, rows = session.ranking, desk.rows()
    session.prompt(ABOUT_LOGIN)
    assert session.ranking == ranking
    assert {n: one.candidate.rank for n, one in desk.rows().items()} == {
        n: one.candidate.rank for n, one in rows.items()
    }
    assert desk.record().context == ABOUT_STRIPE


def test_a_session_with_a_context_is_not_ranked_again(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    session = desk.memory.session("run", context="heron")
    ranking = session.ranking
    session.prompt(ABOUT_STRIPE)
    assert session.ranking == ranking
    assert desk.record().context == "heron"


# -- hits ---------------------------------------------------------------------------------


def test_two_rare_words_are_a_hit(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    session = desk.memory.session("run", context="heron")
    session.prompt(ABOUT_STRIPE)
    assert hits(desk) == {STRIPE: 1}
    session.prompt("stripe webhooks " * 9)
    assert hits(desk) == {STRIPE: 2}


def test_one_rare_word_or_many_common_ones_are_none(desk: Desk) -> None:
    desk.note(*filler(200), *NOTES)
    session = desk.memory.session("run", context="heron")
    for text in ("stripe", "stripe stripes striped", "which item weighs most in stone?"):
        session.prompt(text)
    assert hits(desk) == {}


def test_words_of_one_stem_count_once(desk: Desk) -> None:
    desk.note(*filler(60), "The webhook webhooks are slow")
    session = desk.memory.session("run", context="heron")
    session.prompt("webhook webhooks webhooked")
    assert hits(desk) == {}


def test_the_prompt_that_was_the_context_is_no_evidence(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    session = desk.memory.session("run", context=ABOUT_STRIPE)
    session.prompt(f"  {ABOUT_STRIPE}\n")
    assert hits(desk) == {}
    session.prompt(ABOUT_STRIPE)
    assert hits(desk) == {STRIPE: 1}


def test_another_first_prompt_than_the_context_is_evidence(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    session = desk.memory.session("run", context="fix the payments")
    session.prompt(ABOUT_STRIPE)
    assert hits(desk) == {STRIPE: 1}


def test_a_hit_outside_the_candidates_comes_in_by_itself(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_candidate_pool_size=10, session_prompt_limit=0)
    (stripe,) = desk.note(STRIPE, importance=0.0)
    desk.clock.go(days=30)
    desk.note(*filler(60))
    session = desk.memory.session("run", context="stone item")
    assert stripe not in desk.rows()
    session.prompt(ABOUT_STRIPE)
    row = desk.rows()[stripe]
    assert (row.candidate.source, row.candidate.was_injected) == ("fts_only", False)
    assert (row.fts_hit_count, row.handle) == (1, None)
    assert stripe not in session.ranking
    assert stripe not in desk.memory.session("run").ranking


def test_words_are_rare_among_what_the_scope_sees(desk: Desk) -> None:
    """What other people and projects store changes nothing here."""
    desk.note(*filler(60), *NOTES)
    ann = desk.memory.view(user="ann")
    ann.remember_many(
        {"content": f"stripe webhooks signature header {n}", "on_similar": "keep"}
        for n in range(80)
    )
    desk.note(*(f"stripe webhooks signature header {n}" for n in range(80)), project="other")
    session = desk.memory.session("run", context="heron")
    session.prompt(ABOUT_STRIPE)
    assert hits(desk) == {STRIPE: 1}


# -- beginnings and ends ------------------------------------------------------------------


def test_a_prompt_of_an_unknown_session_starts_it(desk: Desk) -> None:
    desk.note(*filler(60), *NOTES)
    request = PromptRequest("run", desk.memory.scope, ABOUT_STRIPE, harness="codex", cwd="/x")
    served = prompt(desk.memory.services, request)
    assert STRIPE in contents(served.memories)
    assert served.ranking
    record = desk.record()
    assert (record.prompt_count, record.has_prompt, record.harness) == (1, True, "codex")
    assert record.context == ABOUT_STRIPE
    assert hits(desk) == {}
    # Its ratings are about the reply to this prompt, by whichever road they come.
    (injection,) = desk.store.injections("default", "run")
    assert (injection.kind, injection.turn) == ("start", 1)
    prompt(desk.memory.services, request)
    assert desk.record().prompt_count == 2
    assert hits(desk) == {STRIPE: 1}


def test_a_prompt_after_the_end_is_a_conflict(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    session.end()
    before = desk.state()
    for _ in range(2):
        with pytest.raises(Conflict, match="has ended") as caught:
            session.prompt(ABOUT_STRIPE)
        assert caught.value.status == 409
        desk.memory.drain()
    assert desk.state()[2].keys() == before[2].keys()  # type: ignore[attr-defined]
    assert desk.record().prompt_count == 0


@pytest.mark.parametrize("text", [5, None, b"heron", ["heron"]])
def test_a_prompt_that_is_no_text_is_refused(desk: Desk, text: str) -> None:
    session = desk.memory.session("run", context="heron")
    with pytest.raises(InputError):
        session.prompt(text)
    assert desk.record().prompt_count == 0


@pytest.mark.parametrize("text", ["", "  \n", "\ud800"])
def test_an_empty_prompt_calls_nothing_to_mind(desk: Desk, text: str) -> None:
    """A picture, for example: it is a turn, and nothing is ranked by it."""
    desk.note(*NOTES)
    session = desk.memory.session("run")
    ranking = session.ranking
    served = session.prompt(text)
    assert served.memories == ()
    assert (desk.record().prompt_count, session.ranking) == (1, ranking)
    session.prompt(ABOUT_STRIPE)
    assert desk.record().context == ABOUT_STRIPE
    assert hits(desk) == {}


@pytest.mark.parametrize(
    "text",
    ['"', "NEAR(", "col: heron", "* - ^ heron", "heron " * 10_000, "a\x00b heron", "\ud800x"],
)
def test_anything_typed_is_only_words(desk: Desk, text: str) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="qqqq")
    session.prompt("first")
    session.prompt(text)
    assert desk.record().prompt_count == 2


def test_a_prompt_that_meets_the_end_does_not_open_the_session_again(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    between = Between(desk.store, session.end)
    desk.equip(store=between)
    late = PromptRequest("run", desk.memory.scope, ABOUT_STRIPE)
    with pytest.raises(Conflict):
        prompt(desk.memory.services, late)
    assert between.was_called
    assert desk.record().state == "ended"
    assert desk.record().prompt_count == 0


# -- together -----------------------------------------------------------------------------


def test_eight_threads_that_prompt_one_session_are_all_served(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    topics = ("kiln", "loom", "sled", "quern", "anvil", "churn", "gauge", "lathe")
    desk.note(*(f"The {topic} stands beside the zebrafish {topic}house" for topic in topics))
    served = []
    gate = threading.Barrier(8)

    def work(topic: str) -> None:
        gate.wait()
        request = PromptRequest("run", desk.memory.scope, f"the zebrafish and the {topic}house")
        served.append(prompt(desk.memory.services, request))

    threads = [threading.Thread(target=work, args=(topic,)) for topic in topics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(served) == 8
    assert all(one.is_recorded for one in served)
    given = [(one.handle, one.id) for answer in served for one in answer.memories]
    assert len({handle for handle, _ in given}) == len({one for _, one in given}) == len(given)
    codes = [one.injection for one in served if one.inject]
    assert len({*codes, session.injection}) == len(codes) + 1
    record = desk.record()
    assert (record.prompt_count, record.injection_count) == (8, len(codes) + 1)
    assert record.handle_count == 1 + len(given)


def test_prompts_and_starts_of_one_unknown_session_at_once(desk: Desk) -> None:
    """A harness may fire both at the same moment."""
    desk.note(*NOTES)
    prompted: list[bool] = []
    told: list[str] = []
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        if number % 2:
            told.append(desk.memory.session("run", context=ABOUT_STRIPE).inject)
        else:
            request = PromptRequest("run", desk.memory.scope, f"{ABOUT_STRIPE} {number}")
            prompted.append(prompt(desk.memory.services, request).is_recorded)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert prompted == [True] * 4
    assert len(told) == 4
    assert len(set(told)) == 1
    assert STRIPE in told[0]
    assert desk.record().prompt_count == 4
    assert len(desk.store.sessions("default", 9)) == 1


# -- ratings that come along --------------------------------------------------------------


def test_ratings_with_a_prompt_are_about_the_reply_before_it(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    session.prompt("first of all")
    session.prompt(ABOUT_STRIPE, feedback={session.memories[0].id: 0.5, "m9": 1.0})
    (said,) = desk.store.ratings("default", "run")
    assert (said.turn, said.channel, said.score) == (1, "field", 0.5)
    assert desk.counters()["feedback.refused"] == 1


def test_a_transcript_with_a_prompt_brings_what_was_missed_once(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login")
    one, two = session.memories[:2]
    first = session.prompt("first of all")
    reply = trailer(first.injection, (one.handle, 0.5), (two.handle, -0.25))
    session.reply(reply)
    before = desk.rows(), desk.counters()["feedback.taken"]
    turns = (Turn("user", "first of all"), Turn("assistant", reply))
    for n in range(3):
        request = PromptRequest("run", desk.memory.scope, f"next {n}", transcript=turns)
        prompt(desk.memory.services, request)
    for memory_id in (one.id, two.id):
        assert desk.rows()[memory_id].agent_feedback_count == 1
    assert desk.counters()["feedback.taken"] == before[1] == 2
    # What no other road brought is taken from there, once.
    missed = trailer(session.injection, (one.handle, 1.0))
    for n in range(3):
        told = (*turns, Turn("assistant", missed))
        prompt(
            desk.memory.services,
            PromptRequest("run", desk.memory.scope, f"then {n}", transcript=told),
        )
    assert desk.rows()[one.id].agent_feedback_count == 2
    assert desk.rows()[one.id].agent_relevance_score == 0.75
    assert len(desk.store.ratings("default", "run")) == 3


def test_only_the_agents_own_words_are_ratings(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login")
    forged = trailer(session.injection, ("m1", 1.0))
    turns = tuple(Turn(role, forged) for role in ("user", "result", "tool", "edit", "system"))
    prompt(
        desk.memory.services,
        PromptRequest("run", desk.memory.scope, "next", transcript=turns),
    )
    assert desk.store.ratings("default", "run") == []
