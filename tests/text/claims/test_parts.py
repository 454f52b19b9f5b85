"""German, French, Spanish and Chinese claims in another order, voice, form or unit."""

from __future__ import annotations

import pytest

from meritory.text.claims.compare import compare
from meritory.text.claims.lexicon import lexicon
from meritory.text.claims.reading import read_claim

SAME = (
    # Voice, with verbs whose forms differ.
    ("Jenkins baut jede Nacht die Images.", "Die Images werden jede Nacht von Jenkins gebaut."),
    ("Man sperrt den Hof um 22 Uhr ab.", "Der Hof wird um 22 Uhr abgesperrt."),
    ("Meine Tante hat den Kuchen gebacken.", "Der Kuchen wurde von meiner Tante gebacken."),
    ("Le voisin arrose les plantes l'été.", "L'été, les plantes sont arrosées par le voisin."),
    ("On ferme la grille à 20 h.", "La grille est fermée à 20 h."),
    ("El vecino riega las plantas en mayo.", "Las plantas las riega el vecino en mayo."),
    ("Mi tía pintó este cuadro.", "Este cuadro fue pintado por mi tía."),
    ("爸爸把车卖掉了。", "车被爸爸卖掉了。"),
    ("保安晚上十点锁大门。", "大门晚上十点由保安锁。"),
    # Orders, rules, duties and bans.
    ("Benenne Branches nach dem Ticket.", "Branches sollen nach dem Ticket benannt werden."),
    ("Lösche niemals Produktionsdaten.", "Produktionsdaten dürfen nicht gelöscht werden."),
    ("Wir müssen die Miete bis Montag überweisen.", "Die Miete ist bis Montag zu überweisen."),
    ("Tutoie-moi.", "L'utilisateur veut être tutoyé."),
    ("Ne commite pas les secrets.", "Les secrets ne doivent pas être commités."),
    ("Il faut réserver la salle.", "La salle doit être réservée."),
    ("Llámame Nico.", "El usuario quiere que le llamen Nico."),
    ("Hay que pagar el alquiler antes del 5.", "El alquiler debe pagarse antes del 5."),
    ("用 pytest 写测试。", "测试要用 pytest 写。"),
    ("不要把密码写进日志。", "密码不能写进日志。"),
    # Order, and case that shows who acts.
    ("Jonas bringt immer den Müll raus.", "Den Müll bringt immer Jonas raus."),
    ("C'est Karim qui relit les devis.", "Karim relit les devis."),
    ("我们周五去吃火锅。", "周五我们去吃火锅。"),
    # Light verbs and words of one meaning.
    ("Das Team führt eine Analyse der Logs durch.", "Das Team analysiert die Logs."),
    ("L'équipe fait une analyse des journaux.", "L'équipe analyse les journaux."),
    ("La directora toma la decisión sobre las becas.", "La directora decide sobre las becas."),
    ("团队每月对日志进行分析。", "团队每月分析日志。"),
    ("Der Unterricht fängt um 8 Uhr an.", "Der Unterricht beginnt um 8 Uhr."),
    # Number.
    ("Ein Azubi bekommt ein Heft.", "Azubis bekommen ein Heft."),
    ("Un empleado nuevo recibe una llave.", "Los empleados nuevos reciben una llave."),
    # Quantities and number words.
    ("Die Fahrt dauert anderthalb Stunden.", "Die Fahrt dauert 90 Minuten."),
    ("Das Treffen dauert eine Dreiviertelstunde.", "Das Treffen dauert 45 Minuten."),
    ("Le trajet dure une heure et demie.", "Le trajet dure 1 h 30."),
    ("Le cours coûte cent vingt euros.", "Le cours coûte 120 €."),
    ("Hace falta medio kilo de harina.", "Hacen falta 500 g de harina."),
    ("Somos treinta y cinco empleados.", "Somos 35 empleados."),
    ("备份保留两周。", "备份保留 14 天。"),
    # Spelling without umlauts and accents, in traditional characters.
    ("Der Schluessel haengt neben der Tuer.", "Der Schlüssel hängt neben der Tür."),
    ("El telefono del banco es el 5.", "El teléfono del banco es el 5."),
    ("週六的聚餐改訂在湘菜館。", "周六的聚餐改订在湘菜馆。"),
)
UPDATES = (
    ("Die Fehler landen in Sentry.", "Seit dem Umzug landen die Fehler in GlitchTip."),
    ("Ich laufe mit Schuhen von Asics.", "Seit Mai laufe ich mit Schuhen von Brooks."),
    ("Der Zähler stand bei 48210.", "Zahlendreher: Der Zähler stand bei 48120."),
    ("Zum Backen nehme ich Butter.", "Zum Backen nehme ich statt Butter Margarine."),
    ("Oma mag Marzipan.", "In Wirklichkeit mag Oma gar kein Marzipan."),
    ("Gaëlle gère les sauvegardes.", "Mehdi a pris la suite de Gaëlle pour les sauvegardes."),
    ("Le vol part du terminal 2.", "Le vol part du terminal 3 et non du terminal 2."),
    ("La boda es el 14 de junio.", "La boda no es el 14 sino el 21 de junio."),
    ("El proyecto usa jQuery.", "Hemos quitado jQuery del proyecto."),
    ("婚礼在六月十四日。", "婚礼不是六月十四日，是六月二十一日。"),
    ("朵朵在学芭蕾。", "朵朵不再学芭蕾了。"),
    ("42 路公交 20 分钟一班。", "九月起 42 路公交 30 分钟一班。"),
)
NEWER = (
    ("Unsere Aufgaben verwalten wir in Trello.", "Unsere Aufgaben verwalten wir in Linear."),
    ("Mon vélo est rangé à la cave.", "Mon vélo est rangé dans le garage."),
    ("El módulo lo mantiene Elsa.", "El módulo lo mantiene Jonás."),
    ("浩浩的班主任是孙老师。", "浩浩的班主任是曹老师。"),
)
APART = (
    # Who does it to whom.
    ("Der Hund beißt den Mann.", "Den Hund beißt der Mann."),
    ("Anna besucht Bob.", "Anna wird von Bob besucht."),
    ("Paul a prêté la clé à Simon.", "Simon a prêté la clé à Paul."),
    ("Clara garde Hugo.", "Hugo garde Clara."),
    ("小丽借给小军五百块。", "小军借给小丽五百块。"),
    ("老冯休假时由小桂代班。", "小桂休假时由老冯代班。"),
    # Tense, number, duty.
    ("Anna prüft die Rechnungen.", "Die Rechnungen wurden von Anna geprüft."),
    ("Anna wird Bob besuchen.", "Anna besucht Bob."),
    ("La règle est appliquée.", "Les règles sont appliquées."),
    ("Anna muss die Miete zahlen.", "Anna zahlt die Miete."),
    ("Die Kinder dürfen nicht rauchen.", "Die Kinder rauchen nicht."),
    # Another noun, which in German has a capital as every noun.
    ("Anna prüft die Verträge.", "Die Rechnungen werden von Anna geprüft."),
    ("Die Fahrt dauert 90 Minuten.", "Die Fahrt dauert zwei Stunden."),
    # One more is no other one.
    ("Unsere App läuft auf Android.", "Unsere App läuft jetzt auch auf iOS."),
    ("Notre application tourne sur Android.", "Elle tourne maintenant aussi sur iOS."),
    ("我们的应用能在安卓上用。", "我们的应用现在也能在鸿蒙上用。"),
    # A change of something else.
    ("Mein Bruder ist Pilot.", "Mein Bruder ist von Bonn nach Trier gezogen."),
    ("La aplicación está traducida al francés.", "La aplicación está traducida al italiano."),
)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_claim_in_other_words_is_merged(one: str, other: str) -> None:
    assert compare(one, other).relation == "merge"
    assert compare(other, one).relation == "merge"


@pytest.mark.parametrize(("old", "new"), UPDATES)
def test_a_stated_change_replaces_the_old_text(old: str, new: str) -> None:
    assert compare(old, new).relation == "supersede"


@pytest.mark.parametrize(("old", "new"), NEWER)
def test_another_value_of_a_certain_thing_is_chained(old: str, new: str) -> None:
    assert compare(old, new).relation == "chain"


@pytest.mark.parametrize(("one", "other"), APART)
def test_other_claims_are_neither_merged_nor_replaced(one: str, other: str) -> None:
    assert compare(one, other).relation not in {"merge", "supersede"}
    assert compare(other, one).relation not in {"merge", "supersede"}


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", ("abstellen", "abgestellt", "abzustellen")),
        ("de", ("gießen", "gieß", "gegossen", "goss")),
        ("de", ("nutzen", "verwendet", "benutzt")),
        ("fr", ("envoyer", "envoie", "envoyées", "expédie")),
        ("es", ("cerrar", "cierra", "cerrado", "cierran")),
    ],
)
def test_the_forms_of_a_verb_have_one_stem(language: str, words: tuple[str, ...]) -> None:
    assert len({lexicon(language).stem(word) for word in words}) == 1


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Das kostet 5.000 Euro.", ("5000", "€")),
        ("Le train part à 7h30.", ("450", "min")),
        ("Es dauert zweieinhalb Stunden.", ("150", "min")),
        ("La beca es de mil euros.", ("1000", "€")),
    ],
)
def test_a_quantity_has_one_number_and_one_unit(text: str, keys: tuple[str, ...]) -> None:
    assert read_claim(text).keys[-2:] == keys
