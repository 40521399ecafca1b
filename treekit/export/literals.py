"""How text, numbers and names become source code, and the only place where they do.

A name never becomes code: text goes through the escaper of a literal style,
and identifiers are made of an allow-list of characters.  What comes out is
`Code`; `treekit.export.render` refuses to write anything else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy.typing as npt
from markupsafe import Markup

from treekit.errors import ExportError

__all__ = [
    "Code",
    "StringStyle",
    "byte_literal",
    "float_literal",
    "hex_literal",
    "identifier",
    "identifiers",
    "lines",
    "string_literal",
    "string_literals",
]

StringStyle = Literal["bytes", "c", "java", "json", "python", "rust"]
"""How a language writes strings; a target names the style it uses.

``bytes``: UTF-8, with ``\\x41`` of exactly two digits for what is no plain letter
(Zig, Go, Lua, Perl, Rust's b""); ``json``: ``\\u0041`` of exactly four (JavaScript,
JSON); ``java``: octal below 256, because Java reads ``\\u0022`` as the quote that it
is before it looks for literals (JLS 3.3), and ``\\u2028`` above; ``rust``: ``\\u{2028}``.
"""


class Code(Markup):
    """Text that is source code already, and not a name or other raw text.

    Markup, so that the output of jinja's macros counts as code as well.
    """

    __slots__ = ()


_LONGEST_C_LITERAL = 4000  # C99 5.2.4.1 promises 4095 characters
# Octal escapes have at most three digits: unlike \x they cannot swallow the
# next character.  ? is escaped because ??/ and its kin are trigraphs.
_C_BYTES = tuple(
    chr(byte) if 32 <= byte < 127 and chr(byte) not in "\"'\\?" else f"\\{byte:03o}"
    for byte in range(256)
)


def string_literal(text: str, style: StringStyle) -> Code:
    """Write `text` as a string literal, ASCII only.

    Raises
    ------
    ExportError
        If the language has no such string (C: a NUL, or half a surrogate pair).
    """
    return Code(_STYLES[style](str(text)))


def string_literals(texts: Iterable[str], style: StringStyle) -> list[Code]:
    """Write each of `texts` as a string literal."""
    return [string_literal(text, style) for text in texts]


def _c_string(text: str) -> str:
    if "\0" in text:
        raise ExportError(f"{text[:80]!r} holds a NUL, where text ends in C: rename it")
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ExportError(f"{text[:80]!r} is not valid Unicode text: rename it") from None
    if len(encoded) <= _LONGEST_C_LITERAL:
        return '"' + "".join(map(_C_BYTES.__getitem__, encoded)) + '"'
    rows = [encoded[i : i + 16] for i in range(0, len(encoded), 16)]
    body = ",\n".join(", ".join(f"'{_C_BYTES[byte]}'" for byte in row) for row in rows)
    return "(const char[]){\n" + body + ", 0}"


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;=+()")
"""Characters that no language reads in a string as anything but themselves."""


def _byte_string(text: str) -> str:
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ExportError(f"{text[:80]!r} is not valid Unicode text: rename it") from None
    body = (chr(byte) if chr(byte) in _PLAIN else f"\\x{byte:02x}" for byte in encoded)
    return '"' + "".join(body) + '"'


def _json_string(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (units[i] << 8 | units[i + 1] for i in range(0, len(units), 2))
    body = (chr(code) if chr(code) in _PLAIN else f"\\u{code:04x}" for code in codes)
    return '"' + "".join(body) + '"'


def _python_string(text: str) -> str:
    """`ascii`, in double quotes unless that takes more escapes."""
    body = ascii(text)[1:-1]
    if ascii(text)[0] == '"':  # it holds single quotes alone
        return f'"{body}"'
    plain = body.replace("\\'", "'")
    doubled = plain.replace('"', '\\"')
    return f"'{body}'" if doubled.count("\\") > body.count("\\") else f'"{doubled}"'


def _java_string(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (units[i] << 8 | units[i + 1] for i in range(0, len(units), 2))
    return '"' + "".join(map(_java_unit, codes)) + '"'


def _java_unit(code: int) -> str:
    if chr(code) in _PLAIN:
        return chr(code)
    return f"\\{code:03o}" if code < 256 else f"\\u{code:04x}"


def _rust_string(text: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ExportError(f"{text[:80]!r} is not valid Unicode text: rename it")
    body = (c if c in _PLAIN else f"\\u{{{ord(c):x}}}" for c in text)
    return '"' + "".join(body) + '"'


_STYLES: dict[StringStyle, Callable[[str], str]] = {
    "bytes": _byte_string,
    "c": _c_string,
    "java": _java_string,
    "json": _json_string,
    "python": _python_string,
    "rust": _rust_string,
}

_BYTES = tuple(chr(b) if chr(b) in _PLAIN else f"\\x{b:02x}" for b in range(256))


def byte_literal(content: bytes) -> Code:
    """Write bytes as the body of a ``bytes`` literal, quotes included."""
    return Code('"' + "".join(map(_BYTES.__getitem__, content)) + '"')


def float_literal(number: float) -> Code:
    """Write a finite double as the shortest decimal that reads back equal, in C and Python."""
    return Code(repr(float(number)).replace("e+", "e"))


def hex_literal(number: float) -> Code:
    """Write a finite double in hexadecimal, which no compiler rounds: ``-0x1.8p+3``."""
    return Code(float(number).hex())


def lines(numbers: npt.NDArray[Any], separator: str = ", ", per_line: int = 8) -> Code:
    """Write an array of integers or finite doubles, some on each line."""
    texts = list(map(repr, numbers.tolist()))
    rows = [separator.join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return Code((separator.rstrip() + "\n").join(rows))


def identifier(text: str, fallback: str, longest: int = 31) -> Code:
    """Make an identifier that looks like `text`: ASCII letters, digits, single underscores.

    It starts with a letter and is `fallback` if nothing of `text` is left.
    Callers put something before or after it, which keeps it off every
    language's reserved words.
    """
    clean = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", text))[:longest].strip("_")
    if clean[:1].isdigit():
        clean = f"{fallback}_{clean}"
    return Code(clean or fallback)


def identifiers(names: Sequence[str], prefix: str, fallback: str = "column") -> list[Code]:
    """Make distinct identifiers, one a name, in order: the list itself is the way back.

    Names that clean to the same text, or to nothing, are numbered by position.
    """
    clean = [str(identifier(name, fallback, longest=24)) for name in names]
    seen = Counter(clean)
    if len(seen) < len(names):
        # Whatever ends in a number gets its own position too, so that no
        # number given here meets one that was part of a name.
        clean = [
            f"{text}_{position}" if seen[text] > 1 or re.search(r"_\d+$", text) else text
            for position, text in enumerate(clean)
        ]
    return [Code(prefix + text) for text in clean]
