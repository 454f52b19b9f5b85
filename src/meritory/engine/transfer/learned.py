"""The learned part of an export: sessions with their labels, the predictor's state and models."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from meritory.domain.errors import InputError, MeritoryError
from meritory.engine.predictor.state import decoded
from meritory.engine.services import Services
from meritory.model import checkpoint
from meritory.store.contract.store import Transaction
from meritory.store.sql.session_rows import SessionRows, check_rows

NAMES = ("session", "predictor_state", "model")
LEFT_OUT = "sessions, uses, labels, comparisons and models"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class LearnedLine:
    """One line of the learned part; one of its fields is set."""

    session: SessionRows | None = None
    predictor_state: str | None = None
    model: checkpoint.Checkpoint | None = None


def learned_rows(services: Services, user: str) -> Iterator[dict[str, Any]]:
    """Yield the models, the predictor's state and every session, the oldest first."""
    store = services.store
    if services.shelves is not None:
        folder = services.shelves.of(user)
        for version in folder.versions():
            content = folder.path_of(version).read_bytes()
            yield {"model": base64.b64encode(content).decode()}
    keys: list[str] = []
    while page := store.sessions(user, _PAGE, before=keys[-1] if keys else None):
        keys += [session.key for session in page]
    for key in reversed(keys):
        yield {"session": store.session_rows(user, key)}
    if (state := store.predictor_state(user)) is not None:
        yield {"predictor_state": state}


def check_learned(row: dict[str, Any]) -> LearnedLine:
    """Check a line of the learned part."""
    if len(row) != 1:
        raise InputError("unknown kind of line")
    ((name, value),) = row.items()
    if name == "session":
        return LearnedLine(session=check_rows(value))
    if not isinstance(value, str):
        raise InputError(f"{name} must be text")
    if name == "model":
        return LearnedLine(model=_check_model(value))
    try:
        decoded(value)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InputError("the state of the predictor cannot be read") from error
    return LearnedLine(predictor_state=value)


def _check_model(text: str) -> checkpoint.Checkpoint:
    """Return a model, checked as one from a file."""
    try:
        content = base64.b64decode(text, validate=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.sgpt"
            path.write_bytes(content)
            path.chmod(0o600)
            return checkpoint.read(path)
    except (binascii.Error, ValueError, MeritoryError) as error:
        raise InputError(f"a model cannot be read: {error}") from error


def put_models(services: Services, user: str, lines: list[LearnedLine]) -> None:
    """Store models whose versions are not there yet."""
    models = [line.model for line in lines if line.model is not None]
    if not models or services.shelves is None:
        return
    folder = services.shelves.of(user)
    known = set(folder.versions())
    for model in models:
        if model.model_version not in known:
            folder.put(model)


def put_learned(transaction: Transaction, user: str, lines: list[LearnedLine]) -> None:
    """Store sessions that are not there yet, and the state of a predictor that learned nothing."""
    for line in lines:
        if line.session is not None:
            transaction.restore_session(user, line.session)
        current = decoded(transaction.predictor_state(user))
        if line.predictor_state is not None and current.standing.judged == 0:
            transaction.set_predictor_state(user, line.predictor_state)
