"""What long real chats retire: python -m bench.everyday_retired [--chats N] [--list].

Runs chats of LongMemEval, BEAM and RealMem that no report half has through extraction, in their
order and in one scope each, as the sessions of one person. Prints how many memories they left and
how many of these a later turn retired; --list prints each retired memory with the one in its place,
to be judged by eye. The texts stay on this machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bench.datasets import _checked, data_root
from bench.everyday_mined import read_labels
from meritory.api.memory import Memory
from meritory.domain.world import SeededWorld
from meritory.settings import load_settings

CHATS: Final = 60
SEED: Final = 11

Turns = list[dict[str, str]]


def chats(root: Path) -> Iterator[tuple[str, list[Turns]]]:
    """Yield each chat with its sessions, those of a report half left out."""
    report = {ref.conversation for label in read_labels("report") for ref in label.refs}
    for path in sorted((root / "realmem").glob("*.json")):
        if f"realmem/{path.name}" not in report:
            dialogues = json.loads(_checked(path))["dialogues"]
            yield f"realmem/{path.stem}", [_turns(one["dialogue_turns"]) for one in dialogues]
    for path in sorted((root / "beam" / "100K").glob("*/chat.json")):
        name = f"beam/100K/{path.parent.name}"
        if name not in report:
            groups = (
                group for batch in json.loads(path.read_text("utf-8")) for group in batch["turns"]
            )
            yield name, [_turns(group) for group in groups]
    for item in json.loads(_checked(root / "longmemeval" / "longmemeval_oracle.json")):
        name = f"longmemeval/{item['question_id']}"
        if name not in report:
            yield name, [_turns(one) for one in item["haystack_sessions"]]


def _turns(said: Sequence[dict[str, Any]]) -> Turns:
    """Return turns as a client reports them."""
    speakers = (str(turn.get("role") or turn["speaker"]).lower() for turn in said)
    return [
        {"role": "user" if speaker == "user" else "assistant", "text": turn["content"]}
        for speaker, turn in zip(speakers, said, strict=True)
    ]


def left_by(sessions: Sequence[Turns]) -> tuple[int, list[tuple[str, str]]]:
    """Return how many memories sessions leave, and the retired ones with what replaced them."""
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), [datetime(2026, 3, 2, 9, tzinfo=UTC)]
        settings = load_settings(folder, {})
        clock = SeededWorld(SEED, lambda: now[0])
        with Memory(folder / "m.db", settings=settings, clock=clock, background=False) as memory:
            view = memory.view(user="u", project="p")
            for number, turns in enumerate(sessions):
                view.session(f"s{number}", harness="claude-code").end(turns)
                now[0] += timedelta(days=1)
                memory.drain()
            records = view.page(10_000, everywhere=True, include_gone=True)
    by_id = {record.id: record for record in records}
    retired = [
        (one.content, by_id[one.superseded_by].content)
        for one in records
        if one.superseded_by is not None and one.superseded_by in by_id
    ]
    return len(records), retired


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the chats of each data set left and retired."""
    parser = argparse.ArgumentParser(prog="python -m bench.everyday_retired")
    parser.add_argument("--chats", type=int, default=CHATS, help="of LongMemEval at most")
    parser.add_argument("--list", action="store_true", help="print each retired memory")
    options: Any = parser.parse_args(arguments)
    totals: dict[str, Counter[str]] = {}
    for name, sessions in chats(data_root()):
        total = totals.setdefault(name.partition("/")[0], Counter())
        if total["chats"] == options.chats:
            continue
        stored, retired = left_by(sessions)
        total.update(chats=1, sessions=len(sessions), memories=stored, retired=len(retired))
        if options.list:
            for old, new in retired:
                print(f"{name}\n  old: {old}\n  new: {new}", flush=True)
    for name, total in totals.items():
        print(name, ", ".join(f"{count} {what}" for what, count in total.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
