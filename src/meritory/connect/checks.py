"""The doctor's checks of a harness: connected, up to date, able to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meritory.connect.desired import Document, Finding, HarnessModule, InstallTarget
from meritory.connect.files import read_file, text_of
from meritory.connect.managed import missing_python
from meritory.connect.merge import is_merged, is_our_text, our_commands
from meritory.domain.errors import MeritoryError


@dataclass(frozen=True, slots=True)
class HarnessConnection:
    """Which desired entries a harness's files hold."""

    commands: tuple[list[str], ...] = ()
    # Files with missing or outdated entries.
    lacking: tuple[Document, ...] = ()
    has_file: bool = False
    trouble: str = ""

    @property
    def is_any(self) -> bool:
        """Return whether any entry of Meritory's exists."""
        return bool(self.commands) or self.has_file


def connection_of(harness: HarnessModule, documents: Sequence[Document]) -> HarnessConnection:
    """Return the state of Meritory's entries in a harness's files."""
    commands: list[list[str]] = []
    lacking: list[Document] = []
    has_file = False
    trouble = ""
    for document in documents:
        try:
            content = read_file(document.path)
            text = text_of(document.path, content)
            if document.syntax == "text":
                has_file |= content is not None and is_our_text(text, document)
            elif content is not None:
                commands += our_commands(text, document, harness.NAME)
            if content is None or not is_merged(text, document, harness.NAME):
                lacking.append(document)
        except MeritoryError as error:
            where = "" if str(document.path) in error.message else f"{document.path}: "
            trouble = trouble or where + error.message
    return HarnessConnection(tuple(commands), tuple(lacking), has_file, trouble)


def harness_findings(
    harness: HarnessModule, place: InstallTarget, *, is_found: bool
) -> list[Finding]:
    """Return the findings about a harness; none if it is neither installed nor connected."""
    setup = harness.setup(place)
    connection = connection_of(harness, setup.documents)
    name, title = harness.NAME, harness.TITLE
    connect = f"`meritory connect {name}`"
    if connection.trouble and (is_found or connection.is_any):
        return [Finding(name, "warn", connection.trouble, "fix the file; no program can read it")]
    if not connection.is_any:
        if setup.obstacles:
            return [Finding(name, "ok", "connected by its plugin"), *harness.checks(place)]
        detail = f"{title} is installed and not connected"
        return [Finding(name, "ok", detail, f"{connect} connects it")] if is_found else []
    gone = next((word for argv in connection.commands if (word := missing_python(argv))), None)
    if gone is not None:
        detail = f"{title} runs {gone}, which no longer exists"
        return [Finding(name, "fail", detail, f"{connect} writes the present path")]
    findings = harness.checks(place)
    if setup.obstacles:
        detail = "connected by its plugin and by its settings, so everything happens twice"
        findings.append(
            Finding(name, "warn", detail, f"`meritory disconnect {name}` keeps the plugin")
        )
    elif connection.lacking:
        files = ", ".join(str(document.path) for document in connection.lacking)
        detail = f"connected, but entries are missing or outdated in {files}"
        findings.append(Finding(name, "warn", detail, f"{connect} fixes it"))
    return findings or [Finding(name, "ok", f"{title} is connected")]
