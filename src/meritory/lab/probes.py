"""Probe files: questions with the content that answers them, one JSON object a line."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord
from meritory.engine.memories.validate import checked_name, checked_tags, known_fields
from meritory.text.claims.values import protected_values
from meritory.text.entities import mentions
from meritory.text.normalize import check_text, content_hash
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
    """A question, and the texts of which any answers it."""

    question: str
    expected: tuple[str, ...]
    project: str | None = None
    tags: tuple[str, ...] = ()
    notes: str = ""
    # Where the probe came from: whoever wrote it, or what made it.
    provenance: str = ""

    @property
    def key(self) -> str:
        """What pairs the same probe in two runs."""
        named = f"{_digest([_pair(self)])}\0{self.project or ''}"
        return hashlib.sha256(named.encode()).hexdigest()[:_KEY_CHARS]


def read_probes(lines: Iterable[str], source: str = "the file") -> tuple[Probe, ...]:
    """The probes of a file, in order; empty lines and those that begin with # say nothing."""
    found: list[Probe] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("\ufeff")
        if not text or text.startswith("#"):
            continue
        probe = _read(text, f"line {number} of {source}")
        if probe.key in seen:
            raise InputError(
                f"line {number} of {source} repeats line {seen[probe.key]}",
                hint="keep one of them: it would count twice",
            )
        seen[probe.key] = number
        found.append(probe)
        if len(found) > PROBE_LIMIT:
            raise InputError(f"{source} has more than {PROBE_LIMIT:,} probes", hint="split it")
    if not found:
        raise InputError(
            f"there is no probe in {source}",
            hint='a line looks like {"question": "which port?", "expected": "the port is 5433"}',
        )
    return tuple(found)


def set_hash(probes: Sequence[Probe]) -> str:
    """The SHA-256 of what is asked and expected, whatever the order, tags and notes."""
    return _digest([_pair(probe) for probe in probes])


def probe_line(probe: Probe) -> str:
    """A probe as a line of a file."""
    plain: dict[str, Any] = {
        "question": probe.question,
        "expected": probe.expected[0] if len(probe.expected) == 1 else list(probe.expected),
    }
    given = {
        "project": probe.project,
        "tags": list(probe.tags),
        "notes": probe.notes,
        "provenance": probe.provenance,
    }
    return json.dumps(plain | {name: value for name, value in given.items() if value})


def _pair(probe: Probe) -> tuple[str, list[str]]:
    return probe.question, sorted(probe.expected)


def _digest(pairs: list[tuple[str, list[str]]]) -> str:
    body = json.dumps(sorted(pairs), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()


def _read(text: str, place: str) -> Probe:
    given = read_object(text, place)
    try:
        known_fields(given, _FIELDS)
        probe = Probe(
            question=_text(given.get("question"), "question"),
            expected=read_expected(given.get("expected")),
            project=checked_name("project", given.get("project")),
            tags=checked_tags(given.get("tags", [])),
            notes=_remark(given, "notes"),
            provenance=_remark(given, "provenance"),
        )
    except InputError as error:
        raise InputError(f"{place}: {error.message}", hint=error.hint) from error
    for held in (probe.question, *probe.expected):
        secrets = find_secrets(held)
        if secrets:
            # Its text is not repeated: what is printed may be kept somewhere.
            raise InputError(
                f"{place} seems to hold a secret ({secrets[0].kind})", hint="leave it out"
            )
    return probe


def read_object(text: str, place: str) -> Mapping[str, Any]:
    """The JSON object of a line."""
    if len(text) > LINE_LIMIT_CHARS:
        raise InputError(f"{place} has more than {LINE_LIMIT_CHARS:,} characters")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise InputError(
            f"{place} is not JSON: {why}", hint="one object a line; # begins a remark"
        ) from error
    if not isinstance(given, dict):
        raise InputError(f"{place} is no object", hint='write {"question": ..., "expected": ...}')
    return given


def read_expected(value: object) -> tuple[str, ...]:
    """The text, or texts, of which any is right."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not 1 <= len(items) <= EXPECTED_LIMIT:
        raise InputError(
            "expected must be a text, or a list of up to "
            f"{EXPECTED_LIMIT} texts of which any is right",
            hint="write what the memory says, not its id",
        )
    return tuple(dict.fromkeys(_text(item, "expected") for item in items))


def _text(value: object, name: str) -> str:
    if value is None:
        raise InputError(f"{name} is missing")
    check_text(value, what=name)
    return str(value).strip()


def _remark(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"{name} must be text")
    return value


PROVENANCE = "generated from the store"
# So many words of a memory go into its question, and never more than half of them.
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
    """Up to `count` probes, from all kinds, sources and projects alike; the same store, the same.

    A memory that seems to hold a secret is left out, and so is one that a question of its words
    would give away.
    """
    frequency = Counter(term for one in records for term in set(query_terms(one.content)))
    texts = Counter(content_hash(one.content) for one in records)
    found: list[Probe] = []
    for record in _stratified(records):
        if len(found) >= count:
            break
        if record.agent is not None or texts[content_hash(record.content)] > 1:
            continue
        question = _question(record, frequency)
        if question is not None:
            found.append(_probe(record, question))
    return found


def _stratified(records: Sequence[MemoryRecord]) -> Iterator[MemoryRecord]:
    """One of each group in turn; inside a group by a hash, so that no time or topic leads."""
    groups: dict[tuple[str, ...], list[MemoryRecord]] = {}
    for one in records:
        groups.setdefault((one.kind, one.provenance, one.project or ""), []).append(one)
    for group in groups.values():
        group.sort(key=lambda one: hashlib.sha256(one.id.encode()).digest())
    for row in zip_longest(*(groups[key] for key in sorted(groups))):
        yield from (one for one in row if one is not None)


def _question(record: MemoryRecord, frequency: Counter[str]) -> str | None:
    if find_secrets(record.content):
        return None
    terms = [term for term in query_terms(record.content) if _is_plain(term)]
    named = {one.name.casefold() for one in mentions(record.content)}
    wanted = min(WORDS_MAX, math.floor(_SHARE_MAX * len(terms)))
    if wanted < WORDS_MIN:
        return None
    # A value is what is asked for, so it stays out; what is named, then what is rare, goes in.
    numbers = set(protected_values(record.content).numbers)
    free = [term for term in terms if term not in numbers and not term.isdigit()]
    best = sorted(free, key=lambda term: (term not in named, frequency[term], term))[:wanted]
    if len(best) < WORDS_MIN:
        return None
    words = ", ".join(term for term in terms if term in best)
    return _QUESTIONS.get(record.kind, _PLAIN_QUESTION).format(words)


def _is_plain(term: str) -> bool:
    return len(term) > 2 and term.replace("-", "").replace("_", "").isalnum()


def _probe(record: MemoryRecord, question: str) -> Probe:
    return Probe(
        question=question,
        expected=(record.content,),
        project=record.project,
        tags=(GENERATED, record.kind, record.provenance),
        provenance=PROVENANCE,
    )
