"""Names and postal addresses where the text itself says so, and known names wherever they stand."""

from __future__ import annotations

import csv
import io
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import is_linear
from strategies_for_text import pieces

from ctxguard.errors import ConfigError
from ctxguard.pii import PEOPLE, SSN, STANDARD, Masker, Rule, RuleSet, mask_pii
from ctxguard.pii.rule_sets import named_rules

BOTH = STANDARD | PEOPLE


def found(text, label=None):
    return [text[span.start : span.end] for span in PEOPLE.find(text) if label in (None, span.label)]


SAID = [
    "My name is {}.",
    "my full name is {}, thanks",
    "Her name's {} and she waits.",
    "This is {} calling about my order.",
    "I'm {}, a member since May.",
    "Dear Ms. {},",
    "Hi {},\n\nyour parcel is here.",
    "Thank you, {}!",
    "See you.\n\nBest regards,\n{}\nSales",
    "Cheers,\n{}",
    "I will bring my wife {}.",
    "A man named {} called.",
    "the passenger {} wants a seat",
    "{} <post@mail.example>",
    "{} lives in a red house.",
    "Mein Name ist {}.",
    "Ich heiße {}.",
    "Sehr geehrte Frau {},",
    "Mit freundlichen Grüßen\n{}",
    "Je m'appelle {}.",
    "Chère Madame {},",
    "Cordialement,\n{}",
    "Me llamo {}.",
    "Estimado señor {}:",
    "Un saludo,\n{}",
    "Mi chiamo {}.",
    "Gentile Signora {},",
    "Cordiali saluti,\n{}",
    "Ik heet {}.",
    "Geachte mevrouw {},",
    "Met vriendelijke groet,\n{}",
    "Meu nome é {}.",
    "Prezado Senhor {},",
    "Atenciosamente,\n{}",
    "Nazywam się {}.",
    "Szanowna Pani {},",
    "Z poważaniem\n{}",
]
LABELS = [
    "first_name",
    "lastName",
    "customer_name",
    "passenger name",
    "Full Name",
    "billing_first_name",
    "Vorname",
    "nachname",
    "prénom",
    "nom_de_famille",
    "apellidos",
    "cognome",
    "achternaam",
    "sobrenome",
    "imię i nazwisko",
]
ADDRESSES = [
    "12 Elm Street, Springfield, IL 62704",
    "350 5th Ave, New York, NY 10118",
    "221B Baker Street, London NW1 6XE",
    "Hauptstraße 12, 10115 Berlin",
    "Unter den Linden Platz 5a, 80331 München",
    "12 bis, rue de la Paix, 75002 Paris",
    "Calle de Alcalá 45, 28014 Madrid",
    "C/ Mayor, 12, 3º B",
    "Via Garibaldi 7, 20121 Milano",
    "Keizersgracht 123, 1015 CJ Amsterdam",
    "Rua Augusta 1500, 01304-001 São Paulo",
    "ul. Długa 15, 00-238 Warszawa",
    "P.O. Box 123, Denver, CO 80202",
    "Postfach 12 34",
]
NOBODYS = [
    "Hello World!",
    "Hi there, how are you?",
    "Dear Customer,",
    "Dear Hiring Manager,",
    "Thanks, team!",
    "I am Happy to help. I'm Sorry.",
    "This is Great from here.",
    "Best,\nThe Team",
    '{"name": "Water Bottle", "product_id": "68"}',
    '{"name": "Perfume", "gender": "women", "price": 3}',
    '{"restaurant_name": "Golden Dragon", "phone": "x"}',
    '{"file_name": "Annual Report", "email": "a@b.example"}',
    "name: build-and-test\non: push",
    "my name is not important",
    "first_name: null, last_name: None",
    '{"first_name": {"type": "string"}, "last_name": "required"}',
    "email address: post@mail.example",
    "ip address: 203.0.113.9, MAC address: 3c:22:fb:0a:9e:41",
    "The address is 0x7ffe12 and the street is long.",
    "Chapter 12 Road Safety",
    "There are 3 ways to go in 2024.",
    "id,name,price\n1,Coffee Maker,20\n2,Tea Pot,10\n",
    "octocat full_name: octocat/Hello-World",
    "customer Service, user Guide",
    "call me later",
]


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("who", ["Wanda Xerxesova", "Jörg O'Quillfeather", "Ann-Marie de Zzyzx"])
def test_a_name_is_found_where_it_is_said_whose_it_is(said, who):
    text = said.format(who)
    assert found(text, "PERSON") == [who]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(
    "shape", ['{{"{}": "{}"}}', "{}: {}\n", "{}={}&x=1", "**{}:** {}", "<b>{}</b>: {}<br>", "{{'{}': '{}', 'n': 1}}"]
)
def test_a_label_says_that_its_value_is_a_name(label, shape):
    assert found(shape.format(label, "Wanda Xerxesova"), "PERSON") == ["Wanda Xerxesova"]


def test_a_label_that_may_be_a_thing_s_needs_company():
    assert found('{"name": "Wanda Xerxesova", "email": "w@mail.example"}') == ["Wanda Xerxesova"]
    assert found("Nombre: Wanda.\nApellidos: Xerxesova Paz.") == ["Wanda", "Xerxesova Paz"]
    assert found("Name: Wanda Xerxesova\nPhone: 12") == ["Wanda Xerxesova"]
    assert not found('{"name": "Wanda Xerxesova"}')


def test_a_trade_may_be_a_surname():
    assert mask_pii("Customer name: Anna Barber", PEOPLE) == "Customer name: [REDACTED_PERSON]"


@pytest.mark.parametrize("text", NOBODYS)
def test_what_names_nobody_stays(text):
    assert not found(text)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "frame", ["{}", "Please ship to {} today.", "See {}.", '{{"note": "{}"}}', "Address: {}\nPhone: 1"]
)
def test_an_address_is_told_by_its_parts(address, frame):
    text = frame.format(address)
    masked = mask_pii(text, PEOPLE)
    assert "[REDACTED_ADDRESS]" in masked
    assert not any(char.isdigit() for char in masked.replace("Phone: 1", ""))


def test_parts_of_an_address_in_fields():
    text = '{"street": "Elm Rd", "city": "Springfield", "zip": "62704", "weather": {"city": "Paris"}}'
    masked = json.loads(mask_pii(text, PEOPLE))
    assert masked["street"] == masked["city"] == masked["zip"] == "[REDACTED_ADDRESS]"
    assert masked["weather"] == {"city": "Paris"}


words = st.text("bcdfgklmnprstvwxz", min_size=4, max_size=9).map(str.capitalize)
people = st.tuples(words, words).map(" ".join)
tables = st.lists(st.tuples(people, words, st.integers(1, 99)), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(tables, st.sampled_from(",;\t"), st.sampled_from(["customer_name", "Vorname", "Full Name"]))
def test_a_column_says_that_its_cells_are_names(rows, separator, heading):
    shown = io.StringIO()
    csv.writer(shown, delimiter=separator).writerows([(heading, "product", "count"), *rows])
    masked = mask_pii(shown.getvalue(), PEOPLE)
    for who, product, _ in rows:
        assert who not in masked
        assert product in masked or product in {part for other, _, _ in rows for part in other.split()}


def test_a_table_of_markdown_and_what_stands_behind_it():
    text = "| Name | E-mail | City |\n|---|---|---|\n| Wanda Xerx | w@x.example | Rome |\n\nName | of a thing\n"
    assert found(text) == ["Wanda Xerx"]


def test_a_known_name_is_found_wherever_it_stands_in_the_text():
    text = "Xerx came first. My name is Wanda Xerx; WANDA XERX, wanda xerx, Wanda's, not wandering Xerxes or WandaXerx."
    masked = mask_pii(text, PEOPLE)
    assert masked.count("[REDACTED_PERSON]") == 5
    assert masked.endswith("not wandering Xerxes or WandaXerx.")


def test_a_name_that_is_a_word_is_not_looked_for_alone():
    masked = mask_pii("My name is Will Xerx. Will you come? Xerx will.", PEOPLE)
    assert masked == "My name is [REDACTED_PERSON]. Will you come? [REDACTED_PERSON] will."


def test_a_conversation_knows_a_name_from_there_on():
    session = Masker(BOTH).session()
    assert session.text("Did Xerx call?") == "Did Xerx call?"
    session.text('{"customer_name": "Wanda Xerx"}')
    assert session.text("Did Xerx call?") == "Did [REDACTED_PERSON] call?"
    assert session.own("Yes, Wanda did.") == "Yes, [REDACTED_PERSON] did."
    assert session.arguments('{"to": ["Wanda", {"cc": "Xerx, W."}]}').count("PERSON") == 2


def test_placeholders_of_known_names_can_be_undone():
    session = Masker(BOTH, strategy="pseudonymize").session()
    for text in ("I'm Wanda Xerx.", "Wanda and Xerx, Wanda Xerx", '{"first_name": "Olga", "of": "Olga Xerx"}'):
        masked = session.text(text)
        assert "Xerx" not in masked
        assert "Wanda" not in masked
        assert "Olga" not in masked
        assert session.unmask(masked) == text


def test_a_text_that_could_not_be_masked_makes_no_name_known():
    def choosy(text):
        if "bad" in text:
            raise ValueError(text)
        return []

    session = Masker([PEOPLE, choosy]).session()
    with pytest.raises(Exception, match="choosy"):
        session.text("My name is Wanda Xerx. bad")
    assert session.text("Wanda") == "Wanda"


def test_people_allowed_are_not_known():
    rules = PEOPLE.allowing(["Wanda Xerx"])
    assert mask_pii("My name is Wanda Xerx. Wanda!", rules) == "My name is Wanda Xerx. Wanda!"


def test_without_people_nothing_is_known():
    masker = Masker(STANDARD)
    assert masker.echoing is None
    assert masker.is_stateless
    session = masker.session()
    session.text("My name is Wanda Xerx.")
    assert session.text("Wanda Xerx") == "Wanda Xerx"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            pieces,
            st.sampled_from(SAID).map(lambda said: said.format("Wanda Xerx")),
            st.sampled_from(ADDRESSES),
            st.sampled_from(["\n", "name,", "| first_name |", '"address": "']),
        ),
        max_size=10,
    ).map("".join)
)
def test_finding_agrees_with_scanning_and_masking_twice_changes_nothing(text):
    assert PEOPLE.find(text) == PEOPLE.scan(text)
    once = mask_pii(text, BOTH)
    assert not BOTH.scan(once)
    assert mask_pii(once, BOTH) == once


json_values = st.recursive(
    st.one_of(
        st.sampled_from(SAID).map(lambda said: said.format("Wanda Xerx")),
        st.sampled_from(ADDRESSES),
        st.integers(),
        st.none(),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["first_name", "name", "address", "zip", "note", "x"]), inner, max_size=3),
        st.dictionaries(st.sampled_from(["first_name", "note"]), inner, min_size=1, max_size=2).map(json.dumps),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(json_values.filter(lambda value: not isinstance(value, int)))  # a number alone is a text like any other
def test_json_stays_json_and_holds_no_name(value):
    masked = mask_pii(json.dumps(value, ensure_ascii=False), BOTH)
    json.loads(masked)
    assert "Xerx" not in masked or "Wanda Xerx" not in json.dumps(value)
    assert not BOTH.find(masked)


@pytest.mark.parametrize(
    "piece",
    [
        "name: ",
        "name,address\n",
        "| name |",
        "my name is ",
        "Dear Wanda Xerx, ",
        "12 Elm Street ",
        "Elm 12 ",
        "a, Apt 5",
        '"city": "Rome", "zip": ',
        "A b ",
        "my my my ",
        "Best,\n",
        "<a@",
        "1 A ",
        "name\n\n",
        "Via A ",
        "12 Elm Street, b - a\nc ",
    ],
)
def test_time_is_linear(piece):
    calls = itertools.count()

    # a text of its own each time: what is known of one is remembered
    assert is_linear(lambda size: PEOPLE.find(f"{piece * (size // len(piece) + 1)} {next(calls)}"), 20_000)


def test_rule_sets_by_name():
    assert named_rules("standard", "people").rules == BOTH.rules
    assert named_rules("ssn") is SSN
    with pytest.raises(ConfigError, match="no rule set 'persons'"):
        named_rules("persons")


def test_a_rule_may_walk_by_itself_and_make_names_known():
    rules = RuleSet(
        "tags", (Rule("tag", "PERSON", "@", walk=lambda text: [(1, 5)] if text[1:5] == "Olga" else [], echo=True),)
    )
    assert mask_pii("@Olga and Olga", rules) == "@[REDACTED_PERSON] and [REDACTED_PERSON]"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Ship to 12 Elm Street, Springfield, IL 62704\nOrder A-17\nUrgent", "\nOrder A-17\nUrgent"),
        ("Ship to 12 Elm Street, Springfield, IL 62704.\nPlease refund 30 USD.\nBye", ".\nPlease refund 30 USD.\nBye"),
        ("ul. Długa 5, 00-238 Warszawa, zamówienie 17 uszkodzone", ", zamówienie 17 uszkodzone"),
        ("Adres: Keizersgracht 12, 1015 CJ Amsterdam, bestelling 17 is kapot", ", bestelling 17 is kapot"),
        ("12, rue Verte, 75011 Paris, IBAN FR14 2004 1010 0505 0001 3M02 606", ", IBAN [REDACTED_IBAN]"),
        ("Hauptstraße 12, 10115 Berlin. Bestellung 17 ist kaputt", ". Bestellung 17 ist kaputt"),
        ("Anschrift: Hauptstraße 12\n10115 Berlin. Bestellung 17 ist kaputt", ". Bestellung 17 ist kaputt"),
        ("Calle Mayor 12, 28014 Madrid Pedido 17 roto", " Pedido 17 roto"),
        ("Via Garibaldi 7, 20121 Milano (MI), ordine 17 rotto", ", ordine 17 rotto"),
        ("Address: 350 5th Ave, New York, NY 10118, order 17 is broken", ", order 17 is broken"),
        ("Adresse : 12 rue de la Paix, 75002 Paris, commande 17 cassée", ", commande 17 cassée"),
        ("1 Elm Street, 20500 Washington D.C. Order 17", " Order 17"),
        ("Ich wohne in der Hauptstraße 12. Übrigens ist Bestellung 17 kaputt", ". Übrigens ist Bestellung 17 kaputt"),
        ("Vivo en Calle Mayor 12. ¿Cuándo llega el pedido 17?", ". ¿Cuándo llega el pedido 17?"),
    ],
)
def test_what_follows_an_address_stays(text, kept):
    masked = Masker(BOTH).mask(text)
    assert masked.endswith(f"[REDACTED_ADDRESS]{kept}")


@pytest.mark.parametrize(
    "address",
    [
        "12 Elm Street\nApt 4\nSpringfield, IL 62704",
        "12 Elm Street\nSpringfield, IL 62704\nUSA",
        "Hauptstraße 12\n10115 Berlin",
        "Marktgasse 12\n9000 St. Gallen",
        "1600 Elm Street, Washington, D.C. 20500",
        "12 Elm Street, Port St. Lucie, FL 34952",
        "Via Garibaldi 7, 20121 Milano (MI)",
        "Hauptstraße 12, 110 00 Praha",
        "Av. San Antonio, 47 - 4º Dcha. 02001 Albacete",
        "Calle Mayor 12, 3º izda, 28014 Madrid",
        "Rua Augusta 15, 2º Esq., 1100-048 Lisboa",
    ],
)
@pytest.mark.parametrize("said", ["Ship to ", ""])
def test_an_address_goes_on_to_the_line_of_its_postal_code(address, said):
    assert Masker(BOTH).mask(f"{said}{address}\n\nThank you") == f"{said}[REDACTED_ADDRESS]\n\nThank you"


@pytest.mark.parametrize("address", ["350 5th Ave, New York, NY 10118", "12 rue de la Paix, 75002 Paris"])
@pytest.mark.parametrize("behind", [", order 17 is broken", " - order 17", "; thanks"])
def test_an_address_that_is_said_begins_with_its_number(address, behind):
    assert Masker(BOTH).mask(f"I live at {address}{behind}") == f"I live at [REDACTED_ADDRESS]{behind}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Patient: Sarah Connelly", {"Sarah Connelly"}),
        ("Patientin Anna Braun", {"Anna Braun"}),
        ("Paciente: Ana García", {"Ana García"}),
        ('{"nome": "Maria", "cognome": "Rossi"}', {"Maria", "Rossi"}),
        ('{"nom": "Dupont", "prénom": "Marie"}', {"Dupont", "Marie"}),
        ('{"nom": "Dupont", "email": "m@dupont.example"}', {"Dupont"}),
        ('{"name": "Jane", "surname": "Roe"}', {"Jane", "Roe"}),
        ("Patient Care Center", set()),
        ("Patient: stable", set()),
        ('{"nom": "Table", "prix": 3}', set()),
        ('{"name": "Widget", "email": "sales@widget.example"}', set()),
    ],
)
def test_patients_and_the_other_part_of_a_name(text, names):
    assert {text[one.start : one.end] for one in PEOPLE.find(text)} == names


RECORDS = {
    "vCard": "BEGIN:VCARD\nVERSION:3.0\nFN:{0} {1}\nN:{1};{0};;;\nEMAIL:x@y.example\nEND:VCARD",
    "iCalendar, organizer": "ORGANIZER;CN={0} {1}:mailto:x@y.example",
    "iCalendar, attendee": 'ATTENDEE;ROLE=REQ-PARTICIPANT;CN="{0} {1}";RSVP=TRUE:mailto:x@y.example',
    "LDIF": "dn: cn={0} {1},ou=people,dc=example\ncn: {0} {1}\nsn: {1}\ngivenName: {0}\nmail: x@y.example",
    "FHIR": '{{"resourceType": "Patient", "name": [{{"use": "official", "family": "{1}", "given": ["{0}"]}}]}}',
    "vCard with parameters": "BEGIN:VCARD\nFN;CHARSET=UTF-8:{0} {1}\nEMAIL;TYPE=work:x@y.example\nEND:VCARD",
    "FHIR in lines": '{{"family": "{1}", "period": {{"end": "2002"}}, "given": [\n  "{0}"\n ]}}',
    "Jira": '{{"assignee": {{"emailAddress": "x@y.example", "avatarUrls": {{"48": "u"}}, "displayName": "{0} {1}"}}}}',
    "Microsoft Graph": '{{"displayName": "{0} {1}", "givenName": "{0}", "mail": "x@y.example", "surname": "{1}"}}',
    "a customer with a number": "Kunde: {0} {1}, Kundennummer 33812",
}
"""The standard forms in which programs exchange contacts, appointments, patients and accounts."""


@pytest.mark.parametrize(("given", "family"), [("Ottoline", "Fairweather"), ("Jörg", "O'Quillfeather")])
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_no_name_is_left_in_a_record(record, given, family):
    text = record.format(given, family)
    left = Masker(BOTH).session().text(text)
    assert given not in left
    assert family not in left


@pytest.mark.parametrize(
    "text",
    [
        '{"displayName": "Compute Engine API", "name": "compute.example"}',
        '{"displayName": "Marketing Team", "mail": "marketing@y.example"}',
        "subject=CN = Example Root CA, O = Example Trust, emailAddress = ca@y.example",
        '{"cn": "web-01.y.example", "port": 3, "mail": "ops@y.example"}',
        'font: {family: "Noto Serif", size: 3}',
        "ORGANIZER;CN=Sales Department:mailto:sales@y.example",
        '{"displayName": "Compute Engine default service account", "email": "1234-compute@y.example"}',
        "fn: Handler,\n// by its last name",
        "def f(self, fn: Callable, n: int):\n    'Run the given name.'",
        "Kingdom: Animalia\nFamily: Felidae\nGiven their range, they are many.",
        "<name>HttpComponents Dev List</name><unsubscribe>mailto:a@y.example</unsubscribe>",
    ],
)
def test_a_record_of_something_else_keeps_its_name(text):
    assert not found(text, "PERSON")


@pytest.mark.parametrize(
    "text", ["Dear Mr. Sales,", "Full name: João Sales", '{"firstName": "Ana", "lastName": "Sales"}']
)
def test_a_word_of_business_may_be_a_surname(text):
    assert "Sales" not in Masker(BOTH).session().text(text)
