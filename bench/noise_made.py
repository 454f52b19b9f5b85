"""Noise as agents leave it behind: workflow chatter, tautologies, paraphrases of what is known."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.datasets import Corpus, Doc
from bench.gate_made import RESTATEMENTS
from bench.product import is_derived
from meritory.text.words import STOP_WORDS

NoiseKind = Literal["chatter", "tautology", "paraphrase"]
Origin = Literal["user", "agent"]
_HEDGE = "hedge or opener"
_WORD = re.compile(r"[A-Za-z][a-z]{3,}")
_SPEAKER = re.compile(r"^([A-Z][a-z]+): ")
_CHATTER = (
    "Let me check what was said about the {a} and the {b}.",
    "I will look at the {a} next and then come back to the {b}.",
    "The user asked about the {a}.",
    "The user wants to know more about the {a} and the {b}.",
    "Searched for {a} and found 3 results.",
    "The conversation turned to the {a} and the {b}.",
    "Done with the {a}; now working on the {b}.",
    "The assistant explained the {a} to the user.",
    "The user confirmed that the answer about the {a} was helpful.",
    "Task completed: reviewed the notes on {a}, {b} and {c}.",
    "Next step is to summarise the {a} and the {b}.",
    "No changes were needed for the {a}.",
    "{name} and the assistant talked about the {a}.",
    "The session covered the {a}, the {b} and the {c}.",
)
_TAUTOLOGIES = (
    "The {a} is a {a}.",
    "What was said about the {a} was said about the {a}.",
    "If it is about the {a}, then it concerns the {a}.",
    "{name} is {name}.",
    "The {a} and the {b} are different things, because one is the {a} and the other the {b}.",
    "Things about the {a} are related to the {a}.",
    "{name}'s {a} belongs to {name}.",
    "The user knows what the user said about the {a}.",
)


@dataclass(frozen=True, slots=True)
class Noise:
    """One text that nobody needs, and how it came in."""

    text: str
    kind: NoiseKind
    # "user": said again by a person. "agent": written down by an agent or an extractor.
    origin: Origin
    session_key: str
    at: Doc


def planted(corpus: Corpus, count: int, retold_in: Path | None, seed: int = 11) -> list[Noise]:
    """As much noise as asked for, a third of each kind, about what the corpus is about.

    With the folder of the data, half of the paraphrases are another author's, where there are any.
    """
    source = random.Random(seed)
    thirds = [count // 3, count // 3, count - 2 * (count // 3)]
    makers = (_from(_CHATTER, "chatter"), _from(_TAUTOLOGIES, "tautology"))
    found: list[Noise] = []
    for maker, wanted in zip(makers, thirds, strict=False):
        texts: dict[str, Noise] = {}
        while len(texts) < wanted:
            made = maker(source.choice(corpus.docs), source)
            if made is not None:
                texts.setdefault(made.text, made)
        found += texts.values()
    found += _paraphrases(corpus, thirds[2], retold_in, source)
    source.shuffle(found)
    return found


def _from(
    templates: Sequence[str], kind: NoiseKind
) -> Callable[[Doc, random.Random], Noise | None]:
    def make(doc: Doc, source: random.Random) -> Noise | None:
        words = sorted({word for word in _WORD.findall(doc.text) if word.lower() not in STOP_WORDS})
        plain = [word for word in words if word.islower()]
        if len(plain) < 3:
            return None
        a, b, c = source.sample(plain, 3)
        speaker = _SPEAKER.match(doc.text)
        name = speaker.group(1) if speaker else "The user"
        text = source.choice(templates).format(a=a, b=b, c=c, name=name)
        return Noise(text, kind, "agent", f"noise/{doc.session_key}", doc)

    return make


def _paraphrases(
    corpus: Corpus, count: int, retold_in: Path | None, source: random.Random
) -> list[Noise]:
    """What is known already in other words: by rule, and in LoCoMo by another author as well."""
    written = [] if retold_in is None else list(_observations(corpus, retold_in))
    source.shuffle(written)
    found = written[: count // 2]
    docs = [*corpus.docs]
    source.shuffle(docs)
    for turn, doc in enumerate(docs * 3):
        if len(found) >= count:
            break
        text = _restated(doc.text, turn, source)
        if text is not None:
            # Whoever said it says it again: nobody repeats an agent's answer as their own word.
            origin: Origin = "agent" if is_derived(corpus, doc) else "user"
            found.append(Noise(text, "paraphrase", origin, f"noise/{doc.session_key}", doc))
    return found


def _restated(text: str, turn: int, source: random.Random) -> str | None:
    speaker = _SPEAKER.match(text)
    head = speaker.group() if speaker else ""
    # "I think" goes before a statement, not before a greeting.
    is_statement = text[len(head) :].partition(" ")[0].lower() in STOP_WORDS
    operators = [one for how, one in RESTATEMENTS.items() if is_statement or how != _HEDGE]
    source.shuffle(operators)
    for operator in operators:
        changed = operator(text[len(head) :], turn) if len(text) > len(head) else None
        if changed is not None and changed != text[len(head) :]:
            return head + changed
    return None


def _observations(corpus: Corpus, root: Path) -> Iterator[Noise]:
    """LoCoMo's own one-sentence accounts of single turns."""
    name = corpus.name.removeprefix("locomo/")
    if name == corpus.name:
        return
    docs = {doc.id: doc for doc in corpus.docs}
    samples = json.loads((root / "locomo" / "locomo10.json").read_text("utf-8"))
    sample = next(one for one in samples if one["sample_id"] == name)
    for session in sample["observation"].values():
        for facts in session.values():
            for text, evidence in facts:
                doc = docs.get(f"{name}/{evidence}") if isinstance(evidence, str) else None
                if doc is not None:
                    yield Noise(text, "paraphrase", "agent", f"noise/{doc.session_key}", doc)
