"""The user's own rules, fields, values, and countries, from the `pii` section of the configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Protocol

from ctxguard.errors import ConfigError
from ctxguard.pii.detect.expressions import most_steps
from ctxguard.pii.detect.fields import FieldValues, name_expression
from ctxguard.pii.detect.match import Matcher
from ctxguard.pii.mask.masking_rules import Strategy
from ctxguard.pii.mask.session import Masker
from ctxguard.pii.rule_sets import RuleSet, country_rules
from ctxguard.pii.rules.files import RuleFile
from ctxguard.pii.rules.rule import EXPRESSIONS, Rule
from ctxguard.pii.rules.standard import RULES_BY_COUNTRY
from ctxguard.pii.spans import Detector

_MOST_STEPS: Final = 4.0
"""The maximum number of steps to match at one offset, as a power of ten: 10,000, which take 10 to 20 microseconds."""
_NEEDED: Final = ("name", "label", "pattern")


class OwnSettings(Protocol):
    """The settings of the configuration section `pii` that this module reads; see `ctxguard.config.PiiConfig`."""

    rules: list[dict[str, Any]] | None
    fields: dict[str, str] | None
    deny: dict[str, list[str]] | None
    allow: list[str] | None
    countries: list[str] | None
    strategy: Strategy | dict[str, Strategy] | None


def own_rules(given: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Create rules from the fields given in a configuration, which are the same as in the library's rule files.

    Raises:
        ConfigError: If a field is missing, unknown, or invalid, or an expression could take too long to match. The
            error's `setting` is the index of the rule and the field, such as `0.pattern`.
    """
    file = RuleFile("the configuration", {})
    rules = []
    for number, one in enumerate(given):
        try:
            rules.append(_rule(file, one))
        except ConfigError as error:
            raise ConfigError(str(error), setting=f"{number}.{error.setting}") from None
    return tuple(rules)


def _rule(file: RuleFile, given: Mapping[str, Any]) -> Rule:
    missing = next((field for field in _NEEDED if not given.get(field)), None)
    if missing is not None:
        raise ConfigError(f"a rule needs a name, a label, and a pattern; {missing} is missing", setting=missing)
    rule = file.rule(**given)
    rule.__post_init__()
    Matcher(rule, 0)  # raises an error now if a function of the rule cannot be imported
    if "check" in given and not _is_number_of_stdnum(given["check"]):
        message = f"check of rule {rule.name} is not the name of a number in python-stdnum: {given['check']!r}"
        raise ConfigError(f"{message}; write luhn, br.cpf, de.idnr, …", setting="check")
    for setting in EXPRESSIONS:
        if (steps := most_steps(getattr(rule, setting))) > _MOST_STEPS:
            message = "can match one text in too many ways, or with too many steps, which is slow; shorten what repeats"
            if steps == float("inf"):
                message = "repeats something without a limit, which is slow; instead of *, + or {2,}, write {1,64}"
            raise ConfigError(f"{setting} of rule {rule.name} {message}", setting=setting)
    return rule


def _is_number_of_stdnum(name: object) -> bool:
    with suppress(ImportError):
        return hasattr(import_module(f"stdnum.{name}"), "is_valid")
    return False


def with_own(base: RuleSet, settings: OwnSettings) -> RuleSet:
    """Return `base` extended by a configuration's own rules, fields, denied and allowed values, and countries.

    The configuration's own rules come first. If the configuration lists countries, rules of all other countries are
    left out.
    """
    own = [*own_rules(settings.rules or ()), *_fields(settings.fields or {})]
    kept: Sequence[Rule] = base.rules
    if settings.countries is not None:
        chosen = country_rules(*settings.countries).rules
        others = {rule for rules in RULES_BY_COUNTRY.values() for rule in rules}.difference(chosen)
        kept = list(dict.fromkeys([*(rule for rule in base.rules if rule not in others), *chosen]))
    deny = [(word, label) for label, words in (settings.deny or {}).items() for word in words]
    allow = base.allow.union(settings.allow or ())
    return RuleSet(f"{base.name}|own", (*own, *kept), allow=allow, deny=(*base.deny, *deny))


def _fields(labels: Mapping[str, str]) -> Iterator[Rule]:
    for name, label in labels.items():
        yield Rule(f"field {name}", label, name_expression(name), walk=FieldValues(name))


def with_own_rules(detectors: Sequence[Detector], settings: OwnSettings) -> tuple[Detector, ...]:
    """Return the detectors with their first rule set extended by `with_own`, or a new one if there is none."""
    first = next((one for one in detectors if isinstance(one, RuleSet)), None)
    return (with_own(first or RuleSet("none"), settings), *(one for one in detectors if one is not first))


def own_masker(masker: Masker, settings: OwnSettings) -> Masker:
    """Return a masker that also applies a configuration's own rules, and its strategies if it has any.

    The own rules are added to the first rule set of `masker`; its other detectors, vault, and escaping are kept.
    """
    return Masker(
        with_own_rules(masker.detectors, settings),
        strategy=settings.strategy or masker.strategy,
        vault=masker.vault,
        escape=masker.escape,
    )
