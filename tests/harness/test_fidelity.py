"""The measure of what a context holds of what the next step needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact
from ctxguard.artifacts import ToolCall
from ctxguard.harness import fidelity
from ctxguard.harness.fidelity import Fidelity, Support, distinctive_strings
from ctxguard.history import exchanges

LOG = "Traceback in module loader while reading settings from src/app/config_loader.py at line 4711 of the file"


def history(*, last: str = "go on") -> list[Artifact]:
    return [
        Artifact("system", "You work in /srv/project with tool_v2."),
        Artifact("user", "Fix the crash."),
        Artifact("assistant", "", calls=(ToolCall("run_tests", '{"target": "all"}', "c1"),)),
        Artifact("tool", LOG, answers="c1"),
        Artifact("assistant", "Reading on."),
        Artifact("user", last),
    ]


@pytest.mark.parametrize(
    ("text", "strings"),
    [
        ("see src/app.py and the manual.", ["src/app.py"]),
        ("order #W123456: shipped", ["#W123456"]),
        ("user_id is mia_li_3668.", ["user_id", "mia_li_3668"]),
        ("getUser but not Plain words", ["getUser"]),
        ("a.b is short, os.path is not", ["os.path"]),
        ("x" * 119 + "1", ["x" * 119 + "1"]),
        ("x" * 120 + "1", []),
        ("src/app.py src/app.py", ["src/app.py"]),
    ],
)
def test_strings_with_marks_are_distinctive(text, strings):
    assert distinctive_strings(text) == strings


def test_a_full_history_holds_everything_in_context():
    following = Artifact("assistant", "", calls=(ToolCall("edit", '{"path": "src/app/config_loader.py"}'),))
    assert Fidelity()(history(), history(), following) == Support(1, 1, 1)


def test_what_any_valid_context_holds_does_not_count():
    following = Artifact("assistant", "tool_v2 says: look at /srv/project and ticket-77")
    assert Fidelity().needs(history(last="It is ticket-77."), following) == []


def test_strings_that_the_history_does_not_tell_do_not_count():
    assert Fidelity().needs(history(), Artifact("assistant", "now writing brand_new_name.py")) == []


def test_a_bare_list_of_names_passes_only_the_plain_measure():
    following = Artifact("assistant", "open src/app/config_loader.py at 4711")
    bare = [Artifact("user", "src/app/config_loader.py 4711")]
    assert Fidelity()(history(), bare, following) == Support(2, 2, 0)


def test_a_line_with_the_words_around_passes_both():
    following = Artifact("assistant", "open src/app/config_loader.py")
    line = [Artifact("user", "reading settings from src/app/config_loader.py at line 4711")]
    assert Fidelity()(history(), line, following) == Support(1, 1, 1)


def test_the_string_itself_is_not_its_own_context():
    told = [Artifact("user", LOG), Artifact("assistant", "Fine."), Artifact("user", "and now?")]
    alone = [Artifact("user", "config_loader_module_settings_4711 " * 3)]
    following = Artifact("assistant", "see src/app/config_loader.py")
    assert Fidelity()(told, alone, following) == Support(1, 0, 0)


def test_personal_data_does_not_count():
    said = [Artifact("user", "Write to eva@example.org about run_77."), Artifact("assistant", "Fine."), *history()[1:2]]
    mask = lambda text: text.replace("eva@example.org", "[EMAIL]")  # noqa: E731
    following = Artifact("assistant", "eva@example.org was told of run_77")
    assert [need.string for need in Fidelity(mask=mask).needs(said, following)] == ["run_77"]


@given(st.lists(st.sampled_from([LOG, "plain words", "run_77 and build-12", ""]), max_size=6), st.data())
def test_more_context_never_holds_less(texts, data):
    told = [Artifact("user", text) for text in texts] + history()
    following = Artifact("assistant", f"{LOG} run_77 build-12")
    kept = [artifact for artifact in told if data.draw(st.booleans())]
    measure = Fidelity()
    part, whole = measure(told, kept, following), measure(told, told, following)
    assert part.held <= whole.held == whole.needed
    assert part.held_in_context <= whole.held_in_context


CALLS = st.lists(st.sampled_from(["a", "b", ""]), max_size=2)
ANY = st.one_of(
    st.sampled_from(["user", "system", "assistant"]).map(lambda kind: Artifact(kind, "text")),
    CALLS.map(lambda ids: Artifact("assistant", "text", calls=tuple(ToolCall("read", "{}", one) for one in ids))),
    st.sampled_from(["a", "b", None]).map(lambda one: Artifact("tool", "text", answers=one)),
)


@given(st.lists(ANY, min_size=1, max_size=12))
def test_the_newest_exchange_is_that_of_a_pairing_of_the_whole_history(history):
    assert tuple(fidelity._newest_exchange(history)) == exchanges(history)[-1].positions


def test_what_a_message_needs_is_found_without_pairing_the_whole_history(monkeypatch):
    paired = []
    monkeypatch.setattr(fidelity, "exchanges", lambda given: paired.append(len(given)) or exchanges(given))
    history = []
    for n in range(50):
        calls = (ToolCall("read", "{}", f"c{n}"),)
        history += [Artifact("assistant", "", calls=calls), Artifact("tool", f"file_{n}.py", answers=f"c{n}")]
    [need] = Fidelity().needs(history, Artifact("assistant", "Open file_7.py."))
    assert (need.string, paired) == ("file_7.py", [2])
