"""Seeing what the daemon does: diagnostics, the pipeline, timelines and figures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from web_types import Serve, Served, clean_environment, wait_for

from meritory.domain.world import moment_text
from meritory.engine.observe.diagnostics import DOMAINS, STUCK_AFTER
from meritory.engine.pipeline import FLOWS
from places import open_raw

STATUSES = {"healthy", "degraded", "unhealthy", "cold_start", "disabled"}
MCP = {"accept": "application/json, text/event-stream"}
HERON = "The staging database is called heron"


def hook(daemon: Served, name: str, key: str = "run", **body: Any) -> Any:
    reply = daemon.ask("POST", f"/api/hooks/{name}", {"session_key": key, **body})
    assert reply.status == 200, reply.content
    return reply.json


def lived(daemon: Served, key: str = "run") -> str:
    """A whole session; returns the id of the memory in it."""
    memory_id: str = daemon.ask("POST", "/api/memories", {"content": HERON}).json["id"]
    began = hook(daemon, "session-start", key, context="heron", harness="codex")
    hook(daemon, "user-prompt-submit", key, prompt="where is the staging database?")
    hook(daemon, "stop", key, last_assistant_message=f"<!--mf {began['injection']} m1=0.8-->")
    said = [{"role": "user", "text": "where? " * 60}, {"role": "assistant", "text": "heron " * 60}]
    hook(daemon, "session-end", key, transcript=said)
    place = f"/api/sessions/{quote(key, safe='')}"
    wait_for(lambda: daemon.ask("GET", place).json["state"] == "finished", "it was never judged")
    return memory_id


def unrecorded(daemon: Served, key: str) -> Any:
    """What a session is answered that cannot be noted down."""
    answers: list[Any] = []

    def is_served() -> bool:
        # Whoever needs a further connection to a file that is not there any more is refused.
        reply = daemon.ask(
            "POST", "/api/hooks/session-start", {"session_key": key, "context": "heron"}
        )
        assert reply.status == 200 or reply.json["code"] == "storage"
        answers.append(reply.json)
        return reply.status == 200

    wait_for(is_served, "nobody was served")
    assert answers[-1]["recording"] == "off"
    return answers[-1]


def domain(daemon: Served, name: str) -> Any:
    return daemon.ask("GET", f"/api/diagnostics/{name}").json


# -- diagnostics ------------------------------------------------------------------------------


def test_every_domain_is_told_alone_and_with_the_others(daemon: Served) -> None:
    told = daemon.ask("GET", "/api/diagnostics").json
    assert [one["domain"] for one in told["domains"]] == list(DOMAINS)
    wanted = "storage index queue embedder judge predictor feedback quality connectors"
    assert set(DOMAINS) >= set(wanted.split())
    for one in told["domains"]:
        assert 0 <= one["score"] <= 1
        assert one["status"] in STATUSES
        assert set(domain(daemon, one["domain"])) == set(one)
    # Nobody is ill for not having learned enough yet.
    assert told["status"] == "healthy"
    assert domain(daemon, "predictor")["status"] == "cold_start"
    assert domain(daemon, "predictor")["score"] == 0.6
    for name in ("nothing", "%00", "queue%0a", "QUEUE", "x" * 500):
        assert daemon.ask("GET", f"/api/diagnostics/{name}").status == 404


def put_job(served: Served, state: str, age: timedelta, **more: Any) -> None:
    """A job of a kind that nobody here does."""
    at = moment_text(datetime.now(UTC) - age)
    row = {"user": "default", "kind": "foreign", "key": f"{state}-{age}", "state": state}
    row |= {"due_at": at, "created_at": at, **more}
    with open_raw(served.home / "meritory.db") as database:
        names = ", ".join(row)
        marks = ", ".join("?" * len(row))
        database.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", list(row.values()))


@pytest.mark.parametrize("name", ["meritory.db-wal", "meritory.db"])
def test_a_store_that_lost_a_file_refuses_writes_and_is_unhealthy(serve: Serve, name: str) -> None:
    served = serve()
    assert served.ask("POST", "/api/memories", {"content": "kept"}).status == 200
    assert domain(served, "storage")["status"] == "healthy"
    (served.home / name).rename(served.home / "elsewhere")
    refused = served.ask("POST", "/api/memories", {"content": "not acknowledged"})
    assert (refused.status, refused.json["code"]) == (503, "store_replaced")
    assert f"{name} was moved, replaced or deleted" in refused.json["detail"]
    # It lasts until an operator helps: a client must not try again every second.
    assert "retry-after" not in {key.lower() for key in refused.headers}
    assert domain(served, "storage")["status"] == "unhealthy"
    (served.home / "elsewhere").rename(served.home / name)


@pytest.mark.parametrize(
    ("state", "age", "score"),
    [
        ("queued", timedelta(seconds=5), 1.0),
        ("queued", STUCK_AFTER + timedelta(seconds=5), 0.3),
        ("running", STUCK_AFTER + timedelta(seconds=5), 0.3),
        ("done", timedelta(days=3), 1.0),
        ("parked", timedelta(seconds=5), 0.6),
    ],
)
def test_a_stuck_queue_is_never_healthy(
    serve: Serve, state: str, age: timedelta, score: float
) -> None:
    served = serve()
    assert domain(served, "queue")["score"] == 1.0
    past = moment_text(datetime.now(UTC) - timedelta(minutes=1))
    put_job(served, state, age, **({"leased_until": past} if state == "running" else {}))
    found = domain(served, "queue")
    assert found["score"] == score
    assert found["details"][state] == 1
    assert bool(found["warnings"]) == (score < 1)
    told = served.ask("GET", "/api/diagnostics").json
    assert told["score"] == score
    assert (told["status"] == "healthy") == (score == 1.0)


def test_a_replaced_store_is_not_written_and_not_healthy(serve: Serve) -> None:
    served = serve()
    served.ask("POST", "/api/memories", {"content": HERON})
    assert hook(served, "session-start", context="heron")["recording"] == "on"
    assert domain(served, "storage")["status"] == "healthy"
    store = served.home / "meritory.db"
    shutil.copy(store, served.home / "copy.db")
    os.replace(store, served.home / "aside.db")
    os.replace(served.home / "copy.db", store)
    began = unrecorded(served, "other")
    assert [one["content"] for one in began["memories"]] == [HERON]
    refused = served.ask("POST", "/api/memories", {"content": "lost if it were taken"})
    assert (refused.status, refused.json["code"]) == (503, "store_replaced")
    assert "replaced" in refused.json["detail"]
    found = domain(served, "storage")
    assert found["status"] == "unhealthy"
    assert "replaced" in found["warnings"][0]
    os.replace(served.home / "aside.db", store)
    assert hook(served, "session-start", "third", context="heron")["recording"] == "on"


@pytest.mark.parametrize(
    ("total_bytes", "free_bytes", "status", "warnings"),
    [
        (200 << 20, 100 << 20, "healthy", []),
        (30 << 20, 29 << 20, "degraded", ["the disk is nearly full: free some space"]),
        (1 << 40, 400 << 20, "degraded", ["the disk is nearly full: free some space"]),
        (1 << 40, 1 << 19, "unhealthy", ["the disk is full: free some space"]),
    ],
)
def test_the_space_on_the_disk_is_told(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    total_bytes: int,
    free_bytes: int,
    status: str,
    warnings: list[str],
) -> None:
    served = serve()
    usage = (total_bytes, total_bytes - free_bytes, free_bytes)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda place: usage)
        found = domain(served, "storage")
    assert (found["status"], found["warnings"]) == (status, warnings)


def count_of(served: Served, operation: str) -> int:
    told = served.ask("GET", "/api/analytics/latency").json["results"]
    return next(int(one["count"]) for one in told if one["id"] == operation)


def test_latencies_count_every_way_in(serve: Serve) -> None:
    served = serve()
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    for number in (1, 2):
        stored = {"name": "memory_store", "arguments": {"content": f"{HERON} {number}"}}
        searched = {"name": "memory_search", "arguments": {"query": "heron"}}
        for params in (stored, searched):
            reply = served.ask("POST", "/mcp", {**body, "params": params}, headers=MCP)
            assert reply.json["result"]["isError"] is False, reply.content
        assert (count_of(served, "remember"), count_of(served, "recall")) == (number, number)
    served.ask("POST", "/api/memories", {"content": "over HTTP"})
    served.ask("GET", "/api/memories/search?query=heron")
    assert (count_of(served, "remember"), count_of(served, "recall")) == (3, 3)
    # The CLI opens the store itself, beside the daemon.
    environ = clean_environment(MERITORY_HOME=str(served.home))
    for words in (["remember", "from a terminal"], ["recall", "heron"], ["recall", "terminal"]):
        command = [sys.executable, "-m", "meritory", *words]
        subprocess.run(command, env=environ, check=True, capture_output=True)
    assert (count_of(served, "remember"), count_of(served, "recall")) == (4, 5)
    assert (count_of(served, "remember"), count_of(served, "recall")) == (4, 5)
    metrics = served.ask("GET", "/metrics").content.decode()
    assert 'meritory_operation_seconds_count{operation="recall"} 5' in metrics
    assert not [name for name in served.ask("GET", "/api/stats").json["figures"] if "took" in name]


def test_a_lost_store_is_told(serve: Serve) -> None:
    served = serve()
    os.rename(served.home / "meritory.db", served.home / "aside.db")
    found = domain(served, "storage")
    assert (found["status"], found["warnings"]) == ("unhealthy", ["meritory.db is gone"])
    assert served.ask("GET", "/api/diagnostics").json["status"] == "unhealthy"
    os.rename(served.home / "aside.db", served.home / "meritory.db")
    assert domain(served, "storage")["status"] == "healthy"


def test_connectors_and_feedback_are_counted_by_user(daemon: Served) -> None:
    hook(daemon, "session-start", "c", user="counted", harness="gemini")
    for number in range(6):
        reply = f"<!--mf 000000000{number} m1=1 m2=1-->"
        hook(daemon, "stop", "c", user="counted", last_assistant_message=reply)
    told = {one["domain"]: one for one in diagnosis(daemon, "counted")}
    assert told["connectors"]["details"]["gemini"]["sessions"] == 1
    others = {one["domain"]: one for one in diagnosis(daemon, "nobody")}
    assert "gemini" not in others["connectors"]["details"]
    assert told["feedback"]["details"]["refused"] == 6
    assert told["feedback"]["details"]["taken"] == 0


def diagnosis(daemon: Served, user: str) -> Any:
    return daemon.ask("GET", f"/api/diagnostics?user={user}").json["domains"]


# -- the pipeline -----------------------------------------------------------------------------


def test_the_pipeline_tells_its_stages_its_workers_and_its_queue(serve: Serve) -> None:
    served = serve()
    before = served.ask("GET", "/api/pipeline/status").json
    assert [one["count"] for one in before["stages"]] == [0] * sum(map(len, FLOWS.values()))
    lived(served)
    # A session is finished a moment before its job is.
    wait_for(lambda: jobs_done(served) == 1, "the job was never done")
    told = served.ask("GET", "/api/pipeline/status").json
    listed = [(flow, stage.name) for flow, stages in FLOWS.items() for stage in stages]
    assert [(one["flow"], one["stage"]) for one in told["stages"]] == listed
    # One session is far from enough to be trained on, and nothing in it was said to be kept.
    idle = [one["count"] for one in told["stages"] if one["flow"] in ("train", "extract")]
    assert not any(idle)
    for one in (one for one in told["stages"] if one["flow"] not in ("train", "extract")):
        assert one["count"] >= 1, one
        assert 0 <= one["p50_ms"] <= one["p95_ms"]
        assert one["budget_ms"] > 0
    judge = told["workers"]["judge"]
    assert judge["running"] is True
    assert judge["details"]["last_error"] is None
    assert told["queue"] == {"queued": 0, "running": 0, "done": 1, "parked": 0}


def jobs_done(daemon: Served) -> Any:
    workers = daemon.ask("GET", "/api/pipeline/status").json["workers"]
    return workers["judge"]["details"]["jobs_done"]


# -- timelines --------------------------------------------------------------------------------


def test_a_timeline_tells_everything_in_order(serve: Serve) -> None:
    served = serve()
    memory_id = lived(served, "a/b c")
    told = served.ask("GET", "/api/timeline/a%2Fb%20c").json
    assert told["id"] == "a/b c"
    names = [one["event"] for one in told["results"]]
    order = ("session.start", "session.prompt", "feedback.rated", "session.end", "session.learned")
    places = [names.index(name) for name in order]
    assert places == sorted(places)
    assert {"predictor.prefilter", "session.injected.start"} <= set(names)
    times = [one["at"] for one in told["results"]]
    assert times == sorted(times)
    assert {one["session_key"] for one in told["results"]} == {"a/b c"}
    about = served.ask("GET", f"/api/timeline/{memory_id}").json["results"]
    assert about[0]["event"] == "memory.create"
    assert "feedback.rated" in [one["event"] for one in about]
    begun = next(one for one in told["results"] if one["event"] == "session.start")
    asked = served.ask("GET", f"/api/timeline/{begun['request_id']}").json["results"]
    assert begun in asked
    assert {one["request_id"] for one in asked} == {begun["request_id"]}
    for name in ("a%2Fb%20c", memory_id, begun["request_id"]):
        assert served.ask("GET", f"/api/timeline/{name}?user=somebody").status == 404


@pytest.mark.parametrize("name", ["nothing", "", "%00", "x" * 3_000, "%F0%9F%92%A9", "%0A", "a/b"])
def test_what_nobody_knows_has_no_timeline(daemon: Served, name: str) -> None:
    for place in ("timeline", "sessions"):
        reply = daemon.ask("GET", f"/api/{place}/{name}")
        assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")


# -- sessions ---------------------------------------------------------------------------------


def test_sessions_are_listed_page_by_page(daemon: Served) -> None:
    keys = [f"page {number}" for number in range(5)]
    for number, key in enumerate(keys):
        hook(daemon, "session-start", key, user="pages", project=("shop", "bank")[number % 2])
    seen: list[str] = []
    before = ""
    while True:
        page = daemon.ask("GET", f"/api/sessions?user=pages&limit=2{before}").json
        seen += [one["id"] for one in page["results"]]
        if page["before"] is None:
            break
        before = f"&before={quote(page['before'])}"
    assert seen == keys[::-1]
    shop = daemon.ask("GET", "/api/sessions?user=pages&project=shop").json["results"]
    assert [one["id"] for one in shop] == ["page 4", "page 2", "page 0"]
    assert daemon.ask("GET", "/api/sessions?user=pages&before=unknown").json["results"] == []
    for query in ("limit=0", "limit=1001", "limit=x", "agent=x", "before=a&before=b"):
        assert daemon.ask("GET", f"/api/sessions?{query}").status in (400, 422)


# -- figures ----------------------------------------------------------------------------------

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"(?P<name>[a-z_]+)(?:\{{(?P<labels>{LABEL}(?:,{LABEL})*)\}})? (?P<value>\S+)")


def metrics(daemon: Served) -> dict[tuple[str, str], float]:
    """Every sample of the page; fails on a line that Prometheus could not read."""
    reply = daemon.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[tuple[str, str], float] = {}
    for line in reply.content.decode().splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line)
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        name = (sample["name"], sample["labels"] or "")
        assert name not in found
        found[name] = float(sample["value"])
    return found


def test_every_line_of_the_metrics_parses_and_counts_up(daemon: Served) -> None:
    before = metrics(daemon)
    hook(daemon, "session-start", "measured", harness='x"}\n# HELP evil {le="')
    assert daemon.ask("GET", '/api/nothing"}%0Aevil%201').status == 404
    after = metrics(daemon)
    counted = ("meritory_operation_seconds_count", 'operation="session_start"')
    assert after[counted] == before[counted] + 1
    for name, value in before.items():
        if name[0].endswith(("_total", "_count", "_sum")):
            assert after[name] >= value, name
    refused = ("meritory_events_total", 'name="http.404"')
    assert after[refused] == before.get(refused, 0) + 1
    assert "evil" not in str(after)


def test_an_unknown_stage_is_refused_with_the_known_ones(daemon: Served) -> None:
    for stage in ("predictor", "predictor_crash", "job", "feedback", "http"):
        assert daemon.ask("GET", f"/api/analytics/errors?stage={stage}").status == 200
    refused = daemon.ask("GET", "/api/analytics/errors?stage=predicto")
    assert (refused.status, refused.json["detail"]) == (422, "unknown stage: 'predicto'")
    assert "predictor, predictor_crash" in refused.json["hint"]


def test_what_could_not_be_recorded_is_in_the_figures(serve: Serve) -> None:
    served = serve()
    assert served.ask("GET", "/api/stats").status == 200
    os.rename(served.home / "meritory.db", served.home / "aside.db")
    unrecorded(served, "run")
    os.rename(served.home / "aside.db", served.home / "meritory.db")
    errors = served.ask("GET", "/api/analytics/errors?stage=session_record").json["results"]
    assert [(one["stage"], one["code"]) for one in errors] == [("session_record", "store_replaced")]
    labels = 'stage="session_record",code="store_replaced"'
    assert metrics(served)["meritory_errors_total", labels] == 1
    assert served.ask("GET", "/api/analytics/errors?stage=predictor").json["results"] == []
    operations = served.ask("GET", "/api/analytics/latency").json["results"]
    assert next(one["count"] for one in operations if one["id"] == "session_start") >= 1
