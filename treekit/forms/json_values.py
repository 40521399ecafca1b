"""JSON that is not trusted: values checked one by one, and where in the text each stands.

A number stays the text that it was, so that whoever reads it decides how exactly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from types import TracebackType
from typing import Any

from treekit.errors import DataError, ModelError

__all__ = [
    "At",
    "JsonError",
    "Numeral",
    "flag",
    "items",
    "loads",
    "members",
    "numeral",
    "string",
    "whole",
]

_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_DIGITS = 400


class Numeral(str):
    """A number as it is written."""

    __slots__ = ()


class JsonError(ValueError):
    """What is wrong with a value, and the keys and indices that lead to it."""

    def __init__(self, said: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(said)
        self.path = path

    @property
    def place(self) -> str:
        """The way from the whole: ``$.rules[3].if``."""
        return "$" + "".join(map(_step, self.path))


def _step(piece: str | int) -> str:
    if isinstance(piece, int):
        return f"[{piece}]"
    return f".{piece}" if _KEY.fullmatch(piece) else f"[{json.dumps(piece)}]"


class At:
    """``with At("rules", 3):`` any fault inside is one of that place."""

    __slots__ = ("path",)

    def __init__(self, *path: str | int) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JsonError):
            error.path = self.path + error.path
        elif isinstance(error, (ValueError, OverflowError, DataError, ModelError)):
            raise JsonError(str(error), self.path) from error


class _Repeated(dict[str, Any]):
    """An object that names a key twice."""

    key: str = ""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated, seen = _Repeated(), set[str]()
    for name, _ in pairs:
        if name in seen:
            repeated.key = name
        seen.add(name)
    return repeated


def _refuse(constant: str) -> Any:
    raise JsonError(f"{constant} is not a number of JSON")


def loads(source: str) -> Any:
    """The value of a JSON text (RFC 8259), numbers as `Numeral`.

    Raises
    ------
    JsonError
        If it is none, or nested too deep.
    """
    try:
        return json.loads(
            source.removeprefix("\ufeff"),
            parse_int=Numeral,
            parse_float=Numeral,
            parse_constant=_refuse,
            object_pairs_hook=_once,
        )
    except RecursionError:
        raise JsonError("it is nested too deep") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"it is not JSON: {error}") from error


def members(
    value: Any, required: Collection[str] | None = None, optional: Collection[str] = ()
) -> dict[str, Any]:
    """An object; with `required`, one that has these keys, and no others but `optional`."""
    if type(value) is _Repeated:
        raise JsonError(f"the key {value.key!r} appears twice")
    if type(value) is not dict:
        raise JsonError(f"expected an object, not {_kind(value)}")
    if required is None:
        return value
    for key in required:
        if key not in value:
            raise JsonError(f"the key {key!r} is missing")
    for key in value:
        if key not in required and key not in optional:
            known = ", ".join([*required, *optional])
            raise JsonError(f"the key {key!r} is not known; known: {known}")
    return value


def items(value: Any) -> list[Any]:
    """An array."""
    if type(value) is not list:
        raise JsonError(f"expected an array, not {_kind(value)}")
    return value


def string(value: Any, choices: Collection[str] | None = None) -> str:
    """A text, one of `choices` if there are any."""
    if type(value) is not str:
        raise JsonError(f"expected a text, not {_kind(value)}")
    if choices is not None and value not in choices:
        raise JsonError(f"{value!r} is not one of: {', '.join(choices)}")
    return value


def flag(value: Any, *path: str | int) -> bool:
    """True or false, at `path`."""
    if type(value) is not bool:
        raise JsonError(f"expected true or false, not {_kind(value)}", path)
    return value


def numeral(value: Any, *path: str | int) -> str:
    """The text of a number, at `path`."""
    if type(value) is not Numeral:
        raise JsonError(f"expected a number, not {_kind(value)}", path)
    if len(value) > _MOST_DIGITS:
        raise JsonError(f"a number has more than {_MOST_DIGITS} digits", path)
    return value


def whole(value: Any, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    said = numeral(value)
    number = int(said) if said.lstrip("-").isdigit() else None
    if number is None or not low <= number <= high:
        raise JsonError(f"expected a whole number from {low} to {high}, not {said}")
    return number


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Numeral):
        return f"the number {value[:30]}"
    if isinstance(value, str):
        return f"the text {value[:30]!r}"
    return "an array" if isinstance(value, list) else "an object"
