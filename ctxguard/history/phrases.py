"""Phrases that ask for nothing, and phrases that state a standing rule: word lists by language.

Lists rather than a model: the same words lead to the same decision everywhere. They only order user messages; a message
that they miss is kept by its age.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_GREETINGS: Final = {
    "en": "hi hello hey hiya howdy greetings yo there everyone all team good morning afternoon evening day how are you "
    "doing today thanks thank nice to meet what's up sup please assistant claude chatgpt",
    "de": "hallo guten morgen tag abend moin servus grüß dich wie geht es dir danke bitte",
    "fr": "bonjour salut bonsoir coucou ça va comment allez-vous merci",
    "es": "hola buenos días buenas tardes noches qué tal cómo estás gracias",
    "it": "ciao buongiorno buonasera salve come stai grazie",
    "pt": "olá oi bom dia boa tarde noite tudo bem obrigado obrigada",
    "nl": "hoi goedemorgen goedemiddag goedenavond dag hoe gaat het dank je wel",
    "pl": "cześć dzień dobry wieczór witaj dziękuję",
    "ru": "привет здравствуйте здравствуй добрый день вечер утро доброе спасибо как дела",
    "tr": "merhaba selam günaydın iyi günler akşamlar nasılsın teşekkürler",
    "zh": "你好 您好 嗨 早上好 大家好 谢谢",
    "ja": "こんにちは おはよう おはようございます こんばんは はじめまして",
    "ko": "안녕하세요 안녕 반갑습니다",
}
_GREETING_WORDS: Final = frozenset(word for words in _GREETINGS.values() for word in words.split())
_MOST_WORDS: Final = 6
"""Words that a greeting may have."""

_STANDING: Final = {
    "en": (
        "never", "always", "must", "must not", "mustn't", "do not", "don't", "from now on", "from here on",
        "at all times", "under no circumstances", "make sure", "be sure to", "only use", "only ever", "no longer",
        "instead of", "at most", "at least", "no more than", "unless", "without asking", "remember", "keep in mind",
        "forbidden", "not allowed", "required", "off limits", "stick to", "use only", "we decided", "we agreed",
        "change of plan", "forget what", "scratch that", "i prefer", "is allergic", "i am allergic",
    ),
    "de": (
        "nie", "niemals", "immer", "muss", "müssen", "darf nicht", "dürfen nicht", "auf keinen fall", "ab jetzt",
        "von nun an", "nur noch", "höchstens", "mindestens", "merk dir", "verboten", "nicht mehr", "bitte nicht",
    ),
    "fr": ("jamais", "toujours", "il faut", "ne doit pas", "désormais", "dorénavant", "à partir de maintenant",
           "au maximum", "au moins", "interdit", "n'oublie pas", "ne pas"),
    "es": ("nunca", "jamás", "siempre", "debe", "debes", "no debe", "a partir de ahora", "de ahora en adelante",
           "como máximo", "al menos", "prohibido", "recuerda que", "bajo ninguna circunstancia"),
    "it": ("mai", "sempre", "deve", "devi", "non deve", "d'ora in poi", "al massimo", "almeno", "vietato", "ricorda"),
    "pt": ("nunca", "jamais", "sempre", "deve", "não deve", "a partir de agora", "no máximo", "pelo menos", "proibido",
           "lembre-se"),
    "nl": ("nooit", "altijd", "moet", "mag niet", "vanaf nu", "hooguit", "minstens", "verboden", "onthoud"),
    "pl": ("nigdy", "zawsze", "musi", "musisz", "nie wolno", "od teraz", "najwyżej", "co najmniej", "pamiętaj"),
    "ru": ("никогда", "всегда", "должен", "должна", "должны", "нельзя", "с этого момента", "отныне", "не более",
           "не менее", "запрещено", "запомни", "помни"),
    "tr": ("asla", "her zaman", "mutlaka", "zorunda", "şu andan itibaren", "bundan sonra", "en fazla", "en az",
           "yasak", "unutma"),
}  # fmt: skip
_STANDING_UNSPACED: Final = (
    "不要", "必须", "永远", "从现在开始", "始终", "禁止", "不得", "务必", "记住",
    "必ず", "決して", "絶対に", "しないで", "これから", "禁止", "覚えて", "てはいけません",
    "절대", "항상", "반드시", "하지 마", "지금부터", "금지", "기억",
)  # fmt: skip
_RULE: Final = re.compile(
    r"(?<!\w)(?:"
    + "|".join(sorted({re.escape(phrase) for phrases in _STANDING.values() for phrase in phrases}))
    + r")(?!\w)|"
    + "|".join(sorted({re.escape(phrase) for phrase in _STANDING_UNSPACED}))
)
_WORD: Final = re.compile(r"[\w'’-]+")


def is_greeting(text: str) -> bool:
    """Return whether a text is only a greeting: at most six words, all of them of greetings."""
    if len(text) > 20 * _MOST_WORDS:
        return False
    words = _WORD.findall(text.casefold().replace("’", "'"))
    return 0 < len(words) <= _MOST_WORDS and all(word in _GREETING_WORDS for word in words)


@lru_cache(maxsize=4_096)
def is_standing(text: str) -> bool:
    """Return whether a text is phrased as a standing instruction ("never", "must", "from now on")."""
    return _RULE.search(text.casefold().replace("’", "'")) is not None
