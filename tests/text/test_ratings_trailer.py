"""Ratings are read from a reply in any of their forms, and nothing of ours stays in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text import ratings_trailer
from meritory.text.ratings_trailer import (
    Ratings,
    Trailer,
    parse_ratings,
    read_trailers,
    strip_injected,
    strip_own,
    strip_trailers,
)
from meritory.text.render import (
    MARKER,
    OWN_REMARK,
    Block,
    RenderedMemory,
    StatusFacts,
    codes,
    render_prompt,
    render_start,
    status_line,
)

CODE, NONCE = codes(b"secret", "session", 1)
OURS = f"<!--mf {CODE} m1=0.8 m3=-0.2-->"
SCORES = (("m1", 0.8), ("m3", -0.2))
BLOCK = Block(
    code=CODE,
    nonce=NONCE,
    memories=(
        RenderedMemory("m1", "one\n\ntwo <b>"),
        RenderedMemory("m2", "three", kind="constraint"),
    ),
    overflow=("rules",),
    status_line=status_line(StatusFacts(state="active", alpha=0.3, session_count=9)),
    ask=True,
    explain=True,
    invite=True,
)


@pytest.mark.parametrize(
    "text",
    [
        OURS,
        f"Done.\n\n{OURS}\n",
        f"Done. {OURS} Bye.",
        f"```html\n{OURS}\n```",
        f"`{OURS}`",
        f"<!-- mf {CODE} m1=0.8, m3=-0.2 -->",
        f"<!--mf: {CODE.upper()} M1 = +0.80 m3: \u22120.2-->",
        f"<!--mf {CODE}\nm1=.8;\nm3=-2e-1\n-->",
        f'<!--mf {CODE} {{"m1": 0.8, "m3": -0.2}}-->',
        f"<!--mf {CODE} m1=-1--> {OURS}",
        f"{OURS} and then <!--mf cut",
        f"{OURS} <!--mf m1=1--> more text",
        f"a reply about `<!--mf` and --> arrows\n\n{OURS}",
        "x" * 1_000_000 + OURS,
    ],
)
def test_our_form_in_all_its_spellings(text: str) -> None:
    assert read_trailers(text)[0] == Trailer(CODE, Ratings(SCORES))


@pytest.mark.parametrize(
    "text",
    [
        OURS.replace("<", "&lt;").replace(">", "&gt;"),
        OURS.replace("<", "&lt;"),
        OURS.replace(">", "&gt;"),
        "<!--mf memory12 = 0.5 m2=0.25-->",
        '<memory-feedback>{"m1": 0.8, "m3": -0.2}</memory-feedback>',
        'Done.\n<memory-feedback>\n{"m1": 0.8,\n "m3": -0.2}\n</memory-feedback>\n',
        '<memory_feedback>```json\n{"m1": 0.8, "m3": -0.2}\n```</memory_feedback>',
        '```\n<MEMORY-FEEDBACK>{"m1": 0.8, "m3": -0.2}</MEMORY-FEEDBACK>\n```',
        '<memory-feedback>{"m1": 0.8, "m3": -0.2}',
        '<memory-feedback >{"memory_feedback": {"m1": 0.8, "m3": -0.2}}</memory-feedback >',
        '&lt;memory-feedback&gt;{"m1": 0.8, "m3": -0.2}&lt;/memory-feedback&gt;',
        "<!--mf m1=0.8 m3=-0.2-->",
    ],
)
def test_entities_and_forms_without_a_code_rate_nothing(text: str) -> None:
    """A reply that quotes stored text has them: it is shown with `&lt;` and knows no code."""
    assert read_trailers(text) == ()
    assert "0." not in strip_trailers(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Done.",
        "<!--mf",
        f"<!--mf {CODE} m1=0.8",
        f"<!--mf {CODE} m1=0.8\n\nA new paragraph --> here",
        f"<!--mf {CODE} " + "m1=0.8 " * 400 + "-->",
        f"<!--mfx {CODE} m1=0.8-->",
        f"<!-- {CODE} m1=0.8-->",
        f"{OURS}" + "x" * ratings_trailer.TAIL_LIMIT_CHARS,
        "<memory-feedback>Rate the notes</memory-feedback>",
        "<memory-feedback>{'m1': 0.8}</memory-feedback>",
        "<memory-feedback>[0.8]</memory-feedback>",
        '<memory-feedback>{"m1": 0.8</memory-feedback>',
        "<memory-feedback>" + "[" * 2_000,
        "<memory-feedback>" + '{"a":' * 2_000,
        "<memory-feedback>" + '{"a":' + "[" * 2_000,
        'The form is <memory-feedback>{"m1": 0.8}</memory-feedback>, as the seed says.',
        "The form is <!--mf m1=0.8-->, without a code.",
    ],
)
def test_what_is_no_trailer(text: str) -> None:
    assert read_trailers(text) == ()


def test_all_trailers_are_read_the_last_one_first() -> None:
    other = f"<!--mf {CODE[::-1]} m1=1-->"
    first, last = Trailer(CODE, Ratings(SCORES)), Trailer(CODE[::-1], Ratings((("m1", 1.0),)))
    assert read_trailers(f"{OURS}\nand {other}") == (last, first)
    assert read_trailers(f"{OURS}\n<!--mf {CODE}-->")[0] == Trailer(CODE, Ratings())
    many = read_trailers(f"{OURS}\n" + f"{other}\n" * 99)
    assert many == (last,) * ratings_trailer.TRAILERS_LIMIT_COUNT


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("N", "not a number"),
        ("high", "not a number"),
        ("0.5.1", "not a number"),
        ("1_0", "not a number"),
        ("٠", "not a number"),
        ("nan", "not finite"),
        ("-Infinity", "not finite"),
        ("1e999", "not finite"),
        ("1.01", "out of -1..1"),
        ("-7", "out of -1..1"),
        ("99999999999", "not a number"),
    ],
)
def test_a_wrong_score_is_refused_alone(value: str, reason: str) -> None:
    (found,) = read_trailers(f"<!--mf {CODE} m1=0.5 m2={value} m3=1-->")
    assert found.ratings == Ratings((("m1", 0.5), ("m3", 1.0)), (("m2", reason),))


def test_the_request_itself_rates_nothing() -> None:
    """An agent that copies the form instead of filling it in has said nothing."""
    (found,) = read_trailers(render_prompt(BLOCK))
    assert found.code == CODE
    assert found.ratings.scores == ()


def test_malformed_pieces_are_named() -> None:
    (found,) = read_trailers(f"<!--mf {CODE} hello m1=0.5 =0.3 a/b=1 m1=-0.5 m2=-->")
    assert found.ratings.scores == (("m1", -0.5),)
    assert ("m1", "given again") in found.ratings.refused
    assert {"hello", "a/b"} <= {name for name, _ in found.ratings.refused}


@pytest.mark.parametrize(
    ("mapping", "scores", "refused"),
    [
        ({}, (), ()),
        ({"m1": 1, "mem_abc": -0.0}, (("m1", 1.0), ("mem_abc", 0.0)), ()),
        ({"M2": 0.5}, (("m2", 0.5),), ()),
        ({"m1": True}, (), (("m1", "not a number"),)),
        ({"m1": "0.8"}, (), (("m1", "not a number"),)),
        ({"m1": None, "m2": [1]}, (), (("m1", "not a number"), ("m2", "not a number"))),
        ({"m1": float("nan"), "m2": float("-inf")}, (), (("m1", "not finite"),) * 1),
        ({"m1": 10**400, "m2": 0}, (("m2", 0.0),), (("m1", "out of -1..1"),)),
        ({"": 1, 5: 1, "a b": 1, "x" * 65: 1}, (), (("", "malformed name"),) * 1),
        ({"m1": 0.5, "M1": 0.25}, (("m1", 0.25),), (("m1", "given again"),)),
    ],
)
def test_ratings_from_an_object(
    mapping: object, scores: tuple[object, ...], refused: tuple[object, ...]
) -> None:
    found = parse_ratings(mapping)
    assert found.scores == scores
    assert found.refused[: len(refused)] == refused
    assert isinstance(mapping, dict)
    assert len(found.scores) + len(found.refused) == len(mapping)


@pytest.mark.parametrize("mapping", [None, 1, "m1=1", [["m1", 1]], ({"m1": 1},)])
def test_ratings_from_anything_else(mapping: object) -> None:
    assert parse_ratings(mapping) == Ratings(refused=(("", "not an object from names to scores"),))


def test_too_many_ratings_are_cut() -> None:
    found = parse_ratings({f"m{number}": 0 for number in range(1, 1_000)})
    assert len(found.scores) == ratings_trailer.RATINGS_LIMIT_COUNT
    assert len(found.refused) == 1


# --- stripping -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Done.", "Done."),
        ("  indented\n", "  indented\n"),
        (f"Done.\n\n{OURS}\n", "Done."),
        (f"  keep\n{OURS}\n  this", "  keep\n  this"),
        (f"a {OURS} b {OURS} c", "a \n b \n c"),
        (f"Done.\n```html\n{OURS}\n```", "Done."),
        (f"Done.\n```\n{OURS}", "Done."),
        (f"Done. `{OURS}`", "Done."),
        (OURS.replace("<", "&lt;").replace(">", "&gt;"), ""),
        ('Done. <memory-feedback>{"m1": 1}</memory-feedback>', "Done."),
        ('Done. <memory-feedback>{"m1": 1}\nmore', "Done. \nmore"),
        ('Done. <memory-feedback>{"m1": 1, "m', "Done."),
        ("Done. <memory-feedback>```json\n", "Done."),
        ("Done. <memory-feedback>\nRate.\n</memory-feedback>\nmore", "Done. \nmore"),
        (f"Done.\n<!--mf {CODE} m1=0.8 m", "Done."),
        (f"Done.\n<!--mf {CODE} m1=0.8 --", "Done."),
        (f"Done.\n<!--mf {CODE}", "Done."),
        (f"Done.\n<!--mf {CODE} m1=0.8 m2=-1\nmore text", "Done.\nmore text"),
        ("Done.\n<!--mf", "Done."),
        ("Done.\n<!--m", "Done."),
        ("Done.\n<!-", "Done."),
        ("Done.\n<memory-fee", "Done."),
        (
            "The mark <!--mf is ours, <!-- this --> is not.",
            "The mark \n is ours, <!-- this --> is not.",
        ),
        ("<!-- mfg notes --> a < b", "<!-- mfg notes --> a < b"),
    ],
)
def test_a_reply_without_its_trailer(text: str, rest: str) -> None:
    assert strip_trailers(text) == rest


@pytest.mark.parametrize("render", [render_start, render_prompt])
def test_nothing_of_an_injection_stays(render: object) -> None:
    assert callable(render)
    block = render(BLOCK)
    assert strip_injected(block) == ""
    assert strip_injected(f"before\n{block}\nafter") == "before\nafter"
    assert strip_injected(f"context: {block}\n\nmy prompt") == "context: \nmy prompt"
    gemini = block.replace("<", "&lt;").replace(">", "&gt;")
    assert (
        strip_injected(f"<hook_context>{gemini}</hook_context>")
        == "<hook_context>\n</hook_context>"
    )


def test_a_block_without_its_beginning_or_end_goes_too() -> None:
    block = render_start(BLOCK)
    whole = block[: block.index("[meritory: ")].rstrip()
    assert (
        strip_injected("before\n" + whole[: whole.index("[/meritory")] + "after") == "before\nafter"
    )
    assert strip_injected(whole[whole.index("m1: ") :] + "\nafter") == "after"
    assert strip_injected(f"mine\n{whole[whole.index('| two') :]}\nafter") == "mine\nafter"


def test_words_of_others_stay() -> None:
    text = "m1: my own list\n| a table |\n[meritoryd staff] [/b] [meritory notes abc]"
    assert strip_own(text) == text


_PIECES = st.sampled_from(
    [
        OURS,
        "<!--mf ",
        "<!--",
        "<!--m",
        "f ",
        "mf ",
        "-->",
        CODE,
        "m1=0.8 ",
        "<memory-feedback>",
        "</memory-feedback>",
        "<memory",
        "-feedback>",
        '{"m1": 0.5}',
        "{",
        "```json\n",
        "`",
        "\n",
        "\n\n",
        " ",
        "word",
        "&lt;",
        "&gt;",
        f"[meritory notes {NONCE}]",
        f"[/meritory notes {NONCE}]",
        f"[meritory notes {NONCE[::-1]}]",
        "[meritory",
        " notes ",
        NONCE,
        "]",
        "[meritory: x]",
        ": y",
        "m1: a",
        "| b",
        "+ c",
    ]
)
_MIXTURE = st.one_of(st.lists(_PIECES, max_size=14).map("".join), st.text(max_size=200))


@given(_MIXTURE)
def test_nothing_raises_and_nothing_of_ours_is_left(text: str) -> None:
    for found in read_trailers(text):
        assert all(-1 <= score <= 1 for _, score in found.ratings.scores)
    rest = strip_trailers(text)
    assert read_trailers(rest) == ()
    assert strip_trailers(rest) == rest
    outside = strip_injected(text)
    assert not MARKER.search(outside)
    assert not OWN_REMARK.search(outside)
    assert strip_own(strip_own(text)) == strip_own(text)


@given(st.text(alphabet=st.characters(blacklist_characters="<&["), max_size=300))
def test_a_text_without_our_marks_is_left_as_it_is(text: str) -> None:
    assert strip_own(text) == text


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(st.dictionaries(st.text(max_size=8) | st.integers(), _SCALARS))
def test_any_object_is_rated_or_refused_name_by_name(mapping: dict[object, object]) -> None:
    found = parse_ratings(mapping)
    assert all(-1 <= score <= 1 for _, score in found.scores)
    assert len(found.scores) + len(found.refused) == len(mapping)


_REPEATED = [
    "<!--mf ",
    "<!--mf\n",
    "<!--mf \n\n",
    f"<!--mf {CODE} m1=0.8 ",
    f"<!--mf {CODE} m1=0.8,\n",
    "<memory-feedback>",
    "<memory-feedback>\n",
    '<memory-feedback>{"',
    '<memory-feedback>{"a": [',
    "&lt;!--",
    "<!--",
    "`",
    "```\n",
    "--",
    " ,a=",
    f"[meritory notes {NONCE}]",
    f"[meritory notes {NONCE}]\nm1: a\n",
    f"m1: a\n[/meritory notes {NONCE}]\n",
    "m1: a\n",
    "[meritory: ",
    "x",
    " ",
    "\n",
]


@pytest.mark.parametrize("piece", _REPEATED)
def test_much_of_anything_is_read_in_linear_time(piece: str) -> None:
    """The suite's own time limit is the bar: what backtracks would take hours."""
    much = piece * (100_000 // len(piece))
    for text in (much, f"<!--mf {much}", f"<memory-feedback>{much}", f"{OURS}{much}"):
        read_trailers(text)
        strip_own(text)


def test_a_megabyte_of_everything_is_read() -> None:
    text = "".join(piece * 40 for piece in _REPEATED)
    text *= 1_000_000 // len(text) + 1
    assert read_trailers(text + OURS)[0] == Trailer(CODE, Ratings(SCORES))
    assert not MARKER.search(strip_own(text))
