"""Nobody gets another's values: sessions belong to one credential, and a placeholder of theirs to one value."""

from __future__ import annotations

import hashlib
import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import cli

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError, VaultError, WireError
from ctxguard.pii import Masker, Vault, new_key
from ctxguard.stores import MemoryStore, SQLiteStore
from ctxguard.wire import Guard, Transport, forget
from ctxguard.wire import sessions as wire_sessions
from ctxguard.wire.guard import WireRequest
from ctxguard.wire.sessions import NO_CREDENTIAL, NO_CREDENTIAL_PREFIXES, Credentials

httpx = pytest.importorskip("httpx")

ZORA, MIKEL = "zora@mailhost.org", "mikel@mailhost.org"
RESPONSES = "/v1/responses"
PLACEHOLDER = re.compile(r"<EMAIL_[\d_]+>")
KEY = new_key()
NAMED = "x-ctxguard-session"


class Provider:
    """Answer with the text that the parameter `say` of the query holds, and keep what was sent."""

    def __init__(self):
        self.sent = []

    def __call__(self, request):
        self.sent.append(request.content.decode())
        text = request.url.params.get("say", "ok")
        return httpx.Response(
            200,
            json={
                "id": f"resp_{len(self.sent)}",
                "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}],
                "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
                "choices": [{"message": {"role": "assistant", "content": text}}],
            },
        )

    def client(self, guard=None, **settings):
        guard = guard or Guard(Stabilizer(9_000), credentials=Credentials.of([], ["say"]), **settings)
        transport = Transport(guard, transport=httpx.MockTransport(self))
        return httpx.Client(base_url="http://p", transport=transport)

    def placeholder(self, number=-1):
        found = PLACEHOLDER.search(self.sent[number])
        return None if found is None else found[0]


@pytest.fixture
def provider():
    return Provider()


def vault(store=None):
    return Vault(MemoryStore() if store is None else store, key=KEY)


# one credential


WAYS = {
    "Gemini's key": lambda key: {"params": {"key": key}},
    "Azure's gateway": lambda key: {"headers": {"ocp-apim-subscription-key": key}},
    "a cookie": lambda key: {"headers": {"cookie": f"session={key}"}},
    "x-auth-token": lambda key: {"headers": {"x-auth-token": key}},
    "proxy-authorization": lambda key: {"headers": {"proxy-authorization": f"Basic {key}"}},
    "Amazon's token": lambda key: {"headers": {"x-amz-security-token": key}},
    "a header of nobody's": lambda key: {"headers": {"x-our-gateway-pass": key}},
    "a parameter of nobody's": lambda key: {"params": {"pass": key}},
    "basic": lambda key: {"headers": {"authorization": f"Basic {key}"}},
    "hidden behind a known one": lambda key: {"params": {"alt": f"sse;key={key}"}},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("in_vault", [False, True])
def test_two_customers_who_name_the_same_session_never_meet(provider, way, in_vault):
    client = provider.client(vault=vault() if in_vault else None)

    def ask(key, text, say="ok"):
        given = {"params": {}, "headers": {}, **WAYS[way](key)}
        body = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        return client.post(
            "/v1beta/models/g:generateContent",
            params={**given["params"], "say": say},
            headers={**given["headers"], NAMED: "s"},
            json=body,
        ).text

    ask("A", f"I am {ZORA}")
    known = provider.placeholder()
    assert ZORA not in provider.sent[-1]
    assert ZORA not in ask("B", "x", say=known)
    assert ZORA in ask("A", "x", say=known)


def test_a_key_in_the_path_separates_sessions(provider):
    client = provider.client()
    body = {"input": f"I am {ZORA}"}
    client.post("/key-a/v1/responses", json=body, headers={NAMED: "s"})
    say = {"say": provider.placeholder()}
    answer = client.post("/key-b/v1/responses", json={"input": "x"}, headers={NAMED: "s"}, params=say)
    assert ZORA not in answer.text
    # one session may use several models and kinds of requests
    answer = client.post("/key-a/v1/chat/completions", json={"messages": []}, headers={NAMED: "s"}, params=say)
    assert ZORA in answer.text


LISTED = [name for names in NO_CREDENTIAL.values() for name in names.split()]
NAMES = st.one_of(
    st.sampled_from(
        [
            "authorization",
            "cookie",
            "x-api-key",
            "key",
            "token",
            "x-forwarded-user",
            "proxy-authorization",
            "alt",
            "via",
        ]
    ),
    st.text(string.ascii_lowercase + string.digits + "-_", min_size=1, max_size=12),
)
VALUES = st.text(string.ascii_letters + string.digits + "-._=/ ;:,", min_size=1, max_size=20)
FIELDS = st.dictionaries(NAMES, VALUES, max_size=4)


def counting(fields, *, in_query=False):
    """Return what of some fields may be a credential, by the list alone."""
    return {
        name: value
        for name, value in fields.items()
        if (name not in LISTED and not name.startswith(NO_CREDENTIAL_PREFIXES))
        or (in_query and not re.fullmatch(r"[\w.,:-]*", value))
    }


@given(FIELDS, FIELDS, FIELDS, FIELDS)
def test_requests_share_a_session_where_they_differ_in_listed_fields_alone(headers, query, others, other_query):
    def digest(headers, query):
        raw = "&".join(f"{name}={value}" for name, value in query.items())
        return Credentials().digest(headers, raw, "/v1")

    is_same = counting(headers) == counting(others) and counting(query, in_query=True) == counting(
        other_query, in_query=True
    )
    assert (digest(headers, query) == digest(others, other_query)) is is_same


@given(NAMES, VALUES, VALUES, st.sampled_from(["header", "query"]))
def test_no_value_of_one_credential_comes_back_for_another(name, one, other, place):
    guard = Guard(Stabilizer(2_000))
    bodies = [{"messages": [{"role": "user", "content": f"I am {ZORA}."}]}, {"messages": []}]
    prepared = []
    for body, value in zip(bodies, (one, other), strict=True):
        headers, query = ({name: value}, "") if place == "header" else ({}, f"{name}={value}")
        raw = json.dumps(body).encode()
        prepared.append(guard.prepare(WireRequest("POST", "/v1/chat/completions", {**headers, NAMED: "s"}, raw, query)))
    known = PLACEHOLDER.search(prepared[0].body.decode())[0]
    comes_back = ZORA in prepared[1].whole(json.dumps([known]).encode()).decode()
    may = one == other or not counting({name: one}, in_query=place == "query") | counting(
        {name: other}, in_query=place == "query"
    )
    assert comes_back is may


SIGNED = "AWS4-HMAC-SHA256 Credential={}/2026112{}/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature={}"


def test_a_signature_of_amazon_counts_by_its_access_key():
    def digest(key, day, signature, token="t"):
        headers = {
            "authorization": SIGNED.format(key, day, signature),
            "x-amz-date": day,
            "x-amz-security-token": token,
        }
        return Credentials().digest(headers, "", "")

    assert digest("AKIA1", "3", "aa") == digest("AKIA1", "4", "bb")
    assert len({digest("AKIA1", "3", "aa"), digest("AKIA2", "3", "aa"), digest("AKIA1", "3", "aa", token="u")}) == 3
    query = "X-Amz-Credential={}%2F2026112{}%2Fus-east-1&X-Amz-Signature={}&X-Amz-Date={}"
    made = [
        Credentials().digest({}, query.format(*p), "")
        for p in (("A", 3, "a", "x"), ("A", 4, "b", "y"), ("B", 3, "a", "x"))
    ]
    assert made[0] == made[1] != made[2]


def test_settings_say_what_counts_and_what_does_not():
    chosen = Credentials.of(["User-Agent"], ["X-Our-Trace"])
    assert chosen.digest({"user-agent": "a"}, "", "") != chosen.digest({"user-agent": "b"}, "", "")
    assert chosen.digest({"x-our-trace": "a"}, "", "") == chosen.digest({"x-our-trace": "b"}, "", "")


def test_no_credential_is_kept():
    guard = Guard(Stabilizer(2_000))
    secret = "k3Y" * 12
    guard.prepare(
        WireRequest("POST", RESPONSES, {"authorization": secret, NAMED: "s"}, b'{"input": "x"}', f"key={secret}")
    )
    kept = [*guard._threads._named._kept, *guard._chains._named._kept]
    assert kept
    assert secret not in repr(kept)
    assert secret not in repr(WireRequest("POST", RESPONSES, {"authorization": secret}, b"", f"key={secret}"))


def test_the_page_lists_what_carries_no_credential():
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([^`\n]+)`", page))
    assert {*LISTED, *(f"{prefix}*" for prefix in NO_CREDENTIAL_PREFIXES)} <= listed


# one value


def test_after_a_restart_a_conversation_is_redacted(provider):
    for person in (ZORA, MIKEL):
        body = {"input": f"I am {person}", "conversation": "c1"}
        assert provider.client().post(RESPONSES, json=body).status_code == 200
        assert "[REDACTED_EMAIL]" in provider.sent[-1]


@pytest.mark.parametrize("path", [RESPONSES, "/v1/chat/completions"])
def test_a_named_session_begins_where_no_other_process_was(provider, path):
    given = []
    for person in (ZORA, MIKEL, ZORA):
        client = provider.client()  # a restart, or another worker
        body = {"input": f"I am {person}", "messages": [{"role": "user", "content": f"I am {person}"}]}
        body.pop("messages" if path == RESPONSES else "input")
        client.post(path, json=body, headers={NAMED: "s"})
        given.append(provider.placeholder())
        answer = client.post(path, json=body, headers={NAMED: "s"}, params={"say": " ".join(given)}).text
        assert person in answer
        assert ({ZORA, MIKEL} - {person}).pop() not in answer
    assert len(set(given)) == 3


def test_two_workers_and_forty_people_in_one_session(provider):
    workers = [provider.client(), provider.client()]
    stands_for = {}
    for number in range(40):
        person = f"person{number}@mailhost.org"
        workers[number % 2].post(RESPONSES, json={"input": f"I am {person}"}, headers={NAMED: "s"})
        assert stands_for.setdefault(provider.placeholder(), person) == person
    assert len(stands_for) == 40


def test_a_session_that_made_room_for_others_gives_no_placeholder_again(provider, monkeypatch):
    monkeypatch.setattr(wire_sessions, "_REMEMBERED", 3)
    client = provider.client()
    client.post(RESPONSES, json={"input": f"I am {ZORA}"}, headers={NAMED: "s"})
    first = provider.placeholder()
    for number in range(5):
        client.post(RESPONSES, json={"input": "x"}, headers={NAMED: f"other {number}"})
    answer = client.post(RESPONSES, json={"input": f"I am {MIKEL}"}, headers={NAMED: "s"}, params={"say": first})
    assert MIKEL not in answer.text
    assert provider.placeholder() != first


def test_what_continues_a_redacted_history_is_redacted(provider):
    client = provider.client()
    client.post(RESPONSES, json={"input": f"I am {ZORA}", "previous_response_id": "resp_of_another"})
    client.post(RESPONSES, json={"input": f"I am {MIKEL}", "previous_response_id": "resp_1"})
    assert provider.placeholder() is None
    assert "[REDACTED_EMAIL]" in provider.sent[-1]


def test_a_session_that_continues_the_answer_of_another_is_redacted(provider):
    client = provider.client()
    client.post(RESPONSES, json={"input": f"I am {ZORA}"}, headers={NAMED: "one"})
    client.post(RESPONSES, json={"input": f"I am {MIKEL}", "previous_response_id": "resp_1"}, headers={NAMED: "two"})
    assert "[REDACTED_EMAIL]" in provider.sent[-1]
    client.post(RESPONSES, json={"input": f"I am {MIKEL}", "previous_response_id": "resp_1"}, headers={NAMED: "one"})
    assert provider.placeholder() not in (None, provider.placeholder(0))


def test_a_masker_of_ones_own_keeps_its_strategy_and_its_placeholders_apart(provider):
    own = Stabilizer.from_policy("agent", budget=9_000, masker=Masker(strategy="pseudonymize"))
    client = provider.client(Guard(own))
    client.post(RESPONSES, json={"input": f"I am {ZORA}", "previous_response_id": "unknown"})
    assert "[REDACTED_EMAIL]" in provider.sent[-1]
    client.post(RESPONSES, json={"input": f"I am {ZORA}"}, headers={NAMED: "s"})
    client.post(RESPONSES, json={"input": f"I am {MIKEL}"}, headers={NAMED: "s"})
    assert provider.placeholder(-2) != provider.placeholder(-1)


def test_answers_that_the_provider_does_not_store_are_not_remembered(provider):
    client = provider.client()
    client.post(RESPONSES, json={"input": f"I am {ZORA}", "store": False})
    client.post(RESPONSES, json={"input": f"I am {MIKEL}", "previous_response_id": "resp_1"})
    assert "[REDACTED_EMAIL]" in provider.sent[-1]


@pytest.mark.parametrize("kind", ["named", "conversation", "previous"])
def test_workers_that_share_a_store_share_placeholders(provider, tmp_path, kind):
    headers = {NAMED: "s"} if kind == "named" else {}
    stands_for = {}
    for number in range(12):
        worker = provider.client(vault=vault(SQLiteStore(tmp_path / "vault.db")))  # a new process each time
        person = f"person{number % 9}@mailhost.org"
        body = {"input": f"I am {person}"}
        if kind == "conversation":
            body["conversation"] = {"id": "c1"}
        if kind == "previous" and number:
            body["previous_response_id"] = f"resp_{number}"
        answer = worker.post(RESPONSES, json=body, headers=headers, params={"say": " ".join(stands_for)}).text
        assert all(known in answer for known in stands_for.values())
        assert stands_for.setdefault(provider.placeholder(), person) == person
    assert sorted(stands_for) == sorted(f"<EMAIL_{n}>" for n in range(1, 10))


def test_several_workers_without_a_store_refuse_sessions(provider):
    client = provider.client(takes_sessions=False)
    refused = client.post(RESPONSES, json={"input": "x"}, headers={NAMED: "s"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "WireError")
    assert "--store" in refused.json()["error"]["message"]
    with pytest.raises(WireError):
        Guard(Stabilizer(2_000), takes_sessions=False).prepare(
            WireRequest("POST", RESPONSES, {NAMED: "s"}, b'{"input": "x"}')
        )


# erased by name


def asking(client, text, key="one", **given):
    headers = {"authorization": f"Bearer {key}", **given.pop("headers", {})}
    assert client.post(RESPONSES, json={"input": f"I am {text}", **given}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("case 17 of session x", {"headers": {NAMED: "case 17 of session x"}}),
        ("c1", {"conversation": {"id": "c1"}}),
        ("resp_1", {}),
    ],
    ids=["named", "conversation", "answer"],
)
def test_a_session_is_erased_by_the_name_that_its_client_gave(provider, tmp_path, name, given):
    store = SQLiteStore(tmp_path / "vault.db")
    asking(provider.client(vault=vault(store)), f"{ZORA} and {MIKEL}", **given)
    assert forget(vault(store), name[:-1]) == (0, 0)
    assert forget(vault(store), name, "nobody@mailhost.org") == (1, 0)
    assert forget(vault(store), name, ZORA.replace("mailhost", "MailHost")) == (1, 1)
    assert forget(vault(store), name, ZORA) == (1, 0)
    assert forget(vault(store), name) == (1, 1)
    assert forget(vault(store), name) == (1, 0)
    answer = provider.client(vault=vault(store)).post(
        RESPONSES,
        json={"input": "x", **{key: value for key, value in given.items() if key != "headers"}},
        headers={"authorization": "Bearer one", **given.get("headers", {})},
        params={"say": "<EMAIL_1> <EMAIL_2>"},
    )
    assert ZORA not in answer.text
    assert MIKEL not in answer.text


def test_a_session_is_erased_for_every_credential_or_for_one(provider):
    store = MemoryStore()
    client = provider.client(vault=vault(store))
    for key in ("one", "two", "three"):
        asking(client, ZORA, key, headers={NAMED: "s"})
        asking(client, ZORA, key, headers={NAMED: "t"})
    scope = Credentials().digest({"authorization": "Bearer two"}, "", "/v1")[:8]
    assert forget(vault(store), "s", ZORA, credential=scope) == (1, 1)
    assert forget(vault(store), "s", ZORA) == (3, 2)
    assert forget(vault(store), "t") == (3, 3)


def test_names_of_sessions_cannot_be_guessed_or_read_without_the_key(provider, tmp_path):
    with SQLiteStore(tmp_path / "vault.db") as store:
        asking(provider.client(vault=vault(store)), ZORA, headers={NAMED: "Jane Roe"})
        told = " ".join(f"{usage.namespace} {' '.join(store.keys(usage.namespace))}" for usage in store.usage())
        assert not any(hashlib.sha256(guess).hexdigest() in told for guess in (b"Jane Roe", b"session Jane Roe"))
        with pytest.raises(VaultError, match="give the key that did"):
            forget(Vault(store, key=new_key()), "Jane Roe")
        assert forget(Vault(store, key=[new_key(), KEY]), "Jane Roe") == (1, 1)
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Jane" not in on_disk


def test_a_name_that_cannot_be_read_keeps_no_other_session_from_being_erased(provider):
    store = MemoryStore()
    asking(provider.client(vault=vault(store)), ZORA, headers={NAMED: "s"})
    Vault(store, key=new_key()).names().write("0" * 64, b"x session s")
    with pytest.raises(VaultError, match=r"erased 1 in 1 sessions of this name, but 1 other names cannot be read"):
        forget(vault(store), "s")
    with pytest.raises(VaultError, match="erased 0 in 1 sessions, but 1 other names cannot be read; if"):
        forget(vault(store), None, ZORA)
    with pytest.raises(VaultError, match="erased 0 in 1"):
        forget(vault(store), "s")


def test_the_command_tells_what_it_erased_and_what_is_not_there(provider, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CTXGUARD_VAULT_KEY", raising=False)
    Path("vault.key").write_text(KEY, encoding="ascii")
    with SQLiteStore("vault.db") as store:
        asking(provider.client(vault=vault(store)), f"{ZORA} and {MIKEL}", headers={NAMED: "case-17"})
    before = listed("vault.db")
    vault_options = ("--store", "vault.db", "--vault-key-file", "vault.key")
    for words, stdin, status, told in [
        (("case-18",), None, 1, "no such session\n"),
        (("case-17", "nobody@mailhost.org"), None, 1, "nothing to erase in 1 session of this name\n"),
        (("case-17", "-"), f"{ZORA}\n", 0, "erased 1 value in 1 session of this name\n"),
        (("case-17",), None, 0, "erased 1 value in 1 session of this name\n"),
    ]:
        run = cli("vault", "forget", *words, *vault_options, stdin=stdin)
        assert (run.returncode, run.stdout) == (status, told)
        if told.startswith("no"):
            assert listed("vault.db") == before
    with SQLiteStore("vault.db") as store:
        for name in ("case-19", "case-20"):
            asking(provider.client(vault=vault(store)), f"{ZORA} and {MIKEL}", headers={NAMED: name})
    for erased, stdin, status, told in [
        ("nobody@mailhost.org", None, 1, "nothing to erase in 3 sessions\n"),
        ("-", f"{ZORA}\n", 0, "erased 2 values in 3 sessions\n"),
        (ZORA, None, 1, "nothing to erase in 3 sessions\n"),
    ]:
        run = cli("vault", "forget-everywhere", erased, *vault_options, stdin=stdin)
        assert (run.returncode, run.stdout) == (status, told)
    with SQLiteStore("vault.db") as store, pytest.raises(ConfigError, match="name a session"):
        forget(vault(store), None)
    for words, options, told in [
        (("case-17", "<EMAIL_1>"), vault_options, "give the value to erase"),
        (("case-17",), ("--store", "vault.db"), "--vault-key-file"),
        (("case-17",), ("--store", "other.db", "--vault-key-file", "vault.key"), "other.db: no such store"),
    ]:
        run = cli("vault", "forget", *words, *options)
        assert (run.returncode, told in run.stderr) == (2, True)
    assert not Path("other.db").exists()


def listed(path):
    with SQLiteStore(path) as store:
        return {usage.namespace for usage in store.usage()}
