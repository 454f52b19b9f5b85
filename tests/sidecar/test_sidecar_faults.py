"""Whatever the predictor's process does, whoever asks it gets an answer or an error in time."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sidecar_kit import Jumping, fake, request, scorer, until

from meritory.domain.errors import BadReply, PortError, PortTimeout
from meritory.ports.breaker import HOUR_MS
from meritory.ports.sidecar import SidecarScorer

SHORT_MS = 100.0
HUNG = "def on(call):\n    time.sleep(60)"


def ready(made: SidecarScorer) -> SidecarScorer:
    made.warm()
    until(lambda: made.facts.is_ready)
    return made


def test_a_sound_process_scores_and_is_counted(tmp_path: Path) -> None:
    with scorer(tmp_path, command=fake(tmp_path, "on = fine")) as made:
        assert not made.facts.is_alive
        assert made.score(request()).tolist() == [0.0, 1.0, 2.0]
        facts = made.facts
        assert facts.is_alive
        assert facts.pid is not None
        assert facts.scores_processed == 1
        assert facts.crash_count == facts.timeout_count == 0
        assert facts.uptime_s is not None
        assert facts.last_latency_ms is not None
        assert not facts.is_disabled


def test_a_slow_answer_is_not_waited_for_and_never_taken_for_the_next(tmp_path: Path) -> None:
    go = tmp_path / "go"
    body = (
        "def on(call):\n"
        f"    while seen == 1 and not os.path.exists({str(go)!r}):\n"
        "        time.sleep(0.005)\n"
        "    fine(call)"
    )
    command = fake(tmp_path, body)
    with scorer(tmp_path, command=command, score_timeout_ms=SHORT_MS) as made:
        pid = ready(made).facts.pid
        with pytest.raises(PortTimeout, match="no scores within 100 ms"):
            made.score(request(5))
        with pytest.raises(PortTimeout, match="busy with an earlier request"):
            made.score(request(4))
        assert (made.facts.timeout_count, made.facts.crash_count) == (2, 0)
        go.touch()
        until(lambda: _scores(made, 3))
        assert (made.facts.crash_count, made.facts.pid) == (0, pid)


@pytest.mark.parametrize(
    "action",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        'write(\'{"jsonrpc": "2.0", "id": \'); sys.exit(3)',
        "os.close(1); time.sleep(60)",
    ],
    ids=["killed", "dead within a line", "stdout closed"],
)
def test_a_process_that_dies_while_it_is_asked_is_replaced(tmp_path: Path, action: str) -> None:
    body = f"def on(call):\n    if life == 1:\n        {action}\n    fine(call)"
    with scorer(tmp_path, command=fake(tmp_path, body)) as made:
        pid = ready(made).facts.pid
        with pytest.raises(PortError, match="the predictor ended with") as told:
            made.score(request())
        assert not isinstance(told.value, PortTimeout | BadReply)
        until(lambda: made.facts.is_ready)
        assert made.score(request()).tolist() == [0.0, 1.0, 2.0]
        assert made.facts.crash_count == 1
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize(
    "text",
    [
        "'hello\\n'",
        "'\\xff\\n'",
        "'[1, 2]\\n'",
        '\'{"id": 1, "result": {"scores": [{"id": "memory-0", "score": NaN}]}}\\n\'',
        "'[' * 100_000 + '\\n'",
        "'x' * 100_000_000",
    ],
    ids=["garbage", "no text", "a list", "NaN", "deep", "huge line"],
)
def test_what_is_no_answer_ends_the_process(tmp_path: Path, text: str) -> None:
    body = f"def on(call):\n    write({text}) if life == 1 else fine(call)"
    with scorer(tmp_path, command=fake(tmp_path, body)) as made:
        pid = ready(made).facts.pid
        with pytest.raises(BadReply):
            made.score(request())
        until(lambda: made.facts.is_ready and made.facts.pid != pid)
        assert made.score(request()).shape == (3,)
        assert made.facts.crash_count == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("one['scores'][1]['score'] = None", "cannot be read"),
        ("one['scores'][1]['score'] = '1'", "cannot be read"),
        ("del one['scores'][1]", "other candidates"),
        ("one['scores'].reverse()", "other candidates"),
        ("one['scores'].append({'id': 'memory-0', 'score': 1})", "other candidates"),
        ("one['model_version'] = 7", "model 7 answered for model 0"),
        ("one = []", "cannot be read"),
        ("one = {}", "cannot be read"),
    ],
)
def test_an_answer_of_another_shape_is_refused(tmp_path: Path, change: str, why: str) -> None:
    body = f"def on(call):\n    one = result(call)\n    {change}\n    answer(call, result=one)"
    with scorer(tmp_path, command=fake(tmp_path, body)) as made, pytest.raises(BadReply, match=why):
        made.score(request())


def test_an_error_answer_is_an_error_and_the_process_goes_on(tmp_path: Path) -> None:
    body = (
        "def on(call):\n"
        "    why = {'code': -32603, 'message': 'not today'}\n"
        "    no = json.dumps({'id': call['id'], 'error': why}) + '\\n'\n"
        "    write(no) if seen == 1 else fine(call)"
    )
    with scorer(tmp_path, command=fake(tmp_path, body)) as made:
        with pytest.raises(PortError, match=r"-32603\): not today"):
            made.score(request())
        assert made.score(request()).shape == (3,)
        assert made.facts.crash_count == 0


def test_answers_to_others_and_double_ones_are_passed_over(tmp_path: Path) -> None:
    body = (
        "def on(call):\n"
        "    for other in (call['id'] + 1, call['id'] - 1, str(call['id']), None, call['id']):\n"
        "        answer(call, id=other, result={**result(call), 'model_version': 0})\n"
        "    answer(call, result='twice')\n"
        "    sys.stderr.write('flood ' * 100_000)"
    )
    with scorer(tmp_path, command=fake(tmp_path, body)) as made:
        for count in range(1, 8):
            assert made.score(request(count)).shape == (count,)
        assert made.facts.crash_count == 0


def test_an_answer_under_a_wrong_id_alone_is_no_answer(tmp_path: Path) -> None:
    body = "def on(call):\n    answer(call, id=call['id'] + 7, result=result(call))"
    with scorer(tmp_path, command=fake(tmp_path, body), score_timeout_ms=SHORT_MS) as made:
        ready(made)
        with pytest.raises(PortTimeout):
            made.score(request())


def test_three_crashes_within_an_hour_switch_it_off_until_the_hour_has_passed(
    tmp_path: Path,
) -> None:
    world = Jumping()
    body = "sys.stderr.write('no luck')\nif life <= 4 or life == 6:\n    sys.exit(3)\non = fine"
    with scorer(tmp_path, world, command=fake(tmp_path, body)) as made:
        made.warm()
        until(lambda: made.facts.is_disabled)
        assert made.facts.crash_count == 3
        assert made.facts.last_error == "the predictor ended with 3: no luck"
        with pytest.raises(PortError, match=r"3 crashes within an hour.*predictor enable"):
            made.score(request())
        with pytest.raises(PortError):
            made.warm()
        world.ahead_ms += HOUR_MS - 60_000.0
        assert made.facts.is_disabled
        world.ahead_ms += 120_000.0
        assert not made.facts.is_disabled
        # The fourth life ends as the others did; that alone does not switch it off again.
        made.warm()
        until(lambda: made.facts.is_ready)
        assert made.score(request()).shape == (3,)
        assert made.facts.crash_count == 4


def test_it_can_be_switched_on_again_by_hand(tmp_path: Path) -> None:
    body = "if life <= 2:\n    sys.exit(1)\non = fine"
    with scorer(tmp_path, command=fake(tmp_path, body), crash_disable_threshold=2) as made:
        made.warm()
        until(lambda: made.facts.is_disabled)
        made.enable()
        assert made.score(request()).shape == (3,)


def test_after_a_crash_it_pauses_and_says_so_at_once(tmp_path: Path) -> None:
    body = "if life == 1:\n    sys.exit(1)\non = fine"
    with scorer(tmp_path, command=fake(tmp_path, body), first_pause_ms=60_000.0) as made:
        made.warm()
        until(lambda: made.facts.crash_count == 1)
        with pytest.raises(PortError, match="restarts after a crash"):
            made.score(request())
        made.enable()
        assert made.score(request()).shape == (3,)


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with scorer(tmp_path, command=(str(tmp_path / "absent"),)) as made:
        with pytest.raises(PortError, match="no process for the predictor"):
            made.score(request())
        until(lambda: made.facts.is_disabled)
        assert made.facts.pid is None


@pytest.mark.parametrize("count", [3, 400], ids=["small", "larger than a pipe"])
def test_a_stopped_process_delays_nobody_and_goes_on_where_it_was(
    tmp_path: Path, count: int
) -> None:
    command = fake(tmp_path, "on = fine")
    with scorer(tmp_path, command=command, score_timeout_ms=SHORT_MS) as made:
        pid = ready(made).facts.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(PortTimeout):
                made.score(request(count))
        # Far from a measurement: it says only that somebody stopped waiting.
        assert time.monotonic() - began < 10
        os.kill(pid, signal.SIGCONT)
        until(lambda: _scores(made, count))
        assert (made.facts.crash_count, made.facts.pid) == (0, pid)


def _scores(made: SidecarScorer, count: int) -> bool:
    try:
        return made.score(request(count)).tolist() == list(map(float, range(count)))
    except PortTimeout:
        return False


@pytest.mark.parametrize(
    ("body", "unanswered"),
    [
        ("if life == 1:\n    time.sleep(60)\non = fine", 0),
        ("def on(call):\n    time.sleep(60) if life == 1 else fine(call)", 1),
        (
            "def on(call):\n    fine(call)\n    if life == 1:\n        os.close(0); time.sleep(60)",
            2,
        ),
    ],
    ids=["at the start", "when asked", "with stdin closed"],
)
def test_a_process_that_hangs_is_ended_and_replaced(
    tmp_path: Path, body: str, unanswered: int
) -> None:
    world = Jumping()
    with scorer(tmp_path, world, command=fake(tmp_path, body), score_timeout_ms=SHORT_MS) as made:
        made.warm()
        until(lambda: made.facts.is_alive)
        pid = made.facts.pid
        until(lambda: not _scores(made, 3) and _pending(made) == unanswered)
        world.ahead_ms += 11_000.0
        with pytest.raises(PortError, match="did not respond and was killed"):
            made.score(request())
        until(lambda: made.facts.pid not in (None, pid))
        until(lambda: _scores(made, 3))
        assert made.facts.crash_count == 1


def _pending(made: SidecarScorer) -> int | None:
    return None if made._life is None else made._life.pending


@pytest.mark.parametrize("is_stopped", [False, True], ids=["ignores SIGTERM", "stopped"])
def test_nothing_is_left_of_a_process_that_does_not_want_to_end(
    tmp_path: Path, is_stopped: bool
) -> None:
    body = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{HUNG}"
    command = fake(tmp_path, body)
    with scorer(tmp_path, command=command, score_timeout_ms=SHORT_MS) as made:
        pid = ready(made).facts.pid
        assert pid is not None
        with pytest.raises(PortTimeout):
            made.score(request())
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)
    # The end of the block looks after it.
    with pytest.raises(PortError, match="closed"):
        made.score(request())


def test_closing_wakes_whoever_waits(tmp_path: Path) -> None:
    with (
        scorer(tmp_path, command=fake(tmp_path, HUNG)) as made,
        ThreadPoolExecutor(1) as pool,
    ):
        ready(made)
        waiting = pool.submit(made.score, request())
        until(lambda: _pending(made) == 1)
        made.close()
        with pytest.raises(PortError, match=r"closed|ended"):
            waiting.result(10.0)


def test_no_candidates_are_no_scores(tmp_path: Path) -> None:
    with scorer(tmp_path, command=fake(tmp_path, "on = fine")) as made:
        assert made.score(request(0)).dtype == np.float64
