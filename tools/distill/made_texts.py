"""Make short everyday sentences and questions from WordNet's common words, for `student.py`."""

from __future__ import annotations

import random
from pathlib import Path

NAMES = """
Anna Ben Carla David Emma Frank Grace Hannah Ivan Julia Kevin Laura Maria Nina Oscar Paul Rachel
Sam Tom Vera Will Zoe Alex Mia Noah Liam Olivia Ava Lucas Ethan Priya Wei Ahmed Fatima Carlos
Sofia Yuki Kenji Omar Leila Caroline Melanie John Sarah Michael Jessica Daniel Emily Chris
Amanda Ryan Nicole Jason Megan Andrew Kate
""".split()  # noqa: SIM905
PLACES = """
Paris London Berlin Tokyo Boston Chicago Seattle Denver Madrid Rome Vienna Prague Toronto Sydney
Mumbai Delhi Seoul Lagos Cairo Athens Lisbon Dublin Oslo Stockholm Helsinki Zurich Munich Austin
Portland Miami Hawaii Iceland Mexico Peru Kenya Bali Thailand Vietnam Norway
""".split()  # noqa: SIM905
TIMES = [
    one.strip()
    for one in """
yesterday, last week, last month, two years ago, in March, next Friday, this weekend, on Monday,
tomorrow morning, in 2019, since childhood, every day, twice a week, last summer, on my
birthday, during the holidays, three weeks ago, at 7 pm, on May 12, recently, before the trip,
after work, next month, in the evening, last Tuesday, for five years, in two weeks
""".replace("\n", " ").split(",")
]
RELATIONS = """
sister brother mother father friend boss colleague wife husband daughter son neighbor roommate
partner cousin teacher doctor girlfriend boyfriend grandmother uncle manager client therapist
coach dog cat
""".split()  # noqa: SIM905
NUMBERS = [2, 3, 5, 7, 10, 12, 20, 45, 100, 250, 1500]
SEED = 11


def common_words(home: Path, part: str) -> list[str]:
    """Return the words of WordNet that its tagged texts use."""
    found = []
    index = next((home / "debian" / "wordnet-base").rglob(f"index.{part}"))
    for line in index.read_text(encoding="latin-1").splitlines():
        fields = line.split()
        word = fields[0].replace("_", " ")
        is_plain = word.isascii() and len(word) > 2 and not any(map(str.isdigit, word))
        if not line.startswith("  ") and is_plain and int(fields[5 + int(fields[3])]) > 0:
            found.append(word)
    return found


def made_documents(home: Path, count: int) -> list[list[str]]:
    """Return documents of three to eight sentences about the same things."""
    frames = Path(__file__).with_name("made_frames.txt").read_text(encoding="utf-8").splitlines()
    nouns, verbs, adjectives = (common_words(home, part) for part in ("noun", "verb", "adj"))
    rng = random.Random(SEED)
    found = []
    for _ in range(count):
        lists = {"n": nouns, "m": nouns, "a": adjectives, "b": adjectives, "v": verbs, "v2": verbs}
        lists |= {"p": NAMES, "q": NAMES, "c": PLACES, "w": TIMES, "r": RELATIONS}
        slots = {name: rng.choice(words) for name, words in lists.items()}
        slots["k"] = str(rng.choice(NUMBERS))
        found.append([one.format(**slots) for one in rng.sample(frames, rng.randint(3, 8))])
    return found
