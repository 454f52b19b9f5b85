"""The words of docs/comparison.md around its tables."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from bench.peers import page
from bench.peers.catalog import CONTROL, PRODUCT
from bench.peers.quality import DEPTH, METRICS
from bench.peers.speed import LIMIT, SEARCHES, STORES

Figures = Mapping[str, Any]

INTRO = """\
# Beside other memory systems

<!-- Made by `python -m bench.peers --render` from bench/results/peers.json. -->

Every system here answers the same questions over the same texts, on one machine, without a
network and without a language model. Each peer runs in an environment of its own, through its
documented calls, with its defaults.

```sh
python -m bench.peers --page                            # install, measure, write this page
python -m bench.peers --only meritory --merge --page    # the product again; keep the rest
python -m bench.peers --quick                           # a sample, in minutes
```
"""

SAME = """\
- Peers get the vectors of all-MiniLM-L6-v2 handed in, the default of Chroma and
  mcp-memory-service. So the table compares storing and ranking, not encoders. Meritory uses its
  own bundled 8 MB table.
- Meritory is also given what its calls take and the peers have no use for in a search: session,
  turn and date of each text. Peers store session, turn and role as metadata (txtai the text alone).
- Each row has its own run, named below. Ratios to FTS5 of the same process keep rows comparable;
  times in ms are those of a busy machine with two cores.
- Every system is asked for {depth} results; figures count the first 10, MRR all. RealMem is asked
  in order of time: a question sees only what was stored before it. LongMemEval (`--sets
  longmemeval --merge`) is judged by session: a ranking of turns is folded.
- Texts over 8,192 characters are split for all alike. LoCoMo is asked without its adversarial
  questions, RealMem's are those of Liam, Oliver and Sophie, on whom nothing was tuned. Meritory's
  constants were tuned on parts of LoCoMo, LongMemEval and BEAM 100K, those of the peers, as far
  as known, were not.
- A text that is stored already stands for its copies. Intervals are bootstrap intervals of 95%
  over questions.
"""

COST = """\
{count:,} memories stored in batches, then {stores} one at a time, then {searches} searches for
{limit} results, each in a fresh process. Times are CPU time of the whole process, p50 and p95,
divided by those of plain SQLite FTS5 (a file, one commit for each call, `ORDER BY rank LIMIT
{limit}`), which runs between the calls in the same process: a busy machine slows both. FTS5
itself takes {search} ms a search and {one} ms a store here, and {disk} bytes a memory.

Peers' times leave out making the vectors, because they are handed in: MiniLM takes {embed} ms of
CPU for one question (in numpy), {embed_ratio} times one FTS5 search. Meritory's times hold
everything. For a peer with its own encoder, add it to each search and store.
"""


def compose(figures: Figures) -> str:
    """Return the page."""
    return "\n".join(
        [
            INTRO,
            "## How well they find",
            "",
            *page.quality_table(figures),
            "",
            "![NDCG@10 of every system with its interval](images/comparison/quality.svg)",
            "",
            *_behind(figures),
            *_cost(figures),
            "## What is the same for all",
            "",
            SAME.format(depth=DEPTH),
            *_systems(figures),
            *_missing(figures),
            *_controls(figures),
            *_all_figures(figures),
        ]
    )


def _behind(figures: Figures) -> list[str]:
    gaps = page.behind(figures) or ["in no row by .001 or more"]
    lines = ["## Where Meritory is behind", ""]
    lines += ["In quality, the other row's lead in NDCG@10 over the same questions:", ""]
    lines += [*(f"- {gap}" for gap in gaps), ""]
    cheaper = page.cheaper(figures)
    if cheaper:
        lines += ["In cost, the systems that take less (theirs without making vectors):", ""]
        lines += [*(f"- {line}" for line in cheaper), ""]
    return lines


def _cost(figures: Figures) -> list[str]:
    rows = page.timed(figures)
    if not rows:
        return []
    speeds = [row["speed"] for row in rows]
    search = median(one["search"]["fts5_p50_ms"] for one in speeds)
    embed = figures["encoder"]["query_ms"]
    text = COST.format(
        count=max(one["memories"] for one in speeds),
        stores=STORES,
        searches=SEARCHES,
        limit=LIMIT,
        search=f"{search:.2f}",
        one=f"{median(one['store_one']['fts5_p50_ms'] for one in speeds):.2f}",
        disk=f"{median(one['fts5_bytes_each'] for one in speeds):,.0f}",
        embed=f"{embed:.1f}",
        embed_ratio=f"{embed / search:.0f}" if embed >= search else f"{embed / search:.1f}",
    )
    return [
        "## What it costs",
        "",
        text,
        *page.cost_table(figures),
        "",
        "![Speed, memory and disk of every system](images/comparison/cost.svg)",
        "",
    ]


def _systems(figures: Figures) -> list[str]:
    cells = [
        ("system", "versions", "licence", "calls", "settings", "handed in", "installed", "run")
    ]
    for row in page.ordered(figures):
        if row.get("plain") or row is figures["rows"].get(CONTROL):
            continue
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        size = f"{row['install_mb']:,.0f} MB" if row.get("install_mb") else page.DASH
        run = f"{row['measured']['date']}, {row['measured']['commit']}"
        cells.append(
            (
                *(row["title"], versions or page.DASH, row["licence"], row["calls"]),
                *(row["settings"] or "defaults", row["given"], size, run),
            )
        )
    return ["## Versions and settings", "", *page.rows_of(cells), ""]


def _missing(figures: Figures) -> list[str]:
    failed = [
        (title, f"{figures['sets'].get(part, {}).get('title', part)}: {why}")
        for title, part, why in page.failures(figures)
    ]
    lines = ["## What did not run", ""]
    if failed:
        lines += [*page.rows_of([("system", "part and reason"), *failed]), ""]
    left_out = sorted(figures["left_out"].items())
    return [*lines, *page.rows_of([("not installed", "reason"), *left_out]), ""]


def _controls(figures: Figures) -> list[str]:
    names = page.set_names(figures)
    cells = [["NDCG@10", *(figures["sets"][name]["title"] for name in names)]]
    for row in page.ordered(figures):
        found = [row["quality"].get(name) for name in names]
        shown = [page.short(one["shuffled labels"]) if one else page.DASH for one in found]
        cells.append([row["title"], *shown])
    faults = page.control_faults(figures)
    verdict = [f"**Failed:** {fault}" for fault in faults] or ["Both hold in every cell."]
    return [
        "## Controls",
        "",
        "A system that returns random memories must be far below every other row. Every row must",
        "fall to chance when each question is judged by the labels of another one:",
        "",
        *page.rows_of(cells),
        "",
        *verdict,
        "",
    ]


def _all_figures(figures: Figures) -> list[str]:
    lines = ["## All figures", ""]
    product = figures["rows"].get(PRODUCT)
    leads = {(name, row["title"]): gap for name, row, gap in page.compared(figures)}
    for name in page.set_names(figures):
        size = figures["sets"][name]
        head = (*METRICS, "Meritory's lead in NDCG@10", "not stored")
        cells = [(f"{size['title']}", *head)]
        for row in page.ordered(figures):
            found = row["quality"].get(name)
            if found is None:
                continue
            shown = [_with_interval(found[metric]) for metric in METRICS]
            gap = leads.get((name, row["title"]))
            lead = f"{gap[0]:+.3f} [{gap[1]:+.3f}, {gap[2]:+.3f}]" if gap else page.DASH
            cells.append((row["title"], *shown, lead, str(found["not stored"])))
        about = (
            f"{size['stores']} stores, {size['memories']:,} memories, "
            f"{size['questions']:,} questions."
        )
        lines += [about, "", *page.rows_of(cells), ""]
    assert product is not None
    return [*lines[:-1], ""]


def _with_interval(figure: Mapping[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{page.short(figure['mean'])} [{page.short(low)}, {page.short(high)}]"
