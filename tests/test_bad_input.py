"""Bad input gets a clear error or a right result, and nothing is lost."""

from __future__ import annotations

import pytest
from builders import chat_call

from ctxguard import Artifact, BudgetExceededError, Stabilizer, guard
from ctxguard.content import context_result
from ctxguard.errors import CheckFailedError, ConfigError, CtxguardError, HistoryError, PairingError
from ctxguard.policies import agent_stages
from ctxguard.stages import (
    BoundToolOutput,
    ExpireLifetimes,
    MaskPII,
    RepairExchanges,
    SlidingWindow,
    StableWindow,
)
from ctxguard.stores import MemoryStore
from ctxguard_anthropic import astabilize_request, stabilize_request
from ctxguard_openai import stabilize_messages


def test_an_empty_history_is_an_empty_context():
    result = Stabilizer(100).stabilize([])
    assert result.artifacts == []
    assert result.report.ok
    assert stabilize_messages([], Stabilizer(100))[0] == []


def test_no_system_prompt_is_fine():
    result = Stabilizer(100).stabilize([Artifact("user", "hi")])
    assert [a.text for a in result.artifacts] == ["hi"]
    assert result.report.ok


@pytest.mark.parametrize("budget", [0, -5, True, 2.5, None, "1.5", "0%", "120%", "many%"])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ConfigError, match="budget"):
        Stabilizer(budget)


def test_a_share_needs_the_window():
    stabilizer = Stabilizer("50%", headroom=100)
    with pytest.raises(ConfigError, match="a share of the model's window, which is not known here"):
        stabilizer.stabilize([Artifact("user", "hi")])
    assert stabilizer.stabilize([Artifact("user", "hi")], window=1_000).report.budget == 400


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_recent": -1},
        {"headroom": -1},
        {"on_failure": "shrug"},
        {"provider": "acme"},
        {"counter": "p99k"},
        {"target": 0},
        {"target": 1.5},
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings):
    with pytest.raises(ConfigError) as caught:
        Stabilizer(100, **settings)
    assert caught.value.setting == next(iter(settings))


def test_an_unknown_policy_or_setting_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="unknown policy 'magic'; known are default, chat, agent"):
        Stabilizer.from_policy("magic", budget=100)
    with pytest.raises(ConfigError, match="takes no setting 'tarhet'"):
        Stabilizer.from_policy("agent", budget=100, tarhet=0.5)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Stabilizer.from_policy("agnet", 100), "unknown policy 'agnet' (did you mean 'agent'?); known are"),
        (lambda: Stabilizer(100, policy="chat"), "Stabilizer takes no setting 'policy'; write Stabilizer.from_policy"),
        (lambda: Stabilizer.from_policy("agent", 100, tarhet=1), "no setting 'tarhet' (did you mean 'target'?)"),
        (
            lambda: Stabilizer(500, stages=agent_stages(), on_overflow="bound"),
            "on_overflow is a setting of the default chain, which stages=… replaces; "
            "give it to your own chain: stages=agent_stages(on_overflow='bound')",
        ),
        (lambda: Stabilizer(500, stages=[], target=7), "stages=agent_stages(target=7)"),
        (lambda: Stabilizer(max_tokens=100), "Stabilizer takes no setting 'max_tokens'; it takes budget, checks, "),
        (lambda: Stabilizer(100, tarhet=1), "Stabilizer takes no setting 'tarhet' (did you mean 'target'?)"),
        (lambda: Stabilizer(100, rules=()), "policies do: write Stabilizer.from_policy('default', budget=…, rules=…)"),
        (lambda: Stabilizer(100, level="low"), "write Stabilizer.from_policy('browser', budget=…, level=…)"),
        (lambda: Stabilizer.from_config(budget=100, rules=["standrad"]), "'standrad' (did you mean 'standard'?)"),
        (lambda: Stabilizer.from_policy("agent", 100, rules="peple"), "such as ctxguard.pii.PEOPLE, not 'peple'"),
    ],
)
def test_a_name_that_is_not_known_is_refused_with_what_to_write(make, told):
    with pytest.raises(ConfigError) as caught:
        make()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BoundToolOutput(share=0),
        lambda: BoundToolOutput(max_tokens=0),
        lambda: StableWindow(target=2),
        lambda: RepairExchanges(on_broken="hide"),
    ],
)
def test_stages_refuse_settings_out_of_range(make):
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize("history", [5, None])
def test_what_is_no_history_is_refused(history):
    with pytest.raises(HistoryError, match="expected a list of artifacts"):
        Stabilizer(100).stabilize(history)


def test_a_dict_among_artifacts_is_named_and_the_remedy_too():
    with pytest.raises(HistoryError, match=r"message 0: .* go through an adapter"):
        Stabilizer(100).stabilize([{"role": "user", "content": "hi"}])


def test_ten_megabytes_in_one_tool_output_are_bounded():
    calls = chat_call("1", "cat")
    messages = [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": None, "tool_calls": [calls]},
        {"role": "tool", "tool_call_id": "1", "content": "line of text\n" * 800_000},
    ]
    out, report = stabilize_messages(messages, Stabilizer(2_000, counter="estimate"))
    assert report.ok
    assert report.tokens_after <= 2_000
    assert out[2]["content"].startswith("line of text")


def test_ten_megabytes_in_the_last_user_message_are_refused_with_both_numbers():
    with pytest.raises(BudgetExceededError, match="the budget is 2000") as caught:
        stabilize_messages([{"role": "user", "content": "word " * 2_000_000}], Stabilizer(2_000, counter="estimate"))
    assert caught.value.needed > 1_000_000
    assert caught.value.parts["last user message"] > 1_000_000


def test_a_system_prompt_over_the_budget_is_refused_by_its_part():
    history = [Artifact("system", "rule " * 500), Artifact("user", "hi")]
    with pytest.raises(BudgetExceededError, match="system") as caught:
        Stabilizer(200).stabilize(history)
    assert caught.value.parts["system"] > 200


def test_pins_over_the_budget_are_refused_by_their_part():
    history = [Artifact("user", "keep " * 300, pinned=True), Artifact("assistant", "a"), Artifact("user", "b")]
    with pytest.raises(BudgetExceededError) as caught:
        Stabilizer(200, keep_task=False).stabilize(history)
    assert caught.value.parts["pinned"] > 200


def test_a_chain_that_does_not_fit_is_an_error_and_never_an_overflow():
    with pytest.raises(BudgetExceededError):
        Stabilizer(10, stages=[]).stabilize([Artifact("user", "word " * 50)])


def test_zero_bytes_pass_and_halves_of_surrogate_pairs_are_replaced():
    history = [Artifact("user", "a\ud800b\x00c")]
    assert Stabilizer(100).stabilize(history).artifacts[0].text == "a\ufffdb\x00c"


def test_strict_users_can_have_faults_raised():
    with pytest.raises(CheckFailedError, match="SystemIntact"):
        Stabilizer(100, stages=[lambda d: d.revise(d.artifacts[1:], reason="x")], on_failure="raise").stabilize(
            [Artifact("system", "s"), Artifact("user", "u")]
        )
    with pytest.raises(PairingError, match="answers no call") as caught:
        Stabilizer(100, stages=[RepairExchanges(on_broken="raise")]).stabilize([Artifact("tool", "x", answers="1")])
    assert len(caught.value.findings) == 1


def test_every_error_is_one_of_ours_and_pickles():
    import pickle

    error = BudgetExceededError(20, 10, {"system": 20})
    again = pickle.loads(pickle.dumps(error))
    assert (again.needed, again.budget, again.parts, str(again)) == (20, 10, {"system": 20}, str(error))
    assert isinstance(again, CtxguardError)


@pytest.mark.parametrize("overhead", [-5, None, "10", 1.5])
def test_an_overhead_that_is_no_number_of_tokens_is_refused(overhead):
    with pytest.raises(ConfigError, match="overhead"):
        Stabilizer(100).stabilize([Artifact("user", "Hi")], overhead=overhead)


SETTINGS = [
    ("masker", "is a Masker, not MemoryStore", lambda: MaskPII(masker=MemoryStore())),
    ("preset", "is a TruncationConfig, not int", lambda: context_result(5)),
    ("lifetimes", "dict", lambda: ExpireLifetimes(["x"])),
    ("lifetimes", "2 is not a Lifetime", lambda: ExpireLifetimes({"search": 2})),
    ("lifetimes", r"Lifetime\(turns=2\)", lambda: Stabilizer.from_policy("chat", budget=100, lifetimes={"search": 2})),
    ("tools", r"tools\['q'\] is a number of tokens", lambda: BoundToolOutput(tools={"q": 0.5})),
    ("tools", r"tools\['q'\] is a number of tokens", lambda: BoundToolOutput(tools={"q": None})),
    ("tools", "dict of settings by tool", lambda: BoundToolOutput(tools=["q"])),
    ("tools['q']", "0", lambda: BoundToolOutput(tools={"q": 0})),
    ("tools['q']", "True", lambda: BoundToolOutput(tools={"q": True})),
    ("max_tokens", "'5'", lambda: BoundToolOutput(max_tokens="5")),
    ("share", "'x'", lambda: BoundToolOutput(share="x")),
    ("output_share", "above 0 and at most 1", lambda: StableWindow(output_share=2)),
    ("window_size", "'15'", lambda: SlidingWindow("15")),
    ("window_size", "0", lambda: SlidingWindow(0)),
]


@pytest.mark.parametrize(("setting", "said", "make"), SETTINGS)
def test_settings_of_stages_that_cannot_work_are_refused_by_name(setting, said, make):
    with pytest.raises(ConfigError, match=said) as caught:
        make()
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("tool", "said"), [(print, "print"), ("f", "str"), (None, "NoneType"), (Artifact, "Artifact"), (["f"], "list")]
)
def test_a_tool_that_is_no_schema_is_refused(tool, said):
    with pytest.raises(ConfigError, match=rf"tools\[1\] is a schema, a dict .*, not {said}$") as caught:
        stabilize_messages([{"role": "user", "content": "hi"}], Stabilizer(1_000), tools=[{"name": "f"}, tool])
    assert caught.value.setting == "tools"


def test_a_stage_that_makes_a_text_of_an_artifact_is_told():
    with pytest.raises(HistoryError, match=r"a draft holds artifacts, not str; make one with Artifact\(kind, text\)"):
        Stabilizer(100, stages=[lambda draft: draft.revise(["x"])]).stabilize([Artifact("user", "hi")])


CALLS = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (CALLS, "a dict with 'messages', got list; a list of messages goes to stabilize_messages"),
        (Stabilizer(100), "a dict with 'messages', got Stabilizer"),
        ({"model": "x"}, "the request has no 'messages'"),
        ({"messages": None}, "expected a list of messages, got NoneType"),
    ],
)
async def test_a_request_of_anthropic_without_messages_is_refused(request_, said):
    with pytest.raises(HistoryError, match=said):
        stabilize_request(request_, Stabilizer(100))
    with pytest.raises(HistoryError, match=said):
        await astabilize_request(request_, Stabilizer(100))


@pytest.mark.parametrize(
    "given", [[{"role": "user", "content": "I am ada@example.com"}], "I am ada@example.com, hello"]
)
def test_no_error_quotes_what_somebody_said(given):
    with pytest.raises(ConfigError) as caught:
        Stabilizer(given)
    assert "ada" not in str(caught.value)


@pytest.mark.parametrize("given", ["hi", 5, {"role": "user", "content": "hi"}, None])
def test_what_is_no_list_of_messages_is_named(given):
    with pytest.raises(HistoryError, match=f"a list of messages, not {type(given).__name__}; write .*role"):
        guard(given)


def test_a_guard_without_a_budget_says_so():
    with pytest.raises(ConfigError, match="a budget is missing: write budget=8_000"):
        guard([{"role": "user", "content": "hi"}])


def test_a_list_of_texts_is_told_how_messages_are_written():
    with pytest.raises(CtxguardError, match=r"texts have no roles; write \[\{'role': 'user'"):
        guard(["Hello."], budget=8_000)
