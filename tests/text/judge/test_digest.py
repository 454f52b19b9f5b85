"""The digest of a session: which terms and paths it keeps, its limits, and its encoding."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.session import ROLES, Turn
from meritory.text.judge import digest as module
from meritory.text.judge.digest import (
    MAX_LINE_CHARS,
    Digest,
    Digester,
    TurnDigest,
    decode_digest,
    digest_terms,
    encode_digest,
    paths_in,
    read_digest,
    sentences,
    vocabulary_of,
)

MEMORY = "Retry uploads at most 7 times; RETRY_LIMIT lives in src/upload/limits.py on port 8080."
VOCABULARY = vocabulary_of([MEMORY])


# -- terms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("the and of a", ()),
        # Plain words lose their endings, identifiers and capitals are only lowered.
        ("Uploads uploading uploaded", ("upload",)),
        (
            "MAX_ATTEMPTS camelCase HTTPServer snake_case",
            (
                "max_attempts",
                "camelcase",
                "httpserver",
                "snake_case",
            ),
        ),
        ("v1 x2y", ("v1", "x2y")),
        # Numbers keep what is inside them and lose what ends a sentence.
        ("8080, 03:00, 1,000.5. 7", ("8080", "03:00", "1,000.5")),
        ("Straße École 日本語", ("straße", "école", "日本語")),
        ("port 8080 port", ("port", "8080")),
        ("limits.py limits/py", ("limit", "py")),
    ],
)
def test_terms_are_distinct_and_in_order(text: str, terms: tuple[str, ...]) -> None:
    assert digest_terms(text) == terms


@given(st.text(max_size=60))
def test_terms_are_lower_case_distinct_and_repeatable(text: str) -> None:
    found = digest_terms(text)
    assert len(set(found)) == len(found)
    assert all(len(term) >= module.MIN_TERM_CHARS or term.isalpha() for term in found)
    assert digest_terms(f"{text} {text}") == found


def test_the_vocabulary_holds_the_terms_of_all_memories() -> None:
    assert vocabulary_of([]) == frozenset()
    assert vocabulary_of(["Port 8080", "ports of Caddy"]) == {"port", "8080", "caddy"}


# -- paths ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", ()),
        ("nothing to see here.", ()),
        ("open src/upload/limits.py, please", ("src/upload/limits.py",)),
        (
            "/abs/x.py ~/notes ../lib/a.c ./run.sh",
            ("/abs/x.py", "~/notes", "../lib/a.c", "./run.sh"),
        ),
        ("README.md and foo.py:12", ("README.md", "foo.py")),
        (r"src\upload\limits.py", ("src/upload/limits.py",)),
        ("a/b.py a/b.py c/d.py", ("a/b.py", "c/d.py")),
        # A version and a number are no files.
        ("v1.2.3 3.14 8080", ()),
        ("name.toolongending", ()),
    ],
)
def test_paths_and_file_names_are_found(text: str, paths: tuple[str, ...]) -> None:
    assert paths_in(text) == paths


def seconds(call: Callable[[str], object], text: str) -> float:
    start = time.perf_counter()
    call(text)
    return time.perf_counter() - start


@pytest.mark.parametrize("call", [paths_in, digest_terms, sentences])
@pytest.mark.parametrize(
    "run",
    ["a", "/", ".", "-", "\\", "a.", "a/", "a-", "../", "1.", "1:", "_", "a_", "\n", ". ", " "],
)
def test_long_runs_take_linear_time(call: Callable[[str], object], run: str) -> None:
    # Quadratic time would take minutes at this length.
    text = run * (300_000 // len(run))
    assert seconds(call, text) < 5.0
    assert seconds(call, f"{text} x") < 5.0


def test_a_name_longer_than_any_file_system_allows_is_cut() -> None:
    (found,) = paths_in(f"src/{'a' * 300}")
    assert found == f"src/{'a' * 255}"


# -- sentences ------------------------------------------------------------------------------


def test_lines_and_sentences_are_split() -> None:
    assert sentences("One. Two!\nThree; four v1.2") == ["One.", "Two!", "Three;", "four v1.2"]
    assert sentences('{"a": "x\\ny"}') == ['{"a": "x', 'y"}']
    assert sentences(" \n \n") == []


def test_a_long_line_is_cut() -> None:
    assert [len(one) for one in sentences("a" * 5_000 + "\nb")] == [MAX_LINE_CHARS, 1]


# -- what is kept ---------------------------------------------------------------------------


def test_a_session_is_kept_turn_by_turn() -> None:
    turns = [
        Turn("assistant", "Uploads ready."),
        Turn("user", "Bound the uploads, please"),
        Turn("tool", "Read src/upload/limits.py", ("src/upload/limits.py",)),
        Turn("result", "port 8080"),
        Turn("edit", "RETRY_LIMIT = 7\nport = 8080", ("src/upload/limits.py",)),
        Turn("system", "retry uploads"),
        Turn("user", "thanks"),
        Turn("assistant", "Retry limits live in docs/limits.md now. Retry limits live there."),
    ]
    found = read_digest(turns, VOCABULARY)
    assert found == Digest(
        turns=(
            TurnDigest(pieces=(("assistant", ("upload",)),)),
            TurnDigest(
                typed=("upload",),
                edited=("src/upload/limits.py",),
                opened=("src/upload/limits.py",),
                named=("src/upload/limits.py",),
                pieces=(
                    ("tool", ("src", "upload", "limit", "py")),
                    ("edit", ("retry_limit",)),
                    ("edit", ("port", "8080")),
                ),
                results=("8080", "port"),
            ),
            TurnDigest(
                named=("docs/limits.md",),
                pieces=(("assistant", ("retry", "limit", "live")),),
            ),
        ),
        char_count=sum(len(turn.text) for turn in turns),
        is_complete=True,
    )


def test_terms_outside_the_vocabulary_are_dropped() -> None:
    turns = [Turn("assistant", "Quinces ripen. The uploads of quinces."), Turn("result", "quince")]
    (turn,) = read_digest(turns, VOCABULARY).turns
    assert turn.pieces == (("assistant", ("upload",)),)
    assert turn.results == ()
    assert read_digest(turns, ()).turns == (TurnDigest(),)


def test_a_sentence_is_kept_once_per_turn_and_act() -> None:
    again = [Turn("assistant", "Uploads!"), Turn("assistant", "uploads"), Turn("tool", "uploads")]
    found = read_digest([*again, Turn("user", "go"), *again], VOCABULARY)
    for turn in found.turns:
        assert turn.pieces == (("assistant", ("upload",)), ("tool", ("upload",)))


def test_results_keep_only_terms_that_no_earlier_result_had() -> None:
    turns = [
        Turn("result", "port 8080"),
        Turn("result", "uploads on port 8080"),
        Turn("user", "and again"),
        Turn("result", "port, uploads, retry"),
    ]
    first, second = read_digest(turns, VOCABULARY).turns
    assert first.results == ("8080", "port", "upload")
    assert second.results == ("retry",)


def test_edited_opened_and_named_paths_are_kept_apart() -> None:
    turns = [
        Turn("edit", "see b/named.py", ("a/edited.py",)),
        Turn("tool", "Read c/named.py", ("c\\opened.py",)),
        Turn("assistant", "d/named.py", ()),
        Turn("result", "e/result.py"),
    ]
    (turn,) = read_digest(turns, ()).turns
    assert turn.edited == ("a/edited.py",)
    assert turn.opened == ("c/opened.py",)
    # The text of an edit is the content of a file, and results are not acts.
    assert turn.named == ("c/named.py", "d/named.py")


def test_the_digest_can_be_read_at_any_time() -> None:
    digester = Digester(VOCABULARY)
    assert digester.digest() == Digest((TurnDigest(),))
    digester.feed(Turn("assistant", "uploads"))
    first = digester.digest()
    digester.feed(Turn("user", "go"))
    assert first.turns == (TurnDigest(pieces=(("assistant", ("upload",)),)),)
    assert len(digester.digest().turns) == 2


@pytest.mark.parametrize(
    ("turn", "has_acts"),
    [
        (TurnDigest(), False),
        (TurnDigest(typed=("hello",)), False),
        (TurnDigest(edited=("a",)), True),
        (TurnDigest(opened=("a",)), True),
        (TurnDigest(named=("a",)), True),
        (TurnDigest(pieces=(("tool", ("a",)),)), True),
        (TurnDigest(results=("a",)), True),
    ],
)
def test_a_session_without_acts_is_recognised(turn: TurnDigest, has_acts: bool) -> None:
    assert Digest((TurnDigest(), turn)).has_acts is has_acts
    assert not Digest().has_acts


# -- limits ---------------------------------------------------------------------------------


def test_a_long_prompt_is_read_to_its_end() -> None:
    found = read_digest([Turn("user", "a " * 5_000 + "uploads on port 8080")], VOCABULARY)
    assert found.turns[-1].typed == ("upload", "port", "8080")
    assert found.is_complete


def at_limit(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int, turns: list[Turn]
) -> tuple[Digest, Digest]:
    """Return the digest of all turns but the last, and of all, with one limit lowered."""
    monkeypatch.setattr(module, name, limit)
    vocabulary = VOCABULARY | {f"term{n}" for n in range(20)}
    return read_digest(turns[:-1], vocabulary), read_digest(turns, vocabulary)


def test_turns_beyond_the_limit_are_joined_to_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [Turn("user", "retry"), Turn("user", "port"), Turn("user", "uploads")]
    within, beyond = at_limit(monkeypatch, "MAX_TURNS", 3, turns)
    assert within.is_complete
    assert not beyond.is_complete
    assert [turn.typed for turn in beyond.turns] == [(), ("retry",), ("port", "upload")]
    later = read_digest([*turns, Turn("assistant", "uploads")], VOCABULARY)
    assert later.turns[-1].pieces == (("assistant", ("upload",)),)


def test_pieces_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [Turn("assistant", f"term{n}") for n in range(4)]
    turns.insert(1, turns[0])
    within, beyond = at_limit(monkeypatch, "MAX_PIECES", 3, turns)
    assert within.is_complete
    assert not beyond.is_complete
    assert len(beyond.turns[0].pieces) == len(within.turns[0].pieces) == 3


@pytest.mark.parametrize("separator", ["/", "\\"])
def test_paths_beyond_the_limit_are_dropped(
    monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    turns = [Turn("tool", "x", (f"a{separator}{n}",)) for n in range(4)]
    # A path that is known already does not count again.
    turns.insert(1, turns[0])
    within, beyond = at_limit(monkeypatch, "MAX_PATHS", 3, turns)
    assert within.is_complete
    assert not beyond.is_complete
    assert beyond.turns[0].opened == within.turns[0].opened == ("a/0", "a/1", "a/2")


def test_a_long_result_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [Turn("result", "port 8080"), Turn("result", "uploads retry")]
    within, beyond = at_limit(monkeypatch, "MAX_RESULT_CHARS", 9, turns)
    assert within.is_complete
    assert not beyond.is_complete
    assert beyond.turns[0].results == ("8080", "port", "upload")


def test_results_beyond_the_limit_of_a_session_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [Turn("result", "port"), Turn("result", "uploads"), Turn("result", "retry")]
    within, beyond = at_limit(monkeypatch, "MAX_RESULTS_CHARS", 8, turns)
    assert within.is_complete
    assert not beyond.is_complete
    assert beyond.turns == within.turns


def test_a_long_session_stays_small() -> None:
    # Ten million characters of output and 2,000 calls, nearly none of it about the memory.
    digester = Digester(VOCABULARY)
    for n in range(2_000):
        digester.feed(Turn("tool", f"Read file number {n}"))
        digester.feed(Turn("result", f"word{n} " * 700))
    found = digester.digest()
    assert found.is_complete
    assert found.char_count > 10_000_000
    assert len(encode_digest(found)) < 2_000


# -- encoding -------------------------------------------------------------------------------

TEXTS = st.text(max_size=12)
TERMS = st.lists(TEXTS, max_size=4).map(tuple)
TURN_DIGESTS = st.builds(
    TurnDigest,
    typed=TERMS,
    edited=TERMS,
    opened=TERMS,
    named=TERMS,
    pieces=st.lists(st.tuples(st.sampled_from(module.ACTS), TERMS), max_size=4).map(tuple),
    results=TERMS,
)
DIGESTS = st.builds(
    Digest,
    turns=st.lists(TURN_DIGESTS, max_size=4).map(tuple),
    char_count=st.integers(0, 10**9),
    is_complete=st.booleans(),
)


@given(DIGESTS)
def test_a_digest_is_decoded_as_it_was_encoded(digest: Digest) -> None:
    assert decode_digest(encode_digest(digest)) == digest


@settings(max_examples=40, deadline=None)
@given(st.lists(st.builds(Turn, st.sampled_from(ROLES), st.text(max_size=40), TERMS), max_size=8))
def test_any_transcript_has_a_digest_that_survives_encoding(turns: list[Turn]) -> None:
    vocabulary = vocabulary_of(turn.text for turn in turns)
    found = read_digest(turns, vocabulary)
    assert decode_digest(encode_digest(found)) == found
    assert found == read_digest(turns, vocabulary)


def test_an_encoded_digest_names_its_version() -> None:
    document = json.loads(zlib.decompress(encode_digest(Digest((TurnDigest(("hi",)),), 2, False))))
    assert document["v"] == 1
    assert (document["chars"], document["complete"]) == (2, False)
