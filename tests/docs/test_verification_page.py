"""The page that says which test holds which promise: complete, and every test is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "verification.md"
# What the two documents ask for, in their order.
SESSIONS = """session_memories populated; pre-filtering; per-memory scoring; full-text hit tracking;
full-text-only inserts; behavioural label adjustment; blind evaluation"""
PREDICTOR = """autograd; training; NDCG comparison; rank fusion; success rate; scoring latency;
checkpoint across restarts; base weights; build; read-only boundary; guardrails; drift detection;
replay buffer; negative label filtering; negative memory signals; topic diversity;
project embedding; WAL and idempotent records; confidence gating"""
SEEING = """diagnostics domain; diagnostics composite; latency tracking; error ring; timeline;
pipeline status; dashboard in cold start; dashboard when active; comparison inspector;
API endpoints; agent injection; drift diagnostics; structured logs; judge calibration;
per-project slices; influence ramp; exploration sampling; canary regression;
training validation gates; mixed path normalisation; full-text overlap in comparisons;
behavioural label blending; pre-filter scaling; month encoding"""
FORMULA = """weights sum to one; relevance dominates; recency halves in 14 days;
frequency caps at 50; unknown age is neutral; scores sorted descending;
formula matches the document"""
ITEMS = [
    " ".join(item.split())
    for part in (SESSIONS, PREDICTOR, SEEING, FORMULA)
    for item in part.split(";")
]
_TEST = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")
# Long enough to say something.
LEAST_REASON_CHARS = 30


def rows(page: str) -> dict[str, str]:
    """Every item of the page with what stands beside it."""
    cells = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")]
    return {item.strip(): told.strip() for item, told in cells if item.strip() != "item"}


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The tests that a file defines."""
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def complaints(page: str) -> list[str]:
    """What is wrong with a page."""
    known = rows(page)
    found = [f"{item}: no row" for item in ITEMS if item not in known]
    found += [f"{item}: nobody asked for it" for item in known if item not in ITEMS]
    for item, told in known.items():
        named = _TEST.findall(told)
        found += [
            f"{item}: no test {path}::{name}" for path, name in named if not exists(path, name)
        ]
        is_reasoned = any(word in told for word in ("Not yet: ", "Measured: ", "There is no "))
        if not named and not (is_reasoned and len(told) >= LEAST_REASON_CHARS):
            found.append(f"{item}: neither a test nor a reason")
    return found


def exists(path: str, name: str) -> bool:
    file = ROOT / "tests" / path
    return file.is_file() and name in defined_in(file)


def test_every_item_has_a_test_that_exists_or_a_reason() -> None:
    assert len(ITEMS) == len(set(ITEMS))
    assert complaints(PAGE.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("| month encoding |", "| moon encoding |"), "month encoding: no row"),
        (("::test_the_formula_by_hand", "::test_gone"), "no test rank/test_fusion.py::test_gone"),
        (("`rank/test_fusion.py::", "`rank/test_gone.py::"), "no test rank/test_gone.py::"),
        (
            ("`rank/test_composite.py::test_frequency_caps_at_50`", "-"),
            "neither a test nor a reason",
        ),
    ],
)
def test_a_gap_in_the_page_is_seen(change: tuple[str, str], complaint: str) -> None:
    page = PAGE.read_text("utf-8")
    assert change[0] in page
    assert complaint in "\n".join(complaints(page.replace(*change)))
