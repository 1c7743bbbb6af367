"""JSON texts: what is searched in one go is found as if each string stood alone, and what is masked stays JSON."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies_for_text import texts

from ctxguard.pii import SSN, STANDARD, Masker, Rule, RuleSet, Span
from ctxguard.pii.detect.normalize import view_of
from ctxguard.pii.mask.json_text import JsonToken, all_in_strings, is_flat, is_json, json_tokens, kept_apart, touched

ONE_BY_ONE = STANDARD | RuleSet("own", (Rule("never", "NEVER", r"^(?!)x"),))
"""The standard rules and one that finds nothing, but does not say that it may be joined."""
scalars = st.one_of(texts, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(texts, st.sampled_from(["phone", "ssn", "order_id", "password"])), inner, max_size=4),
        inner.map(json.dumps),
    ),
    max_leaves=12,
)


def opened(value):
    """Return a value with JSON in its strings read, too, whatever way its letters and digits are spelled.

    A masked string in JSON is written anew, and a value in a second spelling comes back in the first.
    """
    if isinstance(value, str):
        if is_json(value):
            return opened(json.loads(value))
        return "".join(filter(str.isalnum, view_of(value).text.casefold()))
    if isinstance(value, list):
        return [opened(one) for one in value]
    return {str(opened(key)): opened(one) for key, one in value.items()} if isinstance(value, dict) else value


@given(st.lists(texts, max_size=8))
@example(["+14155552671", "call me: ", "4155552671"])
@example(["-----BEGIN RSA PRIVATE KEY-----\nabc", "jane@site.org", "4111 1111 1111 1111"])
@example(["ssn", "536228741", "ssn: 536228741"])
@example(["", "password: hunter2x", "hunter2x"])
def test_joined_texts_miss_nothing_that_one_of_them_holds(many):
    assert {text for text in many if STANDARD.find(text)} <= touched(many, STANDARD.find)
    assert {text for text in many if SSN.find(text)} <= touched(many, SSN.find)


def test_thousands_of_texts_are_joined_in_parts():
    many = [f"text {number}" for number in range(5_000)] + ["jane@site.org"] + ["more"] * 3

    assert touched(many, STANDARD.find) == {"jane@site.org"}


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_masked_json_is_json_in_which_nothing_is_found_and_comes_back_whole(value, is_ascii, indent):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    session = Masker(STANDARD, strategy="pseudonymize").session()

    masked = session.text(text)

    assert not STANDARD.find(masked)
    json.loads(masked)
    assert opened(session.unmask_arguments(masked)) == opened(text)


@given(values)
def test_strings_searched_in_one_go_become_what_they_do_one_by_one(value):
    text = json.dumps([1, value], ensure_ascii=False)

    assert Masker(STANDARD).mask(text) == Masker(ONE_BY_ONE).mask(text)


def test_all_values_of_a_list_are_read_in_the_light_of_its_key():
    text = '{"phones": ["2127365000", "4155552671", "3105550143"], "note": "x"}'

    assert json.loads(Masker(STANDARD).mask(text)) == {"phones": ["[REDACTED_PHONE]"] * 3, "note": "x"}


@pytest.mark.parametrize(
    ("text", "is_flat_text"),
    [
        ('{"a": "x", "b": {"c": 1, "d": true}}', True),
        ('"alone"', True),
        ("{}", True),
        ('[{"a": 1}, {"a": 2}]', True),
        ('{"a": ["x"]}', False),
        ('{"a": [ 1 , 2 ]}', False),
        ('[null, "x"]', False),
        ('[{"a": 1}, "x"]', False),
        ('{"a": "x\\n"}', False),
    ],
)
def test_a_flat_text_has_no_escapes_and_no_list_of_strings_or_numbers(text, is_flat_text):
    assert is_flat(text) is is_flat_text


@pytest.mark.parametrize(
    ("text", "are_inside"),
    [
        ('{"a": "mail jane@site.org now", "b": "jim@site.org"}', True),
        ('{"a": "jane@site.org", "jim@site.org" : "b"}', False),
        ('{"ssn": 536228741}', False),
    ],
)
def test_findings_lie_in_strings_unless_they_are_keys_or_bare_numbers(text, are_inside):
    spans = STANDARD.find(text)

    assert spans
    assert all_in_strings(text, spans) is are_inside


def test_keys_that_become_alike_are_numbered_in_their_order():
    text = json.dumps(
        {"a@site.org": 1, "[REDACTED_EMAIL] 3": 2, "b@site.org": 3, "c@site.org": 4, "d": {"e@site.org": 5}}
    )

    assert list(json.loads(Masker().mask(text))) == [
        "[REDACTED_EMAIL]",
        "[REDACTED_EMAIL] 3",
        "[REDACTED_EMAIL] 2",
        "[REDACTED_EMAIL] 4",
        "d",
    ]


def test_work_for_keys_that_become_alike_grows_with_their_number():
    class Name(str):
        __slots__ = ()
        made = 0

        def __format__(self, how):
            Name.made += 1
            return super().__format__(how)

    apart = kept_apart(lambda token: Name("x"))
    names = [apart(JsonToken(place, place + 1, str(place), "", is_key=True)) for place in range(100)]

    assert len(set(names)) == 100
    assert Name.made == 99


def test_a_placeholder_of_ones_own_is_written_as_json():
    rules = RuleSet("own", (Rule("plan", "PLAN", r"Heron-\d", placeholder='a "plan"\n'),))

    assert json.loads(Masker(rules).mask('{"name": "Heron-7"}')) == {"name": 'a "plan"\n'}


@pytest.mark.parametrize(
    "own",
    [
        RuleSet("own", (Rule("account", "ACCOUNT", r"^[0-9]{6}$"),)),
        lambda text: [Span(0, 6, "ACCOUNT")] if len(text) == 6 and text.isdigit() else [],
    ],
    ids=["rule", "callable"],
)
def test_what_is_found_in_a_string_alone_is_masked_where_it_stands_among_others(own):
    masked = Masker([STANDARD, own]).mask('{"account": "123456", "to": "jane@site.org"}')

    assert json.loads(masked) == {"account": "[REDACTED_ACCOUNT]", "to": "[REDACTED_EMAIL]"}


def test_a_key_found_next_to_a_placeholder_leaves_no_placeholder_of_a_placeholder():
    text = '{"contact" : "123453425" , \n "call 2127365000" : "+14155552671"}'
    session = Masker(strategy="pseudonymize").session()

    masked = session.text(text)

    assert "2127365000" not in masked
    assert "LITERAL" not in masked
    assert session.unmask_arguments(masked) == text


def test_a_quote_in_a_placeholder_of_ones_own_ends_no_string():
    rules = (
        Rule("plan", "PLAN", r"Heron-\d", placeholder='6" plan'),
        Rule("code", "CODE", r'(?<=plan","b":)\d{6}'),
    )

    masked = Masker(RuleSet("own", rules)).mask('{"a":"Heron-7","b":123456,"c":"x"}')

    assert json.loads(masked) == {"a": '6" plan', "b": "[REDACTED_CODE]", "c": "x"}


def test_tokens_know_their_keys_and_scopes():
    text = '{"a" : "x", "b":[1,{"c":"y\\"z"}], "d":-2.5e3}'

    seen = [(token.value, token.key, token.is_key, token.is_number) for token in json_tokens(text)]

    assert seen == [
        ("a", "", True, False),
        ("x", "a", False, False),
        ("b", "", True, False),
        ("1", "b", False, True),
        ("c", "", True, False),
        ('y"z', "c", False, False),
        ("d", "", True, False),
        ("-2.5e3", "d", False, True),
    ]
    assert [text[token.start : token.end] for token in json_tokens(text)][1] == '"x"'


def test_a_value_that_needs_escapes_comes_back_escaped_into_json_within_json():
    text = json.dumps({"body": json.dumps({"to": '"jane doe"@site.org', "pin": "x"})})
    session = Masker(STANDARD, strategy="pseudonymize").session()

    masked = session.text(text)

    assert "jane" not in masked
    assert session.unmask_arguments(masked) == text


def test_where_a_long_string_ends_is_looked_for_once():
    text = json.dumps({"to": " ".join(["jane@site.org"] * 400), "cc": "jim@site.org"})
    spans, read = STANDARD.find(text), []

    class Counted(str):
        __slots__ = ()

        def find(self, *place):
            read.append(place)
            return super().find(*place)

    assert all_in_strings(Counted(text), spans)
    assert len(read) == 2


def test_simple_rules_of_ones_own_keep_long_lists_in_one_go():
    rules = STANDARD | RuleSet("own", (Rule("ticket", "TICKET", r"\bTCK-\d{6}\b"),))

    assert rules.is_joinable
    masked = Masker(rules).mask('{"open": ["TCK-123456", "TCK-1234567", "jane@site.org"]}')
    assert json.loads(masked) == {"open": ["[REDACTED_TICKET]", "TCK-1234567", "[REDACTED_EMAIL]"]}
