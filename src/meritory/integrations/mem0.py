"""A drop-in for mem0's `Memory`: the same calls and shapes, on Meritory.

mem0 lets a language model rewrite messages into facts. Nothing is asked of a model here: what the
user said is stored as it is, message by message, and the write path merges what is said twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from meritory.api.memory import Memory as EmbeddedMemory
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import MemoryRecord, Source

TAG = "mem0"
_OWNERS = ("user_id", "agent_id", "run_id")
_META_PIECE_CHARS = 56
_META_LIMIT_COUNT = 40
_TAG_LIMIT_CHARS = 64
_PAGE_LIMIT = 1_000
_FOUND_LIMIT = 1_000
_AHEAD = 5
# Between a memory's id and the user whose it is, when that is not the usual one.
_AT = "@"
_EVENTS = {"create": "ADD", "delete": "DELETE"}
_UNSET: Any = object()


class Mem0Memory:
    """mem0's class: `user_id` is a user, `agent_id` and `run_id` are kept with each memory.

    Takes what `meritory.Memory` takes; a configuration of mem0 says nothing here and is ignored.
    """

    def __init__(self, config: Any = None, **options: Any) -> None:
        self.config = config
        self._engine = EmbeddedMemory(**options)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any], **options: Any) -> Self:
        """As mem0 is made out of a dictionary."""
        return cls(config_dict, **options)

    # -- writing --------------------------------------------------------------------------

    def add(
        self,
        messages: str | Mapping[str, Any] | list[Any],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = None,
        infer: bool = True,
        **ignored: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """Stores what the user said; with `infer=False` what the assistant said as well."""
        owner = _owner({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        engine = self._of(owner.get("user_id"))
        fields = {
            "tags": [TAG, *_owner_tags(owner), *_metadata_tags(metadata)],
            "source": Source(owner.get("agent_id"), owner.get("run_id")),
            "valid_until": _until(expiration_date),
        }
        drafts = [
            {**fields, "content": text, "origin": "user" if role == "user" else "agent"}
            for role, text in _said(messages)
            if role == "user" or not infer
        ]
        if not infer:
            drafts = [{**draft, "on_similar": "keep"} for draft in drafts]
        told = []
        for result in engine.remember_many(drafts):
            if result.memory is None:
                raise result.error or InputError(result.reason)
            event = "ADD" if result.outcome in ("stored", "kept_both") else "UPDATE"
            if result.outcome != "duplicate":
                name = _public_id(engine, result.memory)
                told.append({"id": name, "memory": result.memory.content, "event": event})
        return {"results": told}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = _UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Changes a memory's text, metadata or expiry."""
        engine, record = self._found(memory_id)
        changes: dict[str, Any] = {}
        content = data if text is None else text
        if content is not None:
            changes["content"] = content
        if metadata is not None:
            others = [tag for tag in record.tags if not tag.startswith("meta")]
            changes["tags"] = [*others, *_metadata_tags({**_metadata(record), **metadata})]
        if expiration_date is not _UNSET:
            changes["valid_until"] = _until(expiration_date)
        if not changes:
            raise InputError("nothing to change was given", hint="give text or metadata")
        engine.update(record.id, **changes)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Forgets one memory."""
        engine, record = self._found(memory_id)
        engine.forget(record.id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Forgets all memories of a user, an agent or a run."""
        owner = _owner({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        engine = self._of(owner.get("user_id"))
        for record in list(_listed(engine, owner)):
            engine.forget(record.id)
        return {"message": "Memories deleted successfully!"}

    def reset(self) -> None:
        """Erases every memory that came in this way for the usual user, history and all."""
        engine = self._of(None)
        for record in list(_listed(engine, {}, include_gone=True)):
            engine.forget(record.id, purge=True)

    # -- reading --------------------------------------------------------------------------

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """One memory; None when there is none."""
        try:
            engine, record = self._found(memory_id)
        except NotFound:
            return None
        return _item(engine, record)

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **named: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """The memories of a user, an agent or a run, newest first."""
        wanted = {**(filters or {}), **_named(named)}
        owner = _owner(wanted)
        engine = self._of(owner.get("user_id"))
        limit = int(named.get("limit", top_k))
        found = []
        for record in _listed(engine, owner):
            if _fits(record, wanted, show_expired=show_expired):
                found.append(_item(engine, record))
            if len(found) >= limit:
                break
        return {"results": found}

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        **named: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """The memories that answer a query best, each with its score."""
        wanted = {**(filters or {}), **_named(named)}
        owner = _owner(wanted)
        engine = self._of(owner.get("user_id"))
        limit = int(named.get("limit", top_k))
        hits = engine.recall(query, min(_FOUND_LIMIT, max(1, limit) * _AHEAD))
        found = [
            {**_item(engine, hit.memory), "score": hit.score}
            for hit in hits
            if _fits(hit.memory, wanted) and (threshold is None or hit.score >= threshold)
        ]
        return {"results": found[:limit]}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Every change of a memory, oldest first."""
        engine, record = self._found(memory_id)
        told = []
        for entry in engine.history(record.id):
            before, after = entry.before, entry.after
            told.append(
                {
                    "id": str(entry.entry),
                    "memory_id": memory_id,
                    "old_memory": None if before is None else before.content,
                    "new_memory": None if after is None else after.content,
                    "event": _EVENTS.get(entry.action, "UPDATE"),
                    "created_at": record.created_at.isoformat(),
                    "updated_at": entry.at.isoformat(),
                    "is_deleted": after is not None and after.deleted_at is not None,
                    "actor_id": entry.actor,
                    "role": None,
                }
            )
        return told

    def close(self) -> None:
        """Lets go of the store."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- whose --------------------------------------------------------------------------------

    def _of(self, user_id: str | None) -> EmbeddedMemory:
        return self._engine.view(user_id)

    def _found(self, memory_id: str) -> tuple[EmbeddedMemory, MemoryRecord]:
        if not isinstance(memory_id, str):
            raise InputError(f"an id is text, not {type(memory_id).__name__}")
        name, _, user_id = memory_id.partition(_AT)
        engine = self._of(user_id or None)
        return engine, engine.get(name)


def _public_id(engine: EmbeddedMemory, record: MemoryRecord) -> str:
    usual = record.user == engine.settings.user
    return record.id if usual else f"{record.id}{_AT}{record.user}"


def _owner(told: Mapping[str, Any]) -> dict[str, str]:
    """Who it is about; mem0 wants at least one of the three."""
    found = {name: told[name] for name in _OWNERS if told.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{name} must be a name, not {str(value)[:40]!r}")
    if not found:
        raise InputError("one of user_id, agent_id and run_id is needed")
    return {name: value.strip() for name, value in found.items()}


def _named(named: Mapping[str, Any]) -> dict[str, Any]:
    """Older versions of mem0 took the owner as arguments of their own."""
    return {name: named[name] for name in _OWNERS if named.get(name) is not None}


def _owner_tags(owner: Mapping[str, str]) -> list[str]:
    return [_owner_tag(name, owner[name]) for name in ("agent_id", "run_id") if name in owner]


def _owner_tag(name: str, value: str) -> str:
    tag = f"{name}:{value}"
    if len(tag) <= _TAG_LIMIT_CHARS and tag.isprintable():
        return tag
    return f"{name}#{hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _listed(
    engine: EmbeddedMemory, owner: Mapping[str, str], *, include_gone: bool = False
) -> Iterator[MemoryRecord]:
    tag = next(iter(reversed(_owner_tags(owner))), TAG)
    after = None
    while True:
        page = engine.page(_PAGE_LIMIT, tag=tag, after=after, include_gone=include_gone)
        yield from (record for record in page if set(_owner_tags(owner)) <= set(record.tags))
        if len(page) < _PAGE_LIMIT:
            return
        after = page[-1].id


def _fits(record: MemoryRecord, wanted: Mapping[str, Any], *, show_expired: bool = False) -> bool:
    """Whether a memory is one of the owner's, with the metadata that is asked for."""
    owner = {name: str(wanted[name]) for name in _OWNERS if wanted.get(name) is not None}
    if TAG in record.tags and not set(_owner_tags(owner)) <= set(record.tags):
        return False
    if TAG not in record.tags and _owner_tags(owner):
        return False
    until = record.valid_until
    if until is not None and until <= datetime.now(UTC) and not show_expired:
        return False
    held = _metadata(record)
    return all(held.get(name) == value for name, value in wanted.items() if name not in _OWNERS)


def _metadata_tags(metadata: Mapping[str, Any] | None) -> list[str]:
    """Metadata as tags: its JSON in pieces, without spaces, which tags lose at their ends."""
    if not metadata:
        return []
    try:
        text = json.dumps(dict(metadata), separators=(",", ":")).replace(" ", "\\u0020")
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata must be JSON: {error}") from error
    starts = range(0, len(text), _META_PIECE_CHARS)
    if len(starts) > _META_LIMIT_COUNT:
        raise InputError(f"metadata has at most {_META_LIMIT_COUNT * _META_PIECE_CHARS} characters")
    return [f"meta{n:02}:{text[at : at + _META_PIECE_CHARS]}" for n, at in enumerate(starts)]


def _metadata(record: MemoryRecord) -> dict[str, Any]:
    pieces = sorted(tag for tag in record.tags if tag[:4] == "meta" and tag[6:7] == ":")
    if not pieces:
        return {}
    found: dict[str, Any] = json.loads("".join(piece[7:] for piece in pieces))
    return found


def _item(engine: EmbeddedMemory, record: MemoryRecord) -> dict[str, Any]:
    """A memory in mem0's shape."""
    made: dict[str, Any] = {
        "id": _public_id(engine, record),
        "memory": record.content,
        "hash": hashlib.sha256(record.content.encode()).hexdigest()[:32],
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "user_id": record.user,
    }
    place = record.source if TAG in record.tags else None
    if place is not None and place.harness is not None:
        made["agent_id"] = place.harness
    if place is not None and place.session_key is not None:
        made["run_id"] = place.session_key
    if record.valid_until is not None:
        made["expiration_date"] = record.valid_until.date().isoformat()
    metadata = _metadata(record)
    if metadata:
        made["metadata"] = metadata
    return made


def _said(messages: object) -> list[tuple[str, str]]:
    """Who said what: a text, one message or a list of them."""
    if isinstance(messages, str):
        return [("user", messages)]
    items = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(items, list | tuple):
        raise InputError("messages must be a text, a message or a list of messages")
    return [turn for item in items for turn in _turns(item)]


def _turns(item: object) -> Iterator[tuple[str, str]]:
    if isinstance(item, str):
        yield "user", item
        return
    if not isinstance(item, Mapping):
        raise InputError("a message has a role and a content")
    role, content = item.get("role", "user"), item.get("content")
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        # Pictures and calls of tools are no text, and the system's words no memory.
        if isinstance(text, str) and text.strip() and role in ("user", "assistant"):
            yield str(role), text


def _until(day: Any) -> datetime | None:
    """The end of the day on which a memory expires."""
    if day is None:
        return None
    try:
        found = datetime.fromisoformat(str(day)[:10])
    except ValueError as error:
        raise InputError(f"expiration_date must be YYYY-MM-DD, not {str(day)[:40]!r}") from error
    return found.replace(hour=23, minute=59, second=59, tzinfo=UTC)


# The name that programs written for mem0 import.
Memory = Mem0Memory
