"""The candidates of a session: which memories are ranked, and what the store knows about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from meritory.engine.services import Services
from meritory.engine.sessions.context import Context
from meritory.rank import candidates, composite_feeds, usage_history
from meritory.store.contract.sessions import Gathered, Gathering, Trait
from meritory.store.contract.store import Search
from meritory.text.overlap import title_scores, title_words
from meritory.text.terms import MAX_TERMS, query_pairs

# How many memories each source may name: a third of the pool, and never fewer than this. Words
# may fill the pool, because a long context has many (ADR 0010).
SOURCE_LIMIT = 50
TRAVERSAL_LIMIT = 50
_SECONDS_PER_DAY = 86_400.0

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """The candidates before they are ranked, an entry per candidate in every array."""

    found: Gathered
    # Places of the candidates in what was gathered.
    places: Rows
    origins: tuple[frozenset[str], ...]
    traits: tuple[Trait, ...]
    hindsight: usage_history.Hindsight
    usage: usage_history.Usage
    required: Flags
    age_days: Floats
    # How well each matches the context, by meaning and words, and how well its title does.
    match: Floats
    title: Floats

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the candidates."""
        return tuple(trait.id for trait in self.traits)

    @property
    def rows(self) -> Rows:
        """Return the candidates' rows in the store."""
        return self.found.rows[self.places]


def gather_candidates(services: Services, context: Context) -> CandidatePool:
    """Return the memories that every source puts forward, up to the size of the pool."""
    store, scope, now = services.store, context.scope, context.now
    past, project = store.past(scope, context.vector.embedder)
    hindsight = usage_history.look_back(past, _moment(context, project))
    size = services.policy.predictor.candidate_pool_size
    limit = max(SOURCE_LIMIT, size // 3)
    # More than are taken: what helped in other projects is of no use in this one.
    helped = usage_history.top_rows(hindsight, 4 * limit)
    named = [key for key in context.entity_keys if key != context.project_key]
    about = store.memories_about(scope, named, now, TRAVERSAL_LIMIT)
    required = store.required(scope, context.entity_keys, now)
    found = store.gather(
        Gathering(_search(context, size, limit), limit, helped, tuple({*about, *required}))
    )
    pool = candidates.pool(
        {
            "effective": found.by_effective.tolist(),
            "cosine": found.by_cosine.tolist(),
            "text": found.by_text.tolist(),
            "history": _known(found, helped)[:limit],
            "traversal": [found.row_of_id[one] for one in about if one in found.row_of_id],
        },
        [found.row_of_id[one] for one in required if one in found.row_of_id],
        size,
    )
    return _pool(services, context, found, pool, hindsight)


def _moment(context: Context, project: int) -> usage_history.Moment:
    vector = context.vector.vector
    return usage_history.Moment(
        epoch_days(context.now),
        np.empty(0, np.float32) if vector is None else vector,
        project,
        context.words,
    )


def epoch_days(moment: datetime) -> float:
    """Return a moment as days since 1970."""
    return moment.timestamp() / _SECONDS_PER_DAY


def _search(context: Context, size: int, limit: int) -> Search:
    return Search(
        context.scope,
        context.terms[:MAX_TERMS],
        context.vector.embedder,
        context.vector.vector,
        text_limit=size,
        vector_limit=limit,
        phrases=query_pairs(context.text),
        injectable_at=context.now,
    )


def _known(found: Gathered, rows: Rows) -> list[int]:
    """The rows that the scope may see, in their order."""
    known = set(found.rows.tolist())
    return [row for row in rows.tolist() if row in known]


def _pool(
    services: Services,
    context: Context,
    found: Gathered,
    pool: candidates.PooledCandidates,
    hindsight: usage_history.Hindsight,
) -> CandidatePool:
    # What expired or changed meanwhile has no traits, and is no candidate.
    wanted = np.array(pool.rows, np.int64)
    traits = services.store.traits(context.scope, wanted, context.now)
    kept = [at for at, row in enumerate(pool.rows) if row in traits]
    places = np.searchsorted(found.rows, wanted[kept])
    origins = tuple(pool.origins[at] for at in kept)
    known = tuple(traits[pool.rows[at]] for at in kept)
    return CandidatePool(
        found=found,
        places=places,
        origins=origins,
        traits=known,
        hindsight=hindsight,
        usage=usage_history.usage(hindsight, wanted[kept]),
        required=np.array([candidates.REQUIRED in names for names in origins], np.bool_),
        age_days=epoch_days(context.now)
        - np.array([trait.since_days for trait in known], np.float64),
        match=composite_feeds.context_match(found.cosine[places], found.text[places]),
        title=title_scores(context.text, [title_words(trait.opening) for trait in known]),
    )
