"""The word of an agent about memories and the user's words counts within its authority."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meritory import InputError, Memory, MemoryRecord
from meritory.domain.memory import WriteResult
from meritory.domain.quality import MemoryLink
from meritory.engine.memories.resolution import similar_to
from meritory.text.extract.attribution import TYPED_LIMIT_CHARS

OLD = "The team meets in the small room every morning"
NEW = "Stand-ups happen in the little room each day"


def agent(memory: Memory) -> Memory:
    """The same store, as an agent's surface opens it."""
    view = memory.view()
    view.backend.services = replace(view.services, is_person=False, actor="mcp")
    return view


def store(
    memory: Memory, content: str, *named: tuple[MemoryRecord, str], **more: Any
) -> WriteResult:
    """One write of an agent that says how other memories relate to it."""
    resolves = [{"id": record.id, "as": relation} for record, relation in named]
    item = {"content": content, "origin": "agent", "resolves": resolves, **more}
    (result,) = agent(memory).remember_many([item])
    assert result.error is None, result.error
    return result


def inferred(memory: Memory, content: str, **more: Any) -> MemoryRecord:
    """A memory of an agent."""
    return agent(memory).remember(content, on_similar="keep", **more)


def links(memory: Memory, record: MemoryRecord) -> list[MemoryLink]:
    """The links of a memory."""
    return memory.services.store.links_of(record.user, [record.id])


def same_state(record: MemoryRecord) -> MemoryRecord:
    """A memory without what a repeated text adds."""
    return replace(record, sources=())


# -- same, update, different ------------------------------------------------------------------


def test_the_same_claim_keeps_one_row_and_an_undo_brings_the_other_back(memory: Memory) -> None:
    old = inferred(memory, OLD)
    result = store(memory, NEW, (old, "same"))
    assert (result.outcome, result.memory and result.memory.id) == ("merged", old.id)
    (settled,) = result.resolved
    assert (settled.id, settled.result) == (old.id, "merged")
    assert [record.id for record in memory.page()] == [old.id]
    dropped = memory.get(str(result.other_id))
    assert (dropped.content, dropped.superseded_by) == (NEW, old.id)
    last = memory.history(dropped.id)[-1]
    assert (last.actor, last.action, last.other_id) == ("mcp", "supersede", old.id)
    assert "says the same as" in last.why
    memory.undo(dropped.id)
    assert {record.id for record in memory.page()} == {old.id, dropped.id}


def test_the_text_with_the_values_stays(memory: Memory) -> None:
    old = inferred(memory, "The service listens on a high port")
    result = store(memory, "The service listens on port 8081", (old, "same"))
    assert result.memory is not None and result.memory.content.endswith("8081")
    assert memory.get(old.id).superseded_by == result.memory.id
    # One undo takes back the text and what it retired.
    memory.undo(result.memory.id)
    assert [record.id for record in memory.page()] == [old.id]


@pytest.mark.parametrize(
    ("old_text", "new_text"),
    [
        ("The service listens on port 8081", "The service listens on port 9090"),
        ("Reports go to src/a.py", "Reports go to src/b.py"),
        ("Deploys happen on Fridays", "Deploys never happen on Fridays"),
        ("The owner of the queue is Ada", "The owner of the queue is Bob"),
    ],
)
def test_a_merge_drops_no_value(memory: Memory, old_text: str, new_text: str) -> None:
    old = inferred(memory, old_text)
    result = store(memory, new_text, (old, "same"))
    assert [one.result for one in result.resolved] == ["open"]
    assert {record.content for record in memory.page()} == {old_text, new_text}
    # The gate may have linked them as two values; the agent's word decides nothing.
    (link,) = links(memory, old)
    assert link.decision is None


def test_an_update_supersedes(memory: Memory) -> None:
    old = inferred(memory, OLD)
    result = store(memory, "The team meets online", (old, "update"))
    assert result.memory is not None and result.outcome == "superseded"
    assert memory.get(old.id).superseded_by == result.memory.id
    assert "replaces" in memory.history(old.id)[-1].why
    memory.undo(old.id)
    assert memory.get(old.id).is_live and memory.get(result.memory.id).is_live


def test_a_different_claim_is_not_asked_about_again(memory: Memory) -> None:
    old = inferred(memory, "The staging database is called heron")
    text = "The staging database is called osprey"
    first = store(memory, text)
    assert first.memory is not None
    services = agent(memory).services
    assert [one.id for one in similar_to(services, first.memory)] == [old.id]
    result = store(memory, text, (old, "different"))
    assert (result.outcome, result.resolved[0].result) == ("duplicate", "separate")
    assert similar_to(services, first.memory) == []
    (link,) = links(memory, old)
    assert (link.decision, link.decided_by) == ("separate", "agent")
    last = memory.history(first.memory.id)[-1]
    assert (last.actor, last.action, last.other_id) == ("mcp", "separate", old.id)
    memory.undo(first.memory.id)
    assert [link.decision for link in links(memory, old)] == [None]
    assert [one.id for one in similar_to(services, first.memory)] == [old.id]
    assert {record.id for record in memory.page()} == {old.id, first.memory.id}


def test_a_text_that_is_stored_already_can_be_related_later(memory: Memory) -> None:
    old = inferred(memory, OLD)
    first = store(memory, NEW)
    result = store(memory, NEW, (old, "same"))
    assert result.memory is not None and first.memory is not None
    assert (result.memory.id, result.other_id) == (old.id, first.memory.id)
    assert [record.id for record in memory.page()] == [old.id]


def test_several_memories_are_settled_at_once(memory: Memory) -> None:
    olds = [inferred(memory, f"The {name} room is where the team meets") for name in ("red", "big")]
    other = inferred(memory, "The team eats in the garden")
    named = ((olds[0], "same"), (olds[1], "same"), (other, "different"))
    result = store(memory, "The team has its meetings in that room", *named)
    assert [one.result for one in result.resolved] == ["merged", "merged", "separate"]
    assert {record.id for record in memory.page()} == {olds[0].id, other.id}


# -- authority --------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["same", "update", "different"])
@pytest.mark.parametrize("kind", ["pin", "constraint", "proposal", "stated"])
def test_an_agent_changes_no_stronger_memory(memory: Memory, kind: str, relation: str) -> None:
    fields: dict[str, Any] = {
        "pin": {"pinned": True},
        "constraint": {"kind": "constraint"},
        "proposal": {"kind": "constraint", "origin": "agent"},
        "stated": {},
    }[kind]
    mine = memory.remember("Never push to main", **fields)
    result = store(memory, "Pushing straight to main is fine", (mine, relation))
    assert memory.get(mine.id) == mine
    assert result.memory is not None and memory.get(result.memory.id).is_live
    is_kept_apart = (kind, relation) == ("stated", "different")
    assert result.resolved[0].result == ("separate" if is_kept_apart else "open")
    (link,) = links(memory, mine)
    assert link.decision == ("separate" if is_kept_apart else None)
    # No chain hides the person's memory behind the agent's.
    assert not link.is_chain


def test_an_agents_paraphrase_of_the_user_leaves_the_users_words(memory: Memory) -> None:
    mine = memory.remember(OLD)
    result = store(memory, NEW, (mine, "same"), tags=["mine"])
    assert result.outcome == "merged"
    assert [record.content for record in memory.page()] == [OLD]
    assert memory.get(mine.id) == mine


@pytest.mark.parametrize("relation", ["same", "update"])
def test_an_agent_borrows_no_authority_by_repeating_the_user(memory: Memory, relation: str) -> None:
    """The text is the user's already, so the memory that holds it is stronger than its writer."""
    first = memory.remember("The team meets in the morning", on_similar="keep")
    second = memory.remember("The team meets at noon", on_similar="keep")
    result = store(memory, second.content, (first, relation))
    assert (result.memory and result.memory.id, result.resolved[0].result) == (second.id, "open")
    assert memory.get(first.id) == first
    assert same_state(memory.get(second.id)) == replace(
        same_state(second), updated_at=memory.get(second.id).updated_at
    )


def test_an_agent_overrides_no_decision(memory: Memory) -> None:
    old = inferred(memory, OLD)
    first = store(memory, NEW, (old, "different"))
    assert first.resolved[0].result == "separate"
    for relation in ("same", "update", "different"):
        result = store(memory, NEW, (old, relation))
        assert result.resolved[0].result == "unchanged"
    assert {record.id for record in memory.page()} == {old.id, first.memory and first.memory.id}


def test_another_scope_is_left_to_a_person(memory: Memory) -> None:
    everywhere = inferred(memory, OLD)
    for relation in ("same", "update"):
        result = store(memory, f"{NEW}, {relation}", (everywhere, relation), project="shop")
        assert result.resolved[0].result == "open"
    assert memory.get(everywhere.id) == everywhere


@pytest.mark.parametrize("length", [4, 12, 25])
def test_the_beginning_of_an_id_names_nothing(memory: Memory, length: int) -> None:
    old = inferred(memory, OLD)
    resolves = [{"id": old.id[:length], "as": "update"}]
    (result,) = agent(memory).remember_many([{"content": NEW, "resolves": resolves}])
    assert result.memory is None and isinstance(result.error, InputError)
    assert [record.id for record in memory.page()] == [old.id]


@pytest.mark.parametrize(
    "resolves",
    [
        "x",
        [1],
        [{"id": "x"}],
        [{"id": "x", "as": "older"}],
        [{"id": "x", "as": "same", "more": 1}],
        [{"id": "0" * 26, "as": "same"}],
        [{"id": "x", "as": "same"}] * 9,
    ],
)
def test_a_wrong_resolution_stores_nothing(memory: Memory, resolves: Any) -> None:
    (result,) = agent(memory).remember_many([{"content": NEW, "resolves": resolves}])
    assert result.outcome == "refused" and result.error is not None
    assert memory.page() == []


def test_a_person_decides_about_everything(memory: Memory) -> None:
    rule = memory.remember("Never push to main", kind="constraint", pinned=True)
    resolves = [{"id": rule.id, "as": "update"}]
    (result,) = memory.remember_many([{"content": "Pushing is fine now", "resolves": resolves}])
    assert result.resolved[0].result == "superseded"
    assert not memory.get(rule.id).is_live


def test_a_writer_without_a_person_names_no_provenance(memory: Memory) -> None:
    for number, origin in enumerate(("user", "agent", "import")):
        for provenance in ("user_stated", "episode_summary"):
            made = agent(memory).remember(
                f"Badger {number} {provenance} sleeps", origin=origin, provenance=provenance
            )
            assert made.provenance == "assistant_derived"


# -- quotes -----------------------------------------------------------------------------------

TYPED = "We use pnpm, not npm.\nNever deploy on Fridays.\nDo we deploy on Mondays?"


def typed(memory: Memory, key: str, words: str = TYPED) -> None:
    """A session in which the prompt hook saw these words."""
    memory.session(key)
    user = memory.scope.user
    work = memory.services.store.write
    work(user, lambda t: t.add_typed(user, key, words, TYPED_LIMIT_CHARS))


def quoted(memory: Memory, content: str, quote: str, key: str | None, **more: Any) -> WriteResult:
    """A write of an agent with a quote."""
    source = {"harness": "mcp", "session_key": key}
    return store(memory, content, quote=quote, source=source, **more)


def test_a_quote_of_the_user_makes_the_memory_theirs(memory: Memory) -> None:
    typed(memory, "s1")
    result = quoted(memory, "The project uses pnpm, not npm", "We use pnpm", "s1")
    made = result.memory
    assert made is not None and result.is_quoted is True
    assert (made.provenance, made.origin, made.trust) == ("user_stated", "agent", "trusted")
    assert made.source is not None and len(made.source.quote_hash or "") == 64


@pytest.mark.parametrize(
    ("content", "quote", "key"),
    [
        ("The project uses yarn, not npm", "We use pnpm, not npm", "s1"),
        ("The project uses npm, not pnpm", "We use pnpm, not npm", "s1"),
        ("The project uses pnpm, not npm", "We always use pnpm", "s1"),
        ("Deploy on Fridays", "deploy on Fridays", "s1"),
        ("We deploy on Mondays", "we deploy on Mondays", "s1"),
        ("The project uses pnpm, not npm", "We use pnpm, not npm", "s2"),
        ("The project uses pnpm, not npm", "We use pnpm, not npm", "s3"),
        ("The project uses pnpm, not npm", "We use pnpm, not npm", None),
        ("The project uses pnpm, not npm", "e use pnpm", "s1"),
    ],
    ids=[
        "another value",
        "turned round",
        "forged",
        "half a ban",
        "a question",
        "another session",
        "no session",
        "unknown session",
        "half a word",
    ],
)
def test_other_words_stay_the_agents(
    memory: Memory, content: str, quote: str, key: str | None
) -> None:
    typed(memory, "s1")
    typed(memory, "s2", "Thanks, that works.")
    result = quoted(memory, content, quote, key)
    assert result.memory is not None and result.is_quoted is False
    assert (result.memory.provenance, result.memory.origin) == ("assistant_derived", "agent")


@pytest.mark.parametrize("origin", ["tool", "web"])
def test_a_quote_lifts_no_foreign_text(memory: Memory, origin: str) -> None:
    typed(memory, "s1")
    result = quoted(memory, "We use pnpm, not npm", "We use pnpm, not npm", "s1", origin=origin)
    assert result.memory is not None and result.is_quoted is False
    assert (result.memory.trust, result.memory.provenance) == ("untrusted", "assistant_derived")


def test_a_session_of_another_project_verifies_nothing(memory: Memory) -> None:
    typed(memory, "s1")
    args = (memory, "We use pnpm, not npm", "We use pnpm, not npm", "s1")
    assert quoted(*args, project="shop").is_quoted is False
    assert quoted(*args).is_quoted is True


def test_a_session_without_prompts_of_a_hook_verifies_nothing(memory: Memory) -> None:
    memory.session("s1").prompt("We use pnpm, not npm.")
    result = quoted(memory, "We use pnpm, not npm", "We use pnpm, not npm", "s1")
    assert result.is_quoted is False


def test_a_quote_binds_nothing(memory: Memory) -> None:
    typed(memory, "s1")
    result = quoted(
        memory, "Never deploy on Fridays", "Never deploy on Fridays", "s1", kind="constraint"
    )
    made = result.memory
    assert made is not None and result.is_quoted is True
    assert (made.kind, made.pinned, made.provenance) == ("preference", False, "user_stated")
    assert made.tags == ("proposed:constraint",)


def test_the_users_words_retire_what_the_user_stated(memory: Memory) -> None:
    old = memory.remember("We use npm")
    typed(memory, "s1")
    source = {"session_key": "s1"}
    named = (old, "update")
    assert store(memory, "We use pnpm with npm", named).resolved[0].result == "open"
    result = store(memory, "We use pnpm, not npm", named, quote="We use pnpm", source=source)
    assert result.is_quoted is True
    assert result.resolved[0].result == "superseded"
    assert not memory.get(old.id).is_live


def test_the_users_words_lift_no_constraint(memory: Memory) -> None:
    typed(memory, "s1")
    rule = memory.remember("Always use npm", kind="constraint")
    source = {"session_key": "s1"}
    result = store(
        memory, "We use pnpm, not npm", (rule, "update"), quote="We use pnpm", source=source
    )
    assert (result.is_quoted, result.resolved[0].result) == (True, "open")
    assert memory.get(rule.id) == rule
