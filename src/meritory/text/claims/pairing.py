"""Pairs the tokens of two clauses, and says which of them are verbs in another form."""

from __future__ import annotations

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
    a = [-1] * len(left.tokens)
    b = [-1] * len(right.tokens)
    verbs: list[int] = []
    free = _free(left, right, lex)
    count = 0
    nominal: set[int] = set()
    is_light = any(token.stem in words["light"] for token in (*left.tokens, *right.tokens))
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
                or (
                    token.key in words["adjuncts"]
                    and frame.tokens[index - 1].stem in words["light"]
                )
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
