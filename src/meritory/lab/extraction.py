"""Two extractors on the same transcripts: what each finds of what is labelled, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from meritory.domain.errors import InputError
from meritory.domain.memory import Draft, Kind, MemoryRecord, Origin, Provenance, Scope, Source
from meritory.domain.session import Turn
from meritory.engine.memories.recall import recall
from meritory.engine.memories.validate import (
    checked_name,
    checked_tags,
    known_fields,
    only_proposed,
)
from meritory.engine.memories.write import write
from meritory.lab.measure import MeasurePlan, Sandbox, anchored, measure
from meritory.lab.probes import Probe, means_the_same, read_expected, read_object
from meritory.lab.results import plain_pair, statement
from meritory.rank import bootstrap
from meritory.rank.metrics import Floats, ProbeHit, values
from meritory.text.normalize import check_text

KNOWN_READ = 8
_QUERY_LIMIT_CHARS = 2_000
_LABEL_FIELDS = ("expected", "question", "transcript", "tags", "notes")
_ASKED = ("p@1", "p@3", "mrr")
Report = Callable[[int, int], None]


class ExtractedClaim(Protocol):
    """What an extractor proposes, as far as it is looked at here."""

    @property
    def content(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def provenance(self) -> Provenance: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def confidence(self) -> float: ...
    @property
    def turn(self) -> int: ...


Extract = Callable[[Sequence[Turn], Sequence[MemoryRecord]], Sequence[ExtractedClaim]]


@dataclass(frozen=True, slots=True)
class Arm:
    """An extractor under its name, with a throw-away store of its own."""

    name: str
    extract: Extract
    sandbox: Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedClaim:
    """Something an extractor should find, in one transcript or in any; and who would ask for it."""

    expected: tuple[str, ...]
    transcript: str | None = None
    question: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation under a name."""

    name: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Extracted:
    """What one arm made of everything."""

    # By transcript the texts that were proposed.
    found: Mapping[str, tuple[str, ...]]
    stored: Mapping[str, int]
    is_found: tuple[bool, ...]
    # By transcript, for each proposed text, whether a label asks for it.
    is_right: Mapping[str, tuple[bool, ...]]
    hits: tuple[ProbeHit, ...]


def read_labels(lines: Iterable[str], source: str) -> tuple[ExpectedClaim, ...]:
    """The labels of a file, one JSON object a line."""
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        place = f"line {number} of {source}"
        try:
            found.append(_label(read_object(text, place)))
        except InputError as error:
            if error.message.startswith(place):
                raise
            raise InputError(f"{place}: {error.message}", hint=error.hint) from error
    if not found:
        raise InputError(
            f"there is no label in {source}",
            hint='a line looks like {"expected": "the port is 5433", "question": "which port?"}',
        )
    return tuple(found)


def _label(given: Mapping[str, Any]) -> ExpectedClaim:
    known_fields(given, _LABEL_FIELDS)
    question, transcript = given.get("question"), given.get("transcript")
    if question is not None:
        check_text(question, what="question")
    if transcript is not None:
        checked_name("transcript", transcript)
    return ExpectedClaim(
        expected=read_expected(given.get("expected")),
        transcript=transcript,
        question=question,
        tags=checked_tags(given.get("tags", [])),
    )


def extraction_run(
    arm: Arm,
    transcripts: Sequence[Transcript],
    labels: Sequence[ExpectedClaim],
    report: Report = lambda done, total: None,
) -> Extracted:
    """Lets one arm read every transcript into its own store, then asks that store."""
    names = {one.name for one in transcripts}
    for label in labels:
        if label.transcript is not None and label.transcript not in names:
            raise InputError(
                f"a label is about {label.transcript[:80]!r}, and there is no such transcript",
                hint="name the file without its ending, or leave it out",
            )
    found: dict[str, tuple[str, ...]] = {}
    stored: dict[str, int] = {}
    for done, one in enumerate(transcripts, start=1):
        claims = arm.extract(one.turns, _known(arm, one))
        drafts = [_draft(arm, one, claim) for claim in claims]
        for result in write(arm.sandbox.services, arm.sandbox.services.user, drafts):
            stored[result.outcome] = stored.get(result.outcome, 0) + 1
        found[one.name] = tuple(claim.content for claim in claims)
        report(done, len(transcripts))
    return Extracted(
        found=found,
        stored=stored,
        is_found=tuple(_is_found(label, found) for label in labels),
        is_right={
            name: tuple(any(_fits(label, name, text) for label in labels) for text in texts)
            for name, texts in found.items()
        },
        hits=_hits(arm, labels),
    )


def _known(arm: Arm, transcript: Transcript) -> list[MemoryRecord]:
    """What the arm has learned before and might repeat, found by what the user said."""
    asked = "\n".join(turn.text for turn in transcript.turns if turn.role == "user")
    if not asked.strip():
        return []
    services = arm.sandbox.services
    scope = Scope(services.user)
    found = recall(services, scope, asked[-_QUERY_LIMIT_CHARS:], KNOWN_READ)
    return [one.memory for one in found]


def _draft(arm: Arm, transcript: Transcript, claim: ExtractedClaim) -> Draft:
    return only_proposed(
        Draft(
            content=claim.content,
            user=arm.sandbox.services.user,
            kind=claim.kind,
            provenance=claim.provenance,
            origin=claim.origin,
            confidence=claim.confidence,
            source=Source(session_key=transcript.name, turn=str(claim.turn), extractor=arm.name),
        )
    )


def _is_found(label: ExpectedClaim, found: Mapping[str, Sequence[str]]) -> bool:
    return any(_fits(label, name, text) for name, texts in found.items() for text in texts)


def _fits(label: ExpectedClaim, name: str, text: str) -> bool:
    if label.transcript not in (None, name):
        return False
    return any(means_the_same(expected, text) for expected in label.expected)


def _hits(arm: Arm, labels: Sequence[ExpectedClaim]) -> tuple[ProbeHit, ...]:
    """What the questions find in the arm's store; what it never extracted is not found."""
    probes = [
        Probe(question=label.question, expected=label.expected, tags=label.tags)
        for label in labels
        if label.question is not None
    ]
    anchors = anchored(arm.sandbox, probes)
    outcomes = measure(arm.sandbox, probes, anchors, MeasurePlan())
    return tuple(one.hit or ProbeHit(rank=None, tags=one.probe.tags) for one in outcomes)


# -- both arms ------------------------------------------------------------------------------


def compared(
    names: tuple[str, str], sides: tuple[Extracted, Extracted], margin: float
) -> dict[str, Any]:
    """The second arm against the first: per label, per question, per transcript."""
    left, right = sides
    told: dict[str, dict[str, Any]] = {
        "recall": plain_pair(_floats(left.is_found), _floats(right.is_found), margin)
    }
    if left.hits:
        told |= {
            name: plain_pair(values(left.hits, name), values(right.hits, name), margin)
            for name in _ASKED
        }
    precision = plain_pair(_precisions(left), _precisions(right), margin)
    # By transcript, of which there may be few; then it is told and not judged.
    is_judged = precision["pairs"] >= bootstrap.MIN_PAIRS
    judged = {**told, "precision": precision} if is_judged else told
    verdict = bootstrap.overall([one["verdict"] for one in judged.values()])
    return {
        "verdict": verdict,
        "statement": statement(verdict, judged, len(left.is_found)),
        "margin": margin,
        "pairs": len(left.is_found),
        "questions": len(left.hits),
        "transcripts": len(left.found),
        "metrics": {**told, "precision": precision},
        "results": [_arm(name, side) for name, side in zip(names, sides, strict=True)],
    }


def _floats(flags: Sequence[bool]) -> Floats:
    return np.array(flags, np.float64)


def _precisions(side: Extracted) -> Floats:
    """By transcript the share of right proposals; where nothing was proposed there is none."""
    shares = [np.mean(flags) if flags else np.nan for flags in side.is_right.values()]
    return np.array(shares, np.float64)


def _arm(name: str, side: Extracted) -> dict[str, Any]:
    flags = [flag for some in side.is_right.values() for flag in some]
    return {
        "id": name,
        "proposed": len(flags),
        "right": sum(flags),
        "precision": round(sum(flags) / len(flags), 6) if flags else None,
        "recall": round(sum(side.is_found) / len(side.is_found), 6),
        "outcomes": dict(sorted(side.stored.items())),
    }
