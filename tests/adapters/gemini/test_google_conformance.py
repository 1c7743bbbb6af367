"""The Google adapter passes the suite that every adapter passes, on dicts in both spellings and on SDK objects."""

from __future__ import annotations

import pytest
from builders import chat_of
from conversions import gemini_of

from ctxguard.testing import AdapterConformance
from ctxguard_google import GoogleAdapter

types = pytest.importorskip("google.genai.types", reason="google-genai is not installed (extra google)")


class TestGoogleAdapter(AdapterConformance):
    adapter = GoogleAdapter()
    classes = (types.Content, types.ContentDict)

    def native(self, history):
        return gemini_of(chat_of(history))

    def items(self, native):
        system = [native["systemInstruction"]] if "systemInstruction" in native else []
        return [*system, *native["contents"]]


class TestGoogleAdapterOnObjectsOfTheSDK(TestGoogleAdapter):
    def native(self, history):
        request = gemini_of(chat_of(history))
        native = {"model": "m", "contents": [types.Content.model_validate(one) for one in request["contents"]]}
        if "systemInstruction" in request:
            text = request["systemInstruction"]["parts"][0]["text"]
            native["config"] = types.GenerateContentConfig(system_instruction=text)
        return native

    def items(self, native):
        system = [native["config"].system_instruction] if "config" in native else []
        return [*system, *native["contents"]]


class TestGoogleAdapterOnBareLists(AdapterConformance):
    adapter = GoogleAdapter()

    def native(self, history):
        return gemini_of([m for m in chat_of(history) if m["role"] != "system"])["contents"]

    test_parity_the_artifacts_are_those_of_the_history = None

    def unknown(self):
        return {"role": "narrator", "parts": [{"hologram": {"beam": [1, 2, 3]}}]}
