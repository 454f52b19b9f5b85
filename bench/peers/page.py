"""Turn the figures into a table, a page of the docs and two plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.peers.catalog import CONTROL, PRODUCT
from bench.peers.plot import Bar, Panel, svg
from bench.peers.quality import per_question
from bench.peers.timelines import SETS
from bench.report import ROOT
from meritory.rank.metrics import interval

PAGE = ROOT / "docs" / "comparison.md"
IMAGES = ROOT / "docs" / "images" / "comparison"
MAIN = "NDCG@10"
# A ranking held against the labels of other questions may come this near to a random order.
NEAR_CHANCE = 0.1
DASH = "-"

Figures = Mapping[str, Any]


def write(figures: Figures) -> None:
    """Write the page and its plots."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(markdown(figures), encoding="utf-8")
    for name, body in plots(figures).items():
        (IMAGES / name).write_text(body, encoding="utf-8")


def table(figures: Figures) -> str:
    """Return the figures as a table for a terminal."""
    names = set_names(figures)
    head = f"{'':34s}" + "".join(f"{name:>14s}" for name in names)
    lines = [f"{MAIN} (R@10)", head]
    for row in ordered(figures):
        cells = "".join(f"{quality_cell(row, name):>14s}" for name in names)
        lines.append(f"{row['title']:34s}{cells}")
    lines += ["", f"{'':34s}" + "".join(f"{name:>14s}" for name in COSTS)]
    for row in timed(figures):
        cells = "".join(f"{cell:>14s}" for cell in cost_cells(row))
        lines.append(f"{row['title']:34s}{cells}")
    lines += [""] + [f"FAILED {title}: {part}: {why}" for title, part, why in failures(figures)]
    lines += ["BEHIND " + gap for gap in behind(figures)]
    return "\n".join(lines)


def set_names(figures: Figures) -> list[str]:
    """Return the data sets in their usual order."""
    return sorted(figures["sets"], key=lambda name: SETS.index(name) if name in SETS else -1)


def ordered(figures: Figures) -> list[Mapping[str, Any]]:
    """Return the rows: the product, then by mean quality, the control last."""
    rows = figures["rows"]

    def place(name: str) -> tuple[int, float]:
        of = rows[name]["quality"].values()
        values = [one[MAIN]["mean"] for one in of]
        group = {PRODUCT: 0, CONTROL: 2}.get(name, 1)
        return group, -sum(values) / max(1, len(values))

    return [rows[name] for name in sorted(rows, key=place)]


def timed(figures: Figures) -> list[Mapping[str, Any]]:
    """Return the rows whose cost was measured, without the control."""
    return [
        row
        for row in ordered(figures)
        if "speed" in row and row is not figures["rows"].get(CONTROL)
    ]


def quality_cell(row: Mapping[str, Any], name: str) -> str:
    """Return NDCG@10 and R@10 of a row on a data set."""
    found = row["quality"].get(name)
    return f"{short(found[MAIN]['mean'])} ({short(found['R@10']['mean'])})" if found else DASH


def short(value: float) -> str:
    """Return a share with three digits and no leading zero."""
    text = f"{value:.3f}"
    return text.removeprefix("0") if value < 1 else text


COST_PARTS = (
    ("search p50", "search", "p50_ratio"),
    ("store one p50", "store_one", "p50_ratio"),
    ("store many", "store_many", "ratio"),
    ("peak memory", "peak_mb"),
    ("disk", "bytes_each"),
)
COSTS = (
    "search p50",
    "search p95",
    "store 1 p50",
    "store 1 p95",
    "store many",
    "peak MB",
    "B each",
)


def cost_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cost of a row: ratios to FTS5, memory and disk."""
    speed = row["speed"]
    one, search = speed["store_one"], speed["search"]
    ratios = (search["p50_ratio"], search["p95_ratio"], one["p50_ratio"], one["p95_ratio"])
    disk = f"{speed['bytes_each']:,}" if row["keeps_files"] else DASH
    many = speed["store_many"]["ratio"]
    return [*map(times, (*ratios, many)), f"{speed['peak_mb']:.0f}", disk]


def times(ratio: float) -> str:
    """Return a ratio as a reader wants it."""
    return f"{ratio:.1f}x" if ratio < 100 else f"{ratio:,.0f}x"


def failures(figures: Figures) -> list[tuple[str, str, str]]:
    """Return title, part and reason of everything that did not run."""
    return [
        (row["title"], part, why)
        for row in ordered(figures)
        for part, why in row["failures"].items()
    ]


def difference(figures: Figures, row: Mapping[str, Any], name: str) -> tuple[float, float, float]:
    """Return the product's lead over a row with its interval, question by question."""
    ours = per_question(figures["rows"][PRODUCT]["quality"][name])
    gaps = ours - per_question(row["quality"][name])
    return float(gaps.mean()), *interval(gaps)


def compared(
    figures: Figures,
) -> Iterable[tuple[str, Mapping[str, Any], tuple[float, float, float]]]:
    """Yield every data set and row beside the product, with the product's lead."""
    product = figures["rows"].get(PRODUCT, {"quality": {}})
    for name in set_names(figures):
        for row in ordered(figures):
            beside = row is not product and row is not figures["rows"].get(CONTROL)
            if beside and name in row["quality"] and name in product["quality"]:
                yield name, row, difference(figures, row, name)


def behind(figures: Figures) -> list[str]:
    """Say in one line each where a row is ahead of the product."""
    found = []
    for name, row, (gap, low, high) in compared(figures):
        if round(gap, 3) < 0.0:
            sure = "" if high < 0.0 else ", may be chance"
            title = figures["sets"][name]["title"]
            found.append(f"{title}: {row['title']} {-gap:+.3f} [{-high:+.3f}, {-low:+.3f}]{sure}")
    return found


def cheaper(figures: Figures) -> list[str]:
    """Say in one line for each cost which systems are below the product."""
    product = figures["rows"].get(PRODUCT, {})
    if "speed" not in product:
        return []
    found = []
    for title, *names in COST_PARTS:
        below = [
            row["title"]
            for row in timed(figures)
            if 0 < _part(row, names) < _part(product, names)
            and (row["keeps_files"] or names != ["bytes_each"])
        ]
        found += [f"{title}: {'; '.join(below)}"] if below else []
    return found


def _part(row: Mapping[str, Any], names: Sequence[str]) -> float:
    value: Any = row["speed"]
    for name in names:
        value = value[name]
    return float(value)


def control_faults(figures: Figures) -> list[str]:
    """Say where a control does not fail: random order, and the labels of other questions."""
    faults = []
    control = figures["rows"].get(CONTROL, {"quality": {}})
    for row in ordered(figures):
        for name, found in row["quality"].items():
            chance = control["quality"].get(name)
            if row is control or chance is None:
                continue
            mean, shuffled = found[MAIN]["mean"], found["shuffled labels"]
            lucky = chance[MAIN]["interval"][1]
            if mean <= lucky:
                faults.append(f"{row['title']} is no better than chance on {name}: {mean:.3f}")
            if shuffled > lucky + NEAR_CHANCE or shuffled > mean / 2:
                faults.append(f"{row['title']} ranks shuffled labels on {name}: {shuffled:.3f}")
    return faults


def plots(figures: Figures) -> dict[str, str]:
    """Return the plots by file name."""
    rows = ordered(figures)
    ours = figures["rows"][PRODUCT]["title"]
    quality = [
        Panel(
            f"{figures['sets'][name]['title']}, {MAIN}", [_quality_bar(row, name) for row in rows]
        )
        for name in set_names(figures)
    ]
    measured = timed(figures)
    cost = [
        Panel("search, CPU p50 / FTS5", [_bar(row, "search", "p50_ratio") for row in measured]),
        Panel(
            "store one, CPU p50 / FTS5", [_bar(row, "store_one", "p50_ratio") for row in measured]
        ),
        Panel("store many, CPU / FTS5", [_bar(row, "store_many", "ratio") for row in measured]),
        Panel("peak memory, MB", [_plain_bar(row["speed"]["peak_mb"]) for row in measured]),
        Panel("disk, bytes a memory", [_disk_bar(row) for row in measured]),
    ]
    return {
        "quality.svg": svg([row["title"] for row in rows], quality, ours),
        "cost.svg": svg([row["title"] for row in measured], cost, ours),
    }


def _quality_bar(row: Mapping[str, Any], name: str) -> Bar:
    found = row["quality"].get(name)
    if found is None:
        return Bar(None, DASH)
    low, high = found[MAIN]["interval"]
    return Bar(found[MAIN]["mean"], short(found[MAIN]["mean"]), low, high)


def _bar(row: Mapping[str, Any], part: str, name: str) -> Bar:
    return Bar(row["speed"][part][name], times(row["speed"][part][name]))


def _plain_bar(value: float) -> Bar:
    return Bar(value, f"{value:,.0f}")


def _disk_bar(row: Mapping[str, Any]) -> Bar:
    return _plain_bar(row["speed"]["bytes_each"]) if row["keeps_files"] else Bar(None, DASH)


def rows_of(cells: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; the first row is its head."""
    head, *body = [f"| {' | '.join(row)} |" for row in cells]
    return [head, "|" + "---|" * (head.count(" | ") + 1), *body]


def quality_table(figures: Figures) -> list[str]:
    """Return NDCG@10 (R@10) of all rows: the table of the README, too."""
    names = set_names(figures)
    sizes = [figures["sets"][name] for name in names]
    head = [f"{MAIN} (R@10)", *(f"{one['title']} ({one['questions']:,})" for one in sizes)]
    return rows_of(
        [head, *([_title(figures, row), *_cells(row, names)] for row in ordered(figures))]
    )


def cost_table(figures: Figures) -> list[str]:
    """Return speed, memory and disk of all measured rows."""
    head = (
        "CPU time relative to FTS5",
        *("search p50", "p95", "store one p50", "p95", "store many"),
        *("peak memory, MB", "disk, bytes a memory"),
    )
    return rows_of([head, *([_title(figures, row), *cost_cells(row)] for row in timed(figures))])


def _title(figures: Figures, row: Mapping[str, Any]) -> str:
    is_ours = row is figures["rows"].get(PRODUCT)
    return f"**{row['title']}**" if is_ours else str(row["title"])


def _cells(row: Mapping[str, Any], sets: Iterable[str]) -> list[str]:
    return [quality_cell(row, name) for name in sets]


def markdown(figures: Figures) -> str:
    """Return the whole page."""
    from bench.peers.page_text import compose

    return compose(figures)
