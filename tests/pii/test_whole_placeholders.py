"""A placeholder is whole or it is text: no spelling of one number gives the value of another, wherever a stream is cut."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import crossed

from ctxguard.pii import STANDARD, Masker
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original
from ctxguard.pii.mask.unmask import UnmaskStream, restore
from ctxguard.pii.placeholders import pseudonym

NUMBERS = (1, 9, 10, 11, 19, 20, 99, 100, 105, 110, 119, 120, 200, 1_000, 1_005, 1_010, 9_999, 10_000, 10_101)
SPELLINGS = (
    lambda label, groups: f"<{label}_{'_'.join(groups)}>",
    lambda label, groups: f"<{label}\\_" + "\\_".join(groups) + ">",
    lambda label, groups: f"<{label}\\_" + "\\_".join(groups),
    lambda label, groups: f"<{label} {' '.join(groups)}>",
    lambda label, groups: f"<{label}_{' '.join(groups)}>",
    lambda label, groups: f"<{label}_{' '.join(groups)}",
    lambda label, groups: f"<{label}_" + "\n".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "\u00a0".join(groups) + " >",
    lambda label, groups: f"<**{label.lower()}_{'_'.join(groups)}**>",
    lambda label, groups: f"<**{label}\\_" + "\\_".join(groups) + "**",
    lambda label, groups: f"&lt;{label}_{'_'.join(groups)}&gt;",
    lambda label, groups: f"\\u003c{label}_{'_'.join(groups)}\\u003e",
    lambda label, groups: f"<{label}_{'_'.join(groups)}",
    lambda label, groups: f"<{label}\\\\_" + "\\\\_".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "&#95;".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "&lowbar;".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "%5F".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "\\u005f".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "\\n".join(groups) + ">",
    lambda label, groups: f"<{label}_" + "**".join(groups) + ">",
    lambda label, groups: f"{label}_{'_'.join(groups)}>",
    lambda label, groups: f"{label}\\_" + "\\_".join(groups) + ">",
    lambda label, groups: f"<{label}_{''.join(groups)}>",
    lambda label, groups: f"<{label}_{''.join(groups)}",
)


def value_of(number):
    return f"u{number}.q@mailhost.org"


@pytest.fixture(scope="module")
def names():
    known = MemoryPseudonyms()
    for number in range(1, 10_102):
        known.placeholder("EMAIL", Original(value_of(number)))
    return known


def pieces(text, cuts):
    cuts = sorted({cut for cut in cuts if 0 < cut < len(text)})
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def streamed(names, text, cuts, **settings):
    return "".join(UnmaskStream(names, **settings).over(pieces(text, cuts)))


@pytest.mark.parametrize(("spelled", "number"), crossed(5, SPELLINGS, NUMBERS))
def test_no_spelling_gives_the_value_of_another_number(names, spelled, number):
    groups = pseudonym("EMAIL", number)[7:-1].split("_")
    own = spelled("EMAIL", groups)
    for frame in ("{}", "to {} now", "{}, then", "{} 20 more", "{}\n05", "x {}."):
        text = frame.format(own)
        for cut in range(len(text)):
            # the answer may also end there
            for told in (text[: cut + 1] if cut > 3 else text, text):
                found = re.findall(r"u(\d+)\.q@mailhost\.org", restore(told, names).text)
                begun = len(told) < len(text)
                assert set(found) <= {str(number)} or (begun and is_whole(told, found)), (told, found)
            assert streamed(names, text, [cut]) == restore(text, names).text, (text, cut)


def is_whole(told, found):
    """Return whether a text that was cut ends with the closing bracket of what was restored."""
    return told.rstrip("*` \n").endswith((">", "&gt;", "\\u003e")) and len(found) == 1


def test_a_hundred_is_restored_in_each_spelling_that_one_is(names):
    for spelled in ("<EMAIL\\_1\\_00>", "<EMAIL_1\\_00>", "<EMAIL_1 00>", "<email 1 00>", "&lt;EMAIL_1_00&gt;"):
        assert restore(f"to {spelled} now", names).text == f"to {value_of(100)} now"


def test_without_person_a_hundred_nothing_is_restored_for_it():
    session = Masker(STANDARD, strategy="pseudonymize").session()
    session.text("mail zora@mailhost.org")
    for spelled in ("<EMAIL\\_1\\_00>", "<EMAIL_1\\_00", "<EMAIL_1 00>", "<EMAIL_1 00", "<EMAIL_1&#95;00>"):
        assert session.unmask(spelled) == spelled


# What the expression for placeholders looks at, before, in, and behind one.
TOKENS = [
    "<",
    "&lt;",
    "\\u003c",
    "\\\\u003c",
    "EMAIL",
    "email",
    "E",
    "x",
    "1",
    "00",
    "0",
    "_",
    "\\_",
    " ",
    "\n",
    "**",
    "`",
]
TOKENS += [
    ">",
    "&gt;",
    "\\u003e",
    "&",
    "&l",
    ";",
    "\\",
    "\\n",
    '"',
    ":",
    "%",
    "<EMAIL_1",
    "EMAIL_1>",
    "<EMAIL_1>",
    '"<EMAIL_1>"',
]
answers = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=12).map("".join)


@given(answers, st.lists(st.integers(0, 60), max_size=6))
def test_an_answer_says_the_same_wherever_its_stream_is_cut(answer, cuts):
    few = MemoryPseudonyms()
    for number in range(1, 106):
        few.placeholder("EMAIL", Original(value_of(number)))
    assert streamed(few, answer, cuts) == restore(answer, few).text
    assert streamed(few, answer, range(len(answer))) == restore(answer, few).text


@given(answers, st.lists(st.integers(0, 60), max_size=6))
def test_streamed_arguments_are_the_same_wherever_they_are_cut(answer, cuts):
    few = MemoryPseudonyms()
    few.placeholder("EMAIL", Original("4111", is_number=True))
    for number in range(2, 106):
        few.placeholder("EMAIL", Original(value_of(number)))
    whole = streamed(few, answer, [], arguments=True)
    assert streamed(few, answer, cuts, arguments=True) == whole
    assert streamed(few, answer, range(len(answer)), arguments=True) == whole


@given(answers, answers, st.lists(st.integers(0, 80), max_size=4))
def test_what_somebody_planted_gives_no_value_however_it_is_cut(before, planted, cuts):
    session = Masker(STANDARD, strategy="pseudonymize").session()
    session.text("I am zora@mailhost.org")
    for text in (planted, f"{before}{planted}", json.dumps({"page": planted})):
        sent = session.text(text)
        assert "zora" not in session.unmask(sent)
        stream = session.unmask_stream()
        assert "zora" not in "".join(stream.over(pieces(sent, cuts)))
        assert "zora" not in "".join(session.unmask_stream().over(sent))
