"""The observer: rings of a fixed size, right percentiles, and many threads at once."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import meritory
from meritory.domain.errors import InputError, NotFound
from meritory.domain.world import World
from meritory.engine.observe.observer import (
    ERROR_RING_COUNT,
    LATENCY_RING_COUNT,
    OPERATIONS,
    Observer,
    known_stages,
)

PACKAGE = Path(meritory.__file__).parent


class Ticking(World):
    """A world in which every look at the clock takes five milliseconds."""

    def __init__(self) -> None:
        super().__init__(lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self._now_ms = 0.0

    def monotonic_ms(self) -> float:
        self._now_ms += 5.0
        return self._now_ms


@pytest.fixture
def observer() -> Observer:
    return Observer(Ticking())


def test_every_operation_is_there_from_the_start(observer: Observer) -> None:
    found = observer.latencies()
    assert [item.operation for item in found] == list(OPERATIONS)
    assert {(item.count, item.p50_ms, item.p99_ms, item.last_ms) for item in found} == {
        (0, None, None, None)
    }


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, (1, 1, 1)), (2, (1, 2, 2)), (100, (50, 95, 99)), (1_000, (500, 950, 990))],
)
def test_percentiles_are_values_that_were_seen(
    observer: Observer, count: int, expected: tuple[float, float, float]
) -> None:
    for value in range(count, 0, -1):
        observer.took("recall", float(value))
    found = next(item for item in observer.latencies() if item.operation == "recall")
    assert (found.p50_ms, found.p95_ms, found.p99_ms) == expected
    assert (found.count, found.last_ms) == (count, 1.0)
    assert found.total_ms == count * (count + 1) / 2


def test_only_the_last_thousand_count(observer: Observer) -> None:
    for _ in range(LATENCY_RING_COUNT):
        observer.took("remember", 1_000.0)
    for _ in range(LATENCY_RING_COUNT):
        observer.took("remember", 1.0)
    found = next(item for item in observer.latencies() if item.operation == "remember")
    assert (found.p99_ms, found.count) == (1.0, 2 * LATENCY_RING_COUNT)


def test_a_block_is_timed_even_when_it_fails(observer: Observer) -> None:
    with observer.timed("jobs"):
        pass
    with pytest.raises(KeyError), observer.timed("jobs"):
        raise KeyError
    with observer.timed("something new"):
        pass
    observer.stages("start", {"pool": 2.0, "rank": 3.0})
    found = {item.operation: item for item in observer.latencies()}
    assert (found["jobs"].count, found["jobs"].p50_ms) == (2, 5.0)
    assert found["something new"].count == 1
    assert found["start.rank"].last_ms == 3.0


def test_errors_are_kept_newest_first_and_only_ours_with_their_words(observer: Observer) -> None:
    observer.failed("predictor_timeout", NotFound("no such " + "x" * 1_000), "r1")
    observer.failed("http", ValueError("what a user wrote"))
    latest, first = observer.failures()
    assert (latest.stage, latest.code, latest.message) == ("http", "bug", "ValueError")
    assert (first.code, first.request_id, len(first.message)) == ("not_found", "r1", 500)
    assert first.at == "2026-01-01T00:00:00.000+00:00"
    assert observer.failures("http") == [latest]
    assert observer.failures("mcp") == []
    for _ in range(2 * ERROR_RING_COUNT):
        observer.failed("http", ValueError())
    assert len(observer.failures()) == ERROR_RING_COUNT
    assert observer.failure_counts() == {
        ("predictor_timeout", "not_found"): 1,
        ("http", "bug"): 1 + 2 * ERROR_RING_COUNT,
    }


def test_errors_are_selected_by_stage_or_by_group(observer: Observer) -> None:
    failed = ["predictor_crash", "job_finish-session", "predictor_timeout", "session_record"]
    for stage in failed:
        observer.failed(stage, NotFound("x"))

    def stages(name: str | None) -> list[str]:
        return [one.stage for one in observer.failures(name)]

    assert stages(None) == failed[::-1]
    assert stages("predictor") == ["predictor_timeout", "predictor_crash"]
    assert stages("predictor_crash") == ["predictor_crash"]
    assert stages("job") == ["job_finish-session"]
    assert stages("feedback") == []
    for unknown in ("predictor_", "session", "crash", ""):
        with pytest.raises(InputError, match="unknown stage") as refused:
            stages(unknown)
        assert "predictor, predictor_crash" in str(refused.value.hint)


def test_every_stage_that_the_package_reports_is_known() -> None:
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    stages = set(re.findall(r'observer\.failed\(\s*"([a-z_]+)"', source))
    stages |= set(re.findall(r'"(predictor_(?:crash|timeout|[a-z]+_(?:error|failure)))"', source))
    stages |= {f"job_{kind}" for kind in re.findall(r'[A-Z]_JOB(?:: Final)? = "(.+)"', source)}
    stages |= {f"feedback_{part}" for part in re.findall(r'_aside\(services, "(\w+)"', source)}
    assert len(stages) > 15
    assert stages <= set(known_stages())


def test_many_threads_lose_nothing(observer: Observer) -> None:
    def work() -> None:
        for number in range(2_000):
            observer.count("seen")
            observer.took("recall", 1.0)
            if number % 200 == 0:
                observer.latencies()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert observer.counters() == {"seen": 8_000}
    assert next(i for i in observer.latencies() if i.operation == "recall").count == 8_000
