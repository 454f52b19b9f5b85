"""Whether a newer text ends or changes the claim of an older one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Literal

from meritory.text.claims.lexicon import GAP, Phrase, find_phrase
from meritory.text.claims.reading import MAX_SHORT_UNITS, Claim
from meritory.text.claims.vetoes import veto

Update = tuple[Literal["supersede", "chain"], str]
# Runs of the indexes of units.
Run = tuple[int, ...]

MAX_VALUE_UNITS: Final = 6
MAX_NAMED_UNITS: Final = 7
MAX_DATE_UNITS: Final = 4
MAX_SUBJECT_UNITS: Final = 4
MIN_COMMON_LEAD: Final = 3
# At least one in so many units of the old claim is said again by a text that replaces it.
MIN_SHARED: Final = 3
PERSONS: Final = frozenset({"user", "we"})
_ENDED: Final = frozenset({"ended", "past"})
# What holds for one thing says nothing about another.
_SCOPES: Final = frozenset({"for", "für", "pour", "para", "per"})
# "Works with Bob" leaves room for others.
_ACCOMPANYING: Final = frozenset({"with", "and", "or", "about", "against"})
_NONE: Final = frozenset[str]()
# Common words that only count beside a verb of change or a comma.
_PLACED: Final = frozenset({"origin", "contrast"})
# Before the place or the amount that something moves to.
_GOALS: Final = frozenset({"to", "auf", "nach", "à", "au", "vers", "a", "al", "到"})
_TITLES: Final = frozenset({"mr", "ms", "mrs", "dr"})
_NAMING: Final = frozenset({"gone", "left", "origin", "contrast"})
# Words within the name of a thing.
_LINKS: Final = frozenset({"of", "de", "mr", "ms", "mrs", "dr"})
_SAYS_OTHER_VALUE: Final = frozenset({"now", "correction", "since", "new", "change"})


def update(old: Claim, new: Claim) -> Update | None:
    """Return whether the new claim replaces or follows the old one, and why."""
    if not old.topic or not new.topic or old.language != new.language or old.language is None:
        return None
    if max(len(old.keys), len(new.keys)) > MAX_SHORT_UNITS or _asks(old) or _asks(new):
        return None
    # A phrase that both texts have states no change.
    said = old.marks - {mark for mark in old.marks if mark[0] in _PLACED}
    cues = new.cues | {kind for kind, _ in new.marks - said}
    if reason := _ended(old, new, cues) or _flipped(old, new) or _named(old, new, cues):
        return "supersede", reason
    if new.raw & new.lexicon.additive or old.cues & _ENDED or new.cues & _ENDED:
        return None
    if reason := _opposite(old, new):
        return "chain", reason
    return _other_value(old, new, cues)


def _asks(claim: Claim) -> bool:
    return claim.text.rstrip()[-1:] in {"?", "？"}


# -- ended ------------------------------------------------------------------------------------


def _ended(old: Claim, new: Claim, cues: frozenset[str]) -> str | None:
    """Return the reason if the new text says that the old claim holds no more."""
    if old.cues & _ENDED or old.negation_count or new.negation_count:
        return None
    if not new.cues & _ENDED and "stopped" not in cues:
        return None
    said = new.topic - (frozenset() if new.cues & _ENDED else _stems_of(new, "stopped"))
    rest = said - PERSONS
    if len(said) < 2 or not rest or not rest <= old.topic:
        return None
    if not new.cues & _ENDED and (veto(old, new, same_values=False) or not _stops(new)):
        return None
    # "We cancelled the order" may end what another person does.
    is_same = _subject(old) in said or len(rest) >= 3 or bool(said & PERSONS and "stopped" in cues)
    return "the new text says that it no longer holds" if is_same else None


def _stops(new: Claim) -> bool:
    """Return whether the subject of the text ends something: "we cancelled", not "if cancelled"."""
    words = new.lexicon
    for kind, phrase in new.marks:
        start = _phrase_place(new, phrase) if kind == "stopped" else -1
        if 0 <= start <= MAX_SUBJECT_UNITS:
            return not start or new.keys[start - 1] not in words.be
    return False


def _flipped(old: Claim, new: Claim) -> str | None:
    """Return the reason if the new text says that the claim holds again, or not now."""
    if "now" not in new.cues or new.cues & _ENDED:
        return None
    if old.cues & _ENDED and _plain(old) == _plain(new):
        return "the new text says that it holds again"
    olds, news = old.negation_count, new.negation_count
    if old.cues & _ENDED or abs(olds - news) != 1 or _plain(old) != _plain(new):
        return None
    held = "does not hold now" if news > olds else "holds now"
    return f"the new text says that it {held}"


def _opposite(old: Claim, new: Claim) -> str | None:
    """Return the reason if one text denies the other, or they differ in "on" and "off" only."""
    olds, news = old.negation_count, new.negation_count
    if bool(olds) != bool(news) and _plain(old) == _plain(new):
        return "one text denies the other"
    if len(old.keys) != len(new.keys) or olds != news:
        return None
    pairs = [(a, b) for a, b in zip(old.keys, new.keys, strict=True) if a != b]
    if len(pairs) == 1 and pairs[0][1] in old.lexicon.antonyms.get(pairs[0][0], ()):
        return f"the opposite: {pairs[0][0]} is now {pairs[0][1]}"
    return None


def _plain(claim: Claim) -> tuple[str, ...]:
    """Return the stems of a claim without its negations."""
    words = claim.lexicon
    pairs = zip(claim.keys, claim.stems, strict=True)
    silent = words.negations | {"not", "does"}
    return tuple(stem for key, stem in pairs if key not in silent)


def _subject(claim: Claim) -> str:
    """Return the stem of the first unit with a topic."""
    return claim.stems[claim.content[0]] if claim.content else ""


# -- the old value is named -------------------------------------------------------------------


def _named(old: Claim, new: Claim, cues: frozenset[str]) -> str | None:
    """Return the reason if the new text names the old value as replaced, and is about the same."""
    if old.cues & _ENDED or old.negation_count or not cues & _NAMING:
        return None
    verbs = _change_stems(new, cues)
    for gone in _gone(new, cues, verbs):
        if gone <= old.topic and _replaces(old, new, gone, verbs):
            return "the new text names the old value as replaced"
    return None


def _replaces(old: Claim, new: Claim, gone: frozenset[str], verbs: frozenset[str]) -> bool:
    """Return whether the rest of the new text is about what the old one is about."""
    added = _one_value(_runs(new, without=old.topic | verbs | gone | PERSONS | {"1"}))
    if len(added) > 1 or any(len(run) > MAX_VALUE_UNITS for run in added):
        return False
    common = (new.topic & old.topic) - gone
    if MIN_SHARED * (len(common) + len(gone)) < len(old.topic):
        return False
    subject, last = _subject(old), old.stems[old.content[-1]]
    if subject in gone and last not in gone and not common:
        # "Redis is fast" does not end with "we replaced Redis".
        return False
    first = new.stems[new.content[0]]
    starts_with_value = bool(added) and new.content[0] in added[0]
    if first not in old.topic | PERSONS | verbs and not starts_with_value:
        return False
    return subject in new.topic | PERSONS or bool(common)


def _gone(new: Claim, cues: frozenset[str], verbs: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the stems with which the new text may name the replaced value."""
    for kind, phrase in sorted(new.marks):
        if kind not in cues & _NAMING or (kind == "origin" and "change" not in cues):
            continue
        # "I will not quit the band" ends nothing; "in Ulm, not in Kiel" does.
        if kind in {"gone", "left"} and new.negation_count:
            continue
        before, _, after = " ".join(phrase).partition(GAP)
        start = _phrase_place(new, tuple(before.split()))
        if start < 0 or (kind == "contrast" and new.units[start].before[:1] not in {",", "，"}):
            continue
        following = range(start + len(before.split()), len(new.keys))
        if after:
            end = _phrase_place(new, tuple(after.split()))
            following = range(following.start, end)
        preceding = range(start - 1, -1, -1)
        found = _named_stems(new, preceding if kind == "left" else following, verbs)
        if found:
            yield found


def _named_stems(new: Claim, indexes: range, verbs: frozenset[str]) -> frozenset[str]:
    """Return the stems of the first thing that is named along these indexes."""
    words = new.lexicon
    stops = words.prepositions | words.agents | {"and", "instead"}
    found: list[str] = []
    for index in indexes:
        key = new.keys[index]
        is_end = key in stops - _LINKS or (indexes.step > 0 and new.units[index].before[:1] == ",")
        is_end = is_end or (index not in new.content and key not in _LINKS)
        is_end = is_end or (indexes.step < 0 and key in _TITLES)
        if len(found) >= MAX_NAMED_UNITS or (found and is_end):
            break
        if index in new.content and new.stems[index] not in verbs:
            found.append(new.stems[index])
    # "The small one" is about what the text has named.
    return frozenset(found) - ({"1"} if len(found) > 1 else _NONE)


def _phrase_place(claim: Claim, phrase: Phrase) -> int:
    """Return the index of the first word of a phrase among the keys, or -1."""
    same = claim.lexicon.same
    return find_phrase(claim.keys, tuple(same.get(word, word) for word in phrase))


def _change_stems(claim: Claim, cues: frozenset[str]) -> frozenset[str]:
    """Return the stems of the words with which a text says that something changed."""
    return frozenset[str]().union(*(_stems_of(claim, kind) for kind in cues - {"origin"}))


def _stems_of(claim: Claim, kind: str) -> frozenset[str]:
    words = claim.lexicon
    said = (word for name, phrase in claim.marks if name == kind for word in phrase)
    return frozenset(words.stem(words.same.get(word, word)) for word in said)


def _one_value(runs: list[Run]) -> list[Run]:
    """Return the runs with two that only a preposition separates as one value."""
    if len(runs) == 2 and runs[1][0] - runs[0][-1] == 2 and runs[0][0] > 0:
        return [runs[0] + runs[1]]
    return runs


# -- another value ----------------------------------------------------------------------------


def _other_value(old: Claim, new: Claim, cues: frozenset[str]) -> Update | None:
    """Return the relation of two claims that differ in one value of the same subject."""
    if "since" in cues and not _dates(new):
        cues -= {"since"}
    says = bool(cues & _SAYS_OTHER_VALUE)
    # Of several sentences, each may be about something else.
    if veto(old, new, same_values=False) or _has_sentences(old) or _has_sentences(new):
        return None
    added, removed = _values(old, new, cues)
    if not added or not removed or not old.topic & new.topic:
        return None
    if len(added) > 1 or len(removed) > 1:
        if "now" in cues and _common_lead(old, new) >= MIN_COMMON_LEAD:
            return "supersede", "the new text says what holds now of the same subject"
        return None
    was, now = removed[0], added[0]
    if len(was) > MAX_VALUE_UNITS or len(now) > MAX_VALUE_UNITS:
        return None
    reason = f"{_text(old, was)} is now {_text(new, now)}"
    if _is_subject(now, new) or _is_subject(was, old):
        if _is_definite(new, now) and _is_definite(old, was) and says:
            return "chain", f"another value: {reason}"
        return None
    if not _is_same_relation(old, new, was, now) or not _is_same_kind(old, new, was, now):
        return None
    if not says:
        return _chained(old, new, was, now, reason)
    return "supersede", f"the new text gives another value: {reason}"


def _values(old: Claim, new: Claim, cues: frozenset[str]) -> tuple[list[Run], list[Run]]:
    """Return what only the new and only the old text say, without the words of the change."""
    words = new.lexicon
    dates = _dates(new) if "since" in cues else frozenset[int]()
    verbs = _change_stems(new, cues & _SAYS_OTHER_VALUE)
    held = frozenset[str]()
    if "change" in cues:
        # "The price was raised to 5 euros" is about what "it costs 4 euros" is about.
        vague = frozenset(map(words.stem, words.attributes))
        verbs |= PERSONS | (_NONE if old.topic & vague else vague)
        held = frozenset(words.stem(words.same.get(verb, verb)) for verb in words.one_valued)
    added = _runs(new, without=old.topic | verbs, dropped=dates)
    return added, _runs(old, without=new.topic | held)


def _is_same_relation(old: Claim, new: Claim, was: Run, now: Run) -> bool:
    """Return whether two claims have more in common than whom they are about."""
    if len(old.topic & new.topic) > 1:
        return True
    be = {new.lexicon.same.get(key, key) for key in new.lexicon.be}
    is_copula = bool(be & {*old.keys[: was[0]]}) and bool(be & {*new.keys[: now[0]]})
    numbers = all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now)
    return is_copula or numbers


def _has_sentences(claim: Claim) -> bool:
    # The full stop of "Dr." and of a German date ends no sentence.
    pairs = pairwise(claim.units)
    return any(b.is_first and a.key not in _TITLES and a.kind != "number" for a, b in pairs)


def _is_same_kind(old: Claim, new: Claim, was: Run, now: Run) -> bool:
    """Return whether two values may stand for each other: one ends the other."""
    words = new.lexicon
    closed = words.pronouns | words.negations | words.quantifiers | words.limits
    if any(old.keys[i] in closed for i in was) or any(new.keys[i] in closed for i in now):
        return False
    if all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now):
        return True
    before, after = _before(old, was), _before(new, now)
    prepositions = words.prepositions
    are_places = before in words.places and after in words.places
    is_other = before in prepositions and after in prepositions - _GOALS and before != after
    if is_other and not are_places:
        return False
    said = set(_words_before(old, was))
    if said & words.many_valued or (before in _ACCOMPANYING and said & words.companions):
        return False
    # "Redis is now deprecated" does not end "Redis is fast": a thing is many things.
    return not {before, after} & words.be or _is_definite_subject(old)


def _words_before(claim: Claim, run: Run) -> tuple[str, ...]:
    """Return the words as typed that precede a value."""
    kept = run[0] - sum(key in PERSONS for key in claim.keys[: run[0]])
    key = claim.units[run[0]].key
    spot = claim.words.index(key) if key in claim.words else kept
    return claim.words[:spot]


def _is_definite_subject(claim: Claim) -> bool:
    """Return whether a claim is about "my boss" or "the port", not about "Redis"."""
    first = claim.units[0]
    if first.kind != "word" or first.key in claim.lexicon.pronouns | PERSONS:
        return False
    words = claim.lexicon
    is_owned = "'s" in claim.words[:4] or first.key in {"user's", "we's"}
    if is_owned or set(claim.words[:1]) & (words.definite | words.articles):
        return True
    return not first.is_capital or claim.language in {"de", "zh"}


def _chained(old: Claim, new: Claim, was: Run, now: Run, reason: str) -> Update | None:
    """Return a chain if the relation has one value at a time, though the text states no change."""
    words = new.lexicon
    is_numeric = all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now)
    verbs = {words.stem(words.same.get(verb, verb)) for verb in set(old.words) & words.one_valued}
    verbs &= old.topic & new.topic
    copula = _follows_copula(old, was)
    is_last = was[-1] == old.content[-1] and now[-1] == new.content[-1]
    if (not is_last and not is_numeric) or _before(old, was) in _SCOPES:
        return None
    if _before(old, was) != _before(new, now):
        return None
    if is_numeric or verbs or (copula and _is_definite_subject(old)):
        return "chain", f"another value of the same claim: {reason}"
    return None


def _follows_copula(claim: Claim, run: Run) -> bool:
    """Return whether nothing but a preposition is between "is" and a value."""
    be = {claim.lexicon.same.get(key, key) for key in claim.lexicon.be}
    before = claim.keys[: run[0]]
    last = max((index for index, key in enumerate(before) if key in be), default=-1)
    return last >= 0 and not any(last < index < run[0] for index in claim.content)


def _is_numeric(claim: Claim, index: int) -> bool:
    unit = claim.units[index]
    return unit.kind == "number" or unit.key in claim.lexicon.units.values()


def _is_subject(run: Run, claim: Claim) -> bool:
    """Return whether a value stands first, where the subject does."""
    return run[0] <= claim.content[0]


def _is_definite(claim: Claim, run: Run) -> bool:
    """Return whether "the winner" or the like follows a value at the start and a copula."""
    be = {claim.lexicon.same.get(key, key) for key in claim.lexicon.be}
    after = run[-1] + 1
    if claim.keys[after : after + 1] == () or claim.keys[after] not in be:
        return False
    return bool(set(claim.words) & (claim.lexicon.articles | claim.lexicon.definite))


def _before(claim: Claim, run: Run) -> str:
    return claim.keys[run[0] - 1] if run[0] else ""


def _text(claim: Claim, run: Run) -> str:
    return " ".join(claim.keys[index] for index in run)


def _common_lead(old: Claim, new: Claim) -> int:
    """Return how many units of content both texts begin with."""
    count = 0
    for left, right in zip(old.content, new.content, strict=False):
        if old.stems[left] != new.stems[right]:
            break
        count += 1
    return count


def _dates(claim: Claim) -> frozenset[int]:
    """Return the indexes of the date since which the claim holds."""
    words = claim.lexicon
    for phrase in words.cues["since"]:
        start = _phrase_place(claim, phrase)
        if start < 0:
            continue
        end = start + len(phrase)
        while end < len(claim.keys) and end - start <= MAX_DATE_UNITS + len(phrase):
            unit = claim.units[end]
            if end > start + len(phrase) and unit.before == ",":
                break
            if unit.kind != "number" and unit.key not in words.dates | words.articles | {"on"}:
                break
            end += 1
        if end > start + len(phrase):
            return frozenset(range(start, end))
    return frozenset()


def _runs(
    claim: Claim, *, without: frozenset[str], dropped: frozenset[int] = frozenset()
) -> list[Run]:
    """Return the runs of adjacent content that the other text lacks."""
    breaks = claim.lexicon.prepositions - {"of", "de", "von", "del", "du"}
    runs: list[list[int]] = []
    is_open = False
    content = set(claim.content)
    for index, key in enumerate(claim.keys):
        if index in dropped:
            continue
        if index not in content:
            if key in breaks:
                is_open = False
            continue
        if claim.stems[index] in without:
            is_open = False
            continue
        if is_open:
            runs[-1].append(index)
        else:
            runs.append([index])
            is_open = True
    return [tuple(run) for run in runs]
