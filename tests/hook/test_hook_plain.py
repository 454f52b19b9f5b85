"""The form without angle brackets, and sizes as clients count them."""

from __future__ import annotations

import pytest

from meritory.domain.errors import TooLarge
from meritory.text import render
from meritory.text.ratings_trailer import read_trailers, strip_own, strip_trailers

CODE = "k7f3q2xd00"


def block(content: str, *, plain: bool) -> render.Block:
    shown = (render.RenderedMemory("m1", content),)
    return render.Block(code=CODE, nonce="0" * 32, memories=shown, ask=True, plain=plain)


@pytest.mark.parametrize("explain", [True, False])
def test_nothing_of_ours_needs_an_angle_bracket(explain: bool) -> None:
    asked = render.feedback_request(CODE, ["m1", "m2"], explain=explain, plain=True)
    assert "{mf k7f3q2xd00 m1=N m2=N}" in asked
    assert not set(asked) & set("<>")
    whole = render.render_start(block("a < b", plain=True))
    assert not set(whole) & set("<>")
    assert strip_own(whole) == ""


def test_ratings_in_braces_are_read_and_taken_out() -> None:
    (found,) = read_trailers(f"It is so.\n{{mf {CODE} m1=0.8 m3=-0.2}}")
    assert (found.code, found.ratings.scores) == (CODE, (("m1", 0.8), ("m3", -0.2)))
    assert strip_trailers(f"It is so.\n{{mf {CODE} m1=0.8}}\nYes.") == "It is so.\nYes."
    assert strip_trailers(f"It is so.\n`{{mf {CODE} m1=0.8}}`") == "It is so."
    assert strip_trailers(f"It is so.\n{{mf {CODE} m1=0.") == "It is so."


@pytest.mark.parametrize(
    "text", ["{mf}", "{mf x}", "{mf m1=1}", "{mfoo 0123456789 m1=1}", "{ mf }"]
)
def test_other_braces_are_left_alone(text: str) -> None:
    assert read_trailers(text) == ()
    assert strip_trailers(f"{text} and so on") == f"{text} and so on"


def test_what_counts_twice_for_a_client_counts_twice() -> None:
    assert [render.units(text) for text in ("", "abc", "é", "😀", "\ud800")] == [0, 3, 1, 2, 1]
    plain, wide = render.RenderedMemory("m1", "x" * 100), render.RenderedMemory("m1", "😀" * 100)
    assert render.cost(wide).chars == render.cost(plain).chars + 100
    with pytest.raises(TooLarge):
        render.render_start(block("😀" * 4_800, plain=False))
