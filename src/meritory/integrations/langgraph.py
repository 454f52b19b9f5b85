"""Which items a search means: by namespace, and by what their values hold."""

from __future__ import annotations

import asyncio
import hashlib
import json
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from meritory.api.memory import Memory
from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord, Source
from meritory.integrations.core import all_tagged, missing
from meritory.text.normalize import BYTE_ORDER_MARK, check_text

ANY = "*"
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def is_within(namespace: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a namespace begins as a path says; a star stands for any label."""
    pairs = zip(namespace, path, strict=False)
    return len(namespace) >= len(path) and all(want in (ANY, has) for has, want in pairs)


def does_match(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value holds all that is wanted."""
    return all(_holds(value.get(name), what) for name, what in (wanted or {}).items())


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, limit) for name, limit in wanted.items())
        return isinstance(value, Mapping) and does_match(value, wanted)
    if isinstance(wanted, list | tuple):
        is_list = isinstance(value, list | tuple) and len(value) == len(wanted)
        return is_list and all(map(_holds, value, wanted))
    return bool(value == wanted)


def _compares(value: Any, name: str, limit: Any) -> bool:
    if name == "$eq":
        return bool(value == limit)
    if name == "$ne":
        return bool(value != limit)
    if name not in _COMPARISONS:
        raise InputError(
            f"a filter knows no {str(name)[:40]!r}",
            hint=f"known: $eq, $ne, {', '.join(_COMPARISONS)}",
        )
    try:
        return _COMPARISONS[name](float(value), float(limit))
    except (TypeError, ValueError):
        # What is no number is neither more nor less than one.
        return False


try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
    )
except ImportError as error:
    raise missing("langgraph", error) from error

TAG = "langgraph"
_ITEM, _FIELD, _TTL, _UNINDEXED = "item:", "field:", "ttl:", "unindexed"
_TAG_LIMIT_CHARS = 64
# Of what is found in all memories, this many times more is looked at than is wanted here.
_AHEAD = 5
_FOUND_LIMIT = 1_000


class MeritoryStore(BaseStore):
    """Items under namespaces, kept as memories in the scope of the `Memory` it is given."""

    supports_ttl = True

    def __init__(self, memory: Memory, *, ttl: TTLConfig | None = None) -> None:
        self.ttl_config = ttl
        self._memory = memory
        self._lock = threading.Lock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Does one thing after another."""
        return [self._did(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Does one thing after another, without blocking."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _did(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, PutOp):
            self._put(op)
            return None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise InputError(f"MeritoryStore does not know {type(op).__name__}")

    def _get(self, op: GetOp) -> Item | None:
        kept = next(self._under(op.namespace, op.key), None)
        if kept is None:
            return None
        self._refresh(kept, wanted=op.refresh_ttl)
        return kept.item()

    def _put(self, op: PutOp) -> None:
        if not op.namespace or any("." in label or not label for label in op.namespace):
            raise InputError("a namespace has labels, and no label has a period")
        with self._lock:
            known = list(self._under(op.namespace, op.key))
            if op.value is None:
                for kept in known:
                    self._memory.forget(kept.record.id)
                return
            content, tags = _written(op, op.value)
            until = _until(op.ttl)
            if known:
                self._memory.update(
                    known[0].record.id, content=content, tags=tags, valid_until=until
                )
                return
            place = Source(TAG, ".".join(op.namespace), op.key)
            self._memory.remember(
                content, tags=tags, source=place, valid_until=until, on_similar="keep"
            )

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = self._ranked(op) if op.query else ((one, None) for one in self._all())
        fitting = [
            (one, score)
            for one, score in found
            if is_within(one.namespace, op.namespace_prefix) and does_match(one.value, op.filter)
        ]
        page = fitting[op.offset : op.offset + op.limit]
        for one, _ in page:
            self._refresh(one, wanted=op.refresh_ttl)
        return [one.found(score) for one, score in page]

    def _ranked(self, op: SearchOp) -> Iterator[tuple[StoredItem, float | None]]:
        wanted = min(_FOUND_LIMIT, max(1, (op.offset + op.limit) * _AHEAD))
        for hit in self._memory.recall(str(op.query), wanted):
            kept = StoredItem.of(hit.memory)
            if kept is not None and _UNINDEXED not in hit.memory.tags:
                yield kept, hit.score

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found = {one.namespace for one in self._all()}
        for condition in op.match_conditions or ():
            found = {one for one in found if _fits(one, condition)}
        if op.max_depth is not None:
            found = {one[: op.max_depth] for one in found}
        return sorted(found)[op.offset : op.offset + op.limit]

    def _under(self, namespace: tuple[str, ...], key: str) -> Iterator[StoredItem]:
        """What is kept under a key: one, unless two were put at the same moment."""
        for kept in self._listed(_item_tag(namespace, key)):
            if (kept.namespace, kept.key) == (tuple(namespace), key):
                yield kept

    def _all(self) -> Iterator[StoredItem]:
        seen = set()
        for kept in self._listed(TAG):
            if (kept.namespace, kept.key) not in seen:
                seen.add((kept.namespace, kept.key))
                yield kept

    def _listed(self, tag: str) -> Iterator[StoredItem]:
        now = datetime.now(UTC)
        for record in all_tagged(self._memory, tag):
            kept = StoredItem.of(record)
            is_over = record.valid_until is not None and record.valid_until <= now
            if kept is not None and not is_over:
                yield kept

    def _refresh(self, kept: StoredItem, *, wanted: bool) -> None:
        """Whoever is read lives on for as long as it was given."""
        if wanted and kept.ttl is not None:
            self._memory.update(kept.record.id, valid_until=_until(kept.ttl))


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A memory as the item that it holds."""

    record: MemoryRecord
    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    ttl: float | None = None

    @classmethod
    def of(cls, record: MemoryRecord) -> StoredItem | None:
        """The item in a memory; None for memories of others."""
        place = record.source
        if TAG not in record.tags or place is None or place.session_key is None:
            return None
        told = {tag.partition(":")[0]: tag.partition(":")[2] for tag in record.tags}
        if "field" in told:
            value: Any = {told["field"]: record.content}
        else:
            value = json.loads(record.content)
        ttl = float(told["ttl"]) if "ttl" in told else None
        return cls(record, tuple(place.session_key.split(".")), str(place.turn), value, ttl)

    def item(self) -> Item:
        """The item as LangGraph has it."""
        return Item(
            value=self.value,
            key=self.key,
            namespace=self.namespace,
            created_at=self.record.created_at,
            updated_at=self.record.updated_at,
        )

    def found(self, score: float | None) -> SearchItem:
        """The item as something that was found."""
        made = self.item()
        return SearchItem(
            made.namespace, made.key, made.value, made.created_at, made.updated_at, score
        )


def _written(op: PutOp, value: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text and the tags of a value."""
    tags = [TAG, _item_tag(op.namespace, op.key)]
    if op.ttl is not None:
        tags.append(f"{_TTL}{float(op.ttl)!r}")
    if op.index is False:
        tags.append(_UNINDEXED)
    field = _only_text(value)
    if field is not None:
        return str(value[field]), [*tags, f"{_FIELD}{field}"]
    return _json(value), tags


def _only_text(value: Mapping[str, Any]) -> str | None:
    """The field of a value that is nothing but one text, which can be stored as it is."""
    if len(value) != 1:
        return None
    field, text = next(iter(value.items()))
    is_name = isinstance(field, str) and field.isprintable() and field == field.strip()
    if not is_name or len(_FIELD + field) > _TAG_LIMIT_CHARS or type(text) is not str:
        return None
    if text.startswith(BYTE_ORDER_MARK):
        # A memory loses this mark, and a value must come back unchanged.
        return None
    try:
        check_text(text)
    except InputError:
        return None
    return field


def _json(value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if not text.isprintable():
            text = json.dumps(value, separators=(",", ":"))
        if json.loads(text) == value:
            return text
    except (TypeError, ValueError) as error:
        raise InputError(f"a value must be JSON: {error}") from error
    raise InputError("a value must be JSON that comes back the same: no tuples, no other keys")


def _item_tag(namespace: tuple[str, ...], key: str) -> str:
    name = "\0".join((*namespace, key)).encode("utf-8", "surrogatepass")
    return _ITEM + hashlib.sha256(name).hexdigest()[:32]


def _until(ttl: float | None) -> datetime | None:
    return None if ttl is None else datetime.now(UTC) + timedelta(minutes=float(ttl))


def _fits(namespace: tuple[str, ...], condition: Any) -> bool:
    path = tuple(condition.path)
    if condition.match_type == "prefix":
        return is_within(namespace, path)
    return is_within(namespace[::-1], path[::-1])
