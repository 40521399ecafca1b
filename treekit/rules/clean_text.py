"""Undo what editors, word processors and spreadsheets do to rule text.

Only what has a single meaning is undone: characters that no rule contains outside of a name, or
that `treekit.rules.wording.quote_text` would have escaped.  Everything else is named in an error.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
import warnings
from collections.abc import Collection

from treekit.errors import DataError, TreekitWarning
from treekit.rules.language import Language
from treekit.rules.wording import NUMBER_PATTERN, OPENED_PATTERN

# ---------------------------------------------------------------- bytes

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_PLAIN = "save it as plain text, in UTF-8"
_OTHER_FILES = (
    (b"PK\x03\x04", "an archive (ZIP), such as a document of a word processor or a spreadsheet"),
    (b"\xd0\xcf\x11\xe0", "a document of a word processor or a spreadsheet"),
    (b"{\\rtf", "a document of a word processor (RTF)"),
    (b"%PDF", "a PDF document"),
    (b"<", "a page (HTML or XML)"),
)


def decode_text(content: bytes, name: str) -> str:
    """Decode an edited file: UTF-8, or UTF-16 or UTF-32 with a byte order mark.

    Raises
    ------
    DataError
        If it is another kind of file or in another encoding; names the line.
    """
    encoding = next((kind for mark, kind in _MARKS if content.startswith(mark)), "utf-8")
    start = content[:64].lstrip().lower()
    for magic, kind in _OTHER_FILES:
        if start.startswith(magic.lower()):
            raise DataError(f"{name!r} is {kind}; {_PLAIN}")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start : error.start + 1]
        char = byte.decode("cp1252", "replace")
        raise DataError(
            f"{name!r} is not UTF-8 text: line {line} has the byte 0x{byte.hex()} (in Latin-1 "
            f"and Windows-1252: {char!r}); save it as UTF-8"
        ) from error
    if "\0" in text:
        raise DataError(
            f"{name!r} is not UTF-8 text: it has zero bytes, as UTF-16 without a byte order mark "
            f"has; {_PLAIN}"
        )
    return text


# ---------------------------------------------------------------- characters

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANKS = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_INVISIBLE = "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_QUOTES = "\u00ab\u00bb\u201c-\u201f\u2033\u2036\u275d\u275e\u301d-\u301f\uff02"
_DASHES = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_UPTO = ("&lt;=", "\u2264", "\u2266", "\u2a7d", "\u21d0", "\uff1c=", "\uff1c\uff1d", "<\uff1d")
_ABOVE = ("&gt;", "\uff1e")
_COMBINING = "\u0300-\u036f"
_POWER = r"\b[0-9][0-9.]*(?:E[+-]?|e\+)[0-9]"
_BULLET = r"(?:[•◦▪▫‣⁃∙·●○■□*\u2010-\u2015-]|\(?[0-9]+[.)]|\(?[a-z][.)])[ ]+"


def split_rows(text: str) -> list[str]:
    """Return the lines of an edited text, without blanks or a spreadsheet's marks at their ends."""
    rows = [row.rstrip() for row in standardise_blanks(text.removeprefix("\ufeff")).split("\n")]
    padding = re.search(r"[,;]+$", rows[0])
    for at, row in enumerate(rows):
        if row.startswith('"'):  # no line begins so: a spreadsheet has quoted it
            rows[at] = _unquote_cell(row)
        elif padding is not None:
            rows[at] = row.rstrip(",;")
    return rows


class TextCleaner:
    """Converter of edited lines to those that treekit writes, in one language."""

    def __init__(self, words: Language) -> None:
        upto, above = (
            re.sub(r"\{\w+\}", "", words.phrases[key]).strip() for key in ("if_upto", "if_above")
        )
        # A language may use some of the characters in its own phrases.
        own = "".join(text for key, text in words.phrases.items() if not key.startswith("note_"))
        self.signs = {
            sign: written
            for signs, written in (((*_UPTO, "<="), upto), (_ABOVE, above))
            for sign in signs
            if sign not in own
        }
        signs = "|".join(map(re.escape, self.signs))
        self.suspect = re.compile(f"[{_QUOTES}{_DASHES}{_COMBINING}]|{_POWER}|{signs}")
        starts = {words.phrases[f"rule_{key}"].partition("{")[0].strip() for key in _STARTS}
        keys = sorted({*starts, *(start[0].upper() + start[1:] for start in starts)}, key=len)
        either = "|".join(map(re.escape, keys[::-1]))
        self.start = re.compile(rf"( *)({_BULLET})?({either})(?= |$)")
        self.facts = {fact.rstrip(): fact for fact in words.facts.values()}

    def clean_row(self, row: str) -> str:
        """Return a line with the characters that treekit writes."""
        if self.suspect.search(row) is not None:
            row = "".join(
                part if quoted else re.sub(f"[{_QUOTES}]", '"', part)
                for quoted, part in _split_quoted(row)
            )
            parts = _split_quoted(row)
            row = "".join(part if quoted else self._clean_part(part) for quoted, part in parts)
        found = self.start.match(row)
        if found is None:
            return self._clean_fact(row)
        # A bullet or number before the first word of a line, and its capital.
        return found[1] + found[3][0].lower() + found[3][1:] + row[found.end() :]

    def _clean_fact(self, row: str) -> str:
        """Return the line of a fact with its own capital and blanks."""
        word, blank, value = row.partition(" ")
        word = word[:1].lower() + word[1:]
        return self.facts[word] + value.lstrip() if blank and word in self.facts else row

    def _clean_part(self, part: str) -> str:
        """Clean a part of a line outside of quotes."""
        if re.search(f"[{_COMBINING}]", part) is not None:
            part = unicodedata.normalize("NFC", part)
        for sign, written in self.signs.items():
            part = part.replace(sign, written)
        part = re.sub(rf"(?<![\w.])[{_DASHES}](?=[0-9])", "-", part)
        part = re.sub(rf"(?<=[0-9][eE])[{_DASHES}](?=[0-9])", "-", part)
        return re.sub(_POWER, lambda found: found[0].replace("E", "e").replace("+", ""), part)


_STARTS = ("place", "if", "and", "then", "always", "otherwise")


def standardise_blanks(text: str) -> str:
    """Write line ends as newlines and all blanks as spaces, and remove invisible characters.

    Names and values that have such characters are written with escapes.
    """
    if text.isascii() and not re.search("[\r\t\x0b\x0c]", text):
        return text
    text = _LINE_ENDS.sub("\n", text)
    text = re.sub(f"[{_INVISIBLE}]", "", text).replace("\t", "  ")
    return re.sub(f"[{_BLANKS}]", " ", text)


def _split_quoted(row: str) -> list[tuple[bool, str]]:
    """Split a line into its quoted parts and the others."""
    parts, at = [], 0
    for found in re.finditer(OPENED_PATTERN, row):
        parts += [(False, row[at : found.start()]), (True, found[0])]
        at = found.end()
    return [*parts, (False, row[at:])]


def _unquote_cell(row: str) -> str:
    """Remove the quotes that a spreadsheet writes around a line."""
    found = re.fullmatch(r'"((?:[^"]|"")*)"[,;]*', row)
    return row if found is None else found[1].replace('""', '"').rstrip()


def collapse_blanks(text: str) -> str:
    """Replace runs of blanks outside of quotes by one blank."""
    return "".join(part if q else re.sub(" {2,}", " ", part) for q, part in _split_quoted(text))


# ---------------------------------------------------------------- names

_FOLDED = {
    ord(char): plain
    for chars, plain in (
        ("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
        ("\u2018\u2019\u201a\u201b\u2032\u00b4", "'"),
        ("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        ("\u2026", "..."),
        ("\u2264\u21d0", "<="),
        ("\u2265\u21d2", ">="),
        ("\u2192", "->"),
        ("\u2190", "<-"),
    )
    for char in chars
}


def fold_name(name: str) -> str:
    """Return a name without what word processors change as one types."""
    text = standardise_blanks(unicodedata.normalize("NFC", name)).translate(_FOLDED)
    return " ".join(text.replace("--", "-").split())


def find_folded(name: str, names: Collection[str]) -> str | None:
    """Find the only one of `names` from which a word processor may have made `name`."""
    folded = fold_name(name)
    found = [one for one in names if fold_name(one) == folded]
    return found[0] if len(found) == 1 else None


# ---------------------------------------------------------------- faults

_GROUPED = re.compile(
    r"(?:(?<![\w.,'-])-)?(?<![\w.,'])[0-9]+"
    r"(?:[.,'\u2019\u02bc\u00b4`_\u066b\u066c\u00b7][0-9]+| [0-9]{3}(?![0-9]))+"
)
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}\.[0-9]{2}0")
_OPERATORS = re.compile(r"=<|>=|=>|\u2265|\u2267|\u2a7e|\u21d2|==|!=|<>|\u2260|<(?!=)|(?<!<)=")


def describe_number(text: str) -> str:
    """Describe a number that is written in another notation; empty if there is none.

    A number is suggested only if the text has no other reading.
    """
    bare = re.sub(OPENED_PATTERN, "", text)
    for found in _GROUPED.finditer(bare):
        number = found[0]
        if re.fullmatch(NUMBER_PATTERN, number):
            continue
        comma = re.fullmatch(r"(-?[0-9]+),([0-9]+)", number)
        if comma is not None and (len(comma[2]) < 3 or re.match("-?0", comma[1])):
            return f"has a decimal comma: write {comma[1]}.{comma[2]} with a point"
        return (
            f"has the number {number!r}, whose separators may be of thousands or decimals: write "
            "it without separators of thousands, and with a point before decimals"
        )
    for digits in re.findall(r"\b\d+", bare):
        if not digits.isascii():
            return f"has the number {digits!r}: write numbers with the digits 0 to 9"
    return ""


def describe_operator(text: str) -> str:
    """Describe a comparison that rules do not have; empty if there is none."""
    bare = re.sub(OPENED_PATTERN, "", text)
    found = _OPERATORS.search(bare)
    return f"is not a condition: rules compare with > and <=, not {found[0]!r}" if found else ""


def warn_of_thousands(row: str, line: int) -> None:
    """Warn of a number such as 1.050, which some countries write for a thousand and fifty.

    treekit writes no zero at the end of decimals.
    """
    for number in re.findall(r"(?<![\w.,])[0-9.]+(?![\w.])", re.sub(OPENED_PATTERN, "", row)):
        if _THOUSANDS.fullmatch(number):
            warnings.warn(
                f"line {line} of the edited rules: the point of {number} is read as a decimal "
                "point; leave it out if it separates thousands, else leave out the last zeros",
                TreekitWarning,
                stacklevel=2,
            )
