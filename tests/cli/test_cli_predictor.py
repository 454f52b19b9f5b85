"""The predictor, why and backtest as a person runs them: tables, one object, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_types import Process, Run

from learning_kit import Clock, change, lived, noted, shelved
from meritory.api.memory import Memory
from meritory.domain.world import SeededWorld
from meritory.rank.composite import Trust
from meritory.rank.influence import HistoryProof
from meritory.settings import load_settings

CALM = {"predictor.train_interval_sessions": 10_000}
SAID = [
    {"role": role, "text": text}
    for _ in range(6)
    for role, text in (
        ("user", "Which port has the alpha service? Please be thorough."),
        ("assistant", "The alpha service has port 4000 and team tango runs it, as ever."),
    )
]


@pytest.fixture
def memory(home: Path, run: Run) -> Iterator[Memory]:
    """The store that the commands use, with a clock of the test's own."""
    run("stats")
    clock = Clock()
    settings = load_settings(home, {}).vary(CALM)
    world = SeededWorld(1, clock)
    with Memory(home / "meritory.db", settings=settings, clock=world, background=False) as opened:
        yield opened


def clock_of(memory: Memory) -> Clock:
    clock = memory.services.world._clock
    assert isinstance(clock, Clock)
    return clock


def taught(memory: Memory, count: int) -> tuple[list[str], list[str]]:
    """Ids of memories, and keys of judged sessions."""
    ids = noted(memory)
    return ids, lived(memory, clock_of(memory), ids, count)


# -- status ---------------------------------------------------------------------------------


def test_the_status_of_an_empty_store(run: Run) -> None:
    done = run("predictor", "status", "--json")
    assert done.code == 0
    assert done.object["phase"] == "collecting"
    assert run("predictor", "--json").object == done.object
    shown = run("predictor")
    assert shown.code == 0
    for words in ("collecting", "10 judged sessions", "v0 (features", "never"):
        assert words in shown.out


def test_the_status_shows_what_evidence_says(run: Run, memory: Memory) -> None:
    taught(memory, 12)
    shown = run("predictor", "status").out
    assert "12 judged" in shown
    assert "Results of each baseline weight" in shown
    assert "TRUST" in shown
    told = run("predictor", "status", "--json").object
    assert len(told["weighings"]) == 6


def test_the_status_and_why_show_how_far_history_counts(run: Run, memory: Memory) -> None:
    assert "usefulness 0%: the labels of 0 sessions" in run("predictor", "status").out
    change(memory, history=HistoryProof(Trust(0.5, 1.0), 12, 2.5, False, 0.25, 0.125))
    line = "recency 50%, usefulness 100%: NDCG@10 +0.250 over relevance in 12 sessions"
    assert line in run("predictor", "status").out
    told = run("predictor", "status", "--json").object["history"]
    assert (told["recency"], told["usefulness"], told["labels_valid"]) == (0.5, 1.0, True)
    noted(memory)
    memory.session("run", context="fix the alpha service")
    assert "(recency counts 50%, usefulness 100%)" in run("why", "m1", "--session", "run").out
    found = run("why", "m1", "--session", "run", "--json").object
    assert found["baseline"]["history"] == {"recency": 0.5, "usefulness": 1.0}


# -- records --------------------------------------------------------------------------------


def test_comparisons_are_listed_and_filtered(run: Run, memory: Memory) -> None:
    assert "no matching comparisons" in run("predictor", "comparisons").err
    _, keys = taught(memory, 6)
    told = run("predictor", "comparisons", "--json").object
    assert [one["id"] for one in told["results"]] == keys[::-1]
    assert told["next"] is None

    def ids(*words: str) -> list[str]:
        found = run("predictor", "comparisons", *words, "--json").object["results"]
        return [one["id"] for one in found]

    page = run("predictor", "comparisons", "--limit", "2", "--offset", "1", "--json").object
    assert [one["id"] for one in page["results"]] == keys[::-1][1:3]
    assert page["next"] == 3
    won = {name: ids("--winner", name) for name in ("predictor", "baseline", "tie")}
    assert sorted(key for found in won.values() for key in found) == sorted(keys)
    clear = [one["id"] for one in told["results"] if abs(one["margin"]) >= 0.1]
    assert ids("--min-margin", "0.1") == clear
    assert ids("--counted") == keys[::-1]
    assert ids("--not-counted") == []
    assert ids("--since", "2999-01-01") == []
    assert ids("--until", "2999-01-01") == keys[::-1]
    shown = run("predictor", "comparisons").out
    assert "LEARNED ORDER" in shown
    assert keys[0] in shown
    assert run("predictor", "comparisons", "--winner", "nobody").code == 2
    assert "since" in run("predictor", "comparisons", "--since", "yesterdayish").err


def test_a_session_is_audited(run: Run, memory: Memory) -> None:
    ids, keys = taught(memory, 2)
    told = run("predictor", "audit", keys[0], "--json").object
    assert told["session"]["id"] == told["comparison"]["id"] == keys[0]
    assert {one["id"] for one in told["results"]} == set(ids)
    events = [one["event"] for one in told["events"]]
    assert {"predictor.score", "predictor.compare", "predictor.ema_update"} <= set(events)
    part = run("predictor", "audit", keys[0], "--limit", "2", "--json").object
    assert part["results"] == told["results"][:2]
    shown = run("predictor", "audit", keys[0])
    assert memory.get(ids[0]).content in shown.out
    assert "predictor.compare" in shown.out
    memory.session("open", context="the port of alpha")
    assert "not compared yet" in run("predictor", "audit", "open").out
    assert run("predictor", "audit", "no such").code == 1


def test_trainings_and_drift_are_listed(run: Run, memory: Memory) -> None:
    empty = run("predictor", "training")
    assert (empty.out, empty.code) == ("", 0)
    assert "no model was trained yet" in empty.err
    assert run("predictor", "drift", "--json").object["results"] == []
    taught(memory, 25)
    run("predictor", "train")
    run("predictor", "rollback", "0")
    # The first training came by itself after three sessions.
    back, trained, first = run("predictor", "training", "--json").object["results"]
    assert (back["reason"], back["model_version"]) == ("rollback", 0)
    assert (trained["reason"], trained["model_version"]) == ("asked", 2)
    assert (first["reason"], first["model_version"]) == ("interval", 1)
    assert trained["gates"]
    assert trained["id"] == trained["at"]
    assert len(run("predictor", "training", "--limit", "1", "--json").object["results"]) == 1
    assert "ACCEPTED" in run("predictor", "training").out
    drift = run("predictor", "drift", "--json").object
    assert [one["sessions"] for one in drift["results"]] == [20]
    assert run("predictor", "drift", "--limit", "1", "--json").object == drift
    shown = run("predictor", "drift").out
    assert "0 of 10 sessions" in shown
    assert "SIGNAL" in shown


# -- steering -------------------------------------------------------------------------------


def test_it_is_switched_off_and_on(run: Run) -> None:
    assert run("predictor", "disable").out == "the predictor is off\n"
    assert "already" in run("predictor", "disable").out
    assert run("predictor", "status", "--json").object["phase"] == "disabled"
    assert run("predictor", "enable", "--json").object == {"is_enabled": True, "has_changed": True}
    assert run("predictor", "status", "--json").object["phase"] == "collecting"


def test_training_without_a_session_says_what_is_missing(run: Run) -> None:
    done = run("predictor", "train")
    assert done.code == 1
    assert "no session to learn from" in done.err
    run("predictor", "disable")
    assert "meritory predictor enable" in run("predictor", "train").err
    assert run("predictor", "train", "--json").object["error"]["code"] == "conflict"


def test_a_refused_model_ends_with_1_and_says_which_gate(run: Run, memory: Memory) -> None:
    taught(memory, 2)
    done = run("predictor", "train")
    assert done.code == 1
    assert "canary" in done.out
    assert "stays active" in done.err
    (last,) = memory.services.store.training_runs("default", 5)
    assert (last.reason, last.is_accepted) == ("asked", False)
    assert "rejected by" in run("predictor").err


def test_models_are_taken_back(run: Run, memory: Memory) -> None:
    shelved(memory, 1)
    done = run("predictor", "rollback", "1", "--json")
    assert done.object == {"model_version": 1, "former_version": 0, "scorer": "features"}
    assert run("predictor", "rollback").out == "model 0 is active in place of 1\n"
    assert "no model before" in run("predictor", "rollback").err
    unknown = run("predictor", "rollback", "9")
    assert unknown.code == 1
    assert "available models: 1, 0 (base)" in unknown.err


@pytest.mark.parametrize("version", ["-1", "x", "1.5", "", "9" * 30, "--", "0x1"])
def test_a_version_that_is_none(run: Run, version: str) -> None:
    assert run("predictor", "rollback", version).code in (1, 2)


# -- people's word --------------------------------------------------------------------------


def talked(memory: Memory, count: int) -> None:
    for n in range(count):
        clock_of(memory).go(hours=2)
        session = memory.session(f"talk/{n}", context="the port of the alpha service")
        session.end(SAID)
        memory.drain()


def test_memories_are_offered_blind_and_rated(run: Run, memory: Memory) -> None:
    assert "nothing to rate" in run("predictor", "calibrate").err
    noted(memory)
    talked(memory, 2)
    done = run("predictor", "calibrate", "--json").object
    assert len(done["results"]) == 20
    assert all("judge" not in key for one in done["results"] for key in one)
    first, second = (one["id"] for one in done["results"][:2])
    assert first in run("predictor", "calibrate").out
    rated = run("predictor", "calibrate", "--rate", f"{first}=1", "--rate", f"{second}=-0.5")
    assert rated.code == 0
    assert "2 of 20 rated" in rated.out
    left = run("predictor", "calibrate", "--json").object
    assert left["rated"] == 2
    assert first not in {one["id"] for one in left["results"]}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--rate", "x"], 2),
        (["--rate", "=1"], 2),
        (["--rate", "x=y"], 2),
        (["--rate", ""], 2),
        (["--rate", "nothing=0.5"], 1),
        (["--rate", "a/b=nan"], 1),
        (["--count", "5"], 2),
        (["--count", "51"], 2),
        (["--ask", "--rate", "x=1"], 2),
    ],
)
def test_nonsense_is_no_rating(run: Run, words: list[str], code: int) -> None:
    assert run("predictor", "calibrate", *words).code == code


def test_one_after_the_other_is_asked_until_the_answers_end(run: Run, memory: Memory) -> None:
    noted(memory)
    talked(memory, 1)
    done = run("predictor", "calibrate", "--ask", stdin="1\n\nmuch\n7\nnan\n-0.5\n")
    assert done.code == 0
    assert done.err.count("1 was decisive") == 3
    assert "2 of 15 rated" in done.out
    kept = memory.services.store.calibration("default", 100)
    assert sorted(one.human_label for one in kept if one.human_label is not None) == [-0.5, 1.0]


def test_nobody_is_asked_where_nobody_is(run: Run, memory: Memory) -> None:
    noted(memory)
    talked(memory, 1)
    done = run("predictor", "calibrate", "--ask", stdin="")
    assert done.code == 2
    assert "stdin is not a terminal" in done.err
    name = run("predictor", "calibrate", "--json").object["results"][0]["id"]
    for score in ("1.5", "nan", "-inf"):
        assert run("predictor", "calibrate", "--rate", f"{name}={score}").code == 2


# -- why and backtest -----------------------------------------------------------------------


def test_why_shows_the_numbers_of_a_memory(run: Run, memory: Memory) -> None:
    ids, (key, *_) = taught(memory, 1)
    done = run("why", ids[0], "--session", key[:4])
    assert done.code == 0
    for words in ("found by", "composite", "relevance", "fused", "label", "largest effect"):
        assert words in done.out + done.err
    told = run("why", "m1", "--session", key, "--json").object
    assert told["was_injected"] is True
    assert len(told["predictor"]["features"]) > 40
    clock_of(memory).go(hours=1)
    later = memory.remember("The mill was built later").id
    stranger = run("why", later, "--session", key)
    assert stranger.code == 0
    assert "not a candidate" in stranger.out
    assert "stored after" in stranger.out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["why", "m1"], 2),
        (["why", "--session", "x"], 2),
        (["why", "m1", "--session", "nothing"], 1),
        (["why", "\0", "--session", "\0"], 1),
        (["backtest", "--limit", "0"], 2),
        (["backtest", "--limit", "x"], 2),
        (["backtest"], 1),
        (["predictor", "nothing"], 2),
    ],
)
def test_wrong_use_has_an_exit_code_and_a_hint(run: Run, words: list[str], code: int) -> None:
    done = run(*words)
    assert done.code == code
    assert "hint:" in done.err
    assert "error" in run(*words, "--json").object


def test_backtest_compares_every_ranking(run: Run, memory: Memory) -> None:
    taught(memory, 6)
    told = run("backtest", "--json").object
    assert told["sessions"] == 6
    assert {"baseline", "predictor", "served", "alpha 0.4"} <= {
        one["id"] for one in told["results"]
    }
    shown = run("backtest", "--limit", "5")
    assert shown.code == 0
    assert "5 sessions" in shown.out
    assert "may be chance" in shown.out


def test_serving_speaks_json_rpc(home: Path, run: Run, process: Process) -> None:
    run("stats")
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "status"}).encode() + b"\n"
    done = process("predictor", "serve", stdin=asked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["model_version"] == 0
