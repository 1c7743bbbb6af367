"""Two users say equal words at the same time, of three people each: every door shows each user the right values alone.

Both users go through the same guard, and the model's answers are streamed, cut at every character in turn. What a user
interface reads of them are the values of its own user, event by event, and no model sees a value.
"""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from doors import DOORS, HOSTS, SAID, asked, shown

SOME, ALL = range(0, len(SAID), 9), range(len(SAID))


@pytest.mark.filterwarnings("ignore:\\[EXPERIMENTAL\\]")  # ADK warns of its own features
@pytest.mark.parametrize("places", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("door", DOORS)
async def test_each_user_sees_the_right_values_and_no_model_sees_any(door, places):
    for at in places:
        opened = DOORS[door](at)

        async def converse(user, opened=opened):
            for text in (asked(user), "Again.", asked(user)):
                await opened.read(user, text, shown(user))

        with opened.closing:
            await asyncio.gather(*map(converse, HOSTS))
        assert len(opened.seen) == 2 * 3
        assert not [host for host in HOSTS.values() if host in str(opened.seen)], at
