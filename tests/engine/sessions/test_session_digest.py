"""The end of a session keeps a digest of all of it: read whole, stored once, without secrets."""

from __future__ import annotations

import json
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_kit import HERON, LOGIN, NOTES, STRIPE, Desk, filler, talk, trailer

from meritory.domain.rule import RecordedAction
from meritory.domain.session import ROLES, Turn
from meritory.engine.pipeline import end
from meritory.engine.quality import extraction, maintenance
from meritory.engine.rules.guard import ToolCall, check
from meritory.engine.sessions.end import READ_LIMIT_CHARS, EndRequest, Intake, TurnTail
from meritory.text.judge.digest import Digest, Digester, decode_digest, digest_terms
from meritory.text.transcript import TRANSCRIPT_LIMIT_CHARS, as_text, redacted, shorten, stripped

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
PASSWORD = "hV8xQ2mK9pLw4"
MEGABYTE = 1_000_000


def raw(desk: Desk, key: str = "run") -> str:
    """The stored digest as text; empty without one."""
    data = desk.store.digest(desk.memory.scope.user, key)
    return zlib.decompress(data).decode() if data else ""


def read(desk: Desk, key: str = "run") -> Digest:
    data = desk.store.digest(desk.memory.scope.user, key)
    assert data is not None
    return decode_digest(data)


def act(name: str, given: dict[str, str], result: str = "ok") -> list[dict[str, Any]]:
    """A call and its result."""
    return [
        {"type": "tool_use", "name": name, "input": given},
        {"type": "tool_result", "content": result},
    ]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "text": text}


def called(desk: Desk, tool: str, given: dict[str, str], key: str = "run") -> None:
    """The hook before a tool call."""
    check(desk.memory.services, ToolCall(key, desk.memory.scope, tool, given))


def terms(digest: Digest, act_name: str) -> set[str]:
    found = (piece for turn in digest.turns for piece in turn.pieces)
    return {term for name, piece in found if name == act_name for term in piece}


# -- the whole session ------------------------------------------------------------------------


def test_what_happened_long_before_the_end_is_in_the_digest(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login stripe")
    session.end(
        [
            user("look at the login"),
            *act("Edit", {"file_path": "src/login/page.tsx", "new_string": "connect('heron')"}),
            *act("Read", {"file_path": "docs/stripe.md"}, "webhooks have a signature header"),
            *talk("and then?", "Nothing of interest happens here for a long time. " * 60),
        ]
    )
    kept = as_text(desk.store.transcript("default", "run"))
    assert len(kept) <= TRANSCRIPT_LIMIT_CHARS
    assert "heron" not in kept
    digest = read(desk)
    assert digest.is_complete
    assert digest.turns[1].typed == ("login",)
    assert digest.turns[1].edited == ("src/login/page.tsx",)
    assert digest.turns[1].opened == ("docs/stripe.md",)
    assert "heron" in terms(digest, "edit")
    assert {"signatur", "header"} & {term[:8] for term in digest.turns[1].results}
    # Six prompts follow.
    assert len(digest.turns) == 8


def test_only_words_of_candidates_are_kept_besides_prompts_and_paths(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    session.end([user("go"), *act("Bash", {"command": "connect heron zebrafish"}, "a quokka")])
    assert terms(read(desk), "tool") == {"heron"}
    assert "zebrafish" not in raw(desk)
    assert "quokka" not in raw(desk)
    assert set(digest_terms(HERON)) >= {"heron"}


def test_our_own_text_is_no_evidence(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login stripe")
    session.end(
        [
            user(f"{session.inject}\nplease help"),
            {"role": "assistant", "text": f"{session.inject}\nNo idea."},
            *act("Bash", {"command": "cat log.txt"}, session.inject),
            *act("mcp__meritory__memory_search", {"query": "x"}, f"{HERON}. {STRIPE}"),
            {"role": "assistant", "text": trailer(session.injection, ("m1", 1.0))},
        ]
    )
    digest = read(desk)
    assert [turn.typed for turn in digest.turns[1:]] == [()]
    assert terms(digest, "assistant") == set()
    assert digest.turns[1].results == ()
    assert "heron" not in raw(desk)


def test_secrets_never_enter_a_digest(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login stripe")
    address = f"https://anna:{PASSWORD}@heron.internal/login/page"
    session.end(
        [
            user(f"use {TOKEN} to log in, password: {PASSWORD}"),
            {"role": "assistant", "text": f"I try {address} and /srv/{TOKEN}/heron."},
            *act("Write", {"file_path": f"/tmp/{TOKEN}/heron", "content": f"pwd={PASSWORD}"}),
            *act("Read", {"file_path": address}),
            *act("Bash", {"command": f"curl -H 'Authorization: Bearer {TOKEN}' {address}"}),
            *act("Bash", {"command": "env"}, f"TOKEN={TOKEN}\npassword={PASSWORD}\nheron"),
        ]
    )
    text = raw(desk)
    for secret in (TOKEN, PASSWORD, TOKEN.lower(), PASSWORD.lower()):
        assert secret not in text
    assert "heron" in text
    assert "[redacted:" in text


def test_what_cannot_be_stored_does_no_harm(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    odd = "a\ud800b\x00.py"
    session.end([user(f"odd {odd}"), *act("Read", {"file_path": odd}), *act(odd, {"path": odd})])
    assert read(desk).turns[1].opened == ("a\ufffdb\ufffd.py",)


# -- hook events ------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [None, [], "", [{"role": "user", "text": " "}]])
def test_without_a_transcript_the_recorded_actions_are_the_digest(
    desk: Desk, empty: object
) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login stripe")
    called(desk, "Edit", {"file_path": "src/login/page.tsx", "new_string": "x"})
    called(desk, "Read", {"file_path": "docs/stripe.md"})
    called(desk, "Bash", {"command": f"psql heron {TOKEN}"})
    called(desk, "delete_file", {"path": "old.py"})
    called(desk, "Edit", {"file_path": "of/another.py"}, key="other")
    session.end(empty)
    digest = read(desk)
    (turn,) = (turn for turn in digest.turns if turn.edited)
    assert turn.edited == ("src/login/page.tsx",)
    assert turn.opened == ("docs/stripe.md", "old.py")
    assert "heron" in terms(digest, "tool")
    assert TOKEN not in raw(desk)
    assert desk.memory.drain() == 1


def test_a_call_that_was_denied_did_not_happen(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    called(desk, "Bash", {"command": "psql heron"})
    denied = RecordedAction(
        session_key="run",
        at=desk.clock.now,
        project=None,
        harness=None,
        tool="edit",
        tool_name="Edit",
        argument="denied.py",
        heads=("denied.py",),
        risk=2,
        decision="deny",
    )
    desk.store.write("default", lambda t: t.add_action("default", denied))
    session.end()
    assert "denied.py" not in raw(desk)
    assert "heron" in terms(read(desk), "tool")


def test_a_transcript_without_calls_is_completed_by_actions(desk: Desk) -> None:
    """Cursor, OpenCode and OpenClaw tell what was said, and their hooks what was done."""
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron login stripe")
    called(desk, "Edit", {"file_path": "src/login/page.tsx"})
    session.end([user("fix the login"), {"role": "assistant", "text": "I used heron."}])
    digest = read(desk)
    assert digest.turns[-1].typed == ("login",)
    assert digest.turns[-1].edited == ("src/login/page.tsx",)
    assert "heron" in terms(digest, "assistant")


def test_a_transcript_with_calls_stands_alone(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    called(desk, "Edit", {"file_path": "src/login/page.tsx"})
    session.end([user("go"), *act("Edit", {"file_path": "a.py", "new_string": "heron"})])
    assert [turn.edited for turn in read(desk).turns] == [(), ("a.py",)]


def test_nothing_at_all_is_no_digest(desk: Desk) -> None:
    desk.memory.session("run", context="heron").end()
    assert desk.store.digest("default", "run") is None


# -- once, and going on -----------------------------------------------------------------------


def test_ending_again_leaves_the_digest_alone(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    session.end(talk("heron?", "Yes, heron."))
    before = raw(desk)
    again = EndRequest("run", "default", transcript=talk("login?", "No."))
    assert not end(desk.memory.services, again).is_queued
    assert raw(desk) == before != ""


def test_a_resumed_session_gets_the_digest_of_its_new_end(desk: Desk) -> None:
    desk.note(*NOTES)
    desk.memory.session("run", context="heron").end(talk("heron?", "Yes, heron."))
    first = raw(desk)
    desk.memory.session("run").end()
    # Ended without a word: what is known stays, as the transcript does.
    assert raw(desk) == first
    desk.memory.session("run").end(talk("the login page?", "In src/login/page.tsx."))
    assert raw(desk) != first
    assert "src/login/page.tsx" in raw(desk)


def test_a_session_of_actions_alone_that_goes_on_has_all_of_them(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    called(desk, "Edit", {"file_path": "a.py"})
    session.end()
    resumed = desk.memory.session("run")
    called(desk, "Edit", {"file_path": "b.py"})
    resumed.end()
    assert read(desk).turns[0].edited == ("a.py", "b.py")


def test_what_is_refused_leaves_no_digest(desk: Desk) -> None:
    session = desk.memory.session("run")
    called(desk, "Edit", {"file_path": "a.py"})
    with pytest.raises(Exception, match="transcript"):
        session.end(5)
    assert desk.store.digest("default", "run") is None


# -- how long it stays ------------------------------------------------------------------------


def test_retention_takes_it_with_the_transcript(desk: Desk) -> None:
    desk.note(HERON)
    desk.finish(desk.memory.session("run", context="heron"), talk("heron?", "Yes, heron."))
    called(desk, "Edit", {"file_path": "a.py"}, key="alone")
    desk.finish(desk.memory.session("alone", context="heron"))
    assert raw(desk)
    assert raw(desk, "alone")
    desk.clock.go(days=91)
    assert maintenance.due(desk.memory.services, "default")["transcripts"] == 2
    assert maintenance.erase(desk.memory.services, "default")["transcripts"] == 2
    assert raw(desk) == raw(desk, "alone") == ""


def test_a_purge_takes_it_from_every_session_that_considered_the_memory(desk: Desk) -> None:
    desk.note(LOGIN)
    desk.memory.session("before", context="login").end(talk("login?", "In page.tsx."))
    (heron,) = desk.note(HERON)
    desk.memory.session("run", context="heron").end(talk("heron?", "Yes, heron."))
    assert heron in desk.rows()
    assert heron not in desk.rows("before")
    desk.memory.forget(heron, purge=True)
    assert raw(desk) == ""
    assert raw(desk, "before")


# -- the text that is stored ------------------------------------------------------------------


def kept_whole(turns: list[Turn]) -> tuple[Turn, ...]:
    """What is stored of a transcript that is in memory as a whole."""

    def clean(some: list[Turn]) -> tuple[Turn, ...]:
        return redacted(stripped(shorten(some, READ_LIMIT_CHARS)))

    last = shorten(clean(turns))
    if len(last) >= len(turns):
        return last
    users = [turn for turn in turns if turn.role == "user"]
    earlier = extraction.earlier_words(clean(users), last)
    if not earlier:
        return last
    return (*earlier, *shorten(last, TRANSCRIPT_LIMIT_CHARS - len(as_text(earlier)) - 1))


_WORDS = st.sampled_from(
    ["x", "heron\n", "line\r\n", " ", "\n\n", f"{TOKEN} ", "y" * 500, "z\n" * 9_000, "w" * 300_000]
)
_TEXTS = st.one_of(
    st.lists(_WORDS, max_size=8).map("".join),
    st.just("Remember that we always deploy with make ship."),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.builds(Turn, st.sampled_from(ROLES), _TEXTS), max_size=14))
def test_what_is_stored_is_what_a_reading_in_one_go_would_store(turns: list[Turn]) -> None:
    streamed = Intake(Digester(()))
    streamed.read(iter(turns))
    assert streamed.kept() == kept_whole(turns)


_SHORT = st.one_of(
    st.integers(0, 60).map(lambda size: "a" * size),
    st.text("ab\n\r\u2028 ", max_size=40),
    st.just("x" * 900),
)
_MANY = st.lists(st.builds(Turn, st.sampled_from(ROLES), _SHORT), min_size=8, max_size=30)


@settings(max_examples=200, deadline=None)
@given(_MANY, st.integers(1, 200))
def test_the_last_turns_are_enough_for_every_limit(turns: list[Turn], limit: int) -> None:
    tail = TurnTail(limit)
    for turn in turns:
        tail.add(turn)
    assert tail.clean() == redacted(stripped(shorten(turns, limit)))
    assert sum(len(turn.text) for turn in tail._turns) <= 3 * limit + 200


# -- bounds -----------------------------------------------------------------------------------


def messages(megabytes: int) -> Iterator[dict[str, Any]]:
    """Messages that are made as they are asked for."""
    for number in range(megabytes * 50):
        yield user(f"prompt {number}")
        yield from act("Bash", {"command": f"make {number}"}, "heron output\n" * 1_500)


def test_an_iterator_is_read_without_being_held(desk: Desk) -> None:
    desk.note(*NOTES)
    session = desk.memory.session("run", context="heron")
    session.prompt("heron")
    request = EndRequest("run", "default", transcript=messages(5))
    tracemalloc.start()
    try:
        assert end(desk.memory.services, request).is_queued
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MEGABYTE
    digest = read(desk)
    assert digest.char_count > 4.8 * MEGABYTE
    assert len(digest.turns) == 251
    assert digest.turns[1].results == ("heron",)
    assert desk.store.transcript("default", "run")[-1].role == "result"


def test_what_goes_beyond_the_limits_is_marked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.note(HERON)
    monkeypatch.setattr("meritory.engine.sessions.end.ACTS_LIMIT_CHARS", 1_000)
    turns = [{"role": "assistant", "text": "so many words " * 50} for _ in range(9)]
    desk.memory.session("run", context="heron").end([*turns, {"role": "assistant", "text": HERON}])
    assert not read(desk).is_complete
    assert "heron" not in terms(read(desk), "assistant")
    desk.memory.session("short", context="heron").end(turns[:1])
    assert read(desk, "short").is_complete


@pytest.mark.parametrize("run", ["-", "a", "a.", "0123456789abcdef", "~/x", "{", "\\n"])
def test_long_runs_of_characters_take_no_time(desk: Desk, run: str) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="heron")
    long = f"heron {run * (100_000 // len(run))} heron"
    began = time.process_time()
    session.end(
        [user(long), {"role": "assistant", "text": long}, *act("Bash", {"command": long}, long)]
    )
    assert time.process_time() - began < 3.0
    assert "heron" in terms(read(desk), "tool")


def test_a_long_talk_of_claims_is_as_complete_as_a_short_one(desk: Desk) -> None:
    desk.note(*filler(60))
    session = desk.memory.session("run", context="the ledger of the harbour")
    shown = [one.content for one in session.memories]
    session.end([user("go"), *({"role": "assistant", "text": text} for text in shown * 500)])
    digest = read(desk)
    assert digest.is_complete
    # Each line is kept once.
    assert len(digest.turns[1].pieces) == len(set(shown))
    assert len(json.dumps(digest.turns[1].pieces)) < 20_000
