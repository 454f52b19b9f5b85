"""Compares two claims by their parts: the verb, who acts, what it is done to, and the rest.

For languages whose sentences have many orders and forms. Two claims are one if they have the same
parts in the same roles, whatever the order, the voice or the ending of the verb.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final

from meritory.text.claims.clauses import (
    NOT,
    OWNERS,
    PERSONS,
    Frame,
    FrameWords,
    Token,
    asked,
    clauses_of,
    frame_of,
    frame_words,
    joined,
    objects,
    split,
)
from meritory.text.claims.lexicon import Lexicon, lexicon
from meritory.text.claims.pairing import paired
from meritory.text.claims.reading import Claim

MAX_TOKENS: Final = 30
MAX_CLAUSES: Final = 3


def same_frame(old: Claim, new: Claim, *, without_negation: bool = False) -> bool:
    """Return whether two claims of one language have the same parts in the same roles."""
    language = old.language or "en"
    words = frame_words(language)
    if words is None or max(len(old.keys), len(new.keys)) > MAX_TOKENS:
        return False
    if objects(old, words) != objects(new, words) and not _has_wish(old, new):
        return False
    left, right = clauses_of(old, words), clauses_of(new, words)
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
    closed = lex.negations | {NOT}
    return [[token for token in clause if token.key not in closed] for clause in clauses]


def _has_wish(old: Claim, new: Claim) -> bool:
    return any(set(claim.keys[:3]) & claim.lexicon.wishes for claim in (old, new))


# -- pairs ------------------------------------------------------------------------------------


def _same_clause(one: list[Token], other: list[Token], lex: Lexicon, words: FrameWords) -> bool:
    one, other = joined(one, other, lex), joined(other, one, lex)
    one, other = split(one, other, lex, words), split(other, one, lex, words)
    one, other = asked(one, other, lex, words), asked(other, one, lex, words)
    left, right = frame_of(one, lex, words), frame_of(other, lex, words)
    if not left.tokens or not right.tokens:
        return False
    pairs = paired(left, right, lex, words)
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
    closed = lex.prepositions | lex.quantifiers | lex.limits | PERSONS | OWNERS
    if any(token.key in closed or token.unit.kind == "number" for token in tokens):
        return False
    if any(token.unit.is_capital and not token.unit.is_first for token in tokens):
        return False
    if all(token.unit.is_first for token in tokens):
        # A verb with which both texts begin needs no place of its own.
        return False
    # In Spanish, "la" before a verb may be a pronoun.
    return not all(token.is_noun for token in tokens)


def _is_past(frame: Frame, numbers: list[int], verbs: list[int], words: FrameWords) -> bool:
    return frame.is_past or any(
        number in verbs
        and (words.preterite.search(token.key) is not None or token.key in words["past_forms"])
        for token, number in zip(frame.tokens, numbers, strict=True)
    )


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
    narrowing = lex.quantifiers | lex.limits
    denying = lex.negations | {NOT}
    joined = words["links"] | words["joints"]
    if key in joined or before in joined | lex.prepositions | OWNERS | narrowing:
        return False
    if previous.unit.kind == "number":
        return False
    if before in denying:
        return key not in narrowing
    opening = lex.prepositions | narrowing | denying | PERSONS | OWNERS | lex.frequency
    if token.unit.before[:1] in {",", ";"} or key in opening:
        return True
    if set(token.silent) & (lex.articles | lex.definite):
        return True
    if before in PERSONS | lex.frequency | words["times"]:
        return True
    if lex.language != "de":
        return token.unit.kind == "number"
    if token.unit.kind == "word" and not token.is_noun:
        # A word after a noun, or one that no noun follows, is no part of a noun's phrase.
        return True
    return not previous.is_noun and not _agrees(previous)


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
        token.key in PERSONS | lex.pronouns or token.unit.kind != "word" for token in tokens
    )
    if lex.language != "de":
        is_noun = is_noun or first not in lex.negations | {NOT}
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
            or (
                first == second[::-1]
                and _has_clitic(one, a, verb, words) != _has_clitic(other, b, verb, words)
            )
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
    closed = lex.negations | lex.quantifiers | lex.limits | {NOT}
    tokens = (*one.tokens, *other.tokens)
    return not any(token.key in closed or set(token.silent) & lex.indefinite for token in tokens)


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
