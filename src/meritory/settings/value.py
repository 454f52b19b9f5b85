"""One setting: the form and bounds of its value, how it is parsed and shown."""

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
# Plain digits of a bounded length: int() and float() accept more than people mean.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The name, form, bounds, default and purpose of one setting."""

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
        """The form of a value, in words."""
        span = f"{self.low:g} to {self.high:g}"
        number = f"a {self.form} from {span}" + (' or "auto"' if self.auto else "")
        forms = {
            "choice": "one of " + ", ".join(self.choices),
            "switch": "true or false",
            "address": "an http:// or https:// address",
            "text": f"text of {span} characters",
        }
        return forms.get(self.form, number)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting's name."""
    return ENV_PREFIX + name.replace(".", "_").upper()


def parse(setting: Setting, text: str) -> object:
    """Return the value of a text, or the text itself when it has the wrong form."""
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


def check(setting: Setting, raw: object, source: str) -> Value:
    """Return a value that has the right form and is within its bounds, or raise an error."""
    if setting.form in ("text", "address"):
        return _checked_text(setting, raw, source)
    if setting.auto and raw == AUTO:
        return None
    if setting.form == "switch" and isinstance(raw, bool):
        return raw
    if setting.form == "choice" and isinstance(raw, str) and raw in setting.choices:
        return raw
    # True and False are numbers to Python, but not here.
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        is_within = setting.low <= raw <= setting.high
        if is_within and setting.form == "number":
            return float(raw)
        if is_within and setting.form == "whole number" and isinstance(raw, int):
            return raw
    raise _refusal(setting, source, raw)


def show(setting: Setting, value: Value) -> str:
    """Return a value as text for people; a secret shows only whether it is set."""
    if setting.secret:
        return MASK if value else ""
    if value is None:
        return AUTO
    return str(value).lower() if isinstance(value, bool) else str(value)


def suggestion(name: str, names: list[str]) -> str:
    """Return a hint with the known name that is closest to an unknown one."""
    # Imported here: it is needed only for errors.
    import difflib

    # The common prefix of all variables would make them look alike.
    bare = {other.removeprefix(ENV_PREFIX): other for other in names}
    meant = name.removeprefix(ENV_PREFIX)
    close = difflib.get_close_matches(meant, bare, n=1, cutoff=0.6)
    if not close:
        # Often only the table in front of the last word is missing or wrong.
        last = meant.rpartition(".")[2]
        close = [other for other in bare if other.rpartition(".")[2] == last]
    if not close:
        return "docs/reference/settings.md lists all settings"
    return f"did you mean {bare[close[0]]}?"


def _checked_text(setting: Setting, raw: object, source: str) -> str:
    if not isinstance(raw, str):
        raise _refusal(setting, source, raw)
    # Bytes in the environment that are not UTF-8 arrive as lone surrogates.
    if any(unicodedata.category(char) == "Cs" for char in raw):
        raise SettingsError(f"{source} is not UTF-8")
    allowed = "\n\t" if setting.multiline else ""
    if any(unicodedata.category(char) == "Cc" and char not in allowed for char in raw):
        raise SettingsError(f"{source} holds a control character", hint="write it on one line")
    if not setting.multiline and raw != raw.strip():
        raise SettingsError(f"{source} begins or ends with a space", hint="remove it")
    if not setting.low <= len(raw) <= setting.high:
        raise _refusal(setting, source, raw)
    if setting.form != "address" or not raw:
        return raw
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(raw)
        port_known = parts.port is None or parts.port > 0
    except ValueError as error:
        raise _refusal(setting, source, raw) from error
    if "@" in parts.netloc:
        # The value is not shown: it holds a password.
        owner = setting.name.rpartition(".")[0]
        raise SettingsError(f"{source} holds a login", hint=f"put the key into {owner}.api_key")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_known:
        raise _refusal(setting, source, raw)
    return raw


def _refusal(setting: Setting, source: str, raw: object) -> SettingsError:
    if setting.secret:
        return SettingsError(f"{source} must be {setting.expects}")
    shown = repr(raw) if isinstance(raw, str | int | float) else type(raw).__name__
    if len(shown) > _SHOWN_LIMIT_CHARS:
        shown = shown[:_SHOWN_LIMIT_CHARS] + "..."
    return SettingsError(f"{source} must be {setting.expects}, not {shown}")
