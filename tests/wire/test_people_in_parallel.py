"""Many people at once, over two workers and a restart: nobody gets another's values, and the provider sees none.

The judge knows the people by tags that are no personal data. The provider that it plays repeats what it was told of each
tag; whatever the client then gets behind a tag is that person's address, or none at all.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import SQLiteStore
from ctxguard.wire import Guard, proxy_app

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

SAID = re.compile(r"(tag[a-z]+) is at ([^\s\",;\\]+)")
ADDRESS = re.compile(r"[a-z]+@mailhost\.org")
KINDS = ("whole history", "named", "conversation", "previous", "named previous")
KEYS = ("key one", "key two")


def letters(number):
    return "".join(chr(97 + int(digit)) for digit in str(number))


class Provider:
    """Keep the histories of conversations and answers, and repeat what is said of each tag."""

    def __init__(self):
        self.held = defaultdict(list)
        self.leaks = []
        self.count = 0

    async def __call__(self, request):
        raw = (await request.aread()).decode()
        self.leaks += ADDRESS.findall(raw)
        body = json.loads(raw)
        key = request.headers["authorization"]
        self.count += 1
        name = f"resp_{self.count}"
        thread = body.get("conversation") or body.get("previous_response_id")
        told = [*self.held[key, thread], *SAID.findall(raw)] if thread else SAID.findall(raw)
        for place in filter(None, (name, body.get("conversation"))):
            self.held[key, place] = told
        text = "; ".join(f"{tag} is at {place}" for tag, place in told)
        await asyncio.sleep(0)
        if not body.get("stream"):
            content = [{"type": "output_text", "text": text}]
            return httpx.Response(200, json={"id": name, "output": [{"type": "message", "content": content}]})
        events = [
            {"type": "response.created", "response": {"id": name, "output": []}},
            *(
                {"type": "response.output_text.delta", "output_index": 0, "delta": text[at : at + 5]}
                for at in range(0, len(text), 5)
            ),
            {"type": "response.completed", "response": {"id": name, "output": []}},
        ]
        data = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return httpx.Response(200, content=data, headers={"content-type": "text/event-stream"})


def text_of(answer):
    """Return what an answer says, streamed or not."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()["output"][0]["content"][0]["text"], answer.json()["id"]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    return "".join(event.get("delta", "") for event in events), events[0]["response"]["id"]


class World:
    """Two workers in front of one provider, which may start again."""

    def __init__(self, folder, *, shares):
        self.provider = Provider()
        self.key = new_key()
        self.place = Path(folder) / "vault.db" if shares else None
        self.verdicts = Counter()
        self.start()

    def start(self):
        self.workers = [self.worker(), self.worker()]

    def worker(self):
        vault = None if self.place is None else Vault(SQLiteStore(self.place), key=self.key)
        guard = Guard(Stabilizer(20_000), vault=vault)
        app = proxy_app(guard, "http://upstream", transport=httpx.MockTransport(self.provider))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://proxy", timeout=PATIENCE)

    async def talk(self, number, chance, turns):
        """Hold one conversation, each turn with any worker."""
        kind, key = KINDS[number % len(KINDS)], chance.choice(KEYS)
        people = {
            f"tag{letters(number)}x{letters(n)}": f"{letters(number)}x{letters(n)}@mailhost.org" for n in range(4)
        }
        told, previous = [], None
        for turn in range(turns):
            tag = chance.choice(list(people))
            told.append(f"{tag} is at {people[tag]}")
            # sessions and conversations have the same names with every key
            headers = {"authorization": f"Bearer {key}"}
            body = {"input": told[-1], "stream": chance.random() < 0.5}
            if kind == "whole history":
                body["input"] = [{"role": "user", "content": one} for one in told]
            if "named" in kind:
                headers["x-ctxguard-session"] = f"s{number // 20}"
            if kind == "conversation":
                body["conversation"] = f"c{number // 20}"
            if "previous" in kind and previous is not None:
                body["previous_response_id"] = previous
            answer = await chance.choice(self.workers).post("/v1/responses", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            text, previous = text_of(answer)
            self.judge(text, people)
            yield turn

    def judge(self, text, own):
        for tag, place in SAID.findall(text):
            address = ADDRESS.fullmatch(place)
            right = f"{tag.removeprefix('tag')}@mailhost.org"
            verdict = "no value" if address is None else "right" if address[0] == right else "wrong person"
            self.verdicts[verdict] += 1
            self.verdicts["of others in a shared session"] += tag not in own


async def run(world, count, turns, seed):
    """Hold conversations in parallel; all workers start again in the middle."""
    chance = random.Random(seed)

    async def batch(numbers, first, last):
        async def one(number):
            async for turn in talks[number]:
                if turn == last - 1:
                    return

        await asyncio.gather(*(one(number) for number in numbers))

    talks = {number: world.talk(number, random.Random(chance.random()), turns) for number in range(count)}
    for first, last in ((0, turns // 2), (turns // 2, turns)):
        numbers = list(talks)
        chance.shuffle(numbers)
        for at in range(0, count, 25):
            await batch(numbers[at : at + 25], first, last)
        world.start()
    return world


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=4)
def test_no_value_comes_to_the_wrong_person(seed, shares):
    with tempfile.TemporaryDirectory() as folder:
        world = asyncio.run(run(World(folder, shares=shares), 25, 4, seed))
    assert world.provider.leaks == []
    assert world.verdicts["wrong person"] == 0
    assert world.verdicts["right"] > 50
    if shares:
        assert world.verdicts["no value"] == 0
