"""Digests: a few tokens that say what a text was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import is_linear

from ctxguard.tokens import find_counter
from ctxguard.views.digests import digest, digest_view
from ctxguard.views.names import labeled, labeled_names, names_in

COUNT = find_counter("o200k_base").count

LOG = """\
============ test session starts ============
collected 48 items
src/app/loader.py ........
FAILED tests/test_loader.py::test_missing_key - KeyError: 'region'
E   KeyError: 'region'
=========== 1 failed, 47 passed in 3.21s ===========
"""
ORDER = '{"order_id": "#W2378156", "status": "delivered", "items": [{"item_id": "1656367028", "price": 110.22}]}'
SOURCE = "import os\n\nclass ConfigLoader:\n    def read_file(self):\n        return 1\n\ndef main_entry():\n    pass\n"
HOSTILE = {
    "one line of 5 MB": "x1y" * 1_700_000,
    "one line of spaces": " " * 5_000_000,
    "binary": "".join(map(chr, range(1, 256))) * 2_000 + "\ud800",
    "deep JSON": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "wide JSON": json.dumps({f"key_{n}": n for n in range(100_000)}),
    "many lines": "Error: line_1\n" * 400_000,
    "one long number": "1" * 200_000,
    "blank lines in a program": "}\n" * 20 + "\n" * 60_000 + "}\n" * 20,
    "empty": "",
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("open src/app/loader.py, line 4711.", ("src/app/loader.py", "4711")),
        ("user mia_li_3668 paid with PUNERT", ("mia_li_3668", "PUNERT")),
        ("ToolCall and os.path, but no words", ("ToolCall", "os.path")),
        ("a ruby :not_found symbol", (":not_found",)),
        ("größe_2 in jeder Sprache", ("größe_2",)),
        ("------ //// ....", ()),
    ],
)
def test_names_are_what_a_later_step_would_repeat(text, names):
    assert names_in(text) == names


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("A7" * 150, "A7A7"),
        ("iVBORw0KGgo" * 40, "iVBORw0KGgo"),
        ("the customer wants the window seat and nothing else, and says so again and again", "the customer wants"),
        (True, "true"),
        (False, "false"),
        (0.0, "0.0"),
        ("short", "short"),
    ],
)
def test_each_kind_of_value_of_json_is_told_with_its_key(value, told):
    for tree in ({"roaming": value, "n": 5}, [{"roaming": value, "n": 5}], {"of": {"roaming": [value]}, "n": 5}):
        assert f"roaming {told}" in digest(json.dumps(tree), 100, count=COUNT)


def test_long_values_are_told_after_names_and_short_ones():
    text = json.dumps({"note": "word " * 80, "id": "A-4711", "city": "Rome"})
    assert "A-4711" in digest(text, 8, count=COUNT)
    assert "note" not in digest(text, 8, count=COUNT)


def test_the_rarest_names_come_in_their_order():
    names = labeled_names("id_1 name_a id_2 name_a id_3 name_a", 3)
    assert names == (("", "id_1"), ("", "id_2"), ("", "id_3"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            '{"order_id": "A-17", "items": ["B-18", "C-19"]}',
            [("order_id", "A-17"), ("items", "B-18"), ("items", "C-19")],
        ),
        ('{"src/app.py": "modified"}', [("", "src/app.py")]),
        ('{"note": "see src/app.py and A-17"}', [("", "src/app.py"), ("", "A-17")]),
        ('{"order_id": "A-17", "cut', [("order_id", "A-17")]),
        ("Order number: A-17\nB-18", [("Order number", "A-17"), ("", "B-18")]),
        ("- **User id:** mia_li_36", [("User id", "mia_li_36")]),
        ("state=on user_id=42_a", [("user_id", "42_a")]),
    ],
)
def test_names_know_what_they_are_the_value_of(text, names):
    assert list(labeled_names(text)) == names


def test_a_label_is_told_once_before_its_names():
    assert labeled([("id", "a_1"), ("id", "a_2"), ("", "b_1"), ("id", "a_3")]) == "id a_1 a_2 b_1 id a_3"


def test_the_digest_of_a_test_run_says_how_it_ended_and_what_failed():
    told = digest(LOG, 60, count=COUNT)
    assert "1 failed, 47 passed" in told
    assert "test_missing_key" in told


def test_the_digest_of_json_holds_keys_with_their_values():
    told = digest(ORDER, 60, count=COUNT)
    assert "order_id #W2378156" in told
    assert "1656367028" in told


def test_names_of_json_come_before_its_other_values():
    user = {
        "first_name": "Daiki",
        "city": "Chicago",
        "address": "594 Chestnut Street",
        "orders": ["W-70412", "W-70413"],
    }
    assert digest(json.dumps(user), 12, count=COUNT) == "orders W-70412 W-70413"
    told = digest(json.dumps(user), 60, count=COUNT)
    assert "first_name Daiki" in told
    assert "W-70413" in told


def test_values_of_json_stand_with_what_they_belong_to():
    flights = [{"flight_number": f"HAT{n}", "date": f"2024-05-{n}", "price": n, "cabin": "economy"} for n in (21, 28)]
    told = digest(json.dumps(flights), 60, count=COUNT)
    first = "flight_number HAT21 date 2024-05-21 price 21 cabin economy"
    assert told == f"2 items; {first} flight_number HAT28 date 2024-05-28 price 28"


def test_the_digest_of_yaml_says_what_its_times_are_of():
    calendar = "- all_day: false\n  start_time: 2024-05-15 12:30:00\n  title: Lunch with Mia\n"
    calendar += "- all_day: false\n  start_time: 2024-05-15 15:00:00\n  title: Team sync\n"
    told = digest(calendar, 60, count=COUNT)
    assert "start_time 2024-05-15 12:30:00 title Lunch with Mia" in told
    assert "start_time 2024-05-15 15:00:00 title Team sync" in told


ISSUE = """\
○ shop-17 [TASK] · Let customers change the delivery address of an open order   [● P2 · OPEN]
Owner: Mia · Created: 2026-02-11

## Solution
Add a form to order_page.py. See docs/orders.md, OrderForm, and test_orders.py for what there is.
"""


def test_the_digest_of_an_issue_begins_with_what_it_asks_for():
    told = digest(ISSUE, 60, count=COUNT)
    assert "Let customers change the delivery address" in told
    assert "docs/orders.md" in told


def test_the_digest_of_source_names_its_definitions():
    told = digest(SOURCE, 60, count=COUNT)
    assert [told.index(name) for name in ("import os", "ConfigLoader", "read_file", "main_entry")] == sorted(
        told.index(name) for name in ("import os", "ConfigLoader", "read_file", "main_entry")
    )


def test_the_digest_of_a_table_has_its_columns():
    assert "user_id,city,total" in digest("user_id,city,total\n" + "u_1,Rome,3\n" * 500, 60, count=COUNT)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_keep_the_limit_in_little_time(kind):
    text = HOSTILE[kind]
    assert COUNT(digest(text, 60, count=COUNT)) <= 60
    assert is_linear(lambda size: digest(text[:size], 60, count=COUNT), len(text) // 4)


@given(st.text(max_size=400), st.integers(0, 80))
def test_a_digest_never_exceeds_its_limit(text, limit):
    assert COUNT(digest(text, limit, count=COUNT)) <= limit


def test_a_small_view_is_a_digest():
    view = digest_view(ORDER * 40, 100, count=COUNT, handle="tool-output:1")
    assert view.startswith("[digest of ")
    assert "handle tool-output:1" in view
    assert COUNT(view) <= 100


@given(st.text(max_size=3_000), st.integers(1, 200))
def test_a_view_keeps_its_limit_and_is_a_view_of_itself(text, limit):
    view = digest_view(text, limit, count=COUNT)
    assert COUNT(view) <= limit
    assert digest_view(view, limit, count=COUNT) == view


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (r"first\nMaybe\n/etc/hosts\nnone", ("/etc/hosts",)),
        ("\x1b[31mread_rows\x1b[0m", ("read_rows",)),
        (r"\u001b[1msrc/app.py\u001b[0mWaiting", ("src/app.py",)),
        (r"C:\temp\notes.txt", ("notes.txt",)),
        ("<head><title>x</title></head><a href='/about/team'>", ("/about/team",)),
        ("[12m3s] nMore", ("12m3s", "nMore")),
    ],
)
def test_spelled_line_breaks_colors_and_closing_tags_are_no_part_of_a_name(text, names):
    assert names_in(text) == names


def test_the_next_sentence_is_no_part_of_a_name():
    text = "All 12 pass in tests/test_app.py.Now I read src/app.py. It is 0xffffffff.We mask it; see fmt.Println, Enum.map."
    assert names_in(text) == ("tests/test_app.py", "src/app.py", "0xffffffff", "fmt.Println", "Enum.map")


def test_a_placeholder_among_names_can_be_given_back():
    text = '{"to": "<EMAIL_12>", "id": "<id_1>", "note": "call <PHONE_3> about x<EMAIL_4"}'
    assert names_in(text) == ("<EMAIL_12>", "id_1", "<PHONE_3>", "EMAIL_4")
    assert labeled_names(text)[0] == ("to", "<EMAIL_12>")


REPR = str([{"order": 3, "line": n, "state": "left the warehouse"} for n in range(400)])


@pytest.mark.parametrize("limit", [60, 120, 199])
@pytest.mark.parametrize(
    "text", [REPR, "word " * 3_000, "one line that goes on, " * 400], ids=["repr", "words", "line"]
)
def test_a_text_without_names_is_told_by_how_it_begins(text, limit):
    view = digest_view(text, limit, count=COUNT)
    assert 0.45 * limit <= COUNT(view) <= limit
    assert text[:16] in view
