"""What the commands of `meritory eval` share: the throw-away copy, options, comparisons."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import current_settings, named_place
from meritory.cli.output import Block, Field, Fields, RecordView, Report
from meritory.domain.errors import InputError, SettingsError
from meritory.domain.world import moment_text
from meritory.settings.value import Setting, check, parse

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.lab.measure import Sandbox
    from meritory.lab.probes import Anchor, Probe
    from meritory.settings import Settings

ACTOR = "eval"
PROBES_LIMIT_BYTES = 32 * 1024 * 1024
MARGIN, MARGIN_MAX = 0.02, 0.5
GATE = "gate."
# Settings that a run can vary; for those of the gate it rebuilds the store.
VARIED = (GATE + "threshold", GATE + "enabled", "session.start_tokens", "session.prompt_tokens")
# Constants of the policy that a run can vary; every result records the shares.
_SHARES = (
    *("recall.relevance_floor", "recall.vector_weight", "ranking.user_stated"),
    *("ranking.episode_summary", "ranking.assistant_derived", "ranking.confidence_slope"),
)
_COUNTS = (
    *("session.start_limit", "session.prompt_limit"),
    *("predictor.rrf_k", "predictor.candidate_pool_size"),
)
CONSTANTS = {
    **{n: Setting(name=n, form="number", default=None, help="", high=1.0) for n in _SHARES},
    **{n: Setting(name=n, form="whole number", default=None, help="", high=1e3) for n in _COUNTS},
    "predictor.composite": Setting(
        name="predictor.composite", form="choice", default=None, help="", choices=("living", "seed")
    ),
}

margin_option = click.option(
    "--margin",
    type=click.FloatRange(0.0, MARGIN_MAX),
    default=MARGIN,
    show_default=True,
    help="The loss of a mean that is accepted.",
)

METRIC_LABELS = {"p@1": "p@1", "p@3": "p@3", "p@5": "p@5", "mrr": "MRR", "in_prompt": "in prompt"}


# -- files and settings ---------------------------------------------------------------------


def read_lines(file: str) -> list[str]:
    """Return the lines of a text file that the user named."""
    path = Path(os.path.expanduser(file))
    if path.is_dir():
        raise InputError(f"{file} is a folder", hint="name a file in it")
    if not path.is_file():
        raise InputError(
            f"there is no file {file}", hint="`meritory eval generate FILE` makes one to start with"
        )
    if path.stat().st_size > PROBES_LIMIT_BYTES:
        raise InputError(f"{file} has more than {PROBES_LIMIT_BYTES:,} bytes", hint="split it")
    try:
        return path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8", hint="save it as UTF-8") from error


def probes_of(file: str) -> tuple[Probe, ...]:
    """Return the probes of a file."""
    from meritory.lab.probes import read_probes

    return read_probes(read_lines(file), file)


def changed_settings(values: Mapping[str, str]) -> Settings:
    """Return the settings with other values of settings or constants that a run can vary."""
    constants = {
        name: check(CONSTANTS[name], parse(CONSTANTS[name], text), name)
        for name, text in values.items()
        if name in CONSTANTS
    }
    chosen = {name: text for name, text in values.items() if name not in constants}
    settings = current_settings(chosen)
    for name in chosen:
        if name not in VARIED:
            raise SettingsError(
                f"{name} does not affect the measurement",
                hint=f"a run can vary {', '.join((*VARIED, *CONSTANTS))}",
            )
    return settings.vary(constants)


def parsed_values(given: Sequence[str]) -> dict[str, str]:
    """Parse values of settings, given as NAME=VALUE."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise InputError(
                f"{text[:80]!r} is not NAME=VALUE", hint="write e.g. gate.threshold=0.9"
            )
        if name in values:
            raise InputError(f"{name} is given twice", hint="give it once")
        values[name] = value
    return values


# -- the copy -------------------------------------------------------------------------------


@contextlib.contextmanager
def opened_copy() -> Iterator[tuple[Memory, Path]]:
    """Open a throw-away copy of the user's store; the store itself is only read."""
    from meritory.api.memory import Memory
    from meritory.lab.measure import copied

    settings = current_settings()
    with (
        copied(named_place(settings), settings.user) as copy,
        Memory(copy, settings=settings, actor=ACTOR, background=False) as memory,
    ):
        yield memory, copy


@contextlib.contextmanager
def laboratory(
    probes: tuple[Probe, ...], *, with_session: bool, points: Sequence[Mapping[str, str]] = ()
) -> Iterator[Laboratory]:
    """Open a laboratory for these probes; `points` are the settings that its runs change."""
    from meritory.lab.measure import Sandbox, anchored

    for point in points:
        changed_settings(point)
    # The gate decides when a memory is written, so its settings need a new store for each run.
    rebuilds = any(name.startswith(GATE) for point in points for name in point)
    with opened_copy() as (memory, copy):
        sandbox = Sandbox(memory.services)
        anchors = anchored(sandbox, probes)
        yield Laboratory(sandbox, copy, probes, anchors, with_session, rebuilds)


@dataclass(slots=True)
class Laboratory:
    """An open copy of the user's store, of which probes are asked."""

    sandbox: Sandbox
    copy: Path
    probes: Sequence[Probe]
    anchors: Sequence[Anchor]
    with_session: bool
    rebuilds: bool
    run_count: int = 0

    def run_all(self, points: Sequence[Mapping[str, str]], report: Report) -> list[dict[str, Any]]:
        """Ask all probes under each configuration, reported as one run."""

        def part(index: int) -> Report:
            return lambda done, total: report(index * total + done, len(points) * total)

        return [self.run(point, part(index)) for index, point in enumerate(points)]

    def run(self, values: Mapping[str, str], report: Report) -> dict[str, Any]:
        """Ask all probes under the settings with these values changed."""
        from meritory.api.memory import Memory
        from meritory.lab import measure
        from meritory.lab.results import result
        from meritory.rank.metrics import ProbeHit

        settings = changed_settings(values)
        services = self.sandbox.services
        serving = services.store.serving_embedder()
        plan = measure.MeasurePlan(settings.policy, self.with_session)
        if not self.rebuilds:
            outcomes = measure.measure(self.sandbox, self.probes, self.anchors, plan, report)
        else:
            before = [
                measure.ProbeOutcome(probe, anchor, ProbeHit(None) if anchor.memory_ids else None)
                for probe, anchor in zip(self.probes, self.anchors, strict=True)
            ]
            self.run_count += 1
            file = self.copy.with_name(f"rebuilt-{self.run_count}.db")
            with Memory(file, settings=settings, actor=ACTOR, background=False) as rebuilt:
                measure.rebuild(services, rebuilt.services)
                sandbox = measure.Sandbox(rebuilt.services)
                outcomes = measure.measure_rebuilt(sandbox, before, plan, report)
        return result(
            outcomes,
            at=moment_text(services.world.now()),
            settings={
                "gate.threshold": settings.shown()["gate.threshold"],
                **{name: str(settings.field(name)) for name in _SHARES},
            },
            values=dict(values),
            memories=services.store.totals(services.user).get("live", 0),
            embedder=None if serving is None else serving.name,
            with_session=self.with_session,
        )


# -- comparisons ----------------------------------------------------------------------------


def interval(metric: Mapping[str, Any], form: str = ".3f") -> str:
    """Return the confidence interval of a metric."""
    return f"{metric['low']:{form}} .. {metric['high']:{form}}"


def _compared(label: str, show: Callable[[Mapping[str, Any]], str]) -> Field:
    """Return a column of a metric that is empty where nothing was compared."""
    return Field("", label, "1", lambda metric: show(metric) if metric["pairs"] else "-")


_METRICS = RecordView(
    Field("", "", lambda pair: METRIC_LABELS.get(pair[0], pair[0]), style="cyan"),
    _compared("before", lambda metric: f"{metric['before']:.3f}"),
    _compared("after", lambda metric: f"{metric['after']:.3f}"),
    _compared("difference", lambda metric: f"{metric['mean']:+.3f}"),
    _compared("95 %", lambda metric: interval(metric, "+.3f")),
    _compared("won/lost", lambda metric: f"{metric['won']}/{metric['lost']}"),
    Field("", "verdict", "1.verdict"),
)


def compare_blocks(comparison: Mapping[str, Any]) -> list[Block]:
    """Return a comparison: its verdict and every metric."""
    left_out = comparison.get("left_out", 0)
    apart = f" ({left_out} drifted in one of the runs)" if left_out else ""
    pairs = [
        ("verdict", f"{comparison['verdict']}: {comparison['statement']}"),
        ("pairs", f"{comparison['pairs']}{apart}"),
        ("margin", f"{comparison['margin']:g}"),
    ]
    return [Fields(pairs), *_METRICS.blocks(list(comparison["metrics"].items()), "")]
