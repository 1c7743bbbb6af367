"""What all tests share: where the recorded data is, which tests read it, and which files are run first."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from recordings import RECORDINGS
from tiers import ALL_EXAMPLES, EXAMPLES, IS_FIRST

settings.register_profile(
    "default",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # `make test` tries the same examples everywhere, so that what fails can be repeated; `make hunt` looks for new ones
    derandomize=EXAMPLES <= ALL_EXAMPLES,
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

# A client of LangSmith asks its service for its settings as soon as it is made; here nothing leaves the machine.
os.environ["LANGSMITH_ENDPOINT"] = "http://127.0.0.1:9"

HERE = Path(__file__).parent
LONGEST = (
    *("wire/test_framework_loops.py", "wire/test_serve_command.py", "harness/test_browser.py", "test_notebooks.py"),
    *("test_recorded.py", "wire/test_run_command.py", "wire/test_budget_sweep.py", "content/test_shared_files.py"),
    *("test_docs.py", "harness/test_bench.py", "test_docs_types.py", "harness/test_engines.py"),
    *("adapters/test_same_decisions.py", "content/test_reader.py", "harness/test_replay_command.py", "test_laws.py"),
    *("adapters/server/test_google_clients.py", "wire/test_clients.py", "pii/test_match.py", "test_cli.py"),
    *("content/test_hostile_files.py", "adapters/server/test_bedrock_clients.py", "pii/test_prefilter.py"),
    *("wire/test_calls_of_others.py", "wire/test_google_wire.py", "adversarial/test_value_edges.py"),
)
"""The files that take longest come first, so that no worker ends on one of them while the other has nothing left."""


def with_fewer_examples(test):
    """Let a property that asks for more examples than others be tried with a quarter of them in the first tier.

    Here and not in each test, as adapters and stores inherit properties from the suites that the package publishes.
    """
    function = getattr(test, "__func__", test)
    asked = getattr(function, "_hypothesis_internal_use_settings", None)  # where Hypothesis keeps it; no API sets it
    if asked is None or function in _REDUCED:
        return
    _REDUCED.add(function)
    fewer = min(asked.max_examples, max(EXAMPLES, asked.max_examples // 4))
    function._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)


_REDUCED = set()  # the functions of a suite are those of each class that inherits it


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    place = {HERE / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    for item in items:
        if "transcripts" in getattr(item, "fixturenames", ()):
            item.add_marker("recordings")
        if item.name == "test_no_field_of_any_class_hides_a_value[4111 1111 1111 1111]":
            item.add_marker("slow")  # another value in the same fields
        if IS_FIRST and is_hypothesis_test(getattr(item, "obj", None)):
            with_fewer_examples(item.obj)


@pytest.fixture(scope="module")
def without_gain():
    """Measure no gain, which takes most of the time of a replay, for tests that do not look at it."""
    from ctxguard.harness import gain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gain, "is_installed", lambda: False)
        yield


@pytest.fixture(scope="session")
def transcripts():
    """Folder of the recorded sessions, or a skip that says that they are not here."""
    folder = RECORDINGS / "transcripts"
    if not folder.is_dir():
        pytest.skip("the recorded sessions (../shared/data/transcripts) are not on this machine")
    return folder
