"""Counting is exact where it can be, an estimate that says so where not, and never goes over the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Part, Stabilizer, ToolCall
from ctxguard.errors import ConfigError, TokenizerError
from ctxguard.pii import Span
from ctxguard.tokens import ArtifactCounter, EstimateCounter, TiktokenCounter, ToktokCounter, find_counter
from ctxguard.tokens.caches import TextCache
from ctxguard.tokens.counters import TEKKEN, encoding_of, find_vocabulary

HOSTILE = [
    "",
    " " * 1_000_000,
    "\u3000" * 1_100_000,
    "<|endoftext|> <|fim_prefix|>",
    "\ud800 lone \udfff",
    "\x00" * 1000,
]


@pytest.mark.parametrize("counter", [EstimateCounter(), ToktokCounter()], ids=lambda c: c.name)
@pytest.mark.parametrize("text", HOSTILE, ids=["empty", "spaces", "wide spaces", "special", "surrogates", "zeros"])
def test_no_text_makes_a_counter_fail(counter, text):
    tokens = counter.count(text)
    assert (tokens == 0) == (text == "")


@given(st.text())
def test_the_estimate_of_a_text_is_positive_and_grows_with_it(text):
    counter = EstimateCounter()
    assert counter.count(text) == counter.count(text)
    assert (counter.count(text) > 0) == bool(text)
    assert counter.count(text + "another sentence of words") > counter.count(text)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("The quick brown fox jumps over the lazy dog and runs into the forest. " * 20, 0.8, 1.25),
        ('{"order_id": 48211, "status": "shipped", "items": [1, 2, 3]}' * 20, 0.8, 1.25),
        ("def add(left: int, right: int) -> int:\n    return left + right\n" * 20, 0.75, 1.35),
        ("これは長い会話の要約です。" * 20, 0.7, 1.4),
        ("Это краткое содержание разговора. " * 20, 0.7, 1.4),
    ],
    ids=["prose", "json", "code", "japanese", "russian"],
)
def test_the_estimate_is_near_the_exact_count(text, low, high):
    exact = ToktokCounter("o200k_base").count(text)
    assert low <= EstimateCounter().count(text) / exact <= high


def test_base64_is_recognised():
    import base64
    import random

    text = base64.b64encode(random.Random(1).randbytes(6_000)).decode()
    assert 0.85 <= EstimateCounter().count(text) / ToktokCounter().count(text) <= 1.15


def test_long_texts_are_counted_in_pieces_with_little_error():
    text = "one two three four " * 20_000
    pieces = ToktokCounter().count(text)
    whole = sum(ToktokCounter().count("one two three four " * 200) for _ in range(100))
    assert abs(pieces - whole) / whole < 0.01


def test_auto_takes_the_exact_counter_that_is_installed_and_says_so():
    counter = find_counter("auto")
    assert counter.exact
    assert "o200k_base" in counter.accuracy


def test_a_named_model_is_counted_by_its_family_and_never_called_exact():
    claude = find_counter("auto", model="anthropic:claude-opus-4-6")
    assert not claude.exact
    assert claude.name.startswith("claude-4 by ")
    assert "recorded requests" in claude.accuracy
    assert claude.count("word " * 1_000) > find_counter("auto").count("word " * 1_000)
    gpt = find_counter("auto", model="openai/gpt-4")
    assert gpt.base.name.endswith("cl100k_base")
    for counter in (claude, gpt, find_counter("auto"), find_counter("o200k_base"), find_counter("estimate")):
        assert not counter.accuracy.startswith("exact")


def test_without_a_model_the_count_says_that_it_is_no_providers():
    for name in ("auto", "estimate", "o200k_base"):
        assert "no model is named" in find_counter(name).accuracy


def test_all_users_of_a_model_share_one_counter_and_its_counts():
    assert find_counter("auto", model="gpt-5") is find_counter("auto", model="openai:gpt-5.1")
    assert find_counter("auto", model="gpt-5") is not find_counter("auto", model="gpt-4o")


def test_a_counter_of_ones_own_counts_texts_and_the_table_the_rest():
    counter = find_counter(len, model="claude-sonnet-4-5")
    assert counter.count("four") == 4
    assert counter.costs is find_counter("auto", model="claude-sonnet-4-5").costs


@pytest.mark.skipif(not find_vocabulary(TEKKEN), reason="mistral-common is not installed")
def test_mistrals_own_vocabulary_counts_its_models():
    counter = find_counter("auto", model="mistral-large-latest")
    assert counter.exact
    assert counter.base.name == "tiktoken tekken"
    assert counter.count("What's the weather in Paris?") == 7


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("openai:o3", "o200k_base"),
        ("qwen3", None),
        (None, "o200k_base"),
    ],
)
def test_the_encoding_of_a_model(model, encoding):
    assert encoding_of(model) == encoding


def test_a_function_is_a_counter_too():
    counter = find_counter(len)
    assert (counter.count("four"), counter.name, counter.exact) == (4, "len", False)


def test_an_unknown_counter_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="unknown counter 'p99k'; known are auto, estimate, o200k_base, cl100k_base"):
        find_counter("p99k")


def test_tiktoken_without_a_vocabulary_says_what_to_do_and_does_not_go_online(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    if find_vocabulary("o200k_base"):
        pytest.skip("another installed package carries the vocabulary")
    with pytest.raises(TokenizerError, match="never downloads one"):
        TiktokenCounter("o200k_base")


def test_a_damaged_vocabulary_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(b"IQ== 0\n")
    with pytest.raises(TokenizerError, match="is damaged"):
        TiktokenCounter("o200k_base")


def test_a_vocabulary_that_is_compiled_in_is_loaded_by_the_first_count(monkeypatch):
    asked = []
    monkeypatch.setattr("toktok.truncate", lambda text, *_: asked.append(text) or (text, 1))
    counter = ToktokCounter("o200k_base")
    assert not asked
    assert counter.count("hello") == 1
    assert asked == ["hello"]


def test_a_vocabulary_that_toktok_does_not_have_is_refused():
    with pytest.raises(TokenizerError, match="has no vocabulary 'p50k_base'"):
        ToktokCounter("p50k_base")


def test_counting_opens_no_connection(tmp_path):
    script = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise SystemExit('a connection was tried')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "sys.modules['toktok'] = None\n"
        "from ctxguard.tokens import find_counter\n"
        "counter = find_counter('auto'); assert counter.count('hello there') > 0; print(counter.name)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() in ("estimate", "tiktoken o200k_base")


def test_framing_arguments_names_and_media_are_counted():
    count = ArtifactCounter(find_counter(len))
    bare = count.artifact(Artifact("user", "abcd"))
    assert bare == 4 + 4
    assert count.artifact(Artifact("user", "abcd", name="bo")) == bare + 1 + 2
    assert count.artifact(Artifact("assistant", "", calls=(ToolCall("f", "{}", "1"),))) == 4 + 3 + 1 + 2
    assert count.artifact(Artifact("user", (Part("text", "abcd"), Part("image", tokens=85)))) == bare + 85
    schema = {"name": "f", "description": "", "parameters": {}}
    assert count.tools([{"type": "function", "function": schema}]) == len(json.dumps(schema)) + 7
    assert count.tools(None) == count.tools([]) == 0


def test_a_count_that_came_with_the_artifact_is_kept_and_scales_with_edits():
    count = ArtifactCounter(find_counter(len))
    artifact = Artifact("tool", "x" * 96, 500)
    assert count.artifact(artifact) == 500
    assert count.artifact(artifact.revised(content="x" * 46)) == 250


@given(st.lists(st.text(max_size=30), max_size=60))
def test_a_cache_never_gives_a_wrong_value_and_stays_bounded(texts):
    cache = TextCache(1_000)
    for text in texts:
        known = cache.get(text)
        assert known in (None, len(text) + 1)
        cache.put(text, len(text) + 1)
    assert cache.chars <= 2_000
    assert len(cache) <= 2 * 1_000 // 64


@pytest.mark.parametrize("value", [True, ("a finding",) * 100])
def test_a_cache_knows_a_text_again_that_is_too_large_to_keep(value):
    cache = TextCache(20_000)
    large = "x" * 50_000
    cache.put(large, value)
    assert cache.get("x" * 50_000) == value
    assert cache.get("x" * 49_999 + "y") is None
    assert cache.chars <= 64
    cache.put("y" * 50_000, ("a finding",) * 1_000)
    assert cache.get("y" * 50_000) is None


def test_a_cache_is_bounded_by_what_its_values_take():
    cache = TextCache(100_000)
    for number in range(1_000):
        cache.put(f"text {number}", tuple(Span(n, n + 1, "EMAIL") for n in range(100)))
    assert cache.get("text 999")
    assert len(cache) <= 2 * 100_000 // (100 * 100)


def test_a_cache_keeps_what_is_used():
    cache = TextCache(1_000)
    cache.put("often used", 1)
    for number in range(200):
        cache.put(f"once used {number}", 2)
        assert cache.get("often used") == 1


@dataclass
class Unhashable:
    """A counter as one writes it: a dataclass that compares by value, and so cannot be hashed."""

    name: str = "words"
    exact: bool = False
    accuracy: str = "by words"

    def count(self, text: str) -> int:
        return len(text.split())


def test_a_counter_that_cannot_be_hashed_counts_like_any_other():
    report = Stabilizer(500, counter=Unhashable()).stabilize([Artifact("user", "three words here")]).report
    assert (report.counter, report.accuracy, report.tokens_after) == ("words", "by words", 3 + 4)


@dataclass(frozen=True)
class Giving:
    """A counter that gives the same for every text."""

    given: object
    name: str = "odd"
    exact: bool = False
    accuracy: str = "none"

    def count(self, text: str) -> object:
        return self.given


@pytest.mark.parametrize("given", [None, "3", float("nan"), float("inf"), -1, True])
@pytest.mark.parametrize("as_function", [True, False])
def test_a_counter_that_gives_no_number_of_tokens_is_refused_by_name(given, as_function):
    counter = Giving(given)
    with pytest.raises(TokenizerError, match=r"gave .* for a text; it must give a number of tokens"):
        Stabilizer(500, counter=counter.count if as_function else counter).stabilize([Artifact("user", "hello")])


def _endless() -> dict[str, object]:
    schema: dict[str, object] = {}
    schema["properties"] = schema
    return schema


@pytest.mark.parametrize("tool", [_endless(), {("a",): 1}, {"maximum": 10**5000}])
def test_a_tool_schema_that_is_no_json_is_refused_by_its_number(tool):
    with pytest.raises(ConfigError, match=r"tools\[1\] cannot be written as JSON"):
        Stabilizer(500).stabilize([Artifact("user", "hello")], tools=[{"name": "fine"}, tool])


@pytest.mark.parametrize("tools", [{"name": "search"}, "search", 5])
def test_tools_that_are_no_list_are_refused(tools):
    with pytest.raises(ConfigError, match="tools are a list of schemas, not"):
        Stabilizer(500).stabilize([Artifact("user", "hello")], tools=tools)
