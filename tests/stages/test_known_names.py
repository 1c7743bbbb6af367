"""Names that become known: masked from there on, and in what came before at the next cut; a function of the history."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import crossed

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.checks import NoPII
from ctxguard.pii import PEOPLE, STANDARD, Masker, Span, Vault, new_key
from ctxguard.pii.detect.echo import Names
from ctxguard.policies import agent_stages
from ctxguard.stages import MaskPII
from ctxguard.stores import MemoryStore
from ctxguard.wire.guard import Guard, WireRequest

BOTH = STANDARD | PEOPLE
NAMES = ["Wanda Xerx", "Hans Zzyzx", "Mia Quolb", "Luis Vrang", "Ada Plimth"]
POLICIES = ["agent", "chat", "browser", "recall"]
slow = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def history_of(seed, steps=30):
    """Return a conversation that speaks of people before and after it says who they are."""
    rng = random.Random(seed)
    history = [Artifact("system", "Be kind to Quolb."), Artifact("user", "Find Zzyzx and Plimth for me.")]
    for step in range(steps):
        who = rng.choice(NAMES)
        first, last = who.split()
        said = [
            f"My name is {who}.",
            f"{who} went out",
            f"And {first}?",
            json.dumps({"last_name": last}),
            f"Ask {last}.",
        ]
        history.append(Artifact("assistant", f"Looking at {last}, step {step}. " + "words here " * rng.randint(1, 30)))
        history.append(Artifact("user", f"{rng.choice(said)} " + "more text " * rng.randint(1, 20)))
    return history


def stabilizer(strategy="redact", policy="agent", **given):
    return Stabilizer.from_policy(policy, budget=600, masker=Masker(BOTH, strategy=strategy, **given))


def texts(result):
    return [artifact.text for artifact in result.artifacts]


@pytest.mark.slow
@slow
@given(st.integers(0, 10_000), st.sampled_from(["redact", "pseudonymize"]), st.sampled_from(POLICIES))
def test_memory_changes_no_result_and_old_texts_change_at_cuts_alone(seed, strategy, policy):
    history, grown = history_of(seed), stabilizer(strategy, policy)
    before = []
    for end in range(2, len(history) + 1):
        result = grown.stabilize(history[:end])
        assert result.report.ok, [str(one) for check in result.report.checks for one in check.findings]
        now = texts(result)
        if end % 7 == 0:
            assert now == texts(stabilizer(strategy, policy).stabilize(history[:end]))
        if policy != "recall" and history[end - 1].kind.value == "user" and now[: len(before)] != before:
            assert result.report.cut is not None
            assert result.report.cut.fresh
        before = now if history[end - 1].kind.value == "user" else before


def test_what_came_before_is_masked_at_the_next_cut_and_not_sooner():
    history = [Artifact("system", "Mind Xerx."), Artifact("user", "Who is Xerx?"), Artifact("assistant", "Xerx who?")]
    history.append(Artifact("user", "My name is Wanda Xerx."))
    guard = Stabilizer.from_policy("agent", budget=400, rules=BOTH, target=0.9)
    first = guard.stabilize(history)
    assert texts(first)[:3] == ["Mind Xerx.", "Who is Xerx?", "Xerx who?"]
    assert texts(first)[3] == "My name is [REDACTED_PERSON]."
    while first.report.cut is None or not first.report.cut.fresh:
        history += [Artifact("assistant", "Well. " * 20), Artifact("user", "Xerx! " * 10)]
        first = guard.stabilize(history)
    assert first.report.ok
    assert not any("Xerx" in text for text in texts(first))
    decision = first.report.decisions[0]
    assert (decision.action, decision.reason) == ("masked", "contains a name that became known later")


@pytest.mark.slow
def test_a_session_gives_the_same_as_a_whole_list():
    history, guard = history_of(5), stabilizer("pseudonymize")
    session = guard.session()
    for end, artifact in enumerate(history, 1):
        session.append(artifact)
        if artifact.kind.value == "user":
            assert [a.text for a in session.context().artifacts] == texts(
                stabilizer("pseudonymize").stabilize(history[:end])
            )


def test_a_vault_gives_known_names_back():
    vault = Vault(MemoryStore(), key=new_key()).session("one")
    masker = Masker(BOTH, strategy="pseudonymize", vault=vault)
    guard = Stabilizer(600, stages=agent_stages(masker=masker))
    history = history_of(3)
    for end in range(2, len(history), 2):
        result = guard.stabilize(history[:end])
        assert result.report.ok
    session = masker.session()
    shown = "\n".join(session.unmask(text) for text in texts(result)[3:])
    assert "PERSON" not in shown
    assert history[end - 1].text in shown


def test_the_check_finds_a_known_name_that_was_not_masked():
    masker = Masker(BOTH)
    history = [
        Artifact("user", "My name is Wanda Xerx."),
        Artifact("assistant", "Fine."),
        Artifact("user", "Ask Xerx."),
    ]

    def unmask_last(draft):
        last = draft.artifacts[-1]
        return draft.revise((*draft.artifacts[:-1], last.revised(content="Ask Xerx.")))

    guard = Stabilizer(600, stages=[MaskPII(masker=masker), unmask_last])
    report = guard.stabilize(history).report
    assert [str(one) for check in report.checks for one in check.findings] == [
        "PERSON was found: the text of message 2 (user) @ artifacts[2].content[4:8]"
    ]
    # a text of before was decided when nobody was known
    assert (
        Stabilizer(600, stages=[MaskPII(masker=masker)]).stabilize([Artifact("user", "Ask Xerx."), *history]).report.ok
    )


def test_the_check_says_what_it_looked_for_and_survives_pickling():
    guard = Stabilizer.from_policy("agent", budget=600, rules=BOTH)
    report = guard.stabilize([Artifact("user", "My name is Wanda Xerx.")]).report
    said = str(report)
    assert "names and postal addresses are found where the text says what they are" in said
    assert pickle.loads(pickle.dumps(NoPII(BOTH))).rules == BOTH


def test_on_the_wire_names_go_out_masked_and_come_back():
    guard = Guard(Stabilizer.from_policy("agent", budget=4_000, rules=BOTH))
    body = {
        "model": "gpt-4o",
        "messages": [
            {"role": "user", "content": "My name is Wanda Xerx."},
            {"role": "assistant", "content": "Hello Wanda!"},
            {"role": "user", "content": "Xerx lives at 12 Elm Street, Springfield, IL 62704."},
        ],
    }
    request = WireRequest("POST", "/v1/chat/completions", {"authorization": "Bearer one"}, json.dumps(body).encode())
    sent = guard.prepare(request).body.decode()
    assert not any(word in sent for word in ("Wanda", "Xerx", "Elm", "62704"))


PARTICLES = ["van der", "ten", "de la", "de los", "de las", "dos", "da", "von der", "zu", "di", "della", "du", "bin"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PARTICLES),
    st.sampled_from(["Pieter", "Ana", "Ludvika"]),
    st.sampled_from(["Quolberg", "Zruz", "Vrangwijk"]),
    st.sampled_from(["name,email\n{},b@example.com\n", "My name is {}.", '{{"full_name": "{}"}}']),
    st.sampled_from(
        [str, str.title, str.upper, lambda who: who.title().replace(" D", " d"), lambda who: who.replace(" v", " V")]
    ),
)
def test_a_known_name_with_particles_is_masked_whole_where_it_comes_again(particle, first, last, introduced, spelled):
    who = f"{first} {particle} {last}"
    session = Masker(BOTH, escape=False).session()
    assert who not in session.text(introduced.format(who))
    assert session.text(f"Yesterday {spelled(who)} wrote to us.") == "Yesterday [REDACTED_PERSON] wrote to us."


@pytest.mark.parametrize("who", ["van der Quolberg", "d'Xerque", "de la Zruz", "von Quolberg"])
def test_a_surname_that_begins_with_a_particle_is_masked_whole_where_it_comes_again(who):
    names = Names([who])
    for text in (f"ask {who} now", f"ask {who.upper()} now", f"ask {who[:1].upper()}{who[1:]} now"):
        assert next(names.find(text)) == (4, 4 + len(who)), text


@pytest.mark.parametrize(
    "text", ["the Pieter van", "Pieter van der Bergen", "Pieter van die Berg", "Pieter van der berg"]
)
def test_part_of_a_name_with_particles_is_not_the_whole_name(text):
    assert all(text[start:end] in ("Pieter", "Berg") for start, end in Names(["Pieter van der Berg"]).find(text))


WORDS = ("Will", "Mark", "Grace", "Young", "Green", "Brown")
"""Names that are words, too: alone they are names only where the words beside them say so."""


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(WORDS),
    st.sampled_from(
        (
            "first_name,last_name,email\n{0},{1},b@example.com\n",
            '{{"first_name": "{0}", "last_name": "{1}"}}',
            '{{"last_name": "{1}", "first_name": "{0}"}}',
            "First name: {0}\nLast name: {1}\n",
        )
    ),
    st.sampled_from(("{0} {1}", "{1}, {0}")),
)
def test_first_and_last_name_of_separate_fields_are_found_together(drawn, record, written):
    first, last, *_ = drawn
    session = Masker(BOTH, escape=False).session()
    session.text(record.format(first, last))
    masked = session.text(f"Yesterday {written.format(first, last)} came to us.")
    assert masked == f"Yesterday {written.format(*2 * ['[REDACTED_PERSON]'])} came to us."


@pytest.mark.parametrize(
    ("text", "until", "found"),
    [
        ("Young at heart", None, 0),
        ("The Green party, the Will", None, 0),
        ("Area Green Belt", None, 0),
        ("Will Young", None, 2),
        ("Will Young", 1, 0),  # `Young` was not known then
        ("WILL YOUNG", None, 2),
        ("Young, Will", None, 2),
    ],
)
def test_a_common_word_is_a_name_beside_a_name_that_was_known_then(text, until, found):
    assert len(list(Names(["Will", "Green", "Young"]).find(text, until=until))) == found


def test_a_detector_of_ones_own_is_asked_once_about_a_text():
    asked = []

    def entities(text):
        asked.append(text)
        place = text.find("Quolb")
        return [Span(place, place + 5, "PERSON")] if place >= 0 else []

    guard = Stabilizer(2_000, stages=[MaskPII([BOTH, Masker([entities]).detectors[0]])])
    history = [
        Artifact("user", "Hi, Quolb is in."),
        Artifact("assistant", "Good."),
        Artifact("user", "My name is Wanda Xerx."),
    ]
    for end in range(1, 4):
        for _ in range(2):
            result = guard.stabilize([replace(one) for one in history[:end]])
            assert result.report.ok
    assert texts(result) == ["Hi, [REDACTED_PERSON] is in.", "Good.", "My name is [REDACTED_PERSON]."]
    assert len(asked) == len(set(asked))


def test_a_failure_of_a_detector_is_not_remembered():
    down = [True]

    def entities(text):
        if down[0]:
            raise OSError(text)
        return []

    masker = Masker([entities], on_detector_error="redact")
    assert masker.mask("some text") == "[REDACTED_UNCHECKED]"
    down[0] = False
    assert Masker([masker.detectors[0]]).mask("some text") == "some text"


@pytest.mark.parametrize("module", ["spacy", "presidio_analyzer"])
def test_detectors_with_models_plug_in(module):
    pytest.importorskip(module, reason=f"{module} is not installed")
    if module == "spacy":
        import spacy

        nlp = spacy.blank("en")
        nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Quolb"}])

        def entities(text):
            return [Span(one.start_char, one.end_char, one.label_) for one in nlp(text).ents]

        rules = [BOTH, entities]
    else:
        from ctxguard.pii import PresidioDetector

        rules = [BOTH, PresidioDetector()]
    masked = Masker(rules).mask("My name is Wanda Xerx, mail w@mail.example.com.")
    assert masked == "My name is [REDACTED_PERSON], mail [REDACTED_EMAIL]."


def tool_loop(named_at, *, seed=0, broken=False):
    """Return a loop with one question, in which a name stands early and becomes known late."""
    history = [Artifact("user", "Who looks after host-7?"), Artifact("assistant", "I will look.")]
    history += [Artifact("user", "Start with what Wanda Xerx said of host-7.")]
    for step in range(30):
        calls = [ToolCall("look", json.dumps({"n": step}), f"c{seed}_{step}_{n}") for n in range(2)]
        said = "My name is Wanda Xerx." if step == named_at else f"Step {step}."
        history.append(Artifact("assistant", said, calls=tuple(calls)))
        told = f"Wanda Xerx says that host-{step} and host-7 are fine. " * 3
        answered = calls[:1] if broken and step % 3 == 0 else calls
        history += [Artifact("tool", told, answers=call.id) for call in answered]
        if step == 8:
            history.append(Artifact("user", "What did they say of host-7, in short?"))
    return history


@pytest.mark.parametrize(("provider", "policy", "broken"), crossed(5, [None, "strict"], POLICIES, [False, True]))
def test_a_name_that_becomes_known_within_a_turn_is_masked_wherever_a_cut_went_past_it(policy, provider, broken):
    guard = Stabilizer.from_policy(policy, budget=900, masker=Masker(BOTH), provider=provider, counter="estimate")
    for named_at in (9, 12, 15):
        history = tool_loop(named_at, broken=broken)
        for end in range(3, len(history) + 1):
            if end == len(history) or history[end].kind == "assistant":
                result = guard.stabilize(history[:end])
                assert result.report.ok, (named_at, end, str(result.report))


def test_the_place_of_a_cut_is_one_in_the_history_also_where_results_were_missing():
    history = tool_loop(99, broken=True)
    result = Stabilizer(900, counter="estimate").stabilize(history)
    at = result.report.cut.at
    assert history[at].kind == "assistant"
    assert any(artifact is history[at] for artifact in result.artifacts), "a cut keeps the exchange that caused it"
