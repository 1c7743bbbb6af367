"""Pieces that several rules share: boundaries of numbers, and the words that make a number something else."""

from __future__ import annotations

from typing import Final

_WHOSE: Final = (
    "(?:user|customer|client|patient|person|employee|applicant|contact|recipient|sender|owner|holder|member"
    "|guest|student"
    "|home|work|office|business|company|billing|shipping|primary|secondary|main|alternate|emergency|personal|citizen"
    "|taxpayer|tele|cell|mobile|numero|numer|nummer|číslo|cislo|nr|cliente){0,3}"
)
_NUMBER: Final = "(?:numbers?|nummer|nums?|nos?|nr)?"


def word(words: str) -> str:
    """Return what finds words, separated by `|`, that no letter stands next to but those of a key.

    In prose, in `customer_ssn`, in `customerSsn` and `ssnNumber`: rules see small letters alone.
    """
    return rf"(?<![a-z]){_WHOSE}(?:{words}){_NUMBER}(?![a-z])"


def token(form: str) -> str:
    """Return the expression of a key or token: at the edges of its characters, not a UUID.

    Among its first characters is a digit, or letters change their case more often than in words, or are all capitals:
    of keys of sixteen random characters, one in thirty has no digit.
    """
    return (
        r"(?<![A-Za-z0-9_-])(?=[A-Za-z_.:-]{0,64}+[0-9]|(?:[A-Z]{0,16}+[a-z_.:-]{1,16}+(?=[A-Z])){4}"
        r"|[A-Z]{20})(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)"
        rf"(?:{form})(?![A-Za-z0-9_-])"
    )


GLUE: Final = "0-9A-Za-z_À-ÿ"
"""Letters and digits that a number next to them is part of. Scripts without spaces between words would glue."""
_GLUED: Final = "0-9A-Za-zÀ-ÿ"
LEFT: Final = rf"(?<![{_GLUED}])(?<![{_GLUED}]_)(?<![{_GLUED}]__)(?<![{_GLUED}]-)(?<!\d\.)"
"""A number begins here: not glued to a letter or a digit, not within a name, and no decimals."""
RIGHT: Final = rf"(?![{_GLUED}])(?!_{{1,3}}[{_GLUED}])(?!-[{_GLUED}])(?!\.\d)"
"""A number ends here. A sentence may begin right behind its dot."""
DICTATED: Final = (
    rf"{LEFT}(?:\d{{3}}(?P<short>, |\.\.\. | \.\.\. )\d{{2,3}}(?P=short)\d{{4}}"
    r"|\d{4}(?P<long>, |\.\.\. | \.\.\. )\d{4}(?P=long)\d{4}(?P=long)\d{4}|\d \d \d,? \d(?:,? \d){5,12})"
    rf"{RIGHT}(?!,? ?\d)"
)
"""A number as it is dictated, digit by digit or with pauses: `2 0 1, 5 5 5, 0 1 4 7`, `201 ... 555 ... 0147`."""
NO_FOUR_BEFORE: Final = r"(?<!(?<!\d)\d{4}[ -])"
NO_FOUR_AFTER: Final = r"(?![ -]\d{4}(?!\d))"
"""A number in fours is no row of a table: no other four stands beside it."""
CONNECTOR: Final = (
    r"(?:[^\w<{}!$%&@+^~;|/]|[_º]|(?:n|no|num|n[uú]mero|num[eé]ro|number|nummer|nr|id|it|is|was|my|the|code"
    r"|holder)(?![A-Za-z0-9]))"
    r"{0,12}?(?<![A-Za-z0-9])"
)
"""What stands between a word and its value, in prose (`number is`) and in JSON (`_number": "`)."""
SINCE_DIGITS: Final = r"\A(?>[\s\S]*\d)?+\D*?"
"""Begins what holds no digits and stands right before a number: whatever ends in a digit is passed over at once."""
_THINGS: Final = (
    "order|item|tracking|ticket|invoice|case|ref|reference|confirmation|booking|reservation|transaction|txn"
    "|product|sku"
    "|part|serial|model|version|ver|build|isbn|issn|doi|zip|zipcode|postcode|postal|latitude|longitude|lat|lon|lng|row"
    "|rows|line|lines|page|pages|step|port|pid|uid|commit|hash|size|bytes|offset|timestamp|ts|epoch|seed|issue|pr|pull"
    "|flight|job|request|session|thread|trace|span|event|message|shipment|package|payment|quote|amount|price|total"
    r"|bestell\w{0,10}|auftrag\w{0,8}|vertrag\w{0,8}|rechnung\w{0,8}|sendung\w{0,8}|kunden\w{0,6}"
    r"|vorgang\w{0,8}|aktenzeichen"
    "|angebot|commande|facture|colis|devis|dossier|pedido|factura|expediente|incidencia|ordine|fattura|pratica"
    "|bestelling"
    "|factuur|offerte|zaak|zamówieni[ea]|faktur[ay]|spraw[ay]|zgłoszeni[ea]|encomenda|fatura|processo"
    "|rfc|clause|dfars|balance|cost|usd|eur|population|date|time|year|score|count"
)
_THING: Final = rf"(?<![a-z])(?:{_THINGS})(?:[_ -]?(?:id|ids|no|nos|num|number|numbers|nr|code|key|date|at)|s)?"
_PERSONAL: Final = ("national", "citizen", "personal", "identity", "resident", "insurance", "government", "tax")
_NO_PERSON: Final = "".join(rf"(?<!{word})(?<!{word}[_ -])" for word in _PERSONAL)
# Looks ahead first: else all those looks behind, at every character, would take half of the time.
_ANY_ID: Final = rf"(?=id){_NO_PERSON}(?:(?<=[_a-z0-9])id|\bids?)"
_UP_TO_NUMBER: Final = r"(?:[\"'\s:=#(\[,\\]|(?<![a-z])(?:is|was|are|of|the|my|number|no)(?![a-z])){0,10}"
DRAWING: Final = (
    r"\A(?=(?>[\s\S]*\d)[\s,.a-z-]{0,4}\Z)[\s\S]*?"
    r"(?:(?<!\d)\.\d(?=[\d\s,a-z-]*\.)|\.\d+[a-z]-?\d*\.\d)(?:[\d\s.,-]|(?<![a-z])[a-z](?![a-z]))*"
)
"""Coordinates of a path in SVG right before a number: `2c0 .46-.16.91`, where decimals stand glued together.

One alone is the number of a section (`No.1`, `3a.1`), and tells nothing about what stands behind it.

Looks first whether a digit is near: in most texts none is.
"""
QUIET_NUMBER: Final = rf"{SINCE_DIGITS}(?:{_THING}|{_ANY_ID}){_UP_TO_NUMBER}|{DRAWING}"
"""Words right before bare digits that say what else they are: an order, an item, a date, any key that ends in `_id`.

They tell nothing against a number in a form of its own (with separators and check digits)."""
IDENTITY: Final = (
    r"(?:national|citizen|personal|resident)(?:[ _-]?(?:id|identity|identification))|identity[ _-]?(?:card|doc|no|num)"
    r"|(?<![a-z])id[ _-]?card"
)
"""Words before the number of a person, whatever the country."""
_PHONE_NOUNS: Final = (
    "tel|telef|tels|mobile|cell|fax|msisdn|whatsapp|sms|landline|hotline|helpline|pager|dial|mob|mobil"
    "|mobiel|mobiele|cel"
    "|gsm|natel|kom|ph|tfno|tlf|tlfno|telf|teléf|tél"
    r"|telefon\w{0,6}|téléphone|telefono|teléfono|móvil|movil|telemóvel|telemovel|cellulare|telefone|telefoon"
    r"|handy|celular|telefoonnummer|puh|(?:matka)?puhelin\w{0,10}|тел\w{0,6}|мобилен|моб\w{0,8}"
    r"|стационарен|τηλ\w{0,7}|κινητ\w{1,3}|tālr\w{0,6}|mobil\w{0,6}|mobitel|mobiil\w{0,4}|kännykkä"
    r"|festnetz|durchwahl|σταθερό|cep|tfn|tlm|tlfnr|telnr|κιν|faks\w{0,4}|mobiln\w{1,4}|mobilnum\w{1,6}"
)
_WHOM: Final = "(?: me| us| him| her| them)"
_PHONE_PHRASES: Final = (
    rf"call{_WHOM}?(?: at| on)|call{_WHOM}|can call|reach{_WHOM}? (?:at|on)|be reached (?:at|on)"
    rf"|text(?: me)? (?:at|on)|(?:ring|phone|call|dial) (?:me|us)|call ?back number|work line|direct line"
    r"|desk(?=[:\s\"'=]{1,4}\Z)|(?<=\*)(?:te|cp|hp|wp|fx)(?=\*)|pod numer\w{1,3}"
)
# A word in brackets behind a number is the label of that number, not of the next one; a bracket may hold both.
_NOT_BEHIND: Final = r"(?:(?<!\d\()(?<!\d \()|(?![^\W\d_]{1,20}\)))"
# Verbs of calling, by the beginnings of their forms.
_CALLING: Final = (
    r"erreich\w{1,5}|(?:an)?ruf(?:e|en|t)?|rückruf|joindre|joignable|r?app?el(?:ez|er|le|ons)|ll[aá]m(?:e"
    r"|ar|ame|enos|adme)"
    r"|localizar(?:me)?|chiam(?:i|ar[ei]|ami|ate|atemi)|raggiung\w{1,5}|bereik\w{1,5}|bel(?:len|t)?"
    r"|za?dzwo[nń]\w{0,4}|dzwo[nń]\w{1,4}"
    r"|ligue|ligar|ligue-?me|telefonar|(?:za)?vol(?:ejte|at|ať|ajte|ej)|sun[aă]|sunați|sunati|apela(?:ți|ti)?"
    r"|hív(?:jon|ható|ja|hat|d|j)?\w{0,4}|soit(?:a|taa|akaa|ella)|обад\w{1,6}|звън\w{1,6}|дзвон\w{1,6}|подзвон\w{1,6}"
    r"|καλέσ\w{1,5}|κάλεσ\w{1,4}|(?:na)?zov(?:ite|i|em)|pokli[cč]\w{1,5}|helista\w{0,3}|zvan(?:iet|īt|i)"
    r"|skambin\w{1,5}|paskambin\w{1,5}"
    r"|aray\w{1,6}|ringa?|ringe?|nås|når|träffas|terugbel\w{0,3}|richiam\w{1,4}|liga|contacta\w{0,5}"
    r"|recapito|rückfragen|alüüt\w{0,2}|soittak\w{1,4}"
)
# What kind of phone it is; a number in the form of one may follow.
_KINDS: Final = (
    "fixe|portable|fijo|fisso|casa|domicile|bureau|büro|privat|dienstlich|geschäftlich|home|work|office|alt|alternate"
)
CALLING: Final = rf"(?:{word(_CALLING)}|{word(_KINDS)}(?=[^a-z\d]{{0,4}}\Z))"
"""Verbs of calling and kinds of phones, before the number."""
PHONE_STRICTLY: Final = (
    rf"{_NOT_BEHIND}{word(f'[ _-]?phones?|{_PHONE_NOUNS}')}"
    rf"|(?<![a-z])(?:{_PHONE_PHRASES})(?![a-z])|电话|手机|電話|携帯|전화|휴대"
)
"""Words before bare digits that make them a phone number."""
# `my number`, `meine neue Nummer`, and the one letter before a number on a card: `T: 030 1234567`.
_MINE: Final = (
    r"(?<![^\W\d_])(?:(?:my|mein[ea]?|mon|mi|mio|mijn|mój|moje|meu|mitt|mit|minu|mans|mano|moj|moja"
    r"|мій)(?: [^\W\d_]{2,8})?"
    r" (?:n[uú]m[^\W\d_]{2,5}|nummer|číslo|broj|številka|номер)|numeroni|számom|numărul meu|номерът ми"
    r"|numaram)(?![^\W\d_])"
    r"|(?<![^\s|·])[tmpfh](?:[:.]|(?= [(\d]))(?=\s?\Z)"
)
PHONE_LOOSELY: Final = (
    PHONE_STRICTLY + rf"|{_MINE}|{word('call|calling|called|contact|contato|contacto|kontakt|answering|reach|texted')}"
    r"|联系|聯繫|联络|致电|拨打|来电|热线|連絡|연락"
)
"""Words before grouped digits that make them a phone number."""
PHONE_JOIN: Final = (
    r"(?:[^\w<{}!$%&@+^~;|/]|_|(?:[^\W\d_]{1,2}|num|number|line|value|text|type|was|the|num[eé]r\w{0,3}"
    r"|número|nummer\w{0,2}"
    r"|unter|auf|sous|est|ist|lautet|pod|mich|uns|mal|bitte|numeroon|numeroa|mein\w{0,2}|mon|het|op|můj"
    r"|môj|moj|ma|číslo|numar|broj)(?![^\W\d_])){0,16}\Z"
)
"""What may stand between a word like `phone` and bare digits."""
