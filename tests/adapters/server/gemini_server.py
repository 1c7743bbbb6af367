"""Gemini on loopback: what `generateContent` refuses, a scripted thinking model, and `countTokens`.

Rules and texts are those of Google's pages on function calling and thought signatures, and of issue threads. Two are
stricter than life: every signature must be one that was issued for the call it stands on, and calls without an id are
issued and answered by name and order alone where `ids` is False, as Vertex AI does it.
"""

from __future__ import annotations

import base64
import json
from collections import Counter

from cloud_server import Script, tokens_of
from loopback import require


def _decoded(signature):
    """Return the bytes of a signature, in either alphabet of base64, as the API takes it."""
    return base64.b64decode(signature.translate(str.maketrans("-_", "+/")))


class Gemini(Script):
    """Judge requests, play the model, remember what was sent and issued."""

    def __init__(self, steps=40, *, parallel=1, budget=8_000, ids=True, delay=None):
        super().__init__(steps, parallel=parallel, budget=budget)
        self.ids, self.delay = ids, delay
        self.issued = {}  # signature -> name and id of its call
        self.counted = []

    def headers(self, status):
        return {}

    def refused(self, message):
        error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
        return 400, "application/json", json.dumps({"error": error}).encode()

    def handle(self, path, body):
        method = path.partition("?")[0].rpartition(":")[2]
        if method == "countTokens":
            return self.count(body)
        self.bodies.append(body)
        self.judge(body)
        chunks = list(self.reply(body, in_pieces=method == "streamGenerateContent"))
        if method == "streamGenerateContent":
            return 200, "text/event-stream", [b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks]
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        whole = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
        return 200, "application/json", json.dumps(whole).encode()

    def count(self, body):
        if self.delay is not None:
            self.delay()
        self.counted.append(body)
        return 200, "application/json", json.dumps({"totalTokens": tokens_of(body)}).encode()

    # the rules

    def judge(self, body):
        contents = body["contents"]
        require(contents, "contents is not specified")
        for place, content in enumerate(contents):
            role = content.get("role")
            require(role in ("user", "model"), f"Please use a valid role: user, model. Found {role!r}")
            require(content.get("parts"), f"contents[{place}].parts: must not be empty")
            for part in content["parts"]:
                require(part.get("text") != "", "Unable to submit request because it has an empty text parameter.")
        require(contents[0]["role"] == "user", "Please ensure that multiturn requests begin with a user turn")
        require(contents[-1]["role"] == "user", "Please ensure that multiturn requests end with a user turn")
        for place in range(len(contents)):
            self.judge_turn(contents, place)
        self.judge_signatures(contents)
        self.judge_budget(
            body, "The input token count ({found}) exceeds the maximum number of tokens allowed ({budget})."
        )

    def judge_turn(self, contents, place):
        calls, answers = self.calls(contents[place]), self.answers(contents[place])
        before = contents[place - 1] if place else {"role": "", "parts": []}
        if calls:
            require(
                before["role"] == "user",
                "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
            )
            following = contents[place + 1] if place + 1 < len(contents) else {"parts": []}
            require(self.answers(following), "function call turn must be followed by a function response turn")
        if answers:
            called = self.calls(before)
            require(called, "Please ensure that function response turn comes immediately after a function call turn.")
            require(
                len(called) == len(answers),
                "Please ensure that the number of function response parts is equal to the number of function call parts "
                "of the function call turn.",
            )
            require(
                Counter(call["name"] for call in called) == Counter(answer["name"] for answer in answers)
                # the SDK leaves ids out where it runs functions itself
                and {a["id"] for a in answers if "id" in a} <= {c.get("id") for c in called},
                "function responses do not match function calls",
            )
            require(all(isinstance(a.get("response"), dict) for a in answers), "response must be a Struct")
            if not self.ids:
                require(all("id" not in part for part in called + answers), 'Unknown name "id": Cannot find field.')

    @staticmethod
    def calls(content):
        return [part["functionCall"] for part in content["parts"] if "functionCall" in part]

    @staticmethod
    def answers(content):
        return [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]

    def judge_signatures(self, contents):
        turn = max(n for n, c in enumerate(contents) if c["role"] == "user" and not self.answers(c))
        for place, content in enumerate(contents):
            first = True
            for part in content["parts"]:
                signature = part.get("thoughtSignature")
                if signature is not None:
                    call = part.get("functionCall", {})
                    require(
                        self.issued.get(_decoded(signature)) == (call.get("name"), call.get("id")),
                        "Thought signature is not valid.",
                    )
                if "functionCall" in part:
                    require(
                        place < turn or not first or signature is not None,
                        f"Function call is missing a thought_signature in functionCall parts: {part['functionCall']['name']}",
                    )
                    first = False

    # the model

    def reply(self, body, *, in_pieces):
        self.answered += 1
        address = self.address(body)
        if self.answered > self.steps:
            said = f"All done, {address}."
            cut = len(said) - 4 if in_pieces else 0  # in the middle of the address
            yield self.chunk([{"text": "I thought about it.", "thought": True}])
            for piece in filter(None, (said[:cut], said[cut:])):
                yield self.chunk([{"text": piece}], finish="STOP" if said.endswith(piece) else None)
            return
        calls = [self.call(number, address) for number in range(self.parallel)]
        yield self.chunk([{"text": f"Let me look for {address}."}])
        yield self.chunk(calls, finish="STOP")

    def call(self, number, address):
        name = ("look_up", "find_parcel")[number % 2]
        call = {"name": name, "args": {"query": f"parcels of {address}", "page": self.answered}}
        if self.ids:
            call["id"] = f"fc-{self.answered}-{number}"
        if number:  # the API signs the first of parallel calls only
            return {"functionCall": call}
        signature = base64.b64encode(f"\x12thought {self.answered} ".encode() + bytes(range(64))).decode()
        self.issued[_decoded(signature)] = (name, call.get("id"))
        return {"functionCall": call, "thoughtSignature": signature}

    @staticmethod
    def chunk(parts, finish=None):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}
