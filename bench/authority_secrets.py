"""How many kinds of secrets the scanner finds, and how often it takes harmless text for one.

Every kind is a template that is filled with random values. `labels/secret_tokens.tsv` has tokens
with a fixed shape, `labels/secret_phrases.tsv` has secrets that only the words around them give
away. Each has two phrasings: the rules were written with the first; the second is reported. Both
were written before the rules. A secret counts as found when each character of it is masked.
"""

from __future__ import annotations

import json
import random
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import secrets_version01
from bench.authority import Report, Size
from bench.datasets import data_root
from meritory.text import secrets
from meritory.text.language import words
from meritory.text.secrets import SecretMatch

Finder = Callable[[str], tuple[SecretMatch, ...]]

LABELS: Final = Path(__file__).parent / "labels"
LETTERS: Final = string.ascii_letters
BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
SETS: Final = {
    "an": LETTERS + string.digits,
    "an1": LETTERS + string.digits,
    "let": LETTERS,
    "low": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "dig": string.digits,
    "nz": "123456789",
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "b32": string.ascii_uppercase + "234567",
    "b32l": string.ascii_lowercase + "234567",
    "b64": LETTERS + string.digits + "+/",
    "b64u": LETTERS + string.digits + "-_",
    "b64c": LETTERS + string.digits + "./",
    "b58": BASE58,
    "bech": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
}
WORDS: Final = sorted(
    words(
        "sunflower tiger dragon summer winter falcon orange silver marble rocket garden pepper "
        "bluebird harbor velvet lantern coffee thunder meadow copper"
    )
)
PLAIN_WORDS: Final = sorted(
    words("swordfish opensesame bluebottle rumpelstiltskin moonraker gandalf")
)
# Words of the list BIP-39.
SEED_WORDS: Final = sorted(
    words(
        "abandon ability able about above absent absorb abstract absurd abuse access accident "
        "account accuse achieve acid acoustic acquire across action actor actress adapt address "
        "adjust admit ocean olive oxygen paddle panther parrot pepper phrase pioneer planet "
        "pottery puzzle quantum rabbit raccoon ribbon salmon satoshi scissors siren sphere spider "
        "squirrel sunset tornado trophy umbrella velvet village vintage wagon walnut whisper "
        "winter wrestle zebra zoo"
    )
)
TUNED_FRAMES: Final = ("{}", "use {} from now on", 'key="{}",', "see\n{}\n")
REPORTED_FRAMES: Final = (
    "here it is: {}",
    "I rotated it, now it is {}.",
    "export ACME_THING='{}'",
    "- `{}` (prod)",
)
_FIELD: Final = re.compile(r"\{([A-Za-z0-9]+)(?::([A-Z]{2}:)?(\d+))?\}")
_ESCAPES: Final = {r"\n": "\n", r"\\": "\\"}


class Generator:
    """Fills templates with random values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def fill(self, template: str) -> tuple[str, list[tuple[int, int]]]:
        """Return a text, and the parts of it that are secret."""
        text = re.sub(r"\\(?:n|\\)", lambda match: _ESCAPES[match[0]], template)
        text = re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), text)
        text = _FIELD.sub(lambda match: self.value(match[1], match[2], match[3]), text)
        spans, plain = [], ""
        for piece in re.split("(«[^»]*»)", text):
            if piece.startswith("«"):
                spans.append((len(plain), len(plain) + len(piece) - 2))
            plain += piece.strip("«»")
        return plain, spans

    def value(self, name: str, country: str | None, count: str | None) -> str:
        """Return one random value."""
        if name in SETS:
            return self.run(SETS[name], int(count or 1))
        makers: dict[str, Callable[[], str]] = {
            "p": self.password,
            "w": lambda: self.random.choice(WORDS),
            "word": lambda: self.random.choice(PLAIN_WORDS),
            "seed": lambda: " ".join(self.random.choices(SEED_WORDS, k=int(count or 12))),
            "uuid": lambda: "-".join(self.run(SETS["hex"], size) for size in (8, 4, 4, 4, 12)),
            "wif": lambda: self.random.choice("KL") + self.run(BASE58, 51),
            "ssn": lambda: f"{self.random.randint(100, 600)}-{self.random.randint(10, 99)}-4821",
            "visa": lambda: self.card("4", 16),
            "mastercard": lambda: " ".join(re.findall("....", self.card("53", 16))),
            "amex": lambda: self.card("37", 15),
            "iban": lambda: self.iban((country or "DE:")[:2], int(count or 18)),
            "ibanspaced": lambda: " ".join(
                re.findall(".{1,4}", self.iban((country or "FR:")[:2], int(count or 23)))
            ),
            "lbrace": lambda: "{",
            "rbrace": lambda: "}",
        }
        return makers[name]()

    def run(self, alphabet: str, count: int) -> str:
        """Return random characters; no real key is without a digit, nor ends in a sign."""
        body = "".join(self.random.choices(alphabet, k=count - 1))
        return body + self.random.choice([sign for sign in alphabet if sign.isalnum()])

    def password(self) -> str:
        """Return a password: a word with digits, or random characters."""
        if self.random.random() < 0.4:
            word = self.random.choice(WORDS)
            return f"{self.random.choice((word, word.title()))}{self.random.randint(20, 9899)}"
        body = self.run(LETTERS + string.digits + "!#$%^&*?+_-", self.random.randint(7, 13))
        return self.random.choice(LETTERS) + body + self.random.choice(string.digits)

    def card(self, prefix: str, size: int) -> str:
        """Return a card number with a valid check digit."""
        body = prefix + self.run(string.digits, size - 1 - len(prefix))
        total = 0
        for place, digit in enumerate(reversed(body)):
            number = int(digit) * (2 if place % 2 == 0 else 1)
            total += number - 9 if number > 9 else number
        return body + str(-total % 10)

    def iban(self, country: str, size: int) -> str:
        """Return an account number with valid check digits."""
        body = self.run(string.digits, size)
        number = int("".join(str(int(sign, 36)) for sign in f"{body}{country}00"))
        return f"{country}{98 - number % 97:02d}{body}"


def kinds() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the templates of each kind: those of the rules, and those that are reported."""
    templates = {
        name: (
            tuple(frame.replace("{}", body) for frame in TUNED_FRAMES),
            tuple(frame.replace("{}", body) for frame in REPORTED_FRAMES),
        )
        for name, template in _rows("secret_tokens.tsv")
        for body in (template if "«" in template else f"«{template}»",)
    }
    return templates | {
        name: ((tuned,), (reported,)) for name, tuned, reported in _rows("secret_phrases.tsv")
    }


def _rows(name: str) -> list[list[str]]:
    lines = (LABELS / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def found_share(find: Finder, half: int, count: int) -> tuple[float, Counter[str]]:
    """Return the share of secrets that are masked, as the mean over kinds; and the misses."""
    generator = Generator(seed=18 + half)
    missed: Counter[str] = Counter()
    for name, halves in kinds().items():
        for index in range(count):
            template = halves[half][index % len(halves[half])]
            text, spans = generator.fill(template)
            if not is_masked(find(text), spans):
                missed[name] += 1
    return 1 - sum(missed.values()) / (count * len(kinds())), missed


def is_masked(found: tuple[SecretMatch, ...], spans: list[tuple[int, int]]) -> bool:
    """Return whether each secret lies within one match."""
    return all(any(one.start <= a and b <= one.end for one in found) for a, b in spans)


def harmless_lines() -> list[str]:
    """Return the harmless lines of our own that look like secrets."""
    return (LABELS / "secret_harmless.txt").read_text().splitlines()


def public_sentences(limit: int) -> list[str]:
    """Return distinct sentences of the public data sets, an equal share of each file."""
    files = sorted(
        path
        for pattern in (
            "locomo/*.json",
            "longmemeval/*.json",
            "realmem/*.json",
            "*/*/memories.jsonl",
        )
        for path in data_root().glob(pattern)
    )
    sentences: dict[str, None] = {}
    for number, path in enumerate(files, 1):
        for sentence in _sentences_of(path):
            if len(sentences) >= limit * number // len(files):
                break
            sentences[sentence] = None
    return list(sentences)


def _sentences_of(path: Path) -> Iterator[str]:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    texts = [text for line in lines if line for text in _texts_in(json.loads(line))]
    # Spread over the whole file, in a fixed order.
    random.Random(18).shuffle(texts)
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
            if 20 <= len(sentence) <= 400:
                yield sentence


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


def false_alarms(find: Finder, texts: list[str]) -> list[str]:
    """Return the texts in which the scanner sees a secret."""
    return [text for text in texts if find(text)]


def speed_ratio(texts: list[str], rounds: int) -> float:
    """Return the scanner's time over that of version 0.1, the median of alternating rounds."""

    def seconds(find: Finder) -> float:
        start = time.process_time()
        for text in texts:
            find(text)
        return time.process_time() - start

    seconds(secrets.find_secrets)
    pairs = [
        seconds(secrets.find_secrets) / seconds(secrets_version01.find_secrets)
        for _ in range(rounds)
    ]
    return median(pairs)


def measure(size: Size) -> Report:
    """Return the shares of secrets found, false alarms, speed and the control."""
    report = Report("secrets")
    count, limit, rounds = (20, 20_000, 9) if size == "full" else (2, 400, 3)
    names = kinds()
    report.at_least("kinds of secrets", len(names), 200)
    tuned, _ = found_share(secrets.find_secrets, 0, count)
    report.at_least("found, phrasings used for the rules", tuned, 0.95)
    reported, missed = found_share(secrets.find_secrets, 1, count)
    worst = ", ".join(f"{name} {n}/{count}" for name, n in missed.most_common(8))
    report.at_least("found, reported phrasings", reported, 0.95, f"missed most: {worst}")
    before, _ = found_share(secrets_version01.find_secrets, 1, count)
    report.at_most("control: found by version 0.1", before, 0.9)
    own = false_alarms(secrets.find_secrets, harmless_lines())
    report.at_most("false alarms, harmless lines of our own", len(own), 0, "; ".join(own[:3]))
    careless = false_alarms(lambda text: tuple(_any_digit(text)), harmless_lines())
    report.at_least("control: false alarms of a careless scanner", len(careless), 50)
    sentences = public_sentences(limit)
    if len(sentences) < limit:
        note = f"SKIPPED: public data is missing at {data_root()}"
        print(f"secrets: {note}", file=sys.stderr)
        report.at_least("public sentences", len(sentences), 0, note)
        return report
    alarms = false_alarms(secrets.find_secrets, sentences)
    report.at_most(f"false alarms in {limit} sentences", len(alarms), 1, "; ".join(alarms[:3]))
    report.at_most("time over version 0.1, sentences", speed_ratio(sentences, rounds), 1.5)
    pages = ["\n".join(sentences[start : start + 80]) for start in range(0, limit, 80)]
    report.at_most("time over version 0.1, transcripts", speed_ratio(pages, rounds), 1.5)
    return report


def _any_digit(text: str) -> Iterator[SecretMatch]:
    for match in re.finditer(r"\b\w*\d\w*\b", text):
        yield SecretMatch("careless", *match.span())
