"""However a table is written, the heading of a column holds for its cells and for no others."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ctxguard.pii import STANDARD

words = st.sampled_from(["note", "item", "city", "color", "remark"])
cells = st.sampled_from(["plain", "a, b", "x (y)", "it's", 'say "hi"', "[1]", "", "order 96135542"])
numbers = st.from_regex("[1-5][0-9]{2}[1-8][0-9][1-9][0-9]{3}", fullmatch=True).filter(lambda value: value[:3] != "666")


def as_lists(headings, rows):
    return json.dumps([headings, *rows])


def as_columns(headings, rows):
    return json.dumps({"columns": headings, "index": [*range(len(rows))], "data": rows}, indent=1)


def as_insert(headings, rows):
    quoted = (", ".join("'" + cell.replace("'", "''") + "'" for cell in row) for row in rows)
    return f"INSERT INTO t ({', '.join(headings)}) VALUES {', '.join(f'({row})' for row in quoted)};"


def as_copy(headings, rows):
    return f"COPY t ({', '.join(headings)}) FROM stdin;\n" + "".join("\t".join(row) + "\n" for row in rows) + "\\.\n"


def as_html(headings, rows):
    lines = (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in headings)}</tr>{''.join(lines)}</table>"


@given(
    form=st.sampled_from([as_lists, as_columns, as_insert, as_copy, as_html]),
    before=st.lists(words, max_size=2, unique=True),
    behind=st.lists(words, min_size=1, max_size=2, unique=True),
    values=st.lists(numbers, min_size=1, max_size=5),
    data=st.data(),
)
def test_the_cells_of_a_labeled_column_are_found(form, before, behind, values, data):
    others = st.tuples(*[cells] * (len(before) + len(behind)))
    drawn = [data.draw(others) for _ in values]
    rows = [[*row[: len(before)], value, *row[len(before) :]] for row, value in zip(drawn, values, strict=True)]
    text = form([*before, "ssn", *behind], rows)
    found = [text[span.start : span.end] for span in STANDARD.find(text)]
    assert found == values
    assert STANDARD.find(text) == STANDARD.scan(text)
