"""Short views: first and last lines of an output, first and last words of a message, what a call's arguments were."""

from __future__ import annotations

import json

import pytest
from builders import calls, result
from hypothesis import given
from hypothesis import strategies as st
from patience import is_linear

from ctxguard import Artifact, Part, Stabilizer
from ctxguard.artifacts import Media
from ctxguard.draft import Draft
from ctxguard.stages.short_views import media_of, short_speech, short_view, shortened, water_level
from ctxguard.tokens import find_counter

COUNT = find_counter("o200k_base").count
ESTIMATE = find_counter("estimate").count
LINES = "\n".join(f"line {n} says what it says" for n in range(400))
PICTURE = Part("image", media=Media("image", (1_000, 1_000)))


def draft_of(*artifacts: Artifact) -> Draft:
    """Return the draft that the last stage of a chain gets."""
    seen = []
    Stabilizer(100_000, counter="estimate", stages=[lambda draft: seen.append(draft) or draft]).stabilize(
        [Artifact("user", "Look."), *artifacts]
    )
    return seen[0]


@pytest.mark.parametrize("limit", [60, 120, 600])
def test_a_view_has_the_first_and_the_last_lines(limit):
    view = short_view(LINES, limit, count=COUNT)
    assert COUNT(view) <= limit
    assert view.startswith("line 0 says")
    assert view.endswith("line 399 says what it says")
    assert "shortened by ctxguard" in view


def test_the_end_of_a_small_view_is_longer_than_its_beginning():
    head, _, tail = short_view(LINES, 120, count=COUNT).partition("shortened by ctxguard")
    assert len(tail) > len(head)


FAILED = "\n".join(
    [*LINES.split("\n")[:200], "ValueError: no region EMEA-7 in table", *LINES.split("\n")[200:], "Exit code 1"]
)


def test_the_message_of_an_error_is_shown_if_the_call_failed_and_only_then():
    assert "ValueError: no region EMEA-7" in short_view(FAILED, 120, count=COUNT, has_failed=True)
    assert "ValueError" not in short_view(FAILED, 120, count=COUNT)
    artifact = result("c1", FAILED)
    assert "ValueError: no region EMEA-7" in shortened(artifact, 120, draft_of(artifact), at=artifact).text


FILLER_LINES = LINES.split("\n")[:150]
TRACEBACK = "\n".join(
    [
        "Traceback (most recent call last):",
        *(f'  File "/srv/app/step{n}.py", line {n}, in step{n}' for n in range(40)),
        "KeyError: 'EMEA-7'",
    ]
)


def test_errors_that_beginning_or_end_show_are_not_repeated():
    view = short_view(TRACEBACK, 120, count=COUNT, has_failed=True)
    assert view.count("KeyError: 'EMEA-7'") == 1
    assert view.count("Traceback (most recent call last):") == 1


def test_a_line_that_names_no_reason_takes_no_tokens_between_beginning_and_end():
    text = "\n".join([*FILLER_LINES, "Traceback (most recent call last):", *FILLER_LINES, "Exit code 1"])
    assert "Traceback" not in short_view(text, 120, count=COUNT, has_failed=True)


def test_of_many_errors_the_last_that_fit_are_shown():
    errors = [f"ERROR: region {n} has no table of its own, and {'nobody knows why it is so, ' * 4}" for n in range(5)]
    text = "\n".join([*FILLER_LINES, *errors, *FILLER_LINES, "Exit code 1"])
    view = short_view(text, 120, count=COUNT, has_failed=True)
    assert "… ERROR: region 4 has no table of its own" in view
    assert COUNT(view) <= 120


@pytest.mark.parametrize(
    "error",
    [
        "src/report.ts(28,2): error TS2739: Type 'Row' is missing the property 'region'.",
        "src/report.c:28:2: error: 'region' undeclared",
        "src/report.c:3:10: fatal error: region.h: No such file or directory",
        "Report.java:28: error: cannot find symbol",
    ],
)
def test_the_error_of_a_compiler_is_shown_if_the_build_failed(error):
    text = "\n".join([*FILLER_LINES, error, *FILLER_LINES, "Exit code 2"])
    assert error[:60] in short_view(text, 120, count=COUNT, has_failed=True)


@pytest.mark.parametrize("role", ["tool", "user"])
def test_an_output_that_opens_with_an_error_shows_its_message_in_any_role(role):
    text = f"{TRACEBACK}\n\n(Open file: n/a)\n(Current directory: /srv/app/of/a/very/long/name/{'deep/' * 90})\nbash-$"
    artifact = Artifact(role, text, answers="c1" if role == "tool" else None)
    assert "KeyError: 'EMEA-7'" in shortened(artifact, 120, draft_of(artifact), at=artifact).text


@pytest.mark.parametrize(
    "start", ["[File: /srv/app/report.py (150 lines total)]", "[x] Opening the port", "{{ page }}"]
)
def test_a_text_that_only_begins_with_a_bracket_is_shown_by_its_lines(start):
    view = short_view("\n".join([start, *FILLER_LINES]), 120, count=COUNT)
    assert view.startswith(start)
    assert view.endswith(FILLER_LINES[-1])


@pytest.mark.parametrize("cut", [0, 5_000])
def test_json_that_another_tool_has_cut_off_is_still_json(cut):
    rows = json.dumps([{"id": n, "city": f"town {n}"} for n in range(300)])
    assert "city" in short_view(rows[: len(rows) - cut], 120, count=COUNT).partition("It begins:")[0]


def test_a_view_of_json_has_values_with_their_keys():
    rows = json.dumps({"status": "paid", "rows": [{"id": n, "city": f"town {n}"} for n in range(300)]})
    view = short_view(rows, 120, count=COUNT)
    assert COUNT(view) <= 120
    assert "status" in view
    assert "paid" in view


def test_a_handle_says_where_the_whole_text_is():
    assert "tool-output:abc" in short_view(LINES, 120, count=COUNT, handle="tool-output:abc")
    assert "tool-output:abc" in short_speech("I say so. " * 400, 60, count=COUNT, handle="tool-output:abc")


TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from(["word ", "line\n", "日本語", "🎉", '{"a": 1, ', "Error: no\n", ". ", "\u2028", "x" * 90])
    ).map("".join),
)


@given(TEXTS, st.integers(0, 80), st.booleans(), st.sampled_from([None, "tool-output:abc"]))
def test_a_view_keeps_its_limit_and_a_text_that_fits_stays(text, limit, failed, handle):
    for count in (COUNT, ESTIMATE):
        view = short_view(text, limit, count=count, has_failed=failed, handle=handle)
        assert count(view) <= limit
        if count(text) <= limit:
            assert view == text


@given(TEXTS, st.integers(0, 80), st.sampled_from([None, "tool-output:abc"]))
def test_a_short_message_keeps_its_limit_and_is_made_of_its_own_words(text, limit, handle):
    for count in (COUNT, ESTIMATE):
        shown = short_speech(text, limit, count=count, handle=handle)
        assert count(shown) <= limit or not shown
        if count(text) <= limit:
            assert shown == text
        elif " words left out by ctxguard" in shown and not shown.startswith("["):
            first, _, rest = shown.partition("[…")
            assert " ".join(text.split()).startswith(" ".join(first.split()))
            assert " ".join(text.split()).endswith(" ".join(rest.partition("…]")[2].split()))


@pytest.mark.parametrize("mark", [". ", "。", "! ", "… ", "\n"])
def test_a_short_message_has_its_first_and_its_last_sentence(mark):
    text = f"Never touch the tests{mark}{f'It rained today{mark}' * 60}Use tabs in all files"
    shown = short_speech(text, 40, count=COUNT)
    assert shown.startswith("Never touch the tests")
    assert shown.endswith("Use tabs in all files")


def test_pictures_leave_an_output_whose_text_stays():
    artifact = result("c1", (Part("text", "The page has a list."), PICTURE, PICTURE))
    assert media_of(artifact) == ["picture", "picture"]
    view = shortened(artifact, 60, draft_of(artifact), at=artifact, keeps_media=False)
    assert view.text.startswith("The page has a list.")
    assert view.text.count("[picture left out by ctxguard]") == 2
    assert media_of(view) == []
    assert media_of(shortened(artifact, 60, draft_of(artifact), at=artifact)) == ["picture", "picture"]


def test_a_picture_of_a_person_never_leaves_their_message():
    artifact = Artifact("user", (Part("text", "I say so. " * 90), PICTURE))
    view = shortened(artifact, 60, draft_of(artifact), at=artifact, keeps_media=False, is_speech=True)
    assert media_of(view) == ["picture"]


def test_signed_parts_stay_as_they_are():
    thought = Part("reasoning", "I think of it. " * 90, editable=False, signed=True)
    artifact = Artifact("assistant", (thought, Part("text", "I say so. " * 90)))
    view = shortened(artifact, 400, draft_of(artifact), at=artifact, is_speech=True)
    assert view.content[0] == thought
    assert len(view.content[1].text) < 400


@pytest.mark.parametrize(
    "arguments", [json.dumps({"text": "word " * 300, "n": 1}), json.dumps({"a" * 900: 1}), "word " * 300]
)
@pytest.mark.parametrize("limit", [20, 60, 120])
def test_long_arguments_stay_an_object_if_they_were_one(arguments, limit):
    artifact = calls("1", arguments=arguments)
    draft = draft_of(artifact, result("1"))
    view = shortened(artifact, limit, draft, at=artifact)
    assert draft.counter.artifact(view) <= limit
    if arguments.startswith("{"):
        assert isinstance(json.loads(view.calls[0].arguments), dict)
    open_call = shortened(artifact, limit, draft, at=artifact, is_open=True)
    assert open_call.calls == artifact.calls


@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.integers(0, 2_000))
def test_a_common_limit_shares_what_is_there(sizes, available):
    level = water_level(sizes, available)
    assert level >= 4
    assert sum(min(size, level) for size in sizes) <= max(available, 4 * len(sizes))
    if level > 4 and level < max(sizes):
        assert sum(min(size, level + 1) for size in sizes) > available


@pytest.mark.parametrize("sign", ["a", "a ", "a\n", "{", '{"a": ', "Error: no\n", "。", "🎉", ". ", "\x00"])
def test_hostile_texts_take_linear_time(sign):
    def work(count):
        text = sign * (count // len(sign))
        short_view(text, 120, count=ESTIMATE, has_failed=True)
        short_speech(text, 30, count=ESTIMATE)

    assert is_linear(work, 60_000)
