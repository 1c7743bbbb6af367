"""`run_sync` of a framework leaves an event loop open, so each test gets a loop that is closed behind it.

That of OpenAI's Agents SDK also shuts down the generators of the loop, after which PydanticAI cannot use it.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest


@pytest.fixture(autouse=True)
def event_loop_of_run_sync(request):
    if inspect.iscoroutinefunction(request.function):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    asyncio.set_event_loop(None)
