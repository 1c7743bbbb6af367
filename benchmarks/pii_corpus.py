"""Marked texts made on the spot: own templates, own hard negatives, a fresh seed each time it is wanted."""

from __future__ import annotations

import json
import random
import string

import phonenumbers
from stdnum import iban, luhn
from stdnum.iso7064 import mod_97_10

from ctxguard.pii import Span
from ctxguard.pii.evaluation import Example

REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "PL", "BR", "IN", "AU", "JP", "KR", "CN", "SE", "CA")
FIRST = ("Ana", "Bo", "Chidi", "Dora", "Emre", "Femi", "Gita", "Hugo", "Ines", "Jonas", "Kiri", "Lev", "Mina", "Noor")
LAST = ("Abe", "Berg", "Costa", "Dahl", "Eze", "Fox", "Garcia", "Haas", "Ivanov", "Jain", "Kim", "Lopez", "Meyer")
HOSTS = ("mail.test-shop.com", "uni-bonn.de", "acme.co.uk", "correo.es", "posteo.net", "firma.com.br", "x1.io")
BANKS = {"DE": 18, "FR": 23, "GB": 18, "NL": 14, "ES": 20, "IT": 23, "PL": 24, "CH": 17, "SE": 20}


def email(rng):
    name = (
        rng.choice(FIRST)
        + rng.choice(("", ".", "_", "-"))
        + rng.choice(LAST)
        + rng.choice(("", str(rng.randint(1, 99))))
    )
    return rng.choice((name, name.lower())) + rng.choice(("", "", "+news")) + "@" + rng.choice(HOSTS)


def phone(rng):
    region = rng.choice(REGIONS)
    example = phonenumbers.example_number_for_type(region, rng.choice((0, 1)))
    digits = str(example.national_number)
    example.national_number = int(digits[:-4] + f"{rng.randint(0, 9999):04d}")
    style = rng.choice((1, 1, 2)) if phonenumbers.is_valid_number(example) else 1
    return phonenumbers.format_number(example, style)


def card(rng):
    prefix, size = rng.choice((("4", 16), ("51", 16), ("2221", 16), ("34", 15), ("6011", 16), ("3530", 16), ("36", 14)))
    body = prefix + "".join(rng.choices(string.digits, k=size - len(prefix) - 1))
    number = body + luhn.calc_check_digit(body)
    groups = [number[:4], number[4:10], number[10:]] if size < 16 else [number[i : i + 4] for i in range(0, 16, 4)]
    return rng.choice((number, " ".join(groups), "-".join(groups)))


def bank(rng):
    country, size = rng.choice(tuple(BANKS.items()))
    letters = "".join(rng.choices(string.ascii_uppercase, k={"GB": 4, "NL": 4, "IT": 1}.get(country, 0)))
    body = letters + "".join(rng.choices(string.digits, k=size - len(letters)))
    check = mod_97_10.calc_check_digits(body + country)
    return rng.choice((f"{country}{check}{body}", iban.format(f"{country}{check}{body}")))


def ssn(rng):
    area = rng.choice([n for n in range(1, 899) if n != 666])
    return f"{area:03d}-{rng.randint(1, 99):02d}-{rng.randint(1, 9999):04d}"


def address(rng):
    if rng.random() < 0.7:
        return ".".join(str(rng.choice((rng.randint(1, 126), rng.randint(128, 223)))) for _ in range(4))
    return ":".join(["2001", "db8", *(f"{rng.randint(1, 65535):x}" for _ in range(6))])


def mac(rng):
    return rng.choice(":-").join(f"{rng.randint(1, 254):02x}" for _ in range(6))


MAKERS = {"EMAIL": email, "PHONE": phone, "CREDIT_CARD": card, "IBAN": bank, "SSN": ssn, "IP": address, "MAC": mac}
SENTENCES = {
    "EMAIL": (
        "Please forward it to {}.",
        "{} asked for a refund",
        "cc: {}; bcc: none",
        "<{}>",
        "From: {}\nSubject: hi",
    ),
    "PHONE": (
        "You can call me on {} after six.",
        "Tel. {}",
        "mobile: {}",
        "my phone number is {}, thanks",
        "WhatsApp {} pls",
    ),
    "CREDIT_CARD": ("Charge {} please.", "my card is {} exp 09/29", "Card number: {}", "credit card {} was declined"),
    "IBAN": ("Transfer it to {} today.", "IBAN: {}", "account {} at my bank"),
    "SSN": ("SSN {}", "my social security number is {}.", "applicant {} (verified)"),
    "IP": ("login from {} failed", "client_ip={} status=200", "ssh root@{} -p 22", "blocked {}, again"),
    "MAC": ("device {} joined", "hwaddr {}"),
}
NEGATIVES = (
    lambda r: f"order #{r.randint(10**9, 10**10)} is on its way",
    lambda r: json.dumps(
        {"item_id": str(r.randint(10**9, 10**10)), "order_id": f"#W{r.randint(10**6, 10**7)}", "qty": 2}
    ),
    lambda r: f"tracking number {r.randint(10**11, 10**12)}",
    lambda r: f"took {r.random() * 1000:.6f} s, {r.randint(10**6, 10**8)} bytes, exit code {r.randint(1, 255)}",
    lambda r: (
        f"{r.randint(2000, 2026)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}T10:{r.randint(10, 59)}:07.{r.randint(100000, 999999)}Z ok"
    ),
    lambda r: "".join(r.choices("0123456789abcdef", k=40)) + " Merge branch",
    lambda r: f"pip install thing=={r.randint(1, 9)}.{r.randint(0, 30)}.{r.randint(0, 9)}.post{r.randint(1, 9)}",
    lambda r: (
        f"npm i @scope/pkg@{r.randint(1, 20)}.{r.randint(0, 9)}.{r.randint(0, 9)} && git clone git@github.com:a/b.git"
    ),
    lambda r: f"total 1,{r.randint(100, 999)},{r.randint(100, 999)}.50 EUR (was $ {r.randint(1000, 9999)}.00)",
    lambda r: f"lat {r.uniform(-90, 90):.7f}, lon {r.uniform(-180, 180):.7f}",
    lambda r: f"ISBN 978-{r.randint(0, 9)}-{r.randint(10, 99)}-{r.randint(100000, 999999)}-{r.randint(0, 9)}",
    lambda r: f'Traceback: File "/srv/app-{r.randint(1, 9)}/main.py", line {r.randint(100, 9999)}, in run',
    lambda r: f"{r.randint(1, 99)} {r.randint(100, 999)} {r.randint(1000, 9999)} rows x {r.randint(2, 40)} columns",
    lambda r: f"timestamp={r.randint(1_600_000_000_000, 1_800_000_000_000)} seq={r.randint(10**8, 10**9)}",
    lambda r: f"mean 0.{r.randint(1000, 9999)} std 0.{r.randint(1000, 9999)} n={r.randint(10**5, 10**6)}",
    lambda r: f"void Foo::bar(std::size_t n) {{ return {r.randint(10**7, 10**9)}u; }}",
    lambda r: (
        f"flight HAT{r.randint(100, 999)} departs 06:{r.randint(10, 59)}, gate {r.randint(1, 60)}, seat 12A, price ${r.randint(100, 900)}"
    ),
)


def corpus(seed: int, size: int) -> list[Example]:
    """Return marked texts: one to four pieces each, half of them without personal data; some as JSON."""
    rng = random.Random(seed)
    return [_example(rng) for _ in range(size)]


def _example(rng: random.Random) -> Example:
    text, spans = "", []
    as_json = rng.random() < 0.25
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.5:
            text += rng.choice(NEGATIVES)(rng)
        else:
            label = rng.choice(tuple(MAKERS))
            value = MAKERS[label](rng)
            if as_json:
                before, after = '{"' + label.lower() + '": "', '"}'
            else:
                before, _, after = rng.choice(SENTENCES[label]).partition("{}")
            start = len(text) + len(before)
            text += before + value + after
            spans.append(Span(start, start + len(value), label))
        text += rng.choice(("\n", " ", "\n\n", " | "))
    return Example(text, tuple(spans))
