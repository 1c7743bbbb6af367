"""Names of customers in tables and records, and again in prose: also those that are common words."""

from __future__ import annotations

import json

import pytest

from ctxguard.pii import PEOPLE, STANDARD, Masker, mask_pii

BOTH = STANDARD | PEOPLE
ROWS = (("1001", "Anna Brown", "12.50"), ("1002", "Petra Koch", "9.00"))
CUSTOMERS = ["Customer", "customer", "Kunde", "Cliente", "klant", "Klient", "Passenger", "Mieter"]


def lines(separator):
    return lambda heading: "\n".join(separator.join(row) for row in (("No", heading, "Total"), *ROWS)) + "\n"


def markdown(heading):
    rows = (("No", heading, "Total"), ("---",) * 3, *ROWS)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def html(heading):
    cells = [f"<tr><th>No</th><th>{heading}</th><th>Total</th></tr>"]
    return f"<table>{cells[0]}" + "".join(f"<tr>{''.join(f'<td>{one}</td>' for one in row)}</tr>" for row in ROWS)


def insert(heading):
    rows = ", ".join("(" + ", ".join(f"'{one}'" for one in row) + ")" for row in ROWS)
    return f"INSERT INTO sales (no, {heading}, total) VALUES {rows};"


FORMS = {
    "csv": lines(","),
    "semicolons": lines(";"),
    "tsv": lines("\t"),
    "aligned": lines("   "),
    "markdown": markdown,
    "html": html,
    "insert": insert,
    "objects": lambda heading: json.dumps([{"no": no, heading: who, "total": total} for no, who, total in ROWS]),
    "lists": lambda heading: json.dumps({"columns": ["no", heading, "total"], "rows": ROWS}),
    "headed lists": lambda heading: json.dumps([["no", heading, "total"], *ROWS]),
}


@pytest.mark.parametrize("heading", CUSTOMERS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_column_or_a_key_of_customers_holds_names(form, heading):
    masked = mask_pii(form(heading), BOTH)
    assert masked.count("[REDACTED_PERSON]") == 2, masked
    assert "1001" in masked
    assert heading in masked


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_column_of_surnames_holds_names_in_every_form_of_a_table(form):
    masked = mask_pii(form("last_name").replace("Anna Brown", "Brown").replace("Petra Koch", "Koch"), BOTH)
    assert masked.count("[REDACTED_PERSON]") == 2, masked


THINGS = [
    ("customer", ("Brown Ltd", "Contoso", "Blue Ridge Motors", "A-17", "n/a", "null", "Customer Support Team")),
    ("product name", ("Water Bottle", "Garden Hose")),
    ("name", ("Water Bottle", "Garden Hose")),
    ("file_name", ("Annual Report", "Read Me")),
    ("hostname", ("Blue Whale", "Red Fox")),
    ("client", ("Mozilla Firefox", "Visual Studio")),
    ("client_name_format", ("First Last", "Last First")),
    ("customers", ("Many Thousands", "Very Few")),
    ("color", ("Dark Brown", "Snow White")),
]


@pytest.mark.parametrize(("heading", "values"), THINGS, ids=[heading for heading, _ in THINGS])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_column_of_things_holds_no_names(form, heading, values):
    for value in values:
        text = form(heading).replace("Anna Brown", value).replace("Petra Koch", value)
        assert mask_pii(text, BOTH) == text


@pytest.mark.parametrize(
    "text",
    [
        '{"customer": {"name": "Anna Brown", "tier": "gold"}}',
        '{"customer": {"id": 17, "name": "Anna Brown"}}',
        '{"kunde": {"name": "Anna Brown"}, "total": 3}',
        '{"customers": [{"name": "Anna Brown"}]}',
        "customer_id,name,plan\n17,Anna Brown,pro\n",
        '[{"customer_id": 17, "name": "Anna Brown"}]',
        "Kundennummer;Name;Tarif\n17;Anna Brown;pro\n",
        "order,client,amount\n17,Anna Brown,12\n",
        'order,customer\n17,"Brown, Anna"\n',
        "Customer: Anna Brown\nTotal: 12\n",
        "Kunde: Anna Brown\nBetrag: 12\n",
    ],
)
def test_records_of_a_customer(text):
    masked = mask_pii(text, BOTH)
    assert masked.count("[REDACTED_PERSON]") == 1
    assert "Brown" not in masked


@pytest.mark.parametrize(
    "text",
    [
        '{"product": {"name": "Water Bottle", "customer": "none"}}',
        '{"customer": {"id": 17}, "item": {"name": "Water Bottle"}}',
        '{"customers": [], "items": [{"name": "Water Bottle"}]}',
        "order_id,customer_id,name,price\n1,17,Garden Hose,9\n",
        "customer: Great News for everyone who waits\n",
        'if customer == "Gold Member": pass',
        'customer = Column("Customer Id", String)',
    ],
)
def test_records_of_things_beside_a_customer(text):
    assert mask_pii(text, BOTH) == text


INTRODUCED = "no,customer\n1,Anna Brown\n2,Petra Koch\n3,Peter Snow\n4,Mark Page\n5,Grace Woods\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Please call Brown today.", "Brown"),
        ("Brown wants a refund.", "Brown"),
        ("We wrote. Snow complained again.", "Snow"),
        ("Is it Snow's order?", "Snow"),
        ("Snow's order is late.", "Snow"),
        ("It was A. Brown.", "Brown"),
        ("Koch rief gestern an.", "Koch"),
        ("Wir haben Koch geschrieben.", "Koch"),
        ("I spoke to Page and Woods.", "Page"),
        ("I spoke to Page and Woods.", "Woods"),
    ],
)
def test_a_surname_that_is_a_word_is_masked_where_prose_means_somebody(text, name):
    session = Masker(BOTH).session()
    assert session.text(text) == text
    session.text(INTRODUCED)
    assert name not in session.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "The snow is brown.",
        "Snow fell all night.",
        "Brown sugar, please.",
        "See Page 17 and the Page after it.",
        "Page not found.",
        "Der Koch ist da.",
        "ein Koch",
        "She studies at Brown University.",
        "in Brown & Co",
        "Brown-Forman",
        "PAGE BREAK",
        "Mark all as read.",
        "A Snow Leopard.",
        "| Page | Mark |",
        '{"page": "Page", "grace": 3}',
        "Grace period",
        "Brown",
    ],
)
def test_a_word_that_is_a_customer_s_surname_stays_a_word(text):
    session = Masker(BOTH).session()
    session.text(INTRODUCED)
    assert session.text(text) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Cognome: Rossi\nNome: Chiara\nCodice: 1", "Chiara"),
        ("Surname: Rossi\nGiven names: Chiara\n", "Chiara"),
        ("Caller Anna Lind says that it rings.", "Anna Lind"),
        ("Passenger Anna Lind wants a window seat.", "Anna Lind"),
        ("Emergency contact: Anna Lind\nPhone: none", "Anna Lind"),
        ("Requested by: Anna Lind\nItem: hose", "Anna Lind"),
        ("Targa: 1; proprietario: Anna Lind; pratica 2", "Anna Lind"),
        ("Hey team, Anna van den Lind <a@b.example> asked.", "Anna van den Lind"),
    ],
)
def test_more_words_that_announce_a_name(text, name):
    assert name not in mask_pii(text, BOTH)


@pytest.mark.parametrize(
    "text",
    [
        "Customer Success meets on Monday.",
        "User Interface Design is dull.",
        "Guest Access Control",
        "the restaurant name: Golden Dragon",
    ],
)
def test_roles_with_a_capital_are_not_always_people(text):
    assert mask_pii(text, PEOPLE) == text


@pytest.mark.parametrize(
    "text",
    [
        "INFO login user={} ip=x",
        '{{"user": "{}", "n": 1}}',
        '203.0.113.9 - {} [10/Oct/2024:13:55:36 +0000] "GET / HTTP/1.1" 200 1',
        "sshd[17]: Accepted publickey for {} from 203.0.113.9 port 22",
        "sshd[17]: Failed password for invalid user {} from 203.0.113.9 port 22",
    ],
)
@pytest.mark.parametrize("user", ["jdoe42", "m.koch3", "peter-s9"])
def test_user_names_in_logs(text, user):
    assert "[REDACTED_USERNAME]" in mask_pii(text.format(user))
    assert "USERNAME" not in mask_pii(text.format("root"))


@pytest.mark.parametrize("text", ["for step2 in steps", "wait for build7 from CI", "user = User2()", "a - b2 [c]"])
def test_words_with_digits_that_are_not_user_names(text):
    assert mask_pii(text) == text
