"""The ways in which one claim is said in other words: order, voice, number, genitive, hyphens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from meritory.text.claims.blocks import same_blocks
from meritory.text.claims.frames import same_frame
from meritory.text.claims.kinds import GENERAL, subject_kind
from meritory.text.claims.lexicon import Lexicon, lexicon
from meritory.text.claims.reading import MAX_SHORT_UNITS, Claim
from meritory.text.claims.sentences import PERSONS, agree
from meritory.text.claims.vetoes import veto

Keys = tuple[str, ...]

MAX_FRONTED_UNITS = 16
MAX_INVERTED_UNITS = 6
MAX_GENITIVE_UNITS = 4
MAX_PART_UNITS = 6
MAX_VERBS = 3
_QUESTION_WORDS = frozenset({"what", "who", "where", "than", "as", "there"})
_INTO = {"into": "in", "onto": "on"}
_ADVERBS = frozenset({"always", "automatically", "usually", "often", "never", "not", "only"})
_CLAUSES = frozenset(
    {"and", "or", "but", "that", "which", "who", "because", "if", "when", "und", "et", "y"}
)
_EACH = frozenset({"every", "each"})


def rewording(old: Claim, new: Claim) -> str | None:
    """Return how two texts with other words make the same claim, or None if they do not."""
    sizes = len(old.keys), len(new.keys)
    if min(sizes) == 0 or max(sizes) > MAX_SHORT_UNITS or veto(old, new):
        return None
    left, right = _joined(old), _joined(new)
    if left == right or (_has_hyphen(old) != _has_hyphen(new) and left.lower() == right.lower()):
        return "same words, one of them with a hyphen"
    if old.language == "en" and (_is_generic(old, new) or _is_generic(new, old)):
        return "same words, each one and all of them"
    if old.language == "en" and _is_same_sentence(old, new):
        return "same words in the same parts of a sentence"
    if same_frame(old, new) or same_blocks(old, new):
        return "same parts, in another order or voice"
    if not _share_words(old, new):
        return None
    for check, reason in _WAYS:
        if check(old, new) or check(new, old):
            return reason
    return None


def _is_same_sentence(old: Claim, new: Claim) -> bool:
    """Return whether both texts have the same parts: who does what to what, where and when."""
    if 2 * len(old.topic & new.topic) < min(len(old.topic), len(new.topic)):
        return False
    if agree(old.readings, new.readings):
        return True
    owners = {"we's", "user's"}
    if len(owners & {*old.keys, *new.keys}) > 1 and _owned(old.keys) == _owned(new.keys):
        return True
    kinds = {subject_kind(claim.units, claim.lexicon) for claim in (old, new)}
    is_general = kinds in GENERAL
    if not is_general and not (_names_one(old, new) and _names_one(new, old)):
        return False
    return agree(old.general_readings, new.general_readings, is_order=not is_general)


def _names_one(old: Claim, new: Claim) -> bool:
    """Return whether each thing that a text alone has in the singular is any one: "a test"."""
    words = old.lexicon
    many = {words.singular(key) for key in new.keys if words.singular(key) != key}
    own = Counter(old.keys) - Counter(new.keys)
    return all(
        unit.article in words.indefinite
        for unit in old.units
        if unit.key in many and own[unit.key] and unit.key not in words.be
    )


def _owned(keys: Keys) -> Keys:
    """Return the keys with "our" as "the user's": the user is one of us."""
    return tuple("user's" if key == "we's" else key for key in keys)


def _share_words(old: Claim, new: Claim) -> bool:
    # A light verb adds a word, and so do the verbs of a wish or of a place.
    return len(old.topic ^ new.topic) <= MAX_VERBS


def _has_hyphen(claim: Claim) -> bool:
    return any(unit.before == "-" for unit in claim.units)


def _joined(claim: Claim) -> str:
    """Return the keys with a word after a hyphen joined to the one before."""
    return "".join(claim.keys) if claim.language != "zh" else " ".join(claim.keys)


# -- order ------------------------------------------------------------------------------------


def _is_fronted(one: Claim, other: Claim) -> bool:
    """Return whether the first text has a part in front that the second has further back."""
    words, keys, target = one.lexicon, one.keys, other.keys
    if len(keys) != len(target) or _has_sentences(one) or set(keys) != set(target):
        return False
    is_part = keys[0] in words.fronting
    for size in range(1, min(MAX_FRONTED_UNITS, len(keys) - 1) + 1):
        block, rest = keys[:size], keys[size:]
        # A single word is a part only if it is a day: "montags".
        if size == 1 and (words.language == "en" or keys[0] in words.prepositions | words.limits):
            continue
        # Chinese has no word before a part that says what for.
        if not is_part and not (words.language == "zh" and rest[0] in PERSONS):
            continue
        if any(_inserted(block, rest, target)):
            return True
        if words.language == "de" and size <= MAX_INVERTED_UNITS:
            verb, after = rest[0], rest[1:]
            for length in range(1, min(MAX_INVERTED_UNITS, len(after)) + 1):
                subject, tail = after[:length], after[length:]
                if target[: length + 1] != (*subject, verb):
                    continue
                if any(_inserted(block, tail, target[length + 1 :], start=0)):
                    return True
    return False


def _inserted(block: Keys, rest: Keys, target: Keys, *, start: int = 1) -> Iterator[bool]:
    """Yield whether the target is the rest with the block at one place further back."""
    size = len(block)
    for place in range(start, len(rest) + 1):
        if target[:place] != rest[:place]:
            return
        yield target[place : place + size] == block and target[place + size :] == rest[place:]


def _has_other_parts(old: Claim, new: Claim) -> bool:
    """Return whether the parts "in May" and "with Bob" at the end have another order."""
    left, right = _parts(old), _parts(new)
    return len(left) > 2 and left[0] == right[0] and sorted(left) == sorted(right)


def _parts(claim: Claim) -> list[Keys]:
    """Return the keys up to the first preposition, and each part that begins with one."""
    words = claim.lexicon
    if set(claim.keys) & _CLAUSES or _has_sentences(claim):
        return [claim.keys]
    parts: list[list[str]] = [[]]
    for key in claim.keys:
        if key in words.prepositions and key not in {"of", "de", "von"}:
            parts.append([])
        parts[-1].append(key)
    if any(len(part) > MAX_PART_UNITS for part in parts[1:]):
        return [claim.keys]
    return [tuple(part) for part in parts]


def _is_adverb_moved(old: Claim, new: Claim) -> bool:
    """Return whether one word like "usually" stands at another place."""
    words = old.lexicon
    moved = [key for key in old.keys if key in words.frequency]
    if len(moved) != 1 or words.negations & {*old.keys, *new.keys} or "not" in old.keys:
        return False
    if moved != [key for key in new.keys if key in words.frequency]:
        return False
    rest = tuple(key for key in new.keys if key not in words.frequency)
    return tuple(key for key in old.keys if key not in words.frequency) == rest


def _has_sentences(claim: Claim) -> bool:
    return any(unit.is_first for unit in claim.units[1:])


def _is_turned(old: Claim, new: Claim) -> bool:
    """Return whether "A is B" became "B is A", where one side is a described thing."""
    words = old.lexicon
    if len(old.keys) != len(new.keys) or (set(old.words) | set(new.words)) & words.indefinite:
        return False
    if set(old.keys) & (words.negations | words.quantifiers | words.limits | _QUESTION_WORDS):
        return False
    for verb in {words.same.get(key, key) for key in words.be}:
        if old.keys.count(verb) != 1 or new.keys.count(verb) != 1:
            continue
        spot = old.keys.index(verb)
        left, right = old.keys[:spot], old.keys[spot + 1 :]
        if not left or not right or new.keys != (*right, verb, *left):
            continue
        is_described = len(left) > 1 or len(right) > 1
        is_place = left[0] in words.prepositions or right[0] in words.prepositions
        return is_described and not is_place
    return False


def _is_list_reordered(old: Claim, new: Claim) -> bool:
    """Return whether only the parts of a list have another order."""
    return len(old.keys) == len(new.keys) and _sorted_lists(old) == _sorted_lists(new)


def _sorted_lists(claim: Claim) -> Keys:
    """Return the keys with the single words of each list "A, B and C" in alphabetical order."""
    keys, units, words = list(claim.keys), claim.units, claim.lexicon
    joints = {"and", "or"}
    for joint, key in enumerate(keys):
        if key not in joints or not 1 <= joint < len(keys) - 1:
            continue
        start = joint - 1
        while start > 0 and units[start].before == ",":
            start -= 1
        items = [*range(start, joint), joint + 1]
        after = joint + 2
        is_closed = after == len(keys) or bool(units[after].before)
        is_closed = is_closed or keys[after] in words.prepositions
        before = keys[start - 1] if start else ""
        is_open = not start or before in words.prepositions or before in words.many_valued
        are_names = all(units[item].is_capital or units[item].kind != "word" for item in items)
        # Of two words, the first may be the end of a longer part: "red car and bike".
        if not start or (are_names and (len(items) > 2 or (is_closed and is_open))):
            for place, item in zip(items, sorted(keys[item] for item in items), strict=True):
                keys[place] = item
    return tuple(keys)


# -- genitive ---------------------------------------------------------------------------------


def _is_genitive(one: Claim, other: Claim) -> bool:
    """Return whether "the limit of the disk" became "the disk limit" or "the disk's limit"."""
    keys = one.keys
    target = tuple(key for key in other.keys if key != "'s")
    spot = next((i for i, key in enumerate(keys) if key in {"of", "for"}), 0)
    if not spot or len(keys) != len(target) + 1:
        return False
    for head in range(1, min(MAX_GENITIVE_UNITS, spot) + 1):
        for size in range(1, min(MAX_GENITIVE_UNITS, len(keys) - spot - 1) + 1):
            owner, rest = keys[spot + 1 : spot + 1 + size], keys[spot + 1 + size :]
            if (*keys[: spot - head], *owner, *keys[spot - head : spot], *rest) == target:
                return True
    return False


def _is_there(one: Claim, other: Claim) -> bool:
    """Return whether "there is a pool in the hotel" became "the hotel has a pool"."""
    keys = one.keys
    if keys[:2] != ("there", "is"):
        return False
    for spot in range(3, len(keys) - 1):
        has = (*keys[spot + 1 :], "have", *keys[2:spot])
        if keys[spot] in {"for", "in", "on", "at"} and has == other.keys:
            return True
    return False


# -- voice ------------------------------------------------------------------------------------


def _is_passive(one: Claim, other: Claim) -> bool:
    """Return whether the first text is the second one in the passive voice."""
    target = other.keys
    words = one.lexicon
    for subject, verb, is_past, tails in _passives(one):
        if not subject or subject[0] in _ADVERBS:
            # "Write notes in English", "notes are written in English".
            if _is_order(target, subject, verb, tails, words):
                return True
            continue
        size = len(subject)
        if target[:size] != subject or len(target) <= size:
            continue
        said = target[size]
        if words.stem(said) != verb or target[size + 1 :] not in tails:
            continue
        was_past = said in words.past or said.endswith("ed")
        if was_past == is_past if words.language == "en" else not is_past:
            return True
    return False


def _modal(keys: Keys, spot: int) -> Keys:
    """Return the words before "be" or "been" that the active voice keeps before its verb."""
    if keys[spot] == "been" and keys[spot - 1] == "have":
        return ("have",)
    if keys[spot] != "be":
        return ()
    if keys[max(0, spot - 2) : spot] == ("must", "not"):
        return ("must", "not")
    modals = lexicon("en").modals | {"must"}
    return (keys[spot - 1],) if keys[spot - 1] in modals else ()


def _is_order(
    target: Keys, adverb: Keys, verb: str, tails: frozenset[Keys], words: Lexicon
) -> bool:
    """Return whether a text is an order with this verb, and with these tails after it."""
    size = len(adverb)
    if len(target) <= size or target[:size] != adverb:
        return False
    said, rest = target[size], target[size + 1 :]
    if words.language == "en" and said in words.past:
        return False
    if words.stem(said) == verb and rest in tails:
        return True
    # German: "lege Dateien hier ab", "Dateien werden hier abgelegt".
    prefix = rest[-1] if rest else ""
    return verb == prefix + words.stem(said) and prefix in words.prefixes and rest[:-1] in tails


def _passives(claim: Claim) -> Iterator[tuple[Keys, str, bool, frozenset[Keys]]]:
    """Yield who acts, the stem of the verb, its tense, and the rest in the active voice."""
    words, keys = claim.lexicon, claim.keys
    if words.language == "zh":
        return
    for spot, key in enumerate(keys[:-1]):
        if key not in words.be or not spot:
            continue
        modal = _modal(keys, spot)
        start = spot - len(modal)
        is_past = key in {"was", "were", "got", "been", "wurde", "était", "fue"}
        thing = keys[:start]
        place = spot + 1
        adverb: Keys = ()
        if keys[place] in _ADVERBS and place + 1 < len(keys):
            adverb, place = (keys[place],), place + 1
        if words.language == "de":
            participle, middle, end = keys[-1], keys[place:-1], len(keys) - 1
        else:
            participle, middle, end = keys[place], keys[place + 1 :], len(keys)
        if not _is_participle(participle, words):
            continue
        verb = _active_stem(participle, words)
        agent = next((i for i in range(place, end) if keys[i] in words.agents), None)
        if agent is None:
            if modal == ("must", "not"):
                adverb = ("not",)
            if not is_past and modal in {(), ("must",), ("must", "not")}:
                yield adverb, verb, False, frozenset({(*thing, *middle)})
            continue
        between = keys[place:agent] if words.language == "de" else keys[place + 1 : agent]
        after = keys[agent + 1 : end]
        for size in range(1, len(after) + 1):
            rest = after[size:]
            tails = {(*thing, *between, *rest), (*thing, *rest, *between)}
            yield (*after[:size], *modal, *adverb), verb, is_past, frozenset(tails)


def _active_stem(participle: str, words: Lexicon) -> str:
    """Return the stem of the verb of a participle: "ableg" for "abgelegt"."""
    for prefix in words.prefixes:
        if participle.startswith(f"{prefix}ge") and len(participle) > len(prefix) + 4:
            return prefix + words.stem(participle[len(prefix) + 2 :])
    return words.stem(participle)


def _is_participle(key: str, words: Lexicon) -> bool:
    if key in words.participles:
        return True
    endings = {"en": ("ed",), "de": ("t", "en"), "fr": ("é", "ée", "és", "ées", "i", "ie", "it")}
    return key.endswith(endings.get(words.language, ("do", "da", "dos", "das"))) and len(key) > 3


def _is_light_verb(one: Claim, other: Claim) -> bool:
    """Return whether "performs a check of" became "checks"."""
    words, keys, target = one.lexicon, one.keys, other.keys
    for spot, key in enumerate(keys[:-2]):
        if key not in words.light_verbs or keys[spot + 2] != "of":
            continue
        if len(target) != len(keys) - 2 or target[:spot] != keys[:spot]:
            continue
        is_same = words.stem(keys[spot + 1]) == words.stem(target[spot])
        ends_alike = key.endswith("s") == target[spot].endswith("s")
        if is_same and ends_alike and target[spot + 1 :] == keys[spot + 3 :]:
            return True
    return False


def _is_other_form(old: Claim, new: Claim) -> bool:
    """Return whether, in a language with many verb forms, only the form for the person differs."""
    words = old.lexicon
    if words.language not in {"de", "fr", "es"} or len(old.keys) != len(new.keys):
        return False
    pairs = zip(old.keys, new.keys, strict=True)
    spots = [index for index, (left, right) in enumerate(pairs) if left != right]
    if len(spots) != 1 or old.stems[spots[0]] != new.stems[spots[0]]:
        return False
    # After "we" and "the team", and in a ban, which may have the infinitive.
    before = old.keys[spots[0] - 1] if spots[0] else ""
    return before in PERSONS or (spots[0] == 1 and before in words.negations | {"not"})


def _is_wish(one: Claim, other: Claim) -> bool:
    """Return whether "call me Kim" became "the user wants to be called Kim"."""
    words, order, wish = one.lexicon, one.keys, other.keys
    if len(order) < 2 or "user" not in order[1:3] or wish[:1] != ("user",) or len(wish) < 3:
        return False
    if wish[1] not in words.wishes:
        return False
    verb = words.stem(order[0])
    rest = tuple(key for key in order[1:] if key != "user")
    said = tuple(key for key in wish[2:] if key not in words.be | {"to"})
    found = [index for index, key in enumerate(said) if words.stem(key) == verb]
    return len(found) == 1 and said[: found[0]] + said[found[0] + 1 :] == rest


def _is_placed(one: Claim, other: Claim) -> bool:
    """Return whether "put bikes into the shed" became "bikes go into the shed"."""
    words, order, said = one.lexicon, one.keys, other.keys
    if order[0] not in words.puts or len(order) != len(said):
        return False
    for spot, key in enumerate(said):
        if key in words.goes and 0 < spot < len(said) - 2:
            place = _INTO.get(said[spot + 1], said[spot + 1])
            asked = order[spot + 1]
            is_same_place = _INTO.get(asked, asked) == place and place in words.prepositions
            return (
                order[1 : spot + 1] == said[:spot]
                and is_same_place
                and order[spot + 2 :] == said[spot + 2 :]
            )
    return False


def _is_named(old: Claim, new: Claim) -> bool:
    """Return whether "the cat's name is Tom" became "the cat is named Tom"."""
    return _with_name(old.keys) == _with_name(new.keys)


def _with_name(keys: Keys) -> Keys:
    if "name" not in keys or "is" not in keys:
        return keys
    verb = keys.index("is")
    if keys[:2] == ("name", "of"):
        return (*keys[2:verb], "is", "named", *keys[verb + 1 :])
    if keys[verb - 2 : verb] in {("'s", "name"), ("user's", "name"), ("we's", "name")}:
        owner = keys[verb - 2].removesuffix("'s")
        return (*keys[: verb - 2], *filter(None, (owner,)), "is", "named", *keys[verb + 1 :])
    return keys


def _is_by(one: Claim, other: Claim) -> bool:
    """Return whether a Chinese text names the one who acts with "由"."""
    keys = one.keys
    if one.language != "zh" or "由" not in keys:
        return False
    spot = keys.index("由")
    return (*keys[spot + 1 :], *keys[:spot]) == other.keys


# -- number -----------------------------------------------------------------------------------


def _is_generic(one: Claim, other: Claim) -> bool:
    """Return whether "each test needs a name" became "tests need names"."""
    single, many = one.words, other.words
    if not single or not many or single[0] not in _EACH | {"a", "an"} or many[0] in {"a", "an"}:
        return False
    left, right = one.keys, other.keys
    is_each = left[0] in _EACH
    left = left[1:] if is_each else left
    if right[:1] == ("all",):
        if not is_each:
            return False
        right = right[1:]
    elif many[0] in one.lexicon.articles | one.lexicon.quantifiers | _EACH:
        return False
    left = tuple(key for key in left if key != "does")
    if len(left) != len(right) or ("is" in left and not is_each):
        return False
    pairs = list(zip(left, right, strict=True))
    if any(_singular(a) != _singular(b) for a, b in pairs):
        return False
    # The subject has another number, and so has its verb, if the verb shows it.
    heads = [index for index, (a, b) in enumerate(pairs) if a != b and b.endswith("s")]
    if left[:1] == ("we's",):
        return any(a != b and a.endswith("s") for a, b in pairs[1:]) or left == right
    return bool(heads) and heads[0] <= 3


def _singular(key: str) -> str:
    if key in {"its", "their", "user's"}:
        return "its"
    if key.endswith("ies") and len(key) > 4:
        return key[:-3] + "y"
    if key.endswith(("sses", "ches", "shes", "xes")):
        return key[:-2]
    return key[:-1] if key.endswith("s") and not key.endswith("ss") and len(key) > 3 else key


_WAYS: tuple[tuple[Callable[[Claim, Claim], bool], str], ...] = (
    (_is_fronted, "same words, one part moved to the front"),
    (_is_turned, "same words, turned around the verb"),
    (_has_other_parts, "same words, the parts at the end in another order"),
    (_is_adverb_moved, "same words, an adverb at another place"),
    (_is_list_reordered, "same words, a list in another order"),
    (_is_genitive, "same words, the owner before the thing"),
    (_is_there, "same words, there is and has"),
    (_is_passive, "same words in the other voice"),
    (_is_light_verb, "same words, the verb in another form"),
    (_is_other_form, "same words, the verb in another form"),
    (_is_named, "same words, the name and what it is named"),
    (_is_wish, "an order to the reader, and what the user wants"),
    (_is_placed, "an order where to put a thing, and where it goes"),
    (_is_by, "same words in the other voice"),
)
