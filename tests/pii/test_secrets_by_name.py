"""What a name announces as a secret is one, whoever issued it: cookies, and constants that end in `_KEY` and the like."""

from __future__ import annotations

import json
import random
import string
from itertools import product

import pytest

from ctxguard.pii import STANDARD, Masker, mask_pii

ALPHABETS = {
    "base62": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "base36": string.ascii_lowercase + string.digits,
    "base64": string.ascii_letters + string.digits + "+/",
    "url": string.ascii_letters + string.digits + "-_",
}
KEYS = {
    f"{name} {number}": "".join(random.Random(f"{name}{number}").choices(signs, k=26 + 6 * number)) + "7"
    for name, signs in ALPHABETS.items()
    for number in range(3)
}
NAMES = (
    "APP_KEY",
    "STRIPE_KEY",
    "AZURE_STORAGE_KEY",
    "SHOP_CREDENTIAL",
    "DB_CREDENTIALS",
    "SENTRY_DSN",
    "X_Y_KEYS",
    "CI_PAT",
)
LINES = ("{}={}", "export {}='{}'", '{}: "{}"', "{} = {}", '"{}": "{}"', "- {}={}", "ENV {}={}", "$env:{}='{}'")
COOKIES = (
    "Cookie: sid={}",
    "cookie: theme=dark; sessionid={}; lang=en",
    "> Cookie: a={}; b={}",
    "Set-Cookie: connect.sid={}; Path=/; HttpOnly",
    "set-cookie: __Host-id={}; Max-Age=3600; SameSite=Lax",
    '"Cookie": "sid={}; theme=dark"',
    "'cookie': 'sid={}'",
    "curl -s --cookie 'sid={}' https://x.example/",
    'document.cookie = "sid={}; path=/"',
    'cookies={{"sid": "{}", "theme": "dark"}}',
    "Cookie=sid={}",
    "Cookie: consent; sid={}",
    "Set-Cookie: theme=dark; Path=/; HttpOnly, sid={}",
    "Set-Cookie: a={}; Secure; HttpOnly; Partitioned; SameSite=Lax, b={}; Secure",
)


@pytest.mark.parametrize("line", LINES)
def test_a_constant_whose_name_ends_so_holds_a_secret(line):
    for name, key in product(NAMES, KEYS.values()):
        assert key not in mask_pii(line.format(name, key)), (name, key)


@pytest.mark.parametrize("line", COOKIES)
def test_the_cookies_of_a_request_are_secrets(line):
    for value in KEYS.values():
        text = line.format(value, value)
        for told in (text, f"GET / HTTP/1.1\nHost: x.example\n{text}\n\n", json.dumps({"log": text})):
            masked = mask_pii(told)
            assert value not in masked
            assert "theme" not in told or "dark" in masked, masked


def test_cookies_below_their_key_in_json():
    value = KEYS["base62 0"]
    masked = mask_pii(
        json.dumps({"headers": {"Cookie": f"sid={value}; theme=dark"}, "set-cookie": [f"id={value}; Path=/"]})
    )
    assert value not in masked
    assert json.loads(masked)["headers"]["Cookie"].endswith("; theme=dark")


@pytest.mark.parametrize(
    "text",
    [
        "PRIMARY_KEY = 'user_id_2'",
        "CACHE_KEY=user:123:profile:v2",
        "SORT_KEY=created_at_2024",
        "HOT_KEY=ctrl+shift+4",
        "REDIS_KEY=session:cache:v2:users",
        "KEY_FILE=/etc/ssl/keys/server1.pem",
        "SSH_KEY=/home/jane/.ssh/id_ed25519",
        "API_KEY=$OTHER_API_KEY",
        "MY_KEY=your-key-goes-here-123",
        "Cookie: theme=dark; lang=en-US; size=1920x1080",
        "Set-Cookie: theme=dark; Path=/; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Max-Age=31536000",
        "the cookie: a small text of the browser",
        "cookies = request.cookies.get('name')",
        "cookie=True, session=session_cookie_interface",
    ],
)
def test_what_is_no_secret_stays(text):
    assert mask_pii(text) == text


def test_a_long_row_of_cookies_takes_linear_time():
    session = Masker(STANDARD).session()
    assert session.text("cookie: a=b; " * 20_000).count("a=b") == 20_000
    assert session.text("cookie:" * 20_000).count("cookie") == 20_000
