"""Passwords by the word before them: in prose, configuration, code, JSON, XML, and on command lines.

A password in quotes is all that stands in them. Without quotes it goes on to the next white space, as a password may
hold any sign; what ends a sentence, a bracket, or begins the next setting (`;Database=…`) is no part of it.
"""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped

__all__ = ["PASSWORD_RULES"]

_HERE: Final = "ctxguard.pii.detect.passwords:"
_NAME: Final = "(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{0,40}?"
# What every match holds, so that texts without it cost nothing, and the words.
_WORDS: Final = (
    ("passw", rf"{_NAME}passw(?:or[dt]|d)s?"),
    ("pwd", rf"{_NAME}pwd"),
    (
        "pass",
        r"(?<![A-Za-z0-9_-])(?:pass(?:phrase|code|(?=\"? ?[:=])(?!:? ?(?-i:[CFGHJK][A-Z0-9]{8})(?![A-Za-z0-9])))"
        r"|(?:[A-Za-z0-9]{1,20}[_-]){0,2}[A-Za-z0-9]{1,20}[_-]pass)",
    ),
    *(
        (name, rf"(?<![^\W\d_])(?:{words})")
        for name, words in (
            ("romance", "mot[ _-]?de[ _-]?passe|palavra[ _-]?passe|contrase[nñ]a|senha|mdp"),
            ("germanic", "kennwort|wachtwoord|adgangskode"),
            ("slavic", "haslo|heslo|geslo|lozinka"),
            ("uralic", "jelszo|salasana"),
            ("parola", "parola(?: d['’]ordine|[ _-]?chiave)?"),
        )
    ),
)
# Words with letters beyond ASCII: what is left of `hasło` without them (`has`) stands in every text.
_SCRIPTS: Final = (
    "şifre|sifre|hasło|hasłem|lösenord|jelszó|salasõna|slaptažodis|пароль|парола|κωδικός(?: πρόσβασης)?|συνθηματικό"
    "|密码|密碼|パスワード|비밀번호"
)
# `: `, ` = `, ` => `, `": `, and ` is `.
_ASSIGNED: Final = (
    r"(?:\\?[\"']?\]?\s{0,3}(?::=|=>|[:=：])\s{0,3}"
    r"|(?: (?:number|here|value))?,? (?:is|was|ist|lautet|est|es|è|é|е|jest|to|är|er|on|je)(?: now| set to)?:? )"
)
# A quote within a password is followed by more of it.
_BARE: Final = r"(?P<value>[^\s\"'`<>\x00\\](?:[^\s\"'`<>\x00]|(?<=[A-Za-z0-9!?]{2})[\"'`](?=[A-Za-z0-9])){5,199})"
_QUOTES: Final = "\"'`"
# An alternative for each kind of quotes: with a reference to a group, texts could not be searched in one go.
_IN_QUOTES: Final = "|".join(
    rf"(?<={quote})(?:[^{quote}\n\x00\\]|\\[^\n\x00]){{6,200}}(?={quote})" for quote in _QUOTES
)
_IN_ESCAPED: Final = "|".join(rf"(?<={quote})(?:(?!\\?{quote})[^\n\x00]){{6,200}}(?=\\{quote})" for quote in _QUOTES)
_QUOTED: Final = rf"[bBrRfFuU]{{0,2}}[{_QUOTES}](?P<value>{_IN_QUOTES})"
_ESCAPED: Final = rf"\\[{_QUOTES}](?P<value>{_IN_ESCAPED})"


def _rules(name: str, words: str, context: str = "") -> tuple[Rule, ...]:
    bare, quoted = _HERE + "bare_password", _HERE + "quoted_password"
    return (
        shipped(f"{name}-quoted", "PASSWORD", rf"(?i){words}{_ASSIGNED}{_QUOTED}", validate=quoted, context=context),
        shipped(f"{name}-escaped", "PASSWORD", rf"(?i){words}{_ASSIGNED}{_ESCAPED}", validate=quoted, context=context),
        shipped(f"{name}-bare", "PASSWORD", rf"(?i){words}{_ASSIGNED}{_BARE}", validate=bare, context=context),
    )


PASSWORD_RULES: Final = (
    *(rule for name, words in _WORDS for rule in _rules(f"password-{name}", words)),
    # the words are named as context, too: no text in ASCII alone is searched for them
    *_rules("password-scripts", f"(?:{_SCRIPTS})", _SCRIPTS),
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
