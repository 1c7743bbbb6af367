"""Passwords by the word before them: in prose, configuration, code, JSON, XML, and on command lines.

A password in quotes is all that stands in them. Without quotes it goes on to the next white space, as a password may
hold any sign; what ends a sentence, a bracket, or begins the next setting (`;Database=…`) is no part of it.
"""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped

_HERE: Final = "ctxguard.pii.detect.passwords:"
_NAME: Final = "(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{0,40}?"
# What every match holds, so that texts without it cost nothing, and the words.
_WORDS: Final = (
    ("passw", rf"{_NAME}passw(?:or[dt]|d)s?"),
    ("pwd", rf"(?:{_NAME}pwd|(?<![A-Za-z0-9])pw)"),
    (
        "pass",
        r"(?<![A-Za-z0-9_-])(?:pass(?:phrase|code|(?=\"? ?[:=])(?!:? ?(?-i:[CFGHJK][A-Z0-9]{8})(?![A-Za-z0-9])))"
        r"|(?:[A-Za-z0-9]{1,20}[_-]){0,2}[A-Za-z0-9]{1,20}[_-]pass)",
    ),
    *(
        (name, rf"(?<![^\W\d_])(?:{words})")
        for name, words in (
            ("romance", r"mot[ _-]?de[ _-]?passe|palavra[ _-]?passe|contrase[nñ]a|senha|mdp|clave"),
            ("germanic", r"kennwort|wachtwoord|adgangskode[nr]?|kodeord(?:et)?|passord(?:et)?"),
            ("slavic", "haslo|heslo|geslo|lozinka|zaporka"),
            ("uralic", r"jelsz(?:o|ava)\w{0,2}|salasana\w{0,3}|parool"),
            ("parola", "parol[aăe](?: d['’]ordine|[ _-]?chiave)?"),
        )
    ),
)
# Words that begin many others are named as context, too: no text with `passenger` alone is searched for them.
_WHOLE: Final = {"pass": r"(?<![^\W\d_])pass(?:phrase|code)?(?![^\W\d_])"}
# Words with letters beyond ASCII: what is left of `hasło` without them (`has`) stands in every text.
_SCRIPTS: Final = (
    r"şifre|sifre|hasło|hasłem|lösen(?:ord(?:et)?)?|jelsz[óa]\w{0,4}|salasõna|slaptažodis|šifra|пароль|парола(?:та)?"
    r"|wi-?fi[ -]key|wlan[ -]key|code d['’]acc.s|access code|zugangscode"
    r"|κωδικός(?: πρόσβασης| μου)?|συνθηματικό|(?:wlan|wi-?fi)-?schlüssel|密码|密碼|パスワード|비밀번호"
)
# What a password is for, or of which kind it is.
_WHICH: Final = (
    r"(?:[ -](?:[^\W\d_]{1,4} ){0,2}(?:wi-?fi|wlan|admin|root|login|portal|account|e?-?mail|konto|antigua|actual"
    "|tempor[^\\W\\d_]{1,6}|provis[^\\W\\d_]{1,6}|provvisoria))?"
)
# `: `, ` = `, ` => `, `": `, and ` is `.
_ASSIGNED: Final = (
    rf"{_WHICH}(?:\\?[\"']?\]?\s{{0,3}}(?::=|=>|[:=：→]|(?<= )[–—-](?= ))\s{{0,3}}"
    r"|(?: (?:number|here|value))?,? (?:i set was|is|was|ist|war|lautet|est|c'est|était|es|era|è|é|е|jest"
    r"|to|är|er|var|on|oli|je|bylo|byl|este|είναι|yra|ir)(?: now| set to)?:? |'s )"
)
# Letters, digits and the signs that no path, address or expression has.
_MIXED: Final = r"(?P<value>[A-Za-z0-9][A-Za-z0-9!#$%^&*+?~_@-]{6,40})(?![A-Za-z0-9/\\.:=(\[@][A-Za-z0-9/]|[(\[=])"
_SPACED: Final = (
    ("pass", "pass(?:wor[dt]|wd|phrase|code|ord)?"),
    ("other", "pwd?|kennwort|mdp|mot de passe|contrase[nñ]a|clave|senha|wachtwoord|adgangskode|kodeord"),
    ("east", "haslo|heslo|geslo|lozinka|zaporka|jelszo|salasana|parool|parol[ae]"),
)
# A quote within a password is followed by more of it.
_BARE: Final = r"(?P<value>[^\s\"'`<>\x00\\](?:[^\s\"'`<>\x00]|(?<=[A-Za-z0-9!?]{2})[\"'`](?=[A-Za-z0-9])){5,199})"
# An alternative for each kind of quotes, bare and escaped: with a reference to a group, texts could not be searched in
# one go.
_QUOTES: Final = "\"'`"
_INSIDE: Final = "|".join(
    rf"(?<=\\{quote})(?:(?!\\?{quote})[^\n\x00]){{6,200}}(?=\\{quote})"
    rf"|(?<={quote})(?<!\\{quote})(?:[^{quote}\n\x00\\]|\\[^\n\x00]){{6,200}}(?={quote})"
    for quote in _QUOTES
)
_QUOTED: Final = rf"(?:[bBrRfFuU]{{0,2}}|\\)[{_QUOTES}](?P<value>{_INSIDE})"


def _rules(name: str, words: str, context: str = "") -> tuple[Rule, ...]:
    return tuple(
        shipped(
            f"{name}-{kind}", "PASSWORD", rf"(?i){words}{_ASSIGNED}{value}", validate=_HERE + judge, context=context
        )
        for kind, value, judge in (("quoted", _QUOTED, "quoted_password"), ("bare", _BARE, "bare_password"))
    )


PASSWORD_RULES: Final = (
    *(rule for name, words in _WORDS for rule in _rules(f"password-{name}", words, _WHOLE.get(name, ""))),
    # the words are named as context, too: no text in ASCII alone is searched for them
    *_rules("password-scripts", f"(?:{_SCRIPTS})", _SCRIPTS),
    # nothing but a blank before it: a value that cannot be a word
    *(
        shipped(
            f"password-spaced-{name}",
            "PASSWORD",
            rf"(?i)(?<![^\W_])(?:{words}){_WHICH}[ \t]{{1,3}}{_MIXED}",
            validate=_HERE + "mixed_password",
            context=rf"(?<![^\W\d_])(?:{words})(?![^\W\d_])",
        )
        for name, words in _SPACED
    ),
    shipped(
        "password-beside-email",
        "PASSWORD",
        rf"(?i)@[a-z0-9-]{{1,62}}(?:\.[a-z0-9-]{{1,62}}){{0,4}}\.[a-z]{{2,24}}(?: ?[/|:;,→] ?| ){_MIXED}",
        validate=_HERE + "mixed_password",
    ),
    shipped(
        "password-flag",
        "PASSWORD",
        rf"(?:sshpass|mysql(?:dump|admin)?)(?=\s)[^\n]{{0,120}}?\s-p ?[\"']?{_BARE}",
        validate=_HERE + "bare_password",
    ),
    shipped(
        "password-option",
        "PASSWORD",
        rf"--(?:[a-z]{{1,16}}-)?pass(?:word|wd|phrase)? [\"']?{_BARE}",
        validate=_HERE + "bare_password",
    ),
    shipped(
        "password-element",
        "PASSWORD",
        r"(?i)passw(?:ord|d)>(?P<value>[^\n<>\x00]{6,200})</",
        validate=_HERE + "quoted_password",
    ),
    shipped(
        "password-attribute",
        "PASSWORD",
        r"(?i)password[\"']\s{0,4}value=[\"'](?P<value>[^\"'\n]{6,200})[\"']",
        validate=_HERE + "quoted_password",
    ),
    shipped(
        "pin",
        "PIN",
        r"(?<![\w.,/-])\d{4,8}(?![\w/-])(?![.,:]\d)",
        context=(
            r"(?<![a-z])(?:(?:card|bank|karten|sim|access|security|secret|code|codice|código|kod)[ _-]?pin|pin"
            r"|pin[ _-]?(?:code|number|nummer|nr|kod)|geheimzahl|kartenpin|code secret)(?![a-z])"
            r"(?:[\s\"']{0,3}[:=][\s\"']{0,3}"
            r"| (?:is|ist|lautet|est|es|è|é|jest|number|code|nummer|nr)[ :.]{1,2}|[ _<]{1,2})\Z"
        ),
        score=0.6,
    ),
)
