"""Artifacts are frozen lenses; exchanges hold what belongs together."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re

import pytest

from ctxguard import Artifact, Kind, Lifetime, Part, ToolCall
from ctxguard.errors import ConfigError


def test_three_positional_arguments_are_kind_content_and_token_count():
    artifact = Artifact("user", "hello", 2)
    assert (artifact.kind, artifact.content, artifact.token_count) == (Kind.USER, "hello", 2)
    assert artifact.kind == "user"


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [("developer", "system"), ("Human", "user"), ("message", "user"), ("ai", "assistant"), ("tool_output", "tool")],
)
def test_kinds_of_other_formats_are_known(spelling, kind):
    assert Artifact(spelling).kind == kind


@pytest.mark.parametrize("kind", ["sistem", "asistant", "usr", "toool", "mesage", "", None, 5])
def test_a_misspelled_kind_is_refused_with_the_known_ones(kind):
    with pytest.raises(ConfigError, match=f"unknown kind {kind!r}.*; known are system, task, user, assistant, tool"):
        Artifact(kind, "hi")


@pytest.mark.parametrize("kind", ["memory", "document", "other", "retrieval", "note", "Plan"])
def test_another_kind_is_taken_like_a_tool_output_and_keeps_its_name(kind):
    artifact = Artifact(kind, "hi")
    assert (artifact.kind, artifact.role) == ("tool", kind)
    assert copy.deepcopy(artifact) == artifact


def test_artifacts_are_frozen_and_survive_pickling():
    artifact = Artifact("user", "hello", 2, id="a", role="critic")
    assert artifact != dataclasses.replace(artifact, role=None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        artifact.content = "changed"
    assert pickle.loads(pickle.dumps(artifact)) == artifact
    assert artifact.edit(lambda slot, text: text + "!").role == "critic"


def test_an_edit_remembers_what_it_was_and_leaves_the_original():
    artifact = Artifact("user", "hello", 2)
    edited = artifact.edit(lambda slot, text: text.upper())
    assert (artifact.text, edited.text, edited.root, edited.token_count) == ("hello", "HELLO", artifact, None)
    again = edited.edit(lambda slot, text: text + "!")
    assert again.root is artifact


def test_an_edit_that_changes_nothing_is_the_same_object():
    artifact = Artifact("assistant", (Part("text", "a"), Part("image", tokens=85)), calls=(ToolCall("f", "{}", "1"),))
    assert artifact.edit(lambda slot, text: text) is artifact


def test_edits_reach_every_text_but_signed_ones():
    artifact = Artifact(
        "assistant",
        (Part("text", "a"), Part("reasoning", "r", editable=False)),
        calls=(ToolCall("f", '{"x": 1}', "1"),),
        name="bob",
    )
    seen = {}
    edited = artifact.edit(lambda slot, text: seen.setdefault(slot, text) and text + "'")
    assert seen == {"content": "a", "arguments": '{"x": 1}'}, "names are never edited"
    assert [part.text for part in edited.content] == ["a'", "r"]


@pytest.mark.parametrize("broken", [{}, {"turns": 0}, {"turns": -1}])
def test_a_lifetime_needs_a_sensible_end(broken):
    with pytest.raises(ConfigError):
        Lifetime(**broken)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"content": ("a",)}, "content is a text or a tuple of parts; it contains str"),
        ({"content": "a", "name": 5}, "name is a text, not int"),
        ({"content": "a", "answers": 5}, "answers is the id of a call, a text, not int"),
        ({"content": "a", "token_count": "5"}, "token_count is a whole number, not '5'"),
        ({"content": "a", "token_count": [1]}, "token_count is a whole number, not list"),
        ({"content": "a", "token_count": 3.5}, "token_count is a whole number, not 3.5"),
        ({"content": "a", "token_count": -4}, "token_count must be 0 or more, not -4"),
        ({"content": "a", "lifetime": 3}, "lifetime is a Lifetime, not int"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_by_name(fields, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Artifact("user", **fields)


def test_the_id_of_a_call_is_a_text():
    with pytest.raises(ConfigError, match="the id of a call is a text, not int"):
        ToolCall("look", "{}", 5)
