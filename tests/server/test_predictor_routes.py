"""The predictor over HTTP: what it answers, what it refuses, on a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from web_types import Reply, Serve, Served, wait_for

from learning_kit import WORDS

PLACE = "/api/predictor"


def get(daemon: Served, path: str) -> Any:
    reply = daemon.ask("GET", f"{PLACE}/{path}")
    assert reply.status == 200, reply.content
    return reply.json


def post(daemon: Served, path: str, body: Any = None) -> Reply:
    return daemon.ask("POST", f"{PLACE}/{path}", body)


def refused(reply: Reply, status: int) -> Any:
    assert reply.status == status, reply.content
    assert reply.headers["content-type"] == "application/problem+json"
    return reply.json


@pytest.fixture(scope="module")
def keys(daemon: Served) -> list[str]:
    """Sessions that the daemon served, and was told the outcome of."""
    notes = [{"content": f"The {word} service has a port", "on_similar": "keep"} for word in WORDS]
    made = daemon.ask("POST", "/api/memories", {"memories": notes}).json["results"]
    ids = [one["id"] for one in made]
    named = [f"run/{n}" for n in range(6)]
    for n, key in enumerate(named):
        began = {"session_key": key, "context": f"the port of {WORDS[n]}", "project": "shop"}
        assert daemon.ask("POST", "/api/hooks/session-start", began).status == 200
        ended = {"session_key": key, "used": {ids[n]: 1.0, ids[0]: 0.5}}
        assert daemon.ask("POST", "/api/hooks/session-end", ended).status == 200
    wait_for(lambda: len(get(daemon, "comparisons")["results"]) == 6, "nothing was compared")
    return named


# -- reading --------------------------------------------------------------------------------


def test_the_status_of_somebody_new(daemon: Served) -> None:
    told = get(daemon, "status?user=nobody")
    assert told["phase"] == "collecting"
    assert told["waiting_for"]["judged_sessions"] == 10
    assert told["sidecar"]["crash_disabled"] is False


def test_the_status_follows_the_sessions(daemon: Served, keys: list[str]) -> None:
    told = get(daemon, "status")
    assert told["training_sessions"] == len(keys)
    assert told["project_success_rates"][0]["project"] == "shop"
    assert told["latency"]["count"] >= len(keys)
    worker = daemon.ask("GET", "/api/pipeline/status").json["workers"]["predictor"]
    assert worker["details"]["scores_processed"] >= len(keys)
    assert worker["details"]["last_score_latency_ms"] > 0
    wanted = {"pid", "model_ready", "scores_processed", "trainings_completed", "uptime_s"}
    assert wanted <= set(worker["details"])
    domain = daemon.ask("GET", "/api/diagnostics/predictor").json
    assert domain["details"]["training_sessions"] == len(keys)
    assert domain["status"] == "cold_start"


def test_comparisons_are_listed_and_filtered(daemon: Served, keys: list[str]) -> None:
    every = get(daemon, "comparisons")["results"]
    assert [one["id"] for one in every] == keys[::-1]
    for one in every:
        assert one["margin"] == pytest.approx(one["predictor_ndcg"] - one["baseline_ndcg"])
        assert one["predictor_won"] in (0, 0.5, 1)
    page = get(daemon, "comparisons?limit=4")
    rest = get(daemon, f"comparisons?limit=4&offset={page['next']}")
    assert [*page["results"], *rest["results"]] == every
    assert rest["next"] is None
    counts = {
        winner: len(get(daemon, f"comparisons?winner={winner}")["results"])
        for winner in ("predictor", "baseline", "tie")
    }
    assert sum(counts.values()) == len(keys)
    assert counts["tie"] == sum(one["predictor_won"] == 0.5 for one in every)
    assert get(daemon, "comparisons?ema_updated=false")["results"] == []
    clear = get(daemon, "comparisons?min_margin=0.001")["results"]
    assert len(clear) == sum(abs(one["margin"]) >= 0.001 for one in every)
    future = quote((datetime.now(UTC) + timedelta(days=1)).isoformat())
    assert get(daemon, f"comparisons?since={future}")["results"] == []
    assert get(daemon, f"comparisons?until={future}&ema_updated=true")["results"] == every
    assert get(daemon, "comparisons?user=nobody")["results"] == []


def test_one_session_is_compared_and_audited(daemon: Served, keys: list[str]) -> None:
    name = quote(keys[0], safe="")
    found = get(daemon, f"comparisons/{name}")
    assert found["id"] == keys[0]
    audit = get(daemon, f"audit/{name}")
    assert audit["comparison"] == found
    assert audit["session"]["id"] == keys[0]
    assert {one["id"] for one in audit["results"]} >= set(found["relevance_scores"])
    events = [one["event"] for one in audit["events"]]
    assert {"predictor.score", "predictor.compare", "predictor.ema_update"} <= set(events)
    begun = {"session_key": "open one", "context": "the port of alpha"}
    daemon.ask("POST", "/api/hooks/session-start", begun)
    assert get(daemon, "audit/open%20one")["comparison"] is None
    told = refused(daemon.ask("GET", f"{PLACE}/comparisons/open%20one"), 404)
    assert "not compared yet" in told["detail"]


def test_the_log_has_the_numbers_of_every_session(daemon: Served, keys: list[str]) -> None:
    reply = daemon.ask("GET", "/api/logs?category=predictor&level=info&limit=1000")
    found: dict[str, Any] = {
        one["event"]: one["details"]
        for one in reply.json["results"]
        if one["details"].get("session_key") == keys[0]
    }
    steps = ("prefilter", "diversity", "score", "compare", "fts_overlap", "ema_update")
    assert {f"predictor.{name}" for name in steps} <= set(found)
    compared = get(daemon, f"comparisons/{quote(keys[0], safe='')}")
    score = found["predictor.score"]
    assert score["top_pick"] == compared["predictor_top_ids"][0]
    assert score["latency_ms"] > 0.0
    assert score["alpha"] == 1.0
    assert found["predictor.compare"]["margin"] == compared["margin"]
    winner = {1: "predictor", 0.5: "tie", 0: "baseline"}[compared["predictor_won"]]
    assert found["predictor.compare"]["winner"] == winner


def test_drift_and_trainings_begin_empty(daemon: Served, keys: list[str]) -> None:
    told = get(daemon, "drift")
    assert (told["drift_resets"], told["is_drifting"]) == (0, False)
    assert get(daemon, "drift?user=nobody")["results"] == []
    assert get(daemon, "training?user=nobody")["results"] == []


@pytest.mark.parametrize(
    "path",
    [
        "comparisons?winner=nobody",
        "comparisons?ema_updated=perhaps",
        "comparisons?min_margin=-1",
        "comparisons?min_margin=nan",
        "comparisons?since=yesterday",
        "comparisons?until=",
        "comparisons?limit=0",
        "comparisons?limit=100000",
        "comparisons?offset=-1",
        "comparisons?offset=1.5",
        "comparisons?unknown=1",
        "training?limit=x",
        "drift?user=",
        "status?nothing=1",
    ],
)
def test_nonsense_in_a_query_is_refused(daemon: Served, path: str) -> None:
    refused(daemon.ask("GET", f"{PLACE}/{path}"), 422)


@pytest.mark.parametrize("key", ["nothing", "%00", "%F0%9F%98%80", "x" * 600, "a%0Ab", ".."])
def test_unknown_sessions_are_not_found(daemon: Served, key: str) -> None:
    for path in ("comparisons", "audit"):
        refused(daemon.ask("GET", f"{PLACE}/{path}/{key}"), 404)


def test_the_command_line_shows_what_only_the_daemon_knows(daemon: Served, keys: list[str]) -> None:
    command = [sys.executable, "-m", "meritory", "--home", str(daemon.home), "predictor"]
    done = subprocess.run([*command, "status", "--json"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["latency"]["count"] >= len(keys)
    assert told["training_sessions"] == len(keys)
    done = subprocess.run([*command, "enable", "--json"], capture_output=True, timeout=60)
    assert json.loads(done.stdout) == {"is_enabled": True, "has_changed": False}


# -- steering -------------------------------------------------------------------------------


def test_it_is_switched_off_and_on(daemon: Served) -> None:
    off = {"is_enabled": False, "has_changed": True}
    assert post(daemon, "disable?user=anna").json == off
    assert get(daemon, "status?user=anna")["phase"] == "disabled"
    assert get(daemon, "status")["phase"] != "disabled"
    told = refused(post(daemon, "train?user=anna"), 409)
    assert "switched off" in told["detail"]
    domain = daemon.ask("GET", "/api/diagnostics/predictor?user=anna").json
    assert (domain["score"], domain["status"]) == (0.0, "disabled")
    assert post(daemon, "enable?user=anna").json["has_changed"] is True
    assert post(daemon, "enable?user=anna").json["has_changed"] is False
    told = refused(post(daemon, "train?user=anna"), 409)
    assert "no session to learn from" in told["detail"]


def test_a_training_is_ordered_and_runs(daemon: Served, keys: list[str]) -> None:
    ordered = post(daemon, "train").json
    assert (ordered["reason"], ordered["queued"]) == ("asked", True)

    def asked() -> list[dict[str, Any]]:
        """Return the trainings that were asked for; the first ones came by themselves."""
        return [one for one in get(daemon, "training")["results"] if one["reason"] == "asked"]

    wait_for(lambda: bool(asked()), "nothing was trained")
    (run,) = asked()
    assert run["error"] is None
    assert run["sample_count"] + run["skipped_count"] == len(keys)
    assert {"name", "passed"} <= set(run["gates"][0])


def test_models_that_are_not_there_are_not_rolled_back_to(daemon: Served) -> None:
    told = refused(post(daemon, "rollback", {"user": "ben"}), 409)
    assert "no model before 0" in told["detail"]
    told = refused(post(daemon, "rollback", {"user": "ben", "version": 5}), 404)
    assert "0 (base)" in told["hint"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("rollback", {"version": -1}),
        ("rollback", {"version": "1"}),
        ("rollback", {"version": 1.5}),
        ("rollback", {"version": True}),
        ("rollback", {"version": 10**12}),
        ("rollback", {"nothing": 1}),
        ("rollback", []),
        ("calibration", {"count": 5}),
        ("calibration", {"count": 51}),
        ("calibration", {"ratings": {}}),
        ("calibration", {"ratings": [{"session_key": "x", "memory_id": "y"}]}),
        ("calibration", {"ratings": [{"session_key": "", "memory_id": "y", "label": 0}]}),
        ("calibration", {"ratings": [{"session_key": "x", "memory_id": "y", "label": 1.1}]}),
        ("calibration", {"ratings": [{"session_key": "x", "memory_id": "y", "label": "1"}]}),
        (
            "calibration",
            {"ratings": [{"session_key": "x", "memory_id": "y", "label": 0}] * 201},
        ),
    ],
)
def test_nonsense_in_a_body_is_refused(daemon: Served, path: str, body: Any) -> None:
    refused(post(daemon, path, body), 422)


def test_a_body_is_needed_where_there_is_one(daemon: Served) -> None:
    refused(post(daemon, "rollback"), 400)
    refused(post(daemon, "calibration", b"{"), 400)


# -- people's word --------------------------------------------------------------------------


def test_people_rate_what_the_judge_rated(serve: Serve) -> None:
    daemon = serve()
    notes = [
        f"The {word} service has port {4000 + n}; team {WORDS[-n - 1]} runs it"
        for n, word in enumerate(WORDS)
    ]
    body = {"memories": [{"content": note, "on_similar": "keep"} for note in notes]}
    daemon.ask("POST", "/api/memories", body)
    assert post(daemon, "calibration", {}).json["results"] == []
    said = [
        {"role": "user", "text": "Which port has the alpha service? " * 20},
        {"role": "assistant", "text": "It has port 4000 and team tango runs it. " * 20},
    ]
    for key in ("one", "two"):
        began = {"session_key": key, "context": "the port of the alpha service"}
        daemon.ask("POST", "/api/hooks/session-start", began)
        daemon.ask("POST", "/api/hooks/session-end", {"session_key": key, "transcript": said})
    wait_for(
        lambda: len(get(daemon, "comparisons")["results"]) == 2, "the sessions were never judged"
    )
    offered = post(daemon, "calibration", {"count": 20}).json["results"]
    assert len(offered) == 20
    # What the judge said is told after a person has spoken.
    assert {one["judge_label"] for one in offered} == {None}
    ratings = [
        {"session_key": one["session_key"], "memory_id": one["memory_id"], "label": 1.0}
        for one in offered[:3]
    ]
    told = post(daemon, "calibration", {"ratings": ratings}).json
    assert told["calibration"]["rated"] == 3
    assert len(told["results"]) == 3
    for one in told["results"]:
        assert one["delta"] == pytest.approx(1.0 - one["judge_label"])
    mean = sum(abs(one["delta"]) for one in told["results"]) / 3
    assert told["calibration"]["mean_absolute_error"] == pytest.approx(mean, abs=1e-5)
    assert get(daemon, "status")["calibration"] == told["calibration"]
    foreign = [{"session_key": "one", "memory_id": "nothing", "label": 0.0}]
    refused(post(daemon, "calibration", {"ratings": foreign}), 404)
