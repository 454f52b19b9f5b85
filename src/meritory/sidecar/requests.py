"""JSON-RPC 2.0 over lines, and the candidates of a request as a model sees them.

Every line gets an answer, and none ends the process.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from meritory.domain.codec import prepared
from meritory.domain.errors import InputError, MeritoryError
from meritory.model.base import Floats, RankingQuery, Rows, Vectors, words_of
from meritory.rank.features import FEATURE_VERSION, FEATURES, project_slot

if TYPE_CHECKING:
    from meritory.sidecar.service import Library

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# The first of the codes that JSON-RPC leaves to servers.
CANCELLED = -32000
SHUTDOWN = "shutdown"
_MESSAGE_CHARS = 500
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")
Id = str | int | float | None
Method = Callable[[msgspec.Raw], object]
Reply = dict[str, Any]


class RpcFault(Exception):
    """The error that a call is answered with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RpcCall(msgspec.Struct, frozen=True):
    """One request; without an id it gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: Id | msgspec.UnsetType = msgspec.UNSET


_CALLS = msgspec.json.Decoder(RpcCall)
_SHUT_DOWN = RpcFault(CANCELLED, "cancelled by shutdown")
PROCESS_ENDED = RpcFault(CANCELLED, "cancelled: the process ends")


def read_params(raw: msgspec.Raw, shape: type[T]) -> T:
    """Return the parameters of a call."""
    try:
        return msgspec.json.decode(raw, type=prepared(shape))
    except _UNREADABLE as error:
        raise RpcFault(INVALID_PARAMS, f"the parameters do not fit: {error}") from error


class RpcServer:
    """Answers calls; slow ones run in threads."""

    def __init__(
        self, methods: Mapping[str, Method], slow: frozenset[str], send: Callable[[bytes], None]
    ) -> None:
        self._methods = methods
        self._slow = slow
        self._send = send
        self._sending = threading.Lock()
        # Slow calls without an answer yet, by their number; the lock guards them.
        self._pending: dict[int, RpcCall] = {}
        self._numbers = itertools.count()
        self._has_ended = False

    def take(self, line: bytes | None) -> bool:
        """Answer a line, None being one that is too long; return False at the end."""
        if line is None:
            self._send_reply(_refusal(None, RpcFault(INVALID_REQUEST, "the line is too long")))
            return True
        if not line.strip():
            return True
        try:
            call = _CALLS.decode(line)
        except _UNREADABLE as error:
            self._send_reply(_refusal(*_request_fault(line, error)))
            return True
        if self._has_ended:
            self._send_reply(_refusal(call.id, _SHUT_DOWN))
        elif call.method in self._slow:
            number = next(self._numbers)
            with self._sending:
                self._pending[number] = call

            def answer_later() -> None:
                reply = self._answer(call)
                with self._sending:
                    if self._pending.pop(number, None) is not None:
                        self._write(reply)

            threading.Thread(target=answer_later, daemon=True).start()
        else:
            self._has_ended = call.method == SHUTDOWN
            if self._has_ended:
                # First, so that the answer to the shutdown is the last line.
                self.cancel(_SHUT_DOWN)
            self._send_reply(self._answer(call))
        return not self._has_ended

    def cancel(self, fault: RpcFault) -> None:
        """Answer every slow call that still runs with an error; its result is dropped."""
        with self._sending:
            pending, self._pending = list(self._pending.values()), {}
            for call in pending:
                self._write(_refusal(call.id, fault))

    def _answer(self, call: RpcCall) -> Reply | None:
        """Carry out a call and return its reply; None when the caller wants none."""
        method = self._methods.get(call.method)
        known = ", ".join(sorted(self._methods))
        try:
            if method is None:
                raise RpcFault(METHOD_NOT_FOUND, f"there is no such method; known are {known}")
            result = method(call.params)
        except RpcFault as fault:
            return _refusal(call.id, fault)
        except InputError as error:
            return _refusal(call.id, RpcFault(INVALID_PARAMS, str(error)))
        except MeritoryError as error:
            return _refusal(call.id, RpcFault(INTERNAL_ERROR, str(error)))
        except Exception as error:
            return _refusal(call.id, RpcFault(INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
        if isinstance(call.id, msgspec.UnsetType):
            return None
        return {"jsonrpc": "2.0", "id": call.id, "result": result}

    def _send_reply(self, reply: Reply | None) -> None:
        with self._sending:
            self._write(reply)

    def _write(self, reply: Reply | None) -> None:
        if reply is not None:
            self._send(msgspec.json.encode(reply) + b"\n")


def _refusal(id_: Id | msgspec.UnsetType, fault: RpcFault) -> Reply | None:
    if isinstance(id_, msgspec.UnsetType):
        return None
    message = fault.message.encode("utf-8", "replace").decode()[:_MESSAGE_CHARS]
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": fault.code, "message": message}}


def _request_fault(line: bytes, error: Exception) -> tuple[Id, RpcFault]:
    """Return the id of an invalid request, and whether it is not JSON or not a request."""
    try:
        known = msgspec.json.decode(line)
    except _UNREADABLE:
        return None, RpcFault(PARSE_ERROR, f"the line is not JSON: {error}")
    id_ = known.get("id") if isinstance(known, dict) else None
    if not isinstance(id_, str | int | float) or isinstance(id_, bool):
        id_ = None
    return id_, RpcFault(INVALID_REQUEST, f"the line is not a request: {error}")


# -- candidates ---------------------------------------------------------------------------------

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
            raise InputError(
                "no candidates; give candidate_ids, candidate_embeddings or candidate_texts"
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


class Desk:
    """Lays out one call for a model; the source is asked only for what is really needed."""

    def __init__(self, asked: RequestCandidates, embedder: str, source: Library) -> None:
        self._asked = asked
        self._embedder = embedder
        self._source = source
        self._ids = asked.ids
        count = len(self._ids)
        if count > CANDIDATE_LIMIT:
            raise InputError(f"{count} candidates; {CANDIDATE_LIMIT} are the most")
        if asked.feature_version != FEATURE_VERSION:
            raise InputError(f"the features must be of version {FEATURE_VERSION}")
        columns = {
            "candidate_embeddings": asked.candidate_embeddings,
            "candidate_texts": asked.candidate_texts,
            "candidate_features": asked.candidate_features,
            "signals.is_superseded": asked.signals.is_superseded,
        }
        for name, given in columns.items():
            if given is not None and len(given) != count:
                raise InputError(f"{name}: {len(given)} for {count} candidates")

    def query(self, *, reads_content: bool) -> RankingQuery:
        """The candidates; vectors and words only for a model that reads them."""
        table = self._given_features()
        if table is not None and not reads_content:
            return RankingQuery(features=table)
        packed, listed = self._asked.context_b64, self._asked.context_embedding
        context = None if listed is None else _vector(listed)
        if packed is not None:
            if len(packed) % 4:
                raise InputError("context_b64 must hold float32 numbers")
            context = np.frombuffer(packed, "<f4")
        vectors = self._vectors(context)
        sources = {"context_embedding": context, "candidate_embeddings": vectors}
        missing = [name for name, given in sources.items() if given is None]
        if table is None and not reads_content and self._ids and missing:
            # No feature would differ between the candidates.
            raise InputError(
                "candidate_features is missing, and cannot be computed without "
                f"{' and '.join(missing)}; this model does not read texts",
            )
        return RankingQuery(
            features=self._made_features(context, vectors) if table is None else table,
            context=context,
            vectors=vectors,
            context_words=words_of(self._asked.context_text),
            words=self._words(vectors) if reads_content else (),
            project_slot=self._asked.slot,
        )

    def _given_features(self) -> Floats | None:
        shape = len(self._ids), len(FEATURES)
        packed, listed = self._asked.features_b64, self._asked.candidate_features
        if packed is not None:
            if len(packed) != 8 * shape[0] * shape[1]:
                raise InputError(f"features_b64 must hold {shape} float64 numbers")
            return np.frombuffer(packed, "<f8").reshape(shape)
        if listed is None:
            return None
        if any(len(row) != shape[1] for row in listed):
            raise InputError(f"a row of candidate_features has {shape[1]} numbers")
        return np.array(listed, np.float64).reshape(shape)

    def _vectors(self, context: Vectors | None) -> Vectors | None:
        given = self._asked.candidate_embeddings
        if given is not None:
            known = {at: _vector(one) for at, one in enumerate(given) if one is not None}
        else:
            ids = self._asked.candidate_ids if self._embedder else None
            user, stored = self._asked.user, {}
            if ids is not None:
                stored = self._source.vectors(user, self._embedder, ids)
            known = {at: stored[one] for at, one in enumerate(self._ids) if one in stored}
        if not known:
            return None
        width = len(next(iter(known.values())) if context is None else context)
        table = np.zeros((len(self._ids), width), np.float32)
        for at, one in known.items():
            # A vector of another embedder is as good as none.
            if len(one) == width:
                table[at] = one
            elif given is not None:
                raise InputError("context and candidates have vectors of other lengths")
        return table

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
        signals = self._asked.signals
        day, weekday, month = signals.time_of_day, signals.day_of_week, signals.month_of_year
        turns = {
            "hour": day,
            "weekday": None if weekday is None else (weekday + (day or 0.0)) / 7.0,
            "month": None if month is None else (month - 1) / 12.0,
        }
        for name, turn in turns.items():
            if turn is not None:
                table[:, FEATURES.index(f"{name}_sin")] = math.sin(2.0 * math.pi * turn)
                table[:, FEATURES.index(f"{name}_cos")] = math.cos(2.0 * math.pi * turn)
        table[:, FEATURES.index("log_gap_hours")] = math.log1p(signals.session_gap_hours or 0.0)
        if signals.is_superseded is not None:
            table[:, FEATURES.index("is_superseded")] = signals.is_superseded
        if vectors is not None:
            table[:, FEATURES.index("is_embedded")] = vectors.any(axis=1)
            if context is not None:
                table[:, FEATURES.index("cosine")] = _cosines(context, vectors)
        return table


def _vector(numbers: Sequence[float]) -> Vectors:
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float32)


def _cosines(context: Vectors, vectors: Vectors) -> Floats:
    one, many = context.astype(np.float64), vectors.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(many, axis=1) * np.linalg.norm(one)
        found = np.where(lengths > _TINY, many @ one / np.maximum(lengths, _TINY), 0.0)
    return np.where(np.isfinite(found), found, 0.0)
