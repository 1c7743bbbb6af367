"""What programs print is told from what people say, and a failure from an error that an output only quotes."""

from __future__ import annotations

import pytest
from builders import user
from hypothesis import given
from hypothesis import strategies as st
from patience import is_linear

from ctxguard import Artifact
from ctxguard.history import History
from ctxguard.stages.short_views import failure_of, holds_observation, is_observation
from ctxguard_anthropic import AnthropicAdapter

LISTING = "total 56\n-rw-r--r-- 1 root root 4096 Feb 11 08:56 test\n-rw-r--r-- 1 root root 99 Feb 11 08:32 error.c\n"
CURL = """  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current
                                 Dload  Upload   Total   Spent    Left  Speed
100  743  100  743    0     0   4152      0 --:--:-- --:--:-- --:--:--  4152
100  653  100  653    0     0   3750      0 --:--:-- --:--:-- --:--:--  3750"""
TREE = """RootWebArea Assessment Overview | ServiceNow, focused
[a12] generic, live='assertive', atomic
  [a13] button 'Next', clickable
  [a14] link 'Home'"""


@pytest.mark.parametrize(
    "text",
    [
        CURL,
        TREE,
        "Observation: " + "The page shows a list. " * 9,
        "OBSERVATION:\nThe page shows a list.",
        LISTING * 2,
        '{"rows": [' + "1, " * 90 + "2]}",
        "12993 15421 6865 7129 " * 9,
        "\n".join(f"{n}\tdef f{n}(a): return a" for n in range(1, 20)),
    ],
)
def test_an_observation_with_the_role_of_a_user_is_nobodys_words(text):
    assert is_observation(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please book the nonstop flight to Seattle, not before 11 am. My user id is raj_brown_5782.",
        "Yes.",
        "",
        "4111 is the PIN",
        "The observation is mine: it rains.",
        "Erkläre mir bitte, warum der Test in src/loader.py scheitert, und ändere nichts an den anderen Dateien darin.",
        "直してください。テストは変えないでください。",
        "أصلح المحمل من فضلك ولا تلمس الاختبارات أبدا، فهي مشتركة مع فريق آخر ولا نريد أن نزعجه بهذا الأمر الآن.",
        "Fix this:\n- the loader\n- the writer\nand never touch the tests, since they are shared with another team of ours.",
    ],
)
def test_the_words_of_people_are_theirs(text):
    assert not is_observation(text)


@pytest.mark.parametrize("end", ["```\nls\n```", "<command>\nls\n</command>"])
def test_an_answer_to_commands_written_as_text_is_an_observation(end):
    output = user("Some prose that a program wrote.\n(Current directory: /root)")
    command = Artifact("assistant", f"Let us look.\n{end}")
    talk = [user("Fix it,\nplease."), command, output, command, output, Artifact("assistant", "Done."), output]
    history = History(lambda artifact: len(artifact.text), talk)
    assert [holds_observation(history, n) for n in range(7)] == [False, False, True, False, True, False, False]


def test_what_comes_later_never_changes_the_answer():
    command, output = Artifact("assistant", "Let us look.\n```\nls\n```"), user("a.py\nb.py")
    talk = [user("Fix it."), *[command, output] * 3]
    whole = History(lambda artifact: 1, talk)
    for end in range(1, len(talk) + 1):
        part = History(lambda artifact: 1, talk[:end])
        assert [holds_observation(part, n) for n in range(end)] == [holds_observation(whole, n) for n in range(end)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ERROR:\nNo replacement was performed.", "No replacement was performed."),
        ("Exit code 2\nmake: *** [all] Error 2", "Exit code 2; make: *** [all] Error 2"),
        ("compiled\nprocess exited with code 1", "process exited with code 1; compiled"),
        ("Traceback (most recent call last):\n  File 'a'\nValueError: bad region", "ValueError: bad region"),
        ("..F\n==== 1 failed, 47 passed in 3.2s ====", "1 failed, 47 passed in 3.2s"),
        ('{"error": "no such order"}', '{"error": "no such order"}'),
        ("Error: no such order", "Error: no such order"),
        (
            "> shop@1.0.0 check\n> tsc --noEmit\n\na.ts(2,8): error TS2304: Cannot find name 'Row'.\n\nexited with code 2",
            "exited with code 2; a.ts(2,8): error TS2304: Cannot find name 'Row'.",
        ),
    ],
)
def test_a_result_that_says_that_it_failed_is_a_failure_with_its_reason(text, reason):
    assert failure_of(Artifact("tool", text, answers="c1")) == reason


@pytest.mark.parametrize("tag", ["error", "tool_use_error"])
def test_a_tag_that_marks_an_error_marks_a_failure(tag):
    told = failure_of(Artifact("tool", f"<{tag}>File was not found.</{tag}>", answers="c1"))
    assert told == "File was not found."


def test_a_flag_of_the_framework_is_a_failure_whatever_the_text_says():
    given = {"type": "tool_result", "tool_use_id": "c1", "content": "all is well", "is_error": True}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "run", "input": {}}]}
    *_, artifact = AnthropicAdapter().read([call, {"role": "user", "content": [given]}])
    assert failure_of(artifact) == "all is well"


@pytest.mark.parametrize(
    "text",
    [
        LISTING,
        "",
        "delivered",
        "exit code: 0",
        "done\nExit code 0",
        "==== 47 passed in 3.2s ====",
        '{"error": null, "id": 7}',
        "0 errors, 0 warnings",
        "def error(a):\n    return a\n\n\ndef failed(b):\n    raise ValueError\n" * 3,
        "The carrier says that the order failed to arrive.",
        "2024-05-01 12:00:01 ERROR worker 17 failed\n2024-05-01 12:00:02 INFO worker 18 is up\n" * 5,
    ],
)
def test_an_error_that_a_result_only_quotes_is_no_failure(text):
    assert failure_of(Artifact("tool", text, answers="c1")) is None


@given(st.text(max_size=200))
def test_a_reason_is_short_on_one_line_and_made_of_words_of_the_result(text):
    told = failure_of(Artifact("tool", text, answers="c1"))
    if told is not None:
        assert len(told) <= 120
        assert "\n" not in told
        assert all(word.strip(";…") in text for word in told.split())


@pytest.mark.parametrize("sign", ["a", "1", "\n", "Error: ", "error ", "{", "exit code 1\n", "1 failed, ", "- ", "\t"])
def test_hostile_texts_take_linear_time(sign):
    def work(count):
        text = sign * (count // len(sign))
        is_observation.__wrapped__(text)
        failure_of(Artifact("tool", text, answers="c1"))

    assert is_linear(work, 60_000)
