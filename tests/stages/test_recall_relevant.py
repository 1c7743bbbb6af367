"""RecallRelevant: what was cut and matters comes back, as one block, within the budget, the same for the whole turn."""

from __future__ import annotations

import copy
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, BudgetExceededError, Kind, Stabilizer, ToolCall
from ctxguard.artifacts import Part
from ctxguard.errors import ConfigError
from ctxguard.history import RECALLED, record_title
from ctxguard.pii import STANDARD
from ctxguard.policies import agent_stages
from ctxguard.stages import FillBudget, MaskPII, OrderByAuthority, RecallRelevant, RepairExchanges, StableWindow
from ctxguard.stages.lexical import LexicalIndex, words
from ctxguard.stores import MemoryStore
from ctxguard.testing import histories, law_findings

BEFORE = agent_stages()[:-2]


def windowed(share=0.3, **settings):
    recall = RecallRelevant(share, **settings)
    return [StableWindow(recall=recall), recall]


def recalling(budget, *, share=0.3, threshold=0.0, before=BEFORE, **settings):
    return Stabilizer(budget, stages=[*before, *windowed(share, threshold=threshold), OrderByAuthority()], **settings)


def chatter(turns, facts=None):
    history = [Artifact("system", "You help.")]
    for turn in range(turns):
        said = (facts or {}).get(turn, f"Let us talk about item {turn} of the long list of ordinary matters.")
        history += [Artifact("user", said), Artifact("assistant", f"Noted, and that was matter {turn}. " * 4)]
    return history


def block_of(result):
    """Return the block of the latest question that recalled something."""
    return next((a for a in reversed(result.artifacts) if record_title(a) == RECALLED), None)


FACT = {3: "My dentist is called Ottoline Quibble and sits in Zwolle."}
QUESTION = Artifact("user", "Where does my dentist Ottoline sit?")


def test_what_was_cut_and_matters_comes_back_right_before_the_question():
    history = [*chatter(40, FACT), QUESTION]
    result = recalling(800).stabilize(history)
    block = block_of(result)
    assert FACT[3] in block.text
    assert "[turn 4] user:" in block.text
    assert result.artifacts[-1] is history[-1]
    assert result.artifacts[-2] is block
    assert result.report.tokens_after <= 800
    assert result.report.ok
    assert [d.stage for d in result.report.decisions if d.action == "recalled"] == ["RecallRelevant"]


def test_what_a_person_said_comes_before_what_the_model_said_of_it():
    rest = "It has a blue hull, two masts, a stove, and a bell that nobody rings. " * 3
    said, repeated = f"Ottoline the dentist sits in a boat. {rest}", f"Your dentist Ottoline sits in a boat. {rest}"
    history = [*chatter(20, {3: said}), Artifact("assistant", repeated), *chatter(40)[1:], QUESTION]
    text = block_of(recalling(560).stabilize(history)).text
    assert said in text
    assert repeated not in text


def test_english_words_match_in_any_form():
    history = [*chatter(40, {3: "The kettles were boiling."}), Artifact("user", "Who boils a kettle?")]
    assert "The kettles were boiling." in block_of(recalling(800).stabilize(history)).text


def test_pieces_stand_in_the_order_of_the_conversation():
    facts = {9: "Ottoline moved to Deventer.", 3: "Ottoline lived in Zwolle.", 6: "Ottoline painted boats."}
    text = block_of(recalling(1_200).stabilize([*chatter(60, facts), QUESTION])).text
    places = [text.index(facts[turn]) for turn in (3, 6, 9)]
    assert places == sorted(places)


def test_nothing_is_recalled_while_everything_fits():
    history = [*chatter(4, FACT), QUESTION]
    result = recalling(4_000).stabilize(history)
    assert result.artifacts == history
    assert not result.report.changed


def test_nothing_is_recalled_where_no_word_is_shared():
    result = recalling(800).stabilize([*chatter(40, FACT), Artifact("user", "Xylophon?")])
    assert record_title(result.artifacts[-2]) != RECALLED


def test_the_block_stays_the_same_until_a_cut_and_what_stands_before_it_too():
    stabilizer = recalling(1_000, threshold=0.6)
    history = [*chatter(43, FACT), QUESTION]
    first = stabilizer.stabilize(history).artifacts
    place = next(p for p, a in enumerate(first) if record_title(a) == RECALLED)
    for step in range(12):
        call = ToolCall("look", '{"where": "Zwolle"}', f"c{step}")
        history += [
            Artifact("assistant", "", calls=(call,)),
            Artifact("tool", f"Ottoline the dentist, page {step}", answers=f"c{step}"),
        ]
        result = stabilizer.stabilize(history)
        if result.report.cut.fresh:
            assert step > 2
            assert block_of(result) is None
            return
        assert result.artifacts[: place + 2] == first[: place + 2]
    pytest.fail("nothing was cut")


def test_the_block_stays_for_a_question_that_does_not_need_another():
    stabilizer = Stabilizer(1_500)
    history = [*chatter(75, FACT), QUESTION]
    first = stabilizer.stabilize(history).artifacts
    history += [Artifact("assistant", "In Zwolle."), Artifact("user", "Fine.")]
    result = stabilizer.stabilize(history)
    assert block_of(result) is not None
    assert result.artifacts[: len(first)] == first


def test_the_default_recalls_only_what_the_context_does_not_hold():
    stabilizer, history = Stabilizer(900), chatter(40, FACT)
    assert FACT[3] in block_of(stabilizer.stabilize([*history, QUESTION])).text
    for said in ("Thanks, go on.", "What was matter 39 about?"):
        assert block_of(stabilizer.stabilize([*history, Artifact("user", said)])) is None


@pytest.mark.parametrize(
    ("reply", "is_recalled"),
    [("I look at loader.py.\n```\nopen loader.py\n```", False), ("It sits at the harbor. Anything else?", True)],
)
def test_the_default_recalls_for_people_and_not_for_the_outputs_of_an_agent_without_tools(reply, is_recalled):
    history = [*chatter(40, FACT), Artifact("user", "Go on."), Artifact("assistant", reply)]
    history += [Artifact("user", "Fine."), Artifact("assistant", reply)]
    history.append(Artifact("user", "dentist = 'Ottoline Quibble'\nplace = 'Zwolle'"))
    assert (block_of(recalling(800, threshold=0.6).stabilize(history)) is not None) == is_recalled


def test_the_default_does_not_recall_where_a_few_hundred_tokens_are_available():
    history = [*chatter(40, FACT), QUESTION]
    assert block_of(Stabilizer(450).stabilize(history)) is None
    assert FACT[3] in block_of(Stabilizer.from_policy("recall", budget=450).stabilize(history)).text


def test_the_default_never_recalls_for_the_task():
    history = [Artifact("user", "Find the dentist Ottoline.")]
    for step in range(60):
        call = ToolCall("look", '{"where": "dentist Ottoline"}', f"c{step}")
        history += [Artifact("assistant", "", calls=(call,)), Artifact("tool", "Ottoline? " * 20, answers=f"c{step}")]
        assert block_of(Stabilizer(900, counter="estimate").stabilize(history)) is None


@pytest.mark.parametrize(
    ("told", "asked", "filler"),
    [
        ("我的牙医奥托琳在兹沃勒。", "奥托琳牙医在哪里?", "第{}天我们谈谈天气和火车。"),
        ("歯医者のオットリンはズヴォレにいます。", "歯医者のオットリンはどこ?", "{}日目は天気と電車の話です。"),
        ("หมอฟันชื่ออ็อตโตลีนอยู่ที่ซโวลเลอ", "อ็อตโตลีนหมอฟันอยู่ไหน", "วันที่ {} เราคุยเรื่องอากาศและรถไฟ"),
        ("Мой зубной врач Оттолина живёт в Зволле.", "Где врач Оттолина?", "День {}: поговорим о погоде и поездах."),
        ("मेरी दंत चिकित्सक ओटोलिन ज़्वोले में है।", "ओटोलिन चिकित्सक कहाँ है?", "दिन {}: मौसम और रेल की बात करें।"),
        ("طبيبة الأسنان أوتولين تعمل في زفوله.", "أين الطبيبة أوتولين؟", "اليوم {}: لنتحدث عن الطقس والقطارات."),
        ("내 치과 의사 오톨린 은 즈볼레 에 있다.", "오톨린 의사 어디?", "{}일째: 날씨 와 기차 이야기."),
    ],
)
def test_the_default_recalls_in_any_language(told, asked, filler):
    history = [Artifact("user", "?"), Artifact("assistant", "!")]
    for turn in range(60):
        said = told if turn == 3 else filler.format(turn) * 2
        history += [Artifact("user", said), Artifact("assistant", filler.format(turn) * 4)]
    stabilizer = Stabilizer(1_200)
    assert told in block_of(stabilizer.stabilize([*history, Artifact("user", asked)])).text
    assert block_of(stabilizer.stabilize([*history, Artifact("user", filler.format(59))])) is None


TOLD = {
    "Ottoline repairs violins": "Who repairs violins?",
    "Barnabas breeds herons": "Who breeds herons?",
    "Philippa welds bridges": "Who welds bridges?",
    "Thaddeus paints tulips": "Who paints tulips?",
    "Winifred tunes engines": "Who tunes engines?",
    "Leopold carves spoons": "Who carves spoons?",
}


def asked_in_turn(budget, share):
    """Ask for one thing after the other, each of which one message long ago tells."""
    facts = {8 * n + 2: f"{told} as a trade near the old harbor. " * 5 for n, told in enumerate(TOLD)}
    history, stabilizer = chatter(90, facts), recalling(budget, share=share, threshold=0.6)
    for question in TOLD.values():
        history.append(Artifact("user", question))
        yield stabilizer.stabilize(history)
        history.append(Artifact("assistant", "Fine."))


def blocks_of(result):
    return [a for a in result.artifacts if record_title(a) == RECALLED]


def test_blocks_of_earlier_turns_stay_and_the_prompt_only_grows():
    results = list(asked_in_turn(3_000, share=0.1))
    assert [len(blocks_of(result)) for result in results[:2]] == [1, 2]
    for before, after in pairwise(results):
        assert after.artifacts[: len(before.artifacts)] == before.artifacts
        assert after.report.cut is None or not after.report.cut.fresh


def test_what_a_block_shows_is_not_recalled_again():
    stabilizer, history = recalling(3_000, share=0.1, threshold=0.6), [*chatter(60, FACT), QUESTION]
    stabilizer.stabilize(history)
    history += [Artifact("assistant", "In Zwolle."), Artifact("user", "And who is my dentist Ottoline?")]
    result = stabilizer.stabilize(history)
    assert sum(block.text.count(FACT[3]) for block in blocks_of(result)) == 1


def test_earlier_blocks_leave_with_a_cut_only_and_the_window_does_not_depend_on_them():
    results = list(asked_in_turn(3_000, share=0.1))
    for before, after in pairwise(results):
        gone = [block for block in blocks_of(before) if block not in blocks_of(after)]
        assert not gone or after.report.cut.fresh
    assert any(len(blocks_of(result)) > 1 for result in results)


def looked_up(seed, turns=18):
    """Return turns with parallel calls whose results share words with many questions."""
    chance = random.Random(seed)
    rare = [f"{chance.choice(('Kalo', 'Mitra', 'Vendor', 'Pelsun'))}{number}" for number in range(30)]

    def text(count):
        return " ".join(
            chance.choice(rare) if chance.random() < 0.1 else f"w{chance.randrange(40)}" for _ in range(count)
        )

    history = [Artifact("system", f"You help. {text(40)}")]
    for turn in range(turns):
        history.append(Artifact("user", f"What about {chance.choice(rare)}? {text(8)}"))
        calls = [
            ToolCall("look", f'{{"q": "{chance.choice(rare)}"}}', f"c{turn}-{n}")
            for n in range(chance.choice((0, 1, 4, 8)))
        ]
        if calls:
            history.append(Artifact("assistant", "", calls=tuple(calls)))
            history += [Artifact("tool", text(chance.choice((5, 30, 90))), answers=each.id) for each in calls]
        history.append(Artifact("assistant", text(20)))
    return history


@pytest.mark.parametrize("budget", [1_500, 2_500, 4_000])
@pytest.mark.parametrize("target", [0.3, 0.5, 0.7])
def test_a_window_reserves_for_its_blocks_what_they_take_so_that_it_cuts_only_where_the_budget_is_hit(target, budget):
    recall, reserved = RecallRelevant(threshold=0.0), []

    def watched(draft):
        reserved[:] = [left.tokens for left in draft.decisions.left_out or ()]
        return draft

    stabilizer = Stabilizer(budget, stages=[StableWindow(recall=recall, target=target), watched, recall])
    count, history, blocks = stabilizer.counter.artifact, looked_up(budget), 0
    for end in (n for n, artifact in enumerate(history) if n and artifact.kind is Kind.ASSISTANT):
        result = stabilizer.stabilize(history[:end])
        assert [count(block) for block in blocks_of(result)] == reserved
        blocks += len(reserved)
    assert blocks > 5


def test_a_long_text_that_shares_a_few_words_recalls_nothing():
    pasted = " ".join(f"line{n} of the report" for n in range(60))
    history = [*chatter(40, FACT), Artifact("user", f"Summarize this for my dentist: {pasted}")]
    assert block_of(Stabilizer(1_500).stabilize(history)) is None
    assert block_of(Stabilizer(1_500).stabilize([*history[:-1], QUESTION])) is not None


@pytest.mark.slow
@settings(max_examples=20)
@given(
    history=histories(max_turns=8),
    budget=st.sampled_from([250, 500, 1_000]),
    settings=st.fixed_dictionaries({"share": st.sampled_from([0.15, 0.5]), "threshold": st.sampled_from([0.0, 0.7])}),
)
def test_laws_hold(history, budget, settings):
    stabilizer = recalling(budget, **settings, counter="estimate")
    try:
        result = stabilizer.stabilize(history)
    except BudgetExceededError:
        return
    assert law_findings(history, result.artifacts, stabilizer) == []
    assert result.report.ok, str(result.report)
    assert result.report.tokens_after <= budget
    other = recalling(budget, **settings, counter="estimate")
    assert other.stabilize(copy.deepcopy(history)).artifacts == result.artifacts
    assert stabilizer.stabilize(result.artifacts).artifacts == result.artifacts


@settings(max_examples=15)
@given(history=histories(max_turns=8), budget=st.sampled_from([250, 500]), threshold=st.sampled_from([0.0, 0.7]))
def test_prompts_only_grow_but_where_the_report_says_so(history, budget, threshold):
    stabilizer, previous = recalling(budget, threshold=threshold, counter="estimate"), None
    for end in range(1, len(history) + 1):
        if end < len(history) and history[end].kind is not Kind.ASSISTANT:
            continue
        try:
            result = stabilizer.stabilize(history[:end])
        except BudgetExceededError:
            return
        cut = result.report.cut
        same = len(previous) if previous is not None else 0
        if cut is not None and cut.fresh:
            same = min(cut.position, same)
        if previous is not None:
            assert result.artifacts[:same] == previous[:same]
        previous = result.artifacts


@pytest.mark.slow
@settings(max_examples=50)
@given(
    said=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=40), min_size=8, max_size=24),
    step=st.integers(1, 5),
)
def test_a_session_decides_as_a_call_with_the_whole_list_does(said, step):
    history = [Artifact("system", "You help.")]
    for turn, numbers in enumerate(said):
        text = " ".join(f"word{number}" for number in numbers)
        history += [Artifact("user", text), Artifact("assistant", f"Noted {turn}: {text}.")]
    session = Stabilizer(400, counter="estimate").session()
    for end in range(0, len(history), step):
        for artifact in history[end : end + step]:
            session.append(artifact)
        whole = Stabilizer(400, counter="estimate").stabilize(history[: end + step])
        assert [(a.kind, a.text) for a in session.context().artifacts] == [(a.kind, a.text) for a in whole.artifacts]
        assert whole.report.tokens_after <= 400


def test_the_block_is_masked():
    facts = {3: "Ottoline's mail is ottoline@example.com, write to it."}
    result = recalling(900).stabilize([*chatter(40, facts), Artifact("user", "What is Ottoline's mail?")])
    assert "Ottoline's mail is" in block_of(result).text
    assert not STANDARD.find(block_of(result).text)


def test_an_exchange_that_is_too_large_comes_back_as_an_excerpt():
    long = "Ottoline keeps lists.\n" + "\n".join(f"entry number {n}" for n in range(300))
    stages = [RepairExchanges(), *windowed(threshold=0.0)]
    history = [*chatter(6), Artifact("user", long), Artifact("assistant", "Thanks."), *chatter(30)[1:], QUESTION]
    result = Stabilizer(1_000, stages=stages).stabilize(history)
    assert "Ottoline keeps lists" in block_of(result).text
    assert long not in block_of(result).text
    assert result.report.tokens_after <= 1_000


@pytest.mark.parametrize(
    "moved",
    [
        Artifact("user", (Part("text", "Ottoline moved to Deventer."), Part("image", tokens=2_000))),
        Artifact("user", "Ottoline moved to Deventer.", 2_000),
    ],
)
def test_a_picture_or_a_count_of_the_callers_does_not_keep_a_short_text_from_coming_back(moved):
    history = [*chatter(40, FACT), moved, *chatter(60)[1:], QUESTION]
    assert "Deventer" in block_of(recalling(4_000, share=0.15).stabilize(history)).text


def test_after_another_strategy_it_takes_what_is_left():
    stages = [MaskPII(), FillBudget(), RecallRelevant(0.4)]
    history = [*chatter(40, FACT), QUESTION]
    assert Stabilizer(700, stages=stages).stabilize(history).report.tokens_after <= 700


def test_a_recalled_block_is_not_recalled_again():
    stabilizer = recalling(800)
    once = stabilizer.stabilize([*chatter(40, FACT), QUESTION]).artifacts
    longer = [*once, Artifact("assistant", "In Zwolle."), *chatter(40)[1:], QUESTION]
    block = block_of(stabilizer.stabilize(longer))
    assert block is None or block.text.count(RECALLED) == 1


@pytest.mark.parametrize("share", [0, 1, -0.1, 2])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ConfigError, match="share"):
        RecallRelevant(share)


@pytest.mark.parametrize("threshold", [-0.1, 1.1])
def test_a_threshold_out_of_range_is_refused(threshold):
    with pytest.raises(ConfigError, match="threshold"):
        RecallRelevant(threshold=threshold)


def test_words_of_any_script():
    assert words("Straße, STRASSE") == ["strasse", "strasse"]
    assert words("東京タワー") == [*"東京タワー", "東京", "京タ", "タワ", "ワー"]
    assert words("हिन्दी में, مُحَمَّد") == ["हिन्दी", "में", "مُحَمَّد"]
    assert words("перевод_2") == ["перевод", "2"]
    assert words("call_me-2.day") == ["call", "me", "2", "day"]
    assert words("A2024年3月B") == ["a2024", "年", "3", "月", "b"]


def index_of(*documents):
    index = LexicalIndex()
    for document in documents:
        index.add(document)
    return index


def test_scores_find_rare_words_and_do_not_depend_on_what_was_asked_before():
    documents = [("the cat sat",), ("the dog ran",), ("the zebra slept", "quagga")]
    grown, fresh = index_of(*documents[:2]), index_of(*documents)
    assert grown.matches("dog")[1] > 0
    grown.add(documents[2])
    scores = fresh.matches("the quagga")
    assert grown.matches("the quagga") == scores
    assert scores[2] > max(scores[0], scores[1])
    assert fresh.matches("") == {}
    assert index_of().matches("x") == {}


def test_questions_from_a_template_do_not_recall_each_other():
    """They share all words but the ones that matter, and half of the messages have the shared ones."""
    history = [Artifact("system", "You help.")]
    cuts = recalled = 0
    stabilizer = Stabilizer(2_000, stages=[*BEFORE, *windowed(0.5, threshold=0.4), OrderByAuthority()])
    for turn in range(60):
        history.append(Artifact("user", f"Question {turn}: customer c{turn} asks about the order A-{turn}. " * 6))
        report = stabilizer.stabilize(history).report
        cuts += report.cut is not None and report.cut.fresh
        recalled += any(decision.action == "recalled" for decision in report.decisions)
        history.append(Artifact("assistant", f"A-{turn} is on truck {turn}. " * 9))
    assert cuts < 20
    assert recalled < 20


def test_a_very_long_query_is_answered_by_its_rarest_words():
    query = " ".join(f"filler{n}" for n in range(500)) + " common word7"
    scores = index_of(*((f"word{n} common, and three more",) for n in range(50))).matches(query)
    assert max(scores, key=scores.__getitem__) == 7


def test_an_earlier_copy_of_a_question_ranks_below_what_answers_it():
    question = "Where did I leave the green umbrella of Ottoline?"
    answer = "Ottoline has a green umbrella, which I think I did leave in the cloakroom of the theatre on Friday."
    scores = index_of((question,), (answer,), ("Where did I leave the green umbrella of Odo?",)).matches(question)
    assert max(scores, key=scores.__getitem__) == 1
    assert scores[0] == 0


PETS = {3: "Our tomcat Mirabelle purrs whenever there is fish."}
ABOUT_PETS = Artifact("user", "Which pets live here? Cats?")


def test_meanings_are_found_where_no_word_is_shared():
    pytest.importorskip("wordllama")
    history = [*chatter(40, PETS), ABOUT_PETS]
    by_words = Stabilizer.from_policy("recall", budget=800).stabilize(history)
    assert block_of(by_words) is None or PETS[3] not in block_of(by_words).text
    result = Stabilizer.from_policy("recall", budget=800, embed="static").stabilize(history)
    assert PETS[3] in block_of(result).text
    assert result.report.ok


def test_an_embedding_that_fails_leaves_words_and_the_report_says_so():
    def down(texts):
        raise ConnectionError("no route to host")

    history = [*chatter(40, FACT), QUESTION]
    result = Stabilizer.from_policy("recall", budget=800, embed=down).stabilize(history)
    assert FACT[3] in block_of(result).text
    assert "ConnectionError" in str(result.report.details["RecallRelevant"])


@pytest.mark.parametrize("store", [None, MemoryStore()])
def test_a_dry_run_calls_no_embedding_and_says_so(store):
    called = []

    def embed(texts):
        called.append(texts)
        return [[1.0, 0.0]] * len(texts)

    history = [*chatter(40, FACT), QUESTION]
    stabilizer = Stabilizer.from_policy("recall", budget=800, embed=embed, store=store)
    report = stabilizer.plan(history)
    assert report.ok
    assert not called
    assert "recalled" in str(report.to_dict())
    assert report.details["RecallRelevant"] == {"embed": "not called in a dry run; ranked by words alone"}
    assert "RecallRelevant" not in stabilizer.stabilize(history).report.details
    assert called


def test_of_what_is_too_long_the_passages_that_match_come_back():
    lines = [f"entry {n}: nothing of note in this part of the long list of entries" for n in range(300)]
    lines[200] = "entry 200: the dentist Ottoline Quibble sits in Zwolle"
    stages = [RepairExchanges(), *windowed(threshold=0.0)]
    history = [
        *chatter(6),
        Artifact("user", "\n".join(lines)),
        Artifact("assistant", "Ok."),
        *chatter(30)[1:],
        QUESTION,
    ]
    result = Stabilizer(1_000, stages=stages).stabilize(history)
    assert lines[200] in block_of(result).text
    assert lines[20] not in block_of(result).text
    assert result.report.tokens_after <= 1_000
