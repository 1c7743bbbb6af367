"""Numbers of documents that are told by the word before them, in the languages of the European Union.

Documents of 27 states have numbers of many shapes, few with a check digit: the word is the evidence, and the value is
whatever stands right behind it with enough digits.
"""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped
from ctxguard.pii.rules.words import GLUE

__all__ = ["DOCUMENT_RULES"]

# Looked ahead: what stands in front may be the word itself (`IVA 12345678901`), so the number alone is tried, too.
_VALUE: Final = (
    rf"(?<![{GLUE}])(?<![{GLUE}][-.])(?!\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{2,4}}(?!\d))(?!\d{{4}}-\d\d-\d\d(?!\d))"
    r"(?=(?:[A-Za-z]{0,5}[ ./-]?\d){5})(?=(?P<value>(?:[A-Za-z]{1,5}|[A-Z]{1,3}[ -])?\d[A-Za-z0-9]{0,15}"
    rf"(?:[ ./-](?=[A-Za-z]{{0,3}}\d)[A-Za-z0-9]{{1,9}}|[/-][A-Z]{{1,3}}){{0,6}}(?![{GLUE}])))[A-Za-z0-9]"
)
_NUMBER: Final = (
    "n|no|nr|num|number|numbers|numero|número|numéro|nummer|numer|numeris|numurs|numri|number|broj|br|číslo|čislo|cislo|č"
    "|szám|száma|sz|αριθμός|αριθ|номер|№|številka|št|code|kod|código|codice|id|is|ist|est|es|è|jest|är|er|on|ir|je|yra"
    "|the|my|mon|ma|meine|mein|mi|mio|moje|with|mit|with number|series|seria|serie"
)
_JOIN: Final = rf"(?:[\s\"'_:=#.,?()\\°º-]|(?<![^\W\d_])(?:{_NUMBER})(?![^\W\d_])){{0,14}}\Z"
_GAP: Final = "(?: |-|_|)"
# One word or phrase a line. A gap is spelled out, so that the prefilter looks for the phrase and not for a part of it.
_WORDS: Final = {
    "NATIONAL_ID": (
        rf"(?<![a-z])id{_GAP}card|identity{_GAP}card|identity{_GAP}doc|(?<![a-z])national{_GAP}(?:id|identity)"
        r"|personalausweis|ausweisnummer|ausweis-nr|carte d'identité|carte nationale d'identité|carta d'identità"
        r"|documento de identidad|documento nacional de identidad|(?<![a-z])dni(?![a-z])|identiteitskaart"
        r"|dowód osobisty"
        r"|dowodu osobistego|cartão de cidadão|bilhete de identidade|občanský průkaz|občanského průkazu|rodné číslo"
        r"|občiansky preukaz|občianskeho preukazu|személyi igazolvány|személyi szám|carte de identitate|henkilökortti"
        r"|henkilötunnus|personnummer|identitetskort|(?<![a-z])id-kort|isikukood|id-kaart|asmens kodas|asmens kodo"
        r"|asmens tapatybės kortel|personas kods|personas apliecīb|лична карта|егн|ταυτότητα|osobna iskaznica"
        r"|osobne iskaznice|osebna izkaznica|emšo|karta tal-identità|uimhir psp|(?<![a-z])cnp(?![a-z])|cpr-nummer"
    ),
    "PASSPORT": (
        r"passport|reisepass|passeport|pasaporte|passaporto|paspoort|paszport|passaporte|cestovní pas|cestovný pas"
        r"|cestovného pasu|útlevél|pașaport|passi n|(?<![a-z])pas(?: |-|)n|(?<![a-z])pass(?: |-|)n|reisipass"
        r"|(?<![a-z])paso numeris"
        r"|паспорт|διαβατήριο|putovnic|potni list|passaport"
    ),
    "DRIVER_LICENSE": (
        r"driv(?:er|ing)(?:'?s)?[\s_-]?licen[sc]e|(?<![a-z])dl(?: no| number|_number|-number)|führerschein"
        r"|permis de conduire|permiso de conducir|carnet? de conducir|carné de conducir|licencia de conducir"
        r"|(?<![a-z])patente di guida|(?<![a-z])patente n|rijbewijs|prawo jazdy|prawa jazdy|carta de condução"
        r"|řidičský průkaz|řidičského průkazu|vezetői engedély|jogosítvány|permis de conducere|permisul de conducere"
        r"|ajokort|körkort|kørekort|juhiluba|juhiloa|vairuotojo pažymėjim|vadītāja apliecīb|шофьорска книжка"
        r"|свидетелство за управление|άδεια οδήγησης|vozačka dozvol|vozačke dozvol|vozniško dovoljenje|vodičský preukaz"
    ),
    "TAX_ID": (
        rf"(?<![a-z])tax{_GAP}(?:id|payer|number|no|reference)|(?<![a-z])vat{_GAP}(?:number|no|id|reg)"
        rf"|steuer-?id|steuernummer|steuer-nr"
        r"|(?<![a-z])ust-?id|umsatzsteuer-?id|(?<![a-z])mwst-?nr|numéro fiscal|(?<![a-z])tva(?![a-z])"
        r"|(?<![a-z])(?:nif|cif|nie|nip|siren|siret|oib|inn|pvn)(?![a-z])|codice fiscale|partita iva"
        r"|(?<![a-z])p\.(?: |)iva"
        r"|fiscaal nummer|(?<![a-z])btw-?n|contribuinte|(?<![a-z])dič(?![a-z])|adószám|adóazonosító|cod fiscal"
        r"|codul fiscal"
        r"|cod de identificare fiscal|verotunnus|momsnummer|moms-nr|momsreg|käibemaksu|pvm moketojo kod|ддс|αφμ"
        r"|α\.φ\.μ\."
        r"|davčna številka|инн"
    ),
    "COMPANY_ID": (
        rf"(?<![a-z])company{_GAP}(?:number|no|reg)|handelsregister|(?<![a-z])hr[ab](?![a-z])|registre du commerce"
        r"|(?<![a-z])rcs(?![a-z])|registro mercantil|(?<![a-z])kvk(?![a-z])|kvk-?n|(?<![a-z])krs(?![a-z])"
        r"|(?<![a-z])regon(?![a-z])|(?<![a-z])nipc(?![a-z])|(?<![a-z])ičo?(?![a-z])|cégjegyzékszám"
        r"|nr\. reg\. com|y-tunnus"
        r"|organisationsnummer|(?<![a-z])org\.(?: |)n|(?<![a-z])org-?nr|(?<![a-z])cvr(?![a-z])|registrikood|įmonės kod"
        r"|reģistrācijas numur|еик|булстат|γεμη|matični broj|matična številka"
    ),
}


def _rule(label: str, words: str) -> Rule:
    return shipped(
        f"{label.lower().replace('_', '-')}-labeled", label, _VALUE, context=rf"(?:{words})\w{{0,8}}{_JOIN}", score=0.65
    )


DOCUMENT_RULES: Final = tuple(_rule(label, words) for label, words in _WORDS.items())
"""Documents and registers of the member states."""
