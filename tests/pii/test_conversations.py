"""Conversations that come again: what a masker remembers changes speed, never a placeholder."""

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxguard.errors import DetectorError
from ctxguard.pii import STANDARD, Masker, Span

TEXTS = [
    "jane@site.org",
    "bob@site.org and jane@site.org",
    "phone 212-736-5000",
    "<EMAIL_1>",
    "nothing",
    "ann@site.org <EMAIL_2>",
]
conversations = st.lists(st.tuples(st.sampled_from(TEXTS), st.booleans()), max_size=8)
slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def masker(**settings_):
    return Masker(STANDARD, strategy="pseudonymize", **settings_)


def played(one, conversation):
    session = one.session()
    masked = [session.own(text) if own else session.text(text) for text, own in conversation]
    return masked, session.unmask("<EMAIL_1> <EMAIL_2> <EMAIL_3> <PHONE_1> <LITERAL_1>")


@slow
@given(st.lists(conversations, max_size=8))
def test_conversations_that_share_their_beginnings_become_what_each_becomes_alone(many):
    shared = masker()
    for conversation in (*many, *many):
        assert played(shared, conversation) == played(masker(), conversation)


@slow
@given(conversations, conversations)
def test_two_sessions_of_one_masker_take_turns_without_disturbing_each_other(one, other):
    shared = masker()
    sessions = shared.session(), shared.session()
    shown = [], []
    for number in range(max(len(one), len(other))):
        for side, conversation in enumerate((one, other)):
            if number < len(conversation):
                shown[side].append(sessions[side].text(conversation[number][0]))
    for side, conversation in enumerate((one, other)):
        alone = masker().session()
        assert shown[side] == [alone.text(text) for text, _ in conversation]


def test_a_stream_learns_what_is_named_after_it_began():
    shared = masker()
    first = shared.session()
    first.text("jane@site.org")
    first.text("bob@site.org")
    session = shared.session()
    session.text("jane@site.org")
    stream = session.unmask_stream()
    session.text("bob@site.org")
    assert "".join(stream.over(["<EMAIL_1> <EMA", "IL_2>"])) == "jane@site.org bob@site.org"


def test_a_text_that_could_not_be_masked_takes_no_number():
    def choosy(text):
        if "bad" in text and "@" not in text:
            raise ValueError(text)
        return [Span(0, 3, "WORD")] if text.startswith("bad") else []

    shared = Masker([STANDARD, choosy], strategy="pseudonymize")
    session = shared.session()
    with pytest.raises(DetectorError):
        session.text("lost@site.org bad")
    assert session.text("jane@site.org") == "<EMAIL_1>"
    assert session.unmask("<EMAIL_2>") == "<EMAIL_2>"


def test_threads_share_what_is_remembered():
    shared = masker()
    texts = [f"u{number % 40}@site.org wrote to v{number}@site.org" for number in range(120)]
    alone = masker().session()
    expected = [alone.text(text) for text in texts]
    results = {}

    def work(worker):
        for _ in range(3):
            session = shared.session()
            results[worker] = [session.text(text) for text in texts]

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == expected for result in results.values())
