"""Numbers for classes and columns by name: ``"yes=2,no=1"``, a dict, or a word.

One reader for class weights, priors, costs and directions.  A text is what the
command line passes; Python may pass a mapping whose keys are the labels.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from treekit.data.features import LevelIndex
from treekit.data.schema import Label, level_text
from treekit.data.table import near_names
from treekit.errors import SettingError

__all__ = ["label_names", "read_named", "read_pairs", "written"]

Find = Callable[[Any], int]


def label_names(labels: Iterable[Label]) -> tuple[str, ...]:
    """Class labels as the texts that name them in settings."""
    return tuple(level_text(label) or "" for label in labels)


def read_named(
    given: str | Mapping[Any, Any], names: Sequence[str], where: str, noun: str = "class"
) -> dict[int, float]:
    """The finite number of each name given, by position in `names`.

    Parameters
    ----------
    given : str or mapping
        ``"yes=2,no=1"``, with quotes around a part that holds a comma; or the
        names (of any type that reads alike: 1, 1.0 and "1" are one) to numbers.
    names : sequence of str
    where : str
        The setting, for messages.
    noun : str
        What the names are names of.

    Raises
    ------
    SettingError
        For texts that are not of that form, names that are unknown or given
        twice, and values that are no finite numbers.
    """

    def find(name: Any) -> int:
        return _position(name, names, where, noun)

    found: dict[int, float] = _collected(_items(given, where), find, where)
    return found


def read_pairs(
    given: str | Mapping[Any, Any], names: Sequence[str], where: str
) -> dict[tuple[int, int], float]:
    """The finite number of each pair of names: ``"yes>no=5"``, or ``{("yes", "no"): 5}``.

    Parameters and errors are those of `read_named`.
    """

    def find(pair: Any) -> tuple[int, int]:
        if isinstance(pair, str):
            pair = _split_pair(pair, names, where)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise SettingError(f"{where}: {pair!r} is no pair; write (true class, said class)")
        true, said = (_position(name, names, where, "class") for name in pair)
        return true, said

    found: dict[tuple[int, int], float] = _collected(_items(given, where), find, where)
    return found


def written(numbers: Mapping[str, Any]) -> str:
    """The text that `read_named` or `read_pairs` reads as these numbers."""
    text = io.StringIO()
    cells = [f"{name}={number!r}" for name, number in numbers.items()]
    csv.writer(text).writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _items(given: str | Mapping[Any, Any], where: str) -> list[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return list(given.items())
    if not isinstance(given, str):
        raise SettingError(f"{where} is {given!r}; give NAME=NUMBER,... or a dict")
    try:
        cells = next(csv.reader([given], strict=True, skipinitialspace=True), [])
    except csv.Error as error:
        raise SettingError(f"{where} is {given!r}: {error}; write NAME=NUMBER,...") from None
    parts = [cell.rpartition("=") for cell in cells]
    for name, equals, number in parts:
        if not equals:
            raise SettingError(f"{where} holds {name + number!r}; write NAME=NUMBER,...")
    return [(name.strip(), number) for name, _, number in parts]


def _collected(items: Iterable[tuple[Any, Any]], find: Callable[[Any], Any], where: str) -> Any:
    found: dict[Any, float] = {}
    for key, value in items:
        at = find(key)
        if at in found:
            raise SettingError(f"{where} names {key!r} twice; give it once")
        found[at] = _number(value, key, where)
    return found


def _number(value: Any, key: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise SettingError(f"{where} gives {key!r} the value {value!r}; give a finite number")
    return number


def _position(name: Any, names: Sequence[str], where: str, noun: str) -> int:
    at = LevelIndex(names).code(name)
    if at < 0:
        raise SettingError(
            f"{where} names {noun} {name!r}; {near_names(level_text(name) or '', names)}"
        )
    return at


def _split_pair(text: str, names: Sequence[str], where: str) -> tuple[str, str]:
    """The only way to read ``a>b`` as two names; names may hold ``>`` themselves."""
    parts = [
        (text[:at].strip(), text[at + 1 :].strip()) for at, sign in enumerate(text) if sign == ">"
    ]
    if not parts:
        raise SettingError(f"{where} holds {text!r}; write TRUE>SAID=COST,...")
    index = LevelIndex(names)
    known = [pair for pair in parts if all(index.code(name) >= 0 for name in pair)]
    if len(known) > 1:
        raise SettingError(
            f"{where} holds {text!r}, which reads in {len(known)} ways; from Python, give a dict "
            "of pairs (true class, said class)"
        )
    return (known or parts)[0]
