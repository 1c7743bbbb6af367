"""Every different line that reports an error is found, wherever it stands and whatever surrounds it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.content import FileType, bound
from ctxguard.tokens import find_counter
from ctxguard.views.processors.log import error_rank, find_errors, line_template

count = find_counter("estimate").count
lines = st.one_of(
    st.sampled_from(
        [
            "INFO all is well",
            "ERROR disk full",
            "ERROR disk 12 full",
            "ValueError: no",
            "warning: old",
            "level=error msg=x",
            "E   assert 1 == 2",
            "größer → ERROR",
            "",
        ]
    ),
    st.text(st.characters(exclude_characters="\n"), max_size=20),
)


def spelled(number):
    """Return a word that differs from line to line in letters, as random identifiers do."""
    return "".join(string.ascii_lowercase[number // 26**place % 26] for place in range(5))


@given(st.lists(lines, max_size=40), st.booleans())
def test_first_line_of_every_kind_is_found_in_its_place(parts, ends):
    text = "\n".join(parts) + ("\n" if ends and parts else "")
    written = text.split("\n")[: None if text and not text.endswith("\n") else -1]
    found = find_errors(text)
    assert found.lines == len(written)
    for hit in (*found.firsts, *found.repeats):
        assert text[hit.span.start : hit.span.end] == written[hit.span.number]
        assert error_rank(written[hit.span.number]) == hit.rank > 0
    strong = {line_template(line) for line in written if error_rank(line) == 4}
    assert strong == {line_template(written[hit.span.number]) for hit in found.firsts if hit.rank == 4}


@pytest.mark.parametrize(
    "noise",
    [
        "2026-01-02 10:00:00 INFO errors=0 failed=0 request {n}",
        "2026-01-02 10:00:00 INFO request {word} errors=0 failed=0",
        "2026-01-02 10:00:00 INFO request {word} served",
        "2026-01-02 10:00:00 INFO größer → {word}",
        "2026-01-02 10:00:00 WARN retry {n}",
        "2026-01-02 10:00:00 ERROR timeout after {n} ms",
    ],
)
def test_one_error_among_very_many_lines_is_shown(noise):
    quiet = [noise.format(n=n, word=spelled(n)) for n in range(40_000)]
    quiet.insert(20_000, "2026-01-02 10:00:00 ERROR disk full")
    view = bound("\n".join(quiet), 400, count=count, file_type=FileType.LOG)
    assert "ERROR disk full" in view.content
    assert view.info.lines_total == 40_001


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("2026-01-02 ERROR no route", 4),
        ("java.io.IOException: closed", 4),
        ("error: no such file", 4),
        ('{"level":"error","msg":"x"}', 4),
        ("[error] nginx", 4),
        ("process ended with exit code 3", 4),
        ("Traceback (most recent call last):", 4),
        ("DNS NOERROR", 2),
        ("raised a ValueError there", 3),
        ("E       assert 1 == 2", 3),
        ("errors=0", 2),
        ("a warning", 1),
        ("all is well", 0),
    ],
)
def test_lines_are_ranked_by_how_much_they_matter(line, rank):
    assert error_rank(line) == rank
