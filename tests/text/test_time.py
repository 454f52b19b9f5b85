"""Questions about the past, statements that age, and dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.time import (
    READ_CHARS,
    asks_about_now,
    asks_about_past,
    date_text,
    may_change,
)

PAST = (
    "What was the release branch called before?",
    "which bank did we use previously",
    "Who was the previous tenant?",
    "What did the plan originally cost?",
    "Where did she use to live? She used to live near the sea.",
    "What is the name of the old office?",
    "Where did I live in 2019?",
    "What was the rent last year?",
    "Which editor did we have before we took the new one?",
    "Wie hieß die Katze früher?",
    "Wo war das Büro vor dem Umzug?",
    "Wer war der ehemalige Mieter?",
    "Was kostete die Karte letztes Jahr?",
    "Où habitait Léa avant ?",
    "Quel était l'ancien nom du chat ?",
    "Combien coûtait le loyer l'année dernière ?",
    "¿Dónde vivía Ana antes?",
    "¿Cuál era el nombre anterior del gato?",
    "¿Cuánto costaba el año pasado?",
    "猫以前叫什么名字？",
    "之前的房东是谁？",
    "去年房租是多少？",
)
PRESENT = (
    "What is the release branch called?",
    "What must I do before a release?",
    "Which checks run before deploying?",
    "Have I met Ada before?",
    "Where does my former boss work now?",
    "How old is the cat?",
    "What is the tool used to build images?",
    "What is due in March?",
    "When did we last deploy?",
    "Was muss vor dem Umzug fertig sein?",
    "Geht das früher als geplant?",
    "Que faire avant de partir ?",
    "¿Qué hay que hacer antes de salir?",
    "上线之前要做什么？",
    "猫叫什么名字？",
    "",
)
CHANGING = (
    "The office is now in Graz",
    "The current version is 2.4.1",
    "The rent costs 900 euros",
    "The limit is 500",
    "We use pnpm since May",
    "Das Büro ist jetzt in Graz",
    "Le bureau est maintenant à Lyon",
    "La oficina está ahora en León",
    "办公室现在在苏州",
)
LASTING = (
    "The staging database is called heron",
    "Anna prefers short answers",
    "The office moved to Graz in 2021 and is now in Linz",
    "Since it is slow, run it at night",
    "Rufus mag keine Katzen",
    "我喜欢喝茶",
)


@pytest.mark.parametrize("query", PAST)
def test_a_question_about_the_past_is_known_by_its_words(query: str) -> None:
    assert asks_about_past(query)
    assert asks_about_past(query.upper())


@pytest.mark.parametrize("query", PRESENT)
def test_other_questions_are_about_the_present(query: str) -> None:
    assert not asks_about_past(query)


@pytest.mark.parametrize(
    "query",
    (
        "What did Rufus say about the boat?",
        "where was the picnic",
        "Wann war das Sommerfest?",
        "Qui avait réservé la salle ?",
        "¿Quién fue el primer cliente?",
        "那天谁来了？",
        "what was the old port",
        "Wann haben wir die Heizung entlüftet und gereinigt?",
        "Was habe ich in Bremen gemacht?",
        "Quand ai-je réparé le toit ?",
        "Qu'avons-nous fait à Nantes ?",
        "¿Qué hicimos en Cádiz?",
        "¿Cuándo llegó el paquete?",
        "我什么时候换的灯泡？",
        "我们在桂林做了什么？",
    ),
)
def test_the_newest_answer_to_a_question_about_an_event_is_not_the_best(query: str) -> None:
    assert not asks_about_now(query)


@pytest.mark.parametrize(
    "query",
    (
        "Which port does the relay use?",
        "When did I last change the filter?",
        "what was the latest price",
        "Wie heißt der Hund?",
        "Combien coûte le billet ?",
        "¿Dónde vive Inés?",
        "渡轮票价是多少？",
        "Was kostet die Fähre?",
        "Wann hat das Freibad geöffnet?",
        "Quand avons-nous rendez-vous ?",
        "¿Cuándo vamos al dentista?",
        "会议什么时候开始？",
        "",
    ),
)
def test_other_questions_are_best_answered_by_the_newest(query: str) -> None:
    assert asks_about_now(query)


@pytest.mark.parametrize("text", CHANGING)
def test_a_statement_that_changes_needs_its_date(text: str) -> None:
    assert may_change(text)


@pytest.mark.parametrize("text", LASTING)
def test_one_that_lasts_or_has_its_date_needs_none(text: str) -> None:
    assert not may_change(text)


def test_only_the_beginning_of_a_text_is_read() -> None:
    assert not asks_about_past("x" * READ_CHARS + " previously")
    assert not may_change("x" * READ_CHARS + " currently")


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)),
    st.integers(-14, 14),
)
def test_a_date_is_the_day_in_utc(at: datetime, hours: int) -> None:
    moment = at.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert datetime.strptime(date_text(moment), "%d %b %Y").date() == moment.astimezone(UTC).date()
