"""A model that plays a script: the Agents SDK's own, or where a version has none the least that its interface asks for."""

from __future__ import annotations

import json
from types import SimpleNamespace

from agents import ModelResponse, Usage
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

try:
    from agents.testing import ScriptedModel, assistant_message, function_call
except ImportError:

    def assistant_message(text):
        content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
        return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=content)

    def function_call(name, arguments, *, call_id):
        return ResponseFunctionToolCall(
            type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id
        )

    class ScriptedModel(Model):
        def __init__(self, steps):
            self.steps, self.calls = list(steps), []

        async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002 - the SDK's name
            self.calls.append(SimpleNamespace(input=list(input)))
            return ModelResponse(output=self.steps[len(self.calls) - 1], usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise AssertionError("the tests of this version do not stream")


__all__ = ["ScriptedModel", "assistant_message", "function_call"]
