"""The stream of what changes: told soon, to few, never piling up, and over when it has to be."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_types import WAIT_S, Serve, Served, UnixConnection, wait_for

from meritory.api.memory import Memory
from meritory.domain.errors import Busy
from meritory.server import event_stream as streaming
from meritory.server.connection import HANG_UP_KEY
from meritory.server.event_stream import CLIENT_LIMIT, EventStream, LiveEvents, file_number
from meritory.server.problems import Overloaded
from places import open_raw


class Follower:
    """A page that follows what changes."""

    def __init__(self, daemon: Served) -> None:
        self._connection: http.client.HTTPConnection = UnixConnection(daemon.socket)
        self._connection.request("GET", "/api/live")
        self.reply = self._connection.getresponse()
        if self.reply.status == 200:
            assert self.reply.readline() == b"retry: 1000\n"
            assert self.reply.readline() == b"\n"

    def topics(self, wanted: str) -> set[str]:
        """The topics that were told until one was."""
        told: set[str] = set()
        while wanted not in told:
            line = self.reply.readline()
            assert line, told
            if line.startswith(b"data: "):
                told.add(json.loads(line[6:])["topic"])
        return told

    def rest(self) -> bytes:
        """Everything until the end."""
        return self.reply.read()

    def close(self) -> None:
        self.reply.close()
        self._connection.close()


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(rate_limit_per_s=0)


@pytest.fixture
def follower(served: Served) -> Iterator[Follower]:
    made = Follower(served)
    yield made
    made.close()


def test_the_head_says_what_it_is(follower: Follower) -> None:
    assert follower.reply.status == 200
    assert follower.reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert follower.reply.headers["cache-control"] == "no-store"


def test_what_requests_change_is_told(served: Served, follower: Follower) -> None:
    served.ask("POST", "/api/memories", {"content": "We deploy on Mondays"})
    assert "memory" in follower.topics("memory")
    served.ask("POST", "/api/hooks/session-start", {"session_key": "s1", "context": "deploying"})
    follower.topics("session")
    served.ask("POST", "/api/feedback", {"signal": "up", "context": "good", "what_worked": "it"})
    follower.topics("feedback")
    served.ask("POST", "/api/rules", {"trigger": "Bash: git push --force", "why": "it hurts"})
    follower.topics("rules")
    served.ask("POST", "/api/hooks/session-end", {"session_key": "s1"})
    follower.topics("job")
    served.ask("POST", "/api/predictor/disable")
    follower.topics("predictor")
    # A refused request is written down at this level.
    served.ask("POST", "/api/memories", {"content": ""})
    follower.topics("log")


def test_what_other_processes_change_is_told_too(served: Served, follower: Follower) -> None:
    with Memory(served.home / "meritory.db", user="somebody else") as memory:
        memory.remember("Written past the daemon")
    follower.topics("memory")


def test_all_who_follow_are_told_and_only_topics(served: Served, follower: Follower) -> None:
    other = Follower(served)
    try:
        served.ask("POST", "/api/memories", {"content": "Secret of some user"})
        for one in (follower, other):
            assert one.topics("memory") <= {
                "memory",
                "session",
                "predictor",
                "feedback",
                "rules",
                "job",
                "error",
                "log",
            }
    finally:
        other.close()


def test_there_is_room_for_a_few_and_who_left_makes_room(served: Served) -> None:
    followers = [Follower(served) for _ in range(CLIENT_LIMIT)]
    refused = Follower(served)
    assert refused.reply.status == 503
    assert refused.reply.headers["retry-after"] == "1"
    # Nobody who follows holds one of the few threads that work.
    assert served.ask("GET", "/api/stats").status == 200
    refused.close()
    for one in followers:
        one.close()

    def is_free() -> bool:
        again = Follower(served)
        again.close()
        return again.reply.status == 200

    wait_for(is_free, "the places of those who left stay taken")


def test_asking_for_the_head_alone_takes_no_place(served: Served) -> None:
    for _ in range(CLIENT_LIMIT + 1):
        assert served.ask("HEAD", "/api/live").status == 200


def test_the_daemon_does_not_wait_for_those_who_follow(served: Served) -> None:
    followers = [Follower(served) for _ in range(3)]
    served.stop()
    for one in followers:
        one.rest()
    wait_for(lambda: served.finished == [True], "the daemon did not end")
    # It says so when it has to give up on somebody.
    assert "graceful" not in (served.home / "daemon.log").read_text()
    for one in followers:
        one.close()


def test_who_is_logged_out_is_not_told_any_more(served: Served) -> None:
    cookie = served.enter()
    connection = http.client.HTTPConnection(*served.address, timeout=WAIT_S)
    connection.request("GET", "/api/live", headers=cookie)
    reply = connection.getresponse()
    assert reply.status == 200
    served.ask("POST", "/api/dashboard/logout?everywhere=true")
    reply.read()
    connection.request("GET", "/api/live", headers=cookie)
    assert connection.getresponse().status == 401
    connection.close()


# -- the parts ------------------------------------------------------------------------------------


class Page:
    """The other end of a stream, in memory."""

    def __init__(self, method: str = "GET") -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.is_stuck = False
        self.hung_up = 0
        self.scope = {"method": method, HANG_UP_KEY: self._hang_up}

    def _hang_up(self) -> None:
        self.hung_up += 1

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if self.is_stuck and message.get("more_body"):
            await asyncio.sleep(3600)
        self.sent.append(message)

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def until(self, told: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while told not in self.text:
                await asyncio.sleep(0.005)


class Numbers:
    """What there is to be noticed."""

    def __init__(self) -> None:
        self.found = {"memory": 0, "log": 0}
        self.looks = 0
        self.fails = False

    def __call__(self) -> dict[str, int]:
        self.looks += 1
        if self.fails:
            raise Busy("somebody writes")
        return dict(self.found)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is waited for comes soon."""
    for name, value in (("LOOK_EVERY_S", 0.02), ("CALM_S", 0.005), ("HEARTBEAT_S", 0.05)):
        monkeypatch.setattr(streaming, name, value)


@pytest.mark.usefixtures("quick")
def test_a_stream_beats_while_nothing_happens_and_ends_with_the_page() -> None:
    async def run() -> None:
        numbers = Numbers()
        live, page = LiveEvents(numbers), Page()
        stream = asyncio.create_task(EventStream(live, {})(page.scope, page.receive, page.send))
        await page.until(b": still here\n\n")
        assert b"event:" not in page.text
        numbers.found["memory"] += 1
        await page.until(b'event: change\ndata: {"topic":"memory"}\n\n')
        numbers.fails = True
        await asyncio.sleep(0.05)
        numbers.fails = False
        numbers.found["log"] += 1
        await page.until(b'{"topic":"log"}')
        assert page.text.count(b"event:") == 2
        page.left.set()
        await asyncio.wait_for(stream, WAIT_S)
        # Without anybody who follows, nobody looks either.
        await wait_until(lambda: live._watch is not None and live._watch.done())
        before = numbers.looks
        await asyncio.sleep(0.1)
        assert numbers.looks == before

    asyncio.run(run())


@pytest.mark.usefixtures("quick")
def test_where_the_store_tells_nobody_looks_by_the_clock() -> None:
    class Teller:
        told: Callable[[], None] | None = None

        def follow(self, told: Callable[[], None]) -> Teller:
            self.told = told
            return self

        def close(self) -> None:
            self.told = None

    async def run() -> None:
        numbers, teller = Numbers(), Teller()
        live, page = LiveEvents(numbers, teller.follow), Page()
        stream = asyncio.create_task(EventStream(live, {})(page.scope, page.receive, page.send))
        await page.until(b": still here\n\n")
        numbers.found["memory"] += 1
        await asyncio.sleep(0.1)
        assert (numbers.looks, b"event:" in page.text) == (1, False)
        assert teller.told is not None
        # As the store does: from a thread of its own.
        await asyncio.to_thread(teller.told)
        await page.until(b'event: change\ndata: {"topic":"memory"}\n\n')
        page.left.set()
        await asyncio.wait_for(stream, WAIT_S)
        await wait_until(lambda: teller.told is None)

    asyncio.run(run())


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("quick")
def test_much_that_happens_is_told_once_to_who_reads_slowly() -> None:
    async def run() -> None:
        live = LiveEvents(Numbers())
        reader = live.join()
        for _ in range(10_000):
            reader.add(["memory", "log"])
        told = await reader.next()
        assert told.count(b"event: change") == 2
        live.leave(reader)

    asyncio.run(run())


@pytest.mark.usefixtures("quick")
def test_who_takes_nothing_in_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALL_LIMIT_S", 0.05)

    async def run() -> None:
        live, page = LiveEvents(Numbers()), Page()
        page.is_stuck = True
        await asyncio.wait_for(EventStream(live, {})(page.scope, page.receive, page.send), WAIT_S)
        assert page.hung_up == 1
        for _ in range(CLIENT_LIMIT):
            live.join()

    asyncio.run(run())


@pytest.mark.usefixtures("quick")
def test_no_stream_goes_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STREAM_LIFE_S", 0.1)

    async def run() -> None:
        live, page = LiveEvents(Numbers()), Page()
        await asyncio.wait_for(EventStream(live, {})(page.scope, page.receive, page.send), WAIT_S)
        assert page.sent[-1] == {"type": "http.response.body", "body": b""}

    asyncio.run(run())


def test_more_than_a_few_are_refused() -> None:
    async def run() -> None:
        live = LiveEvents(Numbers())
        readers = [live.join() for _ in range(CLIENT_LIMIT)]
        with pytest.raises(Overloaded):
            live.join()
        live.close()
        assert all(reader.is_over for reader in readers)
        for reader in readers:
            live.leave(reader)

    asyncio.run(run())


def test_a_file_that_grows_or_is_replaced_has_another_number(tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert file_number(file) == 0
    file.write_text("a")
    first = file_number(file)
    file.write_text("ab")
    assert file_number(file) not in (0, first)
    other = tmp_path / "other"
    other.write_text("a")
    other.rename(file)
    assert file_number(file) != 0


def test_a_write_that_is_rolled_back_is_no_change(tmp_path: Path) -> None:
    with Memory(tmp_path / "m.db") as memory:
        store = memory.services.store
        before = store.change_numbers()
        with open_raw(tmp_path / "m.db") as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE meta SET value = '99' WHERE key = 'change'")
            connection.rollback()
        assert store.change_numbers() == before
        memory.remember("Something new")
        after = store.change_numbers()
        assert {topic for topic in after if after[topic] != before[topic]} == {"memory"}
