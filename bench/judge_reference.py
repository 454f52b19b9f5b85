"""Freeze the figures of version 0.1's judge: python -m bench.judge_reference CHECKOUT.

CHECKOUT is a clone of this repository at commit 45801d2. Its judge receives the same cases as the
present one: the same candidates, and the transcripts as version 0.1 stores them. The figures go to
bench/results/judge-0.1.json, from where bench.judge reads them. Run it again when the cases change.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.judge_cases import SETS, Case, load_sets
from bench.judge_figures import RECALLS, Floats, Judged, SetFigures, set_figures
from bench.judge_print import show

COMMIT = "45801d2"
FILE = Path("judge-0.1.json")
# Version 0.1 learned from sessions of this confidence.
MIN_CONFIDENCE = 0.6
METHOD = (
    f"python -m bench.judge_reference CHECKOUT, with CHECKOUT a clone at commit {COMMIT}: its"
    " RulesJudge judges the reported part of each set, with the candidates of the present replay,"
    " transcripts as its flow.ending stores them (12,000 characters) and cosines as its"
    " flow.judging computes them. A session of less than 500 characters gets no label. A session"
    f" teaches something at a confidence of {MIN_CONFIDENCE}, the limit of version 0.1."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the reported part of every set with version 0.1 and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.judge_reference", description=__doc__)
    parser.add_argument("checkout", type=Path, help=f"a clone at commit {COMMIT}")
    options = parser.parse_args(arguments)
    check_commit(options.checkout)
    sets: dict[str, object] = {}
    for one in load_sets(SETS):
        judged = list(judged_before(one.reported, options.checkout))
        # Precision is compared at this recall: the one of version 0.1 when it says "helped".
        own_recall = round(set_figures(judged).chances.recall, 4)
        found = set_figures(judged, (*RECALLS, own_recall), MIN_CONFIDENCE)
        sets[one.name] = found.plain() | {"own_recall": own_recall}
        show(one.name, found)
    report.write({"judge": COMMIT, "method": METHOD, "sets": sets}, FILE)
    return 0


def read_reference(path: Path | None = None) -> dict[str, tuple[SetFigures, float]]:
    """Return by set the figures of version 0.1, and its recall when it says "helped"."""
    body = json.loads((path or report.RESULTS / FILE).read_text(encoding="utf-8"))
    return {
        name: (SetFigures.from_plain(known), known["own_recall"])
        for name, known in body["figures"]["sets"].items()
    }


def check_commit(checkout: Path) -> None:
    """Raise ValueError when a folder is not a clone at the commit of version 0.1."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not head.startswith(COMMIT):
        raise ValueError(f"{checkout} is at {head[:7] or 'no commit'}: check out {COMMIT}")


def judged_before(cases: Iterable[Case], checkout: Path) -> Iterable[Judged]:
    """Yield what version 0.1 says about each case, from one process for all of them."""
    script = Path(__file__).with_name("judge_version01.py")
    with subprocess.Popen(
        # Without the script's own folder, whose modules have the names of others.
        [sys.executable, "-P", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(checkout / "src"), "OPENBLAS_NUM_THREADS": "1"},
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process of version 0.1 has no pipes")
        for case in cases:
            process.stdin.write(json.dumps(_asked(case)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"version 0.1 failed on {case.key}")
            yield _answered(case, json.loads(line))
        process.stdin.close()


def _asked(case: Case) -> dict[str, object]:
    exhibits = [(one.text, one.was_shown, one.provenance) for one in case.exhibits]
    return {"messages": case.messages(), "exhibits": exhibits, "is_masked": case.is_masked}


def _answered(case: Case, answer: Mapping[str, Any]) -> Judged:
    scores = [np.nan if score is None else score for score in answer["relevance"]]
    chances: Floats = np.array(scores, np.float64)
    is_judged = answer["is_judged"]
    labels = chances if is_judged else np.full(len(chances), np.nan)
    return Judged(
        case.stream, case.helped, chances, labels, answer["confidence"] if is_judged else 0.0
    )


if __name__ == "__main__":
    sys.exit(main())
