"""What the routes do: the same verbs as the library's, over the wire."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from web_types import Serve, Served

from meritory.domain.memory import Draft
from meritory.engine.memories.write import UPDATABLE
from meritory.server.app import TABLE
from meritory.server.openapi import document
from meritory.server.routes.memories import NewMemory, Patch

MEMORIES = "/api/memories"


def stored(daemon: Served, content: str, **more: Any) -> str:
    reply = daemon.ask("POST", MEMORIES, {"content": content, "on_similar": "keep", **more})
    assert reply.status == 200, reply.content
    return str(reply.json["id"])


def test_the_wire_has_the_fields_of_the_records() -> None:
    drafted = {field.name for field in fields(Draft)} - {"user", "agent", "project"}
    assert set(NewMemory.__struct_fields__) == drafted
    assert set(Patch.__struct_fields__) == set(UPDATABLE)


def test_a_memory_is_stored_read_changed_forgotten_and_brought_back(daemon: Served) -> None:
    made = daemon.ask(
        "POST",
        MEMORIES,
        {
            "content": "The staging database is called heron",
            "kind": "decision",
            "tags": ["db"],
            "importance": 0.9,
            "source": {"harness": "tests", "turn": "3"},
            "valid_until": "2030-01-01",
            "user": "crud",
        },
    )
    assert made.status == 200
    told = made.json["memory"]
    assert (made.json["outcome"], told["id"]) == ("stored", made.json["id"])
    assert (told["provenance"], told["origin"], told["trust"]) == ("user_stated", "user", "trusted")
    assert told["sources"][0]["harness"] == "tests"
    assert told["valid_until"] == "2030-01-01T00:00:00.000000+00:00"
    place = f"{MEMORIES}/{told['id']}"
    assert daemon.ask("GET", f"{place}?user=crud").json == told
    assert daemon.ask("GET", f"{MEMORIES}/{told['id'][:20]}?user=crud").json == told
    assert daemon.ask("GET", f"{place}?user=other").status == 404
    changed = daemon.ask(
        "PATCH", f"{place}?user=crud", {"content": "It is called egret", "tags": []}
    )
    assert (changed.json["content"], changed.json["tags"]) == ("It is called egret", [])
    assert daemon.ask("PATCH", f"{place}?user=crud", {}).status == 422
    assert (
        daemon.ask("PATCH", f"{place}?user=crud", {"valid_until": None}).json["valid_until"] is None
    )
    assert daemon.ask("DELETE", f"{place}?user=other").status == 404
    gone = daemon.ask("DELETE", f"{place}?user=crud&why=no%20longer%20true")
    assert gone.json == {"id": told["id"], "purged": False}
    assert daemon.ask("GET", f"{MEMORIES}?user=crud").json["results"] == []
    history = daemon.ask("GET", f"{place}/history?user=crud").json["results"]
    assert [entry["action"] for entry in history] == ["create", "update", "update", "delete"]
    assert history[-1]["why"] == "no longer true"
    assert {entry["actor"] for entry in history} == {"daemon"}
    back = daemon.ask("POST", f"{place}/restore?user=crud")
    assert [record["deleted_at"] for record in back.json["results"]] == [None]


def test_many_memories_go_in_at_once_and_one_bad_one_keeps_none_out(daemon: Served) -> None:
    items: list[dict[str, Any]] = [{"content": "the first"}, {"content": " "}, {"content": "third"}]
    reply = daemon.ask("POST", MEMORIES, {"memories": items, "user": "many"})
    results = reply.json["results"]
    assert [item["outcome"] for item in results] == ["stored", "refused", "stored"]
    assert results[1]["error"]["code"] == "invalid_input"
    assert results[1]["memory"] is None
    assert daemon.ask("GET", "/api/stats?user=many").json["figures"]["live"] == 2


def test_pages_go_on_where_the_last_one_ended(daemon: Served) -> None:
    ids = [stored(daemon, f"claim number {n}", user="pages") for n in range(5)]
    seen: list[str] = []
    after = ""
    while True:
        page = daemon.ask("GET", f"{MEMORIES}?user=pages&limit=2{after}").json
        seen += [record["id"] for record in page["results"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == ids[::-1]
    tagged = stored(daemon, "with a tag", user="pages", tags=["heron"], kind="decision")
    for query in ("tag=heron", "kind=decision", "tag=heron&kind=decision"):
        found = daemon.ask("GET", f"{MEMORIES}?user=pages&{query}").json["results"]
        assert [record["id"] for record in found] == [tagged]


def test_both_ways_to_search_find_the_same(daemon: Served) -> None:
    wanted = stored(daemon, "Deployments happen on Mondays at nine", user="search")
    stored(daemon, "The cat sleeps on the radiator", user="search")
    body = {"query": "when are deployments?", "user": "search", "limit": 1}
    posted = daemon.ask("POST", f"{MEMORIES}/search", body).json["results"]
    asked = f"{MEMORIES}/search?user=search&limit=1&query={quote('when are deployments?')}"
    assert daemon.ask("GET", asked).json["results"] == posted
    assert [hit["id"] for hit in posted] == [wanted]
    assert posted[0]["score"] > 0
    assert "parts" not in posted[0]
    explained = daemon.ask("POST", f"{MEMORIES}/search", {**body, "explain": True}).json["results"]
    assert set(explained[0]["parts"]) >= {"composite", "cosine", "text"}


def test_a_search_takes_filters_in_both_ways(daemon: Served) -> None:
    user = "filters"
    wanted = stored(
        daemon, "The heron is grey", user=user, kind="decision", tags=["bird"], metadata={"n": 1}
    )
    other = stored(daemon, "The heron is a bird", user=user, project="lake")
    body = {"query": "heron", "user": user}
    for more in ({"kind": ["decision"]}, {"tags": ["bird"]}, {"metadata": {"n": 1}}):
        hits = daemon.ask("POST", f"{MEMORIES}/search", {**body, **more}).json["results"]
        assert [hit["id"] for hit in hits] == [wanted], more
    assert hits[0]["metadata"] == {"n": 1}
    for query in ("kind=decision,fact", "tags=bird", "projects=", "until=2100-01-01&min_score=0.1"):
        asked = f"{MEMORIES}/search?user={user}&query=heron&{query}"
        assert [hit["id"] for hit in daemon.ask("GET", asked).json["results"]] == [wanted], query
    asked = f"{MEMORIES}/search?user={user}&query=heron&projects=lake"
    assert [hit["id"] for hit in daemon.ask("GET", asked).json["results"]] == [other]
    for wrong in ({"min_score": 2}, {"kind": ["facts"]}, {"metadata": []}, {"since": "soon"}):
        assert daemon.ask("POST", f"{MEMORIES}/search", {**body, **wrong}).status == 422, wrong


def test_a_search_says_that_nothing_is_known(daemon: Served) -> None:
    stored(daemon, "Deployments happen on Mondays at nine", user="unknown")
    body = {"query": "what is the capital of Mongolia?", "user": "unknown"}
    reply = daemon.ask("POST", f"{MEMORIES}/search", body).json
    assert reply["results"] == []
    assert reply["note"] == "nothing is known about this"
    assert 0.0 < reply["best_score"] < 0.05
    found = daemon.ask("POST", f"{MEMORIES}/search", {**body, "min_score": 0}).json
    assert found["results"][0]["score"] == reply["best_score"]
    assert "note" not in found


def test_a_scope_is_not_crossed(daemon: Served) -> None:
    mine = stored(daemon, "the heron secret of project one", project="one", agent="a")
    place = f"{MEMORIES}/{mine}"
    for named, status in (
        ("", 200),
        ("?project=one&agent=a", 200),
        ("?project=two&agent=a", 404),
        ("?project=one&agent=b", 404),
        ("?agent=a", 404),
        ("?user=somebody", 404),
        ("?user=somebody&project=one&agent=a", 404),
    ):
        assert daemon.ask("GET", place + named).status == status, named
        assert daemon.ask("GET", f"{place}/history{named}").status == status, named
        if status == 404:
            assert daemon.ask("PATCH", place + named, {"content": "stolen"}).status == 404
            assert daemon.ask("DELETE", place + named).status == 404
            assert daemon.ask("POST", f"{place}/restore{named}").status == 404
            scope = dict(pair.split("=") for pair in named.strip("?").split("&"))
            purge = {"confirm": mine, **scope}
            assert daemon.ask("POST", f"{place}/purge", purge).status == 404
            found = daemon.ask("POST", f"{MEMORIES}/search", {"query": "heron secret", **scope})
            assert mine not in [hit["id"] for hit in found.json["results"]]
    assert daemon.ask("GET", place).json["content"] == "the heron secret of project one"


def test_entities_are_listed_and_described_by_their_id(daemon: Served) -> None:
    content = "`load_all` in src/api/read.py is slow for @mara"
    about = stored(daemon, content, user="graph", about=["Billing"])
    listed = daemon.ask("GET", "/api/entities?user=graph").json["results"]
    named = {item["id"] for item in listed}
    assert named >= {"path:src/api/read.py", "topic:billing", "identifier:load_all"}
    for item in listed:
        view = daemon.ask("GET", f"/api/entities/{quote(item['id'], safe='')}?user=graph")
        assert view.status == 200, item
        assert [record["id"] for record in view.json["results"]] == [about]
        assert daemon.ask("GET", f"/api/entities/{quote(item['id'])}?user=nobody").status == 404
    assert daemon.ask("GET", "/api/entities/src/api/read.py?user=graph").status == 200


def test_figures_are_kept_of_what_was_asked(daemon: Served) -> None:
    stored(daemon, "something to count", user="figures")
    daemon.ask("POST", f"{MEMORIES}/search", {"query": "count", "user": "figures"})
    figures = daemon.ask("GET", "/api/stats?user=figures").json
    assert figures["user"] == "figures"
    assert figures["figures"]["write.stored"] == 1
    latencies = daemon.ask("GET", "/api/analytics/latency").json["results"]
    by_id = {item["id"]: item for item in latencies}
    assert set(by_id) >= {"remember", "recall", "session_start", "predictor_score", "jobs"}
    for name in ("remember", "recall"):
        own = by_id[name]
        assert own["count"] > 0
        assert 0 < own["p50_ms"] <= own["p95_ms"] <= own["p99_ms"]
    assert by_id["jobs"]["p50_ms"] is None


def test_prometheus_can_read_the_metrics(daemon: Served) -> None:
    stored(daemon, "one to be measured")
    reply = daemon.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    line = re.compile(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+')
    lines = reply.content.decode().splitlines()
    assert reply.content.endswith(b"\n")
    samples = [text for text in lines if not text.startswith("#")]
    assert [text for text in samples if not line.fullmatch(text)] == []
    names = {text.split()[2] for text in lines if text.startswith("# TYPE")}
    assert {re.split(r"[{ ]", text)[0] for text in samples} <= names | {
        "meritory_operation_seconds_sum",
        "meritory_operation_seconds_count",
    }


# -- the description --------------------------------------------------------------------------


def test_every_route_is_described_with_its_class_and_types(daemon: Served) -> None:
    told = daemon.ask("GET", "/openapi.json").json
    assert told == document(TABLE)
    assert told["openapi"].startswith("3.1")
    described = {(method.upper(), path) for path, ways in told["paths"].items() for method in ways}
    listed = {(route.method, re.sub(r":\w+\}", "}", route.path)) for route in TABLE}
    assert described == listed
    assert len(TABLE) == len(listed)
    operations = [way for ways in told["paths"].values() for way in ways.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        assert operation["summary"].endswith(".")
        assert "200" in operation["responses"]
        is_open = operation["x-access"] in ("health", "login")
        assert ("security" in operation) != is_open


def test_the_description_refers_only_to_what_it_holds() -> None:
    told = document(TABLE)

    def references(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    held = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    assert set(references(told)) == held
    for path, ways in told["paths"].items():
        for operation in ways.values():
            inside = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert inside == set(re.findall(r"\{(\w+)\}", path))


@pytest.mark.parametrize("target", ["{outside}/copy.db", "../copy.db", "link/copy.db"])
def test_a_backup_over_tcp_stays_in_the_data_folder(
    serve: Serve, tmp_path: Path, target: str
) -> None:
    served, outside = serve(), tmp_path / "outside"
    outside.mkdir()
    (served.home / "link").symlink_to(outside)
    served.ask("POST", "/api/memories", {"content": "The staging database is called heron"})

    def back_up(target: str, **how: Any) -> int:
        body = {"arguments": {"target": target}}
        return served.ask("POST", "/api/library/backup", body, **how).status

    target = target.format(outside=outside)
    assert back_up(target, tcp=True, headers=served.bearer) == 422
    assert list(outside.iterdir()) == []
    assert back_up("copy.db", tcp=True, headers=served.bearer) == 200
    assert (served.home / "copy.db").is_file()
    # The owner's socket gives what the owner's shell gives.
    assert back_up(str(outside / "own.db")) == 200
