"""Word lists of search, and of the comparison of two claims (`data/language/en/words.toml`)."""

from __future__ import annotations

from functools import partial
from typing import Final

from meritory.text.language import read_language, word_set

_FILE: Final = "en/words"
_list: Final = partial(word_set, _FILE)
_content: Final = read_language(_FILE)


def _first_of_group(groups: list[str]) -> dict[str, str]:
    """Return each word of a group with the first word of the group."""
    return {word: group.split()[0] for group in groups for word in group.split()}


STOP_WORDS: Final = _list("stop_words")
COMMON_WORDS: Final = _list("common_words")

ARTICLES: Final = _list("articles")
FILLERS: Final = _list("fillers")
HEDGES: Final = _list("hedges")
ACRONYMS: Final = _list("acronyms")
NEGATIONS: Final = _list("negations")
ADDITIVE: Final = _list("additive")
LIMITS: Final = _list("limits")
PREPOSITIONS: Final = _list("prepositions")
PRONOUNS: Final = _list("pronouns")
QUANTIFIERS: Final = _list("quantifiers")
LIGHT_WORDS: Final = ARTICLES | PREPOSITIONS | PRONOUNS | _list("light_words")
MANY_VALUED: Final = _list("many_valued")
CLAUSE_VERBS: Final = _list("clause_verbs")
BARE_VERBS: Final = _list("bare_verbs")

CHANGE_NOW: Final = _list("change_now")
CHANGE_VERBS: Final = _list("change_verbs")
REPLACE_VERBS: Final = _list("replace_verbs")
CHANGE_PHRASES: Final = tuple[str, ...](_content["phrases"]["change"])

SAME_AS: Final = _first_of_group(_content["groups"]["same"])
UNITS: Final = _first_of_group(_content["groups"]["units"])
OPENERS: Final = tuple(tuple[str, ...](opener.split()) for opener in _content["phrases"]["openers"])
PHRASES: Final = tuple(
    (tuple[str, ...](phrase.split()), tuple[str, ...](short.split()))
    for phrase, short in _content["short_forms"].items()
)
NUMBER_WORDS: Final = {
    **{word: str(value) for value, word in enumerate(_content["numbers"]["small"].split())},
    **{word: str(value * 10) for value, word in enumerate(_content["numbers"]["tens"].split(), 3)},
}
