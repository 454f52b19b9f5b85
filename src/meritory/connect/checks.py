"""The doctor's look at a harness: connected or not, up to date, able to run."""

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
    """How much of what is wished for is in a harness's files."""

    commands: tuple[list[str], ...] = ()
    # Files that lack something, or hold what is out of date.
    lacking: tuple[Document, ...] = ()
    has_file: bool = False
    trouble: str = ""

    @property
    def is_any(self) -> bool:
        """Whether anything of ours is there."""
        return bool(self.commands) or self.has_file


def connection_of(harness: HarnessModule, documents: Sequence[Document]) -> HarnessConnection:
    """What the files of a harness hold of ours."""
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
    """What there is to say about a harness; nothing when it is neither found nor connected."""
    setup = harness.setup(place)
    connection = connection_of(harness, setup.documents)
    name, title = harness.NAME, harness.TITLE
    connect = f"`meritory connect {name}`"
    if connection.trouble and (is_found or connection.is_any):
        return [Finding(name, "warn", connection.trouble, "mend it; nothing reads it as it is")]
    if not connection.is_any:
        if setup.obstacles:
            return [Finding(name, "ok", "connected by its plugin"), *harness.checks(place)]
        told = f"{title} is here and not connected"
        return [Finding(name, "ok", told, f"{connect} connects it")] if is_found else []
    gone = next((word for argv in connection.commands if (word := missing_python(argv))), None)
    if gone is not None:
        told = f"{title} runs {gone}, which is not there any more"
        return [Finding(name, "fail", told, f"{connect} puts the present one there")]
    findings = harness.checks(place)
    if setup.obstacles:
        told = "connected by its plugin and by its settings, so everything comes twice"
        findings.append(
            Finding(name, "warn", told, f"`meritory disconnect {name}` leaves the first")
        )
    elif connection.lacking:
        files = ", ".join(str(document.path) for document in connection.lacking)
        told = f"connected, but not all is as it should be in {files}"
        findings.append(Finding(name, "warn", told, f"{connect} puts it right"))
    return findings or [Finding(name, "ok", f"{title} is connected")]
