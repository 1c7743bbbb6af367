"""What all tests share: where the recorded data is, which tests read it, and which files are run first."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from recordings import RECORDINGS

EXAMPLES = int(os.environ.get("CTXGUARD_EXAMPLES", "5"))
"""Examples that a property is tried with where it does not say itself; `make test-all` tries 12, `make hunt` many."""
settings.register_profile(
    "default",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # `make test` tries the same examples everywhere, so that what fails can be repeated; `make hunt` looks for new ones
    derandomize=EXAMPLES <= 12,
)
settings.load_profile("default")


# Most objects of a run are modules of frameworks and the tests themselves. Looked through again and again by the garbage
# collector, they take a third of the time of collecting tests; so it waits until they are there, and leaves them out.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(10_000)  # each 700 objects, as Python has it, take a twentieth of the time of a test
    gc.enable()


# jsonschema imports it for one format, which no schema here names; it generates 38 parsers when it is imported, which
# takes as long as importing a framework.
sys.modules.setdefault("rfc3987_syntax", None)

HERE = Path(__file__).parent
LONGEST = (
    *("wire/test_framework_loops.py", "wire/test_serve_command.py", "harness/test_browser.py", "test_notebooks.py"),
    *("test_recorded.py", "wire/test_run_command.py", "wire/test_budget_sweep.py", "files/test_shared_files.py"),
    *("test_docs.py", "harness/test_bench.py", "test_docs_types.py", "harness/test_engines.py"),
    *("adapters/test_same_decisions.py", "files/test_reader.py", "harness/test_replay_command.py", "test_laws.py"),
    *("adapters/server/test_google_clients.py", "wire/test_clients.py", "pii/test_match.py", "test_cli.py"),
    *("files/test_hostile_files.py", "adapters/server/test_bedrock_clients.py", "pii/test_prefilter.py"),
    *("wire/test_calls_of_others.py", "wire/test_google_wire.py", "adversarial/test_value_edges.py"),
)
"""The files that take longest come first, so that no worker ends on one of them while the other has nothing left."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    place = {HERE / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    for item in items:
        if "transcripts" in getattr(item, "fixturenames", ()):
            item.add_marker("recordings")


@pytest.fixture(scope="session")
def transcripts():
    """Folder of the recorded sessions, or a skip that says that they are not here."""
    folder = RECORDINGS / "transcripts"
    if not folder.is_dir():
        pytest.skip("the recorded sessions (../shared/data/transcripts) are not on this machine")
    return folder
