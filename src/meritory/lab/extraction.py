"""Compare two extractors on the same transcripts, by labels of the expected claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meritory.domain.errors import InputError
from meritory.domain.memory import Draft, MemoryRecord, Scope, Source
from meritory.domain.session import Turn
from meritory.engine.memories.recall import recall
from meritory.engine.memories.validate import checked_name, checked_tags, known_fields
from meritory.engine.memories.write import write
from meritory.lab.measure import MeasurePlan, Sandbox, anchored, measure
from meritory.lab.probes import Probe, means_the_same, read_expected, read_objects
from meritory.lab.results import plain_pair, statement
from meritory.rank.metrics import MIN_PAIRS, Floats, ProbeHit, overall, values
from meritory.text.extract.rules import FoundClaim
from meritory.text.normalize import check_text

KNOWN_READ = 8
_QUERY_LIMIT_CHARS = 2_000
_LABEL_FIELDS = ("expected", "question", "transcript", "tags", "notes")
_ASKED = ("p@1", "p@3", "mrr")
Report = Callable[[int, int], None]


Extract = Callable[[Sequence[Turn], Sequence[MemoryRecord]], Sequence[FoundClaim]]
# Conversations by their names.
Transcripts = Mapping[str, tuple[Turn, ...]]


@dataclass(frozen=True, slots=True)
class Arm:
    """A named extractor with its own throw-away store."""

    name: str
    extract: Extract
    sandbox: Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedClaim:
    """A claim that an extractor should find, in one transcript or in any, and a question for it."""

    expected: tuple[str, ...]
    transcript: str | None = None
    question: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extracted:
    """The result of one arm."""

    # The proposed texts by transcript.
    found: Mapping[str, tuple[str, ...]]
    stored: Mapping[str, int]
    is_found: tuple[bool, ...]
    # Whether a label matches each proposed text, by transcript.
    is_right: Mapping[str, tuple[bool, ...]]
    hits: tuple[ProbeHit, ...]


def read_labels(lines: Iterable[str], source: str) -> tuple[ExpectedClaim, ...]:
    """Parse the labels of a file, one JSON object per line."""
    labels = []
    for place, given in read_objects(lines, source):
        try:
            known_fields(given, _LABEL_FIELDS)
            question, transcript = given.get("question"), given.get("transcript")
            if question is not None:
                check_text(question, what="question")
            if transcript is not None:
                checked_name("transcript", transcript)
            label = ExpectedClaim(
                expected=read_expected(given.get("expected")),
                transcript=transcript,
                question=question,
                tags=checked_tags(given.get("tags", [])),
            )
        except InputError as error:
            raise InputError(f"{place}: {error.message}", hint=error.hint) from error
        labels.append(label)
    if not labels:
        raise InputError(
            f"there is no label in {source}",
            hint='a line looks like {"expected": "the port is 5433", "question": "which port?"}',
        )
    return tuple(labels)


def extraction_run(
    arm: Arm,
    transcripts: Transcripts,
    labels: Sequence[ExpectedClaim],
    report: Report = lambda done, total: None,
) -> Extracted:
    """Extract every transcript into the store of an arm, then ask that store."""
    for label in labels:
        if label.transcript is not None and label.transcript not in transcripts:
            raise InputError(
                f"a label names an unknown transcript: {label.transcript[:80]!r}",
                hint="use the file name without its extension, or remove it",
            )
    # An extractor is no person.
    services = replace(arm.sandbox.services, is_person=False)
    found: dict[str, tuple[str, ...]] = {}
    stored: Counter[str] = Counter()
    for done, (name, turns) in enumerate(transcripts.items(), start=1):
        # Earlier claims of the arm that match what the user said.
        asked = "\n".join(turn.text for turn in turns if turn.role == "user")[-_QUERY_LIMIT_CHARS:]
        hits = recall(services, Scope(services.user), asked, KNOWN_READ) if asked.strip() else []
        claims = arm.extract(turns, [hit.memory for hit in hits])
        drafts = [
            Draft(
                content=claim.content,
                user=services.user,
                kind=claim.kind,
                provenance=claim.provenance,
                origin=claim.origin,
                confidence=claim.confidence,
                source=Source(session_key=name, turn=str(claim.turn), extractor=arm.name),
            )
            for claim in claims
        ]
        stored.update(result.outcome for result in write(services, services.user, drafts))
        found[name] = tuple(claim.content for claim in claims)
        report(done, len(transcripts))
    # A claim that the store lacks counts as not found.
    probes = [
        Probe(question=label.question, expected=label.expected, tags=label.tags)
        for label in labels
        if label.question is not None
    ]
    outcomes = measure(arm.sandbox, probes, anchored(arm.sandbox, probes), MeasurePlan())
    return Extracted(
        found=found,
        stored=stored,
        is_found=tuple(
            any(_fits(label, name, text) for name, texts in found.items() for text in texts)
            for label in labels
        ),
        is_right={
            name: tuple(any(_fits(label, name, text) for label in labels) for text in texts)
            for name, texts in found.items()
        },
        hits=tuple(one.hit or ProbeHit(rank=None, tags=one.probe.tags) for one in outcomes),
    )


def _fits(label: ExpectedClaim, name: str, text: str) -> bool:
    """Whether a text of a transcript is the claim of a label."""
    if label.transcript not in (None, name):
        return False
    return any(means_the_same(expected, text) for expected in label.expected)


# -- both arms ------------------------------------------------------------------------------


def compared(
    names: tuple[str, str], sides: tuple[Extracted, Extracted], margin: float
) -> dict[str, Any]:
    """Compare the second arm with the first: per label, per question, per transcript."""
    left, right = sides
    found = [np.array(side.is_found, np.float64) for side in sides]
    metrics: dict[str, dict[str, Any]] = {"recall": plain_pair(found[0], found[1], margin)}
    if left.hits:
        metrics |= {
            name: plain_pair(values(left.hits, name), values(right.hits, name), margin)
            for name in _ASKED
        }
    precision = plain_pair(_precisions(left), _precisions(right), margin)
    # Paired by transcript; with too few of them it is reported and not judged.
    is_judged = precision["pairs"] >= MIN_PAIRS
    judged = {**metrics, "precision": precision} if is_judged else metrics
    verdict = overall([one["verdict"] for one in judged.values()])
    results = []
    for name, side in zip(names, sides, strict=True):
        flags = [flag for some in side.is_right.values() for flag in some]
        shares = {
            "precision": round(sum(flags) / len(flags), 6) if flags else None,
            "recall": round(sum(side.is_found) / len(side.is_found), 6),
        }
        outcomes = {"outcomes": dict(sorted(side.stored.items()))}
        amounts = {"proposed": len(flags), "right": sum(flags)}
        results.append({"id": name, **amounts, **shares, **outcomes})
    return {
        "verdict": verdict,
        "statement": statement(verdict, judged, len(left.is_found)),
        "margin": margin,
        "pairs": len(left.is_found),
        "questions": len(left.hits),
        "transcripts": len(left.found),
        "metrics": {**metrics, "precision": precision},
        "results": results,
    }


def _precisions(side: Extracted) -> Floats:
    """Return the share of right proposals by transcript; NaN where nothing was proposed."""
    shares = [np.mean(flags) if flags else np.nan for flags in side.is_right.values()]
    return np.array(shares, np.float64)
