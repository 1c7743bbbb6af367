"""Scoring: what the numbers mean, and the command that prints them."""

import gzip
import importlib.util
import json

import pytest
from typer.testing import CliRunner

from ctxguard.errors import SessionFileError
from ctxguard.pii import STANDARD, PresidioDetector, Span, evaluate, read_gold
from ctxguard.pii.cli import app
from ctxguard.pii.evaluation import Example, Score


class Fixed:
    name = "fixed"

    def __init__(self, *spans):
        self.spans = spans

    def find(self, text):
        return self.spans


def test_masked_means_every_letter_and_digit_is_covered_and_right_means_touching():
    example = Example("id 12-34 x", (Span(3, 8, "ID"),))
    scores = evaluate(Fixed(Span(3, 5, "ID"), Span(6, 8, "NUMBER"), Span(9, 10, "ID")), [example])
    assert scores.labels["ID"] == Score(gold=1, masked=1, predicted=2, right=1)
    assert scores.labels["NUMBER"] == Score(predicted=1, right=1)
    assert evaluate(Fixed(Span(3, 7, "ID")), [example]).labels["ID"].masked == 0


def test_f_scores_weigh_recall():
    score = Score(gold=10, masked=9, predicted=12, right=6)
    assert (score.recall, score.precision) == (0.9, 0.5)
    assert score.f(1) == pytest.approx(9 / 14)
    assert score.f(2) == pytest.approx(5 * 0.45 / (4 * 0.5 + 0.9))
    assert Score().f(2) == 1.0
    assert Score(gold=1, predicted=1).f(2) == 0.0


def gold_file(path):
    rows = [
        {"text": "mail jane@site.org", "spans": [{"start": 5, "end": 18, "label": "EMAIL"}]},
        {"text": "nothing here", "spans": []},
    ]
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return str(path)


def test_the_command_prints_scores(tmp_path):
    file = gold_file(tmp_path / "gold.jsonl.gz")
    result = CliRunner().invoke(app, ["eval", file, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["labels"]["EMAIL"]["f2"] == 1.0
    assert "EMAIL" in CliRunner().invoke(app, ["eval", file]).stdout


def test_files_that_hold_no_gold_end_with_two_and_one_line(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": 1}\n')
    for path in (str(bad), str(tmp_path / "none.jsonl")):
        result = CliRunner().invoke(app, ["eval", path])
        assert result.exit_code == 2
        assert len(result.stderr.strip().splitlines()) == 1
    with pytest.raises(SessionFileError, match=r"bad\.jsonl:1: a line must be"):
        list(read_gold(bad))


GOALS = {"presidio-research": (0.95, 0.99), "presidio-tests": (0.95, 0.90)}
STRUCTURED = ("EMAIL", "PHONE", "CREDIT_CARD", "SSN", "IBAN", "IP", "MAC", "CRYPTO")


@pytest.mark.parametrize("source", GOALS)
def test_marked_texts_score_as_promised(source, transcripts):
    file = transcripts.parent / "pii" / f"{source}.jsonl.gz"
    scores = evaluate(STANDARD, read_gold(file), labels=STRUCTURED).total
    f2, precision = GOALS[source]
    assert scores.f(2) >= f2
    assert scores.precision >= precision


@pytest.mark.skipif(importlib.util.find_spec("presidio_analyzer") is None, reason="presidio-analyzer is not installed")
def test_presidio_joins_in_without_a_model():
    text = "mail jane@site.org"
    assert [(s.label, text[s.start : s.end]) for s in PresidioDetector(entities=["EMAIL_ADDRESS"]).find(text)] == [
        ("EMAIL", "jane@site.org")
    ]
