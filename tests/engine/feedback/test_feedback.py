"""Feedback from a report to a lesson: nothing is lost, and what recurs grows stronger."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from session_kit import HERON, TABS, Desk

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.feedback import FeedbackEvent
from meritory.engine.feedback import capture as flow
from meritory.engine.feedback.capture import Captured
from meritory.engine.observe.observer import timeline
from meritory.text.feedback import SIGNALS
from places import Places

PUSHED = "You pushed to main without asking me first"
SECRET = "sk-ant-api03-" + "Q7x" * 20
CLEAR = {"what_went_wrong": "It deleted the migrations folder"}


def kept(found: Captured) -> FeedbackEvent:
    """The report as the answer has it."""
    assert found.event is not None
    return found.event


def lessons(desk: Desk) -> list[str]:
    return [one.content for one in desk.memory.page(kind="lesson")]


# -- recurrence -------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [{"seconds": 0}, {"minutes": 5}, {"days": 2}])
@pytest.mark.parametrize("origin", ["user", "agent"])
def test_a_mistake_told_seven_times_strengthens_its_lesson_every_time(
    desk: Desk, span: dict[str, float], origin: str
) -> None:
    path, ids = [0.5], set()
    for number in range(1, 8):
        found = desk.memory.capture_feedback("down", PUSHED, tags="git", origin=origin)
        assert (found.accepted, found.status) == (True, "promoted")
        assert kept(found).occurrence == number
        assert found.memory is not None
        path.append(found.memory.usefulness)
        ids.add(found.memory.id)
        desk.clock.go(**span)
    assert len(ids) == 1
    assert len(lessons(desk)) == 1
    assert all(later > before for before, later in pairwise(path))
    lesson = desk.memory.get(ids.pop())
    assert lesson.is_live
    assert (lesson.kind, lesson.superseded_by) == ("lesson", None)
    assert desk.store.lessons("default", [lesson.id])[lesson.id].report_count == 7
    # Found and ranked like any other memory.
    assert desk.memory.recall("may I push to main?")[0].id == lesson.id


def test_one_session_moves_a_belief_only_so_far(desk: Desk) -> None:
    for _ in range(40):
        found = desk.memory.capture_feedback("down", PUSHED, session_key="one")
    assert found.memory is not None
    assert found.memory.usefulness < 0.67


def test_the_same_in_other_words_counts_for_the_same_lesson(desk: Desk) -> None:
    first = desk.memory.capture_feedback("👎", PUSHED)
    second = desk.memory.capture_feedback("bad", "Again you pushed to the main, without asking me!")
    assert first.memory is not None
    assert second.memory is not None
    assert first.memory.id == second.memory.id
    assert (second.reason, kept(second).occurrence) == ("recurrence", 2)
    assert "2 reports" in second.message


def test_a_near_wording_is_merged_by_the_gate_and_counted(desk: Desk) -> None:
    first = desk.memory.remember("Mistake to avoid: You pushed to main without asking me first.")
    found = desk.memory.capture_feedback("down", PUSHED)
    assert found.memory is not None
    assert found.memory.id == first.id
    assert kept(found).occurrence == 1


def test_what_differs_in_a_value_is_another_lesson(desk: Desk) -> None:
    desk.memory.capture_feedback("down", "The service listened on port 8080 in the release build")
    desk.memory.capture_feedback("down", "The service listened on port 9090 in the release build")
    assert len(lessons(desk)) == 2


def test_projects_have_lessons_of_their_own(desk: Desk) -> None:
    desk.memory.capture_feedback("down", PUSHED)
    other = desk.memory.view(project="other").capture_feedback("down", PUSHED)
    assert kept(other).occurrence == 1
    assert other.memory is not None
    assert other.memory.project == "other"


def test_advice_that_comes_later_is_added_once_and_kept_in_history(desk: Desk) -> None:
    first = desk.memory.capture_feedback("down", PUSHED)
    second = desk.memory.capture_feedback("down", PUSHED, what_to_change="Open a pull request")
    assert second.memory is not None
    assert second.memory.content.endswith("Next time: Open a pull request.")
    third = desk.memory.capture_feedback("down", PUSHED, what_to_change="Ask in the chat")
    assert third.memory == desk.memory.get(second.memory.id)
    assert kept(third).what_to_change == "Ask in the chat"
    actions = [entry.action for entry in desk.memory.history(kept(first).memory_id or "")]
    assert actions == ["create", "update"]


def test_a_lesson_that_was_forgotten_is_told_anew_and_a_replaced_one_lives_on(desk: Desk) -> None:
    first = desk.memory.capture_feedback("down", PUSHED)
    desk.memory.forget(kept(first).memory_id or "")
    second = desk.memory.capture_feedback("down", PUSHED)
    assert second.memory is not None
    assert second.memory.id != kept(first).memory_id
    newer = desk.memory.remember("Only Anna pushes to main", supersedes=second.memory.id)
    third = desk.memory.capture_feedback("down", PUSHED)
    assert third.memory is not None
    assert third.memory.id == newer.id


# -- too little -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "text", "missing"),
    [
        ("up", "good", ("what_worked",)),
        ("down", "wrong", ("what_went_wrong", "what_to_change")),
        ("👎", "", ("what_went_wrong", "what_to_change")),
    ],
)
def test_a_bare_word_asks_and_can_be_completed_later(
    desk: Desk, signal: str, text: str, missing: tuple[str, ...]
) -> None:
    asked = desk.memory.capture_feedback(signal, text)
    assert (asked.accepted, asked.status) == (False, "clarification_required")
    assert asked.missing == missing
    assert asked.questions[0].question in asked.message
    assert asked.questions[0].example
    assert asked.memory is None
    assert desk.memory.feedback_event(kept(asked).id) == kept(asked)
    desk.clock.go(hours=3)
    done = desk.memory.complete_feedback(
        kept(asked).id[:20], **{missing[0]: "The linter ran before every commit"}
    )
    assert (done.accepted, done.status) == (True, "promoted")
    event = desk.memory.feedback_event(kept(asked).id)
    assert event == kept(done)
    assert (event.at, event.completed_at) == (kept(asked).at, desk.clock.now)
    assert done.memory is not None
    assert "linter" in done.memory.content
    assert len(desk.memory.feedback_events()) == 1
    with pytest.raises(Conflict):
        desk.memory.complete_feedback(event.id, what_worked="more")
    with pytest.raises(NotFound):
        desk.memory.complete_feedback("0000nobody", what_worked="more")


def test_a_text_with_four_words_counts_as_what_happened(desk: Desk) -> None:
    down = desk.memory.capture_feedback("down", PUSHED)
    up = desk.memory.capture_feedback("up", "Reading the changelog before the upgrade saved hours")
    assert kept(down).what_went_wrong == PUSHED
    assert kept(up).what_worked.startswith("Reading the changelog")
    assert (kept(up).what_went_wrong, kept(down).what_worked) == ("", "")


# -- the rubric -------------------------------------------------------------------------------

BAD = {"rubric_scores": [{"criterion": "safety", "score": 1}]}
UNPROVEN = {"rubric_scores": {"verification_evidence": 5}}
BROKEN = {"guardrails": {"tests_passed": False}}
WORKED = "Rerunning the flaky suite with a fixed seed found the race"


@pytest.mark.parametrize("given", [BAD, UNPROVEN, BROKEN])
def test_a_rubric_vetoes_praise_and_never_blame(desk: Desk, given: dict[str, Any]) -> None:
    up = desk.memory.capture_feedback("up", WORKED, **given)
    assert (up.accepted, up.status, up.reason) == (False, "rejected", "rubric_veto")
    assert lessons(desk) == []
    down = desk.memory.capture_feedback("down", PUSHED, **given)
    assert (down.accepted, down.status) == (True, "promoted")
    assert kept(down).rubric is not None
    assert desk.memory.feedback_event(kept(up).id).status == "rejected"


def test_a_guardrail_nobody_knows_about_does_not_fail(desk: Desk) -> None:
    found = desk.memory.capture_feedback("up", WORKED, guardrails={"tests": None, "paths": True})
    assert found.accepted


@pytest.mark.parametrize(
    "given",
    [{"rubric_scores": "nonsense"}, {"rubric_scores": {"x": 1}}, {"guardrails": ["a"]}],
)
def test_a_malformed_rubric_is_told_and_the_report_kept(desk: Desk, given: dict[str, Any]) -> None:
    up = desk.memory.capture_feedback("up", WORKED, **given)
    assert (up.status, up.reason) == ("rejected", "rubric_malformed")
    assert [one.field for one in up.issues] == ["rubric"]
    assert desk.memory.feedback_event(kept(up).id).context == WORKED
    assert desk.memory.capture_feedback("down", PUSHED, **given).accepted
    still = desk.memory.complete_feedback(kept(up).id, reasoning="Because it is quick")
    assert (still.status, still.reason) == ("rejected", "rubric_malformed")
    fixed = desk.memory.complete_feedback(kept(up).id, rubric_scores={"safety": 4})
    assert fixed.accepted


def test_praise_that_fails_is_diagnosed_and_blame_by_its_words(desk: Desk) -> None:
    up = desk.memory.capture_feedback("up", WORKED, **BROKEN)
    assert kept(up).diagnosis is not None
    assert kept(up).diagnosis["category"] == "guardrail_triggered"
    assert kept(desk.memory.capture_feedback("up", WORKED)).diagnosis is None
    down = kept(desk.memory.capture_feedback("down", "It claimed the tests pass without running"))
    assert down.diagnosis is not None
    assert down.diagnosis["category"] == "tool_output_misread"
    again = desk.memory.feedback_event(down.id)
    assert [one["source"] for one in again.diagnosis["evidence"]] == ["what_went_wrong"]


def test_quality_is_shown_and_never_a_gate(desk: Desk) -> None:
    poor = desk.memory.capture_feedback("down", what_went_wrong="deleted migrations")
    rich = desk.memory.capture_feedback(
        "down",
        "While cleaning up the repository before the release",
        what_went_wrong="It deleted the changelog",
        what_to_change="Ask before deleting",
        last_action={"tool": "Bash"},
        rubric_scores={"safety": 2},
    )
    assert poor.accepted
    assert 0 < kept(poor).quality < kept(rich).quality == 1.0


# -- bad input --------------------------------------------------------------------------------


def test_an_unknown_signal_is_refused_with_the_list_and_kept(desk: Desk) -> None:
    found = desk.memory.capture_feedback("meh", PUSHED)
    assert (found.accepted, found.status, found.reason) == (False, "rejected", "unknown_signal")
    assert all(word in found.message for word in SIGNALS)
    event = desk.memory.feedback_event(kept(found).id)
    assert (event.signal, event.polarity, event.context) == ("meh", 0, PUSHED)
    assert desk.memory.complete_feedback(event.id, "down").accepted


@pytest.mark.parametrize("signal", [None, 5, True, ["up"], "x" * 1_000_000, "\ud800", "a\x00b"])
def test_no_signal_breaks_anything(desk: Desk, signal: Any) -> None:
    found = desk.memory.capture_feedback(signal, "context")
    assert found.reason == "unknown_signal"
    assert len(desk.memory.feedback_event(kept(found).id).signal) <= 64


def test_a_megabyte_is_cut_and_told(desk: Desk) -> None:
    found = desk.memory.capture_feedback("down", f"{PUSHED} {'x ' * 500_000}")
    assert found.accepted
    (issue,) = found.issues
    assert issue.field == "context"
    assert "1,000,043" in issue.message
    assert "8,192" in issue.message
    assert len(desk.memory.feedback_event(kept(found).id).context) == 8_192


@pytest.mark.parametrize("pad", [0, 8_100, 8_180])
def test_secrets_are_out_of_it_before_it_is_stored(desk: Desk, places: Places, pad: int) -> None:
    text = f"{PUSHED} {'y ' * (pad // 2)}{SECRET} and more"
    found = desk.memory.capture_feedback(
        "down",
        text,
        reasoning=f"because {SECRET}",
        last_action={"tool": f"curl -H {SECRET}", SECRET: "x"},
        memory_ids=[SECRET],
        session_key=SECRET,
        skill=SECRET,
        guardrails={SECRET: True},
        tags=[SECRET, "git"],
        rubric_scores=[{"criterion": "safety", "score": 3, "evidence": SECRET}],
    )
    assert found.accepted
    named = {"context", "reasoning", "tags", "memory_ids", "session_key", "skill", "last_action"}
    assert named | {"rubric_scores", "guardrails"} == {issue.field for issue in found.issues}
    desk.memory.close()
    assert places.traces(SECRET[:24]) == []
    assert places.traces("pushed to main")


@pytest.mark.parametrize(
    "fields",
    [
        {"context": 5},
        {"tags": 5},
        {"tags": ["ok", "", 7, "x" * 900, "a\nb"]},
        {"last_action": 5},
        {"last_action": {(1, 2): "x"}},
        {"guardrails": {"x" * 70_000: True}},
        {"last_action": {"tool": 5, "mood": "x", "timestamp": "yesterday"}},
        {"memory_ids": {"a": 1}},
        {"session_key": "\n"},
        {"what_went_wrong": {"deep": ["x"]}},
        {"context": "half \ud800 a character \x00"},
    ],
)
def test_what_is_wrong_in_a_field_is_named_and_the_rest_kept(
    desk: Desk, fields: dict[str, Any]
) -> None:
    found = desk.memory.capture_feedback("down", **(CLEAR | fields))
    event = desk.memory.feedback_event(kept(found).id)
    assert event == kept(found)
    assert found.issues or "context" in fields
    assert found.accepted


def test_a_field_nobody_knows_is_an_error_of_the_program(desk: Desk) -> None:
    with pytest.raises(InputError, match="what_went_rong"):
        desk.memory.capture_feedback("down", what_went_rong="x")
    with pytest.raises(InputError):
        desk.memory.capture_feedback("down", PUSHED, origin="web")
    assert desk.memory.feedback_events() == []


def test_our_own_words_are_no_feedback(desk: Desk) -> None:
    desk.note(HERON)
    block = desk.memory.session("run", context="what is the staging database called?").inject
    assert HERON in block
    only = desk.memory.capture_feedback("down", block)
    assert (only.accepted, only.status, only.event) == (False, "blocked", None)
    assert desk.memory.feedback_events() == []
    guard = "[meritory: rule 01abc blocks this: Never push to main without a review]"
    assert desk.memory.capture_feedback("down", guard).status == "blocked"
    stop = 'Meritory blocks this because of reports: "Never push" (reported 4 times). Do not try.'
    assert desk.memory.capture_feedback("down", what_went_wrong=stop).status == "blocked"
    mixed = desk.memory.capture_feedback("down", f"{guard}\nIt edited the generated lock file")
    assert kept(mixed).context == "It edited the generated lock file"


# -- side effects -----------------------------------------------------------------------------


def test_what_follows_never_fails_the_report(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(flow, "prepare_batch", broken)
    monkeypatch.setattr(flow, "learn_from", broken)
    found = desk.memory.capture_feedback("down", PUSHED)
    assert (found.accepted, found.status, found.reason) == (False, "rejected", "not_promoted")
    stages = {one.stage for one in desk.memory.services.observer.failures()}
    assert {"feedback_promotion", "feedback_rules"} <= stages
    monkeypatch.undo()
    assert desk.memory.complete_feedback(kept(found).id).accepted


def test_a_report_that_was_cut_short_is_on_disk_and_can_go_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(flow, "prepare_batch", cut)
    with pytest.raises(KeyboardInterrupt):
        desk.memory.capture_feedback("down", PUSHED)
    monkeypatch.undo()
    (event,) = desk.memory.feedback_events()
    assert (event.context, event.status, event.reason) == (PUSHED, "rejected", "not_promoted")
    assert desk.memory.complete_feedback(event.id).accepted


def test_it_is_on_the_timelines_of_its_session_its_lesson_and_itself(desk: Desk) -> None:
    with desk.memory.session("run", context="push") as session:
        found = desk.memory.capture_feedback("down", PUSHED, session_key=session.key)
    event = kept(found)
    for name in ("run", event.memory_id or "", event.id):
        told = [one.name for one in timeline(desk.memory.services, "default", name)]
        assert "feedback.promoted" in told, name
    ours = timeline(desk.memory.services, "default", event.id)
    assert [one.name for one in ours] == ["feedback.captured", "feedback.promoted"]
    assert PUSHED not in str(ours)


# -- memories it is about ---------------------------------------------------------------------


def test_unknown_memories_are_named_and_known_ones_counted(desk: Desk) -> None:
    (heron,) = desk.note(HERON)
    found = desk.memory.capture_feedback("down", "wrong", memory_ids=[heron[:20], "0000nobody"])
    assert found.status == "clarification_required"
    assert [(one.field, "0000nobody" in one.message) for one in found.issues] == [
        ("memory_ids", True)
    ]
    assert kept(found).memory_ids == (heron,)
    assert desk.memory.get(heron).usefulness == pytest.approx(0.4)
    # Completing it is no second word.
    desk.memory.complete_feedback(kept(found).id, **CLEAR)
    assert desk.memory.get(heron).usefulness == pytest.approx(0.4)
    desk.memory.capture_feedback("up", memory_ids=heron)
    assert desk.memory.get(heron).usefulness == pytest.approx(0.5)


def test_an_agent_speaks_only_of_what_it_was_shown(desk: Desk) -> None:
    heron, tabs = desk.note(HERON, TABS)
    session = desk.memory.session("run", context="what is the staging database called?")
    shown = {one.id: one.handle for one in session.memories}
    assert heron in shown
    told = {"origin": "agent", "session_key": "run"}
    good = desk.memory.capture_feedback("up", memory_ids=[shown[heron]], **told)
    assert kept(good).memory_ids == (heron,)
    assert desk.memory.get(heron).usefulness > 0.5
    for given in ({"origin": "agent"}, {"origin": "agent", "session_key": "other"}):
        found = desk.memory.capture_feedback("up", memory_ids=[tabs], **given)
        assert kept(found).memory_ids == ()
        assert "not shown" in found.issues[0].message
    assert desk.memory.get(tabs).usefulness == 0.5


def test_a_contested_memory_is_shown_for_review_and_never_dropped(desk: Desk) -> None:
    (heron,) = desk.note(HERON)
    for number in range(6):
        desk.memory.capture_feedback("up" if number % 2 else "down", memory_ids=heron)
        desk.clock.go(days=1)
    (found,) = desk.memory.contested()
    assert found.memory.id == heron
    assert min(found.belief.support, found.belief.doubt) > 1
    assert desk.memory.feedback_summary().contested == 1
    assert desk.memory.get(heron).is_live
    for _ in range(12):
        desk.memory.capture_feedback("up", memory_ids=heron)
        desk.clock.go(days=1)
    assert desk.memory.contested() == []


def test_learning_from_sessions_keeps_what_reports_said(desk: Desk) -> None:
    (heron,) = desk.note(HERON)
    desk.memory.capture_feedback("down", memory_ids=heron)
    before = desk.memory.get(heron).usefulness
    session = desk.memory.session("run", context="what is the staging database called?")
    session.end(used={heron: 1.0})
    desk.memory.drain()
    after = desk.memory.get(heron).usefulness
    assert before < after < 0.5


# -- together ---------------------------------------------------------------------------------


def test_the_summary_adds_up(desk: Desk) -> None:
    assert desk.memory.feedback_summary().last_updated is None
    for _ in range(3):
        desk.memory.capture_feedback("down", PUSHED, tags="git")
    desk.clock.go(days=10)
    desk.memory.capture_feedback("up", WORKED)
    desk.memory.capture_feedback("up", "good")
    desk.memory.capture_feedback("up", WORKED, **BROKEN)
    desk.memory.capture_feedback("meh", "x")
    found = desk.memory.feedback_summary()
    assert (found.total, found.positive, found.negative) == (7, 3, 3)
    assert (found.accepted, found.rejected, found.clarification_required) == (4, 2, 1)
    assert found.domains["git"].negative == 3
    assert found.last_updated == desk.clock.now
    told = found.approval
    assert (told.overall.rate, told.latest.rate, told.week.rate) == (0.5, 0.5, 1.0)
    assert told.month.rate == 0.5
    assert told.trend == "unknown"


def test_risk_and_pairs_come_out_of_the_reports(desk: Desk) -> None:
    for number in range(12):
        desk.memory.capture_feedback(
            "down", f"Deployment {number} broke the login page badly", last_action={"tool": "Bash"}
        )
    for number in range(40):
        what = f"Reading module {number} before the edit helped"
        desk.memory.capture_feedback("up", what, last_action={"tool": "Read"})
    levels = {(one.facet, one.name): one.level for one in desk.memory.feedback_risk()}
    assert levels["tool", "Bash"] == "higher"
    assert levels["tool", "Read"] == "lower"
    desk.clock.go(days=40)
    assert desk.memory.feedback_risk(days=30) == []
    desk.memory.capture_feedback("down", PUSHED, what_to_change="Open a pull request")
    (pair,) = [one for one in desk.memory.feedback_pairs() if one.positive_id is None]
    assert (pair.chosen, pair.rejected) == ("Open a pull request", PUSHED)


def test_a_user_sees_only_their_own(desk: Desk) -> None:
    found = desk.memory.capture_feedback("down", PUSHED)
    other = desk.memory.view(user="other")
    assert other.feedback_events() == []
    assert other.feedback_summary().total == 0
    with pytest.raises(NotFound):
        other.feedback_event(kept(found).id)
    with pytest.raises(NotFound):
        other.complete_feedback(kept(found).id, **CLEAR)
    assert kept(other.capture_feedback("down", PUSHED)).occurrence == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.feedback_events(0),
        lambda m: m.feedback_events(signal="sideways"),
        lambda m: m.feedback_events(status="lost"),
        lambda m: m.feedback_events(colour="red"),
        lambda m: m.feedback_risk(days=0),
        lambda m: m.complete_feedback(5),
    ],
)
def test_wrong_questions_are_refused(desk: Desk, ask: Callable[[Any], object]) -> None:
    with pytest.raises(InputError):
        ask(desk.memory)
