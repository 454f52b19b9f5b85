"""The numbers that are kept of judged sessions once a user said yes: no text, no names, no ids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meritory.domain.errors import MeritoryError
from meritory.domain.job import Job
from meritory.domain.session import SessionMemory, SessionRecord, SessionScore
from meritory.engine.services import Services
from meritory.rank.features import FEATURES

LINE_VERSION: Final = 1
# The file and the one before it have so much together, at most.
FILE_LIMIT_BYTES: Final = 16_000_000
CANDIDATE_LIMIT: Final = 200
_DECIMALS = 4
# Slots are drawn from names: they are left out as names are.
_NAMED: Final = frozenset(
    place for place, name in enumerate(FEATURES) if name in ("entity_slot", "aspect_slot")
)

# What a line looks like, for who has none yet.
EXAMPLE: Final = (
    '{"line_version":1,"candidate_count":40,"injected_count":1,"labelled_count":1,'
    '"prompt_count":3,"alpha":1.0,"model_version":null,"judge_confidence":0.8,"continuity":0.7,'
    '"is_excluded":0,"candidates":[{"feature_version":2,"features":[0.6931,0.5,0.0],"label":0.9,'
    '"agent_score":1.0,"judge_score":0.9,"hit_count":2,"rank":1,"baseline_rank":1,'
    '"predictor_rank":null,"was_injected":1,"propensity":1.0}]}'
)


@dataclass(frozen=True, slots=True)
class TelemetryFile:
    """What is on disk."""

    file: Path | None
    line_count: int
    size_bytes: int


def keep(services: Services, job: Job) -> None:
    """Appends one line about a session that was learned from; a failure is counted, never raised.

    A session that is labelled anew gives another line.
    """
    if services.telemetry_file is None:
        return
    store = services.store
    try:
        consent = store.consent(job.user)
        if consent is None or consent.opt_in is not True:
            return
        session = store.session(job.user, job.key)
        rows = store.session_memories(job.user, job.key)
        line = line_of(session, rows, store.session_score(job.user, job.key))
        append(services.telemetry_file, line)
    except (OSError, ValueError, MeritoryError) as error:
        services.observer.failed("telemetry", error)


def line_of(
    session: SessionRecord, rows: Sequence[SessionMemory], score: SessionScore | None
) -> dict[str, Any]:
    """The numbers of one session; every value is a number, null or a list of them."""
    told = [row for row in rows if row.label is not None or row.candidate.was_injected]
    return {
        "line_version": LINE_VERSION,
        "candidate_count": len(rows),
        "injected_count": sum(row.candidate.was_injected for row in rows),
        "labelled_count": sum(row.label is not None for row in rows),
        "prompt_count": session.prompt_count,
        "alpha": _number(session.alpha),
        "model_version": session.model_version,
        "judge_confidence": _number(score.confidence if score else None),
        "continuity": _number(score.score if score else None),
        "is_excluded": int(score is None or score.excluded is not None),
        "candidates": [_candidate(row) for row in told[:CANDIDATE_LIMIT]],
    }


def _candidate(row: SessionMemory) -> dict[str, Any]:
    served = row.candidate
    return {
        "feature_version": served.feature_version,
        "features": [
            0.0 if place in _NAMED else _number(value)
            for place, value in enumerate(served.features)
        ],
        "label": _number(row.label),
        "agent_score": _number(row.agent_relevance_score),
        "judge_score": _number(row.relevance_score),
        "hit_count": row.fts_hit_count,
        "rank": served.rank,
        "baseline_rank": served.baseline_rank,
        "predictor_rank": served.predictor_rank,
        "was_injected": int(served.was_injected),
        "propensity": _number(served.propensity),
    }


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DECIMALS)


def append(path: Path, line: dict[str, Any]) -> None:
    """Adds a line to a file that only its owner can read; a full one makes way for a new one."""
    raw = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if path.exists() and path.stat().st_size + len(raw) > FILE_LIMIT_BYTES // 2:
        os.replace(path, former(path))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, raw)
    finally:
        os.close(descriptor)


def former(path: Path) -> Path:
    """Where a full file goes."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


def kept_lines(path: Path | None) -> Iterator[str]:
    """Every line that was kept, the oldest first."""
    for file in () if path is None else (former(path), path):
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as held:
                yield from (line.rstrip("\n") for line in held)


def kept(path: Path | None) -> TelemetryFile:
    """How much was kept."""
    lines = [len(line) + 1 for line in kept_lines(path)]
    return TelemetryFile(path, len(lines), sum(lines))


def erase(path: Path | None) -> int:
    """Deletes all that was kept; returns how many lines there were."""
    count = kept(path).line_count
    for file in () if path is None else (former(path), path):
        file.unlink(missing_ok=True)
    return count
