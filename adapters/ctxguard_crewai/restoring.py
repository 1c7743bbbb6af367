"""Restore masked values in the answer to one call of an LLM: a text, tool calls, structured output, or a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from crewai.agents.constants import ACTION_INPUT_REGEX
from pydantic import BaseModel

from ctxguard.adapting.fields import get, member_at
from ctxguard.adapting.restoring import Restorer, StreamRestorer
from ctxguard_crewai.messages import with_field

_TEXT: Final = "text"
"""The key of the streamed text."""
_HOLDERS: Final = ("function", "function_call")
_ARGUMENTS: Final = ("arguments", "args", "input")
"""The fields of a call that hold its name and arguments, by provider."""


@dataclass(slots=True, eq=False)
class CrewAnswer:
    """Restores masked values in one answer. What the LLM returned is copied, never changed.

    Attributes:
        restorer: Restores the values.
        is_shown: Whether texts get values, too. Otherwise, only the arguments of calls do.
        ran: Whether the LLM itself ran a tool, so that the answer is what the tool returned.
    """

    restorer: Restorer
    is_shown: bool
    ran: bool = False
    _stream: StreamRestorer = field(init=False)

    def __post_init__(self) -> None:
        self._stream = StreamRestorer(self.restorer)

    def whole(self, answer: Any) -> Any:  # noqa: ANN401 - the framework's own
        """Return an answer with values restored."""
        if self.ran:
            return answer
        if isinstance(answer, str):
            return self._text(answer)
        if isinstance(answer, list):
            return [self._call(call) for call in answer]
        if isinstance(answer, BaseModel):
            restored = self.restorer.restored_arguments(answer.model_dump_json(), gives_values=True)
            return type(answer).model_validate_json(restored)
        return answer

    def feed(self, text: str) -> str:
        """Return what can be shown of the streamed text after its next piece."""
        return self._stream.text(_TEXT, text) if self.is_shown else text

    def close(self) -> str:
        """Return what is still held back of the streamed text, once it has ended."""
        return self._stream.close(_TEXT)

    def functions(self, given: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return functions for the LLM to run, which get their arguments with values restored."""

        def restoring(name: str) -> Callable[..., Any]:
            def run(**arguments: Any) -> Any:  # noqa: ANN401
                self.ran = True
                return given[name](**self.restorer.of_call(name, arguments))

            return run

        return {name: restoring(name) for name in given}

    def _text(self, text: str) -> str:
        """Return a text, in which an agent without native calls writes the name of a tool and its input."""
        action = ACTION_INPUT_REGEX.search(text)
        said, given = (text, "") if action is None else (text[: action.start(2)], text[action.start(2) :])
        shown = self.restorer.text(self.restorer.searched(said)) if self.is_shown else said
        return shown if action is None else shown + self.restorer.of_call(action[1].strip(" *`\"'"), given)

    def _call(self, call: Any) -> Any:  # noqa: ANN401 - a dict, or an object of the provider's SDK
        holder = next(((name,) for name in _HOLDERS if get(call, name) is not None), ())
        inner = member_at(call, holder)
        key = next((name for name in _ARGUMENTS if get(inner, name)), None)
        if key is None:
            return call
        return with_field(call, (*holder, key), self.restorer.of_call(str(get(inner, "name")), get(inner, key)))
