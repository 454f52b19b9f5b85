"""Whether a value looks like a secret: random, not a name, a path, a version or a placeholder."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from typing import Final

from meritory.text.language import words

COMMON_PASSWORDS: Final = words("password postgres pass pwd user admin root guest secret test")
PLACEHOLDER: Final = re.compile(
    r"^[$%<{\[*(#]|^\W*$|[<>{}]|\.\.\.|\u2026|^(.)\1*$|x{4}|\*{3}|0{8}|12345|abcdef|example|sample"
    r"|passw[o0]rd|placeholder|dummy|redacted|changeme|change[_-]?me|your|insert|replace|todo|\benv\b|environ"
    r"|^(?:my|the|some|test|fake|null|none|true|false|undefined|string|value)(?:[_-]|$)",
    re.IGNORECASE,
)
# The shape is enough evidence; only an obvious dummy is excluded.
_DUMMY: Final = re.compile(
    r"(.)\1{7}|x{6}|example|placeholder|your[_-]|0123456789|abcdefghij", re.IGNORECASE
)
_NOT_A_PASSWORD: Final = re.compile(
    r"\d+[a-z]{0,5}$|https?:|v(?:er|ersion)?[-_]?\d+(?:[._-]\w+)*$|[a-z0-9]+(?:[.-]\d+)+$"
    r"|(?:sha|md|aes|utf|base|bcrypt|argon|pbkdf|oauth|step|wpa|rfc|windows|python|postgres|ios"
    r"|android|rsa|ed|x)[-_]?\d[\w.-]{0,5}$",
    re.IGNORECASE,
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_DOTTED_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_]*(?:[.:/_-]+[A-Za-z_]+)*[.:]?")
# A path, a file, a member of an object, or a constant.
_NAME_WITH_DIGITS: Final = re.compile(
    r"[~.]{0,2}[/\\]|[A-Za-z]:\\|[A-Za-z][\w-]*[/\\][\w./\\-]*$|\$|.*\.[a-z]{1,5}\d?$"
    r"|[A-Za-z_][a-z_]+\d{0,2}(?:\.[A-Za-z_]+\d{0,2})+$|[A-Z]+\d?(?:[_-][A-Z]*\d*)+$|\S+@\S+\.\w+$"
)
_WORD_WITH_NUMBER: Final = re.compile(r"[A-Za-z]{4,}\d{2,}")
_CLASSES: Final = tuple(map(re.compile, (r"[a-z]", r"[A-Z]", r"\d", r"[^A-Za-z0-9]")))
_BASE32: Final = re.compile(r"[A-Z2-7]{16,128}")


def is_named_secret(value: str, name: str, *, is_said: bool) -> bool:
    """Return whether a value after a name and a link ("password = ...") is a secret."""
    if len(value) < 6 or PLACEHOLDER.search(value) or "(" in value or "[" in value:
        return False
    is_password = _is_password(name)
    if _is_otp_seed(value, name):
        return True
    if _DOTTED_NAME.fullmatch(value) or not re.search(r"\d", value):
        # Without a digit, only a password with a symbol inside is recognisable.
        has_symbol = re.search(r"[A-Za-z][!@#$%^&*+=?]+[A-Za-z]", value)
        return is_password and len(value) >= 8 and has_symbol is not None
    if _UUID.fullmatch(value):
        return not is_said and not name.endswith("id")
    if is_password:
        return (
            _class_count(value) >= 2
            and not _NOT_A_PASSWORD.match(value)
            and not _NAME_WITH_DIGITS.match(value)
        )
    if _class_count(value) < 2 or entropy_bits(value) < 3.0 or _is_path(value):
        return False
    if is_said and _class_count(value) < 3:
        return len(value) >= 20
    return len(value) >= 12


def is_adjacent_secret(value: str, name: str) -> bool:
    """Return whether a value beside a name without a link ("password ...") is a secret."""
    if PLACEHOLDER.search(value) or _NAME_WITH_DIGITS.match(value) or re.search(r"^-|[(\[]", value):
        return False
    if _is_otp_seed(value, name):
        return True
    if not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    if not _is_password(name):
        is_long = len(value) >= 20 and "." not in value and not _UUID.fullmatch(value)
        return is_long and looks_random(value) and entropy_bits(value) >= 3.0
    if len(value) < 6 or _NOT_A_PASSWORD.match(value):
        return False
    return _WORD_WITH_NUMBER.fullmatch(value) is not None or _class_count(value) >= 3


def _is_otp_seed(value: str, name: str) -> bool:
    is_of_otp = re.search(r"otp|2fa|mfa|authenticator", name) is not None
    return is_of_otp and _BASE32.fullmatch(value) is not None


def is_command_secret(value: str) -> bool:
    """Return whether the value of a command's password option is a real one."""
    if PLACEHOLDER.search(value) or value.lower() in COMMON_PASSWORDS:
        return False
    return re.search(r"[A-Za-z]", value) is not None and not value.startswith(("-", "env:", "/"))


def is_dense_key(value: str) -> bool:
    """Return whether a long run near a word such as "key" is a key, not a path or a slug."""
    if _HEX.fullmatch(value) or _UUID.fullmatch(value) or PLACEHOLDER.search(value):
        return False
    longest_word = max((len(run) for run in re.findall(r"[a-z]{3,}", value)), default=0)
    is_mixed = all(pattern.search(value) for pattern in _CLASSES[:3])
    return is_mixed and longest_word <= 6 and entropy_bits(value) >= 4.0


def is_dummy(value: str) -> bool:
    """Return whether a value with the shape of a secret only shows that shape."""
    return _DUMMY.search(value) is not None


def looks_random(value: str) -> bool:
    """Return whether a token with a known shape is not made of words."""
    if is_dummy(value):
        return False
    if not re.search(r"\d", value):
        # A token of letters alone changes its case all the time.
        switches = sum(a.islower() != b.islower() for a, b in pairwise(value))
        return switches * 4 >= len(value)
    longest_word = max((len(run) for run in re.findall(r"[a-z]{4,}", value)), default=0)
    has_many_digits = 6 * sum(map(str.isdigit, value)) >= len(value)
    return (longest_word <= 12 or has_many_digits) and entropy_bits(value) >= 2.5


def entropy_bits(value: str) -> float:
    """Return the bits per character of a value, by the counts of its characters."""
    total = len(value)
    shares = [count / total for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def is_card_number(value: str) -> bool:
    """Return whether digits are a payment card's number and not a known test number."""
    digits = [int(sign) for sign in value if sign.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 3


def is_iban(value: str) -> bool:
    """Return whether the check digits of a bank account's number are valid."""
    compact = value.replace(" ", "")
    if not 15 <= len(compact) <= 34:
        return False
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


def _is_password(name: str) -> bool:
    return not re.search(r"secret|token|(?<!wifi )(?<!wlan )key|cred|zugangsd|seed", name)


def _is_path(value: str) -> bool:
    return re.match(r"/|[a-z_-]{3,}/|[a-z_]+\d?(?:\.[a-z_]+\d?)+$", value) is not None


def _class_count(value: str) -> int:
    return sum(1 for pattern in _CLASSES if pattern.search(value))
