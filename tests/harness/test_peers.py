"""The drivers of other libraries for `ctxguard bench`: each does what its library's documentation says.

What fits is compared in `test_bench`; here the budget is exceeded. A library that is not installed is skipped by name.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from test_bench import driven

from ctxguard.harness.bench import fault_of, fixed_summary
from ctxguard.harness.contestants import Course, GaveUpError, peers_with

PEERS = {peer.name: peer for peer in peers_with(["peers"])}
SYSTEM = {"role": "system", "content": "Be brief."}
TASK = {"role": "user", "content": "Which harbor is each parcel in?"}
ANSWER = " ".join(f"The harbor of parcel {n} is Norrby." for n in range(40))
BUDGET = 2_000
pytestmark = pytest.mark.filterwarnings("ignore")


def step(number, answer=ANSWER):
    function = {"name": "look_up", "arguments": json.dumps({"parcel": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": f"I look up {number}.", "tool_calls": [call]},
        {"role": "tool", "content": answer, "tool_call_id": f"call_{number}"},
    ]


HISTORY = [SYSTEM, TASK, *(message for number in range(16) for message in step(number))]


def words(messages):
    return sum(4 + len(json.dumps(message)) // 5 for message in messages)


def contestant(name, messages, budget=BUDGET):
    make = driven(PEERS[name])
    return make(Course(messages, budget, 0, None, "auto", words, lambda text: len(text) // 5, fixed_summary))


def requests(name, messages, budget=BUDGET):
    """Return the request of each model call: one before each message of the model's, and one at the end."""
    played = contestant(name, messages, budget)
    ends = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    return [played.chat(played.send(end)) for end in (*ends, len(messages))]


def told(messages):
    return "\n".join(str(message["content"]) for message in messages)


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("LangChain summarize", "summary of the conversation"),
        ("deepagents", "saved to /conversation_history/"),
        ("litellm compress", "litellm_content_retrieve"),
        ("Strands auto", "[Summarized: "),
        ("OpenHands", "ObservationEvent (environment)"),
    ],
)
def test_what_leaves_is_marked_as_documented_and_the_request_is_usable(name, mark):
    sent = requests(name, HISTORY)
    assert mark in told(message for each in sent for message in each)
    assert [fault_of(each, HISTORY[:end]) for each, end in zip(sent, range(2, len(HISTORY) + 1, 2), strict=True)] == (
        [None] * len(sent)
    )
    assert words(sent[-1]) < words(HISTORY) / 2
    assert words(HISTORY[:6]) < BUDGET
    assert sent[2] == HISTORY[:6], "what fits is sent as it is"


@pytest.mark.parametrize("name", ["deepagents", "agent-framework", "Strands auto", "OpenHands"])
def test_what_is_kept_stays_in_place_until_the_budget_is_exceeded_again(name):
    sent = requests(name, HISTORY)
    grown = sum(list(later[: len(before)]) == list(before) for before, later in pairwise(sent))
    assert len(sent) // 2 <= grown < len(sent) - 1


def test_old_results_become_notes_before_anything_is_left_out():
    history = [SYSTEM, TASK, *(message for number in range(7) for message in step(number, ANSWER[:700]))]
    (*_, last) = requests("agent-framework", history)
    assert last[2]["content"].startswith("[Tool results: look_up: The harbor")
    assert last[-8:] == history[-8:], "the latest four stay"
    assert fault_of(last, history) is None


def test_stubs_follow_the_latest_question():
    about = [TASK, *(dict(TASK, content=f"Note {n}. " + f"Crane {n} lifts boxes. " * 60) for n in range(8))]
    for number in (2, 5):
        asked = dict(TASK, content=f"What does crane {number} lift?")
        (*_, last) = requests("litellm compress", [*about, asked])
        assert about[1 + number] in last
        assert asked in last


def test_a_large_result_becomes_a_preview_with_a_way_back():
    large = "\n".join(f"Line {n} of the log of harbor {n % 7}." for n in range(900))
    (*_, last) = requests("Strands auto", [SYSTEM, TASK, *step(0, large)], 10**6)
    assert words(last) < words([SYSTEM, TASK, *step(0, large)]) / 2
    assert "[Stashed]" in last[-1]["content"]


def test_a_result_above_its_limit_goes_to_a_file():
    large = "\n".join(f"Line {n} of the log of harbor {n % 7}." for n in range(4_000))
    (*_, last) = requests("deepagents", [SYSTEM, TASK, *step(0, large)], 10**6)
    assert "saved in the filesystem at this path: /large_tool_results/call_0" in last[-1]["content"]
    assert "Line 0 of" in last[-1]["content"]
    assert "Line 3999 of" in last[-1]["content"]


def test_what_cannot_fit_is_refused():
    alone = [SYSTEM, dict(TASK, content=ANSWER * 9)]
    for name in ("deepagents", "Strands auto"):
        played = contestant(name, alone)
        with pytest.raises(GaveUpError):
            played.send(2)


def test_editing_waits_for_its_own_trigger_whatever_the_budget():
    assert requests("LangChain editing", HISTORY)[-1] == HISTORY
    large = [SYSTEM, TASK, *(message for number in range(6) for message in step(number, ANSWER * 90))]
    results = [message["content"] for message in requests("LangChain editing", large)[-1] if message["role"] == "tool"]
    assert results == ["[cleared]"] * 3 + [ANSWER * 90] * 3


def test_headroom_compresses_lists_and_the_live_one_leaves_what_was_sent():
    rows = json.dumps([{"parcel": n, "harbor": "Norrby", "state": "on its way"} for n in range(200)])
    messages = [SYSTEM, TASK, *(message for number in range(6) for message in step(number, rows))]
    anew = requests("headroom", messages)[-1]
    assert words(anew) < words(messages) / 2
    live = requests("headroom live", messages)
    assert all(list(later[: len(before)]) == list(before) for before, later in pairwise(live))
