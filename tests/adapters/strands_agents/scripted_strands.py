"""A Strands model that plays a script offline, as streams of Converse events with texts and arguments in pieces."""

from __future__ import annotations

import asyncio
import copy
import json

from strands.models import Model


class ScriptedModel(Model):
    """Answers call n with the n-th answer, or the last one: a text, or calls as (name, input) pairs.

    Args:
        answers: The answers. A function gets the request and returns the answer.
        at: Where texts and arguments are cut into two pieces; 0 cuts them into single characters.
        indexed: Whether events say which block they belong to; not all providers do.
    """

    def __init__(self, *answers, at=0, indexed=True):
        self.answers, self.at, self.indexed = list(answers), at, indexed
        self.calls = []
        self.config = {"model_id": "scripted"}

    def update_config(self, **config):
        self.config.update(config)

    def get_config(self):
        return self.config

    def structured_output(self, *args, **settings):
        raise AssertionError("agents call stream alone")

    async def stream(self, messages, tool_specs=None, system_prompt=None, **settings):
        request = {"messages": messages, "tools": tool_specs, "system": system_prompt}
        self.calls.append(copy.deepcopy(request))
        answer = self.answers[min(len(self.calls), len(self.answers)) - 1]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        calls = [] if isinstance(answer, str) else answer
        yield {"messageStart": {"role": "assistant"}}
        for number, one in enumerate([answer] if isinstance(answer, str) else calls):
            place = {"contentBlockIndex": number} if self.indexed else {}
            start, text = {}, one
            if not isinstance(one, str):
                name, given = one
                identity = f"call{len(self.calls)}_{number}"
                start, text = {"toolUse": {"toolUseId": identity, "name": name}}, json.dumps(given)
            yield {"contentBlockStart": {"start": start, **place}}
            for piece in self.pieces(text):
                await asyncio.sleep(0)
                yield {
                    "contentBlockDelta": {"delta": {"toolUse": {"input": piece}} if start else {"text": piece}, **place}
                }
            yield {"contentBlockStop": place}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        yield {
            "metadata": {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}}
        }

    def pieces(self, text):
        return [text[: self.at], text[self.at :]] if self.at else list(text)
