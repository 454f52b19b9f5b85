"""Checkpoints: bit for bit what was written, whole or absent, and nothing unsound is believed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.errors import (
    BadCheckpoint,
    DiskFull,
    MeritoryError,
    ReadOnlyStore,
    StorageError,
)
from meritory.model import checkpoint as cp
from meritory.model.attention import Attention
from meritory.model.base import Floats, Gradient, Model, RankingQuery, TrainingExample
from meritory.model.checkpoint import (
    Checkpoint,
    CheckpointFlags,
    ModelFolder,
    fits,
    read,
    restored,
    write,
)
from meritory.model.ranker import Ranker
from meritory.rank.features import FEATURE_VERSION, FEATURES

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, UTC)
HEAD = struct.Struct("<4sIII")
ENTRIES = (
    *("scorer", "model_version", "parameters", "dims", "buckets", "embedder"),
    *("features", "feature_version", "sha256", "trained_at", "session_count"),
)


@dataclass(frozen=True)
class Tiny:
    """The smallest scorer there can be."""

    params: Mapping[str, Floats]
    kind: str = "tiny"

    def __post_init__(self) -> None:
        if np.shape(self.params["slope"]) != (2,):
            raise ValueError("a slope has two numbers")

    def with_params(self, params: Mapping[str, Floats]) -> Tiny:
        return Tiny(params)

    def score(self, query: RankingQuery) -> Floats:
        return np.asarray(query.features[:, :2] @ self.params["slope"])

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        raise NotImplementedError


TINY = {"tiny": lambda kept: Tiny(kept.params)}


def made(**changes: Any) -> Checkpoint:
    """A checkpoint with numbers that any sloppy way of storing them would change."""
    kept = Checkpoint(
        kind="tiny",
        params={
            "slope": np.array([-0.0, 5e-324]),
            "table": np.array([[1.0 / 3.0, 1.7976931348623157e308, -1e-300], [3.0, 4.0, 5.0]]),
            "nothing": np.empty((0, 64)),
            "shift": np.array(2.5),
        },
        model_version=7,
        embedder="static:wörter",
        features=("cosine", "text"),
        feature_version=1,
        trained_at=AT,
        session_count=31,
        flags=CheckpointFlags.PRETRAINED | CheckpointFlags.FINE_TUNED,
        dims={"inner": 64},
        buckets=16_384,
    )
    return replace(kept, **changes)


def config_and_numbers(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The two parts after the header of a sound file."""
    length = HEAD.unpack(raw[: HEAD.size])[3]
    return json.loads(raw[HEAD.size : HEAD.size + length]), raw[HEAD.size + length :]


def forged(config: Any, numbers: bytes, flags: int = 3, version: int = 1) -> bytes:
    """A file whose hashes are right whatever it says, as an ill-willed writer would make it."""

    def canonical(value: Any) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    if isinstance(config, dict):
        config = {name: value for name, value in config.items() if name != "seal"}
        if "sha256" in config:
            config["sha256"] = hashlib.sha256(numbers).hexdigest()
        sealed = HEAD.pack(b"SGPT", 1, flags, 0) + canonical(config)
        config["seal"] = hashlib.sha256(sealed).hexdigest()
    raw = canonical(config)
    return HEAD.pack(b"SGPT", version, flags, len(raw)) + raw + numbers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound checkpoint."""
    write(tmp_path / "model-7.sgpt", made())
    return tmp_path / "model-7.sgpt"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that many examples share."""
    return tmp_path_factory.mktemp("fuzz") / "model-1.sgpt"


@pytest.fixture(scope="module")
def sound(scratch: Path) -> tuple[dict[str, Any], bytes]:
    """The parts of a sound checkpoint."""
    write(scratch, made())
    return config_and_numbers(scratch.read_bytes())


def refusal(path: Path, raw: bytes) -> str:
    """Why these bytes are refused."""
    path.write_bytes(raw)
    with pytest.raises(BadCheckpoint) as caught:
        read(path)
    assert caught.value.hint
    assert str(path) in caught.value.message
    return caught.value.message


# --- what is written is what is read ---------------------------------------------------------


def test_a_round_trip_changes_no_bit(path: Path) -> None:
    found, kept = read(path), made()
    assert list(found.params) == list(kept.params)
    for name, value in kept.params.items():
        assert found.params[name].shape == np.shape(value)
        assert found.params[name].dtype == np.float64
        assert found.params[name].tobytes() == np.asarray(value).tobytes()
    plain = [name for name in Checkpoint.__dataclass_fields__ if name != "params"]
    assert [getattr(found, name) for name in plain] == [getattr(kept, name) for name in plain]
    write(path.with_name("again"), found)
    assert path.with_name("again").read_bytes() == path.read_bytes()


def test_the_layout_is_the_one_that_is_documented(path: Path) -> None:
    raw = path.read_bytes()
    magic, version, flags, length = HEAD.unpack(raw[:16])
    assert (magic, version, flags) == (b"SGPT", 1, 3)
    config = json.loads(raw[16 : 16 + length])
    numbers = raw[16 + length :]
    assert numbers[8:16] == struct.pack("<d", 5e-324)
    assert config["sha256"] == hashlib.sha256(numbers).hexdigest()
    assert config["parameters"][1] == ["table", [2, 3]]
    assert config["trained_at"] == AT.isoformat()
    assert (config["scorer"], config["model_version"], config["buckets"]) == ("tiny", 7, 16_384)
    assert raw == forged(config, numbers)


def test_what_was_read_cannot_be_changed_in_place(path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        read(path).params["table"][0, 0] = 1.0


def test_other_layouts_in_memory_are_stored_alike(tmp_path: Path) -> None:
    table = np.arange(12.0).reshape(3, 4)
    for name, value in (("plain", table), ("turned", np.asfortranarray(table))):
        write(tmp_path / name, made(params={"slope": value[:, ::2]}))
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "turned").read_bytes()
    assert read(tmp_path / "plain").params["slope"].tolist() == table[:, ::2].tolist()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_only_the_owner_may_read_it(tmp_path: Path, mask: int) -> None:
    former = os.umask(mask)
    try:
        write(tmp_path / "model-7.sgpt", made())
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "model-7.sgpt").stat().st_mode) == 0o600


# --- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0x01, 0x20])
def test_every_flipped_byte_is_noticed(path: Path, mask: int) -> None:
    raw = path.read_bytes()
    for place in range(len(raw)):
        damaged = bytearray(raw)
        damaged[place] ^= mask
        refusal(path, bytes(damaged))
    path.write_bytes(raw)
    assert read(path).model_version == 7


def test_flipped_bits_in_a_large_file_are_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "model-7.sgpt"
    write(path, made(params={"slope": rng.standard_normal((300, 64))}))
    raw = path.read_bytes()
    for place in rng.integers(len(raw), size=50):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << int(rng.integers(8))
        refusal(path, bytes(damaged))


def test_a_file_cut_at_any_length_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    reasons = {refusal(path, raw[:length]).partition(": ")[2] for length in range(len(raw))}
    assert {"it ends after 0 bytes, within the header"} <= reasons
    assert any("within the config" in reason for reason in reasons)
    assert any("it ends within the parameters" in reason for reason in reasons)


@pytest.mark.parametrize("more", [b"\0", b"\0" * 8, b"SGPT"])
def test_bytes_after_the_end_are_refused(path: Path, more: bytes) -> None:
    assert "something follows the parameters" in refusal(path, path.read_bytes() + more)


def test_two_tensors_that_changed_places_are_noticed(path: Path) -> None:
    config, numbers = config_and_numbers(path.read_bytes())
    swapped = forged(config, numbers)[: -len(numbers)] + numbers[16:] + numbers[:16]
    assert "parameters do not match their hash" in refusal(path, swapped)


# --- ill will: the hashes are right, the content is not --------------------------------------


def changed(path: Path, **changes: Any) -> bytes:
    """The sound file with other entries in its config."""
    config, numbers = config_and_numbers(path.read_bytes())
    return forged({**config, **changes}, numbers)


@pytest.mark.parametrize(
    ("version", "flags", "reason"),
    [
        (2, 3, "format is version 2"),
        (0, 3, "unknown version or unknown flags"),
        (1, 4, "unknown version or unknown flags"),
    ],
)
def test_other_versions_and_flags_are_refused(
    path: Path, version: int, flags: int, reason: str
) -> None:
    config, numbers = config_and_numbers(path.read_bytes())
    assert reason in refusal(path, forged(config, numbers, flags, version))


def test_a_newer_file_says_to_update(path: Path) -> None:
    path.write_bytes(HEAD.pack(b"SGPT", 2, 0, 0))
    with pytest.raises(BadCheckpoint, match="newer Meritory wrote it; update"):
        read(path)


def test_foreign_files_are_told_apart_from_damaged_ones(path: Path) -> None:
    assert "does not begin with SGPT" in refusal(path, b"PK\3\4 an archive, not a model")
    assert "does not begin with SGPT" in refusal(path, b"SG!")
    assert "ends after 2 bytes" in refusal(path, b"SG")


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[" * 60_000, b"9" * 6_000, b"[NaN"])
def test_a_config_that_is_not_json_is_refused(path: Path, text: bytes) -> None:
    raw = HEAD.pack(b"SGPT", 1, 0, len(text)) + text
    assert "not JSON" in refusal(path, raw)


def test_a_config_that_is_no_object_is_refused(path: Path) -> None:
    assert "not a JSON object" in refusal(path, forged([1, 2], b""))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_parameters_that_are_not_finite_are_refused(path: Path, number: float) -> None:
    config, numbers = config_and_numbers(path.read_bytes())
    raw = forged(config, numbers[:-8] + struct.pack("<d", number))
    assert "not a finite number" in refusal(path, raw)
    with pytest.raises(BadCheckpoint, match="not a finite number"):
        write(path, made(params={"slope": np.array([1.0, number])}))


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_that_is_missing_or_of_another_type_is_refused(path: Path, name: str) -> None:
    config, numbers = config_and_numbers(path.read_bytes())
    assert set(config) == {*ENTRIES, "seal"}
    del config[name]
    assert f"no sound {name!r}" in refusal(path, forged(config, numbers))
    if name != "sha256":
        for value in (None, True, 1.5, [None], {"a": "b"}):
            raw = forged({**config, name: value, "sha256": ""}, numbers)
            assert f"no sound {name!r}" in refusal(path, raw)


@pytest.mark.parametrize(
    "parameters",
    [
        [],
        [["slope", [2]], ["slope", [7]]],
        [["Slope", [9]]],
        [["../slope", [9]]],
        [["slope", [-9]]],
        [["slope", [9.0]]],
        [["slope", [True, 9]]],
        [["slope", [9, 1, 1, 1, 1]]],
        [["slope", [9, 0, 10**30]]],
        [["slope", [9]], ["rest", [0, 4_000_000, 4_000_000, 4_000_000]]],
        [["slope", 9]],
        [["slope"]],
    ],
)
def test_unbearable_shapes_are_refused(path: Path, parameters: Any) -> None:
    assert "no sound 'parameters'" in refusal(path, changed(path, parameters=parameters))


@pytest.mark.parametrize("time", ["2026-05-04T03:02:01", "yesterday", ""])
def test_a_time_without_a_zone_is_refused(path: Path, time: str) -> None:
    assert "no sound 'trained_at'" in refusal(path, changed(path, trained_at=time))


def test_huge_claims_take_no_memory(path: Path) -> None:
    claims = {
        "the parameters": changed(path, parameters=[["slope", [cp.PARAMETER_LIMIT]]]),
        "no sound 'parameters'": changed(path, parameters=[["slope", [2**40]]]),
        "its config is larger than 64 KB": HEAD.pack(b"SGPT", 1, 0, 2**32 - 1),
    }
    many = [[f"p{number}", [4_000_000]] for number in range(2_000)]
    claims["it ends within"] = changed(path, parameters=many)
    refusal(path, b"")
    tracemalloc.start()
    try:
        for reason, raw in claims.items():
            assert reason in refusal(path, raw)
        # A file with a hole: as long as it likes, and not a byte on the disk.
        os.truncate(path, cp.FILE_LIMIT_BYTES + 1)
        with pytest.raises(BadCheckpoint, match="larger than 32 MB"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_what_is_too_large_to_be_read_is_not_written(tmp_path: Path) -> None:
    rows = np.zeros(cp.PARAMETER_LIMIT)
    with pytest.raises(BadCheckpoint, match="too large"):
        write(tmp_path / "model-7.sgpt", made(params={"slope": rows}))
    assert list(tmp_path.iterdir()) == []


def test_only_regular_files_are_read(path: Path) -> None:
    folder, link, pipe = (path.with_name(name) for name in ("folder", "link", "pipe"))
    folder.mkdir()
    link.symlink_to(path)
    os.mkfifo(pipe)
    reasons = {folder: "regular", link: "it is a link", pipe: "regular", path / "x": "directory"}
    for place, reason in {**reasons, path.with_name("none"): "no such file"}.items():
        with pytest.raises(BadCheckpoint, match=reason):
            read(place)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(ENTRIES), value=JSON, numbers=st.binary(max_size=80))
def test_no_config_breaks_the_reader(
    scratch: Path, sound: tuple[dict[str, Any], bytes], name: str, value: Any, numbers: bytes
) -> None:
    config, right = sound
    for content in (right, numbers):
        scratch.write_bytes(forged({**config, name: value}, content))
        try:
            found = read(scratch)
        except BadCheckpoint as error:
            assert error.hint
        else:
            assert all(np.isfinite(part).all() for part in found.params.values())
            fits(found, "other", FEATURES, 1)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_bytes_break_the_reader(scratch: Path, raw: bytes, length: int) -> None:
    refusal(scratch, raw)
    refusal(scratch, HEAD.pack(b"SGPT", 1, 0, length) + raw)


# --- whole or absent -------------------------------------------------------------------------


def test_a_reader_beside_a_writer_sees_one_model_or_the_other(tmp_path: Path) -> None:
    path = tmp_path / "model-7.sgpt"
    # Of different sizes, so that a file in between would be noticed by its length too.
    models = [made(params={"slope": np.full(size, float(size))}) for size in (5_000, 9_000)]
    write(path, models[0])
    done = threading.Event()

    def keep_writing() -> None:
        for turn in range(60):
            write(path, models[turn % 2])
        done.set()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen = set()
    while not done.is_set():
        slope = read(path).params["slope"]
        seen.add((len(slope), float(slope[0]), float(slope[-1])))
    writer.join()
    assert seen <= {(5_000, 5_000.0, 5_000.0), (9_000, 9_000.0, 9_000.0)}
    assert os.listdir(tmp_path) == [path.name]


KILLED = """
import os, signal, sys
from pathlib import Path
from meritory.model import checkpoint
path = Path(sys.argv[1])
kept = checkpoint.read(path)
os.{call} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
checkpoint.write(path, kept)
"""


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_writer_that_dies_leaves_the_former_model(path: Path, call: str) -> None:
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED.format(call=call), path], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == before
    shelf = ModelFolder(path.parent)
    assert shelf.versions() == [7]
    assert len(os.listdir(path.parent)) == 2
    shelf.prune(active=7)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, DiskFull), (errno.EROFS, ReadOnlyStore), (errno.EIO, StorageError)],
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_is_told_and_leaves_the_former_model(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    expected: type[MeritoryError],
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    before = path.read_bytes()
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(expected) as caught:
        write(path, made(model_version=8))
    assert type(caught.value) is expected
    assert caught.value.hint
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_file_is_durable_before_it_is_named_and_the_folder_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, move = os.fsync, os.replace

    def noting_sync(descriptor: int) -> None:
        about = os.fstat(descriptor)
        steps.append("folder" if stat.S_ISDIR(about.st_mode) else f"file {about.st_size}")
        sync(descriptor)

    def noting_move(old: Path, new: Path) -> None:
        steps.append("rename")
        move(old, new)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "replace", noting_move)
    write(path, made())
    assert steps == [f"file {path.stat().st_size}", "rename", "folder"]


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="check the path"):
        write(tmp_path / "none" / "model-7.sgpt", made())


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other, path = tmp_path / "other", tmp_path / "model-7.sgpt"
    other.write_text("mine")
    path.symlink_to(other)
    write(path, made())
    assert other.read_text() == "mine"
    assert read(path).model_version == 7


# --- does it fit, and what does it make ------------------------------------------------------


def test_a_checkpoint_fits_the_installation_it_was_made_in() -> None:
    kept = made(features=FEATURES, feature_version=FEATURE_VERSION, embedder="static:a")
    assert fits(kept, "static:a", FEATURES, FEATURE_VERSION) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"embedder": "onnx:b"}, "vectors of 'onnx:b', this installation has those of 'static:a'"),
        ({"features": (*FEATURES, "mood")}, "other features: mood"),
        ({"features": FEATURES[1:]}, f"other features: {FEATURES[0]}"),
        ({"features": FEATURES[::-1]}, "in another order"),
        ({"feature_version": 99}, "version 99 of the features"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], reason: str) -> None:
    kept = made(features=FEATURES, feature_version=FEATURE_VERSION, embedder="static:a")
    kept = replace(kept, **changes)
    assert reason in (fits(kept, "static:a", FEATURES, FEATURE_VERSION) or "")


def test_a_scorer_of_features_alone_fits_any_embedder() -> None:
    kept = made(kind="features", features=FEATURES, feature_version=FEATURE_VERSION)
    assert fits(kept, "static:a", FEATURES, FEATURE_VERSION) is None
    assert fits(kept, "static:a", FEATURES, FEATURE_VERSION + 1) is not None


def test_a_checkpoint_makes_its_scorer_again(path: Path) -> None:
    write(path, made(params={"slope": np.array([2.0, 3.0])}))
    model = restored(read(path), TINY)
    assert model.score(RankingQuery(features=np.array([[1.0, 10.0]]))).tolist() == [32.0]


def test_an_unknown_scorer_is_refused() -> None:
    with pytest.raises(BadCheckpoint, match=r"no scorer 'tiny' \(known are attention, features"):
        restored(made())


@pytest.mark.parametrize("params", [{"slope": np.ones(3)}, {"other": np.ones(2)}])
def test_parameters_of_another_scorer_are_refused(params: dict[str, Floats]) -> None:
    with pytest.raises(BadCheckpoint, match="do not make a scorer 'tiny'"):
        restored(made(params=params), TINY)


def scorers() -> list[Model]:
    """Each scorer there is, with parameters of its own."""
    rng = np.random.default_rng(3)
    attention = Attention.fresh(8, rng)
    gate = rng.standard_normal(attention.params["gate"].shape)
    ranker = Ranker.untrained(rng.standard_normal(len(FEATURES)))
    return [attention.with_params({**attention.params, "gate": gate}), ranker]


@pytest.mark.parametrize("model", scorers(), ids=lambda model: model.kind)
def test_every_scorer_scores_alike_after_a_round_trip(tmp_path: Path, model: Model) -> None:
    rng = np.random.default_rng(4)
    path = ModelFolder(tmp_path).put(made(kind=model.kind, params=model.params))
    again = restored(read(path))
    query = RankingQuery(
        features=rng.standard_normal((4, len(FEATURES))),
        context=rng.standard_normal(8).astype(np.float32),
        vectors=rng.standard_normal((4, 8)).astype(np.float32),
    )
    assert again.kind == model.kind
    assert again.score(query).tobytes() == model.score(query).tobytes()


@pytest.mark.parametrize("kind", ["attention", "features"])
@pytest.mark.parametrize("name", ["slope", "down", "hidden_out", "weights"])
def test_no_scorer_is_made_of_foreign_parameters(kind: str, name: str) -> None:
    with pytest.raises(BadCheckpoint, match=f"do not make a scorer '{kind}'"):
        restored(made(kind=kind, params={name: np.array(1.0)}))


# --- the folder ------------------------------------------------------------------------------


def shelf_with(folder: Path, versions: range) -> ModelFolder:
    """A folder with these models."""
    shelf = ModelFolder(folder)
    for version in versions:
        shelf.put(made(model_version=version))
    return shelf


def test_the_folder_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    shelf = ModelFolder(tmp_path / "models")
    assert shelf.versions() == []
    assert shelf.prune(active=3) == []
    path = shelf.put(made())
    assert path.name == "model-7.sgpt"
    assert stat.S_IMODE(shelf.folder.stat().st_mode) == 0o700
    assert shelf.get(7).session_count == 31


def test_the_active_model_and_three_before_it_are_kept(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, range(8, 13))
    assert shelf.versions() == [12, 11, 10, 9, 8]
    assert shelf.prune(active=12) == [8]
    assert shelf.versions() == [12, 11, 10, 9]
    assert shelf.prune(active=12) == []


def test_what_came_after_the_active_model_is_kept(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, range(1, 8))
    assert shelf.prune(active=5) == [1]
    assert shelf.versions() == [7, 6, 5, 4, 3, 2]


def test_foreign_files_and_links_are_left_alone(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, range(5, 6))
    foreign = {"notes.txt", "model-01.sgpt", "model-1.sgpt.bak", "model--1.sgpt", ".hidden.part"}
    for name in foreign:
        (tmp_path / name).write_text("mine")
    (tmp_path / "model-2.sgpt").mkdir()
    (tmp_path / "model-3.sgpt").symlink_to(tmp_path / "notes.txt")
    (tmp_path / ".model-3.sgpt.x.part").symlink_to(tmp_path / "notes.txt")
    assert shelf.versions() == [5]
    assert shelf.prune(active=900) == []
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert len(os.listdir(tmp_path)) == len(foreign) + 4
    with pytest.raises(BadCheckpoint, match="it is a link"):
        shelf.get(3)


def test_a_model_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, range(5, 6))
    os.rename(shelf.path_of(5), shelf.path_of(6))
    with pytest.raises(BadCheckpoint, match="holds version 5"):
        shelf.get(6)


def test_a_writer_keeps_its_unfinished_file_while_others_tidy_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = ModelFolder(tmp_path)
    move = os.replace

    def tidied_move(old: str, new: Path) -> None:
        shelf.prune(active=7)
        move(old, new)

    monkeypatch.setattr(os, "replace", tidied_move)
    assert read(shelf.put(made())).model_version == 7


def test_the_unfinished_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, range(5, 6))
    unfinished = tmp_path / ".model-6.sgpt.abc_1.part"
    with unfinished.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        shelf.prune(active=5)
        assert unfinished.exists()
    shelf.prune(active=5)
    assert not unfinished.exists()
