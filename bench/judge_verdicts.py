"""Put cases before the judge, and read its verdicts as chances and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bench.judge_cases import Case, Reading
from bench.judge_figures import Flags, Floats, Judged
from bench.judge_fit import Names, Sample, chances_by_name
from meritory.domain.session import JudgedMemory
from meritory.engine.learning.judge import JUDGE_MIN_CHARS
from meritory.ports.judge import RulesJudge
from meritory.text.judge import evidence
from meritory.text.judge.evidence import USEFUL, known
from meritory.text.transcript import as_text


@dataclass(frozen=True, slots=True)
class Trace:
    """One judged session with the signals behind the chances."""

    judged: Judged
    signals: Floats
    # By candidate the name of the weights that the judge uses for it.
    names: Names
    shown: Flags

    def sample(self, name: str) -> Sample:
        """Return the candidates that have the weights of a name."""
        rows = self.names == name
        return Sample(self.signals[rows], self.judged.helped[rows])

    def rejudged(self, weights: Mapping[str, evidence.Weights]) -> Judged:
        """Return the session under other weights, without what the user corrected in it."""
        chances = chances_by_name(self.signals, self.names, weights)
        largest = np.array([weights[name].limit for name in self.names.tolist()])
        labels = np.where(known(chances, self.shown, largest), chances, np.nan)
        likely = labels[np.isfinite(labels) & (labels >= USEFUL)]
        confidence = float(likely.mean()) if len(likely) else 0.0
        return replace(self.judged, chances=chances, labels=labels, confidence=confidence)


def judge_case(case: Case) -> Trace:
    """Judge one case as the library does."""
    reading = case.read()
    table = evidence.build_table(case.exhibits)
    signals = evidence.signals(table, reading.digest)
    chances = evidence.chances(table, reading.digest)
    names = evidence.weights_names(table, reading.digest)
    labels, confidence = verdict(reading, case.exhibits)
    judged = Judged(case.stream, case.helped, chances, labels, confidence)
    return Trace(judged, signals, names, table.shown)


def verdict(reading: Reading, exhibits: tuple[JudgedMemory, ...]) -> tuple[Floats, float]:
    """Return the labels that the library takes from its judge, and the judge's confidence."""
    length = max(len(as_text(reading.told)), reading.digest.char_count)
    if length < JUDGE_MIN_CHARS:
        # So short a session is not judged.
        return np.full(len(exhibits), np.nan), 0.0
    found = RulesJudge().judge(reading.told, exhibits, reading.digest)
    labels = [np.nan if score is None else score for score in found.relevance]
    return np.array(labels, np.float64), found.confidence


def joined(traces: Iterable[Trace], name: str) -> Sample:
    """Return the candidates of many sessions that have the weights of a name."""
    return Sample.of([trace.sample(name) for trace in traces])
