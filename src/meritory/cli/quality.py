"""Commands about the quality of the store: stats, gate, janitor, extraction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, group, limit_option, note
from meritory.cli.context import handles, opened
from meritory.cli.output import (
    Answer,
    Block,
    Column,
    Field,
    Fields,
    Lines,
    RecordView,
    Table,
    age,
    clock_text,
    counts,
    line_answer,
    text_or_empty,
    to_json,
)
from meritory.domain.errors import InputError
from meritory.domain.memory import OUTCOMES, MemoryRecord

if TYPE_CHECKING:
    from meritory.domain.quality import Refusal
    from meritory.engine.quality.figures import Audited, Merge, QualityFigures
    from meritory.engine.quality.janitor import Due
    from meritory.engine.quality.maintenance import JobLook

# -- stats ----------------------------------------------------------------------------------

QUALITY_SAMPLE = 100
_STATES = ("live", "deleted", "superseded", "history", "entities")
_GROUPS = {
    "kind": "kinds",
    "provenance": "provenance",
    "trust": "trust",
    "write": "writes",
    "sessions": "sessions",
    "feedback": "ratings",
}


@command("stats", "meritory stats --json")
def stats() -> Answer:
    """Count memories, writes, sessions and fallbacks.

    Writes are counted by their outcome: stored, duplicate, merged, superseded, kept both, floored
    or refused. The quality figures cover recently shown and judged memories, without weights; some
    are estimated from a sample.
    """
    from meritory.engine.quality import figures as quality_figures

    with opened() as memory:
        amounts = memory.stats()
        user = memory.scope.user
        figures = quality_figures.figures(memory.services, user, QUALITY_SAMPLE)
    plain: dict[str, Any] = {"user": user, **{name: amounts.pop(name, 0) for name in _STATES}}
    for name in _GROUPS:
        lead = name + "."
        known = dict.fromkeys(OUTCOMES, 0) if name == "write" else {}
        own = {key: amounts.pop(key) for key in list(amounts) if key.startswith(lead)}
        if name == "feedback":
            known = {"ratings": amounts.pop("ratings", 0)}
        plain[name] = known | {key[len(lead) :]: amount for key, amount in own.items()}
    # The rest counts special events: splits, undone changes, purges and every fallback.
    plain["other"] = amounts
    plain["quality"] = to_json(figures)
    pairs = [
        ("user", user),
        (
            "memories",
            f"{plain['live']} live, {plain['deleted']} forgotten, {plain['superseded']} superseded",
        ),
        ("changes", f"{plain['history']} in the history"),
        ("entities", str(plain["entities"])),
        *((label, counts(plain[name])) for name, label in _GROUPS.items()),
        ("other events", counts(amounts)),
    ]
    quality = Fields(_quality_pairs(figures))
    return Answer(plain, [Fields(pairs), Lines(["", "Quality"]), quality])


def _quality_pairs(figures: QualityFigures) -> list[tuple[str, str]]:
    trigger, redundant, below = figures.gate_trigger, figures.redundant, figures.below_floor
    triggered, repeated = "no writes yet", f"unknown; {redundant.additions} additions this week"
    if trigger.rate is not None:
        triggered = f"{trigger.rate:.1%} of {trigger.total} writes"
    if redundant.per_week is not None:
        more = "or more " if redundant.is_cut else ""
        repeated = (
            f"{redundant.per_week:g} a week: {redundant.sample.count} of {redundant.sample.total}"
            f" tried, of {redundant.additions} {more}additions"
        )
    low = "nothing was shown yet"
    if below.per_turn is not None:
        low = (
            f"{below.per_turn:.2f} per turn: {below.memories} of {below.shown} memories"
            f" in {below.turns} turns"
        )
    pairs = [
        ("gate triggered", triggered),
        ("wrong merges", audited_text(figures.false_merges)),
        ("redundant additions", repeated),
        ("shown below the floor", low),
    ]
    for by, sources in (("", figures.by_provenance), ("by ", figures.by_extractor)):
        for source in sources:
            share = source.helped
            value = "none was judged yet"
            if share.rate is not None and source.mean_label is not None:
                value = (
                    f"{share.rate:.0%} of {share.total} judged "
                    f"({share.low:.0%} to {share.high:.0%}), mean label {source.mean_label:+.2f}"
                )
            pairs.append((f"helped, {by}{source.name}", value))
    return [
        *pairs,
        ("extraction", counts(figures.extraction)),
        ("rejected claims", str(figures.refusals)),
        ("found by searches", f"{figures.retrievals} times"),
        ("maintenance", counts(figures.janitor)),
    ]


def audited_text(audited: Audited) -> str:
    """Return the share of wrong merges with its interval."""
    if audited.rate is None:
        return "none was audited yet: `meritory gate audit` lists them"
    return (
        f"{audited.wrong} of {audited.total} audited ({audited.rate:.1%};"
        f" 95% interval {audited.low:.1%} to {audited.high:.1%})"
    )


AUDITED: RecordView[Audited] = RecordView(*map(Field, ("total", "wrong", "rate", "low", "high")))

# -- gate -----------------------------------------------------------------------------------

AUDIT_LIMIT, AUDIT_LIMIT_MAX = 20, 1_000
ENTRY_MAX = 1 << 62
_WEEKS = 12
_OUTCOMES = ("stored", "merged", "superseded", "kept_both")


@group("gate", "meritory gate tune --sample 500", lazy={"tune": "meritory.lab.cli:tune"})
def gate() -> Answer:
    """Show what the similarity gate does, audit its merges and try other thresholds."""
    return _gate_metrics()


@command("metrics", "meritory gate metrics", gate)
def metrics() -> Answer:
    """Show how often the gate found a similar memory, the outcomes, and the share of errors."""
    return _gate_metrics()


def _gate_metrics() -> Answer:
    from meritory.engine.quality import figures

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        counters = services.store.counters(user)
        since = services.world.now() - timedelta(weeks=_WEEKS)
        weeks = services.store.gate_outcomes(user, since)
        audited = figures.audited(services, user)
    trigger = figures.trigger_rate(counters)
    outcomes = {name: counters.get(f"write.{name}", 0) for name in _OUTCOMES}
    split = counters.get("split", 0)
    rate = "no writes yet" if trigger.rate is None else f"{trigger.rate:.1%} of {trigger.total}"
    pairs = [
        ("triggered", rate),
        ("outcomes", counts(outcomes)),
        ("split again", str(split)),
        ("wrong merges", audited_text(audited)),
    ]
    plain = {
        "trigger_rate": trigger.rate,
        "writes": trigger.total,
        "outcomes": outcomes,
        "split": split,
        "audited": AUDITED.json(audited),
        "results": [{"week": o.week, "outcome": o.outcome, "count": o.many} for o in weeks],
    }
    by_week: dict[str, dict[str, int]] = {}
    for one in weeks:
        by_week.setdefault(one.week, {})[one.outcome] = one.many
    rows = []
    for week, amounts in by_week.items():
        share = 1 - amounts.get("stored", 0) / sum(amounts.values())
        rows.append((week, *(str(amounts.get(name, 0)) for name in _OUTCOMES), f"{share:.1%}"))
    columns = (Column("week of"), *map(Column, _OUTCOMES), Column("triggered"))
    table: list[Block] = [Lines([""]), Table(columns, rows)] if rows else []
    return Answer(plain, [Fields(pairs), *table])


def _content(record: MemoryRecord | None) -> str | None:
    return None if record is None else record.content


def _merges(ids: Mapping[str, str]) -> RecordView[Merge]:
    return RecordView(
        Field("entry", "entry", lambda merge: merge.entry.entry, style="cyan"),
        Field(
            "id",
            "memory",
            lambda merge: merge.entry.memory_id,
            lambda name: ids.get(name, name),
            style="cyan",
        ),
        Field("at", "when", lambda merge: merge.entry.at, style="dim"),
        Field("why", read=lambda merge: merge.entry.why),
        Field("before", "was", lambda m: _content(m.entry.before), text_or_empty, wraps=True),
        Field("other", "merged with", lambda m: _content(m.entry.other), text_or_empty, wraps=True),
        Field("after", "became", lambda m: _content(m.entry.after), text_or_empty, wraps=True),
        Field("is_split", read=lambda merge: merge.entry.undone),
        Field("verdict"),
    )


@command("audit", "meritory gate audit --right 4711 --right 4712 --wrong 4713", gate)
@limit_option(AUDIT_LIMIT, AUDIT_LIMIT_MAX, "How many to list at most.")
@click.option(
    "--right",
    type=click.IntRange(1, ENTRY_MAX),
    multiple=True,
    metavar="ENTRY",
    help="This merge lost nothing; may be repeated.",
)
@click.option(
    "--wrong",
    type=click.IntRange(1, ENTRY_MAX),
    multiple=True,
    metavar="ENTRY",
    help="This merge joined two different claims; may be repeated.",
)
def audit(limit: int, right: tuple[int, ...], wrong: tuple[int, ...]) -> Answer:
    """List merges that were not audited yet, or mark merges as right or wrong.

    A reliable rate of wrong merges needs some dozens, taken in the order of the list. Undoing a
    merge with `meritory split` counts it as wrong.
    """
    from meritory.engine.quality import figures

    if set(right) & set(wrong):
        raise InputError("a merge is right or wrong, not both")
    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        if not right and not wrong:
            merges = figures.unaudited(services, user, limit)
            ids = handles(memory, (merge.entry.memory_id for merge in merges))
            hint = "`meritory gate audit --right ENTRY` and `--wrong ENTRY` save your verdict"
            note(hint if merges else "every merge was audited")
            return _merges(ids).answer(merges)
        # All or none: an unknown entry stops the command before anything is saved.
        for entry in (*right, *wrong):
            services.store.merge_entry(user, entry)
        marked = [figures.mark(services, user, entry, "right") for entry in right]
        marked += [figures.mark(services, user, entry, "wrong") for entry in wrong]
        audited = figures.audited(services, user)
    for merge in marked:
        if merge.verdict == "wrong" and not merge.entry.undone:
            name = merge.entry.memory_id
            note(f"`meritory split {name} --entry {merge.entry.entry}` undoes it")
    plain = {
        "results": [_merges({}).json(merge) for merge in marked],
        "audited": AUDITED.json(audited),
    }
    return Answer(plain, [Fields([("wrong merges", audited_text(audited))])])


# -- janitor --------------------------------------------------------------------------------

DUE_LIMIT, DUE_LIMIT_MAX = 100, 5_000
_ALL_KEPT = "nothing: all is kept"
_JOB: RecordView[JobLook] = RecordView(*map(Field, ("key", "state", "finished_at", "error")))


@group("janitor", "meritory janitor --dry-run")
@click.option("--dry-run", is_flag=True, help="List what a sweep would do now, and why.")
def janitor(dry_run: bool) -> Answer:
    """Show the maintenance of the store: which memories are demoted, which records erased.

    The daemon sweeps once a week and erases once a day. A memory is demoted when it was not shown
    for months in which sessions that may see it took place; months without sessions do not count.
    """
    return _sweep_preview(DUE_LIMIT) if dry_run else _janitor_status()


def _sweep_preview(limit: int) -> Answer:
    from meritory.engine.quality import janitor as sweeping
    from meritory.engine.quality import maintenance

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        plan = sweeping.plan(services, user)
        erased = maintenance.due(services, user)
        listed = plan.due[:limit]
        ids = handles(memory, (due.memory.id for due in listed))
    if not plan.due:
        note(f"none of {plan.looked_at} memories is due to be demoted")
    if plan.is_cut or len(plan.due) > limit:
        more = " and more" if plan.is_cut else ""
        note(f"{len(plan.due)}{more} are due, of which {len(listed)} are shown")
    view: RecordView[Due] = RecordView(
        Field(
            "id", "id", lambda due: due.memory.id, lambda name: ids.get(name, name), style="cyan"
        ),
        Field("fate", "would"),
        Field("provenance", "provenance", lambda due: due.memory.provenance),
        Field("project", "project", lambda due: due.memory.project, text_or_empty, style="magenta"),
        Field("demotion", read=lambda due: due.memory.demotion),
        Field("idle_since"),
        Field("active_months"),
        Field("reason", "why", wraps=True),
        Field("content", "content", lambda due: due.memory.content, wraps=True),
    )
    blocks: list[Block] = [view.table(listed), Lines([""])] if listed else []
    blocks.append(Fields([("would be erased as old", counts(erased, empty=_ALL_KEPT))]))
    plain = {
        "results": [view.json(due) for due in listed],
        "due": len(plan.due),
        "looked_at": plan.looked_at,
        "is_cut": plan.is_cut,
        "erase": erased,
    }
    return Answer(plain, blocks)


def _janitor_status() -> Answer:
    from meritory.engine.quality import maintenance

    def job_text(job: JobLook) -> str:
        when = f", {clock_text(job.finished_at)}" if job.finished_at else ""
        return f"{job.key}: {job.state}{when}" + (f": {job.error}" if job.error else "")

    with opened(quiet=True) as memory:
        status = maintenance.status(memory.services, memory.scope.user)
        policy = memory.services.policy.janitor
    if not policy.enabled:
        note("the janitor is off: janitor.enabled")
    pairs = [
        ("sweep of this week", job_text(status.janitor)),
        ("erasing of today", job_text(status.retention)),
        ("demoted so far", str(status.demoted)),
        ("forgotten so far", str(status.forgotten)),
        ("erased so far", counts(status.erased, empty="nothing")),
        (
            "demoted after",
            f"{policy.user_stated_months} active months (user_stated), "
            f"{policy.episode_summary_months} (episode_summary), "
            f"{policy.assistant_derived_months} (assistant_derived)",
        ),
        ("then forgotten", "yes" if policy.cull else "no"),
    ]
    note("`meritory janitor --dry-run` lists what the next sweep would do")
    plain = {
        "enabled": policy.enabled,
        "cull": policy.cull,
        "janitor": _JOB.json(status.janitor),
        "retention": _JOB.json(status.retention),
        "demoted": status.demoted,
        "forgotten": status.forgotten,
        "erased": dict(status.erased),
    }
    return Answer(plain, [Fields(pairs)])


@command("run", "meritory janitor run --dry-run", janitor)
@click.option("--dry-run", is_flag=True, help="Only list what would be done, and why.")
@limit_option(DUE_LIMIT, DUE_LIMIT_MAX, "How many to list at most.")
def sweep(dry_run: bool, limit: int) -> Answer:
    """Sweep now, and erase old records.

    `meritory janitor undo` undoes a sweep; erased records cannot be restored.
    """
    if dry_run:
        return _sweep_preview(limit)
    from meritory.engine.quality import janitor as sweeping
    from meritory.engine.quality import maintenance

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        done = sweeping.run_now(services, memory.works.runner, user)
        erased = maintenance.erase(services, user)
    if done.demoted or done.forgotten:
        note("`meritory janitor undo` undoes all of it, `meritory undo ID` one change")
    pairs = [
        ("demoted", str(done.demoted)),
        ("forgotten", str(done.forgotten)),
        ("erased as old", counts(erased, empty=_ALL_KEPT)),
    ]
    plain = {"demoted": done.demoted, "forgotten": done.forgotten, "erased": erased}
    return Answer(plain, [Fields(pairs)])


@command("undo", "meritory janitor undo", janitor)
def undo_sweep() -> Answer:
    """Undo the latest sweep.

    Run it again to undo earlier sweeps. Later changes stay, and no restored memory is due again
    before its whole time has passed once more.
    """
    from meritory.engine.quality import janitor as sweeping

    with opened(quiet=True) as memory:
        week, count = sweeping.undo_sweep(memory.services, memory.scope.user)
    line = f"restored {count} memories to their state before the sweep of {week}"
    return line_answer(line, week=week, restored=count)


@command("status", "meritory janitor status", janitor)
def janitor_status() -> Answer:
    """Show the results of this week's sweep and today's erasing."""
    return _janitor_status()


# -- extraction -----------------------------------------------------------------------------

REFUSALS_LIMIT, REFUSALS_LIMIT_MAX = 50, 10_000
_SHORT_CHARS = 12
_REFUSALS: RecordView[Refusal] = RecordView(
    Field("id", "id", show=lambda name: name[:_SHORT_CHARS], style="cyan"),
    Field("at", "age", show=age, style="dim"),
    Field("agent", read=lambda refusal: refusal.scope.agent),
    Field("project", read=lambda refusal: refusal.scope.project),
    Field("session_key"),
    Field("kind", "kind"),
    Field("content", "text", wraps=True),
    Field("provenance"),
    Field("origin"),
    Field("confidence"),
    Field("turn"),
    Field("quote"),
    Field("reason", "why not", wraps=True),
    Field("extractor"),
    Field("memory_id"),
)


@group("extraction", "meritory extraction restore 3f9a0c")
def extraction() -> Answer:
    """List claims that extraction rejected.

    When a session ends, rules and, if configured, a model extract claims from it. Claims that
    would not help later or cannot be proved are rejected and listed here with the reason.
    """
    return _rejected(REFUSALS_LIMIT, 0)


@command("list", "meritory extraction list --limit 20", extraction)
@limit_option(REFUSALS_LIMIT, REFUSALS_LIMIT_MAX)
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to skip.")
def list_refusals(limit: int, offset: int) -> Answer:
    """List rejected claims that were not restored, latest first."""
    return _rejected(limit, offset)


def _rejected(limit: int, offset: int) -> Answer:
    from meritory.engine.quality import extraction

    with opened(quiet=True) as memory:
        records = extraction.list_refusals(memory.services, memory.scope.user, limit, offset)
    if not records:
        note("no claim was rejected")
    return _REFUSALS.answer(records)


@command("show", "meritory extraction show 3f9a0c", extraction)
@click.argument("name", metavar="ID")
def show(name: str) -> Answer:
    """Show one rejected claim with the words it is based on."""

    with opened(quiet=True) as memory:
        refusal = memory.services.store.refusal(memory.scope.user, name)
    plain = _REFUSALS.json(refusal)
    pairs = [(field.replace("_", " "), str(value)) for field, value in plain.items() if value]
    return Answer(plain, [Fields(pairs)])


@command("restore", "meritory extraction restore 3f9a0c", extraction)
@click.argument("name", metavar="ID")
def restore(name: str) -> Answer:
    """Store a rejected claim.

    Its trust does not change: a claim of an agent or a tool stays untrusted until
    `meritory confirm`.
    """
    from meritory.engine.quality import extraction

    with opened() as memory:
        record = extraction.restore_refusal(memory.services, memory.scope.user, name)
    if record.trust == "untrusted":
        note(f"only searches find it until `meritory confirm {record.id}`")
    return line_answer(
        f"stored as {record.id}: {record.content}",
        memory_id=record.id,
        content=record.content,
        kind=record.kind,
    )


@command("run", "meritory extraction run 7f3c2a", extraction)
@click.argument("session_key", metavar="SESSION")
def extract(session_key: str) -> Answer:
    """Extract claims from a finished session again, now and in this process.

    Earlier claims are not stored twice. Exits with 1 on failure; `meritory jobs` shows why.
    """
    from meritory.engine.jobs.runner import EXTRACT_JOB
    from meritory.engine.quality import extraction

    with opened() as memory:
        user = memory.scope.user
        extraction.extract_again(memory.services, user, session_key)
        memory.drain()
        job = memory.services.store.job(user, EXTRACT_JOB, session_key)
    is_done = job.state == "done"
    return line_answer(
        "done" if is_done else f"{job.state}: {job.error or 'not run yet'}",
        0 if is_done else 1,
        session_key=session_key,
        state=job.state,
        error=job.error,
    )
