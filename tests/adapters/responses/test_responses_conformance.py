"""The Responses adapter passes the suite that every adapter passes."""

from __future__ import annotations

from builders import chat_of
from conversions import responses_of
from openai.types.responses import ResponseInputItemParam

from ctxguard.testing import AdapterConformance
from ctxguard_openai import ResponsesAdapter


class TestResponsesAdapter(AdapterConformance):
    adapter = ResponsesAdapter()
    classes = (ResponseInputItemParam,)

    def native(self, history):
        return responses_of(chat_of(history))

    def unknown(self):
        return {"type": "hologram_call", "id": "hl_1", "beam": [1, 2, 3]}
