"""What all tests share: where the recorded data is."""

from __future__ import annotations

import os
import sys
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


@pytest.hookimpl(trylast=True)  # the plugin of Hypothesis marks properties first
def pytest_collection_modifyitems(items):
    """Leave properties out of the coverage: they draw many cases of what examples run once, and tracing slows them most."""
    for item in items:
        if item.get_closest_marker("hypothesis") is not None:
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    """Take tracing off tests that are marked `no_cover`.

    In a worker of xdist, pytest-cov 7.1 has started coverage twice and pauses one of the two; it starts it again after
    the test, so that nothing is to be restored here.
    """
    if item.get_closest_marker("no_cover") is not None:
        sys.settrace(None)
    return (yield)
