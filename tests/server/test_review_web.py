"""The review routes: who may ask, who may answer, and what a reply says."""

from __future__ import annotations

from itertools import count
from typing import Any
from urllib.parse import quote

import pytest
from access_kit import Holder, holder
from web_types import Served

from meritory.api.memory import Memory
from meritory.domain.quality import LinkKind, MemoryLink

NUMBERS = count()


def pair(
    daemon: Served, user: str, kind: LinkKind = "alike", project: str | None = None, **fields: Any
) -> tuple[str, str]:
    """Two memories with a link that the gate would have made."""
    made = []
    for text in ("Anna leads design", "Anna leads the design team"):
        new = {"content": text, "user": user, "project": project, "on_similar": "keep", **fields}
        made.append(daemon.ask("POST", "/api/memories", new).json["id"])
    with Memory(daemon.home / "meritory.db", user=user, background=False) as memory:
        link = MemoryLink(
            older_id=made[0],
            newer_id=made[1],
            kind=kind,
            cosine=0.8,
            reason="they share most words",
            at=memory.services.world.now(),
        )
        memory.services.store.write(user, lambda t: t.put_links(user, [link]))
    return made[0], made[1]


def items(who: Served | Holder, query: str = "") -> list[dict[str, Any]]:
    reply = who.ask("GET", f"/api/review{query}")
    assert reply.status == 200, reply.content
    return list(reply.json["results"])


def test_items_of_all_projects_are_listed_page_by_page(daemon: Served) -> None:
    pair(daemon, "ann")
    older, newer = pair(daemon, "ann", "newer", "zoo")
    reply = daemon.ask("GET", "/api/review?user=ann").json
    assert reply["total"] == 2
    first = reply["results"][0]
    assert (first["id"], first["kind"], first["why"]) == (
        f"{older}:{newer}",
        "newer",
        "they share most words",
    )
    assert [record["id"] for record in first["memories"]] == [older, newer]
    assert first["actions"] == ["newer", "keep", "merge", "forget"]
    assert (first["shown_count"], first["found_count"]) == (0, 0)
    assert first["at"].endswith("+00:00") or first["at"].endswith("Z")
    (second,) = items(daemon, "?user=ann&limit=1&offset=1")
    assert second["kind"] == "alike"
    assert len(items(daemon, "?user=ann&project=shop")) == 1
    assert items(daemon, "?user=nobody") == []
    for query in ("limit=0", "limit=501", "offset=-1", "limit=x", "all=1"):
        assert daemon.ask("GET", f"/api/review?{query}").status in (400, 422), query


def test_an_answer_names_the_memory_whose_undo_takes_it_back(daemon: Served) -> None:
    older, newer = pair(daemon, "bob", "newer")
    for action in ("merge", "newer", "keep"):
        body = {"user": "bob", "action": action}
        reply = daemon.ask("POST", f"/api/review/{older}:{newer}", body)
        assert reply.status == 200, reply.content
        assert {one["id"] for one in reply.json["results"]} == {older, newer}
        assert items(daemon, "?user=bob") == []
        assert daemon.ask("POST", f"/api/review/{older}:{newer}", body).status == 409
        undone = daemon.ask("POST", f"/api/memories/{reply.json['undo']}/restore?user=bob")
        assert undone.status == 200
        assert len(items(daemon, "?user=bob")) == 1


def test_two_memories_are_merged(daemon: Served) -> None:
    one, other = pair(daemon, "carl")
    path = f"/api/memories/{one}/merge"
    merged = daemon.ask("POST", path, {"user": "carl", "other": other, "keep": "a"})
    assert (merged.status, merged.json["id"]) == (200, one)
    assert daemon.ask("POST", path, {"user": "carl", "other": other}).status == 409
    assert daemon.ask("POST", f"{path}", {"user": "carl", "other": one}).status == 422
    assert daemon.ask("POST", path, {"user": "carl", "other": "7zzz"}).status == 404
    assert daemon.ask("POST", path, {"user": "carl"}).status == 422
    assert daemon.ask("POST", path, {"user": "carl", "other": other, "keep": "c"}).status == 422
    assert daemon.ask("POST", path, {"user": "eve", "other": other}).status == 404


@pytest.mark.parametrize(
    ("item", "body", "status"),
    [
        ("{one}:{other}", {"action": "mrege"}, 422),
        ("{one}:{other}", {}, 422),
        ("{one}:{other}", {"action": "keep", "keep": "a"}, 422),
        ("{one}:{other}", {"action": "forget"}, 422),
        ("{one}", {"action": "merge"}, 422),
        ("{one}", {"action": "confirm"}, 409),
        ("{one}", {"action": "reject"}, 409),
        ("{one}:7zzz", {"action": "keep"}, 404),
        ("nothing", {"action": "forget"}, 404),
        ("é:\x00", {"action": "merge"}, 404),
    ],
)
def test_nonsense_changes_nothing(
    daemon: Served, item: str, body: dict[str, Any], status: int
) -> None:
    user = f"dora{next(NUMBERS)}"
    one, other = pair(daemon, user)
    path = f"/api/review/{quote(item.format(one=one, other=other), safe=':')}"
    reply = daemon.ask("POST", path, {"user": user, **body})
    assert reply.status == status, reply.content
    assert len(items(daemon, f"?user={user}")) == 1


def test_only_a_person_decides_about_pins_constraints_and_proposals(daemon: Served) -> None:
    writer, admin = (holder(daemon, role, user="fay") for role in ("write", "admin"))
    reader = holder(daemon, "read", user="fay")
    pin, other = pair(daemon, "fay", pinned=True)
    new = {"content": "Never stop the shop", "kind": "constraint"}
    proposed = writer.ask("POST", "/api/memories", new).json["id"]
    asked: list[tuple[str, dict[str, Any]]] = [
        *((f"/api/review/{proposed}", {"action": a}) for a in ("confirm", "reject", "forget")),
        *((f"/api/review/{pin}:{other}", {"action": a}) for a in ("merge", "newer", "keep")),
        (f"/api/review/{pin}", {"action": "forget"}),
        (f"/api/memories/{pin}/merge", {"other": other}),
    ]
    for path, body in asked:
        refused = writer.ask("POST", path, body)
        assert (refused.status, refused.json["code"]) == (403, "person_only"), (path, body)
        assert reader.ask("POST", path, body).status == 403
    assert len(items(reader)) == 2
    assert admin.ask("POST", *asked[0]).json["results"][0]["kind"] == "constraint"
    assert admin.ask("POST", *asked[3]).json["results"][0]["pinned"] is True
    assert items(admin) == []


def test_a_writing_token_answers_what_binds_nobody(daemon: Served) -> None:
    writer = holder(daemon, "write", user="gus")
    older, newer = pair(daemon, "gus")
    reply = writer.ask("POST", f"/api/review/{older}:{newer}", {"action": "merge"})
    assert (reply.status, reply.json["undo"]) == (200, newer)
    told = writer.ask("GET", f"/api/memories/{newer}/history").json["results"]
    assert told[-1]["why"] == "merged by an agent"


def test_a_narrow_token_keeps_to_its_project(daemon: Served) -> None:
    narrow = holder(daemon, "admin", user="hal", project="api")
    pair(daemon, "hal", project="web")
    shared, own = pair(daemon, "hal"), pair(daemon, "hal", project="api")
    assert {item["id"] for item in items(narrow)} == {":".join(shared), ":".join(own)}
    assert narrow.ask("GET", "/api/review").json["total"] == 2
    for path, body in (
        (f"/api/review/{shared[0]}:{shared[1]}", {"action": "merge"}),
        (f"/api/review/{shared[0]}", {"action": "forget"}),
        (f"/api/memories/{own[0]}/merge", {"other": shared[0]}),
        (f"/api/memories/{shared[0]}/merge", {"other": own[0]}),
    ):
        assert narrow.ask("POST", path, body).status == 403, path
    done = narrow.ask("POST", f"/api/review/{own[0]}:{own[1]}", {"action": "keep"})
    assert done.status == 200
    verb = narrow.verb("decide", item=":".join(shared), action="keep")
    assert verb.status == 403
    assert len(items(daemon, "?user=hal")) == 2


def test_a_person_answers_in_the_browser(daemon: Served) -> None:
    older, newer = pair(daemon, "default", pinned=True)
    path, body = f"/api/review/{older}:{newer}", {"action": "merge"}
    headers = {**daemon.enter(), "origin": daemon.url}
    assert daemon.ask("POST", path, body, tcp=True, headers=daemon.enter()).status == 403
    reply = daemon.ask("POST", path, body, tcp=True, headers=headers)
    assert (reply.status, reply.json["results"][0]["pinned"]) == (200, True)


def test_a_program_asks_and_answers_through_the_daemon(daemon: Served) -> None:
    older, newer = pair(daemon, "ida")
    with Memory(url=daemon.url, token=holder(daemon, "admin", user="ida").token) as memory:
        (item,) = memory.review().results
        assert (item.id, item.memories[0].id) == (f"{older}:{newer}", older)
        changed = memory.decide(item.id, "keep")
        assert [record.id for record in changed] == [newer, older]
        memory.undo(newer)
        assert memory.review(1, 0).total == 1
        assert memory.merge(older, newer, keep="a").id == older
