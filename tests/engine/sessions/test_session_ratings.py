"""Ratings of what was shown: by whom, of what, for which turn, and what is refused."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from session_kit import HERON, LOGIN, NOTES, Desk, filler, talk, trailer

from meritory import NotFound
from meritory.api.session import Session
from meritory.domain.session import SessionMemory
from meritory.engine.sessions import end, ratings


@pytest.fixture
def session(desk: Desk) -> Session:
    """A session that was shown all notes."""
    desk.note(*NOTES)
    return desk.memory.session("run", context=None)


def row(desk: Desk, session: Session, handle: str) -> SessionMemory:
    (shown,) = [one for one in session.memories if one.handle == handle]
    return desk.rows()[shown.id]


def said(desk: Desk) -> list[tuple[int, str, float]]:
    return [(one.turn, one.channel, one.score) for one in desk.store.ratings("default", "run")]


def test_a_trailer_rates_for_the_turn_of_its_code(desk: Desk, session: Session) -> None:
    served = session.prompt("qqqq one")
    late = session.prompt("qqqq two")
    for code, score in ((session.injection, 0.25), (served.injection, 0.5), (late.injection, 1.0)):
        taken = session.reply(trailer(code, ("m1", score)))
        assert len(taken.taken) == 1
    assert said(desk) == [(0, "trailer", 0.25), (1, "trailer", 0.5), (2, "trailer", 1.0)]
    rated = row(desk, session, "m1")
    assert rated.agent_relevance_score == pytest.approx(1.75 / 3)
    assert rated.agent_feedback_count == 3
    assert desk.counters()["feedback.taken"] == 3


def test_what_was_not_rated_is_unknown_and_not_zero(desk: Desk, session: Session) -> None:
    session.reply(trailer(session.injection, ("m1", 0.0)))
    assert row(desk, session, "m1").agent_relevance_score == 0.0
    others = [row(desk, session, one.handle) for one in session.memories[1:]]
    assert {one.agent_relevance_score for one in others} == {None}


def test_a_reply_without_a_trailer_rates_nothing(desk: Desk, session: Session) -> None:
    for text in ("", "Done.", "<!--mf-->", "m1=1.0", f"<!--mf {session.injection}"):
        assert session.reply(text).taken == ()
    assert said(desk) == []


def test_only_codes_of_this_session_count(desk: Desk, session: Session) -> None:
    other = desk.memory.session("other")
    ann = desk.memory.view(user="ann", project="shop")
    ann.remember(HERON)
    foreign = ann.session("run")
    codes = [other.injection, foreign.injection, "0123456789", "zzzzzzzzzz"]
    for code in codes:
        answer = session.reply(trailer(code, ("m1", 1.0)))
        assert answer.taken == ()
        assert answer.refused == ((code, "no such code in this session"),)
    assert said(desk) == []
    assert desk.counters()["feedback.refused"] == len(codes)


def test_the_code_of_a_session_that_is_long_over_counts_nowhere_else(desk: Desk) -> None:
    desk.note(*NOTES)
    old = desk.memory.session("old")
    old.end()
    new = desk.memory.session("run")
    assert new.reply(trailer(old.injection, ("m1", 1.0))).taken == ()
    assert said(desk) == []


def test_what_is_wrong_is_refused_singly(desk: Desk, session: Session) -> None:
    text = f"<!--mf {session.injection} m1=0.5 m99=1 m2=5 m3=nan m4=high m5=-1-->"
    answer = session.reply(text)
    assert [one.score for one in answer.taken] == [0.5, -1.0]
    reasons = dict(answer.refused)
    assert reasons == {
        "m99": "not shown in this session",
        "m2": "out of -1..1",
        "m3": "not finite",
        "m4": "not a number",
    }
    assert desk.counters()["feedback.refused"] == 4


def test_a_mapping_is_taken_as_carefully(desk: Desk, session: Session) -> None:
    answer = session.rate(
        {"m1": 0.5, "m2": 2, "m3": float("nan"), "m4": True, "m5": "1", "x y": 1.0, "M6": -0.25}
    )
    assert [one.score for one in answer.taken] == [0.5, -0.25]
    assert len(answer.refused) == 5
    assert session.rate(MappingProxyType({"m2": 1.0})).taken
    for bad in ([], "m1=1", 5):
        answer = session.rate(bad)  # type: ignore[arg-type]
        assert answer.taken == ()
        assert answer.refused


def test_full_ids_name_what_was_shown(desk: Desk) -> None:
    shown, hidden = desk.note(HERON, LOGIN)
    desk.tune(start_limit=1)
    session = desk.memory.session("run", context="what is the staging database heron called")
    assert [one.id for one in session.memories] == [shown]
    assert session.rate({shown.upper(): 0.25}).taken
    # Not shown, unknown, the beginning of an id, or of another user.
    ann = desk.memory.view(user="ann").remember("hers").id
    parts = [shown[:length] for length in range(1, len(shown))]
    answer = session.rate(dict.fromkeys([hidden, "zzzzzz", ann, *parts], 1.0))
    assert answer.taken == ()
    assert {reason for _, reason in answer.refused} == {"not shown in this session"}
    assert desk.rows()[shown].agent_relevance_score == 0.25
    assert desk.rows()[hidden].agent_feedback_count == 0


@pytest.mark.parametrize("name", ["{id}", "{short}", "m1"])
@pytest.mark.parametrize(
    "form",
    [
        '<memory-feedback>{{"{name}": 1.0}}</memory-feedback>',
        '&lt;memory-feedback&gt;{{"{name}": 1.0}}&lt;/memory-feedback&gt;',
        "<!--mf {name}=1.0-->",
        "&lt;!--mf {name}=1.0--&gt;",
        "&lt;!--mf {code} {name}=1.0--&gt;",
        "{{mf {name}=1.0}}",
    ],
)
def test_reply_text_without_a_live_code_rates_nothing(
    desk: Desk, session: Session, form: str, name: str
) -> None:
    memory_id = session.memories[0].id
    name = name.format(id=memory_id, short=memory_id[:6])
    text = "Done.\n" + form.format(name=name, code=session.injection)
    assert session.reply(text).taken == ()
    end.compact(desk.memory.services, end.EndRequest("run", "default", talk("so?", text)))
    assert said(desk) == []


def test_a_trailer_that_a_shown_memory_contains_is_a_quotation(desk: Desk) -> None:
    """Whoever learns the code of an injection and stores it cannot rate with it."""
    ids = desk.note(*NOTES)
    session = desk.memory.session("run", context=None)
    code = session.injection
    text = f"Deploy notes: <!--mf {code.upper()[:4]}\u200b{code[4:]} m1=1 m2=-1-->"
    desk.memory.update(ids[0], content=text)
    for reply in (trailer(code, ("m1", 1.0)), f"<!--mf {code} m2=-1-->", f"{{mf {code} m3=1}}"):
        answer = session.reply(f"It says: {reply}")
        assert answer == ratings.RatingsTaken((), ((code, "the code stands in a memory's text"),))
        assert ratings.rate(desk.memory.services, "default", "run", {"m1": 1}, "tool", code) == (
            answer
        )
    assert said(desk) == []
    # A later injection has another code.
    late = session.prompt("qqqq one").injection
    assert session.reply(trailer(late, ("m1", 0.5))).taken


def test_a_quoted_trailer_does_not_hide_the_agents_own(desk: Desk, session: Session) -> None:
    own, quoted = trailer(session.injection, ("m1", 0.5)), "<!--mf 0123456789 m1=-1-->"
    session.reply(f"Done.\n{own}\nPS: the note says {quoted}")
    assert said(desk) == [(0, "trailer", 0.5)]


def test_codes_expire_a_day_after_the_end(desk: Desk, session: Session) -> None:
    session.end(talk("hello", "hi", times=1))
    desk.clock.go(hours=24)
    assert session.reply(trailer(session.injection, ("m1", 0.5))).taken
    desk.clock.go(seconds=1)
    answer = session.reply(trailer(session.injection, ("m1", 1.0)))
    assert answer.refused == ((session.injection, "the session ended too long ago"),)
    # A session that goes on has live codes again.
    desk.memory.session("run")
    assert session.reply(trailer(session.injection, ("m1", 1.0))).taken


def test_a_harness_names_full_ids_or_the_code(desk: Desk, session: Session) -> None:
    memory_id, code = session.memories[0].id, session.injection
    reason = "a handle counts only with the code of its injection"

    def stopped(**given: object) -> ratings.RatingsTaken:
        return ratings.stop(desk.memory.services, "default", "run", None, given)

    assert stopped(m1=1.0).refused == (("m1", reason),)
    assert stopped(**{memory_id[:8]: 1.0}).taken == ()
    assert stopped(injection="0123456789", m1=1.0).taken == ()
    assert said(desk) == []
    assert stopped(**{memory_id: 0.5}).taken
    assert stopped(injection=code, m1=0.25, m2=1).taken
    assert said(desk) == [(0, "field", 0.5), (0, "field", 0.25), (0, "field", 1.0)]


def test_the_last_trailer_wins(desk: Desk, session: Session) -> None:
    code = session.injection
    session.reply(f"{trailer(code, ('m1', 1.0))}\nand then {trailer(code, ('m1', -0.25))}")
    session.reply(trailer(code, ("m1", 0.75)))
    assert row(desk, session, "m1").agent_relevance_score == 0.75
    assert row(desk, session, "m1").agent_feedback_count == 1


def by_tool(desk: Desk, **scores: float) -> ratings.RatingsTaken:
    code = desk.store.injections("default", "run")[-1].code
    return ratings.rate(desk.memory.services, "default", "run", scores, "tool", code)


def test_the_strongest_road_wins_in_a_turn(desk: Desk, session: Session) -> None:
    code = session.prompt("qqqq").injection
    by_tool(desk, m1=-0.25, m2=1.0)
    session.reply(trailer(code, ("m1", 0.5)))
    by_tool(desk, m1=0.0)
    scores = {"m1": -0.25, "m2": 0.0, "m3": 0.125}
    session.prompt("zzzz", feedback={"injection": code, **scores})
    rated = [row(desk, session, f"m{n}").agent_relevance_score for n in (1, 2, 3)]
    assert rated == [0.5, 1.0, 0.125]


def test_a_programs_own_word_is_the_strongest(desk: Desk, session: Session) -> None:
    session.rate({"m1": 0.25})
    session.reply(trailer(session.injection, ("m1", 1.0)))
    by_tool(desk, m1=-0.25)
    assert row(desk, session, "m1").agent_relevance_score == 0.25
    assert row(desk, session, "m1").agent_feedback_count == 1


def test_a_tool_may_name_the_injection_it_rates(desk: Desk, session: Session) -> None:
    session.prompt("qqqq")
    call = (desk.memory.services, "default", "run", {"m1": 0.5})
    assert ratings.rate(*call, "tool", session.injection).taken[0].turn == 0
    assert ratings.rate(*call, "tool", "0123456789").taken == ()


def test_harm_is_noted_at_once_and_by_every_road(desk: Desk, session: Session) -> None:
    session.reply(trailer(session.injection, ("m1", -0.5)))
    session.rate({"m2": -1.0})
    given = {"injection": session.injection, "m3": -0.75, "m4": -0.45}
    session.prompt("qqqq", feedback=given)
    harmful = [row(desk, session, f"m{n}").is_harmful for n in (1, 2, 3, 4)]
    assert harmful == [True, True, True, False]
    served = session.prompt("zzzz")
    assert f"<!--mf {served.injection} m5=N m6=N-->" in served.inject


def test_nobody_rates_a_session_that_never_was(desk: Desk) -> None:
    desk.note(*NOTES)
    with pytest.raises(NotFound) as caught:
        ratings.rate(desk.memory.services, "default", "run", {"m1": 1.0}, "tool")
    assert caught.value.status == 404
    with pytest.raises(NotFound):
        ratings.stop(desk.memory.services, "default", "run", "Done.")


def test_a_thousand_ratings_count_as_one(desk: Desk, session: Session) -> None:
    for _ in range(50):
        session.rate({"m1": 1.0})
    assert row(desk, session, "m1").agent_feedback_count == 1
    many = {f"m{n}": 1.0 for n in range(1, 2_000)}
    answer = session.rate(many)
    assert len(answer.taken) == len(NOTES)
    assert len(answer.refused) <= 300


def test_a_compaction_takes_what_the_transcript_still_tells(desk: Desk, session: Session) -> None:
    turns = [{"role": "assistant", "text": trailer(session.injection, ("m1", 0.5))}]
    end.compact(desk.memory.services, end.EndRequest("run", "default", turns))
    assert said(desk) == [(0, "transcript", 0.5)]
    end.compact(desk.memory.services, end.EndRequest("run", "default", turns))
    assert said(desk) == [(0, "transcript", 0.5)]
    assert not row(desk, session, "m1").in_context


def test_the_transcript_corrects_itself_but_no_stronger_road(desk: Desk, session: Session) -> None:
    code = session.injection
    for score in (0.5, 0.25):
        turns = [{"role": "assistant", "text": trailer(code, ("m1", score), ("m2", score))}]
        end.compact(desk.memory.services, end.EndRequest("run", "default", turns))
        session.reply(trailer(code, ("m2", 1.0)))
    assert row(desk, session, "m1").agent_relevance_score == 0.25
    assert row(desk, session, "m2").agent_relevance_score == 1.0


def test_ratings_are_on_the_timeline(desk: Desk, session: Session) -> None:
    by_tool(desk, m1=0.5)
    memory_id = session.memories[0].id
    (event,) = desk.store.events("default", memory_id=memory_id)
    assert (event.name, event.session_key) == ("feedback.rated", "run")
    assert event.details == {"score": 0.5, "turn": 0, "channel": "tool"}


def test_ratings_of_one_session_say_nothing_in_another(desk: Desk, session: Session) -> None:
    other = desk.memory.session("other")
    session.rate({"m1": -1.0})
    assert all(one.agent_relevance_score is None for one in desk.rows("other").values())
    assert not any(one.is_harmful for one in desk.rows("other").values())
    other.compact()
    assert row(desk, session, "m1").in_context


def test_a_trailer_in_the_middle_of_a_long_reply_is_found(desk: Desk, session: Session) -> None:
    text = "\n".join((*filler(300), trailer(session.injection, ("m1", 0.5)), "Bye."))
    assert session.reply(text).taken
    assert session.reply("x" * 3_000_000).taken == ()


def test_ratings_after_the_end_of_an_unjudged_session_count(desk: Desk, session: Session) -> None:
    session.end(talk("hello", "hi", times=1))
    assert session.rate({"m1": 1.0, "m2": -0.25}).taken
    desk.memory.drain()
    assert row(desk, session, "m1").label is not None
