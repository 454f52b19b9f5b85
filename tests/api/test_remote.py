"""`Memory` at a daemon behaves like one in the same process.

The same scenarios run embedded, over the daemon's socket and over TCP.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import math
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from meritory import AsyncMemory, Memory
from meritory.api import client
from meritory.api.address import Address, choose_daemon, read_url
from meritory.api.client import DaemonLink
from meritory.api.remote import (
    PAGE_LIMIT,
    PREFIX,
    RemoteBackend,
    RemoteSession,
    _signature,
    to_json,
)
from meritory.api.session import Session
from meritory.domain import errors
from meritory.domain.errors import (
    BadReply,
    Conflict,
    InputError,
    MeritoryError,
    NotFound,
    PortTimeout,
)
from meritory.domain.memory import MemoryRecord, Source
from meritory.server.routes.library import ROUTES

Open = Callable[..., Memory]
WAYS = ("embedded", "socket", "tcp")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a daemon that runs for all tests of this file."""
    folder = tmp_path_factory.mktemp("remote") / "home"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MERITORY_")]:
            patch.delenv(name)
        patch.setenv("MERITORY_DAEMON_RATE_LIMIT_PER_S", "0")
        patch.setenv("MERITORY_PREDICTOR_SCORE_TIMEOUT_MS", "60000")
        client.ensure(folder, wait_ms=30_000, options=("--port", "0"))
    try:
        yield folder
    finally:
        client.stop(folder)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "own"))


@pytest.fixture(params=WAYS)
def open_memory(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens memories in one of the three ways; each test has a user of its own."""
    opened: list[Memory] = []
    name = request.node.name

    def start(user: str = "", **fields: Any) -> Memory:
        whose = f"{name}-{user}"
        if request.param == "embedded":
            made = Memory(tmp_path / "meritory.db", user=whose, **fields)
        else:
            made = Memory(**place(home, request.param), user=whose, **fields)
        assert isinstance(made.backend, RemoteBackend) == (request.param != "embedded")
        opened.append(made)
        return made

    yield start
    for made in opened:
        made.close()


def place(home: Path, way: str) -> dict[str, Any]:
    found = client.find(home)
    assert found is not None
    if way == "socket":
        return {"url": f"unix://{found.socket}"}
    return {"url": found.url, "token": (home / "token").read_text()}


# -- the contract -----------------------------------------------------------------------------


class TestContract:
    """What holds for every way."""

    def test_a_memory_comes_back_as_it_went_in(self, open_memory: Open) -> None:
        memory = open_memory(project="api", agent="coder")
        source = Source("harness", "s-1", "3", "ab12")
        begin = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        made = memory.remember(
            "The staging database is called heron — naïve ☃",
            kind="decision",
            tags=("db", "staging"),
            importance=0.7,
            confidence=0.25,
            source=source,
            valid_from=begin,
            about="db",
            depends_on=["network"],
        )
        assert isinstance(made, MemoryRecord)
        assert made == memory.get(made.id) == memory.get(made.id[:12])
        assert (made.kind, made.tags, made.importance) == ("decision", ("db", "staging"), 0.7)
        assert (made.source, made.valid_from, made.confidence) == (source, begin, 0.25)
        assert (made.project, made.agent, made.user) == ("api", "coder", memory.scope.user)
        assert made.created_at.tzinfo is UTC
        assert memory.page() == [made]
        view = memory.describe("db")
        assert [one.name for one in view.depends_on] == ["network"]
        assert memory.entities()[0].memory_count >= 1
        assert memory.related("db") == [made.id]

    def test_recall_finds_and_explains(self, open_memory: Open) -> None:
        memory = open_memory()
        memory.remember("The staging database is called heron")
        memory.remember("Deploys happen on Tuesdays")
        found = memory.recall("what is the staging database called?", limit=1, explain=True)
        assert [hit.content for hit in found] == ["The staging database is called heron"]
        assert found[0].parts is not None
        assert math.isclose(found[0].score, found[0].parts.hybrid, abs_tol=1)
        assert memory.recall("staging database")[0].parts is None

    def test_recall_takes_filters_and_a_lowest_score(self, open_memory: Open) -> None:
        memory = open_memory()
        wanted = memory.remember("The heron is grey", tags=["bird"], metadata={"n": 1, "deep": [2]})
        other = memory.remember("The heron stands in the lake", kind="decision", project="lake")
        assert memory.get(wanted.id).metadata == {"n": 1, "deep": [2]}
        for filters in (
            {"tags": ["bird"]},
            {"metadata": {"n": 1}},
            {"kind": "fact", "since": datetime(2000, 1, 1, tzinfo=UTC)},
        ):
            assert [hit.id for hit in memory.recall("heron", **filters)] == [wanted.id], filters
        assert [hit.id for hit in memory.recall("heron", projects=["lake"])] == [other.id]
        assert memory.recall("heron", until="2000-01-01") == []
        assert memory.recall("what is the capital of Mongolia?") == []
        assert memory.recall("what is the capital of Mongolia?", 1, min_score=0)[0].score < 0.05
        with pytest.raises(InputError, match="invalid kind"):
            memory.recall("heron", kind="facts")

    def test_change_history_undo_and_forget(self, open_memory: Open) -> None:
        memory = open_memory()
        made = memory.remember("Port 8080 is the proxy's")
        changed = memory.update(made.id, content="Port 8081 is the proxy's", pinned=True)
        assert (changed.content, changed.pinned) == ("Port 8081 is the proxy's", True)
        assert memory.required() == [made.id]
        assert memory.undo(made.id)[0].content == made.content
        memory.forget(made.id, why="outdated")
        assert memory.page() == []
        assert memory.page(include_gone=True)[0].deleted_at is not None
        told = memory.history(made.id)
        assert [one.action for one in told] == ["create", "update", "undo", "delete"]
        assert {one.actor for one in told} == {"library"}
        assert told[1].before == made
        assert told[3].why == "outdated"
        memory.forget(made.id, purge=True)
        with pytest.raises(NotFound):
            memory.get(made.id)

    def test_a_merge_is_listed_and_split(self, open_memory: Open) -> None:
        memory = open_memory()
        memory.remember("The staging database is called heron")
        again = memory.remember_many(["The staging database is called heron."])[0]
        assert again.outcome in ("duplicate", "merged")
        merges = memory.merges()
        if again.outcome == "merged":
            assert merges[0].memory_id == again.memory.id  # type: ignore[union-attr]
            assert len(memory.split(merges[0].memory_id)) == 2
        else:
            assert merges == []

    def test_one_bad_item_keeps_none_out(self, open_memory: Open) -> None:
        memory = open_memory()
        items: list[Any] = [
            "first fact about ants",
            b"bytes are no text",
            {"content": "second fact about bees", "kind": "nonsense"},
            {"content": "half \ud800 a character"},
            {"content": "x", "confidence": math.nan},
            {"content": "third fact about wasps", "valid_from": object()},
            {"content": "x" * 9_000},
            "AWS key AKIAIOSFODNN7EXAMPLX",  # secret-looking
            {"content": "fourth fact about moths", "tags": {"b", "a"}},
        ]
        results = memory.remember_many(items)
        assert len(results) == len(items)
        stored = [place for place, result in enumerate(results) if result.memory is not None]
        assert {0, 8} <= set(stored)
        assert {1, 2, 3, 4, 5, 6}.isdisjoint(stored)
        for place in (1, 2, 3, 4, 5, 6):
            error = results[place].error
            assert isinstance(error, InputError)
            assert error.code in ("invalid_input", "too_large")
        assert results[6].error.code == "too_large" or isinstance(results[6].error, InputError)  # type: ignore[union-attr]
        assert results[8].memory.tags == ("a", "b")  # type: ignore[union-attr]
        with pytest.raises(InputError):
            memory.remember_many("one text")

    def test_more_than_a_batch_goes_in_and_comes_out_in_pages(self, open_memory: Open) -> None:
        memory = open_memory()
        texts = [f"note {n} about {'ab'[n % 2] * 3}{n * n}" for n in range(450)]
        results = memory.remember_many([{"content": t, "on_similar": "keep"} for t in texts])
        assert [r.memory.content for r in results] == texts  # type: ignore[union-attr]
        assert len(memory.page(10_000)) == 450
        assert len(memory.page(7)) == 7
        first = memory.page(100)
        assert memory.page(1, after=first[-1].id)[0].id not in {one.id for one in first}

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda memory: memory.remember(""),
            lambda memory: memory.remember(5),
            lambda memory: memory.remember(b"x"),
            lambda memory: memory.remember("x", nonsense=1),
            lambda memory: memory.remember("x", confidence=2),
            lambda memory: memory.remember("x", supersedes="nobody"),
            lambda memory: memory.remember("half \udfff"),
            lambda memory: memory.get(5),
            lambda memory: memory.get("nobody"),
            lambda memory: memory.get("'; DROP TABLE memories; --"),
            lambda memory: memory.update("nobody", content="x"),
            lambda memory: memory.forget("nobody"),
            lambda memory: memory.forget("nobody", purge=True),
            lambda memory: memory.undo("nobody"),
            lambda memory: memory.recall(5),
            lambda memory: memory.recall("x", limit=0),
            lambda memory: memory.recall("x", limit=2**70),
            lambda memory: memory.page(0),
            lambda memory: memory.page(10_001),
            lambda memory: memory.page("7"),
            lambda memory: memory.describe("nobody"),
            lambda memory: memory.describe(5),
            lambda memory: memory.session(""),
            lambda memory: memory.session(5),
            lambda memory: memory.session("s", context=5),
            lambda memory: memory.session("s", project="a\nb"),
            lambda memory: memory.session("s").prompt(5),
            lambda memory: memory.session("s").end(used={"nobody": 1}),
            lambda memory: memory.session("s").end(used={"nobody": "x"}),
            lambda memory: memory.session("s").end(transcript=5),
            lambda memory: memory.why("nobody", "nothing"),
            lambda memory: memory.view(user=""),
            lambda memory: memory.view(project=b"x"),
        ],
    )
    def test_wrong_use_raises_the_same(
        self, open_memory: Open, tmp_path: Path, wrong: Callable[[Memory], Any]
    ) -> None:
        memory = open_memory()
        with Memory(tmp_path / "reference.db") as reference, pytest.raises(MeritoryError) as due:
            wrong(reference)
        with pytest.raises(MeritoryError) as got:
            wrong(memory)
        assert got.value.code == due.value.code
        assert isinstance(got.value, type(due.value))
        assert got.value.message

    def test_a_secret_is_refused_as_one(self, open_memory: Open) -> None:
        memory = open_memory()
        with pytest.raises(errors.SecretFound):
            memory.remember("the key is ghp_" + "a1B2c3D4e5" * 4)

    def test_scopes_are_kept_apart(self, open_memory: Open) -> None:
        memory = open_memory()
        own = memory.remember("everybody may know this")
        api = memory.view(user=memory.scope.user, project="api")
        secret = api.remember("the api alone may know this")
        with pytest.raises(NotFound):
            memory.get(secret.id)
        assert api.get(own.id) == own
        wide = memory.view(user=memory.scope.user, everywhere=True)
        assert wide.get(secret.id) == secret
        assert {one.id for one in memory.page(everywhere=True)} == {own.id, secret.id}
        with pytest.raises(NotFound):
            open_memory("other").get(own.id)

    def test_feedback_is_kept_completed_and_summed_up(self, open_memory: Open) -> None:
        memory = open_memory(project="shop")
        told = memory.capture_feedback(
            "👎",
            "You pushed to main without asking me first",
            tags={"git"},
            last_action={"tool": "Bash"},
            rubric_scores={"safety": 1},
            memory_ids=["0000nobody"],
        )
        assert (told.accepted, told.status) == (True, "promoted")
        assert told.memory is not None
        assert told.memory.project == "shop"
        assert [issue.field for issue in told.issues] == ["memory_ids"]
        assert told.event is not None
        assert memory.feedback_event(told.event.id) == told.event
        asked = memory.feedback("up", "good")
        assert asked.missing == ("what_worked",)
        assert asked.event is not None
        done = memory.complete_feedback(asked.event.id, what_worked="Rebased before the merge")
        assert done.accepted
        assert [one.id for one in memory.feedback_events(signal="up")] == [asked.event.id]
        summary = memory.feedback_summary()
        assert (summary.total, summary.accepted, summary.approval.overall.rate) == (2, 2, 0.5)
        assert memory.feedback_risk(days=7) == []
        assert memory.feedback_pairs() == []
        assert memory.contested() == []
        with pytest.raises(Conflict):
            memory.complete_feedback(asked.event.id)
        with pytest.raises(InputError):
            memory.capture_feedback("up", mood="fine")

    def test_a_session_from_start_to_end(self, open_memory: Open) -> None:
        memory = open_memory(project="shop")
        heron = memory.remember("The staging database is called heron")
        memory.remember("Deploys happen on Tuesdays")
        with memory.session("s-1", context="look at the staging database", harness="x") as session:
            assert isinstance(session, Session)
            assert session.key == "s-1"
            assert session.scope == memory.scope
            assert "heron" in session.inject
            assert session.injection and session.injection in session.inject
            assert heron.id in session.ranking
            shown = {one.id: one.handle for one in session.memories}
            assert session.status_line
            handle = shown[heron.id]
            taken = session.reply(f"Done.\n<!--mf {session.injection} {handle}=0.8 m99=1-->")
            assert [(one.memory_id, one.score) for one in taken.taken] == [(heron.id, 0.8)]
            assert [name for name, _ in taken.refused] == ["m99"]
            assert taken.taken[0].at.tzinfo is UTC
            later = memory.remember("The billing service talks to Stripe")
            served = session.prompt("how does billing talk to Stripe?", {handle: 0.5})
            assert [one.id for one in served.memories] == [later.id]
            assert later.id in {one.id for one in session.memories}
            assert session.rate({later.id: 1, "nobody": 1, handle: math.nan}).refused
            session.compact()
            assert heron.id in {one.id for one in session.prompt("staging database").memories}
            told = memory.why(heron.id, "s-1")
            assert told
            session.end([{"role": "user", "text": "hello"}], used={heron.id: 1.0})
            session.end()
        assert memory.predictor_status()
        assert memory.drain() >= 0
        stats = memory.stats()
        assert stats["live"] == 3
        with pytest.raises(errors.Conflict):
            session.prompt("too late")

    def test_a_session_goes_on_under_its_key(self, open_memory: Open) -> None:
        memory = open_memory()
        memory.remember("The staging database is called heron")
        first = memory.session("again", context="staging database")
        second = memory.session("again", context="staging database")
        assert first.inject == second.inject
        assert [(one.handle, one.id) for one in first.memories] == [
            (one.handle, one.id) for one in second.memories
        ]
        first.end("user: it went well \ud800")
        second.end()

    def test_half_characters_and_long_texts_do_not_stop_a_session(self, open_memory: Open) -> None:
        memory = open_memory()
        session = memory.session("odd", context="half \ud800 and \x00")
        session.prompt("more \udc00 " + "x" * 500_000)
        session.reply("\ud800" * 10)
        session.end([{"role": "assistant", "text": "é" * 900_000}] * 3)

    def test_care(self, open_memory: Open, home: Path, tmp_path: Path) -> None:
        memory = open_memory()
        made = memory.remember("The staging database is called heron")
        # Over TCP a daemon writes copies into its data folder only.
        copy = home / f"{tmp_path.name}.db"
        memory.backup(copy)
        with Memory(copy, user=memory.scope.user) as other:
            assert other.get(made.id).content == made.content
        assert memory.reembed() is True
        memory.reembed_in_background().join()
        memory.work_meanwhile()
        assert memory.confirm(made.id).trust == "trusted"
        memory.close()
        memory.close()

    def test_many_threads_share_one(self, open_memory: Open) -> None:
        memory = open_memory()
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(5):
                    made = memory.remember(f"thread {number} noted {step * 7919} things")
                    assert memory.get(made.id).id == made.id
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


# -- the surface ------------------------------------------------------------------------------


def public(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_a_daemon_runs_every_verb() -> None:
    """Each verb has a route and a type that its reply is read as, or the client has its own way."""
    routes = {route.path.removeprefix(PREFIX) for route in ROUTES}
    methods = public(Memory).values()
    verbs = {method.__name__ for method in methods if hasattr(method, "__wrapped__")}
    assert len(verbs) > 30
    own = {name for name in verbs if hasattr(RemoteBackend, name)}
    assert own == {"remember_many", "forget", "page", "backup", "reembed", "reembed_in_background"}
    for name in verbs - own:
        assert name.replace("_", "-") in routes, name
        assert _signature(vars(Memory)[name])[1] is not None, name
    changing = {"prompt", "reply", "rate", "compact", "_end"}
    assert changing <= set(vars(RemoteSession))
    assert {f"session/{name.strip('_')}" for name in changing} | {"session/start"} <= routes


def test_the_async_twin_has_every_method() -> None:
    own = {"scope", "settings", "backend"}
    sync_only = {"services", "works", "view", "work_meanwhile", "reembed_in_background"}
    for name in set(public(Memory)) - own - sync_only:
        expected = inspect.signature(getattr(Memory, name)).parameters
        assert inspect.signature(getattr(AsyncMemory, name)).parameters == expected, name
    assert list(inspect.signature(Memory).parameters)[:3] == ["path", "url", "token"]
    touching = {"prompt", "reply", "rate", "recall", "compact", "end"}
    assert {n for n, v in vars(Session).items() if callable(v) and n[0] != "_"} == touching


def test_closing_is_optional(home: Path) -> None:
    """Warnings are errors here: a socket that is left open would be one."""
    memory = Memory(**place(home, "socket"), user="careless")
    other = Memory(**place(home, "tcp"), user="careless")
    assert type(memory) is type(other)
    assert memory.stats() == other.view(user="careless").stats()
    del memory, other
    gc.collect()


def test_what_is_the_daemons_own_is_not_here(home: Path) -> None:
    with Memory(**place(home, "socket")) as memory:
        for name in ("services", "works"):
            with pytest.raises(InputError, match="daemon"):
                getattr(memory, name)


# -- who does the work ------------------------------------------------------------------------


def test_nothing_given_means_the_daemon_that_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(home))
    with Memory(user="found") as memory:
        assert isinstance(memory.backend, RemoteBackend)
        assert isinstance(memory, Memory)
        memory.remember("found by its folder")
    with Memory(home / "meritory.db", user="found") as own:
        assert not isinstance(own.backend, RemoteBackend)
        assert len(own.page()) == 1
    with Memory(user="found", apart=True) as own:
        assert not isinstance(own.backend, RemoteBackend)


def test_without_a_daemon_the_store_is_ones_own(tmp_path: Path) -> None:
    with Memory() as memory:
        assert not isinstance(memory.backend, RemoteBackend)
        assert memory.settings.home == tmp_path / "own"
        view = memory.view(project="x")
        assert type(view) is Memory
    (tmp_path / "own" / "daemon.json").write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    with Memory() as memory:
        assert not isinstance(memory.backend, RemoteBackend)


def test_a_daemon_names_the_user_by_default(home: Path) -> None:
    with Memory(**place(home, "tcp")) as memory:
        assert memory.scope.user == memory.settings.user == "default"
        assert memory.view(project="x").scope.project == "x"
    with Memory(**place(home, "tcp"), user="ann") as memory:
        assert memory.view().scope.user == "default"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "http://",
        "http://a/b",
        "http://a?x=1",
        "http://u:p@a",
        "unix://x/y",
        "unix://",
        "http://[::1",
        "http://a:99999",
        5,
        "/tmp/meritory.sock",
        "http://127.0.0.1:80#x",
        "http://two words",
        "http://a\0b",
        "http://" + "a" * 70 + ":1",
    ],
)
def test_a_wrong_url_is_said_to_be_one(url: Any) -> None:
    with pytest.raises(InputError):
        Memory(url=url)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="path"):
        Memory(tmp_path / "x.db", url="http://127.0.0.1:1")
    with pytest.raises(InputError, match="clock"):
        Memory(url="http://127.0.0.1:1", clock=lambda: datetime.now(UTC))
    with pytest.raises(InputError):
        Memory(tmp_path / "x.db", token="t")

    class Own(Memory):
        """An engine of one's own making."""

    with pytest.raises(InputError, match="own"):
        Own(tmp_path / "x.db", url="http://127.0.0.1:1")


def test_the_folders_token_goes_to_its_daemon_only(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "token").write_text("t0ken\n")
    assert read_url("http://127.0.0.1:7").token is None
    (own / "daemon.json").write_text('{"url": "http://127.0.0.1:7", "socket": null}')
    assert read_url("http://127.0.0.1:7").token == "t0ken"
    assert read_url("http://localhost:7").token == "t0ken"
    # Whoever listens on another port may be anybody on this machine.
    assert read_url("http://127.0.0.1:8").token is None
    assert read_url("http://127.0.0.1").token is None
    assert read_url("http://memory.example:7").token is None
    for broken in ("[]", "{}", "{", '{"url": 5}', '{"url": "http://x:y"}'):
        (own / "daemon.json").write_text(broken)
        assert read_url("http://127.0.0.1:7").token is None
    assert read_url("https://memory.example", "given").token == "given"
    with pytest.raises(InputError):
        read_url("http://localhost:7", "two\nlines")
    assert choose_daemon({"url": "unix:///x/y.sock"}) == Address(socket="/x/y.sock")


def test_a_wrong_token_is_refused(home: Path) -> None:
    found = client.find(home)
    assert found is not None
    with pytest.raises(MeritoryError) as refused:
        Memory(url=found.url, token="0" * 64)
    assert refused.value.code == "unauthorized"


# -- when things go wrong ---------------------------------------------------------------------


class Wire:
    """A server that says what the test wants, connection by connection."""

    def __init__(self, path: Path, script: list[list[bytes | None]]) -> None:
        self.asked: list[bytes] = []
        self.url = f"unix://{path}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._run, args=(script,), daemon=True)
        self._thread.start()

    def _run(self, script: list[list[bytes | None]]) -> None:
        for replies in script:
            connection, _ = self._listener.accept()
            with connection:
                for reply in replies:
                    self.asked.append(self._request(connection))
                    if reply is None:
                        break
                    connection.sendall(reply)
        self._listener.close()

    @staticmethod
    def _request(connection: socket.socket) -> bytes:
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(65_536)
        head, _, rest = got.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line
        )
        while len(rest) < length:
            rest += connection.recv(65_536)
        return head.split(b"\r\n")[0] + b" " + rest

    def close(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def answer(content: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}content-length: {len(content)}\r\n\r\n".encode() + content


def asked(wire: Wire, *, is_repeatable: bool, times: int = 1, timeout_ms: int = 5_000) -> bytes:
    link = DaemonLink(read_url(wire.url))
    try:
        for _ in range(times):
            raw = link.ask("/x", b"{}", is_repeatable=is_repeatable, timeout_ms=timeout_ms)
        return raw
    finally:
        link.close()
        wire.close()


def test_a_connection_is_used_again(tmp_path: Path) -> None:
    wire = Wire(tmp_path / "s", [[answer(b"1"), answer(b"2")]])
    assert asked(wire, is_repeatable=False, times=2) == b"2"


def test_a_connection_that_was_closed_meanwhile_is_noticed(tmp_path: Path) -> None:
    wire = Wire(tmp_path / "s", [[answer(b"1")], [answer(b"2")]])
    link = DaemonLink(read_url(wire.url))
    assert link.ask("/x", b"{}", is_repeatable=False) == b"1"
    # Long enough for the other side to have closed; then even a write goes through.
    assert select.select([link._idle[0][0].sock], [], [], 30)[0]
    assert link.ask("/x", b"{}", is_repeatable=False) == b"2"
    link.close()
    wire.close()


@pytest.mark.parametrize(("is_repeatable", "count"), [(True, 3), (False, 2)])
def test_only_what_may_be_repeated_is_repeated(
    tmp_path: Path, is_repeatable: bool, count: int
) -> None:
    script: list[list[bytes | None]] = [[answer(b"1"), None]]
    wire = Wire(tmp_path / "s", [*script, [answer(b"2")]] if is_repeatable else script)
    if is_repeatable:
        assert asked(wire, is_repeatable=True, times=2) == b"2"
    else:
        with pytest.raises(client.DaemonDown, match="may have taken effect"):
            asked(wire, is_repeatable=False, times=2)
    assert len(wire.asked) == count


def test_erasing_is_not_repeated(tmp_path: Path) -> None:
    scope = b'{"user": "default", "agent": null, "project": null}'
    met = b'{"scope": %b, "default_user": "default"}' % scope
    wire = Wire(tmp_path / "s", [[answer(met), None]])
    memory = Memory(url=wire.url)
    with pytest.raises(client.DaemonDown, match="may have taken effect"):
        memory.forget("0123456789abcdef", purge=True)
    memory.close()
    wire.close()
    assert len(wire.asked) == 2


def test_nothing_is_repeated_twice(tmp_path: Path) -> None:
    wire = Wire(tmp_path / "s", [[answer(b"1"), None], [None]])
    with pytest.raises(client.DaemonDown, match="reached"):
        asked(wire, is_repeatable=True, times=2)


def test_a_daemon_that_does_not_answer_is_a_timeout(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(path))
        silent.listen()
        link = DaemonLink(read_url(f"unix://{path}"))
        with pytest.raises(PortTimeout, match="in time"):
            link.ask("/x", b"{}", is_repeatable=True, timeout_ms=50)


def test_an_address_without_a_daemon_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(client.DaemonDown, match="reached") as down:
        Memory(url=f"unix://{tmp_path}/nothing")
    assert down.value.hint
    with pytest.raises(client.DaemonDown):
        Memory(url="http://127.0.0.1:1", token="x")


def test_later_means_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = b'{"code":"too_many","detail":"slow down","status":429}'
    wire = Wire(tmp_path / "s", [[answer(told, "429 Too Many"), answer(b"1")]])
    assert asked(wire, is_repeatable=False) == b"1"
    # Without time for a pause the error comes at once.
    monkeypatch.setattr(client, "_RETRY_PAUSE_S", 60.0)
    wire = Wire(tmp_path / "t", [[answer(told, "429 Too Many")]])
    with pytest.raises(MeritoryError) as refused:
        asked(wire, is_repeatable=False, timeout_ms=30_000)
    assert refused.value.code == "too_many"


@pytest.mark.parametrize("content", [b"", b"{", b'{"scope": 5}', b"\xff", b"[]"])
def test_nonsense_is_a_bad_reply(tmp_path: Path, content: bytes) -> None:
    wire = Wire(tmp_path / "s", [[answer(content, more="connection: close\r\n")]])
    with pytest.raises(BadReply):
        Memory(url=wire.url)
    wire.close()


@pytest.mark.parametrize("content", [b"", b"<html>", b"[1]"])
def test_an_error_that_cannot_be_read_is_an_error_still(tmp_path: Path, content: bytes) -> None:
    wire = Wire(tmp_path / "s", [[answer(content, "500 Oops", "connection: close\r\n")]])
    with pytest.raises(MeritoryError):
        Memory(url=wire.url)
    wire.close()


def test_a_daemon_that_was_restarted_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    client.ensure(own, wait_ms=30_000, options=("--port", "0"))
    try:
        with Memory(user="restart") as memory:
            assert isinstance(memory.backend, RemoteBackend)
            made = memory.remember("kept over a restart")
            client.stop(own)
            with pytest.raises(client.DaemonDown):
                memory.get(made.id)
            client.ensure(own, wait_ms=30_000, options=("--port", "0"))
            assert memory.get(made.id).content == made.content
    finally:
        client.stop(own)


def test_a_child_process_has_connections_of_its_own(home: Path) -> None:
    with Memory(**place(home, "socket"), user="fork") as memory:
        before = memory.backend.link._idle[0][0]  # type: ignore[attr-defined]
        memory.backend.link._owner_pid = -1  # type: ignore[attr-defined]
        memory.stats()
        assert before.sock is None


@pytest.mark.parametrize(
    "value", [b"x", object(), 2**63, math.inf, {1: "x"}, {"a": [b"x"]}, {"a": {1, b"x"}}, 1j]
)
def test_what_json_would_bend_is_not_sent(value: object) -> None:
    with pytest.raises(InputError):
        to_json(value)


def test_a_long_page_is_asked_for_in_parts(home: Path) -> None:
    with Memory(**place(home, "socket"), user="long") as memory:
        count = PAGE_LIMIT + 5
        memory.remember_many(
            [
                {"content": f"{n} bottles on wall {n * n}", "on_similar": "keep"}
                for n in range(count)
            ]
        )
        assert len({one.id for one in memory.page(10_000)}) == count
        assert len(memory.page(PAGE_LIMIT + 2)) == PAGE_LIMIT + 2


def test_the_async_twin_talks_to_a_daemon_too(home: Path) -> None:
    async def use() -> str:
        async with AsyncMemory(**place(home, "socket"), user="async") as memory:
            await memory.remember("The staging database is called heron")
            async with await memory.session("a-1", context="staging database") as session:
                assert session.memories
                await session.reply("nothing to say")
            return (await memory.recall("staging database"))[0].content

    assert asyncio.run(use()) == "The staging database is called heron"
