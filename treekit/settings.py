"""Settings: declared once, checked in one place, given by keyword or as ``KEY=VALUE``.

A `Setting` declares name, default, type, choices and bounds.  The same
declaration checks Python values (`resolve`), parses command-line texts
(`parse_assignments`) and generates help (`help_rows`).
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from treekit.contracts import Setting
from treekit.errors import SettingError

__all__ = ["check_declaration", "help_rows", "parse_assignments", "resolve", "suggestion"]

_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
}
_BOOL_TEXTS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def resolve(settings: tuple[Setting, ...], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the given values and return every setting's value, with defaults for the rest.

    Parameters
    ----------
    settings : tuple of Setting
    given : mapping
        Python values by name; an integer is accepted for a float, and NumPy scalars
        become plain values.
    where : str
        Owner of the settings, for messages: ``"criterion 'gini'"``.

    Returns
    -------
    dict
        In the order of `settings`.

    Raises
    ------
    SettingError
        For an unknown name, or a value outside its declaration.
    """
    declared = {setting.name: setting for setting in settings}
    for name in given:
        _find_setting(declared, name, where)
    own = {name: setting.default for name, setting in declared.items()}
    for name, value in given.items():
        if value is not own[name]:  # defaults were checked when they were declared
            own[name] = _check_value(declared[name], value, where)
    return own


def parse_assignments(
    settings: tuple[Setting, ...], assignments: Iterable[str], where: str
) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts and return the typed values of the given settings.

    Choices restrict values of their own type only: ``"sqrt"`` or any fraction is
    choices ``("sqrt",)`` with types ``(str, float)``.  ``none`` is None where a
    setting accepts it; ``true``, ``yes`` and ``on`` are True.  A text is interpreted
    by the declaration alone: ``1`` is a number for an ``int`` setting and text for a
    ``str`` setting.

    Raises
    ------
    SettingError
        For a text without ``=``, an unknown or repeated name, or a value
        outside its declaration.
    """
    declared = {setting.name: setting for setting in settings}
    values: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise SettingError(f"{text!r} is not a setting; write KEY=VALUE")
        setting = _find_setting(declared, name, where)
        if name in values:
            raise SettingError(f"setting {name!r} is given twice; give it once")
        values[name] = _check_value(setting, _parse_value(setting, value.strip()), where)
    return values


def help_rows(settings: tuple[Setting, ...]) -> list[tuple[str, str, str, str]]:
    """Return rows of a help table: name, accepted values, default, meaning."""
    return [
        (setting.name, _describe_values(setting), _format_value(setting.default), setting.help)
        for setting in settings
    ]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'gini'?"`` if one of `known` is close to `name`, else ``""``."""
    by_case = {other.casefold(): other for other in known}  # "CART" matches "cart" exactly
    close = difflib.get_close_matches(name.casefold(), list(by_case), n=1)
    # difflib finds "sk" and "ks" too different.
    close = close or [other for other in by_case if sorted(other) == sorted(name.casefold())]
    return f"; did you mean {by_case[close[0]]!r}?" if close else ""


def check_integer(name: str, value: object, least: int) -> int:
    """Return an argument as `int`; raise `SettingError` unless it is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise SettingError(f"{name} is {value!r}; give an integer of at least {least}")
    return int(value)


def check_declaration(setting: Setting) -> None:
    """Raise `SettingError` unless `setting` is well-formed and its default is valid."""
    name: object = setting.name
    if not isinstance(name, str) or not name.isidentifier():
        raise SettingError(f"setting name {name!r} is not a Python identifier")
    if unknown := [t for t in _list_types(setting) if t not in _TYPE_NAMES]:
        raise SettingError(
            f"setting {name!r} has type {unknown[0]!r}; use bool, int, float or str, and give the "
            "type if the default is None"
        )
    if not setting.help:
        raise SettingError(f"setting {name!r} has no help text")
    for bound in ("minimum", "maximum", "above"):
        end: object = getattr(setting, bound)
        plain = isinstance(end, Real) and not isinstance(end, bool)
        if end is not None and not (plain and end == end):
            raise SettingError(
                f"{bound} of setting {name!r} is {end!r}; it must be a number or None"
            )
    _check_value(setting, setting.default, "its own declaration")


def _list_declared_types(setting: Setting) -> tuple[type, ...]:
    if setting.type is None:
        return (type(setting.default),)
    return setting.type if isinstance(setting.type, tuple) else (setting.type,)


def _accepts_none(setting: Setting) -> bool:
    return setting.default is None or type(None) in _list_declared_types(setting)


def _list_types(setting: Setting) -> tuple[type, ...]:
    """Return the accepted types other than None, in the order in which a text is tried."""
    return _order_types(_list_declared_types(setting))


@functools.cache
def _order_types(declared: tuple[type, ...]) -> tuple[type, ...]:
    order = list(_TYPE_NAMES)
    types = [t for t in declared if t is not type(None)] or declared
    return tuple(sorted(types, key=lambda t: order.index(t) if t in order else -1))


_MAX_LISTED = 12
"""Number of settings that a message lists."""


def _find_setting(declared: Mapping[str, Setting], name: str, where: str) -> Setting:
    if name in declared:
        return declared[name]
    known = f"; settings: {', '.join(declared)}" if declared else "; it has no settings"
    if len(declared) > _MAX_LISTED:
        known = "; treekit train --help-settings all lists them"
    raise SettingError(f"{where} has no setting {name!r}{suggestion(name, declared) or known}")


def _check_value(setting: Setting, value: Any, where: str) -> Any:
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # a NumPy scalar: files and messages hold plain values
    if value is None and _accepts_none(setting):
        return None
    types = _list_types(setting)
    if type(value) is int and int not in types and float in types:
        value = float(value)
    if type(value) not in types or not _is_within_bounds(setting, value):
        names = [choice for choice in setting.choices if isinstance(choice, str)]
        near = suggestion(value, names) if isinstance(value, str) else ""
        raise SettingError(
            f"setting {setting.name!r} of {where} must be {_describe_values(setting)}, not "
            f"{value!r}{near}"
        )
    return value


def _is_within_bounds(setting: Setting, value: Any) -> bool:
    if same := [choice for choice in setting.choices if type(choice) is type(value)]:
        return value in same
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low = -math.inf if setting.minimum is None else setting.minimum
        high = math.inf if setting.maximum is None else setting.maximum
        beyond = setting.above is None or value > setting.above
        return math.isfinite(value) and beyond and low <= value <= high
    return True


def _parse_value(setting: Setting, text: str) -> Any:
    if text.lower() == "none" and _accepts_none(setting):
        return None
    for choice in setting.choices:
        if text == _format_value(choice):
            return choice
    for kind in _list_types(setting):
        if kind is bool and text.lower() in _BOOL_TEXTS:
            return _BOOL_TEXTS[text.lower()]
        if kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _describe_values(setting: Setting) -> str:
    parts = [_describe_type(setting, kind) for kind in _list_types(setting)]
    if _accepts_none(setting):
        parts.append("none")
    return " or ".join(parts)


def _describe_type(setting: Setting, kind: type) -> str:
    if same := [choice for choice in setting.choices if type(choice) is kind]:
        return "one of " + ", ".join(map(_format_value, same))
    text = _TYPE_NAMES[kind]
    if kind not in (int, float):
        return text
    low, high = setting.minimum, setting.maximum
    if setting.above is not None:
        text += f" above {setting.above:g}"
        return text if high is None else f"{text} and at most {high:g}"
    if low is not None and high is not None:
        return f"{text} from {low:g} to {high:g}"
    if low is not None:
        return f"{text} of at least {low:g}"
    return text if high is None else f"{text} of at most {high:g}"


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
