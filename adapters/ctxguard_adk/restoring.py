"""Restore masked values in the responses to one model call, whole or in pieces."""

from __future__ import annotations

from typing import Final

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from ctxguard.adapting.restoring import AnyRestorer, Restorer, StreamRestorer, WholeRestorer

_TEXT: Final = "text"
"""The key of the streamed text."""


class AdkAnswer:
    """Restores masked values in the responses of a model to one request. No response is changed in place.

    Pieces (`partial` responses) are followed by a response that repeats the whole text. Text that may be the beginning
    of a placeholder is held back until the next piece, or the end of the text.
    """

    def __init__(self, restorer: Restorer) -> None:
        self._restorer = restorer
        self._stream = StreamRestorer(restorer)

    def restored(self, response: LlmResponse) -> LlmResponse | None:
        """Return a copy of a response with values restored; None if nothing changes."""
        content = response.content
        if content is None or not content.parts:
            return None
        restored = self._stream if response.partial else WholeRestorer(self._restorer)
        parts = [self._part(part, restored) for part in content.parts]
        if response.partial and response.finish_reason is not None and (rest := self._stream.close(_TEXT)):
            parts.append(types.Part(text=rest))
        if parts == content.parts:
            return None
        return response.model_copy(update={"content": content.model_copy(update={"parts": parts})})

    def _part(self, part: types.Part, restored: AnyRestorer) -> types.Part:
        if part.text and not part.thought:
            return part.model_copy(update={"text": restored.text(_TEXT, part.text)})
        call = part.function_call
        if call is None:
            return part
        given = self._restorer.of_call(call.name or "", call.args)  # calls are whole in pieces, too
        return part.model_copy(update={"function_call": call.model_copy(update={"args": given})})
