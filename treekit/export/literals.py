"""How text, numbers and names become source code, and the only place where they do.

A name never becomes code: text goes through the escaper of a literal style,
and identifiers are made of an allow-list of characters.  What comes out is
`Code`; `treekit.export.render` refuses to write anything else.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from treekit.errors import ExportError

__all__ = [
    "Array",
    "Code",
    "Language",
    "Limits",
    "StringStyle",
    "Tables",
    "Texts",
    "byte_literal",
    "float_literal",
    "hex_literal",
    "identifier",
    "identifiers",
    "lines",
    "string_literal",
    "string_literals",
]


# ---------------------------------------------------------------- literals

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


# ---------------------------------------------------------------- language
# How a language writes the literals and arrays that templates are given, and its bounds.


@dataclass(frozen=True)
class Limits:
    """What compilers of a language bear; beyond, source is written otherwise or refused.

    Attributes
    ----------
    elements : int
        Numbers written as literals in one file; tables of more are packed into
        text, if the language packs.
    texts : int
        String literals of names in one array initialiser; more are packed, too.
    literal : int
        Bytes of one string literal.
    table_bytes : int
        Of all packed tables of a file; a larger model is refused by name.
    depth : int
        Levels of tests nested in one function.
    function_nodes : int
        Tests in one function.
    if_else_nodes : int
        Nodes of a model that is written as nested tests.
    """

    elements: int = 2**31 - 1
    texts: int = 2**31 - 1
    literal: int = 2**31 - 1
    table_bytes: int = 2**31 - 1
    depth: int = 16
    function_nodes: int = 500
    if_else_nodes: int = 100_000


@dataclass(frozen=True)
class Language:
    """How a language writes what templates cannot.

    Attributes
    ----------
    strings : {"bytes", "c", "java", "json", "python", "rust"}
        Style of string literals, see `treekit.export.literals`.
    floats : {"shortest", "hex"}
        The shortest decimal that reads back equal, or hexadecimal: exact, for
        compilers that read decimals into a wider type first and round twice.
    per_line : int
        Numbers on a line of an array.
    wide : {"integer", "double"}
        What holds whole numbers up to 2**53: 64-bit integers, or doubles where
        a language has no such integers.
    wide_suffix : str
        Behind the literal of a 64-bit integer, such as ``L``.
    unsigned : bool
        Whether 32-bit words are unsigned; else those from 2**31 on are written
        as the negative number of the same bits.
    packed : {"", "base64", "bytes"}
        How large tables become string literals: not at all, base64 of
        little-endian bytes, or the bytes themselves.
    indent : str
        One level of indentation.
    outer : int
        Levels around the body of a function.
    column, case : str
        What identifiers of columns begin with, and ``"upper"`` or ``""`` (as they are).
    reserved : frozenset of str
        Words that cannot be identifiers.
    limits : Limits
    """

    strings: StringStyle
    floats: Literal["shortest", "hex"] = "shortest"
    per_line: int = 8
    wide: Literal["integer", "double"] = "integer"
    wide_suffix: str = ""
    unsigned: bool = True
    packed: Literal["", "base64", "bytes"] = ""
    indent: str = "    "
    outer: int = 1
    column: str = "in_"
    case: Literal["", "upper"] = ""
    reserved: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def text(self, text: str) -> Code:
        """A string literal."""
        return string_literal(text, self.strings)

    def number(self, number: float) -> Code:
        """A finite double."""
        return hex_literal(number) if self.floats == "hex" else float_literal(number)

    def array(self, numbers: npt.NDArray[Any]) -> Code:
        """The elements of an array, separated by commas; a 0 where there are none.

        Not every language has empty arrays, and no loop reads that element.
        """
        if len(numbers) == 0:
            numbers = np.zeros(1, numbers.dtype)
        if numbers.dtype.kind == "f" and self.floats == "hex":
            texts = map(float.hex, numbers.tolist())
            return _joined(list(texts), self.per_line)
        return lines(numbers, per_line=self.per_line)

    def wide_array(self, numbers: npt.NDArray[Any]) -> Code:
        """The same of 64-bit integers, with the language's suffix."""
        texts = [f"{number}{self.wide_suffix}" for number in numbers.tolist() or [0]]
        return _joined(texts, self.per_line)

    def name(self, text: str, fallback: str) -> Code:
        """An identifier that looks like `text` and is no reserved word."""
        made = identifier(text, fallback)
        return Code(made + "_") if made in self.reserved else made

    def column_names(self, names: tuple[str, ...]) -> list[Code]:
        """Distinct identifiers of columns."""
        if self.case == "upper":
            # Before they are told apart: `a` and `A` are two columns.
            return identifiers([name.upper() for name in names], self.column, "COLUMN")
        return identifiers(names, self.column)


def _joined(texts: list[str], per_line: int) -> Code:
    rows = [texts[i : i + per_line] for i in range(0, len(texts), per_line)]
    return Code(",\n".join(", ".join(row) for row in rows))


# ---------------------------------------------------------------- arrays
# Tables of numbers and texts as templates get them: literals, or packed into text.
#
# A compiler reads a million literals of an array in a minute and gigabytes
# (rustc 1.95: 22 s and 2 GB for four million numbers, go 1.19: 63 s and 3.6 GB;
# javac refuses some thousands), and the same numbers as text of their bytes in
# two seconds, which the program decodes when it starts, or as it goes.

NumberType = Literal["f64", "i32", "i64", "u32"]
_DTYPES: dict[NumberType, str] = {"f64": "<f8", "i32": "<i4", "i64": "<i8", "u32": "<u4"}
_SMALL = 64
"""Arrays of so few numbers are written as literals, whatever the others are."""
_WHOLE = 24
"""Bytes of packed pieces are multiples of it: no number and no base64 group is divided."""


@dataclass
class Tables:
    """Makes the arrays of one file, which share the limits of its language."""

    language: Language
    elements: int = 0
    packable: int = 0

    def __call__(self, numbers: npt.NDArray[Any], number_type: NumberType | None = None) -> Array:
        """An array; doubles as they are, whole numbers as 32-bit integers unless told.

        Raises
        ------
        ExportError
            If a number outgrows its type, or the file its limits.
        """
        kind: NumberType = number_type or ("f64" if numbers.dtype.kind == "f" else "i32")
        if kind == "i64" and self.language.wide == "double":
            kind, numbers = "f64", numbers.astype(np.float64)
        if kind == "u32" and not self.language.unsigned:
            kind, numbers = "i32", numbers.astype(np.uint32).view(np.int32)
        if kind == "i32" and len(numbers) and not -(2**31) <= _extent(numbers) < 2**31:
            raise ExportError("the model needs more than 2**31 table entries: train fewer trees")
        made = np.ascontiguousarray(numbers, dtype=_DTYPES[kind])
        self.elements += len(made)
        self.packable += made.nbytes
        if self.packable > (most := self.language.limits.table_bytes) and self.language.packed:
            raise ExportError(
                f"the tables of the model take more than the {most} bytes that this target "
                "compiles: train fewer or smaller trees, or export to another target"
            )
        return Array(made, kind, self)

    def texts(self, texts: Iterable[str]) -> Texts:
        """Texts, whose lengths are an array if they are packed."""
        made = Texts(list(texts), self)
        if made.form == "packed":
            units = [len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in made.texts]
            made.lengths = self(np.array(units, dtype=np.int64))
        return made


@dataclass
class Array:
    """An array; written in a template by itself it is its elements.

    Attributes
    ----------
    numbers : (length,) of `type`, little-endian
    type : {"f64", "i32", "i64", "u32"}
    tables : Tables
        The file's, whose limits it shares.
    """

    numbers: npt.NDArray[Any]
    type: NumberType
    tables: Tables = field(repr=False)

    @property
    def form(self) -> Code:
        """``elements`` or ``packed``: how the language is to write it."""
        language, many = self.tables.language, self.tables.elements
        packs = language.packed and many > language.limits.elements
        return Code("packed" if packs and len(self.numbers) > _SMALL else "elements")

    @property
    def length(self) -> int:
        """How many literals `elements` holds: at least the 1 that stands for none."""
        return max(len(self.numbers), 1)

    @cached_property
    def elements(self) -> Code:
        """The elements, separated by commas; a 0 where there are none."""
        language = self.tables.language
        if self.type == "i64":
            return language.wide_array(self.numbers)
        return language.array(self.numbers)

    @property
    def each(self) -> int:
        """Numbers in each literal of `packed`, but the last."""
        limit = self.tables.language.limits.literal
        raw = limit * 3 // 4 if self.tables.language.packed == "base64" else limit
        return max(raw // _WHOLE, 1) * _WHOLE // self.numbers.itemsize

    @cached_property
    def packed(self) -> list[Code]:
        """String literals that hold the bytes, little-endian, in order."""
        pieces = [
            self.numbers[at : at + self.each].tobytes()
            for at in range(0, len(self.numbers), self.each)
        ]
        if self.tables.language.packed == "base64":
            return [Code(f'"{base64.b64encode(piece).decode("ascii")}"') for piece in pieces]
        return [byte_literal(piece) for piece in pieces]

    def __html__(self) -> str:
        return str(self.elements)


def _extent(numbers: npt.NDArray[Any]) -> int:
    """The number farthest from zero."""
    return max(int(numbers.max()), -int(numbers.min()) - 1)


@dataclass
class Texts:
    """Texts of a file as literals, or joined in few.

    Attributes
    ----------
    texts : list of str
    lengths : Array, or None
        UTF-16 units of each, if they are packed.
    tables : Tables
        The file's, whose limits they share.
    """

    texts: list[str]
    tables: Tables = field(repr=False)
    lengths: Array | None = None

    @property
    def form(self) -> Code:
        """``elements`` or ``packed``."""
        language = self.tables.language
        long = max(map(len, self.texts), default=0) * 6 > language.limits.literal
        return Code("packed" if long or len(self.texts) > language.limits.texts else "elements")

    @cached_property
    def literals(self) -> list[Code]:
        """A literal each."""
        return string_literals(self.texts, self.tables.language.strings)

    @cached_property
    def packed(self) -> list[Code]:
        """Literals of all texts joined; a literal may begin and end inside of a text."""
        # A UTF-16 unit takes up to three bytes in a class file; a character two units.
        joined, each = "".join(self.texts), max(self.tables.language.limits.literal // 6, 1)
        pieces = [joined[at : at + each] for at in range(0, len(joined), each)]
        return string_literals(pieces, self.tables.language.strings)
