"""Vehicles are found by the check digit of their number, or by the word before it; plates by the word alone."""

import pytest

from ctxguard.pii import STANDARD

FOUND = [
    ("VIN", "drives a {} since May", "1HGCM82633A004352"),
    ("VIN", "Fahrgestellnummer: {}", "WVWZZZ1JZ3W386752"),
    ("VIN", '{{"vin": "{}"}}', "WVWZZZ1JZ3W386752"),
    ("LICENSE_PLATE", "Kennzeichen: {}, rot", "B-MW 1234"),
    ("LICENSE_PLATE", "license plate {}.", "7ABC123"),
    ("LICENSE_PLATE", "number plate {}", "AB12 CDE"),
    ("LICENSE_PLATE", "plaque d'immatriculation {}", "AB-123-CD"),
    ("LICENSE_PLATE", "matrícula {}", "1234 BCD"),
    ("LICENSE_PLATE", "kenteken {}", "12-ABC-3"),
    ("LICENSE_PLATE", "nr rej. {}", "WA 12345"),
    ("LICENSE_PLATE", "license_plate,owner\n{},x\n", "AB12CDE"),
    ("LICENSE_PLATE", "Reg.nr {}", "AAN 720"),
    ("LICENSE_PLATE", "VIN as noted, plate {}.", "QEE-4566"),
    ("LICENSE_PLATE", "номерний знак {}", "АА1234ВВ"),
]


@pytest.mark.parametrize(("label", "frame", "value"), FOUND)
def test_a_vehicle_is_found(label, frame, value):
    text = frame.format(value)
    assert [(span.label, text[span.start : span.end]) for span in STANDARD.find(text)] == [(label, value)]
    assert STANDARD.find(text) == STANDARD.scan(text)


@pytest.mark.parametrize(
    "text",
    [
        "part 1HGCM82643A004352",
        "part WVWZZZ1JZ3W386752",
        "license plate reader 2024",
        "plate number: 12345",
        "B-MW 1234",
        "MATRICULA 2024 ABIERTA",
        "targa: png, bmp",
    ],
)
def test_what_only_looks_like_a_vehicle_stays(text):
    assert STANDARD.find(text) == ()
