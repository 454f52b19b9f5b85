"""`python -m meritory.sidecar STORE MODELS` scores; with `train` before, one training runs."""

from __future__ import annotations

import sys

from meritory.sidecar.process import main, train_main

if __name__ == "__main__":
    sys.exit(train_main(*sys.argv[2:]) if sys.argv[1:2] == ["train"] else main())
