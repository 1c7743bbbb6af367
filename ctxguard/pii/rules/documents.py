"""Numbers of documents that are told by the word before them, in the languages of the European Union.

Documents of 27 states have numbers of many shapes, few with a check digit: the word is the evidence, and the value is
whatever stands right behind it with enough digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped
from ctxguard.pii.rules.words import GLUE

__all__ = ["DOCUMENT_RULES"]

# Five digits, or a code in capitals with three.
_ENOUGH: Final = (
    rf"(?=(?:[ ./-]?[A-Za-z]{{0,5}}[ ./-]{{0,3}}\d){{5}}"
    rf"|(?:[A-Z]{{0,6}}\d){{3}}(?<=[A-Z0-9]{{5}})[A-Z0-9]{{0,7}}(?![{GLUE}]))"
)
# Looked ahead: what stands in front may be the word itself (`IVA 12345678901`), so the number alone is tried, too.
_VALUE: Final = (
    rf"(?<![{GLUE}])(?<![{GLUE}][-.])(?!\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{2,4}}(?!\d))(?!\d{{4}}-\d\d-\d\d(?!\d))"
    rf"{_ENOUGH}(?=(?P<value>(?:[A-Za-z]{{1,5}}|[A-Z]{{1,3}} ?[ -] ?)?\d[A-Za-z0-9]{{0,15}}"
    r"(?:[ ./-](?=[A-Za-z]{0,3}\d|[A-Z]{1,3}[ ./-]\d)[A-Za-z0-9]{1,9}|[/-][A-Z]{1,3}){0,6}"
    rf"(?: [A-Z]{{1,2}}(?![{GLUE}]))?(?![{GLUE}])))[A-Za-z0-9]"
)
# Words that may stand between the name of a document and its number: `Steuernummer lautet`, `cartão de cidadão é o`.
_BETWEEN: Final = (
    "n|no|nr|num|number|numbers|numero|número|numéro|nummer|numer|numeru|numerem|numery|numeris|numurs|numri"
    "|broj|br|číslo|čislo|cislo|č"
    "|szám|száma|sz|αριθμός|αριθ|номер|№|številka|št|code|kod|código|codice|id|ref|seria|serie|series|série"
    "|registration|registered|registrado|registrada|inscrit|inscrite|inscrita|eingetragen|immatriculée|immatriculé"
    "|iscritta|wpisana|intracommunautaire|intracomunitario|intracomunitaria|comunitario|comunitaria|hoja|folio|hrb|hra"
    "|is|ist|est|es|è|é|jest|är|er|on|ir|je|yra|was|lautet|porte|portant|reads|wynosi|to|luidt"
    "|the|le|la|el|il|lo|o|a|os|der|die|das|den|dem|het|de|del|della|di|du|do|da|des|d|l|of|for|von|vom|für"
    "|voor|pour|para"
    "|has|have|hat|hält|ha|a pour|tiene|tem|heeft|ma|posiada|document|documento|dokument|documentnumber|documentno"
    "|per|dla|unter|under|sous|sob|con|com|met|with|mit|avec|z|pod|bajo|sotto|onder"
    "|my|your|our|mon|ma|votre|notre|meine|mein|unsere|mi|su|mio|mia|moje|mój|meu|minha|mijn"
    "|company|firma|firmy|empresa|azienda|société|bedrijf|cliente|client|customer|kunde|inhaber|holder|titular"
    "|ditta|impresa|sociedad|sociedade|onderneming|organisation|organization|spółki|spółka"
    "|german|french|italian|spanish|dutch|polish|portuguese|british|irish|belgian|swiss|austrian|european|uk|us|eu|ue"
    r"|deutsch\w{0,2}|französisch\w{0,2}|österreichisch\w{0,2}|français\w?|belge|suisse|español\w?|italian[oa]"
    r"|nederlands\w?"
    r"|polski\w{0,3}|portugu[eê]s\w?|tedesc[oa]|frances\w?|alem[aá]n\w?|alemão|alemã|europe[oa]|europeu"
    r"|européen\w{0,2}"
)
_JOIN: Final = (
    r"(?:</?[a-z]{1,8}[^<>]{0,20}>|[\s\"'_:=#.,;?()\\°º|*>\[\]-]"
    rf"|(?<![^\W\d_])(?:{_BETWEEN})(?![^\W\d_])){{0,16}}\Z"
)
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
        r"|свидетелство за управление|άδεια οδήγησης|vozačka dozvol|vozačke dozvol|vozniško dovoljenje"
        r"|vodičský preukaz"
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
# More names of documents and registers, as people and keys write them: each blank may be a hyphen or an underscore.
_NAMES: Final = {
    "NATIONAL_ID": (
        "ausweis|perso|c.i.|identitätskarte|carte identité|cni|pièce d'identité|identificación"
        "|documento identidad|cédula"
        "|carta identità|documento d'identità|documento identità|identiteitsbewijs|dowód tożsamości|dowód"
        "|dowodu|numéro identité|cartão cidadão"
        "|documento de identificação|national insurance|identity number|citizen card"
    ),
    "PASSPORT": "reisedokument|documento di viaggio|travel document",
    "DRIVER_LICENSE": (
        "fuehrerschein|fahrerlaubnis|permis b|numéro de permis|permis|permiso conducir|licencia de conducción"
        "|la patente|mia patente|sua patente|patente n|patente guida|patente b"
        "|carta condução|d/l|driving permit|driver permit|driver license|drivers licence|licence no|license no"
    ),
    "TAX_ID": (
        "steueridentifikationsnummer|steuer identifikationsnummer|steuer id|ust id|ust.-id|umsatzsteuer|uid|vat|tin"
        "|identifiant fiscal|numéro spi|tva intracom|identificación fiscal|partita iva|piva|cod. fisc|c.f.|btw|rsin"
        "|numer identyfikacji podatkowej|identificação fiscal|nif|cif|utr|iva"
    ),
    "COMPANY_ID": (
        "company registration|registration number|registration no|reg. no|crn|firmenbuch|handelsregisternummer|rea"
        "|registro imprese|kamer van koophandel|ondernemingsnummer|kbo|bce|numéro d'entreprise|matrícula"
        "|conservatória|registro delle imprese"
    ),
}
# A register stands with the place where it is kept: `RCS Lyon`, `Registro Mercantil de Madrid, hoja`.
_SEAT: Final = (
    r"(?:[ ,]{1,2}(?:de |di |des |van |beim |am |in )?[^\W\d_]{3,16}){0,2}(?:[ ,]{1,2}(?:tomo|folio|libro"
    r"|vol) \d{1,5}){0,2}"
)
_REGISTERS: Final = (
    "handelsregister|registergericht|amtsgericht|firmenbuch|rcs|registre du commerce|registro mercantil"
    "|registro imprese|kvk"
)
_SHORT: Final = 6
_NO_MARKS: Final = str.maketrans("áàâãäéèêëíìîïóòôõöúùûüçñłńśźżćęąß", "aaaaaeeeeiiiiooooouuuucnlnszzceas")


def _rule(name: str, label: str, words: str) -> Rule:
    return shipped(name, label, _VALUE, context=rf"(?:{words})\w{{0,8}}{_JOIN}", score=0.65)


def _spelled(names: str) -> str:
    """Return an expression for names of documents, with and without the marks on their letters."""
    listed = names.split("|")
    return "|".join(map(_whole, dict.fromkeys([*listed, *(name.translate(_NO_MARKS) for name in listed)])))


def _whole(name: str) -> str:
    """Return an expression for one name; a short one is no part of a word."""
    written = re.escape(name).replace(r"\ ", _GAP)
    return rf"(?<![a-z]){written}" + (r"(?![a-z])" if len(name) < _SHORT else "")


def _rules() -> Iterator[Rule]:
    for label, words in _WORDS.items():
        name = label.lower().replace("_", "-")
        yield _rule(f"{name}-labeled", label, words)
        yield _rule(f"{name}-named", label, _spelled(_NAMES[label]))
    yield _rule("company-id-registered", "COMPANY_ID", rf"(?:{_spelled(_REGISTERS)}){_SEAT}")


DOCUMENT_RULES: Final = tuple(_rules())
"""Documents and registers of the member states."""
