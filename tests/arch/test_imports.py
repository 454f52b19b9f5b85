"""Who may import whom: imports point down only, and the pure parts touch nothing outside.

Every checker is a function over source text; each is shown a planted violation that it must catch.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "meritory"

Check = Callable[[str, str], list[str]]

PURE = {"rank", "text"}
BELOW_ENGINE = {"domain", "store", "model", "ports"} | PURE
SURFACES = {"cli", "server", "mcp", "connect", "integrations", "demo", "hook"}
# The table: what each part of the package may import besides itself. A new part needs a row here
# and a reason in docs/decisions. Only surfaces and the public interface read settings; the others
# are handed values. Surfaces never import the store.
ALLOWED: dict[str, set[str]] = {
    "domain": set(),
    "settings": {"domain"},
    "rank": {"domain"},
    "text": {"domain"},
    "store": {"domain"} | PURE,
    "model": {"domain", "rank"},
    "ports": {"domain", "model"} | PURE,
    "engine": BELOW_ENGINE,
    "sidecar": BELOW_ENGINE | {"engine"},
    "api": BELOW_ENGINE | {"engine", "settings"},
    # Run for every prompt of an agent, without site-packages: standard library only.
    "hook": set(),
    "connect": {"domain", "settings", "text"},
    "mcp": {"api", "domain", "hook", "settings", "__init__"},
    "integrations": {"api", "domain", "text", "__init__"},
    "demo": {"api", "domain", "settings"},
    "server": {"api", "connect", "domain", "engine", "mcp", "ports", "settings", "__init__"} | PURE,
    "cli": {"api", "domain", "engine", "ports", "settings", "server", "demo", "hook", "mcp"}
    | {"connect", "__init__"}
    | PURE,
    # Evaluation may use everything; nothing may use it.
    "lab": BELOW_ENGINE | {"engine", "api", "settings", "cli"},
    "__init__": {"domain", "engine", "api"},
    "__main__": {"cli"},
}
# The stores themselves, and the tools that only stores may hold in their hands.
DATABASE_MODULES = {"sqlite3", "apsw", "psycopg"}

# What pure code may import: a list of what is allowed, so that a new way out is noticed.
PURE_IMPORTS = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "itertools",
    "json",
    "math",
    "numpy",
    "operator",
    "re",
    "shlex",
    "string",
    "typing",
    "unicodedata",
    "zlib",
}
# The one pure module that reads files: the word lists in the package's own data/language.
DATA_READER = "text/language.py"
DATA_IMPORTS = {"pkgutil", "tomllib"}
IMPURE_CALLS = {"open", "input", "exec", "eval", "__import__"}
IMPURE_ATTRIBUTES = {"now", "utcnow", "today", "random", "load", "save", "savez", "fromfile"}
IMPURE_ATTRIBUTES |= {"memmap", "tofile", "loadtxt", "savetxt", "genfromtxt"}

# A broad except is right only where every error must be turned into something else.
BROAD = {"Exception", "BaseException"}
EDGES = {
    "cli": {"main": "turns what is unforeseen into a message and an exit code"},
    "engine/feedback/capture.py": {"_attempt": "a step after a report never fails the report"},
    "engine/rules/guard.py": {"check": "an agent is never held up by its guard's own trouble"},
    "server/spool.py": {"take": "a kept event must not stop the daemon's upkeep"},
    "engine/jobs/runner.py": {
        "_run": "parks a job that failed in an unforeseen way, with the error",
        "_serve": "outlives every error, for other jobs wait behind it",
    },
    "server/app.py": {"__call__": "turns what is unforeseen into a problem without internals"},
    "sidecar/requests.py": {
        "_answer": "answers what is unforeseen as an error, and serves the next"
    },
    "mcp/stdio.py": {"_work": "answers what is unforeseen as an error, and serves the next"},
    "store/sqlite/engine.py": {
        "_commit": "hands every error to the caller who waits for the write"
    },
}


def modules() -> list[Path]:
    """Every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def label(path: Path) -> str:
    """The path of a module inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def part_of(name: str) -> str:
    """The part of the package that a module belongs to: its folder, or its own name."""
    return name.split("/")[0].removesuffix(".py")


def imported(source: str, name: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a module imports, at any depth, relative or not."""
    package = ["meritory", *name.split("/")[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            lead = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*lead, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def target_part(dotted: str) -> str | None:
    """The part of the package that an imported name lies in, None for foreign names."""
    words = dotted.split(".")
    if words[0] != "meritory":
        return None
    if len(words) > 1 and (words[1] in ALLOWED or words[1] in own_parts()):
        return words[1]
    return "__init__"


def own_parts() -> set[str]:
    """The parts of the package there are."""
    return {part_of(label(path)) for path in modules()}


def wrong_edges(source: str, name: str) -> list[str]:
    """Imports that the table does not allow."""
    part = part_of(name)
    return [
        f"{name}:{line} imports {dotted}"
        for line, dotted in imported(source, name)
        if (target := target_part(dotted)) is not None
        and target != part
        and target not in ALLOWED.get(part, set())
    ]


def impurities(source: str, name: str) -> list[str]:
    """Ways in which a pure module could reach the clock, chance, files or the environment."""
    allowed = PURE_IMPORTS | {"meritory"} | (DATA_IMPORTS if name == DATA_READER else set())
    found = [
        f"{name}:{line} imports {dotted}"
        for line, dotted in imported(source, name)
        if dotted.split(".")[0] not in allowed
    ]
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    # The type of a generator that the caller hands in; nothing is drawn from thin air.
    handed_in = {id(node.value) for node in attributes if node.attr == "Generator"}
    found += [
        f"{name}:{node.lineno} uses {ast.unparse(node)}"
        for node in attributes
        if node.attr in IMPURE_ATTRIBUTES and id(node) not in handed_in
    ]
    found += [
        f"{name}:{node.lineno} uses {node.id}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and node.id in IMPURE_CALLS
    ]
    return found


def database_imports(source: str, name: str) -> list[str]:
    """Imports of a database driver outside the stores."""
    return [
        f"{name}:{line} imports {dotted}"
        for line, dotted in imported(source, name)
        if dotted.split(".")[0] in DATABASE_MODULES and part_of(name) != "store"
    ]


def unprepared_types(source: str, name: str) -> list[str]:
    """Calls of msgspec that may describe a type in two threads at once (domain/codec.py)."""
    found = []
    tree = ast.parse(source)
    ready = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("prepared(")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := ast.unparse(node.func)).startswith("msgspec."):
            types = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            types += node.args[1:2] if called == "msgspec.convert" else []
            names = [ast.unparse(kind) for kind in types]
            if any(not name.startswith("prepared(") and name not in ready for name in names):
                found.append(f"{name}:{node.lineno} uses {ast.unparse(node)}")
    return found


def broad_excepts(source: str, name: str) -> list[str]:
    """Handlers that swallow what they do not know, outside the listed edges.

    `except BaseException` that ends in a bare `raise` only tidies up and is allowed anywhere.
    """
    found: list[str] = []
    edges = EDGES.get(name, EDGES.get(part_of(name), {}))

    def visit(node: ast.AST, functions: tuple[str, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions = (*functions, node.name)
        if _swallows(node) and not set(functions) & set(edges):
            found.append(f"{name}:{getattr(node, 'lineno', 0)} catches everything")
        for child in ast.iter_child_nodes(node):
            visit(child, functions)

    visit(ast.parse(source), ())
    return found


def _swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        names = {"BaseException"} if node.type is None else _names(node.type)
        last = node.body[-1]
        tidies = isinstance(last, ast.Raise) and last.exc is None and "Exception" not in names
        return bool(names & BROAD) and not (tidies and node.type is not None)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return any(_names(argument) & BROAD for argument in node.args)
    return False


def _names(node: ast.expr) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def eager_imports(source: str, name: str, heavy: set[str]) -> list[str]:
    """Imports of heavy packages that run as soon as the module is loaded."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return [
        f"{name}:{line} imports {dotted}"
        for line, dotted in imported(ast.unparse(tree), name)
        if dotted.split(".")[0] in heavy
    ]


# --- the package itself ----------------------------------------------------------------------


def test_every_part_of_the_package_has_a_row_in_the_table() -> None:
    assert own_parts() <= set(ALLOWED), "add a row to ALLOWED, and say why in docs/decisions"


def test_the_table_has_no_circles() -> None:
    """Following the arrows from any part never leads back to it."""
    for start in ALLOWED:
        seen: set[str] = set()
        todo = list(ALLOWED[start])
        while todo:
            part = todo.pop()
            if part not in seen:
                seen.add(part)
                todo += ALLOWED[part]
        assert start not in seen, start


def test_surfaces_never_import_the_store_and_nothing_imports_the_lab() -> None:
    assert not [part for part in SURFACES if "store" in ALLOWED[part]]
    assert not [part for part, allowed in ALLOWED.items() if "lab" in allowed]


def offenders(
    check: Callable[[str, str], list[str]], paths: Iterable[Path]
) -> dict[str, list[str]]:
    """Return by file what a check finds in it."""
    found = {label(path): check(path.read_text("utf-8"), label(path)) for path in paths}
    return {name: faults for name, faults in found.items() if faults}


def test_imports_point_down_only() -> None:
    assert offenders(wrong_edges, modules()) == {}


def test_rank_and_text_are_pure() -> None:
    pure = [path for path in modules() if part_of(label(path)) in PURE]
    assert pure
    assert offenders(impurities, pure) == {}


def test_only_stores_know_the_database() -> None:
    assert offenders(database_imports, modules()) == {}


def test_every_type_is_described_by_one_thread_at_a_time() -> None:
    # The application prepares the types of its routes; a checkpoint's are built in.
    exempt = {"server/app.py", "model/checkpoint.py"}
    found = offenders(unprepared_types, modules())
    assert {name: faults for name, faults in found.items() if name not in exempt} == {}


def test_nothing_swallows_unknown_errors() -> None:
    assert offenders(broad_excepts, modules()) == {}


@pytest.mark.parametrize("name", ["__init__.py", "cli/__init__.py"])
def test_the_front_doors_load_nothing_heavy(name: str) -> None:
    assert (
        eager_imports((PACKAGE / name).read_text("utf-8"), name, {"numpy", "rich", "sqlite3"}) == []
    )


@pytest.mark.parametrize(
    "name", ["meritory", "meritory.cli", "meritory.settings", "meritory.domain.memory"]
)
def test_importing_a_front_door_loads_neither_numpy_nor_sqlite_nor_rich(name: str) -> None:
    code = f"import json, sys, {name}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(json.loads(done.stdout))
    assert name in loaded
    assert not loaded & {"numpy", "sqlite3", "rich", "psycopg"}


# --- planted violations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("rank/x.py", "from meritory.store import base"),
        ("rank/x.py", "import meritory.settings"),
        ("rank/x.py", "from meritory import engine"),
        ("rank/x.py", "from .. import engine"),
        ("rank/x.py", "from ..engine.write import remember"),
        ("text/deep/x.py", "from ...store import base"),
        ("rank/x.py", "def f():\n    from meritory.api.memory import Memory"),
        ("rank/x.py", "def f():\n    import_module('meritory.api.memory')"),
        ("rank/x.py", "import importlib\nimportlib.import_module('meritory.cli.app')"),
        ("store/x.py", "if TYPE_CHECKING:\n    from meritory.engine.memories.recall import Recall"),
        ("store/x.py", "from meritory.ports.embedder import Embedder"),
        ("engine/x.py", "from meritory.settings import Settings"),
        ("engine/x.py", "from meritory.api.memory import Memory"),
        ("engine/x.py", "from meritory import Memory"),
        ("api/memory.py", "from meritory.cli import main"),
        ("domain/x.py", "from meritory.rank.labels import Label"),
        ("cli/x.py", "from meritory.store.sqlite.backup import restore"),
        ("server/x.py", "from meritory.store.contract.store import Store"),
        ("engine/x.py", "from meritory.lab.probes import Probe"),
        ("cli/x.py", "def f():\n    from meritory.lab.cli import run"),
        ("unheard_of/x.py", "from meritory.domain.session import Scope"),
    ],
)
def test_a_wrong_edge_is_caught(name: str, source: str) -> None:
    assert len(wrong_edges(source, name)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("rank/x.py", "from meritory.rank.composite import recency"),
        ("rank/x.py", "from .scores import recency"),
        ("rank/x.py", "from ..domain import memory\nimport numpy"),
        ("engine/x.py", "from meritory.store.contract.store import Store"),
        ("cli/x.py", "from meritory import __version__"),
        ("api/memory.py", "from meritory.settings import load_settings"),
    ],
)
def test_a_right_edge_is_let_through(name: str, source: str) -> None:
    assert wrong_edges(source, name) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import time",
        "import random",
        "import secrets",
        "import sqlite3",
        "from pathlib import Path",
        "def f():\n    from os import environ",
        "from datetime import datetime\nx = datetime.now()",
        "from datetime import date\nx = date.today()",
        "import numpy as np\nx = np.random.default_rng()",
        "import numpy as np\nx = np.load('a')",
        "x = open('a')",
        "f = open",
        "import threading",
        "from pkgutil import get_data",
    ],
)
def test_an_impurity_is_caught(source: str) -> None:
    assert len(impurities(source, "rank/x.py")) == 1


def test_only_the_reader_of_word_lists_may_read_package_data() -> None:
    source = "from pkgutil import get_data\nimport tomllib\n"
    assert impurities(source, DATA_READER) == []
    assert len(impurities(source, "text/words.py")) == 2
    assert len(impurities("from pathlib import Path", DATA_READER)) == 1


def test_a_pure_module_is_let_through() -> None:
    source = "import math\nimport numpy as np\nfrom datetime import UTC, datetime\n"
    source += "def f(rng: np.random.Generator) -> float:\n    return rng.integers(3) * math.pi\n"
    assert impurities(source, "rank/x.py") == []


@pytest.mark.parametrize("source", ["import sqlite3", "def f():\n    from apsw import Connection"])
def test_a_database_outside_the_stores_is_caught(source: str) -> None:
    assert len(database_imports(source, "engine/x.py")) == 1
    assert database_imports(source, "store/x.py") == []


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception:\n    pass",
        "except Exception as error:\n    raise",
        "except:\n    raise",
        "except BaseException:\n    pass",
        "except (ValueError, Exception):\n    pass",
        "except BaseException as error:\n    raise ValueError from error",
    ],
)
def test_a_broad_except_is_caught(handler: str) -> None:
    source = f"try:\n    f()\n{handler}\n"
    assert len(broad_excepts(source, "engine/x.py")) == 1
    assert len(broad_excepts(source, "cli/app.py")) == 1
    inside = "def main():\n" + "".join(f"    {line}\n" for line in source.splitlines())
    assert broad_excepts(inside, "cli/app.py") == []
    assert len(broad_excepts(inside, "engine/x.py")) == 1


@pytest.mark.parametrize(
    ("source", "is_caught"),
    [
        ("msgspec.convert(value, Memory)", True),
        ("msgspec.json.decode(raw, type=list[Memory])", True),
        ("msgspec.convert(value, prepared(Memory), strict=True)", False),
        ("msgspec.json.decode(raw, type=prepared(kind))", False),
        ("msgspec.json.decode(raw)", False),
        ("KIND = prepared(Memory)\nmsgspec.convert(value, KIND)", False),
    ],
)
def test_a_type_that_is_not_prepared_is_caught(source: str, is_caught: bool) -> None:
    assert bool(unprepared_types(source, "api/x.py")) is is_caught


def test_a_broad_suppress_is_caught_and_a_tidy_reraise_is_not() -> None:
    assert len(broad_excepts("with contextlib.suppress(Exception):\n    f()", "engine/x.py")) == 1
    assert broad_excepts("with contextlib.suppress(OSError):\n    f()", "engine/x.py") == []
    tidy = "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n"
    assert broad_excepts(tidy, "store/x.py") == []


def test_an_eager_import_is_caught_and_a_lazy_one_is_not() -> None:
    heavy = {"numpy"}
    for source in ("import numpy", "try:\n    from numpy import array\nexcept ImportError: ..."):
        assert len(eager_imports(source, "__init__.py", heavy)) == 1
    assert eager_imports("def f():\n    import numpy", "__init__.py", heavy) == []
