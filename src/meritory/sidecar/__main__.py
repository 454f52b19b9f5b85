"""`python -m meritory.sidecar STORE MODELS`."""

from __future__ import annotations

import sys

from meritory.sidecar.process import main

if __name__ == "__main__":
    sys.exit(main())
