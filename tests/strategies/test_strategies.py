"""SlidingWindow, CheckpointManager, IntelligentPruner, MergeSimilar: what each keeps, and the laws for all of them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from functools import partial
from itertools import islice, permutations
from types import SimpleNamespace

import builders
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prefix_law import grown

from ctxguard import Artifact, BudgetExceededError, Kind, Stabilizer, ToolCall, guard
from ctxguard.artifacts import Part
from ctxguard.compaction import CompactionConfig, HistoryCompactor
from ctxguard.compat import MessageCompressor
from ctxguard.errors import ConfigError, HistoryError
from ctxguard.harness import read_sessions
from ctxguard.history import CHECKPOINT, SUMMARY, write_record
from ctxguard.pii import STANDARD, Masker
from ctxguard.stages import (
    BoundToolOutput,
    CheckpointManager,
    ImportanceScorer,
    IntelligentPruner,
    MaskPII,
    MergeSimilar,
    OrderByAuthority,
    PreservationRule,
    PruningRules,
    RecallRelevant,
    RepairExchanges,
    SlidingWindow,
    StableWindow,
)
from ctxguard.stages.short_views import reports_error
from ctxguard.stores import MemoryStore, SQLiteStore
from ctxguard.strategies.checkpoints import PageState, PhaseRule, phase_rules
from ctxguard.testing import histories, law_findings
from ctxguard.tokens.artifact_counter import REPLY_TOKENS
from ctxguard_openai import OpenAIAdapter


def talk(turns):
    history = [Artifact("user", "Buy a red kettle.")]
    for turn in range(turns):
        history += [Artifact("assistant", f"Looking at shelf {turn}."), Artifact("user", f"Go on, part {turn}.")]
    return history


def step(number, text="nothing new"):
    page = "abcdefghij"[number % 10] * 3
    return builders.step(f"c{number}", text, tool="look", arguments=f'{{"page": "{page}"}}')


# --- sliding window


@pytest.mark.parametrize("opening", [SUMMARY, CHECKPOINT])
def test_the_window_keeps_the_records_of_what_is_gone(opening):
    history = talk(20)
    history.insert(1, Artifact("user", write_record(opening, "They are logged in.")))
    assert history[1] in SlidingWindow(5).apply(history)
    assert history[1] in Stabilizer(10_000, stages=[SlidingWindow(5)]).stabilize(history).artifacts


def test_the_window_keeps_the_latest_messages_and_the_first_instruction():
    history = talk(20)
    assert SlidingWindow(15).apply(history) == [history[0], *history[-15:]]
    assert SlidingWindow(100).apply(history) == history


def test_errors_and_state_changes_stay_in_order_and_once():
    history = talk(20)
    history[4] = Artifact("user", "ERROR: the shelf is locked")
    history[7] = Artifact("assistant", "You are logged in now.")
    history[-2] = Artifact("assistant", "Cart updated.")
    assert SlidingWindow(5).apply(history) == [history[0], history[4], history[7], *history[-5:]]


def test_an_exchange_that_reaches_into_the_window_stays_whole():
    history = [Artifact("user", "Go."), *(a for n in range(9) for a in step(n))]
    result = SlidingWindow(5).apply(history)
    assert result == [history[0], *history[-6:]]


def test_screenshots_stay_as_configured():
    history = talk(20)
    history[4] = Artifact("user", (Part("text", "see"), Part("image", tokens=85)))
    assert history[4] in SlidingWindow(5).apply(history)
    assert history[4] not in SlidingWindow(5, rules=()).apply(history)


def test_rules_are_data():
    kettles = PreservationRule("kettles", lambda artifact, number: "shelf 3." in artifact.text)
    history = talk(20)
    result = SlidingWindow(4, rules=[kettles]).apply(history)
    assert [a.text for a in result][1] == "Looking at shelf 3."


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("Error: no such file", True),
        ("Traceback (most recent call last):\n  File", True),
        ("2024-01-01 ERROR] disk", True),
        ('{"error": "not found", "id": 3}', True),
        ('{"error": null, "id": 3}', False),
        ("ValueError: bad literal", True),
        ("requests.exceptions.HTTPError: 404", True),
        ("command exited with code 2", True),
        ("exit code 0", False),
        ("HTTP/1.1 503 Service Unavailable", True),
        ("HTTP/1.1 200 OK", False),
        ("There was no error in the form of the bread.", False),
        ("We made an error - sorry about that - in the invoice.", False),
        ("To err is human; error handling is a chapter.", False),
        ("0 errors, 0 warnings", False),
    ],
)
def test_an_error_is_known_by_its_shape_not_by_the_word(text, is_error):
    assert reports_error(Artifact("tool", text, answers="x")) is is_error


@pytest.mark.parametrize("gap", ["\n", " ", " \n", "x."])
def test_errors_are_looked_for_in_linear_time(gap):
    assert not reports_error(Artifact("tool", f"no error {gap * 100_000}here", answers="x"))
    assert reports_error(Artifact("tool", f"{gap * 100_000}\nerror: here", answers="x"))


def test_a_larger_step_moves_the_window_rarely():
    moved = 0
    stabilizer = Stabilizer(100_000, stages=[SlidingWindow(6, rules=(), every=5)])
    history, previous = talk(4), None
    for number in range(40):
        history += step(number)
        result = stabilizer.stabilize(history)
        if previous is not None and result.artifacts[: len(previous)] != previous:
            moved += 1
            assert result.report.cut.fresh
            assert result.artifacts[: result.report.cut.position] == previous[: result.report.cut.position]
        previous = result.artifacts
    assert 6 <= moved <= 9


def test_the_message_that_opens_the_turn_stays_and_does_not_count_as_waiting():
    stabilizer = Stabilizer(100_000, stages=[SlidingWindow(15)])
    history = [Artifact("user", "Buy a kettle."), Artifact("user", "A red one.")]
    for number in range(30):
        history += step(number)
        result = stabilizer.stabilize(history).artifacts
        assert result[:2] == history[:2]
        assert stabilizer.stabilize(result).artifacts == result


# --- merging


def test_exchanges_alike_in_a_row_are_merged_with_their_count():
    history = [Artifact("user", "Wait until it is ready.")]
    for n in range(6):
        call = ToolCall("poll", '{"job": 7}', f"p{n}")
        history += [Artifact("assistant", "", calls=(call,)), Artifact("tool", f"pending, {n}0 s", answers=f"p{n}")]
    history += [*step(1), *step(2)]
    result = MergeSimilar().apply(history)
    assert len(result) == len(history) - 10
    assert result[2].text == "pending, 50 s\n[the same 6 times in a row, the last one shown]"
    assert result[-4:] == history[-4:]
    assert MergeSimilar().apply(result) == result


def test_screenshots_are_not_taken_for_alike():
    shots = [Artifact("user", (Part("image", tokens=85),)) for _ in range(4)]
    history = [*talk(2), *shots, *talk(2)]
    assert MergeSimilar().apply(history) == history


# --- pruner


def test_scores_come_from_their_parts():
    history = [
        *talk(3),
        *step(1, "order KX-20417 ships on Friday"),
        *step(2, "weather is fine"),
        *step(3, "Error: kettle not found"),
        Artifact("assistant", "Order KX-20417 is the one."),
        Artifact("user", "When does the order KX-20417 ship?"),
    ]
    scorer = ImportanceScorer()
    units = [(a,) for a in history]
    by_text = {a.text: s for a, s in zip(history, scorer.scores(units), strict=True)}
    used, idle = by_text["order KX-20417 ships on Friday"], by_text["weather is fine"]
    assert used.parts["reuse"] > idle.parts["reuse"]
    assert used.parts["relevance"] > idle.parts["relevance"]
    assert by_text["Error: kettle not found"].parts["error"] == 1.0
    assert used.score > idle.score
    assert all(0 <= s.score <= 1 for s in by_text.values())
    assert scorer.score(history[-1], history) == by_text[history[-1].text].score


def test_the_pruner_drops_what_scores_low_and_keeps_the_order():
    history = [*talk(2), *(a for n in range(30) for a in step(n, f"page {'xyz'[n % 3]} says nothing"))]
    history += [Artifact("user", "And now?")]
    rules = PruningRules(importance_threshold=0.35, merge_similar=False)
    result = IntelligentPruner(rules).prune(history)
    assert len(result) < len(history)
    assert [a for a in history if any(a is b for b in result)] == result
    assert IntelligentPruner(PruningRules(importance_threshold=0.0, merge_similar=False)).prune(history) == history


def test_a_target_size_keeps_the_best():
    history = talk(40)
    small = IntelligentPruner(PruningRules(importance_threshold=0.0)).prune(history, target_size=150)
    large = IntelligentPruner(PruningRules(importance_threshold=0.0)).prune(history, target_size=400)
    assert len(small) < len(large) < len(history)


def test_errors_keep_what_stands_around_them():
    history = [*talk(1), *(a for n in range(40) for a in step(n, f"quiet {'abc'[n % 3]}"))]
    history[36] = Artifact("tool", "Error: lost", answers=history[36].answers)

    def kept(context):
        rules = PruningRules(importance_threshold=1.0, keep_error_context=context, merge_similar=False)
        return len(IntelligentPruner(rules).prune(history))

    assert kept(0) < kept(2) < kept(5)


def test_scores_are_in_the_report_and_hold_between_two_points():
    stabilizer = Stabilizer(100_000, stages=[IntelligentPruner(PruningRules(importance_threshold=0.5), every=8)])
    history, previous = talk(2), None
    for number in range(40):
        history += step(number, f"quiet {number}")
        result = stabilizer.stabilize(history)
        if previous is not None and result.artifacts[: len(previous)] != previous:
            assert result.report.cut.fresh
            position = result.report.cut.position
            assert result.artifacts[:position] == previous[:position]
        previous = result.artifacts
    scores = result.report.details["IntelligentPruner"]
    assert {"position", "score", "kind", "recency", "error", "reuse", "relevance"} == set(scores[0])


# --- checkpoints


def shopping():
    return [
        Artifact("system", "You shop."),
        Artifact("user", "Buy a red kettle."),
        *step(1, "Page URL: https://shop.test/login\nPage Title: Sign in"),
        *step(2, "You are logged in as Ann.\n- Page URL: https://shop.test/home\n- Page Title: Home"),
        *step(3, "shelf one"),
        *step(4, "shelf two"),
    ]


def test_the_end_of_a_phase_begins_a_new_context():
    history = shopping()
    stabilizer = Stabilizer(10_000, stages=[CheckpointManager()], keep_recent=1)
    result = stabilizer.stabilize(history)
    assert result.artifacts[:2] == history[:2]
    text = result.artifacts[2].text
    assert "Phase: login" in text
    assert "URL: https://shop.test/home" in text
    assert "Page: Home" in text
    assert result.artifacts[3:] == history[6:]
    assert stabilizer.stabilize(result.artifacts).artifacts == result.artifacts
    assert result.report.counts()["summarised"] == 1


def test_a_phase_that_a_record_tells_of_is_over_however_often_its_end_comes_again():
    history = [*shopping(), *step(5, "You are logged in as Bob."), *step(6, "shelf three")]
    stabilizer = Stabilizer(10_000, stages=[CheckpointManager()], keep_recent=1)
    result = stabilizer.stabilize(history).artifacts
    assert result[3:] == history[6:]
    assert stabilizer.stabilize(result).artifacts == result
    bought = [*result, *step(7, "Item added to cart."), *step(8, "shelf four")]
    assert any("Completed: login, cart\n" in a.text for a in stabilizer.stabilize(bought).artifacts)


STEPS = st.lists(
    st.sampled_from(["done a", "done b", "done c", "said", "asked", "shelf " * 30]), min_size=4, max_size=25
)


@given(STEPS, st.integers(0, 12), st.sampled_from([150, 5_000]), st.booleans(), st.sampled_from([None, "strict"]))
def test_contexts_begin_at_checkpoints_once_whatever_comes_again(steps, marked, budget, slides, provider):
    manager = CheckpointManager([PhaseRule(name, partial(_ends, f"done {name}")) for name in "abc"])
    if marked:
        manager.create_checkpoint("mine", {}, [], messages=marked)
    stages = [RepairExchanges(), manager, *[SlidingWindow(6)] * slides, StableWindow(), OrderByAuthority()]
    stabilizer = Stabilizer(budget, stages=stages, counter="estimate", keep_recent=1, provider=provider)
    history, prompt = [Artifact("user", "Buy a red kettle.")], None
    for number, text in enumerate(steps):
        history += [Artifact("assistant", text)] if text == "said" else step(number, text)
        history += [Artifact("user", f"Go on, {number}.")] * (text in ("said", "asked"))
        prompt = grown(prompt, result := stabilizer.stabilize(history))
        if budget > 150:
            assert stabilizer.stabilize(result.artifacts).artifacts == result.artifacts


def _ends(words, artifact):
    return words in artifact.text


def test_a_checkpoint_is_made_kept_and_resumed_after_a_restart(tmp_path):
    now = datetime(2026, 5, 4, tzinfo=UTC)
    with SQLiteStore(tmp_path / "c.db") as store:
        manager = CheckpointManager(store=store, session="s", clock=lambda: now)
        made = manager.create_checkpoint("cart", PageState("https://shop.test/cart", "Cart"), ["login", "add kettle"])
        assert manager.current_phase == "cart"
    with SQLiteStore(tmp_path / "c.db") as store:
        again = CheckpointManager(store=store, session="s").checkpoints
        assert again == {"cart": made}
        assert CheckpointManager(store=store, session="other").checkpoints == {}
        context = CheckpointManager(store=store).get_context_from_checkpoint(again["cart"], "Buy a kettle.")
    assert [a.kind for a in context] == [Kind.USER, Kind.ASSISTANT]
    assert context[0].text == "Buy a kettle."
    for part in ("Phase: cart", "URL: https://shop.test/cart", "Page: Cart", "Completed: login, add kettle"):
        assert part in context[1].text
    assert made.summary == "Successfully completed 2 objectives. Currently on Cart page."
    assert made.timestamp == now


def test_sessions_with_slashes_in_their_names_keep_their_checkpoints_apart():
    store = MemoryStore()
    for session in ("s1", "s1/2"):
        CheckpointManager(store=store, session=session).create_checkpoint("a/b", {"url": session}, [])
    for session in ("s1", "s1/2"):
        found = CheckpointManager(store=store, session=session).checkpoints
        assert {phase: checkpoint.state.url for phase, checkpoint in found.items()} == {"a/b": session}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"page": "Cart"}, "unknown setting 'page'.*; known are page_title, url"),
        (None, "state is a PageState, not NoneType"),
    ],
)
def test_a_state_of_another_form_is_refused(state, said):
    with pytest.raises(ConfigError, match=said):
        CheckpointManager().create_checkpoint("cart", state, [])


def test_a_checkpoint_has_a_size_limit():
    manager = CheckpointManager(max_size=60)
    made = manager.create_checkpoint("cart", {"url": "u", "page_title": "word " * 500}, ["objective"] * 200)
    context = manager.get_context_from_checkpoint(made, "Go.")
    assert Stabilizer(1_000).counter.text(context[1].text) <= 60


def test_a_phase_of_any_name_ends_where_it_is_said_to_be_done():
    rule = phase_rules(["data_entry"])[0]
    assert rule.ends(Artifact("assistant", "Data entry completed."))
    assert not rule.ends(Artifact("assistant", "Data entry goes on."))


# --- all of them


MASKER = Masker(STANDARD)


def strategy(name, store=None):
    config = CompactionConfig(max_tokens=1_500, target_tokens=700)
    return {
        "window": lambda: SlidingWindow(15),
        "pruner": lambda: IntelligentPruner(PruningRules(keep_error_context=1)),
        "merge": MergeSimilar,
        "checkpoint": CheckpointManager,
        "compactor": lambda: HistoryCompactor(config, summarizer=lambda prompt: "They went on.", store=store),
        "recall": lambda: RecallRelevant(0.2),
    }[name]()


NAMES = ("window", "pruner", "merge", "checkpoint", "compactor", "recall")
PAIRS = [*((n,) for n in NAMES), *permutations(NAMES, 2)]


def chain(names, budget, *, store=None, **settings_):
    middle = [strategy(n, store) for n in names]
    stages = [RepairExchanges(), MaskPII(masker=MASKER), BoundToolOutput(), *middle, StableWindow(), OrderByAuthority()]
    return Stabilizer(budget, stages=stages, **settings_)


CHAINS = {(names, budget): chain(names, budget, counter="estimate") for names in PAIRS for budget in (250, 2_000)}


@given(history=histories(max_turns=7), names=st.sampled_from(PAIRS), budget=st.sampled_from([250, 2_000]))
def test_the_laws_hold_for_every_strategy_and_every_two(history, names, budget):
    stabilizer, before = CHAINS[names, budget], copy.deepcopy(history)
    try:
        result = stabilizer.stabilize(history)
    except BudgetExceededError:
        return
    assert law_findings(history, result.artifacts, stabilizer) == []
    assert result.report.ok, str(result.report)
    assert history == before
    assert stabilizer.stabilize(copy.deepcopy(history)).artifacts == result.artifacts
    mine = [d for d in result.report.decisions if d.position is not None]
    assert [d.position for d in mine] == list(range(len(history)))


@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples)  # there are many pairs
@given(history=histories(max_turns=12), names=st.sampled_from(PAIRS), budget=st.sampled_from([250, 2_000]))
def test_stabilizing_the_result_again_stays_within_the_laws(names, history, budget):
    stabilizer = CHAINS[names, budget]
    try:
        result = stabilizer.stabilize(history).artifacts
    except BudgetExceededError:
        return
    again = stabilizer.stabilize(result)
    assert law_findings(result, again.artifacts, stabilizer) == []
    assert again.report.ok, str(again.report)


@pytest.mark.slow
@given(history=histories(max_turns=9), names=st.sampled_from(PAIRS), budget=st.sampled_from([250, 2_000]))
def test_what_is_remembered_between_calls_never_changes_a_result(history, names, budget):
    store = MemoryStore()  # summaries are state: what one chain has paid for, the other finds
    remembering = chain(names, budget, counter="estimate", store=store)
    ends = [end for end in range(1, len(history) + 1) if end == len(history) or end % 2 or history[end].kind == "tool"]
    served = 0
    for end in ends:
        fresh = chain(names, budget, counter="estimate", store=store)
        try:
            with_memory = remembering.stabilize(history[:end])
        except BudgetExceededError:
            with pytest.raises(BudgetExceededError):
                fresh.stabilize(copy.deepcopy(history[:end]))
            continue
        served += 1
        alone = fresh.stabilize(copy.deepcopy(history[:end]))
        assert with_memory.artifacts == alone.artifacts
        told, told_alone = with_memory.report.to_dict(), alone.report.to_dict()
        if "compactor" in names:
            # Where a prefix changed is judged by what an earlier call sent, and summaries that were paid for since
            # are in the store: another process sees that call as it would be made now.
            del told["cut"], told_alone["cut"]
        assert told == told_alone
    assume(served)  # where every call is refused, Hypothesis says so


@given(history=histories(max_turns=9), names=st.sampled_from(PAIRS), budget=st.sampled_from([250, 2_000]))
def test_prompts_only_grow_but_where_the_report_says_so(history, names, budget):
    stabilizer, previous, served = chain(names, budget, counter="estimate"), None, 0
    ends = [p for p, a in enumerate(history) if a.kind is Kind.ASSISTANT and p] + [len(history)]
    for end in ends:
        try:
            result = stabilizer.stabilize(history[:end])
        except BudgetExceededError as error:
            assert error.needed > budget
            previous = None
            continue
        previous, served = grown(previous, result), served + 1
    assume(served)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2_000, 8_000])
def test_the_laws_hold_on_recorded_sessions(transcripts, budget):
    sessions = [s for path in sorted(transcripts.glob("*.jsonl.gz")) for s in islice(read_sessions(path), 0, 30, 15)]
    judged = 0
    for number, session in enumerate(sessions):
        history = session.read()
        names = PAIRS[(7 * number + budget) % len(PAIRS)]
        stabilizer = chain(names, budget)
        for end in {min(len(history), 120)} - {0}:
            try:
                result = stabilizer.stabilize(history[:end], overhead=REPLY_TOKENS)
            except BudgetExceededError as error:
                assert error.needed > budget
                continue
            findings = law_findings(history[:end], result.artifacts, stabilizer, overhead=REPLY_TOKENS)
            assert findings == [], (session.id, names)
            assert result.report.ok, (session.id, names, str(result.report)[:2_000])
            again = stabilizer.stabilize(result.artifacts, overhead=REPLY_TOKENS)
            assert again.report.ok, (session.id, names, str(again.report)[:2_000])
            judged += 1
    assert judged > len(sessions) / 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: SlidingWindow(0),
        lambda: SlidingWindow(every=0),
        lambda: PruningRules(importance_threshold=2),
        lambda: PruningRules(keep_error_context=-1),
        lambda: IntelligentPruner(target_size=0),
        lambda: ImportanceScorer({"charm": 1.0}),
        lambda: CheckpointManager(max_size=0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_the_media_of_a_verbose_output_stay_and_are_counted():
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "row 7 " * 500}, picture]},
        {"role": "user", "content": "And?"},
    ]
    context = guard(messages, budget=4_000, policy="pattern")
    assert context[2]["content"][1] is picture
    assert "left out" in context[2]["content"][0]["text"]
    again = Stabilizer(4_000, stages=[]).stabilize(OpenAIAdapter().read(context)).report.tokens_after
    assert again <= context.report.tokens_after


def natives():
    yield [{"role": "user", "content": "Hi."}]
    yield ["Hi."]
    yield [SimpleNamespace(type="human", content="Hi.")]


@pytest.mark.parametrize("messages", list(natives()))
@pytest.mark.parametrize(
    "given",
    [
        SlidingWindow(3).apply,
        IntelligentPruner().prune,
        IntelligentPruner().apply,
        MessageCompressor().compress,
        lambda messages: ImportanceScorer().score(messages[0], messages),
    ],
)
def test_native_messages_get_an_error_that_says_how_they_are_read(given, messages):
    with pytest.raises(HistoryError, match=r"message \d: expected an Artifact, got .*process_messages") as caught:
        given([Artifact("user", "Hello."), *messages])
    assert caught.value.position == 1
