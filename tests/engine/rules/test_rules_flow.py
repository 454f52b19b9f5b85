"""Rules: from reports to warnings and blocks, and back down again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from guard_kit import FORCE, OVERWRITTEN, Bench, Clock

from meritory.domain.errors import Conflict, NotFound
from meritory.domain.rule import ActionQuery, Rule, State
from meritory.engine.rules import book
from meritory.engine.rules.book import RULE_TAG
from meritory.rank.ladder import ACTIVE, BLOCK_WEIGHT, LIFE
from meritory.store.sql.rules import SqlRuleReads
from places import Places


@pytest.fixture
def bench(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A guard on a new store."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    clock = Clock()
    with places.memory(clock=clock, background=False) as memory:
        yield Bench(memory, clock)


def test_a_mistake_is_warned_of_at_the_second_and_blocked_at_the_fourth_case(bench: Bench) -> None:
    assert list(bench.cases(count=5)) == ["allow", "warn", "warn", "deny", "deny"]
    assert (bench.rule.state, bench.rule.report_count) == ("blocks", 3)
    assert bench.rule.pattern == "git push main --force"


def test_a_day_between_the_cases_changes_nothing(bench: Bench) -> None:
    answers = []
    for answer in bench.cases():
        answers.append(answer)
        bench.clock.skip(days=1)
    assert answers == ["allow", "warn", "warn", "deny"]


def test_mistakes_weeks_apart_are_none_that_recur(bench: Bench) -> None:
    answers = []
    for answer in bench.cases():
        answers.append(answer)
        bench.clock.skip(days=25)
    assert answers == ["allow", "allow", "allow", "allow"]


def test_five_complaints_about_git_leave_git_status_alone(bench: Bench) -> None:
    for _ in range(5):
        assert bench.call("git status").decision == "allow"
        bench.down("git", tags=["git"])
        bench.down("git is wrong", tags=["git"])
    assert bench.call("git status").decision == "allow"
    assert all(rule.state == "proposed" for rule in bench.rules())


def test_one_word_never_blocks_even_when_it_is_forbidden(bench: Bench) -> None:
    answers = list(bench.cases("git stash", "never run git stash again", count=6))
    assert "deny" not in answers
    answers = list(bench.cases("svn update", "never run svn update again", count=6))
    assert answers == ["allow", "warn", "warn", "warn", "warn", "warn"]


def test_complaints_about_how_something_was_done_forbid_nothing(bench: Bench) -> None:
    for _ in range(6):
        assert bench.call("/p/src/app.py", tool="Edit").decision == "allow"
        bench.down("your edit of app.py broke the login, the tests fail now")
    assert bench.rule.state == "proposed" and bench.rule.report_count == 6


def test_five_complaints_about_one_action_are_one_case(bench: Bench) -> None:
    bench.call(FORCE)
    for _ in range(5):
        bench.down(OVERWRITTEN)
    assert (bench.rule.report_count, bench.rule.state) == (1, "proposed")


def test_a_vague_complaint_does_not_use_up_the_action_it_stands_near(bench: Bench) -> None:
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    bench.call(FORCE)
    bench.down("that was bad")
    store = bench.memory.services.store
    assert [one.blame_count for one in store.actions("default", ActionQuery())] == [1, 1]
    assert bench.rule.report_count == 1
    for _ in range(2):
        bench.down("You force-pushed to main once more, over what others had committed")
    assert bench.rule.report_count == 2


def test_vague_praise_does_not_use_up_the_action_either(bench: Bench) -> None:
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    bench.call(FORCE)
    bench.up("great")
    weight = bench.rule.weight
    for _ in range(2):
        bench.up("the force push to main was exactly what I wanted this time")
    events = bench.memory.services.store.rule_events("default", bench.rule.id, 50)
    assert (weight, bench.rule.weight) == (1.0, 0.0)
    assert [one.kind for one in events].count("praised") == 1


def test_former_rules_are_read_only_when_no_active_one_fits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(bench.cases("git reset --hard", "git reset --hard threw my changes away", count=2))
    book.retire(bench.memory.services, "default", bench.rule.id)
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    bench.call(FORCE)
    asked: list[tuple[str, ...]] = []
    real = SqlRuleReads.rules

    def noted(rows: SqlRuleReads, user: str, states: Collection[State]) -> list[Rule]:
        asked.append(tuple(states))
        return real(rows, user, states)

    monkeypatch.setattr(SqlRuleReads, "rules", noted)
    bench.down("You force-pushed to main once more, over what others had committed")
    assert asked == [ACTIVE]
    asked.clear()
    bench.call("rm -rf build")
    asked.clear()
    bench.down("you deleted the build folder with rm -rf")
    assert asked == [ACTIVE, ("expired", "retired")]


def test_what_nobody_minded_keeps_a_rule_from_rising(bench: Bench) -> None:
    bench.call(FORCE)
    bench.clock.skip(hours=1)
    assert list(bench.cases(count=5)) == ["allow"] * 5
    assert bench.rule.alarm_count == 1
    with pytest.raises(Conflict, match="harmless"):
        book.approve(bench.memory.services, "default", bench.rule.id)


def test_warnings_that_nobody_complains_after_end(bench: Bench) -> None:
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    answers = []
    for _ in range(4):
        answers.append(bench.call(FORCE).decision)
        bench.clock.skip(hours=1)
    assert answers == ["warn", "warn", "allow", "allow"]
    assert bench.rule.state == "proposed"


def test_a_rule_fades_and_expires(bench: Bench) -> None:
    list(bench.cases())
    bench.clock.skip(days=10)
    assert bench.call(FORCE, "s2").decision == "warn"
    bench.clock.skip(days=LIFE.days)
    assert bench.call(FORCE, "s3").decision == "allow"
    assert bench.rule.state == "expired"
    assert book.listing(bench.memory.services, bench.memory.scope) == []


def test_an_expired_rule_begins_anew(bench: Bench) -> None:
    list(bench.cases())
    bench.clock.skip(days=60)
    assert list(bench.cases()) == ["allow", "warn", "warn", "deny"]


def test_praise_for_the_same_action_weighs_against_it(bench: Bench) -> None:
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    bench.call(FORCE)
    bench.up("the force push to main was exactly what I wanted this time")
    assert (bench.rule.weight, bench.rule.state) == (0.0, "proposed")


def test_a_retired_rule_stays_so_until_it_is_undone(bench: Bench) -> None:
    list(bench.cases())
    services = bench.memory.services
    book.retire(services, "default", bench.rule.id, "it is wanted here")
    assert list(bench.cases()) == ["allow"] * 4
    with pytest.raises(Conflict):
        book.retire(services, "default", bench.rule.id)
    book.undo(services, "default", bench.rule.id)
    assert bench.call(FORCE).decision == "deny"


def test_a_step_that_is_undone_waits_for_the_next_report(bench: Bench) -> None:
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    assert bench.call(FORCE).decision == "warn"
    book.undo(bench.memory.services, "default", bench.rule.id)
    assert bench.rule.state == "proposed"
    assert bench.call(FORCE).decision == "allow"
    bench.down(OVERWRITTEN)
    assert bench.call(FORCE).decision == "warn"


def test_everything_can_be_undone_down_to_the_proposal(bench: Bench) -> None:
    list(bench.cases())
    services, seen = bench.memory.services, []
    while bench.rule.state != "retired":
        seen.append(bench.rule.state)
        book.undo(services, "default", bench.rule.id)
    assert seen[0] == "blocks" and seen[-1] == "proposed"
    with pytest.raises(Conflict, match="no change to undo"):
        book.undo(services, "default", bench.rule.id)


def test_a_person_proposes_and_approves_step_by_step(bench: Bench) -> None:
    services, scope = bench.memory.services, bench.memory.scope
    rule = book.propose(services, scope, "shell: make deploy prod", "deploys are Bob's")
    assert bench.call("make deploy prod").decision == "allow"
    for expected in ("warn", "deny"):
        book.approve(services, "default", rule.id)
        assert bench.call("make deploy prod").decision == expected
    with pytest.raises(Conflict, match="already blocks"):
        book.approve(services, "default", rule.id)
    bench.clock.skip(days=60)
    assert bench.call("make deploy prod", "later").decision == "deny"
    bench.clock.skip(days=60)
    assert bench.call("make deploy prod", "much later").decision == "allow"


def test_approving_a_warning_permits_no_block(bench: Bench) -> None:
    def answers(count: int) -> list[str]:
        found = []
        for _ in range(count):
            found.append(bench.call("/p/src/app.py", tool="Edit").decision)
            bench.down("your edit of app.py broke the login, the tests fail now")
        return found

    services = bench.memory.services
    assert answers(3) == ["allow"] * 3
    view = book.show(services, "default", bench.rule.id)
    assert (view.rule.state, view.reach) == ("proposed", "proposed")
    assert book.approve(services, "default", bench.rule.id).state == "warns"
    assert answers(5) == ["warn"] * 5 and bench.rule.weight > BLOCK_WEIGHT
    # Only another word of a person's makes it block.
    assert book.approve(services, "default", bench.rule.id).state == "blocks"
    assert bench.call("/p/src/app.py", tool="Edit").decision == "deny"


def test_approving_lifts_a_rule_that_had_ended_by_one_step(bench: Bench) -> None:
    list(bench.cases())
    services = bench.memory.services
    book.retire(services, "default", bench.rule.id)
    assert book.approve(services, "default", bench.rule.id).state == "warns"
    bench.clock.skip(days=100)
    assert book.show(services, "default", bench.rule.id).rule.state == "expired"
    assert book.approve(services, "default", bench.rule.id).state == "warns"


def test_the_same_trigger_is_proposed_once(bench: Bench) -> None:
    services, scope = bench.memory.services, bench.memory.scope
    book.propose(services, scope, "shell: rm -rf data", "no")
    with pytest.raises(Conflict, match="already"):
        book.propose(services, scope, "shell: rm -fr data", "no")


def test_an_ordinary_command_cannot_be_approved_away(bench: Bench) -> None:
    services, scope = bench.memory.services, bench.memory.scope
    rule = book.propose(services, scope, "shell: git status", "no")
    with pytest.raises(Conflict, match="git status"):
        book.approve(services, "default", rule.id)


def test_a_rule_holds_in_its_project_only(bench: Bench) -> None:
    shop = bench.in_project("shop")
    for _ in range(4):
        if bench.call(FORCE, scope=shop).decision != "deny":
            bench.memory.view(project="shop").capture_feedback(
                "down", OVERWRITTEN, session_key="s1"
            )
    assert bench.call(FORCE, scope=shop).decision == "deny"
    assert bench.call(FORCE, scope=bench.in_project("blog")).decision == "allow"


def test_another_users_rules_are_not_ours(bench: Bench) -> None:
    list(bench.cases())
    ann = bench.memory.view(user="ann")
    assert Bench(ann, bench.clock).call(FORCE).decision == "allow"
    with pytest.raises(NotFound):
        book.show(ann.services, "ann", bench.rule.id)


def test_a_second_branch_widens_the_rule(bench: Bench) -> None:
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    bench.call("git push -f origin release")
    bench.down("You force-pushed again, over release this time")
    assert bench.rule.pattern == "git push --force" and bench.rule.report_count == 2


def test_what_warns_is_a_memory_too(bench: Bench) -> None:
    list(bench.cases(count=2))
    bench.memory.drain()
    assert bench.rule.memory_id is not None
    memory = bench.memory.get(bench.rule.memory_id)
    assert memory.kind == "lesson"


def test_a_proposal_of_a_person_becomes_a_memory_when_it_warns(bench: Bench) -> None:
    services, scope = bench.memory.services, bench.memory.scope
    rule = book.propose(services, scope, "shell: make deploy prod", "deploys are Bob's")
    assert bench.memory.drain() == 0
    book.approve(services, "default", rule.id)
    assert bench.memory.drain() == 1
    memory = bench.memory.get(bench.rule.memory_id or "")
    assert (memory.kind, memory.tags) == ("lesson", (RULE_TAG,))
    assert "deploys are Bob's" in memory.content


def test_the_lesson_of_a_retired_rule_retires_and_returns_with_it(bench: Bench) -> None:
    services, scope, memory = bench.memory.services, bench.memory.scope, bench.memory
    rule = book.propose(services, scope, "edit: */generated/*", "it is generated")
    book.approve(services, "default", rule.id)
    memory.drain()
    lesson = bench.rule.memory_id or ""
    assert memory.get(lesson).deleted_at is None
    book.retire(services, "default", rule.id)
    assert memory.get(lesson).deleted_at is not None
    book.undo(services, "default", rule.id)
    assert memory.get(lesson).deleted_at is None
    book.retire(services, "default", rule.id)
    book.approve(services, "default", rule.id)
    assert memory.get(lesson).deleted_at is None
    # A lesson that a person forgot does not return with a rule.
    memory.forget(lesson)
    book.retire(services, "default", rule.id)
    book.undo(services, "default", rule.id)
    assert memory.get(lesson).deleted_at is not None


def test_a_rule_that_was_retired_before_its_lesson_was_stored_gets_none(bench: Bench) -> None:
    services, scope = bench.memory.services, bench.memory.scope
    rule = book.propose(services, scope, "edit: */generated/*", "it is generated")
    book.approve(services, "default", rule.id)
    book.retire(services, "default", rule.id)
    bench.memory.drain()
    assert bench.rule.memory_id is None


def test_a_rule_of_a_person_mentions_no_reports(bench: Bench) -> None:
    services, scope = bench.memory.services, bench.memory.scope
    rule = book.propose(services, scope, "shell: make deploy prod", "deploys are Bob's")
    book.approve(services, "default", rule.id)
    warned = bench.call("make deploy prod")
    book.approve(services, "default", rule.id)
    denied = bench.call("make deploy prod")
    assert (warned.decision, denied.decision) == ("warn", "deny")
    bench.memory.drain()
    lesson = bench.memory.get(bench.rule.memory_id or "").content
    for text in (warned.reason, denied.reason, lesson):
        assert "report" not in text and "went wrong" not in text
        assert "deploys are Bob's" in text


def test_the_systems_own_blocks_never_enter_the_log(bench: Bench, places: Places) -> None:
    list(bench.cases())
    bench.down("do not push")
    before = bench.memory.feedback_summary()
    for _ in range(10):
        assert bench.call(FORCE).decision == "deny"
    assert bench.memory.feedback_summary() == before
    assert before.total == 4
    assert places.execute("SELECT count(*) FROM feedback_events") == [(4,)]
    assert places.execute("SELECT count(*) FROM rule_events") != [(0,)]


def test_a_denied_call_is_nothing_to_report_on(bench: Bench) -> None:
    list(bench.cases())
    count = bench.rule.report_count
    bench.call(FORCE)
    bench.clock.skip(minutes=30)
    bench.call(FORCE)
    bench.down(OVERWRITTEN)
    assert bench.rule.report_count == count
