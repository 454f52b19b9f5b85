"""The replay of sessions: nothing leaks, the store follows the stream, and learning is real."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from bench.base_weights import SHIPPED_STREAMS, _evenly
from bench.datasets import MissingData, WrongData
from bench.streams import REPORTED, STREAMS_BY_REGIME, _options, _result_name, _run
from bench.streams_ablate import LEFT_OUT, ablations
from bench.streams_data import LOCOMO_STREAMS, QUESTION_STREAM, STREAMS, TRANSCRIPT_STREAMS, load
from bench.streams_figures import Figures
from bench.streams_outcome import Outcome
from bench.streams_replay import Clock, Keeper, Run, replay
from bench.streams_report import served_figures, show, show_all, summary
from bench.streams_rows import (
    COLD_LINEAR,
    FRECENCY,
    HYBRID,
    MIX,
    PREDICTOR,
    SERVED,
    SERVED_BASELINE,
)
from bench.streams_types import Stream, StreamMemory, StreamSession, Version, guarded

from meritory import Memory
from meritory.rank.features import FEATURES

DAWN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
# Two kinds of work whose words are in none of the notes.
TASKS = ("ship the release to production", "draw the menu in softer colours")
NOTES = tuple(
    f"{animal} notes: the {animal} eats {food}"
    for animal in ("otter", "heron", "lynx", "badger", "stoat", "weasel", "puffin", "gannet")
    for food in ("berries", "acorns", "clover")
)


def a_memory(name: str, *texts: str, until: datetime | None = None) -> StreamMemory:
    versions = tuple(Version(DAWN + 10 * HOUR * at, text) for at, text in enumerate(texts))
    return StreamMemory(name, None, DAWN, until, versions)


def a_session(hours: int, context: str, gains: dict[str, float]) -> StreamSession:
    return StreamSession(f"s{hours}", DAWN + hours * HOUR, None, context, gains)


def two_habits() -> Stream:
    """Return a stream in which each task needs its own three notes; only use shows which."""
    memories = tuple(a_memory(f"n{at}", text) for at, text in enumerate(NOTES))
    helpful = ({"n3": 2.0, "n10": 2.0, "n17": 1.0}, {"n5": 2.0, "n12": 2.0, "n20": 1.0})
    sessions = tuple(a_session(24 * (at + 1), TASKS[at % 2], helpful[at % 2]) for at in range(12))
    return guarded(Stream("habits", memories, sessions))


@pytest.fixture(scope="module")
def honest() -> Outcome:
    return replay(two_habits(), Run(keep=True))


def test_every_session_is_scored_and_the_pool_holds_all(honest: Outcome) -> None:
    assert honest.pool_recall == [1.0] * 12
    assert all(np.isfinite(values).all() for values in honest.ndcg.values())
    assert {len(values) for values in honest.ndcg.values()} == {12}


def test_use_teaches_what_no_text_says(honest: Outcome) -> None:
    # Whether the product trusts history after so few sessions is its own choice. Rankings that
    # always use the history on record show that the replay records it.
    for method in (MIX, COLD_LINEAR):
        first, *_, last = honest.quarters(method)
        assert last > max(0.6, first + 0.2), method
        assert honest.mean(method) > honest.mean(HYBRID) + 0.2
    assert honest.quarters(HYBRID)[-1] < 0.4
    # Counting knows the notes, but not which task needs which.
    assert 0.4 < honest.quarters(FRECENCY)[-1] < honest.quarters(MIX)[-1]


def test_labels_by_lot_teach_nothing(honest: Outcome) -> None:
    shuffled = replay(two_habits(), Run(seed=5, control="shuffled"))
    for method in (MIX, COLD_LINEAR):
        assert shuffled.mean(method) < honest.mean(method) - 0.2
    assert shuffled.pool_recall == honest.pool_recall


def test_a_limit_takes_the_first_sessions() -> None:
    assert replay(two_habits(), Run(limit=2)).pool_recall == [1.0, 1.0]


def test_the_order_of_the_predictor_and_alpha_are_kept(honest: Outcome) -> None:
    assert len(honest.ndcg[PREDICTOR]) == len(honest.alpha) == len(honest.kept) == 12
    assert 0.0 <= honest.win_rate <= 1.0


def test_the_model_does_no_harm_while_it_has_no_weight(honest: Outcome) -> None:
    silent = [place for place, alpha in enumerate(honest.alpha) if alpha >= 1.0]
    assert silent
    for place in silent:
        assert honest.ndcg[SERVED][place] == honest.ndcg[SERVED_BASELINE][place]


def test_complete_labels_are_all_right(honest: Outcome) -> None:
    assert (honest.label_precision, honest.label_recall) == (1.0, 1.0)


def test_what_is_left_out_is_not_learned_from(honest: Outcome) -> None:
    assert set().union(*LEFT_OUT.values()) <= set(FEATURES)
    found = ablations(honest.kept)
    # Here nothing but history tells what will help.
    assert found["without history"][1] < found["all features"][1] - 0.2


def test_the_summary_has_the_figures_that_are_shown(
    honest: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = Figures([honest, honest])
    found = summary(figures)
    assert (found["sessions"], found["scored"], found["pool_recall"]) == (12, 12, 1.0)
    path = tmp_path / "streams.json"
    path.write_text(json.dumps({"figures": {"streams": [found]}}))
    assert served_figures(path) == {"habits": pytest.approx(honest.mean(SERVED), abs=1e-4)}
    show(honest)
    show_all(figures)
    printed = capsys.readouterr().out
    assert all(f"\n  {method} " in printed for method in honest.ndcg)
    assert "served - text" in printed


def test_only_a_complete_run_gives_the_figure_to_compare_with(tmp_path: Path) -> None:
    entry = {"name": "one", "methods": {SERVED: {"ndcg@10": 0.4}}}
    others = [{**entry, "regime": "ratings"}, {**entry, "control": "shuffled"}]
    path = tmp_path / "streams.json"
    path.write_text(json.dumps({"figures": {"streams": [entry, *others]}}))
    assert served_figures(path) == {"one": 0.4}
    path.write_text(json.dumps({"figures": {"streams": others}}))
    assert served_figures(path) == {}


def test_a_session_without_a_used_memory_is_not_scored() -> None:
    stream = two_habits()
    idle = StreamSession("idle", DAWN + 30 * HOUR, None, "rest", {})
    found = replay(guarded(Stream("idle", stream.memories, (*stream.sessions[:4], idle))))
    assert np.isnan(found.pool_recall).tolist() == [False, True, False, False, False]
    assert all(np.isnan(values).sum() == 1 for values in found.ndcg.values())


def test_what_a_session_made_itself_is_no_target_of_it() -> None:
    new = StreamMemory("new", None, DAWN + 5 * HOUR, None, (Version(DAWN + 5 * HOUR, "made"),))
    gone = a_memory("gone", "was", until=DAWN + 4 * HOUR)
    going = a_memory("going", "is", until=DAWN + 5 * HOUR)
    session = a_session(5, "work", {"new": 2.0, "gone": 2.0, "going": 1.0})
    later = a_session(6, "work", {"new": 2.0})
    stream = guarded(Stream("made", (new, gone, going), (later, session)))
    assert [dict(one.gains) for one in stream.sessions] == [{"going": 1.0}, {"new": 2.0}]


def test_a_text_is_shown_only_after_the_moment_it_was_written() -> None:
    memory = a_memory("one", "first", "second")
    assert memory.text_before(DAWN) is None
    assert memory.text_before(DAWN + HOUR) == "first"
    assert memory.text_before(DAWN + 10 * HOUR) == "first"
    assert memory.text_before(DAWN + 11 * HOUR) == "second"


def test_the_store_follows_the_stream(tmp_path: Path) -> None:
    stays = a_memory("stays", "the door is red", "the door is green")
    goes = a_memory("goes", "the gate is open", until=DAWN + 3 * HOUR)
    clock = Clock(DAWN + HOUR)
    with Memory(tmp_path / "one.db", clock=clock) as memory:
        keeper = Keeper(memory, Stream("s", (stays, goes), ()))
        contents = []
        for hours in (1, 4, 12):
            clock.at = DAWN + hours * HOUR
            keeper.catch_up(clock.at)
            contents.append({one.content for one in memory.page()})
        kept = memory.get(keeper.ids["stays"])
    assert contents == [
        {"the door is red", "the gate is open"},
        {"the door is red"},
        {"the door is green"},
    ]
    assert kept.created_at == DAWN


def write_stream(root: Path, *, honest: bool = True) -> None:
    folder = root / "streams" / "tiny"
    folder.mkdir(parents=True)
    base = int(DAWN.timestamp())
    memory = {"mid": "a", "project": "docs", "created": base, "deleted": None}
    files = {
        "memories.jsonl": {**memory, "texts": [[base, "a\0b"], [base + 50, "made later"]]},
        "sessions.jsonl": {"sid": "s", "ts": base + 50, "project": "p", "query": "q", "rel": ["a"]},
    }
    sums = []
    for name, row in files.items():
        body = (json.dumps(row) + "\n").encode()
        (folder / name).write_bytes(body)
        sums.append(f"{hashlib.sha256(body if honest else b'').hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(sums))


def test_a_stream_is_read_with_its_project_and_its_gains(tmp_path: Path) -> None:
    write_stream(tmp_path)
    stream = load("tiny", tmp_path)
    assert [memory.project for memory in stream.memories] == ["p"]
    assert stream.memories[0].text_before(stream.sessions[0].at) == "ab"
    assert dict(stream.sessions[0].gains) == {"a": 2.0}


def test_wrong_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        load("tiny", tmp_path)
    write_stream(tmp_path, honest=False)
    with pytest.raises(WrongData):
        load("tiny", tmp_path)


def asked(number: str, *turns: dict[str, object]) -> dict[str, object]:
    return {
        "question_id": f"q{number}",
        "question_type": "plain",
        "question": f"what about {number}?",
        "haystack_session_ids": [f"talk{number}"],
        "haystack_dates": ["2026/01/05 (Mon) 09:00"],
        "haystack_sessions": [list(turns)],
    }


def test_questions_are_answered_by_what_users_said(tmp_path: Path) -> None:
    told: dict[str, object] = {"role": "user", "content": "my cat is Tom", "has_answer": True}
    small: dict[str, object] = {"role": "user", "content": "hello"}
    reply: dict[str, object] = {"role": "assistant", "content": "a cat!", "has_answer": True}
    # Of those that can be answered every second one is taken: the first and the fourth.
    items = [asked("1", small, reply, told), asked("2_abs", told), asked("3", told)]
    items += [asked("4", small, reply)]
    folder = tmp_path / "longmemeval"
    folder.mkdir()
    body = json.dumps(items).encode()
    (folder / "longmemeval_oracle.json").write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  longmemeval_oracle.json\n")

    stream = load(QUESTION_STREAM, tmp_path)
    assert [one.id for one in stream.memories] == ["talk1/0", "talk1/2", "talk4/0"]
    # What only the assistant said answers nothing here.
    assert [(one.context, dict(one.gains)) for one in stream.sessions] == [
        ("what about 1?", {"talk1/2": 2.0})
    ]
    assert stream.sessions[0].at > max(one.created_at for one in stream.memories)


def test_work_has_two_voices_to_the_one_of_questions(honest: Outcome) -> None:
    many = honest.kept * 50
    work, questions = _evenly("git_datasette_2h", many), _evenly(QUESTION_STREAM, many)
    assert (len(work), len(questions)) == (400, 200)
    assert len(_evenly(QUESTION_STREAM, honest.kept)) == len(honest.kept)


def test_no_stream_is_judged_with_a_base_that_saw_it() -> None:
    judged = {name for names in STREAMS_BY_REGIME.values() for name in names}
    for name in (*REPORTED, *LOCOMO_STREAMS, *judged):
        chosen = _run(name, 0, _options([])).settings.get("predictor.base_weights")
        # Without a choice the shipped base serves; the other base is made from the agents' streams.
        assert chosen is not None or name not in SHIPPED_STREAMS
        assert chosen is None or not name.startswith("agent_")


def test_a_control_has_its_own_seeds_and_its_own_file() -> None:
    options = _options(["--regime", "ratings", "--control", "position"])
    run = _run("agent_entire_s", 2, options)
    assert (run.seed, run.regime, run.control) == (1_002, "ratings", "position")
    assert str(_result_name(options)) == "streams-ratings-position.json"
    assert str(_result_name(_options([]))) == "streams.json"
    assert str(_result_name(_options(["--regime", "ratings"]))) == "streams-ratings.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--control", "echo"],
        ["--regime", "ratings", "--control", "words"],
        ["--regime", "transcripts", "--control", "position"],
        ["--regime", "transcripts", "--stream", "agent_specstory"],
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _options(arguments)
    assert "use" in capsys.readouterr().err


def test_no_target_of_the_real_streams_is_lost_or_leaked() -> None:
    names = (*STREAMS[:2], *TRANSCRIPT_STREAMS[:2])
    try:
        streams = [load(name) for name in names]
    except MissingData as missing:
        pytest.skip(str(missing))
    assert [len(stream.sessions) for stream in streams] == [117, 39, 115, 153]
    gains = [sum(len(one.gains) for one in stream.sessions) for stream in streams]
    assert gains == [1103, 229, 816, 290]
    assert [stream.has_transcripts for stream in streams] == [False, False, True, True]
