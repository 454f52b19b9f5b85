"""Loaders: the documented counts on the real files, and loud errors on wrong or missing ones."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from bench.datasets import Corpus, MissingData, WrongData, load

from bench import datasets


def real(name: str) -> list[Corpus]:
    try:
        return load(name)
    except MissingData as missing:
        pytest.skip(str(missing))


def write_locomo(root: Path, qa: list[dict[str, object]], *, honest: bool = True) -> None:
    folder = root / "locomo"
    folder.mkdir(parents=True)
    talk = {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I adopted a dog."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a cat"},
        ],
        "session_2_date_time": "9:00 am on 9 May, 2023",
    }
    body = json.dumps([{"sample_id": "conv-1", "conversation": talk, "qa": qa}]).encode()
    (folder / "locomo10.json").write_bytes(body)
    digest = hashlib.sha256(body if honest else b"other").hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  locomo10.json\n")


def test_locomo_has_the_documented_counts() -> None:
    corpora = real("locomo")
    categories = Counter(query.category for corpus in corpora for query in corpus.queries)
    assert len(corpora) == 10
    assert sum(len(corpus.docs) for corpus in corpora) == 5882
    assert sum(categories.values()) == 1982
    assert categories["adversarial"] == 446


def test_longmemeval_is_one_pool_judged_by_session() -> None:
    (corpus,) = real("longmemeval")
    assert corpus.judged == "session"
    assert len(corpus.docs) == 10866
    assert len({doc.session_key for doc in corpus.docs}) == 940
    assert len(corpus.queries) == 470


def test_beam_keeps_questions_with_a_user_message_as_evidence() -> None:
    corpora = real("beam")
    assert len(corpora) == 20
    assert sum(len(corpus.queries) for corpus in corpora) == 336
    assert {doc.role for corpus in corpora for doc in corpus.docs} == {"user"}
    assert not [doc for corpus in corpora for doc in corpus.docs if "->->" in doc.text[-20:]]


@pytest.mark.parametrize("name", datasets.LOADERS)
def test_every_relevant_id_exists_and_ids_are_distinct(name: str) -> None:
    for corpus in real(name):
        by_session = corpus.judged == "session"
        known = {doc.session_key if by_session else doc.id for doc in corpus.docs}
        assert len({doc.id for doc in corpus.docs}) == len(corpus.docs)
        for query in corpus.queries:
            assert query.relevant
            assert query.relevant <= known


def test_turns_of_a_session_are_numbered_without_gaps() -> None:
    for corpus in real("beam") + real("locomo"):
        turns: dict[str, list[int]] = {}
        for doc in corpus.docs:
            turns.setdefault(doc.session_key, []).append(doc.turn)
        assert all(found == list(range(len(found))) for found in turns.values())


def test_a_locomo_turn_carries_speaker_caption_and_time(tmp_path: Path) -> None:
    write_locomo(tmp_path, [])
    (corpus,) = load("locomo", tmp_path)
    assert [doc.text for doc in corpus.docs] == [
        "Ann: I adopted a dog.",
        "Bo: Look! [image: a cat]",
    ]
    assert corpus.docs[0].at is not None
    assert corpus.docs[0].at.isoformat() == "2023-05-08T13:56:00+00:00"


def test_sloppy_evidence_is_read_and_unknown_evidence_left_out(tmp_path: Path) -> None:
    asked = [
        {"question": "both?", "evidence": ["D1:1; D:1:2"], "category": 1},
        {"question": "none?", "evidence": ["D9:9"], "category": 2},
        {"question": "trick?", "evidence": ["D1:01"], "category": 5},
    ]
    write_locomo(tmp_path, asked)
    (corpus,) = load("locomo", tmp_path)
    assert [(q.text, sorted(q.relevant), q.category) for q in corpus.queries] == [
        ("both?", ["conv-1/D1:1", "conv-1/D1:2"], "multi-hop"),
        ("trick?", ["conv-1/D1:1"], "adversarial"),
    ]


def test_changed_bytes_are_a_loud_error(tmp_path: Path) -> None:
    write_locomo(tmp_path, [], honest=False)
    with pytest.raises(WrongData, match="sha256"):
        load("locomo", tmp_path)


def test_a_file_without_its_hashes_is_not_trusted(tmp_path: Path) -> None:
    write_locomo(tmp_path, [])
    (tmp_path / "locomo" / "SHA256SUMS").unlink()
    with pytest.raises(WrongData, match="SHA256SUMS"):
        load("locomo", tmp_path)


def test_a_changed_beam_folder_is_a_loud_error(tmp_path: Path) -> None:
    (tmp_path / "beam" / "100K").mkdir(parents=True)
    (tmp_path / "beam" / "100K" / "chat.json").write_text("[]")
    with pytest.raises(WrongData, match="digest"):
        load("beam", tmp_path)


@pytest.mark.parametrize("name", datasets.LOADERS)
def test_missing_data_is_named_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingData) as caught:
        load(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert datasets.DATA_ENV in str(caught.value)


def test_the_root_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(datasets.DATA_ENV, str(tmp_path))
    assert datasets.data_root() == tmp_path


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown data set"):
        load("nope")


def test_the_folder_digest_sees_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = datasets.folder_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = datasets.folder_digest(tmp_path)
    (tmp_path / "b").write_text("y")
    assert len({first, second, datasets.folder_digest(tmp_path)}) == 3
