"""A drop-in for mem0's `Memory`: the same calls and shapes, on Meritory.

mem0 lets a language model rewrite messages into facts. Here no model is asked: messages of the user
are stored one by one without their questions, and the write path merges repetitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Self

from meritory.api.async_memory import on_thread
from meritory.api.memory import Memory as EmbeddedMemory
from meritory.domain.errors import InputError, NotFound, PersonOnly
from meritory.domain.memory import MemoryRecord, RecallFilter, Source, metadata_text
from meritory.integrations.core import all_tagged
from meritory.text.extract.rules import without_questions

TAG = "mem0"
_OWNERS = ("user_id", "agent_id", "run_id")
_TAG_LIMIT_CHARS = 64
_FOUND_LIMIT = 1_000
# Between a memory's id and its user, if that is not the default one.
_AT = "@"
_EVENTS = {"create": "ADD", "delete": "DELETE"}
_UNSET: Any = object()


class Mem0Memory:
    """mem0's class: `user_id` is a user, `agent_id` and `run_id` are kept with each memory.

    It takes the arguments of `meritory.Memory`; a configuration of mem0 is ignored.
    """

    def __init__(self, config: Any = None, **options: Any) -> None:
        self.config = config
        self._engine = EmbeddedMemory(**options)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any], **options: Any) -> Self:
        """Return a memory; mem0 is configured by a dictionary."""
        return cls(config_dict, **options)

    # -- writing --------------------------------------------------------------------------

    def add(
        self,
        /,
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
        """Store the messages of the user without their questions.

        With `infer=False` all messages are stored as they are, those of the assistant too.
        """
        engine, owner = self._for(user_id=user_id, agent_id=agent_id, run_id=run_id)
        fields: dict[str, Any] = {
            "tags": [TAG, *_owner_tags(owner)],
            "metadata": metadata,
            "source": Source(owner.get("agent_id"), owner.get("run_id")),
            "valid_until": _until(expiration_date),
        }
        if not infer:
            fields["on_similar"] = "keep"
        drafts = [
            {**fields, "content": text, "origin": "user" if role == "user" else "agent"}
            for role, said in _turns(messages)
            if role == "user" or not infer
            if (text := without_questions(said) if infer else said).strip()
        ]
        changes = []
        for result in engine.remember_many(drafts):
            if result.memory is None:
                raise result.error or InputError(result.reason)
            event = "ADD" if result.outcome in ("stored", "kept_both") else "UPDATE"
            if result.outcome != "duplicate":
                name = _public_id(engine, result.memory)
                changes.append({"id": name, "memory": result.memory.content, "event": event})
        return {"results": changes}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = _UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Change a memory's text, metadata or expiry."""
        engine, record = self._find(memory_id)
        changes: dict[str, Any] = {}
        content = data if text is None else text
        if content is not None:
            changes["content"] = content
        if metadata is not None:
            changes["metadata"] = {**record.metadata, **metadata}
        if expiration_date is not _UNSET:
            changes["valid_until"] = _until(expiration_date)
        if not changes:
            raise InputError("nothing to change was given", hint="give text or metadata")
        _unbound([record])
        engine.update(record.id, **changes)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Forget one memory."""
        engine, record = self._find(memory_id)
        engine.forget(record.id, origin="agent")
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Forget all memories of a user, an agent or a run; none if a person bound one of them."""
        engine, owner = self._for(user_id=user_id, agent_id=agent_id, run_id=run_id)
        for record in _unbound(_listed(engine, owner)):
            engine.forget(record.id, origin="agent")
        return {"message": "Memories deleted successfully!"}

    def reset(self) -> None:
        """Erase every memory that this class stored for the default user, with its history."""
        engine = self._engine.view()
        for record in _unbound(all_tagged(engine, TAG, include_gone=True)):
            engine.forget(record.id, purge=True)

    # -- reading --------------------------------------------------------------------------

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return one memory, None without one or after its deletion."""
        try:
            engine, record = self._find(memory_id)
        except NotFound:
            return None
        return None if record.deleted_at is not None else _item(engine, record)

    def get_all(
        self,
        /,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **named: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the memories of a user, an agent or a run, newest first."""
        # Older versions of mem0 take the owner as arguments of their own.
        wanted = {**(filters or {}), **_owner_of(named)}
        engine, owner = self._for(**_owner_of(wanted))
        limit = int(named.get("limit", top_k))
        fitting = (
            _item(engine, record)
            for record in _listed(engine, owner)
            if _fits(record, wanted, show_expired=show_expired)
        )
        return {"results": list(islice(fitting, max(0, limit)))}

    def search(
        self,
        /,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        **named: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the memories that answer a query best, each with its score."""
        wanted = {**(filters or {}), **_owner_of(named)}
        engine, _ = self._for(**_owner_of(wanted))
        limit = int(named.get("limit", top_k))
        tags = _wanted_tags(wanted)
        hits = engine.recall(
            query,
            min(_FOUND_LIMIT, max(1, limit)),
            # As mem0 does: the best, however little they have to do with the query.
            min_score=0.0,
            tags=tags or None,
            metadata=_wanted_metadata(wanted),
        )
        found = [
            {**_item(engine, hit.memory), "score": hit.score}
            for hit in hits
            if threshold is None or hit.score >= threshold
        ]
        return {"results": found[: max(0, limit)]}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return every change of a memory, oldest first."""
        engine, record = self._find(memory_id)
        return [
            {
                "id": str(entry.entry),
                "memory_id": memory_id,
                "old_memory": entry.before and entry.before.content,
                "new_memory": entry.after and entry.after.content,
                "event": _EVENTS.get(entry.action, "UPDATE"),
                "created_at": record.created_at.isoformat(),
                "updated_at": entry.at.isoformat(),
                "is_deleted": entry.after is not None and entry.after.deleted_at is not None,
                "actor_id": entry.actor,
                "role": None,
            }
            for entry in engine.history(record.id)
        ]

    def close(self) -> None:
        """Release the store."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- owners ---------------------------------------------------------------------------

    def _for(self, **owners: Any) -> tuple[EmbeddedMemory, dict[str, str]]:
        """Return the memory of an owner, and the owner; mem0 needs at least one of the three."""
        given = {name: value for name, value in owners.items() if value is not None}
        for name, value in given.items():
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"{name} must be a name, not {str(value)[:40]!r}")
        if not given:
            raise InputError("one of user_id, agent_id and run_id is needed")
        owner = {name: value.strip() for name, value in given.items()}
        return self._engine.view(owner.get("user_id")), owner

    def _find(self, memory_id: str) -> tuple[EmbeddedMemory, MemoryRecord]:
        if not isinstance(memory_id, str):
            raise InputError(f"an id is text, not {type(memory_id).__name__}")
        name, _, user_id = memory_id.partition(_AT)
        engine = self._engine.view(user_id or None)
        return engine, engine.get(name)


def _public_id(engine: EmbeddedMemory, record: MemoryRecord) -> str:
    usual = record.user == engine.settings.user
    return record.id if usual else f"{record.id}{_AT}{record.user}"


def _owner_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in _OWNERS if fields.get(name) is not None}


def _owner_tags(owner: Mapping[str, str]) -> list[str]:
    tags = []
    for name in ("agent_id", "run_id"):
        if name in owner:
            tag = f"{name}:{owner[name]}"
            if len(tag) > _TAG_LIMIT_CHARS or not tag.isprintable():
                digest = hashlib.sha256(owner[name].encode("utf-8", "replace")).hexdigest()
                tag = f"{name}#{digest[:32]}"
            tags.append(tag)
    return tags


def _listed(engine: EmbeddedMemory, owner: Mapping[str, str]) -> Iterator[MemoryRecord]:
    tags = _owner_tags(owner)
    for record in all_tagged(engine, tags[-1] if tags else TAG):
        if set(tags) <= set(record.tags):
            yield record


def _unbound(records: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Return memories to change; raise PersonOnly for a pin or a constraint: agents call mem0."""
    found = list(records)
    for record in found:
        if record.is_live and record.is_binding:
            raise PersonOnly(
                f"{record.id} is pinned or a constraint; only a person may change it",
                hint=f"run `meritory edit {record.id}` or `meritory forget {record.id}`",
            )
    return found


def _fits(record: MemoryRecord, wanted: Mapping[str, Any], *, show_expired: bool = False) -> bool:
    """Return whether a memory is one of the owner's, with the wanted metadata."""
    if not set(_wanted_tags(wanted)) <= set(record.tags):
        return False
    until = record.valid_until
    if until is not None and until <= datetime.now(UTC) and not show_expired:
        return False
    return RecallFilter(metadata=_wanted_metadata(wanted)).allows(record)


def _wanted_tags(wanted: Mapping[str, Any]) -> list[str]:
    """Return the tags that memories of an agent or a run have; none for all of a user."""
    tags = _owner_tags(
        {name: str(wanted[name]) for name in _OWNERS if wanted.get(name) is not None}
    )
    return [TAG, *tags] if tags else []


def _wanted_metadata(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters of metadata, as it is stored: a whole number never as 1.0."""
    found = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in wanted.items()
        if name not in _OWNERS
    }
    try:
        metadata_text(found)
    except (TypeError, ValueError) as error:
        raise InputError(f"a filter must be JSON: {error}") from error
    return found


def _item(engine: EmbeddedMemory, record: MemoryRecord) -> dict[str, Any]:
    """Return a memory in mem0's shape."""
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
    if record.metadata:
        made["metadata"] = dict(record.metadata)
    return made


def _turns(messages: object) -> Iterator[tuple[str, str]]:
    """Yield role and text of a text, a message or a list of them."""
    items = [messages] if isinstance(messages, str | Mapping) else messages
    if not isinstance(items, list | tuple):
        raise InputError("messages must be a text, a message or a list of messages")
    for item in items:
        message = {"content": item} if isinstance(item, str) else item
        if not isinstance(message, Mapping):
            raise InputError("a message has a role and a content")
        role, content = message.get("role", "user"), message.get("content")
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, Mapping) else part
            # Images and tool calls have no text, and the system's prompt is not a memory.
            if isinstance(text, str) and text.strip() and role in ("user", "assistant"):
                yield str(role), text


def _until(day: Any) -> datetime | None:
    """Return the end of the day on which a memory expires."""
    if day is None:
        return None
    try:
        found = datetime.fromisoformat(str(day)[:10])
    except ValueError as error:
        raise InputError(f"expiration_date must be YYYY-MM-DD, not {str(day)[:40]!r}") from error
    return found.replace(hour=23, minute=59, second=59, tzinfo=UTC)


class AsyncMem0Memory:
    """mem0's class for programs that must not block."""

    def __init__(self, config: Any = None, **options: Any) -> None:
        self._sync = Mem0Memory(config, **options)

    add = on_thread(Mem0Memory.add)
    update = on_thread(Mem0Memory.update)
    delete = on_thread(Mem0Memory.delete)
    delete_all = on_thread(Mem0Memory.delete_all)
    reset = on_thread(Mem0Memory.reset)
    get = on_thread(Mem0Memory.get)
    get_all = on_thread(Mem0Memory.get_all)
    search = on_thread(Mem0Memory.search)
    history = on_thread(Mem0Memory.history)
    close = on_thread(Mem0Memory.close)


# The names that programs written for mem0 import.
Memory, AsyncMemory = Mem0Memory, AsyncMem0Memory
