"""Pairs the tokens of two clauses, and says which of them are verbs in another form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from meritory.text.claims.clauses import Frame, FrameWords, Token
from meritory.text.claims.lexicon import Lexicon, folded

# More words of other forms than these are another claim.
MAX_FORMS: Final = 4
MIN_COMMON: Final = 4

Paired = tuple[tuple[list[int], list[int]], list[int]]


def paired(left: Frame, right: Frame, lex: Lexicon, words: FrameWords) -> Paired | None:
    """Return a number for each token, the same for a pair of both texts, and those of verbs.

    None if a token has no partner; -1 stands for a word that the other text may lack.
    """
    made = _Pairs([-1] * len(left.tokens), [-1] * len(right.tokens))
    free = _free(left, right, lex)
    is_light = any(token.stem in words["light"] for token in (*left.tokens, *right.tokens))
    for rule in (_is_equal, _is_folded, _is_inflected, _is_nominal):
        if rule is _is_nominal and not _has_light_verb(left, made.left, right, made.right, words):
            break
        for i, token in enumerate(left.tokens):
            if made.left[i] >= 0:
                continue
            j = next(
                (
                    j
                    for j, partner in enumerate(right.tokens)
                    if made.right[j] < 0 and rule(token, partner, lex, words, free)
                ),
                None,
            )
            if j is None:
                continue
            number = made.add(i, j)
            partner = right.tokens[j]
            is_turned = rule is _is_equal and token.is_noun != partner.is_noun
            if rule is _is_nominal or (is_turned and is_light):
                made.nominal.add(number)
                made.verbs.append(number)
            elif rule is _is_inflected and not token.is_noun and not _is_adjective(left, i, lex):
                made.verbs.append(number)
    if len(made.verbs) > MAX_FORMS:
        return None
    sides = ((left, made.left, right), (right, made.right, left))
    nouns = {
        number
        for frame, numbers, _ in sides
        for token, number in zip(frame.tokens, numbers, strict=True)
        if token.is_noun and number not in made.verbs
    }
    # A word that opens both texts has a capital anyway: "Anna".
    heads = [
        {n for t, n in zip(f.tokens, numbers, strict=True) if t.unit.is_first and t.unit.is_capital}
        for f, numbers, _ in sides
    ]
    nouns |= (heads[0] & heads[1]) - set(made.verbs)
    for frame, numbers, _ in sides:
        frame.nouns = frozenset(nouns)
        frame.agent = next((i + 1 for i in frame.agents if numbers[i] < 0), None)
    for frame, numbers, other in sides:
        lone = (i for i, number in enumerate(numbers) if number < 0)
        if any(
            not _is_light_part(frame, numbers, i, made.nominal, lex, words)
            and not _may_lack(frame.tokens[i], frame, other, lex, words)
            for i in lone
        ):
            return None
    return (made.left, made.right), made.verbs


@dataclass(slots=True)
class _Pairs:
    """The numbers of the tokens of two clauses, and which of them are verbs."""

    left: list[int]
    right: list[int]
    verbs: list[int] = field(default_factory=list)
    # A noun in one text and its verb in the other.
    nominal: set[int] = field(default_factory=set)
    count: int = 0

    def add(self, i: int, j: int) -> int:
        """Pair a token of the left with one of the right clause, and return their number."""
        self.left[i] = self.right[j] = self.count
        self.count += 1
        return self.count - 1


def _is_light_part(
    frame: Frame,
    numbers: list[int],
    index: int,
    nominal: set[int],
    lex: Lexicon,
    words: FrameWords,
) -> bool:
    """Return whether a token belongs to a light verb: "carries out the check of"."""
    token = frame.tokens[index]
    if not nominal:
        return False
    if token.stem in words["light"] or token.key in lex.prefixes:
        return True
    if not index:
        return False
    is_link = token.key in words["links"] and numbers[index - 1] in nominal
    before = frame.tokens[index - 1].stem
    return is_link or (token.key in words["adjuncts"] and before in words["light"])


def _has_light_verb(
    left: Frame, a: list[int], right: Frame, b: list[int], words: FrameWords
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
    alike = [a == b for a, b in zip(token.stem, partner.stem, strict=False)]
    size = alike.index(False) if False in alike else len(alike)
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


def _may_lack(token: Token, frame: Frame, other: Frame, lex: Lexicon, words: FrameWords) -> bool:
    """Return whether the other text may lack a word of this one."""
    if token.key in lex.agents and frame.agent is not None:
        return frame.tokens[frame.agent - 1] is token
    if token.key == "we":
        # "We lock the door" is "the door is locked".
        return frame.is_wish or other.is_passive or other.is_generic or other.is_wish
    return token.key in words["loose"]


def _is_adjective(frame: Frame, index: int, lex: Lexicon) -> bool:
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
    return (
        lex.language == "de" or "voice" in free or other not in {f"{one}s", f"{one}es", f"{one}x"}
    )


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
