"""The commands of the lab: `meritory eval` and `meritory gate tune`."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    command,
    count_option,
    current_home,
    current_settings,
    group,
    handles,
    many_option,
    new_file,
    opened,
)
from meritory.cli.output import Answer, Field, Fields, RecordView, bar, note, number
from meritory.cli.quality import AUDITED, audited_text
from meritory.domain.errors import InputError
from meritory.lab.laboratory import (
    ACTOR,
    METRIC_LABELS,
    changed_settings,
    compare_blocks,
    interval,
    laboratory,
    margin_option,
    opened_copy,
    parsed_values,
    probes_of,
    read_lines,
)

if TYPE_CHECKING:
    from meritory.domain.session import Turn
    from meritory.lab.extraction import Arm, Transcripts

POINTS_MAX = 200
GENERATED_COUNT, GENERATED_MAX = 50, 1_000
MISSED_SHOWN = 10
HASH_CHARS = 12
_EASY = (
    "generated questions share words with the memory they ask for, so they are easy; "
    "questions that you really asked are a better test"
)
Json = Mapping[str, Any]
Given = tuple[str, ...]
_decimal = number(".3f")


def _metric_columns(names: Iterable[str]) -> list[Field]:
    """Return a column with the mean of each metric, empty where it was not measured."""
    return [Field("", METRIC_LABELS[name], f"figures.{name}.mean", _decimal) for name in names]


@group("eval", "meritory eval run probes.jsonl --save before", invoke_without_command=False)
def evaluate() -> None:
    """Measure how well memories are found, on a copy.

    Every command works on its own temporary copy of the store, also while the daemon runs. The
    store itself is only read.
    """


# -- extraction -------------------------------------------------------------------------------

TRANSCRIPT_LIMIT_BYTES = 16 * 1024 * 1024
_KINDS = ("rules", "llm")
_ARMS = RecordView(
    Field("id", "extractor", style="cyan"),
    Field("proposed", "proposed"),
    Field("right", "right"),
    Field("precision", "precision", show=number(".3f")),
    Field("recall", "recall", show=number(".3f")),
)


@command(
    "extraction",
    "meritory eval extraction --a rules --b llm --transcripts talks/ --labels labels.jsonl",
    "meritory eval extraction --a llm --b my-prompt.txt --sessions --labels labels.jsonl",
    parent=evaluate,
)
@click.option("--a", "before", required=True, metavar="WHAT", help="rules, llm or a prompt file.")
@click.option("--b", "after", required=True, metavar="WHAT", help="The one to compare with it.")
@click.option(
    "--transcripts", "place", metavar="PATH", help="A transcript, or a folder of transcripts."
)
@click.option("--sessions", "with_sessions", is_flag=True, help="Your own recorded sessions.")
@click.option("--labels", required=True, metavar="FILE", help="The expected claims, one per line.")
@margin_option
def extraction(
    before: str, after: str, place: str | None, with_sessions: bool, labels: str, margin: float
) -> Answer:
    """Compare one extractor, or prompt, with another on the same transcripts.

    Each extracts into its own temporary store. Compared are the share of labels found, the answers
    of the store to the labels' questions (p@1, p@3, MRR), and the share of right proposals. Exits
    with 0 when the second passes, with 1 when it fails or there is not enough data.
    """
    from meritory.lab.extraction import compared, extraction_run, read_labels
    from meritory.rank.metrics import PASS

    if (place is None) != with_sessions:
        raise InputError(
            "give either --transcripts or --sessions", hint="name a folder, or use your sessions"
        )
    wanted = read_labels(read_lines(labels), labels)
    transcripts = _own_transcripts() if place is None else _named_transcripts(place)
    names, sides = [], []
    for kind in (before, after):
        with _arm(kind) as arm, bar(f"reading ({arm.name})") as report:
            names.append(arm.name)
            sides.append(extraction_run(arm, transcripts, wanted, report))
    if names[0] == names[1]:
        names = [f"{names[0]} (a)", f"{names[1]} (b)"]
    comparison = compared((names[0], names[1]), (sides[0], sides[1]), margin)
    blocks = [_ARMS.table(comparison["results"]), "", *compare_blocks(comparison)]
    return Answer(comparison, *blocks, code=0 if comparison["verdict"] == PASS else 1)


@contextlib.contextmanager
def _arm(kind: str) -> Iterator[Arm]:
    """Open an extractor with an empty store in a temporary folder."""
    from meritory.api.embedded import metered_llm
    from meritory.api.memory import Memory
    from meritory.lab.extraction import Arm
    from meritory.lab.measure import COPY_NAME, Sandbox, folder
    from meritory.ports.extractor import open_extractor

    settings = current_settings({"extraction.kind": "none", "judge.kind": "none"})
    name = kind if kind in _KINDS else os.path.expanduser(kind)
    with (
        folder() as home,
        Memory(home / COPY_NAME, settings=settings, actor=ACTOR, background=False) as memory,
    ):
        if kind not in _KINDS and not Path(name).is_file():
            raise InputError(
                f"{kind[:80]!r} is not an extractor", hint="use rules, llm, or a prompt file"
            )
        services, llm = memory.services, None
        if kind != "rules":
            llm = metered_llm(services.store, settings, services.world, "extract")
        extractor = open_extractor(name, llm, services.world)
        yield Arm(
            extractor.name,
            lambda turns, known: extractor.extract(turns, known).candidates,
            Sandbox(services),
        )


def _own_transcripts() -> Transcripts:
    with opened_copy() as (memory, _):
        store, user = memory.services.store, memory.scope.user
        keys = [session.key for session in store.sessions(user, 1_000)]
        recorded = {key: store.transcript(user, key) for key in reversed(keys)}
    transcripts = {key: turns for key, turns in recorded.items() if turns}
    if not transcripts:
        raise InputError("no session has a transcript", hint="name files with --transcripts")
    return transcripts


def _named_transcripts(name: str) -> Transcripts:
    """Read the transcript of a file, or those of a folder in the order of their names."""
    from meritory.text.transcript import read_transcript, redacted

    place = Path(os.path.expanduser(name))
    listed = sorted(place.iterdir()) if place.is_dir() else [place]
    suffixes = (place.suffix, ".json", ".jsonl") if listed == [place] else (".json", ".jsonl")
    files = [file for file in listed if file.is_file() and file.suffix in suffixes]
    if not files:
        raise InputError(
            f"there is no transcript in {place}", hint="transcripts end in .json or .jsonl"
        )
    transcripts: dict[str, tuple[Turn, ...]] = {}
    for file in files:
        if file.stat().st_size > TRANSCRIPT_LIMIT_BYTES:
            raise InputError(
                f"{file} has more than {TRANSCRIPT_LIMIT_BYTES:,} bytes", hint="split it"
            )
        if file.stem in transcripts:
            raise InputError(
                f"two transcripts have the name {file.stem}", hint="rename one of them"
            )
        try:
            lines = file.read_text("utf-8-sig")
            if file.suffix == ".jsonl":
                value: object = [json.loads(line) for line in lines.splitlines() if line.strip()]
            else:
                value = json.loads(lines)
            transcripts[file.stem] = redacted(read_transcript(value))
        except (ValueError, RecursionError) as error:
            hint = 'write a list of {"role", "text"}'
            raise InputError(f"{file} is not JSON", hint=hint) from error
        except InputError as error:
            raise InputError(f"{file}: {error.message}", hint=error.hint) from error
    return transcripts


# -- runs -----------------------------------------------------------------------------------

_FIGURES = RecordView(
    Field("", "", lambda pair: METRIC_LABELS[pair[0]], style="cyan"),
    Field("", "mean", lambda pair: f"{pair[1]['mean']:.3f}"),
    Field("", "95 %", lambda pair: interval(pair[1])),
)
_MISSED = RecordView(
    Field("question", "missed", wraps=True),
    Field("", "rank", lambda entry: entry["rank"] or None),
    Field("", "first instead", lambda entry: entry.get("instead", ""), wraps=True),
)
_RUNS = RecordView(
    Field("name", "name", style="cyan"),
    Field("", "when", lambda run: run["at"][:16].replace("T", " "), style="dim"),
    Field("", "set", lambda run: run["set_hash"][:HASH_CHARS]),
    Field("scored", "scored"),
    Field("drifted", "drifted"),
    *_metric_columns(METRIC_LABELS),
)


@command("run", "meritory eval run probes.jsonl --session --save before", parent=evaluate)
@click.argument("file")
@click.option("--session", "with_session", is_flag=True, help="Also measure session prompts.")
@click.option("--save", "name", metavar="NAME", help="Save the result under this name.")
def run(file: str, with_session: bool, name: str | None) -> Answer:
    """Ask every probe of a file and count how often its memory is found.

    FILE has one JSON object per line: a question, and the content of the memory that answers it.
    Probes whose memory is gone are counted separately.
    """
    from meritory.engine.quality import saved_runs

    probes = probes_of(file)
    if name is not None:
        saved_runs.checked_run_name(name)
    with laboratory(probes, with_session=with_session) as lab, bar("asking") as report:
        result = lab.run({}, report)
    if name is not None:
        result["saved"] = str(saved_runs.save(current_home(), name, result))
        note(f"saved; `meritory eval compare {name} OTHER` compares another run with it")
    if result["drifted"]:
        note(f"{result['drifted']} probes drifted: their memory is gone; --json lists them")
    apart = [f"{result[name]} {name}" for name in ("drifted", "moved") if result[name]]
    scored = f"{result['scored']} of {result['probes']}"
    pairs = [
        ("probes", scored + (f" ({', '.join(apart)})" if apart else "")),
        ("set", result["set_hash"][:HASH_CHARS]),
        ("store", f"{result['memories']} memories, {result['embedder'] or 'words only'}"),
    ]
    latency = result["latency_ms"]
    if latency:
        pairs.append(("a recall", f"{latency['p50']:.1f} ms, 95 % within {latency['p95']:.1f} ms"))
    if not result["scored"]:
        return Answer(result, Fields(pairs))
    tags = RecordView(
        Field("", "tag", "0", style="cyan"),
        Field("", "scored", "1.scored"),
        *(Field("", METRIC_LABELS[n], f"1.{n}", _decimal) for n in result["figures"]),
    )
    missed = [entry for entry in result["results"] if entry.get("rank", 1) != 1]
    more = len(missed) - MISSED_SHOWN
    return Answer(
        result,
        Fields(pairs),
        *_FIGURES.blocks(list(result["figures"].items()), ""),
        *tags.blocks(list(result["tags"].items()), ""),
        *_MISSED.blocks(missed[:MISSED_SHOWN], ""),
        *([f"and {more} more; --json has all"] if more > 0 else []),
    )


@command("list", "meritory eval list", parent=evaluate)
def list_runs() -> Answer:
    """List saved runs, latest first."""
    from meritory.engine.quality import saved_runs

    runs = saved_runs.saved(current_home())
    if not runs:
        note("no runs are saved yet; `meritory eval run FILE --save NAME` saves one")
    return Answer({"results": runs}, *_RUNS.blocks(runs))


@command("generate", "meritory eval generate probes.jsonl --count 50", parent=evaluate)
@click.argument("file")
@count_option("--count", GENERATED_COUNT, GENERATED_MAX, "How many at most.")
@click.option("--project", metavar="NAME", help="Only from memories of this project.")
def generate(file: str, count: int, project: str | None) -> Answer:
    """Generate probes from your own memories, to start with.

    FILE must not exist yet. No model is used: the questions consist of rare words of the memories,
    from all kinds, sources and projects. They are marked as generated.
    """
    from meritory.lab.probes import Anchors, probe_line
    from meritory.lab.probes import generate as generate_probes

    target = new_file(file)
    with opened_copy() as (memory, _):
        services = memory.services
        anchors = Anchors(services.store, services.user, services.world.now())
        live = [one for one in anchors.live.values() if project in (None, one.project)]
        probes = generate_probes(live, count)
    if not probes:
        raise InputError(
            f"none of {len(live)} memories has enough words for a question",
            hint="write some probes by hand; docs/operations/evaluation.md shows how",
        )
    lines = [f"# {_EASY}.", *map(probe_line, probes)]
    with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write("\n".join(lines) + "\n")
    note(_EASY)
    return Answer(
        {"file": str(target.absolute()), "count": len(probes), "memories": len(live)},
        f"{len(probes)} probes of {len(live)} memories in {os.path.expanduser(file)}",
    )


# -- one configuration against others ---------------------------------------------------------


@command(
    "compare",
    "meritory eval compare before after",
    "meritory eval compare probes.jsonl --before gate.threshold=0.9 --after gate.threshold=0.85",
    parent=evaluate,
)
@click.argument("runs", nargs=-1, metavar="BEFORE AFTER | FILE")
@many_option("--before", "before", "NAME=VALUE", "A setting of the first run.")
@many_option("--after", "after", "NAME=VALUE", "A setting of the second run.")
@click.option("--session", "with_session", is_flag=True, help="Also measure session prompts.")
@margin_option
def compare(
    runs: tuple[str, ...], before: Given, after: Given, with_session: bool, margin: float
) -> Answer:
    """Compare two runs, probe by probe, and say whether anything was lost.

    Takes two saved runs, or one file of probes that is asked under two settings. Exits with 0 when
    it passes, and with 1 when it fails or when there is not enough data.
    """
    from meritory.engine.quality import saved_runs
    from meritory.lab.results import compared
    from meritory.rank.metrics import PASS

    points = parsed_values(before), parsed_values(after)
    if not any(points):
        if len(runs) != 2:
            raise InputError(
                f"expected two saved runs, got {len(runs)}",
                hint="or one file of probes with --before and --after name=value",
            )
        if with_session:
            raise InputError("--session does not work with saved runs", hint="remove it")
        pair = [saved_runs.load(current_home(), name) for name in runs]
    else:
        if len(runs) != 1:
            raise InputError(
                "--before and --after need one file of probes, and no saved runs",
                hint="meritory eval compare probes.jsonl --after recall.vector_weight=0.5",
            )
        if points[0] == points[1]:
            raise InputError("--before and --after are the same", hint="change one of them")
        probes = probes_of(runs[0])
        with (
            laboratory(probes, with_session=with_session, points=points) as lab,
            bar("asking") as report,
        ):
            pair = lab.run_all(points, report)
    comparison = compared(pair[0], pair[1], margin)
    is_passed = comparison["verdict"] == PASS
    return Answer(comparison, *compare_blocks(comparison), code=0 if is_passed else 1)


@command(
    "sweep",
    "meritory eval sweep probes.jsonl",
    "meritory eval sweep probes.jsonl --set ranking.assistant_derived=0.6,0.7,0.85",
    parent=evaluate,
)
@click.argument("file")
@many_option(
    "--set",
    "given",
    "NAME=VALUE,VALUE",
    "Values to try; several settings are tried in all combinations.",
)
@click.option("--no-session", is_flag=True, help="Skip session prompts; faster.")
@margin_option
def sweep(file: str, given: tuple[str, ...], no_session: bool, margin: float) -> Answer:
    """Try many settings on the same probes.

    Without --set, weights, slope, floor and vector weight are varied one at a time. Each value of
    gate.threshold writes all memories of the copy again.
    """
    from meritory.lab.results import sweep as sweep_points

    points = _points(given)
    probes = probes_of(file)
    with (
        laboratory(probes, with_session=not no_session, points=points) as lab,
        bar("asking") as report,
    ):
        result = sweep_points(points, lab.run_all(points, report), margin)
    if lab.rebuilds:
        note("every store was written again from the copy, also for the first line")
    names = result["metrics"]
    view = RecordView(
        Field("", "", lambda row: "*" if row["on_front"] else ""),
        Field("id", "settings", style="cyan", wraps=True),
        *_metric_columns(names),
        Field("", "compared with today", lambda row: _change(row, names), wraps=True),
    )
    head = f"{result['scored']} of {result['probes']} probes; * no other is better in every metric"
    return Answer(result, *view.blocks(result["results"], head), "", result["statement"])


def _points(given: Sequence[str]) -> list[dict[str, str]]:
    """Return the configurations to try: first the current one, then the others."""
    if not given:
        from meritory.lab.results import DEFAULT_GRID

        today = changed_settings({})
        single = [
            {name: value}
            for name, values in DEFAULT_GRID.items()
            for value in values
            if float(value) != float(str(today.field(name)))
        ]
        return [{}, *single]
    axes = {
        name: [value.strip() for value in values.split(",") if value.strip()]
        for name, values in parsed_values(given).items()
    }
    for name, values in axes.items():
        if not values or len(set(values)) != len(values):
            raise InputError(f"{name} needs one or more different values", hint="NAME=0.6,0.7")
    count = math.prod(map(len, axes.values()))
    if count > POINTS_MAX:
        raise InputError(
            f"these values make {count:,} combinations", hint=f"at most {POINTS_MAX} are allowed"
        )
    combined = product(*axes.values())
    return [{}, *(dict(zip(axes, values, strict=True)) for values in combined)]


def _change(row: Json, names: Sequence[str]) -> str:
    """Return the differences from today that are more than chance, with their intervals."""
    if row["against"] is None:
        return "the current settings"
    metrics = {name: row["against"]["metrics"][name] for name in names}
    compared = {name: metric for name, metric in metrics.items() if metric["pairs"]}
    if not any(metric["won"] or metric["lost"] for metric in compared.values()):
        return "the same"
    clear = [
        f"{METRIC_LABELS[name]} {metric['mean']:+.3f} [{interval(metric, '+.3f')}]"
        for name, metric in compared.items()
        if metric["low"] > 0.0 or metric["high"] < 0.0
    ]
    return ", ".join(clear) or "within its interval"


# -- gate tune --------------------------------------------------------------------------------

SAMPLE_MAX, SECONDS_MAX = 20_000, 3_600


def _rows(threshold: float) -> RecordView:
    """Describe the trial of each threshold; the current one is marked."""
    now = round(threshold, 4)
    return RecordView(
        Field(
            "threshold",
            "threshold",
            show=lambda value: f"{value:g}{' (now)' if value == now else ''}",
        ),
        Field("pairs", "pairs", "pair_count"),
        Field("merged", "merge"),
        Field("superseded", "supersede"),
        Field("kept_both", "keep both"),
        Field("past_kept", "past merges kept"),
        Field("past_lost", "lost"),
    )


_EXAMPLES = RecordView(
    "threshold",
    Field("cosine", read=lambda example: round(example.cosine, 6)),
    Field("older", read=lambda e: {"id": e.older.id, "content": e.older.content}),
    Field("newer", read=lambda e: {"id": e.newer.id, "content": e.newer.content}),
    "reason",
)


@command("tune", "meritory gate tune --sample 500 --threshold 0.6 --threshold 0.7")
@click.option(
    "--threshold",
    "thresholds",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    metavar="COSINE",
    help="A threshold to try; may be repeated. Default: ten of them.",
)
@count_option("--sample", 2_000, SAMPLE_MAX, "How many of the latest memories to try.")
@count_option("--seconds", 60, SECONDS_MAX, "The time limit.")
def tune(thresholds: tuple[float, ...], sample: int, seconds: int) -> Answer:
    """Try other thresholds of the gate on your own memories; nothing is written.

    Each of the latest memories is compared with older ones as if it were new. The words decide
    what is merged, so a lower threshold finds more to merge and costs time, but loses no fact.
    """
    from meritory.lab import gate_tune

    with opened() as memory, bar("trying thresholds") as report:
        tuning = gate_tune.tune(
            memory.services,
            memory.scope.user,
            thresholds or gate_tune.THRESHOLDS,
            sample_count=sample,
            time_limit_s=seconds,
            progress=report,
        )
        ids = handles(memory, (m.id for one in tuning.examples for m in (one.older, one.newer)))
    if tuning.is_cut:
        note(f"only {tuning.looked_at} memories were tried in {seconds} s; raise --seconds")
    rows = _rows(tuning.threshold)
    plain = {
        **RecordView("embedder threshold is_chosen looked_at is_cut").json(tuning),
        "audited": AUDITED.json(tuning.audited),
        **RecordView("recommended why").json(tuning),
        "results": [rows.json(row) for row in tuning.rows],
        "examples": [_EXAMPLES.json(example) for example in tuning.examples],
    }
    chosen = "from the settings" if tuning.is_chosen else "calibrated for this embedder"
    pairs = [
        ("embedder", tuning.embedder),
        ("threshold now", f"{tuning.threshold:g} ({chosen})"),
        ("tried on", f"{tuning.looked_at} memories"),
        ("wrong merges", audited_text(tuning.audited)),
    ]
    lines = ["", "A lower threshold would also merge, for example:"] if tuning.examples else []
    for example in tuning.examples:
        lines.append(
            f"  from {example.threshold:g} on (cosine {example.cosine:.3f}): {example.reason}"
        )
        for record in (example.older, example.newer):
            lines.append(f"    {ids[record.id]}  {' '.join(record.content.split())}")
    if tuning.recommended is None:
        lines += ["", f"No change is recommended: {tuning.why}."]
    else:
        value = f"{tuning.recommended:g}"
        lines += ["", f"Recommended: {value}, for {tuning.why}. In config.toml:"]
        lines += ["", "[gate]", f"threshold = {value}"]
    return Answer(plain, Fields(pairs), *rows.blocks(tuning.rows, ""), *lines)
