"""Files as users have them, for every file of every harness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from meritory.connect.desired import Document, Item, Member, Word
from meritory.connect.json_edit import first_loose

BOM = "\ufeff"
# What every JSON file may look like, whoever reads it.
PLAIN = {
    "empty": "",
    "a line break": "\n",
    "only a mark": BOM,
    "braces": "{}",
    "braces and a line break": "{}\n",
    "braces apart": "{ }\n",
    "braces on two lines": "{\n}\n",
    "braces around a remark": "{\n  // nothing yet\n}\n",
    "minified": '{"theme":"dark","n":[1,2,3],"deep":{"a":{"b":[]}}}',
    "two spaces": '{\n  "theme": "dark",\n  "list": [\n    1,\n    2\n  ]\n}\n',
    "four spaces": '{\n    "theme": "dark",\n    "list": [1, 2]\n}\n',
    "three spaces and no end": '{\n   "theme": "dark"\n}',
    "tabs": '{\n\t"theme": "dark",\n\t"deep": {\n\t\t"a": null\n\t}\n}\n',
    "windows": '{\r\n  "theme": "dark",\r\n  "n": -1.5e3\r\n}\r\n',
    "windows with a mark": BOM + '{\r\n\t"theme": "dark"\r\n}',
    "many line breaks at the end": '{\n  "theme": "dark"\n}\n\n\n',
    "remarks": (
        "// mine\n{\n  /* several\n     lines */\n"
        '  "theme": "dark", // why not\n  "last": true // no comma here\n  // the end\n}\n// bye\n'
    ),
    "trailing commas": '{\n  "theme": "dark",\n  "list": [\n    1,\n  ],\n}\n',
    "trailing comma and a remark": '{\n  "theme": "dark", // really the last\n}\n',
    "odd indents": '{\n "theme":\n      "dark"\n,"x" : [ ]\n   , "y":{ }\n      }\n',
    "brace on the same line": '{ "theme": "dark",\n  "y": 1 }\n',
    "languages": '{\n  "имя": "Grüße, 世界 \\u00e9 🎉",\n  "\\u0068i": "a\\"b\\\\"\n}\n',
    "looks like ours in a text": '{"note": "meritory hook --harness claude-code", "x": "hooks"}\n',
    "slashes in texts": '{"url": "https://example.org/*x*/ // no remark"}\n',
}
FIVE = {
    "names without quotes": "{\n  gateway: { port: 18789 },\n  $x: 'it is' ,\n}\n",
    "single quotes": "{ 'a': 'say \"hi\"', b: +1, c: .5, d: 0x1F, e: Infinity, }\n",
}
TOML = {
    "empty": "",
    "a line break": "\n",
    "keys": 'model = "o9"\napproval_policy = "never"\n',
    "no line break at the end": 'model = "o9"',
    "remarks": '# mine\nmodel = "o9" # yes\n\n# the end\n',
    "tables": '[projects."/home/ann/x"]\ntrust_level = "trusted"\n',
    "windows": 'model = "o9"\r\n\r\n[tui]\r\nnotifications = true\r\n',
    "other servers": '[mcp_servers.github]\ncommand = "gh-mcp"\nargs = ["x"]\n\n'
    '[mcp_servers.github.env]\nA = "b"\n',
    "dotted servers": 'mcp_servers.github.command = "gh-mcp"\n',
    "blank lines at the end": 'model = "o9"\n\n\n',
    "mark": BOM + 'model = "o9"\n',
    "text of several lines": 'x = """\n[mcp_servers.meritory]\ncommand = "no"\n"""\n',
    "arrays of tables": "[[hooks.Stop]]\n"
    '[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "say x"\n',
    "languages": '"имя" = "Grüße 世界 🎉"\n',
    "a foreign meritory": '[mcp_servers.meritory]\ncommand = "npx"\nargs = ["other-meritory"]\n',
}


def user_files(document: Document) -> dict[str, str]:
    """Texts that a user may have in the place of a document, by what is special about them."""
    if document.syntax == "text":
        return {"another's plugin": "export const X = async () => ({});\n", "empty": ""}
    if document.syntax == "toml":
        return TOML
    found = dict(PLAIN)
    if document.syntax == "json5":
        found |= FIVE
    for name, value in _occupied(document):
        for style, text in _styles(value):
            found[f"{name}, {style}"] = text
    return {name: text for name, text in found.items() if not first_loose(text, document.refused)}


def _occupied(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Values in which others are already where we want to be."""
    yield "others' entries", _filled(document, foreign_meritory=False)
    if any(isinstance(wish, Member) for wish in document.wishes):
        yield "a foreign meritory", _filled(document, foreign_meritory=True)
    bare: dict[str, Any] = {"theme": "dark"}
    for wish in document.wishes:
        _at(bare, wish.path[:-1])
    yield "empty containers", bare


def _filled(document: Document, *, foreign_meritory: bool) -> dict[str, Any]:
    value: dict[str, Any] = {"model": "best", "env": {"KEY": "v"}}
    for wish in document.wishes:
        owner = _at(value, wish.path[:-1])
        name = wish.path[-1]
        if isinstance(wish, Item):
            is_group = "hooks" in wish.value
            hook = {"type": "command", "command": "notify-send 'fertig – 完'", "timeout": 9}
            group = {"matcher": "*", "hooks": [hook, {**hook, "command": "true"}]}
            owner[name] = [group if is_group else hook]
        elif isinstance(wish, Word):
            owner[name] = ["Bash(ls:*)", "other"]
        elif isinstance(wish, Member):
            owner["github"] = {"command": "gh-mcp", "args": ["--stdio"]}
            if foreign_meritory:
                owner[name] = {"command": "npx", "args": ["somebody-elses-meritory", "mcp"]}
        elif wish.is_frame:
            owner[name] = wish.value
        else:
            owner["~/other-hooks"] = True
    value["after"] = [{"z": 1}]
    return value


def _at(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        value = value.setdefault(name, {})
    return value


def _styles(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    two = json.dumps(value, indent=2, ensure_ascii=False)
    yield "two spaces", two + "\n"
    yield "minified", json.dumps(value, separators=(",", ":"))
    yield "on one line", json.dumps(value) + "\n"
    yield "tabs, windows", json.dumps(value, indent="\t").replace("\n", "\r\n") + "\r\n"
    commented = two.replace("[\n", "[ // here\n").replace("{\n", "{ /* and here */\n")
    yield "remarks everywhere", "// top\n" + commented + "\n// end"
    trailing = two.replace("\n", ",\n").replace("{,", "{").replace("[,", "[").replace(",,", ",")
    yield "commas everywhere", trailing + "\n"
