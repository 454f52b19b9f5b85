"""`meritory merge` and `meritory review`, by commands and by single keys on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_types import Process, Run

from machine import patience
from meritory.api.memory import Memory
from meritory.domain.memory import MemoryRecord
from meritory.domain.quality import LinkKind, MemoryLink

WAIT_S = patience(60.0)
Plant = Callable[..., tuple[str, str]]


@pytest.fixture
def plant(home: Path) -> Plant:
    """Stores two memories and a link between them, as the gate would."""

    def call(first: str, second: str, kind: LinkKind = "alike") -> tuple[str, str]:
        home.mkdir(mode=0o700, exist_ok=True)
        with Memory(home / "meritory.db", background=False) as memory:
            older, newer = (memory.remember(text, on_similar="keep") for text in (first, second))
            made = MemoryLink(
                older_id=older.id,
                newer_id=newer.id,
                kind=kind,
                cosine=0.8,
                reason="they share most words",
                at=memory.services.world.now(),
            )
            memory.services.store.write("default", lambda t: t.put_links("default", [made]))
        return older.id, newer.id

    return call


@pytest.fixture
def propose(home: Path) -> Callable[[str], str]:
    """Stores a constraint that an agent proposes."""

    def call(text: str) -> str:
        home.mkdir(mode=0o700, exist_ok=True)
        with Memory(home / "meritory.db", background=False) as memory:
            return memory.remember(text, kind="constraint", origin="agent").id

    return call


def contents(run: Run) -> set[str]:
    listed = run("list", "--all-projects", "--json").object["results"]
    return {one["content"] for one in listed}


# -- merge ------------------------------------------------------------------------------------


def test_two_memories_are_merged_and_come_apart(run: Run, plant: Plant) -> None:
    one, other = plant("Anna leads design", "Anna leads the design team")
    done = run("merge", one, other[:22])
    assert (done.code, "Anna leads the design team" in done.out) == (0, True)
    assert f"`meritory undo {other}` takes it back" in done.err
    assert contents(run) == {"Anna leads the design team"}
    assert run("history", other, "--json").object["results"][-1]["why"] == "merged by a person"
    assert run("split", other).code == 0
    assert len(contents(run)) == 2
    kept = run("merge", one, other, "--keep", "a", "--json").object
    assert (kept["id"], kept["memory"]["content"]) == (one, "Anna leads design")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["merge"], 2, "Missing argument 'A'"),
        (["merge", "{one}"], 2, "Missing argument 'B'"),
        (["merge", "{one}", "{one}"], 2, "was named twice"),
        (["merge", "{one}", "7zzz"], 1, "no memory '7zzz'"),
        (["merge", "{one}", "{other}", "--keep", "C"], 2, "is not one of"),
        (["review", "mrege", "{one}", "{other}"], 2, "is not one of 'merge'"),
        (["review", "merge"], 2, "`merge` needs the ids of an item"),
        (["review", "merge", "{one}"], 2, "`merge` is about two memories, not 1"),
        (["review", "keep", "{one}", "{other}", "{one}"], 2, "about two memories, not 3"),
        (["review", "forget", "{one}", "{other}"], 2, "`forget` is about one memory, not 2"),
        (["review", "newer", "{one}", "{alone}"], 1, "are not in the review list"),
        (["review", "keep", "{one}", "{other}", "--keep", "A"], 2, "only for `merge`"),
        (["review", "confirm", "{one}"], 1, "has nothing to confirm"),
        (["review", "reject", "{one}"], 1, "has no proposal"),
        (["review", "--list", "keep", "{one}", "{other}"], 2, "an action and --list"),
        (["review", "--keep", "A"], 2, "--keep is only for merge"),
        (["review", "--limit", "0"], 2, "0 is not in the range"),
        (["review", "--offset", "-1"], 2, "-1 is not in the range"),
    ],
)
def test_nonsense_is_named_and_changes_nothing(
    run: Run, plant: Plant, words: list[str], code: int, message: str
) -> None:
    one, other = plant("Anna leads design", "Anna leads the design team")
    alone = run("remember", "CI runs on Jenkins", "--json").object["id"]
    done = run(*(word.format(one=one, other=other, alone=alone) for word in words))
    assert (done.code, done.out) == (code, "")
    assert message in done.err and "hint:" in done.err
    assert run("review", "--json").object["total"] == 1
    assert len(contents(run)) == 3


# -- lists and answers ------------------------------------------------------------------------


def test_an_empty_list_says_so(run: Run) -> None:
    done = run("review")
    assert (done.code, done.out, done.err) == (0, "", "nothing to review\n")
    assert run("review", "--json").object == {
        "results": [],
        "total": 0,
        "notes": ["nothing to review"],
    }


def test_items_are_listed_with_texts_dates_and_reasons(
    run: Run, plant: Plant, propose: Callable[[str], str]
) -> None:
    proposed = propose("Never stop the shop")
    one, other = plant("CI runs on\x1b[31m Jenkins", "CI runs on Actions", "newer")
    listed = run("review")
    assert listed.code == 0 and listed.out.startswith("2 items\n")
    assert "Two values of one claim? (they share most words)" in listed.out
    assert "Should this bind the agent?" in listed.out
    assert "answers: newer, keep, merge, forget" in listed.out
    assert "\x1b" not in listed.out
    today = run("show", one, "--json").object["memory"]["created_at"][:10]
    assert f"1  {one}  {today}, user_stated" in listed.out
    assert f"2  {other}  {today}" in listed.out
    page = run("review", "--list", "--limit", "1", "--offset", "1")
    assert "2 items, 2 to 2 shown" in page.out and page.out.count("answers:") == 1
    assert "there are only 2 items" in run("review", "--offset", "5").err
    first, second = run("review", "--json").object["results"]
    assert (first["id"], first["kind"]) == (f"{one}:{other}", "newer")
    assert [record["id"] for record in first["memories"]] == [one, other]
    assert (second["id"], second["actions"]) == (proposed, ["confirm", "reject", "forget"])
    assert run("review", "--project", "zoo", "--json").object["total"] == 2


def test_a_script_answers_by_ids_and_takes_it_back(
    run: Run, plant: Plant, propose: Callable[[str], str]
) -> None:
    one, other = plant("CI runs on Jenkins", "CI runs on Actions", "newer")
    proposed = propose("Never stop the shop")
    done = run("review", "newer", one, other)
    assert done.code == 0 and f"`meritory undo {one}` takes it back" in done.err
    assert contents(run) == {"CI runs on Actions", "Never stop the shop"}
    again = run("review", "keep", one, other)
    assert again.code == 1 and "were decided already (newer), by the person" in again.err
    run("undo", one)
    assert run("review", "keep", f"{one}:{other}", "--json").object["undo"] == other
    assert run("review", "--json").object["total"] == 1
    (rule,) = run("review", "confirm", proposed, "--json").object["results"]
    assert rule["kind"] == "constraint"
    assert run("review").err == "nothing to review\n"
    run("undo", proposed)
    run("undo", other)
    assert run("review", "--json").object["total"] == 2


# -- keys on a terminal -----------------------------------------------------------------------


@dataclass
class Terminal:
    """A person in front of `meritory review`."""

    leader: int
    modes: list[object]
    child: subprocess.Popen[bytes]
    printed: bytes = b""
    since: int = 0

    def wait_for(self, wanted: str) -> str:
        """Read until this was printed, and return all that was printed since the last wait."""
        deadline = time.monotonic() + WAIT_S
        while wanted.encode() not in self.printed[self.since :]:
            assert time.monotonic() < deadline, self.printed.decode()
            if not select.select([self.leader], [], [], 0.1)[0]:
                continue
            try:
                more = os.read(self.leader, 65_536)
            except OSError:
                more = b""
            assert more, self.printed.decode()
            self.printed += more
        end = self.printed.index(wanted.encode(), self.since) + len(wanted.encode())
        told, self.since = self.printed[self.since : end], end
        return told.decode()

    def press(self, keys: bytes, wanted: str) -> str:
        """Press keys at once, and read until this was printed."""
        os.write(self.leader, keys)
        return self.wait_for(wanted)


@pytest.fixture
def terminal(home: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*words: str) -> Terminal:
        leader, follower = pty.openpty()
        modes = termios.tcgetattr(leader)
        child = subprocess.Popen(
            [sys.executable, "-m", "meritory", "review", *words],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "1"},
            preexec_fn=_own_terminal,
        )
        os.close(follower)
        opened.append(Terminal(leader, modes, child))
        return opened[-1]

    yield start
    for one in opened:
        one.child.kill()
        one.child.wait()
        os.close(one.leader)


def _own_terminal() -> None:
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def memories(home: Path) -> dict[str, MemoryRecord]:
    with Memory(home / "meritory.db", background=False, everywhere=True) as memory:
        return {record.content: record for record in memory.page(everywhere=True)}


def test_each_key_answers_one_item_and_u_takes_it_back(
    home: Path, plant: Plant, propose: Callable[[str], str], terminal: Callable[..., Terminal]
) -> None:
    propose("Never stop the shop")
    plant("CI runs on Jenkins", "CI runs on Actions", "newer")
    plant("Anna leads design", "Anna leads the design team")
    person = terminal()
    # Pressed before the question was asked: it answers nothing.
    os.write(person.leader, b"m")
    told = person.wait_for("[3 items]")
    assert "Do these say the same? (they share most words)" in told
    assert "m merge, k keep both, n newer wins, f forget, s skip, q quit" in told
    # Keys that are no answers here, among them an arrow key that ends with the letter C.
    assert "'c' is no answer here" in person.press(b"c", "q quit")
    assert "'Escape' is no answer here" in person.press(b"\x1b[C", "q quit")
    assert "'mm' is no answer here" in person.press(b"mm", "q quit")
    told = person.press(b"m", "[2 items]")
    assert "merged: Anna leads the design team" in told and "u undo" in told
    told = person.press(b"u", "[3 items]")
    assert "taken back" in told and "Anna leads design\r\n" in told
    # One of a pair is forgotten only when it is named.
    person.press(b"f", "forget 1 or 2?")
    person.press(b"x", "neither was forgotten")
    person.press(b"f", "forget 1 or 2?")
    assert "forgot: Anna leads design" in person.press(b"1", "[2 items]")
    assert "superseded: CI runs on Jenkins" in person.press(b"n", "[1 item]")
    person.press(b"s", "2 decided, 1 left")
    assert person.child.wait(WAIT_S) == 0
    assert set(memories(home)) == {
        "Anna leads the design team",
        "CI runs on Actions",
        "Never stop the shop",
    }


def test_the_last_answer_says_how_it_is_taken_back(
    home: Path, run: Run, propose: Callable[[str], str], terminal: Callable[..., Terminal]
) -> None:
    proposed = propose("Never stop the shop")
    person = terminal()
    assert "c confirm, r reject, f forget" in person.wait_for("[1 item]")
    told = person.press(b"c", "takes the last answer back")
    assert "confirmed" in told and "1 decided, 0 left" in told
    assert f"`meritory undo {proposed}`" in told
    assert person.child.wait(WAIT_S) == 0
    assert memories(home)["Never stop the shop"].kind == "constraint"
    run("undo", proposed)
    assert run("review", "--json").object["total"] == 1


@pytest.mark.parametrize("key", [b"q", b"\x03", b"\x04"])
def test_leaving_changes_nothing_and_gives_the_terminal_back(
    home: Path, plant: Plant, terminal: Callable[..., Terminal], key: bytes
) -> None:
    plant("CI runs on Jenkins", "CI runs on Actions", "newer")
    person = terminal()
    person.wait_for("[1 item]")
    told = person.press(key, "0 decided, 1 left")
    assert "Traceback" not in told
    assert person.child.wait(WAIT_S) == 0
    assert termios.tcgetattr(person.leader) == person.modes
    assert len(memories(home)) == 2


def test_an_item_that_another_program_answered_is_passed_over(
    run: Run, plant: Plant, terminal: Callable[..., Terminal]
) -> None:
    one, other = plant("CI runs on Jenkins", "CI runs on Actions", "newer")
    plant("Anna leads design", "Anna leads the design team")
    person = terminal()
    person.wait_for("[2 items]")
    person.press(b"s", "[1 item]")
    assert run("review", "keep", one, other).code == 0
    told = person.press(b"n", "0 decided, 1 left")
    assert "were decided already (separate), by the person" in told
    assert person.child.wait(WAIT_S) == 0


def test_a_list_is_printed_where_no_keys_can_be_read(
    plant: Plant, terminal: Callable[..., Terminal], process: Process
) -> None:
    plant("CI runs on Jenkins", "CI runs on Actions", "newer")
    person = terminal("--list")
    assert "answers: newer" in person.wait_for("on a terminal all")
    assert person.child.wait(WAIT_S) == 0
    done = process("review", stdin=b"nnn")
    assert done.returncode == 0
    assert b"answers: newer, keep, merge, forget" in done.stdout
