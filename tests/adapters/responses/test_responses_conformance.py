"""The Responses adapter passes the suite that every adapter passes."""

from __future__ import annotations

import pytest
from builders import chat_of
from conversions import responses_of

from ctxguard.testing import AdapterConformance
from ctxguard_openai import ResponsesAdapter


@pytest.mark.no_cover  # many cases of what others run once
class TestResponsesAdapter(AdapterConformance):
    adapter = ResponsesAdapter()

    def native(self, history):
        return responses_of(chat_of(history))

    def unknown(self):
        return {"type": "hologram_call", "id": "hl_1", "beam": [1, 2, 3]}
