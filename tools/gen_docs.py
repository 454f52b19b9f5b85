"""Writes the reference pages that are made from the code; `--check` only says which are stale."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click
import msgspec

from meritory.cli.app import APP, SECTIONS
from meritory.connect.desired import CAMEL_EVENTS, COMMON_EVENTS, HookShape, harness_modules
from meritory.server.app import TABLE
from meritory.server.openapi import document
from meritory.settings import SETTINGS, Setting, show

ROOT = Path(__file__).resolve().parents[1]
MADE_BY = "<!-- Made by tools/gen_docs.py: change the code, then run it again. -->"


def settings_page() -> str:
    """The reference of all settings."""
    lines = [
        MADE_BY,
        "# Settings",
        "",
        "A value comes from the strongest source that names it: a flag, else the environment,",
        "else `config.toml` in the data folder, else the default. The data folder is",
        "`$MERITORY_HOME`, or `~/.meritory`; it is private (mode 700). `meritory config show`",
        "prints every value with where it came from. An unknown name is an error, an empty",
        "variable counts as not set, and `MERITORY_BENCH_*` and `MERITORY_TEST_*` are left alone.",
        "",
        "```toml",
        "# $MERITORY_HOME/config.toml, with every default",
        *_example(),
        "```",
        "",
        "| setting | variable | value | default | what it does |",
        "|---|---|---|---|---|",
        *(_row(setting) for setting in SETTINGS),
    ]
    return "\n".join(lines) + "\n"


def _row(setting: Setting) -> str:
    default = show(setting, setting.default)
    cells = (
        f"`{setting.name}`",
        f"`{setting.variable}`",
        setting.expects + (" (secret: never shown)" if setting.secret else ""),
        f"`{default}`" if default else "empty",
        setting.help,
    )
    return "| " + " | ".join(cells) + " |"


def _example() -> list[str]:
    lines: list[str] = []
    table = ""
    for setting in SETTINGS:
        group, _, key = setting.name.rpartition(".")
        if group != table:
            lines += ["", f"[{group}]"]
            table = group
        text = show(setting, setting.default)
        quoted = setting.default is None or isinstance(setting.default, str)
        lines.append(f'{key} = "{text}"' if quoted else f"{key} = {text}")
    return lines


CLI_INTRO = """# Command line

`meritory COMMAND --help` says the same, and `meritory completion bash|zsh|fish` prints what a shell
needs to complete commands, options and their choices.

**Scope.** Memories belong to a user. Without `--project` only memories of no project are seen;
with it, those of that project too. When that finds nothing and other projects have memories, one
line says so.

**Ids.** On a terminal an id is as short as still names one memory; in a pipe and in JSON it is
whole. The first characters, 4 or more, are enough wherever an id is asked for.

**JSON.** With `--json`, before or after the command, there is exactly one object on stdout, and
nothing on stderr but a question that must be answered and the progress bar of a terminal. Lists
are under `results`, each item with its `id`; remarks are under `notes`. It is plain ASCII. When a
command failed, the object is `{"error": {"code": ..., "message": ..., "hint": ...}}`; without
`--json` the same is said on stderr, as `error:` and `hint:`.

| exit code | meaning |
|---|---|
| 0 | done; to find nothing is no failure |
| 1 | failed: no such memory, a damaged store, a line that an import refused, a check of `doctor` |
| 2 | wrong use: an argument, a file or a setting cannot be accepted, and nothing was done |
| 130 | interrupted |
| 141 | whoever read the output left |

A memory's text is shown with control characters, colours and direction marks written out, so that
it cannot steer a terminal. `NO_COLOR=1` or `--no-color` switches colours off. `MERITORY_DEBUG=1`
adds a traceback to an error.

## Options of every command
"""


def cli_page() -> str:
    """The reference of all commands."""
    root = click.Context(APP, info_name="meritory", **APP.context_settings)
    lines = [MADE_BY, CLI_INTRO, *_options(APP.params, everywhere=True)]
    for title, section in SECTIONS:
        lines += ["", f"## {title}"]
        for entry in section:
            found = APP.get_command(root, entry.name)
            if found is not None:
                lines += _command(
                    found, click.Context(found, root, entry.name, **APP.context_settings)
                )
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context) -> list[str]:
    """The section of a command, those of its own commands after it."""
    usage = " ".join(
        [context.command_path, *(_argument(p) for p in command.params if _is_argument(p))]
    )
    paragraphs = (command.help or "").split("\n\n")
    example = (command.epilog or "").replace("\b", "").strip().removeprefix("Example:")
    lines = ["", f"### {usage}", ""]
    lines += ["\n\n".join(" ".join(text.split()) for text in paragraphs), ""]
    options = _options(command.params, everywhere=False)
    lines += [*options, ""] if options else []
    lines += ["```sh", *(line.strip() for line in example.strip().splitlines()), "```"]
    if isinstance(command, click.Group):
        for name in dict.fromkeys([*command.commands, *command.list_commands(context)]):
            inner = command.get_command(context, name)
            assert inner is not None
            lines += _command(inner, click.Context(inner, context, name, **APP.context_settings))
    return lines


def _is_argument(param: click.Parameter) -> bool:
    return isinstance(param, click.Argument)


def _argument(param: click.Parameter) -> str:
    if isinstance(param.type, click.Choice):
        return "|".join(map(str, param.type.choices))
    name = param.metavar or str(param.name).upper()
    return name if param.required else f"[{name}]"


def _options(params: list[click.Parameter], *, everywhere: bool) -> list[str]:
    rows = [
        f"| `{_written(param)}` | {(param.help or '').replace('  [', ' [')} |"
        for param in params
        if isinstance(param, click.Option)
        and not param.hidden
        and (everywhere or param.name != "as_json")
    ]
    return ["| option | meaning |", "|---|---|", *rows] if rows else []


def _written(option: click.Option) -> str:
    names = ", ".join(option.opts) + "".join(f" / {other}" for other in option.secondary_opts)
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} " + "\\|".join(map(str, option.type.choices))
    return f"{names} {option.metavar or option.type.name.split()[0].upper()}"


HTTP_INTRO = """# HTTP

What the daemon answers; [how it is run](../operations/daemon.md). `GET /openapi.json` has the same
with every field, as OpenAPI. Bodies and replies are JSON, lists are under `results`.

**Who may.** On the Unix socket: the user who started the daemon. Over TCP: whoever sends
`Authorization: Bearer TOKEN`, the token being in the file `token` of the data folder; `health`
needs none. A browser that came in by a [one-time link](../operations/dashboard.md) has a cookie
instead, for reads, writes and what its pages offer; `login` is that link.

**Scope.** `user`, `agent` and `project` stand in the body of a POST, else in the query string. A
request that names neither agent nor project may name any memory of the user by its id; one that
names them keeps to what they see.

**Errors** are `application/problem+json`: `type`, `title`, `status`, `detail`, `code`, `hint` (when
there is something to do about it) and `request_id`, which is in the log too.

| status | when |
|---|---|
| 400 | not HTTP, not JSON, a key given twice, a token in the address |
| 401, 403 | no right token; a foreign name in Host, a foreign web page |
| 404, 405 | no such path or memory in this scope; not with this method |
| 408, 413, 415, 431 | the body is too slow, too large (2 MB), not JSON; the head is over 32 kB |
| 409 | the present state does not allow it |
| 422 | a field is missing, unknown or cannot be accepted |
| 429 | too many requests a second, or 20 wrong tokens in a minute |
| 503 | more is under way than the daemon takes on, or the store is busy; `Retry-After` says when |
| 507 | the disk is full; nothing was stored and nothing lost |
"""


def http_page() -> str:
    """The reference of all routes."""
    lines = [MADE_BY, HTTP_INTRO]
    lines += ["| route | class | what it does | takes |", "|---|---|---|---|"]
    for route in TABLE:
        path = re.sub(r":\w+}", "}", route.path)
        parts = [_taken(kind) for kind in (route.body, route.query) if kind is not None]
        taken = "; in the query: ".join(filter(None, parts))
        cells = (f"`{route.method} {path}`", route.access, route.summary, taken)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _taken(kind: type[msgspec.Struct] | type[bytes]) -> str:
    """The fields of a request, those that must be given in bold."""
    if kind is bytes:
        return "a message of its own protocol"
    found = msgspec.structs.fields(kind)
    return ", ".join(f"**{field.name}**" if field.required else field.name for field in found)


def openapi_page() -> str:
    """The description of all routes and their types, as the daemon serves it."""
    return json.dumps(document(TABLE), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


HOOK_SHAPES = "src/meritory/hook/shapes.py"
HOOK_MARK = "# Made by tools/gen_docs.py from connect/*.py"


def hook_shapes() -> str:
    """The hook's table of clients: the hook is run without this package and cannot import it."""
    shapes = {one.NAME: one.HOOK for one in harness_modules() if one.HOOK is not None}
    default = HookShape({})
    tables = {"_COMMON": COMMON_EVENTS, "_CAMEL": CAMEL_EVENTS}
    rows = []
    for name, shape in shapes.items():
        given = (field.name for field in fields(shape) if field.name not in ("events", "guesses"))
        more = [
            f"{key}={getattr(shape, key)!r}"
            for key in given
            if getattr(shape, key) != getattr(default, key)
        ]
        events = {**shape.events}
        shared = [table for table, named in tables.items() if named.items() <= events.items()]
        own = {k: v for k, v in events.items() if not any(k in tables[table] for table in shared)}
        spread = "".join(f"**{table}, " for table in shared) + repr(own)[1:-1]
        alone = shared[0] if len(shared) == 1 and not own else f"{{{spread}}}"
        rows.append(f"{name!r}: Harness({', '.join([alone, *more])}),")
    guesses = {key: event for shape in shapes.values() for key, event in shape.guesses.items()}
    common = "".join(f"{table} = {named!r}\n" for table, named in tables.items())
    made = f"{common}HARNESSES = {{{''.join(rows)}}}\nGUESSES = {guesses!r}\n"
    before, _, rest = (ROOT / HOOK_SHAPES).read_text("utf-8").partition(f"{HOOK_MARK}: begin\n")
    after = rest.partition(f"{HOOK_MARK}: end\n")[2]
    text = f"{before}{HOOK_MARK}: begin\n{made}{HOOK_MARK}: end\n{after}"
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", HOOK_SHAPES]
    done = subprocess.run(
        [*ruff, "-"], input=text, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


PAGES: dict[str, Callable[[], str]] = {
    HOOK_SHAPES: hook_shapes,
    "docs/reference/settings.md": settings_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/http.md": http_page,
    "docs/reference/openapi.json": openapi_page,
}


def stale_pages(root: Path) -> list[str]:
    """The pages that differ from what the code says now."""
    return [
        name
        for name, make in PAGES.items()
        if not (root / name).is_file() or (root / name).read_text("utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Writes the stale pages, or with `--check` fails when there are any."""
    stale = stale_pages(ROOT)
    for name in stale:
        print("stale:" if "--check" in arguments else "written:", name)
        if "--check" not in arguments:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(PAGES[name](), "utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
