"""What heads a column of a table holds for its cells, however the table is written."""

import json

import pytest

from ctxguard.pii import PEOPLE, STANDARD, Rule, RuleSet, mask_pii
from ctxguard.pii.detect.fields import FieldValues, name_expression

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


# -- the end of a table


def _separated(separator):
    return lambda rows: "\n".join(separator.join(row) for row in rows)


def _markdown(frame):
    return lambda rows: "\n".join(frame.format("|".join(row)) for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def _html(rows):
    head, *body = ("".join(f"<{{0}}>{cell}</{{0}}>" for cell in row) for row in rows)
    return (
        f"<table><tr>{head.format('th')}</tr>" + "".join(f"\n<tr>{one.format('td')}</tr>" for one in body) + "</table>"
    )


WRITTEN = {
    "Markdown": lambda rows: _markdown("|{}|")([[f" {cell} " for cell in row] for row in rows]),
    "Markdown without blanks": _markdown("|{}|"),
    "Markdown without outer bars": _markdown("{}"),
    "CSV": _separated(","),
    "quoted CSV": lambda rows: _separated(",")([[f'"{cell}"' for cell in row] for row in rows]),
    "TSV": _separated("\t"),
    "semicolons": _separated(";"),
    "aligned": lambda rows: "\n".join("".join(f"{cell:<16}" for cell in row).rstrip() for row in rows),
    "HTML": _html,
}
ENDS = {
    "final newline": lambda text: text + "\n",
    "blank line": lambda text: text + "\n\n",
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CRLF at the end, too": lambda text: (text + "\n").replace("\n", "\r\n"),
    "blanks at the end": lambda text: text + "  ",
    "blanks in each line": lambda text: text.replace("\n", "  \n") + "  ",
    "blanks in each line, CRLF": lambda text: text.replace("\n", "  \r\n") + "  \r\n",
    "paragraph": lambda text: text + "\n\nThat is all for today.",
}
OWN = RuleSet("own", (Rule("field", "CUSTOMER", name_expression("customer_no"), walk=FieldValues("customer_no")),))
CUSTOMERS = [
    ["Vorname", "Nachname", "Customer No", "E-Mail", "PLZ"],
    ["Wiebke", "Müllenbach", "AB 12", "w@boite-12.fr", "26121"],
    ["Jannik", "Qorrelsen", "CD 34", "j@boite-12.fr", "28203"],
    ["Zora", "Xerxen", "EF 56", "z@boite-12.fr", "04109"],
]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("last", ["PLZ", "Nachname", "Customer No"])
@pytest.mark.parametrize("form", WRITTEN)
def test_a_table_holds_the_same_values_whatever_follows_its_last_row(form, last, number):
    column = CUSTOMERS[0].index(last)
    rows = [[*row[:column], *row[column + 1 :], row[column]] for row in CUSTOMERS[: number + 1]]
    written = WRITTEN[form](rows)
    rules = STANDARD | PEOPLE | OWN
    for text in (written, *(end(written) for end in ENDS.values())):
        found = sorted(text[span.start : span.end] for span in rules.find(text))
        assert found == sorted(cell for row in rows[1:] for cell in row), text
    told = mask_pii(json.dumps({"output": written}), rules)
    assert json.loads(told)["output"] == mask_pii(written, rules)
