"""Structured personal data in templates of mails, logs, forms, JSON, tables, and chats, in the languages of the EU.

Run `python benchmarks/pii_templates.py [SET …]`. Each set of templates was written, and measured, before anybody looked at
what the rules miss in it; see `docs/pii.md`. Values are generated anew for each text, with their check digits. Decoys are
what looks like such values: order numbers, versions, timestamps, coordinates, hashes.
"""

from __future__ import annotations

import random
import re
import string
import sys
from itertools import pairwise

import phonenumbers
from pii_corpus import MAKERS
from pii_template_sets import SETS
from stdnum import luhn
from stdnum.es import dni
from stdnum.iso7064 import mod_11_10
from stdnum.it import codicefiscale

from ctxguard.pii import PEOPLE, STANDARD, Span
from ctxguard.pii.evaluation import Example, Score

LABELS = (
    "PHONE",
    "NATIONAL_ID",
    "PASSPORT",
    "DRIVER_LICENSE",
    "TAX_ID",
    "COMPANY_ID",
    "PERSON",
    "ADDRESS",
    "LICENSE_PLATE",
)
RULES = {"eleventh": STANDARD | PEOPLE, "twelfth": STANDARD | PEOPLE}
"""The rules of the sets that hold names and addresses; all others are measured with `STANDARD`."""
SEEDS = range(25)
"""Texts made of each template."""


def filled(pattern):
    """Return a maker of values: `9` is any digit, `A` any capital letter, `X` one of both, the rest is itself."""
    kinds = {"9": string.digits, "A": string.ascii_uppercase, "X": string.digits + string.ascii_uppercase}
    return lambda rng: "".join(rng.choice(kinds.get(char, char)) for char in pattern)


def phone_of(*regions, international=0.3):
    def make(rng):
        example = phonenumbers.example_number_for_type(rng.choice(regions), rng.choice((0, 1)))
        digits = str(example.national_number)
        example.national_number = int(digits[:-4] + f"{rng.randint(0, 9999):04d}")
        written = phonenumbers.format_number(example, 1 if rng.random() < international else 2)
        return rng.choice((written, written, written.replace(" ", "-"), written.replace(" ", ".")))

    return make


def weighted(digits, weights):
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=True))


def drawn(rng, size, first="123456789"):
    return rng.choice(first) + "".join(rng.choices(string.digits, k=size - 1))


def spanish_dni(rng):
    number = drawn(rng, 8)
    letter = dni.calc_check_digit(number)
    return rng.choice((f"{number}{letter}", f"{number}-{letter}", f"{number[:2]}.{number[2:5]}.{number[5:]}-{letter}"))


def grouped(number, *sizes, sign=" "):
    places = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
    return sign.join(number[start:end] for start, end in pairwise(places))


def german_tax_id(rng):
    digits = list("123456789")
    rng.shuffle(digits)
    body = "".join(digits) + digits[rng.randrange(3)]
    number = body + mod_11_10.calc_check_digit(body)
    return rng.choice((number, grouped(number, 2, 3, 3, 3)))


def polish_nip(rng):
    while True:
        body = drawn(rng, 9)
        check = weighted(body, (6, 5, 7, 2, 3, 4, 5, 6, 7)) % 11
        if check < 10:
            return rng.choice((f"{body}{check}", grouped(f"{body}{check}", 3, 3, 2, 2, sign="-")))


def portuguese_nif(rng):
    body = drawn(rng, 8, "1256")
    check = -weighted(body, range(9, 1, -1)) % 11 % 10
    return rng.choice((f"{body}{check}", grouped(f"{body}{check}", 3, 3, 3)))


def fiscal_code(rng):
    body = (
        filled("AAAAAA99")(rng) + rng.choice("ABCDEHLMPRST") + f"{rng.randint(1, 28):02d}" + rng.choice("FHL") + "501"
    )
    return body + codicefiscale.calc_check_digit(body)


def by_luhn(*sizes):
    def make(rng):
        body = drawn(rng, sum(sizes) - 1)
        return grouped(body + luhn.calc_check_digit(body), *sizes)

    return make


def one_of(*makers):
    return lambda rng: rng.choice(makers)(rng)


def either(*patterns):
    return one_of(*map(filled, patterns))


GIVEN = (
    "Anna", "Peter", "Lucía", "Jörg", "Chiara", "Mateusz", "Inês", "Fleur", "Émilie", "Tomasz", "Grace", "Mark", "Rose",
    "Aisha", "Wei", "Olga", "Karl-Heinz", "Maria", "Sofie", "Liam", "Noah", "Zeynep", "Raj", "Amara",
)  # fmt: skip
SURNAMES = (
    "Brown", "Snow", "Koch", "Bauer", "Wolf", "Müller", "García Pérez", "Rossi", "Kowalska", "Silva", "de Vries", "Moreau",
    "O'Neill", "Stone", "Nguyen", "van den Berg", "Lefèvre", "Nowak", "Hall", "King", "Schäfer", "Esposito", "Okafor", "Lindqvist",
)  # fmt: skip
STREETS = {
    "DE": ("Lindenstraße {n}, {z} Köln", "Am Alten Markt {n}, {z} Mainz", "Goethestr. {n}a, {z} Weimar"),
    "EN": (
        "{n} Orchard Road, Leeds LS6 2AB",
        "{n} Maple Avenue, Austin, TX {z}",
        "Flat 3, {n} High Street, Bath BA1 5LP",
    ),
    "FR": (
        "{n} rue des Lilas, {z} Lyon",
        "{n} bis avenue Jean Jaurès, {z} Nantes",
        "{n}, boulevard Voltaire, {z} Dijon",
    ),
    "ES": ("Calle del Olmo {n}, {z} Sevilla", "Avenida de la Paz, {n}, {z} Vigo", "C/ Luna {n}, 2º A, {z} Soria"),
    "IT": ("Via Verdi {n}, {z} Parma", "Corso Garibaldi {n}, {z} Torino", "Piazza San Marco {n}, {z} Lecce"),
    "NL": ("Dorpsstraat {n}, 3512 AB Utrecht", "Kerkweg {n}, 9712 CD Groningen"),
    "PT": ("Rua das Flores {n}, 4050-262 Porto", "Avenida da Liberdade {n}, 1250-142 Lisboa"),
}


def drawn_from(listed):
    return lambda rng: rng.choice(listed)


def person(rng):
    return f"{rng.choice(GIVEN)} {rng.choice(SURNAMES)}"


def address_in(country):
    return lambda rng: rng.choice(STREETS[country]).format(n=rng.randint(1, 199), z=rng.randint(10000, 98000))


def birth(rng):
    year, month, day = rng.randint(1940, 2006), rng.randint(1, 12), rng.randint(1, 28)
    return rng.choice(
        (f"{day:02d}.{month:02d}.{year}", f"{year}-{month:02d}-{day:02d}", f"{day:02d}/{month:02d}/{year}")
    )


def french_nir(rng):
    body = f"{rng.choice('12')}{rng.randint(40, 99)}{rng.randint(1, 12):02d}{rng.randint(10, 95)}{rng.randint(1, 999):03d}{rng.randint(1, 999):03d}"
    return rng.choice(
        (f"{body}{97 - int(body) % 97:02d}", grouped(f"{body}{97 - int(body) % 97:02d}", 1, 2, 2, 2, 3, 3, 2))
    )


def secret(rng):
    return f"ghp_{''.join(rng.choices(string.ascii_letters + string.digits, k=36))}"


_REGIONS = {
    "SV": "SE", "DA": "DK", "FI": "FI", "CS": "CZ", "HU": "HU", "RO": "RO", "EL": "GR", "BG": "BG", "HR": "HR", "ET": "EE",
}  # fmt: skip
VALUES = {
    **MAKERS,
    "PHONE_DE": phone_of("DE", "AT", "CH"),
    "PHONE_FR": phone_of("FR", "BE"),
    "PHONE_ES": phone_of("ES"),
    "PHONE_IT": phone_of("IT"),
    "PHONE_NL": phone_of("NL", "BE"),
    "PHONE_PL": phone_of("PL"),
    "PHONE_PT": phone_of("PT"),
    "PHONE_EN": phone_of("GB", "US", "IE"),
    "NATIONAL_ID_DE": either("L9X99X9X9", "T999999999"),
    "NATIONAL_ID_FR": either("999999999999", "X4RTBPF99"),
    "NATIONAL_ID_ES": spanish_dni,
    "NATIONAL_ID_IT": either("CA99999AA", "AX9999999", "CA 99999 AA"),
    "NATIONAL_ID_NL": either("IX9R9X9X9", "999-9999999-99"),
    "NATIONAL_ID_PL": either("AAA999999", "AAA 999999"),
    "NATIONAL_ID_PT": either("99999999 9 ZZ9", "999999999ZZ9", "99999999"),
    "NATIONAL_ID_EN": either("999999999", "AA999999", "9999999AA"),
    "PASSPORT_DE": either("C9X99X9X9", "CF9X9X999"),
    "PASSPORT_FR": either("99AA99999", "99 AA 99999"),
    "PASSPORT_ES": either("AAA999999", "AA999999"),
    "PASSPORT_IT": either("YA9999999", "YB 9999999"),
    "PASSPORT_NL": either("NX9R9X9X9", "BA999999"),
    "PASSPORT_PL": either("AA9999999", "AA 9999999"),
    "PASSPORT_PT": either("CA999999", "A-999999"),
    "PASSPORT_EN": either("999999999", "A99999999", "AA9999999"),
    "DRIVER_LICENSE_DE": either("B999AAE9I99", "J99XX99X991"),
    "DRIVER_LICENSE_FR": either("99AA99999", "999999999999"),
    "DRIVER_LICENSE_ES": spanish_dni,
    "DRIVER_LICENSE_IT": either("U19A99999A", "MI9999999X", "AA9999999A"),
    "DRIVER_LICENSE_NL": filled("9999999999"),
    "DRIVER_LICENSE_PL": either("99999/99/9999", "99999/99/99"),
    "DRIVER_LICENSE_PT": either("L-999999 9", "AV-99999 9", "P-9999999 9"),
    "DRIVER_LICENSE_EN": either("AAAAA999999AA9AA", "A9999999", "A999-9999-9999"),
    "TAX_ID_DE": one_of(german_tax_id, filled("999/999/99999"), filled("DE999999999")),
    "TAX_ID_FR": either("99 99 999 999 999", "9999999999999", "FR 99 999999999", "FR99999999999"),
    "TAX_ID_ES": one_of(filled("B-99999999"), filled("A99999999"), spanish_dni),
    "TAX_ID_IT": one_of(fiscal_code, by_luhn(11), lambda rng: "IT" + by_luhn(11)(rng)),
    "TAX_ID_NL": either("NL999999999B99", "999999999", "NL 999999999 B99", "BE 0999.999.999"),
    "TAX_ID_PL": polish_nip,
    "TAX_ID_PT": portuguese_nif,
    "TAX_ID_EN": either("GB 999 9999 99", "GB999999999", "99999 99999"),
    "COMPANY_ID_DE": either("HRB 99999", "99999 B", "FN 999999a", "999999"),
    "COMPANY_ID_FR": one_of(by_luhn(3, 3, 3), by_luhn(9), by_luhn(3, 3, 3, 5)),
    "COMPANY_ID_ES": either("M-999999", "B 99999", "999999"),
    "COMPANY_ID_IT": either("MI-9999999", "TO 999999", "RM - 9999999"),
    "COMPANY_ID_NL": either("99999999", "9999.999.999", "99 99 99 99"),
    "COMPANY_ID_PL": either("0000999999", "999999999", "99999999999999"),
    "COMPANY_ID_PT": one_of(filled("599 999 999"), filled("599999999")),
    "COMPANY_ID_EN": either("09999999", "SC999999", "NI999999"),
    "COMPANY_ID_DE_HRB": either("HRB 999999", "HRB 9999", "HRB 99999 B"),
    "COMPANY_ID_DE_NUM": either("99999", "999999"),
    "TAX_ID_DE_VAT": filled("DE999999999"),
    "TAX_ID_LV": filled("LV99999999999"),
    "COMPANY_ID_FR_SIRET": by_luhn(3, 3, 3, 5),
    "COMPANY_ID_NL_KVK": filled("99999999"),
    "COMPANY_ID_PL_REGON": filled("999999999"),
    "TAX_ID_FR_VAT": either("FR 99 999999999", "FR99999999999"),
    "TAX_ID_FR_NUM": either("99 99 999 999 999", "9999999999999"),
    "TAX_ID_IT_IVA": by_luhn(11),
    "TAX_ID_IT_CF": fiscal_code,
    "TAX_ID_NL_BTW": filled("NL999999999B99"),
    "TAX_ID_EN_VAT": either("GB 999 9999 99", "GB999999999"),
    # the other languages of the European Union
    **{f"PHONE_{code}": phone_of(region) for code, region in _REGIONS.items()},
    "PERSON": person,
    "PERSON_FIRST": drawn_from(GIVEN),
    "PERSON_LAST": drawn_from(SURNAMES),
    "PERSON_SWAPPED": lambda rng: f"{rng.choice(SURNAMES)}, {rng.choice(GIVEN)}",
    **{f"ADDRESS_{code}": address_in(code) for code in STREETS},
    "ADDRESS_STREET_EN": lambda rng: (
        f"{rng.randint(1, 199)} {rng.choice(('Orchard Road', 'Maple Avenue', 'Mill Lane'))}"
    ),
    "ADDRESS_STREET_DE": lambda rng: f"{rng.choice(('Lindenstraße', 'Goethestr.', 'Marktplatz'))} {rng.randint(1, 99)}",
    "ADDRESS_ZIP": filled("99999"),
    "DATE_OF_BIRTH": birth,
    "BANK_ACCOUNT": either("99999999", "9999999999"),
    "CARD_CODE": filled("999"),
    "PIN": filled("9999"),
    "MEDICAL_ID": either("99999999", "A999999999"),
    "PASSWORD": drawn_from(("Sommer2024!", "x9$kPq2z", "Tr0ub4dor&3", "pa55-W0rt_7", "hunter2!A")),
    "SECRET": secret,
    "USERNAME": drawn_from(("ada_k77", "jdoe42", "m.koch3", "peter-s9")),
    "GPS": lambda rng: f"{rng.uniform(36, 60):.6f}, {rng.uniform(-9, 25):.6f}",
    "VIN": filled("WVWZZZ1KZ9W999999"),
    "LICENSE_PLATE_DE": either("B-AB 9999", "KÖ-K 999", "M XY 99"),
    "LICENSE_PLATE_EN": either("AB99 ABC", "LK19 XYZ"),
    "LICENSE_PLATE_ES": filled("9999 BCD"),
    "LICENSE_PLATE_IT": either("AB 999 CD", "FG999HJ"),
    "NATIONAL_ID_FR_NIR": french_nir,
    "PASSPORT_XX": either("AA999999", "99999999", "A9999999", "999999999"),
    "NATIONAL_ID_SV": either("900111-9999", "19850312-9999"),
    "NATIONAL_ID_DA": either("010190-9999", "0101909999"),
    "NATIONAL_ID_FI": either("131052-999A", "010190A999B"),
    "NATIONAL_ID_CS": filled("999999999"),
    "NATIONAL_ID_CS_BIRTH": either("855112/9999", "8551129999"),
    "NATIONAL_ID_SK": filled("AA999999"),
    "NATIONAL_ID_HU": either("999999AA", "999999 AA"),
    "NATIONAL_ID_RO": filled("1900101999999"),
    "NATIONAL_ID_EL": either("AB 999999", "AN-999999"),
    "NATIONAL_ID_BG": filled("9001019999"),
    "NATIONAL_ID_BG_CARD": filled("999999999"),
    "NATIONAL_ID_HR": filled("999999999"),
    "NATIONAL_ID_SL": filled("0101990509999"),
    "NATIONAL_ID_ET": filled("39001019999"),
    "NATIONAL_ID_LV": either("010190-99999", "329999-99999"),
    "NATIONAL_ID_LT": filled("39001019999"),
    "DRIVER_LICENSE_SV": either("900101-9999", "199001019999"),
    "DRIVER_LICENSE_DA": filled("99999999"),
    "DRIVER_LICENSE_FI": filled("131052-999A"),
    "DRIVER_LICENSE_CS": either("AA 999999", "AA999999"),
    "DRIVER_LICENSE_HU": filled("AA999999"),
    "DRIVER_LICENSE_RO": filled("A99999999A"),
    "DRIVER_LICENSE_EL": filled("999999999"),
    "DRIVER_LICENSE_BG": filled("999999999"),
    "DRIVER_LICENSE_HR": filled("99999999"),
    "TAX_ID_SV": filled("SE999999999901"),
    "TAX_ID_DA": filled("DK99999999"),
    "TAX_ID_FI": filled("FI99999999"),
    "TAX_ID_CS": either("CZ99999999", "CZ9999999999"),
    "TAX_ID_SK": filled("SK9999999999"),
    "TAX_ID_HU": filled("99999999-9-99"),
    "TAX_ID_RO": either("RO99999999", "99999999"),
    "TAX_ID_EL": filled("999999999"),
    "TAX_ID_BG": filled("BG999999999"),
    "TAX_ID_HR": filled("99999999999"),
    "TAX_ID_SL": either("SI99999999", "99999999"),
    "TAX_ID_ET": filled("EE999999999"),
    "TAX_ID_LT": filled("LT999999999"),
    "COMPANY_ID_SV": filled("556999-9999"),
    "COMPANY_ID_DA": either("99999999", "99 99 99 99"),
    "COMPANY_ID_FI": filled("9999999-9"),
    "COMPANY_ID_CS": either("99999999", "999 99 999"),
    "COMPANY_ID_HU": filled("01-09-999999"),
    "COMPANY_ID_RO": filled("J40/9999/2019"),
    "COMPANY_ID_EL": filled("999999999999"),
    "COMPANY_ID_BG": filled("999999999"),
    "COMPANY_ID_ET": filled("99999999"),
    "COMPANY_ID_LV": filled("40999999999"),
    "COMPANY_ID_LT": filled("309999999"),
}
DECOYS = {
    "ORDER": either("99999999", "9999-9999", "AB-999999", "#9999999999", "1ZX999X99999999999", "99999999999"),
    "VERSION": either("9.9.9", "9.99.9", "v9.9.9-rc9", "9.9.9.9", "2024.9.9", "1.9.99+99"),
    "TIME": lambda rng: rng.choice(
        (
            "{y}-{m:02d}-{d:02d}T{h:02d}:{n:02d}:07Z",
            "{d:02d}.{m:02d}.{y} {h:02d}:{n:02d}",
            "{y}{m:02d}{d:02d}{h:02d}{n:02d}07",
        )
    ).format(
        y=rng.randint(2015, 2026),
        m=rng.randint(1, 12),
        d=rng.randint(1, 28),
        h=rng.randint(0, 23),
        n=rng.randint(0, 59),
    ),
    "EPOCH": lambda rng: str(rng.randint(1_500_000_000, 1_800_000_000) * rng.choice((1, 1000))),
    "PLACE": lambda rng: f"{rng.uniform(36, 60):.6f}, {rng.uniform(-9, 25):.6f}",
    "MONEY_BARE": lambda rng: f"{rng.uniform(3, 9_999):.2f}",
    "PRODUCT": drawn_from(("Water Bottle", "Garden Hose", "Blue Whale", "Coffee Maker", "Snow Shovel", "Galaxy Tab")),
    "PRODUCT_WORD": drawn_from(("Bottle", "Shovel", "Tablet")),
    "FIRM": drawn_from(("Brown Ltd", "Nordwind GmbH", "Contoso", "Acme Corp", "Blue Ridge Motors")),
    "MEASURE": lambda rng: f"{rng.uniform(1, 900):.1f} {rng.choice(('mm', 'kg', 'V', 'MB', 'km/h', '°C'))}",
    "ISBN": filled("978-3-16-148410-9"),
    "HOST": drawn_from(("web-03.internal", "db1.corp.example", "build-7", "cache.eu-west.local")),
    "FILE": drawn_from(("report_2024-05-01.pdf", "src/main.rs", "Annual Report.docx", "data/users.csv")),
    "HASH": lambda rng: "".join(rng.choices("0123456789abcdef", k=rng.choice((7, 12, 32, 40)))),
    "MONEY": lambda rng: rng.choice(("{:,.2f}", "{:.2f}", "{:,.0f}")).format(rng.uniform(3, 99_999)),
    "COUNT": lambda rng: str(rng.randint(100, 9_999_999)),
    "UUID": lambda rng: "-".join("".join(rng.choices("0123456789abcdef", k=size)) for size in (8, 4, 4, 4, 12)),
}
_SLOT = re.compile(r"\{([A-Z_]+)\}")


def label_of(name):
    return next((label for label in LABELS if name.startswith(f"{label}_")), name)


def text_of(template, rng):
    """Return a marked text of a template."""
    text, end, spans = "", 0, []
    for slot in _SLOT.finditer(template):
        text += template[end : slot.start()]
        end, name = slot.end(), slot[1]
        value = (DECOYS.get(name) or VALUES[name])(rng)
        if name not in DECOYS:
            spans.append(Span(len(text), len(text) + len(value), label_of(name)))
        text += value
    return Example(text + template[end:], tuple(spans))


def texts_of(templates):
    return [text_of(template, random.Random(f"{template}{seed}")) for template in templates for seed in SEEDS]


def scored(examples, rules=STANDARD):
    """Return scores by the label that is marked; a finding counts for the value that it touches, else for its own."""
    scores = {}
    for example in examples:
        found = rules.find(example.text)
        for gold in example.spans:
            own = [one for one in found if one.start < gold.end and one.end > gold.start]
            places = {place for one in own for place in range(one.start, one.end)}
            open_ = any(example.text[at].isalnum() and at not in places for at in range(gold.start, gold.end))
            scores[gold.label] = scores.get(gold.label, Score()) + Score(1, int(not open_), len(own), len(own))
        for one in found:
            if not any(one.start < gold.end and one.end > gold.start for gold in example.spans):
                scores[one.label] = scores.get(one.label, Score()) + Score(predicted=1)
    return scores


def missed(examples, rules=STANDARD):
    """Walk what is not covered or not marked, with what stands around it."""
    for example in examples:
        found = rules.find(example.text)
        for gold in example.spans:
            if not any(one.start <= gold.start and one.end >= gold.end for one in found):
                yield (
                    f"- {gold.label}",
                    example.text[max(0, gold.start - 40) : gold.end + 15],
                    example.text[gold.start : gold.end],
                )
        for one in found:
            if not any(one.start < gold.end and one.end > gold.start for gold in example.spans):
                yield (
                    f"+ {one.label}",
                    example.text[max(0, one.start - 40) : one.end + 15],
                    example.text[one.start : one.end],
                )


def main(names):
    for name in names:
        examples = texts_of(SETS[name])
        scores = scored(examples, RULES.get(name, STANDARD))
        print(f"{name}: {len(SETS[name])} templates, {len(examples)} texts")
        print(f"{'type':16} {'marked':>6} {'recall':>6} {'prec.':>6} {'F2':>6}")
        for label, score in [*sorted(scores.items()), ("all", sum(scores.values(), Score()))]:
            print(f"{label:16} {score.gold:6} {score.recall:6.3f} {score.precision:6.3f} {score.f(2):6.3f}")


if __name__ == "__main__":
    show = "--missed" in sys.argv
    wanted = [name for name in sys.argv[1:] if name in SETS] or [*SETS]
    main(wanted)
    if show:
        for name in wanted:
            for line in missed(texts_of(SETS[name]), RULES.get(name, STANDARD)):
                print(*map(repr, line))
