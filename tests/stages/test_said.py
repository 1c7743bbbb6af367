"""Sentences of people that stand for later: found by their place and by words of many languages, never made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import is_linear

from ctxguard.stages.trail import said_sentences


def texts(message: str) -> list[str]:
    return [said.text for said in said_sentences(message)]


def score(sentence: str) -> int:
    """Return the score of a sentence that neither opens nor closes its message; 0 if it is not listed."""
    message = f"Die Sonne scheint heute.\n{sentence}\nDas war alles davon."
    return next((said.score for said in said_sentences(message) if said.text == sentence), 0)


FILLING = "It rained in the harbor and two boats came in with the tide, as they do in this weather. "
RULES = {
    "en": "From now on, never touch the folder vendor.",
    "en, no must": "Use tabs in each file of the project.",
    "en, of oneself": "I work in Lisbon, so my times are in WEST.",
    "de": "Antworte ab jetzt nur noch auf Deutsch.",
    "fr": "À partir de maintenant, réponds toujours en français.",
    "es": "A partir de ahora, responde siempre en español.",
    "it": "D'ora in poi rispondi sempre in italiano.",
    "pt": "A partir de agora, responda sempre em português.",
    "nl": "Vanaf nu moet je altijd in het Nederlands antwoorden.",
    "pl": "Od teraz zawsze odpowiadaj po polsku.",
    "ru": "С этого момента всегда отвечай по-русски.",
    "tr": "Bundan sonra her zaman Türkçe cevap ver.",
    "zh": "从现在开始必须用中文回答。",
    "ja": "これからは必ず日本語で答えてください。",
    "ko": "지금부터 항상 한국어로 대답해 주세요.",
}


@pytest.mark.parametrize("language", RULES)
def test_a_rule_in_the_middle_is_listed_in_each_language(language):
    rule = RULES[language]
    assert score(rule) >= 2
    assert rule in texts(f"{FILLING}\n{rule}\n{FILLING * 2}")


@pytest.mark.parametrize("language", [name for name in RULES if name not in ("en, no must", "en, of oneself")])
@pytest.mark.parametrize("size", [2_000, 60_000])
def test_a_rule_in_a_long_pasted_text_is_listed(language, size):
    half = FILLING * (size // len(FILLING) // 2)
    assert RULES[language] in texts(f"{half}\n{RULES[language]}\n{half}")


def test_letters_that_grow_in_lower_case_do_not_move_a_sentence():
    half = "İstanbul ve İzmir. " * 60
    assert RULES["tr"] in texts(f"{half} {RULES['tr']} {half}")


@pytest.mark.parametrize(
    ("sentence", "other"),
    [
        ("Never push to main.", "I never remember the name of it."),
        ("Use tabs in all files.", "Can you use tabs in all files?"),
        ("I prefer short answers.", "The weather was fine in June."),
        ("Réponds toujours en français.", "Il a fait beau hier soir."),
    ],
)
def test_a_rule_ranks_above_what_only_sounds_like_one(sentence, other):
    assert score(sentence) > score(other)


def test_what_opens_and_closes_a_message_is_listed_whatever_its_words():
    message = "Zorbo quatsch menno. Wala wala bing bang. Tulu pana keno."
    assert texts(message) == ["Zorbo quatsch menno.", "Tulu pana keno."]


@pytest.mark.parametrize(
    "message", ["Yes.", "", " \n\n ", "ok thanks", "?!", "🎉🎉🎉", "```\nnever do this in code\n```"]
)
def test_short_words_signs_and_code_are_no_sentences(message):
    assert texts(message) == []


def test_marks_of_lists_and_quotations_are_left_out_and_each_item_is_a_sentence():
    message = (
        "Please note:\n- Never touch the tests.\n* Always use tabs here.\n2) Do not push it.\n> Keep it short, please."
    )
    assert texts(message) == [
        "Never touch the tests.",
        "Always use tabs here.",
        "Do not push it.",
        "Keep it short, please.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Always ask Dr. Okafor before you change the dose.",
        "Never book a flight with J. R. Airlines for me.",
        "Always write units in full, e.g. Meters and not their short form.",
        "Schreib immer an Hr. Weber und nie an seine Kollegen.",
        "Il faut toujours prévenir Mme. Laurent avant de partir.",
        'Whenever I feel ill, always say: "I am sorry to hear that. Get well soon."',
        "Whenever I feel ill, always say: 'I am sorry to hear that. Get well soon.'",
        "Always greet them with “Hello there. How are you?” and nothing else.",
        "Begrüße sie immer mit „Guten Tag. Wie geht es?“ und nie anders.",
        "Il faut toujours répondre « Bonjour. Ça va ? » et rien d'autre.",
    ],
)
def test_a_period_in_a_name_an_abbreviation_or_a_quotation_ends_no_sentence(sentence):
    message = f"{FILLING}{sentence} {FILLING}"
    assert sentence in texts(message)
    assert sentence in texts(FILLING * 20 + message + FILLING * 20)


def test_a_sentence_keeps_the_marks_that_close_it():
    message = 'The motto is "Never give up." We should (always) ask first.) It said ‘stop.’ That is it for now.'
    assert texts(message)[0] == 'The motto is "Never give up."'
    assert not any(sentence.startswith(('"', ")", "’")) for sentence in texts(message))


@pytest.mark.parametrize("title", ['"Don\'t Stop Me Now"', "“Never Let Me Go”", "'Always On My Mind'", "«Jamais seul»"])
def test_words_of_a_quoted_title_make_no_rule(title):
    assert score(f"The song {title} was a hit in June.") == 0
    assert score(f"Never play the song {title} in the shop.") >= 2


def test_a_quoted_sentence_may_be_a_rule():
    assert score('The landlord wrote: "Never light a fire on the roof."') >= 2


def test_a_long_sentence_in_a_pasted_text_is_not_listed_in_part():
    long = f"Never touch the folder {'and all the other folders that stand beside it ' * 12}in the archive."
    assert texts(FILLING * 20 + long + " " + FILLING * 20) == texts(FILLING * 40)


def test_at_most_six_sentences_of_a_message_are_listed_the_best_and_then_the_latest():
    rules = [f"Never touch the folder number{n}." for n in range(9)]
    assert texts(f"{FILLING}{' '.join(rules)} {FILLING}") == rules[3:]


PIECES = st.sampled_from(
    [*RULES.values(), "Never.", "- ", "```", "\n", ". ", "。", "?", '"', "x" * 300, "\u2028", "1) "]
)


@given(st.lists(st.one_of(st.text(max_size=40), PIECES), max_size=30).map("".join))
def test_a_listed_sentence_stands_in_its_message_on_one_line_and_in_order(message):
    found = texts(message)
    assert len(found) <= 6
    words = " ".join(message.split())
    cursor = 0
    for sentence in found:
        assert 6 <= len(sentence) <= 240
        assert sentence.splitlines() == [sentence]
        cursor = words.find(sentence, cursor)
        assert cursor >= 0
    assert all(said.score >= 1 for said in said_sentences(message))


@pytest.mark.parametrize(
    "sign",
    [
        "never ",
        "never. ",
        "a",
        ". ",
        "- ",
        "\n",
        "```",
        "。",
        "…",
        "'",
        "'a ",
        '"',
        "„",
        '."',
        "Dr. ",
        "don't use ",
        "不要",
    ],
)
@pytest.mark.parametrize("size", [1_100, 60_000])
def test_hostile_texts_take_linear_time(sign, size):
    def work(count):
        said_sentences.__wrapped__(sign * (count // len(sign)))

    assert is_linear(work, size)
