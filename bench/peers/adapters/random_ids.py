"""The control that must fail: it returns what it stored in a random order."""

import os
import random

PACKAGES = ()


class Adapter:
    def __init__(self, folder, vector):
        self.count, self.chance = 0, random.Random(20261119)
        os.makedirs(folder)

    def store(self, items):
        ids = [f"m{self.count + at}" for at in range(len(items))]
        self.count += len(items)
        return ids

    def search(self, text, limit, at):
        return [f"m{at}" for at in self.chance.sample(range(self.count), min(limit, self.count))]

    def close(self):
        """It keeps nothing on disk."""
