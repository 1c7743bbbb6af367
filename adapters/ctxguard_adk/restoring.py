"""Restore masked values in the responses to one model call, whole or in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from ctxguard.adapting.restoring import Restorer, StreamRestorer, Tool
from ctxguard.pii.mask.links import Links

_TEXT: Final = "text"
"""The key of the streamed text."""


@dataclass(slots=True, eq=False)
class AdkAnswer:
    """Restores masked values in the responses of a model to one request. No response is changed in place.

    Pieces (`partial` responses) are followed by a response that repeats the whole text. Text that may be the beginning
    of a placeholder is held back until the next piece, or the end of the text.

    Attributes:
        restorer: Restores the values.
        outputs: The names of tools that are structured output. Their arguments get values in any case.
    """

    restorer: Restorer
    outputs: frozenset[str] = frozenset()
    _stream: StreamRestorer = field(init=False)

    def __post_init__(self) -> None:
        self._stream = StreamRestorer(self.restorer)

    def shown(self, response: LlmResponse) -> LlmResponse | None:
        """Return a copy of a response with values restored; None if nothing changes."""
        content = response.content
        if content is None or not content.parts:
            return None
        links = None if response.partial else self.restorer.links()
        parts = [self._part(part, links, is_piece=bool(response.partial)) for part in content.parts]
        if response.partial and response.finish_reason is not None and (rest := self._stream.close(_TEXT)):
            parts.append(types.Part(text=rest))
        if all(now is was for now, was in zip(parts, content.parts, strict=False)) and len(parts) == len(content.parts):
            return None
        return response.model_copy(update={"content": content.model_copy(update={"parts": parts})})

    def _part(self, part: types.Part, links: Links | None, *, is_piece: bool) -> types.Part:
        if part.text and not part.thought:
            text = self._stream.text(_TEXT, part.text) if is_piece else self.restorer.text(part.text, links)
            return part if text == part.text else part.model_copy(update={"text": text})
        call = part.function_call
        name = "" if call is None else call.name or ""
        if call is None or not call.args or not (name in self.outputs or self.restorer.gives([Tool(name)])):
            return part
        given = self.restorer.parsed_arguments(call.args)
        changed = call.model_copy(update={"args": given})
        return part if given is call.args else part.model_copy(update={"function_call": changed})
