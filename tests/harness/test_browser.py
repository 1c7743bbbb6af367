"""The page of a replay in a real headless browser: it fits the window, and holds nothing that was masked."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from browser import BROWSER, title_of
from recordings import RECORDINGS
from test_cli import cli

from ctxguard.harness.contestants import synthetic_session

LOOKS = (Path(__file__).resolve().parents[1] / "looks.js").read_text(encoding="utf-8")
PROBE = """<script>LOOKS
addEventListener('load', () => setTimeout(() => {
  const closed = document.documentElement.scrollWidth;
  document.querySelectorAll('details').forEach(d => { d.open = true });
  document.title = JSON.stringify({
    width: innerWidth, closed: closed, opened: document.documentElement.scrollWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    text: document.body.innerText.length,
    faint: looks(document).faint,
    requests: performance.getEntriesByType('resource').length,
  });
}, 0))</script>""".replace("LOOKS", LOOKS)
RECORDED = RECORDINGS / "transcripts" / "claude-code.jsonl.gz"
MAIL = "jane.roe@mailhost.org"

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def seen(page, profile, *flags):
    """Open a page and return what the browser says of it."""
    probed = profile / "probed.html"
    probed.write_text(page.read_text() + PROBE)
    return title_of(probed, profile, *flags)


@pytest.fixture(
    scope="module", params=["invented", pytest.param("recorded", marks=[pytest.mark.recordings, pytest.mark.slow])]
)
def page(request, tmp_path_factory, without_gain):
    """The page of one session of about 150 calls, with personal data in it."""
    folder = tmp_path_factory.mktemp("page")
    if request.param == "recorded":
        if not RECORDED.is_file():
            pytest.skip(f"no recorded sessions at {RECORDED}")
        told = list(map(json.loads, gzip.decompress(RECORDED.read_bytes()).splitlines()))
        session = max(told, key=lambda one: sum(m["role"] == "assistant" for m in one["messages"]))
        session["messages"].insert(1, {"role": "user", "content": f"I am {MAIL}."})
    else:
        session = synthetic_session(1, turns=75)
        session["messages"][1]["content"] += f" I am {MAIL}."
    (folder / "session.json").write_text(json.dumps(session))
    path = folder / "page.html"
    run = cli("replay", folder / "session.json", "--budget", 8_000, "-o", path)
    assert run.returncode == 0, run.stderr
    calls = int(re.search(r"(\d+) model calls", run.stdout)[1])
    assert calls >= 140
    return path


def test_it_is_small_and_holds_nothing_that_was_masked(page):
    assert page.stat().st_size < 5_000_000
    assert MAIL not in page.read_text()
    assert "[REDACTED_EMAIL]" in page.read_text()


@pytest.mark.slow
def test_what_was_masked_is_there_where_it_is_asked_for(page):
    shown = page.with_name("shown.html")
    session = page.with_name("session.json")
    assert cli("replay", session, "--budget", 8_000, "-o", shown, "--show-originals").returncode == 0
    assert MAIL in shown.read_text()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param("dark", 1_280, marks=pytest.mark.slow),
        ("dark", 400),
        ("light", 1_280),
        pytest.param("light", 400, marks=pytest.mark.slow),
    ],
)
def test_it_fits_the_window(page, width, scheme, tmp_path):
    preferred = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    told = seen(page, tmp_path, f"--window-size={width},900", preferred)
    assert told["width"] <= max(width, 500), "the browser has a least width of its own"
    assert told["closed"] <= told["width"]
    assert told["opened"] <= told["width"], "open sessions and messages fit, too"
    assert told["text"] > 10_000
    assert not told["faint"], "its text can be read"
    assert told["requests"] == 0, "it needs no network"
    red = int(re.search(r"\d+", told["ground"])[0])
    assert (red < 60) if scheme == "dark" else (red > 200)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1_280), ("dark", 400)])
def test_the_page_of_a_scan_fits_the_window(page, width, scheme, tmp_path):
    shown = page.with_name("findings.html")
    assert cli("pii", "scan", page.with_name("session.json"), "--html", shown).returncode == 1
    assert MAIL not in shown.read_text()
    told = seen(
        shown, tmp_path, f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme != 'dark':d}"
    )
    assert told["closed"] <= told["width"]
    assert told["opened"] <= told["width"]
    assert not told["faint"], "its text can be read"
    assert told["requests"] == 0, "it needs no network"
