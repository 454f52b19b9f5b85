"""The English word lists of search and of claims (`words.toml`, `claims.toml`)."""

from __future__ import annotations

from functools import partial
from typing import Final

from meritory.text.language import read_language, word_set

_CLAIMS: Final = "en/claims"
_list: Final = partial(word_set, _CLAIMS)
_content: Final = read_language(_CLAIMS)


def _first_of_group(groups: list[str]) -> dict[str, str]:
    """Return each word of a group with the first word of the group."""
    return {word: group.split()[0] for group in groups for word in group.split()}


STOP_WORDS: Final = word_set("en/words", "stop_words")
COMMON_WORDS: Final = word_set("en/words", "common_words")

FILLERS: Final = _list("fillers")
HEDGES: Final = _list("hedges")
ACRONYMS: Final = _list("acronyms")
NEGATIONS: Final = _list("negations")
TITLES: Final = _list("titles")
CHANGE_NOW: Final = _list("change_now")
SAME_AS: Final = _first_of_group(_content["groups"]["same"])
UNITS: Final = _first_of_group(_content["groups"]["units"])
NUMBER_WORDS: Final = {
    **{word: str(value) for value, word in enumerate(_content["numbers"]["small"].split())},
    **{word: str(value * 10) for value, word in enumerate(_content["numbers"]["tens"].split(), 3)},
}
