"""What counts as shown: blocks with a receipt, and ends of sessions nobody has heard of."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from typing import Any

import pytest
from web_types import Serve, Served, wait_for

HERON = "The staging database is called heron"
LOGIN = "The login page lives in src/login/page.tsx"
QUESTION = "which staging database do we use?"


class Client:
    """A hook that may lose what it was answered."""

    def __init__(self, daemon: Served, user: str, key: str) -> None:
        self.daemon = daemon
        self.fields = {"session_key": key, "user": user, "relayed": True}
        self._query = f"?user={user}"
        self._path = f"/api/sessions/{key}"

    def ask(self, name: str, **body: Any) -> Any:
        reply = self.daemon.ask("POST", f"/api/hooks/{name}", {**self.fields, **body})
        assert reply.status == 200, reply.content
        return reply.json

    def start(self, **body: Any) -> Any:
        return self.ask("session-start", receipts=True, **body)

    def prompt(self, text: str, **body: Any) -> Any:
        return self.ask("user-prompt-submit", prompt=text, receipts=True, **body)

    def printed(self, reply: Any) -> int:
        counted: int = self.ask("delivered", receipt=reply["receipt"])["counted"]
        return counted

    def note(self, *texts: str) -> None:
        for text in texts:
            body = {"content": text, "user": self.fields["user"]}
            assert self.daemon.ask("POST", "/api/memories", body).status in (200, 201)

    def get(self, path: str = "") -> Any:
        return self.daemon.ask("GET", f"{self._path}{path}{self._query}").json

    def shown(self) -> dict[str, str]:
        """By handle the id of every memory that counts as shown."""
        rows = [one for one in self.get("/memories")["results"] if one["was_injected"]]
        return {one["handle"]: one["id"] for one in rows}


@pytest.fixture
def client(daemon: Served) -> Client:
    made = Client(daemon, uuid.uuid4().hex, "run")
    made.note(HERON)
    return made


def test_a_block_without_a_receipt_was_not_shown_and_comes_again(client: Client) -> None:
    lost = client.start()
    assert HERON in lost["inject"] and client.shown() == {}
    again = client.prompt(QUESTION)
    assert again["inject"].count(HERON) == 1
    # The very same block, under the same code.
    assert lost["injection"] in again["receipt"].split()
    assert client.shown() == {}
    assert client.printed(again) >= 1
    assert list(client.shown()) == ["m1"]
    assert HERON not in client.prompt(f"once more: {QUESTION}")["inject"]
    assert client.printed(again) == 0


def test_a_client_that_never_sends_receipts_is_offered_the_block_ever_more_rarely(
    client: Client,
) -> None:
    client.start()
    client.note(LOGIN)
    offers = [client.prompt(f"what about lunch on day {number}?") for number in range(1, 18)]
    numbers = [n for n, one in enumerate(offers, 1) if HERON in one["inject"]]
    assert numbers == [1, 2, 4, 8, 16]
    # It lost the block, and says now that it gets others.
    client.printed(client.prompt("where does the login page live?"))
    assert HERON in client.prompt("and lunch?")["inject"]


def test_memories_of_prompts_come_again_ever_more_rarely_too(client: Client) -> None:
    client.start()
    client.note(LOGIN)
    client.prompt("where does the login page live?")
    offers = [client.prompt(f"what about lunch on day {number}?") for number in range(2, 10)]
    assert [n for n, one in enumerate(offers, 2) if LOGIN in one["inject"]] == [2, 4, 8]


def test_a_prompts_memories_without_a_receipt_come_with_the_next(client: Client) -> None:
    client.printed(client.start())
    client.note(LOGIN)
    lost = client.prompt("where is src/login/page.tsx, the login page?")
    assert LOGIN in lost["inject"]
    again = client.prompt("what about lunch?")
    assert LOGIN in again["inject"]
    client.printed(again)
    assert len(client.shown()) == 2
    assert LOGIN not in client.prompt("what about dinner?")["inject"]


def test_nobody_can_rate_what_was_not_delivered_and_nothing_is_learned(client: Client) -> None:
    lost = client.start()
    rating = f"<!--mf {lost['injection']} m1=0.9-->"
    said = client.ask("stop", last_assistant_message=rating)
    assert (said["taken"], len(said["refused"])) == (0, 1)
    talk = [{"role": "user", "text": "where? " * 60}, {"role": "assistant", "text": "heron " * 60}]
    client.ask("session-end", transcript=[*talk, {"role": "assistant", "text": rating}])
    wait_for(lambda: client.get()["state"] == "finished", "it was never judged")
    (row,) = client.get("/memories")["results"]
    assert (row["was_injected"], row["handle"], row["agent_relevance_score"]) == (False, None, None)
    # As for any memory that was not shown: no rating is part of what it taught.
    assert row["label_parts"].get("agent") is None
    memory = client.daemon.ask("GET", f"/api/memories/{row['id']}?user={client.fields['user']}")
    assert memory.json["access_count"] == 0


def test_a_late_receipt_of_an_ended_session_counts_and_it_is_judged_again(client: Client) -> None:
    late = client.start()
    talk = [{"role": "user", "text": "where? " * 60}, {"role": "assistant", "text": "heron " * 60}]
    client.ask("session-end", transcript=talk)
    wait_for(lambda: client.get()["state"] == "finished", "it was never judged")
    before = client.get()["score"]
    assert before["memories_recalled"] == 0
    assert client.printed(late) == 1
    wait_for(lambda: client.get()["score"]["memories_recalled"] == 1, "it was not judged again")


def test_a_block_after_a_compaction_needs_its_own_receipt(client: Client) -> None:
    client.printed(client.start())
    again = client.start(source="compact")
    assert HERON in again["inject"]
    assert HERON in client.prompt(QUESTION)["inject"]
    client.printed(again)
    assert HERON not in client.prompt(f"again: {QUESTION}")["inject"]


def test_a_receipt_for_nothing_is_no_harm(client: Client) -> None:
    assert client.ask("delivered", receipt="nothing of this kind")["counted"] == 0
    client.start()
    assert client.ask("delivered", receipt="nothing of this kind")["counted"] == 0
    assert client.shown() == {}


def test_a_program_that_gets_the_text_itself_needs_no_receipt(client: Client) -> None:
    began = client.ask("session-start")
    assert began["receipt"] == ""
    assert list(client.shown()) == ["m1"]


def test_what_nobody_waits_for_changes_nothing(client: Client) -> None:
    """A prompt that is taken after the end would open the session again, for ever."""
    client.printed(client.start())
    talk = [{"role": "user", "text": "where? " * 60}, {"role": "assistant", "text": "heron " * 60}]
    client.ask("session-end", transcript=talk)
    past_ms = int((time.time() - 0.5) * 1000)
    assert client.prompt(QUESTION, waits_until_ms=past_ms)["inject"] == ""
    assert client.start(source="resume", waits_until_ms=past_ms)["inject"] == ""
    assert client.get()["state"] != "open"
    assert client.prompt(QUESTION, waits_until_ms=past_ms + 60_000)["inject"]
    assert client.get()["state"] == "open"


# -- the end of an unknown session ------------------------------------------------------------


def test_the_end_of_an_unknown_session_opens_it_and_learns_from_it(client: Client) -> None:
    wish = "From now on always run make lint before you commit anything."
    said = [{"role": "user", "text": wish}, {"role": "assistant", "text": "I will. " * 40}]
    client.ask("session-end", transcript=said, harness="codex", cwd="/code/shop")
    wait_for(lambda: client.get()["state"] == "finished", "it was never judged")
    found = client.get()
    assert (found["project"], found["harness"], found["prompts"]) == ("shop", "codex", 1)
    assert (found["injections"], found["shown"]) == (0, 0)

    def stored() -> list[str]:
        path = f"/api/memories?user={client.fields['user']}&project=shop"
        return [one["content"] for one in client.daemon.ask("GET", path).json["results"]]

    wait_for(lambda: any("make lint" in one for one in stored()), "nothing was extracted")
    # A second end changes nothing.
    assert not client.ask("session-end", transcript=said)["queued"]


@pytest.mark.parametrize("body", [{}, {"transcript": []}, {"transcript_path": "/no/such.jsonl"}])
def test_the_end_of_an_unknown_session_without_words_is_refused(
    client: Client, body: dict[str, Any]
) -> None:
    reply = client.daemon.ask("POST", "/api/hooks/session-end", {**client.fields, **body})
    assert (reply.status, reply.json["code"]) == (404, "not_found")
    assert "no session" in reply.json["detail"]
    assert (
        client.daemon.ask("GET", f"/api/sessions?user={client.fields['user']}").json["results"]
        == []
    )


# -- a store that cannot be written -----------------------------------------------------------


class Disk:
    """Makes a store unwritable, as a full or read-only disk does, and writable again."""

    def __init__(self, served: Served) -> None:
        self._store, self._aside = served.home / "meritory.db", served.home / "aside.db"

    def fill(self) -> None:
        copy = self._store.with_name("copy.db")
        shutil.copy(self._store, copy)
        os.replace(self._store, self._aside)
        os.replace(copy, self._store)

    def free(self) -> None:
        os.replace(self._aside, self._store)


def served_client(serve: Serve) -> tuple[Client, Disk]:
    served = serve()
    client = Client(served, "default", "run")
    client.note(HERON)
    # Every thread has its connection to the store before that is replaced.
    for number in range(12):
        Client(served, "default", f"warm-{number}").start()
    return client, Disk(served)


def test_an_unwritable_store_serves_the_first_block_once(serve: Serve) -> None:
    client, disk = served_client(serve)
    disk.fill()
    began = client.start()
    assert HERON in began["inject"] and began["recording"] == "off"
    # It was lost on the way, so it comes again.
    again = client.prompt(QUESTION)
    assert HERON in again["inject"]
    client.printed(again)
    assert client.prompt(f"once more: {QUESTION}")["inject"] == ""
    talk = [{"role": "user", "text": "where? " * 60}, {"role": "assistant", "text": "heron " * 60}]
    body = {**client.fields, "transcript": talk}
    refused = client.daemon.ask("POST", "/api/hooks/session-end", body)
    assert refused.status >= 500 and refused.json["code"] == "store_replaced"
    disk.free()
    client.ask("session-end", transcript=talk)
    wait_for(lambda: client.get()["state"] == "finished", "it was never judged")


def test_a_receipt_that_cannot_be_recorded_counts_with_the_next_event(serve: Serve) -> None:
    client, disk = served_client(serve)
    began = client.start()
    disk.fill()
    client.printed(began)
    assert HERON not in client.prompt(QUESTION)["inject"]
    assert client.shown() == {}
    disk.free()
    client.ask("stop", last_assistant_message="done")
    assert list(client.shown()) == ["m1"]


def test_a_resumed_session_gets_its_block_once(client: Client) -> None:
    client.printed(client.start())
    shown = client.shown()
    assert shown
    assert client.start(source="resume")["inject"] == ""
    # The agent still has the block, although nothing was printed this time.
    prompted = client.prompt("and what about the deployment?")
    assert prompted["memories"] == [] and HERON not in prompted["inject"]
    assert client.shown() == shown


def test_a_resumed_session_gets_a_block_that_was_never_delivered(client: Client) -> None:
    client.start()
    resumed = client.start(source="resume")
    assert resumed["inject"] and client.shown() == {}
    client.printed(resumed)
    assert client.shown()
