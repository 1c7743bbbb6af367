"""In ids and settings, which are never changed, a card counts behind any sign; an id made of digits alone does not."""

from __future__ import annotations

import json
import string

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import CtxguardError
from ctxguard.pii import STANDARD
from ctxguard.pii.rule_sets import for_identifiers

CARD = "4111111111111111"
# A letter, digit, or underscore is part of the same word, a hyphen behind a letter joins two; a slash belongs to a path.
SIGNS = [sign for sign in string.punctuation if sign not in "_/\\-"] + list("“”‘’«»„‹›（：＝、•·–— \t\n\u00a0")
SEARCH = for_identifiers(STANDARD)


@pytest.mark.parametrize("sign", SIGNS, ids=ascii)
def test_a_card_counts_behind_any_sign(sign):
    for text in (
        f"ref{sign}{CARD}",
        f"{sign}{CARD} now",
        f"pay {sign}{CARD}{sign}",
        f"{sign}{CARD}{sign}",
        f"-{CARD} x",
    ):
        if text.strip() != CARD and not text.startswith((f"+{CARD}", f"@{CARD}")):
            assert [span.label for span in SEARCH.find(text)] == ["CREDIT_CARD"], text
        assert SEARCH.find(text) == SEARCH.scan(text)


@pytest.mark.parametrize(
    "text",
    [
        CARD,
        f" {CARD}\n",
        f"call_{CARD}",
        f"call-{CARD}",
        f"https://x.org/{CARD}/a",
        f"https://x.org/a?id={CARD}",
        f"https://x.org/a?to=b&id={CARD}#x",
        f"see https://x.org/a?id=({CARD})",
        f"/files/{CARD}",
        f"/a?id={CARD}",
        f"C:\\files\\{CARD}.txt",
        f"projects/p/{CARD}",
        f"www.x.org?id={CARD}",
        "function-call-14037398217346508021",
    ],
)
def test_an_id_and_a_part_of_a_link_do_not(text):
    assert not SEARCH.find(text)
    assert not SEARCH.scan(text)


def requests():
    """Yield a request for each setting of each adapter that is searched and never changed."""
    import ctxguard_anthropic
    import ctxguard_bedrock
    import ctxguard_openai

    said = [{"role": "user", "content": "hi"}]
    chat = {"model": "m", "messages": said}
    for name, settings in {
        "metadata": lambda text: {"metadata": {"k": text}},
        "stop": lambda text: {"stop": [text]},
        "enum": lambda text: {
            "tools": [
                {"type": "function", "function": {"name": "f", "parameters": {"properties": {"q": {"enum": [text]}}}}}
            ]
        },
        "city": lambda text: {"web_search_options": {"user_location": {"approximate": {"city": text}}}},
        "unknown": lambda text: {"never_heard_of": [text]},
    }.items():
        yield (
            f"chat {name}",
            lambda text, settings=settings: ctxguard_openai.stabilize_request(
                {**chat, **settings(text)}, Stabilizer(90_000, on_failure="raise")
            ),
        )
    yield (
        "anthropic metadata",
        lambda text: ctxguard_anthropic.stabilize_request(
            {"model": "m", "max_tokens": 9, "messages": said, "metadata": {"user_id": text}},
            Stabilizer(90_000, on_failure="raise"),
        ),
    )
    yield (
        "bedrock",
        lambda text: ctxguard_bedrock.stabilize_request(
            {
                "modelId": "m",
                "messages": [{"role": "user", "content": [{"text": "hi"}]}],
                "requestMetadata": {"k": text},
            },
            Stabilizer(90_000, on_failure="raise"),
        ),
    )


REQUESTS = dict(requests())


@pytest.mark.parametrize("where", REQUESTS)
def test_no_setting_of_an_adapter_lets_a_card_out(where):
    for sign in SIGNS:
        try:
            sent, _ = REQUESTS[where](f"ref{sign}{CARD} now")
        except CtxguardError:
            continue
        assert CARD not in json.dumps(sent), (where, sign)
