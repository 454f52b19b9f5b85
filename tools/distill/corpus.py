"""Gather the documents of all sources into one file of JSON lines."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from readers import READERS, Document
from sources import SOURCES, Source, fetch


def gather(home: Path, sources: Sequence[Source] = SOURCES, name: str = "corpus.jsonl") -> Path:
    """Write every source's documents, without repeats, and return the file."""
    out = home / name
    seen: set[bytes] = set()
    with out.open("w", encoding="utf-8") as stream:
        for source in sources:
            counts: Counter[str] = Counter()
            for document in _documents(source, home):
                fresh = [text for text in document.passages if _is_new(text, seen)]
                if len(fresh) + bool(document.title) < 2:
                    continue
                row = {"source": source.name, "title": document.title, "passages": fresh}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                counts.update(docs=1, passages=len(fresh), chars=sum(map(len, fresh)))
            print(f"{source.name:34s} {dict(counts)}", flush=True)
    return out


def _documents(source: Source, home: Path) -> list[Document]:
    found = list(READERS[source.reader](fetch(source, home), source.glob))
    if len(found) <= source.max_docs:
        return found
    # An even sample: the order is fixed, so the same package gives the same choice.
    step = len(found) / source.max_docs
    return [found[int(at * step)] for at in range(source.max_docs)]


def _is_new(text: str, seen: set[bytes]) -> bool:
    key = hashlib.blake2b(text.lower().encode(), digest_size=8).digest()
    if key in seen:
        return False
    seen.add(key)
    return True
