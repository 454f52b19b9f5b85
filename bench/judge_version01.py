"""Judge cases with version 0.1: stdin and stdout are JSON lines, one case each.

Started by bench.judge_reference with the sources of version 0.1 on PYTHONPATH. It calls modules by
name, because the present sources have them no longer or with other parameters.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench.judge_mask import mask_text


def _part(module: str, name: str) -> Any:
    return getattr(import_module(f"meritory.{module}"), name)


def main() -> None:
    """Read cases, and write what version 0.1 says about each."""
    passages = _part("text.conduct", "passages")
    embedder = _part("ports.embedder", "open_embedder")(_part("ports.embedder", "EmbedderSpec")())
    judge = _part("ports.judge", "RulesJudge")()
    for line in sys.stdin:
        case = json.loads(line)
        told = _told(case)
        exhibits = [_part("types", "Exhibit")(*exhibit) for exhibit in case["exhibits"]]
        vectors = embedder.embed_documents([exhibit.text for exhibit in exhibits])
        said = embedder.embed_documents(passages(told))
        # Each memory's largest cosine with an exchange, as version 0.1 computes it.
        cosines = np.asarray(vectors @ said.T).max(axis=1).tolist()
        verdict = judge.judge(told, exhibits, cosines)
        length = len(_part("text.transcript", "as_text")(told))
        found = {
            "relevance": verdict.relevance,
            "confidence": verdict.confidence,
            "is_judged": length >= _part("flow.judging", "JUDGE_MIN_CHARS"),
        }
        print(json.dumps(found), flush=True)


def _told(case: dict[str, Any]) -> Any:
    """Return the end of a transcript, as version 0.1 stores it."""
    turns = _part("text.transcript", "read_turns")(case["messages"])
    if case["is_masked"]:
        turns = tuple(_part("types", "Turn")(turn.role, mask_text(turn.text)) for turn in turns)
    return _part("flow.ending", "_kept")(turns)


if __name__ == "__main__":
    main()
