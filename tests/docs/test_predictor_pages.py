"""The pages about the predictor say what the code says: features, gates, tables, settings."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import numpy as np

from meritory.model import canary
from meritory.model.base import RankingQuery, TrainingExample
from meritory.model.ranker import Ranker
from meritory.rank.features import EXPOSURE, FEATURE_VERSION, FEATURES
from meritory.rank.search_features import SEARCH_FEATURE_VERSION, SEARCH_FEATURES
from meritory.settings import SETTINGS
from meritory.store.sqlite.engine import connect
from meritory.store.sqlite.store import SqliteStore
from meritory.text.render import StatusFacts, status_line

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "concepts"
GUIDE = (FOLDER / "predictor.md").read_text("utf-8")
INSIDE = (FOLDER / "predictor-inside.md").read_text("utf-8")


def section(page: str, heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return str(found)


def named(text: str) -> list[str]:
    """The first cell of every row, where it is a name of the code."""
    return re.findall(r"^\| `([a-z_.]+)` \|", text, re.MULTILINE)


def test_every_feature_is_there_in_its_order_with_a_meaning() -> None:
    told = section(INSIDE, "Features")
    assert named(told) == list(FEATURES)
    assert f"`FEATURE_VERSION` {FEATURE_VERSION}." in told
    hidden = [line for line in told.splitlines() if line.endswith(". Hidden |")]
    assert {re.findall(r"`(\w+)`", line)[0] for line in hidden} == EXPOSURE
    count = len(FEATURES)
    assert f"one row of {count} numbers per candidate" in INSIDE
    assert f"the sum of its {count} features" in INSIDE
    assert f" of {count} features with the largest effect" in GUIDE


def test_every_feature_of_a_search_is_there_in_its_order() -> None:
    told = section(INSIDE, "Searches")
    assert named(told) == list(SEARCH_FEATURES)
    assert f"`SEARCH_FEATURE_VERSION` {SEARCH_FEATURE_VERSION}," in told


def test_every_gate_is_there_with_its_limit() -> None:
    rng = np.random.default_rng(0)
    lessons = [
        TrainingExample(
            query=RankingQuery(features=rng.random((8, len(FEATURES)))),
            labels=np.eye(8)[0],
            weights=np.ones(8),
        )
        for _ in range(canary.LEAST_SESSIONS)
    ]
    model = Ranker.untrained()
    terms = canary.Terms(losses=(1.0,), loads_afresh=True, incumbent=model, best_kept=model)
    checks = canary.examine(model, lessons, terms, rng).checks
    told = section(INSIDE, "Gates")
    assert named(told) == [one.name for one in checks]
    lines = {name: line for line in told.splitlines() for name in named(line)}
    limits = {
        "canary": f"{canary.LEAST_SESSIONS} ",
        "variance": "1e-12",
        "overlap": f"{canary.LEAST_OVERLAP:.0%}",
        "drop": f"-{canary.LARGEST_DROP}",
        "baseline": f"-{canary.BASELINE_TOLERANCE}",
        "best_kept": f"-{canary.BEST_TOLERANCE}",
    }
    assert {name for name, limit in limits.items() if limit not in lines[name]} == set()


def test_every_table_exists(store: SqliteStore) -> None:
    with closing(connect(store.path, write=False)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    told = named(section(INSIDE, "What is recorded where"))
    assert set(told) <= {name for (name,) in rows}
    assert {name for (name,) in rows if name.startswith("predictor_")} <= set(told)


def test_settings_are_told_with_their_defaults() -> None:
    known = {setting.name: setting for setting in SETTINGS}
    rows = re.findall(r"^\| `(predictor\.\w+)` \| ([^|]*) \|", GUIDE, re.MULTILINE)
    assert len(rows) >= 4
    for name, default in rows:
        given = known[name].default
        written = "true" if given is True else str(given) or "empty"
        assert default.strip("` ") == written, name


def test_the_status_lines_are_those_that_the_code_makes() -> None:
    lines = {
        status_line(standing)
        for standing in (
            StatusFacts(state="collecting", session_count=4, needed=10),
            StatusFacts(state="warming", success_rate=0.62, model_version=0),
            StatusFacts(
                state="active", success_rate=0.68, alpha=0.6, model_version=3, session_count=34
            ),
            StatusFacts(state="disabled", reason="switched off"),
            StatusFacts(state="disabled", crashes=3),
            StatusFacts(state="retraining", reason="drift"),
        )
    }
    phases = section(GUIDE, "Its phases, and the status line")
    (table, *_) = phases.split("\n\n`model v0`")
    assert set(re.findall(r"`(\[meritory: [^`]*\])`", table.replace("\\|", "|"))) == lines
