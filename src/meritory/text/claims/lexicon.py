"""The words of one language that the comparison of claims knows (`data/language/*/claims.toml`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from meritory.text.language import read_language, word_set

LANGUAGES: Final = ("en", "de", "fr", "es", "zh")
HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
# A phrase with a gap: "from ... to".
GAP: Final = "..."
MIN_STEM_CHARS: Final = 3
# A longer German word is hardly a given name.
MAX_NAME_CHARS: Final = 7
_VOWEL: Final = re.compile(r"[aeiouyäöüáéíóúàèâêîôû]")
_UMLAUTS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})
_ACCENTS: Final = str.maketrans("áàâäéèêëíìîïóòôöúùûüçñ", "aaaaeeeeiiiioooouuuucn")
_SOFT: Final = str.maketrans("áàâäéèêëíìîïóòôöúùûüçñyz", "aaaaeeeeiiiioooouuuucnic")
# Letters that differ between the forms of a word.
_PLAIN: Final[dict[str, dict[int, int]]] = {"de": {}, "fr": _SOFT, "es": _SOFT, "zh": {}}
_DOUBLED: Final = re.compile(r"([bdfgklmnprtz])\1$")

Phrase = tuple[str, ...]
# Phrases by one of their words, the longest first.
PhraseIndex = dict[str, tuple[Phrase, ...]]


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
    positions: frozenset[str]
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
    # Verbs of a role that one person has at a time, ordinal numbers, and what something may be
    # at a time; words of `since` that an event may follow.
    roles: frozenset[str]
    ordinals: frozenset[str]
    states: frozenset[str]
    events: frozenset[str]
    # Words of a remark that a text was wrong, and of one that it is a note.
    slips: frozenset[str]
    weak_slips: frozenset[str]
    remarks: frozenset[str]
    verbs: frozenset[str]
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
    # Each unit with the units of its measure, largest first, and its size in the smallest one.
    measures: dict[str, tuple[tuple[tuple[str, int], ...], int]]
    numbers: dict[str, str]
    # The verb of a noun that names an action, and of one that names a value.
    nominals: dict[str, str]
    attribute_verbs: dict[str, str]
    # The singular of each irregular plural.
    plurals: dict[str, str]
    # Each word with its opposites.
    antonyms: dict[str, frozenset[str]]
    # Each form of an irregular verb with its first form, and the forms of the past.
    irregular: dict[str, str]
    past: frozenset[str]
    participles: frozenset[str]
    # Verbs whose past is their plain form.
    unchanged: frozenset[str]
    endings: tuple[str, ...]
    openers: frozenset[Phrase]
    # Openers that a mark must follow or, at the end of a text, precede; these by their last word.
    framed: frozenset[Phrase]
    closing: PhraseIndex
    short_forms: dict[str, tuple[tuple[Phrase, Phrase], ...]]
    # The verb for a verb and its particle: "collect" for "pick up".
    phrasal: dict[Phrase, str]
    # Phrases of change by kind, longest first, and by kind and first word.
    cues: dict[str, tuple[Phrase, ...]]
    cues_by_word: dict[str, PhraseIndex]
    # The phrases of the kinds that stay in a text, by first word.
    marks: dict[str, tuple[tuple[str, Phrase], ...]]

    def named(self, name: str) -> frozenset[str]:
        """Return the words of a list that not every language has."""
        return self.lists.get(name, frozenset())

    @property
    def verb_stems(self) -> frozenset[str]:
        """The stems of the verbs with which an order may begin."""
        return _verb_stems(self.language)

    @property
    def particle_verbs(self) -> dict[tuple[str, str], str]:
        """The stem of the verb for the stem of another verb and its particle."""
        return _particle_verbs(self.language)

    def is_past(self, word: str) -> bool:
        """Return whether an English word has a form of the past."""
        return word in self.past or (word.endswith("ed") and word[-3:] != "eed" and len(word) > 3)

    def singular(self, word: str) -> str:
        """Return the singular of a noun by its ending."""
        if word in self.plurals:
            return self.plurals[word]
        if word.endswith("ies") and len(word) > 4:
            return word[:-3] + "y"
        if word.endswith(("sses", "ches", "shes", "xes")):
            return word[:-2]
        is_plural = word.endswith("s") and not word.endswith(("ss", "us", "is"))
        return word[:-1] if is_plural and len(word) > 3 else word

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
    irregular = _irregular(groups)
    forms = {line[0]: line for line in irregular}
    inflected = _inflected(groups, forms) if language == "en" else ()
    same = first_of_group(
        (
            *groups.get("same", ()),
            *groups.get("spellings", ()),
            *inflected,
            *groups.get("related", ()),
            *groups.get("adjectives", ()),
        )
    )
    cues = {kind: _phrases(phrases.get(kind, ()), language) for kind in CUE_KINDS}
    lists: dict[str, Any] = {key: words(key) for key in _LISTS}
    for key in _MAPPED:
        # With the words that stand for its words in the normal form.
        lists[key] = words(key) | {same.get(word, word) for word in words(key)}
    lists["positions"] |= lists["places"]
    return Lexicon(
        language=language,
        known=_known(content, language, words) | set(same),
        silent=lists["articles"] | words("fillers") | words("hedges"),
        light=lists["articles"]
        | words("fillers")
        | lists["prepositions"]
        | lists["be"]
        | words("light"),
        same=same,
        units=first_of_group(groups.get("units", ())),
        measures=_measures(groups.get("measures", ())),
        numbers=_numbers(content.get("numbers", {})),
        nominals=content.get("nominals", {}),
        attribute_verbs=_firsts(groups.get("attribute_verbs", ())),
        plurals=_firsts(groups.get("plurals", ())),
        antonyms=_opposites(groups.get("antonyms", ())),
        irregular={form: line[0] for line in irregular for form in line},
        past=frozenset(form for line in irregular for form in line[1:] if form != line[0]),
        participles=frozenset(form for line in irregular for form in line[1:]),
        unchanged=frozenset(line[0] for line in irregular if line[0] in line[1:]),
        endings=tuple(content.get("endings", ())),
        openers=frozenset(_phrases(phrases.get("openers", ()), language)),
        framed=frozenset(cues["framed"]),
        closing=_indexed(cues["framed"], -1),
        short_forms=_by_first_word(_short_forms(content, forms), language),
        phrasal={tuple(one.split()): verb for one, verb in content.get("phrasal", {}).items()},
        cues=cues,
        cues_by_word={kind: _indexed(cues[kind]) for kind in CUE_KINDS},
        marks=_marks(cues),
        lists={key: words(key) for key in content["words"]},
        **lists,
    )


def _inflected(groups: dict[str, Any], forms: dict[str, list[str]]) -> Iterator[str]:
    """Yield groups of English verbs and nouns of one meaning, form by form."""
    for verbs in groups.get("verbs", ()):
        yield from _verb_forms(verbs.split(), forms)
    for nouns in groups.get("nouns", ()):
        yield from _noun_forms(nouns)


def _irregular(groups: dict[str, Any]) -> list[list[str]]:
    """Return the forms of each irregular verb, in both spellings of German."""
    lines = groups.get("irregular", ())
    return [line.split() for line in (*lines, *(one.replace("ß", "ss") for one in lines))]


def _known(
    content: dict[str, Any], language: str, words: Callable[[str], frozenset[str]]
) -> frozenset[str]:
    """Return the words that show the language of a text."""
    known = set().union(*(words(name) for name in content["words"] if name not in _UNSAID))
    if language != "en":
        # Short texts have few words of grammar, so that forms and units show their language too.
        groups = content.get("groups", {})
        lines = (line for name in ("irregular", "verbs", "units") for line in groups.get(name, ()))
        known |= {word for line in lines for word in line.split() if len(word) > 2}
    return frozenset(known)


_UNSAID: Final = frozenset({"verbs", "states"})
_LISTS: Final = (
    "articles", "hedges", "negations", "additive", "limits", "denials", "positions", "companions",
    "frequency", "first_person", "prefixes", "attributes", "many_valued", "one_valued", "ordinals",
    "events", "slips", "weak_slips", "remarks", "bare_verbs", "clause_verbs", "definite",
    "indefinite", "dates",
)  # fmt: skip
_MAPPED: Final = (
    "prepositions", "places", "pronouns", "quantifiers", "modals", "be", "agents", "light_verbs",
    "wishes", "puts", "goes", "roles", "states", "verbs", "fronting",
)  # fmt: skip


# actual: another value is the right one. origin: the old value follows, if the text has a verb of
# change. contrast: it follows a comma. now: another value holds. ended: the claim holds no more.
# correction: the old text was wrong. since: a date follows. gone: the old value follows; left: it
# precedes. change: verbs of change.
# framed: an opener, if a mark follows it. stopped: a verb that ends what follows.
# actually: the old text was wrong; such a phrase stands at any place. henceforth: another value
# holds, or a rule begins.
CUE_KINDS: Final = (
    "now", "actual", "ended", "past", "stopped", "correction", "since", "gone", "left", "origin",
    "contrast", "change", "new", "framed", "actually", "henceforth",
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


def _measures(
    groups: Iterable[str],
) -> dict[str, tuple[tuple[tuple[str, int], ...], int]]:
    found: dict[str, tuple[tuple[tuple[str, int], ...], int]] = {}
    for group in groups:
        smallest, *steps = group.split()
        sizes = [(smallest, 1)]
        for factor, name in zip(steps[::2], steps[1::2], strict=True):
            sizes.append((name, sizes[-1][1] * int(factor)))
        found.update((name, (tuple(reversed(sizes)), size)) for name, size in sizes)
    return found


def _firsts(groups: Iterable[str]) -> dict[str, str]:
    """Return each further word of a group with the first one."""
    return {word: group.split()[0] for group in groups for word in group.split()[1:]}


def _verb_forms(verbs: Sequence[str], irregular: dict[str, list[str]]) -> list[str]:
    """Return a group for each form of interchangeable verbs: "begin start", "begins starts"."""
    made = [verb_forms(verb, irregular.get(verb, ())) for verb in verbs]
    first, *rest = zip(*made, strict=True)
    # "Shut" is also its own past.
    later = [[form for form in forms if form not in first] for forms in rest]
    return [" ".join(dict.fromkeys(forms)) for forms in (first, *later) if forms]


def verb_forms(verb: str, irregular: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the forms of an English verb: plain, with s, past, participle, with ing."""
    if re.search(r"[^aeiou]y$", verb):
        third, past = f"{verb[:-1]}ies", f"{verb[:-1]}ied"
    else:
        third = f"{verb}es" if re.search(r"(?:s|x|z|ch|sh|o)$", verb) else f"{verb}s"
        past = f"{verb}d" if verb.endswith("e") else f"{_doubled(verb)}ed"
    silent = verb.endswith("e") and not verb.endswith(("ee", "oe", "ye"))
    ing = f"{verb[:-1] if silent else _doubled(verb)}ing"
    forms = tuple(irregular)[1:]
    return (verb, third, forms[0] if forms else past, forms[-1] if forms else past, ing)


def _short_forms(content: dict[str, Any], irregular: dict[str, list[str]]) -> dict[str, str]:
    """Return the phrases with a shorter form, with all forms of the verbs in them."""
    made: dict[str, str] = {}
    for phrase, short in content.get("phrasal", {}).items():
        (verb, *rest), (meaning, *more) = phrase.split(), short.split()
        forms = verb_forms(verb, irregular.get(verb, ()))
        meanings = verb_forms(meaning, irregular.get(meaning, ()))
        for form, one in zip(forms, meanings, strict=True):
            made.setdefault(" ".join((form, *rest)), " ".join((one, *more)))
        if forms[0] == forms[3]:
            # "Was put off": the past of "put" is "put".
            for be in ("is", "are", "was", "were", "been", "be"):
                made[" ".join((be, verb, *rest))] = " ".join((be, meanings[3], *more))
    for phrase, short in content.get("copular", {}).items():
        meaning, *more = short.split()
        is_verb = meaning not in {"is", "can", "must", "may", "should", "will"}
        plain, third, past, *_ = verb_forms(meaning, irregular.get(meaning, ()))
        for be, form in (("is", third), ("am|are", plain), ("was|were", past)):
            if is_verb or be != "was|were":
                made[f"{be} {phrase}"] = " ".join((form if is_verb else meaning, *more))
    made.update(content.get("short_forms", {}))
    return made


def _doubled(verb: str) -> str:
    """Return a verb with its last consonant doubled where an ending requires it: "stopp"."""
    return (
        verb + verb[-1]
        if re.search(r"^[^aeiou]*[aeiou][bdgklmnprt]$|(?:mit|fer|cur|trol|quip|pel)$", verb)
        else verb
    )


def _noun_forms(nouns: str) -> tuple[str, str]:
    """Return the groups of interchangeable nouns in the singular and in the plural."""
    made = [re.sub(r"([^aeiou])y$", r"\1ie", noun) for noun in nouns.split()]
    plurals = [f"{noun}es" if re.search(r"(?:s|x|ch|sh)$", noun) else f"{noun}s" for noun in made]
    return nouns, " ".join(plurals)


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


def _indexed(phrases: Iterable[Phrase], place: int = 0) -> PhraseIndex:
    found: dict[str, list[Phrase]] = {}
    for phrase in phrases:
        found.setdefault(phrase[place], []).append(phrase)
    return {word: tuple(entries) for word, entries in found.items()}


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


@cache
def _verb_stems(language: str) -> frozenset[str]:
    words = lexicon(language)
    return frozenset(map(words.stem, words.verbs))


@cache
def _particle_verbs(language: str) -> dict[tuple[str, str], str]:
    words = lexicon(language)
    return {
        (words.stem(phrase[0]), phrase[1]): words.stem(words.same.get(meaning, meaning))
        for phrase, meaning in words.phrasal.items()
        if len(phrase) == 2 and " " not in meaning
    }


@lru_cache(maxsize=8192)
def _stem(language: str, word: str) -> str:
    """Return a crude stem: the same for the forms of one verb or noun, rarely for two."""
    if word in {"user", "we"} or HAN.match(word) or not word.isalpha():
        return word
    stem = _own_stem(word, lexicon(language))
    # English groups are among the words of one meaning, form by form.
    return stem if language == "en" else _grouped_stems(language).get(stem, stem)


@cache
def _grouped_stems(language: str) -> dict[str, str]:
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
        left = word if word.endswith("ss") and ending == "s" else word.removesuffix(ending)
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
        plain = word.translate(_UMLAUTS)
        # "Stephan" is not "Stefan"; "Photoalbum" is "Fotoalbum".
        return plain.replace("ph", "f") if len(plain) > MAX_NAME_CHARS else plain
    return word.translate(_ACCENTS)
