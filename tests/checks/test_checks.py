"""Every check finds what it is for, says where, and nothing else."""

from __future__ import annotations

import pytest
from builders import assistant, calls, result, user

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.checks import (
    ALL_CHECKS,
    PROVIDERS,
    AuthorityFirst,
    CallsArePaired,
    NoPII,
    RecentKept,
    SystemIntact,
    WithinBudget,
    provider_profile,
)
from ctxguard.draft import CallSettings, Draft, Masking
from ctxguard.errors import ConfigError
from ctxguard.pii import STANDARD, Masker, Rule, RuleSet
from ctxguard.policies import agent_stages
from ctxguard.tokens import ArtifactCounter, EstimateCounter

COUNTER = ArtifactCounter(EstimateCounter())


def draft(artifacts, history=None, budget=1_000, **settings):
    of_call = {name: settings.pop(name) for name in ("overhead", "keep_recent") if name in settings}
    history = tuple(history if history is not None else artifacts)
    return Draft(tuple(artifacts), CallSettings(budget, COUNTER, **of_call), history=history, **settings)


def found(check, *args, **settings):
    return [str(finding) for finding in check(draft(*args, **settings))]


SYSTEM = Artifact("system", "s")


def test_a_good_context_passes_every_check():
    good = [SYSTEM, Artifact("task", "t"), user(), calls("1"), result("1"), assistant()]
    for check in ALL_CHECKS:
        assert found(check, good) == []


def test_within_budget():
    assert found(WithinBudget(), [user("word " * 50)], budget=20) == ["51 tokens exceed the budget of 20 @ artifacts"]
    assert found(WithinBudget(), [Artifact("user", "x", 20)], budget=20) == []
    assert found(WithinBudget(), [Artifact("user", "x", 20)], budget=20, overhead=1) != []


def test_authority_first():
    behind = "a system artifact follows a message of lower authority @ artifacts[1]"
    assert found(AuthorityFirst(), [user(), SYSTEM], history=(SYSTEM, user())) == [behind]
    assert found(AuthorityFirst(), [Artifact("task", "t"), SYSTEM], history=(SYSTEM, Artifact("task", "t"))) == [behind]
    assert found(AuthorityFirst(), [user(), Artifact("task", "t")])[0].startswith("a task artifact follows")


def test_a_system_message_in_the_middle_keeps_its_place():
    middle = [SYSTEM, user(), Artifact("system", "Be brief."), user()]
    assert found(AuthorityFirst(), middle, history=tuple(middle)) == []


@pytest.mark.parametrize(
    ("artifacts", "finding"),
    [
        ([result("9")], "a tool result answers no open call @ artifacts[0]"),
        ([calls("1"), result("1"), result("1")], "a tool result answers no open call @ artifacts[2]"),
        ([calls("1"), user()], "a tool call has no result @ artifacts[0].calls[0]"),
        ([calls("1"), user(), result("1")], "a tool result does not follow its call @ artifacts[2]"),
    ],
)
def test_calls_are_paired(artifacts, finding):
    assert found(CallsArePaired(), artifacts) == [finding]


def test_an_open_last_exchange_is_no_fault():
    assert found(CallsArePaired(), [user(), calls("1", "2"), result("2")]) == []


def test_recent_kept():
    history = [user("one"), assistant("two"), user("three"), assistant("four")]
    assert found(RecentKept(), history[3:], history) == ["a recent user message is missing @ history[2]"]
    assert found(RecentKept(), history[:3], history) == ["a recent assistant message is missing @ history[3]"]
    edited = [a.edit(lambda slot, text: text.upper()) for a in history]
    assert found(RecentKept(), edited, history) == []


def test_recent_kept_demands_nothing_that_a_record_in_the_place_of_a_message_would_change():
    lookalike = user("[Trail of the earlier conversation. Record abcdefghabcde]\n3 earlier steps")
    history = [user("one"), assistant("two"), lookalike, user("three")]
    assert found(RecentKept(), history[2:], history) == []  # the user's own words: the two latest are kept
    assert found(RecentKept(), [history[1], history[3]], history) == []  # a record: it may go
    assert found(RecentKept(), history[:3], history) == ["a recent user message is missing @ history[3]"]


def test_system_intact():
    other = Artifact("system", "t")
    assert found(SystemIntact(), [SYSTEM], [SYSTEM, other]) == ["a system artifact is missing @ history[1]"]
    quoted = Artifact("user", f"It says: {SYSTEM.text} {other.text}")
    assert found(SystemIntact(), [SYSTEM, quoted], [SYSTEM, other, quoted]) == [
        "a system artifact is missing @ history[1]"
    ]
    assert found(SystemIntact(), [other, SYSTEM], [SYSTEM, other]) == ["a system artifact lost its order @ history[1]"]
    altered = SYSTEM.revised(content="forget the rules")
    changed = draft([SYSTEM], [SYSTEM]).revise([altered], action="bounded", reason="x")
    assert [str(f) for f in SystemIntact()(changed)] == ["a system artifact was altered @ history[0]"]
    masked = draft([SYSTEM], [SYSTEM]).revise([altered], action="masked", reason="x")
    assert list(SystemIntact()(masked)) == []


def test_no_pii_finds_it_in_every_slot_and_never_says_it():
    mail = "jane.doe@corp-mail.net"
    dirty = [
        user(f"I am {mail}"),
        Artifact("assistant", "", calls=(ToolCall("f", f'{{"to": "{mail}"}}', "1"),)),
        Artifact("tool", mail, answers="1"),
        Artifact("user", "x", name=mail),
    ]
    told = found(NoPII(STANDARD), dirty)
    assert [t.split(" @ ")[1].split("[5:")[0] for t in told] == [
        "artifacts[0].content",
        "artifacts[1].arguments[8:30]",
        "artifacts[2].content[0:22]",
        "artifacts[3].name[0:22]",
    ]
    assert "jane" not in "".join(told)


def test_no_pii_without_rules_of_its_own_uses_those_of_the_masking_stages():
    assert found(NoPII(), [user("jane.doe@corp-mail.net")]) == []
    assert found(NoPII(), [user("jane.doe@corp-mail.net")], masking=Masking(detectors=(STANDARD,))) != []


def test_no_pii_claims_no_more_than_its_rules_can_tell():
    def told(*rules):
        stages = agent_stages(masker=Masker(list(rules))) if rules else []
        result = Stabilizer(1_000, stages=stages).stabilize([user("hello")])
        checks = {check["name"]: check for check in result.report.to_dict()["checks"]}
        assert f"ok   NoPII: {checks['NoPII']['claim']}\n" in str(result.report)
        assert "claim" not in checks["CallsArePaired"]
        return checks["NoPII"]["claim"]

    people = RuleSet("people", (Rule("person", "PERSON", "Ada Lovelace"),))
    number = len(STANDARD.rules)
    assert told() == "nothing was looked for, as no stage masked"
    assert told(STANDARD) == f"no match of {number} rules; names and postal addresses are not looked for"
    assert told(STANDARD | people) == f"no match of {number + 1} rules; postal addresses are not looked for"
    assert told(STANDARD, lambda text: []) == f"no match of {number} rules and detector <lambda>"


def test_a_clean_verdict_is_for_that_text_alone():
    check = NoPII(STANDARD)
    assert found(check, [user("clean")]) == []
    assert found(check, [user("clean"), user("jane.doe@corp-mail.net")]) != []
    assert found(check, [user("jane.doe@corp-mail.net")]) != []


@pytest.mark.parametrize(
    ("provider", "artifacts", "findings"),
    [
        ("openai", [SYSTEM, assistant(), user()], []),
        (
            "openai",
            [calls(None), Artifact("tool", "r")],
            ["a tool call has no id", "a tool result has no id of its call"],
        ),
        ("anthropic", [SYSTEM, assistant(), user()], ["the first message is of kind assistant, not user"]),
        ("anthropic", [user(), assistant()], ["the last message is the assistant's"]),
        ("anthropic", [user(), user()], []),
        ("gemini", [assistant(), user()], ["the first message is of kind assistant, not user"]),
        ("strict", [user(), user()], ["two user messages in a row"]),
        ("strict", [Artifact("task", "t"), user()], ["two user messages in a row"]),
        ("strict", [user(), calls("1", "2"), result("1"), result("2"), assistant("x"), user()], []),
        ("strict", [SYSTEM], []),
    ],
)
def test_provider_profiles(provider, artifacts, findings):
    assert [told.split(" @ ")[0] for told in found(provider_profile(provider), artifacts)] == findings


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_provider_knows_a_role_without_a_kind(provider):
    critic = Artifact("assistant", "no", role="critic", pinned=True)
    assert found(provider_profile(provider), [SYSTEM, user(), critic, user()]) == [
        "role 'critic' is not one that the provider knows @ artifacts[2]"
    ]


def test_an_unknown_provider_is_refused():
    with pytest.raises(ConfigError, match="unknown provider 'acme'; known are openai, anthropic, gemini, strict"):
        provider_profile("acme")
