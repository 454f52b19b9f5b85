"""Reads a claim as clauses of tokens, without the words that only help its verb."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from meritory.text.claims.lexicon import Lexicon, lexicon
from meritory.text.claims.read import Unit
from meritory.text.claims.reading import Claim
from meritory.text.language import read_language

PERSONS: Final = frozenset({"user", "we"})
OWNERS: Final = frozenset({"user's", "we's"})
NOT: Final = "not"
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


def objects(claim: Claim, words: FrameWords) -> frozenset[str]:
    """Return the words "me" and "us" of a claim, unless they mean "myself"."""
    if "se" in claim.keys:
        return frozenset()
    parts = (part for key in claim.raw for part in key.split("-"))
    return words["object"].intersection(parts)


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
        if key not in {word, lex.same.get(word), lex.units.get(word), lex.same.get(word.lower())}:
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
        is_noun = bool(set(silent) & lex.articles) or before in lex.prepositions | OWNERS
        is_noun = is_noun or before in lex.quantifiers
        is_noun = is_noun or (index > 0 and claim.units[index - 1].kind == "number")
        is_noun = is_noun and words.infinitive.search(unit.key) is None
        is_noun = is_noun or (unit.is_capital and not unit.is_first)
    is_subject = unit.key in PERSONS and not (
        claim.raw & words["named_persons"] or objects(claim, words)
    )
    return Token(unit, claim.stems[index], silent, is_noun or unit.kind != "word", is_subject)


def clauses_of(claim: Claim, words: FrameWords) -> list[list[Token]]:
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


def split(tokens: list[Token], others: list[Token], lex: Lexicon, words: FrameWords) -> list[Token]:
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


def asked(tokens: list[Token], others: list[Token], lex: Lexicon, words: FrameWords) -> list[Token]:
    """Return "the user wants prices" for "give me prices", if the other text is a wish."""
    if len(tokens) < 3 or tokens[0].key not in words["gives"] or tokens[1].key != "user":
        return tokens
    if len(others) < 3 or others[0].key != "user" or others[1].key not in lex.wishes:
        return tokens
    return [others[0], others[1], *tokens[2:]]


def joined(tokens: list[Token], others: list[Token], lex: Lexicon) -> list[Token]:
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


def frame_of(tokens: list[Token], lex: Lexicon, words: FrameWords) -> Frame:
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
        if token.key in words["need"]
        or token.key in lex.participles
        or (not token.is_noun and words.participle.search(token.key))
    ]
    if not participles:
        return
    removed: set[int] = set()
    for index, token in enumerate(tokens):
        is_needed = token.key in lex.be and any(tokens[p].key in words["need"] for p in participles)
        if token.is_noun:
            # "L'été" is the summer.
            continue
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
