"""Settings that cannot work are refused where they are given, in one line that says what to write instead."""

import pytest

from ctxguard.errors import ConfigError
from ctxguard.pii import (
    STANDARD,
    Masker,
    Rule,
    RuleSet,
    Vault,
    country_rules,
    find_pii,
    mask_pii,
    new_key,
    validate_no_pii,
)
from ctxguard.stores import MemoryStore

KEY = new_key()
TICKET = Rule("ticket", "TICKET", r"HERON-\d+")


def vault(**settings):
    return Vault(MemoryStore(), **{"key": KEY, **settings})


def nothing(text):
    return []


REFUSED = [
    ("vault", "Vault.session", lambda: Masker(vault=vault())),
    ("vault", "Vault.session", lambda: Masker(vault="v.db")),
    ("store", r"open_store\('v.db'\)", lambda: Vault("v.db", key=KEY)),
    ("store", "NoneType", lambda: Vault(None, key=KEY)),
    ("key", "new_key", lambda: vault(key=5)),
    ("key", "new_key", lambda: vault(key=b"x" * 32)),
    ("key", "new_key", lambda: vault(key=[KEY, 5])),
    ("key", "new_key", lambda: vault(key="abc")),
    ("key", "new_key", lambda: vault(key=KEY[:9] + "!!" + KEY[9:])),
    ("ttl", "seconds", lambda: vault(ttl="60")),
    ("ttl", "seconds", lambda: vault(ttl=0)),
    ("session", "name", lambda: vault().session(5)),
    ("session", "name", lambda: vault().session("")),
    ("countries", r"for de; write DE", lambda: country_rules("de")),
    ("countries", r"country_rules\('DE', 'US'\)", lambda: country_rules(["DE", "US"])),
    ("countries", "no rules for 5", lambda: country_rules(5)),
    ("countries", "name one or more", country_rules),
    ("pattern", r"pattern of rule badge .*position 1", lambda: Rule("badge", "BADGE", "((")),
    ("pattern", "pattern of rule badge.*position 1", lambda: Rule("badge", "BADGE", "a(?i)b")),
    ("pattern", "rule badge is empty", lambda: Rule("badge", "BADGE", "")),
    ("pattern", "rule badge .*string", lambda: Rule("badge", "BADGE", 5)),
    ("context", "context of rule badge", lambda: Rule("badge", "BADGE", "a", context="[")),
    ("quiet", "quiet of rule badge", lambda: Rule("badge", "BADGE", "a", quiet="*")),
    ("tail", "tail of rule badge", lambda: Rule("badge", "BADGE", "a", tail=")")),
    ("validate", "rule badge .*module:function", lambda: Rule("badge", "BADGE", "a", validate="function")),
    ("validate", "rule badge .*module:function", lambda: Rule("badge", "BADGE", "a", validate=5)),
    ("label", "label of rule badge", lambda: Rule("badge", 5, "a")),
    ("strategy", "unknown strategy 'mask' for EMAIL", lambda: Masker(strategy={"EMAIL": "mask"})),
    ("strategy", "unknown strategy 'mask'", lambda: Masker(strategy="mask")),
    ("strategy", "redact, pseudonymize, hash, partial", lambda: Masker(strategy=5)),
    ("strategy", "redact, pseudonymize, hash, partial", lambda: Masker(strategy=["redact"])),
    ("key", "16 bytes", lambda: Masker(strategy="hash", key=5)),
    ("on_detector_error", "'raise' or 'redact'", lambda: Masker(on_detector_error="ignore")),
    ("timeout", "seconds", lambda: Masker(nothing, timeout="1")),
    ("timeout", "seconds", lambda: Masker(timeout=-1)),
    ("rules", "'STANDARD'", lambda: mask_pii("x", rules="STANDARD")),
    ("rules", "None", lambda: mask_pii("x", rules=None)),
    ("rules", "rule ticket.*RuleSet", lambda: mask_pii("x", rules=TICKET)),
    ("rules", "rule ticket.*RuleSet", lambda: mask_pii("x", rules=[STANDARD, TICKET])),
    ("rules", "rules is empty", lambda: Masker([])),
    ("rules", "'STANDARD'", lambda: find_pii("x", rules="STANDARD")),
    ("rules", "'STANDARD'", lambda: validate_no_pii("x", rules="STANDARD")),
    ("name", r"RuleSet\('name', \(rule, …\)\)", lambda: RuleSet([TICKET])),
    ("rules", r"RuleSet\('name', \(rule, …\)\)", lambda: RuleSet("tickets", TICKET)),
    ("rules", "'ticket'", lambda: RuleSet("tickets", ("ticket",))),
    ("allow", "list of strings", lambda: RuleSet("tickets", (TICKET,), allow="HERON-1")),
    ("allow", "list of strings", lambda: STANDARD.allowing("jane@site.org")),
    ("deny", "list of strings", lambda: STANDARD.denying("Project Heron")),
    ("deny", "pairs", lambda: RuleSet("tickets", (TICKET,), deny=("Project Heron",))),
    ("labels", "'EMIAL'.*EMAIL", lambda: STANDARD.only("EMIAL")),
    ("labels", "'EMIAL'.*EMAIL", lambda: STANDARD.without("PHONE", "EMIAL")),
    ("labels", "'EMAIL', 'IP'", lambda: STANDARD.only(["EMAIL", "IP"])),
    ("rules", r"RuleSet\('name', \(rule, …\)\)", lambda: STANDARD | TICKET),
]


@pytest.mark.parametrize(("setting", "message", "give"), REFUSED)
def test_settings_that_cannot_work_are_refused_where_they_are_given(setting, message, give):
    with pytest.raises(ConfigError, match=message) as caught:
        give()
    assert caught.value.setting == setting
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("value", [5365228741, None, b"jane@site.org", ["jane@site.org"]])
@pytest.mark.parametrize(
    "use", [mask_pii, find_pii, STANDARD.find, STANDARD.scan, Masker().mask, Masker(nothing).mask, Masker(nothing).find]
)
def test_what_is_no_text_is_a_type_error_that_does_not_repeat_it(use, value):
    with pytest.raises(TypeError, match=f"expected a string, got .*{type(value).__name__}") as caught:
        use(value)
    assert "8741" not in str(caught.value)
    assert "jane" not in str(caught.value)


@pytest.mark.parametrize("value", [123, None, b"jane@site.org", ["x", None]])
def test_what_is_neither_text_nor_artifact_is_not_called_clean(value):
    with pytest.raises(TypeError, match="expected strings or artifacts, got"):
        validate_no_pii(value)


@pytest.mark.parametrize("place", ["no.such.module:check", "ctxguard.pii.detect.validate:no_such_function"])
def test_a_validator_that_is_not_there_is_named_with_its_rule(place):
    rules = RuleSet("badges", (Rule("badge", "BADGE", "a", validate=place),))
    with pytest.raises(ConfigError, match=f"validate of rule badge.*{place}"):
        rules.find("a")


def test_rules_may_come_as_a_list_and_allowed_values_in_any_case():
    rules = RuleSet("tickets", [TICKET], allow=["HERON-7"], deny=[["Project Heron", "CODENAME"]])
    assert [span.label for span in rules.find("HERON-1 HERON-7 project heron")] == ["TICKET", "CODENAME"]
    assert hash(rules) == hash(RuleSet("tickets", (TICKET,), allow={"heron-7"}, deny=(("Project Heron", "CODENAME"),)))


def test_everything_is_found_by_several_detectors_in_one_call():
    text = "HERON-1 jane@site.org"
    assert [span.label for span in find_pii(text, [STANDARD, RuleSet("t", [TICKET])])] == ["TICKET", "EMAIL"]
