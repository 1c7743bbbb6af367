"""Valid values of every kind that the standard rules find by its form, made by a seeded generator."""

from __future__ import annotations

import hashlib
import ipaddress
import string
import unicodedata

import phonenumbers
from stdnum import iban, luhn, verhoeff
from stdnum.be import nn
from stdnum.br import cnpj, cpf
from stdnum.ch import ssn as ahv
from stdnum.cn import ric
from stdnum.de import vat
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.in_ import gstin
from stdnum.iso7064 import mod_97_10
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.no import fodselsnummer

_SIGNS = [chr(code) for code in range(0x20000)]  # the planes beyond hold ideographs, tags, and private use
DASHES = [sign for sign in _SIGNS if unicodedata.category(sign) == "Pd"] + ["\u2212"]
SPACES = [sign for sign in _SIGNS[0x80:] if unicodedata.category(sign) == "Zs"]
BRACKETS = [sign for sign in _SIGNS[0x80:] if unicodedata.category(sign) in ("Ps", "Pe", "Pi", "Pf")]
SIGNS = list(string.punctuation)
WRITTEN_HYPHENS = ["-", "\u2010", "\u2011", "\u2012", "\u2013", "\u2212", "\uff0d"]
"""What people and word processors write for a hyphen within a number."""
WRITTEN_SPACES = [" ", "\u00a0", "\u2007", "\u2009", "\u202f", "\u3000"]
LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS


def text_of(rng, chars, size):
    return "".join(rng.choices(chars, k=size))


def grouped(digits, *sizes):
    """Cut digits into groups."""
    groups, done = [], 0
    for size in sizes:
        groups.append(digits[done : done + size])
        done += size
    assert done == len(digits)
    return groups


def written(rng, groups, *kinds):
    """Join groups by one of the kinds of separators: `hyphen`, `space`, `dot`, `slash`, `wide slash`, `none`."""
    signs = {
        "hyphen": lambda: rng.choice(WRITTEN_HYPHENS),
        "space": lambda: rng.choice(WRITTEN_SPACES),
        "dot": lambda: ".",
        "slash": lambda: "/",
        "wide slash": lambda: " / ",
        "none": lambda: "",
    }
    return signs[rng.choice(kinds)]().join(groups)


def email(rng):
    local = rng.choice(
        [
            text_of(rng, LOWER, 5),
            f"{text_of(rng, LOWER, 4)}.{text_of(rng, LOWER, 5)}",
            f"{text_of(rng, LOWER, 1)}_{text_of(rng, LOWER, 5)}{rng.randint(1, 99)}",
            f"{text_of(rng, LOWER, 3)}-{text_of(rng, UPPER, 1)}{text_of(rng, LOWER, 4)}+news",
        ]
    )
    domain = rng.choice(["com", "org", "net", "de", "fr", "io", "co.uk", "com.br", "eu", "ch", "at", "example", "info"])
    host = rng.choice([text_of(rng, LOWER, 6), f"uni-{text_of(rng, LOWER, 5)}", f"mail.{text_of(rng, LOWER, 5)}"])
    return f"{local}@{host}.{domain}"


def ssn(rng):
    area = rng.choice([one for one in range(1, 772) if one != 666])
    digits = f"{area:03d}{rng.randint(1, 99):02d}{rng.randint(1000, 9999):04d}"
    return written(rng, grouped(digits, 3, 2, 4), "hyphen", "hyphen", "space", "dot")


def card(rng):
    prefix, sizes = rng.choice(
        [
            ("4", (4, 4, 4, 4)),
            ("51", (4, 4, 4, 4)),
            ("2221", (4, 4, 4, 4)),
            ("6011", (4, 4, 4, 4)),
            ("34", (4, 6, 5)),
            ("36", (4, 6, 4)),
        ]
    )
    body = prefix + text_of(rng, DIGITS, sum(sizes) - len(prefix) - 1)
    return written(rng, grouped(body + luhn.calc_check_digit(body), *sizes), "space", "hyphen", "dot", "none")


def account(rng):
    country, size = rng.choice([("DE", 18), ("FR", 23), ("ES", 20), ("AT", 16), ("CH", 17), ("NL", 14), ("GB", 18)])
    letters = text_of(rng, UPPER, {"GB": 4, "NL": 4}.get(country, 0))
    body = letters + text_of(rng, DIGITS, size - len(letters))
    number = f"{country}{mod_97_10.calc_check_digits(body + country)}{body}"
    assert iban.is_valid(number, check_country=False)
    groups = [number[place : place + 4] for place in range(0, len(number), 4)]
    return written(rng, groups, "none", "space", "hyphen")


def phone_international(rng):
    region = rng.choice(["US", "GB", "DE", "FR", "AT", "CH", "NL", "SE", "IN", "AU"])
    number = phonenumbers.example_number_for_type(region, rng.choice([0, 1]))
    shown = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL)
    return written(rng, shown.replace("-", " ").split(" "), "space", "hyphen", "dot", "none")


def phone_american(rng):
    area, exchange, line = f"{rng.randint(201, 989)}", f"{rng.randint(220, 989)}", f"{rng.randint(1000, 9999)}"
    hyphen, space = rng.choice(WRITTEN_HYPHENS), rng.choice(WRITTEN_SPACES)
    return rng.choice(
        [
            f"({area}){space}{exchange}{hyphen}{line}",
            f"({area}){exchange}{hyphen}{line}",
            f"{area}{hyphen}{exchange}{hyphen}{line}",
            f"{area}.{exchange}.{line}",
            f"+1{space}({area}){space}{exchange}{hyphen}{line}",
            f"1{hyphen}{area}{hyphen}{exchange}{hyphen}{line}",
        ]
    )


def phone_national(rng):
    """Make a German, Austrian or Swiss number with its area code."""
    code, rest = rng.choice(
        [
            *[("0221", (2, 2, 2, 2)), ("0171", (2, 2, 2, 1)), ("030", (4, 4)), ("089", (3, 2, 3)), ("0171", (7,))],
            *[("044", (3, 2, 2)), ("01", (3, 2, 2)), ("079", (3, 2, 2)), ("0664", (3, 4)), ("0711", (6,))],
        ]
    )
    digits = rng.choice("23456") + text_of(rng, DIGITS, sum(rest) - 1)
    groups = grouped(digits, *rest)
    sign = rng.choice(["/", " / ", " ", "-", " - ", rng.choice(WRITTEN_HYPHENS), f" {rng.choice(WRITTEN_HYPHENS)} "])
    number = f"{code}{sign}{rng.choice(WRITTEN_SPACES).join(groups)}"
    known = any(phonenumbers.is_valid_number(phonenumbers.parse(code + digits, one)) for one in ("DE", "AT", "CH"))
    return number if known else phone_national(rng)


def ipv4(rng):
    first = rng.choice([one for one in range(11, 223) if one != 127])
    return f"{first}.{rng.randint(10, 250)}.{rng.randint(10, 250)}.{rng.randint(10, 250)}"


def ipv6(rng):
    address = ipaddress.IPv6Address(0x20010DB8 << 96 | rng.getrandbits(64))
    return rng.choice([address.compressed, address.exploded])


def mac(rng):
    pairs = [f"{rng.randint(1, 255):02x}" for _ in range(6)]
    return rng.choice([":".join(pairs), rng.choice(WRITTEN_HYPHENS).join(pairs), ":".join(pairs).upper()])


def bitcoin(rng):
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    payload = b"\x00" + bytes([rng.randint(1, 255), *rng.randbytes(19)])
    number = int.from_bytes(payload + hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4], "big")
    shown = ""
    while number:
        number, rest = divmod(number, 58)
        shown = letters[rest] + shown
    return "1" + shown


def ethereum(rng):
    return "0x" + "1f2e3d" + text_of(rng, DIGITS + "abcdef", 34)


def key(rng):
    return rng.choice(
        [
            lambda: "ghp_" + text_of(rng, ALNUM, 35) + "7",
            lambda: "AKIA" + text_of(rng, UPPER + "234567", 15) + "7",
            lambda: "sk-proj-" + "k3" + text_of(rng, ALNUM + "_-", 45) + "Z",
            lambda: "sk-ant-api03-" + text_of(rng, ALNUM + "_-", 40) + "A1",
            lambda: "AIza" + "S3" + text_of(rng, ALNUM + "_-", 32) + "x",
            lambda: f"xoxb-{text_of(rng, '123456789', 12)}-{text_of(rng, '123456789', 12)}-{text_of(rng, ALNUM, 24)}",
            lambda: "sk_live_" + "5" + text_of(rng, ALNUM, 23),
            lambda: "glpat-" + "x9" + text_of(rng, ALNUM, 18),
            lambda: "npm_" + "1" + text_of(rng, ALNUM, 35),
            lambda: "hf_" + "1a" + text_of(rng, ALNUM, 32),
            lambda: "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx" + text_of(rng, ALNUM, 20) + "." + text_of(rng, ALNUM, 43),
        ]
    )()


def nino(rng):
    groups = ["AB", *[f"{rng.randint(10, 99)}" for _ in range(3)], rng.choice("ABCD")]
    return written(rng, groups, "none", "space")


def health(rng):
    while True:
        digits = "4" + text_of(rng, DIGITS, 9)
        if nhs.is_valid(digits):
            return written(rng, grouped(digits, 3, 3, 4), "space", "hyphen")


def nif(rng):
    body = text_of(rng, "123456789", 8)
    return f"{body}{dni.calc_check_digit(body)}"


def foreigner(rng):
    body = rng.choice("XYZ") + text_of(rng, DIGITS, 7)
    return f"{body}{nie.calc_check_digit(body)}"


def brazilian(rng):
    body = text_of(rng, "123456789", 9)
    digits = body + cpf._calc_check_digits(body)
    return ".".join(grouped(digits[:9], 3, 3, 3)) + rng.choice(WRITTEN_HYPHENS) + digits[9:]


def company(rng):
    body = text_of(rng, "123456789", 8) + "0001"
    digits = body + cnpj.calc_check_digits(body)
    return f"{digits[:2]}.{digits[2:5]}.{digits[5:8]}/0001{rng.choice(WRITTEN_HYPHENS)}{digits[12:]}"


def fiscal_code(rng):
    body = (
        f"{text_of(rng, 'BCDFGLMNPRST', 6)}{rng.randint(50, 99)}{rng.choice('ABCDEHLMPRST')}{rng.randint(10, 28)}H501"
    )
    return body + codicefiscale.calc_check_digit(body)


def permanent_account(rng):
    return f"{text_of(rng, 'BDEKLM', 3)}P{text_of(rng, UPPER, 1)}{rng.randint(1000, 9999)}{text_of(rng, UPPER, 1)}"


def goods_tax(rng):
    body = f"27{permanent_account(rng)}1Z"
    return body + next(char for char in DIGITS + UPPER if gstin.is_valid(body + char))


def aadhaar(rng):
    body = "5" + text_of(rng, DIGITS, 10)
    return written(rng, grouped(body + verhoeff.calc_check_digit(body), 4, 4, 4), "space", "hyphen")


def german_vat(rng):
    while True:
        body = text_of(rng, "123456789", 8)
        for digit in DIGITS:
            if vat.is_valid(body + digit):
                return f"DE{body}{digit}"


def swiss(rng):
    body = "756" + text_of(rng, DIGITS, 9)
    return ".".join(grouped(body + next(d for d in DIGITS if ahv.is_valid(body + d)), 3, 4, 4, 2))


def belgian(rng):
    while True:
        body = f"{rng.randint(50, 99)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}{rng.randint(2, 990):03d}"
        digits = f"{body}{97 - int(body) % 97:02d}"
        if nn.is_valid(digits):
            return f"{digits[:2]}.{digits[2:4]}.{digits[4:6]}{rng.choice(WRITTEN_HYPHENS)}{digits[6:9]}.{digits[9:]}"


def swedish(rng):
    body = f"{rng.randint(50, 99)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}{rng.randint(100, 999)}"
    digits = body + luhn.calc_check_digit(body)
    return f"{digits[:6]}{rng.choice(WRITTEN_HYPHENS)}{digits[6:]}"


def finnish(rng):
    body = f"{rng.randint(1, 28):02d}{rng.randint(1, 12):02d}{rng.randint(50, 99)}"
    serial = f"{rng.randint(2, 899):03d}"
    return f"{body}{rng.choice(WRITTEN_HYPHENS)}{serial}{hetu._calc_checksum(body + serial)}"


def norwegian(rng):
    while True:
        body = f"{rng.randint(1, 28):02d}{rng.randint(1, 12):02d}{rng.randint(50, 99)}{rng.randint(100, 499)}"
        digits = body + fodselsnummer.calc_check_digit1(body)
        digits += fodselsnummer.calc_check_digit2(digits)
        if len(digits) == 11 and fodselsnummer.is_valid(digits):
            return f"{digits[:6]}{rng.choice(WRITTEN_SPACES)}{digits[6:]}"


def french(rng):
    body = f"{rng.choice('12')}{rng.randint(50, 99)}{rng.randint(1, 12):02d}75{rng.randint(100, 999)}{rng.randint(100, 999)}"
    return rng.choice(WRITTEN_SPACES).join(grouped(body + nir.calc_check_digits(body), 1, 2, 2, 2, 3, 3, 2))


def canadian(rng):
    body = rng.choice("12345") + text_of(rng, DIGITS, 7)
    groups = grouped(body + luhn.calc_check_digit(body), 3, 3, 3)
    numbers = [*map(int, groups)]
    # docs/pii.md lists what looks like a color or like the corners of a face
    if max(numbers) <= 255 or max(numbers) - min(numbers) < 50:
        return canadian(rng)
    return written(rng, groups, "space", "hyphen")


def chinese(rng):
    body = f"110105{rng.randint(1950, 2005)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}{rng.randint(100, 999)}"
    return body + ric.calc_check_digit(body + "0")


def korean(rng):
    while True:
        body = f"{rng.randint(50, 99)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}1{rng.randint(0, 8)}{rng.randint(100, 999)}0"
        digits = body + rrn.calc_check_digit(body)
        if rrn.is_valid(digits):
            return f"{digits[:6]}{rng.choice(WRITTEN_HYPHENS)}{digits[6:]}"


def medicare(rng):
    letters = "ACDEFGHJKMNPQRTUVWXY"
    pick = rng.choice
    groups = [
        f"1{pick(letters)}{pick(letters)}{pick(DIGITS)}",
        f"{pick(letters)}{pick(letters)}{pick(DIGITS)}",
        f"{pick(letters)}{pick(letters)}{pick(DIGITS)}{pick(DIGITS)}",
    ]
    return written(rng, groups, "none", "hyphen", "space")


def vehicle(rng):
    weights = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
    values = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", [*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)], strict=True))
    values |= {digit: int(digit) for digit in DIGITS}
    shown = "1HGC" + text_of(rng, "ABCDEFGHJKLMNPRS", 4) + "0" + text_of(rng, "ABCDEFGH", 2) + text_of(rng, DIGITS, 6)
    total = sum(values[char] * weight for char, weight in zip(shown, weights, strict=True))
    return shown[:8] + "0123456789X"[total % 11] + shown[9:]


MAKERS = {
    "e-mail": email,
    "ssn": ssn,
    "card": card,
    "iban": account,
    "phone, international": phone_international,
    "phone, american": phone_american,
    "phone, national": phone_national,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "mac": mac,
    "bitcoin": bitcoin,
    "ethereum": ethereum,
    "key": key,
    "uk nino": nino,
    "uk nhs": health,
    "es nif": nif,
    "es nie": foreigner,
    "br cpf": brazilian,
    "br cnpj": company,
    "it fiscal code": fiscal_code,
    "in pan": permanent_account,
    "in gstin": goods_tax,
    "in aadhaar": aadhaar,
    "de vat": german_vat,
    "ch ahv": swiss,
    "be national": belgian,
    "se personal": swedish,
    "fi personal": finnish,
    "no birth": norwegian,
    "fr nir": french,
    "ca sin": canadian,
    "cn id": chinese,
    "kr rrn": korean,
    "us medicare": medicare,
    "vin": vehicle,
}
