"""What heads a column of a table holds for its cells, however the table is written."""

import json
from itertools import product

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
def test_a_surname_with_an_apostrophe_or_a_hyphen_is_found_in_every_record(form):
    for surname, before in product(SURNAMES, ("", "Zora ")):
        written = (surname, surname.replace("'", "''"), surname.replace("'", "\\'"))
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
    rows = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows]
    rows[0] = rows[0].replace("td>", "th>")
    return f"<table>{''.join(rows)}</table>"


def _aligned(rows):
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    lines = ("".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


WRITTEN = {
    "Markdown": lambda rows: _markdown("|{}|")([[f" {cell} " for cell in row] for row in rows]),
    "Markdown without blanks": _markdown("|{}|"),
    "Markdown without outer bars": _markdown("{}"),
    "CSV": _separated(","),
    "quoted CSV": lambda rows: _separated(",")([[f'"{cell}"' for cell in row] for row in rows]),
    "TSV": _separated("\t"),
    "semicolons": _separated(";"),
    "aligned": _aligned,
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


# -- credentials below a heading

CREDENTIALS = {
    "password": "Wald045!qY",
    "Passwort": "Regen!2024x",
    "WLAN-Passwort": "kQ7trubW9",
    "db_password": "Sommer2024!",
    "mot de passe": "Lune#88verte",
    "contraseña": "Sol2024!gris",
    "heslo": "Zima!77biala",
    "salasana": "Talvi!77lumi",
    "db_pass": "Xk7!qzTm2",
    "pwd": "h7Kd,29;x|Q",
    "api_key": "9fK2xQ7LmZ41tR8v",
    "API Key": "9fK2xQ7LmZ41tR8v",
    "secret": "S3cr7t-pw-17x",
    "Client Secret": "9fK2xQ7LmZ41tR8v",
    "access token": "9f86d081884c7d659a2feaa0c55ad015",
    "token": "tok_9fK2xQ7LmZ41",
}


def _names(headings):
    return ", ".join(f'"{cell}"' for cell in headings)


def _values(rows):
    return ", ".join("(" + ", ".join(f"'{cell}'" for cell in row) + ")" for row in rows)


INSERTED = {
    "lists": lambda rows: json.dumps(rows, ensure_ascii=False),
    "columns and rows": lambda rows: json.dumps({"columns": rows[0], "rows": rows[1:]}, ensure_ascii=False),
    "objects": lambda rows: json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]], ensure_ascii=False),
    "insert": lambda rows: f"INSERT INTO t ({_names(rows[0])}) VALUES {_values(rows[1:])};",
    "copy": lambda rows: f"COPY t ({', '.join(rows[0])}) FROM stdin;\n" + _separated("\t")(rows[1:]) + "\n\\.\n",
}


def _fits(form, cell):
    """Whether a format can hold a cell as it is: most have a separator, which would end it."""
    return "quoted" in form or form in (*INSERTED, "HTML", "aligned", "TSV") or not set(",;|") & set(cell)


@pytest.mark.parametrize("form", WRITTEN | INSERTED)
def test_a_password_or_a_secret_is_found_below_its_heading(form):
    headings = [
        heading
        for heading, cell in CREDENTIALS.items()
        if _fits(form, cell)
        and not (form == "copy" and " " in heading)
        and not (form == "objects" and heading == "API Key")  # a key of several words
    ]
    assert headings
    for heading in headings:
        value = CREDENTIALS[heading]
        for rows in (
            [["login", heading], ["harriet", value]],
            [["login", heading, "city"], ["harriet", value, "Ulm"], ["jannik", value[::-1], "Kiel"]],
        ):
            text = (WRITTEN | INSERTED)[form](rows)
            masked = mask_pii(text)
            assert not any(row[1] in masked for row in rows[1:]), masked
            assert all(row[0] in masked for row in rows[1:]), masked
            assert STANDARD.find(text) == STANDARD.scan(text), text


SECRETS = ("api_key", "secret", "token")
REMARKS = [
    *(
        "none",
        "n/a",
        "yes",
        "unknown",
        "see vault",
        "changed on 2nd May",
        "rotated 2024Q1 by ops",
        "geändert",
        "изменён",
    ),
    *("2024-01-03", "2024-01-03T10:22:45Z", "03.01.2024", "12345678", "99.25%", "********", "<hidden>", "Required!"),
    *("${DB_PASSWORD}", "OPENAI_API_KEY"),
]
NAMES = ["color-blue-500", "font-size-2xl", "gpt-4o-mini", "covid-19", "SHA-256"]


@pytest.mark.parametrize("heading", ["password", "Passwort", *SECRETS])
def test_a_remark_or_a_name_below_the_heading_of_credentials_stays(heading):
    cells = [*REMARKS, *(NAMES if heading in SECRETS else ())]
    for cell, form in product(cells, ("Markdown", "CSV", "TSV", "HTML")):
        text = WRITTEN[form]([["login", heading, "since"], ["harriet", cell, "May"], ["jannik", cell, "June"]])
        assert mask_pii(text) == text


@pytest.mark.parametrize(
    "heading", ["page token", "next_page_token", "tokens", "pass", "key", "primary key", "passing"]
)
def test_a_heading_of_something_else_announces_no_credential(heading):
    text = WRITTEN["CSV"]([["id", heading, "since"], ["a", "9fK2xQ7LmZ41tR8v", "May"]])
    assert mask_pii(text) == text


@pytest.mark.parametrize("columns", [3, 7, 12])
@pytest.mark.parametrize("separator", ["  ", ",", "\t", " | "])
def test_the_heading_counts_in_rows_of_numbers_of_any_length(columns, separator):
    names, numbers = (
        [
            "order",
            "amount",
            "cpf",
            *[
                "total",
                "balance",
                "quantity",
                "discount",
                "rate",
                "left",
                "tax",
                "share",
                "fee",
                "net",
                "gross",
                "rest",
            ][:columns],
        ],
        ["10293847", "123.45"],
    )
    rows = [separator.join(names), *[separator.join([*numbers, "11144477735", *["9912.50"] * columns])] * 3]
    text = "\n".join(rows)
    assert [span.label for span in STANDARD.find(text)] == ["BR_CPF"] * 3
    assert STANDARD.find(text) == STANDARD.scan(text)
