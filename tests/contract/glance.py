"""What the dashboard asks: what changed, what there is, how sessions went, how entities hang."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from contract.builders import NOW, about, ids, indexed, insert, memory_id, record, update
from contract.feedback import event as reported
from contract.rules import RULE
from contract.sessions import USER, begin, injection, verdict
from meritory.domain.errors import NotFound
from meritory.domain.memory import Entity, EveryScope, Listing, Scope
from meritory.domain.predictor import Comparison
from meritory.domain.rule import RuleEvent
from meritory.domain.session import SessionQuery, SessionSummary
from meritory.store.contract.store import Store

OTHER = "somebody else"
MINUTE = timedelta(minutes=1)


def compared(key: str, won: float | None, margin: float = 0.25) -> Comparison:
    """How the predictor did in a session."""
    told: dict[str, Any] = {"scorer": None, "model_version": None, "project": None}
    return Comparison(
        session_key=key,
        at=NOW,
        predictor_ndcg=None if won is None else 0.5 + margin,
        baseline_ndcg=None if won is None else 0.5,
        predictor_won=won,
        scorer_confidence=0.9,
        reason=None if won is not None else "nothing helped",
        ema_updated=won is not None,
        success_rate=0.5,
        alpha=1.0,
        predictor_top_ids=(),
        baseline_top_ids=(),
        relevance_scores={},
        fts_overlap_score=None,
        **told,
    )


def played(store: Store) -> None:
    """Six sessions, a minute apart: one of each outcome, one nobody judged, one thrown out."""
    outcomes = {"win": 1.0, "loss": 0.0, "tie": 0.5, "unhelped": None}
    for place, key in enumerate((*outcomes, "open", "thrown out")):
        project = "shop" if place % 2 else None
        begin(store, key=key, started_at=NOW + place * MINUTE, project=project)
    for key, won in outcomes.items():
        store.write(USER, lambda t, key=key, won=won: t.put_comparison(USER, compared(key, won)))
    thrown = verdict(excluded="the judge was unsure")
    store.write(USER, lambda t: t.put_verdict(USER, "thrown out", thrown, []))


def keys(found: list[SessionSummary]) -> list[str]:
    """The keys of sessions, in their order."""
    return [one.session.key for one in found]


class Glance:
    def test_a_page_of_sessions_tells_how_each_went(self, store: Store) -> None:
        played(store)
        found = store.session_page(USER, SessionQuery())
        assert {one.session.key: one.outcome for one in found} == {
            "win": "win",
            "loss": "loss",
            "tie": "tie",
            "unhelped": "excluded",
            "thrown out": "excluded",
            "open": None,
        }
        assert keys(found) == ["thrown out", "open", "unhelped", "tie", "loss", "win"]
        assert [one.margin for one in found] == [None, None, None, 0.25, 0.25, 0.25]
        assert [one.reason for one in found][:3] == ["the judge was unsure", None, "nothing helped"]
        assert store.session_summary(USER, "win") == found[-1]
        assert store.session_summary(USER, "win").session == store.session(USER, "win")
        with pytest.raises(NotFound):
            store.session_summary(USER, "nobody")

    def test_sessions_are_asked_for_by_outcome_project_and_time(self, store: Store) -> None:
        played(store)

        def page(**asked: Any) -> list[str]:
            return keys(store.session_page(USER, SessionQuery(**asked)))

        assert page(outcome="excluded") == ["thrown out", "unhelped"]
        assert [page(outcome=one) for one in ("win", "loss", "tie")] == [["win"], ["loss"], ["tie"]]
        assert page(project="shop") == ["thrown out", "unhelped", "loss"]
        assert page(since=NOW + 4 * MINUTE) == ["thrown out", "open"]
        assert page(until=NOW + 2 * MINUTE) == ["loss", "win"]
        assert page(project="shop", outcome="loss", since=NOW) == ["loss"]
        assert page(limit=2) == ["thrown out", "open"]
        assert page(limit=2, before="open") == ["unhelped", "tie"]
        assert page(outcome="excluded", before="thrown out") == ["unhelped"]
        assert page(before="nobody") == []

    def test_a_memory_knows_the_sessions_it_was_put_before(self, store: Store) -> None:
        insert(store, record(1), record(2))
        for place, key in enumerate(("first", "second", "third")):
            begin(store, 1, 2, key=key, started_at=NOW + place * MINUTE)
        store.write(USER, lambda t: t.put_injection(USER, "first", injection(1, 1)))
        store.write(USER, lambda t: t.put_injection(USER, "third", injection(1, 2, 1)))
        store.write(USER, lambda t: t.put_comparison(USER, compared("first", 1.0)))
        found = store.shown_in(USER, memory_id(1), 9)
        told = [(one.session_key, one.handle, one.rank, one.outcome) for one in found]
        assert told == [("third", "m2", 1, None), ("first", "m1", 1, "win")]
        assert [one.started_at for one in found] == [NOW + 2 * MINUTE, NOW]
        assert len(store.shown_in(USER, memory_id(1), 1)) == 1
        assert store.shown_in(OTHER, memory_id(1), 9) == []

    def test_facets_count_what_the_scope_may_see(self, store: Store) -> None:
        insert(
            store,
            record(1, kind="decision", pinned=True),
            record(2, project="shop"),
            record(3, project="shop", agent="claude", trust="untrusted"),
            record(4, deleted_at=NOW),
            record(5, superseded_by=memory_id(1)),
            record(6, user=OTHER, kind="episode"),
        )
        every = store.facets(EveryScope(USER))
        assert every["state"] == {"forgotten": 1, "live": 3, "superseded": 1}
        assert every["kind"] == {"decision": 1, "fact": 2}
        assert every["project"] == {"": 1, "shop": 2}
        assert every["trust"] == {"trusted": 2, "untrusted": 1}
        assert every["pinned"] == {"no": 2, "yes": 1}
        assert store.facets(Scope(USER))["state"] == {"forgotten": 1, "live": 1, "superseded": 1}
        assert store.facets(Scope(USER, project="shop"))["project"] == {"": 1, "shop": 1}
        assert store.facets(EveryScope("nobody"))["state"] == {}

    def test_a_list_holds_what_its_facets_counted(self, store: Store) -> None:
        insert(
            store,
            record(1, provenance="assistant_derived"),
            record(2, project="shop"),
            record(3, project="shop", trust="untrusted"),
            record(4, deleted_at=NOW),
            record(5, superseded_by=memory_id(1)),
        )

        def listed(**asked: Any) -> list[int]:
            found = store.listing(Listing(EveryScope(USER), everywhere=True, **asked))
            return [int(one) for one in ids(found)]

        assert listed() == [1, 2, 3]
        assert listed(state="forgotten") == [4]
        assert listed(state="superseded") == [5]
        assert listed(state="live", include_gone=True) == [1, 2, 3]
        assert listed(provenance="assistant_derived") == [1]
        assert listed(trust="untrusted") == [3]
        assert listed(of_project="shop") == [2, 3]
        assert listed(of_project="") == [1]
        assert listed(of_project="shop", trust="trusted") == [2]

    def test_one_who_asks_for_everything_sees_no_other_user(self, store: Store) -> None:
        insert(
            store,
            indexed(record(1, "mine", project="shop"), attributes=(about("api"),)),
            indexed(record(2, "theirs", user=OTHER, project="shop"), attributes=(about("db"),)),
        )
        everything = EveryScope(USER)
        assert store.entities(everything, 9) == [Entity("topic", "api", 1)]
        assert store.entities(Scope(USER), 9) == []
        assert [one.content for one in store.listing(Listing(everything))] == ["mine"]
        assert [one.name for one in store.entity_graph(everything, 9, 9).nodes] == ["api"]

    def test_entities_are_tied_by_what_is_about_both(self, store: Store) -> None:
        insert(
            store,
            indexed(record(1), attributes=(about("a"), about("b"), about("b", "cost"))),
            indexed(record(2), attributes=(about("a"), about("b"))),
            indexed(record(3), attributes=(about("a"), about("c"))),
            indexed(record(4, deleted_at=NOW), attributes=(about("b"), about("c"))),
            indexed(record(5, project="shop"), attributes=(about("b"), about("c"))),
        )
        store.write(USER, lambda t: t.put_dependencies(USER, [(about("c"), about("a"))]))
        found = store.entity_graph(Scope(USER), 9, 9)
        assert [(one.name, one.memory_count) for one in found.nodes] == [
            ("a", 3),
            ("b", 2),
            ("c", 1),
        ]
        assert found.edges == ((0, 1, 2), (0, 2, 1))
        assert found.needs == ((2, 0),)
        assert store.entity_graph(Scope(USER), 9, 1).edges == ((0, 1, 2),)
        few = store.entity_graph(Scope(USER), 2, 9)
        assert (len(few.nodes), few.edges, few.needs) == (2, ((0, 1, 2),), ())
        every = store.entity_graph(EveryScope(USER), 9, 9)
        assert (1, 2, 1) in every.edges

    def test_activity_counts_since_a_moment(self, store: Store) -> None:
        insert(store, record(1), record(2), record(3, user=OTHER))
        played(store)
        begin(store, key="win", user=OTHER, started_at=NOW + 9 * MINUTE)
        store.write(USER, lambda t: t.put_injection(USER, "tie", injection(1, 1)))
        early = store.activity(USER, NOW - MINUTE)
        assert early == {
            "memories": 2,
            "sessions": 6,
            "injected": 1,
            "reports": 0,
            "win": 1,
            "loss": 1,
            "tie": 1,
            "excluded": 2,
        }
        late = store.activity(USER, NOW + 5 * MINUTE)
        assert (late["memories"], late["sessions"], late["injected"]) == (0, 1, 0)
        assert (late["win"], late["excluded"]) == (0, 1)

    def test_every_kind_of_write_changes_its_own_number(self, store: Store) -> None:
        def told(work: Any) -> set[str]:
            before = store.change_numbers()
            work()
            after = store.change_numbers()
            return {topic for topic in after if after[topic] != before[topic]}

        first = record(1)
        assert told(lambda: insert(store, first)) == {"memory"}
        assert told(lambda: update(store, first, replace(first, pinned=True))) == {"memory"}
        assert "session" in told(lambda: begin(store, 1))
        assert told(
            lambda: store.write(USER, lambda t: t.put_comparison(USER, compared("run", 1.0)))
        ) == {"predictor"}
        assert told(
            lambda: store.write(USER, lambda t: t.set_predictor_state(USER, '{"a": 1}'))
        ) == {"predictor"}
        assert told(lambda: store.write(USER, lambda t: t.put_job(USER, "kind", "key", NOW))) == {
            "job"
        }
        later = NOW + MINUTE
        assert (
            told(lambda: store.write(USER, lambda t: t.resume_job(USER, "kind", "key", NOW)))
            == set()
        )
        assert told(
            lambda: store.write(OTHER, lambda t: t.put_job(OTHER, "kind", "key", later))
        ) == {"job"}
        assert told(lambda: store.write(USER, lambda t: t.put_rule(USER, RULE))) == {"rules"}
        event = RuleEvent(rule_id=RULE.id, at=NOW, kind="proposed", reason="", actor="me")
        assert told(lambda: store.write(USER, lambda t: t.add_rule_event(USER, event))) == {"rules"}
        assert told(lambda: store.write("default", lambda t: t.add_feedback(reported(1)))) == {
            "feedback"
        }
        assert told(lambda: store.session_page(USER, SessionQuery())) == set()
