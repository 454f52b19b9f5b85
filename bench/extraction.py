"""Measure the extractor without a model: python -m bench.extraction [--json P] [--errors].

Holds what the rules find in single turns of five public data sets against the labels in
bench/labels/extraction.tsv, whose header states the rule they follow. A turn counts as found when
at least one claim of it would be stored. Patterns were tuned on the even half; the odd one is
reported. Plain facts about the user and the project ("our CI runs on Buildkite") are none of these
ways: `bench.everyday_extraction` measures them. Exits with 1 when precision or recall of the
reported half is below its bar.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import datasets, report
from bench.datasets import MissingData, WrongData, data_root
from meritory.domain.session import Turn
from meritory.text.extract.rules import FoundClaim, read

LABELS = Path(__file__).resolve().parent / "labels" / "extraction.tsv"
NONE = "none"
WAYS = ("rule", "preference", "decision", "correction")
STREAMS = ("agent_specstory", "agent_calibrate")
MIN_PRECISION, MIN_RECALL = 0.85, 0.6
_Z = 1.96

Extract = Callable[[Sequence[Turn]], Sequence[Any]]
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Label:
    """What one turn says, by hand."""

    place: Place
    digest: str
    way: str
    kind: str

    @property
    def is_reported(self) -> bool:
        """Whether it is in the half that nothing was tuned on."""
        return int(self.digest[-1], 16) % 2 == 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found in a labelled turn: the kinds of its claims, and the first of them."""

    label: Label
    kinds: tuple[str, ...]
    text: str = ""
    claim: str = ""


def read_labels(path: Path = LABELS) -> list[Label]:
    """Return the labels of a file, lines with # left out."""
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
    return [Label((row[0], row[1], row[2]), row[3], row[4], row[5]) for row in rows]


def turns(root: Path) -> Iterator[tuple[Place, str]]:
    """Yield every turn of the five data sets with its place."""
    for corpus in datasets.load_longmemeval(root):
        for doc in corpus.docs:
            yield ("longmemeval", doc.session_key, str(doc.turn)), doc.text
    for corpus in datasets.load_beam(root):
        for doc in corpus.docs:
            _, number, message = doc.id.split("/")
            yield ("beam", number, message), doc.text
    for corpus in datasets.load_locomo(root):
        for doc in corpus.docs:
            said = doc.text.partition(": ")[2].partition(" [image: ")[0]
            yield ("locomo", doc.session_key.split("/")[0], doc.id.split("/")[1]), said
    for name in STREAMS:
        body = datasets._checked(root / "streams" / name / "sessions.jsonl").decode("utf-8")
        for row in map(json.loads, body.splitlines()):
            for turn, text in enumerate(row["all_prompts"]):
                yield (name, row["sid"], str(turn)), text


def cases(labels: Sequence[Label], root: Path) -> list[tuple[Label, str]]:
    """Return each label with its turn; WrongData when a turn is not the one that was labelled."""
    wanted = {label.place for label in labels}
    texts = {place: text for place, text in turns(root) if place in wanted}
    for label in labels:
        text = texts.get(label.place)
        if text is None or hashlib.sha256(text.encode()).hexdigest() != label.digest:
            raise WrongData(f"{'/'.join(label.place)} is not the turn that was labelled")
    return [(label, texts[label.place]) for label in labels]


def extract(turns: Sequence[Turn]) -> tuple[FoundClaim, ...]:
    """Return the claims that the rules keep, without plain facts, which no label here is about."""
    found = read(turns).candidates
    return tuple(claim for claim in found if not (claim.is_plain and claim.kind == "fact"))


def outcomes(found: Sequence[tuple[Label, str]], extractor: Extract = extract) -> list[Outcome]:
    """Return what an extractor makes of each turn, put after something that an agent said."""
    made = []
    for label, text in found:
        claims = extractor([Turn("assistant", "Here is what I did."), Turn("user", text)])
        first = claims[0].content if claims else ""
        made.append(Outcome(label, tuple(claim.kind for claim in claims), text, first))
    return made


def share(hits: int, total: int) -> dict[str, float | int | None]:
    """Return a share with its 95% Wilson interval; None where there is nothing to count."""
    if not total:
        return {"hits": 0, "total": 0, "share": None, "low": None, "high": None}
    p = hits / total
    middle = p + _Z * _Z / (2 * total)
    spread = _Z * math.sqrt(p * (1 - p) / total + _Z * _Z / (4 * total * total))
    scale = 1 + _Z * _Z / total
    return {
        "hits": hits,
        "total": total,
        "share": round(p, 3),
        "low": round(max(0.0, (middle - spread) / scale), 3),
        "high": round(min(1.0, (middle + spread) / scale), 3),
    }


def figures(made: Sequence[Outcome]) -> dict[str, Any]:
    """Return precision and recall, recall per way, and how often the kind is the expected one."""
    taken = [one for one in made if one.kinds]
    true = [one for one in taken if one.label.way != NONE]
    positive = [one for one in made if one.label.way != NONE]
    return {
        "turns": len(made),
        "positives": len(positive),
        "precision": share(len(true), len(taken)),
        "recall": share(len(true), len(positive)),
        "right kind": share(sum(one.label.kind in one.kinds for one in true), len(true)),
        **{f"recall, {way}": _recall(made, lambda one, way=way: one.way == way) for way in WAYS},
        **{
            f"recall, {name}": _recall(made, lambda one, name=name: one.place[0] == name)
            for name in ("beam", "longmemeval", *STREAMS[:1])
        },
    }


def _recall(made: Sequence[Outcome], belongs: Callable[..., bool]) -> dict[str, Any]:
    asked = [one for one in made if one.label.way != NONE and belongs(one.label)]
    return share(sum(bool(one.kinds) for one in asked), len(asked))


def missed_bars(reported: dict[str, Any]) -> list[str]:
    """Return which bars the reported half misses."""
    bars = (("precision", MIN_PRECISION), ("recall", MIN_RECALL))
    return [
        f"{name} {reported[name]['share']} is below {bar}"
        for name, bar in bars
        if (reported[name]["share"] or 0.0) < bar
    ]


def _told(name: str, value: Any) -> str:
    if not isinstance(value, dict):
        return f"{name:28} {value}"
    if value["share"] is None:
        return f"{name:28} none"
    interval = f"{value['low']:.2f}..{value['high']:.2f}"
    return f"{name:28} {value['share']:.3f}  {interval}  ({value['hits']} of {value['total']})"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both halves, and writes them where asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.extraction", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--errors", action="store_true", help="print what the tuned half gets wrong"
    )
    chosen = parser.parse_args(argv)
    try:
        found = cases(read_labels(), data_root())
    except MissingData as missing:
        print(missing)
        return 0
    began = time.perf_counter()
    made = outcomes(found)
    took_ms = (time.perf_counter() - began) * 1000 / len(made)
    halves: dict[str, Any] = {
        "tuned": figures([one for one in made if not one.label.is_reported]),
        "reported": figures([one for one in made if one.label.is_reported]),
    }
    for half, numbers in halves.items():
        print(f"{half} half\n" + "\n".join(_told(*item) for item in numbers.items()) + "\n")
    print(f"{took_ms:.2f} ms a turn, on average\n")
    if chosen.errors:
        for one in made:
            if not one.label.is_reported and bool(one.kinds) != (one.label.way != NONE):
                print(one.label.way, "|", one.claim, "|", one.text[:300].replace("\n", " / "))
    if chosen.json:
        report.write({**halves, "ms per turn": round(took_ms, 2)}, chosen.json)
    missed = missed_bars(halves["reported"])
    for bar in missed:
        print(f"MISSED {bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
