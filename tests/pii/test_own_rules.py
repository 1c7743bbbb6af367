"""Rules, fields and words of one's own, as the configuration file has them."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from test_cli import cli

from ctxguard import Artifact, Stabilizer
from ctxguard.adapting import stabilize_request
from ctxguard.cli.options import StabilizerOptions, settings_of
from ctxguard.config import PiiConfig, load_context_config
from ctxguard.errors import ConfigError
from ctxguard.pii import PEOPLE, STANDARD, Masker, Rule, RuleSet
from ctxguard.pii.detect.expressions import most_steps
from ctxguard.pii.own_rules import own_rules, with_own
from ctxguard.pii.scanning import explain_file_text
from ctxguard.wire.cli import Guarding, guard_of
from ctxguard.wire.guard import WireRequest

PAGE = Path(__file__).parents[2] / "docs" / "pii.md"
FILE = re.search(r'```yaml title="ctxguard.yaml"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
TEXT = "TCK-123456 of Project Heron; member 046454286; customer_no: 4711, sku: 9912"
KEPT = ("sku: 9912", "[REDACTED_TICKET]", "[REDACTED_CODENAME]", "[REDACTED_MEMBER]")
SESSION = [
    {"role": "user", "content": TEXT},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "So?"},
]
GONE = ("TCK-123456", "Project Heron", "046454286", "4711")


@pytest.fixture(autouse=True)
def configured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ctxguard.yaml").write_text(FILE, encoding="utf-8")
    return tmp_path


def is_masked(text):
    return all(word in text for word in (*KEPT, "<CUSTOMER_1>")) and not any(word in text for word in GONE)


# -- one file, word for word, in every command and adapter


def test_scan_mask_and_eval_use_the_documented_file():
    Path("in.txt").write_text(TEXT, encoding="utf-8")
    labels = {"TICKET": 1, "CODENAME": 1, "MEMBER": 1, "CUSTOMER": 1}
    assert json.loads(cli("pii", "scan", "in.txt", "-r", "json").stdout)["files"][0]["counts"] == labels
    assert is_masked(cli("pii", "mask", "in.txt").stdout)
    start = TEXT.index("TCK")
    gold = {"text": TEXT, "spans": [{"start": start, "end": start + 10, "label": "TICKET"}]}
    Path("gold.jsonl").write_text(json.dumps(gold) + "\n", encoding="utf-8")
    told = json.loads(cli("pii", "eval", "gold.jsonl", "--json", "--labels", "TICKET").stdout)
    assert '"recall": 1.0' in json.dumps(told)


def test_stabilize_check_and_replay_use_the_documented_file():
    Path("session.json").write_text(json.dumps(SESSION), encoding="utf-8")
    assert is_masked(cli("stabilize", "session.json").stdout)
    run = cli("check", "session.json", "--pii")
    assert {"TICKET", "CODENAME", "MEMBER", "CUSTOMER"} <= set(re.findall(r"([A-Z]+) was found", run.stdout))
    assert cli("replay", "session.json", "--config", "ctxguard.yaml").returncode == 0


def test_serve_and_run_use_the_documented_file():
    guard = guard_of(StabilizerOptions(), Guarding(), settings_of(None), workers=1)
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": TEXT}]}).encode()
    sent = guard.prepare(WireRequest("POST", "/v1/chat/completions", {}, body))
    assert is_masked(json.loads(sent.body)["messages"][0]["content"])
    assert "4711" in sent.reply.text("it is <CUSTOMER_1>")


@pytest.mark.parametrize("adapter", ["openai", "anthropic", "google", "bedrock", "langchain", "pydantic-ai"])
def test_adapters_use_the_documented_file(adapter):
    from ctxguard.adapting import Request, find_adapter

    if adapter == "langchain":
        messages = [pytest.importorskip("langchain_core.messages").HumanMessage(TEXT)]
    elif adapter == "pydantic-ai":
        parts = pytest.importorskip("pydantic_ai.messages")
        messages = [parts.ModelRequest([parts.UserPromptPart(TEXT)])]
    elif adapter == "google":
        messages = [{"role": "user", "parts": [{"text": TEXT}]}]
    elif adapter == "bedrock":
        messages = [{"role": "user", "content": [{"text": TEXT}]}]
    else:
        messages = [{"role": "user", "content": TEXT}]
    done, report = stabilize_request(Stabilizer.from_config(), find_adapter(adapter), Request(messages))
    assert report.ok
    assert is_masked(str(done.messages if hasattr(done, "messages") else done))


# -- fields


FIELDS = with_own(RuleSet("none"), PiiConfig(fields={"customer_no": "CUSTOMER", "*_token": "TOKEN"}))
IN_FIELDS = [
    '{"customer_no": "§", "sku": "9912"}',
    '{"customerNo": ["§", "§"], "sku": ["9912"]}',
    'log: {\\"customer_no\\": \\"§\\", \\"sku\\": \\"9912\\"}',
    "{'customer_no': '§', 'sku': '9912'}",
    "customer_no: §, blue\nsku: 9912",
    "- customer_no: §\n  sku: 9912\n",
    "customer_no=§ sku=9912",
    "our customer no is § and the sku is 9912",
    "Customer No.: §",
    "**Customer no:** §",
    "?customer_no=§&sku=9912",
    "<customer_no>§</customer_no><sku>9912</sku>",
    '<input name="customer_no" value="§"> <input name="sku" value="9912">',
    "sku,customer_no,qty\n9912,§,3\n9913,§,4\n",
    "sku\tcustomer_no\n9912\t§\n",
    "| sku | Customer No |\n|---|---|\n| 9912 | § |\n",
    "Customer No  Sku\n§        9912\n",
    '[["sku", "customer_no"], ["9912", "§"]]',
    "INSERT INTO t (sku, customer_no) VALUES (9912, '§'), (9913, '§');",
    "auth_token: §",
]


@pytest.mark.parametrize("value", ["4711", "AB-12", "AB 12"])
@pytest.mark.parametrize("written", IN_FIELDS)
def test_the_values_of_a_field_are_found_and_nothing_beside_them(written, value):
    text = written.replace("§", value)
    masked = Masker(FIELDS).mask(text)
    assert value not in masked
    beside = written.replace(", blue", "")
    assert masked == beside.replace("§", f"[REDACTED_{'TOKEN' if 'token' in text else 'CUSTOMER'}]")
    assert FIELDS.find(text) == FIELDS.scan(text)


def test_a_number_in_json_gets_its_value_back_as_a_number():
    session = Masker(FIELDS, strategy="pseudonymize").session()
    masked = session.text('{"customer_no": 4711, "sku": 9912}')
    assert masked == '{"customer_no": "<CUSTOMER_1>", "sku": 9912}'
    assert session.unmask_arguments(masked) == '{"customer_no": 4711, "sku": 9912}'


@pytest.mark.parametrize(
    "text",
    [
        "customer_no: null",
        "def find(customer_no: str, sku: int)",
        'customer_no: {"type": "string"}',
        "my_customer_no: 5",
        "customer_no_old: 5",
        "which customer no",
        "token: 5",
    ],
)
def test_what_is_no_value_of_a_field_stays(text):
    assert Masker(FIELDS).mask(text) == text


def test_rule_sets_with_fields_can_be_pickled():
    copied = pickle.loads(pickle.dumps(FIELDS))
    assert copied.find("customer_no: 4711") == FIELDS.find("customer_no: 4711") != ()


# -- words, countries, strategies


def test_words_are_read_from_files_beside_the_configuration(configured):
    (configured / "clients.txt").write_text("# ours\nAcme GmbH\nÖl & Söhne\n#blue\n", encoding="utf-8")
    (configured / "ours.txt").write_text("@acme.example\n", encoding="utf-8")
    Path("ctxguard.yaml").write_text("pii: {deny: {CLIENT: clients.txt}, allow: ours.txt}\n", encoding="utf-8")
    rules = with_own(STANDARD, load_context_config().pii)
    masked = Masker(rules).mask("ACME GmbH, öl & söhne, Acme GmbHs: info@acme.example, info@velo.example")
    assert masked == "[REDACTED_CLIENT], [REDACTED_CLIENT], Acme GmbHs: info@acme.example, [REDACTED_EMAIL]"
    Path("ctxguard.yaml").write_text("pii:\n  deny:\n    CLIENT: none.txt\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"ctxguard\.yaml:3: pii\.deny\.CLIENT: none\.txt: no such file .*; list it"):
        load_context_config()


def test_a_long_list_of_words_is_found_in_the_time_of_a_short_one():
    many = RuleSet("many", deny=tuple((f"word{number} here", "LISTED") for number in range(20_000)))
    text = "word19999 here, word19999 there, xword1 here " * 2_000
    assert len(many.find(text)) == 2_000  # one expression for each word would take minutes


def test_countries_leave_out_the_national_numbers_of_others():
    german = with_own(STANDARD, PiiConfig(countries=["DE"]))
    names = {rule.name for rule in german.rules}
    assert {"email", "de-idnr"} & names == {"email"} | ({"de-idnr"} & {rule.name for rule in STANDARD.rules})
    assert {rule.name for rule in STANDARD.rules} - names
    assert "us-ein" not in names
    with pytest.raises(ConfigError, match="no rules for XX; countries with rules are US"):
        PiiConfig(countries=["XX"])


# -- what cannot be used


def rule(**fields):
    return {"name": "own", "label": "OWN", "pattern": "OWN-[0-9]{4}", **fields}


REFUSED = [
    ("rules:\n  - name: own\n    label: OWN", 3, "a rule needs a name, a label, and a pattern; pattern is missing"),
    ("rules:\n  - {name: own, label: OWN, pattern: 'a+'}", 3, "without a limit, which is slow; instead of"),
    ("rules:\n  - name: own\n    label: OWN\n    pattern: '(a{1,9}){1,9}'", 5, "in too many ways"),
    ("rules:\n  - name: own\n    label: OWN\n    pattern: '('", 5, "not a regular expression"),
    ("rules:\n  - {name: own, label: own, pattern: a}", 3, "such as 'OWN'"),
    ("rules:\n  - {name: own, label: OWN, pattern: a, check: lun}", 3, "the name of a number in python-stdnum: 'lun'"),
    ("rules:\n  - {name: own, label: OWN, pattern: a, chekc: luhn}", 3, "unknown field 'chekc' (did you mean 'check'?"),
    ("rules:\n  - {name: own, label: OWN, pattern: a, validate: 'validate:none'}", 3, "cannot be imported"),
    ("rules:\n  - {name: own, label: OWN, pattern: '{STRT}a'}", 3, "{STRT}, which is neither a piece"),
    ("rules:\n  - {name: own, label: OWN, pattern: a, score: high}", 3, "a number from 0 to 1, not 'high'"),
    ("feilds: {}", 2, "unknown setting 'feilds' (did you mean 'fields'?)"),
    ("fields:\n    a: b\n    customer_no: Customer", 3, "write B, not 'b'"),
    ("deny: {CLIENT: 5}", 2, "deny"),
    ("countries: [de]", 2, "write DE"),
    ("strategy: {EMAIL: hide}", 2, "strategy"),
    ("strategy: {EMIAL: redact}", 2, "did you mean 'EMAIL'"),
    ("strategy:\n    PHONE: hash\n    PERSN: redact", 4, "did you mean 'PERSON'"),
    ("fields: {nr: CUSTOMER}\n  strategy: {CUSTMER: redact}", 3, "did you mean 'CUSTOMER'"),
]


@pytest.mark.parametrize(("section", "line", "told"), REFUSED)
def test_what_cannot_be_used_is_refused_with_its_line(section, line, told, monkeypatch):
    monkeypatch.setenv("CTXGUARD_VAULT_KEY", "of no setting")
    Path("ctxguard.yaml").write_text(f"pii:\n  {section}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^ctxguard\.yaml:{line}: pii.*{re.escape(told)}") as caught:
        load_context_config()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("abc", 3),
        ("a{20}", 20),
        ("a{1,20}b", 20 + 20),
        ("a{1,20}b{1,20}c", 20 + 20 * 20 + 400),
        ("a{1,20}+b{1,20}c", 20 + 20 + 20),
        ("(?=a{1,20}b)c", 20 + 20 + 1),
        ("(?>a{1,20}b{1,20})c", 20 + 400 + 1),
        (r"(a{1,20})\1", 20 + 20 * 20),
        ("(?:ab|cd)e", 4 + 2),
    ],
)
def test_the_steps_of_an_expression(pattern, steps):
    assert 10 ** most_steps(pattern) == pytest.approx(steps)


@pytest.mark.parametrize("pattern", ["a+", "(?:a{1,9})*", "(?=a+)b", "a++", "a{2,}", r"(a{1,9})\1*"])
def test_what_repeats_without_a_limit_takes_steps_without_a_limit(pattern):
    assert most_steps(pattern) == float("inf")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a{1,50})\1{1,50}!",
        r"(a{1,40})(a{1,40})\2\1b",
        r"(?:(a{1,30})\1){1,9}b",
        "(?=a{1,60}a{1,60}a{1,60}b)a",
        "(?>a{1,60}a{1,60}a{1,60})b",
        "(?:a{1,60}a{1,60}a{1,60}b){1,2}+",
        "(?:(?:a{1,2}){1,3}){1,3}b",
        "(a{1,99})?(?(1)a{1,99}|b)a{1,9}b",
    ],
)
def test_an_own_rule_that_can_take_long_is_refused(pattern):
    with pytest.raises(ConfigError, match="in too many ways"):
        own_rules([{"name": "own", "label": "OWN", "pattern": pattern}])


@pytest.mark.parametrize(
    "pattern", [r"(['\"])a{1,64}\1", r"\w{1,64}@\w{1,64}", r"(?:\d{1,3}\.){3}", r"a{1,64}+b{1,64}+c"]
)
def test_an_own_rule_that_takes_little_is_accepted(pattern):
    assert own_rules([{"name": "own", "label": "OWN", "pattern": pattern}])


# -- init, explain


def test_the_file_that_init_writes_loads_with_and_without_its_comments(tmp_path):
    Path("clients.txt").write_text("Acme\n", encoding="utf-8")
    assert cli("pii", "init", "new.yaml").returncode == 0
    assert load_context_config("new.yaml").pii == PiiConfig()
    text = Path("new.yaml").read_text(encoding="utf-8")
    settings = re.sub(r"(?m)^( +)# (?=( *[\w'*-]+:| *- |  ))(?!.*\. )", r"\1", text)
    settings = re.sub(r"(?m)^# (stabilizer:|  \w+:)", r"\1", settings)
    Path("all.yaml").write_text(settings, encoding="utf-8")
    made = load_context_config("all.yaml")
    assert (made.stabilizer.budget, made.stabilizer.rules) == (8_000, ["standard", "people"])
    pii = made.pii
    assert all(getattr(pii, name) is not None for name in PiiConfig.model_fields)
    again = cli("pii", "init", "new.yaml")
    assert (again.returncode, again.stderr) == (
        2,
        "ctxguard: new.yaml already exists; name another file, or delete it\n",
    )


def test_explain_names_the_rule_of_each_finding_and_what_a_near_miss_lacks():
    rules = with_own(STANDARD, PiiConfig(rules=[rule(context="badge")], allow=["allowed@velo.example"]))
    lines = ["badge OWN-1234", "ada@velo.example", "4111 1111 1111 1112", "allowed@velo.example", "order 24813"]
    told = {
        (place.line, place.label): (rule, fault) for place, rule, fault in explain_file_text("\n".join(lines), rules)
    }
    assert told[1, "OWN"] == ("own", "")
    assert told[2, "EMAIL"] == ("email", "")
    assert told[3, "CREDIT_CARD"][1] == "its check digits or its form are wrong"
    assert told[4, "EMAIL"][1] == "it is allowed"
    assert not any(line == 5 for line, _ in told)


def test_explain_agrees_with_scan_and_prints_no_value():
    Path("in.json").write_text(json.dumps({"customer_no": ["4711"], "mail": "ada@velo.example"}), encoding="utf-8")
    told, scanned = cli("pii", "explain", "in.json").stdout, cli("pii", "scan", "in.json").stdout
    assert {
        line.rpartition(" found by")[0] for line in told.splitlines() if " found by" in line and "not" not in line
    } == {line for line in scanned.splitlines() if "in.json" in line}
    assert "4711" not in told + scanned
    assert "velo" not in told + scanned


@pytest.mark.parametrize(
    ("text", "echoes"),
    [
        ("I'm Zora Xerx.\nXerx called; Zora, too.\n", {"2:1": "1:5", "2:14": "1:5"}),
        ("ZORA XERX called.\nI'm Zora Xerx.\n", {"1:1": "2:5"}),
        ('{"first_name": "Zora", "last_name": "Xerx", "note": "Xerx"}', {"1:54": "1:38"}),
        ('{"last_name": "Zruz"}\n{"note": "see Zruz"}\n', {"2:15": "1:16"}),
        ("first_name,last_name\nZora,Xerx\n\nXerx paid.\n", {"4:1": "2:6"}),
        ("contact: Ms. Xerx\nowner: Zruz\nZruz is out\n", {}),  # a field of one's own makes no name known
    ],
)
def test_explain_says_of_which_name_a_finding_is_the_echo(text, echoes):
    rules = with_own(STANDARD | PEOPLE, PiiConfig(fields={"owner": "PERSON"}))
    told = {f"{place.line}:{place.column}": rule for place, rule, fault in explain_file_text(text, rules) if not fault}
    assert {place: rule for place, rule in told.items() if "echo" in rule} == {
        place: f"the echo of {origin}" for place, origin in echoes.items()
    }


def test_own_rules_come_first_where_two_find_the_same():
    (own,) = own_rules([rule(pattern="[0-9]{3}-[0-9]{2}-[0-9]{4}")])
    assert [
        span.label for span in with_own(STANDARD, PiiConfig(rules=[rule(pattern=own.pattern)])).find("078-05-1121")
    ] == ["OWN"]
    assert Stabilizer.from_config().stabilize([Artifact("user", TEXT)]).report.ok


@pytest.mark.parametrize("between", [" ", "\n", "  ", "_", "+", "-", "\u00a0", "** ", "\n> ", "\n\n"])
def test_a_denied_value_of_two_words_is_found_however_they_are_separated(between):
    text = f"from Erika{between}Mustermann, today"
    (found,) = STANDARD.denying(["erika mustermann"], label="CLIENT").find(text)
    assert text[found.start : found.end] == f"Erika{between}Mustermann"


@pytest.mark.parametrize("text", ["erikamustermann", "Erika. Mustermann", "Erika Mustermanns", "Erika and Mustermann"])
def test_other_words_are_no_denied_value(text):
    assert not STANDARD.denying(["Erika Mustermann"], label="CLIENT").find(text)


@pytest.mark.parametrize("text", ["Kunde KD-4711", "kunde KD-4711", "KUNDE: KD-4711"])
def test_words_of_a_rule_may_be_written_in_any_case(text):
    rule = Rule("number", "CUSTOMER", r"KD-\d{4}", context=r"\bKunde\W|\bKundin\W")
    assert [span.label for span in RuleSet("own", (rule,)).find(text)] == ["CUSTOMER"]
    assert not RuleSet("own", (rule,)).find(f"x{text}")
