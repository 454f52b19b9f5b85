"""Saved runs over the wire: their figures, latest first, and none of the questions."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from web_types import Serve

from eval_kit import fingerprint, opened, probes, sandboxed
from meritory.cli.app import APP
from meritory.engine.quality import saved_runs
from meritory.lab.measure import MeasurePlan, anchored, measure
from meritory.lab.probes import probe_line
from meritory.lab.results import result

PATH = "/api/quality/probes"


def test_saved_runs_are_listed_without_their_questions(serve: Serve, tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon = serve()
    assert daemon.ask("GET", PATH).json == {"results": []}
    with opened(tmp_path / "other.db") as memory:
        memory.remember_many([{"content": one.expected[0]} for one in probes()])
    with sandboxed(tmp_path / "other.db") as sandbox:
        asked = probes()
        outcomes = measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan())
    for number, name in enumerate(("first", "second"), start=1):
        at = f"2026-01-0{number}T00:00:00.000000+00:00"
        saved_runs.save(home, name, result(outcomes, at=at, settings={"gate.threshold": "auto"}))
    # One that somebody spoilt, in two ways, hides no other.
    folder = saved_runs.runs_folder(home)
    (folder / "spoilt.json").write_text("{")
    spoilt = json.loads((folder / "first.json").read_text()) | {"latency_ms": "fast"}
    (folder / "strange.json").write_text(json.dumps(spoilt))
    reply = daemon.ask("GET", PATH)
    assert reply.status == 200
    assert [run["name"] for run in reply.json["results"]] == ["second", "first"]
    run = reply.json["results"][0]
    assert run["figures"]["p@1"]["mean"] == 1.0
    assert (run["scored"], run["tags"]["names"]["scored"]) == (25, 25.0)
    assert "staging database" not in reply.content.decode()
    assert len(daemon.ask("GET", f"{PATH}?limit=1").json["results"]) == 1
    for limit in ("0", "101", "x"):
        assert daemon.ask("GET", f"{PATH}?limit={limit}").status == 422


def test_the_store_of_a_running_daemon_is_measured_and_left_alone(
    serve: Serve, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    daemon = serve()
    for one in probes():
        daemon.ask("POST", "/api/memories", {"content": one.expected[0], "on_similar": "keep"})
    file = tmp_path / "probes.jsonl"
    file.write_text("\n".join(map(probe_line, probes())))
    before = fingerprint(home / "meritory.db")
    arguments = [
        "--home",
        str(home),
        "eval",
        "run",
        str(file),
        "--session",
        "--save",
        "x",
        "--json",
    ]
    done = CliRunner().invoke(APP, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["figures"]["p@1"]["mean"] == 1.0
    assert fingerprint(home / "meritory.db") == before
    assert daemon.ask("GET", PATH).json["results"][0]["name"] == "x"
