"""A response item that comes back keeps no number that means somebody else now, however the history changed meanwhile."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import crossed

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard.wire import Guard, Transport

PEOPLE = ("zora", "mikel", "petra", "osman")
PLACEHOLDER = re.compile(r"<EMAIL_[\d_]+>")
SESSION = "x-ctxguard-session"


class Model:
    """Answers by repeating the last placeholder that it sees in the last user message."""

    def __init__(self, streams=False):
        self.bodies = []
        self.streams = streams

    def __call__(self, request):
        body = json.loads(request.content)
        self.bodies.append(body)
        users = [text for text in texts_of(body["input"]) if PLACEHOLDER.search(text)]
        said = f"I wrote to {PLACEHOLDER.findall(users[-1])[-1]}" if users else "ok"
        number = len(self.bodies)
        part = {"type": "output_text", "text": said, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
        answer = {"id": f"resp_{number}", "object": "response", "output": [item]}
        if not body.get("stream"):
            return httpx.Response(200, json=answer)
        events = [
            {"type": "response.created", "response": {"id": answer["id"], "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": answer},
        ]
        data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return httpx.Response(200, text=data, headers={"content-type": "text/event-stream"})


def texts_of(value):
    if isinstance(value, str):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_of(member)


def user(text):
    return {"role": "user", "content": text}


class Talk:
    def __init__(self, *, streams=False, **settings):
        self.model = Model()
        self.streams = streams
        guard = Guard(Stabilizer(9_000), **settings)
        self.client = httpx.Client(
            base_url="http://p", transport=Transport(guard, transport=httpx.MockTransport(self.model))
        )

    def ask(self, items, *, headers=None, **fields):
        body = {"model": "m", "input": items, "stream": self.streams, **fields}
        answer = self.client.post("/v1/responses", json=body, headers=headers or {})
        assert answer.status_code == 200, answer.text
        if self.streams:
            events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
            return next(event["item"] for event in events if event["type"] == "response.output_item.done")
        return answer.json()["output"][0]

    def means_one_thing(self, items):
        """Return whether each person has one placeholder in the body that was sent last, and each placeholder one person."""
        sent = list(texts_of(self.model.bodies[-1]["input"]))
        said = [text for text in texts_of(items) if "@mailhost.org" in text]
        shown = [text for text in sent if PLACEHOLDER.search(text)]
        pairs = {
            pair
            for was, now in zip(said, shown, strict=True)
            for pair in zip(re.findall(r"\w+@mailhost\.org", was), PLACEHOLDER.findall(now), strict=True)
        }
        return len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(pairs)


def talk(**settings):
    talk = Talk(**settings)
    items = [user("I am zora@mailhost.org")]
    items += [talk.ask(items), user("also write to mikel@mailhost.org")]
    items += [talk.ask(items), user("now petra@mailhost.org is the boss")]
    items += [talk.ask(items), user("and osman@mailhost.org helps")]
    return talk, items


def test_in_a_history_that_goes_on_an_item_is_sent_as_the_provider_wrote_it():
    talked, items = talk()
    talked.ask(items)
    assert talked.model.bodies[-1]["input"][1]["id"] == "msg_1"
    assert talked.means_one_thing(items)


CHANGES = {
    "only the last items": lambda items: items[2:],
    "only the very last items": lambda items: items[4:],
    "without a message in the middle": lambda items: items[:2] + items[3:],
    "somebody new at first": lambda items: [user("osman@mailhost.org is on the phone"), *items],
    "turned around": lambda items: [items[6], items[4], items[5], items[2], items[3]],
    "items of the assistant alone": lambda items: [items[5], items[3], items[6]],
}
KEEPS = {
    "nothing": lambda: ({}, {}),
    "a vault": lambda: ({"vault": Vault(MemoryStore(), key=new_key())}, {}),
    "a named session": lambda: ({}, {SESSION: "s"}),
    "a named session in a vault": lambda: ({"vault": Vault(MemoryStore(), key=new_key())}, {SESSION: "s"}),
}


@pytest.mark.parametrize(("change", "keeps", "streams"), crossed(5, CHANGES, KEEPS, [False, True]))
def test_in_one_body_a_person_has_one_placeholder(change, keeps, streams):
    settings, headers = KEEPS[keeps]()
    talked, items = talk(streams=streams, **settings)
    shorter = CHANGES[change](items)
    answer = talked.ask(shorter, headers=headers)
    assert talked.means_one_thing(shorter)
    assert answer["content"][0]["text"] in {f"I wrote to {name}@mailhost.org" for name in PEOPLE}
    last = re.findall(r"\w+@mailhost\.org", json.dumps([one for one in shorter if one["role"] == "user"]))[-1]
    assert answer["content"][0]["text"] == f"I wrote to {last}"
    # and it goes on from there
    longer = [*shorter, answer, user("write to ines@mailhost.org")]
    assert talked.ask(longer, headers=headers)["content"][0]["text"] == "I wrote to ines@mailhost.org"
    assert talked.means_one_thing(longer)


@pytest.mark.parametrize("where", ["instructions", "metadata"])
def test_a_value_in_another_field_that_is_numbered_first_changes_nobody(where):
    talked, items = talk()
    told = "osman@mailhost.org is the boss"
    talked.ask(items, **{where: told if where == "instructions" else {"note": "x"}})
    assert talked.means_one_thing(items)


def test_an_item_of_one_session_means_the_same_person_in_another():
    talked, items = talk(vault=Vault(MemoryStore(), key=new_key()))
    first = [user("osman@mailhost.org is here")]
    talked.ask(first, headers={SESSION: "other"})
    talked.ask(items[2:], headers={SESSION: "other"})
    assert talked.means_one_thing(items[2:])


@given(st.data())
def test_any_choice_of_items_means_one_thing(data):
    talked, items = talk()
    for _ in range(3):
        chosen = data.draw(st.lists(st.sampled_from(items), min_size=1, max_size=6, unique_by=id))
        if chosen[-1]["role"] != "user":
            chosen.append(user("go on"))
        talked.ask(chosen)
        assert talked.means_one_thing(chosen)


def test_a_continued_answer_knows_the_numbers_of_its_items():
    for settings in ({}, {"vault": Vault(MemoryStore(), key=new_key())}):
        talked, items = talk(**settings)
        shorter = items[2:]
        talked.ask(shorter)
        number = len(talked.model.bodies)
        answer = talked.ask([user("write to petra@mailhost.org")], previous_response_id=f"resp_{number}")
        assert answer["content"][0]["text"] == "I wrote to petra@mailhost.org"
        known = {
            name: PLACEHOLDER.findall(json.dumps(talked.model.bodies[n]["input"]))
            for n, name in ((-1, "now"), (-2, "then"))
        }
        assert known["now"][-1] in known["then"]
