"""Plain statements of a user in five languages: kept whole, without the request around them."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.session import Turn
from meritory.text.extract import phrases
from meritory.text.extract.attribution import sentences
from meritory.text.extract.phrases import LANGUAGES, languages_of
from meritory.text.extract.rules import (
    Extraction,
    FoundClaim,
    is_corrected,
    only_asks,
    read,
    without_questions,
)

# What is said in the midst of something else, and what is kept of it.
FACTS = [
    ("oh and my name is Jonas", "My name is Jonas"),
    ("plan a lunch for 12 people. I'm allergic to nuts btw", "I'm allergic to nuts"),
    ("our CI runs on Buildkite", "Our CI runs on Buildkite"),
    (
        "hi! we use Terraform for the network, can you add a rule?",
        "We use Terraform for the network",
    ),
    (
        "please note that the staging database is called heron",
        "The staging database is called heron",
    ),
    ("I live in Ottawa, so find me a dentist there", "I live in Ottawa"),
    ("the build is slow, my laptop has 16 GB, what can I do?", "My laptop has 16 GB"),
    ("we don't have a QA team", "We don't have a QA team"),
    ("Lena leads our design team, ask her", "Lena leads our design team"),
    ("- I have two kids", "I have two kids"),
    ("this repo uses pnpm", "This repo uses pnpm"),
    ("we moved from Zulip to Teams", "We moved from Zulip to Teams"),
    ("kannst du das kürzen? ich bin übrigens Lehrerin", "Ich bin übrigens Lehrerin"),
    ("Ich wohne in Ulm und habe zwei Kinder.", "Ich wohne in Ulm und habe zwei Kinder"),
    ("unsere CI läuft auf GitLab, schau dir bitte den Build an", "Unsere CI läuft auf GitLab"),
    ("wir nutzen kein Docker, deshalb geht das nicht", "Wir nutzen kein Docker"),
    ("die Staging-Datenbank heißt falke", "Die Staging-Datenbank heißt falke"),
    ("au fait, je suis allergique aux noix", "Je suis allergique aux noix"),
    ("j'habite à Lille, trouve-moi un dentiste", "J'habite à Lille"),
    ("notre CI tourne sur GitLab, donc laisse tomber le reste", "Notre CI tourne sur GitLab"),
    ("on utilise Terraform pour le réseau", "On utilise Terraform pour le réseau"),
    ("la base de préprod s'appelle faucon", "La base de préprod s'appelle faucon"),
    ("soy alérgica a las nueces, por cierto", "Soy alérgica a las nueces"),
    ("vivo en Vigo, así que busca un dentista allí", "Vivo en Vigo"),
    ("nuestra CI corre en GitLab, ¿puedes mirar?", "Nuestra CI corre en GitLab"),
    ("no usamos Docker", "No usamos Docker"),
    ("la base de datos se llama halcón", "La base de datos se llama halcón"),
    ("顺便说一下，我对花生过敏", "我对花生过敏"),
    ("我住在成都。帮我订票。", "我住在成都"),
    ("我们的 CI 跑在 GitLab 上，看一下", "我们的 CI 跑在 GitLab 上"),
    ("我们用 Terraform 管理网络。加一条规则", "我们用 Terraform 管理网络"),
    ("测试库叫苍鹭", "测试库叫苍鹭"),
]
# Verbs that no list names: what counts is who does it, and when.
OPEN = [
    ("I restore old radios in my free time, where do I get valves?", "I restore old radios"),
    ("our parish council gathers on the first Tuesday. invite them", "Our parish council gathers"),
    ("My two ferrets, Salt and Pepper, sleep all day. what toys?", "Salt and Pepper, sleep"),
    ("Imke does the accounts for our club, ask her", "Imke does the accounts for our club"),
    ("there are nine of us in the band", "There are nine of us in the band"),
    ("in our team every schema change goes through Odile", "every schema change goes through"),
    ("the sensor hub polls each probe twice an hour", "polls each probe twice an hour"),
    ("please go through our jump host, which is jh.fir.dev", "Our jump host, which is jh.fir.dev"),
    ("I'm hard of hearing, so write it down", "I'm hard of hearing"),
    ("peanut butter makes me ill", "Peanut butter makes me ill"),
    ("Wir reisen mit dem Kanu, sechs Meter lang.", "sechs Meter lang"),
    ("Birte macht bei uns die Kasse, schreib ihr", "Birte macht bei uns die Kasse"),
    ("Neben der Arbeit mache ich eine Ausbildung zur Imkerin.", "Ausbildung zur Imkerin"),
    ("je restaure des vélos anciens, où trouver des pièces ?", "Je restaure des vélos anciens"),
    ("Odile est la trésorière de notre club", "Odile est la trésorière de notre club"),
    ("cultivo tomates en la terraza, ¿qué abono uso?", "Cultivo tomates en la terraza"),
    ("nadie de nuestro grupo conoce Rust", "Nadie de nuestro grupo conoce Rust"),
    ("我奶奶只会说温州话，帮我写一句", "我奶奶只会说温州话"),
    ("我们合唱团一共四十个人，排个座位", "我们合唱团一共四十个人"),
]
STANDING = [
    "we never deploy on Fridays",
    "from now on every commit must name its ticket",
    "I prefer short answers",
    "I don't like emojis in commit messages",
    "every PR needs a changelog entry",
    "freitags deployen wir nie",
    "ab sofort immer auf Deutsch antworten",
    "ich mag keine langen Antworten",
    "Verwende nie wieder Emojis in Commits",
    "on ne déploie jamais le vendredi",
    "réponds toujours en français",
    "je préfère les tableaux",
    "nunca desplegamos los viernes",
    "responde siempre en español",
    "no me gustan las respuestas largas",
    "我们周五从不发布",
    "请始终用中文回答",
    "我更喜欢表格",
]
# Questions, suppositions, requests, states, reports of the task and words of others.
NOTHING = [
    "is our CI on Jenkins?",
    "our CI runs on Jenkins, right?",
    "if we used Kafka, what would change?",
    "if the flag is set, we use the local zone",
    "I think our CI runs on Jenkins",
    "suppose I live in Rome",
    "let's say my name is Bob and I have two accounts",
    "rename this file",
    "use the second one",
    "our demo is in ten minutes",
    "my build is red again",
    "I have a question about the cache",
    "we have a bug in the parser",
    "I just pushed a fix",
    "I'm working on the login page",
    "the function is called twice",
    "we use it for that",
    "my colleague says we use Terraform",
    'she wrote "our CI runs on Travis" yesterday',
    "```\nour CI runs on Travis\n```\nwhat is this?",
    "läuft unsere CI auf Jenkins?",
    "angenommen ich wohne in Rom",
    "ich glaube, unsere CI läuft auf Jenkins",
    "mein Build ist schon wieder rot",
    "Marco meinte: wir nutzen Jenkins",
    "ich habe die Datei gelöscht",
    "notre CI tourne sur Jenkins, non ?",
    "supposons que j'habite à Rome",
    "notre réunion est dans dix minutes",
    "ma collègue dit que nous utilisons Jenkins",
    "je suis en train de tester",
    "¿nuestra CI corre en Jenkins?",
    "supongamos que vivo en Roma",
    "mi código no funciona",
    "mi compañera dice que usamos Jenkins",
    "vamos a usar Redis",
    "我们用 Redis 吗",
    "假设我住在罗马",
    "我觉得我们的 CI 跑在 Jenkins 上",
    "我同事说我们用 Jenkins",
    "把端口改成 8081",
    "服务挂了",
    "I click on save and the page reloads",
    "when I start it, I land on the wrong page",
    "our server returned 500 twice",
    "the login redirects to a blank page on the tablet",
    "My train leaves at 7 today",
    "my battery is at 12 %",
    "the licence changed",
    "die Abfrage liefert doppelte Zeilen",
    "Generier stattdessen 50 Zeilen",
    "je mange et je reviens",
    "tengo dudas sobre la segunda parte",
    "我们周一见一面吧",
]
# A sentence that asks, with or without its mark.
QUESTIONS = [
    "which port does staging use?",
    "how do I rotate the key",
    "do we use Redis here",
    "wie geht das mit dem Schlüssel",
    "haben wir einen Vertrag mit dem Hoster",
    "comment on change la clé",
    "qué puerto usa la API",
    "我们用什么数据库",
]
# What a correction states, and the value that it calls wrong.
CORRECTIONS = [
    (
        "no, the staging db is called kestrel, not heron",
        "The staging db is called kestrel, not heron",
        "heron",
    ),
    (
        "That's wrong: our CI moved from Jenkins to Buildkite",
        "Our CI moved from Jenkins to Buildkite",
        "Jenkins",
    ),
    (
        "actually our tickets are in Linear instead of Jira",
        "Our tickets are in Linear instead of Jira",
        "Jira",
    ),
    ("we dropped Jest in favour of Vitest", "We dropped Jest in favour of Vitest", "Jest"),
    (
        "I don't live in Berlin anymore, I moved to Ottawa",
        "I don't live in Berlin anymore, I moved to Ottawa",
        "Berlin",
    ),
    (
        "nein, das Projekt heißt Storch, nicht Kranich",
        "Das Projekt heißt Storch, nicht Kranich",
        "Kranich",
    ),
    ("wir haben flake8 durch ruff ersetzt", "Wir haben flake8 durch ruff ersetzt", "flake8"),
    (
        "non, le projet s'appelle Cigogne, pas Héron",
        "Le projet s'appelle Cigogne, pas Héron",
        "Héron",
    ),
    (
        "no, el proyecto se llama Cigüeña, no Garza",
        "El proyecto se llama Cigüeña, no Garza",
        "Garza",
    ),
    ("不对，管理服务监听 8081 端口，不是 8080", "管理服务监听 8081 端口，不是 8080", "8080"),
]


def heard(text: str) -> Extraction:
    """Return what the rules read in a turn that follows one of the agent."""
    return read([Turn("user", "Do it"), Turn("assistant", "Done."), Turn("user", text)])


@pytest.mark.parametrize(("text", "content"), FACTS)
def test_a_plain_fact_is_kept_without_the_words_around_it(text: str, content: str) -> None:
    (claim,) = heard(text).candidates
    assert (claim.content, claim.kind, claim.provenance) == (content, "fact", "user_stated")
    assert claim.quote in text


@pytest.mark.parametrize(("text", "part"), OPEN)
def test_a_fact_may_have_any_verb(text: str, part: str) -> None:
    (claim,) = heard(text).candidates
    assert part in claim.content


def test_a_part_about_the_moment_is_left_out() -> None:
    text = "I'm a cooper in Riga and I have to send an offer tomorrow, bit nervous."
    (claim,) = heard(text).candidates
    assert claim.content == "I'm a cooper in Riga"


def test_a_sentence_may_state_two_facts() -> None:
    text = "I'm Ilze, I did my PhD in optics and now I run the lens lab at a telescope maker."
    contents = {claim.content for claim in heard(text).candidates}
    assert contents == {
        "I'm Ilze, I did my PhD in optics",
        "I run the lens lab at a telescope maker",
    }


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_states_nothing(text: str) -> None:
    assert heard(text).candidates == ()
    assert only_asks(text) and without_questions(f"I live in Riga. {text}") == "I live in Riga."


@pytest.mark.parametrize("text", STANDING)
def test_what_always_holds_is_a_preference_or_proposes_a_rule(text: str) -> None:
    (claim,) = heard(text).candidates
    assert claim.kind in ("preference", "constraint")


@pytest.mark.parametrize("text", NOTHING)
def test_what_states_nothing_is_not_kept(text: str) -> None:
    assert heard(text).candidates == ()


@pytest.mark.parametrize(("text", "content", "old"), CORRECTIONS)
def test_a_correction_states_the_new_value_and_names_the_old_one(
    text: str, content: str, old: str
) -> None:
    (claim,) = heard(text).candidates
    assert (claim.content, claim.old_value) == (content, old)
    assert claim.kind == "fact"


@pytest.mark.parametrize(
    ("memory", "text", "expected"),
    [
        (
            "The staging database is called heron",
            "the staging db is called kestrel, not heron",
            True,
        ),
        ("My daughter Mira is six", "Mira is seven now, not six", True),
        ("RabbitMQ is our message broker", "we migrated from RabbitMQ to Kafka", True),
        ("I'm vegetarian", "I'm vegan now, not vegetarian", True),
        ("我住在南京", "我现在住在杭州，不住在南京了", True),
        # The same value of something else.
        (
            "The staging database listens on 8080",
            "the staging API is on port 9000, not 8080",
            False,
        ),
        ("Der Proxy läuft auf Port 8080", "die API läuft auf Port 9000, nicht 8080", False),
        ("代理监听 8080 端口", "网关监听 9000 端口，不是 8080", False),
        ("My brother lives in Berlin", "I live in Ottawa, not in Berlin", False),
        # The subject without the old value.
        (
            "The staging database is called osprey",
            "the staging db is called kestrel, not heron",
            False,
        ),
    ],
)
def test_a_memory_is_corrected_by_its_subject_and_its_value(
    memory: str, text: str, expected: bool
) -> None:
    (claim,) = heard(text).candidates
    assert is_corrected(memory, claim) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unsere CI läuft auf GitLab, bitte schau nach", ("de",)),
        ("notre CI tourne sur GitLab et elle est lente", ("fr",)),
        ("nuestra CI corre en GitLab y es lenta", ("es",)),
        ("我们的 CI 跑在 GitLab 上", ("zh",)),
        ("our CI runs on GitLab and it is slow", ("en",)),
        ("ok", ("en", "de", "fr", "es")),
    ],
)
def test_the_language_is_told_by_its_function_words(text: str, expected: tuple[str, ...]) -> None:
    assert languages_of((text,)) == expected


def test_languages_may_be_mixed_in_a_turn() -> None:
    text = "Ich wohne in Ulm und arbeite dort. We use Terraform for the network, and it is fine."
    assert {claim.content for claim in heard(text).candidates} >= {
        "Ich wohne in Ulm und arbeite dort",
        "We use Terraform for the network",
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_words_that_a_cue_needs_only_save_time(language: str) -> None:
    # A text that a cue would match has one of the words, or a fact is lost for speed.
    for text in (*(text for text, _ in FACTS), *STANDING, *(text for text, *_ in CORRECTIONS)):
        for cue in phrases.cues(language):
            if cue.is_plain and cue.pattern.search(text):
                assert any(word in text.lower() for word in cue.needs), (cue.needs, text)


LEADS = st.sampled_from(["", "btw ", "oh and ", "please note that ", "ok, ", "well, also: "])
TAILS = st.sampled_from(
    ["", ", can you check?", ", so please fix it", " btw", ". Rename the file."]
)
PLAIN = st.sampled_from(
    ["my name is Jonas", "our CI runs on Buildkite", "I'm allergic to nuts", "we use Go 1.22"]
)


@settings(max_examples=120, deadline=None)
@given(LEADS, PLAIN, TAILS)
def test_the_words_around_a_fact_do_not_change_it(lead: str, plain: str, tail: str) -> None:
    (claim,) = heard(lead + plain + tail).candidates
    assert claim.content == plain[:1].upper() + plain[1:]


@settings(max_examples=60, deadline=None)
@given(
    PLAIN, st.sampled_from(["if {}", 'he wrote "{}"', "I wonder whether {}", "{}, right?", "> {}"])
)
def test_a_supposed_or_quoted_fact_is_not_kept(plain: str, frame: str) -> None:
    assert heard(frame.format(plain)).candidates == ()


PIECES = [
    "our x ",
    "we use a, ",
    "my a b c ",
    "ich bin, ",
    "je ne ",
    "no ",
    "我们的",
    "，我",
    " - ",
    "not a, ",
]


@pytest.mark.parametrize("piece", PIECES)
def test_long_nonsense_ends(piece: str) -> None:
    # With a pattern that tries every split of a run this takes minutes.
    turns = [Turn("user", (piece * 600)[:590] + ".") for _ in range(20)]
    for claim in read(turns).candidates:
        assert claim.quote in turns[claim.turn].text


def test_a_session_lists_a_bounded_number_of_statements() -> None:
    turns = [Turn("user", f"Our service{n} runs on port {7000 + n}.") for n in range(300)]
    made = read(turns)
    assert len(made.candidates) == 10
    assert len(made.refused) == 40
    assert {item.outcome for item in made.refused} == {"refused"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I like ramen", "I like ramen"),
        ("I like ramen. Any ideas?", "I like ramen."),
        ("What is the time?", ""),
        ("I'm allergic to nuts, what can I cook?", "I'm allergic to nuts."),
        ("我喜欢面条。有什么推荐？", "我喜欢面条。"),
    ],
)
def test_questions_are_left_out(text: str, expected: str) -> None:
    assert without_questions(text) == expected


def test_a_claim_says_whether_it_is_plain() -> None:
    plain, asked = (
        heard(text).candidates[0]
        for text in ("our CI runs on Buildkite", "remember that our CI runs on Buildkite")
    )
    assert isinstance(plain, FoundClaim) and plain.is_plain
    assert not asked.is_plain and asked.content == plain.content


def test_the_colon_of_a_correction_introduces_no_foreign_text() -> None:
    for text in (
        "actually the test came back: it's lactose",
        "wrong name: our treasurer is Ms Ito",
        "the fee has changed: it's 35 euros",
        "Das ist veraltet: die Frist beträgt 14 Tage",
        "una corrección: usamos Django 5",
    ):
        assert sentences(text)[-1].text == text
    assert [one.text for one in sentences("Release notes: we use Perl")] == ["Release notes:"]


def test_short_prompts_cost_little() -> None:
    # A session may have thousands of them. Calls are counted, because time depends on the machine.
    def calls(count: int) -> int:
        turns = [Turn("user", f"w {number}") for number in range(count)]
        counted = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count_call)
        try:
            read(turns)
        finally:
            sys.setprofile(None)
        return counted

    read([Turn("user", "w 1")])
    assert calls(400) - calls(200) <= 200 * 20
