"""Read each kind of package into documents: a title, if there is one, and passages in order."""

from __future__ import annotations

import email
import gzip
import html
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

MIN_LETTERS = 12
MAX_PASSAGE_CHARS = 1_200
_SPACES = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")


class Document(NamedTuple):
    """A title and the passages under it."""

    title: str
    passages: list[str]


def squeeze(text: str) -> str:
    """Return the text on one line."""
    return _SPACES.sub(" ", text).strip()


def _kept(passages: list[str]) -> list[str]:
    clean = [squeeze(passage)[:MAX_PASSAGE_CHARS] for passage in passages]
    return [text for text in clean if sum(map(str.isalpha, text)) >= MIN_LETTERS]


def chitchat(folder: Path, glob: str) -> Iterator[Document]:
    """Read the conversations, one passage a turn."""
    file = next(folder.rglob("dataset.json"))
    for talk in json.loads(file.read_text(encoding="utf-8")).values():
        turns = [" ".join(part["text"] for part in turn) for turn in talk["messages"]]
        # A conversation wanders: short windows keep a document on one matter.
        for at in range(0, len(turns), 8):
            yield Document("", _kept(turns[at : at + 8]))


def mail(folder: Path, glob: str) -> Iterator[Document]:
    """Read the wanted mails: the subject and the sender's own paragraphs."""
    for file in sorted(folder.rglob("*ham*/*.txt")):
        raw = email.message_from_string(file.read_text(encoding="latin-1"))
        body = raw.get_payload()
        if not isinstance(body, str) or "html" in raw.get_content_type():
            continue
        body = body.split("\n-- \n")[0].split("\n_____")[0]
        lines = [line for line in body.splitlines() if not re.match(r"\s*[>|%:]|.*wrote:$", line)]
        title = re.sub(r"(?i)\b(re|fwd?|fw)\s*:|\[[^\]]*\]", " ", str(raw.get("subject", "")))
        yield Document(squeeze(title), _kept("\n".join(lines).split("\n\n")))


def speech(folder: Path, glob: str) -> Iterator[Document]:
    """Read speeches, some sentences a document."""
    for file in sorted(folder.rglob("data/*.txt")):
        sentences = _SENTENCE_END.split(squeeze(file.read_text(encoding="utf-8")))
        for at in range(0, len(sentences), 6):
            yield Document("", _kept(sentences[at : at + 6]))


def wordnet(folder: Path, glob: str) -> Iterator[Document]:
    """Read the glosses: the synonyms are the title, the definition and examples the passages."""
    for file in sorted(folder.rglob("data.*")):
        if file.suffix not in {".noun", ".verb", ".adj", ".adv"}:
            continue
        for line in file.read_text(encoding="latin-1").splitlines():
            head, bar, gloss = line.partition(" | ")
            if not bar or line.startswith("  "):
                continue
            fields = head.split()
            words = [fields[4 + 2 * at] for at in range(int(fields[3], 16))]
            title = ", ".join(re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words)
            yield Document(title, _kept(re.split(r";\s+(?=\")", gloss)))


def foldoc(folder: Path, glob: str) -> Iterator[Document]:
    """Read the computing dictionary: the headword and its paragraphs."""
    packed = next(folder.rglob("foldoc.dict.dz"))
    text = gzip.decompress(packed.read_bytes()).decode("utf-8", "replace")
    for entry in re.split(r"\n(?=\S)", text):
        title, _, body = entry.partition("\n")
        body = re.sub(r"[{}<>]", "", body)
        yield Document(squeeze(title), _kept(body.split("\n\n")))


def endless(folder: Path, glob: str) -> Iterator[Document]:
    """Read the quoted speech of a game, mission by mission."""
    for file in sorted(folder.glob(glob)):
        text = file.read_text(encoding="utf-8", errors="replace")
        for block in re.split(r"\n(?=\S)", text):
            lines = [line for line in re.findall(r"`([^`]+)`", block) if "<" not in line]
            for at in range(0, len(lines), 6):
                yield Document("", _kept(lines[at : at + 6]))


class _Sections(HTMLParser):
    """Collects headings and the paragraphs below them."""

    TITLES = frozenset({"h1", "h2", "h3", "h4", "title"})
    BLOCKS = frozenset({"p", "dd", "li", "dt"})
    SKIPPED = frozenset({"script", "style", "pre", "nav", "head", "table", "code-block", "screen"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Document] = [Document("", [])]
        self._text: list[str] = []
        self._skip = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self.SKIPPED:
            self._skip += 1
        elif tag in self.TITLES or tag in self.BLOCKS:
            self._flush()

    def handle_endtag(self, tag: str) -> None:
        if tag in self.SKIPPED:
            self._skip = max(0, self._skip - 1)
        elif tag in self.TITLES:
            title = squeeze("".join(self._text).replace("¶", " ").replace("#", " "))
            self._text.clear()
            self.found.append(Document(re.sub(r"^[\d.]+\s+", "", title), []))
        elif tag in self.BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self._text.append(data)

    def _flush(self) -> None:
        text = squeeze("".join(self._text))
        self._text.clear()
        if text:
            self.found[-1].passages.append(text)


def html_pages(folder: Path, glob: str) -> Iterator[Document]:
    """Read HTML (or Mallard) manuals, section by section."""
    for file in sorted(folder.glob(glob)):
        if file.is_symlink() or file.name.startswith(("genindex", "search", "py-modindex")):
            continue
        parser = _Sections()
        parser.feed(file.read_text(encoding="utf-8", errors="replace"))
        for title, passages in parser.found:
            yield Document(title, _kept([p for p in passages if len(p) > 40]))


def markdown(folder: Path, glob: str) -> Iterator[Document]:
    """Read Markdown manuals, section by section."""
    for file in sorted(folder.glob(glob)):
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = re.sub(r"(?s)```.*?```|<!--.*?-->|^---.*?^---", "", raw.decode("utf-8", "replace"))
        for section in re.split(r"(?m)^#+\s+", text):
            title, _, body = section.partition("\n")
            body = html.unescape(re.sub(r"\]\([^)]*\)|[`*\[|]", "", body))
            yield Document(squeeze(title), _kept(body.split("\n\n")))


def control(folder: Path, glob: str) -> Iterator[Document]:
    """Read the descriptions of packages: the short one is the title."""
    text = (folder / "descriptions").read_text(encoding="utf-8")
    for entry in text.split("\n\n"):
        _, _, description = entry.partition("Description-en: ")
        title, _, body = description.partition("\n")
        yield Document(squeeze(title), _kept(re.split(r"\n \.\n", body)))


def dictionary(folder: Path, glob: str) -> Iterator[Document]:
    """Read a dictionary: the headword and its senses."""
    packed = next(folder.rglob("*.dict.dz"))
    text = gzip.decompress(packed.read_bytes()).decode("utf-8", "replace")
    for entry in re.split(r"\n(?=\S)", text):
        title, _, body = entry.partition("\n")
        body = re.sub(r"\[[^\]]*\]|[{}<>]|--[A-Z][\w. ]*", "", body)
        title = re.sub(r"\s*\\.*|\s*\[.*", "", title)
        yield Document(squeeze(title), _kept(re.split(r"\n\s*\n", body)))


def fortune(folder: Path, glob: str) -> Iterator[Document]:
    """Read the sayings and short dialogues."""
    for file in sorted((folder / "usr/share/games/fortunes").glob("*.u8")):
        text = file.resolve().read_text(encoding="utf-8", errors="replace")
        for saying in text.split("\n%\n"):
            yield Document("", _kept(saying.split("\n\n")))


def strings(folder: Path, glob: str) -> Iterator[Document]:
    """Read the sentences among a game's JSON strings, file by file, some a document."""
    for file in sorted(folder.glob(glob)):
        text = file.read_text(encoding="utf-8", errors="replace")
        found = re.findall(r'"((?:[^"\\\n]|\\.){24,})"', text)
        lines = [re.sub(r"<[^>]*>|\\.", " ", line) for line in found if line.count(" ") > 3]
        for at in range(0, len(lines), 4):
            yield Document("", _kept(lines[at : at + 4]))


def campaign(folder: Path, glob: str) -> Iterator[Document]:
    """Read what is said in a game's scenarios."""
    for file in sorted(folder.glob(glob)):
        text = file.read_text(encoding="utf-8", errors="replace")
        lines = re.findall(r'_\s*"([^"]{20,})"', text)
        for at in range(0, len(lines), 6):
            yield Document("", _kept(lines[at : at + 6]))


def pod(folder: Path, glob: str) -> Iterator[Document]:
    """Read Perl's manuals, section by section."""
    for file in sorted(folder.glob(glob)):
        text = file.read_text(encoding="utf-8", errors="replace")
        for section in re.split(r"(?m)^=(?:head\d|item)\s+", text):
            title, _, body = section.partition("\n")
            body = re.sub(r"[A-Z]<+([^<>|]*)(?:\|[^<>]*)?>+", r"\1", body)
            blocks = [one for one in body.split("\n\n") if not one.startswith((" ", "=", "\t"))]
            yield Document(squeeze(title), _kept(blocks))


def paragraphs(folder: Path, glob: str) -> Iterator[Document]:
    """Read plain text, some paragraphs a document."""
    for file in sorted(folder.glob(glob)):
        blocks = file.read_text(encoding="utf-8", errors="replace").split("\n\n")
        for at in range(0, len(blocks), 4):
            yield Document("", _kept(blocks[at : at + 4]))


def talk(folder: Path, glob: str) -> Iterator[Document]:
    """Read short dialogues: what is said, and the answers."""
    for file in sorted(folder.glob(glob)):
        text = file.read_text(encoding="utf-8", errors="replace")
        for block in re.split(r"(?m)^- - ", text)[1:]:
            yield Document("", _kept(re.split(r"\n\s*- ", block)))


def novel(folder: Path, glob: str) -> Iterator[Document]:
    """Read a novel's paragraphs, some a document."""
    for file in sorted(folder.rglob("chapter_*.json")):
        text = " ".join(re.findall(r'"((?:[^"\\]|\\.){40,})"', file.read_text(encoding="utf-8")))
        lines = _SENTENCE_END.split(text.replace("\\n", " ").replace('\\"', '"'))
        for at in range(0, len(lines), 6):
            yield Document("", _kept(lines[at : at + 6]))


READERS: dict[str, Callable[[Path, str], Iterator[Document]]] = {
    "chitchat": chitchat,
    "mail": mail,
    "speech": speech,
    "wordnet": wordnet,
    "foldoc": foldoc,
    "endless": endless,
    "html": html_pages,
    "markdown": markdown,
    "control": control,
    "dictionary": dictionary,
    "fortune": fortune,
    "strings": strings,
    "campaign": campaign,
    "pod": pod,
    "paragraphs": paragraphs,
    "talk": talk,
    "novel": novel,
}
