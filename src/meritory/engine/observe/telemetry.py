"""Opt-in telemetry: numbers of judged sessions in a local file; no text, names or ids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from meritory.domain.access import Consent
from meritory.domain.errors import Busy, MeritoryError, StorageError
from meritory.domain.job import Job
from meritory.domain.session import SessionMemory, SessionRecord, SessionScore
from meritory.engine.services import Services
from meritory.rank.features import FEATURES
from meritory.store.contract.store import Transaction

LINE_VERSION: Final = 1
# The most bytes of the current and the previous file together.
FILE_LIMIT_BYTES: Final = 16_000_000
CANDIDATE_LIMIT: Final = 200
_DECIMALS = 4
# Slots are derived from names, so they are left out.
_NAMED: Final = frozenset(
    index for index, name in enumerate(FEATURES) if name in ("entity_slot", "aspect_slot")
)

# An example of a line.
EXAMPLE: Final = (
    '{"line_version":1,"candidate_count":40,"injected_count":1,"labelled_count":1,'
    '"prompt_count":3,"alpha":1.0,"model_version":null,"judge_confidence":0.8,"continuity":0.7,'
    '"is_excluded":0,"candidates":[{"feature_version":2,"features":[0.6931,0.5,0.0],"label":0.9,'
    '"agent_score":1.0,"judge_score":0.9,"hit_count":2,"rank":1,"baseline_rank":1,'
    '"predictor_rank":null,"was_injected":1,"propensity":1.0}]}'
)


@dataclass(frozen=True, slots=True)
class TelemetryFile:
    """The size of the telemetry on disk."""

    file: Path | None
    line_count: int
    size_bytes: int


def note_start(services: Services, user: str) -> None:
    """Store the date of the installation; a failure is counted, and the next start tries again."""
    try:
        if services.store.consent(user) is None:
            _save(services, user)
    except (StorageError, Busy) as error:
        services.observer.failed("consent", error)


def answer(services: Services, user: str, enabled: bool, *, is_asked: bool = False) -> Consent:
    """Store a user's yes or no; with `is_asked` also when the question was asked."""
    changes: dict[str, Any] = {"opt_in": enabled}
    if is_asked:
        changes["last_prompted_at"] = services.world.now()
    return _save(services, user, **changes)


def _save(services: Services, user: str, **changes: Any) -> Consent:
    now = services.world.now()

    def work(transaction: Transaction) -> Consent:
        consent = replace(transaction.consent(user) or Consent(install_date=now), **changes)
        transaction.put_consent(user, consent)
        return consent

    return services.store.write(user, work)


def keep(services: Services, job: Job) -> None:
    """Append one line about a learned session; a failure is counted and not raised.

    A session that is labelled again adds another line.
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
    """Return the numbers of one session: each value is a number, null or a list of them."""
    shown = [row for row in rows if row.label is not None or row.candidate.was_injected]
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
        "candidates": [
            {
                "feature_version": row.candidate.feature_version,
                "features": [
                    0.0 if index in _NAMED else _number(value)
                    for index, value in enumerate(row.candidate.features)
                ],
                "label": _number(row.label),
                "agent_score": _number(row.agent_relevance_score),
                "judge_score": _number(row.relevance_score),
                "hit_count": row.fts_hit_count,
                "rank": row.candidate.rank,
                "baseline_rank": row.candidate.baseline_rank,
                "predictor_rank": row.candidate.predictor_rank,
                "was_injected": int(row.candidate.was_injected),
                "propensity": _number(row.candidate.propensity),
            }
            for row in shown[:CANDIDATE_LIMIT]
        ],
    }


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DECIMALS)


def append(path: Path, line: dict[str, Any]) -> None:
    """Append a line to a private file; a full file is rotated."""
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
    """Return the path of the rotated file."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


def kept_lines(path: Path | None) -> Iterator[str]:
    """Yield every line, the oldest first."""
    for file in () if path is None else (former(path), path):
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as held:
                yield from (line.rstrip("\n") for line in held)


def kept(path: Path | None) -> TelemetryFile:
    """Return the number of lines and bytes."""
    lines = [len(line) + 1 for line in kept_lines(path)]
    return TelemetryFile(path, len(lines), sum(lines))


def erase(path: Path | None) -> int:
    """Delete all lines and return their number."""
    count = kept(path).line_count
    for file in () if path is None else (former(path), path):
        file.unlink(missing_ok=True)
    return count
