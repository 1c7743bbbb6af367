"""What is stored holds no value, and what is loaded is what was stored, in whatever it stands."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ctxguard.adapting.stored import StoredTexts
from ctxguard.errors import ConfigError
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore

VALUES = ("ada@corp-mail.net", "4111 1111 1111 1111", "+1 212 555 0123")
TEXTS = st.lists(st.sampled_from([*VALUES, "order", "<EMAIL_1>", "<EM", "é", "\n", "12", '"', "{}"]), max_size=6).map(
    " ".join
)
PLAIN = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), TEXTS.map(lambda text: json.dumps({"said": text}))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner)),
    max_leaves=8,
)


class Contact(BaseModel):
    mail: object


@dataclass(frozen=True)
class Ticket:
    title: object
    size: int = 3


class Row(NamedTuple):
    title: object
    size: int = 3


class Named(str):
    __slots__ = ()


class Mail(StrEnum):
    ada = VALUES[0]


def stored():
    return StoredTexts(Vault(MemoryStore(), key=new_key()).session("one"))


@given(value=PLAIN)
def test_what_is_loaded_is_what_was_stored_and_what_is_stored_holds_no_value(value):
    texts = stored()
    held = (value, [Ticket(value)], {"c": Contact(mail=value)}, {"a", *VALUES})
    before = repr(held[:3])
    masked = texts.masked(held)
    assert not [one for one in VALUES if one in repr(masked)]
    assert texts.restored(masked) == held
    assert repr(held[:3]) == before, "what was given is left as it was"


@given(value=PLAIN)
def test_subclasses_are_masked_and_keep_their_types(value):
    texts = stored()
    held = [Row(value), OrderedDict(b=value, a=Named(VALUES[0])), defaultdict(list, a=[value])]
    masked = texts.masked(held)
    assert not [one for one in VALUES if one in repr(masked)]
    assert list(map(type, masked)) == [Row, OrderedDict, defaultdict]
    assert masked[2]["new"] == []
    assert texts.restored(texts.masked(held)) == held
    assert texts.masked(Mail.ada) is Mail.ada


def test_a_vault_is_one_sessions():
    with pytest.raises(ConfigError, match=r"get it by Vault\.session"):
        StoredTexts(Vault(MemoryStore(), key=new_key()))
