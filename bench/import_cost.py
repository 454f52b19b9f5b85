"""CPU time of `from meritory import Memory`: `python -m bench.import_cost [--against SRC]`.

Every round starts one interpreter for each case, in turn, so that a busy machine slows all of them
alike. The figures are CPU seconds of the child, and only their ratios are worth quoting: to
importing numpy, which Meritory needs anyway, and with `--against` to the source folder of another
version.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report

ROUNDS = 15
BAR = 0.5
OWN = Path(__file__).parents[1] / "src"
IMPORT = "from meritory import Memory"
FIRST_USE = """
import tempfile
from pathlib import Path
from meritory import Memory
with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "meritory.db") as memory:
    memory.remember("The staging database is called heron")
    memory.recall("staging database")
"""
CASES = {
    "interpreter alone": "pass",
    "import numpy": "import numpy",
    "import meritory": "import meritory",
    IMPORT: IMPORT,
    "... and remember and recall": FIRST_USE,
}
COMPARED = (IMPORT, "... and remember and recall")


def cpu_s(code: str, source: Path, home: str) -> float:
    """Return the CPU seconds of an interpreter that runs a piece of code."""
    environ = {**os.environ, "PYTHONPATH": str(source), "MERITORY_HOME": home}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(sources: Sequence[Path], rounds: int) -> dict[Path, dict[str, float]]:
    """Return the median CPU seconds of every case by source folder, without the interpreter's."""
    times: dict[tuple[Path, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as home:
        # The first run of a case may write bytecode, so it does not count.
        for number in range(rounds + 1):
            for name, code in CASES.items():
                for source in sources:
                    taken_s = cpu_s(code, source, home)
                    if number:
                        times.setdefault((source, name), []).append(taken_s)
    medians = {case: statistics.median(taken) for case, taken in times.items()}
    return {
        source: {
            name: max(0.0, medians[source, name] - medians[source, "interpreter alone"])
            for name in CASES
        }
        for source in sources
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 1 when the import costs over half of the other version's."""
    parser = argparse.ArgumentParser(prog="python -m bench.import_cost", description=__doc__)
    parser.add_argument("--against", type=Path, help="source folder of another version")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    sources = [OWN, *([options.against] if options.against else [])]
    found = measured(sources, options.rounds)
    own, numpy_s = found[OWN], found[OWN]["import numpy"]
    for name in CASES:
        print(f"{name:30} {own[name] * 1000:8.1f} ms CPU  {own[name] / numpy_s:6.2f} x numpy")
    ratios = {}
    if options.against:
        other = found[options.against]
        ratios = {name: own[name] / other[name] for name in COMPARED}
        for name, ratio in ratios.items():
            print(f"{name:30} {ratio:8.3f} of the other version's {other[name] * 1000:.1f} ms CPU")
    if options.json:
        report.write({"rounds": options.rounds, "cpu_s": own, "ratios": ratios}, options.json)
    return int(bool(ratios) and ratios[IMPORT] > BAR)


if __name__ == "__main__":
    sys.exit(main())
