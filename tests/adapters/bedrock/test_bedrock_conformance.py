"""The Bedrock adapter passes the suite that every adapter passes; roles take turns in all that it writes."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Literal, NotRequired, TypedDict

from botocore.loaders import Loader
from botocore.model import ServiceModel
from builders import chat_of
from conversions import converse_of
from hypothesis import given

from ctxguard import Kind
from ctxguard.testing import _SETTINGS, AdapterConformance, histories
from ctxguard_bedrock import BedrockAdapter


def _type_of(shape, within=()):
    """Return a shape of Amazon's service model as a type; what holds itself ends in a text."""
    within, kind = (*within, shape.name), shape.type_name
    if kind == "string":
        return Literal[tuple(shape.enum)] if shape.enum else str
    if kind == "list":
        return list[_type_of(shape.member, within)]
    if kind == "map":
        return dict[str, _type_of(shape.value, within)]
    if kind != "structure":
        return bytes if kind == "blob" else bool if kind == "boolean" else int
    if shape.is_document_type:
        return Any
    fields = {name: str if one.name in within else _type_of(one, within) for name, one in shape.members.items()}
    required = shape.required_members
    return TypedDict(shape.name, {name: one if name in required else NotRequired[one] for name, one in fields.items()})


class TestBedrockAdapter(AdapterConformance):
    adapter = BedrockAdapter()
    classes = (
        _type_of(ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2")).shape_for("Message")),
    )

    def holding(self, item):
        return {"messages": [item]}

    def native(self, history):
        return converse_of(chat_of(history))

    def items(self, native):
        return [native["system"], *native["messages"]] if "system" in native else list(native["messages"])

    @_SETTINGS
    @given(history=histories())
    def test_parity_the_artifacts_are_those_of_the_history(self, history):
        """Two messages of a role in a row are no Converse history: they are one message, and one artifact."""
        read = self.adapter.read(self.native(history))
        runs = [list(run) for kind, group in groupby(history, key=lambda a: a.kind) for run in _runs(kind, list(group))]
        assert [a.kind for a in read] == [run[0].kind for run in runs]
        assert [a.text for a in read] == ["\n".join(a.text for a in run) for run in runs]
        assert [[(c.name, c.id) for c in a.calls] for a in read] == [
            [(c.name, c.id) for a in run for c in a.calls] for run in runs
        ]
        assert [a.answers for a in read] == [run[0].answers for run in runs]


def _runs(kind, group):
    return [group] if kind is Kind.USER else [[artifact] for artifact in group]


class TestBedrockAdapterOnBareLists(AdapterConformance):
    adapter = BedrockAdapter()

    def native(self, history):
        return converse_of([m for m in chat_of(history) if m["role"] != "system"])["messages"]

    test_parity_the_artifacts_are_those_of_the_history = None

    def unknown(self):
        return {"role": "narrator", "content": [{"hologram": {"beam": [1, 2, 3]}}]}
