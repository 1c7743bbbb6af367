"""What no middleware sees goes through the wire: subagents, summarizers and file offload of deepagents and LangChain."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager

import pytest
from wire_server import WireProvider, provider_at, proxy_at

from ctxguard import Stabilizer
from ctxguard.wire import Guard, proxy_app

pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from ctxguard_langchain import guarded

MAIL = "ann@example.com"
PLANTED = "@example.com"
ROWS = "\n".join(f"row {number}: the order left the warehouse, mail bob{number}@example.com" for number in range(40))


def names_of(body):
    return {one.get("function", one)["name"] for one in body.get("tools", ())}


class Delegating(WireProvider):
    """Play a main agent that hands tasks to subagents, and summarizers, which have no tools."""

    def __init__(self, *, tasks, steps, ends_with=()):
        super().__init__(steps=steps)
        self.tasks, self.ends_with, self.roles = tasks, list(ends_with), []

    def handle(self, path, body):
        names = names_of(body)
        self.role = "main" if "task" in names else "subagent" if "look_up" in names else "summarizer"
        self.roles.append(self.role)
        return super().handle(path, body)

    def chat(self, body):
        answer = super().chat(body)
        calls = answer["choices"][0]["message"].get("tool_calls", ())
        if self.role == "main" and calls:
            name, arguments = self.next_call()
            calls[0]["function"] = {"name": name, "arguments": json.dumps(arguments)}
        return answer

    def messages(self, body):
        answer = super().messages(body)
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if self.role == "main" and calls:
            calls[0]["name"], calls[0]["input"] = self.next_call()
        return answer

    def next_call(self):
        if self.tasks:
            self.tasks -= 1
            return "task", {"description": f"Find {self.named()}.", "subagent_type": "clerk"}
        return self.ends_with.pop(0)

    def wants_tools(self, questions):
        if self.role == "main":
            return bool(self.tasks or self.ends_with)
        return self.role == "subagent" and super().wants_tools(questions)


def looks_up(found, rows=ROWS):
    @tool
    def look_up(query: str, note: str) -> str:
        """Look an order up; ask help@example.com where it fails."""
        found.append(query)
        return rows

    return look_up


def model_at(address, guard, **settings):
    model = ChatOpenAI(model="m", base_url=f"{address}/v1", api_key="none", max_retries=0, **settings)
    return guarded(model, guard)


@contextmanager
def through(door, api, provider, guard, **settings):
    """Give a chat model whose calls go through the guard: the model is guarded, or a proxy stands before the provider."""
    with ExitStack() as stack:
        address = stack.enter_context(provider_at(provider))
        if door == "proxy":
            address = stack.enter_context(proxy_at(proxy_app(guard, address)))
        if api == "messages":
            claude = pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")
            settings = {**settings, "max_tokens": 9, "base_url": address}
            model = claude.ChatAnthropic(model="claude-m", api_key="none", max_retries=0, **settings)
        else:
            model = ChatOpenAI(model="m", base_url=f"{address}/v1", api_key="none", max_retries=0, **settings)
        yield model if door == "proxy" else guarded(model, guard)


def judge(provider, budget):
    assert provider.refusals == []
    assert PLANTED not in json.dumps(provider.bodies)
    assert max(map(provider.tokens, provider.bodies)) <= budget


@pytest.mark.parametrize(
    ("door", "api", "stream"),
    [
        pytest.param("model", "chat", False, marks=pytest.mark.slow),
        pytest.param("model", "chat", True, marks=pytest.mark.slow),
        pytest.param("proxy", "chat", True, marks=pytest.mark.slow),
        pytest.param("proxy", "messages", False, marks=pytest.mark.slow),
        ("proxy", "messages", True),
    ],
)
def test_deepagents_with_subagents_and_files(door, api, stream):
    deepagents = pytest.importorskip("deepagents", reason="deepagents is not installed")
    budget, found = 12_000, []
    write = ("write_file", {"file_path": "/notes.md", "content": "write to <EMAIL_1>"})
    read = ("read_file", {"file_path": "/notes.md"})
    provider = Delegating(tasks=4, steps=9, ends_with=[write, read])
    guard = Guard(Stabilizer(budget, counter="o200k_base"))
    with through(door, api, provider, guard, streaming=stream) as model:
        look_up = looks_up(found)
        agent = deepagents.create_deep_agent(
            model,
            [look_up],
            system_prompt=f"You work for boss{PLANTED}.",
            subagents=[
                {
                    "name": "clerk",
                    "description": f"Looks orders up; reports to boss{PLANTED}.",
                    "system_prompt": f"You are the clerk of boss{PLANTED}.",
                    "tools": [look_up],
                }
            ],
        )
        state = agent.invoke({"messages": [("user", f"Find {MAIL}.")]}, {"recursion_limit": 500})
    judge(provider, budget)
    assert len(provider.bodies) >= 40
    assert set(provider.roles) == {"main", "subagent"}
    assert set(found) == {MAIL}
    assert len(found) == 4 * 9
    assert state["messages"][-1].text == f"All done, {MAIL}."
    assert "write to " in str(state["files"]["/notes.md"])


class Reading(Delegating):
    """Look an order up, and read on in the file where deepagents has put the large result."""

    def next_call(self):
        name, arguments = self.ends_with.pop(0)
        if name == "look_up":
            arguments = {**arguments, "query": self.named()}
        else:
            arguments = {
                **arguments,
                "file_path": re.search(r"/large_tool_results/[\w-]+", json.dumps(self.bodies[-1]))[0],
            }
        return name, arguments


def test_large_results_that_deepagents_puts_into_files():
    deepagents = pytest.importorskip("deepagents", reason="deepagents is not installed")
    budget, found = 14_000, []
    rows = "\n".join(ROWS.replace("row ", f"page {number} row ") for number in range(60))
    look, read = ("look_up", {"note": ""}), ("read_file", {"offset": 2_390, "limit": 10})
    provider = Reading(tasks=0, steps=0, ends_with=[look, read])
    with provider_at(provider) as address:
        model = model_at(address, Guard(Stabilizer(budget, counter="o200k_base")))
        agent = deepagents.create_deep_agent(model, [looks_up(found, rows)])
        state = agent.invoke({"messages": [("user", f"Find {MAIL}.")]}, {"recursion_limit": 500})
    judge(provider, budget)
    assert found == [MAIL]
    (kept,) = (file for path, file in state["files"].items() if path.startswith("/large_tool_results/"))
    text = kept["content"] if isinstance(kept["content"], str) else "\n".join(kept["content"])
    assert text == rows, "the file holds the values, whole"
    assert "page 59 row 39" in json.dumps(provider.bodies[-1]), "what was read from the file is sent"
    assert state["messages"][-1].text == f"All done, {MAIL}."


def test_the_summarizer_of_langchain():
    pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware

    budget, found, provider = 6_000, [], Delegating(tasks=0, steps=40)
    with provider_at(provider) as address:
        model = model_at(address, Guard(Stabilizer(budget, counter="o200k_base")))
        summarizes = SummarizationMiddleware(model, trigger=("messages", 12), keep=("messages", 4))
        agent = create_agent(model, [looks_up(found)], middleware=[summarizes])
        state = agent.invoke({"messages": [("user", f"Find {MAIL}.")]}, {"recursion_limit": 500})
    judge(provider, budget)
    assert provider.roles.count("summarizer") >= 5
    assert provider.roles.count("subagent") == 41
    assert len(found) == 40
    assert state["messages"][-1].text.startswith("All done, ")
