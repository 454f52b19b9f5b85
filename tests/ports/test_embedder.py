"""Which embedder is opened, and what is refused from any of them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from meritory.domain.errors import BadReply, InputError
from meritory.domain.policy import EmbedderSpec
from meritory.ports.embedder import Embedder, checked, embed_in_batches, identity, open_embedder


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
    with pytest.raises(InputError, match="static, openai, fastembed"):
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

    def embed(texts: list[str]) -> np.ndarray:
        seen.append(len(texts))
        return np.array([[float(text)] for text in texts], np.float32)

    rows = embed_in_batches([str(n) for n in range(7)], 3, embed)  # type: ignore[arg-type]
    assert seen == [3, 3, 1]
    assert rows[:, 0].tolist() == list(range(7))


def test_a_document_prefix_is_part_of_the_name_and_a_query_prefix_is_not() -> None:
    plain = identity("openai", EmbedderSpec(model="m"))
    assert plain == "openai:m"
    assert identity("openai", EmbedderSpec(model="m", query_prefix="q: ")) == plain
    assert identity("openai", EmbedderSpec(model="m", document_prefix="d: ")) != plain
