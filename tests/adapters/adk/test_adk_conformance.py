"""ADK's contents pass the suite that every adapter passes: objects of its google-genai, whose calls have lost their ids."""

from __future__ import annotations

import pytest

pytest.importorskip("google.adk", reason="the Agent Development Kit is not installed (extra adk)")

from builders import chat_of
from conversions import gemini_of
from google.genai import types

from ctxguard.testing import AdapterConformance
from ctxguard_google import GoogleAdapter


class TestContentsOfADK(AdapterConformance):
    adapter = GoogleAdapter()
    classes = (types.Content,)

    def native(self, history):
        contents = gemini_of([m for m in chat_of(history) if m["role"] != "system"])["contents"]
        return [without_ids(types.Content.model_validate(one)) for one in contents]

    test_parity_the_artifacts_are_those_of_the_history = None


def without_ids(content):
    for part in content.parts:
        for held in (part.function_call, part.function_response):
            if held is not None:
                held.id = None
    return content
