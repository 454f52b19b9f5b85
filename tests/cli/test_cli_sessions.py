"""The demo, and looking at sessions: what a person sees of what was served and learned."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_types import Run

from meritory.api.memory import Memory
from meritory.demo.recording import read_recording
from meritory.engine.pipeline import FLOWS
from meritory.rank.labels import MIN_CONFIDENCE
from meritory.settings import load_settings


@pytest.fixture
def served(home: Path, run: Run) -> str:
    """A store with one judged session."""
    run("stats")
    with Memory(home / "meritory.db", settings=load_settings(home, {}), background=False) as memory:
        memory.remember("The staging database is called heron")
        other = memory.remember("The badger sleeps under the oak")
        session = memory.session("morning-1", context="where is the staging database?")
        session.end(used={session.memories[0].id: 1.0, other.id: 0.0})
    return "morning-1"


def test_the_demo_stores_injects_rates_and_judges(run: Run, home: Path) -> None:
    done = run("demo", "--quick", "--json")
    assert done.code == 0
    week = done.object
    assert "later" not in week
    assert [one["id"] for one in week["results"]] == [
        s["key"] for s in read_recording()["sessions"]
    ]
    for session in week["results"]:
        assert session["inject"].count("[meritory notes ") == 1
        assert any(one["rated"] is not None for one in session["memories"]), session["id"]
        assert session["confidence"] >= MIN_CONFIDENCE
        assert session["excluded"] is None
    assert week["results"][0]["stored"]
    # What helped all week is worth more than what never did, and more than when it began.
    useful = {one["content"]: one["usefulness"] for one in week["learned"]}
    by_words = {text: value for text, value in useful.items() if "X-Pay-Signature" in text}
    assert min(by_words.values()) > 0.6
    assert all(value < 0.52 for text, value in useful.items() if "newsletter" in text)
    # The wrong memory was rated down, forgotten, and is never shown again.
    wrong = "The staging API listens on port 8081"
    shown = [wrong in session["inject"] for session in week["results"]]
    assert True in shown
    assert not any(shown[5:])
    assert not (home / "meritory.db").exists()


def test_the_demo_reads_well(run: Run) -> None:
    done = run("demo", "--quick")
    assert done.code == 0
    for words in ("The text for the agent:", "m1", "RATED", "continuity", "What the week taught"):
        assert words in done.out
    assert "The weeks after" not in done.out
    assert "temporary store" in done.err


def test_the_demos_store_can_be_kept_and_looked_into(run: Run, tmp_path: Path) -> None:
    kept = str(tmp_path / "demo.db")
    assert run("demo", "--quick", "--keep", kept).code == 0
    listed = run("--store", kept, "sessions", "--json").object["results"]
    assert len(listed) == len(read_recording()["sessions"])
    assert all(one["state"] == "finished" for one in listed)
    again = run("demo", "--keep", kept)
    assert again.code == 2
    assert "already exists" in again.err


def test_the_demo_goes_on_until_the_predictor_is_heard(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever a user has set, the demo is played with the defaults.
    monkeypatch.setenv("MERITORY_PREDICTOR_ENABLED", "false")
    kept = str(tmp_path / "demo.db")
    done = run("demo", "--json", "--keep", kept)
    monkeypatch.delenv("MERITORY_PREDICTOR_ENABLED")
    assert done.code == 0
    later = done.object["later"]
    assert later["is_active"]
    steps = later["results"]
    phases = [one["status_line"].removeprefix("[meritory: ").split(" | ")[0] for one in steps]
    assert list(dict.fromkeys(phases)) == ["collecting", "warming", "active"]
    assert [one["alpha"] < 1.0 for one in steps] == [name == "active" for name in phases]
    # Each move of alpha is explained, and only those; the first is the end of cold start.
    moved = [one for one in steps if one["why"]]
    assert moved == [one for one in steps if one["alpha"] != one["next_alpha"]]
    assert "cold start is over" in moved[0]["why"]
    assert all(one["next_alpha"] < 1.0 for one in moved)
    # It learns after each session.
    assert [len(one["trained"]) for one in steps] == [1] * len(steps)
    assert any("serves now" in told for one in steps for told in one["trained"])
    # One memory that the predictor lifted, with its numbers.
    why = later["why"]
    assert why["was_injected"]
    assert why["rank"] < why["baseline_rank"]
    assert why["fusion"]["alpha"] < 1.0
    # The store says the same: nothing was put on for show.
    status = run("--store", kept, "predictor", "status", "--json").object
    assert status["phase"] == "active"
    assert status["alpha"] == later["alpha"]
    assert status["model_version"] == later["model_version"] > 0
    assert status["training_sessions"] >= len(steps)


# A model is trained after each of its sessions, which takes its time on a busy machine.
@pytest.mark.timeout(400)
def test_the_demo_is_the_same_every_time_and_reads_well(run: Run) -> None:
    first, second = run("demo"), run("demo")
    for words in ("The weeks after", "cold start is over", "serves now", "`meritory why`"):
        assert words in first.out
    # But for the codes of injections, which nobody may guess.
    told = [done.out.split("What the week taught")[1] for done in (first, second)]
    assert told[0] == told[1]


def test_sessions_are_listed_and_shown(run: Run, served: str) -> None:
    (session,) = run("sessions", "--json").object["results"]
    assert session["id"] == served
    assert session["state"] == "finished"
    assert session["memories_used"] == 1
    assert served in run("sessions").out
    shown = run("sessions", "show", "morn", "--json").object
    assert shown["id"] == served
    assert [one["handle"] for one in shown["results"]] == ["m1"]
    assert shown["results"][0]["label"] == 1.0
    everything = run("sessions", "show", served, "--all", "--json").object["results"]
    assert [one["label"] for one in everything] == [1.0, 0.0]


def test_a_session_that_is_not_there(run: Run) -> None:
    done = run("sessions", "show", "nobody")
    assert done.code == 1
    assert "unknown session: 'nobody'" in done.err
    assert "no sessions yet" in run("sessions").err


def test_the_pipeline_is_printed_from_the_code(run: Run) -> None:
    found = run("pipeline", "--json").object["results"]
    wanted = [f"{flow}.{stage.name}" for flow, stages in FLOWS.items() for stage in stages]
    assert [one["id"] for one in found] == wanted
    assert "does not run" in run("pipeline").err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sessions", "nonsense"], 2),
        (["sessions", "--limit", "0"], 2),
        (["sessions", "--limit", "many"], 2),
        (["sessions", "--project", ""], 2),
        (["sessions", "--project", "\x1b[2J"], 2),
        (["sessions", "show"], 2),
        (["sessions", "show", "a", "b"], 2),
        (["sessions", "show", "\x1b[2J"], 1),
        (["sessions", "show", "x" * 5_000], 1),
        (["pipeline", "extra"], 2),
        (["jobs", "nonsense"], 2),
        (["jobs", "--state", "lost"], 2),
        (["jobs", "retry", ""], 1),
        (["jobs", "retry", "finish-session/\n"], 1),
        (["jobs", "run", "extra"], 2),
        (["demo", "--keep", ""], 2),
        (["demo", "--keep", "/"], 2),
        (["demo", "--keep", "/nowhere/demo.db"], 2),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else str(value),
)
def test_nonsense_is_told_in_words_and_by_code(run: Run, words: list[str], code: int) -> None:
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert "a bug" not in done.err
    assert "\x1b" not in done.err
    as_json = run(*words, "--json")
    assert (as_json.code, as_json.err) == (code, "")
    assert set(as_json.object["error"]) == {"code", "message", "hint"}


def test_what_a_session_is_about_cannot_steer_a_terminal(run: Run, home: Path) -> None:
    run("stats")
    with Memory(home / "meritory.db", settings=load_settings(home, {}), background=False) as memory:
        memory.remember("heron \x1b]0;title\x07 \u202e stays")
        memory.session("ev/il", context="heron \x1b[2J \u202e\x07", harness="\x1b[31m").end()
    for words in (["sessions"], ["sessions", "show", "ev/il", "--all"], ["jobs"]):
        shown = run(*words)
        assert shown.code == 0
        assert "ev/il" in shown.out
        assert not set("\x1b\x07\u202e") & set(shown.out)


def test_a_session_is_erased_after_a_question(run: Run, served: str) -> None:
    asked = run("sessions", "forget", served)
    assert asked.code == 2
    assert "--yes" in asked.err
    assert run("sessions", "show", served).code == 0
    done = run("sessions", "forget", "morning", "--yes", "--json")
    assert done.code == 0
    assert done.object["id"] == served
    assert done.object["rows"]["sessions"] == 1
    assert done.object["memories"] == []
    assert run("sessions", "show", served).code != 0
    assert len(run("list", "--json").object["results"]) == 2
    assert run("sessions", "forget", served, "--yes").code != 0


def test_an_export_says_what_it_leaves_out(run: Run, served: str, tmp_path: Path) -> None:
    plain = run("export", str(tmp_path / "some.jsonl"))
    assert "left out: sessions" in plain.err
    told = run("export", str(tmp_path / "told.jsonl"), "--json")
    assert "models" in told.object["left_out"]
    whole = run("export", str(tmp_path / "all.jsonl"), "--all", "--json")
    assert whole.object["left_out"] is None
    assert "left out" not in whole.err
    copy = str(tmp_path / "copy.db")
    assert run("--store", copy, "import", str(tmp_path / "all.jsonl")).code == 0
    (session,) = run("--store", copy, "sessions", "--json").object["results"]
    assert session["id"] == served
    assert run("export", str(tmp_path / "notes"), "--all", "--format", "markdown").code == 2
