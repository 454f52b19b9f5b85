"""The quality routes: figures, merges with audits and splits, and the janitor."""

from __future__ import annotations

from typing import Any

import pytest
from web_types import Served

HERON = "The staging database is called heron"
AGAIN = "I think the staging database is called heron"


def merged(daemon: Served, user: str, project: str | None = None) -> int:
    """A merge of this user; returns its entry."""
    for text in (HERON, AGAIN):
        body = {"user": user, "project": project, "content": text}
        assert daemon.ask("POST", "/api/memories", body).status == 200
    return int(listed(daemon, user)[0]["entry"])


def listed(daemon: Served, user: str, more: str = "") -> list[dict[str, Any]]:
    reply = daemon.ask("GET", f"/api/quality/merges?user={user}{more}")
    assert reply.status == 200, reply.content
    return list(reply.json["results"])


def test_merges_of_all_projects_are_listed_audited_and_split(daemon: Served) -> None:
    entry = merged(daemon, "ann")
    other = merged(daemon, "ann", "shop")
    assert [one["entry"] for one in listed(daemon, "ann")] == [other, entry]
    assert [one["entry"] for one in listed(daemon, "ann", f"&limit=1&before={other}")] == [entry]
    (newest, _) = listed(daemon, "ann")
    assert (newest["before"], newest["other"], newest["verdict"]) == (HERON, AGAIN, None)
    path = f"/api/quality/merges/{entry}"
    told = daemon.ask("POST", f"{path}/audit", {"user": "ann", "verdict": "right"}).json
    assert (told["entry"], told["verdict"]) == (entry, "right")
    assert [one["entry"] for one in listed(daemon, "ann", "&unaudited=true")] == [other]
    parts = daemon.ask("POST", f"{path}/split", {"user": "ann"}).json["results"]
    assert {one["content"] for one in parts} == {HERON, AGAIN}
    assert daemon.ask("POST", f"{path}/split", {"user": "ann"}).status == 409
    states = {one["entry"]: (one["is_split"], one["verdict"]) for one in listed(daemon, "ann")}
    assert states == {entry: (True, "wrong"), other: (False, None)}
    wrong = daemon.ask("GET", "/api/quality?user=ann").json["figures"]["false_merges"]
    assert (wrong["total"], wrong["wrong"]) == (1, 1)


@pytest.mark.parametrize("entry", ["0", "-1", "x", "1e3", "9" * 17, "9" * 40, "%00", "1;2", "٣"])
@pytest.mark.parametrize("verb", ["audit", "split"])
def test_nonsense_names_no_merge(daemon: Served, entry: str, verb: str) -> None:
    from urllib.parse import quote

    body = {"user": "bob", **({"verdict": "wrong"} if verb == "audit" else {})}
    path = f"/api/quality/merges/{quote(entry, safe='%')}/{verb}"
    assert daemon.ask("POST", path, body).status == 404


def test_nobody_touches_anothers_merge(daemon: Served) -> None:
    entry = merged(daemon, "carl")
    for verb, more in (("audit", {"verdict": "wrong"}), ("split", {})):
        body = {"user": "eve", **more}
        assert daemon.ask("POST", f"/api/quality/merges/{entry}/{verb}", body).status == 404
    assert listed(daemon, "eve") == []
    (left,) = listed(daemon, "carl")
    assert (left["is_split"], left["verdict"]) == (False, None)


@pytest.mark.parametrize("body", [{}, {"verdict": "perhaps"}, {"verdict": None}, {"verdicts": 1}])
def test_a_verdict_is_right_or_wrong(daemon: Served, body: dict[str, Any]) -> None:
    entry = merged(daemon, "dora")
    reply = daemon.ask("POST", f"/api/quality/merges/{entry}/audit", {"user": "dora", **body})
    assert reply.status == 422


def test_figures_are_of_one_user(daemon: Served) -> None:
    merged(daemon, "fay")
    told = daemon.ask("GET", "/api/quality?user=fay").json
    assert told["user"] == "fay"
    assert told["figures"]["outcomes"]["merged"] == 1
    assert told["figures"]["gate_trigger"]["total"] == 2
    assert told["upkeep"]["janitor"]["state"] == "not yet"
    assert daemon.ask("GET", "/api/quality?user=nobody").json["figures"]["outcomes"] == {}


def test_the_janitor_shows_runs_and_takes_back(daemon: Served) -> None:
    merged(daemon, "gus")
    told = daemon.ask("POST", "/api/quality/janitor", {"user": "gus"}).json
    assert (told["dry_run"], told["due"], told["results"]) == (True, 0, [])
    assert set(told["erase"]) >= {"transcripts", "events"}
    jobs = daemon.ask("GET", "/api/quality?user=gus").json["upkeep"]["janitor"]
    assert jobs["state"] == "not yet"
    done = daemon.ask("POST", "/api/quality/janitor", {"user": "gus", "dry_run": False}).json
    assert (done["dry_run"], done["demoted"]) == (False, 0)
    jobs = daemon.ask("GET", "/api/quality?user=gus").json["upkeep"]["janitor"]
    assert jobs["state"] == "done"
    assert daemon.ask("POST", "/api/quality/janitor", {"user": "gus", "undo": True}).status == 409


def test_the_pipeline_names_every_worker(daemon: Served) -> None:
    workers = daemon.ask("GET", "/api/pipeline/status").json["workers"]
    assert set(workers) == {
        *("extraction", "judge", "retention", "pairs", "maintenance", "predictor")
    }
    assert all(one["running"] for name, one in workers.items() if name != "predictor")
    assert workers["retention"]["details"]["state"] == "not yet"
    assert workers["maintenance"]["details"]["demoted"] == 0


def test_searches_over_the_wire_are_counted(daemon: Served) -> None:
    from web_types import wait_for

    daemon.ask("POST", "/api/memories", {"user": "hal", "content": HERON})
    for _ in range(2):
        found = daemon.ask("POST", "/api/memories/search", {"user": "hal", "query": "heron"})
        assert len(found.json["results"]) == 1

    def retrievals() -> int:
        told = daemon.ask("GET", "/api/quality?user=hal").json
        return int(told["figures"]["retrievals"])

    wait_for(lambda: retrievals() == 2, "the counts were never written")
