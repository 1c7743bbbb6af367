"""What heads a column of a table holds for its cells, however the table is written."""

import json

import pytest

from ctxguard.pii import PEOPLE, STANDARD, mask_pii

TABLES = {
    "lists": '[["order", "ssn"], ["219099999", "{0}"], ["219099998", "{1}"]]',
    "columns and data": '{{"columns": ["order", "ssn"], "index": [0, 1], "data": [[219099999, "{0}"], [219099998, "{1}"]]}}',
    "fields and rows": '{{"fields":["order","ssn"],"rows":[["219099999","{0}"],["219099998","{1}"]]}}',
    "indented": '{{\n  "headers": [\n    "order",\n    "ssn"\n  ],\n  "rows": [\n    [\n      219099999,\n      "{0}"\n    ],\n'
    '    [\n      219099998,\n      "{1}"\n    ]\n  ]\n}}',
    "insert": "INSERT INTO shop.t (order_no, ssn) VALUES (219099999, '{0}'), (219099998, '{1}');",
    "insert of names in quotes": "insert into \"t\" (\"order\", \"ssn\") values ('a, b 219099999', '{0}'),\n(NOW(), '{1}')",
    "copy": "COPY t (order_no, ssn) FROM stdin;\n219099999\t{0}\n219099998\t{1}\n\\.\n",
    "html": "<table><thead><tr><th>Order</th><th class='x'>SSN</th></tr></thead><tbody>"
    "<tr><td>219099999</td><td><b>{0}</b></td></tr>\n<tr><td>219099998</td><td>{1}</td></tr></tbody></table>",
}


@pytest.mark.parametrize("form", TABLES)
def test_a_heading_is_the_word_before_each_cell_of_its_column(form):
    values = "536228741", "412335568"
    text = TABLES[form].format(*values)
    assert [text[span.start : span.end] for span in STANDARD.find(text)] == [*values]
    assert STANDARD.find(text) == STANDARD.scan(text)
    assert mask_pii(text) == TABLES[form].format("[REDACTED_SSN]", "[REDACTED_SSN]")


@pytest.mark.parametrize(
    "text",
    [
        '[["phone", "n/a"], {"order": "2015553334"}]',
        '{"columns": ["phone", "x"]} [[2015553334, 1], [2015553335, 2]]',
        "[[1, 2], [536228741, 412335568]]",
        "INSERT INTO t (ssn, note) VALUES (NULL, 'nothing is known of this one'); SELECT 536228741",
        "<tr><th>SSN</th><th>Order</th></tr></table> see order 536228741",
    ],
)
def test_a_heading_says_nothing_of_what_stands_outside_of_its_table(text):
    assert STANDARD.find(text) == ()


def test_a_table_in_arguments_is_masked_and_parses():
    table = {"columns": ["name", "dob"], "data": [["x", "1980-02-03"], ["y", "1975-11-30"]]}
    assert json.loads(mask_pii(json.dumps(table)))["data"] == [
        ["x", "[REDACTED_DATE_OF_BIRTH]"],
        ["y", "[REDACTED_DATE_OF_BIRTH]"],
    ]


@pytest.mark.parametrize(
    "piece",
    [
        "[[",
        '[["a","b"],',
        '"columns":["a","b"],',
        "insert into t (a,b) values (",
        "<tr><th>a</th><th>b</th>",
        '[["a',
        "('",
    ],
)
def test_what_only_begins_like_tables_holds_none(piece):
    assert STANDARD.find(piece * 3_000 + " order 536228741") == ()


SURNAMES = [
    "d'Arc",
    "l'Hôpital",
    "O'Neil",
    "al-Rashid",
    "D’Angelo",
    "N'Diaye",
    "el-Sayed",
    "de los Santos",
    "ter Quol-Zruz",
]
RECORDS = {
    "csv": "id,first_name,last_name\n17,Zora,{0}\n",
    "quoted csv": '"id","last_name"\n"17","{0}"\n',
    "markdown": "| id | last_name |\n|---|---|\n| 17 | {0} |\n",
    "aligned": "id  last_name\n17  {0}\n",
    "object": '{{"last_name": "{0}", "id": 17}}',
    "lists": '[["id", "last_name"], [17, "{0}"]]',
    "columns and rows": '{{"columns": ["id", "last_name"], "rows": [[17, "{0}"]]}}',
    "html": "<table><tr><th>id</th><th>last_name</th></tr><tr><td>17</td><td>{0}</td></tr></table>",
    "insert": "INSERT INTO u (id, last_name) VALUES (17, '{1}');",
    "escaped insert": "INSERT INTO u (id, last_name) VALUES (17, '{2}');",
    "insert on lines": "INSERT INTO u\n  (id, last_name)\nVALUES\n  (16, 'Xerx'),\n  (17, '{1}');",
    "copy": "COPY u (id, last_name) FROM stdin;\n17\t{0}\n\\.\n",
    "yaml": "last_name: {0}\nid: 17\n",
    "form": "Last name: {0}\n",
    "dict": "{{'last_name': \"{0}\", 'id': 17}}",
}


@pytest.mark.parametrize("form", RECORDS)
@pytest.mark.parametrize("surname", SURNAMES)
def test_a_surname_with_an_apostrophe_or_a_hyphen_is_found_in_every_record(form, surname):
    written = (surname, surname.replace("'", "''"), surname.replace("'", "\\'"))
    for before in ("", "Zora "):
        text = RECORDS[form].format(*(before + one for one in written))
        masked = mask_pii(text, STANDARD | PEOPLE)
        assert not any(
            part in masked for part in surname.replace("’", "'").replace("'", " ").split() if len(part) > 3
        ), masked


@pytest.mark.parametrize("value", ["camelCase", "iPhone", "x-apiKey", "lastName", "e-mailAddress"])
def test_an_identifier_is_no_name(value):
    assert mask_pii(f"id,last_name\n17,{value}\n", STANDARD | PEOPLE) == f"id,last_name\n17,{value}\n"
