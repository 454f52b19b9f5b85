"""Transcripts named by path: read where harnesses keep them, and nowhere else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web_types import Processes, Served

from meritory.connect.desired import harness_modules
from meritory.connect.transcripts import Message, open_file, read_tail
from meritory.domain.errors import InputError
from meritory.server.routes.hooks import TAIL_LIMIT_BYTES
from meritory.text.judge.digest import decode_digest

KEPT = ".claude/projects/-home-anna-shop"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / KEPT
    made.mkdir(parents=True)
    return made


def line(role: str, text: str, **more: Any) -> str:
    """A line as Claude Code writes it."""
    entry = {"type": role, "message": {"role": role, "content": text}, **more}
    return json.dumps(entry, ensure_ascii=False) + "\n"


def read_file(path: str, home: Path) -> list[Message]:
    with open_file(path, home) as opened:
        return read_tail(opened, TAIL_LIMIT_BYTES)


def said(path: Path | str, home: Path) -> list[str]:
    return [message["content"] for message in read_file(str(path), home)]


def test_the_messages_are_unwrapped(folder: Path, tmp_path: Path) -> None:
    file = folder / "s.jsonl"
    file.write_text(
        line("user", "hello")
        + line("assistant", "hi")
        + line("assistant", "elsewhere", isSidechain=True)
        + line("user", "of no interest", isMeta=True)
        + '{"type": "summary", "summary": "x"}\n[1, 2]\n"text"\n5\nnull\n{\n\n'
        + json.dumps({"payload": {"role": "user", "content": "codex"}})
        + "\n"
        + json.dumps({"role": "user", "content": "plain"})
        + '\n{"message": {"role": "assistant", "content": "cut of'
    )
    assert said(file, tmp_path) == ["hello", "hi", "codex", "plain"]
    assert said(f"~/{KEPT}/s.jsonl", tmp_path) == ["hello", "hi", "codex", "plain"]


@pytest.mark.parametrize(
    "text",
    [
        line("user", "hello"),
        json.dumps({"messages": [{"role": "user", "content": "hello"}]}, indent=1),
    ],
)
def test_a_byte_order_mark_before_the_first_line_is_skipped(
    folder: Path, tmp_path: Path, text: str
) -> None:
    file = folder / "s.jsonl"
    file.write_text(text, "utf-8-sig")
    assert said(file, tmp_path) == ["hello"]


@pytest.mark.parametrize(
    "known", [folder for one in harness_modules() for folder in one.TRANSCRIPTS]
)
def test_every_harness_folder_is_known(tmp_path: Path, known: str) -> None:
    file = tmp_path / known / "deep" / "s.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(line("user", "hello"))
    assert said(file, tmp_path) == ["hello"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\u000b"])
def test_a_line_ends_where_json_lines_end(folder: Path, tmp_path: Path, separator: str) -> None:
    text = f"one{separator}two"
    entry = {"role": "user", "content": text}
    (folder / "s.jsonl").write_text(json.dumps(entry, ensure_ascii=separator < " ") + "\n")
    assert said(folder / "s.jsonl", tmp_path) == [text]


def test_a_file_that_is_not_there_yet_tells_nothing(folder: Path, tmp_path: Path) -> None:
    assert read_file(str(folder / "soon.jsonl"), tmp_path) == []
    assert read_file(str(folder / "new" / "soon.jsonl"), tmp_path) == []
    assert read_file(str(tmp_path / ".codex/sessions/soon.jsonl"), tmp_path) == []
    (folder / "empty.jsonl").touch()
    assert read_file(str(folder / "empty.jsonl"), tmp_path) == []


def test_only_the_end_of_a_long_file_is_read(folder: Path, tmp_path: Path) -> None:
    file = folder / "long.jsonl"
    many = 2 * TAIL_LIMIT_BYTES // 1_000
    file.write_text("".join(line("user", f"{n} " + "x" * 1_000) for n in range(many)))
    found = said(file, tmp_path)
    numbers = [int(text.split()[0]) for text in found]
    assert numbers == list(range(numbers[0], many))
    assert numbers[0] > 0
    assert sum(map(len, found)) <= TAIL_LIMIT_BYTES
    with file.open("ab") as sparse:
        sparse.truncate(1 << 40)
    assert read_file(str(file), tmp_path) == []


def test_what_is_no_text_tells_nothing(folder: Path, tmp_path: Path) -> None:
    file = folder / "junk.jsonl"
    junk = bytes(range(256)) * 20 + b"\n" + b"[" * 50_000 + b"\n" + b'{"a":' * 50_000 + b"\n"
    file.write_bytes(junk + b'{"role": "user", "content": ' + b"1" * 5_000 + b"}\n")
    assert read_file(str(file), tmp_path) == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        "\0",
        "x" * 5_000,
        "s.jsonl",
        f"{KEPT}/s.jsonl",
        "~",
        "~/",
        "~nobody-of-this-name/s.jsonl",
        "~root/.claude/projects/s.jsonl",
        "/etc/passwd",
        "/proc/self/environ",
        "/dev/zero",
        "{home}/.claude/settings.json",
        "{home}/.claude/projects/../settings.json",
        "{home}/" + KEPT + "/../../../.claude/projects/../settings.json",
        "{home}/.claude/projects-of-others/s.jsonl",
        "/proc/self/root{home}/" + KEPT + "/s.jsonl",
        "//{home}/../etc/passwd",
    ],
)
def test_other_places_are_not_even_looked_at(folder: Path, tmp_path: Path, path: str) -> None:
    (folder / "s.jsonl").write_text(line("user", "hello"))
    (tmp_path / ".claude/settings.json").write_text(line("user", "secret"))
    with pytest.raises(InputError):
        read_file(path.replace("{home}", str(tmp_path)), tmp_path)


def test_no_link_is_followed_below_a_harness_folder(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "s.jsonl").write_text(line("user", "secret"))
    (folder / "s.jsonl").write_text(line("user", "hello"))
    (folder / "to-file.jsonl").symlink_to(outside / "s.jsonl")
    (folder / "to-own.jsonl").symlink_to(folder / "s.jsonl")
    (folder / "to-folder").symlink_to(outside)
    (folder / "loop").symlink_to(folder / "loop")
    os.link(outside / "s.jsonl", folder / "hard.jsonl")
    for name in ("to-file.jsonl", "to-own.jsonl", "to-folder/s.jsonl", "loop", "hard.jsonl"):
        with pytest.raises(InputError):
            read_file(str(folder / name), tmp_path)


def test_the_harness_folder_itself_may_lie_elsewhere(tmp_path: Path) -> None:
    """People keep their dot files in a repository and link to it."""
    kept = tmp_path / "dotfiles/claude/projects"
    kept.mkdir(parents=True)
    (kept / "s.jsonl").write_text(line("user", "hello"))
    (tmp_path / ".claude").symlink_to(tmp_path / "dotfiles/claude")
    assert said(tmp_path / ".claude/projects/s.jsonl", tmp_path) == ["hello"]
    assert said(kept / "s.jsonl", tmp_path) == ["hello"]
    (tmp_path / ".codex").symlink_to(tmp_path / ".codex")
    with pytest.raises(InputError):
        read_file(str(tmp_path / ".codex/sessions/s.jsonl"), tmp_path)


def test_only_regular_files_are_read_and_nothing_is_waited_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    # A whole path may be longer than the name of a socket.
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("sock")
        for name in ("pipe", "sub", "sock", "", "s" * 300):
            with pytest.raises(InputError):
                read_file(str(folder / name), tmp_path)


def test_a_folder_swapped_for_a_link_meanwhile_gives_nothing_away(
    folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "s.jsonl").write_text(line("user", "secret"))
    own, spare = folder / "own", folder / "spare"
    own.mkdir()
    (own / "s.jsonl").write_text(line("user", "hello"))
    spare.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for one, other in (
                (own, folder / "x"),
                (spare, own),
                (own, spare),
                (folder / "x", own),
            ):
                os.rename(one, other)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[str] = set()
    try:
        for _ in range(2_000):
            try:
                seen.update(said(own / "s.jsonl", tmp_path))
            except InputError:
                seen.add("refused")
    finally:
        stop.set()
        thread.join()
    assert "secret" not in seen
    assert seen <= {"hello", "refused"}


# -- through the daemon -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("anna")
    (made / KEPT).mkdir(parents=True)
    return made


@pytest.fixture(scope="module")
def anna(home: Path) -> Iterator[Served]:
    """A daemon whose user's home holds transcripts."""
    started = Processes()
    try:
        yield started.start(home / "data", HOME=str(home))
    finally:
        started.end(signal.SIGKILL)


def hook(daemon: Served, name: str, key: str, *, tcp: bool = False, **body: Any) -> Any:
    reply = daemon.ask(
        "POST", f"/api/hooks/{name}", {"session_key": key, **body}, tcp=tcp, headers=daemon.bearer
    )
    return reply.json if reply.status == 200 else reply.status


def test_every_hook_reads_what_it_is_pointed_at(anna: Served, home: Path) -> None:
    heron = {"content": "The staging database is called heron"}
    memory_id = anna.ask("POST", "/api/memories", heron).json["id"]
    path = str(home / KEPT / "run.jsonl")
    # The first prompt comes before the harness has written anything.
    began = hook(anna, "user-prompt-submit", "run", prompt="staging database", transcript_path=path)
    assert [one["id"] for one in began["memories"]] == [memory_id]
    rated = line("assistant", f"heron <!--mf {began['injection']} m1=0.4-->")
    Path(path).write_text(line("user", "where is it? " * 50) + rated)
    assert hook(anna, "stop", "run", transcript_path=path)["taken"] == 1
    asked = hook(anna, "user-prompt-submit", "run", prompt="and then?", transcript_path=path)
    # Its only memory is rated, so this prompt asks for nothing.
    assert asked["inject"] == ""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line("assistant", f"yes <!--mf {began['injection']} m1=0.8-->"))
    assert hook(anna, "pre-compact", "run", transcript_path=path)["taken"] == 1
    ended = hook(anna, "session-end", "run", transcript_path=path)
    assert ended["queued"] is True
    assert ended["feedback"]["taken"] == 0
    row = anna.ask("GET", "/api/sessions/run/memories").json["results"][0]
    # The same code again: the later rating replaces the earlier one.
    assert (row["agent_relevance_score"], row["agent_feedback_count"]) == (0.8, 1)


def test_a_path_is_only_followed_for_the_owners_socket(anna: Served, home: Path) -> None:
    path = str(home / KEPT / "tcp.jsonl")
    Path(path).write_text(line("user", "hello"))
    hook(anna, "session-start", "tcp")
    for name in ("user-prompt-submit", "stop", "pre-compact", "session-end"):
        body = {"transcript_path": path, **({"prompt": "x"} if "prompt" in name else {})}
        assert hook(anna, name, "tcp", tcp=True, **body) == 422
        assert hook(anna, name, "tcp", **{**body, "transcript_path": "/etc/passwd"}) == 422
    # What was handed over need not be looked for.
    assert hook(anna, "stop", "tcp", tcp=True, transcript_path=path, last_assistant_message="x")
    told = [{"role": "user", "text": "x"}]
    assert hook(anna, "session-end", "tcp", tcp=True, transcript_path=path, transcript=told)
    assert anna.ask("GET", "/api/sessions/tcp").json["state"] != "open"


def test_the_end_reads_the_whole_file(anna: Served, home: Path) -> None:
    anna.ask("POST", "/api/memories", {"content": "The billing service is called pelican"})
    path = home / KEPT / "whole.jsonl"
    hook(anna, "session-start", "whole", context="billing service")
    given = {"file_path": "src/billing.py", "new_string": "connect('pelican')"}
    call = {"type": "tool_use", "id": "t", "name": "Edit", "input": given}
    begin = {"type": "assistant", "message": {"role": "assistant", "content": [call]}}
    filler = line("assistant", "Nothing of interest. " * 100)
    lines = [json.dumps(begin) + "\n", '{"broken\n', *[filler] * (3 * TAIL_LIMIT_BYTES // 2_000)]
    path.write_text("".join(lines))
    assert path.stat().st_size > 2 * TAIL_LIMIT_BYTES
    assert hook(anna, "session-end", "whole", transcript_path=str(path))["queued"] is True
    counters = anna.ask("GET", "/metrics").content.decode()
    assert 'meritory_events_total{name="hooks.transcript_lines_skipped"} 1' in counters
    with contextlib.closing(sqlite3.connect(home / "data" / "meritory.db")) as raw:
        (data,) = raw.execute("SELECT digest FROM sessions WHERE key = 'whole'").fetchone()
    digest = decode_digest(data)
    assert digest.turns[0].edited == ("src/billing.py",)
    assert ("edit", ("pelican",)) in [(act, terms[-1:]) for act, terms in digest.turns[0].pieces]
    assert digest.char_count > 2 * TAIL_LIMIT_BYTES
