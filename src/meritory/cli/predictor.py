"""Commands about what was learned: predictor status, train, rollback, enable, disable and more."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from meritory.cli.calibrate import calibrate
from meritory.cli.context import current_flags, current_home, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.predictor_records import audit, comparisons, drift, training
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.predictor import TrainingRun

_WEIGHINGS = (
    Column("alpha", "cyan"),
    Column("sessions"),
    Column("gain in NDCG"),
    Column("its errors"),
    Column("in log rank"),
    Column("trust"),
)
_PROJECTS = (Column("project", "magenta"), Column("sessions"), Column("success"))
_ENTITIES = (Column("what helped is about", "magenta"), Column("sessions"), Column("success"))
_GATES = (Column("gate", "cyan"), Column("passed"), Column("what it saw", wraps=True))


@click.group(
    "predictor",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory predictor status\n",
)
@click.pass_context
def predictor(ctx: click.Context) -> None:
    """Show and steer the model that learns what helps.

    It ranks beside the baseline and is heard only as far as it has won. Without a command the
    status is shown.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_status(), current_flags(), taken_notes())


predictor.params += global_options(hidden=True)


# -- status ---------------------------------------------------------------------------------


@command("status", "meritory predictor status")
def status() -> Answer:
    """Show how far the predictor has come, what it has earned, and why."""
    return _status()


def _status() -> Answer:
    with opened(quiet=True) as memory:
        known = {**memory.predictor_status(), **_live(memory.scope.user)}
    for warning in known["warnings"]:
        note(warning)
    return Answer(known, _blocks(known))


def _live(user: str) -> dict[str, Any]:
    """What only the process that serves can know; nothing when none runs."""
    if current_flags().store:
        return {}
    from meritory.api import client

    daemon = client.find(current_home())
    if daemon is None:
        return {}
    told = daemon.request("GET", f"/api/predictor/status?user={quote(user, safe='')}")
    return {name: told[name] for name in ("phase", "reason", "latency", "sidecar", "warnings")}


def _blocks(known: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = [Fields(_pairs(known))]
    weighings = [
        (
            f"{one['alpha']:g}",
            str(one["session_count"]),
            f"{one['ndcg_margin']:+.4f}",
            f"{one['ndcg_errors']:+.1f}",
            f"{one['log_rank_margin']:+.3f}",
            f"{one['trust']:.2f}",
        )
        for one in known["weighings"]
        if one["session_count"]
    ]
    if weighings:
        blocks += [Lines(["", "What past sessions say about each weight of the baseline:"])]
        blocks += [Table(_WEIGHINGS, weighings)]
    projects = [
        (one["project"] or "-", str(one["session_count"]), f"{one['success_rate']:.2f}")
        for one in known["project_success_rates"]
    ]
    if projects:
        blocks += [Lines([""]), Table(_PROJECTS, projects)]
    entities = [
        (f"{one['kind']} {one['name']}", str(one["session_count"]), f"{one['success_rate']:.2f}")
        for one in known["entity_success_rates"]
    ]
    return [*blocks, Lines([""]), Table(_ENTITIES, entities)] if entities else blocks


def _history(known: dict[str, Any]) -> str:
    """How far history counts in the baseline, in one line."""
    counts = f"recency {known['recency']:.0%}, usefulness {known['usefulness']:.0%}"
    sessions = f"{known['sessions']} sessions"
    if known["labels_valid"]:
        return f"{counts}: NDCG@10 {known['margin']:+.3f} over relevance in {sessions}"
    found, needed = known["validity_errors"], known["validity_needed"]
    return (
        f"{counts}: the labels of {sessions} agree with relevance by {found:.1f} standard errors,"
        f" {needed} are needed"
    )


def _pairs(known: dict[str, Any]) -> list[tuple[str, str]]:
    latency, calibrated = known["latency"], known["calibration"]
    reason = f" ({known['reason']})" if known["reason"] else ""
    waiting = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in known["waiting_for"].items())
    shelf = ", ".join(f"v{one}" for one in known["versions"])
    parameters = known["parameter_count"]
    size = f", {parameters:,} parameters" if parameters else ""
    trained = known["last_trained_at"]
    loss = _number(known["last_train_loss"])
    proof = "proof that it ranks better" if known["is_cold"] else "nothing"
    return [
        ("phase", f"{known['phase']}{reason}"),
        ("influence", f"{1 - known['alpha']:.0%} (alpha {known['alpha']:g})"),
        ("success rate", f"{known['success_rate']:.2f}"),
        ("history", _history(known["history"])),
        ("waits for", waiting or proof),
        ("model", f"v{known['model_version']} ({known['model_scorer']}{size}); kept: {shelf}"),
        (
            "sessions",
            f"{known['training_sessions']} judged, {known['excluded_sessions']} left out,"
            f" {known['canaries']} kept to examine models",
        ),
        ("trained", f"{trained[:16].replace('T', ' ')} UTC, loss {loss}" if trained else "never"),
        ("refused models", str(known["failures"])),
        ("lost models", str(known["fallbacks"])),
        (
            "drift",
            f"{known['drift_resets']} resets, judge {_number(known['scorer_drift_signal'])}",
        ),
        (
            "scoring",
            f"p50 {_number(latency['p50_ms'])} ms, p95 {_number(latency['p95_ms'])} ms"
            f" of {latency['timeout_ms']} ms",
        ),
        (
            "judge checked",
            f"{calibrated['rated']} ratings, mean error "
            + _number(calibrated["mean_absolute_error"])
            + (f"; due after {calibrated['sessions_since']}" if calibrated["is_due"] else ""),
        ),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# -- steering -------------------------------------------------------------------------------


@command("train", "meritory predictor train")
def train() -> Answer:
    """Train a new model now, on all judged sessions.

    It serves when it passes every gate. Ends with 1 when it does not.
    """
    from meritory.cli.render import bar
    from meritory.engine.predictor import admin

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        before = services.store.training_runs(user, 1)
        ordered = admin.train_now(services, user)
        with bar("training"):
            admin.run_training(services)
        after = services.store.training_runs(user, 1)
    if after == before:
        note("another process trains it; `meritory predictor status` shows what came of it")
        waits = {"job": ordered.job, "reason": ordered.reason, "run": None}
        return Answer(waits, [Lines(["a training is under way"])])
    run = after[0]
    if not run.is_accepted:
        note("the model that served goes on serving")
    plain = {"job": ordered.job, "reason": ordered.reason, "run": run_plain(run)}
    return Answer(plain, _run_blocks(run), 0 if run.is_accepted else 1)


def run_plain(run: TrainingRun) -> dict[str, Any]:
    """A training as JSON values."""
    from dataclasses import asdict

    return {**asdict(run), "at": moment_text(run.at), "gates": [dict(one) for one in run.gates]}


def _run_blocks(run: TrainingRun) -> list[Block]:
    verdict = "serves now" if run.is_accepted else run.error or "was refused"
    blocks: list[Block] = [
        Lines(
            [
                f"model {run.model_version} ({run.scorer}) {verdict}: {run.sample_count} sessions,"
                f" {run.skipped_count} kept to examine it, {run.duration_ms / 1000:.1f} s"
            ]
        )
    ]
    rows = [
        (str(one["name"]), "yes" if one["passed"] else "no", str(one.get("note") or ""))
        for one in run.gates
    ]
    return [*blocks, Table(_GATES, rows)] if rows else blocks


@command("rollback", "meritory predictor rollback 3")
@click.argument("version", required=False, type=click.IntRange(min=0))
def rollback(version: int | None) -> Answer:
    """Let an earlier model serve again.

    VERSION is one that `meritory predictor status` lists; without it, the one before. 0 is the
    base that every predictor starts from.
    """
    from meritory.engine.predictor import admin
    from meritory.engine.predictor.state import known_state

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        former = known_state(services, user).version
        run = admin.rollback(services, user, version)
    plain = {"model_version": run.model_version, "former_version": former, "scorer": run.scorer}
    return Answer(plain, [Lines([f"model {run.model_version} serves in place of {former}"])])


@command("enable", "meritory predictor enable")
def enable() -> Answer:
    """Let the predictor be heard again, as far as it has earned it."""
    from meritory.engine.predictor import admin

    with opened(quiet=True) as memory:
        if memory.services.scorer is None:
            note("the setting predictor.enabled is off: nothing is scored until it is on")
        has_changed = admin.enable(memory.services, memory.scope.user)
        _tell_daemon(memory)
    return _switched(is_on=True, has_changed=has_changed)


def _tell_daemon(memory: Memory) -> None:
    """A scorer that crashed too often is the daemon's own, and gets another chance there."""
    if current_flags().store:
        return
    from meritory.api import client

    daemon = client.find(current_home())
    if daemon is not None:
        user = quote(memory.scope.user, safe="")
        daemon.request("POST", f"/api/predictor/enable?user={user}")


@command("disable", "meritory predictor disable")
def disable() -> Answer:
    """Let the baseline rank alone; what was learned is kept, and sessions are still judged."""
    from meritory.engine.predictor import admin

    with opened(quiet=True) as memory:
        has_changed = admin.disable(memory.services, memory.scope.user)
    return _switched(is_on=False, has_changed=has_changed)


def _switched(*, is_on: bool, has_changed: bool) -> Answer:
    word = "on" if is_on else "off"
    told = f"the predictor is {word}" if has_changed else f"the predictor was {word} already"
    return Answer({"is_enabled": is_on, "has_changed": has_changed}, [Lines([told])])


@command("serve", "meritory predictor serve")
@click.option("--checkpoint", metavar="FILE", help="The model to score with.")
@click.option("--base-weights", metavar="FILE", help="What learning starts from.")
def serve(checkpoint: str | None, base_weights: str | None) -> None:
    """Score and train for another program: JSON-RPC 2.0, one object a line, on stdin and stdout.

    The store is only read. The daemon starts one for itself.
    """
    with opened(quiet=True) as memory:
        _tell_if_off(memory)
        shelves = memory.services.shelves
        store = memory.services.store.place
        base = base_weights or (str(shelves.base) if shelves else None)
        models = str(shelves.folder) if shelves else ""
    # -P: a folder named meritory where somebody happens to stand must not be run.
    words = [sys.executable, "-P", "-m", "meritory.sidecar", store.argument, models]
    for name, value in (("--checkpoint", checkpoint), ("--base-weights", base)):
        words += [name, value] if value else []
    sys.stdout.flush()
    os.execve(sys.executable, words, {**os.environ, **store.environment})  # noqa: S606 - our own module


def _tell_if_off(memory: Memory) -> None:
    """Nobody who serves asks a predictor that is off; other programs may all the same."""
    from meritory.engine.predictor.state import known_state

    why = None
    if memory.services.scorer is None:
        why = "the setting predictor.enabled is off"
    elif not known_state(memory.services, memory.scope.user).is_enabled:
        why = "it is switched off (`meritory predictor enable`)"
    if why is not None:
        # At once and on stderr: this process is about to become another one.
        told = f"the predictor is disabled, no session asks it: {why}; it scores for you alone"
        click.echo(told, err=True)


for one in (status, comparisons, audit, training, drift):
    predictor.add_command(one)
for one in (train, rollback, enable, disable, calibrate, serve):
    predictor.add_command(one)
