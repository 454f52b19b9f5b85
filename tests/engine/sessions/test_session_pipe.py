"""The whole pipe: a scorer in its place, every stage and no other, a store that cannot write."""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_kit import HERON, NOTES, STRIPE, Desk, contents, filler, talk, trailer

from meritory.domain.errors import BadReply, PortError, PortTimeout, StorageError
from meritory.domain.policy import EmbedderSpec
from meritory.domain.session import Candidate
from meritory.engine.pipeline import FLOWS, RANK, Stage, prompt, run_stages
from meritory.engine.predictor.train_job import order
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.prompt import PromptRequest
from meritory.engine.sessions.ranking import Ranking
from meritory.ports.embedder import open_embedder
from meritory.ports.scorer import ScoreRequest
from meritory.rank.fusion import SIMILAR_COSINE
from meritory.store.sqlite.store import SqliteStore
from meritory.text.render import BLOCK_LIMIT_CHARS
from places import Places

CONTEXT = "which item weighs most, in stone, of the harbour and the attic?"
ABOUT_STRIPE = "why do the stripe webhooks fail on the signature header?"


class Stub:
    """A scorer of a test, which holds nothing open."""

    def close(self) -> None:
        """There is nothing to end."""


class Fixed(Stub):
    """A scorer that knows its scores beforehand; what it does not know is not a number."""

    name = "fixed v1"

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores
        self.seen: list[ScoreRequest] = []

    def score(self, request: ScoreRequest) -> Any:
        self.seen.append(request)
        return np.array([self.scores.get(one, math.nan) for one in request.memory_ids])


class Broken(Stub):
    """A scorer that fails."""

    name = "broken"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def score(self, request: ScoreRequest) -> Any:
        raise self.error


class Shaped(Stub):
    """A scorer that answers with the wrong number of scores."""

    name = "shaped"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def score(self, request: ScoreRequest) -> Any:
        return np.zeros(self.shape)


def served(desk: Desk, key: str = "run") -> dict[str, Candidate]:
    return {memory_id: one.candidate for memory_id, one in desk.rows(key).items()}


@pytest.fixture
def store_of_items(desks: Callable[..., Desk]) -> Desk:
    """Many alike items and no vectors, so that diversity has nothing to say."""
    desk = desks(embedder_kind="none")
    desk.note(*filler(80))
    desk.clock.go(days=3)
    return desk


# -- the scorer in its place --------------------------------------------------------------


def test_the_stand_in_goes_through_the_whole_pipe(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_scorer="random")
    desk.grant(0.5)
    desk.note(*filler(60), *NOTES)
    desk.clock.go(days=3)
    session = desk.memory.session("run", context=CONTEXT)
    found = served(desk)
    assert sorted(one.predictor_rank or 0 for one in found.values()) == list(
        range(1, len(found) + 1)
    )
    by_score = sorted(found.values(), key=lambda one: -(one.predictor_score or 0.0))
    assert [one.predictor_rank for one in by_score] == list(range(1, len(found) + 1))
    assert {one.source for one in found.values()} <= {"both", "predictor", "exploration"}
    assert desk.record().alpha == 0.5
    assert session.inject
    served_prompt = session.prompt(ABOUT_STRIPE)
    session.reply(trailer(served_prompt.injection, ("m1", 0.5)))
    desk.finish(session, talk("items?", "The ledger of the harbour weighs 3 stone."))
    assert desk.record().state == "finished"
    assert desk.score() is not None
    names = [one.name for one in desk.store.events("default", session_key="run")]
    assert {"predictor.prefilter", "predictor.score", "predictor.diversity"} <= set(names)
    (score,) = (
        one
        for one in desk.store.events("default", session_key="run")
        if one.name == "predictor.score"
    )
    assert score.details == {
        "model": "random",
        "model_version": 0,
        "count": len(found),
        "top_pick": by_score[0].memory_id,
        "latency_ms": score.details["latency_ms"],
        "alpha": 0.5,
    }
    assert float(score.details["latency_ms"]) >= 0.0
    assert {"session.start", "session.end", "session.learned", "feedback.rated"} <= set(names)


def test_fusion_is_as_it_is_written(store_of_items: Desk) -> None:
    desk = store_of_items
    order = desk.memory.session("before", context=CONTEXT).ranking
    desk.equip(scorer=Fixed({one: float(n) for n, one in enumerate(order)}))
    desk.grant(0.75)
    desk.tune(exploration_rate=0.0)
    session = desk.memory.session("run", context=CONTEXT)
    for one in served(desk).values():
        assert one.baseline_rank is not None
        assert one.predictor_rank == len(order) + 1 - one.baseline_rank
        assert one.final_score == pytest.approx(
            0.75 / (12 + one.baseline_rank) + 0.25 / (12 + one.predictor_rank)
        )
    finals = [served(desk)[one].final_score for one in session.ranking]
    assert finals == sorted(finals, reverse=True)
    assert session.ranking != order


def test_the_ranking_logs_of_how_many_memories_it_chose_its_candidates(
    store_of_items: Desk,
) -> None:
    desk = store_of_items
    desk.tune(candidate_pool_size=50)
    desk.note("The mast is 9 metres high", project="elsewhere")
    desk.note("The tide was low", valid_until=desk.clock.now - timedelta(days=1))
    desk.memory.session("run", context=CONTEXT)
    (logged,) = (
        one.details
        for one in desk.store.events("default", session_key="run")
        if one.name == "predictor.prefilter"
    )
    assert (logged["corpus"], logged["candidates"]) == (80, 50)


def test_a_scorer_without_influence_changes_nothing(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_scorer="random")
    desk.note(*filler(60), *NOTES)
    desk.clock.go(days=3)
    watched = desk.memory.session("run", context=CONTEXT)
    desk.equip(scorer=None)
    alone = desk.memory.session("alone", context=CONTEXT)
    assert watched.ranking == alone.ranking
    assert contents(watched.memories) == contents(alone.memories)
    assert desk.record().alpha == 1.0
    mine, theirs = served(desk), served(desk, "alone")
    assert all(mine[one].predictor_score is not None for one in mine)
    assert [one.baseline_rank for one in mine.values()] == [
        one.baseline_rank for one in theirs.values()
    ]
    assert [one.final_score for one in mine.values()] == [
        one.final_score for one in theirs.values()
    ]
    assert {one.propensity for one in mine.values()} == {1.0}


def test_with_all_the_influence_the_scorer_ranks(store_of_items: Desk) -> None:
    desk = store_of_items
    order = desk.memory.session("before", context=CONTEXT).ranking
    wanted = sorted(order)
    scorer = Fixed({one: -float(n) for n, one in enumerate(wanted)})
    desk.equip(scorer=scorer)
    desk.grant(0.0)
    desk.tune(exploration_rate=0.0)
    assert desk.memory.session("run", context=CONTEXT).ranking == wanted
    (request,) = scorer.seen
    assert request.session_key == "run"
    # What was scored is what is recorded.
    rows = served(desk)
    for place, memory_id in enumerate(request.memory_ids):
        assert rows[memory_id].features == tuple(request.features[place].tolist())
        assert rows[memory_id].feature_version == request.feature_version


def test_what_has_no_score_ranks_behind_all_that_have_one(store_of_items: Desk) -> None:
    desk = store_of_items
    order = desk.memory.session("before", context=CONTEXT).ranking
    desk.equip(scorer=Fixed({order[-1]: 1.0, order[-2]: math.inf}))
    desk.grant(0.0)
    desk.tune(exploration_rate=0.0)
    session = desk.memory.session("run", context=CONTEXT)
    assert session.ranking[0] == order[-1]
    assert session.ranking[1:] == [one for one in order if one != order[-1]]
    rows = served(desk)
    assert rows[order[-1]].predictor_rank == 1
    assert (rows[order[0]].predictor_rank, rows[order[0]].predictor_score) == (None, None)
    assert (rows[order[-2]].predictor_rank, rows[order[-2]].predictor_score) == (None, None)


@pytest.mark.parametrize(
    ("scorer", "stage"),
    [
        (Broken(PortTimeout("too slow")), "predictor_timeout"),
        (Broken(BadReply("nonsense")), "predictor_parse_error"),
        (Broken(PortError("dead")), "predictor_crash"),
        (Shaped((3,)), "predictor_parse_error"),
        (Shaped((0,)), "predictor_parse_error"),
        (Shaped((80, 2)), "predictor_parse_error"),
    ],
)
def test_without_the_scorer_the_baseline_ranks_alone(
    store_of_items: Desk, scorer: object, stage: str
) -> None:
    desk = store_of_items
    alone = desk.memory.session("alone", context=CONTEXT)
    desk.equip(scorer=scorer)
    desk.grant(0.25)
    desk.tune(exploration_rate=1.0)
    session = desk.memory.session("run", context=CONTEXT)
    assert session.ranking == alone.ranking
    assert contents(session.memories) == contents(alone.memories)
    assert [failed for failed, _ in desk.failures()] == [stage]
    # The comparison must not count it: it says that the scorer had no part.
    assert desk.record().alpha == 1.0
    rows = served(desk)
    assert {(one.predictor_score, one.predictor_rank) for one in rows.values()} == {(None, None)}
    assert {one.source for one in rows.values()} == {"effective"}
    assert {one.propensity for one in rows.values()} == {1.0}


def test_the_first_prompt_is_ranked_by_the_scorer_too(store_of_items: Desk) -> None:
    desk = store_of_items
    scorer = Fixed({})
    desk.equip(scorer=scorer)
    desk.grant(0.5)
    desk.tune(exploration_rate=0.0)
    session = desk.memory.session("run")
    first = desk.record().alpha
    scorer.scores = {one: float(n) for n, one in enumerate(session.ranking)}
    session.prompt(CONTEXT)
    assert len(scorer.seen) == 2
    assert (first, desk.record().alpha) == (0.5, 0.5)
    ranked = [one for one in served(desk).values() if one.rank]
    assert any(one.predictor_rank for one in ranked)


def test_required_memories_are_ranked_but_never_suppressed(store_of_items: Desk) -> None:
    desk = store_of_items
    (pin,) = desk.note("The office cat is Minka", pinned=True)
    order = desk.memory.session("before", context=CONTEXT).ranking
    desk.equip(scorer=Fixed({one: 0.0 if one == pin else 1.0 for one in order}))
    desk.grant(0.0)
    desk.tune(exploration_rate=1.0)
    session = desk.memory.session("run", context=CONTEXT)
    assert session.memories[0].id == pin
    assert served(desk)[pin].predictor_rank == len(order)


# -- exploration --------------------------------------------------------------------------


def disputing(desk: Desk, alpha: float, rate: float) -> tuple[list[str], list[str]]:
    """A scorer that turns the baseline's order around; both orders before exploration."""
    order = desk.memory.session("before", context=CONTEXT).ranking
    desk.equip(scorer=Fixed({one: float(n) for n, one in enumerate(order)}))
    desk.grant(alpha)
    desk.tune(exploration_rate=0.0, start_limit=5)
    plain = [one.id for one in desk.memory.session("plain", context=CONTEXT).memories]
    desk.tune(exploration_rate=rate)
    return order, plain


def test_the_lowest_slot_goes_to_what_both_dispute_most(store_of_items: Desk) -> None:
    desk = store_of_items
    order, plain = disputing(desk, alpha=0.9, rate=1.0)
    assert len(order) > 60
    session = desk.memory.session("run", context=CONTEXT)
    shown = [one.id for one in session.memories]
    assert shown[:-1] == plain[:-1]
    # The baseline's last, which the scorer puts first.
    assert shown[-1] == order[-1]
    rows = served(desk)
    assert rows[order[-1]].source == "exploration"
    assert rows[order[-1]].was_injected
    assert not rows[plain[-1]].was_injected
    (event,) = [
        one
        for one in desk.store.events("default", session_key="run")
        if one.name == "session.start"
    ]
    assert event.details["explored"] == order[-1]


def test_the_chance_of_every_choice_is_logged(store_of_items: Desk) -> None:
    desk = store_of_items
    disputing(desk, alpha=0.9, rate=0.25)
    seen = {True: 0, False: 0}
    for n in range(24):
        desk.memory.session(f"s{n}", context=CONTEXT)
        rows = served(desk, f"s{n}").values()
        is_explored = any(one.source == "exploration" for one in rows)
        seen[is_explored] += 1
        # The two that chance decided between: one is shown and the other is not.
        asked = [one for one in rows if one.propensity != 1.0]
        assert sorted(one.was_injected for one in asked) == [False, True]
        assert {one.propensity for one in asked} == {0.25 if is_explored else 0.75}
        assert all(one.was_injected for one in asked if one.source == "exploration")
    assert seen[True] < 20


def test_nothing_is_tried_out_in_cold_start(store_of_items: Desk) -> None:
    desk = store_of_items
    order, plain = disputing(desk, alpha=1.0, rate=1.0)
    session = desk.memory.session("run", context=CONTEXT)
    assert [one.id for one in session.memories] == plain == order[:5]
    assert {one.propensity for one in served(desk).values()} == {1.0}
    assert "exploration" not in {one.source for one in served(desk).values()}


def test_nothing_of_today_is_tried_out(desks: Callable[..., Desk]) -> None:
    """Not even what claims to hold since long ago."""
    desk = desks(embedder_kind="none")
    desk.note(*filler(30))
    desk.note(*filler(60)[30:], valid_from=desk.clock.now.replace(year=2020))
    desk.clock.go(hours=23)
    disputing(desk, alpha=0.9, rate=1.0)
    desk.memory.session("run", context=CONTEXT)
    assert "exploration" not in {one.source for one in served(desk).values()}
    desk.clock.go(hours=2)
    desk.memory.session("later", context=CONTEXT)
    assert "exploration" in {one.source for one in served(desk, "later").values()}


# -- stages -------------------------------------------------------------------------------


def test_every_stage_in_the_tables_runs_and_no_other(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_scorer="random")
    desk.grant(0.5)
    desk.note(*NOTES)
    assert desk.stages() == set()
    expected: set[str] = set()

    def ran(flow: str) -> None:
        expected.update(f"{flow}.{stage.name}" for stage in FLOWS[flow])
        assert desk.stages() == expected

    session = desk.memory.session("run")
    ran("start")
    session.prompt(ABOUT_STRIPE)
    session.prompt("and again: " + ABOUT_STRIPE)
    ran("prompt")
    asked = "Always check the signature of stripe webhooks."
    session.end(talk(asked, "I went by the signature header of the webhooks."))
    ran("end")
    desk.memory.drain()
    expected.update(f"extract.{stage.name}" for stage in FLOWS["extract"])
    ran("learn")
    now = desk.clock.now
    desk.store.write("default", lambda transaction: order(transaction, "default", "asked", now))
    desk.memory.drain()
    ran("train")
    assert expected == {f"{flow}.{one.name}" for flow, stages in FLOWS.items() for one in stages}


def test_a_known_session_runs_no_stage_again(desk: Desk) -> None:
    desk.note(*NOTES)
    desk.memory.session("run")
    counts = {one.operation: one.count for one in desk.memory.services.observer.latencies()}
    desk.memory.session("run")
    again = {one.operation: one.count for one in desk.memory.services.observer.latencies()}
    assert again.pop("session_start") == 2
    counts.pop("session_start")
    assert again == counts


def test_a_ranking_on_the_first_prompt_is_timed_stage_by_stage(desk: Desk) -> None:
    desk.note(*NOTES)

    def counts() -> dict[str, int]:
        latencies = desk.memory.services.observer.latencies()
        return {latency.operation: latency.count for latency in latencies}

    session = desk.memory.session("run")
    session.prompt(ABOUT_STRIPE)
    assert {counts()[f"start.{stage.name}"] for stage in RANK} == {2}
    assert counts()["start.packing"] == counts()["prompt.recall"] == 1
    # Later prompts search by their words and do not rank again.
    session.prompt("and again: " + ABOUT_STRIPE)
    assert {counts()[f"start.{stage.name}"] for stage in RANK} == {2}


@pytest.mark.parametrize(
    "stage", [stage for stages in FLOWS.values() for stage in stages], ids=lambda stage: stage.name
)
def test_every_stage_says_where_it_is_written(stage: Stage[Any]) -> None:
    module, _, line = stage.location.partition(":")
    lines = Path(str(importlib.import_module(module).__file__)).read_text().splitlines()
    assert lines[int(line) - 1].startswith(f"def {stage.run.__name__}(")
    assert stage.budget_ms > 0 and stage.about


def test_an_error_without_a_fallback_ends_the_run(desk: Desk) -> None:
    def fail(run: Ranking) -> None:
        raise BadReply("nonsense")

    run = Ranking(desk.memory.services, StartRequest("run", desk.memory.scope))
    with pytest.raises(BadReply):
        run_stages("start", (Stage("fail", fail, 1.0, "fails"),), run)
    assert desk.failures() == []
    fallback = {PortError: "predictor_crash"}
    run_stages("start", (Stage("fail", fail, 1.0, "fails", fallback),), run)
    assert [name for name, _ in desk.failures()] == ["predictor_crash"]


# -- a store that cannot write ------------------------------------------------------------


class Seal:
    """Makes a store unable to write, as a full or a read-only disk does, and able again."""

    def __init__(self, desk: Desk, kind: str) -> None:
        store = desk.store
        assert isinstance(store, SqliteStore)
        self._writer = store._engine._writer
        self.kind = kind

    def close(self) -> None:
        if self.kind == "read_only":
            self._writer.execute("PRAGMA query_only = ON")
            return
        (pages,) = self._writer.execute("PRAGMA page_count").fetchone()
        (free,) = self._writer.execute("PRAGMA freelist_count").fetchone()
        assert free == 0
        self._writer.execute(f"PRAGMA max_page_count = {pages}")

    def open(self) -> None:
        self._writer.execute("PRAGMA query_only = OFF")
        self._writer.execute("PRAGMA max_page_count = 1000000")


class ServerSeal:
    """The same for a database: every write is answered as by a server without space, or a copy."""

    def __init__(self, places: Places, kind: str) -> None:
        self._places = places
        self.kind = kind

    def close(self) -> None:
        state = {"disk_full": "53100", "read_only": "25006"}[self.kind]
        self._places.execute(
            f"""CREATE FUNCTION sealed() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'sealed' USING ERRCODE = '{state}'; END $$"""
        )
        for (table,) in self._places.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'meritory'"
        ):
            self._places.execute(
                f"""CREATE TRIGGER sealed BEFORE INSERT OR UPDATE ON {table}
                    FOR EACH STATEMENT EXECUTE FUNCTION sealed()"""
            )

    def open(self) -> None:
        self._places.execute("DROP FUNCTION IF EXISTS sealed CASCADE")


@pytest.fixture(params=["disk_full", "read_only"])
def seal(request: pytest.FixtureRequest, desk: Desk, places: Places) -> Iterator[Seal | ServerSeal]:
    """A seal for the desk's store."""
    kind: str = request.param
    made = Seal(desk, kind) if places.server is None else ServerSeal(places, kind)
    yield made
    made.open()


only_read = pytest.mark.parametrize("seal", ["read_only"], indirect=True)


def fill_pages(desk: Desk) -> None:
    """Makes records so large that none fits into what is left of the last page."""
    desk.note(*filler(150), *NOTES)


def test_an_agent_is_served_when_its_session_cannot_be_recorded(desk: Desk, seal: Seal) -> None:
    fill_pages(desk)
    seal.close()
    session = desk.memory.session("run", context="heron login")
    assert HERON in session.inject
    assert not session._served.is_recorded
    assert desk.failures() == [("session_record", seal.kind)]
    assert desk.store.sessions("default", 9) == []
    # Prompts too: each starts the session anew as far as anybody knows.
    text = session.prompt("heron login").inject
    assert HERON in text
    assert len(desk.failures()) == 2
    seal.open()
    again = desk.memory.session("run", context="heron login")
    assert again._served.is_recorded
    assert again.inject == session.inject
    assert desk.record().injection_count == 1


def test_a_prompt_is_answered_when_it_cannot_be_recorded(desk: Desk, seal: Seal) -> None:
    fill_pages(desk)
    session = desk.memory.session("run", context="heron")
    desk.note(*(f"stripe webhooks {n} {text}" for n, text in enumerate(filler(6))))
    seal.close()
    request = PromptRequest("run", desk.memory.scope, ABOUT_STRIPE)
    # What fits into the last page is still recorded.
    while True:
        before = desk.state()
        answers = [prompt(desk.memory.services, request)]
        if not answers[0].is_recorded:
            break
        session.compact()
    answers.append(prompt(desk.memory.services, request))
    assert STRIPE in answers[0].inject
    # Nothing was noted, so the same question has the same answer.
    assert answers[0].inject == answers[1].inject
    assert answers[0].injection == answers[1].injection
    assert desk.state() == before
    assert set(desk.failures()) == {("prompt_record", seal.kind)}
    seal.open()
    last = prompt(desk.memory.services, request)
    assert last.is_recorded
    assert last.inject == answers[0].inject
    assert session.memories


@only_read
def test_a_session_that_goes_on_is_told_again_even_if_that_cannot_be_noted(
    desk: Desk, seal: Seal
) -> None:
    fill_pages(desk)
    session = desk.memory.session("run", context="heron login")
    session.end()
    seal.close()
    again = desk.memory.session("run")
    assert again.inject == session.inject
    assert not again._served.is_recorded
    assert desk.record().state == "ended"
    assert desk.failures() == [("session_record", "read_only")]
    seal.open()
    assert desk.memory.session("run")._served.is_recorded
    assert desk.record().state == "open"


@only_read
def test_what_must_not_get_lost_says_that_it_was_not_stored(desk: Desk, seal: Seal) -> None:
    fill_pages(desk)
    session = desk.memory.session("run", context="heron login")
    seal.close()
    for work in (
        lambda: session.rate({"m1": 1.0}),
        lambda: session.reply(trailer(session.injection, ("m1", 1.0))),
        lambda: session.end(talk("heron?", "heron.")),
        session.compact,
    ):
        with pytest.raises(StorageError):
            work()
    seal.open()
    assert desk.record().state == "open"
    assert desk.store.ratings("default", "run") == []
    session.rate({"m1": 1.0})
    session.end(talk("heron?", "heron."))
    assert desk.memory.drain() == 1
    assert len(desk.store.ratings("default", "run")) == 1


# -- whole lives --------------------------------------------------------------------------


class Life:
    """One session among random deeds, checked against what must hold whatever happens."""

    def __init__(self, desk: Desk, chance: random.Random) -> None:
        self.desk = desk
        self.chance = chance
        self.handles: dict[str, str] = {}
        self.in_context: set[str] = set()
        self.harmful: set[str] = set()
        self.codes: set[str] = set()
        self.session = desk.memory.session("run", context=chance.choice([None, "item stone"]))
        self.see(self.session.memories, self.session.inject)

    def see(self, shown: Any, text: str) -> None:
        """What was just put before the agent."""
        for one in shown:
            assert self.handles.setdefault(one.handle, one.id) == one.id
            assert one.id not in self.in_context | self.harmful
            assert one.memory.is_live
            assert one.memory.trust == "trusted"
            self.in_context.add(one.id)
        assert len(set(self.handles.values())) == len(self.handles)
        assert len(text) <= BLOCK_LIMIT_CHARS

    def step(self) -> None:
        deed = self.chance.choice(
            [self.prompt] * 5
            + [self.rate] * 3
            + [self.reply, self.compact, self.resume]
            + [self.remember] * 2
            + [self.forget, self.purge, self.pin, self.change, self.learn]
        )
        deed()
        self.desk.clock.go(minutes=self.chance.randint(0, 90))
        self.check()

    def prompt(self) -> None:
        words = self.chance.sample(" ".join(filler(9)).split(), 5)
        served = self.session.prompt(" ".join(words))
        assert served.is_recorded
        if served.injection:
            assert served.injection not in self.codes
            self.codes.add(served.injection)
        self.see(served.memories, served.inject)

    def rate(self) -> None:
        handle = f"m{self.chance.randint(1, 12)}"
        score = self.chance.choice([1.0, 0.0, -0.25, -0.75])
        taken = self.session.rate({handle: score}).taken
        known = {str(one.handle) for one in self.desk.store.shown("default", "run")}
        assert bool(taken) == (handle in known)
        if taken and score <= -0.5:
            self.harmful.add(taken[0].memory_id)

    def reply(self) -> None:
        code = self.chance.choice([self.session.injection, "0123456789", *self.codes])
        answer = self.session.reply(trailer(code, ("m1", 0.5)))
        assert len(answer.taken) + len(answer.refused) == 1

    def compact(self) -> None:
        self.session.compact()
        self.in_context.clear()

    def resume(self) -> None:
        self.session.end(self.chance.choice([None, talk("items?", "The ledger weighs 3 stone.")]))
        if self.chance.random() < 0.5:
            self.learn()
        self.session = self.desk.memory.session("run")
        # It is told the same again, whether or not it still has it before its eyes.
        self.in_context -= {one.id for one in self.session.memories}
        self.see(self.session.memories, self.session.inject)

    def some(self) -> str:
        return self.chance.choice([one.id for one in self.desk.memory.page(1_000)])

    def remember(self) -> None:
        number = self.chance.randint(200, 10**6)
        origin = self.chance.choice(["user", "user", "web"])
        self.desk.note(f"Item {number}: the ledger of the attic is new", origin=origin)

    def forget(self) -> None:
        gone = self.some()
        self.desk.memory.forget(gone)
        if self.chance.random() < 0.5:
            self.desk.memory.undo(gone)

    def purge(self) -> None:
        self.desk.memory.forget(self.some(), purge=True)

    def pin(self) -> None:
        self.desk.memory.update(self.some(), pinned=self.chance.random() < 0.5)

    def change(self) -> None:
        self.desk.memory.update(self.some(), content=f"Item {self.chance.random()}: other")

    def learn(self) -> None:
        self.desk.memory.drain()
        # Chance alone proves nothing, so it was taken away again.
        self.desk.grant(0.5)

    def check(self) -> None:
        record, rows = self.desk.record(), self.desk.rows()
        ranks = sorted(one.candidate.rank for one in rows.values() if one.candidate.rank)
        assert len(set(ranks)) == len(ranks)
        assert {one.memory_id for one in rows.values() if one.handle} == {
            one.memory_id for one in rows.values() if one.candidate.was_injected
        }
        assert {one.handle: one.memory_id for one in rows.values() if one.handle}.items() <= (
            self.handles.items()
        )
        assert record.handle_count >= len(self.handles)
        injections = self.desk.store.injections("default", "run")
        assert [one.number for one in injections] == list(range(1, record.injection_count + 1))
        now = {one.memory_id for one in rows.values() if one.in_context}
        assert now <= self.in_context
        assert all(-1.0 <= one.label <= 1.0 for one in rows.values() if one.label is not None)
        assert all(0.0 < one.usefulness < 1.0 for one in self.desk.memory.page(1_000))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_record_holds(desks: Callable[..., Desk], seed: int) -> None:
    desk = desks(embedder_kind="none", predictor_scorer="random", session_start_limit=4)
    desk.grant(0.5)
    desk.tune(exploration_rate=0.5)
    desk.note(*filler(25))
    desk.clock.go(days=2)
    life = Life(desk, random.Random(seed))
    for _ in range(30):
        life.step()
    desk.finish(life.session, talk("items?", "The ledger weighs 3 stone."))
    assert desk.record().state == "finished"


# -- what repeats something better ----------------------------------------------------------

BODY = "import os, csv, json\nfrom pathlib import Path\ndef run(path): return json.loads(path)"


@pytest.mark.parametrize(
    ("texts", "lowered"),
    [
        # Files with their paths as titles, and paths alone.
        ((f"src/routers/stt.py\n{BODY}", f"src/routers/tts.py\n{BODY}"), 0),
        (("src/routers/agent_tools.py", "src/routers/agents_tools.py"), 0),
        # The same thing said twice.
        (
            (
                "The nightly export of all invoices runs at two on the machine heron",
                "The nightly export of all the invoices runs at two on the machine called heron",
            ),
            1,
        ),
    ],
)
def test_files_never_repeat_each_other_and_claims_may(
    desk: Desk, texts: tuple[str, str], lowered: int
) -> None:
    desk.note(*texts)
    vectors = open_embedder(EmbedderSpec()).embed_documents(list(texts))
    assert float(vectors[0] @ vectors[1]) > SIMILAR_COSINE
    desk.memory.session("run", context=texts[0])
    (event,) = (
        one
        for one in desk.store.events("default", session_key="run")
        if one.name == "predictor.diversity"
    )
    assert event.details["lowered"] == lowered
