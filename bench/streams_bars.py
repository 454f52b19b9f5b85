"""The bars of the streams: the figures that each regime and each control must reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.realmem import PREFIX, REPORTED_PEOPLE
from bench.streams_figures import Figures
from bench.streams_outcome import QUARTERS
from bench.streams_rows import BASELINE, FRECENCY, MIX, PREDICTOR, SERVED, TEXT

# -- complete: NDCG@10 of the baseline over a whole stream, and the recall of the pool.
LINES = {"agent_specstory": 0.446, "agent_calibrate": 0.724, "git_datasette_2h": 0.429}
POOL_LINES = {"agent_specstory": 0.90}
SERVED_MIX_TOLERANCE = 0.01
BASELINE_MIX_TOLERANCE = 0.02
PREDICTOR_RATIO = 1.08
SERVED_RATIO = 1.06
LEARNING_STREAMS = ("agent_specstory", "git_datasette_2h", "git_simonw3_2h")
SEED_RATIO = 2.4
QUARTER_TOLERANCE, QUARTER_SESSIONS = 0.02, 25
FIRST_INFLUENCE = {"agent_specstory": 60}
# -- transcripts
TRANSCRIPT_STREAM = "agent_entire_s"
LABEL_PRECISION, LABEL_RECALL = 0.8, 0.6
REFERENCE_RATIO = 1.15
COMPLETE_SHARE = 0.9
# -- ratings
RATED_STREAMS = tuple(f"{PREFIX}{person}" for person in REPORTED_PEOPLE)
LAST_QUARTER_RATIO = 1.05
# -- controls
TEXT_TOLERANCE = 0.005
MEAN_HARM, WORST_HARM = 0.003, 0.01
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure and the line that it must reach, or must not pass."""

    what: str
    value: float
    line: float
    is_ceiling: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the figure is on the right side; NaN never is."""
        if self.is_ceiling:
            return self.value <= self.line + _ROUNDING
        return self.value >= self.line - _ROUNDING

    def __str__(self) -> str:
        side = "above" if self.is_ceiling else "below"
        return f"{self.what} {self.value:.4f} is {side} {self.line:.4f}"


def bars(figures: Figures, complete_served: float | None = None) -> list[Bar]:
    """Return every bar of a stream; `complete_served` is its figure in the regime complete."""
    if figures.control is not None:
        return control_bars(figures)
    if figures.regime == "complete":
        return complete_bars(figures)
    if figures.regime == "ratings":
        return rating_bars(figures)
    return transcript_bars(figures, complete_served)


def missed(figures: Figures, complete_served: float | None = None) -> list[str]:
    """Return one line for each bar that was missed."""
    return [f"{figures.name}: {bar}" for bar in bars(figures, complete_served) if not bar.is_met]


def complete_bars(figures: Figures) -> list[Bar]:
    """Return the bars of a stream whose labels are complete; RealMem has none."""
    name, is_agent = figures.name, figures.name.startswith("agent_")
    if name.startswith(PREFIX):
        return []
    mix = figures.mean(MIX)
    found = [Bar("NDCG@10 of the baseline", figures.mean(BASELINE), LINES.get(name, 0.0))]
    found.append(Bar("pool recall", figures.pool_recall, POOL_LINES.get(name, 0.0)))
    if is_agent:
        found.append(Bar("served against mix", figures.mean(SERVED), mix - SERVED_MIX_TOLERANCE))
    elif name.startswith("git_"):
        line = mix - BASELINE_MIX_TOLERANCE
        found.append(Bar("baseline against mix", figures.mean(BASELINE), line))
    if name in LEARNING_STREAMS:
        found.append(Bar("predictor's ratio", figures.ratio(PREDICTOR), PREDICTOR_RATIO))
        found.append(Bar("served ratio", figures.ratio(SERVED), SERVED_RATIO))
    if name == "agent_specstory":
        found.append(Bar("predictor against seed fusion", figures.seed_ratio, SEED_RATIO))
    if figures.session_count // QUARTERS >= QUARTER_SESSIONS:
        bound = figures.worst_quarter
        found.append(Bar("bound of the worst quarter", bound, -QUARTER_TOLERANCE))
    if name in FIRST_INFLUENCE:
        first = figures.first_influence
        number = np.inf if first is None else first
        found.append(Bar("first active session", number, FIRST_INFLUENCE[name], is_ceiling=True))
    return found


def rating_bars(figures: Figures) -> list[Bar]:
    """Return the bars of a reported person with noisy ratings of the shown memories."""
    if figures.name not in RATED_STREAMS:
        return []
    served, text = figures.quarters(SERVED), figures.quarters(TEXT)
    found = [
        Bar(f"served in quarter {number} against text", *pair)
        for number, pair in enumerate(zip(served, text, strict=True), start=1)
    ]
    line = LAST_QUARTER_RATIO * text[-1]
    return [*found, Bar("served in the last quarter against 1.05 x text", served[-1], line)]


def transcript_bars(figures: Figures, complete_served: float | None = None) -> list[Bar]:
    """Return the bars of the stream of real transcripts."""
    if figures.name != TRANSCRIPT_STREAM:
        return []
    served = figures.mean(SERVED)
    reference = max(figures.mean(TEXT), figures.mean(FRECENCY))
    found = [
        Bar("precision of helped labels", figures.label_precision, LABEL_PRECISION),
        Bar("recall of helped labels", figures.label_recall, LABEL_RECALL),
        Bar(
            f"served against {REFERENCE_RATIO} x max(text, frecency)",
            served,
            REFERENCE_RATIO * reference,
        ),
    ]
    if figures.has_influence:
        low = figures.lead(PREDICTOR, BASELINE).low
        found.append(Bar("low end of predictor - baseline", low, 0.0))
    if complete_served is not None:
        line = COMPLETE_SHARE * complete_served
        found.append(Bar(f"served against {COMPLETE_SHARE} x served (complete)", served, line))
    return found


def control_bars(figures: Figures) -> list[Bar]:
    """Return the bars of a control: evidence without truth must do no harm in any run."""
    mean = float(np.mean(figures.harms))
    return [
        Bar("served - text of the worst run", min(figures.text_margins), -TEXT_TOLERANCE),
        Bar("mean harm of the model", mean, MEAN_HARM, is_ceiling=True),
        Bar("worst harm of the model", max(figures.harms), WORST_HARM, is_ceiling=True),
    ]
