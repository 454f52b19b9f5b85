"""Draw bars as SVG, by hand: no library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LABEL, BAR, GAP, ROW, HEAD = 220, 190, 46, 20, 44
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.bar { fill: #8c959f }
.ours { fill: #1f6feb }
.line { stroke: #57606a; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #d0d7de } .bar { fill: #6e7681 } .ours { fill: #58a6ff } .line { stroke: #c9d1d9 }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value, with its interval where there is one; None is drawn as a dash."""

    value: float | None
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One column of bars under a title, one for each label of the plot."""

    title: str
    bars: Sequence[Bar]


def svg(labels: Sequence[str], panels: Sequence[Panel], ours: str) -> str:
    """Return a plot: labels on the left, a panel of bars for each measure."""
    width = LABEL + len(panels) * (BAR + GAP) + GAP
    height = HEAD + len(labels) * ROW + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
    ]
    for row, label in enumerate(labels):
        weight = ' class="title"' if label == ours else ""
        parts.append(_text(LABEL - 10, _middle(row), label, f' text-anchor="end"{weight}'))
    for column, panel in enumerate(panels):
        parts += _panel(panel, LABEL + column * (BAR + GAP), labels, ours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, left: int, labels: Sequence[str], ours: str) -> list[str]:
    most = max((bar.high or bar.value or 0.0 for bar in panel.bars), default=0.0) or 1.0
    parts = [_text(left, 22, panel.title, ' class="title"')]
    for row, (label, bar) in enumerate(zip(labels, panel.bars, strict=True)):
        length = BAR * (bar.value or 0.0) / most
        kind = "ours" if label == ours else "bar"
        top = HEAD + row * ROW + 3
        if bar.value is not None:
            parts.append(
                f'<rect class="{kind}" x="{left}" y="{top}" width="{length:.1f}" '
                f'height="{ROW - 6}"/>'
            )
        if bar.low is not None and bar.high is not None:
            middle = top + (ROW - 6) / 2
            begin, end = (left + BAR * value / most for value in (bar.low, bar.high))
            parts.append(
                f'<line class="line" x1="{begin:.1f}" x2="{end:.1f}" y1="{middle}" y2="{middle}"/>'
            )
            length = max(length, end - left)
        parts.append(_text(left + length + 4, _middle(row), bar.text))
    return parts


def _middle(row: int) -> int:
    return HEAD + row * ROW + 14


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}"{more}>{escape(text)}</text>'
