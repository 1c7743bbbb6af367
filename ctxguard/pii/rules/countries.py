"""Numbers that states give people and firms; check digits by python-stdnum.

A number of digits alone needs a word nearby: one random number in ten or eleven passes a check digit.
"""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped
from ctxguard.pii.rules.words import (
    CALLING,
    DRAWING,
    IDENTITY,
    LEFT,
    NO_FOUR_AFTER,
    NO_FOUR_BEFORE,
    PHONE_LOOSELY,
    RIGHT,
    word,
)

_STDNUM: Final = "ctxguard.pii.detect.validate:stdnum:"
_START: Final = r"(?<![A-Za-z0-9_-])(?<![0-9]\.)"
_END: Final = r"(?![0-9A-Za-z_-])"


# Phone numbers have these groups, too; one in ten passes the check digit.
_NO_PHONE: Final = rf"{DRAWING}|(?:{PHONE_LOOSELY}|{CALLING})[^\d]{{0,24}}"


def _digits(name: str, label: str, pattern: str, module: str, words: str) -> Rule:
    """Make a rule for digits that count only after a word."""
    return shipped(
        name,
        label,
        rf"{LEFT}{pattern}{RIGHT}",
        validate=_STDNUM + module,
        context=words,
        score=0.95,
    )


def _written(name: str, label: str, pattern: str, module: str, quiet: str = DRAWING) -> Rule:
    """Make a rule for digits whose separators and check digit together say enough."""
    return shipped(
        name,
        label,
        rf"{LEFT}{pattern}{RIGHT}",
        validate=_STDNUM + module,
        quiet=quiet,
        score=0.7,
    )


def _letters(name: str, label: str, pattern: str, module: str) -> Rule:
    """Make a rule for a form with letters in it."""
    return shipped(
        name,
        label,
        rf"{_START}{pattern}{_END}",
        validate=_STDNUM + module,
        score=0.8,
    )


# Letters of a country, then what its law says; those without check digits, and the shortest, are left out.
_EU_VAT: Final = (
    r"(?:AT ?U\d{8}|BE ?[01]\d{9}|CY ?\d{8}[A-Z]|CZ ?\d{8,10}|DK ?\d{8}|EE ?\d{9}|EL ?\d{9}|ES ?[A-Z]\d{7}[A-Z0-9]"
    r"|FI ?\d{8}|FR ?[0-9A-Z]{2} ?\d{9}|HR ?\d{11}|HU ?\d{8}|IE ?\d{7}[A-W][A-I]?|IT ?\d{11}|LT ?\d{9}(?:\d{3})?"
    r"|LU ?\d{8}|LV ?\d{11}|MT ?\d{8}|NL ?\d{9}B\d{2}|PL ?\d{10}|PT ?\d{9}|SE ?\d{10}01|SI ?\d{8}|SK ?\d{10})"
)
_STATES_OF_INDIA: Final = (
    "A[NPRS]|BR|C[GH]|D[DLN]|G[AJ]|H[PR]|J[HK]|K[AL]|L[AD]|M[HLNPZ]|NL|O[DR]|P[BY]|RJ|SK|T[GNRS]|U[AKP]|WB"
)
# Letters that are not taken for digits (CMS, format of the Medicare Beneficiary Identifier).
_MBI: Final = "AC-HJ-KM-NP-RT-Y"

RULES_BY_COUNTRY: Final[dict[str, tuple[Rule, ...]]] = {
    "US": (
        _digits(
            "us-ein", "US_EIN", r"\d{2}-\d{7}", "us.ein", word("ein|tin") + r"|employer.{0,3}id|federal tax|tax.?id"
        ),
        _digits(
            "us-routing",
            "US_ROUTING",
            r"\d{4}-?\d{4}-?\d",
            "us.rtn",
            word("aba|rtn") + r"|routing",
        ),
        shipped(
            "us-medicare",
            "MEDICAL_ID",
            rf"{_START}[1-9][{_MBI}][0-9{_MBI}]\d(?P<s>[ -]?)[{_MBI}][0-9{_MBI}]\d(?P=s)[{_MBI}]{{2}}\d\d{_END}",
            score=0.8,
        ),
    ),
    "EU": (_letters("eu-vat", "TAX_ID", _EU_VAT, "eu.vat"),),
    "CH": (
        _written("ch-ahv", "NATIONAL_ID", r"\d{3}\.\d{4}\.\d{4}\.\d{2}", "ch.ssn"),
        _digits(
            "ch-ahv-named",
            "NATIONAL_ID",
            r"\d{3}[ .]?\d{4}[ .]?\d{4}[ .]?\d{2}",
            "ch.ssn",
            r"ahv|avs|sozialvers|assicura",
        ),
        shipped(
            "ch-uid",
            "COMPANY_ID",
            rf"{_START}CHE[- ]?(?:\d{{9}}|\d{{3}}\.\d{{3}}\.\d{{3}}){_END}",
            validate=_STDNUM + "ch.uid",
            tail=" (?:MWST|TVA|IVA)(?![A-Za-z])",
            score=0.8,
        ),
    ),
    "BE": (_written("be-national", "NATIONAL_ID", r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}", "be.nn"),),
    "CZ": (_written("cz-birth-number", "NATIONAL_ID", r"\d{6}/\d{4}", "cz.rc"),),
    "SE": (
        _written("se-personal", "NATIONAL_ID", r"(?:19|20)?\d{6}[+-]\d{4}", "se.personnummer"),
        _digits(
            "se-personal-named",
            "NATIONAL_ID",
            r"(?:19|20)?\d{6}[ +-]?\d{4}",
            "se.personnummer",
            word("pnr") + "|personn",
        ),
    ),
    "FI": (_letters("fi-personal", "NATIONAL_ID", r"\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]", "fi.hetu"),),
    "NO": (
        _written("no-birth-number", "NATIONAL_ID", r"\d{6} \d{5}", "no.fodselsnummer"),
        _letters("no-vat", "TAX_ID", r"(?:NO ?)?\d{3} ?\d{3} ?\d{3} ?MVA", "no.mva"),
    ),
    "AT": (_digits("at-insurance", "NATIONAL_ID", r"\d{4} ?\d{6}", "at.vnr", r"sozial|versich|\bsv|vnr"),),
    "IE": (_digits("ie-pps", "NATIONAL_ID", r"\d{7} ?[A-Wa-w][A-Ia-i]?", "ie.pps", word("ppsn?")),),
    "PT": (_letters("pt-citizen", "NATIONAL_ID", r"\d{8}[ -]?\d[ -]?[A-Z]{2}\d", "pt.cc"),),
    "TR": (_digits("tr-identity", "NATIONAL_ID", r"\d{11}", "tr.tckimlik", r"kimlik|tckn|\bt\.?c\b"),),
    "CA": (
        _written(
            "ca-sin",
            "CA_SIN",
            # no row of a table: no other three digits stand beside it
            r"(?<!(?<!\d)\d{3}[ -])\d{3}(?P<s>[ -])\d{3}(?P=s)\d{3}(?![ -]\d{3}(?!\d))",
            "ca.sin",
            _NO_PHONE,
        ),
        _digits(
            "ca-sin-named",
            "CA_SIN",
            r"\d{3}[ -]?\d{3}[ -]?\d{3}",
            "ca.sin",
            word("sin|nas") + r"|social[ _]?insurance|assurance sociale",
        ),
        _digits("ca-bn", "CA_BN", r"\d{9}", "ca.bn", word("bn") + r"|business[ _]?number"),
    ),
    "GB": (
        _written("uk-nhs", "UK_NHS", r"\d{3}(?P<s>[ -])\d{3}(?P=s)\d{4}", "gb.nhs", _NO_PHONE),
        _digits("uk-nhs-named", "UK_NHS", r"\d{3}[ -]?\d{3}[ -]?\d{4}", "gb.nhs", word("nhs") + r"|health service"),
        _digits("uk-utr", "UK_UTR", r"\d{5} ?\d{5}", "gb.utr", word("utr") + r"|taxpayer ref"),
        shipped(
            "uk-nino",
            "UK_NINO",
            rf"{_START}(?!BG|GB|NK|KN|TN|NT|ZZ)(?:[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]|QQ)"
            rf"(?:\d{{6}}| \d{{2}} \d{{2}} \d{{2}} | \d{{6}} ?)[A-D]{_END}",
            score=0.8,
        ),
        shipped(
            "uk-nino-small",
            "UK_NINO",
            rf"{_START}(?!bg|gb|nk|kn|tn|nt|zz)[a-ceghj-pr-tw-z][a-ceghj-npr-tw-z] \d{{2}} \d{{2}} \d{{2}} [a-d]{_END}",
            score=0.7,
        ),
        shipped(
            "uk-driver",
            "DRIVER_LICENSE",
            rf"{_START}[A-Z]{{2}}[A-Z9]{{3}}\d(?:[05][1-9]|[16][0-2])(?:0[1-9]|[12]\d|3[01])\d[A-Z][A-Z9]\d?[A-Z]{{2}}{_END}",
            score=0.8,
        ),
    ),
    "DE": (
        _digits(
            "de-idnr",
            "DE_TAX_ID",
            r"\d{2} ?\d{3} ?\d{3} ?\d{3}",
            "de.idnr",
            word("tin") + r"|steuer|\bid-?nr|tax",
        ),
        _digits("de-stnr", "DE_TAX_NUMBER", r"\d{2,3}/\d{3,4}/\d{4,5}", "de.stnr", r"steuer|\bst\.?-?nr"),
        _letters("de-vat", "DE_VAT", r"DE ?\d{9}", "de.vat"),
        shipped(
            "de-insurance",
            "DE_SOCIAL_SECURITY",
            rf"{_START}(?:\d{{8}}[A-Z]\d{{3}}|\d{{2}} \d{{6}} [A-Z] \d{{3}}){_END}",
            validate="ctxguard.pii.detect.validate:german_insurance",
            score=0.7,
        ),
    ),
    "FR": (
        _written("fr-nir", "FR_NIR", r"\d \d{2} \d{2} \d{2} \d{3} \d{3} \d{2}", "fr.nir"),
        _digits(
            "fr-nir-named",
            "FR_NIR",
            r"\d ?\d{2} ?\d{2} ?\d{2} ?\d{3} ?\d{3} ?\d{2}",
            "fr.nir",
            word("nir") + rf"|sécu|secu|insee|social|{IDENTITY}",
        ),
        _digits("fr-siret", "FR_SIRET", r"\d{3} ?\d{3} ?\d{3} ?\d{5}", "fr.siret", r"siret"),
        _digits("fr-nif", "FR_NIF", r"\d{2} ?\d{2} ?\d{3} ?\d{3} ?\d{3}", "fr.nif", word("nif") + r"|spi\b|fiscal"),
    ),
    "ES": (
        _letters("es-nif", "ES_NIF", r"(?:\d{8}|\d{2}\.\d{3}\.\d{3})-?[A-Za-z]", "es.dni"),
        _letters("es-nie", "ES_NIE", r"[XYZxyz]-?\d{7}-?[A-Za-z]", "es.nie"),
    ),
    "IT": (
        _letters(
            "it-fiscal-code",
            "IT_FISCAL_CODE",
            r"[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z]",
            "it.codicefiscale",
        ),
        _digits("it-vat", "IT_VAT", r"\d{11}", "it.iva", word("iva|vat") + r"|partita"),
    ),
    "NL": (
        _digits(
            "nl-bsn", "NL_BSN", r"\d{4}[. ]?\d{2}[. ]?\d{3}", "nl.bsn", word("bsn") + rf"|burgerservice|sofi|{IDENTITY}"
        ),
    ),
    "PL": (
        _digits("pl-pesel", "PL_PESEL", r"\d{11}", "pl.pesel", rf"pesel|{IDENTITY}"),
        _digits("pl-nip", "PL_NIP", r"\d{3}-?\d{3}-?\d{2}-?\d{2}", "pl.nip", word("nip")),
    ),
    "BR": (
        _written("br-cpf", "BR_CPF", r"\d{3}\.\d{3}\.\d{3}-\d{2}", "br.cpf"),
        _digits("br-cpf-named", "BR_CPF", r"\d{11}", "br.cpf", word("cpf") + rf"|{IDENTITY}"),
        _written("br-cnpj", "BR_CNPJ", r"\d{2}\.\d{3}\.\d{3}/\d{4}-\d{2}", "br.cnpj"),
    ),
    "IN": (
        _written(
            "in-aadhaar",
            "IN_AADHAAR",
            rf"{NO_FOUR_BEFORE}\d{{4}}(?P<s>[ -])\d{{4}}(?P=s)\d{{4}}{NO_FOUR_AFTER}",
            "in_.aadhaar",
        ),
        _digits(
            "in-aadhaar-named",
            "IN_AADHAAR",
            r"\d{12}",
            "in_.aadhaar",
            word("uid(?:ai)?") + rf"|aadh?a+r|आधार|{IDENTITY}",
        ),
        _letters("in-pan", "IN_PAN", r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]", "in_.pan"),
        _letters(
            "in-gstin",
            "IN_GSTIN",
            r"\d{2}[A-Z]{5}\d{4}[A-Z][1-9A-Z]Z[0-9A-Z]",
            "in_.gstin",
        ),
        shipped(
            "in-company",
            "COMPANY_ID",
            rf"{_START}[LU]\d{{5}}(?:{_STATES_OF_INDIA})(?:19|20)\d\d[A-Z]{{3}}\d{{6}}{_END}",
        ),
        shipped(
            "in-driver",
            "DRIVER_LICENSE",
            rf"{_START}(?:{_STATES_OF_INDIA})[ -]?\d\d[ -]?(?:19|20)\d{{9}}{_END}",
            score=0.8,
        ),
    ),
    "AU": (
        _digits("au-tfn", "AU_TFN", r"\d{3} ?\d{3} ?\d{2,3}", "au.tfn", word("tfn") + r"|tax[ _]?file"),
        _digits("au-abn", "AU_ABN", r"\d{2} ?\d{3} ?\d{3} ?\d{3}", "au.abn", word("abn") + r"|business[ _]?number"),
        _digits("au-acn", "AU_ACN", r"\d{3} ?\d{3} ?\d{3}", "au.acn", word("acn") + r"|company[ _]?number"),
    ),
    "JP": (
        _digits(
            "jp-my-number",
            "JP_MY_NUMBER",
            r"\d{4}[ -]?\d{4}[ -]?\d{4}",
            "jp.in_",
            r"my[ _]?number|マイナンバ[ー-]|個人番号",
        ),
    ),
    "KR": (
        _written("kr-rrn", "KR_RRN", r"\d{6}-\d{7}", "kr.rrn"),
        _digits("kr-rrn-named", "KR_RRN", r"\d{13}", "kr.rrn", word("rrn") + rf"|resident|주민|{IDENTITY}"),
        _written("kr-brn", "KR_BRN", r"\d{3}-\d{2}-\d{5}", "kr.brn"),
    ),
    "CN": (
        shipped(
            "cn-id",
            "CN_ID",
            rf"{_START}\d{{17}}[\dXx]{_END}",
            validate="ctxguard.pii.detect.validate:chinese_id",
            score=0.9,
        ),
    ),
}
COUNTRIES: Final = tuple(RULES_BY_COUNTRY)
"""Countries with rules of their own, ISO 3166 in two letters."""
COUNTRY_RULES: Final = tuple(rule for rules in RULES_BY_COUNTRY.values() for rule in rules)
