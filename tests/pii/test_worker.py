"""A detector in a process of its own: what it finds is masked, and no failure of it lets a text pass."""

from __future__ import annotations

import os
from functools import partial

import pytest
from patience import PATIENCE
from worker_models import broken, names

from ctxguard.errors import ConfigError, DetectorError
from ctxguard.pii import STANDARD, Masker, WorkerDetector


@pytest.fixture
def worker():
    detector = WorkerDetector(names, name="names", timeout=PATIENCE)
    yield detector
    detector.close()


def test_names_are_found_in_another_process_beside_the_rules(worker):
    masker = Masker([STANDARD, worker])
    assert masker.mask("Ask Zora, ada@corp-mail.net") == "Ask [REDACTED_PERSON], [REDACTED_EMAIL]"
    (found,) = worker.find("pid")
    assert found.label != f"PID_{os.getpid()}"
    assert worker.find("pid")[0].label == found.label, "one process serves all texts"
    assert [[one.label for one in spans] for spans in worker.find_many(["Zora and Bob", "nobody", "Bob"])] == [
        ["PERSON", "PERSON"],
        [],
        ["PERSON"],
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("hang", "failed with TimeoutError"), ("crash", "failed with TimeoutError"), ("raise", "failed with ValueError")],
)
def test_no_failure_lets_a_text_pass_and_the_next_text_is_searched(worker, text, reason):
    assert not worker.find("nobody"), "the process is there, so that only the text takes time"
    worker._timeout = PATIENCE if text == "raise" else 0.5
    with pytest.raises(DetectorError, match=reason) as error:
        Masker([STANDARD, worker]).mask(f"{text} Zora")
    worker._timeout = PATIENCE
    assert "Zora" not in str(error.value)
    assert Masker([STANDARD, worker]).mask("Zora is well") == "[REDACTED_PERSON] is well"


def test_a_text_that_could_not_be_searched_is_hidden_where_that_is_asked(worker):
    hiding = Masker([STANDARD, worker], on_detector_error="redact")
    assert hiding.mask("raise Zora") == "[REDACTED_UNCHECKED]"
    assert hiding.mask("Zora is well") == "[REDACTED_PERSON] is well"


def test_a_model_that_cannot_be_loaded_is_said_by_the_name_of_its_error():
    with pytest.raises(DetectorError, match="failed with OSError on 4 characters"):
        Masker(WorkerDetector(partial(broken))).mask("Zora")
    with pytest.raises(ConfigError, match="timeout"):
        WorkerDetector(names, timeout=0)
