"""Learned models go where their store goes, and one that is lost is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_types import Process, Run

from learning_kit import Clock, change, noted, shelved, state
from meritory.api.memory import Memory
from meritory.settings import load_settings


@pytest.fixture
def learned(home: Path, run: Run) -> Path:
    """The store of the commands, with two models of which the second serves."""
    run("stats")
    with opened(home) as memory:
        noted(memory)
        shelved(memory, 1)
        shelved(memory, 2, weight=0.25)
        change(memory, version=2, latest=2, previous=1)
    return home


def opened(home: Path) -> Memory:
    settings = load_settings(home, {})
    return Memory(home / "meritory.db", settings=settings, clock=Clock(), background=False)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def models(learned: Path) -> Iterator[Path]:
    """The folder of the models."""
    yield learned / "meritory.db-models"


def test_models_are_backed_up_and_put_back(run: Run, models: Path, tmp_path: Path) -> None:
    before = files(models)
    target = tmp_path / "kept" / "backup.db"
    target.parent.mkdir()
    made = run("backup", str(target), "--json").object
    assert made["models"] == 2
    beside = target.with_name("backup.db-models")
    assert files(beside) == before
    assert beside.stat().st_mode & 0o777 == 0o700
    # Whatever happens to them meanwhile.
    for path in models.rglob("*.sgpt"):
        path.write_bytes(b"nothing")
    done = run("restore", str(target), "--yes", "--json").object
    assert done["models"] == 2
    assert files(models) == before
    aside = Path(done["former_files"]) / "meritory.db-models"
    assert set(files(aside).values()) == {b"nothing"}
    assert {path.name for path in target.parent.iterdir()} == {"backup.db", "backup.db-models"}
    with opened(models.parent) as memory:
        memory.session("run", context="fix the alpha service")
        assert memory.services.store.session("default", "run").model_version == 2


def test_a_damaged_model_is_left_out_of_the_backup(run: Run, models: Path, tmp_path: Path) -> None:
    next(models.rglob("model-1.sgpt")).write_bytes(b"nothing")
    assert run("backup", str(tmp_path / "b.db"), "--json").object["models"] == 1
    assert [path.name for path in (tmp_path / "b.db-models").rglob("*.sgpt")] == ["model-2.sgpt"]


def test_a_backup_without_models_leaves_those_that_are_there(
    run: Run, models: Path, tmp_path: Path
) -> None:
    run("backup", str(tmp_path / "b.db"))
    for path in [*(tmp_path / "b.db-models").rglob("*.sgpt")]:
        path.unlink()
    before = files(models)
    assert run("restore", str(tmp_path / "b.db"), "--yes", "--json").object["models"] == 0
    assert files(models) == before


def test_a_backup_never_overwrites_models(run: Run, models: Path, tmp_path: Path) -> None:
    (tmp_path / "b.db-models").mkdir()
    done = run("backup", str(tmp_path / "b.db"))
    assert done.code == 2
    assert "already exists" in done.err
    assert not (tmp_path / "b.db").exists()


def test_the_doctor_names_a_lost_model(run: Run, models: Path) -> None:
    def check() -> dict[str, str]:
        results = run("doctor", "--json").object["results"]
        return next(one for one in results if one["id"] == "models")

    assert check()["status"] == "ok"
    next(models.rglob("model-2.sgpt")).unlink()
    told = check()
    assert told["status"] == "warn"
    assert "model 2 cannot be used" in told["detail"]
    # Looking mends nothing; a session does.
    with opened(models.parent) as memory:
        assert state(memory).version == 2
        memory.session("run", context="fix the alpha service")
        assert state(memory).version == 1
    told = check()
    assert told["status"] == "warn"
    assert "model 1 serves in its place" in told["detail"]
    shown = run("predictor", "status")
    assert "lost models" in shown.out
    assert "model 1 serves in its place" in shown.err


@pytest.mark.parametrize("how", ["switch", "setting"])
def test_serving_says_that_nobody_asks(run: Run, process: Process, home: Path, how: str) -> None:
    run("stats")
    environment = {}
    if how == "switch":
        run("predictor", "disable")
    else:
        environment["MERITORY_PREDICTOR_ENABLED"] = "false"
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "status", "params": {}}\n'
    done = process("predictor", "serve", stdin=call, **environment)
    assert b"the predictor is disabled" in done.stderr
    # It serves all the same, and nothing but answers is on stdout.
    assert done.stdout.count(b"\n") == 1
    assert b'"trained"' in done.stdout
