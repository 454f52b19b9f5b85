"""Commands about the predictor: status, its records, training, calibration, on and off."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from meritory.api import client
from meritory.cli.command import (
    command,
    count_option,
    current_home,
    group,
    limit_option,
    many_option,
    opened,
    opened_services,
)
from meritory.cli.output import (
    Answer,
    Field,
    Fields,
    RecordView,
    bar,
    counts,
    current_flags,
    is_terminal,
    note,
    number,
    text_or_empty,
    to_json,
)
from meritory.cli.sessions import content_of, find_session
from meritory.domain.errors import InputError, NotFound
from meritory.domain.predictor import SURFACES, ComparisonQuery
from meritory.domain.world import parse_moment
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from meritory.engine.services import Services

OFFSET_MAX = 1_000_000
_ORDERS = {"predictor": "better", "baseline": "worse", "tie": "equal", None: "not counted"}
_JsonRow = Mapping[str, Any]
_short = number(".2f")
_decimal = number(".3f")
_minute = number("%Y-%m-%d %H:%M")
_list_limit = limit_option(20, 1_000)
_surface_option = click.option(
    "--surface",
    type=click.Choice(["start", *SURFACES]),
    default="start",
    help="Session starts, recall, or the prompts after the first. Default: start.",
)


@group("predictor", "meritory predictor status", default="status")
def predictor() -> None:
    """Show and control the learned ranking.

    It ranks in addition to the baseline and gains influence only when it ranks better. Without a
    command the status is shown.
    """


# -- calibration ------------------------------------------------------------------------------

OFFERED, OFFERED_MAX, _CONTEXT_CHARS = 20, 50, 200
Ratings = dict[tuple[str, str], float]
_ITEMS = RecordView(
    Field("id", "id", style="cyan"),
    Field("context", "session context", wraps=True),
    Field("content", "memory", wraps=True),
)


@command(
    "calibrate",
    "meritory predictor calibrate",
    "meritory predictor calibrate --ask",
    "meritory predictor calibrate --rate 7f3c2a/01JCA2=0.5",
    parent=predictor,
)
@many_option("--rate", "rates", "ID=SCORE", "How much a memory helped, -1 to 1; may be repeated.")
@click.option("--ask", is_flag=True, help="Ask for one after the other.")
@count_option("--count", OFFERED, OFFERED_MAX, "How many to offer.", minimum=OFFERED)
def calibrate(rates: tuple[str, ...], ask: bool, count: int) -> Answer:
    """Check the judge: rate memories that it judged, without seeing its rating.

    The predictor does not learn from these ratings. -1 means that a memory misled, 0 that it did
    not help, 1 that it was decisive.
    """
    if rates and ask:
        raise InputError("--rate and --ask exclude each other", hint="use one of them")
    from meritory.engine.predictor import admin
    from meritory.engine.predictor.drift import calibration
    from meritory.engine.predictor.state import known_state

    items: list[_JsonRow] = []
    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        if rates:
            result = admin.calibrate_rate(services, user, _parsed_ratings(services, user, rates))
        else:
            # The judge's rating is not shown before the answer.
            for rated in admin.calibrate_offer(services, user, count):
                key, memory_id = rated.session_key, rated.memory_id
                item = {"id": f"{key}/{memory_id}", "session_key": key, "memory_id": memory_id}
                context = services.store.session(user, key).context[:_CONTEXT_CHARS]
                text = content_of(memory, memory_id)
                items.append({**item, "context": context, "content": text})
            if ask:
                admin.calibrate_rate(services, user, _asked_ratings(items))
                items = []
            result = calibration(services.store, user, known_state(services, user))
    if not items and not ask and not rates:
        note("there is nothing to rate yet: the judge must first be sure about some sessions")
    summary = f"{result['asked']} offered, none rated yet"
    if result["rated"]:
        flag = ": too far apart" if result["is_flagged"] else ""
        mean = result["mean_absolute_error"]
        summary = f"{result['rated']} of {result['asked']} rated, mean error {mean:.2f}{flag}"
    table = [*_ITEMS.blocks(items), ""] if items else []
    return Answer({**result, "results": items}, *table, summary)


def _parsed_ratings(services: Services, user: str, rates: Sequence[str]) -> Ratings:
    """Parse `ID=SCORE`; an id may be shortened as long as it names one offered item."""
    from meritory.engine.predictor.drift import CALIBRATION_READ

    offered = services.store.calibration(user, CALIBRATION_READ)
    by_name = {f"{rated.session_key}/{rated.memory_id}": rated for rated in offered}
    ratings: Ratings = {}
    for text in rates:
        name, equals, score = text.rpartition("=")
        try:
            value = float(score)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(
                f"{text[:80]!r} is not a rating", hint="write ID=SCORE, e.g. 7f3c2a/01JCA2=0.5"
            )
        matches = [name] if name in by_name else [key for key in by_name if key.startswith(name)]
        if len(matches) > 1:
            raise InputError(f"several ids start with {name[:80]!r}", hint="give more of it")
        if not matches:
            raise NotFound(
                f"{name[:80]!r} was not offered for rating",
                hint="`meritory predictor calibrate` lists the offered items",
            )
        rated = by_name[matches[0]]
        ratings[rated.session_key, rated.memory_id] = value
    return ratings


def _asked_ratings(items: Sequence[_JsonRow]) -> Ratings:
    """Ask for one rating after the other; keep those given before the answers end."""

    def score(text: str) -> float | None:
        """Parse a typed rating; click asks again when it is invalid."""
        try:
            value = float(text) if text.strip() else None
        except ValueError:
            value = float("nan")
        if value is not None and not -1.0 <= value <= 1.0:
            raise click.BadParameter("-1 misled, 0 did not help, 1 was decisive")
        return value

    ratings: Ratings = {}
    try:
        for index, item in enumerate(items, start=1):
            context, content = (shown(item[k], one_line=True) for k in ("context", "content"))
            click.echo(f"\n{index}/{len(items)}  {context}\n  {content}", err=True)
            question = "How much did it help (-1..1, empty: skip)"
            answer = click.prompt(question, "", show_default=False, value_proc=score, err=True)
            if answer is not None:
                ratings[item["session_key"], item["memory_id"]] = answer
    except click.Abort:
        if not ratings and not is_terminal(sys.stdin):
            raise InputError("stdin is not a terminal", hint="use --rate ID=SCORE") from None
    return ratings


# -- status ---------------------------------------------------------------------------------

_WEIGHINGS = RecordView(
    Field("alpha", "alpha", show=number("g"), style="cyan"),
    Field("session_count", "sessions"),
    Field("ndcg_margin", "gain in NDCG", show=number("+.4f")),
    Field("ndcg_errors", "standard errors", show=number("+.1f")),
    Field("log_rank_margin", "in log rank", show=number("+.3f")),
    Field("trust", "trust", show=_short),
)
_PROJECTS = RecordView(
    Field("project", "project", show=lambda name: name or "-", style="magenta"),
    Field("session_count", "sessions"),
    Field("success_rate", "success", show=_short),
)
_ENTITIES = RecordView(
    Field(
        "", "helpful memories about", lambda row: f"{row['kind']} {row['name']}", style="magenta"
    ),
    Field("session_count", "sessions"),
    Field("success_rate", "success", show=_short),
)


_SURFACES = RecordView(
    Field("surface", "surface", style="magenta"),
    Field("phase", "phase"),
    Field("", "influence", lambda row: f"{1 - row['alpha']:.0%}"),
    Field("searches", "searches"),
    Field("success_rate", "success", show=_short),
    Field("", "model", lambda row: f"v{row['model_version']}", style="cyan"),
    Field("failures", "rejected"),
)


@command("status", "meritory predictor status", parent=predictor)
def status() -> Answer:
    """Show the progress of the predictor, its influence, and why."""
    with opened(quiet=True) as memory:
        state = memory.predictor_status()
        user = quote(memory.scope.user, safe="")
    if daemon := _daemon():
        # Only the process that serves knows these.
        live = daemon.request("GET", f"/api/predictor/status?user={user}")
        names = ("phase", "reason", "latency", "sidecar", "warnings")
        state = {**state, **{name: live[name] for name in names}}
    for warning in state["warnings"]:
        note(warning)
    weighings = [row for row in state["weighings"] if row["session_count"]]
    return Answer(
        state,
        Fields(_status_pairs(state)),
        *_WEIGHINGS.blocks(weighings, "", "Results of each baseline weight in past sessions:"),
        *_SURFACES.blocks(state["surfaces"], "", "The models of searches and of later prompts:"),
        *_PROJECTS.blocks(state["project_success_rates"], ""),
        *_ENTITIES.blocks(state["entity_success_rates"], ""),
    )


def _daemon() -> client.Daemon | None:
    """Return the daemon of the data folder, unless `--store` names another file."""
    return None if current_flags().store else client.find(current_home())


def _status_pairs(state: dict[str, Any]) -> list[tuple[str, str]]:
    latency, calibrated, trained = state["latency"], state["calibration"], state["last_trained_at"]
    reason = f" ({state['reason']})" if state["reason"] else ""
    versions = ", ".join(f"v{version}" for version in state["versions"])
    size = f", {state['parameter_count']:,} parameters" if state["parameter_count"] else ""
    loss = _short(state["last_train_loss"])
    proof = "proof that it ranks better" if state["is_cold"] else "nothing"
    past = state["history"]
    history = f"recency {past['recency']:.0%}, usefulness {past['usefulness']:.0%}: "
    if past["labels_valid"]:
        history += f"NDCG@10 {past['margin']:+.3f} over relevance in {past['sessions']} sessions"
    else:
        history += (
            f"the labels of {past['sessions']} sessions agree with relevance by"
            f" {past['validity_errors']:.1f} standard errors, {past['validity_needed']} are needed"
        )
    sessions = (
        f"{state['training_sessions']} judged, {state['excluded_sessions']} excluded,"
        f" {state['canaries']} held out to test models"
    )
    error = _short(calibrated["mean_absolute_error"])
    due = f"; due after {calibrated['sessions_since']}" if calibrated["is_due"] else ""
    p50, p95 = _short(latency["p50_ms"]), _short(latency["p95_ms"])
    return [
        ("phase", f"{state['phase']}{reason}"),
        ("influence", f"{1 - state['alpha']:.0%} (alpha {state['alpha']:g})"),
        ("success rate", f"{state['success_rate']:.2f}"),
        ("history", history),
        ("waits for", counts(state["waiting_for"], empty=proof)),
        ("model", f"v{state['model_version']} ({state['model_scorer']}{size}); kept: {versions}"),
        ("sessions", sessions),
        ("trained", f"{trained[:16].replace('T', ' ')} UTC, loss {loss}" if trained else "never"),
        ("rejected models", str(state["failures"])),
        ("lost models", str(state["fallbacks"])),
        ("drift", f"{state['drift_resets']} resets, judge {_short(state['scorer_drift_signal'])}"),
        ("scoring", f"p50 {p50} ms, p95 {p95} ms of {latency['timeout_ms']} ms"),
        ("judge checked", f"{calibrated['rated']} ratings, mean error {error}{due}"),
    ]


# -- comparisons ----------------------------------------------------------------------------


_COMPARISONS = RecordView(
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
    parent=predictor,
)
@click.option(
    "--winner",
    type=click.Choice(["predictor", "baseline", "tie"]),
    help="Only sessions in which this order was better.",
)
@click.option(
    "--counted/--not-counted",
    "ema_updated",
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
@_surface_option
@_list_limit
@click.option(
    "--offset",
    default=0,
    type=click.IntRange(0, OFFSET_MAX),
    help="How many of the latest to skip.",
)
def comparisons(since: str | None, until: str | None, surface: str, **wanted: Any) -> Answer:
    """Compare the learned order with the baseline in each session, latest first.

    Both are measured by NDCG@10 against the labels of the session. With --surface recall or prompt
    the rows are the searches of sessions.
    """
    from meritory.engine.predictor.status import comparisons_of
    from meritory.server.routes.predictor import ComparisonOut
    from meritory.server.table import to_json

    query = ComparisonQuery(
        since=None if since is None else parse_moment(since, "since"),
        until=None if until is None else parse_moment(until, "until"),
        **wanted,
    )
    with opened_services() as (services, user):
        records = comparisons_of(services.store, user, surface, query)
    if not records:
        note("no matching comparisons; a session is compared when it has ended and was judged")
    plain = {
        "results": [to_json(ComparisonOut.of(record)) for record in records],
        "next": query.offset + query.limit if len(records) == query.limit else None,
    }
    return Answer(plain, *_COMPARISONS.blocks(records))


# -- audit ----------------------------------------------------------------------------------


def _details(details: Mapping[str, object]) -> str:
    shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in details.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


_EVENTS = RecordView(
    Field("", "when", lambda event: f"{event.at:%H:%M:%S}", style="dim"),
    Field("name", "event", style="cyan"),
    Field("", "details", "details", _details, wraps=True),
)


@command("audit", "meritory predictor audit 7f3c2a", parent=predictor)
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
    if more := len(found.candidates) - len(listed):
        note(f"{more} more candidates; --limit shows them")
    whole = Audit.of(found)
    plain: dict[str, Any] = to_json(structs.replace(whole, results=whole.results[:limit]))
    texts = {name: record.content for name, record in memories.items()}
    view = RecordView(
        Field("", "rank", lambda one: one.candidate.rank or None),
        Field("", "baseline", "candidate.baseline_rank"),
        Field("", "learned", "candidate.predictor_rank"),
        Field("", "shown", lambda one: one.handle or None, style="cyan"),
        Field("", "found by", lambda one: one.candidate.origins or one.candidate.source),
        Field("", "final", "candidate.final_score", number(".4f")),
        Field("relevance_score", "judged", show=_decimal),
        Field("label", "label", show=_decimal),
        Field("", "memory", lambda one: texts.get(one.memory_id, "(erased)"), wraps=True),
    )
    session, compared = found.session.session, found.comparison
    pairs = [
        ("session", session.key),
        ("state", session.state),
        ("project", session.project or "-"),
        ("started", f"{_minute(session.started_at)} UTC"),
        ("alpha", f"{session.alpha:g}"),
    ]
    if compared is None:
        pairs.append(("learned order", "not compared yet"))
    else:
        why = f": {compared.reason}" if compared.reason else ""
        learned, baseline = _decimal(compared.predictor_ndcg), _decimal(compared.baseline_ndcg)
        pairs += [
            ("learned order", _ORDERS[compared.winner] + why),
            ("NDCG@10", f"learned {learned}, baseline {baseline}"),
            ("success rate", f"{compared.success_rate:.2f} after it"),
        ]
    return Answer(plain, Fields(pairs), *view.blocks(listed, ""), *_EVENTS.blocks(found.events, ""))


# -- training and drift ---------------------------------------------------------------------


_RUNS = RecordView(
    Field("id", read="at"),
    Field("at", "when", show=_minute, style="dim"),
    Field("surface", "surface", style="magenta"),
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
    whole=True,
)
_GATES = RecordView(
    Field("name", "gate", style="cyan"),
    Field("passed", "passed"),
    Field("", "result", lambda gate: gate.get("note") or "", wraps=True),
)
_WINDOWS = RecordView(
    *(Field(name, name, show=lambda at: str(at[:10])) for name in ("since", "until")),
    Field("sessions", "sessions"),
    Field("young_labels", "new"),
    Field("old_labels", "old"),
    Field("signal", "signal", show=_decimal),
)


@command("training", "meritory predictor training --limit 5", parent=predictor)
@_list_limit
def training(limit: int) -> Answer:
    """List trainings and rollbacks with their gates, latest first.

    NDCG@10 and the difference to the previous model are measured on held-out sessions.
    """
    with opened_services() as (services, user):
        runs = services.store.training_runs(user, limit)
    empty = "no model was trained yet; `meritory predictor status` shows what is missing"
    return _RUNS.answer(runs, empty)


@command("drift", "meritory predictor drift", parent=predictor)
@_list_limit
def drift(limit: int) -> Answer:
    """Show whether the predictor or the judge changed over time.

    The signal is how much higher the judge rated memories under 7 days old than those over 30, in
    windows of sessions, oldest first. --limit is the number of the latest windows.
    """
    from meritory.engine.predictor.drift import drift as read_drift

    with opened_services() as (services, user):
        found = read_drift(services, user)
    windows = found["results"][-limit:]
    pairs = [
        ("success rate", f"{found['success_rate']:.2f}"),
        ("low in a row", f"{found['low_streak']} of {found['drift_reset_window']} sessions"),
        ("resets", ", ".join(reset["at"][:10] for reset in found["resets"]) or "none"),
        ("judge", _decimal(found["scorer_drift_signal"])),
    ]
    return Answer({**found, "results": windows}, Fields(pairs), *_WINDOWS.blocks(windows, ""))


# -- control --------------------------------------------------------------------------------


@command("train", "meritory predictor train", parent=predictor)
def train() -> Answer:
    """Train a new model now, on all judged sessions.

    It becomes active when it passes every gate. Exits with 1 when it does not.
    """
    from meritory.engine.predictor import admin

    with opened_services() as (services, user):
        before = services.store.training_runs(user, 1, "start")
        ordered = admin.train_now(services, user)
        with bar("training"):
            admin.run_training(services)
        after = services.store.training_runs(user, 1, "start")
    plain = {"job": ordered.job, "reason": ordered.reason}
    if after == before:
        note("another process trains it; `meritory predictor status` shows the result")
        return Answer({**plain, "run": None}, "a training is running")
    run = after[0]
    if not run.is_accepted:
        note("the previous model stays active")
    verdict = "is active now" if run.is_accepted else run.error or "was rejected"
    line = (
        f"model {run.model_version} ({run.scorer}) {verdict}: {run.sample_count} sessions,"
        f" {run.skipped_count} held out to test it, {run.duration_ms / 1000:.1f} s"
    )
    code = 0 if run.is_accepted else 1
    return Answer({**plain, "run": to_json(run)}, line, *_GATES.blocks(run.gates), code=code)


@command("rollback", "meritory predictor rollback 3", parent=predictor)
@click.argument("version", required=False, type=click.IntRange(min=0))
@_surface_option
def rollback(version: int | None, surface: str) -> Answer:
    """Activate an earlier model.

    VERSION is one that `meritory predictor status` lists. Default: the previous one. 0 is the base
    model that every predictor starts from.
    """
    from meritory.engine.predictor.rollback import rollback_any
    from meritory.engine.predictor.state import known_state

    with opened_services() as (services, user):
        state = known_state(services, user)
        former = next((state.surface(one) for one in SURFACES if one == surface), state).version
        run = rollback_any(services, user, surface, version)
    plain = {**RecordView("model_version scorer").json(run), "former_version": former}
    return Answer(plain, f"model {run.model_version} is active in place of {former}")


@command("enable", "meritory predictor enable", parent=predictor)
def enable() -> Answer:
    """Turn the predictor on again, with the influence it has earned."""
    from meritory.engine.predictor import admin

    with opened_services() as (services, user):
        if services.scorer is None:
            note("the setting predictor.enabled is off: nothing is scored until it is on")
        has_changed = admin.switch(services, user, is_on=True)
        if daemon := _daemon():
            # A scorer that crashed too often belongs to the daemon and is restarted there.
            daemon.request("POST", f"/api/predictor/enable?user={quote(user, safe='')}")
    return _switched("on", has_changed)


@command("disable", "meritory predictor disable", parent=predictor)
def disable() -> Answer:
    """Rank by the baseline alone; the model is kept, and sessions are still judged."""
    from meritory.engine.predictor import admin

    with opened_services() as (services, user):
        return _switched("off", admin.switch(services, user, is_on=False))


def _switched(state: str, has_changed: bool) -> Answer:
    line = f"the predictor {'is' if has_changed else 'was already'} {state}"
    return Answer({"is_enabled": state == "on", "has_changed": has_changed}, line)


@command("serve", "meritory predictor serve", parent=predictor)
@click.option("--checkpoint", metavar="FILE", help="The model to score with.")
@click.option("--base-weights", metavar="FILE", help="The model that training starts from.")
def serve(checkpoint: str | None, base_weights: str | None) -> None:
    """Score and train for another program: JSON-RPC 2.0, one object a line, on stdin and stdout.

    The store is only read. The daemon starts one for itself.
    """
    from meritory.engine.predictor.state import known_state

    with opened_services() as (services, user):
        why = None
        if services.scorer is None:
            why = "the setting predictor.enabled is off"
        elif not known_state(services, user).is_enabled:
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
