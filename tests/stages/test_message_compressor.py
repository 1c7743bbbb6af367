"""Snapshots, console messages and long outputs are compressed by level; what matters stays."""

from __future__ import annotations

import pytest

from ctxguard.artifacts import Artifact, Part, ToolCall
from ctxguard.content import CompressionLevel, ConsoleMessageCompressor, MessageCompressor, SnapshotCompressor
from ctxguard.tokens import find_counter

count = find_counter("estimate").count
PAGE = """- generic [ref=e1]:
  - banner [ref=e2]:
    - link "Home" [ref=e3] [cursor=pointer]:
      - /url: /
    - navigation [ref=e4]:
      - list [ref=e5]:
        - listitem [ref=e6]:
          - generic: deep words
          - button "Buy" [ref=e7]
  - main [ref=e8]:
    - heading "Welcome" [level=1] [ref=e9]
    - paragraph [ref=e10]: words
"""
CONSOLE = "".join(f"[LOG] tick {n}\n" for n in range(40)) + (
    "[ERROR] Uncaught TypeError: x is not a function\n    at f (app.js:3)\n" + "[WARNING] slow\n" * 9
)


def test_snapshot_keeps_what_can_be_acted_on_at_any_depth():
    short = SnapshotCompressor(max_depth=3, preserve_interactive=True).compress(PAGE)
    assert 'button "Buy" [ref=e7]' in short
    assert 'link "Home" [ref=e3]' in short
    assert "deep words" not in short
    assert "heading" in short


def test_snapshot_without_interactive_elements_is_cut_by_depth_alone():
    short = SnapshotCompressor(max_depth=2, preserve_interactive=False).compress(PAGE)
    assert "Buy" not in short
    assert "banner" in short
    assert "[… " in short


def test_settings_of_a_call_come_before_those_of_the_compressor():
    compressor = SnapshotCompressor(max_depth=1)
    assert compressor.compress(PAGE, max_depth=99) == PAGE
    assert "main" not in compressor.compress(PAGE)


def test_shallow_snapshot_stays_as_it_is():
    assert SnapshotCompressor(max_depth=9).compress(PAGE) is PAGE


def test_console_errors_stay_word_for_word_and_the_rest_is_counted():
    short = ConsoleMessageCompressor().compress(CONSOLE)
    assert "Uncaught TypeError: x is not a function\n    at f (app.js:3)" in short
    assert "log (40):" in short
    assert "slow (×9)" in short
    assert len(short) < len(CONSOLE) / 4


def test_console_messages_that_would_not_get_shorter_stay():
    assert ConsoleMessageCompressor().compress("[ERROR] a\n") == "[ERROR] a\n"


@pytest.fixture
def history():
    return [
        Artifact("system", "be helpful " * 2000),
        Artifact("user", "please " * 2000),
        Artifact("assistant", "", calls=(ToolCall("browser_snapshot", "{}", "a"), ToolCall("shell", "{}", "b"))),
        Artifact("tool", PAGE * 20, answers="a"),
        Artifact("tool", "output line\n" * 4000, answers="b", name="shell"),
        Artifact("tool", CONSOLE * 3, name="console_messages"),
        Artifact("tool", "short", answers="x"),
        Artifact("assistant", "I think that " * 1000),
        Artifact("tool", "words " * 9000, pinned=True),
    ]


def test_level_none_changes_nothing(history):
    assert all(a is b for a, b in zip(MessageCompressor("none").compress(history), history, strict=True))


def test_levels_compress_ever_harder_and_never_touch_user_system_and_pinned(history):
    sizes = []
    for level in ("none", "low", "medium", "high"):
        short = MessageCompressor(level, counter="estimate").compress(history)
        assert len(short) == len(history)
        assert [a.kind for a in short] == [a.kind for a in history]
        assert [a.answers for a in short] == [a.answers for a in history]
        for index in (0, 1, 6, 8):
            assert short[index] is history[index]
        sizes.append(sum(count(a.text) for a in short))
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


def test_compressing_again_changes_nothing(history):
    compressor = MessageCompressor(CompressionLevel.HIGH, counter="estimate")
    once = compressor.compress(history)
    assert [a.text for a in compressor.compress(once)] == [a.text for a in once]


def test_parts_are_compressed_and_media_and_signed_parts_stay():
    image, signed = Part("image", tokens=500), Part("reasoning", "deep " * 5000, editable=False)
    tool = Artifact("tool", (Part("text", "line\n" * 9000), image, signed))
    (short,) = MessageCompressor("medium", counter="estimate").compress([tool])
    assert count(short.content[0].text) <= 1000
    assert short.content[1:] == (image, signed)


def test_it_is_a_stage(history):
    from ctxguard import Stabilizer

    stabilizer = Stabilizer(budget=200_000, stages=[MessageCompressor("high")])
    report = stabilizer.stabilize(history).report
    assert "bounded" in {decision.action for decision in report.decisions}


def test_same_messages_always_give_the_same_texts(history):
    compressor = MessageCompressor("high", counter="estimate")
    once = compressor.compress(history)
    copies = [Artifact(a.kind, a.content, calls=a.calls, answers=a.answers, name=a.name) for a in history[:-1]]
    assert compressor.compress(history) == once
    assert [a.text for a in compressor.compress(copies)] == [a.text for a in once[:-1]]


def test_what_is_remembered_for_one_level_or_counter_is_not_taken_for_another(history):
    def sizes(level, counter):
        return [len(a.text) for a in MessageCompressor(level, counter=counter).compress(history)]

    by_length = sizes("medium", lambda text: 2 * len(text))
    assert sizes("medium", lambda text: len(text) // 4) != by_length
    assert sizes("high", lambda text: 2 * len(text)) != by_length
    assert (
        MessageCompressor("medium", max_snapshot_depth=9).compress(history)[3]
        != (MessageCompressor("medium", max_snapshot_depth=1).compress(history)[3])
    )
