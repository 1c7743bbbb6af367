"""Vehicles: identification numbers (ISO 3779), and the plates that a text calls so."""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.documents import named
from ctxguard.pii.rules.rule import shipped

_START: Final = r"(?<![A-Za-z0-9_-])"
_END: Final = r"(?![0-9A-Za-z_-])"
# Neither I nor O nor Q, which look like digits.
_CODE: Final = "A-HJ-NPR-Z0-9"
_PLATE: Final = "A-Z0-9ÄÖÜŠŽČĐΑ-ΩА-ЯІ"
_NUMBERS: Final = (
    "vin|vehicle identification|chassis|frame number|frame no|fin|fahrgestellnr|fahrgestell|fahrzeugident"
    "|fahrzeug ident"
    "|châssis|numéro d'identification du véhicule|bastidor|telaio|quadro|nadwozia|podvozku|karoserie|alvázszám|șasiu"
    "|šasije|stelnummer|chassinummer|understellsnummer|valmistenumero|şasi|шаси|πλαισίου|шасі|номер кузова"
)
_PLATES: Final = (
    "license plate|licence plate|number plate|plate number|plate no|plate nr|registration plate|vehicle registration"
    "|car registration|car reg|vehicle reg|vrm|vrn|kennzeichen|nummernschild|kontrollschild|numéro d'immatriculation"
    "|plaque d'immatriculation|immatriculation|placa|matrícula|targa|kenteken|nummerplaat|numer* rejestracyjn"
    "|nr rejestracyjn|nr rej|tablic* rejestracyjn|rendszám|spz|evidenčné číslo|număr* de înmatriculare|înmatriculare"
    "|registarsk* oznak|registrsk* številk|registrsk* tablic|registreringsnummer|registreringsskylt|regnummer"
    "|nummerplade|plate|license tag|reg mark|registration mark|vehicle tag|poznávac* značk"
    "|registračn* značk|ečv|špz|rz|reg no|reg. no|reg number|registration number|rego|plaque|targato"
    "|reg nr|reg. nr|regnr"
    "|reg. nummer|registrsk* oznak|reg. oznak|рег. номер|αρ. κυκλοφορίας|immat|immatriculé|targata"
    "|nr. auto|matrícula del coche|matrícula do carro|targa del veicolo"
    "|rekisterinumer|rekisteritunnus|numurzīme|valstybin* numer|plaka no|plakası|plaka|номерний знак|держномер"
    "|регистрационен номер|πινακίδ|αριθμ* κυκλοφορίας|numberplate|registreerimismär"
)

VEHICLE_RULES: Final = (
    shipped(
        "vin",
        "VIN",
        rf"{_START}[{_CODE}]{{8}}[0-9X][A-HJ-NPR-TV-Y1-9][A-HJ-NPR-Z]\d{{6}}{_END}",
        validate="ctxguard.pii.detect.validate:vehicle",
        score=0.8,
    ),
    shipped(
        "vin-labeled",
        "VIN",
        rf"{_START}(?=[A-Z]{{0,12}}\d)(?=\d{{0,12}}[A-Z])[{_CODE}]{{13}}\d{{4}}{_END}",
        context=named(_NUMBERS),
        score=0.8,
    ),
    shipped(
        "license-plate",
        "LICENSE_PLATE",
        rf"{_START}(?=[\d ·-]{{0,8}}[^\W\d_])(?=[^\W\d_ ·-]{{0,5}}[ ·-]?[^\W\d_]{{0,3}}[ ·-]?\d)"
        rf"(?=(?P<value>[{_PLATE}]{{1,8}}(?:[ ·-][{_PLATE}]{{1,5}}){{0,3}}){_END})[{_PLATE}]",
        validate="ctxguard.pii.detect.validate:plate",
        context=named(_PLATES),
        score=0.6,
    ),
)
"""Numbers of vehicles."""
