"""Filters, metadata and the absolute score of a recall, on both kinds of store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from meritory import InputError, Memory
from meritory.domain.policy import KNOWN_SCORE
from meritory.engine.memories.recall import best_score

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def contents(memory: Memory, query: str, **filters: Any) -> set[str]:
    return {hit.content for hit in memory.recall(query, 50, **filters)}


@pytest.fixture
def herons(memory: Memory) -> Memory:
    """Sixty memories about herons, of which every third has each property."""
    memory.remember_many(
        {
            "content": f"heron sighting number {n}",
            "kind": ("fact", "decision", "preference")[n % 3],
            "tags": ["bird", f"lake{n % 3}"],
            "metadata": {"lake": n % 3, "ring": f"r{n % 2}"},
            "valid_from": BEGIN + timedelta(days=n),
            "on_similar": "keep",
        }
        for n in range(60)
    )
    return memory


def numbers(wanted: Any) -> set[str]:
    return {f"heron sighting number {n}" for n in range(60) if wanted(n)}


def test_every_filter_leaves_memories_out(herons: Memory) -> None:
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"kind": "decision"}, lambda n: n % 3 == 1),
        ({"kind": ["fact", "decision"]}, lambda n: n % 3 < 2),
        ({"tags": "lake2"}, lambda n: n % 3 == 2),
        ({"tags": ["bird", "lake0"]}, lambda n: n % 3 == 0),
        ({"tags": ["lake0", "lake1"]}, lambda n: False),
        ({"tags": ["lake"]}, lambda n: False),
        ({"metadata": {"lake": 1}}, lambda n: n % 3 == 1),
        ({"metadata": {"lake": 1, "ring": "r0"}}, lambda n: n % 3 == 1 and n % 2 == 0),
        ({"metadata": {"lake": "1"}}, lambda n: False),
        ({"metadata": {"ring": "r"}}, lambda n: False),
        ({"since": BEGIN + timedelta(days=50)}, lambda n: n >= 50),
        ({"until": "2026-01-04"}, lambda n: n < 3),
        ({"since": "2026-01-03", "until": "2026-01-05", "kind": "fact"}, lambda n: n == 3),
    ]
    for filters, wanted in cases:
        assert contents(herons, "heron sighting", **filters) == numbers(wanted), filters


def test_a_filtered_recall_still_returns_as_many_as_wanted(herons: Memory) -> None:
    herons.remember_many(f"the heron stands in the water, note {n}" for n in range(300))
    assert len(herons.recall("heron", 10, metadata={"lake": 2})) == 10


def test_projects_name_where_to_search(memory: Memory) -> None:
    for project in (None, "a", "b", "c"):
        memory.remember(f"badger note of {project}", project=project, on_similar="keep")
    assert contents(memory, "badger note") == {"badger note of None"}
    assert contents(memory, "badger note", projects=["a", "b"]) == {
        "badger note of a",
        "badger note of b",
    }
    assert contents(memory, "badger note", projects=["c", ""]) == {
        "badger note of c",
        "badger note of None",
    }
    assert contents(memory, "badger note", projects=[]) == set()
    within = memory.view(project="c")
    assert contents(within, "badger note", projects="a") == {"badger note of a"}


def test_a_chain_shows_the_value_that_the_filter_allows(memory: Memory) -> None:
    memory.remember("The export limit is 5,000 rows", valid_from=BEGIN)
    memory.remember("The export limit is 8,000 rows", valid_from=BEGIN + timedelta(days=9))
    assert contents(memory, "what is the export limit?") == {"The export limit is 8,000 rows"}
    early = contents(memory, "what is the export limit?", until=BEGIN + timedelta(days=1))
    assert "The export limit is 8,000 rows" not in early


def test_a_wrong_filter_is_named(memory: Memory) -> None:
    memory.remember("The staging database is called heron")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "facts"}, "invalid kind"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-02-01", "until": "2026-01-01"}, "until must be after since"),
        ({"metadata": ["a"]}, "metadata must be a dictionary"),
        ({"min_score": 2}, "min_score must be between 0 and 1"),
        ({"projects": [1]}, "projects must be text"),
    ]
    for filters, told in wrong:
        with pytest.raises(InputError, match=told):
            memory.recall("heron", **filters)


# -- metadata ---------------------------------------------------------------------------------


def test_metadata_is_kept_changed_merged_and_restored(memory: Memory) -> None:
    made = memory.remember("The port is 5432", metadata={"source": "wiki", "rank": 1.0, "ok": True})
    assert memory.get(made.id).metadata == {"source": "wiki", "rank": 1, "ok": True}
    memory.update(made.id, metadata={"source": "ops"})
    assert memory.get(made.id).metadata == {"source": "ops"}
    memory.undo(made.id)
    assert memory.get(made.id).metadata == {"source": "wiki", "rank": 1, "ok": True}
    again = memory.remember("The port is 5432", metadata={"seen": ["a", {"b": None}]})
    assert again.id == made.id
    assert again.metadata == {"source": "wiki", "rank": 1, "ok": True, "seen": ["a", {"b": None}]}
    assert memory.history(made.id)[0].after is not None


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ("text", "must be a dictionary"),
        ({"x": float("nan")}, "must be JSON"),
        ({"x": object()}, "must be JSON"),
        ({1: "x"}, "must be a name"),
        ({"x": "y" * 5_000}, "at most 4096 characters"),
        ({"x": "\ud800"}, "must be JSON"),
        ({"key": "sk-ant-api03-" + "aB3dE6gH9j" * 9}, "secret"),
    ],
)
def test_bad_metadata_is_refused(memory: Memory, metadata: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        memory.remember("The port is 5432", metadata=metadata)


def test_odd_names_and_values_are_found_exactly(memory: Memory) -> None:
    odd = {'a":1,"b': 'x"}', "ключ": "значение 😀", "n": 12, "deep": {"n": 1}}
    memory.remember("The heron is grey", metadata=odd)
    for name, value in odd.items():
        assert contents(memory, "heron", metadata={name: value}) == {"The heron is grey"}, name
    for name, value in (("a", 1), ("b", "x"), ("n", 1), ("n", "12"), ("deep", {"n": 12})):
        assert contents(memory, "heron", metadata={name: value}) == set(), name


# -- the score ----------------------------------------------------------------------------------


def fill(memory: Memory) -> None:
    memory.remember_many(
        [
            "The staging database is called heron",
            "Deployments happen on Tuesdays after the stand-up",
            "Anna owns a dog and two cats",
            "The invoices are sent by Petra on the last day of the month",
            "Our CI runs on Buildkite with three agents",
            "The office kitchen has a new coffee machine",
            "Unsere Testdatenbank heißt Reiher und läuft in Frankfurt",
            "测试数据库叫苍鹭，每天晚上备份",
        ]
    )


def test_a_question_about_something_unknown_finds_nothing(memory: Memory) -> None:
    fill(memory)
    for question in ("what is the capital of Mongolia?", "xxxxx", "How tall is the Eiffel tower?"):
        assert memory.recall(question) == [], question
        best = memory.recall(question, 3, min_score=0)
        assert len(best) == 3
        assert best[0].score < KNOWN_SCORE


def test_zero_returns_the_best_also_when_nothing_is_shared(memory: Memory) -> None:
    fill(memory)
    found = memory.recall("what is the capital of Mongolia?", 5, min_score=0)
    assert len(found) == 5
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    best = best_score(memory.services, memory.scope, "what is the capital of Mongolia?", {})
    assert best == found[0].score


def test_a_known_answer_scores_high_and_the_cut_holds(memory: Memory) -> None:
    fill(memory)
    known = memory.recall("what is the staging database called?")
    assert known[0].content == "The staging database is called heron"
    assert known[0].score > 0.5
    for cut in (0.1, 0.5, 0.99):
        kept = memory.recall("what is the staging database called?", min_score=cut)
        assert [hit.id for hit in kept] == [hit.id for hit in known if hit.score >= cut]


def test_the_score_does_not_depend_on_the_limit(memory: Memory) -> None:
    fill(memory)
    question = "which database is used for staging?"
    scores = {limit: memory.recall(question, limit)[0].score for limit in (1, 2, 5, 10)}
    assert len(set(scores.values())) == 1


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Wie heißt unsere Testdatenbank?", "Reiher"),
        ("Wo läuft die Testdatenbank?", "Frankfurt"),
        ("数据库叫什么?", "苍鹭"),
        ("测试数据库什么时候备份?", "备份"),
    ],
)
def test_questions_in_other_languages_with_shared_words_are_answered(
    memory: Memory, question: str, answer: str
) -> None:
    fill(memory)
    assert answer in memory.recall(question)[0].content


def test_a_store_without_vectors_still_says_when_nothing_is_known(tmp_path: Any) -> None:
    from meritory.settings import load_settings

    settings = load_settings(tmp_path, {}, {"embedder.kind": "none"})
    with Memory(tmp_path / "words.db", settings=settings) as memory:
        fill(memory)
        assert memory.recall("staging database name")[0].content.endswith("heron")
        assert memory.recall("what is the capital of Mongolia?") == []
