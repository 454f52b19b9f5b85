"""Probe files, and how a probe finds the memory it means whatever became of its id."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal

from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord, Scope
from meritory.engine.memories.validate import checked_name, checked_tags, known_fields
from meritory.store.contract.store import Store
from meritory.text.claims.read import protected_values, units_of
from meritory.text.entities import mentions
from meritory.text.normalize import canonical, check_text, content_hash
from meritory.text.secrets import find_secrets
from meritory.text.terms import query_terms

PROBE_LIMIT = 10_000
LINE_LIMIT_CHARS = 65_536
EXPECTED_LIMIT = 32
GENERATED = "generated"
_KEY_CHARS = 32
_FIELDS = ("question", "expected", "project", "tags", "notes", "provenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question, and the texts any of which answers it."""

    question: str
    expected: tuple[str, ...]
    project: str | None = None
    tags: tuple[str, ...] = ()
    notes: str = ""
    # Who or what wrote the probe.
    provenance: str = ""

    @property
    def key(self) -> str:
        """The name that pairs the same probe in two runs."""
        named = f"{set_hash([self])}\0{self.project or ''}"
        return hashlib.sha256(named.encode()).hexdigest()[:_KEY_CHARS]


def read_probes(lines: Iterable[str], source: str = "the file") -> tuple[Probe, ...]:
    """Parse the probes of a file, in order; empty lines and those that start with # are skipped."""
    probes: list[Probe] = []
    seen: dict[str, str] = {}
    for place, given in read_objects(lines, source):
        probe = _read_probe(given, place)
        if probe.key in seen:
            raise InputError(
                f"{place} repeats {seen[probe.key].removesuffix(f' of {source}')}",
                hint="keep one of them: it would count twice",
            )
        seen[probe.key] = place
        probes.append(probe)
        if len(probes) > PROBE_LIMIT:
            raise InputError(f"{source} has more than {PROBE_LIMIT:,} probes", hint="split it")
    if not probes:
        raise InputError(
            f"there is no probe in {source}",
            hint='a line looks like {"question": "which port?", "expected": "the port is 5433"}',
        )
    return tuple(probes)


def set_hash(probes: Sequence[Probe]) -> str:
    """Return the SHA-256 of all questions and expected texts, in any order, without tags."""
    pairs = sorted((probe.question, sorted(probe.expected)) for probe in probes)
    body = json.dumps(pairs, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()


def probe_line(probe: Probe) -> str:
    """Return a probe as a line of a file."""
    plain = {name: value for name, value in asdict(probe).items() if value}
    if len(probe.expected) == 1:
        plain["expected"] = probe.expected[0]
    return json.dumps(plain)


def _read_probe(given: Mapping[str, Any], place: str) -> Probe:
    try:
        known_fields(given, _FIELDS)
        for name in ("notes", "provenance"):
            if not isinstance(given.get(name, ""), str):
                raise InputError(f"{name} must be text")
        probe = Probe(
            question=_text(given.get("question"), "question"),
            expected=read_expected(given.get("expected")),
            project=checked_name("project", given.get("project")),
            tags=checked_tags(given.get("tags", [])),
            notes=given.get("notes", ""),
            provenance=given.get("provenance", ""),
        )
    except InputError as error:
        raise InputError(f"{place}: {error.message}", hint=error.hint) from error
    for part in (probe.question, *probe.expected):
        secrets = find_secrets(part)
        if secrets:
            # The message does not repeat the text, because it may be logged.
            raise InputError(
                f"{place} seems to contain a secret ({secrets[0].kind})", hint="remove it"
            )
    return probe


def read_objects(lines: Iterable[str], source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the JSON object of each line and its place; empty lines and comments are skipped."""
    for number, line in enumerate(lines, start=1):
        text, place = line.strip().removeprefix("\ufeff"), f"line {number} of {source}"
        if not text or text.startswith("#"):
            continue
        if len(text) > LINE_LIMIT_CHARS:
            raise InputError(f"{place} has more than {LINE_LIMIT_CHARS:,} characters")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise InputError(
                f"{place} is not JSON: {why}", hint="write one object per line; # starts a comment"
            ) from error
        if not isinstance(given, dict):
            raise InputError(
                f"{place} is not an object", hint='write {"question": ..., "expected": ...}'
            )
        yield place, given


def read_expected(value: object) -> tuple[str, ...]:
    """Parse the text, or the texts any of which is right."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not 1 <= len(items) <= EXPECTED_LIMIT:
        raise InputError(
            f"expected must be a text, or a list of 1 to {EXPECTED_LIMIT} texts",
            hint="write the content of the memory, not its id",
        )
    return tuple(dict.fromkeys(_text(item, "expected") for item in items))


def _text(value: object, name: str) -> str:
    if value is None:
        raise InputError(f"{name} is missing")
    check_text(value, what=name)
    return str(value).strip()


PROVENANCE = "generated from the store"
# The number of words of a memory in its question, and never more than half of them.
WORDS_MAX, WORDS_MIN = 4, 2
_SHARE_MAX = 0.5
_QUESTIONS = {
    "preference": "What do I prefer about {}?",
    "decision": "What was decided about {}?",
    "procedure": "How do I go about {}?",
    "episode": "What happened with {}?",
    "lesson": "What did I learn about {}?",
    "constraint": "What must I keep to about {}?",
}
_PLAIN_QUESTION = "What do I know about {}?"


def generate(records: Sequence[MemoryRecord], count: int) -> list[Probe]:
    """Generate up to `count` probes, evenly from all kinds, sources and projects.

    The same store yields the same probes. Memories that seem to contain a secret, and those with
    too few words for a question, are left out.
    """
    frequency = Counter(term for one in records for term in set(query_terms(one.content)))
    texts = Counter(content_hash(one.content) for one in records)
    # One record of each group in turn; a hash orders a group, so no time or topic leads.
    groups: dict[tuple[str, ...], list[MemoryRecord]] = {}
    for one in sorted(records, key=lambda one: hashlib.sha256(one.id.encode()).digest()):
        groups.setdefault((one.kind, one.provenance, one.project or ""), []).append(one)
    rows = zip_longest(*(groups[key] for key in sorted(groups)))
    probes: list[Probe] = []
    for record in (one for row in rows for one in row if one is not None):
        if len(probes) >= count:
            break
        if record.agent is not None or texts[content_hash(record.content)] > 1:
            continue
        question = _question(record, frequency)
        if question is not None:
            probe = Probe(
                question=question,
                expected=(record.content,),
                project=record.project,
                tags=(GENERATED, record.kind, record.provenance),
                provenance=PROVENANCE,
            )
            probes.append(probe)
    return probes


def _question(record: MemoryRecord, frequency: Counter[str]) -> str | None:
    """Return a question of the rare words of a memory; None when it has too few."""
    if find_secrets(record.content):
        return None
    terms = [
        term
        for term in query_terms(record.content)
        if len(term) > 2 and term.replace("-", "").replace("_", "").isalnum()
    ]
    named = {mention.name.casefold() for mention in mentions(record.content)}
    wanted = min(WORDS_MAX, math.floor(_SHARE_MAX * len(terms)))
    if wanted < WORDS_MIN:
        return None
    # Values are left out, because they are the answer; entities come first, then rare words.
    numbers = set(protected_values(record.content).numbers)
    free = [term for term in terms if term not in numbers and not term.isdigit()]
    best = sorted(free, key=lambda term: (term not in named, frequency[term], term))[:wanted]
    if len(best) < WORDS_MIN:
        return None
    words = ", ".join(term for term in terms if term in best)
    return _QUESTIONS.get(record.kind, _PLAIN_QUESTION).format(words)


# -- anchors ------------------------------------------------------------------------------

How = Literal["exact", "moved", "contained", "values", "drifted"]
# A text that fits this many memories is ambiguous and anchors none of them.
AMBIGUOUS_FROM = 6
MERGES_READ = 10_000
# A word in more memories than this does not tell which memory is meant.
RARE_SHARE, RARE_COUNT = 0.05, 3
_MIN_NEEDED = 2


@dataclass(frozen=True, slots=True)
class Anchor:
    """The memories any of which answers a probe, and how they were found; none when drifted."""

    how: How
    memory_ids: frozenset[str] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True)
class AnchorText:
    """A text as it is compared: its canonical form, words and values, whether it negates."""

    canonical: str
    words: frozenset[str]
    is_negated: bool


def read_text(text: str) -> AnchorText:
    """Read the parts of a text that are compared."""
    units = units_of(text)
    words = {unit.key.casefold() for unit in units} | set(query_terms(text))
    return AnchorText(canonical(text), frozenset(words), protected_values(text).negation_count > 0)


def needed_words(text: str, rare: Callable[[str], bool]) -> frozenset[str]:
    """Return the values and rare words that another text must contain to match this one."""
    values = protected_values(text)
    specific = (*values.numbers, *values.identifiers, *values.paths, *values.quotes, *values.names)
    return frozenset(value.casefold() for value in specific) | {
        term for term in query_terms(text) if rare(term)
    }


def holds(inside: AnchorText, whole: AnchorText) -> bool:
    """Whether a text contains another as whole words."""
    sought, text = inside.canonical, whole.canonical

    def joins(left: str, right: str) -> bool:
        return bool(left and right) and left.isalnum() and right.isalnum()

    start = text.find(sought) if sought else -1
    while start >= 0:
        end = start + len(sought)
        if not joins(text[start - 1 : start], sought[0]) and not joins(
            sought[-1], text[end : end + 1]
        ):
            return True
        start = text.find(sought, start + 1)
    return False


def means_the_same(one: str, other: str) -> bool:
    """Whether two texts say the same: equal, contained, or with all words and values of one."""
    left, right = read_text(one), read_text(other)
    if left.canonical == right.canonical or holds(left, right) or holds(right, left):
        return True
    needed = needed_words(one, lambda term: True)
    is_all = len(needed) >= _MIN_NEEDED and needed <= right.words
    return is_all and left.is_negated == right.is_negated


class Anchors:
    """Finds the memories of one user that probes mean, as they are at one moment."""

    def __init__(self, store: Store, user: str, now: datetime) -> None:
        self._store = store
        self._user = user
        self._records = {record.id: record for record in store.walk(user)}
        # The valid memories, oldest first.
        self.live = {
            record.id: record
            for record in self._records.values()
            if record.is_live and (record.valid_until is None or record.valid_until > now)
        }
        self._by_hash: dict[str, list[MemoryRecord]] = {}
        for record in self._records.values():
            self._by_hash.setdefault(content_hash(record.content), []).append(record)

    def find(self, probe: Probe, *, follows: bool = True) -> Anchor:
        """Return the memories that a probe means, or why there are none any more.

        With `follows`, a memory that was superseded or merged is replaced by its successor.
        """
        ways: tuple[tuple[How, Callable[[str], Iterable[MemoryRecord]]], ...] = (
            ("exact", self._exact),
            ("moved", self._successors if follows else lambda text: ()),
            ("contained", self._contained),
            ("values", self._by_values),
        )
        for how, way in ways:
            ids = {
                record.id
                for text in probe.expected
                for record in way(text)
                if record.agent is None and record.project in (None, probe.project)
            }
            if len(ids) >= AMBIGUOUS_FROM * len(probe.expected):
                return Anchor("drifted", why=f"fits {len(ids)} memories: be more specific")
            if ids:
                return Anchor(how, frozenset(ids))
        known = [
            one for text in probe.expected for one in self._by_hash.get(content_hash(text), ())
        ]
        why = "it was deleted or has expired" if known else "no memory has this content"
        if any(one.id in self.live for one in known):
            places = {one.project or one.agent or "no project" for one in known}
            why = f"it belongs to {', '.join(sorted(places))}, outside the scope of the probe"
        return Anchor("drifted", why=why)

    def _exact(self, text: str) -> list[MemoryRecord]:
        known = self._by_hash.get(content_hash(text), ())
        return [one for one in known if one.id in self.live]

    def _successors(self, text: str) -> list[MemoryRecord]:
        """Return the current memory for each that was superseded or merged."""
        digest = content_hash(text)
        starts = [one for one in self._by_hash.get(digest, ()) if not one.deleted_at]
        starts += [self._records[one] for one in self._merged.get(digest, ())]
        last = []
        for current in starts:
            seen: set[str] = set()
            while current.superseded_by in self._records and current.id not in seen:
                seen.add(current.id)
                current = self._records[current.superseded_by]
            last += [current] if current.id in self.live else []
        return last

    @cached_property
    def _merged(self) -> dict[str, list[str]]:
        """Map the hash of a merged text to the memories that it became part of."""
        scopes = {Scope(self._user, one.agent, one.project) for one in self._records.values()}
        found: dict[str, list[str]] = {}
        for scope in scopes:
            for entry in self._store.merges(scope, MERGES_READ):
                for part in (entry.before, entry.other):
                    if part is not None and entry.memory_id in self._records:
                        found.setdefault(content_hash(part.content), []).append(entry.memory_id)
        return found

    def _contained(self, text: str) -> list[MemoryRecord]:
        sought = read_text(text)
        return [one for key, one in self.live.items() if holds(sought, self._texts[key])]

    def _by_values(self, text: str) -> list[MemoryRecord]:
        limit = max(RARE_COUNT, math.ceil(RARE_SHARE * len(self.live)))
        needed = needed_words(text, lambda term: self._frequency[term] <= limit)
        if len(needed) < _MIN_NEEDED:
            return []
        is_negated = read_text(text).is_negated
        texts = ((one, self._texts[key]) for key, one in self.live.items())
        return [one for one, has in texts if needed <= has.words and has.is_negated == is_negated]

    @cached_property
    def _texts(self) -> dict[str, AnchorText]:
        return {key: read_text(record.content) for key, record in self.live.items()}

    @cached_property
    def _frequency(self) -> Counter[str]:
        return Counter(word for text in self._texts.values() for word in text.words)
