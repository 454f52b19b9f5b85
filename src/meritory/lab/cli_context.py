"""What the commands of `meritory eval` share: probe files, the throw-away copy, one run of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_settings, named_place
from meritory.cli.render import Report
from meritory.domain.errors import InputError, SettingsError
from meritory.settings.value import Setting, check, parse

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.cli.render import Report
    from meritory.lab.measure import ProbeOutcome
    from meritory.lab.probes import Probe
    from meritory.settings import Settings


ACTOR = "eval"
PROBES_LIMIT_BYTES = 32 * 1024 * 1024
GATE = "gate."
# Settings that a run can vary; for those of the gate it rebuilds the store.
VARIED = (GATE + "threshold", GATE + "enabled", "session.start_tokens", "session.prompt_tokens")
# Constants of the policy that a run can vary.
CONSTANTS = {
    constant.name: constant
    for constant in (
        *(
            Setting(name=name, form="number", default=None, help="", high=1.0)
            for name in (
                "recall.relevance_floor",
                "recall.vector_weight",
                "ranking.user_stated",
                "ranking.episode_summary",
                "ranking.assistant_derived",
                "ranking.confidence_slope",
            )
        ),
        *(
            Setting(name=name, form="whole number", default=None, help="", high=1_000)
            for name in (
                "session.start_limit",
                "session.prompt_limit",
                "predictor.rrf_k",
                "predictor.candidate_pool_size",
            )
        ),
        Setting(
            name="predictor.composite",
            form="choice",
            default=None,
            help="",
            choices=("living", "seed"),
        ),
    )
}
# Constants that every result records.
_RECORDED = tuple(name for name in CONSTANTS if name.startswith(("recall.", "ranking.")))


def probes_of(file: str) -> tuple[Probe, ...]:
    """The probes of a file."""
    from meritory.lab.probes import read_probes

    return read_probes(read_lines(file), file)


def read_lines(file: str) -> list[str]:
    """The lines of a text file that a person named."""
    path = Path(os.path.expanduser(file))
    if path.is_dir():
        raise InputError(f"{file} is a folder", hint="name a file in it")
    if not path.is_file():
        raise InputError(
            f"there is no file {file}", hint="`meritory eval generate FILE` makes one to begin with"
        )
    if path.stat().st_size > PROBES_LIMIT_BYTES:
        raise InputError(f"{file} is too large for a file of probes", hint="split it")
    try:
        return path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8", hint="save it so") from error


def changed(values: Mapping[str, str]) -> Settings:
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
                f"{name} makes no difference to what is measured",
                hint=f"a run can vary {', '.join((*VARIED, *CONSTANTS))}",
            )
    return settings.vary(constants)


def parsed_values(given: Sequence[str]) -> dict[str, str]:
    """Values of settings, from texts like name=value."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InputError(
                f"{text[:80]!r} names no value", hint="write name=value, e.g. gate.threshold=0.9"
            )
        if name.strip() in found:
            raise InputError(f"{name.strip()} is given twice", hint="give it once")
        found[name.strip()] = value.strip()
    return found


@dataclass(frozen=True, slots=True)
class EvalTrial:
    """Probes, and how they are asked."""

    probes: tuple[Probe, ...]
    with_session: bool = False
    # Whether the store is written anew for every run, so that the gate's choices count.
    rebuilds: bool = False


class Laboratory:
    """An open copy of the user's store, on which runs are made."""

    def __init__(self, memory: Memory, copy: Path, trial: EvalTrial) -> None:
        from meritory.lab.measure import Sandbox, anchored

        self._memory = memory
        self._copy = copy
        self._trial = trial
        self._sandbox = Sandbox(memory.services)
        self._anchors = anchored(self._sandbox, trial.probes)
        self._count = 0

    def run(self, values: Mapping[str, str], report: Report) -> dict[str, Any]:
        """One run under the settings with these values changed."""
        from meritory.domain.codec import moment_text
        from meritory.lab.results import result

        settings = changed(values)
        services = self._memory.services
        serving = services.store.serving_embedder()
        return result(
            self._outcomes(settings, report),
            at=moment_text(services.world.now()),
            settings={
                "gate.threshold": settings.shown()["gate.threshold"],
                **{name: str(settings.field(name)) for name in _RECORDED},
            },
            values=dict(values),
            memories=services.store.totals(services.user).get("live", 0),
            embedder=None if serving is None else serving.name,
            with_session=self._trial.with_session,
        )

    def _outcomes(self, settings: Settings, report: Report) -> list[ProbeOutcome]:
        from meritory.lab.measure import (
            MeasurePlan,
            ProbeOutcome,
            Sandbox,
            measure,
            measure_rebuilt,
        )
        from meritory.rank.probes import ProbeHit

        trial = self._trial
        plan = MeasurePlan(settings.policy, trial.with_session)
        if not trial.rebuilds:
            return measure(self._sandbox, trial.probes, self._anchors, plan, report)
        known = [
            ProbeOutcome(probe, anchor, ProbeHit(None) if anchor.memory_ids else None)
            for probe, anchor in zip(trial.probes, self._anchors, strict=True)
        ]
        with self._rebuilt(settings) as made:
            return measure_rebuilt(Sandbox(made.services), known, plan, report)

    @contextlib.contextmanager
    def _rebuilt(self, settings: Settings) -> Iterator[Memory]:
        from meritory.api.memory import Memory
        from meritory.lab.measure import rebuild

        self._count += 1
        file = self._copy.with_name(f"anew-{self._count}.db")
        with Memory(file, settings=settings, actor=ACTOR, background=False) as made:
            rebuild(self._memory.services, made.services)
            yield made


@contextlib.contextmanager
def opened_copy() -> Iterator[tuple[Memory, Path]]:
    """A throw-away copy of the user's store, open; the store itself is only read."""
    from meritory.api.memory import Memory
    from meritory.lab.measure import copied

    settings = current_settings()
    with (
        copied(named_place(settings), settings.user) as copy,
        Memory(copy, settings=settings, actor=ACTOR, background=False) as memory,
    ):
        yield memory, copy


@contextlib.contextmanager
def laboratory(trial: EvalTrial) -> Iterator[Laboratory]:
    """Where runs are made, for the length of the block."""
    with opened_copy() as (memory, copy):
        yield Laboratory(memory, copy, trial)


def rebuilding(trial: EvalTrial, points: Sequence[Mapping[str, str]]) -> EvalTrial:
    """The trial as these points need it: what the gate decides shows in a new store only."""
    has_gate = any(name.startswith(GATE) for point in points for name in point)
    return replace(trial, rebuilds=has_gate)


MARGIN, MARGIN_MAX = 0.02, 0.5
MARGIN_OPTION = click.option(
    "--margin",
    type=click.FloatRange(0.0, MARGIN_MAX),
    default=MARGIN,
    show_default=True,
    help="How much of a mean may be lost.",
)
