"""The words of each language are data that anybody can add to, and what breaks the schema is refused in one line."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest

import ctxguard
from ctxguard.errors import ConfigError
from ctxguard.pii import PEOPLE, STANDARD, Rule, RuleSet
from ctxguard.pii.rules import files, words
from ctxguard.pii.rules.files import RuleFile

ROOT = Path(ctxguard.__file__).parent
LANGUAGES = sorted((ROOT / "data/words").glob("*.toml"))
SCHEMA = json.loads((ROOT / "data/words/schema.json").read_text("utf-8"))


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.stem)
def test_each_language_follows_the_schema(path):
    assert re.fullmatch("[a-z]{2}", path.stem)
    jsonschema.validate(tomllib.loads(path.read_text("utf-8")), SCHEMA)
    assert words.language_of(path)


def test_each_section_has_words_and_is_read():
    used = {section for path in LANGUAGES for section in tomllib.loads(path.read_text("utf-8"))}
    assert used == SCHEMA["properties"].keys()
    sources = [*(ROOT / "pii").rglob("*.py"), *(ROOT / "data/rules").glob("*.toml")]
    source = "\n".join(path.read_text("utf-8") for path in sources)
    assert [name for name in sorted(used) if not re.search(rf"[\"'{{]{name}[\"'}}]", source)] == []


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A copy of the data that a test may change, read instead of the shipped one."""
    for source in (ROOT / "data").rglob("*.*"):
        if source.suffix in (".toml", ".json"):
            target = tmp_path / source.relative_to(ROOT / "data")
            target.parent.mkdir(exist_ok=True)
            target.write_text(source.read_text("utf-8"), "utf-8")
    caches = (words.words, words.sections, words._languages, words.read_toml)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setattr(words, "_WORDS", tmp_path / "words")
    monkeypatch.setattr(files, "DATA", tmp_path)
    yield tmp_path
    for cached in caches:
        cached.cache_clear()


def test_a_new_word_needs_no_python(data):
    czech = data / "words/cs.toml"
    text = "zavolejte na bzučák 123456789"
    assert RuleSet("phones", RuleFile("phones", REGIONS="GB").rules()["rules"]).find(text) == ()
    czech.write_text(czech.read_text("utf-8").replace("phones = [", "phones = ['bzučák', "), "utf-8")
    words.words.cache_clear()
    words._languages.cache_clear()
    words.read_toml.cache_clear()
    found = RuleSet("phones", RuleFile("phones", REGIONS="GB").rules()["rules"]).find(text)
    assert [text[span.start : span.end] for span in found] == ["123456789"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("phnes = ['x']", "xx.toml: unknown section 'phnes'; schema.json lists them"),
        ("phones = 'x'", 'xx.toml: phones must be a list of words: ["…", "…"]'),
        ("phones = ['x', 7]", 'xx.toml: phones must be a list of words: ["…", "…"]'),
        ("phones = ['x'", "xx.toml cannot be read: "),
    ],
)
def test_a_file_of_words_that_breaks_the_schema_is_refused_in_one_line(data, content, message):
    (data / "words/xx.toml").write_text(content, "utf-8")
    with pytest.raises(ConfigError) as refused:
        words.words("phones")
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[rules]]\npatern = 'x'", "own.toml has a rule with an unknown field 'patern' (did you mean 'pattern'?)"),
        ("[[rules]]\npattern = '{STRT}x'", "own.toml refers to {STRT}, which is neither a piece nor a section"),
        ("[pieces]\nA = '{B}'\nB = 'b'", "own.toml refers to {B}, which is neither a piece nor a section"),
    ],
)
def test_a_file_of_rules_that_cannot_be_read_is_refused_in_one_line(data, content, message):
    (data / "rules/own.toml").write_text(content, "utf-8")
    with pytest.raises(ConfigError) as refused:
        RuleFile("own").rules()
    assert str(refused.value) == message


def test_each_shipped_rule_passes_the_checks_of_a_rule_of_ones_own():
    for rule in (*STANDARD.rules, *PEOPLE.rules):
        own = {field.name: getattr(rule, field.name) for field in fields(Rule)}
        assert Rule(own.pop("name"), own.pop("label"), own.pop("pattern"), **own) == rule, rule.name


def test_an_expression_on_several_lines_is_joined(data):
    (data / "rules/own.toml").write_text(
        "[pieces]\nA = '''\n  x\n  y z'''\n[[rules]]\nname = 'n-{NAME}'\nlabel = 'N'\npattern = '{A}-{EACH}'\n"
        "tail = ' t'\n[rules.each]\none = '1'\ntwo = '2'\n",
        "utf-8",
    )
    rules = RuleFile("own").rules()["rules"]
    assert [(rule.name, rule.pattern, rule.tail) for rule in rules] == [
        ("n-one", "xy z-1", " t"),
        ("n-two", "xy z-2", " t"),
    ]
