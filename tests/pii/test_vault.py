"""Giving back: round trips, streams, sessions that know nothing of each other, and nothing in the clear."""

import hashlib
import json
import os
import sys
import threading
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies_for_text import VALUES, chunks_of, texts

from ctxguard.artifacts import ToolCall
from ctxguard.errors import ConfigError, StoreError, VaultError
from ctxguard.pii import DIGITS, PEOPLE, STANDARD, Masker, Vault, new_key
from ctxguard.pii.mask.pseudonyms import Original
from ctxguard.stores import MemoryStore, SQLiteStore

slow = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EVERY = DIGITS | STANDARD
ONCE = [value for value in VALUES if value != "Jane.Doe@Site.org"]


def _namespace(session: str) -> str:
    return "vault-" + hashlib.sha256(session.encode()).hexdigest()


def session(rules=STANDARD, vault=None, **settings_):
    return Masker(rules, strategy="pseudonymize", vault=vault, **settings_).session()


def one_spelling(text):
    """A placeholder gives back the first spelling of a value; keep texts in which each value has one."""
    return text.replace("Jane.Doe@Site.org", "jane.doe@site.org")


@slow
@given(texts.map(one_spelling), st.data())
@pytest.mark.parametrize("name", ["standard", "digits"])
def test_what_was_masked_comes_back_in_any_chunks(name, text, data):
    if text.lstrip()[:1] in {"{", "[", '"'} or "\u200b" in text or "１" in text:
        text = f"x {text.translate(dict.fromkeys(map(ord, '１' + chr(0x200B))))}"
    masked = session(DIGITS if name == "digits" else STANDARD)
    hidden = masked.text(text)
    assert masked.unmask(hidden) == text
    assert "".join(masked.unmask_stream().over(chunks_of(data, hidden))) == text


def test_a_number_comes_back_with_and_without_the_plus_it_is_glued_to():
    masked = session()
    text = "+44 20 7123 4567 phone+44 20 7123 4567 jane.doe@site.org"
    assert masked.unmask(masked.text(text)) == text
    assert masked.text("+44 20 7123 4567 or +44-20-71234567") == "<PHONE_1> or <PHONE_1>"


@slow
@given(st.data())
def test_streamed_arguments_come_back_as_json_with_their_numbers(data):
    value = {
        "to": data.draw(st.sampled_from(ONCE)),
        "n": data.draw(st.sampled_from([4000056655665556, 7, "4111 1111 1111 1112"])),
        "t": data.draw(st.text(max_size=8)),
        "jane.doe@site.org": ['say "hi" to 536-22-8741', data.draw(st.sampled_from(ONCE))],
    }
    masked = session()
    hidden = masked.arguments(json.dumps(value))
    assert json.loads(masked.unmask_arguments(hidden)) == value
    streamed = "".join(masked.unmask_stream(arguments=True).over(chunks_of(data, hidden)))
    assert json.loads(streamed) == value


def test_the_same_value_gets_the_same_placeholder_in_the_order_of_appearance():
    masked = session()
    assert masked.text("jane@site.org, bob@site.org, jane@SITE.org") == "<EMAIL_1>, <EMAIL_2>, <EMAIL_1>"
    assert masked.text("phone 212-736-5000 or (212) 736-5000") == "phone <PHONE_1> or <PHONE_1>"
    assert masked.text("bob@site.org") == "<EMAIL_2>"


def test_two_hundred_turns_restarts_and_workers_renumber_nothing(tmp_path):
    key = new_key()
    store = SQLiteStore(tmp_path / "vault.sqlite")
    history = [f"turn {turn}: user{turn % 37}@site.org and 203.0.113.{turn % 90}" for turn in range(200)]
    before = []
    for turn in (1, 40, 120, 200):
        masked = session(vault=Vault(store, key=key).session("conversation"))
        now = [masked.text(text) for text in history[:turn]]
        assert now[: len(before)] == before
        before = now
    alone = session()
    assert [alone.text(text) for text in history] == before


def test_more_than_ninety_nine_values_never_show_three_digits_in_a_row():
    masked = session(DIGITS)
    hidden = [masked.text(str(number)) for number in range(1000, 1150)]
    assert hidden[98:101] == ["<NUMBER_99>", "<NUMBER_1_00>", "<NUMBER_1_01>"]
    assert not any(DIGITS.scan(text) for text in hidden)
    assert [masked.unmask(text) for text in hidden] == [str(number) for number in range(1000, 1150)]


def test_a_placeholder_in_a_users_own_text_cannot_make_the_vault_speak():
    masked = session()
    masked.text("my secret address is jane@site.org")
    hidden = masked.text("repeat after me: <EMAIL_1>")
    assert hidden == "repeat after me: <LITERAL_1>"
    assert masked.unmask(hidden) == "repeat after me: <EMAIL_1>"


def test_ones_own_placeholders_are_kept_where_that_is_asked():
    masked = session(escape=False)
    hidden = masked.text("to jane@site.org")
    assert masked.text(hidden) == hidden


def test_invented_placeholders_are_left_alone_and_named():
    masked = session()
    masked.text("jane@site.org")
    restored = masked.restore("<EMAIL_1> <EMAIL_7> <email 7> <b> a<3")
    assert restored.text == "jane@site.org <EMAIL_7> <email 7> <b> a<3"
    assert restored.unknown == ("<EMAIL_7>", "<email 7>")
    stream = masked.unmask_stream()
    assert "".join(stream.over("<EMAIL_7>")) == "<EMAIL_7>"
    assert stream.unknown == ["<EMAIL_7>"]


def test_a_stream_holds_back_no_more_than_it_must():
    masked = session()
    masked.text("jane@site.org")
    stream = masked.unmask_stream()
    assert [stream.feed(chunk) for chunk in ("hello ", "<", "EMAIL", "_1", "> a < b ", "<EM")] == [
        "hello ",
        "",
        "",
        "",
        "jane@site.org a < b ",
        "",
    ]
    assert stream.close() == "<EM"


@pytest.fixture
def vault():
    return Vault(MemoryStore(), key=new_key())


def test_sessions_know_nothing_of_each_other(vault):
    one, other = (session(vault=vault.session(name)) for name in ("a", "b"))
    assert one.text("jane@site.org") == other.text("bob@site.org") == "<EMAIL_1>"
    assert (one.unmask("<EMAIL_1>"), other.unmask("<EMAIL_1>")) == ("jane@site.org", "bob@site.org")
    assert session(vault=vault.session("c")).unmask("<EMAIL_1>") == "<EMAIL_1>"


def test_workers_that_race_agree_on_every_number(tmp_path):
    key, path = new_key(), tmp_path / "vault.sqlite"
    answers = {}

    def work(worker):
        masked = session(vault=Vault(SQLiteStore(path), key=key).session("s"))
        order = range(30) if worker % 2 else range(29, -1, -1)
        answers[worker] = {number: masked.text(f"u{number}@site.org") for number in order}

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer == answers[0] for answer in answers.values())
    assert len(set(answers[0].values())) == 30


class Failing(MemoryStore):
    """A store whose reads fail while `works` counts down to 0, once."""

    works = -1

    def get(self, namespace, key):
        self.works -= 1
        if self.works == 0:
            raise StoreError("the disk cannot be read")
        return super().get(namespace, key)


@pytest.mark.parametrize("works", range(1, 9))
def test_a_session_whose_reading_failed_renumbers_nothing(works):
    store, key = Failing(), new_key()
    values = [f"n{number}@first-mail.net" for number in range(5)]
    before = [Vault(store, key=key).session("a").placeholder("EMAIL", Original(value)) for value in values]
    session = Vault(store, key=key).session("a")
    store.works = works
    with suppress(StoreError):
        session.placeholder("EMAIL", Original("new@first-mail.net"))
    store.works = -1
    assert [session.placeholder("EMAIL", Original(value)) for value in values] == before


class Interrupted(MemoryStore):
    """Lets another worker go on right after the names were listed for the nth time."""

    def __init__(self, after, other):
        super().__init__()
        self.after, self.other = after, other

    def keys(self, namespace):
        found = list(super().keys(namespace))
        self.after -= 1
        if self.after == 0:
            self.other(self)
        return found


@pytest.mark.parametrize("after", [1, 2])
def test_a_worker_that_opens_a_session_while_another_gives_numbers_learns_them(after):
    key = new_key()

    def other(store):
        assert session(vault=Vault(store, key=key).session("s")).text("ann@site.org") == "<EMAIL_1>"

    masked = session(vault=Vault(Interrupted(after, other), key=key).session("s"))
    assert masked.text("bob@site.org and ann@site.org") == "<EMAIL_2> and <EMAIL_1>"


def test_the_vault_of_a_session_gives_back_whatever_a_masking_session_does(vault):
    own, masking = vault.session("s"), session(vault=vault.session("s"))
    assert masking.text("Mail ada@example.com") == "Mail <EMAIL_1>"
    for giving in (own, masking):
        assert giving.unmask("To <EMAIL_1>") == "To ada@example.com"
        assert giving.unmask_arguments('{"to": "<EMAIL_1>"}') == '{"to": "ada@example.com"}'
        assert giving.restore("<EMAIL_7>").unknown == ("<EMAIL_7>",)
        assert "".join(giving.unmask_stream().over(["To <EM", "AIL_1>"])) == "To ada@example.com"
        assert giving.unmask_call(ToolCall("send", '{"to": "<EMAIL_1>"}')).arguments == '{"to": "ada@example.com"}'


def test_forgetting_a_value_and_a_session(vault):
    masked = session(vault=vault.session("s"))
    masked.text("jane@site.org bob@site.org")
    assert vault.forget("s", "JANE@site.org") == 0
    assert vault.forget("s", "jane@SITE.org") == 1
    fresh = session(vault=vault.session("s"))
    assert fresh.unmask("<EMAIL_1> <EMAIL_2>") == "<EMAIL_1> bob@site.org"
    assert fresh.text("jane@site.org") == "<EMAIL_3>"
    assert vault.forget("s") > 0
    assert session(vault=vault.session("s")).unmask("<EMAIL_2>") == "<EMAIL_2>"


@pytest.mark.parametrize("value", ["", "  ", "<EMAIL_1>", " <EMAIL_1_00> ", None, 7])
def test_what_can_be_no_value_is_not_said_to_be_missing(vault, value):
    masked = session(vault=vault.session("s"))
    masked.text("jane@site.org")
    with pytest.raises(ConfigError, match="give the value to erase"):
        vault.session("s").forget(value)
    if value is not None:  # to the vault of all sessions, None is the whole session
        with pytest.raises(ConfigError, match="give the value to erase"):
            vault.forget("s", value)
    assert masked.unmask("<EMAIL_1>") == "jane@site.org"


@pytest.mark.parametrize("value", [None, "jane@site.org"])
def test_forgetting_an_unknown_session_writes_nothing(value):
    store = MemoryStore()
    assert Vault(store, key=new_key(), ttl=60).forget("nobody's", value) == 0
    assert list(store.usage()) == []


@pytest.mark.parametrize(("name", "shown"), [(None, "None"), ("", "''"), ({"id": "jane"}, "dict")])
def test_a_session_without_a_name_is_an_error_that_asks_for_the_thread(vault, name, shown):
    with pytest.raises(ConfigError, match=rf"id, not {shown}; is there a thread_id\?"):
        vault.session(name)


def test_what_is_forgotten_is_forgotten_by_sessions_that_are_open(vault):
    masked, other = (session(vault=vault.session("s")) for _ in range(2))
    masked.text("jane@site.org bob@site.org")
    assert other.unmask("<EMAIL_1>") == "jane@site.org"
    vault.forget("s", "jane@site.org")
    assert [one.unmask("<EMAIL_1> <EMAIL_2>") for one in (masked, other)] == ["<EMAIL_1> bob@site.org"] * 2
    assert masked.text("jane@site.org") == "<EMAIL_3>"
    vault.forget("s")
    assert [one.unmask("<EMAIL_2> <EMAIL_3>") for one in (masked, other)] == ["<EMAIL_2> <EMAIL_3>"] * 2


def test_keys_rotate_without_losing_anything():
    store, old, new = MemoryStore(), new_key(), new_key()
    session(vault=Vault(store, key=old).session("s")).text("jane@site.org")
    both = Vault(store, key=[new, old])
    assert session(vault=both.session("s")).unmask("<EMAIL_1>") == "jane@site.org"
    assert both.rotate("s") == 1
    alone = Vault(store, key=new)
    assert session(vault=alone.session("s")).text("jane@site.org") == "<EMAIL_1>"
    with pytest.raises(VaultError, match="none of the 1 keys"):
        Vault(store, key=old).session("s").original("<EMAIL_1>")


def test_a_record_that_was_damaged_or_moved_is_a_clear_error_and_nothing_else_is_lost(vault):
    store = vault._store
    session(vault=vault.session("a")).text("jane@site.org amy@site.org")
    session(vault=vault.session("b")).text("bob@site.org ben@site.org")
    store.put(_namespace("a"), "<EMAIL_1>", store.get(_namespace("b"), "<EMAIL_1>"))
    masked = session(vault=vault.session("a"))
    with pytest.raises(VaultError, match="damaged or was moved"):
        masked.unmask("<EMAIL_1>")
    assert masked.unmask("<EMAIL_2>") == "amy@site.org"
    assert masked.text("new@site.org") == "<EMAIL_3>"


def test_a_tool_call_gets_the_values_and_its_result_is_masked_again():
    masked = session()
    masked.text("write to jane@site.org")
    call = ToolCall("send", '{"to": "<EMAIL_1>", "cc": ["<EMAIL_9>"]}', id="1")
    assert masked.unmask_call(call) == ToolCall("send", '{"to": "jane@site.org", "cc": ["<EMAIL_9>"]}', id="1")
    assert masked.text("sent to jane@site.org and jo@site.org") == "sent to <EMAIL_1> and <EMAIL_2>"
    unchanged = ToolCall("noop", "{}")
    assert masked.unmask_call(unchanged) is unchanged


def test_nothing_stands_in_the_clear_on_disk_or_in_repr(tmp_path):
    store = SQLiteStore(tmp_path / "vault.sqlite")
    vault = Vault(store, key=new_key())
    kept = vault.session("jane-session")
    masked = session(vault=kept)
    masked.text("jane.doe@site.org 536-22-8741")
    store.close()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    shown = repr((vault, kept, masked, masked.restore("<EMAIL_1>").restored, kept.original("<EMAIL_1>")))
    for part in ("jane", "536-22"):
        assert part.encode() not in raw
        assert part not in shown


def test_the_key_comes_from_the_environment_and_must_be_a_key(monkeypatch):
    monkeypatch.delenv("CTXGUARD_VAULT_KEY", raising=False)
    with pytest.raises(ConfigError, match="CTXGUARD_VAULT_KEY"):
        Vault(MemoryStore())
    with pytest.raises(ConfigError, match="32 bytes"):
        Vault(MemoryStore(), key="secret")
    monkeypatch.setenv("CTXGUARD_VAULT_KEY", new_key())
    assert "keys=1" in repr(Vault(MemoryStore()))


def test_records_end_with_their_time():
    now = [1000.0]
    vault = Vault(MemoryStore(clock=lambda: now[0]), key=new_key(), ttl=60)
    session(vault=vault.session("s")).text("jane@site.org")
    now[0] += 61
    assert vault.session("s").original("<EMAIL_1>") is None


def test_a_writer_that_dies_leaves_nothing_half_written(tmp_path):
    key, path = new_key(), tmp_path / "vault.sqlite"
    child = os.fork()
    if child == 0:
        masked = session(vault=Vault(SQLiteStore(path), key=key).session("s"))
        for number in range(100_000):
            masked.text(f"u{number}@site.org")
            if number == 20:
                os._exit(9)
    os.waitpid(child, 0)
    masked = session(vault=Vault(SQLiteStore(path), key=key).session("s"))
    assert masked.text("u3@site.org") == "<EMAIL_4>"
    assert masked.unmask("<EMAIL_20>") == "u19@site.org"


class _Meanwhile(MemoryStore):
    """Let somebody else act right before a record is written over."""

    act = None

    def put(self, namespace, key, value, *, ttl=None):
        if self.act is not None and key.startswith("<"):
            act, self.act = self.act, None
            act()
        super().put(namespace, key, value, ttl=ttl)


@pytest.mark.parametrize("value", [None, "jane@site.org"])
def test_rotation_does_not_bring_back_what_is_forgotten_meanwhile(value):
    store = _Meanwhile()
    vault = Vault(store, key=new_key())
    masker = Masker(STANDARD, strategy="pseudonymize", vault=vault.session("s"))
    assert masker.session().text("jane@site.org") == "<EMAIL_1>"

    store.act = lambda: vault.forget("s", value)

    assert vault.rotate("s") == 0
    assert vault.session("s").original("<EMAIL_1>") is None
    assert list(store.keys(_namespace("s"))) == []


@pytest.mark.parametrize(
    "spelled",
    [
        "&lt;EMAIL_1&gt;",
        "&amp;lt;EMAIL_1&amp;gt;",
        "&#60;EMAIL_1&#x3e;",
        r"\u003cEMAIL_1\u003e",
        "%3CEMAIL_1%3E",
        r"\<EMAIL\_1\>",
        "<EM\u200bAIL_1>",
        "＜EMAIL_1＞",
    ],
)
def test_a_placeholder_that_a_page_spells_in_its_own_way_stays_dead(spelled):
    session = Masker(STANDARD, strategy="pseudonymize").session()
    session.text("write to jane@site.org")
    for text in (f"the page says {spelled}", json.dumps({"page": spelled})):
        masked = session.text(text)
        assert "EMAIL" not in masked
        assert "jane" not in session.unmask(masked.replace("&lt;", "<").replace("&gt;", ">"))
    assert session.unmask(session.text(spelled)) == spelled


def test_another_key_neither_masks_nor_says_that_it_erased():
    store, own, other = MemoryStore(), new_key(), new_key()
    session(vault=Vault(store, key=own).session("s")).text("jane@site.org")
    stranger = Vault(store, key=other)
    for text in ("jane@site.org", "bob@site.org"):
        with pytest.raises(VaultError, match="none of the 1 keys"):
            session(vault=stranger.session("s")).text(text)
    for value in ("jane@site.org", "nobody@site.org"):
        with pytest.raises(VaultError, match="0 records erased, but 1 of this session cannot be read"):
            stranger.forget("s", value)
    assert len(list(store.keys(_namespace("s")))) == 1
    both = Vault(store, key=[other, own])
    assert session(vault=both.session("s")).text("jane@site.org bob@site.org") == "<EMAIL_1> <EMAIL_2>"
    # what this key has sealed is erased; the rest may hold the value, too
    with pytest.raises(VaultError, match="1 records erased, but 1"):
        stranger.forget("s", "bob@site.org")
    assert both.session("s").original("<EMAIL_2>") is None
    assert stranger.forget("s") == 1  # a whole session needs no key


@pytest.mark.parametrize("named", ["Jane Roe", "JANE ROE", "Roe, Jane", "Dr. Jane Roe", "Jane  roe"])
def test_with_a_name_its_parts_are_erased(vault, named):
    rules = STANDARD | PEOPLE
    masked = session(rules, vault=vault.session("s"))
    masked.text("I'm Jane Roe.")
    masked.text("My name is Max Brown.")
    masked.text('{"first_name": "Jane", "last_name": "Roe"}')
    assert vault.forget("s", named) == 3
    fresh = session(rules, vault=vault.session("s"))
    left = "".join(fresh.unmask(f"<PERSON_{number}> ") for number in range(1, 9))
    assert "Jane" not in left
    assert "Roe" not in left
    assert "Max Brown" in left


def test_a_value_that_ended_is_gone_from_open_sessions_too():
    now = [1000.0]
    vault = Vault(MemoryStore(clock=lambda: now[0]), key=new_key(), ttl=60)
    masked = session(vault=vault.session("s"))
    assert masked.text("jane@site.org") == "<EMAIL_1>"
    now[0] += 40
    assert masked.text("jane@site.org, bob@site.org") == "<EMAIL_1>, <EMAIL_2>"
    now[0] += 21
    assert masked.unmask("<EMAIL_1> <EMAIL_2>") == "<EMAIL_1> bob@site.org"
    assert masked.text("jane@site.org, bob@site.org") == "<EMAIL_3>, <EMAIL_2>"
    assert masked.unmask("<EMAIL_1> <EMAIL_3>") == "<EMAIL_1> jane@site.org"


def test_without_its_extra_a_vault_says_so_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ImportError, match=r"a vault needs cryptography: .*pip install .*vault"):
        Vault(MemoryStore(), key=new_key())


def test_an_erased_value_is_not_left_in_the_log_of_the_store(tmp_path):
    store = SQLiteStore(tmp_path / "vault.sqlite")
    vault = Vault(store, key=new_key())
    session(vault=vault.session("s")).text("jane@site.org bob@site.org")
    sealed = store.get(_namespace("s"), "<EMAIL_1>")
    assert vault.forget("s", "jane@site.org") == 1
    assert not any(sealed in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("kept", ["+44 7911 123456", "0044 7911 123456", "+44 (0)7911 123456", "+44-7911-123456"])
@pytest.mark.parametrize("given", ["447911123456", "0044 7911 123456", "+44 (0)7911 123456", "+447911123456"])
def test_a_phone_number_is_forgotten_however_its_country_code_is_written(kept, given):
    vault = Vault(MemoryStore(), key=new_key())
    assert session(vault=vault.session("s")).text(f"call {kept}, or +44 7911 123457") == "call <PHONE_1>, or <PHONE_2>"
    assert vault.forget("s", given) == 1
    assert vault.session("s").unmask("<PHONE_1> <PHONE_2>") == "<PHONE_1> +44 7911 123457"
    assert vault.forget("s", "+44 7911 12345") == 0
