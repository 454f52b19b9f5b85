"""Standing memories and kinds of questions, in five languages."""

from __future__ import annotations

import pytest

from meritory.text.requests import asks_for_state, asks_over_many, condition_of, is_standing

STANDING = (
    "Always include tool names when I ask about writing aids.",
    "I prefer tabs over spaces",
    "I'd really prefer short answers",
    "We never want generated code in the repository",
    "The project is in Go. Never edit the files under gen/.",
    "User prefers a window seat.",
    "Antworte immer auf Deutsch",
    "Ich bevorzuge dunkle Themen",
    "Réponds toujours en français",
    "Je préfère le thé",
    "Usa siempre tabuladores",
    "Prefiero pytest",
    "请始终用中文回答",
    "用户喜欢深色模式",
)
PLAIN = (
    "The staging database runs on port 5432",
    "I went to the beach with my kids",
    "Der Server steht in Frankfurt",
    "Le serveur est à Paris",
    "El servidor está en Madrid",
    "服务器在北京",
)


@pytest.mark.parametrize("text", STANDING)
def test_the_wording_shows_an_instruction_or_a_preference(text: str) -> None:
    assert is_standing(text, "fact")


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_statement_is_not_standing_unless_its_kind_says_so(text: str) -> None:
    assert not is_standing(text, "fact")
    assert is_standing(text, "preference")
    assert is_standing(text, "constraint")


def test_the_condition_of_an_instruction_is_the_subject_it_is_for() -> None:
    assert condition_of("Always add dates when I ask about deadlines") == "deadlines"
    assert condition_of("Never use tabs") == "never use tabs"
    assert condition_of("Usa siempre tabuladores") == "usa siempre tabuladores"
    assert condition_of("Réponds toujours brièvement quand je parle du projet") == "parle du projet"


@pytest.mark.parametrize(
    "query",
    [
        "How many books have I read?",
        "What did I spend in total?",
        "Wie viele Bücher habe ich gelesen?",
        "Combien de livres ai-je lus ?",
        "¿Cuántos libros he leído?",
        "我一共读了多少本书？",
    ],
)
def test_a_question_over_many_sessions_is_known(query: str) -> None:
    assert asks_over_many(query)


@pytest.mark.parametrize("query", ["Which port has the staging database?", "Wo steht der Server?"])
def test_a_question_for_one_fact_is_not_over_many(query: str) -> None:
    assert not asks_over_many(query)


@pytest.mark.parametrize(
    "query",
    [
        "What's next?",
        "So what do we do next?",
        "Where were we?",
        "Let's continue.",
        "Was kommt als Nächstes?",
        "Wo waren wir?",
        "Où en étions-nous ?",
        "Et ensuite ?",
        "¿Qué sigue?",
        "¿Por dónde íbamos?",
        "接下来做什么？",
        "继续",
    ],
)
def test_a_question_without_a_subject_asks_for_the_state(query: str) -> None:
    assert asks_for_state(query)


@pytest.mark.parametrize(
    "query",
    [
        "What's next on our list for the trip to Busan?",
        "Which next step does the parser take?",
        "Continue statement in Python",
        "Was ist ein Port?",
        "¿Qué puerto usa la base de datos?",
        "服务器的端口是什么？",
    ],
)
def test_a_question_with_a_subject_does_not(query: str) -> None:
    assert not asks_for_state(query)
