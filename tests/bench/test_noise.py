"""The noise bench on a corpus of its own: what it plants and counts, and that it can fail."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from bench.datasets import Corpus, Doc, Query
from bench.noise import SHIPPED, _judged_losses, asked, measured
from bench.noise_made import Noise, planted

from eval_kit import NAMED

AT = datetime(2026, 1, 1, tzinfo=UTC)


def corpus() -> Corpus:
    docs = [
        Doc(
            id=f"d{number}",
            text=f"The {thing} is called {animal} because somebody likes wild animals best",
            session_key=f"s{number // 5}",
            turn=number % 5,
            role="user",
            at=AT,
        )
        for number, (thing, animal) in enumerate(NAMED.items())
    ]
    queries = [
        Query(f"what is the {thing} called?", frozenset({f"d{number}"}), "names")
        for number, thing in enumerate(NAMED)
    ]
    return Corpus("own", docs, queries)


def test_a_third_of_each_kind_is_planted_and_always_the_same() -> None:
    found = planted(corpus(), 30, None)
    assert Counter(one.kind for one in found) == {"chatter": 10, "tautology": 10, "paraphrase": 10}
    assert found == planted(corpus(), 30, None)
    said_by = {one.kind: one.origin for one in found}
    assert said_by == {"chatter": "agent", "tautology": "agent", "paraphrase": "user"}
    assert len({one.text for one in found}) >= 28


def test_noise_that_drowns_the_answers_is_counted_as_a_loss() -> None:
    """Words of the questions themselves, said by a person again and again."""
    doc = corpus().docs[0]
    flood = [
        Noise(f"{query.text} {n} {n}", "chatter", "user", f"n{n}", doc)
        for query in corpus().queries
        for n in range(3)
    ]
    undefended: dict[str, object] = {"gate.enabled": False}
    clean, noisy = asked(corpus(), [], undefended), asked(corpus(), flood, undefended)
    assert [hit.rank for hit in clean.hits] == [1] * len(NAMED)
    assert sum(hit.rank is None or hit.rank > 3 for hit in noisy.hits) > len(NAMED) / 2
    assert any("chatter" in kinds for kinds in noisy.above)


def test_the_figures_say_what_was_lost() -> None:
    found = measured([corpus()], 0.3)
    told = found[SHIPPED]
    assert told["questions"] == len(NAMED)
    assert told["clean_memories"] == len(NAMED)
    assert told["clean_memories"] < told["noisy_memories"] <= round(len(NAMED) / 0.7)
    for metric in told["very_turn"].values():
        assert round(metric["clean"] - metric["noisy"], 3) == round(metric["loss"], 3)
    assert max(_judged_losses(found)) <= 1.0
