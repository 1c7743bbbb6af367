"""What the default policy leaves of twelve small sessions, word for word: `make goldens` rewrites the files."""

from __future__ import annotations

import pytest
from goldens import FOLDER, golden
from written import SESSIONS, record

from ctxguard.harness import parse_session, replay
from ctxguard.harness.checking import check_session
from ctxguard.stabilizer import Stabilizer


@pytest.mark.parametrize("name", SESSIONS)
def test_what_stays_of_a_session_is_what_the_golden_file_says(name):
    told = golden(name)
    assert told == (FOLDER / f"{name}.txt").read_text(encoding="utf-8"), (
        "what stays has changed: make goldens, and review"
    )


def test_there_is_one_file_for_each_session():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SESSIONS)


@pytest.mark.usefixtures("without_gain")
@pytest.mark.parametrize("name", SESSIONS)
def test_each_session_is_valid_and_exceeds_its_budget_without_being_refused(name):
    assert list(check_session(parse_session(record(name)))) == []
    told = replay(parse_session(record(name)), Stabilizer(SESSIONS[name][2], counter="estimate"))
    assert told.figures.pressed > 0
    assert (told.figures.refused, told.places) == (0, [])


def test_all_five_formats_are_there():
    adapters = {parse_session(record(name)).adapter.name for name in SESSIONS}
    assert len(adapters) == 5, adapters
