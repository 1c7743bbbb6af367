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
    r"(?!(?:19|20)\d\d-(?:19|20)?\d\d(?!\d))"
    rf"{_ENOUGH}(?=(?P<value>(?:[{_LETTERS}]{{1,8}}|[{_CAPITALS}]{{1,3}} ?[ -] ?)?\d[A-Za-z0-9]{{0,33}}"
    r"(?:[ ./-](?=[A-Za-z]{0,3}\d|[A-Z]{1,2}[ ./-]\d)[A-Za-z0-9]{1,16}|[/-][A-Z]{1,3}){0,6}"
    rf"(?: [A-Z]{{1,2}}(?![{GLUE}]))?(?![{GLUE}])))[{_LETTERS}0-9]"
)
_LICENSE: Final = (
    rf"(?<![{GLUE}-])(?:[A-Z]{{0,2}}\d{{7,14}}|[A-Z]\d{{3,4}}(?:-\d{{3,5}}){{2,3}})(?![{GLUE}-])(?![.,]\d)"
)
_PASSPORT: Final = (
    rf"(?<![{GLUE}-])(?:[A-Z]{{1,3}} ?\d{{6,8}}|(?=[A-Z]{{1,8}}\d)[CFGHJK][CFGHJKLMNPRTVWXYZ0-9]{{8}})(?![{GLUE}-])"
)
# Words that may stand between the name of a document and its number, any of one or two letters among them:
# `Steuernummer lautet`, `cartão de cidadão é o`.
_BETWEEN: Final = (
    r"[^\W\d_]{1,2}|nro|núm|num|number|numbers|numero|número|numéro|nummer|numer|numeru|numerem|numery|numeris|numurs"
    "|numri|numărul|numar|numarası|numarasi|kodas|kods|kodu|subjekta|organizácie|οδήγησης|cat|numbri"
    "|broj|číslo|cislo|čísla|szám|száma|αριθμός|αριθ|номер|№|številka|uimhir"
    "|nie|code|kod|código|codice|cod|ref|reference|référence|seria|serie|series|série|sorozat"
    "|registration|registered|registrado|registrada|inscrit|inscrite|inscrita|eingetragen|immatriculée|immatriculé"
    "|iscritta|wpisana|intracommunautaire|intracomunitario|intracomunitaria|comunitario|comunitaria|hoja|folio|hrb|hra"
    "|ist|est|jest|yra|was|lautet|lauten|porte|portant|reads|wynosi|este|είναι"
    "|luidt|lleva|har|hedder|reca|bär|have|has|hat|hält|tiene|tem|heeft|posiada"
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
    "|card|account|val|durchgegeben|angegeben|mitgeteilt|provided|below|also|auch|aussi|anche|también"
    "|ook|też|issued|delivered|délivré\\w{0,2}|expedido|rilasciat[oa]|wydan[ya]"
)
_JOIN: Final = (
    # a tag, a sign but that of money or a paragraph, a word; who speaks next
    r"(?:</?[a-z]{1,8}[^<>]{0,20}>|[^\w<{}!$%&@+^~\xa9\xa7\u20ac\xa3\xa5]|[_\xba]"
    rf"|(?<![^\W\d_])(?:{_BETWEEN})(?![^\W\d_])){{0,16}}(?:\n[^\W\d_]{{1,16}}: )?\Z"
)
# Names as people and keys write them, by language. In a blank may stand a hyphen, an underscore, or nothing; marks on
# letters may be missing. The last word may go on with an ending, and so may one with `*`; a short name ends a word.
# A name with `№` counts only beside a word such as `number`, before it or behind it: `account no`, `nr konta`.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "NATIONAL_ID": (
        "id card|identity card|identity doc|national id|national identi|national insurance|identity №",
        "identification №|id doc №",
        "citizen card|citizen id|ppsn|pps №|personalausweis|ausweis|perso|identitätskarte|identitäts №",
        "personal identification",
        "carte d'identité|nationale d'identité|carte identité|pièce d'identité|identité №|cni|citizen №|personal id №",
        "documento de identidad|nacional de identidad|documento identidad|identificación|identidad №|cédula",
        "dni|d.n.i.",
        "carta d'identità|carta identità|documento d'identità|documento di identità|documento identità",
        "identità №|c.i.",
        "documento №|documento di riconoscimento|dokumendi №",
        "identiteitskaart|identiteitsbewijs|id kaart|dow* osobist|dowód tożsamości|dowód|dowodu|dowodem",
        "nr dowodu|numer dowodu|dow. os.",
        "cartão de cidadão|cartão cidadão|cc nº|cc n.º|cc n°|bilhete de identidade",
        "documento de identificação|identificação civil",
        "občansk* průkaz|občank|občanka|op č|rodn* čísl|rodn* č|občiansk* preukaz|průkaz totožnosti",
        "személyi ig|személyi szám",
        "szem. ig|személyazonosító|igazolványszám|szig",
        "carte de identitate|cartea de identitate|cărții de identitate|buletin|cnp|c.n.p.|henkilökort",
        "henkilötunnu|hetu|sotu|identifikationskort|legitimation №",
        "personnumm|personnr|person nr|pers. nr|samordningsnumm|identitetskort|id kort|cpr|d numm",
        "isikukood|id kaar|asmens kod|asmens tapatybės kortel|personas kod|pers. kod|personas apliecīb|p.k.|a.k.",
        "личн* карт|лк номер|егн|е.г.н.|граждански номер|ταυτότητ|αδτ|α.δ.τ.",
        "osobn* iskaznic|os. iskaznic|osobne|osobna|osebn* izkaznic|osebna|emšo|karta tal-identità|uimhir psp",
        "voter id|epic no|epic number|voter card|voter no|nric|sv nummer|sv nr|svnr|sozialversicherung|sozialvers",
        "rentenversicherung|rv nummer|ahv|avs №|versicherungsnummer|versicherungsnr|sécurité sociale|n° ss",
        "no ss|nº ss",
        "seguridad social|segurança social|niss|sécu №|sofinumm",
        "rijksregister|insz|registre national|numéro national|matricule national|matricule|n° national",
        "číslo op|čísl* op|r. č.|r.č.|č. op|ci seria|serie ci|seria ci|număr ci|număr c.i|cod numeric personal",
        "fødselsnumm|fødselsnr|fnr|sosiaaliturvatunnus|identificatienumm|numer ewidencyjn|personal cod",
        "amka|αμκα|α.μ.κ.α|л. к.|л.к.|jmbg|matični broj građana|mbg|унзр|id картк|ідкартк|id карт",
        "документ за самоличност|kimlik no|kimlik numar|kimlik|tckn|tc no|t.c. no|nüfus cüzdan",
        "seria i numer|seria i nr|szig. szám|szig szám|id kart",
    ),
    "PASSPORT": (
        "passport|travel document|travel doc|reisepass|reisepaß|reisedokument|pass №|ppt no",
        "passeport|pasaporte|passaporto|documento di viaggio|paspoort|passaporte|passaport|pașaport|paszport",
        "cestovn* pas|cestovn* doklad|pasu|pas №|útlevél|útlevel|putovnic|potn* list",
        "pasaport|pasaportu|nr pasz|útiokmány|úti okmány|passnr|passnumm|pasnr|pasnumm|passets numm|reisidokument",
        "паспорт|διαβατήρι|διαβατηρί|passi|passin n|reisipass|pase n|pases n|paso n|pasas n|passinum",
    ),
    "DRIVER_LICENSE": (
        "driver's lic|drivers lic|driver lic|driving lic|driver permit|driving permit|license no|license num",
        "license nr|license #|licence no|licence num|licence nr|licence #|lic no|lic number|lic nr|lic #|dln|oln",
        "operator licen|d/l|dl №|d.l. №|führerschein|führerausweis|fuehrerschein|fahrerlaubnis|fs nr",
        "permis de conduire|permis b|permis|permiso de conducir|permiso de conducción|permiso de circulación",
        "permiso №",
        "permiso conducir|licencia de conducir|licencia de conducción|licencia №|carnet de conducir|carné de conducir",
        "patente di guida|patente guida|patente|rijbewijs|prawo jazdy|prawa jazdy|carta de condução|carta condução",
        "licença de condução|carnet de conducere|permis conducere|permis auto|permis* de conducere",
        "řidičsk* průkaz|řidičák|řp|vodičsk* preukaz|vodičák|číslo vp|vezetői engedély|jogosítvány|jogsi",
        "ajokort|körkort|kørekort|førerkort|juhiluba|juhiloa|vairuotojo paž|vadītāja apliecīb|autovadītāja apliecīb",
        "шофьорска книжк|шофьорск* книжк|сумпс|свидетелство за управление|άδει* οδήγησης|δίπλωμα",
        "διπλώματος οδήγησης|vozačk* dozvol|vozačka|vozačke|vozniš* dovoljenj|vozniško|ehliyet|sürücü belges",
        "посвідчення водія|водійськ* посвідченн",
    ),
    "TAX_ID": (
        "tax number|tax no|tax nr|tax #|tax id|tax code|fiscal code|fiscal id|vat id|tax payer|taxpayer",
        "tax reference|tax file|tax identification|fiscal №|vat №|vat reg|vat|tin|utr|ein №",
        "steuer №|steuer id|steuer ident|steueridentn|steuerliche identifik|ust id|ust.-id|umsatzsteuer",
        "mwst №|uid n|st. nr|idnr",
        "numéro fiscal|identifiant fiscal|référence fiscale|spi №|tva|t.v.a.|siren|siret|fiscale №",
        "identificación fiscal|nif|n.i.f.|cif|c.i.f.|codice fiscale|cod. fisc|c.f.|partita iva|p. iva|piva|iva|p.i.",
        "fiscaal №|btw|rsin|ob nummer|omzetbelasting|identyfikacji podatkowej|nip|n.i.p.|contribuinte",
        "identificação fiscal",
        "dič|ič dph|adószám|adóazonosító|adóig|adójel|cod* fiscal|identificare fiscal|cui|c.u.i.|veronum",
        "verotunnus|alv №|alv tunnus",
        "moms №|momsnumm|skattenumm|steuernumm|steuernr|momsreg|momsregistrering|skatte №|se nr|käibemaksu",
        "maksukohustuslase|kmkr|pvm mok*|pvm kod|pvn",
        "mokesčių mok*|nodokļu maks*|ддс|данъчен номер|инн|αφμ|α.φ.μ.|φορολογικού μητρώου|oib|porezn* №|pdv №|pdv id",
        "davčn* št|davčna|davčno|ddv|іпн|рнокпп|ідентифікаційний код|ідентифікаційний номер|иін",
        "vergi №|vergi kimlik|vkn|mva №|identifikationsnummer|steuerid|daňov* identifik",
    ),
    "MEDICAL_ID": (
        "medical record №|mrn|patient №|patient id|patienten №|patienten id|patienta №|hospital number",
        "hospital no|chart number|chart no|health insurance №|health card",
        "medicare №|medicare card|medicare beneficiary|mbi|medicaid №|npi|hicn|insurance id|insurance no",
        "insurance number",
        "insurance member|health plan id|health plan member|insurance policy holder id|nhs №",
        "versicherten №|versichertenkarte|krankenversicherungs №|krankenversichertennummer|krankenkassen №",
        "kv nummer|kvnr",
        "pat. nr|dossier médical|dossier patient|assuré №|carte d'assuré|mutuelle №|rpps|adeli|carte vitale",
        "numéro vitale|nss",
        "nhc|historia №|historia clínica|nass|nuss|cipa|tarjeta sanitaria|colegiad №|núm. col|nº col|ehic|ekuz",
        "número de afiliación|número de asegurado|tessera sanitaria|libretto sanitario|cartella clinica",
        "paziente №|codice paziente",
        "polisnummer zorg|zorgpas|patiënt №|patiënt id|taj szám|taj|betegazonosító|εκαα|utente №|sns №|adhérent",
        "pacjenta №|ubezpieczeni* zdrowotn|pojištěnce №|poistenca №|pacienta №|pacient №|cod pacient",
        "potilas №|pacijenta №|potilastunnus|journalnr|journalnumm",
        "sygesikrings №|ασθεν* №|osiguran* osob|zdravstven* kartic|zavarovane osebe|пациент №|mbo",
    ),
    "BANK_ACCOUNT": (
        "bank account|bank acct|account number|account no|account num|account nr|account #|acct|acc no",
        "acc num|acc nr|a/c|savings acc|checking acc|deposit acc|beneficiary acc|to account|from account|into account",
        "konto|bankkonto|kontonum|kontonr|kto.|kto nr|ktonr|kontonumm|bankgiro|plusgiro",
        "compte №|compte bancaire|cuenta №|cuenta bancaria|cuenta corriente|cta №|cta. cte|conta №|conta bancária|nib",
        "conto №|conto corrente|c/c|rekening №|rekeningnr|bankrekening|rek. nr|tilinro|tilin №|pankkitili|tilinum",
        "rachunku №|rachunek bankow|rachunek №|rach №|konta №|konto bankow|hesap №|рахунку №|сметка|sąskait|konts",
        "účtu №|účet №|účet|bank* účet|bankovní spojení|č. ú.|č.ú.|bankszámla|számla №|számlaszám|szla",
        "cont №|cont bancar|broj računa|br. računa|številka računa|žiro račun|tekući račun",
        "transakcijski račun|trr|arveldusarve|λογαριασμ",
    ),
    "COMPANY_ID": (
        "company number|company no|company reg|registration number|registration no|registered number",
        "registered no|reg. no|reg no|crn|business number|companies house|england under|wales under",
        "scotland under|ireland under|england no|wales no|ireland no|charity no|charity number|duns",
        "organisation number",
        "handelsregister|firmenbuch|hra|hrb|registre du commerce|d'entreprise №|entreprise №|rcs|r.c.s.|bce",
        "hr nr|hrnr",
        "registro mercantil|registro imprese|registro delle imprese|reg. imp|rea|kamer van koophandel|ondernemings №",
        "kvk|kbo|kvk nummer|kbo nummer|cvr nummer|kvk nr|kbo nr|cvr nr|krs|regon|matrícula|conservatória",
        "nipc|pessoa colectiva|pessoa coletiva|ičo|cégjegyzékszám",
        "nr. reg. com|reg. com|registrul comerțului|y-tunnu|ytunnus|y tunnus|yritystunnus|identifika* číslo",
        "identifikačné číslo",
        "organisations №|organisasjons №|org. nr|org nr|orgnr|org nummer|foretaksregisteret|foretaks №",
        "bolags №|cvr|virksomheds №",
        "registrikood|reg. kood|įmonės kod|įm. kod|fn nr|mat. št|ič|mersis|єдрпоу|едрпоу|registernumm",
        "reg nr|reg. nr|regnr|ticaret sicil|número de registro|registro №",
        "reģistrācijas num|reģ. nr|еик|булстат|γεμη|γ.ε.μη|matičn* broj|matičn* št|matičn* številk|mbs",
    ),
}
# A register stands with the place where it is kept: `RCS Lyon`, `Registro Mercantil de Madrid, hoja`.
_SEAT: Final = (
    r"(?:[ ,]{1,2}(?:de |di |des |van |beim |am |in |& |and )?[^\W\d_]{3,16}){0,2}(?:[ ,]{1,2}(?:tomo|folio|libro"
    r"|vol) \d{1,5}){0,2}"
)
# `account` alone may be a user's; behind the number of a bank or a branch it is one of money.
_AT_BANK: Final = (
    r"(?<![^\W\d_])(?:sort[ _-]?code|transit \d|routing|(?:bsb|aba|ifsc|blz)(?![^\W\d_]))[\s\S]{0,30}?"
    r"(?<![^\W\d_])(?:account|acc|a/c|conto|cuenta|conta|compte|konto|kto)"
)
_REGISTERS: Final = (
    "handelsregister|registergericht|amtsgericht|firmenbuch|rcs|registre du commerce|registro mercantil"
    "|registro imprese|kvk"
)
_GAP: Final = "[ _-]?"
# Names that make a rule.
_AT_ONCE: Final = 60
# Marks a name that counts only beside one of these.
_MARK: Final = " №"
_NUMBER: Final = (
    "number|numbers|no|nr|num|núm|numero|numéro|número|nummer|nro|numer[ua]?|nº|n|č|c|číslo|cislo|čísla"
    "|broj|br|št|številka|stevilka"
    "|szám|száma|αρ|αριθμός|αριθμ|номер|№|numeris|numurs|număr|număru?l|numar|numarası|#"
)
_OF: Final = "de|del|della|dell|di|do|da|du|van|het|la|le|el|d|на"
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


def _numbered(names: str) -> str:
    """Return an expression for names that count only beside a word such as `number`.

    The word stands before the name (`numéro de compte`) or behind it (`compte no`), after up to four more letters.
    """
    number = rf"(?:{_NUMBER}){_NO_LETTER_AFTER}"
    before = rf"{_NO_LETTER_BEFORE}{number}[\W_]{{1,3}}(?:(?:{_OF})[\W_]{{1,2}}){{0,2}}"
    glued = "|".join(name for name in names.split("|") if len(name) < _SHORT and name.isalpha())
    return (
        rf"(?P<number>{before})?(?:{_any_of(names)})(?(number){_NO_LETTER_AFTER}|\w{{0,4}}[\W_]{{0,3}}{number})"
        # as in a key, `vatNumber`
        + (rf"|{_NO_LETTER_BEFORE}(?:{glued})(?:number|nummer|nr|num|no){_NO_LETTER_AFTER}" if glued else "")
    )


def _batched(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    return (lines[first : first + _AT_ONCE] for first in range(0, len(lines), _AT_ONCE))


def _rules() -> Iterator[Rule]:
    for label, lines in _NAMES.items():
        rule, names = label.lower().replace("_", "-"), "|".join(lines).split("|")
        weak = [name.removesuffix(_MARK) for name in names if name.endswith(_MARK)]
        # a rule for some of the names at a time: what a text must hold is one of at most two hundred words
        for number, some in enumerate(_batched([name for name in names if not name.endswith(_MARK)]), 1):
            yield _rule(f"{rule}-labeled-{number}", label, _any_of("|".join(some)))
        if weak:
            yield _rule(f"{rule}-numbered", label, _numbered("|".join(weak)))
    # short words for a passport mean other things, too: the number must look like one
    yield shipped(
        "passport-short", "PASSPORT", _PASSPORT, context=named("pass|pas|pase|pasas|pasa|passi|passet"), score=0.6
    )
    # `dl` is a unit, and an airline, too
    dl = _before_value(r"(?<![^\W_])(?<!/)(?<!flight )dl(?![^\W\d_])")
    yield shipped("driver-license-short", "DRIVER_LICENSE", _LICENSE, context=dl, score=0.6)
    yield _rule("bank-account-at", "BANK_ACCOUNT", _AT_BANK)
    yield _rule("company-id-registered", "COMPANY_ID", rf"(?:{_any_of(_REGISTERS)}){_SEAT}")


DOCUMENT_RULES: Final = tuple(_rules())
"""Documents and registers of the member states."""
