"""The write path, through the front door on a real store."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meritory import InputError, Memory, NotFound, SecretFound, Source
from meritory.domain.memory import WriteResult
from meritory.engine.memories.gate import COMPARE_THRESHOLD
from meritory.engine.memories.write import FEW_DRAFTS
from meritory.settings import load_settings
from places import Places

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


def outcomes(results: list[WriteResult]) -> list[str]:
    return [result.outcome for result in results]


def test_a_new_text_is_stored_with_every_field(memory: Memory) -> None:
    made = memory.remember(
        "The staging database is called heron",
        kind="decision",
        project="birds",
        agent="claude",
        confidence=0.9,
        importance=0.7,
        pinned=True,
        tags=["infra", "db", "infra"],
        source=Source("cli", "s1", "turn 3", "abc"),
        valid_from="2026-01-01T10:00:00+02:00",
        valid_until="2027-01-01",
    )
    found = memory.get(made.id)
    assert found == made
    assert (found.kind, found.project, found.agent, found.pinned) == (
        "decision",
        "birds",
        "claude",
        True,
    )
    assert found.tags == ("infra", "db")
    assert found.source == Source("cli", "s1", "turn 3", "abc")
    assert found.valid_from == datetime(2026, 1, 1, 8, tzinfo=UTC)
    assert found.valid_until == datetime(2027, 1, 1, tzinfo=UTC)
    assert (found.provenance, found.origin, found.trust) == ("user_stated", "user", "trusted")
    assert found.embedder is not None
    assert found.dimension == 256


def test_the_same_text_again_refreshes_the_memory_that_is_there(memory: Memory) -> None:
    first = memory.remember("We deploy on Mondays", tags=["ops"])
    again = memory.remember("  we deploy on   mondays. ", tags=["weekly"], importance=0.9)
    assert again.id == first.id
    assert again.content == "We deploy on Mondays"
    assert again.tags == ("ops", "weekly")
    assert again.importance == 0.9
    assert again.updated_at > first.updated_at
    assert memory.stats()["write.duplicate"] == 1


def test_duplicates_are_only_looked_for_in_the_same_scope(memory: Memory) -> None:
    here = memory.remember("We deploy on Mondays", project="a")
    there = memory.remember("We deploy on Mondays", project="b")
    nowhere = memory.remember("We deploy on Mondays")
    assert len({here.id, there.id, nowhere.id}) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My favourite colour is purple", "My favourite colour is cyan"),
        ("User prefers tabs", "User prefers spaces"),
        ("The release is on Monday", "The release is on Friday"),
        ("Anna manages Bob", "Bob manages Anna"),
        ("The port of the API is 8080", "The port of the API is 8081"),
        ("Always run the tests before a push", "Never run the tests before a push"),
        ("The config lives in src/app/config.py", "The config lives in src/app/settings.py"),
        ('The bucket is called "alpha"', 'The bucket is called "beta"'),
        ("Use `load_rows` for reading", "Use `save_rows` for reading"),
    ],
)
@pytest.mark.usefixtures("home")
def test_no_value_is_ever_merged_away(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """With the gate wide open (threshold 0) the words alone must keep the two apart."""
    monkeypatch.setenv("MERITORY_GATE_THRESHOLD", "0")
    with Memory() as memory:
        results = memory.remember_many([old, new])
        assert outcomes(results) == ["stored", "kept_both"]
        assert {item.content for item in memory.page()} == {old, new}


def test_a_paraphrase_is_merged_into_the_more_specific_text(memory: Memory) -> None:
    old = memory.remember(
        "I think the staging database is called heron", tags=["a"], confidence=0.6
    )
    result = memory.remember_many(
        [{"content": "The staging database is called heron", "tags": ["b"], "confidence": 0.9}]
    )[0]
    assert result.outcome == "merged"
    assert result.memory is not None
    assert result.memory.id == old.id
    assert result.memory.content == "The staging database is called heron"
    assert result.memory.confidence == 0.9
    assert result.memory.tags == ("a", "b")
    assert [entry.other_id for entry in memory.merges()] == [result.other_id]


def test_a_changed_fact_supersedes_the_old_one(memory: Memory) -> None:
    old = memory.remember("The staging database is called heron")
    result = memory.remember_many(["The staging database is now called osprey"])[0]
    assert result.outcome == "superseded"
    assert result.other_id == old.id
    assert result.memory is not None
    assert memory.get(old.id).superseded_by == result.memory.id
    found = [item.content for item in memory.recall("staging database name")]
    assert found == ["The staging database is now called osprey"]


def test_a_stated_change_finds_a_former_value_in_other_words(memory: Memory) -> None:
    """Vectors of "use Buildkite for CI" and "moved our CI to" have little in common."""
    old = memory.remember("We use Buildkite for CI")
    apart = memory.remember("Our CI costs 400 a month")
    result = memory.remember_many(["We moved our CI to GitHub Actions"])[0]
    assert (result.outcome, result.other_id) == ("superseded", old.id)
    assert result.cosine is not None and result.cosine < COMPARE_THRESHOLD
    assert memory.get(apart.id).superseded_by is None


def test_an_import_compares_a_stated_change_with_near_texts_only(memory: Memory) -> None:
    old = memory.remember("We use Buildkite for CI")
    lines = [f"Ticket {number} is about invoices" for number in range(FEW_DRAFTS)]
    results = memory.remember_many([*lines, "We moved our CI to GitHub Actions"])
    assert results[-1].outcome == "stored"
    assert memory.get(old.id).superseded_by is None


def test_a_batch_sees_its_own_earlier_items(memory: Memory) -> None:
    results = memory.remember_many(
        [
            "The staging database is called heron",
            "the staging database is called heron.",
            "I think the staging database is called heron",
            "The staging database is now called osprey",
            "The staging database is called heron",
        ]
    )
    assert outcomes(results) == ["stored", "duplicate", "merged", "superseded", "kept_both"]
    assert memory.stats()["live"] == 2


def test_another_value_of_a_claim_is_named(memory: Memory) -> None:
    first = memory.remember("The staging database is called heron")
    (result,) = memory.remember_many(["The staging database is called kestrel"])
    assert (result.outcome, result.other_id) == ("kept_both", first.id)


def test_keep_stores_as_is(memory: Memory) -> None:
    memory.remember("I think the staging database is called heron")
    result = memory.remember_many(
        [{"content": "The staging database is called heron", "on_similar": "keep"}]
    )[0]
    assert result.outcome == "stored"
    assert memory.stats()["live"] == 2


def test_one_bad_item_does_not_keep_the_others_out(memory: Memory) -> None:
    results = memory.remember_many(
        ["good", {"content": ""}, {"content": "x", "kind": "rumour"}, {"text": "y"}, TOKEN, "fine"]
    )
    assert outcomes(results) == ["stored", *["refused"] * 4, "stored"]
    assert memory.stats()["write.refused"] == 4
    assert memory.stats()["live"] == 2


def test_a_secret_is_refused_and_nothing_of_it_is_kept(memory: Memory, places: Places) -> None:
    with pytest.raises(SecretFound, match="secret"):
        memory.remember(f"the token is {TOKEN}")
    memory.close()
    assert places.traces(TOKEN) == []


@pytest.mark.usefixtures("home")
def test_a_secret_is_redacted_when_so_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERITORY_SECRETS_POLICY", "redact")
    with Memory() as memory:
        made = memory.remember(f"the deploy token is {TOKEN} and lives in the vault")
        assert TOKEN not in made.content
        assert made.content.endswith("and lives in the vault")


def test_a_named_successor_retires_the_old_memory(memory: Memory) -> None:
    old = memory.remember("Lunch is at noon")
    new = memory.remember("We eat at one o'clock", supersedes=old.id[:16])
    assert memory.get(old.id).superseded_by == new.id
    with pytest.raises(InputError, match="cannot be superseded"):
        memory.remember("We eat at two", supersedes=old.id)
    with pytest.raises(NotFound):
        memory.remember("We eat at three", supersedes="01zzzzzzzzzz")
    assert memory.stats()["live"] == 1


def test_only_a_person_pins_or_constrains(memory: Memory) -> None:
    proposed = memory.remember("Never push to main", kind="constraint", pinned=True, origin="agent")
    assert (proposed.kind, proposed.pinned) == ("fact", False)
    assert set(proposed.tags) == {"proposed:pin", "proposed:constraint"}
    assert memory.required("") == []
    confirmed = memory.confirm(proposed.id)
    assert (confirmed.kind, confirmed.pinned, confirmed.tags) == ("constraint", True, ())
    assert memory.required("") == [confirmed.id]


@pytest.mark.parametrize("origin", ["tool", "web"])
def test_what_a_tool_or_a_page_said_is_not_trusted_until_confirmed(
    memory: Memory, origin: str
) -> None:
    made = memory.remember("The build server is at build.example", origin=origin)
    assert made.trust == "untrusted"
    assert memory.confirm(made.id).trust == "trusted"


def test_untrusted_text_neither_merges_into_nor_retires_a_trusted_memory(memory: Memory) -> None:
    trusted = memory.remember("The staging database is called heron")
    for text in (
        "The staging database is now called evil",
        "I think the staging database is called heron",
        "The staging database is called heron and it was set up by Anna",
    ):
        made = memory.remember(text, origin="web")
        assert made.id != trusted.id
    assert memory.get(trusted.id) == trusted


def test_an_agent_cannot_rewrite_what_a_person_pinned(memory: Memory) -> None:
    pinned = memory.remember("The staging database is called heron", pinned=True)
    for text in (
        "The staging database is now called osprey",
        "The staging database is called heron and it was set up by Anna",
    ):
        memory.remember(text, origin="agent")
    assert memory.get(pinned.id) == pinned
    memory.remember("The staging database is now called osprey", origin="user")
    assert memory.get(pinned.id).is_live  # an exact duplicate of the agent's note retires nothing
    memory.remember("The staging database is now called kestrel", origin="user")
    assert not memory.get(pinned.id).is_live


def test_what_was_derived_does_not_retire_what_was_stated(memory: Memory) -> None:
    stated = memory.remember("The staging database is called heron")
    memory.remember(
        "The staging database is now called osprey",
        provenance="assistant_derived",
        origin="agent",
    )
    assert memory.get(stated.id).is_live


def test_an_older_statement_does_not_supersede_a_newer_one(memory: Memory) -> None:
    newer = memory.remember("The staging database is called heron", valid_from="2026-06-01")
    result = memory.remember_many(
        [
            {
                "content": "The staging database is now called osprey",
                "valid_from": "2020-01-01",
            }
        ]
    )[0]
    assert (result.outcome, result.other_id) == ("kept_both", newer.id)
    assert memory.get(newer.id).is_live


def test_the_stronger_provenance_survives_a_merge(memory: Memory) -> None:
    memory.remember(
        "I think the staging database is called heron",
        provenance="assistant_derived",
        confidence=0.95,
    )
    merged = memory.remember("The staging database is called heron", confidence=0.7)
    assert (merged.provenance, merged.confidence) == ("user_stated", 0.7)


def test_the_gate_can_be_switched_off(places: Places, tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"gate.enabled": False})
    with places.memory(settings=settings) as memory:
        results = memory.remember_many(
            ["I think the staging db is called heron", "The staging db is called heron"]
        )
        assert outcomes(results) == ["stored", "stored"]


def test_many_threads_lose_nothing(memory: Memory) -> None:
    def work(number: int) -> None:
        for item in range(20):
            memory.remember(f"thread {number} noted item {item} in ledger {number * 100 + item}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.stats()["live"] == 160


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"confidence": 2}, "between 0 and 1"),
        ({"confidence": -0.1}, "between 0 and 1"),
        ({"confidence": 10**400}, "between 0 and 1"),
        ({"confidence": float("inf")}, "between 0 and 1"),
        ({"importance": "high"}, "number from 0 to 1"),
        ({"importance": float("nan")}, "between 0 and 1"),
        ({"importance": True}, "number from 0 to 1"),
        ({"kind": "prefrence"}, "did you mean 'preference'"),
        ({"provenance": "gossip"}, "choose one of"),
        ({"origin": "xyz"}, "choose one of"),
        ({"tags": ["t"] * 1000}, "at most 64 tags"),
        ({"tags": [1]}, "a tag must be text"),
        ({"tags": 7}, "comma-separated text"),
        ({"tags": ["x" * 65]}, "64 characters"),
        ({"pinned": "yes"}, "true or false"),
        ({"valid_from": "yesterday"}, "ISO 8601"),
        ({"valid_from": 5}, "expected a time"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "between the years"),
        ({"valid_from": "2026-02-01", "valid_until": "2026-01-01"}, "before valid_from"),
        ({"source": "here"}, "must be a Source"),
        ({"source": {"harnes": "x"}}, "did you mean 'harness'"),
        ({"source": {"turn": 5}}, "source.turn"),
        ({"project": ""}, "must be a name"),
        ({"project": "a\nb"}, "printable"),
        ({"project": "x" * 300}, "at most 256"),
        ({"user": "mallory"}, "unknown field 'user'"),
        ({"origin": "web", "provenance": "user_stated"}, "cannot be user_stated"),
        ({"tags": [TOKEN]}, "secret"),
        ({"about": TOKEN}, "secret"),
        ({"project": TOKEN}, "secret"),
        ({"source": {"session_key": TOKEN}}, "secret"),
        ({"supersedes": 5}, "an id must be text"),
        ({"improtance": 0.5}, "did you mean 'importance'"),
        ({"depends_on": ["db"]}, "needs about"),
        ({"on_similar": "merge"}, "choose one of"),
    ],
)
def test_every_bad_field_gets_a_clear_error_and_stores_nothing(
    memory: Memory, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        memory.remember("fine text", **fields)
    assert memory.stats()["live"] == 0


@pytest.mark.parametrize(
    "content",
    ["", "   ", "\n\t", "\x01\x02", "a\0b", "\ud800", "\ufeff", "x" * 8_193, None, 5, b"bytes"],
)
def test_bad_text_is_refused_and_nothing_is_stored(memory: Memory, content: object) -> None:
    with pytest.raises(InputError):
        memory.remember(content)  # type: ignore[arg-type]
    assert memory.stats()["live"] == 0


@pytest.mark.parametrize(
    "content",
    [
        "x" * 8_192,
        "a\u202eb bidi",
        "zero\u200bwidth",
        "inner\ufeffmark",
        "\x1b[31mred\x1b[0m",
        "\ue000 private",
        "'; DROP TABLE memories; --",
        'say "NEAR(" AND col:x OR -y ^z*',
        "日本語のメモ",
        "👩‍👩‍👧 family",
    ],
)
def test_odd_but_valid_text_comes_back_as_it_was(memory: Memory, content: str) -> None:
    made = memory.remember(content)
    assert memory.get(made.id).content == content
    assert memory.stats()["live"] == 1


def test_a_leading_byte_order_mark_is_not_stored(memory: Memory) -> None:
    made = memory.remember("\ufeffThe staging database is called heron")
    assert memory.get(made.id).content == "The staging database is called heron"
    assert memory.remember("The staging database is called heron").id == made.id
    changed = memory.update(made.id, content="\ufeffThe staging database is called egret")
    assert changed.content == "The staging database is called egret"


@pytest.mark.parametrize("item", [5, None, ["x"], b"bytes"])
def test_an_item_of_any_sort_is_refused_and_the_others_come_in(
    memory: Memory, item: object
) -> None:
    results = memory.remember_many(["good", item])  # type: ignore[list-item]
    assert outcomes(results) == ["stored", "refused"]
    with pytest.raises(InputError, match="expected a list"):
        memory.remember_many("letters")


def test_what_no_person_said_is_derived_unless_stated(memory: Memory) -> None:
    assert memory.remember("a badger", origin="agent").provenance == "assistant_derived"
    assert memory.remember("a heron", origin="web").provenance == "assistant_derived"
    assert memory.remember("an otter").provenance == "user_stated"


def test_agent_words_never_come_to_stand_as_the_users(memory: Memory) -> None:
    stated = memory.remember("The release command is `make ship`.", confidence=0.95)
    longer = "The release command is `make ship`. It was written by Anna."
    derived = memory.remember(longer, origin="agent")
    assert derived.id != stated.id
    assert memory.get(stated.id) == stated
    pinned = memory.remember("The build command is `make all`.", origin="agent")
    rule = memory.remember("The build command is `make all`. It is slow.", pinned=True)
    assert rule.content.endswith("It is slow.")
    assert memory.get(pinned.id).content in (pinned.content, rule.content)


@pytest.mark.parametrize("origin", ["agent", "web"])
def test_a_weaker_duplicate_changes_nothing_that_counts(memory: Memory, origin: str) -> None:
    pinned = memory.remember(
        "Never push to main", kind="constraint", pinned=True, importance=0.3, confidence=0.4
    )
    again = memory.remember(
        "Never push to main",
        origin=origin,
        importance=1.0,
        confidence=1.0,
        tags=["evil"],
        about="frontend",
        source=Source("x", "s9"),
    )
    assert again.id == pinned.id
    assert (again.importance, again.confidence, again.tags) == (0.3, 0.4, ())
    assert again.sources == (Source("x", "s9"),)
    assert "frontend" not in {entity.name for entity in memory.entities()}


def test_said_again_a_claim_holds_as_it_is_said_now(memory: Memory) -> None:
    memory.remember("The badger sleeps", valid_until="2025-01-01")
    assert memory.recall("badger") == []
    again = memory.remember("The badger sleeps")
    assert again.valid_until is None
    assert len(memory.recall("badger")) == 1


def test_repeats_leave_no_trail_and_lists_stay_bounded(memory: Memory) -> None:
    made = memory.remember("The badger sleeps")
    for _ in range(5):
        memory.remember("The badger sleeps")
    assert [entry.action for entry in memory.history(made.id)] == ["create"]
    for number in range(100):
        memory.remember("The badger sleeps", tags=[f"t{number}"], source=Source("h", f"s{number}"))
    found = memory.get(made.id)
    assert len(found.tags) == 64
    assert len(found.sources) == 64
    assert found.sources[0] == Source("h", "s0")
    assert found.sources[-1] == Source("h", "s99")


def test_the_same_paraphrase_is_merged_once(memory: Memory) -> None:
    made = memory.remember("The staging database is called heron")
    for _ in range(4):
        again = memory.remember("I think the staging database is called heron")
        assert again.id == made.id
    assert len(memory.merges()) == 1
    memory.split(made.id)
    assert memory.stats()["live"] == 2


def test_what_is_said_about_another_thing_is_kept_apart(memory: Memory) -> None:
    memory.remember("I think it listens on port 8080", about="gateway")
    memory.remember("It listens on port 8080", about="billing")
    assert memory.stats()["live"] == 2
    assert memory.describe("billing").entity.memory_count == 1


@pytest.mark.usefixtures("home")
def test_redaction_cannot_make_a_text_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERITORY_SECRETS_POLICY", "redact")
    secret = "xoxb-1a2B3c4D5e6F"
    with Memory() as memory, pytest.raises(InputError):
        memory.remember(("word " * 1_634 + f"{secret} " * 2)[:8_192])


def test_an_entity_that_names_nothing_is_refused_alone(memory: Memory) -> None:
    results = memory.remember_many(["good", {"content": "bad", "about": "/"}, "fine"])
    assert outcomes(results) == ["stored", "refused", "stored"]


def test_a_confirmed_constraint_is_not_moved_to_another_thing_by_an_agent(memory: Memory) -> None:
    made = memory.remember("Never push to main", origin="agent", kind="constraint", about="backend")
    memory.confirm(made.id)
    memory.remember("Never push to main", origin="agent", about="frontend", tags=["evil"])
    assert memory.required("the frontend") == []
    assert memory.get(made.id).tags == ()


def test_a_constraint_on_everything_is_not_narrowed_by_an_agent(memory: Memory) -> None:
    made = memory.remember("Never push to main", kind="constraint")
    memory.remember("Never push to main", origin="agent", about="frontend", tags=["evil"])
    assert memory.required("the backend") == [made.id]
