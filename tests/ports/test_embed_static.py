"""The table in the package: meaning, empty texts, damage, threads."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from meritory.domain.errors import PortError
from meritory.ports import embed_static
from meritory.ports.embed_static import StaticEmbedder

DATA = Path(embed_static.__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def test_rows_are_unit_float32(embedder: StaticEmbedder) -> None:
    rows = embedder.embed_documents(["a cat", "deploy the server on Friday", "日本語"])
    assert rows.shape == (3, 256)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("text", ["", "  \n", "\x00\x07", "\u0378" * 3, "q" * 101])
def test_a_text_without_known_words_has_no_vector(embedder: StaticEmbedder, text: str) -> None:
    assert not embedder.embed_query(text).any()


def test_no_texts_give_no_rows(embedder: StaticEmbedder) -> None:
    assert embedder.embed_documents([]).shape == (0, 256)


def test_a_batch_equals_its_texts_one_by_one(embedder: StaticEmbedder) -> None:
    texts = ["the build is broken", "", "I moved to Lisbon in March", "the build is broken"]
    rows = embedder.embed_documents(texts)
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_array_equal(row, embedder.embed_query(text))


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        (
            "Which database do we use?",
            "The project stores its data in PostgreSQL.",
            "The team has lunch at noon on Thursdays.",
        ),
        (
            "What pets does she have?",
            "My sister adopted two kittens and a puppy.",
            "My sister bought a car with four doors.",
        ),
        (
            "How do I run the tests?",
            "Execute pytest from the root folder before each commit.",
            "The logo was drawn by a designer from Madrid.",
        ),
        (
            "where did he go on vacation",
            "He spent the summer holidays at the beach in Greece.",
            "He repaired the engine of his motorcycle.",
        ),
    ],
)
def test_paraphrases_are_nearer_than_other_matters(
    embedder: StaticEmbedder, question: str, right: str, wrong: str
) -> None:
    near, far = embedder.embed_documents([right, wrong]) @ embedder.embed_query(question)
    assert near > far + 0.05


def test_repeating_a_word_does_not_drown_the_rest(embedder: StaticEmbedder) -> None:
    query = embedder.embed_query("sailing boats")
    repeated = embedder.embed_query("invoice " * 9 + "sailing boats")
    assert float(query @ repeated) > 0.4


def test_threads_share_one_table() -> None:
    embedder = StaticEmbedder()
    found: list[np.ndarray] = []
    workers = [
        threading.Thread(target=lambda: found.append(embedder.embed_query("a shared table")))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 8
    assert all(np.array_equal(found[0], row) for row in found)


def _copy(folder: Path) -> Path:
    for name in (embed_static.TABLE_FILE, embed_static.VOCABULARY_FILE):
        shutil.copy(DATA / name, folder / name)
    return folder


def test_a_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="install meritory again"):
        StaticEmbedder(tmp_path).embed_query("x")


def test_a_cut_table_is_refused(tmp_path: Path) -> None:
    table = _copy(tmp_path) / embed_static.TABLE_FILE
    table.write_bytes(table.read_bytes()[:100_000])
    with pytest.raises(PortError, match="cannot be read"):
        StaticEmbedder(tmp_path).embed_query("x")


def test_a_table_that_does_not_fit_its_vocabulary_is_refused(tmp_path: Path) -> None:
    words = _copy(tmp_path) / embed_static.VOCABULARY_FILE
    words.write_text(words.read_text(encoding="utf-8") + "\nextra", encoding="utf-8")
    with pytest.raises(PortError, match="expected"):
        StaticEmbedder(tmp_path).embed_query("x")


def test_the_table_and_its_licence_ship_together_and_stay_small() -> None:
    files = (embed_static.TABLE_FILE, embed_static.VOCABULARY_FILE)
    size_bytes = sum((DATA / name).stat().st_size for name in files)
    assert size_bytes < 9_000_000
    notice = (DATA / "NOTICE-static-embedder.txt").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in notice
    assert "Apache" in notice
