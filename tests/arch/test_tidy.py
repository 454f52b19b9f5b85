"""The house rules that a machine can check, each with a planted violation that must be caught.

Parameters: at most seven, `self` and `cls` apart. Two kinds of function may have more, because
their parameters are what a person types: the front door's methods in memory.py, of which only
the parameters without a keyword default count, and click commands, whose parameters are options.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "meritory"

MODULE_LIMIT_LINES = 800
FUNCTION_LIMIT_LINES = 70
PARAMETER_LIMIT = 7
FILE_LIMIT_BYTES = 10 * 1024 * 1024
# The methods of a memory, its twin for narrow tokens, and those of mem0.
FRONT_DOORS = {"api/memory.py", "api/embedded.py", "integrations/mem0.py", "server/auth.py"}
CLICK_DECORATORS = {"command", "group", "option", "argument", "pass_context", "pass_obj"}
TEXT_ENDINGS = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".json", ".sh", ""}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
# Folders under which build machines and people keep their checkouts.
MACHINE_PATH = re.compile(
    r"(?<!\b[A-Za-z]:)(?<![\w.~$}/-])/(?:work|workspace|builds|root|Users)/[\w.-]+"
)
MUTABLE_NODES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: str) -> Iterator[Function]:
    """Every function of a module, at any depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def long_modules(source: str, name: str) -> list[str]:
    """The module, when it is too long to be read in one go."""
    count = len(source.splitlines())
    return [f"{name} has {count} lines"] if count > MODULE_LIMIT_LINES else []


def long_functions(source: str, name: str) -> list[str]:
    """Functions that do not fit on a screen, from `def` to the last line."""
    return [
        f"{name}:{node.lineno} {node.name} has {count} lines"
        for node in functions(source)
        if (count := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LIMIT_LINES
    ]


def crowded_functions(source: str, name: str) -> list[str]:
    """Functions with more parameters than a caller can keep in mind."""
    return [
        f"{name}:{node.lineno} {node.name} has {count} parameters"
        for node in functions(source)
        if (count := parameter_count(node, name)) > PARAMETER_LIMIT
    ]


def parameter_count(node: Function, name: str) -> int:
    """How many parameters count under the rule at the top of this file."""
    if any(_last_name(decorator) in CLICK_DECORATORS for decorator in node.decorator_list):
        return 0
    given = node.args
    counted = [*given.posonlyargs, *given.args]
    if counted and counted[0].arg in ("self", "cls"):
        counted = counted[1:]
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is None or name not in FRONT_DOORS:
            counted.append(argument)
    return len(counted) + (given.vararg is not None) + (given.kwarg is not None)


def _last_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(called).rpartition(".")[2]


def prints(source: str, name: str) -> list[str]:
    """Calls of print, which no program that embeds us wants to see."""
    return [
        f"{name}:{node.lineno} prints"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]


def shared_state(source: str, name: str) -> list[str]:
    """State of a module that can change: `global`, or a mutable value under a lower-case name."""
    tree = ast.parse(source)
    found = [
        f"{name}:{node.lineno} changes module state"
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_mutable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [
                f"{name}:{node.lineno} {target.id} can change"
                for target in targets
                if isinstance(target, ast.Name)
                and not target.id.isupper()
                and not target.id.startswith("__")
            ]
    return found


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return _last_name(value) in MUTABLE_CALLS
    return isinstance(value, MUTABLE_NODES)


def undocumented(source: str, name: str) -> list[str]:
    """Modules, and public classes and functions at their top, that do not say what they are."""
    tree = ast.parse(source)
    found = [] if ast.get_docstring(tree) else [f"{name} has no docstring"]
    return found + [
        f"{name}:{node.lineno} {node.name} has no docstring"
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]


def unfinished(source: str, name: str) -> list[str]:
    """Notes of work left for later: an issue is where they belong."""
    return [
        f"{name}:{number} is unfinished"
        for number, line in enumerate(source.splitlines(), start=1)
        if UNFINISHED.search(line)
    ]


def machine_paths(source: str, name: str) -> list[str]:
    """Paths that exist on one machine only: known places, this checkout, this user's home."""
    here = [str(place) for place in (ROOT, Path.home()) if len(place.parts) > 2]
    return [
        f"{name}:{number} names a path of one machine"
        for number, line in enumerate(source.splitlines(), start=1)
        if MACHINE_PATH.search(line) or any(place in line for place in here)
    ]


SOURCE_RULES: tuple[Callable[[str, str], list[str]], ...] = (
    long_modules,
    long_functions,
    crowded_functions,
    prints,
    shared_state,
    undocumented,
)
# Written in two parts, so that this file does not hold it.
FORMER_NAME = "ten" + "ure"
TEXT_RULES: tuple[Callable[[str, str], list[str]], ...] = (unfinished, machine_paths)


def too_large(files: list[Path]) -> list[str]:
    """Files that would weigh on every clone for ever."""
    return [
        f"{path} has {size} bytes"
        for path in files
        if path.is_file() and (size := path.stat().st_size) > FILE_LIMIT_BYTES
    ]


def project_files() -> list[Path]:
    """Every file that is or would be committed; without git, the folders that are shipped."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        return [ROOT / name for name in sorted(listed.stdout.decode().split("\0")) if name]
    folders = ("src", "tests", "bench", "docs", "tools", "examples")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*"))


def text_files() -> list[tuple[str, str]]:
    """Name and content of the project's text files.

    Data and licences are not ours to word, and this file plants what the rules must find.
    """
    found = []
    for path in project_files():
        apart = PACKAGE / "data" in path.parents or path.name in ("LICENSE", Path(__file__).name)
        if path.is_file() and path.suffix in TEXT_ENDINGS and not apart:
            found.append((path.relative_to(ROOT).as_posix(), path.read_text("utf-8")))
    return found


# --- the project itself ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", SOURCE_RULES, ids=lambda rule: str(rule.__name__))
def test_the_package_keeps_the_house_rules(rule: Callable[[str, str], list[str]]) -> None:
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 5
    found = [
        finding
        for path in paths
        for finding in rule(path.read_text("utf-8"), path.relative_to(PACKAGE).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: str(rule.__name__))
def test_all_text_keeps_the_house_rules(rule: Callable[[str, str], list[str]]) -> None:
    files = text_files()
    assert len(files) > 10
    assert [finding for name, text in files for finding in rule(text, name)] == []


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the class names that are defined more than once, with the modules that define them."""
    homes: dict[str, list[str]] = {}
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_a_class_name_means_one_thing() -> None:
    sources = {
        path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
        for path in PACKAGE.rglob("*.py")
    }
    assert repeated_classes(sources) == {}


def test_a_repeated_class_name_is_caught() -> None:
    sources = {"a.py": "class Plan: ...", "b.py": "class Other:\n    class Plan: ..."}
    assert repeated_classes(sources) == {"Plan": ["a.py", "b.py"]}


def uses_former_name(name: str, content: bytes) -> bool:
    """Return whether a file uses the project's former name, in its path or its content."""
    return FORMER_NAME in name.lower() or FORMER_NAME.encode() in content.lower()


def test_nothing_uses_the_former_name() -> None:
    # Its history, and the vocabulary of the embedder.
    allowed = {ROOT / "CHANGELOG.md", PACKAGE / "data" / "vocab.txt"}
    files = [path for path in project_files() if path.is_file()]
    found = {
        path for path in files if uses_former_name(str(path.relative_to(ROOT)), path.read_bytes())
    }
    assert found == allowed


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (f"docs/{FORMER_NAME}.md", b"", True),
        ("README.md", f"{FORMER_NAME.title()} keeps".encode(), True),
        ("README.md", f"{FORMER_NAME.upper()}_HOME".encode(), True),
        ("README.md", b"Meritory keeps", False),
    ],
)
def test_the_former_name_is_found(name: str, content: bytes, expected: bool) -> None:
    assert uses_former_name(name, content) is expected


def test_no_large_file_is_committed() -> None:
    assert too_large(project_files()) == []


def test_the_lock_names_packages_and_no_place_to_get_them() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9._-]+==[0-9][\w.+!]*", line)] == []


# --- planted violations ----------------------------------------------------------------------


def test_a_long_module_is_caught() -> None:
    assert long_modules("x = 1\n" * 800, "m.py") == []
    assert long_modules("x = 1\n" * 801, "m.py") == ["m.py has 801 lines"]


def test_a_long_function_is_caught_at_any_depth() -> None:
    fits = "def f():\n" + "    x = 1\n" * 69
    assert long_functions(fits, "m.py") == []
    assert long_functions(fits + "    x = 1\n", "m.py") == ["m.py:1 f has 71 lines"]
    method = "class C:\n    async def g(self):\n" + "        x = 1\n" * 70
    assert long_functions(method, "m.py") == ["m.py:2 g has 71 lines"]


@pytest.mark.parametrize(
    ("source", "name", "caught"),
    [
        ("def f(x, y, a, b, c, d, e): ...", "m.py", False),
        ("def f(x, y, a, b, c, d, e, f): ...", "m.py", True),
        ("def f(x, y, a, b, /, c, *, d, e, f=1): ...", "m.py", True),
        ("def f(x, y, a, b, c, d, *rest, **more): ...", "m.py", True),
        ("class C:\n    def f(self, x, y, a, b, c, d, e): ...", "m.py", False),
        ("class C:\n    def f(self, x, y, a, b, c, d, e, g): ...", "m.py", True),
        ("def f(a, *, x=1, y=1, b=1, c=1, d=1, e=1, f=1): ...", "api/memory.py", False),
        ("def f(a, *, x, y, b, c, d, e, f): ...", "api/memory.py", True),
        ("def f(x, y, a, b=1, c=1, d=1, e=1, f=1): ...", "api/memory.py", True),
        ("@click.command()\ndef f(x, y, a, b, c, d, e, f, g): ...", "cli/m.py", False),
        (
            "@app.command('x')\n@click.option('-a')\ndef f(x, y, a, b, c, d, e, f): ...",
            "cli/m.py",
            False,
        ),
        ("@cached\ndef f(x, y, a, b, c, d, e, f): ...", "cli/m.py", True),
    ],
)
def test_a_crowded_function_is_caught(source: str, name: str, caught: bool) -> None:
    assert bool(crowded_functions(source, name)) is caught


def test_a_print_is_caught() -> None:
    assert prints("def f():\n    print('x')", "m.py") == ["m.py:2 prints"]
    assert prints("console.print('x')\nfingerprint(1)", "m.py") == []


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("cache = {}", True),
        ("_seen: set[str] = set()", True),
        ("counts = collections.defaultdict(int)", True),
        ("def f():\n    global x\n    x = 1", True),
        ("TABLE = {'a': 1}", False),
        ("_TABLE: dict[str, int] = {}", False),
        ("__all__ = ['a']", False),
        ("pair = (1, 2)", False),
        ("def f():\n    local = []", False),
    ],
)
def test_shared_state_is_caught(source: str, caught: bool) -> None:
    assert bool(shared_state(source, "m.py")) is caught


def test_a_missing_docstring_is_caught() -> None:
    assert undocumented("def f(): ...\nclass C: ...\ndef _g(): ...", "m.py") == [
        "m.py has no docstring",
        "m.py:1 f has no docstring",
        "m.py:2 C has no docstring",
    ]
    assert undocumented('"""M."""\ndef f():\n    """F."""', "m.py") == []


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_an_unfinished_note_is_caught(word: str) -> None:
    assert unfinished(f"a\nb  # {word}: later", "m.py") == ["m.py:2 is unfinished"]
    assert unfinished(f"{word}S and auto{word.lower()}", "m.py") == []


# Put together here, so that this file does not name it itself.
FOLDER = "/".join(("", "work", ""))


@pytest.mark.parametrize(
    ("line", "caught"),
    [
        (f"see {FOLDER}notes.txt", True),
        ("'/root/.cache/x'", True),
        ("/Users/ann/x", True),
        (str(ROOT / "x"), True),
        (f"https://example.org{FOLDER}notes", False),
        (f"~{FOLDER}notes and $HOME{FOLDER}notes", False),
        ("a framework/root/branch", False),
        (f"C:{FOLDER}notes.txt", False),
        (f"path:{FOLDER}notes.txt", True),
        ("/home/ann/project/x.py", False),
    ],
)
def test_a_machine_path_is_caught(line: str, caught: bool) -> None:
    assert bool(machine_paths(line, "m.md")) is caught


def test_a_large_file_is_caught(tmp_path: Path) -> None:
    fits, heavy = tmp_path / "fits", tmp_path / "heavy"
    for path, size in ((fits, FILE_LIMIT_BYTES), (heavy, FILE_LIMIT_BYTES + 1)):
        with path.open("wb") as file:
            file.truncate(size)
    assert too_large([fits, heavy]) == [f"{heavy} has {FILE_LIMIT_BYTES + 1} bytes"]
