"""Texts that look alike and are about two things: both stay."""

from __future__ import annotations

import pytest

from meritory.text.claims.compare import compare


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Le projet Martin est en production.", "Le projet Martine est en production."),
        ("C'est Renée qui relit les devis.", "René relit les devis."),
        ("El expediente lo lleva Daniel.", "Daniela lleva el expediente."),
        ("Mi dentista es el doctor Antonio.", "La doctora Antonia es mi dentista."),
        ("Martin gère le budget.", "Martine gère le budget."),
        ("Antonio lleva las cuentas.", "Antonia lleva las cuentas."),
        ("Die Akte wird von Stefan geführt.", "Stephan führt die Akte."),
    ],
)
def test_names_that_differ_in_an_ending_are_two_names(old: str, new: str) -> None:
    assert compare(old, new).relation != "merge"
    assert compare(new, old).relation != "merge"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Le dossier est suivi par Martine.", "Martine suit le dossier."),
        ("El expediente lo lleva María.", "Maria lleva el expediente."),
    ],
)
def test_one_name_in_both_texts_is_merged(old: str, new: str) -> None:
    assert compare(old, new).relation == "merge"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("From now on always use tabs here.", "From now on always use bun."),
        (
            "From now on run make lint before you commit.",
            "From now on run make typecheck before you commit.",
        ),
        (
            "Always upload the env file to the blue mirror.",
            "Mistake to avoid: Always upload the env file to the red mirror.",
        ),
        ("I take vitamin D in winter.", "I now take iron in the morning."),
        ("We deploy the API with Helm.", "We now deploy the frontend with Vercel."),
        (
            "La oficina de Madrid cierra los viernes.",
            "La oficina de Sevilla abre ahora los viernes.",
        ),
        (
            "Le bureau de Lyon ferme le vendredi.",
            "Le bureau de Lille ouvre maintenant le vendredi.",
        ),
        ("La app admite francés.", "La app admite ahora italiano."),
        ("Mi hermano vive en Vigo.", "Mi hermana se mudó de Vigo a Lugo."),
        ("Room 4 is booked on Tuesday.", "Room 6 is now booked on Tuesday."),
    ],
)
def test_a_text_that_differs_in_two_things_retires_nothing(old: str, new: str) -> None:
    assert compare(old, new).relation == "keep_both"


def test_a_rule_from_now_on_still_replaces_a_plain_one() -> None:
    found = compare("The standup is at 9:15.", "From now on the standup is at 10.")
    assert found.relation == "supersede"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Der Lehrer von Tom ist streng.", "Die Lehrerin von Tom ist streng."),
        ("El profesor de Hugo es alto.", "La profesora de Hugo es alta."),
        ("Mon ami est médecin.", "Mon amie est médecin."),
    ],
)
def test_a_man_and_a_woman_are_two_people(old: str, new: str) -> None:
    assert compare(old, new).relation != "merge"


def test_a_role_passes_to_the_other_gender() -> None:
    found = compare("Mein Trainer ist Herr Wolf.", "Meine neue Trainerin ist jetzt Frau Lang.")
    assert found.relation == "supersede"


def test_a_noun_before_a_preposition_is_no_phrasal_verb() -> None:
    one = "Increase my follower count on all platforms."
    assert compare(one, one.replace("count", "counts")).relation != "merge"
