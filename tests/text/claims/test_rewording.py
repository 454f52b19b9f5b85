"""One claim in other words is merged, in five languages and whichever text comes first."""

from __future__ import annotations

import pytest

from meritory.text.claims.compare import compare

SAME = (
    # Voice.
    ("Rosa waters the plants every week.", "The plants are watered by Rosa every week."),
    ("The auditor signed the report.", "The report was signed by the auditor."),
    ("Managers can download the reports.", "The reports can be downloaded by managers."),
    ("Mia has rewritten the tests.", "The tests have been rewritten by Mia."),
    ("Vera manages Paul.", "Paul reports to Vera."),
    ("Die Rechnungen werden von Anna geprüft.", "Anna prüft die Rechnungen."),
    ("Les factures sont envoyées par Marie.", "Marie envoie les factures."),
    ("Los informes son revisados por Ana.", "Ana revisa los informes."),
    ("李雷负责测试。", "由李雷负责测试。"),
    # Orders.
    ("Write tests with pytest.", "Tests are written with pytest."),
    ("Never store secrets in the wiki.", "Secrets must not be stored in the wiki."),
    ("Put screenshots into docs/img.", "Screenshots go into docs/img."),
    ("You must use type hints.", "Use type hints."),
    ("Call me Kim.", "The user wants to be called Kim."),
    ("Placez les photos dans le dossier.", "Les photos sont placées dans le dossier."),
    ("Lege Bilder unter img/ ab.", "Bilder werden unter img/ abgelegt."),
    # Never, must, persons.
    ("Never eat yellow snow.", "Don't eat yellow snow."),
    ("The job never retries.", "The job does not retry."),
    ("Visitors have to sign in.", "Visitors must sign in."),
    ("I'm allergic to cats.", "The user is allergic to cats."),
    ("Our office has two kitchens.", "The team's office has 2 kitchens."),
    ("Nous utilisons Jira.", "L'équipe utilise Jira."),
    ("Prefiero el té.", "El usuario prefiere el té."),
    ("Mi hermana vive en Bilbao.", "La hermana del usuario vive en Bilbao."),
    ("我喜欢喝茶。", "用户喜欢喝茶。"),
    # Order.
    ("If it rains, the class is inside.", "The class is inside if it rains."),
    ("We met in Rome in May.", "We met in May in Rome."),
    ("I usually run at noon.", "Usually I run at noon."),
    ("Ben and Lia are twins.", "Lia and Ben are twins."),
    ("My favourite pan is the red one.", "The red one is my favorite pan."),
    ("Montags gehe ich schwimmen.", "Ich gehe montags schwimmen."),
    ("Le vendredi, le bureau ferme.", "Le bureau ferme le vendredi."),
    ("周五我们去吃火锅。", "我们周五去吃火锅。"),
    # Genitive, names, there is.
    ("The limit of the upload queue is 9.", "The upload queue limit is 9."),
    ("My dog's name is Rex.", "My dog is called Rex."),
    ("There are two lifts in the tower.", "The tower has two lifts."),
    # Number.
    ("A public module needs a docstring.", "Public modules need docstrings."),
    ("Every region has its own store.", "All regions have their own stores."),
    # Units, dates, spelling, hyphens, light verbs.
    ("The file is 30 MB.", "The file is 30 megabytes."),
    ("The rent is $500.", "The rent is 500 dollars."),
    ("The call is at 6 pm.", "The call is at 18:00."),
    ("The exam is on May 5.", "The exam is on the 5th of May."),
    ("The catalogue is organised by colour.", "The catalog is organized by color."),
    ("Sign-ups close at noon.", "Signups close at noon."),
    ("The importer performs a validation of the file.", "The importer validates the file."),
    ("狗重十八公斤。", "狗重18公斤。"),
    ("我們用 Redis。", "我们用 Redis。"),
)


@pytest.mark.parametrize(("old", "new"), SAME)
def test_other_words_for_one_claim_are_merged(old: str, new: str) -> None:
    assert compare(old, new).relation == "merge"
    assert compare(new, old).relation == "merge"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Rosa waters the plants.", "The plants water Rosa."),
        ("The auditor signs the report.", "The report was signed by the auditor."),
        ("Rosa waters the plants.", "The plants are watered by Rudi."),
        ("Each test has a name.", "A few tests have names."),
        ("User has a cat", "User has cats"),
        ("A server is down.", "All servers are down."),
        ("Use tabs.", "You should use tabs."),
        ("The red car and bike are new.", "The red bike and car are new."),
        ("Anna called Bob in May.", "Bob called Anna in May."),
        ("The limit of the disk is the size.", "The size of the disk is the limit."),
        ("The report from Anna to Bob.", "The report from Bob to Anna."),
        ("I like tea.", "We like tea."),
        ("He likes tea.", "The user likes tea."),
        ("The call is at 6 am.", "The call is at 18:00."),
        ("Die Rechnungen werden von Anna geprüft.", "Anna prüft die Verträge."),
        ("李雷负责测试。", "测试负责李雷。"),
        ("狗重十八公斤。", "狗重80公斤。"),
        ("Zcela neznámý jazyk tady je", "Zcela neznámý jazyk tam je"),
    ],
)
def test_what_looks_like_a_rewording_is_not_merged(old: str, new: str) -> None:
    assert compare(old, new).relation != "merge"
    assert compare(new, old).relation != "merge"
