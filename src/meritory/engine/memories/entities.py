"""Which entities a memory or a context is about, from what is certain in it."""

from __future__ import annotations

from meritory.domain.memory import MemoryRecord, Scope
from meritory.engine.services import Services
from meritory.store.contract.store import Attribute
from meritory.text.entities import entity_key, mentions, parse_about
from meritory.text.terms import query_pairs, query_terms

TRAVERSAL_LIMIT = 50


def attributes_of(record: MemoryRecord, about: tuple[str, ...] = ()) -> tuple[Attribute, ...]:
    """The entities a memory is about: named by `about`, in its text, its tags or its project."""
    found: dict[tuple[str, str], Attribute] = {}

    def note(kind: str, name: str, aspect: str | None = None, *, stated: bool = False) -> None:
        attribute = Attribute(entity_key(kind, name), kind, name, aspect or record.kind, stated)
        found.setdefault((attribute.key, attribute.aspect), attribute)

    for text in about:
        named = parse_about(text)
        note(named.entity.kind, named.entity.name, named.aspect, stated=True)
    for mention in mentions(record.content):
        note(mention.kind, mention.name)
    for tag in record.tags:
        note("tag", tag)
    if record.project is not None:
        note("project", record.project)
    return tuple(found.values())


def dependencies_of(
    about: tuple[str, ...], depends_on: tuple[str, ...]
) -> tuple[tuple[Attribute, Attribute], ...]:
    """Pairs of entities of which the first depends on the second."""
    subjects, needed = [_bare(text) for text in about], [_bare(text) for text in depends_on]
    return tuple((subject, other) for subject in subjects for other in needed if subject != other)


def keys_in_play(text: str, scope: Scope) -> list[str]:
    """The entities a context names, its project among them."""
    keys = [entity_key(mention.kind, mention.name) for mention in mentions(text)]
    # What `--about` named plainly is in play when its words are.
    keys += [entity_key("topic", words) for words in (*query_terms(text), *query_pairs(text))]
    if scope.project is not None:
        keys.append(entity_key("project", scope.project))
    return list(dict.fromkeys(keys))


def traversal(services: Services, scope: Scope, context: str) -> list[str]:
    """Ids of memories about what the context names and what that depends on."""
    keys, now = keys_in_play(context, scope), services.world.now()
    return services.store.memories_about(scope, keys, now, TRAVERSAL_LIMIT)


def required(services: Services, scope: Scope, context: str) -> list[str]:
    """Ids of memories that must always be injected: pins, and constraints on what is in play."""
    return services.store.required(scope, keys_in_play(context, scope), services.world.now())


def _bare(text: str) -> Attribute:
    entity = parse_about(text).entity
    return Attribute(entity_key(entity.kind, entity.name), entity.kind, entity.name, "")
