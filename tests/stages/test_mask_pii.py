"""Everything that leaves is masked, the same from turn to turn, and the model's own placeholders stay."""

from __future__ import annotations

import json

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.pii import DIGITS, STANDARD, Masker, Vault, new_key
from ctxguard.stages import BoundToolOutput, MaskPII
from ctxguard.stores import MemoryStore

MAIL, OTHER = "jane.doe@corp-mail.net", "sam.roe@corp-mail.net"


def run(history, stage=None, **settings):
    return Stabilizer(10_000, stages=[stage or MaskPII(), BoundToolOutput(**settings)]).stabilize(history)


def texts(result):
    return [text for a in result.artifacts for _, text in a.texts()]


def vault_stage(session="s1"):
    vault = Vault(MemoryStore(), key=new_key())
    return MaskPII(masker=Masker(STANDARD, strategy="pseudonymize", vault=vault.session(session)))


def test_contents_arguments_and_system_prompts():
    call = ToolCall("mail", json.dumps({"to": MAIL, "cc": [OTHER]}), "1")
    history = [
        Artifact("system", f"You work for {MAIL}."),
        Artifact("user", "hi", name="ada"),
        Artifact("assistant", "", calls=(call,)),
        Artifact("tool", f"sent to {MAIL}", answers="1"),
    ]
    result = run(history)
    assert result.report.ok
    assert MAIL not in "".join(texts(result))
    assert json.loads(result.artifacts[2].calls[0].arguments) == {"to": "[REDACTED_EMAIL]", "cc": ["[REDACTED_EMAIL]"]}
    assert result.artifacts[2].calls[0].name == "mail"


def test_names_and_ids_are_never_edited_and_what_stands_in_them_is_found():
    call = ToolCall("mail", "{}", f"call:{MAIL}")
    history = [
        Artifact("user", "hi", name=MAIL),
        Artifact("assistant", "", calls=(call,)),
        Artifact("tool", "sent", answers=f"call:{MAIL}"),
    ]
    result = run(history)
    assert [a.name for a in result.artifacts] == [MAIL, None, None]
    findings = [str(finding) for check in result.report.checks for finding in check.findings]
    assert [finding.partition(" @ ")[2].partition("[")[0] for finding in findings] == ["artifacts"] * 3
    assert [finding.partition("].")[2] for finding in findings] == [
        f"name[0:{len(MAIL)}]",
        f"calls[0].id[5:{5 + len(MAIL)}]",
        f"tool_call_id[5:{5 + len(MAIL)}]",
    ]


def test_clean_artifacts_are_the_same_objects():
    history = [Artifact("user", "hello"), Artifact("assistant", "hi", calls=(ToolCall("f", '{"a": 1}', "1"),))]
    assert all(a is b for a, b in zip(run(history).artifacts, history, strict=True))


def test_other_rules_take_the_place_of_the_standard_ones():
    assert texts(run([Artifact("user", f"{MAIL} 12345")], MaskPII(DIGITS))) == [f"{MAIL} [REDACTED]"]


def test_pseudonyms_are_numbered_by_first_appearance_and_never_renumbered():
    stage = vault_stage()
    history = [Artifact("user", f"I am {MAIL}"), Artifact("assistant", "ok"), Artifact("user", f"and {OTHER}, {MAIL}")]
    for end in (1, 3):
        told = texts(run(history[:end], stage))
    assert told == ["I am <EMAIL_1>", "ok", "and <EMAIL_2>, <EMAIL_1>"]


def test_the_model_may_repeat_its_placeholders_and_a_person_may_not_forge_one():
    stage = vault_stage()
    history = [
        Artifact("user", f"I am {MAIL}"),
        Artifact("assistant", "Writing to <EMAIL_1>", calls=(ToolCall("mail", '{"to": "<EMAIL_1>"}', "1"),)),
        Artifact("tool", "delivered to <EMAIL_1>", answers="1"),
        Artifact("user", "what is <EMAIL_1>?"),
    ]
    result = run(history, stage)
    session = stage.masker.session()
    assert result.artifacts[1].text == "Writing to <EMAIL_1>"
    assert result.artifacts[1].calls[0].arguments == '{"to": "<EMAIL_1>"}'
    assert session.unmask(result.artifacts[1].text) == f"Writing to {MAIL}"
    assert session.unmask(result.artifacts[3].text) == "what is <EMAIL_1>?"


def test_bounding_a_masked_output_leaves_its_placeholders_alone():
    stage = vault_stage()
    call = Artifact("assistant", "", calls=(ToolCall("list", "{}", "1"),))
    rows = "\n".join(f"row {n} of {MAIL} in the list of things" for n in range(400))
    shown = (
        run([Artifact("user", "go"), call, Artifact("tool", rows, answers="1")], stage, max_tokens=200)
        .artifacts[2]
        .text
    )
    assert "<EMAIL_1>" in shown
    assert "LITERAL" not in shown


class Recorded:
    """A vault of one session over which a conversation grows, and how many values each call asked it for."""

    def __init__(self, monkeypatch, ttl=None):
        self.now = 1000.0
        self.vault = Vault(MemoryStore(clock=lambda: self.now), key=new_key(), ttl=ttl)
        opened = self.vault.session("s")
        self.masker = Masker(STANDARD, strategy="pseudonymize", vault=opened)
        self.session = Stabilizer(100_000, stages=[MaskPII(masker=self.masker)]).session()
        self.asked = []
        given = opened.placeholder
        monkeypatch.setattr(opened, "placeholder", lambda *value: self.asked.append(value) or given(*value))

    def call(self, *messages):
        """Return what one more call sends, and how many values it asked for."""
        self.asked.clear()
        self.session.extend([Artifact("user", message) for message in messages])
        return [a.text for a in self.session.context().artifacts], len(self.asked)


def test_a_call_with_a_vault_masks_only_what_is_new(monkeypatch):
    for size in (5, 50):
        recorded = Recorded(monkeypatch, ttl=60)
        recorded.call(*(f"u{n}@site.org" for n in range(size)))
        assert recorded.call(f"{MAIL} u3@site.org")[1] == 2
        assert recorded.call("nothing here")[1] == 0


def test_what_is_forgotten_is_masked_anew_in_the_whole_history(monkeypatch):
    recorded = Recorded(monkeypatch)
    first, _ = recorded.call(MAIL, OTHER)
    assert first == ["<EMAIL_1>", "<EMAIL_2>"]
    recorded.vault.forget("s", MAIL)
    assert recorded.call("hi") == (["<EMAIL_3>", "<EMAIL_2>", "hi"], 2)
    assert recorded.call("ho")[1] == 0
    recorded.vault.forget("s")
    assert recorded.call("hm")[0][:2] == ["<EMAIL_4>", "<EMAIL_5>"]


def test_what_a_session_forgets_itself_is_masked_anew(monkeypatch):
    recorded = Recorded(monkeypatch)
    recorded.call(MAIL)
    recorded.masker.vault.forget(MAIL)
    assert recorded.call("hi")[0] == ["<EMAIL_2>", "hi"]


def test_what_expires_is_masked_anew(monkeypatch):
    recorded = Recorded(monkeypatch, ttl=60)
    recorded.call(MAIL)
    recorded.now += 40
    assert recorded.call(OTHER)[0] == ["<EMAIL_1>", "<EMAIL_2>"]
    recorded.now += 21
    assert recorded.call("hi") == (["<EMAIL_3>", "<EMAIL_2>", "hi"], 2)
    assert recorded.call("ho")[1] == 0
