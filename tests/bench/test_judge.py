"""The judge's bench: its bars, its stuffed memories, its reference and its report."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.judge import gaps_without_bar, main, missed_bars, ratio
from bench.judge_cases import CODING, MASKED, REALMEM, SETS, Case, CaseSet
from bench.judge_figures import RECALLS, Bin, Figures, SetFigures
from bench.judge_reference import check_commit, judged_before, read_reference
from bench.judge_stuffed import HONEST, HONEST_KINDS, HONEST_LINE, gains, recipes_from, stuffed
from bench.streams_types import Message

from bench import judge, judge_stuffed, report
from meritory.domain.session import JudgedMemory

TEXTS = (
    "Pluto the cat hates the vacuum cleaner in the hall.",
    "The deploy failed because the volume was read-only.",
    "Tomatoes were planted on the balcony in April.",
    "The office moved to Lisbon last spring.",
)
REPLY = "Pluto hates the vacuum cleaner. " * 20
OWN_RECALL = 0.45


def made(precision: float = 0.9, recall: float = 0.9, gap: float = 0.0) -> Figures:
    at = dict.fromkeys((*RECALLS, OWN_RECALL), precision)
    return Figures(100, 50, precision, recall, at, (Bin(0.5 + gap, 0.5, 60),))


def a_set(figures: Figures, labels: Figures | None = None) -> SetFigures:
    return SetFigures(10, 100, 20, figures, labels or figures, 0.5)


BEFORE = {name: (a_set(made(0.2)), OWN_RECALL) for name in SETS}


@pytest.mark.parametrize(
    ("name", "found", "miss"),
    [
        (CODING, made(0.8, 0.6), None),
        (CODING, made(0.79, 0.9), "precision 0.790 at recall 0.900, wanted 0.8 at 0.6"),
        (CODING, made(0.9, 0.59), "precision 0.900 at recall 0.590"),
        (CODING, made(float("nan"), 0.0), "precision nan at recall 0.000"),
        (MASKED, made(0.5, 0.3), None),
        (MASKED, made(0.49, 0.3), "wanted 0.5 at 0.3"),
        (REALMEM, made(0.31, 0.1), None),
        (REALMEM, made(0.29, 0.1), "1.45 times that of version 0.1 at recall 0.450, wanted 1.5"),
        (REALMEM, made(float("nan"), 0.1), "nan times"),
        (REALMEM, made(0.31, gap=0.11), "chances are off by 0.110, wanted 0.1"),
        (REALMEM, made(0.31, gap=0.09), None),
        # The coding sets have no bar on calibration.
        (CODING, made(gap=0.3), None),
    ],
)
def test_each_set_has_its_bars(name: str, found: Figures, miss: str | None) -> None:
    misses = missed_bars({name: a_set(found)}, BEFORE)
    if miss is None:
        assert misses == []
    else:
        assert miss in misses[0] and misses[0].startswith(f"{name}: ")


def test_labels_count_for_bars_and_chances_for_the_comparison() -> None:
    good, bad = made(0.9, 0.9), made(0.1, 0.1)
    assert missed_bars({CODING: a_set(bad, good)}, BEFORE) == []
    assert len(missed_bars({CODING: a_set(good, bad)}, BEFORE)) == 1
    assert ratio(a_set(good, bad), *BEFORE[REALMEM]) == pytest.approx(4.5)
    calibrated, off = made(0.9), made(0.9, gap=0.2)
    assert missed_bars({REALMEM: a_set(calibrated, off)}, BEFORE) == [
        "realmem: labels are off by 0.200, wanted 0.1"
    ]


def test_a_gap_without_a_bar_is_still_named() -> None:
    found = {MASKED: a_set(made(gap=0.2)), REALMEM: a_set(made(gap=0.2)), CODING: a_set(made())}
    assert gaps_without_bar(found) == [
        f"{MASKED}: chances are off by 0.200",
        f"{MASKED}: labels are off by 0.200",
    ]


# -- stuffed memories -----------------------------------------------------------------------


def said(reply: str) -> Callable[[], list[Message]]:
    return lambda: [{"role": "user", "text": "Who?"}, {"role": "assistant", "text": reply}]


def a_case(number: int, stream: str = "s") -> Case:
    exhibits = tuple(JudgedMemory(text, was_shown=place < 2) for place, text in enumerate(TEXTS))
    helped = np.array([True, False, False, False])
    return Case(stream, f"k{number}", exhibits, helped, said(REPLY))


def test_stuffed_memories_take_the_place_of_a_shown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[JudgedMemory, ...]] = []

    def verdict(reading: object, exhibits: tuple[JudgedMemory, ...]) -> tuple[np.ndarray, float]:
        seen.append(exhibits)
        return np.array(
            [len(one.text) if one.text == "stuffed" else np.nan for one in exhibits]
        ), 1.0

    monkeypatch.setattr(judge_stuffed, "verdict", verdict)
    monkeypatch.setattr(judge_stuffed, "recipes_from", lambda *_: {"recipe": "stuffed"})
    means = stuffed([a_case(1), a_case(2)])
    assert means == {"recipe": 7.0, **dict.fromkeys(HONEST_KINDS, 0.0)}
    assert len(seen) == 8
    assert seen[0][1] == JudgedMemory("stuffed", was_shown=True)
    assert [one.text for one in seen[0]][::2] == list(TEXTS[::2])
    # An honest memory is one that did not help in the session.
    assert all(exhibits[1].text in ("stuffed", *TEXTS[1:]) for exhibits in seen)


def test_an_honest_memory_did_not_help_in_the_session() -> None:
    case = a_case(1)
    helped = np.array([True, True, True, False])
    found = judge_stuffed._honest(replace(case, helped=helped), [a_case(2)], random.Random(1))
    assert found == [TEXTS[3]]


def test_a_memory_that_the_reply_restates_would_be_noticed() -> None:
    recipe = {"the reply": REPLY[:31], "nothing": "Rain falls on an empty street at night."}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judge_stuffed, "recipes_from", lambda *_: recipe)
        means = stuffed([a_case(number) for number in range(3)])
    assert means["the reply"] > means["nothing"] + 0.02
    assert [line.split(":")[0] for line in gains(means)] == ["stuffed with the reply"]


def test_gains_are_measured_against_the_better_honest_memory() -> None:
    honest = {**dict.fromkeys(HONEST_KINDS, 0.0), HONEST: 0.01, HONEST_LINE: 0.05}
    assert gains({**honest, "words": 0.09}) == []
    assert len(gains({**honest, "words": 0.1})) == 1


def test_recipes_are_made_from_the_words_of_honest_memories() -> None:
    found = recipes_from(set(TEXTS), random.Random(1))
    assert found == recipes_from(set(TEXTS), random.Random(1))
    assert {"the", "cat"}.isdisjoint(found["150 common words"].split())
    assert set(found["60 first lines"].split("\n")) == {text[:80] for text in TEXTS}
    assert "\n" not in found["60 first lines as one"]


# -- version 0.1 ----------------------------------------------------------------------------


def test_the_reference_is_complete_and_names_its_commit() -> None:
    body = json.loads((report.RESULTS / "judge-0.1.json").read_text())["figures"]
    assert body["judge"] == "45801d2" and "judge_reference" in body["method"]
    reference = read_reference()
    assert tuple(reference) == SETS
    for before, own_recall in reference.values():
        assert before.chances.recall == pytest.approx(own_recall)
        assert before.chances.precision_at[own_recall] > 0.0


def test_another_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is at no commit: check out 45801d2"):
        check_commit(tmp_path)


def test_version_01_answers_through_a_pipe(tmp_path: Path) -> None:
    """A stand-in for the old sources: its judge gives every memory the length of its text."""
    package = tmp_path / "src" / "meritory"
    for name, body in STAND_IN.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(body)
    short = replace(a_case(2), messages=said("a/b.py"), is_masked=True)
    one, other = judged_before([a_case(1), short], tmp_path)
    assert one.chances.tolist() == one.labels.tolist() == [len(text) for text in TEXTS]
    assert one.confidence == 0.5 and one.helped.tolist() == [True, False, False, False]
    assert other.chances.tolist() == one.chances.tolist()
    assert np.isnan(other.labels).all() and other.confidence == 0.0


STAND_IN = {
    "types": (
        "from collections import namedtuple\n"
        "Exhibit = namedtuple('Exhibit', 'text shown provenance')\n"
        "Turn = namedtuple('Turn', 'role text')\n"
    ),
    "text/conduct": "def passages(told): return [turn.text for turn in told]\n",
    "text/transcript": (
        "from meritory.types import Turn\n"
        "def read_turns(given): return [Turn(one['role'], one['text']) for one in given]\n"
        "def as_text(told): return ''.join(turn.text for turn in told)\n"
    ),
    "flow/ending": (
        "def _kept(turns):\n    assert 'a/b.py' not in turns[-1].text\n    return turns\n"
    ),
    "flow/judging": "JUDGE_MIN_CHARS = 500\n",
    "ports/embedder": (
        "import numpy as np\n"
        "class EmbedderSpec: pass\n"
        "class Letters:\n"
        "    def embed_documents(self, texts):\n"
        "        return np.array([[len(text)] for text in texts], float)\n"
        "def open_embedder(spec): return Letters()\n"
    ),
    "ports/judge": (
        "from types import SimpleNamespace\n"
        "class RulesJudge:\n"
        "    def judge(self, told, exhibits, cosines):\n"
        "        longest = max(len(turn.text) for turn in told)\n"
        "        found = [cosine / longest for cosine in cosines]\n"
        "        return SimpleNamespace(relevance=found, confidence=0.5)\n"
    ),
}


# -- the whole ------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the sets by made-up ones, with two people to tune on."""
    people = ("one", "two")
    part = [a_case(number, person) for number in range(6) for person in people]
    sets = [CaseSet(name, part, part) for name in SETS]
    monkeypatch.setattr(
        judge, "load_sets", lambda names: [one for one in sets if one.name in names]
    )


@pytest.mark.usefixtures("small")
def test_the_bench_prints_misses_and_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--only", REALMEM, "--fit", "--json", str(tmp_path / "judge.json")]) == 1
    printed = capsys.readouterr().out
    assert "realmem, reported part: 12 sessions, 48 candidates, 12 used" in printed
    assert "version 0.1, labels" in printed and "claim:" in printed and "MISSED realmem" in printed
    body = json.loads((tmp_path / "judge.json").read_text())
    assert body["figures"]["sets"][REALMEM]["candidates"] == 48
    assert set(body["figures"]) == {"sets", "stuffed", "missed"}
    assert body["figures"]["missed"]


@pytest.mark.usefixtures("small")
def test_a_part_of_the_sets_overwrites_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "write", lambda *_: pytest.fail("written"))
    main(["--only", REALMEM])
    with pytest.raises(SystemExit, match="unknown sets: locomo"):
        main(["--only", "locomo"])


def test_the_bench_can_be_started() -> None:
    command = [sys.executable, "-m", "bench.judge", "--help"]
    done = subprocess.run(command, cwd=report.ROOT, capture_output=True, text=True, check=True)
    assert "--fit" in done.stdout
