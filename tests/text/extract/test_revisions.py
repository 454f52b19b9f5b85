"""Corrections are read by their relation to one memory, not by their wording."""

from __future__ import annotations

import pytest

from meritory.domain.session import Turn
from meritory.text.extract.revisions import may_correct, revise

# A memory, a turn that answers a reply with it, and words of the memory that takes its place.
ANSWERS = (
    ("My doctor is Dr. Lane.", "Dr. Lane retired, my new doctor is Dr. Okoro", "Dr. Okoro"),
    ("The deadline is 4 May.", "They pushed the deadline to 11 May", "11 May"),
    ("I work at Siemens.", "I don't work at Siemens any longer, I joined Bosch in June", "Bosch"),
    ("The logo is green.", "it's blue, not green", "The logo is blue"),
    ("Our CEO is Maria Stone.", "Maria Stone stepped down, the CEO is Paul Reyes", "Paul Reyes"),
    ("My car is a Golf.", "I traded the Golf in for a Polestar", "Polestar"),
    (
        "We deploy on Fridays.",
        "stop saying we deploy on Fridays, we deploy on Tuesdays",
        "Tuesdays",
    ),
    ("The relay listens on port 7001.", "wrong, it's 7010", "The relay listens on port 7010"),
    ("Support is handled by Lena.", "Lena handed support over to Tariq", "Tariq"),
    ("I have three goats.", "I have two goats now", "two goats"),
    ("Der Server steht in Frankfurt.", "Der Server ist nach Dublin umgezogen", "Dublin"),
    ("Wir benutzen Jira.", "Jira haben wir abgeschafft, wir arbeiten mit Linear", "Linear"),
    ("Die Farbe ist Rot.", "nicht Rot, Blau", "Die Farbe ist Blau"),
    ("Der Kurs beginnt um 18 Uhr.", "falsch, er beginnt um 19 Uhr", "19 Uhr"),
    ("Le budget est de 2000 euros.", "Le budget est passé à 2500 euros", "2500"),
    ("Nous utilisons Trello.", "On a remplacé Trello par Asana", "Asana"),
    ("Le chat s'appelle Minou.", "Il s'appelle Milou, pas Minou", "Le chat s'appelle Milou"),
    ("J'habite à Nantes.", "J'ai déménagé à Rennes en mars", "Rennes"),
    ("El servidor está en Madrid.", "El servidor se trasladó a Valencia", "Valencia"),
    ("Usamos Trello.", "Cambiamos Trello por Asana", "Asana"),
    ("El gato se llama Michi.", "Se llama Mochi, no Michi", "El gato se llama Mochi"),
    ("服务器在上海。", "服务器搬到北京了", "北京"),
    ("我们用 Trello。", "我们不用 Trello 了，换成了 Asana", "Asana"),
    ("截止日期是6月3日。", "截止日期改到6月10日了", "10"),
    # The agent's own words, the memory's own negation, and a consequence are no suppositions.
    ("The build host runs Ubuntu.", "you said Ubuntu but the build host runs Arch", "Arch"),
    ("I can't eat prawns.", "no, it's mussels that I can't eat, not prawns", "mussels"),
    ("Usamos Django 4.", "actualizamos a Django 5, así que debería funcionar", "Django 5"),
    # One person follows another, and a value stands within the memory.
    ("Otto writes the minutes.", "Ana took over the minutes from Otto in May", "Ana"),
    ("Ma nièce a cinq ans.", "ma nièce a six ans maintenant", "six ans"),
    ("我侄子八岁。", "我侄子已经九岁了", "九岁"),
    ("The fee is 30 a month.", "The fee is 35 now", "35"),
    ("The quota is 10 GB.", "the quota went from 10 to 15 GB", "15"),
)
# A memory, and a turn that is about something else or corrects nothing.
APART = (
    ("The logo is green.", "what if the logo was blue, not green?"),
    ("The logo is green.", "maybe we should make it blue, not green"),
    ("The logo is green.", "make the button blue, not green, just for this draft"),
    ("The logo is green.", "Great, thanks. Now write the tests."),
    ("The shed roof is metal.", "no no, Ines leads the export team now, not Emil"),
    ("I live in Bergen.", "My sister doesn't live in Oslo anymore, she moved to Rome"),
    ("We test the frontend with Jest.", "the tests pass now, thanks"),
    ("Our office is on Quill Street.", "The codename of the new engine is Orchid"),
    ("Wir benutzen Jira.", "Wenn wir Jira abschaffen, nehmen wir Linear"),
    ("Notre réunion a lieu le lundi.", "Corrige le titre de la page"),
)
# A memory that the agent just said, and a turn that adds something or is about another subject.
ADDED = (
    ("We lint the client with Biome.", "now we lint the server with Biome"),
    ("We queue jobs in Redis.", "we also queue jobs in Kafka now"),
    ("Our shop is in Turku.", "our second shop is in Espoo now"),
    ("The stamp is red.", "the new cover is blue, not red"),
    ("Our shop is in Turku.", "now do the same for the shop in Espoo"),
    ("Wir nutzen Redis.", "wir nutzen jetzt auch Kafka"),
)


@pytest.mark.parametrize(("memory", "turn", "kept"), ANSWERS)
def test_a_turn_corrects_the_memory_that_the_agent_just_said(
    memory: str, turn: str, kept: str
) -> None:
    found = revise(memory, Turn("user", turn), f"I assumed: {memory}")
    assert found is not None
    assert kept in found.content
    assert found.is_answer
    assert found.quote in turn


@pytest.mark.parametrize(("memory", "turn"), ADDED)
def test_what_is_added_leaves_the_memory_that_the_agent_said(memory: str, turn: str) -> None:
    assert revise(memory, Turn("user", turn), f"I assumed: {memory}") is None


@pytest.mark.parametrize(("memory", "turn"), APART)
def test_other_turns_leave_a_memory_alone(memory: str, turn: str) -> None:
    assert revise(memory, Turn("user", turn), "OK, done.") is None


def test_an_unsaid_memory_needs_its_subject_in_the_turn() -> None:
    turn = Turn("user", "the cutoff for orders is 3 pm now, not 2 pm")
    found = revise("The cutoff for orders is 2 pm.", turn, "")
    assert found is not None
    assert found.content == "The cutoff for orders is 3 pm now"
    assert not found.is_answer
    assert revise("Lunch is at 2 pm.", turn, "") is None
    # Alone, a value says nothing about a memory that nobody mentioned.
    assert revise("Postgres runs on port 5432.", Turn("user", "wrong, it's 5433"), "") is None


def test_another_predicate_of_the_same_thing_corrects_nothing() -> None:
    memory = "Payment webhooks are verified with the header X-Pay-Signature and the secret"
    turn = "All payment webhooks are rejected with 401 since we rotated the keys. What is wrong?"
    assert revise(memory, Turn("user", turn), "") is None


def test_the_request_around_a_correction_is_not_kept() -> None:
    turn = Turn("user", "the marketing budget went up to 18k, so redo the split")
    found = revise("The marketing budget is 15k.", turn, "")
    assert found is not None
    assert found.content == "The marketing budget went up to 18k"


def test_words_of_others_correct_nothing() -> None:
    turn = Turn("user", "> The logo is blue, not green.\n\nwhat does this mail want?")
    assert revise("The logo is green.", turn, "I assumed: The logo is green.") is None


def test_a_turn_without_such_words_is_not_compared() -> None:
    assert may_correct(Turn("user", "the roof is felt, not metal"))
    assert not may_correct(Turn("user", "write a function that sorts names"))


LONG_REPLY = """Here is an overview. A new market is a good place to start. It is about cost.
You are free to choose. We can compare the two business plans later, and then plan the week."""


@pytest.mark.parametrize(
    ("memory", "turn"),
    [
        ("We are a new business.", "The new plan is costing us about 220,000"),
    ],
)
def test_words_spread_over_a_long_reply_say_no_memory(memory: str, turn: str) -> None:
    assert revise(memory, Turn("user", turn), LONG_REPLY) is None


def test_a_statement_retires_no_standing_instruction() -> None:
    memory = "Always explain probability concepts step by step."
    statement = Turn("user", "no, I get the probability concepts now")
    assert revise(memory, statement, f"I assumed: {memory}") is None
    found = revise(
        "Always use requests.", Turn("user", "no, always use httpx"), "I know: Always use requests."
    )
    assert found is not None and "httpx" in found.content
