"""What is loaded on first use can be loaded on purpose."""

from __future__ import annotations

import pytest

import ctxguard
from ctxguard.errors import ConfigError
from ctxguard.pii import PEOPLE, STANDARD
from ctxguard.pii.detect.match import compiled

TEXT = """
Jane's passport no. is K1234567, her user name: jdoe42, password: Som!mer2024!
driver license: D1234567, VIN WVWZZZ1JZ3W386752, born on 12 May 1980, SSN 078-05-1120
user,password,api key
jdoe42,Som!mer2024!,sk_live_4eC39HqLyjWDarjtT1zdp7dc
"""


@pytest.mark.parametrize("sets", [(), (STANDARD | PEOPLE,)], ids=["standard", "with people"])
def test_a_warm_process_compiles_no_expression_of_a_rule(sets):
    ctxguard.warm(*sets)
    compiled_so_far = compiled.cache_info().misses
    for rules in sets or (STANDARD,):
        assert rules.find(TEXT)
    assert compiled.cache_info().misses == compiled_so_far


def test_the_tokenizer_of_a_model_is_loaded_too():
    ctxguard.warm(STANDARD.only("EMAIL"), model="gpt-4o")


def test_what_is_no_rule_set_is_refused_by_name():
    with pytest.raises(ConfigError, match="takes rule sets, such as STANDARD, not str"):
        ctxguard.warm("standard")
