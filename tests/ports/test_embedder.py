"""Which embedder is opened, and what is refused from any of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from meritory.domain.errors import BadReply, InputError, PortError
from meritory.domain.policy import EmbedderSpec
from meritory.ports import embedder as ports_embedder
from meritory.ports.embedder import (
    BatchEmbedder,
    Embedder,
    StaticEmbedder,
    Vectors,
    checked,
    identity,
    open_embedder,
)

DATA = Path(ports_embedder.__file__).parents[1] / "data"


def test_the_default_is_the_static_table() -> None:
    embedder = open_embedder(EmbedderSpec())
    assert isinstance(embedder, Embedder)
    assert embedder.name.startswith("static-minilm-256-")
    assert embedder.dimension == 256


def test_none_gives_rows_without_numbers() -> None:
    embedder = open_embedder(EmbedderSpec(kind="none"))
    assert isinstance(embedder, Embedder)
    assert embedder.embed_documents(["a", "b"]).shape == (2, 0)
    assert embedder.embed_query("a").shape == (0,)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="static, encoder, openai, fastembed"):
        open_embedder(EmbedderSpec(kind="word2vec"))  # type: ignore[arg-type]


def test_a_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="timeout_ms"):
        open_embedder(EmbedderSpec(timeout_ms=0))


def test_the_static_table_has_one_dimension_only() -> None:
    with pytest.raises(InputError, match="256"):
        open_embedder(EmbedderSpec(dimension=384))


def test_the_key_is_not_shown() -> None:
    assert "hunter2" not in repr(EmbedderSpec(kind="openai", api_key="hunter2"))


def test_opening_the_default_imports_no_other_embedder() -> None:
    code = (
        "import sys\n"
        "from meritory.ports.embedder import EmbedderSpec, open_embedder\n"
        "open_embedder(EmbedderSpec()).embed_query('hello')\n"
        "print([m for m in ('urllib.request', 'onnxruntime', 'meritory.ports.embed_http',"
        " 'meritory.ports.embed_extras') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_rows_come_back_with_length_one_as_float32() -> None:
    rows = checked([[3.0, 4.0], [0.0, 2.0]], 2, 2, "x")
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 1.0]], atol=1e-6)


def test_a_row_of_zeros_stays_zero() -> None:
    assert not checked([[0.0, 0.0], [1e-30, 0.0]], 2, 2, "x").any()


def test_huge_numbers_are_no_problem() -> None:
    np.testing.assert_allclose(checked([[3e300, 4e300]], 1, 2, "x"), [[0.6, 0.8]], atol=1e-6)


@pytest.mark.parametrize(
    ("raw", "count", "dimension", "said"),
    [
        ([[1.0, float("nan")]], 1, 2, "finite"),
        ([[1.0, float("inf")]], 1, 2, "finite"),
        ([[1.0, 2.0]], 2, 2, "2 texts"),
        ([1.0, 2.0], 2, 2, "shape"),
        ([[1.0, 2.0, 3.0]], 1, 2, "length 3"),
        ([[]], 1, None, "length 0"),
        ([["a", "b"]], 1, 2, "no table of numbers"),
        ([[1.0], [1.0, 2.0]], 2, None, "no table of numbers"),
        (None, 1, 2, "shape"),
    ],
)
def test_nonsense_is_refused(raw: object, count: int, dimension: int | None, said: str) -> None:
    with pytest.raises(BadReply, match=said):
        checked(raw, count, dimension, "x")  # type: ignore[arg-type]


@given(
    arrays.arrays(
        np.float32, (3, 5), elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
    )
)
def test_every_finite_table_becomes_unit_or_zero_rows(raw: np.ndarray) -> None:
    lengths = np.linalg.norm(checked(raw, 3, 5, "x"), axis=1)
    assert all(abs(length - 1) < 1e-5 or length == 0 for length in lengths)


def test_lists_are_split_and_joined_in_order() -> None:
    seen: list[int] = []

    class Numbers(BatchEmbedder):
        max_batch = 3

        def _embed_batch(self, texts: Sequence[str]) -> Vectors:
            seen.append(len(texts))
            return np.array([[float(text)] for text in texts], np.float32)

    rows = Numbers(EmbedderSpec(), "numbers").embed_documents([str(n) for n in range(7)])
    assert seen == [3, 3, 1]
    assert rows[:, 0].tolist() == list(range(7))


def test_a_document_prefix_is_part_of_the_name_and_a_query_prefix_is_not() -> None:
    plain = identity("openai", EmbedderSpec(model="m"))
    assert plain == "openai:m"
    assert identity("openai", EmbedderSpec(model="m", query_prefix="q: ")) == plain
    assert identity("openai", EmbedderSpec(model="m", document_prefix="d: ")) != plain


# -- the table in the package: meaning, empty texts, damage, threads ---------------------------


@pytest.fixture(scope="module")
def static() -> StaticEmbedder:
    return StaticEmbedder()


def test_rows_are_unit_float32(static: StaticEmbedder) -> None:
    rows = static.embed_documents(["a cat", "deploy the server on Friday", "日本語"])
    assert rows.shape == (3, 256)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("text", ["", "  \n", "\x00\x07", "\u0378" * 3, "q" * 101])
def test_a_text_without_known_words_has_no_vector(static: StaticEmbedder, text: str) -> None:
    assert not static.embed_query(text).any()


def test_no_texts_give_no_rows(static: StaticEmbedder) -> None:
    assert static.embed_documents([]).shape == (0, 256)


def test_a_batch_equals_its_texts_one_by_one(static: StaticEmbedder) -> None:
    texts = ["the build is broken", "", "I moved to Lisbon in March", "the build is broken"]
    rows = static.embed_documents(texts)
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_array_equal(row, static.embed_query(text))


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
    static: StaticEmbedder, question: str, right: str, wrong: str
) -> None:
    near, far = static.embed_documents([right, wrong]) @ static.embed_query(question)
    assert near > far + 0.05


def test_repeating_a_word_does_not_drown_the_rest(static: StaticEmbedder) -> None:
    query = static.embed_query("sailing boats")
    repeated = static.embed_query("invoice " * 9 + "sailing boats")
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
    for name in (ports_embedder.TABLE_FILE, ports_embedder.VOCABULARY_FILE):
        shutil.copy(DATA / name, folder / name)
    return folder


def test_a_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="install meritory again"):
        StaticEmbedder(tmp_path).embed_query("x")


def test_a_cut_table_is_refused(tmp_path: Path) -> None:
    table = _copy(tmp_path) / ports_embedder.TABLE_FILE
    table.write_bytes(table.read_bytes()[:100_000])
    with pytest.raises(PortError, match="cannot be read"):
        StaticEmbedder(tmp_path).embed_query("x")


def test_a_table_that_does_not_fit_its_vocabulary_is_refused(tmp_path: Path) -> None:
    words = _copy(tmp_path) / ports_embedder.VOCABULARY_FILE
    words.write_text(words.read_text(encoding="utf-8") + "\nextra", encoding="utf-8")
    with pytest.raises(PortError, match="expected"):
        StaticEmbedder(tmp_path).embed_query("x")


def test_the_table_and_its_licence_ship_together_and_stay_small() -> None:
    files = (ports_embedder.TABLE_FILE, ports_embedder.VOCABULARY_FILE)
    size_bytes = sum((DATA / name).stat().st_size for name in files)
    assert size_bytes < 9_000_000
    notice = (DATA / "NOTICE-static-embedder.txt").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in notice
    assert "Apache" in notice
