"""The page of the proxy: the sums of /metrics, for a browser on this machine alone, without a script or a value."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import BROWSER, title_of
from patience import PATIENCE

from ctxguard import Stabilizer
from ctxguard.wire import Guard, proxy_app

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from wire_server import proxy_at  # noqa: E402 - behind what it needs

LOOKS = (Path(__file__).resolve().parents[1] / "looks.js").read_text(encoding="utf-8")
HTML = {"accept": "text/html,application/xhtml+xml;q=0.9"}
MAIL, CARD, SECRET = "zora.quill@mailhost.org", "4111 1111 1111 1111", "secret-of-zora"
PLANTED = (MAIL, "zora", "quill", "4111", SECRET, "mill of the heron")
USAGE = {"prompt_tokens": 3_000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1_500}}


class Upstream(httpx.AsyncBaseTransport):
    """A provider that answers everything, and notes the paths."""

    def __init__(self):
        self.paths = []

    async def handle_async_request(self, request):
        self.paths.append((request.method, request.url.path))
        message = {"role": "assistant", "content": f"To {MAIL}, by the mill of the heron."}
        return httpx.Response(200, json={"choices": [{"index": 0, "message": message}], "usage": USAGE})


@contextmanager
def used():
    """Give the address of a proxy with some history, and its upstream: requests, cuts, refusals, a holdout."""
    upstream = Upstream()
    guard = Guard(Stabilizer(2_000), holdout="40%")
    with (
        proxy_at(proxy_app(guard, "http://provider", transport=upstream)) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as client,
    ):
        headers = {"authorization": f"Bearer {SECRET}", "x-ctxguard-session": SECRET}
        for talk in range(6):
            told = [{"role": "user", "content": f"{talk}: I am {MAIL}, card {CARD}."}]
            for turn in range(6):
                told.append({"role": "user", "content": f"{turn}. " + "the mill of the heron " * 120})
                body = {"model": f"model-{talk % 2}", "messages": told}
                client.post("/v1/chat/completions", json=body, headers=headers)
                told.append({"role": "assistant", "content": "Yes."})
        for broken in (
            {"model": MAIL, "messages": told},
            {"model": "m", "messages": [{"role": "user", "content": f"{MAIL} the mill of the heron " * 2_000}]},
            {"model": "m", "messages": [{"role": "user", "name": f"{MAIL}", "content": "Hello."}]},
            {"model": "m", "messages": [{"role": MAIL, "content": 7}]},
        ):
            client.post("/v1/chat/completions", json=broken, headers=headers)
        client.post(f"/v1/other/{MAIL}", json={"text": MAIL}, headers=headers)
        client.post("/v1/chat/completions", content=b"{broken", headers=headers)
        yield client, upstream


class Cells(HTMLParser):
    """Collect the cells of tables, by row, and the tiles by their names."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.tiles, self.tag, self.is_cell, self.links = [], {}, "", False, []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tag = tag
        self.links += [value for name, value in attributes if name in ("src", "href", "action")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.is_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.tag = ""
        self.is_cell = self.is_cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self.is_cell:
            self.rows[-1][-1] += data.strip()
        elif self.tag == "b":
            self.value = data
        elif self.tag == "span":
            self.tiles[data] = self.value


def sums(text, name, **labels):
    """Return a sum of /metrics, by its text alone."""
    lines = re.findall(rf"^ctxguard_{name}(?:\{{(.*)\}})? (\d+)$", text, re.MULTILINE)
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    return sum(int(count) for found, count in lines if wanted <= set(re.findall(r'\w+="[^"]*"', found)))


def test_the_page_shows_the_sums_of_metrics_and_holds_no_value():
    with used() as (client, upstream):
        page, text = client.get("/", headers=HTML), client.get("/metrics").text
    assert ("GET", "/") not in upstream.paths
    assert page.headers["content-type"].startswith("text/html")
    shown = Cells(page.text)
    tiles = {name: value.replace(",", "") for name, value in shown.tiles.items()}
    came, sent = (sums(text, "input_tokens_total", side=side) for side in ("received", "sent"))
    expected = {
        "requests": sums(text, "requests_total"),
        "refused": sums(text, "refused_total"),
        "input tokens came in": came,
        "input tokens sent": sent,
        "saved, net of what was billed again": came - sent - sums(text, "rebilled_tokens_total"),
        "cuts": sums(text, "cuts_total"),
        "requests in which values were masked": sums(text, "masked_requests_total"),
        "input tokens reported": sums(text, "billed_tokens_total", kind="input"),
        "output tokens reported": sums(text, "billed_tokens_total", kind="output"),
    }
    assert {name: int(tiles[name]) for name in expected} == expected
    assert all(expected.values())
    rows = {row[0]: [cell.replace(",", "") for cell in row[1:]] for row in shown.rows if row}
    for model in ("model-0", "model-1"):
        kinds = ("input", "cached", "written", "output")
        told = [sums(text, "billed_tokens_total", model=model, kind=kind) for kind in kinds]
        assert rows[model] == [str(told[0] // 3_000), *map(str, told)]
    refused = re.findall(r'^ctxguard_refused_total\{error="(\w+)",status="(\d+)"\} (\d+)', text, re.MULTILINE)
    assert [status for name, status, _ in refused if name == "WireError"] == ["400", "403"]
    for name, status, count in refused:
        ((told, shown_count),) = [row for row in shown.rows if row[0].startswith(f"{name}, status {status}")]
        assert shown_count == count
        assert len(told) > len(name) + 20, "a refusal says what helps"
    for kind in ("EMAIL", "CREDIT_CARD"):
        assert rows[kind] == [str(sums(text, "masked_kinds_total", kind=kind))] != ["0"]
    assert set(shown.links) == {"/metrics"}
    assert "default-src 'none'" in page.text
    for planted in PLANTED:
        assert planted not in page.text, planted
        assert planted not in text, planted


def test_a_new_proxy_has_a_page_that_says_so():
    with (
        proxy_at(proxy_app(Guard(Stabilizer(2_000)), "http://provider", transport=Upstream())) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as client,
    ):
        assert "No request has come in yet." in client.get("/", headers=HTML).text


@pytest.mark.parametrize(
    ("client", "headers", "path"),
    [
        (("10.0.0.9", 5000), {}, "/"),
        (None, {}, "/"),
        (("127.0.0.1", 5000), {"host": "evil.example:8787"}, "/"),
        (("127.0.0.1", 5000), {"host": ""}, "/"),
        (("127.0.0.1", 5000), {"accept": "application/json"}, "/"),
        (("127.0.0.1", 5000), {}, "/v1/models"),
        (("127.0.0.1", 5000), {}, None),
        (("::1", 5000), {"host": "[::1]:8787"}, None),
        (("::1", 5000), {"host": "localhost"}, None),
    ],
)
def test_it_is_for_a_browser_on_this_machine_and_everything_else_goes_to_the_provider(client, headers, path):
    upstream = Upstream()
    app = proxy_app(Guard(Stabilizer(2_000)), "http://provider", transport=upstream)
    given = {"host": "127.0.0.1:8787", **HTML, **headers}
    scope = {
        "type": "http",
        "method": "GET",
        "path": path or "/",
        "raw_path": (path or "/").encode(),
        "query_string": b"",
        "client": client,
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    sent = []

    async def run():
        waiting = asyncio.Event()
        bodies = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive():
            if (message := next(bodies, None)) is None:
                await waiting.wait()
            return message

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)

    asyncio.run(run())
    is_page = b"What this guard did" in b"".join(message.get("body", b"") for message in sent)
    assert is_page is (path is None)
    assert upstream.paths == ([] if is_page else [("GET", path)])


SCRIPTLESS = """<iframe sandbox="allow-same-origin" width="1200" height="900"></iframe><script>
const frame = document.querySelector('iframe');
frame.addEventListener('load', () => {
  const shown = [...frame.contentDocument.querySelectorAll('tr')].filter(row => row.getClientRects().length);
  document.title = JSON.stringify({ rows: shown.map(row => [...row.cells].map(cell => cell.innerText.replace('\\n', '').trim())) });
});
frame.srcdoc = PAGE;
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_its_tables_are_there_without_scripts(tmp_path):
    with used() as (client, _):
        page = client.get("/", headers=HTML).text
    outer = tmp_path / "outer.html"  # a sandboxed frame runs no script
    outer.write_text(SCRIPTLESS.replace("PAGE", json.dumps(page).replace("</", "<\\/")), encoding="utf-8")
    told = title_of(outer, tmp_path)["rows"]
    assert told == Cells(page).rows
    assert len(told) > 10


PROBE = """<script>LOOKS
addEventListener('load', () => setTimeout(() => {
  document.title = JSON.stringify({
    width: innerWidth, wide: document.documentElement.scrollWidth, faint: looks(document).faint,
    ground: getComputedStyle(document.body).backgroundColor,
    requests: performance.getEntriesByType('resource').length,
  });
}, 0))</script>""".replace("LOOKS", LOOKS)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1_280, 390])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_it_fits_the_window_and_can_be_read(width, scheme, tmp_path):
    with used() as (client, _):
        page = tmp_path / "page.html"
        page.write_text(client.get("/", headers=HTML).text + PROBE, encoding="utf-8")
    preferred = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    told = title_of(page, tmp_path, f"--window-size={width},900", preferred)
    assert told["wide"] <= told["width"] <= max(width, 500), "the browser has a least width of its own"
    assert not told["faint"]
    assert told["requests"] == 0, "it needs no network"
    red = int(re.search(r"\d+", told["ground"])[0])
    assert (red < 60) if scheme == "dark" else (red > 200)
