"""Numbers of documents and labeled phones are found in the languages of the European Union, and orders are not."""

import pytest

from ctxguard.pii import STANDARD, mask_pii

LABELED = [
    ("Ausweis: {}", "L9Z67W8E1"),
    ("| Ausweisnummer | {} |", "T524572270"),
    ("<dt>Numéro de passeport</dt><dd>{}</dd>", "81 CS 54296"),
    ("mon passeport porte le numéro {}", "20WX43844"),
    ("carta d'identità n. {}", "CP 00661 AO"),
    ("numero REA della ditta: {}", "RM - 2799250"),
    ("RCS de Lyon sous le numéro {}", "732 829 320"),
    ("Handelsregister Köln unter {}", "HRB 57830"),
    ("KRS pod numerem {}", "0000123456"),
    ("Führerschein-Nr.;{};", "B847GME8I16"),
    ("o cartão de cidadão é o {}", "12345678 9 ZZ4"),
    ("VAT registration number: {}", "GB 127 3034 72"),
    ('{{"steuer_id": "{}"}}', "37612945833"),
    ("Steueridentifikationsnummer lautet: {}", "37 612 945 833"),
    ("btw-nummer {}", "NL123456782B01"),
    ("carte_identite={}", "04RTBPF48"),
    ("momsregistreringsnummer {}", "SE556703748501"),
    ("Henkilötunnukseni on {}", "131052-308T"),
    ("Körkortsnummer: {}", "850312-9805"),
    ("číslo mého občanského průkazu je {}", "200012345"),
    ("IČO: {}", "27074358"),
    ("adószámunk {}", "12892312-2-41"),
    ("nr. reg. com. {}", "J40/8302/1997"),
    ("Αριθμός διαβατηρίου μου είναι {}", "AK0012345"),
    ("Α.Φ.Μ.: {}", "094259216"),
    ("лична карта № {}", "640012345"),
    ("broj osobne iskaznice: {}", "112233445"),
    ("paso nr. {}", "LB1234567"),
    ("reģ. nr. {}", "40003032949"),
    ("številka potnega lista {}", "PB1234567"),
    ("DNI nº {}", "37.985.736-V"),
    ("NASS: {}", "73 64507235 06"),
    ("médico NºCol: {}", "28 28 54112"),
    ("Versichertennummer {}", "A123456780"),
    ("MRN: {}", "00123456"),
    ("my account number is {}", "000123456789"),
    ("Kontonummer: {}", "1234567890"),
    ("driver's license CA {}", "D1234567"),
    ('{{"cvv": "{}"}}', "123"),
    ("ΑΔΤ: {}", "ΑΚ-420037"),
    ("Reisepass {}", "CYCCVJV70"),
    ("nr konta {}", "32541451939132933785208100"),
    ("Kontonr.: {}", "9355 8472075196"),
    ('<input id="tax_number" type="text" value="{}"/>', "2232940947"),
    ('{{"nrDowodu": "{}"}}', "YHF747840"),
    ('{{"kvkNummer": "{}"}}', "51312648"),
    ("BSB 082-902 Acc {}", "436341607"),
    ("Sozialversicherungsnummer {}", "3950 080482"),
    ("TC kimlik numaram {}", "24561794222"),
    ("ЄДРПОУ: {}", "39235165"),
    ("OIB stranke: {}", "99311422851"),
    ("Pas: {}", "YQ4693135"),
    ("AHV {}", "7566803758263"),
    # a word for a number counts before a name and behind it
    ("č. účtu {}", "129127552/0800"),
    ("account # {}", "5261889704"),
    ("nº de cuenta: {}", "5261889704"),
    ("broj računa {}", "5261889704"),
    ("Bank acct – {}", "5261889704"),
    ("Driver's Lic. No.: {}", "Y103-8683-5221"),
    ("**License #:** {}", "M6194524"),
    ("DL {}", "X6359122"),
    ("řidičák {}", "EZ 876278"),
    ("- Passport → {}", "965293013"),
    ("carte d'identité aussi ({})", "459775672321"),
    ('[{{"key": "drivers_license", "val": "{}"}}]', "F453563904998"),
    ("My PPS is {}", "1287142J"),
    ("Fødselsnr. {}", "17129804238"),
    ("osobna: {}", "122170637"),
    ("patient no. {}", "4711238"),
    ('{{"vatNumber": "{}"}}', "89710 64595"),
    ("Bot: your passport number?\nUser: {}", "191035127"),
    ("registered in England & Wales under number {}", "06027162"),
    ("mitt pass har nummer {}", "AA4440401"),
]
WRITTEN = [
    "756.9217.0769.85",
    "64.12.25-602.76",
    "930202/0827",
    "050458-785R",
    "CHE-566.633.919",
    "ATU04569396",
    "U86401MH2009PTC173678",
    "KA07 20108876697",
    "1EG4-TE5-MK73",
    "ABBOT852255SR9AB",
]


@pytest.mark.parametrize(("frame", "value"), LABELED)
def test_a_document_is_found_behind_its_name(frame, value):
    text = frame.format(value)
    assert [text[span.start : span.end] for span in STANDARD.find(text)] == [value]


@pytest.mark.parametrize("value", WRITTEN)
def test_a_number_with_a_form_and_check_digits_needs_no_word(value):
    text = f"see {value}, thanks"
    assert [text[span.start : span.end] for span in STANDARD.find(text)] == [value]
    assert STANDARD.find(text) == STANDARD.scan(text)


@pytest.mark.parametrize(
    "word",
    [
        "narozen",
        "data nașterii",
        "Дата на раждане:",
        "ημ. γέννησης",
        "dzimšanas datums",
        "doğum tarihi",
        "született:",
        "dob",
    ],
)
@pytest.mark.parametrize("date", ["06. 08. 1969", "06.08.1969", "1969-08-06"])
def test_a_date_of_birth_is_found_in_many_languages(word, date):
    assert mask_pii(f"{word} {date}, x") == f"{word} [REDACTED_DATE_OF_BIRTH], x"


@pytest.mark.parametrize(
    "text",
    [
        "alt (201).423-9716",
        "004915075633899",
        "ruf mich mal an 015136049944",
        "zadzwon na 512865936",
        "Tel./Fax: 810 38 55 37 / 817-86-87-60",
        "tel. 810423950 / 810613812",
        '{"numerTelefonu": "510 173 037"}',
        "changed to phone (mobile 085.076.1503)",
        "HR can be reached at 2024536830",
        "work (201) 492-5013, ext. 191",
        "o meu número é o 916.001.207",
        "meine neue Nummer ist 312-4455-12",
        "T: 512 429 262 M: 512 429 263",
        "PER*IC*BILLING*TE*2095787535*",
        "call me: 2 0 1, 5 9 9, 2 8 9 6",
        "my number is 201, 754, 2699",
    ],
)
def test_the_whole_of_a_phone_number_is_found(text):
    assert not any(char.isdigit() for char in mask_pii(text))


@pytest.mark.parametrize("text", ["Büro 030.127246 (Handy)", "telemóvel: 912 340 303", "erreichen unter 021.234 81 02"])
def test_a_phone_is_found_by_a_label_or_a_verb_of_calling(text):
    assert "[REDACTED_PHONE]" in mask_pii(text)


@pytest.mark.parametrize(
    ("table", "masked"),
    [
        ("passport;order\nC01X00T47;96135542\n", "passport;order\n[REDACTED_PASSPORT];96135542\n"),
        (
            "| Order | Phone |\n|---|---|\n| 2015553334 | 2015553334 |\n",
            "| Order | Phone |\n|---|---|\n| 2015553334 | [REDACTED_PHONE] |\n",
        ),
        (" id | ssn\n----+-----\n  1 | 219099999\n", " id | ssn\n----+-----\n  1 | [REDACTED_SSN]\n"),
        ("key,value\nphone,2015553334\nzip,20155\n", "key,value\nphone,[REDACTED_PHONE]\nzip,20155\n"),
        ('name,phone\n"Doe, J",2015553334\n', 'name,phone\n"Doe, J",[REDACTED_PHONE]\n'),
        ("order,phone\n2015553334,\n2015553335,\n", "order,phone\n2015553334,\n2015553335,\n"),
        ("total,vat\n99999.10,12345.67\n", "total,vat\n99999.10,12345.67\n"),
        (
            "Order No      SSN           Owner\n219099999     219099998     A B\n219099997   536228741   C\n",
            "Order No      SSN           Owner\n219099999     [REDACTED_SSN]     A B\n219099997   [REDACTED_SSN]   C\n",
        ),
        (
            "Order No    SSN\n--------    ---\n219099999   219099998\n\n219099999   219099998\n",
            "Order No    SSN\n--------    ---\n219099999   [REDACTED_SSN]\n\n219099999   219099998\n",
        ),
        ("two words  and two more\nthe order  219099999\n", "two words  and two more\nthe order  219099999\n"),
    ],
)
def test_the_heading_of_a_column_is_the_word_before_its_cells(table, masked):
    assert mask_pii(table) == masked
    assert STANDARD.find(table) == STANDARD.scan(table)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("<phone>(022).17515</phone><ref>28968963</ref>", "<phone>[REDACTED_PHONE]</phone><ref>28968963</ref>"),
        ("phone: 030 127246\nweight 28968963", "phone: [REDACTED_PHONE]\nweight 28968963"),
        ("phone: [REDACTED_PHONE], 28968963", "phone: [REDACTED_PHONE], 28968963"),
        (
            "If you need help, call me at\n2015553334, any time",
            "If you need help, call me at\n[REDACTED_PHONE], any time",
        ),
    ],
)
def test_a_word_holds_for_the_value_behind_it_alone(text, masked):
    assert mask_pii(text) == masked == mask_pii(masked)


@pytest.mark.parametrize(
    "text",
    [
        "VAT: 96135542.67 EUR",
        "TVA 96135542,00",
        "permission 96135542",
        "security code 12, order 96135542",
        "the patient is number 3 of 96135542",
        "Rückruf an die Zentrale (Handy). Vertragsnummer 9613-5542.",
        "020 7123 4567 (mobile), order 9613-5542",
        "VAT included: 1,234.50. Order 9613-5542",
        "The tax for order 96135542 is 12.50",
        "Der Führerschein wird am 12.05.2024 abgeholt, Rechnung 96135542",
        "Your passport expires 2026-05-12, flight 96135542",
        "etag 3cc4 1746815157000",
        "the number of patients: 96135542",
        "flight DL 96135542",
        "triglycerides 150 mg/dl 96135542",
        "Copyright of nss-mdns:\n  © 2004-2007, order 96135542",
        "number of accounts 96135542",
        "phones sold: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, order 96135542",
        "mv0fnr,96135542,287.84",
        "only reached on 3.10.0-3.10.12, build 96135542",
        "foo==9.8.0-rc9; sha256 96135542",
    ],
)
def test_numbers_of_orders_stay(text):
    masked = mask_pii(text)
    assert any(number in masked for number in ("9613-5542", "96135542", "1746815157000"))
