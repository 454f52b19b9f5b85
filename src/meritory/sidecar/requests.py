"""What callers send, and the candidates of it as a model sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from meritory.model.base import Floats, RankingQuery, Rows, Vectors, words_of
from meritory.rank.features import FEATURE_VERSION, FEATURES, project_slot
from meritory.sidecar.rpc import INVALID_PARAMS, RpcFault

CANDIDATE_LIMIT = 5_000
_TINY = 1e-12

Count = Annotated[int, msgspec.Meta(ge=0, le=999_999_999)]
Turn = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Label = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


class Signals(msgspec.Struct, frozen=True):
    """What is known of the moment."""

    # The share of the day that has passed; days count from Monday 0, months from January 1.
    time_of_day: Turn | None = None
    day_of_week: Annotated[int, msgspec.Meta(ge=0, le=6)] | None = None
    month_of_year: Annotated[int, msgspec.Meta(ge=1, le=12)] | None = None
    project: str | None = None
    session_gap_hours: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    is_superseded: list[bool] | None = None


class RequestCandidates(msgspec.Struct, frozen=True):
    """Candidates by id, by vector or by text, a row of features each if they are known."""

    user: str = ""
    version: Count | None = None
    embedder: str | None = None
    feature_version: int = FEATURE_VERSION
    context_embedding: list[float] | None = None
    # float32, little-endian.
    context_b64: bytes | None = None
    context_text: str = ""
    candidate_ids: list[str] | None = None
    candidate_embeddings: list[list[float] | None] | None = None
    candidate_texts: list[str] | None = None
    candidate_features: list[list[float]] | None = None
    # The same, row after row in float64, little-endian: ten times quicker to read.
    features_b64: bytes | None = None
    project_slot: Count | None = None
    signals: Signals = Signals()

    @property
    def ids(self) -> list[str]:
        """The names of the candidates in the answer; their numbers if not given."""
        if self.candidate_ids is not None:
            return self.candidate_ids
        given = self.candidate_embeddings, self.candidate_texts, self.candidate_features
        count = next((len(one) for one in given if one is not None), None)
        if count is None:
            raise RpcFault(
                INVALID_PARAMS,
                "no candidates; give candidate_ids, candidate_embeddings or candidate_texts",
            )
        return [str(number) for number in range(count)]

    @property
    def slot(self) -> int:
        """A small number of the project."""
        return (
            project_slot(self.signals.project) if self.project_slot is None else self.project_slot
        )


class ScoreOutcome(RequestCandidates, frozen=True, kw_only=True):
    """Candidates with how much each of them helped."""

    labels: list[Label]
    continuity_score: Turn = 1.0


class ScoreSource(Protocol):
    """Where vectors and texts of memories come from."""

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The vectors of memories; one without is missing from the answer."""

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""


class Desk:
    """Lays out one call for a model; the source is asked only for what is really needed."""

    def __init__(self, asked: RequestCandidates, embedder: str, source: ScoreSource) -> None:
        self._asked = asked
        self._embedder = embedder
        self._source = source
        self._ids = asked.ids
        self._check()

    def _check(self) -> None:
        asked, count = self._asked, len(self._ids)
        if count > CANDIDATE_LIMIT:
            raise RpcFault(INVALID_PARAMS, f"{count} candidates; {CANDIDATE_LIMIT} are the most")
        if asked.feature_version != FEATURE_VERSION:
            raise RpcFault(INVALID_PARAMS, f"the features must be of version {FEATURE_VERSION}")
        columns = {
            "candidate_embeddings": asked.candidate_embeddings,
            "candidate_texts": asked.candidate_texts,
            "candidate_features": asked.candidate_features,
            "signals.is_superseded": asked.signals.is_superseded,
        }
        for name, given in columns.items():
            if given is not None and len(given) != count:
                raise RpcFault(INVALID_PARAMS, f"{name}: {len(given)} for {count} candidates")

    def query(self, *, reads_content: bool) -> RankingQuery:
        """The candidates; vectors and words only for a model that reads them."""
        table = self._given_features()
        if table is not None and not reads_content:
            return RankingQuery(features=table)
        context = self._context()
        vectors = self._vectors(context)
        if table is None and not reads_content:
            self._demand_features(context, vectors)
        return RankingQuery(
            features=self._made_features(context, vectors) if table is None else table,
            context=context,
            vectors=vectors,
            context_words=words_of(self._asked.context_text),
            words=self._words(vectors) if reads_content else (),
            project_slot=self._asked.slot,
        )

    def _demand_features(self, context: Vectors | None, vectors: Vectors | None) -> None:
        """Refuse a call from which no feature that differs between candidates can be computed."""
        sources = {"context_embedding": context, "candidate_embeddings": vectors}
        missing = [name for name, given in sources.items() if given is None]
        if self._ids and missing:
            raise RpcFault(
                INVALID_PARAMS,
                "candidate_features is missing, and cannot be computed without "
                f"{' and '.join(missing)}; this model does not read texts",
            )

    def _given_features(self) -> Floats | None:
        shape = len(self._ids), len(FEATURES)
        packed, listed = self._asked.features_b64, self._asked.candidate_features
        if packed is not None:
            if len(packed) != 8 * shape[0] * shape[1]:
                raise RpcFault(INVALID_PARAMS, f"features_b64 must hold {shape} float64 numbers")
            return np.frombuffer(packed, "<f8").reshape(shape)
        if listed is None:
            return None
        if any(len(row) != shape[1] for row in listed):
            raise RpcFault(INVALID_PARAMS, f"a row of candidate_features has {shape[1]} numbers")
        return np.array(listed, np.float64).reshape(shape)

    def _context(self) -> Vectors | None:
        packed, listed = self._asked.context_b64, self._asked.context_embedding
        if packed is not None:
            if len(packed) % 4:
                raise RpcFault(INVALID_PARAMS, "context_b64 must hold float32 numbers")
            return np.frombuffer(packed, "<f4")
        return None if listed is None else _vector(listed)

    def _vectors(self, context: Vectors | None) -> Vectors | None:
        given = self._asked.candidate_embeddings
        if given is not None:
            known = {at: _vector(one) for at, one in enumerate(given) if one is not None}
        else:
            kept = self._stored_vectors()
            known = {at: kept[one] for at, one in enumerate(self._ids) if one in kept}
        if not known:
            return None
        width = len(next(iter(known.values())) if context is None else context)
        table = np.zeros((len(self._ids), width), np.float32)
        for at, one in known.items():
            # A vector of another embedder is as good as none.
            if len(one) == width:
                table[at] = one
            elif given is not None:
                raise RpcFault(
                    INVALID_PARAMS, "context and candidates have vectors of other lengths"
                )
        return table

    def _stored_vectors(self) -> dict[str, NDArray[np.float32]]:
        asked = self._asked
        if asked.candidate_ids is None or not self._embedder:
            return {}
        return self._source.vectors(asked.user, self._embedder, asked.candidate_ids)

    def _words(self, vectors: Vectors | None) -> tuple[Rows, ...]:
        """The words of the candidates that have no vector, from the store if they are not given."""
        lacks = [True] * len(self._ids) if vectors is None else [not row.any() for row in vectors]
        given = self._asked.candidate_texts
        if given is not None:
            texts = dict(enumerate(given))
        elif self._asked.candidate_ids is not None and any(lacks):
            wanted = [one for one, lack in zip(self._ids, lacks, strict=True) if lack]
            kept = self._source.texts(self._asked.user, wanted)
            texts = {at: kept.get(one, "") for at, one in enumerate(self._ids)}
        else:
            texts = {}
        return tuple(words_of(texts.get(at, "") if lack else "") for at, lack in enumerate(lacks))

    def _made_features(self, context: Vectors | None, vectors: Vectors | None) -> Floats:
        """Features for callers who have none: what can be known of them, 0 for the rest."""
        table = np.zeros((len(self._ids), len(FEATURES)))
        for name, value in _of_moment(self._asked.signals).items():
            table[:, FEATURES.index(name)] = value
        if self._asked.signals.is_superseded is not None:
            table[:, FEATURES.index("is_superseded")] = self._asked.signals.is_superseded
        if vectors is not None:
            table[:, FEATURES.index("is_embedded")] = vectors.any(axis=1)
            if context is not None:
                table[:, FEATURES.index("cosine")] = _cosines(context, vectors)
        return table


def _vector(numbers: Sequence[float]) -> Vectors:
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float32)


def _of_moment(signals: Signals) -> dict[str, float]:
    day = signals.time_of_day or 0.0
    turns = {
        "hour": signals.time_of_day,
        "weekday": None if signals.day_of_week is None else (signals.day_of_week + day) / 7.0,
        "month": None if signals.month_of_year is None else (signals.month_of_year - 1) / 12.0,
    }
    known = {name: 2.0 * math.pi * turn for name, turn in turns.items() if turn is not None}
    waves = {f"{name}_sin": math.sin(angle) for name, angle in known.items()}
    waves |= {f"{name}_cos": math.cos(angle) for name, angle in known.items()}
    return {**waves, "log_gap_hours": math.log1p(signals.session_gap_hours or 0.0)}


def _cosines(context: Vectors, vectors: Vectors) -> Floats:
    one, many = context.astype(np.float64), vectors.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(many, axis=1) * np.linalg.norm(one)
        found = np.where(lengths > _TINY, many @ one / np.maximum(lengths, _TINY), 0.0)
    return np.where(np.isfinite(found), found, 0.0)
