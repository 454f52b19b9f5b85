"""The learned weights: what they keep that no cue matches, and what they never see as a fact."""

from __future__ import annotations

import pytest

from meritory.domain.session import Turn
from meritory.text.extract import lasting
from meritory.text.extract.attribution import Spoken
from meritory.text.extract.lasting import Clauses, ClauseWeights
from meritory.text.extract.rules import FoundClaim, read

KEPT = [
    ("en", "We ferment our hot sauce in oak barrels"),
    ("de", "Wir nutzen MinIO für die Fotos"),
    ("fr", "On stocke les photos chez OVH"),
    ("es", "Guardamos las fotos en MinIO"),
    ("zh", "我们的图片都放在阿里云上"),
]
LEFT = [
    ("en", "I'm a bit worried about the review"),
    ("en", "Let's start on phase 2"),
    ("de", "Ich bin gerade im Zug"),
    ("fr", "Je pense que tu as raison"),
    ("es", "Necesito terminar esto hoy"),
    ("zh", "我觉得你说得对"),
]


def clauses(language: str, text: str) -> Clauses:
    return Clauses(Spoken(text, text), language)


@pytest.mark.parametrize(("language", "text"), KEPT)
def test_a_lasting_statement_is_kept_whole(language: str, text: str) -> None:
    assert clauses(language, text).kept() == [(0, len(text))]


@pytest.mark.parametrize(("language", "text"), LEFT)
def test_moods_plans_and_opinions_are_left(language: str, text: str) -> None:
    assert clauses(language, text).kept() == []


def test_spans_that_a_cue_took_are_not_kept_again() -> None:
    language, text = KEPT[0]
    assert clauses(language, text).kept([(3, 9)]) == []


def test_a_path_or_a_fragment_is_no_sentence() -> None:
    assert not clauses("en", "the second part").is_sentence(0, 15)
    assert clauses("en", "our log").is_sentence(0, 7)


def test_a_sentence_that_supposes_or_reports_is_left() -> None:
    assert clauses("en", "If we ferment our sauce in barrels, fine").kept() == []


def test_the_file_holds_what_was_packed() -> None:
    weights = ClauseWeights(frozenset({3, 7}), {5: 0.5, 9: -1.25}, 0.75)
    assert lasting.unpacked(lasting.packed(weights)) == weights
    assert len(lasting.shipped().weights) > 1_000


def test_unknown_words_count_by_their_class() -> None:
    one, other = (
        clauses("en", f"we brew {name}").parts((0, 12), frozenset()) for name in ("Xyli", "Zubo")
    )
    assert one == other and "has=<name>" in one


def test_what_only_the_weights_see_becomes_a_fact_and_never_binds() -> None:
    [claim] = read(
        [Turn("user", "Fix it please. We ferment our hot sauce in oak barrels.")]
    ).candidates
    assert isinstance(claim, FoundClaim)
    assert (claim.kind, claim.provenance, claim.is_plain) == ("fact", "user_stated", True)
    assert claim.content == "We ferment our hot sauce in oak barrels"


def test_a_cue_that_the_weights_overrule_can_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [Turn("user", "My laptop has 16 GB.")]
    assert [one.content for one in read(turns).candidates] == ["My laptop has 16 GB"]
    sure = ClauseWeights(frozenset(), {}, lasting.DECLINED_SCORE - 1)
    monkeypatch.setattr(lasting, "shipped", lambda: sure)
    found = read(turns)
    assert found.candidates == ()
    assert [(one.found.content, one.outcome) for one in found.refused] == [
        ("My laptop has 16 GB", "floored")
    ]
