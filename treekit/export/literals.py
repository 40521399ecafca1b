"""Templates, and the conversion of text, numbers and names to source code.

A name never becomes code unescaped: text goes through the escaper of a literal style,
and identifiers are built from an allow-list of characters.  The result is
`Code`; templates refuse to write anything else.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from treekit.data.schema import Label
from treekit.errors import ExportError

if TYPE_CHECKING:
    from jinja2 import Environment


# ---------------------------------------------------------------- literals

StringStyle = Literal["bytes", "c", "java", "json", "python", "rust"]
"""Escape style of string literals.

``bytes``: UTF-8, with ``\\x41`` of exactly two digits for all but plain characters
(Zig, Go, Lua, Perl, Rust's b""); ``json``: ``\\u0041`` of exactly four (JavaScript,
JSON); ``java``: octal below 256, because Java replaces ``\\u0022`` by a quote
before it parses literals (JLS 3.3), and ``\\u2028`` above; ``rust``: ``\\u{2028}``.
"""


class Code(Markup):
    """Text that is already source code, as opposed to a name or other raw text.

    A subclass of Markup, so that the output of jinja's macros is code as well.
    """

    __slots__ = ()


BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Whitespace removed by `str.strip`, also around marks of missing values."""

_MAX_C_LITERAL = 4000  # C99 5.2.4.1 promises 4095 characters
# Octal escapes have at most three digits: unlike \x they cannot swallow the
# next character.  ? is escaped because ??/ and its kin are trigraphs.
C_BYTE_ESCAPES = tuple(
    chr(byte) if 32 <= byte < 127 and chr(byte) not in "\"'\\?" else f"\\{byte:03o}"
    for byte in range(256)
)


def string_literal(text: str, style: StringStyle) -> Code:
    """Write `text` as a string literal, ASCII only.

    Raises
    ------
    ExportError
        If the language cannot express the string (C: a NUL, or half a surrogate pair).
    """
    return Code(_QUOTE_FUNCTIONS[style](str(text)))


def string_literals(texts: Iterable[str], style: StringStyle) -> list[Code]:
    """Write each of `texts` as a string literal."""
    return [string_literal(text, style) for text in texts]


def encode_utf8(text: str, where: str = "", remedy: str = "rename it") -> bytes:
    """Encode a text; raise `ExportError` for half a surrogate pair."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ExportError(f"{text[:80]!r}{where} is not valid Unicode text: {remedy}") from None


def _quote_c_string(text: str) -> str:
    if "\0" in text:
        raise ExportError(f"{text[:80]!r} contains a NUL, which ends a string in C: rename it")
    encoded = encode_utf8(text)
    if len(encoded) <= _MAX_C_LITERAL:
        return '"' + "".join(map(C_BYTE_ESCAPES.__getitem__, encoded)) + '"'
    rows = [encoded[i : i + 16] for i in range(0, len(encoded), 16)]
    body = ",\n".join(", ".join(f"'{C_BYTE_ESCAPES[byte]}'" for byte in row) for row in rows)
    return "(const char[]){\n" + body + ", 0}"


def _quote_python_string(text: str) -> str:
    """Write a literal like `ascii`, in double quotes unless that takes more escapes."""
    body = ascii(text)[1:-1]
    if ascii(text)[0] == '"':  # contains single quotes but no double quotes
        return f'"{body}"'
    plain = body.replace("\\'", "'")
    doubled = plain.replace('"', '\\"')
    return f"'{body}'" if doubled.count("\\") > body.count("\\") else f'"{doubled}"'


PLAIN_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;=+()"
)
"""Characters without a special meaning in the strings of any language."""


def _escape_units(text: str, escape: Callable[[int], str]) -> str:
    """Write the UTF-16 units of a text, plain characters as they are."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    body = (chr(unit) if chr(unit) in PLAIN_CHARACTERS else escape(unit) for unit in units)
    return '"' + "".join(body) + '"'


def _quote_rust_string(text: str) -> str:
    encode_utf8(text)
    body = (c if c in PLAIN_CHARACTERS else f"\\u{{{ord(c):x}}}" for c in text)
    return '"' + "".join(body) + '"'


_BYTE_ESCAPES = tuple(chr(b) if chr(b) in PLAIN_CHARACTERS else f"\\x{b:02x}" for b in range(256))


def byte_literal(content: bytes) -> Code:
    """Write bytes as the body of a ``bytes`` literal, quotes included."""
    return Code('"' + "".join(map(_BYTE_ESCAPES.__getitem__, content)) + '"')


_QUOTE_FUNCTIONS: dict[StringStyle, Callable[[str], str]] = {
    "bytes": lambda text: byte_literal(encode_utf8(text)),
    "c": _quote_c_string,
    "java": lambda text: _escape_units(
        text, lambda unit: f"\\{unit:03o}" if unit < 256 else f"\\u{unit:04x}"
    ),
    "json": lambda text: _escape_units(text, "\\u{:04x}".format),
    "python": _quote_python_string,
    "rust": _quote_rust_string,
}


def float_literal(number: float) -> Code:
    """Write a finite double as the shortest decimal that round-trips, in C and Python."""
    return Code(repr(float(number)).replace("e+", "e"))


def hex_literal(number: float) -> Code:
    """Write a finite double as an exact hexadecimal literal: ``-0x1.8p+3``."""
    return Code(float(number).hex())


def format_lines(texts: Sequence[str], per_line: int = 8) -> Code:
    """Write the elements of an array, `per_line` on each line."""
    rows = [texts[i : i + per_line] for i in range(0, len(texts), per_line)]
    return Code(",\n".join(map(", ".join, rows)))


def identifier(text: str, fallback: str, longest: int = 31) -> Code:
    """Make an identifier similar to `text`: ASCII letters, digits, single underscores.

    It starts with a letter and is `fallback` if no character of `text` is valid.
    Callers add a prefix or suffix, so that it cannot be a reserved word of
    any language.
    """
    clean = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", text))[:longest].strip("_")
    if clean[:1].isdigit():
        clean = f"{fallback}_{clean}"
    return Code(clean or fallback)


def identifiers(
    names: Sequence[str], prefix: str, fallback: str = "column", longest: int = 24
) -> list[Code]:
    """Make distinct identifiers, one per name and in the order of the names.

    Names that clean to the same text, or to nothing, are numbered by position.
    """
    clean = [str(identifier(name, fallback, longest)) for name in names]
    seen = Counter(clean)
    if len(seen) < len(names):
        # A name that ends in a number is numbered as well, so that an added
        # number cannot collide with one that is part of a name.
        clean = [
            f"{text}_{position}" if seen[text] > 1 or re.search(r"_\d+$", text) else text
            for position, text in enumerate(clean)
        ]
    return [Code(prefix + text) for text in clean]


# ---------------------------------------------------------------- language

WordStyle = Literal["snake", "camel", "pascal"]


@dataclass(frozen=True)
class Limits:
    """Limits of the compilers of a language.

    Beyond a limit the source takes another form, or the export fails.

    Attributes
    ----------
    elements : int
        Numbers written as literals in one file; with more, tables are packed into
        text, if the language supports packing.
    texts : int
        String literals of names in one array initialiser; with more, they are packed, too.
    literal : int
        Bytes of one string literal.
    table_bytes : int
        Bytes of all packed tables of a file; the export of a larger model fails.
    depth : int
        Nesting depth of the tests in one function.
    function_nodes : int
        Tests in one function.
    if_else_nodes : int
        Nodes of a model that is written as nested tests.
    inline_codes : int
        Codes of a set that is written inline in nested tests; larger sets become bit masks.
    """

    elements: int = 2**31 - 1
    texts: int = 2**31 - 1
    literal: int = 2**31 - 1
    table_bytes: int = 2**31 - 1
    depth: int = 16
    function_nodes: int = 500
    if_else_nodes: int = 100_000
    inline_codes: int = 4


@dataclass(frozen=True)
class Language:
    """Syntax of the literals, arrays and identifiers of a language.

    Attributes
    ----------
    strings : {"bytes", "c", "java", "json", "python", "rust"}
        Style of string literals, see `treekit.export.literals`.
    floats : {"shortest", "hex"}
        The shortest decimal that round-trips, or hexadecimal: exact, for
        compilers that read decimals into a wider type first and round twice.
    per_line : int
        Numbers per line of an array.
    wide : {"integer", "double"}
        Type of integers up to 2**53: 64-bit integers, or doubles if
        the language has no such integers.
    wide_suffix : str
        Suffix of the literal of a 64-bit integer, such as ``L``.
    unsigned : bool
        Whether 32-bit words are unsigned; otherwise words from 2**31 on are written
        as the negative number of the same bits.
    packed : {"", "base64", "bytes"}
        Encoding of large tables as string literals: none, base64 of
        little-endian bytes, or the bytes themselves.
    indent : str
        One level of indentation.
    outer : int
        Levels of indentation around the body of a function.
    column, case : str
        Prefix of column identifiers; ``"upper"`` for upper case or ``""`` for no change.
    reserved : frozenset of str
        Words that cannot be identifiers.
    unicode : bool
        Whether identifiers may have letters of all scripts.
    words : {"snake", "camel", "pascal"}
        Style of the identifiers of columns in `treekit.export.readable`.
    members : frozenset of str
        Words that cannot be such identifiers, besides the reserved words.
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
    unicode: bool = False
    words: WordStyle = "snake"
    members: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def text(self, text: str) -> Code:
        """Write a string literal."""
        return string_literal(text, self.strings)

    def number(self, number: float) -> Code:
        """Write a finite double."""
        return hex_literal(number) if self.floats == "hex" else float_literal(number)

    def value(self, label: Label) -> Code:
        """Write a class label as a text, number or bool."""
        if isinstance(label, str):
            return self.text(label)
        if isinstance(label, float):
            return self.number(label)
        written = repr(label)
        return Code(written if self.strings == "python" else written.lower())

    def array(self, numbers: npt.NDArray[Any]) -> Code:
        """Write the elements of an array, separated by commas; a single 0 if it is empty.

        Not every language has empty arrays; the 0 is never read.
        """
        own = (numbers if len(numbers) else np.zeros(1, numbers.dtype)).tolist()
        is_hex = numbers.dtype.kind == "f" and self.floats == "hex"
        return format_lines(list(map(float.hex if is_hex else repr, own)), self.per_line)

    def wide_array(self, numbers: npt.NDArray[Any]) -> Code:
        """Write the elements of an array of 64-bit integers with the suffix of the language."""
        texts = [f"{number}{self.wide_suffix}" for number in numbers.tolist() or [0]]
        return format_lines(texts, self.per_line)

    def name(self, text: str, fallback: str) -> Code:
        """Make an identifier similar to `text` that is not a reserved word."""
        made = identifier(text, fallback)
        return Code(made + "_") if made in self.reserved else made

    def column_names(self, names: tuple[str, ...]) -> list[Code]:
        """Make distinct identifiers of columns."""
        if self.case == "upper":
            # Upper case first: the columns ``a`` and ``A`` still get distinct identifiers.
            return identifiers([name.upper() for name in names], self.column, "COLUMN")
        return identifiers(names, self.column)


# ---------------------------------------------------------------- arrays
# Arrays and texts for templates: literals, or packed into string literals.
#
# Array literals are expensive to compile (four million numbers: rustc 1.95 22 s and
# 2 GB, go 1.19 63 s and 3.6 GB; javac refuses some thousands).  The same numbers as
# a string of their bytes compile in two seconds; the program decodes them at startup
# or on access.

NumberType = Literal["f64", "i32", "i64", "u32"]
_DTYPES: dict[NumberType, str] = {"f64": "<f8", "i32": "<i4", "i64": "<i8", "u32": "<u4"}
_MIN_PACKED_LENGTH = 64
"""Arrays of up to this length are always written as literals."""
_PIECE_MULTIPLE = 24
"""Packed pieces are multiples of this many bytes, so that no number or base64 group is split."""


@dataclass
class Tables:
    """Factory of the arrays of one file, which share the limits of its language."""

    language: Language
    elements: int = 0
    packed_bytes: int = 0

    def __call__(self, numbers: npt.NDArray[Any], number_type: NumberType | None = None) -> Array:
        """Make an array; integers are 32-bit unless `number_type` is given.

        Raises
        ------
        ExportError
            If a number exceeds its type, or the file its limits.
        """
        kind: NumberType = number_type or ("f64" if numbers.dtype.kind == "f" else "i32")
        if kind == "i64" and self.language.wide == "double":
            kind, numbers = "f64", numbers.astype(np.float64)
        if kind == "u32" and not self.language.unsigned:
            kind, numbers = "i32", numbers.astype(np.uint32).view(np.int32)
        if kind == "i32" and np.any((numbers < -(2**31)) | (numbers >= 2**31)):
            raise ExportError("the model needs more than 2**31 table entries: train fewer trees")
        made = np.ascontiguousarray(numbers, dtype=_DTYPES[kind])
        self.elements += len(made)
        self.packed_bytes += made.nbytes
        if self.packed_bytes > (most := self.language.limits.table_bytes) and self.language.packed:
            raise ExportError(
                f"the tables of the model exceed {most} bytes, the limit of this target: "
                "train fewer or smaller trees, or export to another target"
            )
        return Array(made, kind, self)

    def make_texts(self, texts: Iterable[str]) -> Texts:
        """Make a table of texts; packed texts have an array of lengths."""
        made = Texts(list(texts), self)
        if made.form == "packed":
            units = [len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in made.texts]
            made.lengths = self(np.array(units, dtype=np.int64))
        return made


@dataclass
class Array:
    """Array for templates; ``{{ array }}`` writes its elements.

    Attributes
    ----------
    numbers : (length,) of `type`, little-endian
    type : {"f64", "i32", "i64", "u32"}
    tables : Tables
        All arrays of the file.
    """

    numbers: npt.NDArray[Any]
    type: NumberType
    tables: Tables = field(repr=False)

    @property
    def form(self) -> Code:
        """Form to write: ``elements`` or ``packed``."""
        language, many = self.tables.language, self.tables.elements
        packs = language.packed and many > language.limits.elements
        return Code("packed" if packs and len(self.numbers) > _MIN_PACKED_LENGTH else "elements")

    @property
    def length(self) -> int:
        """Number of literals in `elements`: 1 for an empty array."""
        return max(len(self.numbers), 1)

    @cached_property
    def elements(self) -> Code:
        """Elements, separated by commas; a single 0 if the array is empty."""
        language = self.tables.language
        if self.type == "i64":
            return language.wide_array(self.numbers)
        return language.array(self.numbers)

    @property
    def each(self) -> int:
        """Numbers in each literal of `packed` except the last."""
        limit = self.tables.language.limits.literal
        raw = limit * 3 // 4 if self.tables.language.packed == "base64" else limit
        return max(raw // _PIECE_MULTIPLE, 1) * _PIECE_MULTIPLE // self.numbers.itemsize

    @cached_property
    def packed(self) -> list[Code]:
        """String literals of the little-endian bytes, in order."""
        pieces = [
            self.numbers[at : at + self.each].tobytes()
            for at in range(0, len(self.numbers), self.each)
        ]
        if self.tables.language.packed == "base64":
            return [Code(f'"{base64.b64encode(piece).decode("ascii")}"') for piece in pieces]
        return [byte_literal(piece) for piece in pieces]

    @property
    def base64(self) -> Code:
        """Little-endian bytes in base64, in lines."""
        return Code(base64.encodebytes(self.numbers.tobytes()).decode("ascii").rstrip("\n"))

    def __html__(self) -> str:
        return str(self.elements)


@dataclass
class Texts:
    """Texts of a file: one literal each, or joined in few literals.

    Attributes
    ----------
    texts : list of str
    lengths : Array, or None
        UTF-16 units of each text, if they are packed.
    tables : Tables
        All arrays of the file.
    """

    texts: list[str]
    tables: Tables = field(repr=False)
    lengths: Array | None = None

    @property
    def form(self) -> Code:
        """Form to write: ``elements`` or ``packed``."""
        language = self.tables.language
        long = max(map(len, self.texts), default=0) * 6 > language.limits.literal
        return Code("packed" if long or len(self.texts) > language.limits.texts else "elements")

    @cached_property
    def literals(self) -> list[Code]:
        """One literal per text."""
        return string_literals(self.texts, self.tables.language.strings)

    @cached_property
    def packed(self) -> list[Code]:
        """Literals of all texts joined; a literal may begin and end inside a text."""
        # In a class file a UTF-16 unit takes up to three bytes, and a character up to two units.
        joined, each = "".join(self.texts), max(self.tables.language.limits.literal // 6, 1)
        pieces = [joined[at : at + each] for at in range(0, len(joined), each)]
        return string_literals(pieces, self.tables.language.strings)


# ---------------------------------------------------------------- templates


_BUFFERED_PIECES = 256  # pieces of template output encoded at a time


def list_template_folders(user: str | Path | None = None) -> list[Path]:
    """Return the template folders in order of precedence: the folder `user`, then the shipped ones.

    Raises
    ------
    ExportError
        If the folder `user` does not exist, or the shipped ones are missing.
    """
    if not user:
        return list_shipped_folders()
    require_folder(user)
    return [Path(user), *list_shipped_folders()]


def list_shipped_folders() -> list[Path]:
    """Return the folders of treekit's own templates.

    They are inside the package in an installed wheel, and at the top of the
    checkout in an editable install.

    Raises
    ------
    ExportError
        If they are missing.
    """
    package = Path(__file__).resolve().parent.parent
    shipped = [package / "templates", package.parent / "templates"]
    found = [folder for folder in shipped if (folder / "c" / "source.jinja").is_file()]
    if not found:
        raise ExportError(
            "treekit's templates are missing from the installation: reinstall treekit"
        )
    return found


def require_folder(folder: str | Path) -> None:
    """Raise `ExportError` unless `folder`, the value of ``templates``, is a folder."""
    if not Path(folder).is_dir():
        raise ExportError(
            f"templates: {str(folder)!r} is not a folder; "
            "give one with subfolders c/, go/ and so on"
        )


def render_from(folders: Sequence[str | Path], template: str, **values: Any) -> bytes:
    """Render a template (``"c/source.jinja"``), looked up in `folders` in order, as UTF-8.

    Values are integers and `Code`, in any nesting of lists and records.
    """
    from jinja2 import TemplateError

    for folder in folders:
        require_folder(folder)
    written = BytesIO()
    try:
        # Streamed: rendered at once, the text of a large model would be in memory three times.
        pieces = _make_environment(tuple(map(str, folders))).get_template(template).stream(values)
        pieces.enable_buffering(_BUFFERED_PIECES)
        for piece in pieces:
            written.write(piece.encode("utf-8"))
        return written.getvalue()
    except TemplateError as error:
        place = getattr(error, "name", None) or template
        raise ExportError(f"template {place}: {error}") from error


@lru_cache(maxsize=8)
def _make_environment(folders: tuple[str, ...]) -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Templates may be untrusted: the sandbox limits them to the values passed in.
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folders, encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Not for HTML: it makes macros return `Code`, which `_require_code` requires.
        autoescape=True,
        finalize=_require_code,
    )


def _require_code(value: Any) -> Any:
    from jinja2 import Undefined

    if isinstance(value, (Markup, Undefined)):
        return value  # writing an undefined value raises an error that names it
    if isinstance(value, Array):
        return value.elements
    if isinstance(value, int) and not isinstance(value, bool):
        return Code(int(value))
    raise ExportError(
        f"a template writes {value!r}, which is unescaped text; "
        "templates may write only the values passed to them"
    )
