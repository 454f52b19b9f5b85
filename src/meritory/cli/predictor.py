"""Commands about the predictor: status, its records, training, rollback, on and off."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from meritory.cli.calibrate import calibrate
from meritory.cli.command import command, current_flags, group, limit_option, note
from meritory.cli.context import current_home, opened
from meritory.cli.output import (
    Answer,
    Block,
    Field,
    Fields,
    Lines,
    RecordView,
    bar,
    counts,
    line_answer,
    number,
    text_or_empty,
    to_json,
)
from meritory.cli.sessions import find_session
from meritory.domain.predictor import Comparison, ComparisonQuery, TrainingRun
from meritory.domain.world import parse_moment

if TYPE_CHECKING:
    from meritory.api.client import Daemon
    from meritory.domain.session import Event, SessionMemory
    from meritory.engine.predictor.status import SessionAudit

LIST_LIMIT, LIST_LIMIT_MAX = 20, 1_000
OFFSET_MAX = 1_000_000
_ORDERS = {"predictor": "better", "baseline": "worse", "tie": "equal", None: "not counted"}
_JsonRow = Mapping[str, Any]
_short = number(".2f")
_decimal = number(".3f")
_list_limit = limit_option(LIST_LIMIT, LIST_LIMIT_MAX)


@group("predictor", "meritory predictor status")
def predictor() -> Answer:
    """Show and control the learned ranking.

    It ranks in addition to the baseline and gains influence only when it ranks better. Without a
    command the status is shown.
    """
    return _status()


predictor.add_command(calibrate)


# -- status ---------------------------------------------------------------------------------

_WEIGHINGS: RecordView[_JsonRow] = RecordView(
    Field("alpha", "alpha", show=number("g"), style="cyan"),
    Field("session_count", "sessions"),
    Field("ndcg_margin", "gain in NDCG", show=number("+.4f")),
    Field("ndcg_errors", "standard errors", show=number("+.1f")),
    Field("log_rank_margin", "in log rank", show=number("+.3f")),
    Field("trust", "trust", show=_short),
)
_PROJECTS: RecordView[_JsonRow] = RecordView(
    Field("project", "project", show=lambda name: name or "-", style="magenta"),
    Field("session_count", "sessions"),
    Field("success_rate", "success", show=_short),
)
_ENTITIES: RecordView[_JsonRow] = RecordView(
    Field(
        "", "helpful memories about", lambda row: f"{row['kind']} {row['name']}", style="magenta"
    ),
    Field("session_count", "sessions"),
    Field("success_rate", "success", show=_short),
)


@command("status", "meritory predictor status", predictor)
def status() -> Answer:
    """Show the progress of the predictor, its influence, and why."""
    return _status()


def _status() -> Answer:
    with opened(quiet=True) as memory:
        state = memory.predictor_status()
        user = quote(memory.scope.user, safe="")
    daemon = _daemon()
    if daemon is not None:
        # Only the process that serves knows these.
        live = daemon.request("GET", f"/api/predictor/status?user={user}")
        names = ("phase", "reason", "latency", "sidecar", "warnings")
        state = {**state, **{name: live[name] for name in names}}
    for warning in state["warnings"]:
        note(warning)
    weighings = [row for row in state["weighings"] if row["session_count"]]
    blocks: list[Block] = [
        Fields(_status_pairs(state)),
        *_WEIGHINGS.blocks(weighings, "", "Results of each baseline weight in past sessions:"),
        *_PROJECTS.blocks(state["project_success_rates"], ""),
        *_ENTITIES.blocks(state["entity_success_rates"], ""),
    ]
    return Answer(state, blocks)


def _daemon() -> Daemon | None:
    """Return the daemon of the data folder, unless `--store` names another file."""
    if current_flags().store:
        return None
    from meritory.api import client

    return client.find(current_home())


def _status_pairs(state: dict[str, Any]) -> list[tuple[str, str]]:
    latency, calibrated, trained = state["latency"], state["calibration"], state["last_trained_at"]
    reason = f" ({state['reason']})" if state["reason"] else ""
    versions = ", ".join(f"v{version}" for version in state["versions"])
    parameters = state["parameter_count"]
    size = f", {parameters:,} parameters" if parameters else ""
    loss = _short(state["last_train_loss"])
    proof = "proof that it ranks better" if state["is_cold"] else "nothing"
    return [
        ("phase", f"{state['phase']}{reason}"),
        ("influence", f"{1 - state['alpha']:.0%} (alpha {state['alpha']:g})"),
        ("success rate", f"{state['success_rate']:.2f}"),
        ("history", _history(state["history"])),
        ("waits for", counts(state["waiting_for"], empty=proof)),
        ("model", f"v{state['model_version']} ({state['model_scorer']}{size}); kept: {versions}"),
        (
            "sessions",
            f"{state['training_sessions']} judged, {state['excluded_sessions']} excluded,"
            f" {state['canaries']} held out to test models",
        ),
        ("trained", f"{trained[:16].replace('T', ' ')} UTC, loss {loss}" if trained else "never"),
        ("rejected models", str(state["failures"])),
        ("lost models", str(state["fallbacks"])),
        ("drift", f"{state['drift_resets']} resets, judge {_short(state['scorer_drift_signal'])}"),
        (
            "scoring",
            f"p50 {_short(latency['p50_ms'])} ms, p95 {_short(latency['p95_ms'])} ms"
            f" of {latency['timeout_ms']} ms",
        ),
        (
            "judge checked",
            f"{calibrated['rated']} ratings, mean error {_short(calibrated['mean_absolute_error'])}"
            + (f"; due after {calibrated['sessions_since']}" if calibrated["is_due"] else ""),
        ),
    ]


def _history(history: _JsonRow) -> str:
    """Return how much usage history counts in the baseline, on one line."""
    weights = f"recency {history['recency']:.0%}, usefulness {history['usefulness']:.0%}"
    sessions = f"{history['sessions']} sessions"
    if history["labels_valid"]:
        return f"{weights}: NDCG@10 {history['margin']:+.3f} over relevance in {sessions}"
    return (
        f"{weights}: the labels of {sessions} agree with relevance by"
        f" {history['validity_errors']:.1f} standard errors,"
        f" {history['validity_needed']} are needed"
    )


# -- comparisons ----------------------------------------------------------------------------


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


_COMPARISONS: RecordView[Comparison] = RecordView(
    Field("session_key", "session", style="cyan"),
    Field("at", "when", show=_minute, style="dim"),
    Field("", "project", lambda one: one.project or None),
    Field("model_version", "model", show=lambda n: "-" if n is None else f"v{n}"),
    Field("predictor_ndcg", "learned", show=_decimal),
    Field("baseline_ndcg", "baseline", show=_decimal),
    Field("margin", "margin", show=number("+.3f")),
    Field("", "learned order", lambda one: _ORDERS[one.winner]),
    Field("success_rate", "success", show=_short),
    Field("alpha", "alpha", show=number("g")),
    Field("reason", "not counted because", show=text_or_empty, wraps=True),
)


@command(
    "comparisons",
    "meritory predictor comparisons --winner baseline --min-margin 0.1",
    predictor,
)
@click.option(
    "--winner",
    type=click.Choice(["predictor", "baseline", "tie"]),
    help="Only sessions in which this order was better.",
)
@click.option(
    "--counted/--not-counted",
    "is_counted",
    default=None,
    help="Only sessions that changed the success rate, or only the others.",
)
@click.option(
    "--min-margin",
    type=click.FloatRange(0.0, 1.0),
    help="Only differences in NDCG@10 of at least this, in either direction.",
)
@click.option("--since", metavar="TIME", help="Only from this date or time on.")
@click.option("--until", metavar="TIME", help="Only up to this date or time.")
@_list_limit
@click.option(
    "--offset",
    default=0,
    type=click.IntRange(0, OFFSET_MAX),
    help="How many of the latest to skip.",
)
def comparisons(
    winner: Any,
    is_counted: bool | None,
    min_margin: float | None,
    since: str | None,
    until: str | None,
    limit: int,
    offset: int,
) -> Answer:
    """Compare the learned order with the baseline in each session, latest first.

    Both are measured by NDCG@10 against the labels of the session.
    """
    from meritory.server.routes.predictor import ComparisonOut
    from meritory.server.table import to_json

    query = ComparisonQuery(
        winner=winner,
        ema_updated=is_counted,
        min_margin=min_margin,
        since=None if since is None else parse_moment(since, "since"),
        until=None if until is None else parse_moment(until, "until"),
        limit=limit,
        offset=offset,
    )
    with opened(quiet=True) as memory:
        records = memory.services.store.comparisons(memory.scope.user, query)
    if not records:
        note("no matching comparisons; a session is compared when it has ended and was judged")
    plain = {
        "results": [to_json(ComparisonOut.keyed(record)) for record in records],
        "next": offset + limit if len(records) == limit else None,
    }
    return Answer(plain, _COMPARISONS.blocks(records))


# -- audit ----------------------------------------------------------------------------------


def _details(event: Event) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in event.details.items()
    )


_EVENTS: RecordView[Event] = RecordView(
    Field("", "when", lambda event: f"{event.at:%H:%M:%S}", style="dim"),
    Field("name", "event", style="cyan"),
    Field("", "details", _details, wraps=True),
)


@command("audit", "meritory predictor audit 7f3c2a", predictor)
@click.argument("key")
@_list_limit
def audit(key: str, limit: int) -> Answer:
    """Show how a session was ranked: both orders, labels, the comparison and every event.

    KEY is the session's key as `meritory sessions` prints it, or the beginning of one. --limit is
    the number of candidates.
    """
    from msgspec import structs

    from meritory.engine.predictor import status as records
    from meritory.server.routes.predictor import Audit
    from meritory.server.table import to_json

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        found = records.audit(services, user, find_session(memory, key).key)
        listed = found.candidates[:limit]
        memories = services.store.memories(user, [one.memory_id for one in listed])
    if len(listed) < len(found.candidates):
        note(f"{len(found.candidates) - len(listed)} more candidates; --limit shows them")
    whole = Audit.of(found)
    plain: dict[str, Any] = to_json(structs.replace(whole, results=whole.results[:limit]))
    texts = {name: record.content for name, record in memories.items()}
    view: RecordView[SessionMemory] = RecordView(
        Field("", "rank", lambda one: one.candidate.rank or None),
        Field("", "baseline", lambda one: one.candidate.baseline_rank),
        Field("", "learned", lambda one: one.candidate.predictor_rank),
        Field("", "shown", lambda one: one.handle or None, style="cyan"),
        Field("", "found by", lambda one: one.candidate.origins or one.candidate.source),
        Field("", "final", lambda one: one.candidate.final_score, number(".4f")),
        Field("relevance_score", "judged", show=_decimal),
        Field("label", "label", show=_decimal),
        Field("", "memory", lambda one: texts.get(one.memory_id, "(erased)"), wraps=True),
    )
    blocks = [*view.blocks(listed, ""), *_EVENTS.blocks(found.events, "")]
    return Answer(plain, [Fields(_audit_pairs(found)), *blocks])


def _audit_pairs(found: SessionAudit) -> list[tuple[str, str]]:
    session, compared = found.session.session, found.comparison
    pairs = [
        ("session", session.key),
        ("state", session.state),
        ("project", session.project or "-"),
        ("started", f"{_minute(session.started_at)} UTC"),
        ("alpha", f"{session.alpha:g}"),
    ]
    if compared is None:
        return [*pairs, ("learned order", "not compared yet")]
    why = f": {compared.reason}" if compared.reason else ""
    learned, baseline = _decimal(compared.predictor_ndcg), _decimal(compared.baseline_ndcg)
    return [
        *pairs,
        ("learned order", _ORDERS[compared.winner] + why),
        ("NDCG@10", f"learned {learned}, baseline {baseline}"),
        ("success rate", f"{compared.success_rate:.2f} after it"),
    ]


# -- training and drift ---------------------------------------------------------------------


_RUNS: RecordView[TrainingRun] = RecordView(
    Field("at", "when", show=_minute, style="dim"),
    Field("", "model", lambda run: f"v{run.model_version} {run.scorer}", style="cyan"),
    Field("reason", "because of"),
    Field("sample_count", "sessions"),
    Field("loss", "loss", show=_decimal),
    Field("", "seconds", lambda run: run.duration_ms / 1000, number(".1f")),
    Field("canary_ndcg", "NDCG@10", show=_decimal),
    Field("canary_ndcg_delta", "difference", show=number("+.3f")),
    Field("is_accepted", "accepted"),
    Field(
        "",
        "rejected by",
        lambda run: run.error or [str(gate["name"]) for gate in run.gates if not gate["passed"]],
        wraps=True,
    ),
)
_GATES: RecordView[Mapping[str, object]] = RecordView(
    Field("name", "gate", style="cyan"),
    Field("passed", "passed"),
    Field("", "result", lambda gate: gate.get("note") or "", wraps=True),
)
_WINDOWS: RecordView[_JsonRow] = RecordView(
    Field("since", "since", show=lambda at: str(at[:10])),
    Field("until", "until", show=lambda at: str(at[:10])),
    Field("sessions", "sessions"),
    Field("young_labels", "new"),
    Field("old_labels", "old"),
    Field("signal", "signal", show=_decimal),
)


@command("training", "meritory predictor training --limit 5", predictor)
@_list_limit
def training(limit: int) -> Answer:
    """List trainings and rollbacks with their gates, latest first.

    NDCG@10 and the difference to the previous model are measured on held-out sessions.
    """
    with opened(quiet=True) as memory:
        runs = memory.services.store.training_runs(memory.scope.user, limit)
    if not runs:
        note("no model was trained yet; `meritory predictor status` shows what is missing")
    results = [{"id": to_json(run.at), **to_json(run)} for run in runs]
    return Answer({"results": results}, _RUNS.blocks(runs))


@command("drift", "meritory predictor drift", predictor)
@_list_limit
def drift(limit: int) -> Answer:
    """Show whether the predictor or the judge changed over time.

    The signal is how much higher the judge rated memories under 7 days old than those over 30, in
    windows of sessions, oldest first. --limit is the number of the latest windows.
    """
    from meritory.engine.predictor.drift import drift as read_drift

    with opened(quiet=True) as memory:
        found = read_drift(memory.services, memory.scope.user)
    windows = found["results"][-limit:]
    pairs = [
        ("success rate", f"{found['success_rate']:.2f}"),
        ("low in a row", f"{found['low_streak']} of {found['drift_reset_window']} sessions"),
        ("resets", ", ".join(reset["at"][:10] for reset in found["resets"]) or "none"),
        ("judge", _decimal(found["scorer_drift_signal"])),
    ]
    return Answer({**found, "results": windows}, [Fields(pairs), *_WINDOWS.blocks(windows, "")])


# -- control --------------------------------------------------------------------------------


@command("train", "meritory predictor train", predictor)
def train() -> Answer:
    """Train a new model now, on all judged sessions.

    It becomes active when it passes every gate. Exits with 1 when it does not.
    """
    from meritory.engine.predictor import admin

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        before = services.store.training_runs(user, 1)
        ordered = admin.train_now(services, user)
        with bar("training"):
            admin.run_training(services)
        after = services.store.training_runs(user, 1)
    plain = {"job": ordered.job, "reason": ordered.reason}
    if after == before:
        note("another process trains it; `meritory predictor status` shows the result")
        return line_answer("a training is running", **plain, run=None)
    run = after[0]
    if not run.is_accepted:
        note("the previous model stays active")
    verdict = "is active now" if run.is_accepted else run.error or "was rejected"
    line = (
        f"model {run.model_version} ({run.scorer}) {verdict}: {run.sample_count} sessions,"
        f" {run.skipped_count} held out to test it, {run.duration_ms / 1000:.1f} s"
    )
    blocks: list[Block] = [Lines([line]), *_GATES.blocks(run.gates)]
    return Answer({**plain, "run": to_json(run)}, blocks, 0 if run.is_accepted else 1)


@command("rollback", "meritory predictor rollback 3", predictor)
@click.argument("version", required=False, type=click.IntRange(min=0))
def rollback(version: int | None) -> Answer:
    """Activate an earlier model.

    VERSION is one that `meritory predictor status` lists. Default: the previous one. 0 is the base
    model that every predictor starts from.
    """
    from meritory.engine.predictor.rollback import rollback as roll_back
    from meritory.engine.predictor.state import known_state

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        former = known_state(services, user).version
        run = roll_back(services, user, version)
    return line_answer(
        f"model {run.model_version} is active in place of {former}",
        model_version=run.model_version,
        former_version=former,
        scorer=run.scorer,
    )


@command("enable", "meritory predictor enable", predictor)
def enable() -> Answer:
    """Turn the predictor on again, with the influence it has earned."""
    from meritory.engine.predictor import admin

    with opened(quiet=True) as memory:
        if memory.services.scorer is None:
            note("the setting predictor.enabled is off: nothing is scored until it is on")
        has_changed = admin.enable(memory.services, memory.scope.user)
        daemon = _daemon()
        if daemon is not None:
            # A scorer that crashed too often belongs to the daemon and is restarted there.
            user = quote(memory.scope.user, safe="")
            daemon.request("POST", f"/api/predictor/enable?user={user}")
    return _switched(is_on=True, has_changed=has_changed)


@command("disable", "meritory predictor disable", predictor)
def disable() -> Answer:
    """Rank by the baseline alone; the model is kept, and sessions are still judged."""
    from meritory.engine.predictor import admin

    with opened(quiet=True) as memory:
        has_changed = admin.disable(memory.services, memory.scope.user)
    return _switched(is_on=False, has_changed=has_changed)


def _switched(*, is_on: bool, has_changed: bool) -> Answer:
    state = f"{'is' if has_changed else 'was already'} {'on' if is_on else 'off'}"
    return line_answer(f"the predictor {state}", is_enabled=is_on, has_changed=has_changed)


@command("serve", "meritory predictor serve", predictor)
@click.option("--checkpoint", metavar="FILE", help="The model to score with.")
@click.option("--base-weights", metavar="FILE", help="The model that training starts from.")
def serve(checkpoint: str | None, base_weights: str | None) -> None:
    """Score and train for another program: JSON-RPC 2.0, one object a line, on stdin and stdout.

    The store is only read. The daemon starts one for itself.
    """
    from meritory.engine.predictor.state import known_state

    with opened(quiet=True) as memory:
        services = memory.services
        why = None
        if services.scorer is None:
            why = "the setting predictor.enabled is off"
        elif not known_state(services, memory.scope.user).is_enabled:
            why = "it is switched off (`meritory predictor enable`)"
        if why is not None:
            # Printed at once: this process is about to become another one.
            click.echo(f"the predictor is disabled, so no session uses it: {why}", err=True)
        shelves, store = services.shelves, services.store.place
        base = base_weights or (str(shelves.base) if shelves else None)
        models = str(shelves.folder) if shelves else ""
    # -P: a folder named meritory in the working directory must not be imported.
    words = [sys.executable, "-P", "-m", "meritory.sidecar", store.argument, models]
    for name, value in (("--checkpoint", checkpoint), ("--base-weights", base)):
        words += [name, value] if value else []
    sys.stdout.flush()
    os.execve(sys.executable, words, {**os.environ, **store.environment})  # noqa: S606 - our own module
