"""Names, labels and numbers as text that reads back to the same thing.

Whatever is not a plain word is quoted, with every character escaped that
could break a line, hide, or change the order in which a line is displayed: a
name can neither forge a rule nor disguise itself as one.
"""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype, Label
from treekit.rules.language import Language, language

__all__ = [
    "label_text",
    "name_text",
    "numerals",
    "quote",
    "read_label",
    "read_name",
    "read_numeral",
    "read_share",
    "share_text",
    "unquote",
]

_PLAIN = re.compile(r"[^\W\d]\w*")
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONG_ESCAPES = {short: char for char, short in _SHORT_ESCAPES.items()}
_ESCAPE = re.compile(r'\\(?:["\\nrt]|u[0-9a-f]{4}|U[0-9a-f]{8})')
_BOOLS = {"true": True, "false": False}
_WHOLE = re.compile(r"-?\d+")


def quote(text: str) -> str:
    r"""`text` between double quotes, escaped much as in JSON.

    Letters of every script stay as they are; control, format (bidirectional,
    zero width), separator, private and unassigned characters become
    ``\uXXXX`` or ``\UXXXXXXXX``.
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'  # nearly every name: no look at each character
    return '"' + "".join(_SHORT_ESCAPES.get(c) or _visible(c) for c in text) + '"'


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unquote(token: str) -> str:
    """The text that `quote` wrote; ValueError for anything that it does not write."""
    text = _ESCAPE.sub(_character, token[1:-1])
    if quote(text) != token:
        raise ValueError(f"{token} is not a properly quoted text")
    return text


def _character(match: re.Match[str]) -> str:
    escape = match.group()
    return _LONG_ESCAPES[escape] if escape in _LONG_ESCAPES else chr(int(escape[2:], 16))


def name_text(name: str, words: Language | None = None) -> str:
    """A plain word that is none of the language's own as it is; any other name quoted."""
    if _PLAIN.fullmatch(name) and name.isprintable():
        reserved = (words or language()).reserved
        return quote(name) if name.casefold() in reserved else name
    return quote(name)


def read_name(token: str) -> str:
    """The name that `name_text` wrote."""
    return unquote(token) if token.startswith('"') else token


def label_text(label: Label, words: Language | None = None) -> str:
    """A class label: text as a name, numbers and bools bare, so that the type is kept."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return name_text(label, words) if isinstance(label, str) else repr(label).replace("e+", "e")


def read_label(token: str) -> Label:
    """The label that `label_text` wrote."""
    if token in _BOOLS:
        return _BOOLS[token]
    if _PLAIN.fullmatch(token) or token.startswith('"'):
        return read_name(token)
    return int(token) if _WHOLE.fullmatch(token) else float(token)


def numerals(values: npt.NDArray[np.float64], dtype: Dtype = "float64") -> list[str]:
    """For each finite number the shortest text that `read_numeral` reads back to it."""
    distinct, position = np.unique(values + 0.0, return_inverse=True)  # -0.0 becomes 0.0
    texts = [_tidy(repr(float(value))) for value in distinct]
    if dtype == "float32":
        short = [_single_text(value) for value in distinct.astype(np.float32)]
        # A text is read as a double and then rounded; where those two roundings
        # miss the number that one would hit, the double's own text is needed.
        same = np.array([float(text) for text in short]).astype(np.float32) == distinct
        texts = [s if ok else long for s, ok, long in zip(short, same, texts, strict=True)]
    return [texts[i] for i in position.tolist()]


def _single_text(value: np.float32) -> str:
    """The shortest text of a float32, in the form that `repr` would choose for a double."""
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        return np.format_float_positional(value, trim="-")
    return _tidy(str(value))


def _tidy(text: str) -> str:
    return text.removesuffix(".0").replace("e+", "e")


def read_numeral(text: str, dtype: Dtype = "float64") -> float:
    """The finite number of type `dtype` nearest to a decimal text."""
    value = float(text)
    if dtype == "float32":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite {dtype}")
    return value


def share_text(units: int, total: int) -> str:
    """The shortest decimal d for which `total` times d, to the nearest whole number, is `units`.

    >>> share_text(5200937, 2**24)
    '0.31'
    """
    for digits in range(20):
        scale = 10**digits
        numerator = (2 * units * scale + total) // (2 * total)
        if _scaled(numerator, scale, total) == units:
            break
    whole, rest = divmod(numerator, scale)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)


def read_share(text: str, total: int) -> int:
    """The units that `share_text` wrote, in exact integer arithmetic (halves upwards)."""
    whole, _, fraction = text.partition(".")
    return _scaled(int(whole + fraction), 10 ** len(fraction), total)


def _scaled(numerator: int, scale: int, total: int) -> int:
    return (2 * numerator * total + scale) // (2 * scale)
