"""google-genai's client runs long tool loops against a strict server on loopback, by each way in."""

from __future__ import annotations

import pytest
from cloud_server import PLANTED, output, serving
from gemini_server import Gemini

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard_google import guarded, stabilize_request

genai = pytest.importorskip("google.genai", reason="google-genai is not installed (extra google)")
types = genai.types

SYSTEM = "You are a clerk. In doubt write to ops-pager@mailhost.org."
QUESTION = "I am ann@example.com, my number is 536-22-8726. Where are my parcels?"
TOOLS = [
    {
        "function_declarations": [
            {
                "name": name,
                "description": "Looks up parcels; maintained by ops-pager@mailhost.org.",
                "parameters_json_schema": {"type": "object", "properties": {"query": {"type": "string"}}},
            }
            for name in ("look_up", "find_parcel")
        ]
    }
]
BUDGET = 8_000
STEPS = 16


@pytest.fixture
def client_at():
    made = []

    def make(address):
        made.append(genai.Client(api_key="none", http_options=types.HttpOptions(base_url=address)))
        return made[-1]

    yield make
    for client in made:  # older versions have no way to close a client
        client._api_client._httpx_client.close()


def answers(calls):
    return [
        types.Part(
            function_response=types.FunctionResponse(
                id=call.id, name=call.name, response={"result": output(call.args["page"])}
            )
        )
        for call in calls
    ]


def config():
    return types.GenerateContentConfig(
        system_instruction=SYSTEM,
        tools=[types.Tool.model_validate(tool) for tool in TOOLS],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )


def whole(models, request):
    return models.generate_content(**request).candidates[0].content


def streamed(models, request):
    parts = [part for chunk in models.generate_content_stream(**request) for part in chunk.candidates[0].content.parts]
    return types.Content(role="model", parts=parts)


def loop(client, send, fit=lambda request: request):
    """Run the loop as the documentation shows it: append the model's content, then the responses."""
    contents = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
    while True:
        content = send(client.models, fit({"model": "gemini-3-pro", "contents": contents, "config": config()}))
        contents.append(content)
        calls = [part.function_call for part in content.parts if part.function_call]
        if not calls:
            return contents
        contents.append(types.Content(role="user", parts=answers(calls)))


def judged(server):
    assert server.refusals == []
    assert len(server.bodies) == STEPS + 1
    assert server.leaks() == []
    assert server.extended("contents") >= 0.7


def loops(*first):
    """Try every way to run a loop, and those that are not among the `first` in the slow tier alone."""
    ways = [(whole, 1, True), (whole, 3, False), (streamed, 1, False), (streamed, 3, True)]
    marked = [pytest.param(*way, marks=() if way in first else pytest.mark.slow) for way in ways]
    return pytest.mark.parametrize(("send", "parallel", "ids"), marked)


@loops((whole, 3, False), (streamed, 1, False))
def test_a_guarded_client(send, parallel, ids, client_at):
    server = Gemini(STEPS, parallel=parallel, budget=BUDGET * parallel, ids=ids)
    with serving(server) as address:
        client = guarded(client_at(address), Stabilizer(BUDGET * parallel, provider="gemini"))
        contents = loop(client, send)
    judged(server)
    said = [part.text for content in contents for part in content.parts if part.text]
    assert "".join(said).endswith("All done, ann@example.com.")
    calls = [part.function_call for content in contents for part in content.parts if part.function_call]
    assert len(calls) == STEPS * parallel
    assert all(call.args["query"] == "parcels of ann@example.com" for call in calls)


@pytest.mark.slow
def test_prompts_extend_the_one_before(client_at):
    server = Gemini(STEPS, budget=40_000)  # by a count of its own
    with serving(server) as address:
        loop(guarded(client_at(address), Stabilizer(32_000, provider="gemini")), whole)
    assert server.refusals == []
    assert server.extended("contents") >= 0.9


@loops((whole, 1, True))
def test_requests_stabilized_by_hand(send, parallel, ids, client_at):
    server = Gemini(STEPS, parallel=parallel, budget=BUDGET * parallel, ids=ids)
    stabilizer = Stabilizer(BUDGET * parallel, provider="gemini")

    def fit(request):
        fitted, report = stabilize_request(request, stabilizer)
        assert report.ok, str(report)
        assert report.tokens_after <= BUDGET * parallel
        return fitted

    with serving(server) as address:
        contents = loop(client_at(address), send, fit)
    judged(server)
    assert any(QUESTION in (part.text or "") for part in contents[0].parts), "the history of the caller is unchanged"


@pytest.mark.slow
@pytest.mark.parametrize(("is_stream", "parallel"), [(True, 3), (False, 1)])
async def test_a_guarded_async_client(is_stream, parallel, client_at):
    server = Gemini(STEPS, parallel=parallel, budget=BUDGET * parallel)
    with serving(server) as address:
        plain = client_at(address)
        client = guarded(plain, Stabilizer(BUDGET * parallel, provider="gemini"))
        models = client.aio.models
        contents = [QUESTION]
        while True:
            request = {"model": "gemini-3-pro", "contents": contents, "config": config()}
            if is_stream:
                chunks = [chunk async for chunk in await models.generate_content_stream(**request)]
                parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
                content = types.Content(role="model", parts=parts)
            else:
                content = (await models.generate_content(**request)).candidates[0].content
            contents = [*contents, content]
            calls = [part.function_call for part in content.parts if part.function_call]
            if not calls:
                break
            contents.append(types.Content(role="user", parts=answers(calls)))
    judged(server)
    assert (
        "".join(part.text for part in content.parts if part.text and not part.thought) == "All done, ann@example.com."
    )


def test_chats_and_functions_that_the_client_runs_itself(client_at):
    server = Gemini(8, budget=BUDGET)

    def look_up(query: str, page: int) -> str:
        """Look up parcels; maintained by ops-pager@mailhost.org."""
        assert query == "parcels of ann@example.com"
        return output(page)

    with serving(server) as address:
        client = guarded(client_at(address), Stabilizer(BUDGET, provider="gemini"))
        chat = client.chats.create(
            model="gemini-3-pro",
            config=types.GenerateContentConfig(system_instruction=SYSTEM, tools=[look_up]),
        )
        assert chat.send_message(QUESTION).text == "All done, ann@example.com."
    assert server.refusals == []
    assert server.leaks() == []
    assert len(server.bodies) == 9


def test_the_server_finds_what_is_planted(client_at):
    server = Gemini(2, budget=10**9)
    with serving(server) as address:
        loop(client_at(address), whole)
    assert server.leaks() == list(PLANTED)


@pytest.mark.parametrize(
    ("trim", "fault"),
    [
        (lambda contents: contents, "exceeds the maximum number of tokens"),
        (lambda contents: contents[-4:], "begin with a user turn"),
        (lambda contents: contents[-3:], "function response turn comes immediately after"),
    ],
)
def test_the_server_refuses_what_the_api_refuses(trim, fault, client_at):
    server = Gemini(STEPS, budget=BUDGET)
    with serving(server) as address, pytest.raises(genai.errors.ClientError):
        loop(client_at(address), whole, lambda request: {**request, "contents": trim(request["contents"])})
    assert fault in server.refusals[0]


def test_a_prompt_that_the_api_finds_too_long_is_sent_once_more_and_shorter(client_at):
    server = Gemini(12, budget=4_000)
    with serving(server) as address:
        client = guarded(client_at(address), Stabilizer(8_000, provider="gemini"))
        loop(client, whole)
    assert server.refusals
    assert all("exceeds the maximum number of tokens" in refusal for refusal in server.refusals)
    assert server.leaks() == []


def test_the_client_that_was_given_stays_as_it_is_and_others_are_refused(client_at):
    server = Gemini(0)
    with serving(server) as address:
        plain = client_at(address)
        client = guarded(plain, Stabilizer(BUDGET))
        plain.models.generate_content(model="m", contents=QUESTION)
        assert QUESTION in server.raw[0]
        with pytest.raises(genai.errors.ClientError):
            client.caches.create(model="m", config=types.CreateCachedContentConfig(contents=[QUESTION]))
        client.models.generate_content(model="m", contents=QUESTION)
    assert len(server.raw) == 2
    assert "ann@example.com" not in server.raw[1]
    with pytest.raises(ConfigError, match=r"expected a google\.genai\.Client"):
        guarded("key", Stabilizer(BUDGET))


def test_a_guarded_client_keeps_the_one_that_it_was_made_of():
    server = Gemini(0)
    with serving(server) as address:
        client = guarded(
            genai.Client(api_key="none", http_options=types.HttpOptions(base_url=address)), Stabilizer(BUDGET)
        )
        assert client.models.generate_content(model="m", contents=QUESTION).text == "All done, ann@example.com."
        client._api_client._guarded._api_client._httpx_client.close()
