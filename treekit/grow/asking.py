"""Asking a plugin's function as plain Python, and judging what it answers.

The compiled path has its own guards in the kernels; the messages are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from treekit.errors import DataError, PluginError, SettingError
from treekit.isolation import FOREIGN, cause

__all__ = ["Origin", "asked", "checked", "frozen", "shown"]

MOST_SHOWN = 300
"""Characters of statistics that a message repeats."""


@dataclass(frozen=True)
class Origin:
    """Who a function comes from."""

    kind: str
    name: str
    distribution: str = ""

    def __str__(self) -> str:
        place = f" (from {self.distribution})" if self.distribution else ""
        return f"{self.kind} {self.name!r}{place}"

    @property
    def foreign(self) -> bool:
        """Whether it is none of treekit's own components."""
        return not self.distribution.startswith("treekit ")

    def error(self, cause: str) -> PluginError:
        """The error that names the plugin."""
        return PluginError(f"{self} {cause}; training was stopped and no model was made")


def shown(arguments: tuple[Any, ...]) -> str:
    """Statistics in a message: lists of numbers, cut off where they are long."""
    parts = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
    text = " and ".join(repr(part) for part in parts)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def checked(value: Any, returns: type, infinite: bool = False) -> float:
    """An answer as a number.

    Parameters
    ----------
    returns : {float, int, bool}
        What it has to be: a number, a whole number, or true or false.
    infinite : bool
        Whether a number may be ``inf``.

    Raises
    ------
    TypeError, ValueError
        With the end of a sentence that begins with the plugin.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    known: Any = {
        float: (int, float, np.integer, np.floating, np.bool_),
        int: (int, np.integer),
        bool: (bool, np.bool_, int, np.integer),
    }[returns]
    if not isinstance(value, known) or (returns is int and isinstance(value, bool)):
        what = {float: "a number", int: "a whole number", bool: "true or false"}[returns]
        got = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"returned {got}, not {what},")
    if returns is float and not math.isfinite(value) and not (infinite and value == math.inf):
        told = "NaN" if math.isnan(value) else "an infinite number"
        raise ValueError(f"returned {told}")
    number: float = returns(value)
    return number


def asked(
    origin: Origin,
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    returns: type = float,
    infinite: bool = False,
) -> float:
    """What a plugin's function `name` answers.

    Raises
    ------
    PluginError
        If it raises, or answers anything but a number; named with the arguments.
    DataError, SettingError
        Its own, which tell the user what to mend.
    """
    function = getattr(function, "py_func", function)
    given = f"; the statistics it was given were {shown(arguments)}"
    try:
        with np.errstate(all="ignore"):  # as in compiled code
            # Copies: the kernel's arrays may live in a stack frame.
            value = function(*[frozen(np.copy(a)) if _is_array(a) else a for a in arguments])
    except (DataError, PluginError, SettingError):
        raise
    except FOREIGN as error:
        # The arguments last: an exception's own words come first.
        raise origin.error(f"raised {cause(error)} in {name}{given}") from error
    try:
        return checked(value, returns, infinite)
    except (TypeError, ValueError) as error:
        raise origin.error(f"{error} from {name}{given}") from error


def frozen(record: Any) -> Any:
    """An array, or a record of arrays and records, that cannot be written to."""
    if isinstance(record, np.ndarray):
        view = record.view()
        view.flags.writeable = False
        return view
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return type(record)(*map(frozen, record))
    if is_dataclass(record) and not isinstance(record, type):
        own = {field.name: getattr(record, field.name) for field in fields(record)}
        arrays = {k: v for k, v in own.items() if isinstance(v, np.ndarray | tuple)}
        return replace(record, **{name: frozen(value) for name, value in arrays.items()})
    return record


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)
