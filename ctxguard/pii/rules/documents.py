"""Numbers of documents and accounts that are told by the word before them, in the languages of the European Union.

Documents of 27 states have numbers of many shapes, few with a check digit: the word is the evidence, and the value is
whatever stands right behind it with enough digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import normalize

from ctxguard.pii.rules.rule import Rule, shipped
from ctxguard.pii.rules.words import GLUE

__all__ = ["DOCUMENT_RULES", "named"]

# Numbers of identity cards begin with letters of the country's script.
_CAPITALS: Final = "A-ZΑ-ΩА-ЯІЇЄҐ"
_LETTERS: Final = f"a-z{_CAPITALS}"
# Five digits, or a code in capitals with three, or one of nine characters, as machines read them in passports.
_ENOUGH: Final = (
    rf"(?=(?:[ ./-]?[{_LETTERS}]{{0,5}}[ ./-]{{0,3}}\d){{5}}"
    rf"|(?:[A-Z]{{0,6}}\d){{3}}(?<=[A-Z0-9]{{5}})[A-Z0-9]{{0,7}}(?![{GLUE}])"
    rf"|[A-Z](?=[A-Z]{{0,7}}\d)[A-Z0-9]{{8}}(?![{GLUE}]))"
)
# No amount of money: `12,345.67`, `12.345,67`.
_NO_AMOUNT: Final = rf"(?!(?:\d{{1,10}}|\d{{1,3}}(?:[., ]\d{{3}}){{1,3}})[.,]\d\d(?![{GLUE}]|[.-][{GLUE}]))"
# Looked ahead: what stands in front may be the word itself (`IVA 12345678901`), so the number alone is tried, too.
_VALUE: Final = (
    rf"(?<![{GLUE}])(?<![{GLUE}][-.]){_NO_AMOUNT}(?!\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{2,4}}(?!\d))(?!\d{{4}}-\d\d-\d\d(?!\d))"
    rf"{_ENOUGH}(?=(?P<value>(?:[{_LETTERS}]{{1,8}}|[{_CAPITALS}]{{1,3}} ?[ -] ?)?\d[A-Za-z0-9]{{0,33}}"
    r"(?:[ ./-](?=[A-Za-z]{0,3}\d|[A-Z]{1,3}[ ./-]\d)[A-Za-z0-9]{1,16}|[/-][A-Z]{1,3}){0,6}"
    rf"(?: [A-Z]{{1,2}}(?![{GLUE}]))?(?![{GLUE}])))[{_LETTERS}0-9]"
)
_PASSPORT: Final = rf"(?<![{GLUE}-])[A-Z]{{1,3}} ?\d{{6,8}}(?![{GLUE}-])"
# Words that may stand between the name of a document and its number, any of one or two letters among them:
# `Steuernummer lautet`, `cartão de cidadão é o`.
_BETWEEN: Final = (
    r"[^\W\d_]{1,2}|nro|núm|num|number|numbers|numero|número|numéro|nummer|numer|numeru|numerem|numery|numeris|numurs"
    "|numri|numărul|numar|numbri|broj|číslo|cislo|čísla|szám|száma|αριθμός|αριθ|номер|№|številka|uimhir"
    "|nie|code|kod|código|codice|cod|ref|reference|référence|seria|serie|series|série|sorozat"
    "|registration|registered|registrado|registrada|inscrit|inscrite|inscrita|eingetragen|immatriculée|immatriculé"
    "|iscritta|wpisana|intracommunautaire|intracomunitario|intracomunitaria|comunitario|comunitaria|hoja|folio|hrb|hra"
    "|ist|est|jest|yra|was|lautet|lauten|porte|portant|reads|wynosi|este|είναι"
    "|luidt|lleva|reca|bär|have|has|hat|hält|tiene|tem|heeft|posiada"
    "|the|der|die|das|den|dem|des|det|het|del|della|dello|for|von"
    "|vom|für|voor|van|pour|para|per|dla|unter|under|sous|sob|con|com|met|with|mit|avec|pod|bajo|sotto|onder"
    "|doc|document|documento|dokument|documentnumber|documentno|elettronica|electrónico|électronique"
    "|elektronisch\\w{0,2}"
    "|your|our|mon|mes|votre|notre|mein\\w{0,2}|ihr\\w{0,2}|unser\\w{0,2}|mio|mia|suo|moje|mojego|mojej|mój"
    "|mého|moja|meu|minha|mijn|min|mitt|mit|minu|mano|mans|μου|moj|meg"
    "|company|firma|firmy|empresa|azienda|société|bedrijf|cliente|client|customer|kunde|inhaber|holder|titular"
    "|ditta|impresa|sociedad|sociedade|onderneming|organisation|organization|spółki|spółka|conductor|conducteur|carta"
    "|firmă|firmei|firme|tvrtke|podjetja|odběratele|dodavatele|odberateľa|cég|yrityksen|ettevõtte|uzņēmuma|įmonės"
    "|german|french|italian|spanish|dutch|polish|portuguese|british|irish|belgian|swiss|austrian|european"
    r"|deutsch\w{0,2}|französisch\w{0,2}|österreichisch\w{0,2}|français\w?|belge|suisse|español\w?|italian[oa]"
    r"|nederlands\w?|polski\w{0,3}|portugu[eê]s\w?|tedesc[oa]|frances\w?|alem[aá]n\w?|alemão|alemã|europe[oa]|europeu"
    r"|européen\w{0,2}|bitte|prüfen|please"
    # whose number it is
    "|stranke|stranky|klienta|klientky|kindes|kinds?|enfant|salarié|hijo|empleado|figlio|dipendente|dziecka|pracownika"
    "|dítěte|zaměstnance|werknemer|kunden|arbeitnehmers|mitarbeiters|employee|applicant|student|patient|owner"
    "|payer|payee"
    "|recipient|book|серія|та|і|des|du"
    # between a field of a form and its value
    "|value|type|text|input|label|je|je to|är|er|on|ir|yra|je|має|jel|to|beneficiary|identifier|member|isch"
    "|card|account"
)
_JOIN: Final = (
    r"(?:</?[a-z]{1,8}[^<>]{0,20}>|[\s\"'_:=#.,;?()\\°º/|*>\[\]-]"
    rf"|(?<![^\W\d_])(?:{_BETWEEN})(?![^\W\d_])){{0,16}}\Z"
)
# Names as people and keys write them, by language. In a blank may stand a hyphen, an underscore, or nothing; marks on
# letters may be missing. The last word may go on with an ending, and so may one with `*`; a short name ends a word.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "NATIONAL_ID": (
        "id card|identity card|identity doc|identity number|national id|national identity|national insurance",
        "citizen card|ppsn|personalausweis|ausweisnummer|ausweis|perso|identitätskarte",
        "carte d'identité|nationale d'identité|carte identité|pièce d'identité|numéro identité|cni",
        "documento de identidad|nacional de identidad|documento identidad|identificación|cédula|dni|d.n.i.",
        "carta d'identità|carta identità|documento d'identità|documento di identità|documento identità|c.i.",
        "identiteitskaart|identiteitsbewijs|id kaart|dow* osobist|dowód tożsamości|dowód|dowodu|dowodem",
        "cartão de cidadão|cartão cidadão|cc nº|cc n.º|cc n°|bilhete de identidade|documento de identificação",
        "občansk* průkaz|občank|op č|rodn* čísl|občiansk* preukaz|személyi igazolvány|személyi szám",
        "carte de identitate|cartea de identitate|cărții de identitate|buletin|cnp|c.n.p.|henkilökort",
        "henkilötunnu|hetu",
        "personnummer|identitetskort|id kort|cpr nummer|cpr nr|cpr no|cpr number",
        "isikukood|id kaar|asmens kod|asmens tapatybės kortel|personas kod|personas apliecīb",
        "личн* карт|егн|е.г.н.|ταυτότητ|αδτ|α.δ.τ.",
        "osobn* iskaznic|osebn* izkaznic|emšo|karta tal-identità|uimhir psp|pps no|pps number|pps nr",
        "personal identification",
        "voter id|epic no|epic number|nric|sv nummer|sv nr|svnr|sozialversicherung|sozialvers|rentenversicherung",
        "versicherungsnummer|sécurité sociale|n° ss|no ss|nº ss|seguridad social|segurança social|niss",
        "rijksregister|insz|registre national|numéro national|matricule national|matricule",
        "číslo op|čísl* op|r. č.|r.č.|č. op|ci seria|seria ci|număr ci|număr c.i|cod numeric personal",
        "fødselsnummer|fødselsnumm|fnr|personnumm|person nr|sosiaaliturvatunnus",
        "amka|αμκα|α.μ.κ.α|cpr|citizen id|numéro de matricule|n° national|л. к.|л.к.|voter card|voter no|jmbg",
        "matični broj građana|mbg|унзр|id картк|ідкартк|id карт|документ за самоличност",
        "kimlik no|kimlik numar|t.c. kimlik|tc kimlik|tckn|tc no|nüfus cüzdan|numer dowodu|nr dowodu",
        "seria i numer|szem. szám|személyi azonosító|szig. szám|szig szám",
    ),
    "PASSPORT": (
        "passport|travel document|reisepass|reisepaß|reisedokument|pass no|pass nr|pass number|pass nummer",
        "passeport|pasaporte|passaporto|documento di viaggio|paspoort|passaporte|passaport|pașaport|paszport",
        "cestovn* pas|pasu|pas nr|pas no|pas nummer|pas č|pas číslo|útlevél|útlevel|putovnic|potn* list",
        "pasaport no|pasaport numar|pasaportu|pasaport|nr pasz|číslo pasu|čísl* pas|útiokmány|passnr|passnumm",
        "pass nº|pass n°",
        "паспорт|διαβατήρι|διαβατηρί|passi|passin n|reisipass|pase n|pases n|paso n|pasas n",
    ),
    "DRIVER_LICENSE": (
        "driver's licen|drivers licen|driver licen|driving licen|driver permit|driving permit",
        "licence no|license no|licence nr|license nr|licence num|license num|d/l|dl#|dl no|dl number|führerschein",
        "fuehrerschein|fahrerlaubnis|permis de conduire|permis b|permis|permiso de conducir|permiso de conducción",
        "permiso conducir|licencia de conducir|licencia de conducción|carnet de conducir|carné de conducir",
        "patente di guida|patente guida|patente|rijbewijs|prawo jazdy|prawa jazdy|carta de condução|carta condução",
        "řidičsk* průkaz|řp č|vodičsk* preukaz|vezetői engedély|jogosítvány|permis de conducere",
        "permisul de conducere|permisului de conducere",
        "ajokort|körkort|kørekort|juhiluba|juhiloa|vairuotojo pažymėjim|vadītāja apliecīb",
        "шофьорск* книжк|свидетелство за управление|άδει* οδήγησης|δίπλωμα* οδήγησης|διπλώματος οδήγησης|δίπλωμα",
        "vozačk* dozvol|vozniš* dovoljenj|førerkort|řp|permis auto|ehliyet|sürücü belges|посвідчення водія",
        "водійськ* посвідченн",
    ),
    "TAX_ID": (
        "tax id|tax payer|tax number|tax no|tax reference|vat number|vat no|vat id|vat reg|vat|tin|utr",
        "steuer id|steuer identifikationsnummer|steuernummer|steuer nr|ust id|ust.-id|umsatzsteuer|mwst nr|uid n",
        "numéro fiscal|identifiant fiscal|numéro spi|tva|t.v.a.|siren|siret",
        "identificación fiscal|nif|n.i.f.|cif|c.i.f.|codice fiscale|cod. fisc|c.f.|partita iva|p. iva|piva|iva",
        "fiscaal nummer|btw|rsin|identyfikacji podatkowej|nip|n.i.p.|contribuinte|identificação fiscal",
        "dič|ič dph|adószám|adóazonosító|cod* fiscal|identificare fiscal|cui|verotunnus|alv nro|alv numero",
        "moms nr|moms nummer|momsreg|momsregistrering|se nr|käibemaksu|kmkr|pvm mok* kod|pvm kod|pvn",
        "ддс|инн|αφμ|α.φ.μ.|oib|davčn* št|davčna|davčno|ddv|іпн|рнокпп|ідентифікаційний код",
        "ідентифікаційний номер|c.u.i.|иін|vergi no|vergi numar|vergi kimlik|vkn|mva nr",
        "identifikationsnummer|steuerid|idnr|adóazonosító jel|adójel|daňov* identifik|nif nº|y alv|skattenummer",
    ),
    "MEDICAL_ID": (
        "medical record number|medical record no|mrn|patient id|patient number|patient no|health insurance number",
        "health insurance no|health card number|medicare number|medicare no|medicaid id|npi number",
        "patientennummer|patienten nr|patienten id|versichertennummer|versicherten nr|kvnr",
        "numéro de patient|numéro patient|dossier médical|numéro d'assuré|numéro rpps|numéro adeli",
        "nhc|historia clínica|número de historia|nass|nuss|cipa|tarjeta sanitaria|nº col|núm. col|colegiad",
        "número de afiliación|número de asegurado|tessera sanitaria|cartella clinica|patiëntnummer",
        "medicare card|medicare beneficiary|mbi|insurance member|health plan id|insurance policy holder id|hicn",
        "health card",
        "versichertenkarte|krankenversichertennummer|krankenkassen nr|carte vitale|numéro vitale",
        "libretto sanitario|taj szám|taj",
        "krankenversicherungsnummer|carte d'assuré|ehic|ubezpieczeni* zdrowotn|zorgpas|polisnummer zorg|εκαα|sns nº",
        "insurance id|insurance no|insurance number|adhérent",
        "numer pacjenta|número de utente|čísl* pojištěnce|patientnummer|potilasnumero",
    ),
    "BANK_ACCOUNT": (
        "bank account|account number|account no|account num|acct number|acct no|acct #|a/c no|a/c number",
        "savings account|checking account|deposit account|kontonummer|konto nr|bankkonto|numéro de compte|nº de compte",
        "compte bancaire|número de cuenta|nº de cuenta|cuenta bancaria|número da conta|conta bancária",
        "numero di conto|conto corrente|rekeningnummer|bankrekening|numer konta|nr konta|numer rachunku",
        "kto.|kto. nr|kto.-nr",
        "acct|a/c|konto|kto nr|ktonr|kontonr|rekeningnr|nr rachunku|conta nº|cuenta nº|cuenta n.º|conto n",
        "tilinro|hesap no|hesap numar|номер рахунку|sąskait|konts|számlaszám|bankszámla|č. ú.|č.ú.|číslo účtu",
        "compte n°|compte nº",
        "čísl* účtu|bankszámlaszám|cont bancar|tilinumero|broj računa|αριθμ* λογαριασμού",
    ),
    "COMPANY_ID": (
        "company number|company no|company reg|registration number|registration no|reg. no|crn",
        "handelsregister|firmenbuch|hra|hrb|registre du commerce|numéro d'entreprise|rcs|r.c.s.|bce",
        "registro mercantil|registro imprese|registro delle imprese|rea|kamer van koophandel|ondernemingsnummer",
        "kvk|kbo|krs|regon|matrícula|conservatória|nipc|ičo|cégjegyzékszám|nr. reg. com|registrul comerțului",
        "y-tunnu|organisationsnummer|organisationsnr|org. nr|org nr|cvr|registrikood|įmonės kod",
        "business number|company registration|companies house|n° d'entreprise|no d'entreprise|nº d'entreprise",
        "fn nr|mat. št|reg. com|ič|registered in ireland no|registered in england no|mersis|єдрпоу|едрпоу",
        "код єдрпоу|reg nr|reg. nr|regnr|registernumm|registrikood|orgnr|org nummer|foretaksregisteret",
        "ticaret sicil|ondernemingsnr|kvk nr|kvk nummer|kbo nummer|cvr nummer|cvr nr|hrnr|nº registro",
        "número de registro|reg. imp|ytunnus|y tunnus",
        "reģistrācijas num|reģ. nr|еик|булстат|γεμη|γ.ε.μη|matičn* broj|matičn* številk",
    ),
}
# A register stands with the place where it is kept: `RCS Lyon`, `Registro Mercantil de Madrid, hoja`.
_SEAT: Final = (
    r"(?:[ ,]{1,2}(?:de |di |des |van |beim |am |in )?[^\W\d_]{3,16}){0,2}(?:[ ,]{1,2}(?:tomo|folio|libro"
    r"|vol) \d{1,5}){0,2}"
)
# `account` alone may be a user's; behind the number of a bank or a branch it is one of money.
_AT_BANK: Final = (
    r"(?<![^\W\d_])(?:sort[ _-]?code|transit \d|routing[ _-]?(?:n|#|:)|(?:bsb|aba|ifsc|blz)(?![^\W\d_]))[\s\S]{0,30}?"
    r"(?<![^\W\d_])(?:account|acc|a/c|conto|cuenta|conta|compte|konto|kto)"
)
_REGISTERS: Final = (
    "handelsregister|registergericht|amtsgericht|firmenbuch|rcs|registre du commerce|registro mercantil"
    "|registro imprese|kvk"
)
_GAP: Final = "[ _-]?"
# Lines of names that make a rule.
_AT_ONCE: Final = 6
_SHORT: Final = 7
_LONG: Final = 8
_NO_LETTER_BEFORE: Final = r"(?<![^\W_])"
_NO_LETTER_AFTER: Final = r"(?![^\W\d_])"


def _rule(name: str, label: str, words: str) -> Rule:
    return shipped(name, label, _VALUE, context=_before_value(words), score=0.65)


def named(names: str) -> str:
    """Return the words right before a value that call it by one of some names, separated by `|`, for a rule."""
    return _before_value(_any_of(names))


def _before_value(words: str) -> str:
    # abbreviations are inflected behind a hyphen: `CNP-ul`, `NIP-u`
    ending = r"[^\W\d]{0,8}(?:[-:'][^\W\d_]{1,4}(?![^\W\d_]))?"
    return f"(?:{words}){ending}{_JOIN}"


def _any_of(names: str) -> str:
    """Return an expression for names of documents, with and without the marks on their letters.

    A short one is no part of a word, and a long one may be the end of a word.
    """
    listed = names.split("|")
    every = [*dict.fromkeys([*listed, *map(_without_marks, listed)])]
    return "|".join(map(_one, every))


def _without_marks(name: str) -> str:
    letters = normalize("NFKD", name.replace("ł", "l").replace("ø", "o").replace("ß", "ss"))
    return "".join(char for char in letters if not "\u0300" <= char <= "\u036f")


def _one(name: str) -> str:
    words = name.split(" ")
    written = _GAP.join(re.escape(word.rstrip("*")) + r"\w{0,6}" * word.endswith("*") for word in words)
    # a look to the left for each of them: so the edge is part of the literal that texts are searched for
    if len(words) > 1 or len(name) < _LONG:
        written = _NO_LETTER_BEFORE + written
    return written + (_NO_LETTER_AFTER if len(name) < _SHORT and len(words) == 1 else "")


def _batched(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    return (lines[first : first + _AT_ONCE] for first in range(0, len(lines), _AT_ONCE))


def _rules() -> Iterator[Rule]:
    for label, lines in _NAMES.items():
        # a rule for some of the names at a time: what a text must hold is one of at most two hundred words
        for number, some in enumerate(_batched(lines), 1):
            yield _rule(f"{label.lower().replace('_', '-')}-labeled-{number}", label, _any_of("|".join(some)))
    # short words for a passport mean other things, too: the number must look like one
    yield shipped("passport-short", "PASSPORT", _PASSPORT, context=named("pas|pase|pasas|pasa|passi|passet"), score=0.6)
    yield _rule("bank-account-at", "BANK_ACCOUNT", _AT_BANK)
    yield _rule("company-id-registered", "COMPANY_ID", rf"(?:{_any_of(_REGISTERS)}){_SEAT}")


DOCUMENT_RULES: Final = tuple(_rules())
"""Documents and registers of the member states."""
