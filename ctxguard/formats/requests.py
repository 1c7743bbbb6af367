"""Stabilize the requests of a provider's client: the functions of its package, the same for every format."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ctxguard.adapting.adapter import request_flow, stabilize_native, window_for
from ctxguard.adapting.editing import are_same_objects, copy_with
from ctxguard.adapting.fields import member_at
from ctxguard.adapting.request import Request
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import HistoryError
from ctxguard.formats.counting import count_sent

if TYPE_CHECKING:
    from ctxguard.formats.format import Body, Format
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer


class Requests:
    """The functions that stabilize the requests of a provider's client.

    Args:
        formats: The formats of its requests; a request is read by the first format whose history key it has.
        declare: Returns the schema that the SDK derives from a Python function among the tools.
    """

    def __init__(self, *formats: Format, declare: Callable[[object], Body] | None = None) -> None:
        self._formats = formats
        self._declare = declare

    @synchronous
    def stabilize_request(
        self,
        request: Mapping[str, object],
        stabilizer: Stabilizer,
        *,
        incremental: bool = False,
        window: int | None = None,
        keep_thinking: bool = False,
    ) -> Generator[Ask, object, tuple[dict[str, Any], Report]]:
        """Return the stabilized request and the report. The request and all in it are not changed.

        Instructions and descriptions of tools are masked as the messages are. If a rule matches in anything that cannot
        be changed (names, schemas, metadata), the check `NoPII` fails. The request is counted again as it is written;
        if it exceeds the budget as a whole, it is cut again.

        Args:
            request: The arguments of the client's method, or the body of a request: the history and everything else.
            stabilizer: The stabilizer.
            incremental: The calls of earlier responses are on the server (`previous_response_id`, `conversation` of
                OpenAI), so an output without its call is valid and stays.
            window: The model's context window in tokens, if the budget is a share of it.
            keep_thinking: Keep signed thinking from before a cut, for requests that send `drop_block` to the API and
                for models before 2026; see `DropStaleThinking`.

        Raises:
            HistoryError: It is not a request with a history, or a message cannot be read.
            BudgetExceededError: The mandatory messages do not fit.
        """
        kind = self._format(request, incremental=incremental)
        settings, schemas = kind.settings(request)
        place = kind.tools_at(request)
        given = member_at(request, place)
        listed = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        functions = [tool for tool in listed if self._declare is not None and callable(tool)]
        tools = cast("list[Body]", [tool for tool in listed if tool not in functions])
        if self._declare is not None:
            schemas += map(self._declare, functions)
        native = request if kind.system else kind.native(request)
        asked = Request(native, cast("str | None", request.get("instructions")), tools, schemas, settings)

        def written(done: Request[Any]) -> dict[str, Any]:
            body: dict[str, Any] = kind.written(request, done.messages)
            if done.instructions is not None:
                body["instructions"] = done.instructions
            if are_same_objects(done.tools, tools):  # the tools are unchanged
                return body
            now = iter(done.tools)
            return copy_with(body, {place: [tool if tool in functions else next(now) for tool in listed]})

        done, report = yield from request_flow(
            stabilizer,
            kind,
            asked,
            window=window_for(stabilizer, window, request.get("model") or request.get("modelId")),
            keep_thinking=keep_thinking,
            recount=lambda done: count_sent(written(done), kind, stabilizer.counter).tokens,
        )
        return written(done), report

    astabilize_request = asynchronous(stabilize_request)
    """Do the same as `stabilize_request` if summarizers or stores are async."""

    def stabilize_messages(
        self,
        messages: Sequence[Any],
        stabilizer: Stabilizer,
        *,
        system: object = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        window: int | None = None,
        keep_thinking: bool = False,
    ) -> tuple[Any, list[Any], Report]:
        """Return the system prompt, the stabilized messages and the report; see `stabilize_request`.

        The caller sends the tools unchanged: if a rule matches in them, the check `NoPII` fails.
        """
        kind: Any = self._formats[0]
        prompt = kind.system[0]
        native = {kind.history: messages, **({} if system is None else {prompt: system})}
        done, report = stabilize_native(
            stabilizer, kind, native, tools=tools, window=window, keep_thinking=keep_thinking
        )
        return done.get(prompt), done[kind.history], report

    def _format(self, request: object, *, incremental: bool) -> Any:  # noqa: ANN401 - also an adapter
        for kind in self._formats:
            if isinstance(request, Mapping) and (kind.history in request or len(self._formats) == 1):
                return type(kind)(incremental=True) if incremental else kind  # type: ignore[call-arg]  # of Responses
        expected = " or ".join(repr(kind.history) for kind in self._formats)
        raise HistoryError(
            f"expected a request, a dict with {expected}, got {type(request).__name__}; "
            f"a list of {self._formats[0].history} goes to stabilize_messages"
        )
