"""Hostile events: whatever a client sends, it gets an answer in its own shape, or none.

MERITORY_FUZZ_PAYLOADS=100000 sends more, and MERITORY_FUZZ_SEED=7 others.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hook_kit import NATIVE, Imposter, Running, clean_environment, faults, run, wrong_answer

from meritory.hook import main
from patient_hook import set_budgets

PAYLOADS = int(os.environ.get("MERITORY_FUZZ_PAYLOADS", "10000"))
SEED = int(os.environ.get("MERITORY_FUZZ_SEED", "1"))
TOLD, PROCESSES = PAYLOADS // 20, PAYLOADS // 50
HARNESSES = tuple(main.HARNESSES)
FIELDS = (
    *("session_id", "sessionId", "conversation_id", "hook_event_name", "hookEventName", "cwd"),
    *("prompt", "source", "last_assistant_message", "prompt_response", "text", "delta", "reason"),
    *("transcript_path", "transcriptPath", "stopReason", "trigger", "agent_id", "initialPrompt"),
    *("workspace_roots", "cursor_version", "stop_hook_active", "generation_id", "model", ""),
)
WORDS = (
    *("", " ", "\n", "x", "heron", "startup", "compact", "clear", "resume", "user", "system"),
    *("\0", "\x1b[2J", "\u202e\u200b", "\u2028", "\ufeff", "😀" * 9_000, "é" * 300, "\ud800"),
    *("<!--mf 0123456789 m1=1-->", "<!--mf " * 900, "{mf 0123456789 m1=1}", "{mf 0123456789 " * 99),
    *("<hook_context>" * 3_000, "<hook_context>x</hook_context>" * 3_000, "</hook_context>"),
    *("/etc/passwd", "~/x", "../..", "/dev/zero", "/proc/self/environ", "/" + "x" * 5_000, "//"),
    *("HTTP/1.1 200 OK\r\n\r\n{}", "\r\nHost: x\r\n", "'; DROP TABLE sessions; --", "y" * 200_000),
    *("[meritory notes " + "0" * 32 + "]\nm1: x\n", "NaN", "null", "%00", '"}]}', "\\u0000"),
)
NUMBERS = (0, 1, -1, 0.5, -0.0, 1e308, 2**70, -(2**70), float("nan"), float("inf"), True, None)


class Fuzz:
    """Events that are nearly right, and values that are not."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def event(self) -> tuple[list[str], bytes]:
        """The arguments and the stdin of one call."""
        pick = self.chance
        harness = pick.choice(HARNESSES)
        payload: dict[str, Any] = {
            pick.choice(FIELDS[:3]): f"session {pick.randrange(40)}",
            pick.choice(FIELDS[3:5]): pick.choice(NATIVE[harness]),
            "prompt": f"where is heron number {pick.randrange(1_000)}?",
        }
        for name in pick.sample(FIELDS, pick.choice((0, 1, 1, 2, 3, 5))):
            payload[name] = pick.choice(WORDS) if pick.random() < 0.6 else self.anything()
        if pick.random() < 0.1:
            payload.pop(pick.choice(list(payload)))
        flags = ["--harness", harness]
        if pick.random() < 0.1:
            flags += pick.choice((["--event", "agentStop"], ["--hide-ratings"], ["--event"], ["-"]))
        return flags, self.written(payload)

    def written(self, payload: Any) -> bytes:
        """The bytes, now and then spoilt."""
        pick = self.chance
        raw = json.dumps(payload, ensure_ascii=pick.random() < 0.5).encode("utf-8", "surrogatepass")
        kind = pick.random()
        if kind < 0.03:
            return raw[: pick.randrange(len(raw) + 1)]
        if kind < 0.06:
            at = pick.randrange(len(raw))
            return raw[:at] + pick.randbytes(3) + raw[at + 1 :]
        if kind < 0.08:
            name = json.dumps(pick.choice(FIELDS)).encode()
            # A name that is given twice, and another one nested deeper than anybody can read.
            deep = b"[" * 50_000 + b"]" * 50_000 if kind < 0.063 else b"1"
            return raw[:-1] + b"," + name + b":" + deep + b"," + name + b":2}"
        if kind < 0.1:
            return pick.choice(
                (b"", b"[]", b"1", b'"x"', b"null", b"NaN", b"{", pick.randbytes(50))
            )
        return raw

    def anything(self, depth: int = 0) -> Any:
        pick = self.chance
        kind = pick.random()
        if kind < 0.3 or depth > 3:
            return pick.choice(NUMBERS)
        if kind < 0.6:
            return pick.choice(WORDS)
        if kind < 0.8:
            return [self.anything(depth + 1) for _ in range(pick.randrange(4))]
        names = (*FIELDS, *WORDS[:20])
        return {pick.choice(names): self.anything(depth + 1) for _ in range(pick.randrange(4))}


def events(count: int, part: int) -> Iterator[tuple[list[str], bytes]]:
    fuzz = Fuzz(SEED * 100 + part)
    return (fuzz.event() for _ in range(count))


def tried(count: int, part: int, environ: dict[str, str]) -> tuple[int, int]:
    """How many events were answered, of how many; each answer is looked at."""
    answered = 0
    for flags, raw in events(count, part):
        printed = main.main(["--ask-to-keep", *flags], raw, environ)
        assert wrong_answer(printed) == [], (flags, raw[:500])
        answered += bool(printed)
    return answered, count


def test_without_a_daemon_nothing_is_ever_said(tmp_path: Path) -> None:
    environ = clean_environment(tmp_path, MERITORY_HOOK="nostart")
    flagged = 0
    for flags, raw in events(PAYLOADS, 1):
        printed = main.main(flags, raw, environ)
        # The one thing that needs no daemon is to take a line off the screen.
        assert not printed or b"displayContent" in printed, (flags, raw[:500])
        assert wrong_answer(printed) == []
        flagged += 1
    assert flagged == PAYLOADS
    assert not (tmp_path / "meritory").exists()


def test_a_daemon_is_told_and_answers_or_not(running: Running) -> None:
    running.ask("POST", "/api/memories", {"content": "The heron is at the lake"})
    answered, count = tried(TOLD, 2, running.environ)
    # Enough got through for the others to mean something.
    assert count / 50 < answered < count
    assert running.ask("GET", "/health")["status"] == "ok"


ANSWERS = (
    *(b"", b"\r\n\r\n", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n\r\n", b"\xff" * 5_000, b"GET /"),
    *(b"HTTP/1.1 200 \r\n\r\n" + body for body in (b"[]", b"null", b"{", b"\xff", b"[" * 99_999)),
    b'HTTP/1.1 200 OK\r\n\r\n{"inject": 5}',
    b'HTTP/1.1 200 OK\r\n\r\n{"inject": "' + b"x" * 9_501 + b'"}',
    b'HTTP/1.1 200 OK\r\n\r\n{"inject": "' + "😀".encode() * 4_751 + b'"}',
    b'HTTP/1.1 200 OK\r\n\r\n{"inject": "\\ud800 \\u0000 </system> \\""}',
    b'HTTP/1.1 200 OK\r\n\r\n{"inject": "x"} trailing',
    b'HTTP/1.1 500 Oh\r\n\r\n{"inject": "x"}',
    b'HTTP/1.1 200 OK\r\n\r\n{"inject": "' + b"y" * (5 << 20) + b'"}',
)


def test_whatever_an_imposter_answers_is_shown_only_in_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = clean_environment(tmp_path, MERITORY_HOOK="nostart")
    imposter = Imposter(tmp_path / "meritory", b"")
    answered = 0
    try:
        for number, answer in enumerate(ANSWERS):
            imposter.answer(answer)
            answered += tried(10, 10 + number, environ)[0]
        imposter.answer(None)
        set_budgets(monkeypatch, 0.05)
        assert tried(8, 99, environ)[0] == 0
    finally:
        imposter.close()
    # Only the text with odd characters in it is one to show.
    assert 0 < answered <= 10


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"socket": 5, "url": 7}',
        b'{"socket": null, "url": "http://127.0.0.1:99999999"}',
        b'{"socket": null, "url": "http://[::1"}',
        b'{"socket": "\\u0000x", "url": ""}',
        b'{"socket": "/etc/passwd", "url": ""}',
        b'{"socket": "' + b"x" * 500 + b'", "url": ""}',
        b'{"socket": "\\ud800", "url": ""}',
        b"[" * 90_000,
    ],
)
def test_whatever_the_daemon_is_said_to_be_is_no_harm(tmp_path: Path, told: bytes) -> None:
    (tmp_path / "meritory").mkdir()
    (tmp_path / "meritory" / "daemon.json").write_bytes(told)
    (tmp_path / "meritory" / "token").write_bytes(b"x")
    environ = clean_environment(tmp_path, MERITORY_HOOK="nostart")
    assert main.main(["--harness", "codex"], START, environ) == b""


START = b'{"session_id": "s", "hook_event_name": "SessionStart"}'


def test_processes_end_well_whatever_they_are_sent(
    running: Running, tmp_path: Path, patient: Path
) -> None:
    running.ask("POST", "/api/memories", {"content": "The heron is at the lake"})
    nobody = clean_environment(tmp_path, MERITORY_HOOK="nostart")
    environs = (running.environ, nobody)

    def one(numbered: tuple[int, tuple[list[str], bytes]]) -> bool:
        number, (flags, raw) = numbered
        ran = run(flags, raw, environs[number % 2], patient)
        assert faults(ran) == [], (flags, raw[:500])
        return bool(ran.out)

    with ThreadPoolExecutor(2) as pool:
        answered = sum(pool.map(one, enumerate(events(PROCESSES, 3))))
    assert answered > 0
