"""What all tests share: where the recorded data is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("CTXGUARD_EXAMPLES", "12"))
"""Examples that a property is tried with where it does not say itself; `make hunt` tries many."""
settings.register_profile(
    "default",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # `make test` tries the same examples everywhere, so that what fails can be repeated; `make hunt` looks for new ones
    derandomize="CTXGUARD_EXAMPLES" not in os.environ,
)
settings.load_profile("default")

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def transcripts():
    """Folder of the recorded sessions, or a skip that says that they are not here."""
    folder = DATA / "transcripts"
    if not folder.is_dir():
        pytest.skip("the recorded sessions (../shared/data/transcripts) are not on this machine")
    return folder
