"""google-genai's plain client through the wire: by a transport, and by the proxy."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from cloud_server import serving
from gemini_server import Gemini
from patience import PATIENCE
from wire_server import proxy_at

from ctxguard import Stabilizer
from ctxguard.wire import Guard, Transport, proxy_app

genai = pytest.importorskip("google.genai", reason="google-genai is not installed (extra google)")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra proxy)")
clients = pytest.importorskip("test_google_clients", reason="google-genai is not installed (extra google)")


@pytest.mark.parametrize(
    ("door", "send", "parallel"),
    [
        pytest.param("transport", clients.whole, 3, marks=pytest.mark.slow),
        ("transport", clients.streamed, 1),
        ("proxy", clients.whole, 1),
        pytest.param("proxy", clients.streamed, 3, marks=pytest.mark.slow),
    ],
)
def test_a_plain_client(door, send, parallel):
    server = Gemini(clients.STEPS, parallel=parallel, budget=clients.BUDGET * parallel)
    guard = Guard(Stabilizer(clients.BUDGET * parallel, provider="gemini"))
    with serving(server) as upstream, ExitStack() as stack:
        if door == "transport":
            address, http = upstream, httpx.Client(transport=Transport(guard), timeout=PATIENCE)
        else:
            address = stack.enter_context(proxy_at(proxy_app(guard, upstream)))
            http = httpx.Client(trust_env=False, timeout=PATIENCE)
        stack.enter_context(http)
        options = genai.types.HttpOptions(base_url=address, httpx_client=http)
        contents = clients.loop(genai.Client(api_key="none", http_options=options), send)
    clients.judged(server)
    said = [part.text for content in contents for part in content.parts if part.text]
    assert "".join(said).endswith("All done, ann@example.com.")
    calls = [part.function_call for content in contents for part in content.parts if part.function_call]
    assert all(call.args["query"] == "parcels of ann@example.com" for call in calls)
