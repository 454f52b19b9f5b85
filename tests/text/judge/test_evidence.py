"""The chance that a memory helped: every trace by itself, documents and claims, and echoes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.session import JudgedMemory
from meritory.text.judge.digest import (
    ACTS,
    DOCUMENT_CHARS,
    Digest,
    Piece,
    TurnDigest,
    digest_terms,
    is_document,
)
from meritory.text.judge.evidence import (
    ACT_WEIGHTS,
    CLAIM,
    COMMON_WEIGHT,
    LEAST_WEIGHT,
    MIN_ECHOED,
    SIGNALS,
    TITLED,
    UNTITLED,
    EvidenceTable,
    Numbers,
    Weights,
    build_table,
    chances,
    echoed,
    only_opened,
    signals,
)

# Words of their own for each memory; none of them has an ending to lose.
OWN_WORDS = (
    "pecan walnut ginkgo cedar",
    "basalt gravel flint schist",
    "copper nickel cobalt titan",
    "heron falcon osprey kestrel",
    "cello oboe bassoon viola",
    "linen velvet denim satin",
)


def claims(count: int = len(OWN_WORDS), *, shown: int = len(OWN_WORDS)) -> list[JudgedMemory]:
    """Return claims that share no word; the first ones were shown."""
    return [JudgedMemory(text, place < shown) for place, text in enumerate(OWN_WORDS[:count])]


def turn(**parts: object) -> Digest:
    return Digest((TurnDigest(**parts),))  # type: ignore[arg-type]


def said(*texts: str, act: str = "assistant", prompt: str = "") -> Digest:
    """Return a session of one turn, in which the agent said or did these things."""
    pieces = tuple((act, digest_terms(text)) for text in texts)
    return turn(typed=digest_terms(prompt), pieces=pieces)


def signal(memories: list[JudgedMemory], digest: Digest, name: str) -> Numbers:
    return signals(build_table(memories), digest)[:, SIGNALS.index(name)]


def chance(memories: list[JudgedMemory], digest: Digest) -> Numbers:
    return chances(build_table(memories), digest)


# -- the table -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna reviews migrations.", False),
        ("Anna reviews migrations.\n", False),
        ("Title\nbody", True),
        ("x" * (DOCUMENT_CHARS - 1), False),
        ("x" * DOCUMENT_CHARS, True),
        ("", False),
    ],
)
def test_a_document_is_long_or_has_several_lines(text: str, expected: bool) -> None:
    assert is_document(text) is expected


def test_a_term_is_rarer_the_fewer_memories_hold_it() -> None:
    table = build_table([JudgedMemory("pecan walnut", True), JudgedMemory("pecan ginkgo", False)])
    assert table.holders == {"pecan": 2, "walnut": 1, "ginkgo": 1}
    assert table.rarity["walnut"] == pytest.approx(math.log(21.0 / 1.5))
    assert table.rarity["pecan"] == pytest.approx(math.log(21.0 / 2.5))
    assert table.shown.tolist() == [True, False]
    assert table.count == 2


def test_a_document_is_named_by_its_title_and_a_claim_by_any_path() -> None:
    table = build_table(
        [
            JudgedMemory("Src/App/Main.py\nimports lib/other.py", True),
            JudgedMemory("The limit lives in ./src/limits.py and in conf.toml.", True),
            JudgedMemory("Notes\nsee lib/other.py", True),
        ]
    )
    assert table.paths == (
        frozenset({"src/app/main.py"}),
        frozenset({"src/limits.py", "conf.toml"}),
        frozenset(),
    )


def test_an_empty_table_has_no_chances() -> None:
    table = build_table([])
    assert signals(table, said("anything")).shape == (0, len(SIGNALS))
    assert chances(table, said("anything")).shape == (0,)
    assert echoed(table, said("anything")).shape == (0,)


# -- the signals ----------------------------------------------------------------------------

FILE = "src/app/main.py\npecan walnut"


@pytest.mark.parametrize("kind", ["edited", "opened"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/app/main.py", 1.0),
        ("/home/me/repo/src/app/main.py", 1.0),
        ("./SRC/app/Main.py", 1.0),
        # A part of the path, or another file of the same name, is another file.
        ("app/main.py", 0.0),
        ("lib/app/main.py", 0.0),
        ("src/app/main.pyc", 0.0),
        ("my_src/app/main.py", 0.0),
    ],
)
def test_acted_means_that_a_call_wrote_or_opened_the_file(
    kind: str, path: str, expected: float
) -> None:
    memories = [JudgedMemory(FILE, True), JudgedMemory("Other\nnotes", True)]
    assert signal(memories, turn(**{kind: (path,)}), "acted").tolist() == [expected, 0.0]
    assert signal(memories, turn(named=(path,)), "acted").tolist() == [0.0, 0.0]


def test_a_bare_file_name_in_a_memory_matches_the_file_in_any_folder() -> None:
    memories = [JudgedMemory("Limits live in limits.py", True)]
    assert signal(memories, turn(opened=("/a/b/limits.py",)), "acted").tolist() == [1.0]


def test_named_means_that_an_act_mentions_the_file() -> None:
    memories = [JudgedMemory(FILE, True), JudgedMemory("Other\nnotes", True)]
    assert signal(memories, turn(named=("src/app/main.py",)), "named").tolist() == [1.0, 0.0]
    assert signal(memories, turn(edited=("src/app/main.py",)), "named").tolist() == [0.0, 0.0]


def test_looked_up_is_what_the_output_of_tools_holds_beyond_chance() -> None:
    memories = claims(3)
    found = turn(results=("pecan", "walnut", "basalt"))
    # 3 of 12 terms were found, so each has a chance of 3.5 / 13.
    rarity, expected = math.log(21.0 / 1.5), 4 * 3.5 / 13
    weights = [(hits - expected) * rarity / (4 * rarity + LEAST_WEIGHT) for hits in (2, 1, 0)]
    assert signal(memories, found, "looked_up") == pytest.approx(weights)
    rare = signal(memories, found, "looked_up_rare")
    assert rare == pytest.approx([math.log1p(2), math.log1p(1), 0.0])


def test_a_memory_that_holds_everything_is_not_looked_up() -> None:
    """A word list is found in any output, as far as others' words are."""
    memories = [*claims(6), JudgedMemory(" ".join(OWN_WORDS), True)]
    found = turn(results=("pecan", "basalt", "cello"))
    looked_up = signal(memories, found, "looked_up")
    assert abs(looked_up[6]) < 0.02
    assert looked_up[0] > 5.0 * abs(looked_up[6])


def test_a_term_of_many_memories_is_not_rare() -> None:
    memories = [JudgedMemory(f"pecan {word}", True) for word in ("ginkgo", "cedar", "osier")]
    found = turn(results=("pecan",))
    assert signal(memories, found, "looked_up_rare").tolist() == [0.0, 0.0, 0.0]
    assert (signal(memories, found, "looked_up") > 0.0).all()


def test_brought_is_the_root_of_the_share_in_one_sentence() -> None:
    memories = claims(3)
    rarity = math.log(21.0 / 1.5)
    one, all_four = (math.sqrt(count * rarity / (4 * rarity + LEAST_WEIGHT)) for count in (1, 4))
    assert signal(memories, said("pecan"), "brought") == pytest.approx([one, 0.0, 0.0])
    assert signal(memories, said(OWN_WORDS[0]), "brought") == pytest.approx([all_four, 0.0, 0.0])
    # The best sentence counts, not the sum of all.
    apart = said("pecan", "walnut", "ginkgo")
    assert signal(memories, apart, "brought") == pytest.approx([one, 0.0, 0.0])


def test_everyday_words_and_short_numbers_count_little() -> None:
    table = build_table([JudgedMemory("people use 42 quokkas on port 8080", True)])
    common = COMMON_WEIGHT * table.rarity["quokka"]
    for term in ("people", "use", "42"):
        assert table.rarity.get(term, common) == pytest.approx(common)
    assert table.rarity["8080"] == table.rarity["quokka"]


def test_pairs_are_terms_side_by_side_that_the_person_did_not_type() -> None:
    memories = claims(3)
    rarity = math.log(21.0 / 1.5)
    pairs = signal(memories, said("pecan walnut and then ginkgo"), "brought_pairs")
    assert pairs == pytest.approx([math.log1p(2 * rarity), 0.0, 0.0])
    assert signal(memories, said("walnut pecan"), "brought_pairs").tolist() == [0.0, 0.0, 0.0]
    typed = said("pecan walnut ginkgo", prompt="pecan walnut")
    assert signal(memories, typed, "brought_pairs")[0] == pytest.approx(math.log1p(rarity))


def test_words_that_the_person_typed_are_not_brought_in() -> None:
    memories = claims(3)
    told = said("pecan walnut", prompt="take the pecans and walnuts")
    assert signal(memories, told, "brought").tolist() == [0.0, 0.0, 0.0]
    # A word stays typed for the rest of the session.
    typed, brought = TurnDigest(("pecan",)), TurnDigest(pieces=(("assistant", ("pecan",)),))
    assert signal(memories, Digest((typed, brought)), "brought").tolist() == [0.0, 0.0, 0.0]
    # What the agent said first was not the person's.
    assert signal(memories, Digest((brought, typed)), "brought")[0] > 0.0


def test_an_edit_weighs_more_than_a_call_and_a_call_more_than_a_reply() -> None:
    memories = claims(3)
    found = [signal(memories, said("pecan", act=act), "brought")[0] for act in ACTS]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(ACTS)
    assert found[-1] * math.sqrt(ACT_WEIGHTS["edit"]) == pytest.approx(found[0])


def test_a_word_that_most_memories_hold_tells_nothing() -> None:
    memories = [JudgedMemory(f"pecan {text}", True) for text in OWN_WORDS]
    found = signals(build_table(memories), said("pecans everywhere"))
    assert found[:, SIGNALS.index("brought")].tolist() == [0.0] * 6


def test_a_sentence_belongs_to_the_memory_that_holds_most_of_it() -> None:
    memories = [*claims(5), JudgedMemory("pecan walnut mulberry osier", True)]
    alone = signal(claims(5), said("pecan walnut ginkgo"), "brought_alone")
    shared = signal(memories, said("pecan walnut ginkgo"), "brought_alone")
    assert alone[0] > 0.8
    assert shared[0] > 2.0 * shared[5] > 0.0
    assert shared[0] < alone[0]


def test_above_chance_compares_with_the_other_memories() -> None:
    memories = claims(6)
    one = signal(memories, said(OWN_WORDS[0]), "brought_above_chance")
    assert one[0] > 1.0
    assert (one[1:] < 0.0).all()
    everything = signal(memories, said(*OWN_WORDS), "brought_above_chance")
    assert everything == pytest.approx([everything[0]] * 6)
    assert everything[0] < 0.5 * one[0]


def test_size_and_shown_are_the_memorys_own() -> None:
    memories = claims(2, shown=1)
    assert signal(memories, said("x"), "size") == pytest.approx([math.log1p(4)] * 2)
    assert signal(memories, said("x"), "shown").tolist() == [1.0, 0.0]


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1_100])
def test_no_piece_is_lost_in_a_long_session(count: int) -> None:
    memories = claims(3)
    whole: Piece = ("assistant", digest_terms(OWN_WORDS[0]))
    other: Piece = ("assistant", ("basalt",))
    for place in (0, count // 2, count - 1):
        pieces = [other] * count
        pieces[place] = whole
        found = signals(build_table(memories), turn(pieces=tuple(pieces)))[0]
        assert found[SIGNALS.index("brought")] > 0.8
        assert found[SIGNALS.index("brought_alone")] > 0.9


# -- the chances ----------------------------------------------------------------------------


def test_weights_are_a_logistic_function_with_a_limit() -> None:
    weights = Weights(-1.0, 0.6, {"acted": 2.0})
    table = np.zeros((3, len(SIGNALS)))
    table[1:, SIGNALS.index("acted")] = [0.5, 100.0]
    expected = [0.6 / (1.0 + math.e), 0.3, 0.6]
    assert weights.chances(table) == pytest.approx(expected)


@pytest.mark.parametrize("weights", [TITLED, UNTITLED, CLAIM])
def test_every_weight_belongs_to_a_signal(weights: Weights) -> None:
    assert set(weights.by_signal) <= set(SIGNALS)


TITLED_NOTE = (
    "docs/deploy.md\nflyctl canary frankfurt rollout webhook docker nginx grafana alert cutover"
)
UNTITLED_NOTE = (
    "How to deploy\nflyctl canary frankfurt rollout webhook docker nginx grafana alert cutover"
)
OTHERS = [JudgedMemory(f"Note {n}\n{text}", True) for n, text in enumerate(OWN_WORDS)]
LOOKED_UP = digest_terms(UNTITLED_NOTE) + digest_terms(TITLED_NOTE)


def test_a_document_whose_file_was_opened_helped() -> None:
    found = chance([JudgedMemory(TITLED_NOTE, True), *OTHERS], turn(opened=("docs/deploy.md",)))
    assert found[0] > 0.9
    assert found[1:].max() < 0.05


def test_a_document_whose_file_no_call_names_was_not_used() -> None:
    memories = [JudgedMemory(TITLED_NOTE, True), *OTHERS]
    other_file = turn(opened=("README.md",), results=LOOKED_UP)
    assert chance(memories, other_file)[0] < 0.05
    # Without any file in the calls, paths cannot tell, and words do.
    no_file = turn(results=LOOKED_UP)
    assert chance(memories, no_file)[0] > 0.5


def test_a_document_that_was_only_named_is_less_likely() -> None:
    memories = [JudgedMemory(TITLED_NOTE, True), *OTHERS]
    named = chance(memories, turn(named=("docs/deploy.md",), opened=("README.md",)))[0]
    silent = chance(memories, turn(opened=("README.md",)))[0]
    opened = chance(memories, turn(opened=("docs/deploy.md",)))[0]
    assert silent < named < 0.1 < opened


def test_a_document_without_a_title_is_recognised_by_what_was_looked_up() -> None:
    memories = [JudgedMemory(UNTITLED_NOTE, True), *OTHERS]
    for opened in ((), ("README.md",)):
        found = chance(memories, turn(results=LOOKED_UP, opened=opened))
        assert found[0] > 0.5
        assert found[1:].max() < 0.1
    half = chance(memories, turn(results=LOOKED_UP[:6]))[0]
    assert half < chance(memories, turn(results=LOOKED_UP))[0]


def test_a_document_is_as_likely_shown_or_not() -> None:
    digest = turn(opened=("docs/deploy.md",))
    shown = chance([JudgedMemory(TITLED_NOTE, True), *OTHERS], digest)[0]
    assert chance([JudgedMemory(TITLED_NOTE, False), *OTHERS], digest)[0] == shown


def test_a_restated_claim_gets_a_middle_chance() -> None:
    memories = [*claims(6, shown=4), *(JudgedMemory(f"{word} only", True) for word in "abcd")]
    found = chance(memories, said(OWN_WORDS[0]))
    assert 0.4 < found[0] < 0.6
    assert found[1:].max() < 0.1


def test_more_of_a_claim_is_more_likely() -> None:
    words = OWN_WORDS[0].split()
    found = [chance(claims(6), said(" ".join(words[:count])))[0] for count in range(5)]
    assert found == sorted(found)
    assert found[0] < 0.1 < found[4]


def test_a_claim_that_was_not_shown_is_less_likely() -> None:
    shown = chance(claims(6, shown=1), said(OWN_WORDS[0]))[0]
    unseen = chance(claims(6, shown=0), said(OWN_WORDS[0]))[0]
    assert unseen < shown


def test_results_say_nothing_about_a_claim() -> None:
    nothing = chance(claims(6), turn(results=("zebra",)))
    found = chance(claims(6), turn(results=digest_terms(OWN_WORDS[0])))
    assert found.tolist() == nothing.tolist()


TERMS = st.lists(st.sampled_from(" ".join(OWN_WORDS).split()), max_size=6, unique=True).map(tuple)
PATHS = st.lists(st.sampled_from(["docs/deploy.md", "a.py", "x/y"]), max_size=2).map(tuple)
TURNS = st.builds(
    TurnDigest,
    typed=TERMS,
    edited=PATHS,
    opened=PATHS,
    named=PATHS,
    pieces=st.lists(st.tuples(st.sampled_from(ACTS), TERMS), max_size=6).map(tuple),
    results=TERMS,
)
DIGESTS = st.builds(Digest, st.lists(TURNS, max_size=3).map(tuple))
POOL = [
    JudgedMemory(TITLED_NOTE, True),
    JudgedMemory(UNTITLED_NOTE, False),
    *OTHERS[:2],
    *claims(6, shown=3),
]


@settings(max_examples=60, deadline=None)
@given(DIGESTS)
def test_chances_are_within_their_limits(digest: Digest) -> None:
    table = build_table(POOL)
    assert np.isfinite(signals(table, digest)).all()
    found = chances(table, digest)
    assert ((found > 0.0) & (found < 1.0)).all()
    # Words alone never make a claim more likely than its limit.
    assert found[~table.is_document].max() <= CLAIM.limit == 0.6


@settings(max_examples=40, deadline=None)
@given(DIGESTS, st.permutations(range(len(POOL))))
def test_the_order_of_the_memories_does_not_matter(digest: Digest, order: list[int]) -> None:
    found = chance(POOL, digest)
    mixed = chance([POOL[place] for place in order], digest)
    assert mixed == pytest.approx(found[order], abs=1e-9)


# -- files that were only read ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("digest", "expected"),
    [
        (turn(opened=("docs/deploy.md",)), True),
        (turn(opened=("/repo/docs/deploy.md",)), True),
        (turn(edited=("docs/deploy.md",)), False),
        (turn(opened=("docs/deploy.md",), edited=("/repo/docs/deploy.md",)), False),
        (
            Digest(
                (TurnDigest(opened=("docs/deploy.md",)), TurnDigest(edited=("docs/deploy.md",)))
            ),
            False,
        ),
        (turn(named=("docs/deploy.md",)), False),
        (turn(opened=("README.md",)), False),
    ],
)
def test_a_document_was_only_opened_when_no_call_wrote_it(digest: Digest, expected: bool) -> None:
    claim = JudgedMemory("The rollout is in docs/deploy.md", True)
    table = build_table([JudgedMemory(TITLED_NOTE, True), claim, *OTHERS])
    assert only_opened(table, digest).tolist() == [expected] + [False] * (len(OTHERS) + 1)


@pytest.mark.parametrize(
    "title", ["Node.js upgrade", "Rollout and/or rollback", "Tools, e.g. docker"]
)
def test_a_title_in_prose_names_no_file(title: str) -> None:
    memories = [JudgedMemory(f"{title}\n{TITLED_NOTE.split(chr(10))[1]}", True), *OTHERS]
    terms = digest_terms(memories[0].text)
    assert chance(memories, turn(results=terms, opened=("README.md",)))[0] > 0.5


# -- echoes ---------------------------------------------------------------------------------


def echoes(memories: list[JudgedMemory], digest: Digest) -> list[int]:
    found = echoed(build_table(memories), digest)
    assert found.shape == (len(memories),)
    return np.flatnonzero(found).tolist()


def test_reading_out_most_of_what_was_shown_is_an_echo() -> None:
    memories = claims(6, shown=5)
    assert echoes(memories, said(*OWN_WORDS[:5])) == [0, 1, 2, 3, 4]
    # Four of five is enough, and only the four are echoed.
    assert echoes(memories, said(*OWN_WORDS[1:5])) == [1, 2, 3, 4]
    # A memory that was not shown cannot have been read out.
    assert echoes(memories, said(*OWN_WORDS)) == [0, 1, 2, 3, 4]


def test_restating_some_of_what_was_shown_is_an_answer() -> None:
    memories = claims(6, shown=5)
    assert echoes(memories, said(*OWN_WORDS[:3])) == []
    assert echoes(memories, said(OWN_WORDS[0])) == []


@pytest.mark.parametrize("shown", range(5))
def test_an_echo_takes_a_block_of_several_memories(shown: int) -> None:
    expected = list(range(shown)) if shown >= MIN_ECHOED else []
    assert echoes(claims(6, shown=shown), said(*OWN_WORDS)) == expected


def test_half_of_a_memory_in_one_sentence_restates_it() -> None:
    memories = claims(3)
    half = [" ".join(text.split()[:2]) for text in OWN_WORDS[:3]]
    assert echoes(memories, said(*half)) == [0, 1, 2]
    quarter = [text.split()[0] for text in OWN_WORDS[:3]]
    assert echoes(memories, said(*quarter)) == []
    scattered = [word for text in OWN_WORDS[:3] for word in text.split()]
    assert echoes(memories, said(*scattered)) == []


@pytest.mark.parametrize("act", ["edit", "tool"])
def test_only_replies_read_out(act: str) -> None:
    assert echoes(claims(3), said(*OWN_WORDS[:3], act=act)) == []


def test_a_memory_whose_file_a_call_opened_is_not_an_echo() -> None:
    memories = [*claims(4), JudgedMemory("mulberry osier: see src/limits.py", True)]
    texts = [memory.text for memory in memories]
    said_all = said(*texts).turns[0]
    assert echoes(memories, Digest((said_all,))) == [0, 1, 2, 3, 4]
    opened = Digest((replace(said_all, opened=("src/limits.py",)),))
    assert echoes(memories, opened) == [0, 1, 2, 3]


def test_the_table_knows_which_memories_are_documents() -> None:
    table: EvidenceTable = build_table([JudgedMemory(TITLED_NOTE, True), *claims(1)])
    assert table.is_document.tolist() == [True, False]
