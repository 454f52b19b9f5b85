"""Compare our tokenizer with the reference one and write the golden file of the tests.

Needs the package `tokenizers`; run with `src` on the import path.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer

from meritory.text.tokens import WordPiece

GOLDEN_TEXTS = (
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "Don't use tabs; we've agreed on 4 spaces, haven't we?",
    "",
    "   \t\n ",
    "Café, naïve, résumé, Ångström, piñata, Dvořák, Łódź, İstanbul",
    "e\u0301 and \u00e9 are the same letter; so are A\u030a and \u00c5.",
    "ΑΣ ΟΔΥΣΣΕΥΣ ὈΔΥΣΣΕΎΣ",
    "Привет, как дела? Ёлка и йод.",
    "日本語のテキスト、漢字とかな。",
    "東京2024年オリンピック",
    "中文分词测试，今天天气很好！",
    "한국어 문장입니다.",
    "مرحبا بالعالم",
    "שלום עולם",
    "สวัสดีชาวโลก",
    "हिन्दी में लिखा हुआ",
    "I ❤️ pizza 🍕🍕 and 👩‍👩‍👧‍👦 families 🇩🇪",
    "😀",
    "naïve🙂test",
    "https://example.org/path/to?page=2&sort=asc#top",
    "mail me at first.last+tag@sub.example.co.uk",
    "def main(argv: list[str]) -> int:\n    return sum(x ** 2 for x in argv)",
    "const f = async ({ a, b }) => { await g(a ?? b); };",
    "SELECT count(*) FROM memories WHERE scope_id = ? AND deleted_at IS NULL;",
    "git rebase -i HEAD~3 && git push --force-with-lease origin feature/x",
    "C:\\Users\\name\\AppData and ~/.config/app.toml",
    "snake_case camelCase PascalCase SCREAMING_SNAKE kebab-case",
    "v1.2.3-rc.4+build.567 (2026-11-15T08:24:00Z)",
    "0x7fffdeadbeef 3.14159e-10 1,234,567.89 50% $19.99 €20 £5 ¥100",
    "unaffordability antidisestablishmentarianism pneumonoultramicroscopic",
    "kubernetes kubectl nginx postgresql sqlite3 numpy pytest mypy",
    "a" * 100,
    "b" * 101,
    "x" * 99 + " y",
    "word\u00a0joined\u2009by\u3000odd\u2028spaces\u202fhere",
    "zero\u200bwidth\u200djoiner\ufeffmark\u00adsoft",
    "control\x00chars\x07are\x1bremoved\x7f\x85here",
    "vertical\x0btab and form\x0cfeed and unit\x1fseparator",
    "replacement \ufffd character and \ufffd\ufffd",
    "private \ue000 use and unassigned \u0378 code",
    "“Curly quotes” — em-dash… «guillemets» ‘single’",
    "math: ∑ ∫ √ ≤ ≥ ≠ ∞ ± × ÷ ° µ",
    "arrows → ← ⇒ and boxes ■ □ ▪ ✓ ✗ ★",
    "½ ¼ ² ³ ™ ® © ª º ﬁ ﬂ ﬀ",
    "ﬁne ligatures and fullwidth ＡＢＣ１２３！",
    "ǅ ǈ ß ẞ ſ Ω K Å",
    "`backticks` ~tildes~ ^carets^ |pipes| \\slashes\\ {braces} [brackets] <tags>",
    "!!! ??? ... --- ___ ### $$$ %%% &&& *** +++ === @@@",
    "[CLSX] [not a marker] (CLS)",
    "##ing is written ##like ##this",
    "I was born on 4 July 1996; my sister is 3 years older.",
    "Remember: the staging DB password rotates every 90 days.",
    "When did Caroline go to the support group?",
    "lol omg brb idk tbh imo gr8 m8 :-) ;-P <3 xD",
    "She said: 'It's 5 o'clock—let's go!'",
    "Line one\r\nLine two\rLine three\n\nLine five",
    "tab\tseparated\tvalues,and;semicolons:colons",
    "ＦＵＬＬ　ＷＩＤＴＨ",
    "Tiếng Việt có dấu: Hồ Chí Minh, Đà Nẵng",
    "Þórr Æsir Øresund œuvre",
    "한글 combined with English와 섞인 text입니다",
)


def varied(corpus: Path, folders: Path) -> list[str]:
    """Return thousands of texts: prose, manuals in many languages, code, random characters."""
    rng = random.Random(11)
    rows = [json.loads(line) for line in corpus.open(encoding="utf-8")]
    texts = [rng.choice(row["passages"]) for row in rng.sample(rows, 3000) if row["passages"]]
    for file in sorted(folders.rglob("*.page"))[::11]:
        texts.append(file.read_text(encoding="utf-8", errors="replace")[:1500])
    for file in sorted(Path(json.__file__).parent.parent.glob("*.py")):
        texts.append(file.read_text(encoding="utf-8", errors="replace")[:3000])
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x2000, 0x2400), (0x2600, 0x27C0)]
    blocks += [(0x3000, 0x3100), (0x4E00, 0x9FA6), (0xAC00, 0xD7A4), (0x1F300, 0x1F650)]
    for _ in range(1500):
        low, high = rng.choice(blocks)
        other = rng.choice(blocks)
        chars = [chr(rng.randrange(low, high)) for _ in range(20)]
        chars += [chr(rng.randrange(*other)) for _ in range(20)] + [" "] * 8
        rng.shuffle(chars)
        texts.append("".join(chars))
    return texts


def main() -> None:
    """Check, report, and write the golden file."""
    model, home, out = map(Path, sys.argv[1:4])
    reference = Tokenizer.from_file(str(model / "tokenizer.json"))
    reference.no_truncation()
    reference.no_padding()
    words = (model / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    ours = WordPiece(words)
    texts = [*GOLDEN_TEXTS, *varied(home / "corpus.jsonl", home / "debian")]
    expected = [found.ids for found in reference.encode_batch(texts, add_special_tokens=False)]
    wrong = [t for t, ids in zip(texts, expected, strict=True) if ours.encode(t) != ids]
    print(f"{len(texts) - len(wrong)} of {len(texts)} texts agree")
    for text in wrong[:20]:
        print(repr(text[:200]))
    rows = [{"text": t, "ids": ids} for t, ids in zip(GOLDEN_TEXTS, expected, strict=False)]
    lines = ",\n".join(json.dumps(row) for row in rows)
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
