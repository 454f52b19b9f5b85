"""Measuring: through the product's own recall and serving, and never on anybody's store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_kit import NAMED, facts, fingerprint, opened, probes, sandboxed
from meritory.domain.errors import Conflict, InputError, NotFound, ReadOnlyStore
from meritory.domain.memory import Scope
from meritory.domain.place import Place
from meritory.domain.policy import Policy, RecallPolicy, SourceWeights
from meritory.engine.pipeline import start
from meritory.engine.quality import saved_runs
from meritory.engine.sessions.context import StartRequest
from meritory.lab import results
from meritory.lab.measure import (
    FrozenStore,
    MeasurePlan,
    Sandbox,
    anchored,
    copied,
    folder,
    measure,
    measure_rebuilt,
    rebuild,
)
from meritory.lab.results import sweep
from meritory.store.sqlite.backup import snapshot
from places import open_raw

pytestmark = pytest.mark.files_only("measures on throw-away copies of a file")


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A store with claims, an ended session and a counter or two."""
    file = tmp_path / "meritory.db"
    with opened(file) as memory:
        memory.remember_many([{"content": fact} for fact in facts()])
        with memory.session("s1", context="what is the mail relay called?") as session:
            session.prompt("and the build server?")
    return file


# Finds nothing that a user said.
DEAF = Policy(ranking=SourceWeights(user_stated=0.0), recall=RecallPolicy(relevance_floor=1.0))


def run(sandbox: Sandbox, plan: MeasurePlan | None = None) -> dict[str, object]:
    asked = probes()
    outcomes = measure(sandbox, asked, anchored(sandbox, asked), plan or MeasurePlan())
    return results.result(outcomes, at="2026-01-01T00:00:00+00:00")


def test_a_run_agrees_with_recall(live: Path) -> None:
    with sandboxed(live) as sandbox:
        asked = probes()
        outcomes = measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan())
    with opened(live) as memory:
        for outcome in outcomes:
            found = [one.content for one in memory.recall(outcome.probe.question)]
            assert outcome.hit is not None
            assert outcome.hit.rank == found.index(outcome.probe.expected[0]) + 1


def test_in_prompt_is_what_an_agent_is_really_shown(live: Path) -> None:
    """The same session, held on a copy that may be written, shows the same memories."""
    asked = probes()[:6]
    with sandboxed(live) as sandbox:
        outcomes = measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan(with_session=True))
    for number, outcome in enumerate(outcomes):
        with copied(Place(file=live)) as copy, opened(copy) as memory:
            session = memory.session(f"real-{number}")
            session.prompt(outcome.probe.question)
            shown = {one.id for one in session.memories}
        assert outcome.hit is not None
        assert outcome.hit.in_prompt == bool(shown & outcome.anchor.memory_ids)
        assert outcome.hit.in_prompt


def test_a_small_budget_leaves_targets_out_of_the_prompt(live: Path) -> None:
    with sandboxed(live) as sandbox:
        policy = sandbox.services.policy
        none = replace(policy, session=replace(policy.session, start_limit=0, prompt_limit=0))
        asked = probes()[:5]
        found = measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan(none, True))
    assert [one.hit.in_prompt for one in found if one.hit] == [False] * 5


def test_asking_in_another_order_changes_nothing(live: Path) -> None:
    with sandboxed(live) as sandbox:
        asked = probes()
        plan = MeasurePlan(with_session=True)
        there = measure(sandbox, asked, anchored(sandbox, asked), plan)
        back = measure(sandbox, asked[::-1], anchored(sandbox, asked[::-1]), plan)
    pairs = zip(there, back[::-1], strict=True)
    for one, other in pairs:
        assert one.hit is not None
        assert other.hit is not None
        assert (one.hit.rank, one.hit.in_prompt) == (other.hit.rank, other.hit.in_prompt)


def test_probes_whose_memory_is_gone_are_counted_apart(live: Path) -> None:
    with opened(live) as memory:
        for fact in facts()[:5]:
            memory.forget(memory.recall(fact, 1)[0].id)
    with sandboxed(live) as sandbox:
        found = run(sandbox)
    assert (found["probes"], found["scored"], found["drifted"]) == (25, 20, 5)
    assert found["figures"]["p@1"]["mean"] == 1.0  # type: ignore[index]


# -- nothing is written ---------------------------------------------------------------------


def test_a_store_is_byte_for_byte_the_same_after_everything(live: Path) -> None:
    before = fingerprint(live)
    with sandboxed(live) as sandbox:
        copy = fingerprint(sandbox.services.store.path)
        run(sandbox, MeasurePlan(with_session=True))
        run(sandbox, MeasurePlan(Policy(ranking=SourceWeights(assistant_derived=1.0)), True))
        # Not even the copy is written while something is measured.
        assert fingerprint(sandbox.services.store.path) == copy
    assert fingerprint(live) == before


def test_a_store_can_be_measured_while_somebody_writes_to_it(live: Path) -> None:
    with opened(live) as memory, sandboxed(live) as sandbox:
        memory.remember("The newest claim is called walrus")
        found = run(sandbox)
        assert found["scored"] == 25
        assert memory.recall("newest claim", 1)[0].content.endswith("walrus")
    with sandboxed(live) as sandbox:
        assert sandbox.services.store.totals("default")["live"] == 26


def test_a_store_of_an_older_version_is_not_migrated(live: Path, tmp_path: Path) -> None:
    from contextlib import closing

    old = Path(__file__).parents[2] / "fixtures" / "schemas" / "sqlite-0001.sql"
    file = tmp_path / "old.db"
    with closing(open_raw(file)) as connection:
        connection.executescript(old.read_text("utf-8"))
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    before = fingerprint(file)
    with copied(Place(file=file)) as copy, opened(copy) as memory:
        assert memory.stats()["live"] >= 0
    assert fingerprint(file) == before


def test_nothing_can_be_measured_on_a_store_that_is_no_copy(live: Path) -> None:
    with opened(live) as memory, pytest.raises(Conflict, match="not a throw-away copy"):
        Sandbox(memory.services)


def test_a_frozen_store_refuses_every_write(live: Path) -> None:
    with sandboxed(live) as sandbox:
        services = sandbox.frozen()
        with pytest.raises(ReadOnlyStore):
            services.store.write("default", lambda transaction: transaction.count("default", "x"))
        for name in ("register_embedder", "serve_embedder", "erase_traces"):
            with pytest.raises(ReadOnlyStore):
                getattr(services.store, name)("x")
        served = start(services, StartRequest("new", Scope("default"), "the mail relay"))
        assert served.memories
        assert not served.is_recorded
        assert services.counter is None


def test_a_frozen_store_knows_every_verb_that_writes() -> None:
    """A verb that is added to the contract and changes something must be refused as well."""
    from meritory.store.contract.store import Store

    reads_only = {
        name
        for name in dir(Store)
        if not name.startswith("_") and name not in ("write", "backup", "close", "tidy", "path")
    }
    changing = {name for name in reads_only if name.startswith(("register", "serve_", "erase"))}
    assert changing <= set(vars(FrozenStore))


def test_a_copy_is_private_and_gone_afterwards(live: Path) -> None:
    with copied(Place(file=live)) as copy:
        assert copy.stat().st_mode & 0o077 == 0
        assert copy.parent.stat().st_mode & 0o077 == 0
        kept = copy
    assert not kept.parent.exists()


def test_only_a_store_can_be_copied(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store"):
        snapshot(tmp_path / "nothing.db", tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))
    (tmp_path / "taken.db").write_bytes(b"x")
    with opened(tmp_path / "a.db"):
        pass
    with pytest.raises(InputError, match="exists already"):
        snapshot(tmp_path / "a.db", tmp_path / "taken.db")


# -- comparisons ----------------------------------------------------------------------------


def test_the_gate_refuses_a_planted_regression_and_passes_an_improvement(live: Path) -> None:
    """Under a policy that hears neither words nor meaning of agents nothing of theirs is found."""
    with opened(live) as memory:
        for record in memory.page(100):
            memory.update(record.id, confidence=0.0)
    with sandboxed(live) as sandbox:
        good = run(sandbox)
        bad = run(sandbox, MeasurePlan(DEAF))
    assert results.compared(good, bad)["verdict"] == "fail"
    assert results.compared(bad, good)["verdict"] == "pass"
    same = results.compared(good, good)
    assert same["verdict"] == "pass"
    assert "as before" in same["statement"]


def test_five_probes_are_not_enough_to_compare(live: Path) -> None:
    with sandboxed(live) as sandbox:
        asked = probes()[:5]
        few = results.result(measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan()))
    found = results.compared(few, few)
    assert found["verdict"] == "not enough data"
    assert "5 pairs; at least 20 are needed" in found["statement"]


def test_runs_of_different_probes_are_not_compared(live: Path) -> None:
    with sandboxed(live) as sandbox:
        whole = run(sandbox)
        asked = probes()[1:]
        part = results.result(measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan()))
    with pytest.raises(InputError, match="different probes"):
        results.compared(whole, part)


def test_a_probe_that_drifted_in_one_run_counts_in_neither(live: Path) -> None:
    with sandboxed(live) as sandbox:
        before = run(sandbox)
    with opened(live) as memory:
        memory.forget(memory.recall(facts()[0], 1)[0].id)
    with sandboxed(live) as sandbox:
        after = run(sandbox)
    found = results.compared(before, after)
    assert (found["pairs"], found["left_out"]) == (24, 1)


def test_a_sweep_says_so_when_nothing_differs(live: Path) -> None:
    with sandboxed(live) as sandbox:
        policies = {
            "": None,
            "0.6": Policy(ranking=SourceWeights(assistant_derived=0.6)),
            "off": DEAF,
        }

        runs = {name: run(sandbox, MeasurePlan(policy)) for name, policy in policies.items()}
    calm = sweep([{}, {"x": "0.6"}], [runs[""], runs["0.6"]], 0.02)
    wild = sweep([{}, {"x": "off"}], [runs[""], runs["off"]], 0.02)
    assert "keep the current one" in calm["statement"]
    assert [row["on_front"] for row in calm["results"]] == [True, True]
    assert "none of them without a loss" in wild["statement"]
    assert [row["on_front"] for row in wild["results"]] == [True, False]


# -- the gate, tried on a store that is written anew -----------------------------------------


def test_a_gate_that_loses_claims_is_found_out(live: Path) -> None:
    """Writing everything anew keeps it; without the claims that merge away probes are lost."""
    with sandboxed(live) as sandbox, folder() as place:
        asked = probes()
        known = measure(sandbox, asked, anchored(sandbox, asked), MeasurePlan())
        with opened(place / "same.db") as made:
            outcomes = rebuild(sandbox.services, made.services)
            assert sum(outcomes.values()) >= len(facts())
            same = measure_rebuilt(Sandbox(made.services), known, MeasurePlan())
            for fact in facts()[:10]:
                made.forget(made.recall(fact, 1)[0].id)
            lost = measure_rebuilt(Sandbox(made.services), known, MeasurePlan())
    base = results.result(known)
    assert results.compared(base, results.result(same))["verdict"] == "pass"
    found = results.compared(base, results.result(lost))
    assert found["verdict"] == "fail"
    assert found["pairs"] == len(asked)


def test_weights_reach_the_ranking(tmp_path: Path) -> None:
    """An agent's claim and a user's compete; who wins is a matter of the weights."""
    file = tmp_path / "two.db"
    with opened(file) as memory:
        for thing, animal in list(NAMED.items())[:3]:
            memory.remember(f"The {thing} is called {animal}", origin="agent")
            memory.remember(f"Somebody painted the {thing} yellow", on_similar="keep")
    with sandboxed(file) as sandbox:
        asked = probes()[:3]
        anchors = anchored(sandbox, asked)
        ranks = [
            [
                one.hit.rank
                for one in measure(sandbox, asked, anchors, MeasurePlan(policy))
                if one.hit
            ]
            for weight in (1.0, 0.05)
            for policy in (Policy(ranking=SourceWeights(assistant_derived=weight)),)
        ]
    assert ranks[0] == [1, 1, 1]
    assert ranks[1] != [1, 1, 1]


# -- saved runs -----------------------------------------------------------------------------


def test_a_saved_run_comes_back_and_is_nobody_elses(live: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sandboxed(live) as sandbox:
        made = run(sandbox)
    file = saved_runs.save(home, "before", made)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    assert results.compared(saved_runs.load(home, "before"), made)["pairs"] == 25
    assert saved_runs.load(home, str(file))["name"] == "before"
    (listed,) = saved_runs.saved(home)
    assert listed["name"] == "before"
    assert "results" not in listed


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 90, "a b", "-x"])
def test_a_name_is_a_files_and_nothing_else(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="invalid name for a run"):
        saved_runs.save(tmp_path, name, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"format": 1}', "\x00", '{"format": 99, "results": []}', "[" * 20_000],
)
def test_what_is_no_run_is_refused_and_hides_no_other(body: str, tmp_path: Path) -> None:
    folder_ = saved_runs.runs_folder(tmp_path)
    folder_.mkdir()
    (folder_ / "bad.json").write_text(body)
    with pytest.raises(InputError, match="not a saved run"):
        saved_runs.load(tmp_path, "bad")
    assert saved_runs.saved(tmp_path) == []
    with pytest.raises(NotFound, match="unknown run"):
        saved_runs.load(tmp_path, "other")
