"""Pieces that several rules share: boundaries of numbers, and the words that make a number something else."""

from __future__ import annotations

from typing import Final

__all__ = ["CONNECTOR", "LEFT", "PHONE_JOIN", "PHONE_LOOSELY", "PHONE_STRICTLY", "QUIET_NUMBER", "RIGHT"]

LEFT: Final = r"(?<!\w)(?<!\w[-.])(?<!\$)"
"""A number begins here: not glued to a letter, a digit or a hyphenated word, and no price."""
RIGHT: Final = r"(?!\w)(?![-.]\w)"
"""A number ends here."""
CONNECTOR: Final = (
    r"(?:[\s\"'_:=#.,()\\-]|(?:no|num|number|nr|id|is|was|my|the|code|holder)(?![A-Za-z0-9])){0,12}?(?<![A-Za-z0-9])"
)
"""What stands between a word and its value, in prose (`number is`) and in JSON (`_number": "`)."""
_THINGS: Final = (
    "order|item|tracking|ticket|invoice|case|ref|reference|confirmation|booking|reservation|transaction|txn|product|sku"
    "|part|serial|model|version|ver|build|isbn|issn|doi|zip|zipcode|postcode|postal|latitude|longitude|lat|lon|lng|row"
    "|rows|line|lines|page|pages|step|port|pid|uid|commit|hash|size|bytes|offset|timestamp|ts|epoch|seed|issue|pr|pull"
    "|flight|job|request|session|thread|trace|span|event|message|shipment|package|payment|quote|amount|price|total"
    "|balance|cost|usd|eur|population|date|time|year|score|count"
)
QUIET_NUMBER: Final = (
    rf"(?:(?<![a-z])(?:{_THINGS})(?:[_ -](?:id|ids|no|nos|num|number|numbers|nr|code|key|date|at)|id|no|s)?|[_a-z0-9]id|\bids?)"
    r"(?:[\"'\s:=#(\[,\\]|(?<![a-z])(?:is|was|are|of|the|my|number|no)(?![a-z])){0,10}"
)
PHONE_STRICTLY: Final = (
    r"(?<![a-z])(?:tele|cell|mobile|work|home)?[ _-]?phones?(?![a-z])|(?<![a-z])(?:tel|mobile|cell|fax|whatsapp|sms|landline|hotline|pager"
    r"|dial|mob|ph|tfno|tlf|tlfno|telf|teléf|tél|telefon\w{0,6}|téléphone|telefono|teléfono|móvil|movil|celular|handynummer|desk(?=[:\s\"'=]{1,4}\Z)|call(?: me| us| him| her| them)?"
    r" (?:at|on)|call(?: me| us| him| her| them)|reach(?: me| us| him| her| them)? (?:at|on)|text(?: me)? (?:at|on)"
    r"|can call|telefoonnummer|puhelin|тел\w{0,6})(?![a-z])|电话|手机|電話|携帯|전화|휴대"
)
PHONE_LOOSELY: Final = (
    PHONE_STRICTLY + r"|(?<![a-z])(?:call|calling|called|contact|answering|ring|reach|texted)(?![a-z])"
)
PHONE_JOIN: Final = (
    r"(?:[\s\"'_:=#.,()\[\]\\-]|(?:no|num|number|nr|line|id|is|was|at|on|me|my|the|to)(?![a-z])){0,16}\Z"
)
"""What may stand between a word like `phone` and bare digits."""
