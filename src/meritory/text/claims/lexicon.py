"""The words of one language that the comparison of claims knows (`data/language/*/claims.toml`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from meritory.text.language import read_language, word_set

LANGUAGES: Final = ("en", "de", "fr", "es", "zh")
HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
# A phrase with a gap: "from ... to".
GAP: Final = "..."
MIN_STEM_CHARS: Final = 3
_VOWEL: Final = re.compile(r"[aeiouyäöüáéíóúàèâêîôû]")
_UMLAUTS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})
_ACCENTS: Final = str.maketrans("áàâäéèêëíìîïóòôöúùûüçñ", "aaaaeeeeiiiioooouuuucn")
_SOFT: Final = str.maketrans("áàâäéèêëíìîïóòôöúùûüçñyz", "aaaaeeeeiiiioooouuuucnic")
# Letters that differ between the forms of a word.
_PLAIN: Final[dict[str, dict[int, int]]] = {"de": {}, "fr": _SOFT, "es": _SOFT, "zh": {}}
_DOUBLED: Final = re.compile(r"([bdfgklmnprtz])\1$")

Phrase = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The word lists, phrases and endings of one language."""

    language: str
    # All words that show the language of a text.
    known: frozenset[str]
    articles: frozenset[str]
    # The meaning of a claim is the same without these.
    silent: frozenset[str]
    hedges: frozenset[str]
    negations: frozenset[str]
    additive: frozenset[str]
    limits: frozenset[str]
    denials: frozenset[str]
    prepositions: frozenset[str]
    places: frozenset[str]
    pronouns: frozenset[str]
    quantifiers: frozenset[str]
    modals: frozenset[str]
    be: frozenset[str]
    agents: frozenset[str]
    # Words without a topic of their own: auxiliary verbs, titles, the verbs of a change.
    light: frozenset[str]
    light_verbs: frozenset[str]
    # Verbs that many people may be the object of: "works with Bob".
    companions: frozenset[str]
    frequency: frozenset[str]
    wishes: frozenset[str]
    # Verbs that need no "I" before them.
    first_person: frozenset[str]
    puts: frozenset[str]
    goes: frozenset[str]
    prefixes: frozenset[str]
    attributes: frozenset[str]
    many_valued: frozenset[str]
    one_valued: frozenset[str]
    bare_verbs: frozenset[str]
    clause_verbs: frozenset[str]
    fronting: frozenset[str]
    definite: frozenset[str]
    indefinite: frozenset[str]
    dates: frozenset[str]
    # Every list of its words, by name.
    lists: dict[str, frozenset[str]]
    same: dict[str, str]
    units: dict[str, str]
    numbers: dict[str, str]
    # Each word with its opposites.
    antonyms: dict[str, frozenset[str]]
    # Each form of an irregular verb with its first form, and the forms of the past.
    irregular: dict[str, str]
    past: frozenset[str]
    participles: frozenset[str]
    endings: tuple[str, ...]
    openers: tuple[Phrase, ...]
    short_forms: dict[str, tuple[tuple[Phrase, Phrase], ...]]
    # Phrases of change by kind, longest first.
    cues: dict[str, tuple[Phrase, ...]]
    # The phrases of the kinds that stay in a text, by first word.
    marks: dict[str, tuple[tuple[str, Phrase], ...]]

    def named(self, name: str) -> frozenset[str]:
        """Return the words of a list that not every language has."""
        return self.lists.get(name, frozenset())

    def stem(self, word: str) -> str:
        """Return a word without the endings that another phrasing of a claim alters."""
        return _stem(self.language, word)


@cache
def lexicon(language: str) -> Lexicon:
    """Return the lexicon of a language."""
    file = f"{language}/claims"
    content = read_language(file)

    def words(key: str) -> frozenset[str]:
        return word_set(file, key) if key in content["words"] else frozenset()

    phrases: dict[str, Any] = content.get("phrases", {})
    groups = content.get("groups", {})
    same = first_of_group((*groups.get("same", ()), *groups.get("related", ())))
    irregular = _irregular(groups)
    cues = {kind: _phrases(phrases.get(kind, ()), language) for kind in CUE_KINDS}

    def mapped(key: str) -> frozenset[str]:
        """Return a list with the words that stand for its words in the normal form."""
        return words(key) | {same.get(word, word) for word in words(key)}

    articles, prepositions = words("articles"), mapped("prepositions")
    return Lexicon(
        language,
        _known(content, language) | set(same),
        articles,
        articles | words("fillers") | words("hedges"),
        words("hedges"),
        words("negations"),
        words("additive"),
        words("limits"),
        words("denials"),
        prepositions,
        mapped("places"),
        mapped("pronouns"),
        mapped("quantifiers"),
        mapped("modals"),
        mapped("be"),
        mapped("agents"),
        articles | words("fillers") | prepositions | mapped("be") | words("light"),
        words("light_verbs"),
        words("companions"),
        words("frequency"),
        words("wishes"),
        words("first_person"),
        words("puts"),
        words("goes"),
        words("prefixes"),
        words("attributes"),
        words("many_valued"),
        words("one_valued"),
        words("bare_verbs"),
        words("clause_verbs"),
        mapped("fronting"),
        words("definite"),
        words("indefinite"),
        words("dates"),
        {key: words(key) for key in content["words"]},
        same,
        first_of_group(groups.get("units", ())),
        _numbers(content.get("numbers", {})),
        _opposites(groups.get("antonyms", ())),
        {form: line[0] for line in irregular for form in line},
        frozenset(form for line in irregular for form in line[1:] if form != line[0]),
        frozenset(form for line in irregular for form in line[1:]),
        tuple(content.get("endings", ())),
        _phrases(phrases.get("openers", ()), language),
        _by_first_word(content.get("short_forms", {}), language),
        cues,
        _marks(cues),
    )


def _irregular(groups: dict[str, Any]) -> list[list[str]]:
    """Return the forms of each irregular verb, in both spellings of German."""
    lines = groups.get("irregular", ())
    return [line.split() for line in (*lines, *(one.replace("ß", "ss") for one in lines))]


def _known(content: dict[str, Any], language: str) -> frozenset[str]:
    """Return the words that show a language."""
    known = {word for text in content["words"].values() for word in text.split()}
    if language != "en":
        # Short texts have few words of grammar, so that forms and units show their language too.
        groups = content.get("groups", {})
        lines = (line for name in ("irregular", "verbs", "units") for line in groups.get(name, ()))
        known |= {word for line in lines for word in line.split() if len(word) > 2}
    return frozenset(known)


# origin: the old value follows, if the text has a verb of change. contrast: it follows a comma.
# now: another value holds. ended: the claim holds no more. correction: the old text was wrong.
# since: a date follows. gone: the old value follows; left: it precedes. change: verbs of change.
# framed: an opener, if a mark follows it. stopped: a verb that ends what follows.
# actually: the old text was wrong; such a phrase stands at any place.
CUE_KINDS: Final = (
    "now", "ended", "past", "stopped", "correction", "since", "gone", "left", "origin", "contrast",
    "change", "new", "framed", "actually",
)  # fmt: skip


# The kinds that stay in a text, since their place says which value is the old one.
MARK_KINDS: Final = (
    "since", "left", "gone", "origin", "contrast", "change", "new", "stopped"
)  # fmt: skip


def first_of_group(groups: Iterable[str]) -> dict[str, str]:
    """Return each word of a group with the first word; groups with a common word are one."""
    found: dict[str, str] = {}
    for group in groups:
        words = group.split()
        first = next((found[word] for word in words if word in found), words[0])
        found.update((word, first) for word in words if word not in found)
    return found


def language_scores(words: Iterable[str]) -> dict[str, int]:
    """Return how many of the words each language knows; languages without any are left out."""
    found = set(words)
    scores = {name: len(found & lexicon(name).known) for name in LANGUAGES if name != "zh"}
    scores["zh"] = 3 * sum(HAN.search(word) is not None for word in found)
    return {name: score for name, score in scores.items() if score}


def best_language(*scores: dict[str, int]) -> str | None:
    """Return the language with most known words in all texts together, None if there is none."""
    total = {name: sum(one.get(name, 0) for one in scores) for name in LANGUAGES}
    best = max(LANGUAGES, key=lambda name: total[name])
    return best if total[best] else None


def split_phrase(phrase: str, language: str) -> Phrase:
    """Return the words of a phrase; each Chinese character is one."""
    if language != "zh":
        return tuple(phrase.split())
    spaced = HAN.sub(r" \g<0> ", phrase)
    return tuple(spaced.split())


def find_phrase(keys: Sequence[str], phrase: Phrase, start: int = 0) -> int:
    """Return the first index of a phrase without a gap in the keys, or -1."""
    size = len(phrase)
    for index in range(start, len(keys) - size + 1):
        if keys[index] == phrase[0] and tuple(keys[index : index + size]) == phrase:
            return index
    return -1


def _phrases(written: Iterable[str], language: str) -> tuple[Phrase, ...]:
    made = {split_phrase(one, language) for text in written for one in _alternatives(text)}
    return tuple(sorted(made, key=lambda phrase: (-len(phrase), phrase)))


def _marks(cues: dict[str, tuple[Phrase, ...]]) -> dict[str, tuple[tuple[str, Phrase], ...]]:
    found: dict[str, list[tuple[str, Phrase]]] = {}
    for kind in MARK_KINDS:
        for phrase in cues[kind]:
            found.setdefault(phrase[0], []).append((kind, phrase))
    return {word: tuple(marks) for word, marks in found.items()}


def _alternatives(text: str) -> list[str]:
    """Return a phrase once for each way through its alternatives: "is|are based on"."""
    found = [""]
    for word in text.split():
        found = [f"{lead} {one}".strip() for lead in found for one in word.split("|")]
    return found


def _by_first_word(
    table: dict[str, str], language: str
) -> dict[str, tuple[tuple[Phrase, Phrase], ...]]:
    by_word: dict[str, list[tuple[Phrase, Phrase]]] = {}
    for text, short in table.items():
        for one in _alternatives(text):
            phrase = split_phrase(one, language)
            by_word.setdefault(phrase[0], []).append((phrase, split_phrase(short, language)))
    return {
        word: tuple(sorted(entries, key=lambda entry: -len(entry[0])))
        for word, entries in by_word.items()
    }


def _opposites(pairs: Iterable[str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for one, other in map(str.split, pairs):
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in found.items()}


def _numbers(content: dict[str, Any]) -> dict[str, str]:
    small = {word: str(value) for value, word in enumerate(content.get("small", "").split())}
    tens = {word: str(v * 10) for v, word in enumerate(content.get("tens", "").split(), 3)}
    more = content.get("more", "").split()
    found = {**small, **tens, **dict(zip(more[::2], more[1::2], strict=True))}
    ones = {word: value for word, value in small.items() if 0 < int(value) < 10}
    twenty = {word: value for word, value in small.items() if value == "20"}
    for template in content.get("compounds", ()):
        for ten, many in {**tens, **twenty}.items():
            for one, few in ones.items():
                # German: "ein" for "eins".
                word = template.format(ones=one.removesuffix("s") if few == "1" else one, tens=ten)
                found.setdefault(word, str(int(many) + int(few)))
    return found


@lru_cache(maxsize=8192)
def _stem(language: str, word: str) -> str:
    """Return a crude stem: the same for the forms of one verb or noun, rarely for two."""
    if word in {"user", "we"} or HAN.match(word) or not word.isalpha():
        return word
    stem = _own_stem(word, lexicon(language))
    return _verb_stems(language).get(stem, stem)


@cache
def _verb_stems(language: str) -> dict[str, str]:
    """Return the stem of each verb with that of the first verb of its group."""
    words = lexicon(language)
    groups = read_language(f"{language}/claims").get("groups", {}).get("verbs", ())
    stems = (" ".join(_own_stem(verb, words) for verb in group.split()) for group in groups)
    return first_of_group(stems)


def _own_stem(word: str, words: Lexicon) -> str:
    if words.language == "en":
        base = words.irregular.get(word) or _without_ending(word, words)
        base = base.removesuffix("e") if len(base) > MIN_STEM_CHARS else base
        base = _DOUBLED.sub(r"\1", base)
        return base[:-1] + "i" if base.endswith("y") and len(base) > 2 else base
    base = _without_ending(_first_form(word, words).replace("ß", "ss"), words)
    previous = base if words.language != "de" else ""
    # German endings follow one another: "arbeit-et-e-st".
    while base != previous:
        previous, base = base, _without_ending(base, words)
    if words.language == "es":
        # "Muevo", "mover"; "cierro", "cerrar".
        base = base.replace("ue", "o").replace("ie", "e")
    return _DOUBLED.sub(r"\1", base.translate(_PLAIN[words.language]))


def _without_ending(word: str, words: Lexicon) -> str:
    """Return a word without its longest ending, if enough of it is left."""
    least = MIN_STEM_CHARS - (words.language == "es")
    for ending in words.endings:
        left = word.removesuffix(ending)
        if left != word and len(left) >= least and _VOWEL.search(left):
            return left
    return word


def _first_form(word: str, words: Lexicon) -> str:
    """Return the infinitive of an irregular form, and a German verb without "ge" and "zu"."""
    if word in words.irregular:
        return words.irregular[word]
    if words.language != "de":
        plain = word.removesuffix("n") if words.language == "es" else word
        return words.irregular.get(plain) or words.irregular.get(word.removesuffix("s")) or word
    for prefix in words.prefixes:
        rest = word.removeprefix(prefix)
        if rest == word:
            continue
        if rest.startswith("zu") and rest.endswith("n") and len(rest) > MIN_STEM_CHARS + 2:
            rest = rest[2:]
        if found := words.irregular.get(rest) or words.irregular.get(f"ge{rest}"):
            return prefix + found
        if rest != word.removeprefix(prefix):
            return prefix + rest
        if rest.startswith("ge") and rest[-1] in "tn" and len(rest) > MIN_STEM_CHARS + 2:
            return prefix + rest[2:]
    if word.startswith("ge") and word[-1] in "tn" and len(word) > MIN_STEM_CHARS + 2:
        return word[2:]
    return word


def folded(word: str, language: str) -> str:
    """Return a word as typed without accents and umlauts."""
    if language == "de":
        return word.translate(_UMLAUTS).replace("ph", "f")
    return word.translate(_ACCENTS)
