"""Scoring: what the numbers mean, and the command that prints them."""

import gzip
import importlib.util
import json

import pytest
from test_cli import cli

from ctxguard.errors import ConfigError, SessionFileError
from ctxguard.pii import STANDARD, PresidioDetector, Span, evaluate, read_gold
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
    result = cli("pii", "eval", file, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["labels"]["EMAIL"]["f2"] == 1.0
    assert "EMAIL" in cli("pii", "eval", file).stdout


def test_a_share_of_nothing_is_a_dash(tmp_path):
    rows = [
        {"text": "mail jane@site.org", "spans": [{"start": 5, "end": 18, "label": "EMAIL"}]},
        {"text": "my town", "spans": [{"start": 3, "end": 7, "label": "PLACE"}]},
        {"text": "card 4111 1111 1111 1111", "spans": []},
    ]
    shown = command(tmp_path / "gold.jsonl", content="\n".join(map(json.dumps, rows))).stdout
    cells = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert cells["EMAIL"] == ["1", "1", *["1.000"] * 4]
    assert cells["PLACE"] == ["1", "0", "–", "0.000", "–", "–"]
    assert cells["CREDIT_CARD"] == ["0", "1", "0.000", "–", "–", "–"]


def test_files_that_hold_no_gold_end_with_two_and_one_line(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": 1}\n')
    for path in (str(bad), str(tmp_path / "none.jsonl")):
        result = cli("pii", "eval", path)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1
    with pytest.raises(SessionFileError, match=r"bad\.jsonl:1: a line must be"):
        list(read_gold(bad))


def command(path, *arguments, content=None):
    if content is not None:
        path.write_text(content)
    return cli("pii", "eval", str(path), *arguments)


def test_label_that_nothing_has_is_refused_with_the_known_ones(tmp_path):
    file = gold_file(tmp_path / "gold.jsonl.gz")
    for labels in ("emial", "EMAIL,emial"):
        result = command(tmp_path / "gold.jsonl.gz", "--labels", labels)
        assert result.returncode == 2
        assert result.stdout == ""
        assert len(result.stderr.strip().splitlines()) == 1
        assert "'emial'" in result.stderr
        assert "did you mean 'EMAIL'?" in result.stderr
    with pytest.raises(ConfigError, match="unknown label 'emial'") as caught:
        evaluate(STANDARD, read_gold(file), labels=["emial"])
    assert caught.value.setting == "labels"


def test_label_that_only_the_file_or_only_the_rules_have_is_known(tmp_path):
    gold = '{"text": "id 7", "spans": [{"start": 3, "end": 4, "label": "HOUSE"}]}\n'
    result = command(tmp_path / "gold.jsonl", "--labels", "HOUSE,IBAN", "--json", content=gold)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["labels"]["HOUSE"]["gold"] == 1


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_file_without_texts_is_an_error_and_no_score(tmp_path, content):
    result = command(tmp_path / "gold.jsonl", content=content)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "gold.jsonl: contains no labeled texts" in result.stderr


@pytest.mark.parametrize(("start", "end"), [(5, 99), (0, 2), (-1, 1), (1, 1), (1, 0), (0, 1.0), ("0", 1), (True, 1)])
def test_span_that_is_not_in_its_text_is_one_line_with_its_number(tmp_path, start, end):
    bad = json.dumps({"text": "x", "spans": [{"start": start, "end": end, "label": "ID"}]})
    result = command(tmp_path / "gold.jsonl", content='{"text": "", "spans": []}\n' + bad + "\n")
    assert result.returncode == 2
    assert "gold.jsonl:2: " in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "line", ['{"text": 1, "spans": []}', '{"text": "x", "spans": [{"start": 0, "end": 1, "label": 3}]}']
)
def test_text_and_label_must_be_texts(tmp_path, line):
    result = command(tmp_path / "gold.jsonl", content=line)
    assert result.returncode == 2
    assert "gold.jsonl:1: a line must be" in result.stderr


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
