"""Compares two claims by their parts: the verb, who acts, what it is done to, and the rest.

For languages whose sentences have many orders and forms. Two claims are one if they have the same
parts in the same roles, whatever the order, the voice or the ending of the verb.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from os.path import commonprefix
from typing import Final

from meritory.text.claims.lexicon import Lexicon, folded, lexicon
from meritory.text.claims.reading import Claim
from meritory.text.claims.read import Unit
from meritory.text.language import read_language

MAX_TOKENS: Final = 30
MAX_CLAUSES: Final = 3
# More words of other forms than these are another claim.
MAX_FORMS: Final = 4
MIN_COMMON: Final = 4
_PERSONS: Final = frozenset({"user", "we"})
_OWNERS: Final = frozenset({"user's", "we's"})
_NOT: Final = "not"
_UNACCENTED: Final = str.maketrans("áéíóú", "aeiou")


@dataclass(frozen=True, slots=True)
class FrameWords:
    """The words of one language that show the parts of a sentence."""

    lists: dict[str, frozenset[str]]
    participle: re.Pattern[str]
    infinitive: re.Pattern[str]
    preterite: re.Pattern[str]

    def __getitem__(self, name: str) -> frozenset[str]:
        return self.lists.get(name, frozenset())


@cache
def frame_words(language: str) -> FrameWords | None:
    """Return the words of a language, or None if its file has none."""
    table = read_language(f"{language}/claims").get("frames")
    if table is None:
        return None
    same = lexicon(language).same
    patterns = {name: re.compile(table[name]) for name in ("participle", "infinitive", "preterite")}
    lists = {
        name: frozenset(text.split()) | {same.get(word, word) for word in text.split()}
        for name, text in table.items()
        if name not in patterns
    }
    # By stem, since each has many forms.
    lists["light"] = frozenset(map(lexicon(language).stem, lists.get("light", ())))
    return FrameWords(lists, **patterns)


@dataclass(frozen=True, slots=True)
class Token:
    """A unit of a claim with the silent words before it."""

    unit: Unit
    stem: str
    silent: tuple[str, ...]
    is_noun: bool
    # A pronoun that can only be the subject, and a noun after "vom" or "zum".
    is_subject: bool = False
    is_singular: bool = False

    @property
    def key(self) -> str:
        """The word in its normal form."""
        return self.unit.key


@dataclass(slots=True)
class Frame:
    """A clause without its helping words, and what these said about it."""

    tokens: list[Token]
    is_passive: bool = False
    # Indexes of the words that may precede the one who acts, in the passive.
    agents: tuple[int, ...] = ()
    agent: int | None = None
    # "must", "should", "ban", or nothing.
    duty: str = ""
    is_past: bool = False
    is_wish: bool = False
    # "Il faut": no one is named.
    is_impersonal: bool = False
    is_generic: bool = False
    # The pairs that are nouns in one text at least.
    nouns: frozenset[int] = frozenset()


def same_frame(old: Claim, new: Claim, *, without_negation: bool = False) -> bool:
    """Return whether two claims of one language have the same parts in the same roles."""
    language = old.language or "en"
    words = frame_words(language)
    if words is None or max(len(old.keys), len(new.keys)) > MAX_TOKENS:
        return False
    if _objects(old, words) != _objects(new, words) and not _has_wish(old, new):
        return False
    left, right = _clauses(old, words), _clauses(new, words)
    if without_negation:
        left, right = _affirmed(left, old.lexicon), _affirmed(right, new.lexicon)
    if len(left) != len(right) or len(left) > MAX_CLAUSES:
        return False
    lex = lexicon(language)
    return any(
        all(_same_clause(one, other, lex, words) for one, other in zip(left, order, strict=True))
        for order in permutations(right)
    )


def other_case(old: Claim, new: Claim) -> bool:
    """Return whether one of two German texts begins with an object: "Den Hund beißt der Mann"."""
    words = frame_words(old.language) if old.language == "de" else None
    if words is None or not old.words or not new.words:
        return False
    return (old.words[0] in words["accusative"]) != (new.words[0] in words["accusative"])


def _affirmed(clauses: list[list[Token]], lex: Lexicon) -> list[list[Token]]:
    """Return the clauses without their negations."""
    closed = lex.negations | {_NOT}
    return [[token for token in clause if token.key not in closed] for clause in clauses]


def _objects(claim: Claim, words: FrameWords) -> frozenset[str]:
    """Return the words "me" and "us" of a claim, unless they mean "myself"."""
    if "se" in claim.keys:
        return frozenset()
    parts = (part for key in claim.raw for part in key.split("-"))
    return words["object"].intersection(parts)


def _has_wish(old: Claim, new: Claim) -> bool:
    return any(set(claim.keys[:3]) & claim.lexicon.wishes for claim in (old, new))


# -- tokens -----------------------------------------------------------------------------------


def _tokens(claim: Claim, words: FrameWords) -> list[Token]:
    """Return the kept units of a claim, each with the silent words before it."""
    lex = claim.lexicon
    found: list[Token] = []
    silent: list[str] = []
    previous = ""
    index = 0
    for word in claim.words:
        if index == len(claim.units):
            break
        unit = claim.units[index]
        key = unit.key.rstrip(",")
        if word != key and lex.same.get(word) != key and lex.units.get(word) != key:
            if lex.same.get(word.lower()) != key:
                silent.append(word)
                continue
        token = _token(claim, index, tuple(silent), words)
        if previous in words["singular"]:
            token = replace(token, is_singular=True)
        found.append(token)
        silent, previous = [], word
        index += 1
    while index < len(claim.units):
        found.append(_token(claim, index, (), words))
        index += 1
    return found


def _token(claim: Claim, index: int, silent: tuple[str, ...], words: FrameWords) -> Token:
    unit, lex = claim.units[index], claim.lexicon
    if claim.language == "de":
        is_noun = unit.is_capital and not unit.is_first
    else:
        before = claim.units[index - 1].key if index else ""
        is_noun = bool(set(silent) & lex.articles) or before in lex.prepositions | _OWNERS
        is_noun = is_noun or before in lex.quantifiers
        is_noun = is_noun or (index > 0 and claim.units[index - 1].kind == "number")
        is_noun = is_noun and words.infinitive.search(unit.key) is None
        is_noun = is_noun or (unit.is_capital and not unit.is_first)
    is_subject = unit.key in _PERSONS and not (
        claim.raw & words["named_persons"] or _objects(claim, words)
    )
    return Token(unit, claim.stems[index], silent, is_noun or unit.kind != "word", is_subject)


def _clauses(claim: Claim, words: FrameWords) -> list[list[Token]]:
    """Return the clauses of a claim; without a subordinate clause there is only one."""
    tokens = _tokens(claim, words)
    if not any(token.key in words["subordinate"] for token in tokens[1:]) and not (
        tokens and tokens[0].key in words["subordinate"]
    ):
        return [tokens]
    # "The user wants that ...": the clause is all of the claim.
    if len(tokens) > 2 and tokens[0].key == "user" and tokens[1].key in claim.lexicon.wishes:
        return [tokens]
    clauses: list[list[Token]] = [[]]
    for token in tokens:
        is_marked = token.unit.before[:1] in {",", ";", ":"} or token.key in (
            words["subordinate"] - words["that"]
        )
        if is_marked and clauses[-1]:
            clauses.append([])
        clauses[-1].append(token)
    return clauses


def _split(
    tokens: list[Token], others: list[Token], lex: Lexicon, words: FrameWords
) -> list[Token]:
    """Return a Spanish clause with the "me" at the end of an order as a word."""
    ending = next((one for one in words["enclitics"] if tokens[0].key.endswith(one)), None)
    if ending is None:
        return tokens
    verb = tokens[0].key.removesuffix(ending).translate(_UNACCENTED)
    stem = lex.stem(verb)
    if verb not in words["gives"] and all(token.stem != stem for token in others):
        return tokens
    first = replace(tokens[0], unit=replace(tokens[0].unit, key=verb), stem=stem)
    return [first, Token(Unit("word", "user"), "user", (), False), *tokens[1:]]


def _asked(
    tokens: list[Token], others: list[Token], lex: Lexicon, words: FrameWords
) -> list[Token]:
    """Return "the user wants prices" for "give me prices", if the other text is a wish."""
    if len(tokens) < 3 or tokens[0].key not in words["gives"] or tokens[1].key != "user":
        return tokens
    if len(others) < 3 or others[0].key != "user" or others[1].key not in lex.wishes:
        return tokens
    return [others[0], others[1], *tokens[2:]]


def _joined(tokens: list[Token], others: list[Token], lex: Lexicon) -> list[Token]:
    """Return a German clause with a verb and its prefix as one word, if the other has that word."""
    if lex.language != "de" or len(tokens) < 2 or tokens[-1].key not in lex.prefixes:
        return tokens
    stems = {token.stem for token in others if not token.is_noun}
    for index, token in enumerate(tokens[:-1]):
        if token.is_noun or token.unit.kind != "word":
            continue
        verb = tokens[-1].key + token.key
        if lex.stem(verb) in stems:
            joined = replace(token, unit=replace(token.unit, key=verb), stem=lex.stem(verb))
            return [*tokens[:index], joined, *tokens[index + 1 : -1]]
    return tokens


# -- helping words ----------------------------------------------------------------------------


def _frame(tokens: list[Token], lex: Lexicon, words: FrameWords) -> Frame:
    """Return a clause without auxiliary verbs, modal verbs of duty, "that", "one" and "to"."""
    frame = Frame(_without_cleft(tokens, lex, words))
    _take_wish(frame, lex, words)
    _take_duty(frame, lex, words)
    _take_voice(frame, lex, words)
    kept = [token for token in frame.tokens if token.key not in words["generic"]]
    frame.is_generic = len(kept) < len(frame.tokens) or frame.is_impersonal
    frame.tokens = kept
    if frame.is_passive:
        frame.agents = tuple(i for i, token in enumerate(kept[:-1]) if token.key in lex.agents)
    return frame


def _without_cleft(tokens: list[Token], lex: Lexicon, words: FrameWords) -> list[Token]:
    """Return "Karim checks" for "it is Karim who checks"."""
    keys = [token.key for token in tokens]
    start = next((i for i, key in enumerate(keys[:-3]) if key in words["it"]), None)
    if start is None or keys[start + 1] not in lex.be:
        return tokens
    spot = next((i for i, key in enumerate(keys) if key in words["who"] and i > start + 2), 0)
    return [*tokens[:start], *tokens[start + 2 : spot], *tokens[spot + 1 :]] if spot else tokens


def _take_wish(frame: Frame, lex: Lexicon, words: FrameWords) -> None:
    """Remove "the user wants that"; "him" is the user then."""
    tokens = frame.tokens
    if len(tokens) < 3 or tokens[0].key != "user" or tokens[1].key not in lex.wishes:
        return
    rest = tokens[2:]
    is_clause = rest[0].key in words["that"]
    is_passive = any(token.key in words["passive"] for token in rest)
    if not is_clause and not is_passive:
        # "Wants to see the prices" is "wants the prices".
        kept = [token for token in rest if token.key not in words["seen"]]
        frame.tokens = [*tokens[:2], *kept]
        return
    if is_clause:
        rest = rest[1:]
    elif is_passive:
        # "The user wants to be told": the user is the one who is told.
        rest = [tokens[0], *rest]
    frame.tokens = []
    user = Token(Unit("word", "user"), "user", (), False)
    for token in rest:
        if token.key in words["him"]:
            frame.tokens.append(user)
            continue
        if is_clause and not frame.tokens and set(token.silent) & words["clitics"]:
            frame.tokens.append(user)
            token = replace(token, silent=(), is_noun=False)
        frame.tokens.append(token)
    frame.is_wish = True


def _take_duty(frame: Frame, lex: Lexicon, words: FrameWords) -> None:
    """Remove "must", and "is to" and "has to" with an infinitive."""
    tokens = frame.tokens
    # "Il faut du sel" has no infinitive: something is needed.
    kept = [
        token
        for index, token in enumerate(tokens)
        if token.key not in words["duty"]
        or (token.key in words["needs"] and not _governs_verb(tokens, index, words))
    ]
    if len(kept) < len(tokens):
        said = {token.key for token in tokens} - {token.key for token in kept}
        frame.duty = next((kind for kind in ("ban", "should") if said & words[kind]), "must")
        frame.is_impersonal = any(
            token.key in words["needs"] and token not in kept for token in tokens
        )
        frame.tokens = kept
        if frame.is_impersonal and kept and kept[0].key in words["that"]:
            # "Il faut que": the clause after it has a subject.
            frame.is_impersonal, frame.tokens = False, kept[1:]
        return
    helpers = [i for i, token in enumerate(tokens) if token.key in words["is_to"]]
    if not helpers or not words["to"]:
        return
    spot = helpers[0]
    for index in range(spot + 1, len(tokens)):
        key = tokens[index].key
        is_marked = key in words["to"] and len(tokens) - 3 <= index < len(tokens) - 1
        if is_marked and words.infinitive.search(tokens[index + 1].key):
            removed = {spot, index}
        elif _has_inner_to(key, lex):
            removed = {spot}
        else:
            continue
        frame.duty = "must"
        frame.is_passive = tokens[spot].key in lex.be
        frame.tokens = [token for i, token in enumerate(tokens) if i not in removed]
        return


def _governs_verb(tokens: list[Token], index: int, words: FrameWords) -> bool:
    following = tokens[index + 1 : index + 3]
    if following and following[0].key in words["that"]:
        return True
    return any(words.infinitive.search(token.key) and not token.is_noun for token in following)


def _has_inner_to(key: str, lex: Lexicon) -> bool:
    """Return whether a German infinitive has "zu" in it: "anzurufen"."""
    return key.endswith("n") and any(key.startswith(f"{one}zu") for one in lex.prefixes)


def _take_voice(frame: Frame, lex: Lexicon, words: FrameWords) -> None:
    """Remove the auxiliary verbs of the passive and of the perfect."""
    tokens = frame.tokens
    participles = [
        i
        for i, token in enumerate(tokens)
        if token.key in words["need"] or token.key in lex.participles
        or (not token.is_noun and words.participle.search(token.key))
    ]
    if not participles:
        return
    removed: set[int] = set()
    for index, token in enumerate(tokens):
        is_needed = token.key in lex.be and any(tokens[p].key in words["need"] for p in participles)
        if (token.key in words["passive"] or is_needed) and any(p != index for p in participles):
            removed.add(index)
            frame.is_passive = True
        elif token.key in words["perfect"] and any(p != index for p in participles):
            removed.add(index)
            frame.is_past = True
        if index in removed and token.key in words["past"]:
            frame.is_past = True
    if not removed:
        return
    kept = [i for i in range(len(tokens)) if i not in removed]
    frame.tokens = [tokens[i] for i in kept]


# -- pairs ------------------------------------------------------------------------------------


def _same_clause(
    one: list[Token], other: list[Token], lex: Lexicon, words: FrameWords
) -> bool:
    one, other = _joined(one, other, lex), _joined(other, one, lex)
    one, other = _split(one, other, lex, words), _split(other, one, lex, words)
    one, other = _asked(one, other, lex, words), _asked(other, one, lex, words)
    left, right = _frame(one, lex, words), _frame(other, lex, words)
    if not left.tokens or not right.tokens:
        return False
    pairs = _paired(left, right, lex, words)
    if pairs is None:
        return False
    ids, verbs = pairs
    a, b = ids
    if _is_past(left, a, verbs, words) != _is_past(right, b, verbs, words):
        return False
    shared = [number for number in a if number >= 0]
    candidates: list[int | None] = list(verbs) if verbs else [None, *dict.fromkeys(shared)]
    for verb in candidates:
        if verb is not None and not verbs and not _may_be_verb(left, right, a, b, verb, lex):
            continue
        if _fits(left, a, right, b, verb, lex, words) or _fits(right, b, left, a, verb, lex, words):
            return True
    return False


def _may_be_verb(
    left: Frame, right: Frame, a: list[int], b: list[int], verb: int, lex: Lexicon
) -> bool:
    tokens = left.tokens[a.index(verb)], right.tokens[b.index(verb)]
    closed = lex.prepositions | lex.quantifiers | lex.limits | _PERSONS | _OWNERS
    if any(token.key in closed or token.unit.kind == "number" for token in tokens):
        return False
    if any(token.unit.is_capital and not token.unit.is_first for token in tokens):
        return False
    # In Spanish, "la" before a verb may be a pronoun.
    return not all(token.is_noun for token in tokens)


def _is_past(frame: Frame, numbers: list[int], verbs: list[int], words: FrameWords) -> bool:
    return frame.is_past or any(
        number in verbs
        and (words.preterite.search(token.key) is not None or token.key in words["past_forms"])
        for token, number in zip(frame.tokens, numbers, strict=True)
    )


Paired = tuple[tuple[list[int], list[int]], list[int]]


def _paired(left: Frame, right: Frame, lex: Lexicon, words: FrameWords) -> Paired | None:
    """Return a number for each token, the same for a pair of both texts, and those of verbs.

    None if a token has no partner; -1 stands for a word that the other text may lack.
    """
    a = [-1] * len(left.tokens)
    b = [-1] * len(right.tokens)
    verbs: list[int] = []
    free = _free(left, right, lex)
    count = 0
    nominal: set[int] = set()
    is_light = any(
        token.stem in words["light"] for token in (*left.tokens, *right.tokens)
    )
    for rule in (_is_equal, _is_folded, _is_inflected, _is_nominal):
        if rule is _is_nominal and not _has_light_verb(left, a, right, b, lex, words):
            break
        for i, token in enumerate(left.tokens):
            if a[i] >= 0:
                continue
            for j, partner in enumerate(right.tokens):
                if b[j] < 0 and rule(token, partner, lex, words, free):
                    a[i] = b[j] = count
                    is_turned = rule is _is_equal and token.is_noun != partner.is_noun
                    if rule is _is_nominal or (is_turned and is_light):
                        nominal.add(count)
                        verbs.append(count)
                    elif rule is _is_inflected and not (
                        token.is_noun or _is_adjective(token, left, i, lex)
                    ):
                        verbs.append(count)
                    count += 1
                    break
    if len(verbs) > MAX_FORMS:
        return None
    nouns = {
        number
        for frame, numbers in ((left, a), (right, b))
        for token, number in zip(frame.tokens, numbers, strict=True)
        if token.is_noun and number not in verbs
    }
    for frame, numbers in ((left, a), (right, b)):
        frame.nouns = frozenset(nouns)
        frame.agent = next((i + 1 for i in frame.agents if numbers[i] < 0), None)
    for frame, numbers, partner in ((left, a, right), (right, b, left)):
        for index, token in enumerate(frame.tokens):
            if numbers[index] >= 0:
                continue
            is_light_part = bool(nominal) and (
                token.stem in words["light"]
                or token.key in lex.prefixes
                or (token.key in words["links"] and index > 0 and numbers[index - 1] in nominal)
                or (token.key in words["adjuncts"] and frame.tokens[index - 1].stem in words["light"])
            )
            if not is_light_part and not _may_lack(token, frame, partner, lex, words):
                return None
    return (a, b), verbs


def _has_light_verb(
    left: Frame, a: list[int], right: Frame, b: list[int], lex: Lexicon, words: FrameWords
) -> bool:
    """Return whether one text says "takes a decision" for what the other calls "decides"."""
    return any(
        number < 0 and token.stem in words["light"]
        for frame, numbers in ((left, a), (right, b))
        for token, number in zip(frame.tokens, numbers, strict=True)
    )


def _is_nominal(
    token: Token, partner: Token, lex: Lexicon, words: FrameWords, free: frozenset[str]
) -> bool:
    if not token.unit.kind == partner.unit.kind == "word" or token.is_noun == partner.is_noun:
        return False
    if token.stem == partner.stem:
        return True
    # "Solicitud", "solicitar": the noun of a verb has its start.
    size = len(commonprefix((token.stem, partner.stem)))
    return size >= MIN_COMMON and 3 * size >= 2 * min(len(token.stem), len(partner.stem))


def _free(left: Frame, right: Frame, lex: Lexicon) -> frozenset[str]:
    """Return in what the endings of two clauses may differ: voice, and number."""
    found = {"voice"} if left.is_passive != right.is_passive else set[str]()
    starts = [bool(set(frame.tokens[0].silent) & lex.indefinite) for frame in (left, right)]
    numbered = any(
        token.unit.kind == "number" for frame in (left, right) for token in frame.tokens[:2]
    )
    if all(any(token.key in lex.be for token in frame.tokens) for frame in (left, right)):
        found.add("gender")
    if starts[0] != starts[1] and not numbered and not (left.is_past or right.is_past):
        # "A new colleague gets a key", "new colleagues get a key".
        plain, many = (left, right) if starts[0] else (right, left)
        heads = zip(plain.tokens[:2], many.tokens[:2], strict=False)
        if any(a.key != b.key and a.stem == b.stem for a, b in heads):
            found.add("number")
    return frozenset(found)


def _may_lack(
    token: Token, frame: Frame, other: Frame, lex: Lexicon, words: FrameWords
) -> bool:
    """Return whether the other text may lack a word of this one."""
    if token.key in lex.agents and frame.agent is not None:
        return frame.tokens[frame.agent - 1] is token
    if token.key == "we":
        # "We lock the door" is "the door is locked".
        return frame.is_wish or other.is_passive or other.is_generic or other.is_wish
    return token.key in words["loose"]


def _is_adjective(token: Token, frame: Frame, index: int, lex: Lexicon) -> bool:
    """Return whether a German word is an adjective: a noun follows it."""
    if lex.language != "de" or index + 1 == len(frame.tokens):
        return False
    following = frame.tokens[index + 1]
    return following.is_noun and not following.silent and following.unit.kind == "word"


def _is_equal(
    token: Token, partner: Token, lex: Lexicon, words: FrameWords, free: frozenset[str]
) -> bool:
    return token.key == partner.key


def _is_folded(
    token: Token, partner: Token, lex: Lexicon, words: FrameWords, free: frozenset[str]
) -> bool:
    if token.unit.kind != "word" or partner.unit.kind != "word":
        return False
    return folded(token.key, lex.language) == folded(partner.key, lex.language)


def _is_inflected(
    token: Token, partner: Token, lex: Lexicon, words: FrameWords, free: frozenset[str]
) -> bool:
    if token.unit.kind != "word" or partner.unit.kind != "word":
        return False
    if "number" in free and {token.key, partner.key} <= words["possessive"]:
        return True
    if token.stem != partner.stem:
        return False
    if "number" in free:
        return True
    if token.is_noun != partner.is_noun:
        return False
    if token.is_noun:
        return (
            _is_genitive(token, partner, words)
            or _is_declined(token, partner, words)
            or ("gender" in free and _is_other_gender(token, partner, words))
        )
    one, other = sorted((token.key, partner.key), key=len)
    # Only the number differs: another claim, unless it is the participle of a passive.
    return lex.language == "de" or "voice" in free or other not in {f"{one}s", f"{one}es", f"{one}x"}


def _is_genitive(token: Token, partner: Token, words: FrameWords) -> bool:
    """Return whether one word is the genitive of the other: "Vaters"."""
    one, other = sorted((token, partner), key=lambda noun: len(noun.key))
    is_marked = bool(set(other.silent) & words["genitive"])
    return is_marked and other.key in {f"{one.key}s", f"{one.key}es"}


def _is_declined(token: Token, partner: Token, words: FrameWords) -> bool:
    """Return whether one German noun is the other after "dem" or "vom": "Nachbarn"."""
    one, other = sorted((token, partner), key=lambda noun: len(noun.key))
    is_one = bool(set(other.silent) & words["dative"]) or other.is_singular
    return is_one and other.key in {f"{one.key}n", f"{one.key}en"}


def _is_other_gender(token: Token, partner: Token, words: FrameWords) -> bool:
    """Return whether one noun is the feminine of the other: "Lehrerin"."""
    one, other = sorted((token.key, partner.key), key=len)
    for pair in words["genders"]:
        male, _, female = pair.partition("/")
        if {one, other} == {one.removesuffix(male) + male, one.removesuffix(male) + female}:
            return one != other
    return False


# -- parts and roles --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A run of tokens that belong together, with the word that shows its role."""

    numbers: tuple[int, ...]
    tokens: tuple[Token, ...]
    preposition: str
    is_argument: bool


def _parts(
    frame: Frame,
    numbers: Sequence[int],
    verb: int | None,
    lex: Lexicon,
    words: FrameWords,
    *,
    is_split: bool = False,
) -> list[Part]:
    """Return the parts of a clause without its verb and without words the other text lacks."""
    groups: list[list[int]] = []
    is_open = False
    previous: Token | None = None
    for index, token in enumerate(frame.tokens):
        if numbers[index] == verb or numbers[index] < 0:
            is_open = False
            previous = None
            continue
        is_apart = is_split and token.is_noun and previous is not None and previous.is_noun
        if is_open and not is_apart and not _opens(token, previous, lex, words):
            groups[-1].append(index)
        else:
            groups.append([index])
        is_open = True
        previous = token
    return [_part(frame, numbers, group, lex, words) for group in groups]


def _opens(token: Token, previous: Token | None, lex: Lexicon, words: FrameWords) -> bool:
    """Return whether a token begins a part of its own."""
    if previous is None:
        return True
    key, before = token.key, previous.key
    if key in words["links"] or before in words["links"] or key in words["joints"]:
        return False
    if before in words["joints"] or before in lex.prepositions or before in _OWNERS:
        return False
    if before in lex.quantifiers | lex.limits or previous.unit.kind == "number":
        return False
    if before == _NOT or before in lex.negations:
        return key not in lex.quantifiers | lex.limits
    if token.unit.before[:1] in {",", ";"}:
        return True
    if key in lex.prepositions | lex.quantifiers | lex.limits | _PERSONS | _OWNERS:
        return True
    if key == _NOT or key in lex.negations or key in lex.frequency or before in lex.frequency:
        return True
    if set(token.silent) & (lex.articles | lex.definite):
        return True
    if before in _PERSONS or before in words["times"]:
        return True
    if lex.language == "de":
        if token.unit.kind == "word" and not token.is_noun:
            # A word after a noun, or one that no noun follows, is no part of a noun's phrase.
            return True
        return not previous.is_noun and not _agrees(previous)
    return token.unit.kind == "number"


def _agrees(token: Token) -> bool:
    """Return whether a German word may be an adjective before a noun."""
    return token.key.endswith(("e", "en", "er", "es", "em")) or token.unit.kind == "number"


def _part(
    frame: Frame, numbers: Sequence[int], group: list[int], lex: Lexicon, words: FrameWords
) -> Part:
    tokens = tuple(frame.tokens[index] for index in group)
    first = tokens[0].key
    preposition = first if first in lex.prepositions | lex.limits else ""
    keys = {token.key for token in tokens}
    is_time = bool(keys & (words["times"] | lex.frequency | frozenset(lex.dates)))
    is_noun = any(numbers[index] in frame.nouns for index in group) or any(
        token.key in _PERSONS | lex.pronouns or token.unit.kind != "word" for token in tokens
    )
    if lex.language != "de":
        is_noun = is_noun or first not in lex.negations | {_NOT}
    is_argument = not preposition and not is_time and is_noun
    return Part(tuple(numbers[index] for index in group), tokens, preposition, is_argument)


def _fits(
    one: Frame,
    a: list[int],
    other: Frame,
    b: list[int],
    verb: int | None,
    lex: Lexicon,
    words: FrameWords,
) -> bool:
    """Return whether the parts and roles are the same, where only the first may be passive."""
    if other.is_passive and not one.is_passive:
        return False
    mine, theirs = _parts(one, a, verb, lex, words), _parts(other, b, verb, lex, words)
    if not _same_parts(mine, theirs) and lex.language == "de":
        # Two nouns without an article between them may be two parts.
        mine = _parts(one, a, verb, lex, words, is_split=True)
        theirs = _parts(other, b, verb, lex, words, is_split=True)
    if not _same_parts(mine, theirs):
        mine, theirs = _with_gap(mine, theirs), _with_gap(theirs, mine)
    if not _same_parts(mine, theirs):
        return False
    if not _same_mood(one, a, other, b, verb, lex, words):
        return False
    first = [part.numbers for part in mine if part.is_argument]
    second = [part.numbers for part in theirs if part.is_argument]
    if one.is_passive == other.is_passive:
        return (
            first == second
            or _without_subject(mine) == _without_subject(theirs)
            or _is_marked(mine, theirs, words)
            or (first == second[::-1] and len(first) == 2 and _is_copula(one, other, a, verb, lex))
            or (first == second[::-1] and _has_clitic(one, a, verb, words) != _has_clitic(other, b, verb, words))
        )
    agent = _agent_of(one, a, mine)
    if one.agent is None:
        return first == second
    if agent is None:
        return False
    rest = [numbers for numbers in first if numbers != agent]
    return second == [agent, *rest]


def _same_parts(mine: list[Part], theirs: list[Part]) -> bool:
    return Counter(part.numbers for part in mine) == Counter(part.numbers for part in theirs)


def _with_gap(mine: list[Part], theirs: list[Part]) -> list[Part]:
    """Return the parts with a long one as two, where the verb separates these in the other text."""
    others = {part.numbers for part in theirs}
    found: list[Part] = []
    for part in mine:
        cuts = [
            size
            for size in range(1, len(part.numbers))
            if part.numbers[:size] in others and part.numbers[size:] in others
        ]
        if part.numbers in others or not cuts:
            found.append(part)
            continue
        size = cuts[0]
        first = replace(part, numbers=part.numbers[:size], tokens=part.tokens[:size])
        rest = next(other for other in theirs if other.numbers == part.numbers[size:])
        found += [first, rest]
    return found


def _agent_of(frame: Frame, numbers: list[int], parts: list[Part]) -> tuple[int, ...] | None:
    if frame.agent is None:
        return None
    start = numbers[frame.agent]
    return next((part.numbers for part in parts if part.numbers[0] == start), None)


def _is_copula(one: Frame, other: Frame, a: list[int], verb: int | None, lex: Lexicon) -> bool:
    """Return whether the verb is "is" between two certain things: they may change places."""
    if verb is None or one.tokens[a.index(verb)].key not in lex.be:
        return False
    closed = lex.negations | lex.quantifiers | lex.limits | {_NOT}
    tokens = (*one.tokens, *other.tokens)
    return not any(
        token.key in closed or set(token.silent) & lex.indefinite for token in tokens
    )


def _without_subject(parts: list[Part]) -> list[tuple[int, ...]]:
    """Return the arguments without a pronoun that can only be the subject: "I", "we"."""
    return [
        part.numbers
        for part in parts
        if part.is_argument and not all(token.is_subject for token in part.tokens)
    ]


def _has_clitic(frame: Frame, numbers: list[int], verb: int | None, words: FrameWords) -> bool:
    """Return whether a pronoun before the verb says that its object is named elsewhere."""
    if verb is None:
        return False
    return bool(set(frame.tokens[numbers.index(verb)].silent) & words["clitics"])


def _is_marked(mine: list[Part], theirs: list[Part], words: FrameWords) -> bool:
    """Return whether articles or a pronoun show who acts, whatever the order."""
    def marks(parts: list[Part]) -> dict[tuple[int, ...], frozenset[str]]:
        return {
            part.numbers: frozenset(part.tokens[0].silent) & words["accusative"]
            for part in parts
            if part.is_argument
        }

    left, right = marks(mine), marks(theirs)
    return left == right and sum(bool(found) for found in left.values()) == len(left) - 1


def _same_mood(
    one: Frame,
    a: list[int],
    other: Frame,
    b: list[int],
    verb: int | None,
    lex: Lexicon,
    words: FrameWords,
) -> bool:
    """Return whether an order, a duty and a rule without a subject ask for the same."""
    moods = _mood(one, a, verb, lex, words), _mood(other, b, verb, lex, words)
    if set(moods) <= {"order", "statement"} and one.duty == other.duty:
        # Both name the one who acts, or neither does.
        return one.is_wish == other.is_wish or moods == ("order", "order")
    if "statement" in moods:
        return one.duty == other.duty and "agent" in moods
    # A rule in general terms asks for the same as an order.
    return one.duty == other.duty or "order" in moods


def _mood(
    frame: Frame, numbers: list[int], verb: int | None, lex: Lexicon, words: FrameWords
) -> str:
    """Return whether a clause is an order, a statement, or a rule without the one who acts."""
    if frame.agent is not None:
        return "agent"
    if frame.is_wish:
        return "order"
    pairs = list(zip(frame.tokens, numbers, strict=True))
    if frame.is_passive or frame.is_generic or any(n < 0 and t.key == "we" for t, n in pairs):
        return "rule"
    if verb is None:
        return "statement"
    spot = numbers.index(verb)
    is_last = spot == len(pairs) - 1
    if lex.language == "de" and is_last and words.infinitive.search(frame.tokens[spot].key):
        return "order"
    parts = _parts(frame, numbers, verb, lex, words)
    before = set(numbers[:spot])
    is_led = any(part.is_argument and part.numbers[0] in before for part in parts)
    has_subject = any(token.is_subject for token in frame.tokens)
    return "statement" if is_led or has_subject else "order"

