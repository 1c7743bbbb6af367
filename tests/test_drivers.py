"""The drivers: what is asked for may hang, be cancelled or fail; the flow that asked is always ended."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest
from patience import PATIENCE

from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import SummarizerError

HANGS = """
import asyncio, sys, time
from ctxguard.draft import Ask, adrive, drive

def flow(timeout):
    try:
        yield Ask(time.sleep, (600,), timeout)
    except TimeoutError:
        return "given up"

async def cancelled():
    task = asyncio.create_task(adrive(flow(None)))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    return "given up"

ways = {"sync": lambda: drive(flow(0.1)), "async": lambda: asyncio.run(adrive(flow(0.1))),
        "cancelled": lambda: asyncio.run(cancelled())}
print(ways[sys.argv[1]]())
"""


@pytest.mark.parametrize("way", ["sync", "async", "cancelled"])
def test_what_hangs_keeps_neither_the_event_loop_nor_the_process_from_ending(way):
    ended = subprocess.run(
        [sys.executable, "-c", HANGS, way], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.stdout.split("\n")[0] == "given up", ended.stderr


def asking(function, ended):
    try:
        yield Ask(function)
    finally:
        ended.append(True)


def test_a_cancelled_flow_is_ended_at_once_even_while_its_error_is_held():
    ended = []

    async def never():
        await asyncio.Event().wait()

    async def cancel():
        task = asyncio.create_task(adrive(asking(never, ended)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as held:
            await task
        assert ended
        return held

    assert asyncio.run(cancel())


def test_an_interrupted_flow_is_ended_at_once_even_while_its_error_is_held():
    ended = []

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as held:
        drive(asking(interrupt, ended))
    assert held
    assert ended


def told(function, timeout=None):
    return (yield Ask(function, timeout=timeout))


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_what_is_asked_for_sees_the_context_of_the_caller(timeout):
    request = contextvars.ContextVar("request", default="none")
    request.set("r1")
    assert drive(told(request.get, timeout)) == "r1"
    assert asyncio.run(adrive(told(request.get, timeout))) == "r1"


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_error_arrives_where_it_was_asked_for(timeout):
    def fail():
        raise LookupError("not there")

    def forgiving():
        try:
            yield Ask(fail, timeout=timeout)
        except LookupError as error:
            return str(error)

    assert drive(forgiving()) == asyncio.run(adrive(forgiving())) == "not there"


def test_an_awaitable_is_refused_where_nothing_can_await_it():
    async def later():
        return "later"

    def promise():
        return later()

    with pytest.raises(SummarizerError, match="astabilize"):
        drive(told(later, 1.0))
    with pytest.raises(SummarizerError, match="astabilize"):
        drive(told(promise, 1.0))
    assert asyncio.run(adrive(told(promise, 1.0))) == "later"


def test_the_event_loop_goes_on_while_a_function_works():
    gate = threading.Event()

    async def run():
        task = asyncio.create_task(adrive(told(lambda: gate.wait(PATIENCE))))
        await asyncio.sleep(0.01)
        gate.set()
        return await task

    assert asyncio.run(run())


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_function_that_runs_out_of_answers_does_not_make_the_caller_wait(timeout):
    answers = iter(())

    def forgiving():
        try:
            yield Ask(answers.__next__, timeout=timeout)
        except (StopIteration, RuntimeError):
            return "none left"

    assert drive(forgiving()) == asyncio.run(asyncio.wait_for(adrive(forgiving()), 20)) == "none left"
