"""The doctor's checks: each finds what it is for, and none of them hides the others."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenure.flow import health
from tenure.flow.health import Check, Patient, examine, is_reembedding_due, worst
from tenure.memory import Memory
from tenure.ports.embed_static import STATIC_NAME
from tenure.ports.embedder import EmbedderSpec
from tenure.store.base import EmbedderInfo
from tenure.store.sqlite import SqliteStore

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patient]:
    """A healthy store with two memories, in a private folder."""
    home = tmp_path / "home"
    monkeypatch.setenv("TENURE_HOME", str(home))
    with Memory() as memory:
        memory.remember("The port is 5432")
        memory.remember("Tea, not coffee")
    yield Patient(home, home / "tenure.db", home / "backups", EmbedderSpec(), NOW, deep=True)


def found(patient: Patient) -> dict[str, Check]:
    """The checks by name."""
    checks = examine(patient)
    by_name = {check.name: check for check in checks}
    assert len(by_name) == len(checks)
    return by_name


def changed(patient: Patient, **fields: object) -> Patient:
    """The patient with other circumstances."""
    plain = {name: getattr(patient, name) for name in Patient.__slots__}
    return Patient(**{**plain, **fields})  # type: ignore[arg-type]


def test_a_healthy_store_is_well_in_every_respect(patient: Patient) -> None:
    checks = found(patient)
    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["store"].detail.startswith("2 memories, 1 user, ")
    assert "2 of 2 memories" in checks["vectors"].detail


def test_what_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "absent"
    checks = found(Patient(home, home / "tenure.db", home / "backups", EmbedderSpec(), NOW))
    assert worst(list(checks.values())) == "ok"
    assert "not there yet" in checks["store"].detail
    assert "not there yet" in checks["data folder"].detail
    assert not home.exists()


def test_the_worst_state_counts() -> None:
    well, doubtful, ill = (Check("x", state, "") for state in ("ok", "warn", "fail"))
    assert worst([]) == "ok"
    assert worst([well, doubtful]) == "warn"
    assert worst([doubtful, ill, well]) == "fail"


def test_an_open_folder_is_a_warning_and_stays_open(patient: Patient) -> None:
    patient.home.chmod(0o755)
    check = found(patient)["data folder"]
    assert (check.status, check.hint) == ("warn", f"chmod 700 {patient.home}")
    assert patient.home.stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_folders_place_fails(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    home = tmp_path / "home"
    checks = found(Patient(home, home / "tenure.db", home / "backups", EmbedderSpec(), NOW))
    assert checks["data folder"].status == "fail"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE memories SET content = 'The port is 5433' WHERE content LIKE '%5432'", "hash"),
        ("DELETE FROM memory_stats WHERE row = 1", "1 memories lack their counters"),
    ],
)
def test_a_deep_look_finds_damaged_rows(patient: Patient, statement: str, said: str) -> None:
    with sqlite3.connect(patient.store_file) as raw:
        raw.execute(statement)
    raw.close()
    check = found(patient)["contents, all rows"]
    assert check.status == "fail"
    assert said in check.detail
    assert "tenure restore" in check.hint
    assert found(changed(patient, deep=False))["contents"].status == "ok"


def test_a_damaged_file_fails_and_the_other_checks_still_run(patient: Patient) -> None:
    patient.store_file.write_bytes(b"garbage" * 1000)
    checks = found(patient)
    assert checks["store"].status == "fail"
    assert "tenure restore" in checks["store"].hint
    assert checks["embedder"].status == "ok"
    assert checks["disk"].status == "ok"
    assert patient.store_file.read_bytes() == b"garbage" * 1000


def test_an_empty_file_and_a_newer_schema_fail(patient: Patient) -> None:
    with sqlite3.connect(patient.store_file) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    assert "newer Tenure" in found(patient)["store"].detail
    patient.store_file.write_bytes(b"")
    assert found(patient)["store"].status == "fail"


def test_a_folder_in_the_stores_place_fails(patient: Patient, tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert found(changed(patient, store_file=tmp_path / "folder.db"))["store"].status == "fail"


def test_an_embedder_that_does_not_answer_fails(patient: Patient) -> None:
    away = EmbedderSpec(kind="openai", model="m", url="http://127.0.0.1:9/v1", timeout_ms=300)
    checks = found(changed(patient, spec=away))
    assert checks["embedder"].status == "fail"
    assert "vectors" not in checks
    nameless = EmbedderSpec(kind="openai", url="http://127.0.0.1:9/v1")
    assert found(changed(patient, spec=nameless))["embedder"].status == "fail"


def test_an_embedder_that_is_off_by_choice_is_well(patient: Patient) -> None:
    checks = found(changed(patient, spec=EmbedderSpec(kind="none")))
    assert checks["embedder"].status == "ok"
    assert "vectors" not in checks


def test_missing_vectors_are_a_warning(patient: Patient) -> None:
    with sqlite3.connect(patient.store_file) as raw:
        raw.execute("DELETE FROM memory_vectors WHERE row = 1")
    raw.close()
    check = found(patient)["vectors"]
    assert (check.status, "tenure reembed" in check.hint) == ("warn", True)
    assert check.detail.startswith("1 of 2 memories")


def test_little_space_is_a_warning_and_none_a_failure(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, status in ((1 << 40, "ok"), (100 << 20, "warn"), (1 << 20, "fail")):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(health.shutil, "disk_usage", lambda place, usage=usage: usage)
        assert found(patient)["disk"].status == status


def test_a_large_log_is_a_warning(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WAL_WARN_BYTES", 10)
    wal = patient.store_file.with_name("tenure.db-wal")
    holder = SqliteStore(patient.store_file)
    try:
        holder.write(lambda transaction: transaction.count("default", "x"))
        assert wal.stat().st_size > 10
        assert found(patient)["write-ahead log"].status == "warn"
    finally:
        holder.close()


def test_the_age_of_the_latest_backup_counts(patient: Patient) -> None:
    assert found(patient)["backup"].detail == "none yet"
    patient.backups.mkdir()
    for name, age_days in (("old.db", 90), ("new.db", 31)):
        moment = (NOW - timedelta(days=age_days)).timestamp()
        (patient.backups / name).touch()
        os.utime(patient.backups / name, (moment, moment))
    check = found(patient)["backup"]
    assert (check.status, "the latest of 2 is of 2026-05-01" in check.detail) == ("warn", True)
    assert found(changed(patient, now=NOW - timedelta(days=2)))["backup"].status == "ok"


@pytest.mark.parametrize(
    ("served_by", "wanted", "is_due"),
    [
        (EmbedderSpec(), EmbedderSpec(), False),
        (EmbedderSpec(), EmbedderSpec(kind="none"), False),
        (EmbedderSpec(), EmbedderSpec(document_prefix="passage: "), False),
        (EmbedderSpec(), EmbedderSpec(kind="openai", model="m"), True),
        (EmbedderSpec("openai", "m"), EmbedderSpec("openai", "m"), False),
        (EmbedderSpec("openai", "m"), EmbedderSpec("openai", "m", query_prefix="q: "), False),
        (EmbedderSpec("openai", "m"), EmbedderSpec("openai", "m", url="http://there/v1"), False),
        (EmbedderSpec("openai", "m"), EmbedderSpec("openai", "m", document_prefix="p: "), True),
        (EmbedderSpec("openai", "m"), EmbedderSpec("openai", "n"), True),
        (EmbedderSpec("openai", "m"), EmbedderSpec(), True),
    ],
)
def test_another_embedder_means_work_to_do(
    store: SqliteStore, served_by: EmbedderSpec, wanted: EmbedderSpec, is_due: bool
) -> None:
    name = STATIC_NAME if served_by.kind == "static" else "a server's"
    store.register_embedder(EmbedderInfo(name, 3, json.dumps(asdict(served_by))))
    assert is_reembedding_due(store, wanted) is is_due


def test_a_new_release_of_the_static_embedder_means_work_to_do(store: SqliteStore) -> None:
    store.register_embedder(EmbedderInfo("static-of-old", 3, json.dumps(asdict(EmbedderSpec()))))
    assert is_reembedding_due(store, EmbedderSpec())


def test_a_new_store_has_nothing_to_embed(store: SqliteStore) -> None:
    assert not is_reembedding_due(store, EmbedderSpec())
