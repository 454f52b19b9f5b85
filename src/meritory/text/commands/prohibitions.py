"""Explicit prohibitions in a user's text: of an action in general, or for one session."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from meritory.domain.rule import Trigger
from meritory.text.commands.actions import ToolAction, stems
from meritory.text.commands.triggers import fits

SAID_LIMIT_CHARS: Final = 200
_TEXT_LIMIT_CHARS: Final = 20_000
_SENTENCE: Final = re.compile(r"[^.!?\n;]+")
_FORBIDDING: Final = re.compile(
    r"\b(?:never|do not|don'?t|must not|mustn'?t|should not|shouldn'?t|may not|not to"
    r"|stop \w+ing|no more|not allowed|forbidden|off limits|hands off|without (?:my |being )?"
    r"(?:asking|permission|approval|asked)|not (?:be )?(?:touched|edited|changed))\b",
    re.IGNORECASE,
)
# A report or a question does not forbid anything.
_REPORT: Final = re.compile(
    r"\b(?:why|you|i|we|they|it|did|does) (?:do not|don'?t|did not|didn'?t)\b"
    r"|\b(?:is|are|was|were|had|has|have|got|with|made|being|did|saw|found) no\b|\?\s*$",
    re.IGNORECASE,
)
# The rest of a clause in which "no ..." reports that something was not done.
_REPORT_REST: Final = re.compile(
    r"(?:(?!\b(?:until|unless|before|without|because|since|as|if|when)\b)[^,:])*?"
    r"\b(?:is|are|was|were|has|have|had|did|been|ran)\b(?! (?:allowed|permitted|wanted)\b)",
    re.IGNORECASE,
)
# Conditions that the agent can meet by itself; permission is not one, only the user gives it.
_CONDITION: Final = re.compile(
    r"\b(?:if(?! possible\b)"
    r"|before(?! (?:i|we|my|asking|being asked)\b)"
    r"|without(?! (?:(?:my|our|being|any|explicit|prior) )*(?:asking|permission|approval|asked)\b)"
    r"|(?:until|unless)(?=.*\b(?:tests?|tested|checks?|ci|lint|builds?|pass(?:es|ed)?|green|fixed"
    r"|works?)\b)(?!.*\b(?:i|we)\b))\b",
    re.IGNORECASE,
)
_CLAUSE_END: Final = re.compile(r"[,:]")
_LIST: Final = re.compile(r"\b(?:or|nor)\b", re.IGNORECASE)
# A denied, asked or reported permission is not a permission.
_NO_PERMISSION: Final = re.compile(
    r"\b(?:not|never|nobody|no one|didn'?t|don'?t|if|once|after|until|when|unless|told|said|says"
    r"|thought?)\b",
    re.IGNORECASE,
)
_NOT: Final = (
    r"(?:do not|don'?t|dont|never|must not|mustn'?t|should not|shouldn'?t|may not|not to|no)"
)

# The text that may follow so that the whole action is forbidden, not only a part of it.
_WHOLE: Final = (
    r"(?=\s*(?:$|[,:)]|(?:(?:the |my |new |any |your )?(?:anything|any|it|this|that|yet|now|again"
    r"|please|until|unless|before|without|or|and|packages?|dependencies|files?|changes|code|work"
    r"|to (?:the )?(?:remote|origin|git|github|upstream|server))\b)))"
)


def _forbidden(verbs: str) -> re.Pattern[str]:
    before = rf"\b{_NOT} (?:you )?(?:ever |git |again |just |please )?"
    return re.compile(rf"{before}(?:{verbs})\b{_WHOLE}", re.IGNORECASE)


_LOCAL: Final = r"\b(?:local[- ]only|only local(?:ly)?|keep (?:it|this|everything) local)\b"
_STATED: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("local_only", re.compile(_LOCAL, re.IGNORECASE)),
    ("local_only", re.compile(r"\b(?:not|nothing) in(?:to)? git\b", re.IGNORECASE)),
    ("no_push", _forbidden("push(?:es|ing)?")),
    ("no_commit", _forbidden("commit(?:s|ting)?")),
    ("no_publish", _forbidden("publish(?:ing)?|deploy(?:s|ing)?|releas(?:e|ing)")),
    ("no_delete", _forbidden("delet(?:e|ing)|remov(?:e|ing) (?:any |the )?files?")),
    ("no_install", _forbidden("install(?:s|ing)?|add(?:ing)? (?:new )?(?:dependencies|packages)")),
    ("no_network", _forbidden("network|internet|(?:use|access) the (?:network|internet)")),
)
_NO_EDIT: Final = re.compile(
    rf"\b{_NOT} (?:ever )?(?:edit|touch|change|modify)(?:ing)? [`'\"]?"
    r"(?P<name>[\w.*-]*[./][\w./*-]*\w)",
    re.IGNORECASE,
)
_NO_PUSH_TO: Final = re.compile(
    rf"\b{_NOT} (?:ever )?push(?:ing)? (?:directly |straight )?(?:to|on|onto) (?:the )?"
    r"(?P<name>main|master|develop|production|release[\w./-]*)\b",
    re.IGNORECASE,
)
_NAMED: Final = (("no_edit", _NO_EDIT), ("no_push", _NO_PUSH_TO))
_LIFTED: Final = re.compile(
    r"\byou (?:may|can) (?:now )?(?P<verb>push|commit|publish|deploy|delete|install)\b", re.I
)
_LIFTS: Final[dict[str, tuple[str, ...]]] = {
    "push": ("no_push", "local_only"),
    "commit": ("no_commit", "local_only"),
    "publish": ("no_publish", "local_only"),
    "deploy": ("no_publish", "local_only"),
    "delete": ("no_delete",),
    "install": ("no_install",),
}

_PUSHES: Final = ("git push", "gh pr create", "gh pr merge", "docker push", "git send-email *")
_PUBLISHES: Final = (
    *("npm publish", "pnpm publish", "yarn publish", "cargo publish", "twine upload"),
    *("gem push", "poetry publish", "uv publish", "gh release create", "kubectl apply"),
    *("terraform apply", "fly deploy", "vercel deploy", "netlify deploy", "helm upgrade"),
)
_INSTALLS: Final = (
    *("pip install", "pip3 install", "uv add", "poetry add", "npm install *", "npm i *"),
    *("pnpm add", "yarn add", "bun add", "cargo add", "go get", "gem install", "brew install"),
    *("apt install", "apt-get install", "conda install"),
)
_COMMITS: Final = ("git commit",)
_DELETES: Final = ("rm *", "git clean -f", "git rm *", "rmdir *", "find -delete", "shred *")
_NETWORK: Final = ("curl *", "wget *", "ssh *", "scp *", "rsync *:*")


def _shell(lines: Iterable[str]) -> tuple[Trigger, ...]:
    return tuple(Trigger("shell", tuple(line.split())) for line in lines)


# The actions that each kind of constraint rules out.
_RULED_OUT: Final[dict[str, tuple[Trigger, ...]]] = {
    "local_only": _shell((*_PUSHES, *_PUBLISHES)),
    "no_push": _shell(_PUSHES),
    "no_commit": _shell(_COMMITS),
    "no_publish": _shell(_PUBLISHES),
    "no_delete": _shell(_DELETES),
    "no_install": _shell(_INSTALLS),
    "no_network": (*_shell((*_NETWORK, *_PUSHES)), Trigger("web", ("*",))),
}
KINDS: Final = (*_RULED_OUT, "no_edit")
_CLAIMS: Final[dict[str, str]] = {
    "local_only": "Keep the work local: nothing is pushed or published",
    "no_push": "Do not push",
    "no_commit": "Do not commit",
    "no_publish": "Do not publish or deploy",
    "no_delete": "Do not delete files",
    "no_install": "Do not install packages",
    "no_network": "Do not use the network",
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule for one session, and the sentence that stated it."""

    kind: str
    said: str
    argument: str = ""


def stated_constraints(text: str) -> tuple[Constraint, ...]:
    """Return what a text forbids for the session, each kind once."""
    constraints: dict[tuple[str, str], Constraint] = {}
    for sentence in _sentences(text):
        said = sentence[:SAID_LIMIT_CHARS]
        for kind, pattern in _STATED:
            if any(_is_whole(sentence, match) for match in pattern.finditer(sentence)):
                constraints.setdefault((kind, ""), Constraint(kind, said))
        for kind, pattern in _NAMED:
            for match in pattern.finditer(sentence):
                if _is_whole(sentence, match):
                    name = match["name"]
                    constraints.setdefault((kind, name), Constraint(kind, said, name))
    return tuple(constraints.values())


def _is_whole(sentence: str, match: re.Match[str]) -> bool:
    """Return whether a sentence forbids something altogether, not only under a condition."""
    rest = sentence[match.end() : match.end() + SAID_LIMIT_CHARS]
    if match[0].lower().startswith("no ") and _REPORT_REST.match(rest):
        return False
    if not _LIST.search(rest):
        # A condition at the end of a list applies to all of it; otherwise it ends at a comma.
        rest = _CLAUSE_END.split(rest, 1)[0]
    return not (_CONDITION.search(rest) or _CONDITION.match(sentence))


def lifted_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of constraints that a text takes back."""
    verbs = [
        match["verb"].lower()
        for sentence in _sentences(text)
        for match in _LIFTED.finditer(sentence)
        if not _NO_PERMISSION.search(sentence[: match.start()])
    ]
    return tuple(dict.fromkeys(kind for verb in verbs for kind in _LIFTS[verb]))


def _sentences(text: str) -> list[str]:
    """Return the sentences that may forbid something; a dot inside a name does not end one."""
    masked = re.sub(r"\.(?=\S)", "\0", text[:_TEXT_LIMIT_CHARS].replace("\u2019", "'"))
    # Each sentence with the mark that ends it.
    spans = [(match.start(), match.end() + 1) for match in _SENTENCE.finditer(masked)]
    sentences = [masked[start:end].replace("\0", ".").strip(" .!;\n") for start, end in spans]
    return [sentence for sentence in sentences if sentence and not _REPORT.search(sentence)]


def is_ruled_out(kind: str, argument: str, action: ToolAction) -> bool:
    """Return whether a constraint of a session rules out an action."""
    if kind == "no_edit":
        paths = (argument, f"*/{argument}", f"{argument}/*", f"*/{argument}/*")
        return any(fits(Trigger("edit", (path,)), action) for path in paths)
    if argument:
        branches = (argument, f"+{argument}", f"*:{argument}", f"*/{argument}")
        return any(fits(Trigger("shell", ("git", "push", name)), action) for name in branches)
    return any(fits(trigger, action) for trigger in _RULED_OUT.get(kind, ()))


def claim(kind: str, argument: str) -> str:
    """Return a constraint as a sentence that can be stored as a memory."""
    if kind == "no_edit":
        return f"Do not edit {argument}"
    return f"{_CLAIMS[kind]} to {argument}" if argument else _CLAIMS[kind]


def forbids(text: str, words: Collection[str]) -> bool:
    """Return whether a text explicitly forbids an action with these stems."""
    return any(
        any(_is_whole(sentence, match) for match in _FORBIDDING.finditer(sentence))
        and len(stems(sentence) & set(words)) >= 2
        for sentence in _sentences(text)
    )
