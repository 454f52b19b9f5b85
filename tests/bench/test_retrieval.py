"""The retrieval bench: plain alternatives, the product's row, the bars and the report."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from bench.datasets import Corpus, Doc, Query
from bench.retrieval import METRICS, PRODUCT, Outcome, missed_bars

from bench import plain, product, report, retrieval

AT = datetime(2024, 1, 1, tzinfo=UTC)


class Letters:
    """An embedder that counts letters: good enough to tell words apart."""

    def embed_documents(self, texts: list[str]) -> np.ndarray:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> np.ndarray:
        counts = np.array([text.lower().count(chr(97 + n)) for n in range(26)], np.float32)
        return counts / max(float(np.linalg.norm(counts)), 1e-9)


def corpus(judged: str = "doc") -> Corpus:
    said = [
        ("s1", "user", "My cat Pluto hates the vacuum cleaner."),
        ("s1", "assistant", "Noted, poor cat."),
        ("s2", "user", "The deploy failed because the database was read-only."),
        ("s2", "assistant", "Remount the volume, then deploy again."),
        ("s3", "user", "I planted tomatoes on the balcony."),
    ]
    docs = [
        Doc(f"{key}/{row}", text, key, row % 2 if key != "s3" else 0, role, AT)
        for row, (key, role, text) in enumerate(said)
    ]
    wanted = {"doc": ("s2/2", "s3/4"), "session": ("s2", "s3")}[judged]
    queries = [
        Query("why did the deploy fail?", frozenset({wanted[0]}), "why"),
        Query("tomatoes", frozenset({wanted[1]}), "what"),
    ]
    return Corpus("toy", docs, queries, judged)  # type: ignore[arg-type]


def outcome(ours: float, theirs: float, *, count: int = 60, name: str = "locomo") -> Outcome:
    categories = np.array(["single-hop"] * count + ["adversarial"] * count)
    tables = {"fts5": np.full((2 * count, 4), theirs), PRODUCT: np.full((2 * count, 4), ours)}
    return Outcome(name, categories, tables)


def test_full_text_finds_stems_and_ignores_stop_words() -> None:
    index = plain.TextIndex(["the dogs were running", "a cat", "the of and"])
    assert np.flatnonzero(index.scores("What did the dog run?")).tolist() == [0]


@pytest.mark.parametrize("query", ['"', "a AND", "NEAR(x", "foo*", "(((", "-", "col:umn", "'"])
def test_no_query_is_a_syntax_error(query: str) -> None:
    index = plain.TextIndex(["foo bar", "column x"])
    assert index.scores(query).shape == (2,)
    assert index.scores(query, product.match_expression(query, pairs=True)).shape == (2,)


def test_rank_fusion_rewards_being_found_twice() -> None:
    text, cosine = np.array([3.0, 2.0, 0.0]), np.array([0.0, 0.8, 0.9])
    assert np.argmax(plain.rrf(text, cosine, 60)) == 1


def test_the_fixed_sum_has_the_documented_weights() -> None:
    found = plain.weighted_sum(np.array([4.0, 2.0]), np.array([0.5, 1.0]))
    assert found == pytest.approx([0.7 * 0.5 + 0.3, 0.7 + 0.15])


def test_pairs_of_words_typed_side_by_side_are_searched_as_phrases() -> None:
    found = product.match_expression("When did the LGBTQ support group meet in May?", pairs=True)
    assert '"lgbtq support"' in found
    assert '"support group"' in found
    assert '"meet in"' not in found
    assert '"support group"' not in product.match_expression("the support group", pairs=False)


def test_links_stay_inside_a_session() -> None:
    links = product.links_of(corpus().docs)
    assert links.previous_row.tolist() == [-1, 0, -1, 2, -1]
    assert links.next_row.tolist() == [1, -1, 3, -1, -1]
    assert links.session.tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("judged", ["doc", "session"])
@pytest.mark.parametrize("rank", [product.rankings, product.formula_rankings])
def test_the_product_answers_the_toy_questions(
    judged: str, rank: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path))
    toy = corpus(judged)
    found = rank(toy, Letters(), 10)  # type: ignore[operator]
    assert [ranking[0] for ranking in found] == [min(query.relevant) for query in toy.queries]


def test_every_method_gives_figures_for_every_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path))
    for judged in ("doc", "session"):
        found = retrieval.measure("toy", [corpus(judged)], Letters())
        assert all(table.shape == (2, len(METRICS)) for table in found.methods.values())
        assert found.methods[PRODUCT][:, METRICS.index("MRR")].tolist() == [1.0, 1.0]


def test_bars_are_met_within_the_tolerance() -> None:
    assert missed_bars(outcome(0.595, 0.60)) == []


def test_falling_behind_a_plain_alternative_is_a_miss() -> None:
    misses = missed_bars(outcome(0.55, 0.60))
    assert any("locomo/all" in miss and "fts5" in miss for miss in misses)
    assert any("locomo/single-hop" in miss for miss in misses)
    assert not any("adversarial" in miss for miss in misses)


def test_no_plain_alternative_is_left_out_of_the_bar() -> None:
    ahead = outcome(0.60, 0.50, name="longmemeval")
    ahead.methods["sum 0.7/0.3 user turns"] = np.full((120, 4), 0.65)
    assert any("NDCG@10 0.600, sum 0.7/0.3 user turns has 0.650" in m for m in missed_bars(ahead))
    assert any("/all: R@10" in miss for miss in missed_bars(ahead))


def test_what_is_no_bar_is_still_said() -> None:
    found = outcome(0.80, 0.50, name="longmemeval")
    recall, half = METRICS.index("R@10"), np.arange(120) < 30
    found.categories[:] = "one"
    found.categories[:60] = "other"
    found.methods[PRODUCT][half, recall] = 0.10
    found.methods[PRODUCT][~half, recall] = 0.90
    found.methods["fts5"][:60, recall] = 0.60
    assert missed_bars(found) == []
    assert retrieval.shortfalls(found) == ["longmemeval/other: R@10 0.500, fts5 has 0.600"]


def test_falling_below_the_line_is_a_miss() -> None:
    assert any("below the line" in miss for miss in missed_bars(outcome(0.40, 0.10)))


def test_small_categories_are_not_judged() -> None:
    misses = missed_bars(outcome(0.55, 0.60, count=10))
    assert misses == []


def test_the_report_names_the_machine_but_no_host_and_no_path(tmp_path: Path) -> None:
    target = tmp_path / "out" / "figures.json"
    report.write({"sets": [retrieval.summary(outcome(0.6, 0.5))]}, target)
    body = json.loads(target.read_text())
    assert {"commit", "date", "cpu", "cores", "python", "numpy", "sqlite"} <= set(body["context"])
    assert str(tmp_path) not in target.read_text()
    lead = body["figures"]["sets"][0]["groups"]["all"]["lead"]["NDCG@10"]
    assert lead["mean"] == pytest.approx(0.1)


def test_missing_data_is_skipped_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MERITORY_BENCH_DATA", str(tmp_path))
    assert retrieval.main(["--only", "locomo,beam"]) == 0
    assert capsys.readouterr().out.count("SKIP") == 2
