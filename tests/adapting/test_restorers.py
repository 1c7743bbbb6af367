"""A response that arrives whole and one that arrives in pieces are restored in the same way."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from ctxguard.adapting.restoring import Restorer, StreamRestorer, WholeRestorer
from ctxguard.formats.chat import OpenAIAdapter
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.pii.mask.answers import AnswerScan, scan_masker
from ctxguard.stores import MemoryStore
from ctxguard.wire.replies import Reply

MAIL = "ada@corp-mail.net"
ARGS = '{"to": "<EMAIL_1>"}'


@pytest.fixture
def restorer():
    masker = Masker(strategy="pseudonymize", vault=Vault(MemoryStore(), key=new_key()).session("one"))
    session = masker.session()
    assert session.text(MAIL) == "<EMAIL_1>"
    return Restorer(session, tools={"send_*": False, "Contact": False}, outputs=["Contact"])


@pytest.mark.parametrize("at", range(len(ARGS)))
@pytest.mark.parametrize(("name", "gets"), [("find", True), ("send_mail", False), ("Contact", True)])
def test_arguments_are_the_same_whole_and_in_pieces(restorer, at, name, gets):
    whole = WholeRestorer(restorer).call("c", name, ARGS)
    stream = StreamRestorer(restorer)
    shown = stream.call("c", name[:2], "") + stream.call("c", name[2:], ARGS[:at]) + stream.call("c", "", ARGS[at:])
    assert shown + stream.close("c") == whole
    assert (MAIL in whole) is gets
    assert stream.call("c", name, {"to": "<EMAIL_1>"}) == {"to": MAIL if gets else "<EMAIL_1>"}, "a new call"


NEW = '{"to": "<EMAIL_1>", "copy": "new@somewhere.example"}'


@pytest.mark.parametrize("at", range(len(NEW)))
@pytest.mark.parametrize(("name", "to"), [("find", MAIL), ("send_mail", "<EMAIL_1>")])
def test_values_that_a_model_writes_into_arguments_are_found_whole_parsed_and_in_pieces(restorer, at, name, to):
    found = []
    restorer.scan = AnswerScan(scan_masker([STANDARD]), "mask", found.append)
    expected = {"to": to, "copy": "[REDACTED_EMAIL]"}
    stream, whole = StreamRestorer(restorer), WholeRestorer(restorer)
    shown = stream.call("c", name, NEW[:at]) + stream.call("c", "", NEW[at:]) + stream.close("c")
    assert json.loads(shown) == json.loads(whole.call("c", name, NEW)) == expected
    assert whole.call("c", name, json.loads(NEW)) == stream.call("d", name, json.loads(NEW)) == expected
    assert found == ["EMAIL"], "each value is noted once"


def test_structured_output_gets_values_even_if_its_name_is_denied_them(restorer):
    reply = Reply.of(restorer, OpenAIAdapter(), outputs=["Contact"])
    call = {"type": "function", "function": {"name": "Contact", "arguments": ARGS}}
    assert MAIL in str(reply.restore(call))
    call["function"]["name"] = "send_mail"
    assert MAIL not in str(reply.restore(call))
