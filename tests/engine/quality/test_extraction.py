"""What a finished session leaves behind: stored once, refused with a reason, brought back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from session_kit import HERON, RULE, TERSE, Desk, kept

from meritory.domain.errors import (
    BadReply,
    BudgetSpent,
    Conflict,
    InputError,
    MeritoryError,
    NotFound,
)
from meritory.domain.job import Job
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Turn
from meritory.engine.jobs.runner import EXTRACT_JOB, JobRunner
from meritory.engine.pipeline import EXTRACT, job_handler
from meritory.engine.quality import extraction
from meritory.text.extract.rules import Declined, Extraction, FoundClaim
from meritory.text.transcript import TRANSCRIPT_LIMIT_CHARS, as_text

PNPM = "Always use pnpm and never npm."
STAGING = "No, the staging database is now called osprey."
FLOORED = "Always show me the diff in this PR."
KEY = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def turn(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "text": text}


def ended(desk: Desk, *texts: str | dict[str, str], key: str = "run") -> None:
    """A session in which this was said."""
    turns = [turn(one) if isinstance(one, str) else one for one in texts]
    desk.memory.session(key).end(turns)


def work(desk: Desk) -> int:
    """Runs extraction with the engine as it is now."""
    services = desk.memory.services
    runner = JobRunner(desk.store, services.world, {EXTRACT_JOB: job_handler(services, EXTRACT)})
    return runner.drain()


def job(desk: Desk, key: str = "run") -> Job:
    return desk.store.job("default", EXTRACT_JOB, key)


def stored(desk: Desk) -> list[MemoryRecord]:
    return desk.memory.page()


def refused(desk: Desk) -> list[tuple[str, str]]:
    found = desk.memory.services.store.refusals("default", 50, 0)
    return [(one.content, one.reason) for one in found]


class Model:
    """An extractor that says what it is told to, or fails."""

    name = "llm/1"

    def __init__(self, *found: FoundClaim, refused: Sequence[Declined] = ()) -> None:
        self.made = Extraction(found, tuple(refused))
        self.errors: list[MeritoryError] = []
        self.known: Sequence[MemoryRecord] = ()
        self.calls = 0

    def extract(self, turns: Sequence[Turn], known: Sequence[MemoryRecord] = ()) -> Extraction:
        self.calls += 1
        self.known = known
        if self.errors:
            raise self.errors.pop()
        return self.made


def found(content: str, **fields: Any) -> FoundClaim:
    base = FoundClaim(content, "fact", "user_stated", "user", 0.9, 0, content)
    return replace(base, **fields)


CHAT = (
    "The migration has to run tonight, on staging first and on production later.",
    turn("I will look at the migration and at what staging has at the moment.", "assistant"),
    "Good. Mind that the old rows stay where they are until somebody has looked at all of them.",
)


# -- the rules ------------------------------------------------------------------------------


def test_what_the_user_said_becomes_a_memory_with_its_source(desk: Desk) -> None:
    ended(desk, "Hello there", turn("Hi", "assistant"), PNPM)
    assert desk.memory.drain() == 2
    (memory,) = stored(desk)
    assert (memory.content, memory.kind) == (PNPM.rstrip("."), "preference")
    assert memory.tags == ("proposed:constraint",) and desk.memory.required("") == []
    assert (memory.provenance, memory.origin, memory.trust) == ("user_stated", "user", "trusted")
    assert (memory.project, memory.confidence) == ("shop", 0.95)
    source = memory.sources[0]
    assert (source.session_key, source.turn, source.extractor) == ("run", "2", "rules/1")
    assert source.quote_hash == extraction.hashed(PNPM)
    (entry,) = desk.memory.history(memory.id)
    assert entry.actor == "extractor rules/1"
    assert desk.counters()["write.stored"] == 1 and desk.counters()["turns.user"] == 2


@pytest.mark.parametrize("said", [None, [], [turn("Fix the login page")], [turn(PNPM, "result")]])
def test_nothing_to_extract_is_no_job(desk: Desk, said: list[dict[str, str]] | None) -> None:
    desk.memory.session("run").end(said)
    desk.memory.session("known").end(used={})
    desk.memory.drain()
    assert {one.kind for one in desk.store.jobs(None, None, 9)} == {"finish-session"}
    assert stored(desk) == []


def test_a_program_that_knows_what_helped_is_read_as_well(desk: Desk) -> None:
    desk.memory.session("run").end([turn(PNPM)], used={})
    desk.memory.drain()
    assert len(stored(desk)) == 1


def test_extraction_can_be_switched_off(desks: Callable[..., Desk]) -> None:
    desk = desks(extraction_kind="none")
    ended(desk, PNPM)
    desk.memory.drain()
    assert stored(desk) == []


def test_what_was_said_long_ago_in_a_long_session_is_not_lost(desk: Desk) -> None:
    filler = [turn(f"{n} " + "word " * 1_000, "assistant") for n in range(40)]
    ended(desk, "Hello", PNPM, *filler, "bye")
    stored_ = desk.store.transcript("default", "run")
    assert [one.text for one in stored_ if one.role == "user"] == [PNPM, "bye"]
    assert len(as_text(stored_)) <= TRANSCRIPT_LIMIT_CHARS
    desk.memory.drain()
    assert [one.content for one in stored(desk)] == [PNPM.rstrip(".")]


def test_an_explicit_remember_is_never_floored(desk: Desk) -> None:
    assert desk.memory.remember(FLOORED).content == FLOORED


def test_a_session_that_goes_on_is_read_again_without_doubling(desk: Desk) -> None:
    for more in ([], ["Never push to main without a review."]):
        ended(desk, PNPM, FLOORED, *more)
        desk.memory.drain()
    assert sorted(one.content for one in stored(desk)) == [PNPM.rstrip("."), RULE]
    assert len(refused(desk)) == 1 and desk.counters()["write.floored"] == 1
    assert len(stored(desk)[1].sources) == 1


def test_what_a_person_deleted_does_not_come_back_when_the_session_goes_on(desk: Desk) -> None:
    ended(desk, PNPM)
    desk.memory.drain()
    desk.memory.forget(stored(desk)[0].id)
    ended(desk, PNPM, "and go on")
    assert desk.memory.drain() == 2
    assert stored(desk) == []
    # Said once more in another session it is meant.
    ended(desk, PNPM, key="next")
    desk.memory.drain()
    assert len(stored(desk)) == 1


# -- Meritory's own text ----------------------------------------------------------------------


def test_what_meritory_showed_is_not_learned_again(desk: Desk) -> None:
    (own,) = desk.note(RULE, provenance="assistant_derived", origin="agent")
    session = desk.memory.session("run", context="may I push to main without a review?")
    assert RULE in session.inject
    session.end([turn(session.inject), turn("see " + session.inject), turn(f"{RULE}.")])
    desk.memory.drain()
    (memory,) = stored(desk)
    # The agent's conclusion did not become the user's word by being pasted.
    assert (memory.id, memory.provenance, memory.sources) == (own, "assistant_derived", ())
    assert refused(desk) == [] and desk.counters()["extract.echoed"] == 1


# -- what was refused -----------------------------------------------------------------------


def test_what_the_floor_declined_can_be_brought_back_once(desk: Desk) -> None:
    ended(desk, FLOORED)
    desk.memory.drain()
    assert stored(desk) == [] and desk.counters()["write.floored"] == 1
    ((content, reason),) = refused(desk)
    assert content == FLOORED.rstrip(".") and "current task" in reason
    services = desk.memory.services
    (one,) = services.store.refusals("default", 50, 0)
    assert services.store.refusal("default", one.id[:6]) == one
    memory = extraction.restore_refusal(services, "default", one.id)
    assert memory.content == content and kept(memory).sources[0].extractor == "rules/1"
    assert refused(desk) == []
    with pytest.raises(Conflict, match=memory.id):
        extraction.restore_refusal(services, "default", one.id)
    # Read again, the session brings up neither the refusal nor the memory a second time.
    ended(desk, FLOORED, "go on")
    desk.memory.drain()
    assert refused(desk) == [] and len(stored(desk)) == 1


def test_what_a_model_is_refused_can_be_restored(desk: Desk) -> None:
    asked = "Which port does staging use?"
    desk.equip(extractor=Model(refused=[Declined(found(asked), "it only asks", "refused")]))
    ended(desk, *CHAT)
    work(desk)
    assert (asked, "it only asks") in refused(desk)
    services = desk.memory.services
    (one,) = (r for r in services.store.refusals("default", 50, 0) if r.content == asked)
    assert extraction.restore_refusal(services, "default", one.id).content == asked
    assert asked not in dict(refused(desk))


def test_a_purge_takes_the_refusal_along(desk: Desk) -> None:
    ended(desk, FLOORED)
    desk.memory.drain()
    (one,) = desk.memory.services.store.refusals("default", 50, 0)
    memory = extraction.restore_refusal(desk.memory.services, "default", one.id)
    desk.memory.forget(memory.id, purge=True)
    with pytest.raises(NotFound):
        desk.memory.services.store.refusal("default", one.id)


def test_a_purge_takes_what_was_refused_in_the_same_words(desk: Desk) -> None:
    ended(desk, FLOORED, "Never touch the heron parser for now.")
    desk.memory.drain()
    assert len(refused(desk)) == 2
    memory = desk.memory.remember("always show me the DIFF in this PR")
    desk.memory.update(memory.id, content="Anything else that is told about diffs")
    desk.memory.forget(memory.id, purge=True)
    assert [content for content, _ in refused(desk)] == ["Never touch the heron parser for now"]


def test_nobody_restores_anothers(desk: Desk) -> None:
    ended(desk, FLOORED)
    desk.memory.drain()
    (one,) = desk.memory.services.store.refusals("default", 50, 0)
    with pytest.raises(NotFound):
        extraction.restore_refusal(desk.memory.services, "eve", one.id)
    assert desk.memory.services.store.refusals("eve", 50, 0) == []


def test_no_secret_is_kept_in_a_memory_or_a_refusal(desk: Desk) -> None:
    ended(desk, f"Always use the token {KEY} in this PR.", f"Remember that the key is {KEY}.")
    desk.memory.drain()
    found_ = desk.memory.services.store.refusals("default", 50, 0)
    told = [one.content for one in stored(desk)] + [f"{one}" for one in found_]
    assert told and KEY not in " ".join(told)


def test_a_session_is_read_again_on_request(desk: Desk) -> None:
    session = desk.memory.session("run")
    with pytest.raises(InputError, match="still open"):
        extraction.extract_again(desk.memory.services, "default", "run")
    session.end()
    with pytest.raises(NotFound, match="no transcript"):
        extraction.extract_again(desk.memory.services, "default", "run")
    ended(desk, PNPM, key="other")
    desk.memory.drain()
    extraction.extract_again(desk.memory.services, "default", "other")
    assert desk.memory.drain() == 1 and len(stored(desk)) == 1


# -- a model --------------------------------------------------------------------------------


def test_a_model_adds_to_what_the_rules_found(desk: Desk) -> None:
    model = Model(found("Migrations run on staging first"), found(PNPM.rstrip(".")))
    desk.equip(extractor=model)
    desk.note(TERSE)
    ended(desk, *CHAT, PNPM)
    assert work(desk) == 1
    by = {one.content: one for one in stored(desk)}
    assert set(by) == {TERSE, PNPM.rstrip("."), "Migrations run on staging first"}
    assert kept(by["Migrations run on staging first"]).sources[0].extractor == "llm/1"
    assert kept(by[PNPM.rstrip(".")]).sources[0].extractor == "rules/1"
    actors = {one.actor for one in desk.memory.history(by["Migrations run on staging first"].id)}
    assert actors == {"extractor llm/1"}


def test_a_model_that_fails_is_tried_again_and_loses_nothing(desk: Desk) -> None:
    model = Model(found("Migrations run on staging first"))
    model.errors = [BadReply("that is no JSON")] * 2
    desk.equip(extractor=model)
    ended(desk, *CHAT, PNPM)
    for _ in range(2):
        assert work(desk) == 0
        assert (job(desk).state, job(desk).stage) == ("queued", "rules")
        assert "no JSON" in str(job(desk).error)
        desk.clock.go(hours=1)
    # What the rules found is there all along.
    assert [one.content for one in stored(desk)] == [PNPM.rstrip(".")]
    assert work(desk) == 1 and model.calls == 3
    assert len(stored(desk)) == 2 and desk.counters()["write.stored"] == 2


def test_a_model_that_never_answers_right_is_parked_with_the_reason(desk: Desk) -> None:
    model = Model()
    model.errors = [BadReply("that is no JSON")] * 99
    desk.equip(extractor=model)
    ended(desk, *CHAT, PNPM)
    for _ in range(20):
        work(desk)
        desk.clock.go(hours=2)
    assert job(desk).state == "parked" and "no JSON" in str(job(desk).error)
    assert [one.content for one in stored(desk)] == [PNPM.rstrip(".")]


def test_a_spent_budget_postpones(desk: Desk) -> None:
    model = Model(found("Migrations run on staging first"))
    model.errors = [BudgetSpent("spent", retry_after_s=1_800)]
    desk.equip(extractor=model)
    ended(desk, *CHAT)
    assert work(desk) == 0 and (job(desk).state, job(desk).stage) == ("queued", "rules")
    assert job(desk).due_at >= desk.clock.now + timedelta(minutes=29)
    desk.clock.go(hours=1)
    assert work(desk) == 1 and len(stored(desk)) == 1


@pytest.mark.parametrize("origin", ["tool", "web"])
def test_what_a_tool_said_is_search_only_until_confirmed(desk: Desk, origin: Any) -> None:
    claim = found(HERON, provenance="assistant_derived", origin=origin, kind="constraint")
    desk.equip(extractor=Model(claim))
    ended(desk, *CHAT)
    work(desk)
    (memory,) = stored(desk)
    assert (memory.trust, memory.kind, memory.tags) == (
        "untrusted",
        "fact",
        ("proposed:constraint",),
    )
    asked = "what is the staging database called?"
    assert [one.id for one in desk.memory.recall(asked)] == [memory.id]
    assert HERON not in desk.memory.session("next", context=asked).inject
    desk.memory.confirm(memory.id)
    assert HERON in desk.memory.session("later", context=asked).inject


def test_a_constraint_that_a_model_reads_into_a_quote_is_only_proposed(desk: Desk) -> None:
    claim = found("Always use Buildkite for Initech work", kind="constraint")
    desk.equip(extractor=Model(claim))
    ended(desk, *CHAT)
    work(desk)
    (memory,) = stored(desk)
    assert (memory.kind, memory.tags) == ("preference", ("proposed:constraint",))
    assert desk.memory.required("") == []
    shown = desk.memory.session("next", context="which CI do we use at Initech?").inject
    assert "Buildkite" in shown and "constraint" not in shown.lower()


def test_a_correction_replaces_the_memory_that_it_corrects(desk: Desk) -> None:
    (old,) = desk.note("The staging database is called heron")
    ended(desk, "Start it", turn("I use heron", "assistant"), STAGING, "No, use port 8081 instead.")
    work(desk)
    assert [memory.content for memory in stored(desk)] == [
        "The staging database is now called osprey"
    ]
    assert desk.memory.get(old).superseded_by == stored(desk)[0].id
    assert stored(desk)[0].kind == "fact" and stored(desk)[0].tags == ()


def test_a_constraint_that_a_person_set_is_not_replaced_by_extraction(desk: Desk) -> None:
    rule = desk.memory.remember("The staging database is called heron", kind="constraint")
    ended(desk, "Start it", turn("I use heron", "assistant"), STAGING)
    work(desk)
    assert desk.memory.get(rule.id).is_live and desk.memory.get(rule.id).is_binding
    assert len(stored(desk)) == 2


CORRECTED = "We migrated from RabbitMQ to Kafka."


def test_a_correction_retires_the_one_memory_with_the_old_value_and_can_be_undone(
    desk: Desk,
) -> None:
    # The texts share one word only, so the gate alone keeps both.
    old = desk.memory.remember("RabbitMQ is our message broker")
    ended(desk, "Write the consumer", turn("Done.", "assistant"), CORRECTED)
    desk.memory.drain()
    (new,) = stored(desk)
    assert new.content == "We migrated from RabbitMQ to Kafka"
    assert desk.memory.get(old.id).superseded_by == new.id
    entry = desk.memory.history(old.id)[-1]
    assert (entry.action, entry.why) == ("supersede", extraction.OLD_VALUE_REASON)
    desk.memory.undo(old.id)
    assert desk.memory.get(old.id).is_live


ANSWER = "wrong, it's 7010"
RELAY = "The relay of the lab listens on port 7001"


def test_an_answer_to_what_the_agent_said_puts_the_new_value_into_the_memory(desk: Desk) -> None:
    old = desk.memory.remember(RELAY)
    desk.memory.remember("The proxy of the lab listens on port 7002", on_similar="keep")
    ended(desk, "Start it", turn(f"I assumed: {RELAY}.", "assistant"), ANSWER)
    desk.memory.drain()
    new = desk.memory.get(desk.memory.get(old.id).superseded_by or "")
    assert new.content == "The relay of the lab listens on port 7010"
    assert (new.kind, new.provenance, new.is_binding) == ("fact", "user_stated", False)
    desk.memory.undo(old.id)
    assert desk.memory.get(old.id).is_live


def test_an_answer_without_a_memory_in_the_reply_retires_nothing(desk: Desk) -> None:
    old = desk.memory.remember(RELAY)
    ended(desk, "Start it", turn("It is started.", "assistant"), ANSWER)
    desk.memory.drain()
    assert desk.memory.get(old.id).is_live


def test_an_answer_to_two_memories_retires_neither(desk: Desk) -> None:
    texts = (RELAY, "The proxy of the lab listens on port 7002")
    old = [desk.memory.remember(text, on_similar="keep") for text in texts]
    ended(desk, "Start it", turn(f"I assumed: {'. '.join(texts)}.", "assistant"), ANSWER)
    desk.memory.drain()
    assert all(desk.memory.get(one.id).is_live for one in old)


@pytest.mark.parametrize("fields", [{"pinned": True}, {"kind": "constraint"}])
def test_no_correction_retires_what_binds(desk: Desk, fields: dict[str, Any]) -> None:
    old = desk.memory.remember("RabbitMQ is our message broker", **fields)
    ended(desk, "Write the consumer", turn("Done.", "assistant"), CORRECTED)
    desk.memory.drain()
    assert desk.memory.get(old.id).is_live and len(stored(desk)) == 2


def test_no_correction_retires_one_of_several_or_another_subject(desk: Desk) -> None:
    texts = ("RabbitMQ is our message broker", "Our events go through RabbitMQ")
    for text in (*texts, "The proxy of the lab listens on port 8080"):
        desk.memory.remember(text, on_similar="keep")
    said = "No, the staging API listens on port 8081, not 8080."
    ended(desk, "Write the consumer", turn("Done.", "assistant"), CORRECTED, said)
    desk.memory.drain()
    assert len(stored(desk)) == 5


def test_no_correction_of_another_project_retires_a_memory(desk: Desk) -> None:
    old = desk.memory.view(project="other").remember("RabbitMQ is our message broker")
    ended(desk, "Write the consumer", turn("Done.", "assistant"), CORRECTED)
    desk.memory.drain()
    assert desk.memory.view(project="other").get(old.id).is_live


def test_known_memories_are_shown_and_an_update_replaces(desk: Desk) -> None:
    (old,) = desk.note("The migration runs on staging port 5432")
    model = Model(found("The migration runs on staging port 5433", supersedes=old))
    desk.equip(extractor=model)
    ended(desk, *CHAT)
    work(desk)
    assert old in [one.id for one in model.known] and len(model.known) <= 8
    (memory,) = stored(desk)
    assert memory.content.endswith("5433")
    assert desk.memory.get(old).superseded_by == memory.id


@pytest.mark.parametrize(
    ("stored_as", "claimed"),
    [
        ({"pinned": True}, {}),
        ({"kind": "constraint"}, {}),
        ({}, {"provenance": "assistant_derived", "origin": "agent"}),
        ({}, {"provenance": "assistant_derived", "origin": "web"}),
        ({"project": None}, {}),
    ],
)
def test_a_model_replaces_nothing_that_the_gate_would_not(
    desk: Desk, stored_as: Mapping[str, Any], claimed: Mapping[str, Any]
) -> None:
    (old,) = desk.note("The migration runs on staging port 5432", **stored_as)
    claim = found("The migration runs on staging port 5433", supersedes=old, **claimed)
    desk.equip(extractor=Model(claim))
    ended(desk, *CHAT)
    work(desk)
    view = desk.memory.view(everywhere=True)
    assert view.get(old).is_live and view.get(old).content.endswith("5432")
    assert desk.counters().get("write.superseded", 0) == 0


def test_a_model_does_not_replace_what_is_about_something_else(desk: Desk) -> None:
    (old,) = desk.note(TERSE)
    desk.equip(extractor=Model(found("Migrations run on staging first", supersedes=old)))
    ended(desk, *CHAT)
    work(desk)
    assert desk.memory.get(old).is_live and len(stored(desk)) == 2


def test_checks_and_floor_are_counted_apart(desk: Desk) -> None:
    no = [
        Declined(found("Nobody said this"), "its quote is not in the transcript", "refused"),
        Declined(found("The tests pass by now"), "it would not help later"),
    ]
    desk.equip(extractor=Model(refused=no))
    ended(desk, *CHAT)
    work(desk)
    assert (desk.counters()["write.refused"], desk.counters()["write.floored"]) == (1, 1)
    assert len(refused(desk)) == 2 and stored(desk) == []


# -- summaries ------------------------------------------------------------------------------


def test_a_session_can_be_kept_as_a_memory_which_the_next_end_replaces(
    desks: Callable[..., Desk],
) -> None:
    desk = desks(extraction_summaries="true")
    ended(desk, "Fix the login page")
    desk.memory.drain()
    (memory,) = stored(desk)
    assert (memory.kind, memory.provenance, memory.origin) == (
        "episode",
        "episode_summary",
        "agent",
    )
    assert memory.content == "Asked for on 2026-03-02: Fix the login page"
    desk.clock.go(minutes=5)
    ended(desk, "Fix the login page", "and the logout page")
    desk.memory.drain()
    (later,) = stored(desk)
    assert later.content.endswith("logout page")
    assert desk.memory.get(memory.id).superseded_by == later.id
    desk.memory.forget(later.id)
    ended(desk, "Fix the login page", "and go on")
    desk.memory.drain()
    assert stored(desk) == []


def test_a_summary_that_was_purged_does_not_come_back(desks: Callable[..., Desk]) -> None:
    desk = desks(extraction_summaries="true")
    ended(desk, "Fix the login page")
    desk.memory.drain()
    desk.memory.forget(stored(desk)[0].id, purge=True)
    ended(desk, "Fix the login page", "and go on")
    desk.memory.drain()
    assert stored(desk) == []
