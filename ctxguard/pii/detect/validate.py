"""Validators: check digits by python-stdnum, phone numbers by phonenumbers, network addresses by `ipaddress`.

A validator takes the string that an expression matched. It returns a bool, or the number of leading characters that are
the finding (0 if none). Strings are normalized, so all digits are ASCII.
"""

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
# Maestro and RuPay. One long number in ten has such a prefix, so these count only in groups or after a context word.
_DEBIT_ISSUER: Final = re.compile(r"(?:50\d\d|5[6-9]\d\d|6\d{3})\d{8,15}\Z")
_DATE: Final = re.compile(
    r"(?:(?:19|20)\d\d([-/. ]|\. )(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])(?!\1?\d)"
    r"|(?:0?[1-9]|[12]\d|3[01])([-/. ]|\. )(?:0?[1-9]|[12]\d|3[01])\2(?:(?:19|20)\d\d|\d\d)(?!\2?\d))"
)
_COMPACT_DATE: Final = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\Z")
# A decimal number never begins with 0 and another digit: `030.127246` is a phone number.
_DECIMAL: Final = re.compile(r"(?!0\d)-?\d+\.\d+(?: -?\d+\.\d+)*\Z")
# The beginning of a change log entry: a version and its date.
_BEFORE_DATE: Final = re.compile(r"[\d .]+ \(?(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?\Z")
_PAIRS: Final = re.compile(r"\d\d(?: \d\d){5,}\Z")  # bytes of a dump: phone numbers are not written in six pairs
_YEARS: Final = re.compile(r"(?:19|20)\d\d(?:[ /-]+(?:19|20)?\d\d){1,3}\Z")
# An IPv4 address, unless all of its groups have two digits, as those of phone numbers may.
_QUAD: Final = re.compile(r"(?!(?:\d\d\.){3}\d\d\Z)(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!\Z)|\Z)){4}\Z")
_SEPARATORS: Final = frozenset(" .-/")
TOP_LEVEL: Final = (
    "com|org|net|edu|gov|mil|int|info|biz|name|pro|io|co|me|tv|ai|app|dev|cloud|online|shop|site|example"
    "|invalid|eu|uk|de|fr|es|nl|us|ca|au|jp|cn|br|ru|pl|se|ch|at|be|dk|fi|cz|ie|nz|kr|mx|it|pt|no|gr|hu|ro"
    "|bg|hr|si|sk|ee|lv|lt|lu|mt|cy|tr|ua|za|ar|cl|sg|hk|tw|th|ph|vn|il|ae|sa"
)
"""Top-level domains after which a host name certainly ends. Words with other endings could be the text of a program."""
_TOP_LEVEL: Final = frozenset(TOP_LEVEL.split("|"))
_FILE_ENDINGS: Final = frozenset(
    {"png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "pdf", "js", "ts", "jsx", "tsx", "mjs", "css", "scss", "html"}
    | {"py", "pyi", "rb", "go", "rs", "java", "kt", "json", "yaml", "yml", "toml", "xml", "md", "txt", "csv", "log"}
    | {"sh", "bat", "exe", "dll", "so", "zip", "gz", "tar", "bz2", "whl", "lock", "setter", "getter", "deleter", "po"}
    | {"service", "socket", "timer", "mount", "automount", "swap", "slice", "scope", "device", "target"}  # systemd
    | {"cpp", "hpp", "php", "cs", "sql", "ini", "cfg", "conf", "patch", "diff", "heic", "mp3", "mp4", "xlsx", "docx"}
    | {"header", "lst", "cmake"}
)
# A US social security number or a postal code of nine digits.
_OTHER_SHAPE: Final = re.compile(r"\d{3}[ .-]\d{2}[ .-]\d{4}\Z|\d{5}-\d{4}\Z")
# Shorter numbers with a leading 0 are often part numbers, so they are phone numbers only with a context word.
_NATIONAL_DIGITS: Final = 9
_MOST_DIGITS: Final = 15  # maximum number of digits in a phone number (E.164)
_NANP_PREFIXES: Final = frozenset({"", "1", "01", "001"})
# Taproot addresses (version 1) by length and letters alone: python-stdnum knows Bech32 but not Bech32m (BIP 350).
_TAPROOT: Final = re.compile(r"bc1p[02-9ac-hj-np-z]{58}\Z")
_REMOTE_USERS: Final = frozenset({"git", "hg", "svn"})


def _digits(value: str) -> str:
    """Return only the digits of a string."""
    return value.encode("ascii", "ignore").translate(None, _NOT_DIGITS).decode()


def stdnum(value: str, module: str) -> bool:
    """Return whether a module of python-stdnum accepts the value.

    Values of one repeated digit, and several numbers of a table row, are not accepted.
    """
    from importlib import import_module

    try:
        is_valid = import_module(f"stdnum.{module}").is_valid
        return len(set(value) - _SEPARATORS) > 1 and is_valid(value.replace(" ", "")) and not _counts_up(value)
    except KeyError:  # python-stdnum lacks the counties of some provinces, and raises this error for valid numbers
        return True


# One digit alone, or a number whose last ten digits are zeros.
_ROUND: Final = re.compile(r"\A(\d)\1*\Z|0{10}\Z")


def card(value: str) -> bool:
    """Return whether the value has a card issuer's prefix and length, and passes the Luhn check (ISO/IEC 7812).

    Of numbers with 14 digits, only those of Diners Club count. Other issuers rarely use this length, but dates with
    times often have it.
    """
    digits = _digits(value)
    # dates with times have 14 digits and pass the check as often as random digits
    if len(digits) == 14 and digits[0] != "3":
        return False
    issued = _ISSUER.match(digits) or (_DEBIT_ISSUER.match(digits) if digits != value else None)
    return issued is not None and not _ROUND.search(digits) and stdnum(digits, "luhn") and not _counts_up(value)


def _counts_up(value: str) -> bool:
    """Return whether groups of digits are separate numbers of a table row, each slightly greater than the previous."""
    groups = re.split("[ -]", value)
    # two ascending groups may be a range; a table row has at least three
    if len(groups) < 3 or not value.replace(" ", "").replace("-", "").isdigit() or len(set(map(len, groups))) > 1:
        return False
    return all(0 < int(after) - int(before) < 10 ** (len(groups[0]) - 2) for before, after in pairwise(groups))


def card_on_two_lines(value: str) -> bool:
    """Return whether digits with a line break between them are a card number.

    Maestro and RuPay are excluded, because the numbers in table rows often begin with their prefixes.
    """
    return card(_digits(value))


def iban_length(value: str) -> int:
    """Return the number of leading characters that are an IBAN (ISO 13616, mod 97); 0 if none."""
    from stdnum import iban

    # the words that follow may look like further groups of the number if they have four letters
    for end in range(len(value), 14, -1):
        whole = end == len(value) or not value[end].isalnum()
        if whole and value[end - 1].isalnum() and iban.is_valid(value[:end], check_country=False):
            return end
    return 0


def luhn(value: str) -> bool:
    """Return whether the digits after a word like `card` pass the Luhn check, whatever their issuer."""
    return stdnum(_digits(value), "luhn")


def canadian_insurance(value: str) -> bool:
    """Return whether a value without context is a Canadian social insurance number, and not a row of three.

    The three numbers of a row are parts of a color, or near each other, as the corners of a face in a mesh.
    """
    parts = [int(part) for part in value.split(" ")] if " " in value else []
    is_row = bool(parts) and (max(parts) <= _BRIGHTEST or max(parts) - min(parts) < _NEAR)
    return not is_row and stdnum(value, "ca.sin")


_BRIGHTEST: Final = 255
_NEAR: Final = 50


def us_ssn(value: str) -> bool:
    """Return whether a US social security number has an area, group, and serial that can be issued (SSA rules)."""
    return stdnum(_digits(value), "us.ssn")


def date(value: str) -> int:
    """Return the number of leading characters that are a calendar date; 0 if none.

    A time after the date is accepted only if it is midnight, and is not counted.
    """
    day, hour, _ = value.partition(" 00:")
    if value.endswith(":") and not hour:
        return 0
    return len(day) if _DATE.match(day) is not None or _COMPACT_DATE.match(day) is not None else 0


def is_address(value: str) -> bool:
    """Return whether a value is an IPv4 address of a host or network, but not a local address or a network mask.

    Small numbers are not accepted without context: they are usually those of a version or a section.
    """
    address = _address(value)
    return address is not None and ("/" in value or not (_is_own(address) or _counts_small(address)))


def _counts_small(address: bytes) -> bool:
    """Return whether two of four numbers have one digit, and none has three, as in versions, clauses, and OIDs.

    Of the addresses on the Internet, one in a thousand is like this. Private ones (`10.0.0.5`) are not taken for it.
    """
    return max(address) < 100 and sum(number < 10 for number in address) > 1 and address[0] != _PRIVATE


_PRIVATE: Final = 10


def small_address(value: str) -> bool:
    """Return whether a value is a nonlocal IPv4 address, given that a word or a port suggests an address.

    Unlike `is_address`, it accepts small numbers.
    """
    address = _address(value)
    return address is not None and not _is_own(address)


def is_local_address(value: str) -> bool:
    """Return whether a value is any network address, including local ones and masks, given that a word suggests one."""
    return _address(value) is not None


def address_length(value: str, kind: str = "remote") -> int:
    """Return the number of leading characters that are an IPv6 address, including its zone and prefix length.

    Args:
        value: The candidate.
        kind: `remote` does not accept local addresses and names in code such as `ab::cd`; `any` accepts every address.

    Returns:
        0 if there is no such address.
    """
    for end in range(len(value), 1, -1):
        address = _address(value[:end])
        if address is not None and _ends_there(value, end):
            return end if kind == "any" or "/" in value[:end] or _is_telling(value[:end], address) else 0
    return 0


def _ends_there(value: str, end: int) -> bool:
    behind = value[end:]
    return behind in ("", ":") or behind[0] in "/%" or (behind[0] == "." and not behind[1:2].isdigit())


_ALL_GROUPS: Final = 8  # of an IPv6 address
_TRANSLATED: Final = "64"  # of `64:ff9b::/96` (RFC 6052)


def _is_telling(value: str, address: bytes) -> bool:
    """Return whether an IPv6 address is remote, and has a digit and enough groups not to be a name such as `ab::cd`."""
    groups = [group for group in value.partition("%")[0].split(":") if group]
    if len(groups) == _ALL_GROUPS and all(len(group) == 2 for group in groups):  # a serial number: `cb:2d:80:99:…`
        return False
    # a name may have two parts, of which one looks like a group: `acc::f16`
    if len(groups) == 2 and not value.startswith("::") and len(groups[0]) < 4 and groups[0] != _TRANSLATED:
        return False
    long_or_many = len(groups) > 3 or any(len(group) > 2 for group in groups)
    return len(groups) > 1 and long_or_many and any(char.isdigit() for char in value) and not _is_own(address)


def _address(value: str) -> bytes | None:
    """Return the bytes of a network address without its prefix length; None if the value is not an address."""
    host, _, prefix = value.partition("/")
    numbers = host.split(".")
    if len(numbers) == 4 and host.replace(".", "").isdigit():
        # a fast path for the most frequent case: `ipaddress` takes ten times as long
        is_valid = all(number == str(int(number)) and int(number) < 256 for number in numbers if number)
        address = bytes(map(int, numbers)) if is_valid and all(numbers) else None
    else:
        try:
            address = ipaddress.ip_address(host).packed
        except ValueError:
            return None
    return None if address is None or (prefix and int(prefix) > 8 * len(address)) else address


def _is_own(address: bytes) -> bool:
    """Return whether an address is not a remote host: loopback, unspecified, `0.x`, or a mask (`255.255.255.0`)."""
    if len(address) == 4:
        return address[0] in (0, 127) or address[:2] == b"\xff\xff"
    return int.from_bytes(address, "big") < 2


def mac(value: str) -> bool:
    """Return whether a hardware address can belong to a device: one kind of separator, and not one repeated digit.

    An address with dots must contain a letter. Only one address in 300 has none, but version numbers never have one.
    """
    digits = re.sub(r"[^0-9A-Fa-f]", "", value).lower()
    separators = set(re.sub(r"[0-9A-Fa-f]", "", value))
    return len(separators) == 1 and len(set(digits)) > 1 and not ("." in separators and digits.isdigit())


def email(value: str) -> bool:
    """Return whether a value is an e-mail address, not a Git remote (`git@host`), a package (`pkg@1.2`), or a file.

    File names such as `logo@2x.png` are not addresses, but a file can be named after an address (`ann@corp.com.pdf`,
    `ann@corp.com-2024.tar.gz`).
    """
    local, _, host = value.lower().partition("@")
    labels = host.split(".")
    if _PACKAGE_VERSION.match(host) or (_ALGORITHM.match(local) and host.replace("\\", "") in _ALGORITHM_OWNERS):
        return False
    if labels[-1] in _FILE_ENDINGS and not _are_named_after_host(labels):
        return False
    return local not in _REMOTE_USERS and ".." not in local and local[:1] != "." != local[-1:]


# `libquadmath@8.5.0-28.el8_10.alma`
_PACKAGE_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[.+_-]")
# Who names an algorithm of SSH adds a host (RFC 4251, section 6): `aes256-gcm@openssh.com`.
_ALGORITHM_OWNERS: Final = frozenset({"openssh.com", "libssh.org", "lysator.liu.se", "ssh.com", "tinyssh.org"})
_ALGORITHM: Final = re.compile(
    r"(?:[a-z0-9-]{0,40}-)?(?:sha\d|aes\d|md5|ripemd|umac|hmac|rsa|dss|ed25519|ecdsa|curve25519|chacha20|poly1305|zlib"
    r"|rijndael|sntrup|mlkem|cert-v\d|strict-)[a-z0-9-]{0,40}\Z"
)


def _are_named_after_host(labels: list[str]) -> bool:
    """Return whether the labels of a file name begin with a host, as in `corp.com.pdf`."""
    host = [*dropwhile(_FILE_ENDINGS.__contains__, reversed(labels))]
    return len(host) > 1 and re.split("[_-]", host[0])[0] in _TOP_LEVEL and not re.fullmatch(r"\dx", labels[0])


# Digit groups as in cards, social security numbers and phone numbers.
_GROUPS: Final = ([4, 4, 4, 4], [3, 2, 4], [3, 3, 4], [1, 3, 3, 4])


def dictated(value: str, kind: str) -> bool:
    """Return whether spoken digits, in the usual groups or one by one, are a valid number of this kind.

    Args:
        value: The digits, with their pauses as separators.
        kind: `card`, `us_ssn`, or `nanp_phone`.
    """
    groups = [len(group) for group in re.findall(r"\d+", value)]
    judge, sizes = {"card": (card, (15, 16)), "us_ssn": (us_ssn, (9,)), "nanp_phone": (nanp_phone, (10, 11))}[kind]
    return sum(groups) in sizes and (groups in _GROUPS or set(groups) == {1}) and judge(_digits(value))


def nanp_phone(value: str) -> bool:
    """Return whether a number fits the North American Numbering Plan, or is a typical invented one (555, 123-456-7890).

    In the plan, neither the area code nor the exchange begins with 0 or 1.
    """
    digits = _digits(value)
    prefix, digits = digits[:-10], digits[-10:]
    fits = digits[0] > "1" and (digits[3] > "1" or digits[:3] == "555") and len(set(digits)) > 2
    return prefix in _NANP_PREFIXES and (fits or digits == "1234567890")


def loose_phone(value: str) -> bool:
    """Return whether a number after a word like `phone` can be a phone number: 6 to 15 digits, not a date or a range.

    More digits can be several numbers separated by slashes.
    """
    count = len(_digits(value))
    sizes = [count] if count <= _MOST_DIGITS else [len(_digits(number)) for number in value.split("/")]
    return all(6 <= size <= _MOST_DIGITS for size in sizes) and not _is_no_number(value)


# `8.2.3013`, `95.0.0 (2016`; no country code is followed by a single digit and a dot.
_VERSION: Final = re.compile(
    r"\d{1,3}\.\d\.\d+(?![\d.-])|(?!\d\d\.\d\d\.\d\d)\d{1,3}\.\d{1,5}\.\d{1,2}(?![\d.-])|\d\d?\.\d\d?\.\d{5}\.\d{1,4}\Z"
)
# A decimal number between other numbers.
_WITH_DECIMAL: Final = re.compile(r"[\d ]*(?<!\d)\d\.\d{2,}(?: |\Z)")
# From zero or one on, as ports; the years of a program (`97-2003`), the months of another (`07/2003`).
_FROM_ZERO: Final = re.compile(r"0-\d{1,5}\Z|1-\d{5}\Z|\d\d-(?:19|20)\d\d\Z|(?:0[1-9]|1[0-2])/(?:19|20)\d\d(?:\D|\Z)")
# The digits of a version, and its date: `0120-2014-10-09`.
_DATED: Final = re.compile(r"\d{2,4}-(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?\Z")
# The same group again and again.
_REPEATED: Final = re.compile(r"(\d+)(?:[ -]\1){2,}\Z")
# Code points in hexadecimal: `0391 0342 0399`. No second part of a phone number in fours begins with 0.
_CODE_POINTS: Final = re.compile(r"0\d{3}(?:[ /]0\d{3})+\Z|00\d\d(?: \d{4})* 00\d\d\Z|00\d\d-\d\d\Z")


_NO_NUMBERS: Final = (
    _VERSION,
    _WITH_DECIMAL,
    _FROM_ZERO,
    _DATED,
    _REPEATED,
    _CODE_POINTS,
    _DATE,
    _DECIMAL,
    _YEARS,
    _BEFORE_DATE,
    _QUAD,
)


def _is_no_number(value: str) -> bool:
    value = re.sub(" ?([/-]) ?", r"\1", value.lstrip("+"))
    return any(form.match(value) for form in _NO_NUMBERS) or _is_range(value)


def _is_range(value: str) -> bool:
    """Return whether a value is a range such as lines `1025-1027`: equal lengths, the second slightly greater."""
    first, _, last = value.partition("/" if "/" in value else "-")
    if len(first) != len(last) or not (first + last).isdigit():
        return False
    return 0 < int(last) - int(first) < int(10 ** (len(first) - 1))


def international_phone(value: str, wanted: str = "valid") -> int:
    """Return the number of leading characters that are a phone number with `+` and a country code; 0 if none.

    Args:
        value: The candidate, beginning with `+`.
        wanted: `valid` accepts a number in use, or one in groups that has a possible length. `possible` accepts any
            number that has a possible length.
    """
    if _is_signed_number(value):
        return 0
    ends = _group_ends(value)
    written = {end: value[:end].replace("(0)", "") for end in ends}
    possible = [end for end in ends if _has_possible_length(written[end])]
    likely = [end for end in possible if wanted == "possible" or not value[1:end].isdigit()]
    if len(possible) == len(likely) < 2:
        return max(likely, default=0)
    # try to find a number in use: the digits after it may belong to the next number
    return next((end for end in possible if _is_valid_in(written[end], [None])), max(likely, default=0))


# A number in decimal digits, whose integer is no country code; latitude and longitude (ISO 6709).
_SIGNED: Final = re.compile(
    r"\+(?P<integer>\d+)\.(?P<fraction>\d+)(?![.\d])|\+(?:\d{4}-[01]\d{4}|\d{6}-[01]\d{6})\Z|\+[01]+\Z"
)
_FEW_DIGITS: Final = 3
_ZERO_FIRST: Final = frozenset({"39", "378"})
"""Country codes before numbers that begin with 0: Italy, San Marino."""


def _is_signed_number(value: str) -> bool:
    """Return whether digits behind a plus are a number such as `+3.14000`, and no phone number (`+1.2125550123`)."""
    import phonenumbers

    number = _SIGNED.match(value)
    if number is None or number["integer"] is None:
        return number is not None
    code = next(
        (
            number["integer"][:size]
            for size in (1, 2, 3)
            if int(number["integer"][:size]) in phonenumbers.COUNTRY_CODE_TO_REGION_CODE
        ),
        "",
    )
    is_zero = number["integer"] == code and number["fraction"][0] == "0" and code not in _ZERO_FIRST
    return not code or is_zero or len(number["fraction"]) < _FEW_DIGITS


def dialed_phone(value: str) -> bool:
    """Return whether digits that begin with the international prefix `00` are a phone number in use."""
    return value[:2] == "00" != value[2:4] and _is_valid_in("+" + value[2:], [None])


def _has_possible_length(written: str) -> bool:
    """Return whether a number with its country code has a length that is possible in that country."""
    import phonenumbers

    digits = _digits(written)
    # a fast path for numbers without a 0 after the country code: parsing takes ten times as long
    for size in (1, 2, 3) if digits[:1] != "0" else ():
        code = int(digits[:size] or 0)
        if code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE:
            rest = digits[size:]
            number = phonenumbers.PhoneNumber(country_code=code, national_number=int(rest or 0))
            if rest[:1] not in ("", "0") and phonenumbers.is_possible_number(number):
                return True
            break
    parsed = _parse(written, None)
    return parsed is not None and phonenumbers.is_possible_number(parsed)


def national_phone(value: str, regions: str) -> int:
    """Return the number of leading characters that are a phone number in the national format of one of the regions.

    Args:
        value: The candidate.
        regions: Country codes (ISO 3166, two letters), separated by commas: `GB,DE`.

    Returns:
        0 if the candidate does not begin with such a number.
    """
    if value.lstrip("(")[:1] != "0" or len(_digits(value)) < _NATIONAL_DIGITS:
        return 0
    if _OTHER_SHAPE.match(value) is not None or _PAIRS.match(value) is not None or _is_no_number(value):
        return 0
    ends = (end for end in _group_ends(value) if _NATIONAL_DIGITS <= len(_digits(value[:end])) <= _MOST_DIGITS)
    return next((end for end in ends if _is_valid_in(value[:end], regions.split(","))), 0)


def plain_phone(value: str, regions: str) -> bool:
    """Return whether digits without separators are a phone number, with its country code or in a national format.

    Args:
        value: The digits.
        regions: Country codes (ISO 3166, two letters), separated by commas, whose national formats are tried in
            addition to those of US, CN, ES, and BR.
    """
    return _is_valid_in("+" + value, [None]) or _is_valid_in(value, [*regions.split(","), "US", "CN", "ES", "BR"])


def phone_of(value: str, region: str) -> bool:
    """Return whether a value is a valid phone number in the national format of a region."""
    return _is_valid_in(value, [region])


def _is_valid_in(value: str, regions: Iterable[str | None]) -> bool:
    import phonenumbers

    numbers = (_parse(value, region) for region in regions)
    return any(number is not None and phonenumbers.is_valid_number(number) for number in numbers)


def dialed_number(value: str) -> tuple[int, int] | None:
    """Return country code and national number of a valid phone number with its country code; None for other values.

    The country code may follow `+`, `00`, or nothing, and a national prefix may follow it: `+44 (0)7911 123456`.
    """
    import phonenumbers

    number = _parse("+" + _digits(value).removeprefix("00"), None)
    if number is None or not phonenumbers.is_valid_number(number):
        return None
    return int(number.country_code or 0), int(number.national_number or 0)


def _group_ends(value: str) -> list[int]:
    """Return the end offsets of the digit groups in the order in which they are tried as the end of a phone number.

    The last group is tried first, and the others follow because the last groups may belong to another number. If there
    are too many digits for one number, there are certainly several, so the first group is tried first.
    """
    ends = [match.end() for match in re.finditer(r"\d+\)?", value)]
    return ends if len(_digits(value)) > _MOST_DIGITS else ends[::-1]


def _parse(value: str, region: str | None) -> PhoneNumber | None:
    """Parse a phone number; None if the value is not a phone number.

    Separators are removed first, because phonenumbers takes 50% longer with them.
    """
    import phonenumbers

    try:
        return phonenumbers.parse(value[:1].replace("(", "") + _digits(value[1:]), region)
    except phonenumbers.NumberParseException:
        return None


def crypto(value: str) -> bool:
    """Return whether a Bitcoin address passes its checksum (Base58Check, Bech32), or looks like a Taproot address."""
    return _TAPROOT.match(value) is not None or stdnum(value, "bitcoin")


def chinese_id(value: str) -> bool:
    """Return whether a Chinese identity number has a valid province, date of birth, and check digit (GB 11643).

    python-stdnum also requires a county that existed at the time of birth, but many people got their number later.
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
    """Return whether a German pension insurance number has a valid check digit and month (VKVV, section 4)."""
    value = value.replace(" ", "")
    digits = f"{value[:8]}{ord(value[8]) - 64:02d}{value[9:11]}"
    total = sum(sum(divmod(int(digit) * factor, 10)) for digit, factor in zip(digits, _INSURANCE_FACTORS, strict=True))
    return total % 10 == int(value[11]) and 1 <= int(value[4:6]) <= 12


def varied(value: str) -> bool:
    """Return whether a key with a known prefix has many different characters, unlike a placeholder in documentation."""
    return len(set(value[4:])) > 6


def generated(value: str) -> bool:
    """Return whether a key was generated, and is not one repeated letter or a provider's documentation example."""
    return varied(value) and not is_example(value)


def random_enough(value: str) -> bool:
    """Return whether a key looks random: a digit, more than 3 bits of entropy per character, and not an example."""
    return entropy(value) > 3.0 and any(char.isdigit() for char in value) and not is_example(value)


# A dotted name, a lower-case name, a constant, a shell variable, a camel-case name, a web address, or an Amazon
# resource name (`arn:`).
_CODE: Final = re.compile(
    r"\.?[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+(?::[A-Za-z_]\w*)?\Z|[a-z_]+\Z|[A-Z]+(?:_[A-Z]+)+\d*\Z|\$[A-Za-z_]"
    r"|(?!\w*\d[a-z]|(?:\w*?\d+[A-Za-z]){2})\w*?(?:[A-Z](?=[a-z]*[aeiouy])[a-z]{2,}){2,}\Z|https?://|arn:"
)


# The name of a setting, a constant, or a class, with numbers at the ends of its words (`s3.session-token`,
# `P11_KIT_URI`, `OAuth2Request`).
_NAME: Final = re.compile(
    r"(?:[a-z]+\d{0,2}[_.-])+(?:token|secret|key|password)s?\Z|[A-Z]+\d{0,2}(?:_[A-Z]{2,}\d{0,2}){2,}\Z"
    r"|[A-Za-z0-9]+(?:Token|Secret|Key|Password)s?\Z|[A-Z]{1,3}[a-z]*\d?(?:[A-Z][a-z]{3,})+\Z"
    r"|[a-z]+(?:\d[a-z]*){0,3}(?:[A-Z][a-z]+){2,}\Z|[a-z]+(?:[A-Z][a-z]{2,})+\$\d\Z"
)


# A word or a number of a slug such as `sun-bcl-sdk-5.0`.
_PART: Final = re.compile(r"(?:[a-z]+|[A-Z][a-z]+(?:[A-Z][a-z]+)?|[A-Z]+)\d{0,2}[a-z]?\Z|v?\d{1,4}[a-z]{0,8}\Z")
_FEWEST_PARTS: Final = 3


def _is_slug(value: str) -> bool:
    """Return whether a value consists of words and numbers, unlike a license key, whose groups are of one length."""
    parts = re.split("[-_./]", value)
    is_long = len(parts) >= _FEWEST_PARTS and len(set(map(len, parts))) > 1
    return is_long and all(_PART.match(part) is not None for part in parts)


def named_secret(value: str) -> bool:
    """Return whether the value of a name like `token` is a secret rather than an expression in a program."""
    return not (is_code(value) or _NAME.match(value) or _is_slug(value)) and random_enough(value)


# Two words among the parts of a name or a path.
_WORDS_IN_KEY: Final = re.compile(
    r"(?:\A|[-_.:+/])[A-Za-z]{3,}[-_.:+/](?:[^\n]{0,200}[-_.:+/])??[A-Za-z]{3,}(?:\Z|[-_.:+/])"
)


def random_key(value: str) -> bool:
    """Return whether the value of a constant whose name ends in `_KEY` is a key: random, and not made of words."""
    return named_secret(value) and _WORDS_IN_KEY.search(value) is None


_SHORTEST_COOKIE: Final = 10


def cookie(value: str) -> bool:
    """Return whether the value of a cookie identifies somebody, rather than being a setting or a time."""
    return len(value) >= _SHORTEST_COOKIE and random_key(value)


def is_code(value: str) -> bool:
    """Return whether a value is an expression in a program, a constant's name, or a web address."""
    return _CODE.match(value) is not None


def plate(value: str) -> bool:
    """Return whether the text after a word like `license plate` can be one: at least four letters and digits."""
    signs = sum(map(str.isalnum, value))
    return 4 <= signs <= 8 + value.count(" ") + value.count("-") and 0 < sum(map(str.isdigit, value)) < signs


_VIN_WEIGHTS: Final = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_VIN_VALUES: Final = dict(
    zip("ABCDEFGHJKLMNPRSTUVWXYZ", (*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)), strict=True)
)


def vehicle(value: str) -> bool:
    """Return whether a vehicle identification number has a valid check digit (49 CFR 565; North America and China)."""
    digits = (int(char) if char.isdigit() else _VIN_VALUES[char] for char in value)
    total = sum(digit * weight for digit, weight in zip(digits, _VIN_WEIGHTS, strict=True))
    return "0123456789X"[total % 11] == value[8] and sum(map(str.isalpha, value)) > 2


_EXAMPLE: Final = re.compile(r"(?i)example|x{6}|0{8}|1234567890|abcdefgh|placeholder|your[-_]|changeme|\.\.\.|dummy")


def is_example(value: str) -> bool:
    """Return whether a key or password is an example from documentation."""
    return _EXAMPLE.search(value) is not None


def entropy(value: str) -> float:
    """Return the Shannon entropy of a string, in bits per character."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())
