"""Where the predictor stands: every figure is read from records, and a bad state is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from session_kit import Desk, kept

from learning_kit import change, lived, noted, shelved
from meritory import AsyncMemory
from meritory.engine.jobs.runner import Background
from meritory.engine.observe.diagnostics import DOMAINS, Domain, EngineFacts, overall
from meritory.engine.pipeline import job_handlers
from meritory.engine.predictor.drift import drift
from meritory.engine.predictor.state import scorer_facts
from meritory.ports.scorer import RandomScorer, ScorerFacts
from meritory.rank import influence
from meritory.rank.composite import Trust
from meritory.rank.influence import VALID_ERRORS, HistoryProof
from places import Places

Desks = Callable[..., Desk]
# No training but the first: each takes a process of its own.
CALM = {"predictor_train_interval_sessions": 10_000}


@pytest.fixture
def desk(desks: Desks) -> Desk:
    return desks(**CALM)


class Apart(RandomScorer):
    """A scorer that tells of a process of its own."""

    facts = ScorerFacts(pid=4711, uptime_s=3.0)


def domain(desk: Desk) -> Domain:
    services = desk.memory.services
    works = Background(services, job_handlers(services))
    return DOMAINS["predictor"](EngineFacts(services, works, desk.memory.scope.user))


def apart(desk: Desk, **facts: object) -> None:
    scorer = Apart(desk.memory.services.world)
    scorer.facts = replace(scorer.facts, **facts)  # type: ignore[arg-type]
    desk.equip(scorer=scorer)


def test_an_empty_store_collects_and_says_what_it_waits_for(desk: Desk) -> None:
    told = desk.memory.predictor_status()
    assert told["phase"] == "collecting"
    assert told["alpha"] == 1.0
    assert told["success_rate"] == 0.5
    assert told["waiting_for"] == {
        "judged_sessions": influence.MIN_JUDGED,
        "non_ties": influence.MIN_NON_TIES,
    }
    assert (told["model_version"], told["versions"]) == (0, [0])
    assert told["parameter_count"] > 40
    assert told["latency"]["p95_ms"] is None
    assert told["scorer_drift_signal"] is None
    assert told["warnings"] == []
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_the_figures_follow_the_sessions(desk: Desk) -> None:
    ids = noted(desk.memory, project=None)
    for n, project in enumerate("abcdef"):
        lived(desk.memory, desk.clock, ids, 1 + n, project)
    told = desk.memory.predictor_status()
    assert told["training_sessions"] == 21
    assert told["phase"] == ("active" if told["alpha"] < 1.0 else "warming")
    assert {one["session_count"] for one in told["weighings"]} == {21}
    assert [one["alpha"] for one in told["weighings"]] == [0.9, 0.75, 0.6, 0.4, 0.2, 0.05]
    projects = told["project_success_rates"]
    assert [(one["project"], one["session_count"]) for one in projects] == [
        ("f", 6),
        ("e", 5),
        ("d", 4),
        ("c", 3),
        ("b", 2),
    ]
    assert "judged_sessions" not in told["waiting_for"]
    assert told["latency"]["count"] == 21
    assert told["latency"]["p50_ms"] <= told["latency"]["p95_ms"]
    # A program knew what helped: there was no judge whom people could check.
    assert told["calibration"]["sessions_since"] == 0
    assert told["canaries"] == desk.store.canary_count(desk.memory.scope.user)


def test_the_trust_in_history_is_in_the_status(desk: Desk) -> None:
    nothing = desk.memory.predictor_status()["history"]
    assert (nothing["recency"], nothing["usefulness"], nothing["sessions"]) == (0.0, 0.0, 0)
    assert (nothing["labels_valid"], nothing["validity_errors"]) == (False, 0.0)
    assert nothing["validity_needed"] == VALID_ERRORS
    proof = HistoryProof(Trust(0.5, 1.0), 12, 2.5, True, 0.25, 0.125)
    change(desk.memory, history=proof)
    assert desk.memory.predictor_status()["history"] == {
        "recency": 0.5,
        "usefulness": 1.0,
        "sessions": 12,
        "labels_valid": True,
        "labels_partial": True,
        "validity_errors": 2.5,
        "validity_needed": VALID_ERRORS,
        "margin": 0.25,
        "full_margin": 0.125,
    }


def test_each_phase_has_its_sign(desk: Desk) -> None:
    active = {"active_since": 10, "judged": 40, "earned_alpha": 0.4, "success_rate": 0.7}
    change(desk.memory, standing=active)
    told = desk.memory.predictor_status()
    assert (told["phase"], told["alpha"]) == ("active", 0.4)
    assert told["is_cold"] is False
    change(desk.memory, order_reason="drift")
    assert desk.memory.predictor_status()["phase"] == "retraining"
    assert desk.memory.predictor_status()["is_drifting"] is True
    change(desk.memory, order_reason=None, is_enabled=False)
    told = desk.memory.predictor_status()
    assert (told["phase"], told["alpha"]) == ("disabled", 1.0)
    assert "enable" in told["reason"]


def test_a_predictor_that_the_settings_switch_off_is_disabled(desks: Desks) -> None:
    desk = desks(predictor_enabled="false")
    told = desk.memory.predictor_status()
    assert told["phase"] == "disabled"
    assert "predictor.enabled" in told["reason"]
    assert told["scorer"] == "none"
    assert scorer_facts(desk.memory.services.scorer).is_alive is False


def test_slow_scoring_is_told_before_it_times_out(desk: Desk) -> None:
    observer = desk.memory.services.observer
    timeout_ms = desk.memory.services.policy.predictor.score_timeout_ms
    for _ in range(20):
        observer.took("predictor_score", 0.79 * timeout_ms)
    assert desk.memory.predictor_status()["latency"]["is_slow"] is False
    for _ in range(20):
        observer.took("predictor_score", 0.8 * timeout_ms)
    told = desk.memory.predictor_status()
    assert told["latency"]["is_slow"] is True
    assert "score_timeout_ms" in told["warnings"][0]


def test_a_model_that_is_gone_or_damaged_is_told(desk: Desk) -> None:
    change(desk.memory, version=4, latest=4)
    (warning,) = desk.memory.predictor_status()["warnings"]
    assert "model 4 is not usable" in warning
    assert "earlier one" in warning
    assert desk.memory.predictor_status()["parameter_count"] is None
    shelved(desk.memory, 4)
    told = desk.memory.predictor_status()
    assert (told["warnings"], told["versions"]) == ([], [4, 0])


def test_the_async_twin_says_the_same(desk: Desk, places: Places) -> None:
    ids = noted(desk.memory)
    (key,) = lived(desk.memory, desk.clock, ids, 1)
    told, why = desk.memory.predictor_status(), desk.memory.why(ids[0], key)
    desk.memory.close()

    async def ask() -> tuple[dict[str, Any], dict[str, Any]]:
        async with AsyncMemory(**places.fields(), project="shop", clock=desk.clock) as memory:
            return await memory.predictor_status(), await memory.why(ids[0], key)

    again, same = asyncio.run(ask())
    assert {**again, "latency": None} == {**told, "latency": None}
    assert same == why


def test_success_is_told_by_what_helped_was_about(desk: Desk) -> None:
    about = {"checkout": ["Checkout asks twice", "Checkout is slow"], "search": ["Search is new"]}
    ids = {}
    for entity, texts in about.items():
        items = [{"content": text, "about": entity} for text in texts]
        made = desk.memory.remember_many(items)
        ids[entity] = [kept(one.memory).id for one in made]
    desk.note(*(f"Note {n} is about nothing" for n in range(6)))
    won: dict[str, list[float | None]] = {}
    for n, entity in enumerate(("checkout", "checkout", "checkout", "search")):
        desk.clock.go(hours=5)
        session = desk.memory.session(f"s{n}", context="what is new?")
        # Two memories about the same are one session.
        session.end(used=dict.fromkeys(ids[entity], 1.0))
        found = desk.store.comparison("default", f"s{n}")
        assert found is not None
        won.setdefault(entity, []).append(found.predictor_won)
    told = desk.memory.predictor_status()["entity_success_rates"]
    assert [(one["kind"], one["name"], one["session_count"]) for one in told] == [
        ("topic", "checkout", 3),
        ("topic", "search", 1),
    ]
    for one in told:
        assert one["success_rate"] == pytest.approx(np.mean(won[one["name"]]), abs=1e-6)


# -- the judge over time --------------------------------------------------------------------


@pytest.mark.parametrize("favoured", ["young", "old"])
def test_a_judge_that_favours_an_age_shows_it(desk: Desk, favoured: str) -> None:
    ids = {
        "old": desk.note(*(f"The old {n} mill grinds {n}" for n in range(5))),
    }
    desk.clock.go(days=60)
    ids["young"] = desk.note(*(f"The new {n} mill grinds {n}" for n in range(5)))
    for n in range(25):
        desk.clock.go(minutes=5)
        session = desk.memory.session(f"s{n}", context="which mill grinds?")
        session.end(used=dict.fromkeys(ids[favoured], 1.0))
    sign = 1.0 if favoured == "young" else -1.0
    assert desk.memory.predictor_status()["scorer_drift_signal"] == pytest.approx(sign)
    told = drift(desk.memory.services, desk.memory.scope.user)
    assert [one["sessions"] for one in told["results"]] == [20]
    assert told["results"][0]["signal"] == pytest.approx(sign)
    assert told["results"][0]["id"] == "s5"


# -- the domain -----------------------------------------------------------------------------


def test_cold_start_is_no_illness(desk: Desk) -> None:
    found = domain(desk)
    assert (found.score, found.status) == (0.6, "cold_start")
    wanted = """sidecar_alive sidecar_pid last_score_latency_ms avg_score_latency_ms
        p95_score_latency_ms crash_count crash_disabled model_version training_sessions
        min_training_sessions success_rate alpha last_trained_at last_train_loss drift_resets
        scorer_drift_signal project_success_rates"""
    assert set(wanted.split()) <= set(found.details)


@pytest.mark.parametrize(
    ("success", "is_slow", "is_adrift", "low", "high", "status"),
    [
        (1.0, False, False, 1.0, 1.0, "healthy"),
        (0.72, False, False, 0.85, 0.95, "healthy"),
        (0.41, False, False, 0.8, 0.81, "healthy"),
        (0.4, False, False, 0.6, 0.6, "degraded"),
        (1.0, True, False, 0.8, 0.8, "healthy"),
        (0.41, True, False, 0.6, 0.61, "degraded"),
        (0.41, False, True, 0.7, 0.71, "degraded"),
        (0.2, True, True, 0.3, 0.3, "unhealthy"),
    ],
)
def test_the_score_says_how_well_it_does(
    desk: Desk,
    success: float,
    is_slow: bool,
    is_adrift: bool,
    low: float,
    high: float,
    status: str,
) -> None:
    standing = {"active_since": 10, "judged": 40, "success_rate": success}
    standing |= {"drift_resets": 1, "calm_until": 45} if is_adrift else {}
    change(desk.memory, standing=standing)
    for _ in range(20 if is_slow else 1):
        # The first one has to load everything: that alone is not being slow.
        desk.memory.services.observer.took("predictor_score", 1_000.0)
    found = domain(desk)
    assert low - 1e-9 <= found.score <= high + 1e-9
    assert found.status == status


def test_a_dead_process_is_an_illness_and_a_choice_is_none(desk: Desk) -> None:
    apart(desk)
    assert (domain(desk).score, domain(desk).details["sidecar_pid"]) == (0.6, 4711)
    # Nobody needed it yet.
    apart(desk, is_alive=False, pid=None)
    assert domain(desk).status == "cold_start"
    apart(desk, is_alive=False, pid=None, crash_count=1)
    found = domain(desk)
    assert (found.score, found.status) == (0.0, "unhealthy")
    assert overall([found]) == 0.0
    apart(desk, is_alive=False, pid=None, crash_count=3, is_disabled=True)
    found = domain(desk)
    assert (found.score, found.status) == (0.0, "disabled")
    assert "3 crashes/h" in found.warnings[0]
    assert overall([found]) == 0.0
    apart(desk)
    change(desk.memory, is_enabled=False)
    found = domain(desk)
    assert (found.score, found.status) == (0.0, "disabled")
    assert overall([found]) == 1.0
