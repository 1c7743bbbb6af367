"""Judge candidates: check digits by python-stdnum, phone numbers by phonenumbers, addresses by `ipaddress`."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import dropwhile, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from phonenumbers import PhoneNumber

_NOT_DIGITS: Final = bytes(set(range(128)) - set(b"0123456789"))
_ISSUER: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})\Z"  # Visa
    r"|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}\Z"  # Mastercard
    r"|3[47]\d{13}\Z"  # American Express
    r"|3(?:0[0-59]|[689]\d)\d{11}(?:\d{2})?\Z"  # Diners Club
    r"|(?:6011|65\d{2}|64[4-9]\d|62\d{2})\d{12,15}\Z"  # Discover, UnionPay
    r"|(?:352[89]|35[3-8]\d)\d{12,15}\Z|(?:2131|1800)\d{11}\Z"  # JCB
    r"|220[0-4]\d{12,15}\Z"  # Mir
)
# Maestro and RuPay: one long number in ten has such a prefix, so it counts only in groups, or after a word.
_DEBIT_ISSUER: Final = re.compile(r"(?:50\d\d|5[6-9]\d\d|6\d{3})\d{8,15}\Z")
_DATE: Final = re.compile(
    r"(?:(?:19|20)\d\d([-/. ]|\. )(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])(?!\1?\d)"
    r"|(?:0?[1-9]|[12]\d|3[01])([-/. ]|\. )(?:0?[1-9]|[12]\d|3[01])\2(?:(?:19|20)\d\d|\d\d)(?!\2?\d))"
)
_COMPACT_DATE: Final = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\Z")
# No decimal begins with a 0 and another digit: `030.127246` is a phone number.
_DECIMAL: Final = re.compile(r"(?!0\d)-?\d+\.\d+(?: -?\d+\.\d+)*\Z")
# The beginning of a change-log entry: a version and its day.
_BEFORE_DATE: Final = re.compile(r"[\d .]+ \(?(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?\Z")
_PAIRS: Final = re.compile(r"\d\d(?: \d\d){5,}\Z")  # bytes of a dump: no number is written in six pairs
_YEARS: Final = re.compile(r"(?:19|20)\d\d(?:[ /-]+(?:19|20)?\d\d){1,3}\Z")
_SEPARATORS: Final = frozenset(" .-/")
TOP_LEVEL: Final = (
    "com|org|net|edu|gov|mil|int|info|biz|name|pro|io|co|me|tv|ai|app|dev|cloud|online|shop|site|example"
    "|invalid|eu|uk|de|fr|es|nl|us|ca|au|jp|cn|br|ru|pl|se|ch|at|be|dk|fi|cz|ie|nz|kr|mx|it|pt|no|gr|hu|ro"
    "|bg|hr|si|sk|ee|lv|lt|lu|mt|cy|tr|ua|za|ar|cl|sg|hk|tw|th|ph|vn|il|ae|sa"
)
"""Domains that end a host for sure; after any other one, what follows may be the code of a program."""
_TOP_LEVEL: Final = frozenset(TOP_LEVEL.split("|"))
_FILE_ENDINGS: Final = frozenset(
    {"png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "pdf", "js", "ts", "jsx", "tsx", "mjs", "css", "scss", "html"}
    | {"py", "pyi", "rb", "go", "rs", "java", "kt", "json", "yaml", "yml", "toml", "xml", "md", "txt", "csv", "log"}
    | {"sh", "bat", "exe", "dll", "so", "zip", "gz", "tar", "bz2", "whl", "lock", "setter", "getter", "deleter", "po"}
    | {"service", "socket", "timer", "mount", "automount", "swap", "slice", "scope", "device", "target"}  # systemd
    | {"cpp", "hpp", "php", "cs", "sql", "ini", "cfg", "conf", "patch", "diff", "heic", "mp3", "mp4", "xlsx", "docx"}
)
# A US social security number or a postal code of nine digits.
_OTHER_SHAPE: Final = re.compile(r"\d{3}[ .-]\d{2}[ .-]\d{4}\Z|\d{5}-\d{4}\Z")
# Shorter numbers with a leading 0 are part numbers as often as phone numbers; they need a word nearby.
_NATIONAL_DIGITS: Final = 9
_MOST_DIGITS: Final = 15  # of a phone number (E.164)
_NANP_PREFIXES: Final = frozenset({"", "1", "01", "001"})
# Taproot addresses (version 1) by length and letters alone: python-stdnum knows Bech32 but not Bech32m (BIP 350).
_TAPROOT: Final = re.compile(r"bc1p[02-9ac-hj-np-z]{58}\Z")
_REMOTE_USERS: Final = frozenset({"git", "hg", "svn"})


def _digits(value: str) -> str:
    """Return the ASCII digits of a normalized text."""
    return value.encode("ascii", "ignore").translate(None, _NOT_DIGITS).decode()


def stdnum(value: str, module: str) -> bool:
    """Return whether a module of python-stdnum accepts a value that is more than one repeated digit."""
    from importlib import import_module

    try:
        is_valid = import_module(f"stdnum.{module}").is_valid
        return len(set(value) - _SEPARATORS) > 1 and is_valid(value.replace(" ", "")) and not _counts_up(value)
    except KeyError:  # python-stdnum knows some places of birth only by province, and raises for their counties
        return True


def card(value: str) -> bool:
    """Return whether a card number has an issuer's prefix and length, and passes Luhn's check (ISO/IEC 7812).

    Of 14 digits, only Diners Club's count: other issuers of that length are rare, while dates with times are common.
    """
    digits = _digits(value)
    # dates with times have 14 digits and pass the check as often as random digits
    if len(digits) == 14 and digits[0] != "3":
        return False
    issued = _ISSUER.match(digits) or (_DEBIT_ISSUER.match(digits) if digits != value else None)
    return issued is not None and len(set(digits)) > 1 and stdnum(digits, "luhn") and not _counts_up(value)


def _counts_up(value: str) -> bool:
    """Return whether groups are a table row rather than one number: each is slightly larger than the one before."""
    groups = re.split("[ -]", value)
    # two consecutive groups are a range, three a table
    if len(groups) < 3 or not value.replace(" ", "").replace("-", "").isdigit() or len(set(map(len, groups))) > 1:
        return False
    return all(0 < int(after) - int(before) < 10 ** (len(groups[0]) - 2) for before, after in pairwise(groups))


def card_on_two_lines(value: str) -> bool:
    """Return whether digits with a line break are a card number, without Maestro and RuPay: rows begin like these."""
    return card(_digits(value))


def iban_length(value: str) -> int:
    """Return how many leading characters are an IBAN (ISO 13616, mod 97), 0 if none."""
    from stdnum import iban

    # words of four letters may follow that look like further groups of the number
    for end in range(len(value), 14, -1):
        whole = end == len(value) or not value[end].isalnum()
        if whole and value[end - 1].isalnum() and iban.is_valid(value[:end], check_country=False):
            return end
    return 0


def luhn(value: str) -> bool:
    """Return whether digits that follow a word like `card` pass Luhn's check, whatever their issuer."""
    return stdnum(_digits(value), "luhn")


def us_ssn(value: str) -> bool:
    """Return whether area, group and serial of a US social security number can have been issued (SSA rules)."""
    return stdnum(_digits(value), "us.ssn")


def date(value: str) -> int:
    """Return how many leading characters are a calendar date; a time after it counts only if it is midnight."""
    day, hour, _ = value.partition(" 00:")
    if value.endswith(":") and not hour:
        return 0
    return len(day) if _DATE.match(day) is not None or _COMPACT_DATE.match(day) is not None else 0


def is_address(value: str) -> bool:
    """Return whether dotted numbers are an IPv4 address of a host or network, other than a local one or a bare mask.

    Four single digits are far more often the number of a version or a section than an address.
    """
    address = _address(value)
    return address is not None and ("/" in value or not (_is_own(address) or len(value) == len("6.3.1.2")))


def small_address(value: str) -> bool:
    """Return whether four single digits are an address, given that a word or a port suggests one."""
    address = _address(value)
    return address is not None and not _is_own(address)


def is_local_address(value: str) -> bool:
    """Return whether dotted numbers are any IPv4 address."""
    return _address(value) is not None


def address_length(value: str, kind: str = "remote") -> int:
    """Return how many leading characters are an IPv6 address, with zone and prefix length; 0 if none or a local one."""
    for end in range(len(value), 1, -1):
        address = _address(value[:end])
        if address is not None and _ends_there(value, end):
            return end if kind == "any" or "/" in value[:end] or _is_telling(value[:end], address) else 0
    return 0


def _ends_there(value: str, end: int) -> bool:
    behind = value[end:]
    return behind in ("", ":") or behind[0] in "/%" or (behind[0] == "." and not behind[1:2].isdigit())


def _is_telling(value: str, address: bytes) -> bool:
    """Return whether it is a remote address, not a local one or a name with `::` in code, such as `ab::cd`."""
    groups = [group for group in value.partition("%")[0].split(":") if group]
    long_or_many = len(groups) > 3 or any(len(group) > 2 for group in groups)
    return len(groups) > 1 and long_or_many and any(char.isdigit() for char in value) and not _is_own(address)


def _address(value: str) -> bytes | None:
    """Return the bytes of a network address, without its prefix length; None if it is not one."""
    host, _, prefix = value.partition("/")
    numbers = host.split(".")
    if len(numbers) == 4 and host.replace(".", "").isdigit():
        # most numbers in logs; `ipaddress` takes ten times as long
        is_valid = all(number == str(int(number)) and int(number) < 256 for number in numbers if number)
        address = bytes(map(int, numbers)) if is_valid and all(numbers) else None
    else:
        try:
            address = ipaddress.ip_address(host).packed
        except ValueError:
            return None
    return None if address is None or (prefix and int(prefix) > 8 * len(address)) else address


def _is_own(address: bytes) -> bool:
    """Return whether an address is no remote host: loopback, unspecified, `0.x`, or a mask (`255.255.255.0`)."""
    if len(address) == 4:
        return address[0] in (0, 127) or address[:2] == b"\xff\xff"
    return int.from_bytes(address, "big") < 2


def mac(value: str) -> bool:
    """Return whether a hardware address may be a device's: not all zeros, not broadcast, with one kind of separator.

    With dots, it must contain a letter: one address in three hundred has none, but every version number.
    """
    digits = re.sub(r"[^0-9A-Fa-f]", "", value).lower()
    separators = set(re.sub(r"[0-9A-Fa-f]", "", value))
    return len(separators) == 1 and len(set(digits)) > 1 and not ("." in separators and digits.isdigit())


def email(value: str) -> bool:
    """Return whether it is an e-mail address, not a remote (`git@host`), package (`pkg@1.2`) or file (`logo@2x.png`).

    A file may be named after an address (`ann@corp.com.pdf`, `ann@corp.com-2024.tar.gz`).
    """
    local, _, host = value.lower().partition("@")
    labels = host.split(".")
    if labels[-1] in _FILE_ENDINGS and not _are_named_after_host(labels):
        return False
    return local not in _REMOTE_USERS and ".." not in local and local[:1] != "." != local[-1:]


def _are_named_after_host(labels: list[str]) -> bool:
    """Return whether a file name begins with a host: `corp.com.pdf`."""
    host = [*dropwhile(_FILE_ENDINGS.__contains__, reversed(labels))]
    return len(host) > 1 and re.split("[_-]", host[0])[0] in _TOP_LEVEL and not re.fullmatch(r"\dx", labels[0])


# Digit groups as in cards, social security numbers and phone numbers.
_GROUPS: Final = ([4, 4, 4, 4], [3, 2, 4], [3, 3, 4], [1, 3, 3, 4])


def dictated(value: str, kind: str) -> bool:
    """Return whether spoken digits, in the usual groups or one by one, are a number of the given kind."""
    groups = [len(group) for group in re.findall(r"\d+", value)]
    judge, sizes = {"card": (card, (15, 16)), "us_ssn": (us_ssn, (9,)), "nanp_phone": (nanp_phone, (10, 11))}[kind]
    return sum(groups) in sizes and (groups in _GROUPS or set(groups) == {1}) and judge(_digits(value))


def nanp_phone(value: str) -> bool:
    """Return whether area and exchange fit the North American plan, or a typical invented one (555, 123-456-7890).

    In the plan, neither begins with 0 or 1.
    """
    digits = _digits(value)
    prefix, digits = digits[:-10], digits[-10:]
    fits = digits[0] > "1" and (digits[3] > "1" or digits[:3] == "555") and len(set(digits)) > 2
    return prefix in _NANP_PREFIXES and (fits or digits == "1234567890")


def loose_phone(value: str) -> bool:
    """Return whether a number after a word like `phone` may be one: 6 to 15 digits, not a date, decimals or a range.

    With more digits it may be several numbers with a slash between them.
    """
    count = len(_digits(value))
    sizes = [count] if count <= _MOST_DIGITS else [len(_digits(number)) for number in value.split("/")]
    return all(6 <= size <= _MOST_DIGITS for size in sizes) and not _is_no_number(value)


def _is_no_number(value: str) -> bool:
    value = re.sub(" ?([/-]) ?", r"\1", value)
    return any(form.match(value) for form in (_DATE, _DECIMAL, _YEARS, _BEFORE_DATE)) or _is_range(value)


def _is_range(value: str) -> bool:
    """Return whether it is a range such as lines `1025-1027`: equally long, the second slightly larger."""
    first, _, last = value.partition("-")
    if len(first) != len(last) or not (first + last).isdigit():
        return False
    return 0 < int(last) - int(first) < int(10 ** (len(first) - 1))


def international_phone(value: str, wanted: str = "valid") -> int:
    """Return how many characters are a phone number that begins with `+` and a country code, 0 if none.

    Args:
        value: the candidate, from its `+` on.
        wanted: `valid` accepts a number in use, or one in groups of a possible length; `possible` checks the length
            alone.
    """
    ends = _group_ends(value)
    written = {end: value[:end].replace("(0)", "") for end in ends}
    possible = [end for end in ends if _has_possible_length(written[end])]
    likely = [end for end in possible if wanted == "possible" or not value[1:end].isdigit()]
    if len(possible) == len(likely) < 2:
        return max(likely, default=0)
    # what follows a number in use may be the next number
    return next((end for end in possible if _is_valid_in(written[end], [None])), max(likely, default=0))


def dialed_phone(value: str) -> bool:
    """Return whether digits with the international prefix `00` are a number in use."""
    return value[:2] == "00" != value[2:4] and _is_valid_in("+" + value[2:], [None])


def _has_possible_length(written: str) -> bool:
    """Return whether a number with its country code is of a length in its plan."""
    import phonenumbers

    digits = _digits(written)
    # a quick first check, without a 0 behind the code: parsing a number in full takes ten times as long
    for size in (1, 2, 3) if digits[:1] != "0" else ():
        code = int(digits[:size] or 0)
        if code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE:
            rest = digits[size:]
            number = phonenumbers.PhoneNumber(country_code=code, national_number=int(rest or 0))
            if rest[:1] not in ("", "0") and phonenumbers.is_possible_number(number):
                return True
            break
    parsed = _parsed(written, None)
    return parsed is not None and phonenumbers.is_possible_number(parsed)


def national_phone(value: str, regions: str) -> int:
    """Return how many leading characters are a phone number as written in one of the regions (`GB,DE`), 0 if none."""
    if value.lstrip("(")[:1] != "0" or len(_digits(value)) < _NATIONAL_DIGITS:
        return 0
    if _OTHER_SHAPE.match(value) is not None or _PAIRS.match(value) is not None or _is_no_number(value):
        return 0
    ends = (end for end in _group_ends(value) if _NATIONAL_DIGITS <= len(_digits(value[:end])) <= _MOST_DIGITS)
    return next((end for end in ends if _is_valid_in(value[:end], regions.split(","))), 0)


def plain_phone(value: str, regions: str) -> bool:
    """Return whether digits without separators are a phone number: with country code, or in one of the regions."""
    return _is_valid_in("+" + value, [None]) or _is_valid_in(value, [*regions.split(","), "US", "CN", "ES", "BR"])


def phone_of(value: str, region: str) -> bool:
    """Return whether a number, as written in one region, is a phone number there."""
    return _is_valid_in(value, [region])


def _is_valid_in(value: str, regions: Iterable[str | None]) -> bool:
    import phonenumbers

    numbers = (_parsed(value, region) for region in regions)
    return any(number is not None and phonenumbers.is_valid_number(number) for number in numbers)


def _group_ends(value: str) -> list[int]:
    """Return the ends of the digit groups, the last first: the last groups may belong to another number.

    More digits than one number has are certainly several, and the first of these ends as soon as it is one.
    """
    ends = [match.end() for match in re.finditer(r"\d+\)?", value)]
    return ends if len(_digits(value)) > _MOST_DIGITS else ends[::-1]


def _parsed(value: str, region: str | None) -> PhoneNumber | None:
    """Parse a number from its digits alone: with separators, phonenumbers takes half as long again."""
    import phonenumbers

    try:
        return phonenumbers.parse(value[:1].replace("(", "") + _digits(value[1:]), region)
    except phonenumbers.NumberParseException:
        return None


def crypto(value: str) -> bool:
    """Return whether a Bitcoin address passes its checksum (Base58Check, Bech32, Bech32m)."""
    return _TAPROOT.match(value) is not None or stdnum(value, "bitcoin")


def chinese_id(value: str) -> bool:
    """Return whether a Chinese identity number has a province, a date and its check digit (GB 11643).

    python-stdnum also requires a county that existed at birth, but many people got their number later.
    """
    from stdnum.cn import ric
    from stdnum.exceptions import ValidationError

    try:
        born = ric.get_birth_date(value)
    except ValidationError:
        return False
    return 11 <= int(value[:2]) <= 91 and born.year >= 1900 and bool(ric.calc_check_digit(value) == value[-1].upper())


_INSURANCE_FACTORS: Final = (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)


def german_insurance(value: str) -> bool:
    """Return whether a German pension insurance number passes its check digit (VKVV, section 4)."""
    value = value.replace(" ", "")
    digits = f"{value[:8]}{ord(value[8]) - 64:02d}{value[9:11]}"
    total = sum(sum(divmod(int(digit) * factor, 10)) for digit, factor in zip(digits, _INSURANCE_FACTORS, strict=True))
    return total % 10 == int(value[11]) and 1 <= int(value[4:6]) <= 12


def varied(value: str) -> bool:
    """Return whether the rest of a key with a known prefix is varied, unlike one repeated letter in documentation."""
    return len(set(value[4:])) > 6


def generated(value: str) -> bool:
    """Return whether a key is generated, rather than one repeated letter or a provider's documentation example."""
    return varied(value) and not is_example(value)


def random_enough(value: str) -> bool:
    """Return whether a key looks random: a digit, more than 3 bits of entropy a character, no example."""
    return entropy(value) > 3.0 and any(char.isdigit() for char in value) and not is_example(value)


# A dotted name, a lower-case name, a constant, a variable, a name whose last words are capitalized, a web address, or
# the name of a resource (`arn:`).
_CODE: Final = re.compile(
    r"\.?[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+(?::[A-Za-z_]\w*)?\Z|[a-z_]+\Z|[A-Z]+(?:_[A-Z]+)+\d*\Z|\$[A-Za-z_]"
    r"|(?!\w*\d[a-z]|(?:\w*?\d+[A-Za-z]){2})\w*?(?:[A-Z](?=[a-z]*[aeiouy])[a-z]{2,}){2,}\Z|https?://|arn:"
)


def named_secret(value: str) -> bool:
    """Return whether the value of a name like `token` is a secret rather than an expression of a program."""
    return not is_code(value) and random_enough(value)


def is_code(value: str) -> bool:
    """Return whether a value is an expression of a program, the name of a constant or an address on the web."""
    return _CODE.match(value) is not None


def plate(value: str) -> bool:
    """Return whether the text after a word like `license plate` may be one: letters and digits, four or more."""
    signs = sum(map(str.isalnum, value))
    return 4 <= signs <= 8 + value.count(" ") + value.count("-") and 0 < sum(map(str.isdigit, value)) < signs


_VIN_WEIGHTS: Final = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_VIN_VALUES: Final = dict(
    zip("ABCDEFGHJKLMNPRSTUVWXYZ", (*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)), strict=True)
)


def vehicle(value: str) -> bool:
    """Return whether the check digit of a vehicle identification number is right (49 CFR 565, North America, China)."""
    digits = (int(char) if char.isdigit() else _VIN_VALUES[char] for char in value)
    total = sum(digit * weight for digit, weight in zip(digits, _VIN_WEIGHTS, strict=True))
    return "0123456789X"[total % 11] == value[8] and sum(map(str.isalpha, value)) > 2


_EXAMPLE: Final = re.compile(r"(?i)example|x{6}|0{8}|1234567890|abcdefgh|placeholder|your[-_]|changeme|\.\.\.|dummy")


def is_example(value: str) -> bool:
    """Return whether a key or a password is a documentation example."""
    return _EXAMPLE.search(value) is not None


def entropy(value: str) -> float:
    """Return the entropy of a text in bits a character (Shannon)."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())
