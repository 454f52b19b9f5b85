"""The doctor's checks: each finds what it is for, and none of them hides the others."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from meritory.domain.memory import EmbedderInfo
from meritory.domain.place import Place
from meritory.domain.policy import EmbedderSpec
from meritory.engine.observe import health
from meritory.engine.observe.health import (
    HealthCheck,
    HealthFacts,
    examine,
    is_reembedding_due,
    worst,
)
from meritory.ports.embedder import STATIC_NAME
from meritory.store.contract.store import Store
from meritory.store.sqlite.store import SqliteStore
from places import Places

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def patient(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthFacts:
    """A healthy store with two memories, beside a private folder."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("MERITORY_HOME", str(home))
    with places.memory() as memory:
        memory.remember("The port is 5432")
        memory.remember("Tea, not coffee")
    return HealthFacts(home, places.place(), home / "backups", EmbedderSpec(), NOW, deep=True)


def in_home(home: Path) -> Place:
    """Where the store of a data folder lies."""
    return Place(file=home / "meritory.db")


def file_of(patient: HealthFacts) -> Path:
    """The file of the store that is examined."""
    assert patient.place.file is not None
    return patient.place.file


def found(patient: HealthFacts) -> dict[str, HealthCheck]:
    """The checks by name."""
    checks = examine(patient)
    by_name = {check.name: check for check in checks}
    assert len(by_name) == len(checks)
    return by_name


def changed(patient: HealthFacts, **fields: object) -> HealthFacts:
    """The patient with other circumstances."""
    plain = {name: getattr(patient, name) for name in HealthFacts.__slots__}
    return HealthFacts(**{**plain, **fields})  # type: ignore[arg-type]


def test_a_healthy_store_is_well_in_every_respect(patient: HealthFacts) -> None:
    checks = found(patient)
    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["store"].detail.startswith("2 memories, 1 user, ")
    assert "2 of 2 memories" in checks["vectors"].detail


def test_what_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "absent"
    checks = found(HealthFacts(home, in_home(home), home / "backups", EmbedderSpec(), NOW))
    assert worst(list(checks.values())) == "ok"
    assert "does not exist yet" in checks["store"].detail
    assert "does not exist yet" in checks["data folder"].detail
    assert not home.exists()


def test_the_worst_state_counts() -> None:
    well, doubtful, ill = (HealthCheck("x", state, "") for state in ("ok", "warn", "fail"))
    assert worst([]) == "ok"
    assert worst([well, doubtful]) == "warn"
    assert worst([doubtful, ill, well]) == "fail"


def test_an_open_folder_is_a_warning_and_stays_open(patient: HealthFacts) -> None:
    patient.home.chmod(0o755)
    check = found(patient)["data folder"]
    assert (check.status, check.hint) == ("warn", f"chmod 700 {patient.home}")
    assert patient.home.stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_folders_place_fails(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    home = tmp_path / "home"
    checks = found(HealthFacts(home, in_home(home), home / "backups", EmbedderSpec(), NOW))
    assert checks["data folder"].status == "fail"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE memories SET content = 'The port is 5433' WHERE content LIKE '%5432'", "hash"),
        ("DELETE FROM memory_stats WHERE row = 1", "1 memories lack their counters"),
    ],
)
def test_a_deep_look_finds_damaged_rows(
    patient: HealthFacts, places: Places, statement: str, said: str
) -> None:
    places.execute(statement)
    check = found(patient)["contents, all rows"]
    assert check.status == "fail"
    assert said in check.detail
    assert "meritory restore" in check.hint
    assert found(changed(patient, deep=False))["contents"].status == "ok"


@pytest.mark.files_only("the bytes of the file are damaged")
def test_a_damaged_file_fails_and_the_other_checks_still_run(patient: HealthFacts) -> None:
    file_of(patient).write_bytes(b"garbage" * 1000)
    checks = found(patient)
    assert checks["store"].status == "fail"
    assert "meritory restore" in checks["store"].hint
    assert checks["embedder"].status == "ok"
    assert checks["disk"].status == "ok"
    assert file_of(patient).read_bytes() == b"garbage" * 1000


@pytest.mark.files_only("the bytes of the file are damaged")
def test_an_empty_file_and_a_newer_schema_fail(patient: HealthFacts) -> None:
    with sqlite3.connect(file_of(patient)) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    assert "newer Meritory" in found(patient)["store"].detail
    file_of(patient).write_bytes(b"")
    assert found(patient)["store"].status == "fail"


@pytest.mark.files_only("a folder lies in the place of the file")
def test_a_folder_in_the_stores_place_fails(patient: HealthFacts, tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert (
        found(changed(patient, place=Place(file=tmp_path / "folder.db")))["store"].status == "fail"
    )


def test_an_embedder_that_does_not_answer_fails(patient: HealthFacts) -> None:
    away = EmbedderSpec(kind="openai", model="m", url="http://127.0.0.1:9/v1", timeout_ms=300)
    checks = found(changed(patient, spec=away))
    assert checks["embedder"].status == "fail"
    assert "vectors" not in checks
    nameless = EmbedderSpec(kind="openai", url="http://127.0.0.1:9/v1")
    assert found(changed(patient, spec=nameless))["embedder"].status == "fail"


def test_an_embedder_that_is_off_by_choice_is_well(patient: HealthFacts) -> None:
    checks = found(changed(patient, spec=EmbedderSpec(kind="none")))
    assert checks["embedder"].status == "ok"
    assert "vectors" not in checks


def test_missing_vectors_are_a_warning(patient: HealthFacts, places: Places) -> None:
    places.execute("DELETE FROM memory_vectors WHERE row = 1")
    check = found(patient)["vectors"]
    assert (check.status, "meritory reembed" in check.hint) == ("warn", True)
    assert check.detail.startswith("1 of 2 memories")


@pytest.mark.files_only("only files lie on a disk of ours")
def test_little_space_is_a_warning_and_none_a_failure(
    patient: HealthFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for total, free, status, detail in (
        (1 << 40, 1 << 39, "ok", "512.0 GiB free"),
        (1 << 40, 100 << 20, "warn", "nearly full, 100.0 MiB free"),
        # A small disk that is empty by half is not nearly full, one with little space is.
        (200 << 20, 100 << 20, "ok", "100.0 MiB free"),
        (30 << 20, 29 << 20, "warn", "nearly full, 29.0 MiB free"),
        (1 << 40, 2 << 20, "warn", "nearly full, 2.0 MiB free"),
        (1 << 40, (1 << 20) - 1, "fail", "full, 1024.0 KiB free"),
        (1 << 40, 0, "fail", "full, 0 bytes free"),
    ):
        usage = (total, total - free, free)
        monkeypatch.setattr(health.shutil, "disk_usage", lambda place, usage=usage: usage)
        check = found(patient)["disk"]
        assert (check.status, check.detail) == (status, detail)


@pytest.mark.files_only("the write-ahead log is a file of SQLite")
def test_a_large_log_is_a_warning(patient: HealthFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WAL_WARN_BYTES", 10)
    wal = file_of(patient).with_name("meritory.db-wal")
    holder = SqliteStore(file_of(patient))
    try:
        holder.write("default", lambda transaction: transaction.count("default", "x"))
        assert wal.stat().st_size > 10
        assert found(patient)["write-ahead log"].status == "warn"
    finally:
        holder.close()


@pytest.mark.files_only("backups are made of files")
def test_the_age_of_the_latest_backup_counts(patient: HealthFacts) -> None:
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
    store: Store, served_by: EmbedderSpec, wanted: EmbedderSpec, is_due: bool
) -> None:
    name = STATIC_NAME if served_by.kind == "static" else "a server's"
    store.register_embedder(EmbedderInfo(name, 3, json.dumps(asdict(served_by))))
    assert is_reembedding_due(store, wanted) is is_due


def test_a_new_release_of_the_static_embedder_means_work_to_do(store: Store) -> None:
    store.register_embedder(EmbedderInfo("static-of-old", 3, json.dumps(asdict(EmbedderSpec()))))
    assert is_reembedding_due(store, EmbedderSpec())


def test_a_new_store_has_nothing_to_embed(store: Store) -> None:
    assert not is_reembedding_due(store, EmbedderSpec())
