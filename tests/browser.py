"""A real headless browser: it opens a page that writes what it finds into its own title."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape

from patience import PATIENCE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--dump-dom"),
)


def title_of(page, profile, *flags):
    """Open a page and return its title, which is JSON, once its scripts have run."""
    words = [BROWSER, *FLAGS, f"--user-data-dir={profile / 'profile'}", *flags, page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return json.loads(unescape(re.search(r"<title>(\{.*?\})</title>", done.stdout)[1]))
