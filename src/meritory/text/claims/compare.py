"""Compares an old and a new text: one claim, an update, another value, or two claims."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from meritory.text.claims.frames import other_case
from meritory.text.claims.lexicon import HAN, best_language
from meritory.text.claims.reading import Claim, read_claim
from meritory.text.claims.rewording import rewording
from meritory.text.claims.updates import update
from meritory.text.normalize import is_same_text
from meritory.text.words import STOP_WORDS

# merge: the same claim. supersede: the new text says that the old one holds no more. chain: another
# value of the same subject and relation, though the new text states no change.
Relation = Literal["merge", "supersede", "chain", "keep_both"]
Survivor = Literal["old", "new"]

# If each text has more words of its own than this, the two are different claims.
MANY_OWN_WORDS: Final = 9
# Of the shorter text, the share of words that another one for the same claim has too.
MIN_ALIKE: Final = 0.33
# Two texts that state no change may be one claim, but for a value, if the one has at most so many
# words of content of its own, and the other at most so many.
MAX_OWN_OF_BOTH: Final = 4
MAX_OWN_OF_ONE: Final = 6
MIN_ADDED_TO_UNITS: Final = 3
NEGATIVE_CUES: Final = frozenset({"ended", "past"})
_CHANGES: Final = frozenset({"change", "stopped", "gone"})
_WORDS: Final = re.compile(r"\w+")
_JOINING: Final = frozenset({"and", "because", "so"})
_EXPLAINING: Final = frozenset({"which", "who", "where"})


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What to do with two similar texts, which text survives, and why."""

    relation: Relation
    survivor: Survivor
    reason: str


def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, in lower case."""
    return frozenset(_WORDS.findall(text.lower()))


def says_change(text: str) -> bool:
    """Return whether a text contains a word with which a change is stated; most do not."""
    return _states_change(read_claim(text))


def clearly_differ(old: frozenset[str], new: frozenset[str]) -> bool:
    """Return whether both texts have many words of their own, so that comparing is needless."""
    return min(len(old - new), len(new - old)) > MANY_OWN_WORDS


def openings_of(words: frozenset[str]) -> frozenset[str]:
    """Return the first characters of each word of content."""
    return frozenset([word[:4] for word in words - STOP_WORDS])


def share_little(old: frozenset[str], new: frozenset[str]) -> bool:
    """Return whether so few words begin alike that the texts can hardly make one claim."""
    if len(old & new) >= MIN_ALIKE * min(len(old), len(new)):
        return False
    return not _has_chinese(old, new)


def differ_widely(old: frozenset[str], new: frozenset[str]) -> bool:
    """Return whether texts of these openings differ in more words than one value or addition."""
    fewer, more = sorted((len(old - new), len(new - old)))
    if fewer <= MAX_OWN_OF_BOTH and (more <= MAX_OWN_OF_ONE or fewer <= 1):
        return False
    return not _has_chinese(old, new)


def _has_chinese(*texts: frozenset[str]) -> bool:
    return any(HAN.search("".join(openings)) for openings in texts)


def compare(old: str, new: str) -> ClaimVerdict:
    """Return the verdict on an old text and a newer one that is similar to it."""
    return compare_claims(read_claim(old), read_claim(new))


def compare_claims(old: Claim, new: Claim) -> ClaimVerdict:
    """Return the verdict on two texts that are already read."""
    # The more specific text: more values, then fewer hedges, then the longer one.
    preferred: Survivor = "new" if new.specificity > old.specificity else "old"
    if is_same_text(old.text, new.text):
        return ClaimVerdict("merge", preferred, "same text")
    old, new = _in_one_language(old, new)
    if old.keys and old.cues & NEGATIVE_CUES == new.cues & NEGATIVE_CUES:
        if old.keys == new.keys and not other_case(old, new):
            return ClaimVerdict("merge", preferred, "same words in the same order")
        is_other = old.keys != new.keys
        if is_other and old.language is not None and old.language == new.language:
            if reason := rewording(old, new):
                return ClaimVerdict("merge", preferred, reason)
            if _adds_to(old, new):
                reason = "the new text says all of the old one and more"
                return ClaimVerdict("merge", "new", reason)
            if _adds_to(new, old):
                reason = "the old text says all of the new one and more"
                return ClaimVerdict("merge", "old", reason)
    if found := update(old, new):
        return ClaimVerdict(found[0], "new", found[1])
    return ClaimVerdict("keep_both", preferred, _difference(old, new))


def _in_one_language(old: Claim, new: Claim) -> tuple[Claim, Claim]:
    """Return both claims read in the language that fits them together."""
    if old.language == new.language:
        return old, new
    shared = best_language(old.scores, new.scores)
    # A text of names alone fits every language.
    fits = all(not one.scores or shared in one.scores for one in (old, new))
    if shared is None or not fits:
        return old, new
    return (
        old if old.language == shared else read_claim(old.text, shared),
        new if new.language == shared else read_claim(new.text, shared),
    )


def _difference(old: Claim, new: Claim) -> str:
    """Return how two claims differ, for the history."""
    if not old.keys or not new.keys:
        return "nothing to compare"
    only_old = [key for key in dict.fromkeys(old.keys) if key not in new.keys]
    only_new = [key for key in dict.fromkeys(new.keys) if key not in old.keys]
    if only_old or only_new:
        left, right = (" ".join(only[:4]) or "(nothing)" for only in (only_old, only_new))
        return f"different: {left} / {right}"
    return "same words in another order"


def _states_change(claim: Claim) -> bool:
    return bool(claim.cues or {kind for kind, _ in claim.marks} & _CHANGES)


def _adds_to(short: Claim, long: Claim) -> bool:
    """Return whether the long claim is the whole short one followed by more."""
    words = short.lexicon
    size = len(short.keys)
    tail = long.units[size:]
    if size < MIN_ADDED_TO_UNITS or len(tail) < 2 or long.keys[:size] != short.keys:
        return False
    keys = {unit.key.rstrip(",") for unit in tail}
    if (
        keys & (words.negations | words.limits | words.denials | {"?"})
        or _states_change(long)
        or _states_change(short)
    ):
        return False
    first, *rest = tail
    if first.is_first and first.before[:1] in {".", ";", "!", "\n"}:
        return True
    # "People, who smoke" explains; "people who smoke" narrows.
    if first.key in _EXPLAINING:
        return first.before == ","
    # "Does not like gin" is more than "does not like gin and tonic".
    if first.key not in _JOINING or set(short.keys) & (words.negations | words.quantifiers):
        return False
    if first.key != "and":
        return rest[0].kind == "word"
    # "Rock and roll" does not add a clause.
    return any(unit.key in words.clause_verbs or unit.key.endswith("ed") for unit in rest[:2])
