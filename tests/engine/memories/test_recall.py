"""Recall: what is found, in which order, by whom, and with which numbers behind it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory import InputError, Memory, Source
from meritory.rank import composite
from meritory.settings import load_settings
from places import Places

DAY = timedelta(days=1)


def contents(memory: Memory, query: str, **options: int) -> list[str]:
    return [found.content for found in memory.recall(query, **options)]


def test_words_and_meaning_both_find(memory: Memory) -> None:
    memory.remember_many(
        ["The staging database is called heron", "Coffee is in the kitchen", "Anna owns a dog"]
    )
    assert contents(memory, "heron")[0] == "The staging database is called heron"
    assert contents(memory, "puppy pet animal")[0] == "Anna owns a dog"


def test_identifiers_are_found_by_their_parts(memory: Memory) -> None:
    memory.remember("Use parseConfigFile from src/loaders/toml_reader.py")
    memory.remember("Coffee is in the kitchen")
    assert contents(memory, "config parse")[0].startswith("Use parseConfigFile")
    assert contents(memory, "toml reader")[0].startswith("Use parseConfigFile")


def test_what_has_nothing_to_do_with_the_query_stays_out(memory: Memory) -> None:
    memory.remember("The staging database is called heron")
    assert contents(memory, "qqqq zzzz") == []


@pytest.mark.usefixtures("home")
def test_scopes_decide_what_is_seen() -> None:
    for user in ("ann", "bob"):
        with Memory(user=user) as memory:
            for agent in (None, "claude", "codex"):
                for project in (None, "p", "q"):
                    memory.remember(
                        f"badger note of {user} {agent} {project}",
                        agent=agent,
                        project=project,
                        on_similar="keep",
                    )
    for agent in (None, "claude"):
        for project in (None, "p"):
            with Memory(user="ann", agent=agent, project=project) as memory:
                seen = set(contents(memory, "badger note", limit=50))
            expected = {
                f"badger note of ann {a} {p}" for a in {None, agent} for p in {None, project}
            }
            assert seen == expected


def test_weaker_sources_rank_lower_for_the_same_text(memory: Memory) -> None:
    sources = [("assistant_derived", 0.8), ("user_stated", 0.3), ("user_stated", 0.9)]
    for provenance, confidence in sources:
        memory.remember(
            "The badger sleeps in the barn",
            provenance=provenance,
            confidence=confidence,
            on_similar="keep",
        )
    found = memory.recall("where does the badger sleep?")
    assert [(m.memory.provenance, m.memory.confidence) for m in found] == [
        ("user_stated", 0.9),
        ("user_stated", 0.3),
        ("assistant_derived", 0.8),
    ]


def test_all_weights_at_one_leave_the_hybrid_score_alone(places: Places, tmp_path: Path) -> None:
    constants = {
        "ranking.episode_summary": 1.0,
        "ranking.assistant_derived": 1.0,
        "ranking.confidence_slope": 0.0,
    }
    settings = load_settings(tmp_path, {}).vary(constants)
    with places.memory(settings=settings) as memory:
        memory.remember("The badger sleeps", provenance="assistant_derived", confidence=0.1)
        (found,) = memory.recall("badger", explain=True)
        assert found.parts is not None
        assert found.parts.weight == 1.0
        assert found.parts.relevance == max(0.0, found.parts.cosine)


@pytest.mark.usefixtures("home")
def test_explain_adds_up_to_six_decimals() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    with Memory(clock=lambda: now) as memory:
        memory.remember("The badger sleeps in the barn", created_at=now - 14 * DAY, confidence=0.9)
        (found,) = memory.recall("badger barn", explain=True)
    parts = found.parts
    assert parts is not None
    assert parts.recency == pytest.approx(math.exp(-0.05 * 14), abs=1e-6)
    assert (parts.usefulness, parts.confidence, parts.frequency) == (0.5, 0.9, 0.0)
    total = (
        0.40 * parts.relevance
        + 0.25 * parts.recency
        + 0.20 * parts.usefulness
        + 0.10 * parts.confidence
        + 0.05 * parts.frequency
    )
    assert parts.composite == pytest.approx(total, abs=2e-6)
    assert parts.weight == pytest.approx(1 - 0.3 * (1 - 0.9), abs=1e-6)
    assert parts.relevance == pytest.approx(parts.cosine * parts.weight, abs=2e-6)
    assert all(round(value, composite.SCORE_DECIMALS) == value for value in vars_of(parts))


def vars_of(parts: object) -> list[float]:
    values = [getattr(parts, name) for name in parts.__slots__]  # type: ignore[attr-defined]
    return [value for value in values if isinstance(value, float)]


def test_recall_never_counts_as_use(memory: Memory) -> None:
    made = memory.remember("The badger sleeps")
    memory.recall("badger")
    assert memory.get(made.id).access_count == 0
    assert memory.get(made.id).last_accessed is None


@pytest.mark.usefixtures("home")
def test_an_expired_memory_is_not_found() -> None:
    today = [datetime(2026, 6, 1, tzinfo=UTC)]
    with Memory(clock=lambda: today[0]) as memory:
        memory.remember("The badger sleeps", valid_until=today[0] + DAY)
        assert len(memory.recall("badger")) == 1
        today[0] += 2 * DAY
        assert memory.recall("badger") == []


def test_the_turn_beside_a_hit_is_helped(memory: Memory) -> None:
    def turn(session: str, number: int, text: str) -> dict[str, object]:
        source = Source("chat", session, f"turn {number}")
        return {"content": text, "source": source, "on_similar": "keep"}

    memory.remember_many(
        [
            turn("s1", 1, "Which wine did you choose for the wedding banquet?"),
            turn("s1", 2, "The red one from the valley"),
            turn("s2", 1, "Any plans for the weekend?"),
            turn("s2", 2, "The red one from the market"),
        ]
    )
    found = contents(memory, "red wine for the wedding banquet")
    assert found.index("The red one from the valley") < found.index("The red one from the market")


NEARER, FARTHER = "A canoe leaks", "A canoe leaks a lot"


def chat(session: str, *lines: str) -> list[dict[str, object]]:
    return [
        {"content": line, "source": Source("chat", session, f"turn {number}"), "on_similar": "keep"}
        for number, line in enumerate(lines, start=1)
    ]


def small_talk(count: int) -> list[dict[str, object]]:
    """Sessions with the second word of the question in every fifth, so that it tells less."""
    lines = (f"{'Tea' if n % 5 else 'Varnish'}, try number {n}" for n in range(count))
    return [turn for n, line in enumerate(lines) for turn in chat(f"talk {n}", line)]


def test_a_session_whose_words_are_spread_over_turns_beats_one_with_one_word(
    memory: Memory,
) -> None:
    spread = chat("spread", FARTHER, "So warm", "It was late", "Who knows", "The varnish peels")
    one_word = chat("one word", NEARER, "So cold", "It was early", "Who cares", "The tea is hot")
    memory.remember_many([*small_talk(30), *one_word, *spread[:-1]])
    found = contents(memory, "canoe varnish", limit=50)
    assert found.index(NEARER) < found.index(FARTHER)
    memory.remember_many(spread[-1:])
    found = contents(memory, "canoe varnish", limit=50)
    assert found.index(FARTHER) < found.index(NEARER)


def test_words_of_a_weaker_source_do_not_speak_for_a_session(memory: Memory) -> None:
    answered = chat("answered", FARTHER, "Some varnish will do, I think", "Varnish it")
    for turn in answered[1:]:
        turn["provenance"] = "assistant_derived"
    memory.remember_many([*small_talk(30), *answered, *chat("alone", NEARER, "So warm")])
    found = contents(memory, "canoe varnish", limit=50)
    assert found.index(NEARER) < found.index(FARTHER)


def test_words_of_another_project_do_not_speak_for_a_session(memory: Memory) -> None:
    seen = [*chat("one", NEARER, "So warm"), *chat("two", "Her canoe sank", "That canoe too")]
    memory.remember_many([*small_talk(30), *seen])

    def lead() -> float:
        found = memory.recall("canoe varnish", limit=50, explain=True)
        order = {one.content: one.parts.order for one in found if one.parts is not None}
        return order[NEARER] - order["Her canoe sank"]

    before = lead()
    hidden = chat("one", NEARER, "So warm", "The varnish peels")[-1]
    memory.remember_many([{**hidden, "project": "other"}])
    # How rare a word is counts over all projects, so that scores move by a trifle.
    assert lead() == pytest.approx(before, abs=0.005)


def test_equal_scores_come_in_a_fixed_order(memory: Memory) -> None:
    for name in ("x", "y", "z"):
        memory.remember("badger", agent=None, project=None, tags=[name], on_similar="keep")
    first = [item.id for item in memory.recall("badger")]
    assert first == [item.id for item in memory.recall("badger")]


@pytest.mark.parametrize("query", ["", "   ", "\n", "\ud800", None, 7])
def test_an_empty_query_is_an_error(memory: Memory, query: object) -> None:
    with pytest.raises(InputError):
        memory.recall(query)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 1_001, 2.5, "10", True])
def test_a_bad_limit_is_an_error(memory: Memory, limit: object) -> None:
    with pytest.raises(InputError, match="limit"):
        memory.recall("badger", limit)  # type: ignore[arg-type]


HOSTILE = [
    '"',
    "*",
    "NEAR(",
    "content:x",
    "-badger",
    "^badger",
    "badger AND OR NOT",
    "((((",
    "a\0badger",
    "'; DROP TABLE memories; --",
    "badger " * 10_000,
    "\u202e\u200b\x1b[0m badger",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_no_query_is_a_syntax_error(memory: Memory, query: str) -> None:
    memory.remember("The badger sleeps in the barn")
    found = memory.recall(query)
    assert bool(found) == ("badger" in query)


def test_any_text_may_be_asked(places: Places, tmp_path: Path) -> None:
    with places.memory(settings=load_settings(tmp_path, {})) as memory:
        memory.remember_many(["The badger sleeps in the barn", "日本語のメモ", "naïve café"])

        @given(st.text(min_size=1, max_size=200))
        def ask(text: str) -> None:
            if text.encode("utf-8", "ignore").decode().strip():
                found = memory.recall(text)
                values = [item.score for item in found]
                assert values == sorted(values, reverse=True)
                assert all(0.0 <= value <= 1.0 for value in values)

        ask()


def test_words_alone_do_without_an_embedder(places: Places, tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"embedder.kind": "none"})
    with places.memory(settings=settings) as memory:
        made = memory.remember("The badger sleeps in the barn")
        assert made.embedder is None
        assert contents(memory, "badger") == ["The badger sleeps in the barn"]


def test_expired_memories_do_not_crowd_out_valid_ones(memory: Memory) -> None:
    for number in range(40):
        memory.remember(f"badger badger {number}", valid_until="2025-01-01", on_similar="keep")
    valid = memory.remember("A badger was seen near the old mill by the river")
    assert [hit.id for hit in memory.recall("badger", limit=3)] == [valid.id]


def test_notes_about_one_subject_come_newest_first(memory: Memory) -> None:
    start = datetime(2026, 3, 2, tzinfo=UTC)
    old, new = "The ski bus stops at the church", "The ski bus stops at the fire station"
    memory.remember(old, valid_from=start, on_similar="keep")
    memory.remember(new, valid_from=start + 20 * DAY, on_similar="keep")
    memory.remember("Ski passes are sold at the church", valid_from=start + 30 * DAY)
    found = contents(memory, "Where does the ski bus stop, at the church?")
    assert found.index(new) < found.index(old)
    asked = "Where did the ski bus stop on the day of the race, at the church?"
    found = contents(memory, asked)
    assert found.index(old) < found.index(new)


def test_a_limit_does_not_cut_between_notes_about_one_subject(memory: Memory) -> None:
    start = datetime(2026, 3, 2, tzinfo=UTC)
    old, new = "The ski bus stops at the church", "The ski bus stops at the fire station"
    asked = "Where does the ski bus stop, at the church?"
    memory.remember(old, valid_from=start, on_similar="keep")
    memory.remember(new, valid_from=start + 20 * DAY, on_similar="keep")
    between = ("A ski bus stop is near the church", "The church has a stop for the ski bus")
    for text in between:
        memory.remember(text, valid_from=start - 20 * DAY, on_similar="keep")
    assert set(contents(memory, asked)) == {old, new, *between}
    assert contents(memory, asked, limit=1) == [new]


@pytest.mark.usefixtures("home")
def test_a_question_about_the_state_gets_the_newest_of_the_project() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    items = [
        ("The parser was split into two modules", "episode"),
        ("The next release is called heron", "fact"),
        ("We decided to keep the old importer", "decision"),
        ("The tests of the importer fail since Monday", "episode"),
    ]
    with Memory(project="birds") as memory:
        for day, (text, kind) in enumerate(items):
            at = start + day * DAY
            memory.remember(text, kind=kind, created_at=at, on_similar="keep")
        expected = [items[at][0] for at in (3, 2, 0, 1)]
        for query in ("What's next?", "Wie geht es weiter?", "Et ensuite ?", "¿Qué sigue?", "继续"):
            assert contents(memory, query) == expected
        (first,) = memory.recall("Where were we?", 1, explain=True)
        assert first.parts is not None
        assert "newest first" in first.parts.read_as
        assert contents(memory, "What is the next release called?")[0] == items[1][0]


def test_without_an_episode_or_a_decision_the_state_is_searched_for(memory: Memory) -> None:
    memory.remember("The next meeting is on Monday")
    assert contents(memory, "what is next") == ["The next meeting is on Monday"]


@pytest.mark.parametrize(
    ("query", "read_as"),
    [
        ("kuberntes heron", "kuberntes = kubernetes"),
        ("heron on k8s", "k8s = kubernetes"),
        ("cluster heron", ""),
        ("Kubrenetes, please", "kubrenetes = kubernetes"),
    ],
)
def test_typos_and_abbreviations_find_the_word_of_the_store(
    memory: Memory, query: str, read_as: str
) -> None:
    memory.remember_many(
        {"content": text, "on_similar": "keep"}
        for text in (
            "The kubernetes cluster is in Frankfurt",
            "The heron nests at the pond",
            "Coffee is in the kitchen",
        )
    )
    found = memory.recall(query, explain=True)
    assert "The kubernetes cluster is in Frankfurt" in [hit.content for hit in found]
    assert {hit.parts.read_as for hit in found if hit.parts} == {read_as}


def test_an_exact_word_counts_more_than_another_spelling(memory: Memory) -> None:
    texts = ["The db of the shop is full", "The database of the shop is full"]
    others = [f"Coffee number {number} is in the kitchen" for number in range(10)]
    memory.remember_many({"content": text, "on_similar": "keep"} for text in texts + others)
    for text, query in zip(texts, ("which db", "which database"), strict=True):
        found = memory.recall(query, explain=True)
        assert found[0].content == text
        first, second = (hit.parts.text for hit in found if hit.parts)
        assert first > second > 0.0


@pytest.mark.usefixtures("home")
def test_words_of_others_are_no_corrections() -> None:
    with Memory(user="bob") as memory:
        memory.remember("The zylophone concert is cancelled")
    with Memory(user="ann") as memory:
        memory.remember("The concert is at noon")
        (found,) = memory.recall("zylophon concert", explain=True)
        assert found.parts is not None
        assert found.parts.read_as == ""


def test_an_instruction_that_fits_gains(memory: Memory) -> None:
    memory.remember_many(
        {"content": text, "on_similar": "keep"}
        for text in (
            "The deadline of the grant is in May",
            "Always write dates in ISO style when I ask about a deadline",
            "Coffee is in the kitchen",
        )
    )
    found = memory.recall("when is the deadline", explain=True)
    rule = next(hit for hit in found if hit.content.startswith("Always"))
    fact = next(hit for hit in found if hit.content.startswith("The deadline"))
    assert rule.parts is not None
    assert fact.parts is not None
    assert rule.parts.is_standing
    assert not fact.parts.is_standing
    assert rule.parts.condition > 0.9
    assert rule.score / rule.parts.hybrid > fact.score / fact.parts.hybrid
