"""The session benches can fail: a bar too low is missed, and a bad answer is counted."""

from __future__ import annotations

import asyncio
import json
import random
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.agents import Agent, Answer, Lines
from bench.served import Daemon, running
from bench.speed import show

from bench import load, sessions, stock

TEXTS = [
    f"The {thing} of shop {number} is kept in the {place} room"
    for number in range(20)
    for thing, place in (("ledger", "blue"), ("stapler", "north"), ("kettle", "tea"))
]
ASKED = [f"where is the {thing}" for thing in ("ledger", "stapler", "kettle")]
TINY = sessions.Plan(rounds=1, starts_per_round=2, prompts_per_start=1, daemon_starts=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home") / "home"
    stock.fill(made, TEXTS, ASKED[:2])
    return made


@pytest.fixture(scope="module")
def daemon(home: Path) -> Iterator[Daemon]:
    with running(home, {"MERITORY_DAEMON_RATE_LIMIT_PER_S": "30"}) as made:
        yield made


def test_an_honest_run_has_every_figure_and_one_over_its_bar_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = sessions.Plan(
        rounds=1, starts_per_round=2, prompts_per_start=1, daemon_starts=1, start_p50_ms=0.0
    )
    rows = sessions.medium(tmp_path / "home", TEXTS, ASKED, plan)
    values = {name: value for name, value, _, _ in rows}
    assert values["errors at 60"] == 0.0
    assert 0 < values["candidates recorded at 60, required apart"] <= sessions.POOL_SIZE
    assert all(value > 0.0 for name, value in values.items() if " ms" in name)
    assert sessions.finish(rows, tmp_path / "found.json", {}) == 1
    assert "start at 60, p50 ms" in show(rows)
    assert "MISSED <= 0 " in capsys.readouterr().out
    kept = json.loads((tmp_path / "found.json").read_text())["figures"]["rows"]
    assert [row["name"] for row in kept] == [name for name, *_ in rows]


def test_an_error_answer_is_counted(daemon: Daemon) -> None:
    times = sessions.Timed()
    fine, bad = sessions._start("fine", "where is it"), sessions._start("", "where is it")
    sessions._round(daemon, times, [fine, bad, fine])
    assert times.errors == 1
    name, value, bar, _ = sessions._error_row({"start": times}, 60)
    assert show([(name, value, bar, "")]) == ["errors at 60"]


def test_a_daemon_that_does_not_come_up_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not come up"):
        Daemon(tmp_path, {"MERITORY_DAEMON_PORT": "no port"})


def test_a_large_store_is_poured_and_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock, "POUR_FROM", 0)
    rows = sessions.large(tmp_path / "home", TEXTS, ASKED, TINY)
    values = {name: value for name, value, _, _ in rows}
    assert values["errors at 60"] == 0.0
    assert values["candidates recorded at 60, required apart"] > 10


def test_load_refuses_in_order_and_counts_what_is_wrong(daemon: Daemon) -> None:
    async def scenario() -> tuple[load.Heard, load.Heard]:
        lines = Lines(daemon.socket)
        made = load.Load(lines, ASKED, (f"note {number} of the day" for number in range(1_000)))
        try:
            # Thirty requests a second are allowed, and a hundred come at once.
            crowd = await made.phase(2_000.0, 0.05, 40)
            calm = await made.phase(20.0, 1.0, 40)
        finally:
            await lines.close()
        return crowd, calm

    crowd, calm = asyncio.run(scenario())
    assert crowd.refused
    assert crowd.accepted
    assert crowd.error_count == calm.error_count == 0
    rows = load.overload_rows(4, crowd, calm, calm)
    assert {name: value for name, value, _, _ in rows}["4x: refused, %"] > 0.0
    options = Namespace(rate=20.0, minutes=1.0)
    samples = [load.Sample(0.0, 100.0, 40), load.Sample(30.0, 100.0, 40)]
    # At the rated load a refusal is an error.
    told = {name: value for name, value, _, _ in load.rated_rows(crowd, samples, 1.0, options)}
    assert told["errors at 20/s"] == len(crowd.refused)


@pytest.mark.parametrize(
    ("answer", "errors"),
    [
        (Answer(200, False, {}), 0),
        (Answer(503, True, {}), 0),
        (Answer(429, True, {}), 0),
        (Answer(503, False, {}), 1),
        (Answer(500, False, {}), 1),
        (Answer(404, True, {}), 1),
    ],
)
def test_only_a_refusal_that_says_when_to_come_back_is_no_error(
    answer: Answer, errors: int
) -> None:
    heard = load.Heard()
    heard.note("prompt", 0.0, 1.0, answer)
    assert heard.error_count == errors


def test_a_client_that_is_late_is_not_taken_for_a_slow_daemon() -> None:
    heard = load.Heard()
    for _ in range(100):
        heard.note("prompt", 0.0, 500.0, Answer(503, True, {}, took_ms=2.0))
    rows = {name: value for name, value, *_ in load.overload_rows(20, heard, heard, heard)}
    assert rows["20x: refusal, p99 ms"] == 500.0
    assert rows["20x: refusal once sent, p99 ms"] == 2.0
    assert rows["20x: sent late by the client, p99 ms"] == 498.0


def test_memory_that_grows_is_seen() -> None:
    flat = [load.Sample(at * 30.0, 100.0, 40) for at in range(20)]
    assert load.growth_percent(flat, 120.0) == 0.0
    grown = [load.Sample(at * 30.0, 100.0 + at, 40) for at in range(20)]
    assert load.growth_percent(grown, 120.0) == pytest.approx(100.0 * (119 / 104 - 1))


def test_a_slow_recovery_is_seen() -> None:
    heard = load.Heard()
    for tenth in range(100):
        took_ms = 500.0 if tenth < 70 else 10.0
        heard.note("prompt", tenth / 10, took_ms, Answer(200, False, {}))
    assert load.normal_after_s(heard, 10.0) > load.NORMAL_WITHIN_S
    assert load.normal_after_s(heard, 500.0) == 0.0


def test_an_agent_goes_through_its_sessions_and_rates_what_it_was_shown() -> None:
    agent = Agent("a", random.Random(1), ASKED)
    kinds = []
    shown = {"injection": "0123456789", "memories": [{"handle": "m1"}, {"handle": "m2"}]}
    for _ in range(60):
        request = agent.request()
        kinds.append(request.kind)
        if request.kind == "stop":
            assert "<!--mf 0123456789 m1=" in request.body["last_assistant_message"]
        agent.took(request, shown)
    second = kinds[kinds.index("end") + 1 :]
    second = second[: second.index("end") + 1]
    assert (second[0], second.count("prompt"), second.count("stop")) == ("start", 14, 5)
