"""One setting: what a value must look like, how text becomes one, how it is shown."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from meritory.domain.errors import SettingsError

Value = str | int | float | bool | None
Form = Literal["switch", "whole number", "number", "choice", "text", "address"]

ENV_PREFIX = "MERITORY_"
AUTO = "auto"
MASK = "********"
_SHOWN_LIMIT_CHARS = 40
_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
# Plain digits of a bounded length: int() and float() take far more than people mean.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known about one setting: its name, form, bounds, default and purpose."""

    name: str
    form: Form
    default: Value
    help: str
    # Bounds of a number, or of the length of a text.
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    auto: bool = False
    secret: bool = False
    multiline: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return variable_of(self.name)

    @property
    def expects(self) -> str:
        """What a value has to look like, in words."""
        if self.form == "choice":
            return "one of " + ", ".join(self.choices)
        if self.form == "switch":
            return "true or false"
        if self.form == "address":
            return "an http:// or https:// address"
        if self.form == "text":
            return f"text of {self.low:g} to {self.high:g} characters"
        return f"a {self.form} from {self.low:g} to {self.high:g}" + (
            ' or "auto"' if self.auto else ""
        )


def variable_of(name: str) -> str:
    """Return the environment variable of a setting's name."""
    return ENV_PREFIX + name.replace(".", "_").upper()


def parse(setting: Setting, text: str) -> object:
    """The value that a text stands for; left as it is when it stands for none."""
    word = text.strip()
    if setting.auto and word.lower() == AUTO:
        return AUTO
    if setting.form == "switch":
        return _SWITCHES.get(word.lower(), text)
    if setting.form == "whole number" and _WHOLE.fullmatch(word):
        return int(word)
    if setting.form == "number" and _DECIMAL.fullmatch(word):
        return float(word)
    return text


def check(setting: Setting, raw: object, place: str) -> Value:
    """The value, once it has the right form and lies within its bounds."""
    if setting.form in ("text", "address"):
        return _checked_text(setting, raw, place)
    if setting.auto and raw == AUTO:
        return None
    if setting.form == "switch" and isinstance(raw, bool):
        return raw
    if setting.form == "choice" and isinstance(raw, str) and raw in setting.choices:
        return raw
    if setting.form in ("number", "whole number"):
        number = _number(setting, raw)
        if number is not None:
            return number
    raise _refusal(setting, place, raw)


def show(setting: Setting, value: Value) -> str:
    """A value as text for people; a secret shows only whether it is set."""
    if setting.secret:
        return MASK if value else ""
    if value is None:
        return AUTO
    return str(value).lower() if isinstance(value, bool) else str(value)


def suggestion(name: str, names: list[str]) -> str:
    """The known name that somebody may have meant, as a hint."""
    # Only ever needed on the way to an error: it need not slow every start.
    import difflib

    # All variables begin alike; what they share says nothing about what was meant.
    bare = {other.removeprefix(ENV_PREFIX): other for other in names}
    meant = name.removeprefix(ENV_PREFIX)
    close = difflib.get_close_matches(meant, bare, n=1, cutoff=0.6)
    if not close:
        # Often the last word is right and the table in front of it missing or wrong.
        last = meant.rpartition(".")[2]
        close = [other for other in bare if other.rpartition(".")[2] == last]
    if not close:
        return "docs/reference/settings.md lists all settings"
    return f"did you mean {bare[close[0]]}?"


def _number(setting: Setting, raw: object) -> float | None:
    # True and False are numbers to Python, but nobody means them so.
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    if setting.form == "whole number" and not isinstance(raw, int):
        return None
    if not setting.low <= raw <= setting.high:
        return None
    return float(raw) if setting.form == "number" else raw


def _checked_text(setting: Setting, raw: object, place: str) -> str:
    if not isinstance(raw, str):
        raise _refusal(setting, place, raw)
    # What is not UTF-8 in the environment arrives as lone surrogates.
    if any(unicodedata.category(char) == "Cs" for char in raw):
        raise SettingsError(f"{place} is not UTF-8")
    allowed = "\n\t" if setting.multiline else ""
    if any(unicodedata.category(char) == "Cc" and char not in allowed for char in raw):
        raise SettingsError(f"{place} holds a control character", hint="write it on one line")
    if not setting.multiline and raw != raw.strip():
        raise SettingsError(f"{place} begins or ends with a space", hint="remove it")
    if not setting.low <= len(raw) <= setting.high:
        raise _refusal(setting, place, raw)
    if setting.form == "address" and raw:
        _check_address(setting, raw, place)
    return raw


def _check_address(setting: Setting, raw: str, place: str) -> None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(raw)
        port_known = parts.port is None or parts.port > 0
    except ValueError as error:
        raise _refusal(setting, place, raw) from error
    if "@" in parts.netloc:
        # Not shown: what stands there is a password.
        owner = setting.name.rpartition(".")[0]
        raise SettingsError(f"{place} holds a login", hint=f"put the key into {owner}.api_key")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_known:
        raise _refusal(setting, place, raw)


def _refusal(setting: Setting, place: str, raw: object) -> SettingsError:
    if setting.secret:
        return SettingsError(f"{place} must be {setting.expects}")
    shown = repr(raw) if isinstance(raw, str | int | float) else type(raw).__name__
    if len(shown) > _SHOWN_LIMIT_CHARS:
        shown = shown[:_SHOWN_LIMIT_CHARS] + "..."
    return SettingsError(f"{place} must be {setting.expects}, not {shown}")
