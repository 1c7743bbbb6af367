"""Values that are cut over several texts of one message."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.artifacts import Part
from ctxguard.pii import STANDARD, Masker
from ctxguard.pii.mask.session import mask_together
from ctxguard.stages import MaskPII

VALUES = (
    "zora@mailhost.org",
    "4111 1111 1111 1111",
    "DE89 3704 0044 0532 0130 00",
    "123-45-6789",
    "AKIAXICAQ5GMA336Y6ZM",
)


def masked(texts):
    masker = Masker((STANDARD,))
    return mask_together(texts, masker.find, masker.mask, lambda label, _: f"[REDACTED_{label}]")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["card 4111 1111 ", "1111 1111"], ["card [REDACTED_CREDIT_CARD]", "[REDACTED_CREDIT_CARD]"]),
        (["card 4111 1111", "1111 1111."], ["card [REDACTED_CREDIT_CARD]", "[REDACTED_CREDIT_CARD]."]),
        (["zora@mail", "host.org"], ["[REDACTED_EMAIL]", "[REDACTED_EMAIL]"]),
        (["4111", "1111", "1111", "1111"], ["[REDACTED_CREDIT_CARD]"] * 4),
        (
            ["x" * 900 + " zora@mail", "host.org " + "y" * 900],
            ["x" * 900 + " [REDACTED_EMAIL]", "[REDACTED_EMAIL] " + "y" * 900],
        ),
        (["Write to zora@mailhost.org", "and call"], ["Write to [REDACTED_EMAIL]", "and call"]),
        (["Write to zora@mailhost.org.", "Fix it"], ["Write to [REDACTED_EMAIL].", "Fix it"]),
        (["Is it zora@mailhost.org", ".co or not?"], ["Is it [REDACTED_EMAIL]", ".co or not?"]),
        (["order", "411", "1 1111 1111 1111"], ["order", "[REDACTED_CREDIT_CARD]", "[REDACTED_CREDIT_CARD]"]),
        (["one", "two"], ["one", "two"]),
        (["zora@mail"], ["zora@mail"]),
        ([], []),
    ],
)
def test_each_share_of_a_cut_value_is_masked(texts, expected):
    assert masked(texts) == expected


@settings(max_examples=200, deadline=None)
@given(
    value=st.sampled_from(VALUES),
    cuts=st.sets(st.integers(1, 15), min_size=1, max_size=3),
    before=st.sampled_from(["", "It is ", "x" * 700 + " "]),
    after=st.sampled_from(["", " and so on", " " + "y" * 700]),
)
def test_no_cut_of_a_value_hides_it(value, cuts, before, after):
    ends = [0, *sorted(cut for cut in cuts if cut < len(value)), len(value)]
    texts = [value[start:end] for start, end in pairwise(ends)]
    texts[0], texts[-1] = before + texts[0], texts[-1] + after
    # a share that is a value itself is masked alone: `ora@mailhost.org`
    assume(not any(map(STANDARD.find, texts)))
    written = masked(texts)
    assert value not in "".join(written)
    assert all(texts[n] != written[n] for n in range(len(texts)) if texts[n].strip()), (texts, written)


@pytest.mark.parametrize("cut", range(1, len("eve@other-mail.net")))
@pytest.mark.parametrize("before", ["ann@first-mail.net-", "ann@first-mail.net_", "+49 30 90182012\ufeff"])
def test_a_value_right_behind_another_one_is_found_wherever_it_is_cut(before, cut):
    text, end = f"{before}eve@other-mail.net", len(before) + cut
    session = Masker(STANDARD).session()
    assert "eve@" not in session.text(text)
    joined = "".join(session.together([text[:end], f"{text[end:]} "], is_own=False))
    assert "eve@" not in joined
    assert "mail.net" not in joined


def test_a_placeholder_stands_for_the_whole_value():
    parts = (Part("text", "zora@mail"), Part("image"), Part("text", "host.org and zora@mailhost.org"))
    stabilizer = Stabilizer(9_000, stages=[MaskPII(masker=Masker(STANDARD, strategy="pseudonymize"))])
    result = stabilizer.stabilize([Artifact("user", parts)])
    assert result.artifacts[0].text == "<EMAIL_1>\n<EMAIL_1> and <EMAIL_1>"
    assert result.report.ok


def test_the_check_finds_what_no_stage_masked():
    history = [Artifact("user", (Part("text", "card 4111 1111", editable=False), Part("text", "1111 1111")))]
    (finding,) = [f for check in Stabilizer(9_000).stabilize(history).report.checks for f in check.findings]
    assert (
        str(finding) == "CREDIT_CARD was found: the text of message 0 (user) @ artifacts[0].content, over several parts"
    )
