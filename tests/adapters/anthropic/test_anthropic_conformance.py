"""The Anthropic adapter passes the suite that every adapter passes."""

from __future__ import annotations

from anthropic.types import MessageParam
from anthropic.types.beta import BetaMessageParam
from builders import chat_of
from conversions import anthropic_of

from ctxguard.testing import AdapterConformance
from ctxguard_anthropic import AnthropicAdapter


class TestAnthropicAdapter(AdapterConformance):
    adapter = AnthropicAdapter()
    classes = (MessageParam, BetaMessageParam)

    def native(self, history):
        return anthropic_of(chat_of(history))

    def items(self, native):
        return [native["system"], *native["messages"]] if "system" in native else list(native["messages"])


class TestAnthropicAdapterOnBareLists(AdapterConformance):
    adapter = AnthropicAdapter()

    def native(self, history):
        return anthropic_of([m for m in chat_of(history) if m["role"] != "system"])["messages"]

    test_parity_the_artifacts_are_those_of_the_history = None

    def unknown(self):
        return {"role": "narrator", "content": [{"type": "hologram", "beam": [1, 2, 3]}]}
