"""A newer text supersedes an older one if it says so, and follows it if it has another value."""

from __future__ import annotations

import pytest

from meritory.text.claims.compare import compare, says_change

UPDATES = (
    ("The team uses Slack.", "The team no longer uses Slack."),
    ("I eat fish.", "I don't eat fish any more."),
    ("The user drinks coffee.", "The user has stopped drinking coffee."),
    ("Standup is at 9:30.", "Standup is now at 10:00."),
    ("Standup is at 9:30.", "As of next week, standup is at 10:15."),
    ("The price is 9 euros.", "Correction: the price is 11 euros."),
    ("The price is 9 euros.", "The price is 11 euros, not 9."),
    ("The API uses REST.", "The API uses GraphQL instead of REST."),
    ("My brother lives in Oslo.", "My brother moved from Oslo to Bergen."),
    ("The limit is 10 requests.", "The limit went from 10 to 20 requests."),
    ("The limit is 10 requests.", "The limit was raised to 20 requests."),
    ("We deploy with Ansible.", "We dropped Ansible in favour of Terraform."),
    ("The queue is RabbitMQ.", "RabbitMQ was replaced by NATS as the queue."),
    ("Tom handles the invoices.", "Lisa took over the invoices from Tom."),
    ("Our lead is Vera.", "Our new lead is Paul."),
    ("The package is called acme.", "The package was renamed to apex."),
    ("Die Fehler landen in Sentry.", "Die Fehler landen jetzt in GlitchTip."),
    ("Das Limit liegt bei 10 MB.", "Das Limit wurde auf 20 MB erhöht."),
    ("Wir nutzen Slack.", "Wir sind von Slack zu Teams gewechselt."),
    ("J'habite à Lyon.", "Je n'habite plus à Lyon."),
    ("La limite est de 10 Mo.", "La limite a été portée à 20 Mo."),
    ("Vivo en Madrid.", "Ya no vivo en Madrid."),
    ("Usamos Slack.", "Cambiamos de Slack a Teams."),
    ("我住在北京。", "我不再住在北京。"),
    ("上限是 10 MB。", "上限提高到 20 MB。"),
)
CHAINS = (
    ("Our office is in Kiel.", "Our office is in Bonn."),
    ("The timeout is 30 seconds.", "The timeout is 45 seconds."),
    ("My editor is Vim.", "My editor is Helix."),
    ("The gym opens at 7.", "The gym opens at 6."),
    ("The scheduler retries failed jobs.", "The scheduler never retries failed jobs."),
    ("Dark mode is enabled.", "Dark mode is disabled."),
    ("Meine Chefin ist Frau Sommer.", "Meine Chefin ist Frau Winter."),
    ("Le loyer est de 980 euros.", "Le loyer est de 990 euros."),
    ("Mi jefa es Carmen.", "Mi jefa es Lourdes."),
    ("我的主管是张敏。", "我的主管是黄磊。"),
)
APART = (
    # Another subject, another thing, many values.
    ("The gym opens at 7.", "The pool now opens at 6."),
    ("The shop runs on Heroku.", "The status page moved from Heroku to Netlify."),
    ("Theo is on the rota.", "Thea is no longer on the rota."),
    ("Redis is fast.", "We replaced Redis with Valkey."),
    ("We support Chrome.", "We now support Firefox."),
    ("I speak Polish.", "I speak Czech."),
    ("We support Chrome.", "We also support Firefox."),
    ("User lives in Berlin.", "Does the user live in Berlin now?"),
    ("The API uses REST.", "The API may use GraphQL now."),
    ("Dependabot opens requests for npm.", "Dependabot opens requests for Docker."),
    ("Ich spreche Polnisch.", "Ich spreche Tschechisch."),
    ("Meine Schwester wohnt in Bonn.", "Mein Bruder ist von Bonn nach Trier gezogen."),
    ("前端组用 Jira。", "数据组不再用 Jira。"),
)


@pytest.mark.parametrize(("old", "new"), UPDATES)
def test_a_stated_update_supersedes(old: str, new: str) -> None:
    verdict = compare(old, new)
    assert (verdict.relation, verdict.survivor) == ("supersede", "new")


@pytest.mark.parametrize(("old", "new"), CHAINS)
def test_another_value_without_a_word_of_change_is_chained(old: str, new: str) -> None:
    verdict = compare(old, new)
    assert verdict.relation == "chain"
    assert verdict.reason


@pytest.mark.parametrize(("old", "new"), APART)
def test_what_updates_something_else_leaves_the_old_claim(old: str, new: str) -> None:
    assert compare(old, new).relation == "keep_both"


def test_the_older_text_never_supersedes_by_its_own_words() -> None:
    assert compare("Standup is now at 10:00.", "Standup is at 9:30.").relation == "chain"
    assert compare("I no longer eat fish.", "I eat fish.").relation == "keep_both"


@pytest.mark.parametrize("text", [new for _, new in UPDATES[:4]])
def test_a_text_that_states_a_change_is_noticed(text: str) -> None:
    assert says_change(text)


def test_a_clause_with_do_not_names_no_old_value() -> None:
    assert compare("You should give up.", "It is hard, don't give up!").relation == "keep_both"
    assert compare("Our tool is vim.", "Our tool is emacs, not vim.").relation == "supersede"
