"""CrewAI's messages pass the suite that every adapter passes, on the framework's own type."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("crewai.llms", reason="CrewAI is not installed (extra crewai)")

from dataclasses import dataclass

from builders import chat_of
from crewai.utilities.types import LLMMessage

from ctxguard.adapting.registry import detect_adapter
from ctxguard.testing import AdapterConformance
from ctxguard_crewai import CrewAIAdapter
from ctxguard_crewai.messages import with_parts

pytestmark = pytest.mark.filterwarnings("ignore")  # CrewAI warns of its own dependencies


class TestCrewAIAdapter(AdapterConformance):
    adapter = CrewAIAdapter()
    classes = (LLMMessage,)
    unsearched: ClassVar = {
        "LLMMessage.tool_call_id": "read in results alone; the suite puts it into messages of every role",
        "LLMMessage.files*": "attached; the framework converts them for each provider afterwards",
        "LLMMessage.raw_tool_call_parts": "written again from the calls beside them",
    }

    def native(self, history):
        return [{**message, "cache_breakpoint": True} for message in chat_of(history)]


def test_only_what_crewai_has_added_to_makes_its_messages_known():
    said = [{"role": "user", "content": "hello"}]
    assert not CrewAIAdapter().detects(said)
    assert CrewAIAdapter().detects([{**said[0], "cache_breakpoint": True}])
    assert detect_adapter(said).name == "openai"


@dataclass
class FunctionCall:
    name: str
    args: dict


@dataclass
class Part:
    function_call: FunctionCall
    thought_signature: bytes = b"s"


def test_geminis_own_parts_are_sent_with_the_arguments_of_the_masked_calls():
    part = Part(FunctionCall("send", {"to": "ada@mailhost.org"}))
    calls = [{"id": "c", "type": "function", "function": {"name": "send", "arguments": '{"to": "<EMAIL_1>"}'}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls, "raw_tool_call_parts": [part]}
    (sent,) = with_parts([message])
    assert sent["raw_tool_call_parts"] == [Part(FunctionCall("send", {"to": "<EMAIL_1>"}))]
    assert part.function_call.args == {"to": "ada@mailhost.org"}
    (unpaired,) = with_parts([{**message, "tool_calls": []}])
    assert not unpaired["raw_tool_call_parts"]
