"""`meritory eval` as a person types it; the store stays as it was, down to its bytes."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_types import Run

from eval_kit import NAMED, facts, fingerprint, opened, probes
from meritory.api.memory import Memory
from meritory.lab.probes import probe_line
from meritory.rank.metrics import MIN_PAIRS
from meritory.settings import load_settings
from ports.model_server import ModelServer, Raw, running, wrapped

MANY = ",".join(f"0.{number:03}" for number in range(1, 300))


@pytest.fixture
def store(home: Path, run: Run) -> Path:
    """The user's store, with claims in it."""
    run("remember", "The first claim is called yak")
    with Memory(home / "meritory.db", settings=load_settings(home, {}), background=False) as memory:
        memory.remember_many([{"content": fact} for fact in facts()])
    return home / "meritory.db"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "probes.jsonl"
    lines = ["# by hand", *map(probe_line, probes())]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_run_is_shown_saved_listed_and_compared(store: Path, file: str, run: Run) -> None:
    before = fingerprint(store)
    done = run("eval", "run", file, "--session", "--save", "one", "--json")
    assert done.code == 0, done.out + done.err
    found = done.object
    assert (found["scored"], found["drifted"]) == (25, 0)
    assert found["figures"]["p@1"]["mean"] == 1.0
    assert found["figures"]["in_prompt"]["mean"] == 1.0
    assert found["tags"]["names"]["scored"] == 25
    assert Path(found["saved"]).stat().st_mode & 0o077 == 0
    shown = run("eval", "run", file)
    assert shown.code == 0
    for word in ("p@1", "MRR", "25 of 25", found["set_hash"][:12]):
        assert word in shown.out
    (listed,) = run("eval", "list", "--json").object["results"]
    assert (listed["name"], listed["set_hash"]) == ("one", found["set_hash"])
    run("eval", "run", file, "--save", "two")
    compared = run("eval", "compare", "one", "two", "--json")
    assert (compared.code, compared.object["verdict"]) == (0, "pass")
    assert fingerprint(store) == before


def test_a_regression_ends_with_one_and_is_named(store: Path, file: str, run: Run) -> None:
    bad = ("--after", "ranking.user_stated=0", "--after", "recall.relevance_floor=1")
    done = run("eval", "compare", file, *bad, "--json")
    assert (done.code, done.object["verdict"]) == (1, "fail")
    better = ("--before", "ranking.user_stated=0", "--before", "recall.relevance_floor=1")
    done = run("eval", "compare", file, *better)
    assert done.code == 0
    assert "pass" in done.out


def test_few_probes_end_with_one_and_say_why(store: Path, tmp_path: Path, run: Run) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(map(probe_line, probes()[:5])))
    done = run("eval", "compare", str(few), "--after", "recall.vector_weight=0.5", "--json")
    assert (done.code, done.object["verdict"]) == (1, "not enough data")


def test_a_sweep_tries_every_combination_and_admits_when_nothing_differs(
    store: Path, file: str, run: Run
) -> None:
    before = fingerprint(store)
    done = run(
        "eval",
        "sweep",
        file,
        "--set",
        "ranking.assistant_derived=0.6,0.85",
        "--set",
        "recall.relevance_floor=0.1,0.2",
        "--json",
    )
    assert done.code == 0, done.out
    assert len(done.object["results"]) == 5
    assert "keep the current one" in done.object["statement"]
    assert all(row["on_front"] for row in done.object["results"])
    shown = run("eval", "sweep", file, "--set", "ranking.user_stated=0", "--no-session")
    assert "the current settings" in shown.out
    assert fingerprint(store) == before


def test_the_gate_is_tried_on_stores_that_are_written_anew(
    store: Path, file: str, run: Run
) -> None:
    before = fingerprint(store)
    done = run("eval", "sweep", file, "--no-session", "--set", "gate.threshold=0.5,0.99", "--json")
    assert done.code == 0, done.out
    assert [row["scored"] for row in done.object["results"]] == [25, 25, 25]
    assert fingerprint(store) == before


def test_probes_that_all_drifted_leave_nothing_to_say(
    store: Path, tmp_path: Path, run: Run
) -> None:
    gone = tmp_path / "gone.jsonl"
    gone.write_text('{"question": "who?", "expected": "Nobody ever said this"}')
    done = run("eval", "run", str(gone))
    assert done.code == 0
    assert "0 of 1 (1 drifted)" in done.out
    done = run("eval", "sweep", str(gone), "--set", "recall.vector_weight=0.1")
    assert done.code == 0
    assert "choosing a configuration takes" in done.out
    done = run("eval", "compare", str(gone), "--after", "recall.vector_weight=0.1", "--json")
    assert (done.code, done.object["verdict"]) == (1, "not enough data")


def test_made_probes_can_be_asked_at_once(store: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "made.jsonl"
    done = run("eval", "generate", str(target), "--count", "10")
    assert done.code == 0
    assert "questions that you really asked are a better test" in done.out + done.err
    assert target.stat().st_mode & 0o077 == 0
    assert len(target.read_text().splitlines()) == 11
    asked = run("eval", "run", str(target), "--json").object
    assert (asked["scored"], asked["tags"]["generated"]["scored"]) == (10, 10)
    again = run("eval", "generate", str(target))
    assert (again.code, "already exists" in again.err) == (2, True)


def test_probes_can_be_made_of_one_project(store: Path, tmp_path: Path, run: Run) -> None:
    text = "Penguins of the Antarctic marina are counted by the drone every February"
    assert run("remember", text, "--project", "marina").code == 0
    target = tmp_path / "marina.jsonl"
    done = run("eval", "generate", str(target), "--project", "marina", "--json")
    assert (done.object["count"], done.object["memories"]) == (1, 1)
    assert run("eval", "generate", str(tmp_path / "no"), "--project", "owl").code == 2


def test_everything_works_while_somebody_else_has_the_store_open(
    store: Path, file: str, run: Run
) -> None:
    with opened(store) as memory:
        memory.remember("The newest claim is called walrus")
        assert run("eval", "run", file, "--session", "--json").object["scored"] == 25
        with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
            version = connection.execute("PRAGMA data_version").fetchone()
            run("eval", "run", file, "--json")
            # It would be another one if anybody had written meanwhile.
            assert connection.execute("PRAGMA data_version").fetchone() == version
        memory.remember("The very newest claim is called zebra")


def test_without_a_store_there_is_nothing_to_measure_and_none_is_made(
    home: Path, file: str, run: Run
) -> None:
    done = run("eval", "run", file)
    assert done.code == 1
    assert "there is no store" in done.err
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "nowhere.jsonl"), "there is no file"),
        (("run", "~nobody-of-that-name/x"), "there is no file"),
        (("compare", "~nobody-of-that-name/x", "b"), "unknown run"),
        (("run", "."), "is a folder"),
        (("run", "FILE", "--save", "../x"), "invalid name for a run"),
        (("compare", "one"), "expected two saved runs"),
        (("compare", "one", "two"), "unknown run"),
        (("compare", "FILE", "--after", "nonsense"), "is not NAME=VALUE"),
        (("compare", "FILE", "--after", "session.invite=on"), "does not affect"),
        (("compare", "FILE", "--after", "recall.limit=3"), "no longer a setting"),
        (("compare", "FILE", "--after", "llm.model=x"), "does not affect"),
        (("compare", "FILE", "--after", "recall.flor=3"), "unknown setting"),
        (("compare", "FILE", "--after", "recall.relevance_floor=3"), "must be a number"),
        (("compare", "FILE", "FILE", "--after", "recall.vector_weight=0"), "one file of probes"),
        (("compare", "a", "b", "--margin", "2"), "0.0<=x<=0.5"),
        (("compare", "a", "b", "--session"), "--session does not work with saved"),
        (
            ("compare", "FILE", "--before", "gate.threshold=1", "--after", "gate.threshold=1"),
            "--before and --after are the same",
        ),
        (("sweep", "FILE", "--set", "gate.threshold="), "is not NAME=VALUE"),
        (("sweep", "FILE", "--set", "gate.threshold=,"), "needs one or more"),
        (("sweep", "FILE", "--set", "gate.threshold=0.5,0.5"), "different values"),
        (("sweep", "FILE", "--set", "gate.threshold=a"), "must be a number"),
        (("sweep", "FILE", "--set", f"recall.vector_weight={MANY}"), "combinations"),
        (("generate", "nowhere/x.jsonl"), "there is no folder"),
        (("extraction", "--a", "rules", "--b", "rules", "--labels", "FILE"), "either"),
    ],
)
def test_nonsense_is_answered_in_plain_words(
    arguments: tuple[str, ...], told: str, store: Path, file: str, run: Run
) -> None:
    done = run("eval", *(file if one == "FILE" else one for one in arguments))
    assert done.code in (1, 2)
    assert told in done.err


def test_a_file_that_is_no_text_is_refused(store: Path, tmp_path: Path, run: Run) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"\xff\xfe\x00")
    done = run("eval", "run", str(bad), "--json")
    assert (done.code, "not UTF-8" in done.object["error"]["message"]) == (2, True)


# -- extractors -----------------------------------------------------------------------------


@pytest.fixture
def talks(tmp_path: Path) -> tuple[str, str]:
    """Transcripts in which a person says what to remember, and labels of all of it."""
    folder = tmp_path / "talks"
    folder.mkdir()
    labels = []
    for number, (thing, animal) in enumerate(list(NAMED.items())[:MIN_PAIRS]):
        said = f"Please remember that the {thing} is called {animal}."
        turns = [{"role": "user", "text": said}, {"role": "assistant", "text": "I will."}]
        (folder / f"talk-{number:02}.json").write_text(json.dumps(turns))
        labels.append(
            {
                "expected": f"the {thing} is called {animal}",
                "transcript": f"talk-{number:02}",
                "question": f"what is the {thing} called?",
            }
        )
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(map(json.dumps, labels)))
    return str(folder), str(file)


def test_an_extractor_passes_against_itself(talks: tuple[str, str], run: Run) -> None:
    folder, labels = talks
    done = run(
        *("eval", "extraction", "--a", "rules", "--b", "rules"),
        *("--transcripts", folder, "--labels", labels, "--json"),
    )
    assert done.code == 0, done.out
    assert done.object["verdict"] == "pass"
    assert done.object["transcripts"] == MIN_PAIRS
    assert done.object["metrics"]["recall"]["after"] > 0.9


def test_a_prompt_that_finds_less_is_refused(
    talks: tuple[str, str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is told to be lazy says nothing; the gate does not let its prompt pass."""
    folder, labels = talks
    prompts = {}
    for name, text in (("thorough", "Find all claims."), ("lazy", "Find nothing at all.")):
        prompts[name] = tmp_path / f"{name}.txt"
        prompts[name].write_text(text)
    with running() as server:
        server.script = [answered] * 4 * MIN_PAIRS
        monkeypatch.setenv("MERITORY_LLM_URL", server.url("/v1"))
        monkeypatch.setenv("MERITORY_LLM_MODEL", "m")
        arguments = ("--transcripts", folder, "--labels", labels, "--json")
        worse = run(
            *("eval", "extraction", "--a", str(prompts["thorough"]), "--b", str(prompts["lazy"])),
            *arguments,
        )
        better = run(
            *("eval", "extraction", "--a", str(prompts["lazy"]), "--b", str(prompts["thorough"])),
            *arguments,
        )
    assert (worse.code, worse.object["verdict"]) == (1, "fail"), worse.object
    assert (better.code, better.object["verdict"]) == (0, "pass")
    assert better.object["results"][1]["id"] == "llm/thorough"


def answered(server: ModelServer, body: dict[str, Any]) -> Raw:
    """What a model says that does exactly what its prompt says."""
    rules, case = (message["content"] for message in body["messages"])
    number = re.match(r"case (\w+)", case)
    said = re.search(r'\[person\] "(Please remember that (.*)\.)"', case)
    assert number is not None
    assert said is not None
    row = {
        "content": said[2],
        "kind": "fact",
        "speaker": "user",
        "quote": said[1],
        "confidence": 0.9,
        "intent": "new",
        "existing_id": "",
        "helps_later": "yes",
        "why": "it may be asked for",
    }
    found = [] if rules.startswith("Find nothing") else [row]
    return wrapped(body, json.dumps({"case": number[1], "candidates": found}))


def test_ones_own_sessions_can_be_read_again(
    store: Path, tmp_path: Path, run: Run, file: str
) -> None:
    with opened(store) as memory:
        session = memory.session("mine")
        session.end([{"role": "user", "text": "Please remember that the yak is called Bob."}])
    before = fingerprint(store)
    labels = tmp_path / "labels.jsonl"
    labels.write_text(json.dumps({"expected": "the yak is called Bob"}))
    done = run(
        *("eval", "extraction", "--a", "rules", "--b", "rules"),
        *("--sessions", "--labels", str(labels), "--json"),
    )
    assert (done.code, done.object["verdict"]) == (1, "not enough data")
    assert done.object["results"][0]["recall"] == 1.0
    assert fingerprint(store) == before


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", "3", "not a transcript"),
        ("a.jsonl", "{}\n{", "not JSON"),
        ("a.txt", "hello", "there is no transcript"),
    ],
)
def test_a_bad_transcript_is_named(
    name: str, body: str, told: str, tmp_path: Path, run: Run
) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    (folder / name).write_text(body)
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"expected": "a"}')
    done = run(
        *("eval", "extraction", "--a", "rules", "--b", "rules"),
        *("--transcripts", str(folder), "--labels", str(labels)),
    )
    assert done.code == 2
    assert told in done.err


def test_an_extractor_that_is_none_is_refused(talks: tuple[str, str], run: Run) -> None:
    folder, labels = talks
    done = run(
        *("eval", "extraction", "--a", "rulez", "--b", "rules"),
        *("--transcripts", folder, "--labels", labels),
    )
    assert (done.code, "is not an extractor" in done.err) == (2, True)
