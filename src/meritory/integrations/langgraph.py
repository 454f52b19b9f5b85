"""LangGraph: a `BaseStore` whose items are memories."""

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
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def is_within(namespace: Sequence[str], path: Sequence[str]) -> bool:
    """Return whether a namespace starts with a path; a star matches any label."""
    pairs = zip(namespace, path, strict=False)
    return len(namespace) >= len(path) and all(want in (ANY, has) for has, want in pairs)


def does_match(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a value matches a filter."""
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
    if name not in _COMPARISONS:
        raise InputError(
            f"unknown operator {str(name)[:40]!r} in a filter",
            hint=f"use {', '.join(_COMPARISONS)}",
        )
    if name in ("$eq", "$ne"):
        return bool(_COMPARISONS[name](value, limit))
    try:
        return _COMPARISONS[name](float(value), float(limit))
    except (TypeError, ValueError):
        # Only numbers can be compared.
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
# How many times more memories are recalled than are wanted: others' are among them.
_AHEAD = 5
_FOUND_LIMIT = 1_000


class MeritoryStore(BaseStore):
    """Items under namespaces, stored as memories in the scope of a `Memory`."""

    supports_ttl = True

    def __init__(self, memory: Memory, *, ttl: TTLConfig | None = None) -> None:
        self.ttl_config = ttl
        self._memory = memory
        self._lock = threading.Lock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in order."""
        results: list[Result] = []
        for op in ops:
            if isinstance(op, GetOp):
                stored = next(self._under(op.namespace, op.key), None)
                if stored is not None:
                    self._refresh(stored, wanted=op.refresh_ttl)
                results.append(None if stored is None else Item(**stored.fields()))
            elif isinstance(op, PutOp):
                self._put(op)
                results.append(None)
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            elif isinstance(op, ListNamespacesOp):
                names = {stored.namespace for stored in self._all()}
                for condition in op.match_conditions or ():
                    step = 1 if condition.match_type == "prefix" else -1
                    path = tuple(condition.path)[::step]
                    names = {name for name in names if is_within(name[::step], path)}
                # A depth of None leaves names whole.
                names = {name[: op.max_depth] for name in names}
                results.append(sorted(names)[op.offset : op.offset + op.limit])
            else:
                raise InputError(f"MeritoryStore does not support {type(op).__name__}")
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in order, without blocking."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, op: PutOp) -> None:
        if not op.namespace or any("." in label or not label for label in op.namespace):
            raise InputError("a namespace needs labels without periods")
        with self._lock:
            stored = list(self._under(op.namespace, op.key))
            if op.value is None:
                for item in stored:
                    self._memory.forget(item.record.id, origin="agent")
                return
            content, tags = _content_and_tags(op, op.value)
            until = _until(op.ttl)
            if stored:
                changes = {"content": content, "tags": tags, "valid_until": until}
                self._memory.update(stored[0].record.id, **changes, origin="agent")
                return
            source = Source(TAG, ".".join(op.namespace), op.key)
            fields = {"tags": tags, "source": source, "valid_until": until}
            # The agent's tools write here, too.
            self._memory.remember(content, **fields, origin="agent", on_similar="keep")

    def _search(self, op: SearchOp) -> list[SearchItem]:
        scored: list[tuple[StoredItem, float | None]] = []
        if op.query:
            limit = min(_FOUND_LIMIT, max(1, (op.offset + op.limit) * _AHEAD))
            # A store returns its best items, however little they have to do with the query.
            for hit in self._memory.recall(str(op.query), limit, min_score=0.0, tags=[TAG]):
                stored = StoredItem.of(hit.memory)
                if stored is not None and _UNINDEXED not in hit.memory.tags:
                    scored.append((stored, hit.score))
        else:
            scored = [(stored, None) for stored in self._all()]
        matching = [
            (stored, score)
            for stored, score in scored
            if is_within(stored.namespace, op.namespace_prefix)
            and does_match(stored.value, op.filter)
        ]
        page = matching[op.offset : op.offset + op.limit]
        for stored, _ in page:
            self._refresh(stored, wanted=op.refresh_ttl)
        return [SearchItem(**stored.fields(), score=score) for stored, score in page]

    def _under(self, namespace: tuple[str, ...], key: str) -> Iterator[StoredItem]:
        """Yield the items under a key: one, unless two were put at the same moment."""
        for stored in self._listed(_item_tag(namespace, key)):
            if (stored.namespace, stored.key) == (tuple(namespace), key):
                yield stored

    def _all(self) -> Iterator[StoredItem]:
        seen = set()
        for stored in self._listed(TAG):
            if (stored.namespace, stored.key) not in seen:
                seen.add((stored.namespace, stored.key))
                yield stored

    def _listed(self, tag: str) -> Iterator[StoredItem]:
        now = datetime.now(UTC)
        for record in all_tagged(self._memory, tag):
            stored = StoredItem.of(record)
            is_expired = record.valid_until is not None and record.valid_until <= now
            if stored is not None and not is_expired:
                yield stored

    def _refresh(self, stored: StoredItem, *, wanted: bool) -> None:
        """Restart the lifetime of an item that was read; a person's pin or constraint keeps its."""
        if wanted and stored.ttl is not None and not stored.record.is_binding:
            until = _until(stored.ttl)
            self._memory.update(stored.record.id, valid_until=until, origin="agent")


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item and the memory that holds it."""

    record: MemoryRecord
    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    ttl: float | None = None

    @classmethod
    def of(cls, record: MemoryRecord) -> StoredItem | None:
        """Return the item in a memory; None for any other memory."""
        source = record.source
        if TAG not in record.tags or source is None or source.session_key is None:
            return None
        given = {tag.partition(":")[0]: tag.partition(":")[2] for tag in record.tags}
        if "field" in given:
            value: Any = {given["field"]: record.content}
        else:
            value = json.loads(record.content)
        ttl = float(given["ttl"]) if "ttl" in given else None
        return cls(record, tuple(source.session_key.split(".")), str(source.turn), value, ttl)

    def fields(self) -> dict[str, Any]:
        """Return the fields of LangGraph's item."""
        times = {"created_at": self.record.created_at, "updated_at": self.record.updated_at}
        return {"namespace": self.namespace, "key": self.key, "value": self.value, **times}


def _content_and_tags(op: PutOp, value: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the text and the tags of a value."""
    tags = [TAG, _item_tag(op.namespace, op.key)]
    if op.ttl is not None:
        tags.append(f"{_TTL}{float(op.ttl)!r}")
    if op.index is False:
        tags.append(_UNINDEXED)
    field = _only_text(value)
    if field is not None:
        return str(value[field]), [*tags, f"{_FIELD}{field}"]
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if not text.isprintable():
            text = json.dumps(value, separators=(",", ":"))
        is_same = json.loads(text) == value
    except (TypeError, ValueError) as error:
        raise InputError(f"a value must be JSON: {error}") from error
    if not is_same:
        raise InputError("a value must be JSON that reads back the same: no tuples, only text keys")
    return text, tags


def _only_text(value: Mapping[str, Any]) -> str | None:
    """Return the field of a value that is only one text, which can be stored unchanged."""
    if len(value) != 1:
        return None
    field, text = next(iter(value.items()))
    is_name = isinstance(field, str) and field.isprintable() and field == field.strip()
    if not is_name or len(_FIELD + field) > _TAG_LIMIT_CHARS or type(text) is not str:
        return None
    if text.startswith(BYTE_ORDER_MARK):
        # A memory loses this mark, but a value must stay the same.
        return None
    try:
        check_text(text)
    except InputError:
        return None
    return field


def _item_tag(namespace: tuple[str, ...], key: str) -> str:
    name = "\0".join((*namespace, key)).encode("utf-8", "surrogatepass")
    return _ITEM + hashlib.sha256(name).hexdigest()[:32]


def _until(ttl: float | None) -> datetime | None:
    return None if ttl is None else datetime.now(UTC) + timedelta(minutes=float(ttl))
