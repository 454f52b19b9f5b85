"""The predictor's process itself: the same scores as in process, and an answer to everything."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sidecar_kit import WIDTH, Jumping, Talk, request, scorer, shelves, talking, trainer_of, until

from meritory.api.memory import Memory
from meritory.domain.errors import PortError, StorageError
from meritory.domain.place import Place
from meritory.model.attention import Attention
from meritory.model.checkpoint import Checkpoint, CheckpointFlags, read
from meritory.model.ranker import Ranker
from meritory.ports.scorer import LocalScorer, ModelFolders, ScoreRequest, base_weights
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.settings import load_settings
from meritory.sidecar import service
from meritory.sidecar.process import LINE_LIMIT_BYTES
from meritory.store.sqlite.engine import StoreReader

NOTES = [
    f"The {thing} of the {place} is number {number}"
    for number, thing in enumerate(("ledger", "kiln", "sextant", "lathe", "anvil", "churn"))
    for place in ("harbour", "attic", "orchard", "cellar")
]


class Recorder(LocalScorer):
    """Scores here, and keeps what it was asked."""

    asked: ScoreRequest | None = None

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        self.asked = request
        return super().score(request)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sidecar")


@pytest.fixture(scope="module")
def recorded(home: Path) -> ScoreRequest:
    """What a real session asked its predictor."""
    with Memory(home / "meritory.db", user="anna", background=False) as memory:
        memory.remember_many([{"content": note, "on_similar": "keep"} for note in NOTES])
        recorder = Recorder(shelves(home), "features")
        memory.backend.services = replace(memory.services, scorer=recorder)
        memory.session("run", context="where is the ledger of the harbour")
        assert recorder.asked is not None
        return recorder.asked


@pytest.fixture(scope="module")
def talk(home: Path, recorded: ScoreRequest) -> Iterator[Talk]:
    with talking(home) as made:
        yield made


def kept(model: Any, version: int, embedder: str = "") -> Checkpoint:
    return Checkpoint(
        kind=model.kind,
        params=model.params,
        model_version=version,
        embedder=embedder,
        features=FEATURES,
        feature_version=FEATURE_VERSION,
        flags=CheckpointFlags.FINE_TUNED,
        trained_at=datetime(2026, 1, 1, tzinfo=UTC),
        session_count=40,
    )


def drawn(seed: int) -> Ranker:
    return Ranker.untrained(np.random.default_rng(seed).standard_normal(WIDTH))


def listed(one: ScoreRequest) -> dict[str, Any]:
    return {"candidate_ids": one.memory_ids, "candidate_features": one.features.tolist()}


# -- scores ---------------------------------------------------------------------------------


def test_it_gives_the_same_scores_as_in_process_bit_for_bit(
    home: Path, recorded: ScoreRequest
) -> None:
    shelves(home).of("anna").put(kept(drawn(5), 5))
    local = LocalScorer(shelves(home), "features")
    wild = request(150, user="anna", context_text="a \ud800 b", project_slot=7)
    wild.features[3] = np.nan, *[np.inf] * (WIDTH - 1)
    wild.features[4] = 1e300
    with scorer(home) as made:
        for one in (recorded, request(1), wild, request(0), request(150, seed=4)):
            for version in (0, 5):
                asked = replace(one, version=version, user="anna")
                assert made.score(asked).tobytes() == local.score(asked).tobytes()
        assert made.facts.crash_count == 0


def test_threads_never_get_each_others_scores(home: Path) -> None:
    local = LocalScorer(shelves(home), "features")
    wrong = []

    def work(seed: int) -> None:
        for number in range(20):
            one = request(20 + seed, seed * 1_000 + number)
            if made.score(one).tobytes() != local.score(one).tobytes():
                wrong.append(number)

    with scorer(home) as made:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made.facts.scores_processed == 120
    assert wrong == []


def test_attention_reads_vectors_and_texts_by_itself(
    home: Path, recorded: ScoreRequest, talk: Talk
) -> None:
    assert recorded.vectors is not None
    assert recorded.vectors.any(axis=1).all()
    rng = np.random.default_rng(1)
    model = Attention.fresh(recorded.vectors.shape[1], rng)
    params = {**model.params, "gate": rng.standard_normal(model.params["gate"].shape)}
    shelves(home).of("anna").put(kept(Attention(params), 6, recorded.embedder or ""))
    asked = replace(recorded, version=6)
    here = LocalScorer(shelves(home), "attention").score(asked)
    assert np.ptp(here) > 0.0
    with scorer(home) as made:
        there = made.score(asked)
        again = made.score(asked)
        with pytest.raises(PortError, match="vectors of"):
            made.score(replace(asked, embedder="another"))
    assert np.allclose(here, there, rtol=1e-4, atol=1e-5)
    assert (there == again).all()
    # One that is not in the store is scored all the same.
    ids = [*recorded.memory_ids, "unknown"]
    rows = np.vstack([recorded.features, recorded.features[:1]]).tolist()
    told = talk.ask("score", user="anna", version=6, candidate_ids=ids, candidate_features=rows)
    assert len(told["scores"]) == len(ids)
    assert talk.ask("status")["has_store_open"]


def test_memories_without_a_vector_are_read_by_their_words_here_and_there(tmp_path: Path) -> None:
    """Some were stored while no embedder was there: their words are all that can be read."""
    path = tmp_path / "meritory.db"
    bare = load_settings(tmp_path, {}, {"embedder.kind": "none"})
    plain = load_settings(tmp_path, {})
    with Memory(path, user="anna", settings=plain, background=False) as memory:
        memory.remember_many([{"content": note, "on_similar": "keep"} for note in NOTES[:6]])
    with Memory(path, user="anna", settings=bare, background=False) as memory:
        memory.remember_many([{"content": note, "on_similar": "keep"} for note in NOTES[6:12]])
    with Memory(path, user="anna", settings=plain, background=False) as memory:
        ours = memory.services.scorer
        recorder = Recorder(shelves(tmp_path), "features")
        memory.backend.services = replace(memory.services, scorer=recorder)
        memory.session("run", context="where is the ledger of the harbour")
        assert recorder.asked is not None
        assert recorder.asked.vectors is not None
        lacks = ~recorder.asked.vectors.any(axis=1)
        assert 0 < lacks.sum() < len(lacks)
        rng = np.random.default_rng(1)
        model = Attention.fresh(recorder.asked.vectors.shape[1], rng)
        params = {**model.params, "gate": rng.standard_normal(model.params["gate"].shape)}
        embedder = recorder.asked.embedder or ""
        assert memory.services.shelves is not None
        for shelf in (shelves(tmp_path), memory.services.shelves):
            shelf.of("anna").put(kept(Attention(params), 6, embedder))
        # What the model makes of them depends on their words alone here.
        features = np.repeat(recorder.asked.features[:1], len(lacks), axis=0)
        asked = replace(recorder.asked, version=6, features=features)
        assert isinstance(ours, LocalScorer)
        here = ours.score(asked)
        blind = LocalScorer(shelves(tmp_path), "attention").score(asked)
        with scorer(tmp_path) as made:
            there = made.score(asked)
    assert np.allclose(here, there, rtol=1e-4, atol=1e-5)
    assert len(set(here[lacks].round(9).tolist())) == lacks.sum()
    assert not np.allclose(blind[lacks], there[lacks], rtol=1e-4, atol=1e-5)


def test_a_missing_or_foreign_version_is_an_error_and_another_file_another_model(
    home: Path,
) -> None:
    shelf = shelves(home).of("ben")
    shelf.put(kept(drawn(1), 1))
    shelf.put(kept(drawn(2), 2))
    one = request(5, user="ben", version=1)
    with scorer(home) as made:
        before = made.score(one)
        with pytest.raises(PortError, match="no model model-3"):
            made.score(replace(one, version=3))
        with pytest.raises(PortError, match="no model"):
            made.score(replace(one, user="carl"))
        with pytest.raises(PortError, match="features must be of version"):
            made.score(replace(one, feature_version=1))
        shelf.put(kept(drawn(9), 1))
        after = made.score(one)
        assert (before != after).any()
        shelf.path_of(2).rename(shelf.path_of(1))
        with pytest.raises(PortError, match="holds version 2"):
            made.score(one)
        assert made.facts.crash_count == 0


def test_the_default_scorer_never_opens_the_store(tmp_path: Path) -> None:
    with talking(tmp_path) as talk:
        one = request(4)
        found = talk.ask("score", **listed(one))
        assert found["model_ready"]
        assert found["model_version"] == 0
        here = LocalScorer(ModelFolders(tmp_path, base_weights()), "features").score(one)
        assert [row["score"] for row in found["scores"]] == here.tolist()
        assert [row["id"] for row in found["scores"]] == list(one.memory_ids)
        packed = base64.b64encode(one.features.tobytes()).decode()
        same = talk.ask("score", candidate_ids=one.memory_ids, features_b64=packed)
        assert same == found
        status = talk.ask("status")
        assert not status["has_store_open"]
        assert status["scores_processed"] == 2
    assert list(tmp_path.iterdir()) == []


def test_other_clients_need_no_features(tmp_path: Path) -> None:
    """A model that looks at one feature shows how that was made of what was sent."""
    vectors = [[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0], None]
    signals = {
        "time_of_day": 0.25,
        "day_of_week": 2,
        "month_of_year": 1,
        "project": "signetai",
        "session_gap_hours": 8.5,
        "is_superseded": [False, False, True, False],
    }
    orders = {
        "cosine": ["a", "b", "d", "c"],
        "is_superseded": ["c", "a", "b", "d"],
        "is_embedded": ["a", "b", "c", "d"],
    }
    for version, name in enumerate(orders, 1):
        weights = np.zeros(WIDTH)
        weights[FEATURES.index(name)] = 1.0
        shelves(tmp_path).of("").put(kept(Ranker.untrained(weights), version))
    with talking(tmp_path) as talk:
        for version, order in enumerate(orders.values(), 1):
            found = talk.ask(
                "score",
                version=version,
                context_embedding=[2.0, 0.0],
                candidate_ids=["a", "b", "c", "d"],
                candidate_embeddings=vectors,
                signals=signals,
            )
            ranked = sorted(found["scores"], key=lambda row: (-row["score"], row["id"]))
            assert [row["id"] for row in ranked] == order


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"context_text": "hello"}, "context_embedding and candidate_embeddings"),
        ({"context_embedding": [1.0, 0.0]}, "candidate_embeddings"),
        ({"candidate_embeddings": [[1.0], [0.5]]}, "context_embedding"),
    ],
)
def test_the_default_scorer_says_which_field_is_missing(
    tmp_path: Path, given: dict[str, Any], missing: str
) -> None:
    texts = {"candidate_texts": ["alpha", "beta"], "signals": {"is_superseded": [False, True]}}
    with talking(tmp_path) as talk:
        for method, more in (("score", {}), ("train", {"labels": [1.0, 0.0]})):
            code, told = talk.fails(method, **texts, **given, **more)
            assert code == -32602
            assert told.startswith("candidate_features is missing")
            assert f"without {missing};" in told
        features = np.random.default_rng(0).standard_normal((2, WIDTH)).tolist()
        found = talk.ask("score", **texts, **given, candidate_features=features)["scores"]
        assert found[0]["score"] != found[1]["score"]
        assert talk.ask("score", candidate_texts=[])["scores"] == []


def test_stored_vectors_make_cosines_for_those_who_send_ids_alone(
    home: Path, recorded: ScoreRequest, talk: Talk
) -> None:
    assert recorded.context is not None
    weights = np.zeros(WIDTH)
    weights[FEATURES.index("cosine")] = 1.0
    shelves(home).of("anna").put(kept(Ranker.untrained(weights), 8))
    found = talk.ask(
        "score",
        user="anna",
        version=8,
        embedder=recorded.embedder,
        context_embedding=recorded.context.tolist(),
        candidate_ids=recorded.memory_ids,
    )
    assert recorded.vectors is not None
    cosines = recorded.vectors @ recorded.context
    order = np.argsort([-row["score"] for row in found["scores"]], kind="stable")
    assert order[0] == np.argmax(cosines)


def test_vectors_are_kept_within_bounds_and_read_again_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Jumping()
    library = service.Library(Place(file=tmp_path / "meritory.db"), world)
    with Memory(tmp_path / "meritory.db", user="anna", background=False) as memory:
        items = [{"content": note, "on_similar": "keep"} for note in NOTES]
        ids = [one.memory.id for one in memory.remember_many(items) if one.memory is not None]
        embedder = memory.services.embedding.serving_name() or ""
        before = library.vectors("anna", embedder, ids)
        assert len(before) == len(ids)
        assert library.vectors("ben", embedder, ids) == {}
        memory.update(ids[0], content="Something else altogether")
        kept = library.vectors("anna", embedder, ids[:1])
        assert (kept[ids[0]] == before[ids[0]]).all()
        world.ahead_ms += service.VECTOR_AGE_MS + 1_000.0
        fresh = library.vectors("anna", embedder, ids[:1])
        assert (fresh[ids[0]] != before[ids[0]]).any()
        size = fresh[ids[0]].nbytes
        monkeypatch.setattr(service, "VECTOR_LIMIT_BYTES", 3 * size)
        assert len(library.vectors("anna", embedder, ids)) == len(ids)
        assert len(library._kept) == 3
        assert library._held_bytes == 3 * size
    library.close()


# -- learning -------------------------------------------------------------------------------


def test_steps_of_other_clients_are_kept_only_when_they_are_saved(tmp_path: Path) -> None:
    own = tmp_path / "own.sgpt"
    one = listed(request(6, 3))
    with talking(tmp_path, "--checkpoint", str(own)) as talk:
        before = talk.ask("score", **one)
        code, told = talk.fails("save_checkpoint")
        assert (code, "nothing to save" in told) == (-32603, True)
        steps = [talk.ask("train", **one, labels=[1, 0, 0, 0, 0, -0.5]) for _ in range(30)]
        assert [step["step"] for step in steps] == list(range(1, 31))
        assert steps[-1]["loss"] < steps[0]["loss"]
        learned = talk.ask("score", **one)
        assert learned["scores"] != before["scores"]
        assert talk.ask("score", **one, version=0)["scores"] == before["scores"]
        status = talk.ask("status")
        assert status["unsaved_steps"] == 30
        assert not own.exists()
        saved = talk.ask("save_checkpoint")
        assert saved == {"checkpoint_saved": True, "model_version": 1}
        assert read(own).session_count == status["training_pairs"]
        assert talk.ask("score", **one)["scores"] == learned["scores"]
        talk.ask("train", **one, labels=[0] * 5 + [1])
        assert talk.ask("save_checkpoint")["model_version"] == 2
    with talking(tmp_path, "--checkpoint", str(own)) as talk:
        status = talk.ask("status")
        assert (status["trained"], status["model_version"]) == (True, 2)
        assert datetime.fromisoformat(status["last_trained"]) > datetime.now(UTC) - timedelta(1)


def test_nothing_is_saved_without_a_file_to_save_to(tmp_path: Path) -> None:
    with talking(tmp_path) as talk:
        one = listed(request(3))
        talk.ask("train", **one, labels=[1, 0, 0])
        code, told = talk.fails("save_checkpoint")
        assert code == -32603
        assert "--checkpoint FILE" in told
        assert talk.ask("status")["unsaved_steps"] == 1
    assert list(tmp_path.iterdir()) == []


def test_saving_never_replaces_what_is_no_checkpoint(tmp_path: Path) -> None:
    store = tmp_path / "meritory.db"
    store.write_bytes(b"precious")
    with talking(tmp_path, "--checkpoint", str(store)) as talk:
        one = listed(request(3))
        talk.ask("train", **one, labels=[1, 0, 0])
        assert talk.fails("save_checkpoint")[0] == -32603
    assert store.read_bytes() == b"precious"


def test_without_a_base_the_baseline_ranks(tmp_path: Path) -> None:
    with talking(tmp_path, "--base-weights", str(tmp_path / "none")) as talk:
        one = request(5)
        found = talk.ask("score", **listed(one))
        assert not found["model_ready"]
        scores = [row["score"] for row in found["scores"]]
        composite = one.features[:, FEATURES.index("composite")]
        assert (np.argsort(scores) == np.argsort(composite)).all()
        status = talk.ask("status")
        assert (status["trained"], status["last_trained"]) == (False, None)


def test_scoring_goes_on_while_a_training_runs(home: Path, recorded: ScoreRequest) -> None:
    with talking(home) as talk:
        assert talk.ask("status")["is_training"] is False
        number = talk.call("train_from_db", user="nobody")
        trainer = trainer_of(talk.process.pid)
        # However long it takes: it does not go on before everything else is done.
        os.kill(trainer, signal.SIGSTOP)
        for seed in range(20):
            assert len(talk.ask("score", **listed(request(150, seed)))["scores"]) == 150
        assert talk.ask("status")["is_training"] is True
        assert "already running" in talk.fails("train_from_store")[1]
        os.kill(trainer, signal.SIGCONT)
        reply = talk.heard()
        assert reply["id"] == number
        report = reply["result"]
        wanted = {"loss", "step", "samples_used", "samples_skipped", "duration_ms", "canary"}
        assert wanted | {"checkpoint_saved"} <= set(report)
        # Nobody was ever judged here, so nothing may be swapped in.
        assert (report["samples_used"], report["checkpoint_saved"]) == (0, False)
        assert talk.ask("status")["trainings_completed"] == 1


@pytest.mark.parametrize("end", ["shutdown", "SIGTERM", "closed"])
def test_a_training_ends_with_the_process(home: Path, recorded: ScoreRequest, end: str) -> None:
    with talking(home) as talk:
        number = talk.call("train_from_store", user="nobody")
        trainer = trainer_of(talk.process.pid)
        # A training of nothing might otherwise be done before the process ends.
        os.kill(trainer, signal.SIGSTOP)
        why = "cancelled: the process ends"
        if end == "shutdown":
            why = "cancelled by shutdown"
            last = talk.call("shutdown")
        elif end == "SIGTERM":
            talk.process.terminate()
        else:
            assert talk.process.stdin is not None
            talk.process.stdin.close()
        reply = talk.heard()
        assert (reply["id"], reply["error"]) == (number, {"code": -32000, "message": why})
        if end == "shutdown":
            assert talk.heard() == {"jsonrpc": "2.0", "id": last, "result": {}}
        assert talk.close() == 0
        until(lambda: not os.path.exists(f"/proc/{trainer}"))


def test_what_follows_a_shutdown_is_answered_too(tmp_path: Path) -> None:
    calls = [
        {"jsonrpc": "2.0", "id": n, "method": method, "params": {}}
        for n, method in enumerate(("train_from_db", "shutdown", "status", "train_from_db"))
    ]
    with talking(tmp_path) as talk:
        # In one write, so that they are read together.
        talk.send(b"\n".join(json.dumps(call).encode() for call in calls))
        replies = [talk.heard() for _ in calls]
    assert sorted(one["id"] for one in replies) == [0, 1, 2, 3]
    told = {one["id"]: one.get("error", {}).get("message") for one in replies}
    assert (told[2], told[3]) == ("cancelled by shutdown",) * 2


# -- it cannot write ------------------------------------------------------------------------


def test_it_cannot_write_to_the_store(home: Path, recorded: ScoreRequest, talk: Talk) -> None:
    path = home / "meritory.db"
    reader = StoreReader(path)
    for statement in ("DELETE FROM memories", "CREATE TABLE x (y)", "PRAGMA user_version = 9"):
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute(statement)
    reader.close()
    with pytest.raises(StorageError):
        StoreReader(home / "absent.db")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    assert recorded.context is not None
    by_id = {"embedder": recorded.embedder, "candidate_ids": recorded.memory_ids}
    talk.ask("score", user="anna", context_embedding=recorded.context.tolist(), **by_id)
    assert talk.ask("status")["has_store_open"]
    talk.ask("train", **listed(request(3)), labels=[1, 0, 0])
    talk.ask("train_from_store", user="nobody")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert not (home / "absent.db").exists()


# -- the language ---------------------------------------------------------------------------

CALL = {"jsonrpc": "2.0", "id": 7, "method": "status", "params": {}}


@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "status"', -32700, None),
        (b"[" * 200_000, -32700, None),
        (b"[]", -32600, None),
        (json.dumps([CALL]).encode(), -32600, None),
        (b'"status"', -32600, None),
        (b"null", -32600, None),
        (b"{}", -32600, None),
        (json.dumps({**CALL, "jsonrpc": "1.0"}).encode(), -32600, 7),
        (json.dumps({**CALL, "method": 3}).encode(), -32600, 7),
        (json.dumps({**CALL, "id": {}}).encode(), -32600, None),
        (json.dumps({**CALL, "id": True}).encode(), -32600, None),
        (json.dumps({**CALL, "method": "stats"}).encode(), -32601, 7),
        (json.dumps({**CALL, "method": "__init__"}).encode(), -32601, 7),
        (json.dumps({**CALL, "params": []}).encode(), -32602, 7),
        (json.dumps({**CALL, "params": None, "id": "x"}).encode(), -32602, "x"),
        (json.dumps({**CALL, "params": {"version": -1}, "id": None}).encode(), -32602, None),
        (json.dumps({**CALL, "params": {"version": 99}}).encode(), -32603, 7),
        (b" " * (LINE_LIMIT_BYTES + 1), -32600, None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_fault_has_its_code(talk: Talk, line: bytes, code: int, id_: object) -> None:
    talk.send(line)
    reply = talk.heard()
    assert (reply["error"]["code"], reply["id"]) == (code, id_)
    assert talk.ask("status")["pid"] == talk.process.pid


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"candidate_ids": "abc"},
        {"candidate_ids": [1]},
        {"candidate_ids": ["a"], "candidate_features": []},
        {"candidate_ids": ["a"], "candidate_features": [[1.0]]},
        {"candidate_ids": ["a"], "candidate_features": [["x"] * WIDTH]},
        {"candidate_ids": ["a"], "candidate_features": [[None] * WIDTH]},
        {"candidate_ids": ["a"], "features_b64": "AAAA"},
        {"candidate_ids": ["a"], "features_b64": "?"},
        {"candidate_ids": ["a"], "candidate_texts": ["a", "b"]},
        {"candidate_ids": ["a"], "candidate_features": [[0.0] * WIDTH], "feature_version": 1},
        {"candidate_ids": ["a"] * 5_001},
        {"candidate_embeddings": [[1.0], [1.0, 2.0]]},
        {"candidate_embeddings": [[1.0]], "context_embedding": [1.0, 2.0]},
        {"candidate_texts": ["a"], "signals": {"day_of_week": 7}},
        {"candidate_texts": ["a"], "signals": {"is_superseded": [True, False]}},
        {"candidate_texts": ["a"], "context_b64": "AAA="},
    ],
    ids=lambda params: str(params)[:60],
)
def test_parameters_that_do_not_fit_are_refused(talk: Talk, params: dict[str, Any]) -> None:
    assert talk.fails("score", **params)[0] == -32602
    code = talk.fails("train", **params, labels=[1.0])[0]
    assert code == -32602


def test_labels_must_go_with_the_candidates(talk: Talk) -> None:
    one = listed(request(3))
    for labels in ([1.0], [1.0, 0.0, 2.0], None):
        assert talk.fails("train", **one, labels=labels)[0] == -32602


def test_a_call_without_an_id_is_carried_out_in_silence(talk: Talk) -> None:
    before = talk.ask("status")["scores_processed"]
    for params in (listed(request(2)), {"candidate_ids": 3}):
        bare = {"jsonrpc": "2.0", "method": "score", "params": params}
        talk.send(json.dumps(bare).encode())
    talk.send(b"")
    assert talk.ask("status")["scores_processed"] == before + 1


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_NAMES = ["score", "train", "status", "save_checkpoint", "nonsense"]
_FIELDS = ["user", "version", "candidate_ids", "candidate_embeddings", "candidate_texts"]
_FIELDS += ["candidate_features", "features_b64", "context_embedding", "context_text", "labels"]
_FIELDS += ["signals", "project_slot", "embedder"]
_PARAMS = st.dictionaries(
    st.sampled_from(_FIELDS), _JSON | st.lists(st.text(max_size=3), max_size=3), max_size=6
)
_CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | _JSON, "method": st.sampled_from(_NAMES) | _JSON},
    optional={"params": _PARAMS | _JSON, "id": _JSON},
)
_RAW = st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b""))
_LINES = _RAW | _JSON.map(lambda one: json.dumps(one).encode())
_LINES |= _CALLS.map(lambda one: json.dumps(one).encode())


@settings(max_examples=100)
@given(line=_LINES)
def test_nothing_that_is_sent_ends_it(talk: Talk, line: bytes) -> None:
    codes = {-32700, -32600, -32601, -32602, -32603}
    talk.send(line)
    number = talk.call("status", user="the end")
    replies = [talk.heard()]
    while replies[-1]["id"] != number or "result" not in replies[-1]:
        replies.append(talk.heard())
    assert len(replies) <= 2
    for reply in replies[:-1]:
        assert "result" in reply or reply["error"]["code"] in codes


# -- the process ----------------------------------------------------------------------------


def test_it_ends_with_its_stdin_and_not_by_ctrl_c(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    pid = talk.ask("status")["pid"]
    os.kill(pid, signal.SIGINT)
    assert talk.ask("status")["pid"] == pid
    # A line that was not ended is nobody's.
    assert talk.process.stdin is not None
    talk.process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "status"}')
    talk.process.stdin.flush()
    assert talk.close() == 0


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sidecar_kit import scorer\n"
        "with scorer(Path(sys.argv[1])) as made:\n"
        "    made.warm()\n"
        "    while not made.facts.is_ready: time.sleep(0.01)\n"
        "    print(made.facts.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
        parent.kill()
    until(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    """Whether it runs; where nobody buries orphans it may be left as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_is_printed_by_mistake_is_no_answer(tmp_path: Path) -> None:
    code = (
        "import os, sys; from meritory.sidecar import process, service\n"
        "def loud(self, raw):\n"
        "    print('stray'); os.write(1, b'stray'); sys.stdout.flush(); raise KeyError('bug')\n"
        "service.Service._status = loud\n"
        "process.main(sys.argv[1:])"
    )
    lines = b'{"jsonrpc": "2.0", "id": 1, "method": "status"}\n'
    command = [sys.executable, "-c", code, str(tmp_path / "s"), str(tmp_path / "m")]
    done = subprocess.run(command, input=lines, capture_output=True, check=True, timeout=30)
    (line,) = done.stdout.splitlines()
    error = json.loads(line)["error"]
    assert error == {"code": -32603, "message": "KeyError: 'bug'"}
    assert done.stderr.count(b"stray") == 2


def test_it_loads_nothing_that_it_does_not_need() -> None:
    code = "import json, sys, meritory.sidecar.process; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {"sqlite3", "starlette", "click", "rich", "asyncio", "meritory.model.attention"}
    assert not loaded & heavy
