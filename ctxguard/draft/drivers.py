"""Drivers that run a flow. A flow is a generator that performs no I/O itself, but yields the calls that it needs.

One implementation of a flow thus serves both sync and async code. The pattern is called sans-I/O; httpx uses it for
authentication.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import wraps
from threading import Thread
from types import coroutine
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from ctxguard.errors import SummarizerError

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the driver to call a function that performs I/O, such as a summarizer or a method of a store.

    Attributes:
        function: A sync or async function.
        args: The arguments of the call.
        timeout: Number of seconds after which the driver raises `TimeoutError` inside the flow; None means no limit.
        is_read: Whether the function only reads, so that it may be called again.
        is_pure: Whether the function only takes long, and does no I/O, so that dry runs call it, too.
    """

    function: Callable[..., object]
    args: tuple[object, ...] = ()
    timeout: float | None = None
    is_read: bool = False
    is_pure: bool = False


Answer: TypeAlias = Callable[[Ask], object]


async def _run(flow: Generator[Ask, object, Result], answer: Callable[[Ask], Awaitable[object]]) -> Result:
    """Run a flow to its end and return its result. The flow is closed even if an error occurs."""
    with closing(flow):
        try:
            ask = next(flow)
            while True:
                try:
                    reply = await answer(ask)
                except Exception as error:  # noqa: BLE001 - the flow decides what the failure of its call means
                    ask = flow.throw(error)
                else:
                    ask = flow.send(reply)
        except StopIteration as stop:
            return cast("Result", stop.value)


def drive(flow: Generator[Ask, object, Result], *, answer: Answer | None = None) -> Result:
    """Run a flow to its end, calling the functions that it requests, and return its result.

    Args:
        flow: The flow, which is closed even if an error occurs.
        answer: Function that handles the requests instead of calling the requested functions; None calls them.
    """

    async def called(ask: Ask) -> object:
        return (answer or _call)(ask)

    try:
        _run(flow, called).send(None)  # this coroutine never waits, so it needs no event loop
    except StopIteration as stop:
        return cast("Result", stop.value)
    raise AssertionError


async def adrive(flow: Generator[Ask, object, Result]) -> Result:
    """Run a flow to its end, and await the functions that it requests. It is closed even if the task is canceled."""
    return await _run(flow, _acall)


def synchronous(flow: Callable[Given, Generator[Ask, object, Result]]) -> Callable[Given, Result]:
    """Decorate a generator function, so that calling it runs the flow with `drive` and returns the result."""

    @wraps(flow)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return drive(flow(*args, **kwargs))

    return run


def flow_of(function: Callable[Given, Result]) -> Callable[Given, Generator[Ask, object, Result]]:
    """Return the generator function that `synchronous` decorated."""
    return cast("Callable[Given, Generator[Ask, object, Result]]", inspect.unwrap(function))


def asynchronous(function: Callable[Given, Result]) -> Callable[Given, Coroutine[Any, Any, Result]]:
    """Return the async counterpart of a function that `synchronous` decorated; it runs the flow with `adrive`."""
    flow = flow_of(function)

    @wraps(flow)
    async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await adrive(flow(*args, **kwargs))

    return run


def reads_only(flow: Generator[Ask, object, Result]) -> Generator[Ask, object, Result]:
    """Run a flow, pass on its requests that only read, and reject all others.

    Raises:
        SummarizerError: Inside the flow, if it makes a request that does not only read.
    """

    @coroutine
    def passed(ask: Ask) -> Generator[Ask, object, object]:
        return (yield ask) if ask.is_read else refuse(ask)

    return (yield from _run(flow, passed).__await__())


def refuse(ask: Ask) -> object:
    """Reject a request that a flow makes in a dry run, unless its function does no I/O.

    Raises:
        SummarizerError: If the function may do I/O.
    """
    if ask.is_pure:
        return _call(ask)
    raise SummarizerError("a dry run calls no summarizer and no store")


def _call(ask: Ask) -> object:
    if inspect.iscoroutinefunction(ask.function):
        raise SummarizerError(
            f"{getattr(ask.function, '__name__', 'the function')} is async and stabilize() is not; use astabilize()"
        )
    reply = ask.function(*ask.args) if ask.timeout is None else _in_thread(ask).result(ask.timeout)
    if isinstance(reply, Awaitable):
        if inspect.iscoroutine(reply):
            reply.close()
        raise SummarizerError("the function returned an awaitable and stabilize() is not async; use astabilize()")
    return reply


def _in_thread(ask: Ask) -> Future[object]:
    """Call the requested function in a new thread, with the caller's context variables.

    No thread pool is used: pools wait for their threads when the event loop or the process ends, so a function that
    hangs would block both.
    """
    future: Future[object] = Future()
    run = copy_context().run

    def call() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(run(ask.function, *ask.args))
        except StopIteration as error:  # an asyncio future rejects StopIteration: the awaiting task would wait forever
            future.set_exception(RuntimeError(f"the function raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - `Future.result` raises it
            future.set_exception(error)

    Thread(target=call, name="ctxguard-ask", daemon=True).start()
    return future


async def _acall(ask: Ask) -> object:
    if inspect.iscoroutinefunction(ask.function):
        return await asyncio.wait_for(ask.function(*ask.args), ask.timeout)
    reply = await asyncio.wait_for(asyncio.wrap_future(_in_thread(ask)), ask.timeout)
    return await asyncio.wait_for(reply, ask.timeout) if isinstance(reply, Awaitable) else reply
