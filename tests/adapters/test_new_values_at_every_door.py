"""What a model itself writes is found in the answers that a framework shows: streamed, cut at every character."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from doors import DOORS, Wire, asked, shown

from ctxguard import Stabilizer
from ctxguard.adapting.per_run import PerRun, RunOptions
from ctxguard.errors import ConfigError, CtxguardError

NEW = ("new.person@somewhere.example", "4111 1111 1111 1111")
SAID = f"Dear <EMAIL_1>,\nwrite to {NEW[0]}! Your card is {NEW[1]}, 1 < 2 & <EM"
MASKED = "Dear <EMAIL_1>,\nwrite to [REDACTED_EMAIL]! Your card is [REDACTED_CREDIT_CARD], 1 < 2 & <EM"
OTHERS = ("bedrock", "litellm", "pydantic_ai durable")  # the setting is that of the wire, or there is none
GUARDS = [name for name, door in DOORS.items() if not issubclass(door, Wire) and name not in OTHERS]
pytestmark = pytest.mark.filterwarnings("ignore:\\[EXPERIMENTAL\\]")  # ADK warns of its own features
SOME, ALL = range(0, len(SAID), 13), range(len(SAID))


@pytest.mark.parametrize("places", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("door", GUARDS)
async def test_new_values_are_redacted_and_known_ones_restored(door, places):
    for at in places:
        reports = []
        opened = DOORS[door](at, SAID, new_values="mask", on_report=reports.append)
        with opened.closing:
            for text in (asked("ada"), "Again."):
                await opened.read("ada", text, shown("ada", MASKED))
        assert [report.details["new_values"] for report in reports] == 2 * [{"EMAIL": 1, "CREDIT_CARD": 1}]


@pytest.mark.parametrize("door", GUARDS)
async def test_new_values_are_counted_and_shown(door):
    reports = []
    opened = DOORS[door](0, SAID, new_values="report", on_report=reports.append)
    with opened.closing:
        await opened.read("ada", asked("ada"), shown("ada", SAID))
    assert reports[0].details["new_values"] == {"EMAIL": 1, "CREDIT_CARD": 1}


@pytest.mark.parametrize("door", GUARDS)
async def test_new_values_end_the_answer_and_nothing_of_them_is_shown(door):
    for at in SOME:
        opened = DOORS[door](at, SAID, new_values="refuse")
        read = ""
        with opened.closing:
            try:
                async for piece in opened.ask("ada", asked("ada")):
                    read += piece
            except (CtxguardError, RuntimeError) as error:
                assert "the answer introduces a value (EMAIL)" in str(error)
            else:
                assert door in ("ag_ui", "vercel"), "these tell of an error by an event"
        assert "somewhere" not in read
        assert "4111" not in read


@pytest.mark.parametrize("door", GUARDS)
async def test_a_guard_that_does_not_look_shows_what_the_model_wrote(door):
    opened = DOORS[door](3, SAID)
    with opened.closing:
        await opened.read("ada", asked("ada"), shown("ada", SAID))


def test_the_setting_is_one_of_four_and_needs_that_responses_are_read():
    with pytest.raises(ConfigError, match="new_values is 'pass', 'report', 'mask' or 'refuse', not 'hide'"):
        RunOptions(restore=True, new_values="hide")
    with pytest.raises(ConfigError, match="new_values needs restore=True"):
        PerRun(Stabilizer(4_000), options=RunOptions(new_values="mask"))
