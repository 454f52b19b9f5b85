"""CPU time of writing beside another version: `python -m bench.write_cost [--against TREE]`.

A process of each version does the same work in turn, one text and a thousand imported lines at a
time, so that a busy machine slows both alike. First both import 4,000 real sentences and remember
others: half of them far from all stored ones, half with a near neighbour. Then both import lines
into an empty store; the figures of its first and last tenth show what its size costs. Only the
ratios are worth quoting. `--control` lets the gate of this version compare every text with its
nearest neighbours, which misses the bars.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.texts import memories, sentences

OWN = Path(__file__).parents[1]
STORED, TEXTS, LINES, PIECE = 4_000, 200, 10_000, 1_000
# So many sentences are looked at for one with a near neighbour.
POOL_SHARE = 40
# From this cosine a neighbour is reported as similar; from the lower one it is compared.
NEAR, COMPARED = 0.75, 0.45
FAR, BETWEEN, CLOSE = "no neighbour", f"neighbours from {COMPARED}", f"neighbours from {NEAR}"
# Not worse, but for the noise of a shared machine.
BARS = {f"remember, no neighbour from {NEAR}": 1.05, f"remember, {CLOSE}": 2.0, "import": 1.3}
CONTROL = {"MERITORY_GATE_THRESHOLD": "0"}


@dataclass(frozen=True, slots=True)
class Version:
    """A process of one version, which does what it is asked and says what it took."""

    tree: Path
    process: subprocess.Popen[str]

    def ask(self, **asked: object) -> Any:
        """Return the answer of the process."""
        sent, received = self.process.stdin, self.process.stdout
        if sent is None or received is None:
            raise RuntimeError("the process has no pipes")
        sent.write(json.dumps(asked) + "\n")
        sent.flush()
        if not (line := received.readline()):
            raise RuntimeError(f"the process of {self.tree} ended")
        return json.loads(line)


@dataclass
class Costs:
    """Milliseconds of CPU of one version: of each text by class, of a line by piece."""

    remember: dict[str, list[float]] = field(default_factory=dict)
    lines: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return the medians by class, and the mean of a line over all, first and last pieces."""
        taken = self.remember
        far = [*taken.get(FAR, ()), *taken.get(BETWEEN, ())]
        groups = {f"remember, no neighbour from {NEAR}": far} | {
            f"remember, {name}": taken.get(name, []) for name in (FAR, BETWEEN, CLOSE)
        }
        groups["remember, all"] = [*far, *taken.get(CLOSE, ())]
        found = {name: statistics.median(costs) for name, costs in groups.items() if costs}
        tenth = max(1, len(self.lines) // 10)
        if self.lines:
            found["import"] = statistics.mean(self.lines)
            found["import, first tenth"] = statistics.mean(self.lines[:tenth])
            found["import, last tenth"] = statistics.mean(self.lines[-tenth:])
        return found


@contextmanager
def version(tree: Path, home: Path, extra: dict[str, str]) -> Iterator[Version]:
    """Start a process of a version with an empty store, and end it."""
    environ = {name: value for name, value in os.environ.items() if name[:9] != "MERITORY_"}
    environ |= {"PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1", **extra}
    command = [sys.executable, "-m", "bench.write_cost", "--inside", str(home)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=OWN, env=environ, text=True, **pipes) as process:
        found = Version(tree, process)
        if Path(found.ask(do="where")).parents[2] != tree:
            raise RuntimeError(f"the process does not run the version of {tree}")
        yield found
        found.ask(do="end")


def inside(home: Path) -> int:
    """Do what each line of the input asks for, and print the CPU milliseconds that it took."""
    import meritory
    from meritory.api.memory import Memory
    from meritory.engine.transfer.import_ import ImportOptions, import_found, recognise
    from meritory.settings import load_settings

    with Memory(settings=load_settings(home, os.environ), background=False) as memory:
        for line in sys.stdin:
            asked = json.loads(line)
            if asked["do"] == "where":
                print(json.dumps(meritory.__file__), flush=True)
                continue
            if asked["do"] == "end":
                print("null", flush=True)
                break
            begun = time.process_time()
            if asked["do"] == "remember":
                memory.remember(asked["text"])
            else:
                found = recognise(Path(asked["path"]))
                services, scope = memory.services, memory.scope
                import_found(services, scope, found, ImportOptions(), lambda done, total: None)
            print(json.dumps((time.process_time() - begun) * 1e3), flush=True)
    return 0


def texts_by_class(count: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return sentences to store, and as many others with and without a near neighbour."""
    from meritory.domain.policy import EmbedderSpec
    from meritory.ports.embedder import open_embedder

    pool = list(sentences()[0])
    np.random.default_rng(5).shuffle(pool)
    stored, others = pool[:STORED], pool[STORED : STORED + POOL_SHARE * count]
    embedder = open_embedder(EmbedderSpec())
    vectors = embedder.embed_documents(others)
    best = (vectors @ embedder.embed_documents(stored).T).max(axis=1)
    chosen: list[tuple[str, str]] = []
    wanted = {CLOSE: count, FAR: count}
    for number, text in enumerate(others):
        name = CLOSE if best[number] >= NEAR else BETWEEN if best[number] >= COMPARED else FAR
        group = CLOSE if name == CLOSE else FAR
        if wanted[group]:
            wanted[group] -= 1
            chosen.append((name, text))
            # Later ones have it as a neighbour, too.
            best[number:] = np.maximum(best[number:], vectors[number:] @ vectors[number])
    return stored, chosen


def measured(versions: Sequence[tuple[str, Version, Version]], plan: Plan) -> dict[str, Costs]:
    """Return the costs by name: of remembering in the first process, of importing in the second."""
    costs = {name: Costs() for name, _, _ in versions}
    stored, chosen = texts_by_class(plan.texts)
    lines = memories(plan.lines) if plan.lines else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lines.jsonl"

        def put(some: Sequence[str]) -> str:
            file.write_text("".join(json.dumps({"content": one}) + "\n" for one in some))
            return str(file)

        for _, remembering, _ in versions:
            remembering.ask(do="import", path=put(stored))
        for number, (group, text) in enumerate(chosen):
            # Each version is first as often as the other.
            for name, remembering, _ in versions[:: 1 if number % 2 else -1]:
                taken_ms = remembering.ask(do="remember", text=text)
                costs[name].remember.setdefault(group, []).append(taken_ms)
        for start in range(0, len(lines), PIECE):
            path = put(lines[start : start + PIECE])
            for name, _, importing in versions:
                costs[name].lines.append(importing.ask(do="import", path=path) / PIECE)
    return costs


@dataclass(frozen=True, slots=True)
class Plan:
    """How many texts of each class are remembered, and how many lines imported."""

    texts: int
    lines: int


def shown(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """Print the figures of each version and return the ratios of the first to the second."""
    own, other = figures["here"], figures.get("there", {})
    ratios = {name: value / other[name] for name, value in own.items() if name in other}
    for name, value in own.items():
        line = f"{name:34}{value:8.3f} ms CPU"
        if name in ratios:
            bar = BARS.get(name)
            verdict = "" if bar is None else f"{'' if ratios[name] <= bar else 'MISSED '}<= {bar}"
            line += f"{other[name]:8.3f} there  ratio {ratios[name]:.2f}  {verdict}"
        print(line.rstrip())
    return ratios


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 1 when a ratio to the other version misses its bar."""
    parser = argparse.ArgumentParser(prog="python -m bench.write_cost", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    parser.add_argument("--texts", type=int, default=TEXTS, help="texts of each class")
    parser.add_argument("--lines", type=int, default=LINES, help="lines to import; 0 for none")
    parser.add_argument("--control", action="store_true", help="compare every text")
    parser.add_argument("--json", type=Path, default=Path("write_cost.json"))
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        return inside(options.inside)
    trees = {"here": OWN} | ({"there": options.against.resolve()} if options.against else {})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def start(name: str, work: str) -> Version:
            extra = CONTROL if options.control and name == "here" else {}
            return stack.enter_context(version(trees[name], Path(folder, name, work), extra))

        versions = [(name, start(name, "texts"), start(name, "lines")) for name in trees]
        costs = measured(versions, Plan(options.texts, options.lines // PIECE * PIECE))
    figures = {name: one.figures() for name, one in costs.items()}
    ratios = shown(figures)
    report.write({"cpu_ms": figures, "ratios": ratios, "bars": BARS}, options.json)
    return int(any(ratios[name] > bar for name, bar in BARS.items() if name in ratios))


if __name__ == "__main__":
    sys.exit(main())
