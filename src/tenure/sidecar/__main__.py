"""`python -m tenure.sidecar STORE MODELS`."""

from __future__ import annotations

import sys

from tenure.sidecar.process import main

if __name__ == "__main__":
    sys.exit(main())
