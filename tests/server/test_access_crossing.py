"""One tenant tries to reach another: by id, by search, by feedback, by training data.

`pytest -s tests/server/test_access_crossing.py` prints how many tries there were, and how many got
through. A try has got through when it is answered with what only the other tenant said, or when
anything of theirs is another than before.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from access_kit import make_token, shown
from web_types import WAIT_S, Served, read_served, wait_for

from meritory.domain.errors import MeritoryError
from meritory.domain.feedback import FeedbackQuery
from meritory.domain.memory import EveryScope, Listing, Scope
from meritory.domain.place import Place
from meritory.domain.predictor import ComparisonQuery
from meritory.domain.session import SessionQuery
from meritory.rank.features import FEATURE_VERSION
from meritory.server import serve as serving
from meritory.server.auth import Grant
from meritory.server.connection import Listeners
from meritory.settings import load_settings
from meritory.store import open_store
from meritory.store.contract.store import Store

TRIES = 1_000
# What only tenant A says: no try sends any of it.
TELLING = ("quetzal", "obsidian", "marzipan", "heliotrope", "zirconium")
# What a try may look for.
TOPIC = "staging database"


@dataclass
class Tenant:
    """What there is of tenant A, by name."""

    memories: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Try:
    """One request of tenant B."""

    kind: str
    method: str
    path: str
    body: Any = None


# -- tenant A -----------------------------------------------------------------------------------


def settle(daemon: Served) -> None:
    """Lets all that was begun be done, by whoever does it."""

    def is_done() -> bool:
        assert daemon.ask("POST", "/api/library/drain", {}).status == 200
        counts = daemon.ask("GET", "/api/jobs").json["counts"]
        return counts["queued"] == counts["running"] == 0

    wait_for(is_done, "jobs are still under way")


def fill(daemon: Served) -> Tenant:
    """Tenant A at work, all of it known to the owner alone."""
    made, user = Tenant(), {"user": "ada"}
    for number, word in enumerate(TELLING):
        told = {"content": f"The {TOPIC} number {number} is called {word}", "about": ["heron"]}
        reply = daemon.ask("POST", "/api/memories", {**user, **told, "on_similar": "keep"})
        made.memories.append(reply.json["id"])
    for number in range(2):
        key = f"ada-session-{number}"
        begun = {**user, "session_key": key, "project": "secret-project", "context": TOPIC}
        opened = daemon.ask("POST", "/api/hooks/session-start", begun).json
        made.codes += [opened["injection"]] if opened["injection"] else []
        prompted = {**user, "session_key": key, "prompt": f"What is the {TOPIC} called?"}
        served = daemon.ask("POST", "/api/hooks/user-prompt-submit", prompted).json
        made.codes += [served["injection"]] if served["injection"] else []
        ended = {**user, "session_key": key, "used": {made.memories[0]: 1.0}}
        daemon.ask("POST", "/api/hooks/session-end", ended)
        made.sessions.append(key)
    report = {"signal": "down", "what_went_wrong": f"It forgot {TELLING[0]}", "context": TOPIC}
    kept = daemon.ask("POST", "/api/feedback", {**user, **report, "session_key": key}).json
    made.reports.append(kept["event"]["id"])
    rule = {"trigger": "shell: git push --force", "why": f"It erased {TELLING[1]} once"}
    found = daemon.ask("POST", "/api/rules", {**user, **rule})
    assert found.status == 200, found.content
    made.rules.append(found.json["id"])
    made.tokens.append(make_token(daemon, "admin", user="ada").split("_")[2])
    assert made.codes
    settle(daemon)
    return made


def standing(daemon: Served, made: Tenant) -> dict[str, Any]:
    """Everything of tenant A, as its owner sees it."""
    paths = [
        "/api/memories?user=ada&everywhere=true&gone=true",
        "/api/sessions?user=ada",
        "/api/feedback?user=ada",
        "/api/rules?user=ada&every=true",
        "/api/tokens?user=ada&every=true",
        "/api/predictor/comparisons?user=ada",
        "/api/predictor/training?user=ada",
        "/api/predictor/calibration?user=ada",
        "/api/jobs?user=ada",
        "/api/quality/merges?user=ada",
        "/api/entities?user=ada",
        *(f"/api/memories/{one}/history?user=ada" for one in made.memories),
        *(f"/api/memories/{one}/sessions?user=ada" for one in made.memories),
        *(f"/api/sessions/{one}/memories?user=ada" for one in made.sessions),
        *(f"/api/rules/constraints?user=ada&session_key={one}" for one in made.sessions),
    ]
    found = {path: daemon.ask("GET", path).json for path in paths}
    # How much everybody's jobs are is nobody's in particular.
    found["/api/jobs?user=ada"].pop("counts")
    return found


# -- tenant B -----------------------------------------------------------------------------------


def _verb(kind: str, name: str, scope: dict[str, Any], **arguments: Any) -> Try:
    return Try(kind, "POST", f"/api/library/{name}", {**scope, "arguments": arguments})


def _tool(kind: str, at: str, name: str, **arguments: Any) -> Try:
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return Try(kind, "POST", f"/mcp{at}", message)


def _by_id(one: str, query: str, scope: dict[str, Any]) -> list[Try]:
    place = f"/api/memories/{one}"
    uri = f"meritory://memory/{one}"
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}
    return [
        Try("id", "GET", place + query),
        Try("id", "GET", f"/api/memories/{one[:12]}{query}"),
        Try("id", "PATCH", place + query, {"content": "taken over"}),
        Try("id", "DELETE", place + query),
        Try("id", "GET", f"{place}/history{query}"),
        Try("id", "POST", f"{place}/restore{query}"),
        Try("id", "POST", f"{place}/confirm{query}"),
        Try("id", "POST", f"{place}/reject{query}"),
        Try("id", "POST", f"{place}/purge", {**scope, "confirm": one}),
        Try("id", "GET", f"{place}/sessions{query}"),
        Try("id", "GET", f"/api/timeline/{one}{query}"),
        Try("id", "GET", f"/api/memories/texts?ids={one}{query.replace('?', '&')}"),
        Try("id", "POST", "/api/memories", {**scope, "content": "x", "supersedes": one}),
        Try("id", "POST", f"/mcp{query}", read),
        *(_verb("id", name, scope, memory_id=one) for name in ("get", "undo", "history", "split")),
        *(
            _verb("id", name, scope, memory_id=one)
            for name in ("forget", "purge", "confirm", "reject")
        ),
        _verb("id", "get", {**scope, "everywhere": True}, memory_id=one),
        _verb("id", "update", scope, memory_id=one, content="taken over"),
        _tool("id", query, "memory_get", id=one),
        _tool("id", query, "memory_forget", id=one),
    ]


def _by_search(query: str, scope: dict[str, Any]) -> list[Try]:
    more = query.replace("?", "&")
    named = {**scope, "query": TOPIC, "everywhere": True}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}}
    places = (
        *("/api/memories", "/api/entities", "/api/entities/graph", "/api/memories/facets"),
        *("/api/sessions", "/api/rules", "/api/jobs", "/api/tokens", "/api/feedback"),
        *("/api/extraction/refusals", "/api/quality", "/api/quality/merges", "/api/stats"),
        *("/api/analytics/activity", "/api/feedback/pairs", "/api/feedback/contested"),
    )
    words = quote(TOPIC)
    return [
        *(Try("search", "GET", place + query) for place in places),
        Try("search", "GET", f"/api/memories/search?query={words}{more}"),
        Try("search", "GET", f"/api/memories/search?query={words}&everywhere=true{more}"),
        Try("search", "GET", f"/api/memories/search?query={words}&projects=secret-project{more}"),
        Try("search", "GET", f"/api/memories?everywhere=true&gone=true{more}"),
        Try("search", "GET", f"/api/memories?of_project=secret-project&everywhere=true{more}"),
        Try("search", "POST", "/api/memories/search", named),
        Try("search", "GET", f"/api/entities/heron{query}"),
        Try("search", "POST", f"/mcp{query}", listing),
        _verb("search", "recall", scope, query=TOPIC, limit=50),
        _verb("search", "recall", scope, query=TOPIC, min_score=0, projects=["secret-project"]),
        _verb("search", "page", scope, everywhere=True, include_gone=True),
        _verb("search", "related", scope, context=f"{TOPIC} heron"),
        _verb("search", "entities", scope),
        _tool("search", query, "memory_search", query=TOPIC),
        _tool("search", query, "describe_entity", entity="heron"),
        _tool("search", query, "prevention_rules"),
    ]


def _by_feedback(made: Tenant, pick: random.Random, scope: dict[str, Any]) -> list[Try]:
    one, key = pick.choice(made.memories), pick.choice(made.sessions)
    code, report = pick.choice(made.codes), made.reports[0]
    thumb = {**scope, "signal": "down", "what_went_wrong": "It is wrong", "context": "no good"}
    own, theirs = {**scope, "session_key": "bob-session"}, {**scope, "session_key": key}
    trailer = f"Done.\n<!-- mf {code} m1=-1 -->"
    query = "" if not scope else f"?user={scope['user']}"
    return [
        Try("feedback", "POST", "/api/feedback", {**thumb, "memory_ids": [one], "origin": "user"}),
        Try("feedback", "POST", "/api/feedback", {**thumb, "memory_ids": [one], **own}),
        Try("feedback", "POST", "/api/feedback", {**thumb, **theirs, "memory_ids": ["m1"]}),
        Try("feedback", "POST", "/api/feedback", {**theirs, "ratings": {one: -1}}),
        Try("feedback", "POST", "/api/feedback", {**own, "ratings": {one: -1, "m1": -1}}),
        Try("feedback", "GET", f"/api/feedback/{report}{query}"),
        Try("feedback", "POST", f"/api/feedback/{report}/complete", {**scope, "context": "more"}),
        Try("feedback", "POST", "/api/hooks/stop", {**theirs, "last_assistant_message": trailer}),
        Try("feedback", "POST", "/api/hooks/session-end", {**own, "used": {one: -1.0}}),
        Try("feedback", "POST", "/api/hooks/pre-compact", theirs),
        Try("feedback", "POST", f"/api/rules/{made.rules[0]}/retire", {**scope, "why": "no"}),
        Try("feedback", "POST", f"/api/rules/{made.rules[0]}/approve", scope),
        Try("feedback", "DELETE", f"/api/tokens/{made.tokens[0]}{query}"),
        Try("feedback", "POST", f"/api/tokens/{made.tokens[0]}/rotate", scope),
        Try("feedback", "POST", "/api/tokens", {"user": "ada", "name": "mine", "role": "read"}),
        _verb("feedback", "session/rate", scope, key=key, scores={one: -1}),
        _verb("feedback", "session/end", {**scope}, key="bob-session", used={one: -1}),
        _verb("feedback", "complete-feedback", scope, event_id=report, context="more"),
        _tool("feedback", query, "memory_feedback", injection=code, ratings={"m1": -1}),
        _tool("feedback", query, "capture_feedback", signal="down", context="bad", event=report),
    ]  # fmt: skip


def _by_training(made: Tenant, pick: random.Random, query: str, scope: dict[str, Any]) -> list[Try]:
    one, key = pick.choice(made.memories), pick.choice(made.sessions)
    label = {"session_key": key, "memory_id": one, "label": -1.0}
    places = ("status", "comparisons", "training", "drift", "calibration")
    return [
        *(Try("training", "GET", f"/api/predictor/{place}{query}") for place in places),
        Try("training", "GET", f"/api/predictor/comparisons/{key}{query}"),
        Try("training", "GET", f"/api/predictor/audit/{key}{query}"),
        Try("training", "GET", f"/api/sessions/{key}{query}"),
        Try("training", "GET", f"/api/sessions/{key}/memories{query}"),
        Try("training", "GET", f"/api/sessions/{key}/memories/{one}/why{query}"),
        Try("training", "GET", f"/api/timeline/{key}{query}"),
        Try("training", "GET", f"/api/telemetry{query}"),
        Try("training", "POST", "/api/predictor/calibration", {**scope, "ratings": [label]}),
        Try("training", "POST", f"/api/predictor/disable{query}"),
        Try("training", "POST", f"/api/predictor/train{query}"),
        Try("training", "POST", "/api/predictor/rollback", {**scope, "version": 1}),
        Try("training", "POST", "/api/library/backup", {"arguments": {"target": "copy.db"}}),
        Try("training", "GET", "/api/logs"),
        Try("training", "GET", "/api/pipeline/status"),
        _verb("training", "why", scope, memory_id=one, session_key=key),
        _verb("training", "predictor-status", scope),
        _verb("training", "feedback-events", scope, session_key=key),
        _tool("training", query, "memory_explain", id=one, session=key),
    ]


def generated(made: Tenant, count: int) -> list[Try]:
    """So many tries of every kind; half of them name the other tenant, half keep quiet."""
    pick, found = random.Random(7), list[Try]()
    while len(found) < count:
        scope: dict[str, Any] = pick.choice([{}, {"user": "ada"}])
        query = "?user=ada" if scope else ""
        found += _by_id(pick.choice(made.memories), query, scope)
        found += _by_search(query, scope)
        found += _by_feedback(made, pick, scope)
        found += _by_training(made, pick, query, scope)
    return found[:count]


def betrays(content: bytes) -> bool:
    """Whether an answer holds what only tenant A said."""
    told = content.decode("utf-8", "replace").lower()
    return any(word in told for word in TELLING)


def attempt(daemon: Served, tokens: list[str], tries: list[Try]) -> tuple[list[Try], Counter[int]]:
    """The tries that were told something, and how all of them were answered."""
    through, answers = [], Counter[int]()
    connection = http.client.HTTPConnection(*daemon.address, timeout=WAIT_S)
    pick = random.Random(11)
    try:
        for one in tries:
            headers = {**shown(pick.choice(tokens)), "content-type": "application/json"}
            body = None if one.body is None else json.dumps(one.body)
            connection.request(one.method, one.path, body, headers)
            reply = connection.getresponse()
            answers[reply.status] += 1
            if betrays(reply.read()):
                through.append(one)
    finally:
        connection.close()
    return through, answers


# -- the tests ----------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the store is: a file of the data folder, or a database."""
    if request.param == "sqlite":
        yield ""
        return
    server = request.getfixturevalue("postgres")
    found = server.fresh()
    yield found
    server.give_back(found)


@pytest.fixture
def running(address: str, tmp_path: Path) -> Iterator[Served]:
    """A daemon on a thread of the test, whose parts the test can reach."""
    flags = {"daemon.port": 0, "daemon.rate_limit_per_s": 0, "database.url": address or None}
    ready: list[tuple[Listeners, Callable[[], None]]] = []
    home = tmp_path / "home"
    options = {"ready": lambda doors, stop: ready.append((doors, stop))}
    settings = load_settings(home, {}, flags)
    thread = threading.Thread(target=serving.serve, args=(settings,), kwargs=options)
    thread.start()
    wait_for(lambda: bool(ready) or not thread.is_alive(), "no server came up")
    yield read_served(home)
    ready[0][1]()
    thread.join(WAIT_S)


def tokens_of_bob(daemon: Served) -> list[str]:
    made = [make_token(daemon, role, user="bob") for role in ("read", "write", "admin", "admin")]
    return [*made, make_token(daemon, "admin", user="bob", project="own", agent="claude")]


def test_no_try_of_a_thousand_reaches_another_tenant(
    running: Served, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fill(running)
    before = standing(running, made)
    assert all(word in json.dumps(before).lower() for word in TELLING)
    tries = generated(made, TRIES)
    through, answers = attempt(running, tokens_of_bob(running), tries)
    settle(running)
    changed = [path for path, told in standing(running, made).items() if told != before[path]]
    kinds = Counter(one.kind for one in tries)
    with capsys.disabled():
        print(
            f"\n{'PostgreSQL' if address else 'SQLite'}: {len(through)} of {len(tries)} tries got"
            f" through ({dict(kinds)}; answers {dict(sorted(answers.items()))})"
        )
    assert through == []
    assert changed == []
    assert len(tries) == TRIES
    assert min(kinds.values()) >= TRIES // 10
    # Neither all refused at the door, which would prove little, nor any answered with a bug.
    assert answers[200] >= TRIES // 10
    assert answers[404] + answers[403] >= TRIES // 3
    assert not {401, 429, 500, 503} & set(answers)


def test_a_hole_would_be_found(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With names taken at their word, the same tries read and change what is not theirs."""
    made = fill(running)
    before = standing(running, made)
    monkeypatch.setattr(
        Grant,
        "scope",
        lambda self, user, agent, project, everywhere=False: (user or self.user, agent, project),
    )
    through, _ = attempt(running, tokens_of_bob(running), generated(made, TRIES // 4))
    settle(running)
    changed = [path for path, told in standing(running, made).items() if told != before[path]]
    assert {one.kind for one in through} >= {"id", "search", "feedback", "training"}
    assert changed


# -- the store alone ----------------------------------------------------------------------------


def asked_of(store: Store, made: Tenant, user: str, pick: random.Random) -> list[Callable[[], Any]]:
    """Questions of one user with the names of another's things."""
    one, key, code = pick.choice(made.memories), pick.choice(made.sessions), made.codes[0]
    scope, every, long_ago = Scope(user), EveryScope(user), datetime(2020, 1, 1, tzinfo=UTC)
    return [
        lambda: store.get(user, one),
        lambda: store.get(user, one[:10], scope),
        lambda: store.memories(user, made.memories),
        lambda: store.history(user, one),
        lambda: store.listing(Listing(every, True, include_gone=True)),
        lambda: list(store.walk(user)),
        lambda: store.session(user, key),
        lambda: store.session_of_code(user, code),
        lambda: store.session_memories(user, key),
        lambda: store.shown(user, key),
        lambda: store.ratings(user, key),
        lambda: store.used(user, key),
        lambda: store.events(user, session_key=key),
        lambda: store.session_summary(user, key),
        lambda: store.session_page(user, SessionQuery()),
        lambda: store.shown_in(user, one, 10),
        lambda: store.proofs(user, made.memories),
        lambda: store.feedback_event(user, made.reports[0]),
        lambda: store.feedback_events(user, FeedbackQuery()),
        lambda: store.testimony(user, made.memories),
        lambda: store.lessons(user, made.memories),
        lambda: store.rule(user, made.rules[0]),
        lambda: store.rule_events(user, made.rules[0], 10),
        lambda: store.access_token(user, made.tokens[0]),
        lambda: store.access_tokens(user),
        lambda: store.comparisons(user, ComparisonQuery()),
        lambda: store.comparison(user, key),
        lambda: store.training_runs(user, 10),
        lambda: store.taught_sessions(user, FEATURE_VERSION, 100),
        lambda: store.calibration(user, 10),
        lambda: store.entities(every, 10),
        lambda: store.activity(user, long_ago)["memories"] or None,
        lambda: store.write(user, lambda t: t.get(user, one)),
        lambda: store.write(user, lambda t: t.set_usefulness(user, {one: -1.0})),
        lambda: store.write(user, lambda t: t.add_usage(user, {one: 9}, datetime.now(UTC))),
        lambda: store.write(user, lambda t: t.mark_harmful(user, key, [one])),
        lambda: store.write(user, lambda t: t.put_used(user, key, {one: -1.0})),
        lambda: store.write(user, lambda t: t.clear_context(user, key)),
        lambda: store.write(user, lambda t: t.purge(user, one)),
        lambda: store.write(
            user,
            lambda t: t.note_access(user, made.tokens[0], datetime.now(UTC) + timedelta(days=1)),
        ),
    ]


def crossings(store: Store, made: Tenant, user: str, count: int) -> int:
    """How many of so many questions were answered with something."""
    pick, asked, answered = random.Random(5), 0, 0
    while asked < count:
        for question in asked_of(store, made, user, pick)[: count - asked]:
            asked += 1
            try:
                answered += bool(question())
            except MeritoryError:
                continue
    return answered


def test_the_store_itself_answers_nobody_about_another(
    running: Served, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fill(running)
    before = standing(running, made)
    store = open_store(Place(url=address) if address else Place(file=running.home / "meritory.db"))
    try:
        found = crossings(store, made, "bob", TRIES)
        with capsys.disabled():
            print(f"\n{'PostgreSQL' if address else 'SQLite'} store: {found} of {TRIES} answered")
        assert found == 0
        assert standing(running, made) == before
        # The questions are good ones: to their own tenant they are answered.
        assert crossings(store, made, "ada", 32) > 20
    finally:
        store.close()
