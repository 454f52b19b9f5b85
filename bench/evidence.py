"""What the end of a long session costs: `python -m bench.evidence`.

Each case runs in a process of its own: a session that showed memories ends with a made-up
transcript and is judged. Memory is the peak above what the process had before the end.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.sessions import Row, finish
from bench.texts import memories, questions
from meritory.api.memory import Memory
from meritory.connect.transcripts import TranscriptFile
from meritory.engine import pipeline
from meritory.engine.sessions.end import EndRequest
from meritory.text.judge.digest import decode_digest

MEMORY_COUNT = 400
PROMPT_COUNT = 20
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A transcript, and the figures from where on its end costs too much."""

    name: str
    size_bytes: int
    # The share of its characters that tools returned.
    result_share: float
    cpu_s: float
    memory_mb: float
    # A client's file, or turns that a program hands over.
    is_file: bool = False


CASES = (
    Case("1,000,000 characters", MEGABYTE, 0.9, 2.0, 60.0),
    Case("1,000,000 characters, half of them edits", MEGABYTE, 0.5, 2.0, 60.0),
    Case("file of 100 MB", 100 * MEGABYTE, 0.9, 60.0, 150.0, is_file=True),
    Case("file of 100 MB, half of it edits", 100 * MEGABYTE, 0.5, 60.0, 150.0, is_file=True),
)


# -- made-up transcripts --------------------------------------------------------------------


def lines(case: Case, seed: int = 5) -> Iterator[str]:
    """Yield the lines of a transcript as Claude Code writes it, until it has its size."""
    chance = random.Random(seed)
    said = memories(MEMORY_COUNT)
    written = 0
    number = 0
    while written < case.size_bytes:
        number += 1
        for entry in _exchange(chance, said, number, case.result_share):
            line = json.dumps(entry) + "\n"
            written += len(line)
            yield line


def _exchange(
    chance: random.Random, said: Sequence[str], number: int, result_share: float
) -> Iterator[dict[str, Any]]:
    """Yield a prompt (now and then), a reply with an edit and a command, and their results."""
    if number % 10 == 1:
        yield _entry("user", f"Please look at this: {chance.choice(said)}")
    path = f"/home/anna/shop/src/part{chance.randrange(400)}.py"
    edit = _code(chance, said, 1_000)
    yield _entry(
        "assistant",
        [
            {"type": "text", "text": f"I change it. {chance.choice(said)}"},
            _call(f"e{number}", "Edit", file_path=path, old_string="x = 1", new_string=edit),
            _call(f"b{number}", "Bash", command=f"cd /home/anna/shop && pytest -q tests {path}"),
        ],
    )
    size = int(len(edit) * result_share / (1.0 - result_share))
    output = f"export API_TOKEN=q8Zt{number:06d}LmX2w\n" + _code(chance, said, size)
    yield _entry("user", [_result(f"e{number}", "done"), _result(f"b{number}", output)])


def _entry(role: str, content: object) -> dict[str, Any]:
    return {"type": role, "sessionId": "s", "message": {"role": role, "content": content}}


def _call(call_id: str, name: str, **given: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def _code(chance: random.Random, said: Sequence[str], size: int) -> str:
    """Return lines of code with comments, about as many characters as asked for."""
    found: list[str] = []
    left = size
    while left > 0:
        name = "".join(chance.choices("abcdefghiklmnoprstuvw", k=9))
        line = f"    {name}_{chance.randrange(99)} = load({chance.randrange(9_999)}, '{name}.json')"
        if chance.random() < 0.2:
            line += f"  # {chance.choice(said)}"
        found.append(line)
        left -= len(line) + 1
    return "\n".join(found)


# -- measuring ------------------------------------------------------------------------------


def measured(case: Case, folder: Path) -> list[Row]:
    """Measure one case in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "transcript.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines(case))
    inside = [sys.executable, "-m", "bench.evidence", "--inside", str(folder)]
    inside += ["--file"] if case.is_file else []
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name} failed: {done.stderr[-2_000:]}")
    found = json.loads(done.stdout)
    path.unlink()
    note = f"end {found['end_s']:.2f} s, digest {found['digest_bytes']:,} bytes"
    return [
        (f"{case.name}, CPU s", found["cpu_s"], case.cpu_s, note),
        (f"{case.name}, extra MB", found["memory_mb"], case.memory_mb, ""),
    ]


def inside(folder: Path, *, is_file: bool) -> dict[str, float]:
    """End a session in this process and return what that cost."""
    with Memory(folder / "meritory.db", background=False) as memory:
        texts = memories(MEMORY_COUNT)
        memory.remember_many({"content": text, "on_similar": "keep"} for text in texts)
        # The first end loads what every later one shares.
        for key in ("warm", "run"):
            session = memory.session(key, context=questions(1)[0])
            for asked in questions(PROMPT_COUNT):
                session.prompt(asked)
        memory.session("warm").end([{"role": "user", "text": texts[0]}] * 20)
        memory.drain()
        file = (folder / "transcript.jsonl").open("rb")
        found = TranscriptFile(file)
        transcript: object = found.messages() if is_file else list(found.messages())
        before_mb, began = _resident_mb(), time.process_time()
        pipeline.end(memory.services, EndRequest("run", memory.scope.user, transcript=transcript))
        end_s = time.process_time() - began
        memory.drain()
        cpu_s, memory_mb = time.process_time() - began, _peak_mb() - before_mb
        file.close()
        digest = memory.services.store.digest(memory.scope.user, "run")
        if digest is None or not decode_digest(digest).has_acts or found.skipped_count:
            raise RuntimeError("the transcript was not read")
        return {
            "cpu_s": cpu_s,
            "end_s": end_s,
            "memory_mb": memory_mb,
            "digest_bytes": len(digest),
        }


def _resident_mb() -> float:
    """Return the memory that is in use now; the peak so far where a system does not tell it."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return _peak_mb()
    return int(pages) * resource.getpagesize() / 1e6


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kilobytes elsewhere.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1_024 / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case; return 1 if a bar is missed."""
    options = _options(arguments)
    if options.inside:
        print(json.dumps(inside(options.inside, is_file=options.file)))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            rows += measured(case, Path(folder) / str(number))
    return finish(rows, options.json, {})


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("evidence.json"), help="result file")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--file", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
