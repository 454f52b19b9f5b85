"""The cases of the judge's bench: candidates, truth, halves, masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from bench.judge_cases import (
    CODING,
    MASKED,
    REALMEM,
    Case,
    cases,
    load_sets,
    masked,
)
from bench.judge_mask import mask_memory, mask_text
from bench.judge_verdicts import judge_case
from bench.streams_types import Message, Stream, StreamMemory, StreamSession, Version

from bench import judge_cases, realmem, streams_data, streams_replay
from meritory import Memory
from meritory.domain.session import Candidate, JudgedMemory

AT = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FILES = {
    "cmd/clean.go": "package clean\nfunc removeOrphans() error { return sweepDangling() }",
    "cmd/push.go": "package push\nfunc uploadBranch() error { return sendPackfile() }",
    "docs/notes.md": "# Notes\nThe heron waits near the river. See cmd/push.go for more.",
}


def session(number: int, used: str) -> StreamSession:
    """A session that reads a file and edits it."""
    given = {"file_path": f"/home/anna/shop/{used}"}
    messages: list[Message] = [
        {"role": "user", "content": "please fix it, it fails " + "again and again " * 40},
        {"type": "tool_call", "name": "Read", "arguments": given},
        {"type": "tool_result", "content": f"{used}\n{FILES[used]}"},
        {"type": "tool_call", "name": "Edit", "arguments": {**given, "new_string": FILES[used]}},
        {"role": "assistant", "text": f"I changed {used}."},
    ]
    return StreamSession(
        key=f"s{number}",
        at=AT + number * DAY,
        project=None,
        context="please fix how uploadBranch works with packfile",
        gains={used: 2.0},
        transcript=lambda: messages,
    )


def stream(name: str = CODING, count: int = 4) -> Stream:
    memories = tuple(
        StreamMemory(path, None, AT, None, (Version(AT, f"{path}\n{body}"),))
        for path, body in FILES.items()
    )
    used = list(FILES)
    sessions = tuple(session(number, used[number % 2]) for number in range(1, count + 1))
    return Stream(name, memories, sessions)


def test_a_case_has_the_candidates_of_the_library_and_the_truth() -> None:
    found = list(cases(stream()))
    assert [case.stream for case in found] == [CODING] * 4
    assert {one.text.split("\n")[0] for one in found[0].exhibits} == set(FILES)
    assert any(one.was_shown for one in found[0].exhibits)
    helped = [
        {
            one.text.split("\n")[0]
            for one, is_used in zip(case.exhibits, case.helped, strict=True)
            if is_used
        }
        for case in found
    ]
    assert helped == [{"cmd/push.go"}, {"cmd/clean.go"}] * 2


def test_every_run_gives_the_same_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = set()

    def recorded(memory: Memory, key: str) -> list[Candidate]:
        secrets.add(memory.services.store.secret())
        return streams_replay.recorded(memory, key)

    monkeypatch.setattr(judge_cases, "recorded", recorded)
    one, other = (list(cases(stream())) for _ in range(2))
    assert [case.exhibits for case in one] == [case.exhibits for case in other]
    # The secret has a part in what fits into a context.
    assert secrets == {judge_cases.SECRET}


def test_a_session_without_candidates_is_no_case() -> None:
    early = replace(stream().sessions[0], at=AT - DAY, gains={})
    assert len(list(cases(replace(stream(), sessions=(early, *stream().sessions))))) == 4


def test_a_session_without_a_transcript_is_refused() -> None:
    silent = replace(stream().sessions[0], transcript=None)
    with pytest.raises(ValueError, match="'s1' has no transcript"):
        list(cases(replace(stream(), sessions=(silent,))))


def test_the_judge_finds_the_file_that_a_call_names() -> None:
    trace = judge_case(next(cases(stream())))
    used = trace.judged.helped
    assert trace.judged.chances[used].min() > 0.9 > 0.1 > trace.judged.chances[~used].max()
    assert trace.judged.confidence > 0.4
    assert set(trace.names.tolist()) == {"titled"}


def test_a_short_session_gets_no_label() -> None:
    case = next(cases(stream()))
    said = "The heron waits near the river. "
    short, long = (
        judge_case(replace(case, messages=lambda text=text: [{"role": "assistant", "text": text}]))
        for text in (said, said * 20)
    )
    assert np.isfinite(long.judged.labels).any()
    assert np.isnan(short.judged.labels).all() and short.judged.confidence == 0.0
    assert np.isfinite(short.judged.chances).all()


# -- masks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("in cmd/entire/cli/clean.go here", "in   here"),
        ("at /home/ann/dev/x.go:12", "at  :12"),
        ("./run.sh now", "  now"),
        ("go.mod and clean_test.go", "  and  "),
        ("common.go-463-x := 1", " -463-x := 1"),
        ("read CLAUDE.md, then a.b.test.ts.", "read  , then  ."),
        (".gitignore", " "),
        (".golangci.yaml", " "),
        ("the LICENSE", "the  "),
        ("~/notes/todo", " "),
        ('{"file_path": "src/main.py"}', '{"file_path": " "}'),
    ],
)
def test_a_mask_removes_paths_and_file_names(text: str, left: str) -> None:
    assert mask_text(text) == left


def test_a_mask_keeps_code_and_words() -> None:
    text = "if err := os.Exit(1); err != nil { return fmt.Errorf(x) } // and so on. Yes, e.g. 3.5"
    assert mask_text(text) == text


def test_a_long_run_is_masked_in_linear_time() -> None:
    assert mask_text("x" * 400_000 + " a/b") == "x" * 400_000 + "  "


def test_a_masked_memory_has_no_title() -> None:
    assert mask_memory("shellcheck\nrun lint/go now") == "\nrun   now"
    assert mask_memory("no body") == ""


def test_a_masked_case_names_no_file_anywhere() -> None:
    case = masked(next(cases(stream())))
    texts = [one.text for one in case.exhibits] + [turn.text for turn in case.turns()]
    names = [name for path in FILES for name in (path, path.rpartition("/")[2])]
    assert not [text for text in texts for name in names if name in text]
    assert "removeOrphans" in "".join(texts) and "uploadBranch" in "".join(texts)
    assert not any(turn.paths for turn in case.turns())
    trace = judge_case(case)
    assert not trace.signals[:, :2].any()
    assert "titled" not in trace.names


# -- sets -----------------------------------------------------------------------------------


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the data by made-up streams, and note which were asked for."""
    asked: list[str] = []

    def load(name: str, root: Path | None = None) -> Stream:
        asked.append(name)
        return stream(name, 5)

    monkeypatch.setattr(streams_data, "load", load)
    return asked


def test_the_first_half_tunes_and_the_second_is_reported(loaded: list[str]) -> None:
    plain, bare = load_sets([CODING, MASKED])
    assert [case.key for case in plain.tuning] == ["0-s1", "1-s2"]
    assert [case.key for case in plain.reported] == ["2-s3", "3-s4", "4-s5"]
    assert not any(case.is_masked for case in plain.tuning + plain.reported)
    assert bare.name == MASKED
    assert all(case.is_masked for case in bare.tuning + bare.reported)
    assert [case.key for case in bare.reported] == [case.key for case in plain.reported]
    assert loaded == [CODING]


def test_no_person_is_in_both_parts(loaded: list[str]) -> None:
    (found,) = load_sets([REALMEM])
    tuning, reported = ({case.stream for case in part} for part in (found.tuning, found.reported))
    assert tuning == {f"{realmem.PREFIX}{one}" for one in ("kenta", "kim")}
    assert reported == {f"{realmem.PREFIX}{one}" for one in ("liam", "oliver", "sophie")}
    assert len(loaded) == 5


def test_a_reading_keeps_terms_of_extra_texts() -> None:
    def said(text: str) -> Callable[[], list[Message]]:
        return lambda: [{"role": "assistant", "text": text}]

    case = Case(
        "s", "k", (JudgedMemory("The otter swims.", True),), np.array([True]), said("zebra otter")
    )
    assert case.read().digest.turns[0].pieces == (("assistant", ("otter",)),)
    assert case.read(["a zebra"]).digest.turns[0].pieces == (("assistant", ("zebra", "otter")),)
