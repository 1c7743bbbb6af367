"""Where the recorded data is, for benchmarks and tests; it is no part of the package, and all of them run without it.

The environment variable `CTXGUARD_RECORDINGS` names the folder. Unset, it is `../shared/data` beside the checkout;
empty, the recordings are hidden, so that everything runs as it does for someone who has none.
"""

from __future__ import annotations

import os
from pathlib import Path

SETTING = "CTXGUARD_RECORDINGS"
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
_HIDDEN = Path(os.devnull) / "hidden"
"""No system has a folder there."""

RECORDINGS = Path(os.environ[SETTING] or _HIDDEN) if SETTING in os.environ else _BESIDE
DOCUMENTS = RECORDINGS.parent / "spec"
"""The documents that the tests of `tests/spec` quote."""
