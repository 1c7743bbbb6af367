"""Hiding: what leaves matches no rule, masking again changes nothing, JSON stays JSON."""

import json
import pickle
import random
import re
import threading
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE
from strategies_for_text import VALUES, texts

from ctxguard.artifacts import Artifact, Part, ToolCall
from ctxguard.errors import ConfigError, DetectorError
from ctxguard.pii import DIGITS, SSN, STANDARD, Masker, Rule, RuleSet, Span, find_pii, mask_pii, validate_no_pii

EVERY = DIGITS | SSN | STANDARD
SETS = {"standard": STANDARD, "digits": DIGITS, "every": EVERY}
slow = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_the_pattern_documents_example():
    assert mask_pii("My SSN is 123-45-6789.") == "My SSN is [REDACTED_SSN]."
    assert not validate_no_pii("My SSN is 123-45-6789.")
    assert validate_no_pii("My SSN is [REDACTED_SSN].")
    assert mask_pii("call 555-123-4567 ext 9", DIGITS) == "call [REDACTED]-[REDACTED]-[REDACTED] ext 9"


@slow
@given(texts)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("strategy", ["redact", "hash", "partial"])
def test_after_masking_nothing_is_found_and_masking_again_changes_nothing(name, strategy, text):
    rules = SETS[name]
    masker = Masker(rules, strategy=strategy, key="k" * 16)
    masked = masker.mask(text)
    assert rules.find(masked) == ()
    assert rules.scan(masked) == ()
    assert masker.mask(masked) == masked


@slow
@given(texts)
def test_pseudonymized_text_matches_no_rule_either(text):
    masked = Masker(EVERY, strategy="pseudonymize").mask(text)
    assert EVERY.scan(masked) == ()


@slow
@given(texts)
def test_both_paths_find_the_same(text):
    assert EVERY.find(text) == EVERY.scan(text)


@slow
@given(texts)
def test_findings_are_sorted_disjoint_and_inside_the_text(text):
    spans = EVERY.find(text)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))


@given(st.sampled_from(VALUES[:-1]), st.text("abc xyz,;\n", max_size=20), st.text("abc xyz,;\n", max_size=20))
def test_a_value_between_ordinary_words_never_gets_through(value, before, after):
    assert value not in mask_pii(f"{before} {value} {after}")


def planted(rng, depth):
    kind = rng.choice("svvvnld" if depth else "svvvn")
    if kind == "s":
        return rng.choice(["plain", "a\tb", 'quo"te', "é", "", "back\\slash", "\u2028"])
    if kind == "v":
        return rng.choice(["", "mail ", "re:\n"]) + rng.choice(VALUES[:-2]) + rng.choice(["", " ok", "."])
    if kind == "n":
        return rng.choice([1, 2.5, True, None, -3, 4111111111111111])
    if kind == "l":
        return [planted(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    return {
        f"{i} " + rng.choice(["a", "note", "jane.doe@site.org", "x y"]): planted(rng, depth - 1)
        for i in range(rng.randint(0, 4))
    }


def test_json_arguments_stay_json_and_no_planted_value_survives():
    rng = random.Random(7)
    session = Masker(STANDARD).session()
    for _ in range(500):
        value = {"to": planted(rng, 3), "inner": json.dumps(planted(rng, 2)), "n": planted(rng, 1)}
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        text = text.replace("@", "\\u0040") if rng.random() < 0.3 else text
        masked = session.arguments(text)
        shown = json.dumps(json.loads(masked), ensure_ascii=False)
        assert not [planted for planted in VALUES[:-2] if planted in shown]
        assert STANDARD.scan(masked) == ()
        assert session.arguments(masked) == masked


def test_json_keeps_its_layout_its_numbers_and_its_order():
    text = '{ "b":1.0,\n "a": [1e5, true, null, "x\\u00e9\\/"], "b": "jane@site.org" }'
    assert Masker(STANDARD).session().arguments(text) == text.replace("jane@site.org", "[REDACTED_EMAIL]")


def test_a_masked_number_becomes_a_string_and_the_key_is_its_context():
    session = Masker(STANDARD).session()
    assert (
        session.arguments('{"phone": 2127365000, "id": 2127365000}')
        == '{"phone": "[REDACTED_PHONE]", "id": 2127365000}'
    )


def test_masked_keys_of_one_object_stay_apart():
    session = Masker(STANDARD).session()
    text = '{"a@x.org": 1, "b@x.org": {"a@x.org": 2}, "c@x.org": 3, "d@x.org": 3}'
    masked = session.arguments(text)
    assert list(json.loads(masked)) == [
        "[REDACTED_EMAIL]",
        "[REDACTED_EMAIL] 2",
        "[REDACTED_EMAIL] 3",
        "[REDACTED_EMAIL] 4",
    ]
    assert json.loads(masked)["[REDACTED_EMAIL] 2"] == {"[REDACTED_EMAIL]": 2}
    assert session.arguments(masked) == masked


def test_arguments_that_are_no_json_are_masked_as_text():
    assert Masker(STANDARD).session().arguments('{"to": "jane@site.org", "su') == '{"to": "[REDACTED_EMAIL]", "su'


@given(st.one_of(st.sampled_from(VALUES), st.text(max_size=20)))
def test_a_masked_name_is_one_that_providers_take(value):
    session = Masker(EVERY).session()
    name = session.name(value)
    assert name == value or re.fullmatch(r"[a-zA-Z0-9_-]+", name)
    assert session.name(name) == name


def test_every_text_that_leaves_is_checked():
    clean = Artifact("user", "hello")
    in_call = Artifact("assistant", calls=(ToolCall("send", '{"to": "jane@site.org"}'),))
    in_part = Artifact("user", (Part("text", "jane@site.org"),))
    in_name = Artifact("user", "hi", name="536-22-8741")
    assert validate_no_pii([clean])
    assert not any(map(validate_no_pii, (in_call, in_part, in_name)))


def test_strategies_go_by_label():
    masker = Masker(STANDARD, strategy={"EMAIL": "partial", "IP": "hash", "*": "redact"}, key="k" * 16)
    masked = masker.mask("jane@site.org 203.0.113.9 536-22-8741 4111 1111 1111 1111")
    assert re.fullmatch(r"j\*\*\*@site\.org <IP_[g-v]{16}> \[REDACTED_SSN\] \[REDACTED_CREDIT_CARD\]", masked)


def test_a_hash_is_keyed_and_the_same_for_two_spellings():
    one, other = (Masker(STANDARD, strategy="hash", key=key * 16) for key in "ab")
    assert one.mask("jane@site.org") == one.mask("jane@SITE.org") != other.mask("jane@site.org")
    assert one.mask("jane@site.org") != one.mask("Jane@site.org")
    with pytest.raises(ConfigError, match="16 bytes"):
        Masker(STANDARD, strategy="hash")


def test_secrets_are_never_shown_in_part():
    assert Masker(STANDARD, strategy="partial").mask("password: hunter2!x") == "password: [REDACTED_PASSWORD]"


def test_unknown_strategies_and_placeholders_that_a_rule_matches_are_refused():
    with pytest.raises(ConfigError, match="unknown strategy"):
        Masker(STANDARD, strategy="blur")
    with pytest.raises(ConfigError, match="placeholder of X"):
        Masker(RuleSet("x", (Rule("x", "X", "xy+", placeholder="xy"),)))


def test_rules_of_ones_own_join_the_standard_set():
    own = RuleSet("own", (Rule("ticket", "TICKET", r"HERON-\d+"),))
    assert Masker(own | STANDARD).mask("HERON-77 jane@site.org") == "[REDACTED_TICKET] [REDACTED_EMAIL]"


def test_rule_sets_compare_hash_and_pickle_by_their_rules():
    STANDARD.find("x")
    copy = pickle.loads(pickle.dumps(STANDARD))
    assert copy == STANDARD
    assert hash(copy) == hash(STANDARD)
    assert copy.find("jane@site.org") == find_pii("jane@site.org")


def test_labels_must_fit_into_a_placeholder():
    with pytest.raises(ConfigError, match="capital letters"):
        Rule("x", "us phone", "x")


def test_callables_and_detectors_join_in():
    masker = Masker([STANDARD, lambda text: [Span(m.start(), m.end(), "PERSON") for m in re.finditer("Jane", text)]])
    assert masker.mask("Jane, jane@site.org") == "[REDACTED_PERSON], [REDACTED_EMAIL]"


def broken(text):
    raise ValueError(f"cannot read {text}")


def test_a_failing_detector_is_an_error_that_does_not_quote_the_text():
    with pytest.raises(DetectorError, match="broken: failed with ValueError") as caught:
        Masker([broken]).mask("jane@site.org")
    assert "jane" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_failing_detector_can_hide_the_whole_text_instead():
    assert Masker([STANDARD, broken], on_detector_error="redact").mask("jane") == "[REDACTED_UNCHECKED]"


def test_a_slow_detector_is_an_error_too():
    stop = threading.Event()
    try:
        with pytest.raises(DetectorError, match=r"more than 0\.05 s"):
            Masker([lambda text: stop.wait(PATIENCE) and []], timeout=0.05).mask("x")
    finally:
        stop.set()


def test_a_detector_that_finds_something_everywhere_comes_to_an_end():
    masker = Masker([lambda text: [Span(0, len(text), "ALL")]], strategy="partial")
    assert masker.mask("ab" * 40) == "[REDACTED_ALL]"


def test_detectors_that_take_batches_are_asked_once():
    class Batching:
        name = "batching"
        asked = 0

        def find(self, text):
            return ()

        def find_many(self, texts):
            self.asked += 1
            return [[Span(0, 1, "FIRST")] for _ in texts]

    detector = Batching()
    masker = Masker([detector])
    masker.warm(["ab", "cd"])
    assert [masker.find(text) for text in ("ab", "cd")] == [(Span(0, 1, "FIRST"),)] * 2
    assert detector.asked == 1


@pytest.mark.slow
def test_threads_share_a_masker():
    masker = Masker(STANDARD)
    samples = [f"{i} jane{i}@site.org {value}" for i in range(50) for value in VALUES]
    alone = [Masker(STANDARD).mask(text) for text in samples]
    together = {}

    def work(step):
        for number in range(len(samples)):
            at = (number * step) % len(samples)
            together[step, at] = masker.mask(samples[at])

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, 3, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(alone[at] == masked for (_, at), masked in together.items())


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("pin <PIN_123456>", DIGITS),
        ("<NUMBER_123456>", DIGITS),
        ("card <A_411111><A_111111><A_1111>", DIGITS),
        ('{"pin": "<PIN_123456>"}', DIGITS),
        ("<A_12345>", [DIGITS, lambda text: ()]),
    ],
)
@pytest.mark.parametrize("strategy", ["redact", "pseudonymize"])
def test_what_only_looks_like_a_placeholder_is_read_like_any_text(text, rules, strategy):
    assert not validate_no_pii(text, rules)
    masker = Masker(rules, strategy=strategy)
    for mask in (masker.session().text, masker.session().own):
        masked = mask(text)
        assert not re.search(r"\d{3}", masked)
        assert validate_no_pii(masked, rules)
    assert strategy == "pseudonymize" or masker.mask(masked) == masked


@pytest.mark.parametrize("rules", [DIGITS, STANDARD])
@pytest.mark.parametrize(
    "placeholder", ["<NUMBER_1_00>", "<EMAIL_12>", "<LITERAL_1>", "[REDACTED_EMAIL]", "[REDACTED]"]
)
def test_placeholders_that_masking_writes_are_left_alone(rules, placeholder):
    text = f"password: {placeholder}, phone {placeholder}"
    assert Masker(rules).mask(text) == text


@pytest.mark.parametrize("given", [None, {"to": "<EMAIL_1>"}, 5])
@pytest.mark.parametrize("way", ["unmask", "restore", "unmask_arguments", "feed"])
def test_only_texts_can_get_their_values_back(way, given):
    session = Masker(STANDARD, strategy="pseudonymize").session()
    restore = session.unmask_stream().feed if way == "feed" else getattr(session, way)
    with pytest.raises(TypeError, match=f"expected a string, got {type(given).__name__}"):
        restore(given)


def test_what_a_stage_writes_gets_no_number_that_the_conversation_would_give_again():
    strategy = {"PHONE": "hash", "*": "pseudonymize"}
    masker = Masker(STANDARD, strategy=strategy, key="a key of this very test, 32 long.")
    session = masker.session()
    session.text("I am ann@corp.org.")
    written = session.drafted("ann@corp.org, bob@corp.org, phone +1 212 555 0175")
    assert written.startswith("<EMAIL_1>, [REDACTED_EMAIL], phone <PHONE_")
    assert session.text("eve@corp.org") == "<EMAIL_2>"
    assert session.unmask("<EMAIL_1> <EMAIL_2>") == "ann@corp.org eve@corp.org"


def test_a_label_of_no_rule_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'EMAIL'"):
        Masker(STANDARD, strategy={"EMIAL": "hash", "*": "redact"}, key="k" * 16)
    with pytest.raises(ConfigError, match="unknown label 'FOO'; there are"):
        Masker(STANDARD, strategy={"FOO": "redact"})
    with pytest.raises(ConfigError, match="did you mean 'EMAIL'"):
        STANDARD.only("EMIAL")
    with pytest.raises(ConfigError, match="did you mean 'EMAIL'"):
        Masker([STANDARD, lambda text: []], strategy={"EMIAL": "redact"})
    # another detector may have labels of its own; a rule set may lack labels of the library
    Masker([STANDARD, lambda text: []], strategy={"PERSON_NAME": "redact"})
    Masker(STANDARD.only("EMAIL").denying(["x"], label="OURS"), strategy={"PERSON": "redact", "OURS": "redact"})
