"""The Strands adapter passes the suite that every adapter passes, on the framework's own types."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("strands", reason="Strands is not installed (extra strands)")

from builders import chat_of
from conversions import converse_of
from strands.types.content import Message

from ctxguard.adapting.registry import detect_adapter
from ctxguard.testing import AdapterConformance
from ctxguard_strands import StrandsAdapter


class TestStrandsAdapter(AdapterConformance):
    adapter = StrandsAdapter()
    classes = (Message,)
    unsearched: ClassVar = {
        "Message.tracking_id": "the framework removes it before it calls a model",
        "MessageMetadata.*": "the framework removes it before it calls a model",
        "Usage.*": "the same",
        "Metrics.*": "the same",
        "CachePoint.*": "words of the API, such as `default` and `5m`",
    }

    def native(self, history):
        messages = converse_of([m for m in chat_of(history) if m["role"] != "system"])["messages"]
        return [{**message, "tracking_id": str(number)} for number, message in enumerate(messages)]

    test_parity_the_artifacts_are_those_of_the_history = None

    def unknown(self):
        return {"role": "narrator", "content": [{"hologram": {"beam": [1, 2, 3]}}]}


def test_only_what_strands_has_added_to_makes_its_messages_known():
    said = [{"role": "user", "content": [{"text": "hello"}]}]
    assert not StrandsAdapter().detects(said)
    assert StrandsAdapter().detects([{**said[0], "tracking_id": "t1"}])
    assert detect_adapter(said).name == "bedrock"
