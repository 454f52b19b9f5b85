"""Why a memory was shown or not: the numbers add up, and every way to be left out has its words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from session_kit import HERON, NOTES, TABS, TERSE, Desk, filler

from learning_kit import change, lived, lost, noted, shelved
from meritory.domain.errors import InputError, NotFound
from meritory.rank.features import FEATURES

Desks = Callable[..., Desk]
CALM = {"predictor_train_interval_sessions": 10_000}


@pytest.fixture
def desk(desks: Desks) -> Desk:
    return desks(**CALM)


def told(desk: Desk, memory_id: str, key: str = "run") -> dict[str, Any]:
    found = desk.memory.why(memory_id, key)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def because(desk: Desk, memory_id: str, key: str = "run") -> str:
    return " ".join(told(desk, memory_id, key)["reasons"])


# -- the numbers ----------------------------------------------------------------------------


def test_every_number_is_told_and_they_add_up(desk: Desk) -> None:
    ids = noted(desk.memory)
    lived(desk.memory, desk.clock, ids, 2)
    shelved(desk.memory, 1, weight=0.7)
    standing = {"active_since": 0, "judged": 50, "earned_alpha": 0.4}
    change(desk.memory, version=1, latest=1, standing=standing)
    (key,) = lived(desk.memory, desk.clock, ids, 1, "shop")
    rows = desk.rows(key)
    shown = 0
    for memory_id, row in rows.items():
        found, served = told(desk, memory_id, key), row.candidate
        assert found["was_candidate"] is True
        assert found["was_injected"] == served.was_injected
        assert (found["rank"], found["label"]) == (served.rank, row.label)
        parts = found["baseline"]["parts"]
        assert math.fsum(one["adds"] for one in parts) == pytest.approx(served.composite_score)
        weighed = found["predictor"]["features"]
        assert {one["name"] for one in weighed} == set(FEATURES)
        added = math.fsum(one["adds"] for one in weighed)
        assert added == pytest.approx(served.predictor_score)
        assert [abs(one["adds"]) for one in weighed] == sorted(
            (abs(one["adds"]) for one in weighed), reverse=True
        )
        assert (found["predictor"]["model_version"], found["predictor"]["note"]) == (1, None)
        assert found["fusion"]["alpha"] == 0.4
        lowered = found["fusion"]["score"] * found["diversity"]["factor"]
        assert lowered == pytest.approx(served.final_score)
        shown += found["was_injected"]
    assert 0 < shown < len(rows)


def test_a_memory_can_be_named_by_its_handle_or_the_start_of_its_id(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="where is the staging database?")
    first = session.memories[0]
    assert told(desk, "m1")["id"] == first.id
    assert told(desk, first.id[:-1])["id"] == first.id


def test_a_model_that_is_gone_leaves_its_score(desk: Desk) -> None:
    ids = noted(desk.memory)
    shelved(desk.memory, 1)
    change(desk.memory, version=1, latest=1)
    (key,) = lived(desk.memory, desk.clock, ids, 1)
    lost(desk.memory, 1)
    found = told(desk, ids[0], key)["predictor"]
    assert found["score"] is not None
    assert "no longer there" in found["note"]
    assert all("adds" not in one for one in found["features"])


def test_scores_that_no_feature_explains_are_not_explained_by_any(desks: Desks) -> None:
    desk = desks(predictor_scorer="random")
    ids = noted(desk.memory)
    (key,) = lived(desk.memory, desk.clock, ids, 1)
    assert "random did not score it" in told(desk, ids[0], key)["predictor"]["note"]


def test_without_a_model_the_baseline_is_all_there_is(desks: Desks) -> None:
    desk = desks(predictor_enabled="false")
    ids = noted(desk.memory)
    (key,) = lived(desk.memory, desk.clock, ids, 1)
    found = told(desk, ids[0], key)
    assert found["predictor_rank"] is None
    assert "did not score" in found["predictor"]["note"]
    assert found["fusion"]["alpha"] == 1.0


# -- the words ------------------------------------------------------------------------------


def test_what_was_shown_says_when_and_why(desk: Desk) -> None:
    (heron,) = desk.note(HERON)
    (pinned,) = desk.note(TERSE, pinned=True)
    session = desk.memory.session("run", context="where is the staging database?")
    assert because(desk, heron).startswith("shown at the start as m")
    assert "required" in because(desk, pinned)
    (tabs,) = desk.note(TABS)
    session.prompt("may I use tabs in Go files?")
    assert "shown with prompt 1 as m" in because(desk, tabs)


def test_the_places_and_the_budget_are_told(desk: Desk) -> None:
    desk.tune(start_limit=2)
    ids = desk.note(*(f"{HERON}, number {n}" for n in range(6)))
    session = desk.memory.session("run", context="where is the staging database heron?")
    left = next(one for one in ids if one not in {shown.id for shown in session.memories})
    assert "2 places went to better ones" in because(desk, left)
    desk.tune(start_limit=15, start_tokens=600)
    (long,) = desk.note(f"{HERON} " + "and it is very long to read about " * 150)
    desk.memory.session("more", context="where is the staging database heron?")
    assert "budget of 600 tokens" in because(desk, long, "more")


def test_what_is_not_about_the_context_is_not_worth_saying(desk: Desk) -> None:
    ids = desk.note(*filler(12))
    desk.note(HERON)
    desk.memory.session("run", context="where is the staging database heron?")
    words = [because(desk, one) for one in ids]
    assert any("not worth saying" in one for one in words)
    # Nothing speaks against anything where nobody said what it is about.
    desk.memory.session("mute")
    assert not any("not worth" in because(desk, one, "mute") for one in ids)


def test_required_memories_that_do_not_fit_are_named_only(desk: Desk) -> None:
    ids = desk.note(*(f"Rule {n}: " + f"do not {n} " * 250 for n in range(4)), pinned=True)
    desk.memory.session("run", context="anything")
    words = [because(desk, one) for one in ids]
    assert any("only named" in one for one in words)


def test_what_was_rated_as_harmful_says_so(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="where is the staging database?")
    session.rate({session.memories[0].handle: -1.0})
    assert "harmful" in because(desk, session.memories[0].id)


def test_a_stranger_is_told_why_it_was_never_considered(desk: Desk) -> None:
    (other,) = desk.note("The mill grinds", project="other")
    (past,) = desk.note("The mill ground", valid_until=desk.clock.now - timedelta(days=1))
    (doubted,) = desk.note("The mill may grind", origin="web")
    (gone,) = desk.note("The mill stands still")
    desk.memory.forget(gone)
    desk.note(HERON)
    desk.memory.session("run", context="where is the staging database?")
    desk.clock.go(hours=1)
    (later,) = desk.note("The mill was built later")
    everywhere = desk.memory.view(project=None, everywhere=True)
    for memory_id, words in (
        (other, "belongs to project other"),
        (past, "no longer held"),
        (doubted, "it is untrusted"),
        (gone, "it was forgotten"),
        (later, "stored after"),
    ):
        found = everywhere.why(memory_id, "run")
        assert (found["was_candidate"], found["was_injected"]) == (False, False)
        assert words in " ".join(found["reasons"]), memory_id
        assert "predictor" not in found


def test_a_full_pool_leaves_others_out(desks: Desks) -> None:
    desk = desks(predictor_candidate_pool_size=10, **CALM)
    ids = desk.note(*filler(40))
    desk.memory.session("run", context="the ledger of the harbour")
    left = [one for one in ids if one not in desk.rows()]
    assert left
    assert "no search found it" in because(desk, left[0])
    assert "10 candidates" in because(desk, left[0])


def test_what_was_erased_is_not_known_any_more(desk: Desk) -> None:
    (heron,) = desk.note(HERON)
    desk.memory.session("run", context="where is the staging database?")
    desk.memory.forget(heron, purge=True)
    with pytest.raises(NotFound):
        desk.memory.why(heron, "run")


@pytest.mark.parametrize(
    "name", ["", "m99", "zzzz", "\0", "é" * 500, "'; DROP TABLE x", "%", "m1\n"]
)
def test_unknown_names_are_not_found(desk: Desk, name: str) -> None:
    desk.note(*NOTES)
    desk.memory.session("run", context="where is the staging database?")
    with pytest.raises((NotFound, InputError)):
        desk.memory.why(name, "run")
    with pytest.raises(NotFound):
        desk.memory.why("m1", name or "nothing")
    for wrong in (None, 7, ["m1"]):
        with pytest.raises(InputError):
            desk.memory.why(wrong, "run")  # type: ignore[arg-type]
        with pytest.raises(InputError):
            desk.memory.why("m1", wrong)  # type: ignore[arg-type]
