"""The rankings that a replay compares: those of the product, and references of the bench."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.streams_regimes import FULL_GAIN
from meritory import Memory
from meritory.domain.policy import SourceWeights
from meritory.domain.session import Candidate
from meritory.engine.pipeline import RANK, run_stages
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.ranking import Ranking
from meritory.rank import fusion
from meritory.rank.composite import seed_composite
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.hybrid import REQUIRED
from meritory.text.terms import OPENING_CHARS

BASELINE, SERVED, PREDICTOR = "baseline", "served", "predictor"
# The order that would be served if the model had no weight.
SERVED_BASELINE = "served baseline"
TEXT, HYBRID, MIX, SEED_FUSION = "text", "hybrid text", "hand-made mix", "seed fusion"
TITLE, FRECENCY, LAST_USED = "title words", "frecency", "last used"
COLD_LINEAR = "cold linear"

# A use is worth this share of itself a day later, as in the product.
USE_DECAY = 0.95
BM25_K1, BM25_B = 1.2, 0.75
_SECONDS_PER_DAY = 86_400.0
# Between "camel" and "Case", and between "HTTP" and "Server".
_CASE_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")

Floats = NDArray[np.float64]


def product_rankings(
    memory: Memory, served: Sequence[Candidate], order: Sequence[str]
) -> dict[str, list[str]]:
    """Return the rankings that are made from the candidates on record; `order` was served."""
    return {
        SERVED: list(order),
        BASELINE: by_rank(served, lambda one: one.baseline_rank),
        PREDICTOR: by_rank(served, lambda one: one.predictor_rank),
        TEXT: text_ranking(memory, served),
        **alternatives(served),
    }


def by_rank(served: Sequence[Candidate], rank: Callable[[Candidate], int | None]) -> list[str]:
    """Return the order of one ranking alone."""
    ranked = [one for one in served if rank(one) is not None]
    return [one.memory_id for one in sorted(ranked, key=lambda one: rank(one) or 0)]


def table(served: Sequence[Candidate]) -> Floats:
    """Return the features on record, a row for each candidate."""
    if any(one.feature_version != FEATURE_VERSION for one in served):
        raise RuntimeError("the features on record are of another version")
    return np.array([one.features for one in served]).reshape(len(served), len(FEATURES))


def text_ranking(memory: Memory, served: Sequence[Candidate]) -> list[str]:
    """Rank the candidates by relevance alone, lowered for repetition as the served ones are.

    The product does not lower memories that helped in one session. That is history, so it is left
    out here.
    """
    services, ids = memory.services, [one.memory_id for one in served]
    if not ids:
        return []
    relevance = table(served)[:, FEATURES.index("relevance")]
    found = fusion.fuse(relevance, None, ids, 1.0, services.policy.predictor.rrf_k)
    required = np.array([REQUIRED in one.origins for one in served], np.bool_)
    vectors = _vectors(memory, ids)
    known = services.store.memories(memory.scope.user, ids)
    openings = [known[ids[at]].content[:OPENING_CHARS] for at in found.order.tolist()]
    apart = fusion.named_apart(openings)
    spread = fusion.diversify(
        found.scores[found.order], vectors[found.order], required[found.order], lambda: apart
    )
    return [ids[at] for at in found.order[spread.order].tolist()]


def _vectors(memory: Memory, ids: Sequence[str]) -> NDArray[np.float32]:
    """Return the stored vectors, a row of zeros for a memory without one."""
    services = memory.services
    name = services.embedding.serving_name()
    known = {} if name is None else services.store.vectors(memory.scope.user, name, ids)
    none = np.zeros(len(next(iter(known.values()), ())), np.float32)
    return np.stack([known.get(one, none) for one in ids])


def served_baseline(memory: Memory, key: str, project: str | None, context: str) -> list[str]:
    """Rank as the product would serve the session now without a model; nothing is recorded."""
    services = replace(memory.services, scorer=None)
    scope = memory.scope if project is None else replace(memory.scope, project=project)
    ranking = Ranking(services, StartRequest(key, scope, context))
    run_stages("start", RANK, ranking)
    return [candidate.memory_id for candidate in ranking.candidates]


def alternatives(served: Sequence[Candidate]) -> dict[str, list[str]]:
    """Rank the same candidates by other rules, from the features on record."""
    ids = [one.memory_id for one in served]
    column = dict(zip(FEATURES, table(served).T, strict=True))
    rules: dict[str, Callable[[Mapping[str, Floats]], Floats]] = {
        "seed feed": lambda known: seed_composite(known, SourceWeights()),
        SEED_FUSION: lambda known: _seed_fusion(known, ids),
        "importance x recency": lambda known: known["effective"],
        HYBRID: _hybrid,
        MIX: _mix,
    }
    return {
        name: [ids[at] for at in fusion.fuse(rule(column), None, ids, 1.0).order]
        for name, rule in rules.items()
    }


def _seed_fusion(known: Mapping[str, Floats], ids: Sequence[str]) -> Floats:
    """Seed 001's rule: importance times recency fused with the cosine, both with one weight."""
    return fusion.fuse(known["effective"], known["cosine"], ids, 0.5).scores


def _hybrid(known: Mapping[str, Floats]) -> Floats:
    return 0.7 * np.maximum(known["cosine"], 0.0) + 0.3 * known["text"]


def _mix(known: Mapping[str, Floats]) -> Floats:
    """The best rule made by hand without the composite's five weights."""
    return _hybrid(known) + 0.3 * known["association"] + 0.2 * known["frecency"]


# -- references over the whole store ---------------------------------------------------------


class References:
    """Ranks the whole store by simple rules, from texts and from the true gains so far.

    These rankings do not depend on the product. They also see the truth in every regime, so they
    are an upper mark for counting. A memory with the score 0 is not ranked; equal scores keep the
    order in which the memories were stored.
    """

    def __init__(self) -> None:
        self._uses: dict[str, list[tuple[datetime, float]]] = defaultdict(list)

    def add(self, at: datetime, gains: Mapping[str, float]) -> None:
        """Count the true gains of a session that is over."""
        for one, gain in gains.items():
            self._uses[one].append((at, gain / FULL_GAIN))

    def rankings(
        self, at: datetime, context: str, texts: Mapping[str, str]
    ) -> dict[str, list[str]]:
        """Return the rankings of the memories with these texts, by id, for one session."""
        used = [one for one in texts if one in self._uses]
        return {
            TITLE: _positive(title_scores(context, texts)),
            FRECENCY: _positive({one: self._frecency(one, at) for one in used}),
            LAST_USED: sorted(used, key=self._latest, reverse=True),
        }

    def _frecency(self, one: str, at: datetime) -> float:
        """Sum the uses, each faded by its age."""
        uses = self._uses[one]
        return math.fsum(gain * math.pow(USE_DECAY, _days(at, when)) for when, gain in uses)

    def _latest(self, one: str) -> tuple[datetime, float]:
        return self._uses[one][-1]


def _days(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds() / _SECONDS_PER_DAY


def _positive(found: Mapping[str, float]) -> list[str]:
    """Return the ids with a score above 0, best first."""
    return sorted((one for one in found if found[one] > 0.0), key=lambda one: -found[one])


def title_scores(context: str, texts: Mapping[str, str]) -> dict[str, float]:
    """Return by id the BM25 score of the context's words in the first line of each text."""
    titles = {one: _title(text) for one, text in texts.items()}
    if not titles:
        return {}
    mean_length = sum(map(len, titles.values())) / len(titles) or 1.0
    document_count = Counter(word for words in titles.values() for word in set(words))
    rarity = {
        word: math.log1p((len(titles) - count + 0.5) / (count + 0.5))
        for word in set(split_words(context))
        if (count := document_count[word])
    }
    found = {}
    for one, words in titles.items():
        length = BM25_K1 * (1.0 - BM25_B + BM25_B * len(words) / mean_length)
        found[one] = sum(
            rarity[word] * count * (BM25_K1 + 1.0) / (count + length)
            for word, count in Counter(words).items()
            if word in rarity
        )
    return found


def split_words(text: str) -> tuple[str, ...]:
    """Return the words in lower case; identifiers are split at punctuation and in camelCase."""
    return tuple(word.lower() for word in _WORD.findall(_CASE_BORDER.sub(" ", text)))


def _title(text: str) -> tuple[str, ...]:
    return _title_words(next(iter(text.strip().splitlines()), ""))


@lru_cache(maxsize=10_000)
def _title_words(line: str) -> tuple[str, ...]:
    return split_words(line)


def labelled(gains: Mapping[str, float]) -> dict[Hashable, float]:
    """Return gains in the form that `ndcg_at` takes."""
    return dict(gains.items())
