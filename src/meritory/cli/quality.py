"""Commands about the quality of the store: stats, gate, janitor, extraction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    ENTRY_NUMBER,
    command,
    group,
    handles,
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
    age,
    clock_text,
    counts,
    note,
    text_or_empty,
    to_json,
)
from meritory.domain.errors import InputError
from meritory.domain.memory import OUTCOMES

if TYPE_CHECKING:
    from meritory.engine.quality.figures import Audited, QualityFigures
    from meritory.engine.quality.maintenance import JobLook

# -- stats ----------------------------------------------------------------------------------

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
        figures = quality_figures.figures(memory.services, user, 100)
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
    memories = f"{plain['live']} live, {plain['deleted']} forgotten"
    pairs = [
        ("user", user),
        ("memories", f"{memories}, {plain['superseded']} superseded"),
        ("changes", f"{plain['history']} in the history"),
        ("entities", str(plain["entities"])),
        *((label, counts(plain[name])) for name, label in _GROUPS.items()),
        ("other events", counts(amounts)),
    ]
    return Answer(plain, Fields(pairs), "", "Quality", Fields(_quality_pairs(figures)))


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


AUDITED = RecordView("total wrong rate low high")

# -- gate -----------------------------------------------------------------------------------

AUDIT_LIMIT, AUDIT_LIMIT_MAX = 20, 1_000
_OUTCOMES = ("stored", "merged", "superseded", "kept_both")
_BY_WEEK = RecordView(
    Field("", "week of", "0"),
    *(Field("", name, f"1.{name}", lambda count: str(count or 0)) for name in _OUTCOMES),
    Field(
        "", "triggered", lambda pair: f"{1 - pair[1].get('stored', 0) / sum(pair[1].values()):.1%}"
    ),
)


@group(
    "gate",
    "meritory gate tune --sample 500",
    default="metrics",
    lazy={"tune": "meritory.lab.cli:tune"},
)
def gate() -> None:
    """Show what the similarity gate does, audit its merges and try other thresholds."""


@command("metrics", "meritory gate metrics", parent=gate)
def metrics() -> Answer:
    """Show how often the gate found a similar memory, the outcomes, and the share of errors."""
    from meritory.engine.quality import figures

    with opened_services() as (services, user):
        counters = services.store.counters(user)
        since = services.world.now() - timedelta(weeks=12)
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
    return Answer(plain, Fields(pairs), *_BY_WEEK.blocks(list(by_week.items()), ""))


def _merges(ids: Mapping[str, str]) -> RecordView:
    return RecordView(
        Field("entry.entry", "entry", style="cyan"),
        Field("id", "memory", "entry.memory_id", lambda name: ids.get(name, name), style="cyan"),
        Field("entry.at", "when", style="dim"),
        "entry.why",
        Field("before", "was", "entry.before.content", text_or_empty, wraps=True),
        Field("other", "merged with", "entry.other.content", text_or_empty, wraps=True),
        Field("after", "became", "entry.after.content", text_or_empty, wraps=True),
        Field("is_split", read="entry.undone"),
        "verdict",
    )


@command("audit", "meritory gate audit --right 4711 --right 4712 --wrong 4713", parent=gate)
@limit_option(AUDIT_LIMIT, AUDIT_LIMIT_MAX, "How many to list at most.")
@many_option(
    "--right", "right", "ENTRY", "This merge lost nothing; may be repeated.", type=ENTRY_NUMBER
)
@many_option(
    "--wrong",
    "wrong",
    "ENTRY",
    "This merge joined two different claims; may be repeated.",
    type=ENTRY_NUMBER,
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
    return Answer(plain, Fields([("wrong merges", audited_text(audited))]))


# -- janitor --------------------------------------------------------------------------------

DUE_LIMIT, DUE_LIMIT_MAX = 100, 5_000
_ALL_KEPT = "nothing: all is kept"
_JOB = RecordView("key state finished_at error")


@group("janitor", "meritory janitor --dry-run")
@click.option("--dry-run", is_flag=True, help="List what a sweep would do now, and why.")
def janitor(dry_run: bool) -> Answer:
    """Show the maintenance of the store: which memories are demoted, which records erased.

    The daemon sweeps once a week and erases once a day. A memory is demoted when it was not shown
    for months in which sessions that may see it took place; months without sessions do not count.
    """
    ctx = click.get_current_context()
    answer: Answer = _sweep_preview(DUE_LIMIT) if dry_run else ctx.invoke(janitor_status)
    return answer


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
    view = RecordView(
        Field("memory.id", "id", show=lambda name: ids.get(name, name), style="cyan"),
        Field("fate", "would"),
        Field("memory.provenance", "provenance"),
        Field("memory.project", "project", show=text_or_empty, style="magenta"),
        "memory.demotion idle_since active_months",
        Field("reason", "why", wraps=True),
        Field("memory.content", "content", wraps=True),
    )
    erasing = Fields([("would be erased as old", counts(erased, empty=_ALL_KEPT))])
    plain = {
        "results": [view.json(due) for due in listed],
        "due": len(plan.due),
        **RecordView("looked_at is_cut").json(plan),
        "erase": erased,
    }
    return Answer(plain, *view.blocks(listed), *([""] if listed else []), erasing)


@command("run", "meritory janitor run --dry-run", parent=janitor)
@click.option("--dry-run", is_flag=True, help="Only list what would be done, and why.")
@limit_option(DUE_LIMIT, DUE_LIMIT_MAX, "How many to list at most.")
def sweep(dry_run: bool, limit: int) -> Answer:
    """Sweep now, erase old records, and search for pairs to review.

    `meritory janitor undo` undoes a sweep; erased records cannot be restored.
    """
    if dry_run:
        return _sweep_preview(limit)
    from meritory.engine.quality import janitor as sweeping
    from meritory.engine.quality import maintenance, missed_pairs

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        done = sweeping.run_now(services, memory.works.runner, user)
        erased = maintenance.erase(services, user)
        searched = missed_pairs.search(services, user)
    if searched.found:
        note("`meritory review` asks about the pairs")
    if done.demoted or done.forgotten:
        note("`meritory janitor undo` undoes all of it, `meritory undo ID` one change")
    pairs = [
        ("demoted", str(done.demoted)),
        ("forgotten", str(done.forgotten)),
        ("erased as old", counts(erased, empty=_ALL_KEPT)),
        ("pairs found", f"{searched.found} in {searched.examined} memories"),
    ]
    plain = {
        **RecordView("demoted forgotten").json(done),
        "erased": erased,
        "pairs_found": searched.found,
        "examined": searched.examined,
    }
    return Answer(plain, Fields(pairs))


@command("undo", "meritory janitor undo", parent=janitor)
def undo_sweep() -> Answer:
    """Undo the latest sweep.

    Run it again to undo earlier sweeps. Later changes stay, and no restored memory is due again
    before its whole time has passed once more.
    """
    from meritory.engine.quality import janitor as sweeping

    with opened_services() as (services, user):
        week, count = sweeping.undo_sweep(services, user)
    line = f"restored {count} memories to their state before the sweep of {week}"
    return Answer({"week": week, "restored": count}, line)


@command("status", "meritory janitor status", parent=janitor)
def janitor_status() -> Answer:
    """Show the results of this week's sweep, today's erasing and today's search for pairs."""
    from meritory.engine.quality import maintenance

    def job_text(job: JobLook) -> str:
        when = f", {clock_text(job.finished_at)}" if job.finished_at else ""
        return f"{job.key}: {job.state}{when}" + (f": {job.error}" if job.error else "")

    with opened_services() as (services, user):
        status = maintenance.status(services, user)
        policy = services.policy.janitor
    if not policy.enabled:
        note("the janitor is off: janitor.enabled")
    months = (
        f"{policy.user_stated_months} active months (user_stated), "
        f"{policy.episode_summary_months} (episode_summary), "
        f"{policy.assistant_derived_months} (assistant_derived)"
    )
    pairs = [
        ("sweep of this week", job_text(status.janitor)),
        ("erasing of today", job_text(status.retention)),
        ("search for pairs of today", job_text(status.pairs)),
        ("pairs found so far", str(status.links_found)),
        ("demoted so far", str(status.demoted)),
        ("forgotten so far", str(status.forgotten)),
        ("erased so far", counts(status.erased, empty="nothing")),
        ("demoted after", months),
        ("then forgotten", "yes" if policy.cull else "no"),
    ]
    note("`meritory janitor --dry-run` lists what the next sweep would do")
    plain = {
        **RecordView("enabled cull").json(policy),
        "janitor": _JOB.json(status.janitor),
        "retention": _JOB.json(status.retention),
        "pairs": _JOB.json(status.pairs),
        **RecordView("links_found demoted forgotten erased").json(status),
    }
    return Answer(plain, Fields(pairs))


# -- extraction -----------------------------------------------------------------------------

_SHORT_CHARS = 12
_REFUSALS = RecordView(
    Field("id", "id", show=lambda name: name[:_SHORT_CHARS], style="cyan"),
    Field("at", "age", show=age, style="dim"),
    "agent project session_key",
    Field("kind", "kind"),
    Field("content", "text", wraps=True),
    "provenance origin confidence turn quote",
    Field("reason", "why not", wraps=True),
    "extractor memory_id",
)


@group("extraction", "meritory extraction restore 3f9a0c", default="list")
def extraction() -> None:
    """List claims that extraction rejected.

    When a session ends, rules and, if configured, a model extract claims from it. Claims that
    would not help later or cannot be proved are rejected and listed here with the reason.
    """


@command("list", "meritory extraction list --limit 20", parent=extraction)
@limit_option()
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to skip.")
@click.option("--project", metavar="NAME", help="Only claims from sessions of this project.")
def list_refusals(limit: int, offset: int, project: str | None) -> Answer:
    """List rejected claims that were not restored, latest first."""
    with opened_services() as (services, user):
        records = services.store.refusals(user, limit, offset, project)
    return _REFUSALS.answer(records, "no claim was rejected")


@command("show", "meritory extraction show 3f9a0c", parent=extraction)
@click.argument("name", metavar="ID")
def show(name: str) -> Answer:
    """Show one rejected claim with the words it is based on."""
    with opened_services() as (services, user):
        refusal = services.store.refusal(user, name)
    plain = _REFUSALS.json(refusal)
    pairs = [(field.replace("_", " "), str(value)) for field, value in plain.items() if value]
    return Answer(plain, Fields(pairs))


@command("restore", "meritory extraction restore 3f9a0c", parent=extraction)
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
    return Answer(
        {"memory_id": record.id, "content": record.content, "kind": record.kind},
        f"stored as {record.id}: {record.content}",
    )


@command("run", "meritory extraction run 7f3c2a", parent=extraction)
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
    return Answer(
        {"session_key": session_key, "state": job.state, "error": job.error},
        "done" if is_done else f"{job.state}: {job.error or 'not run yet'}",
        code=0 if is_done else 1,
    )
