"""Names, labels, numbers and conditions as text that parses to the same values.

Anything but a plain word is quoted, with every character escaped that could break a line,
be invisible, or change the display order of a line: a name can neither forge a rule nor
be disguised as one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, Label, Schema
from treekit.model.fixed_point import MASS, floor_to_dtype
from treekit.rules.language import Language, load_language
from treekit.rules.rule_list import Clause, LinearClause, RuleList, Test

# ---------------------------------------------------------------- names, labels and numbers

_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONG_ESCAPES = {short: char for char, short in _SHORT_ESCAPES.items()}
_ESCAPE_SEQUENCE = re.compile(r'\\(?:["\\nrt]|u[0-9a-f]{4}|U[0-9a-f]{8})')
_BOOL_LABELS = {"true": True, "false": False}
_INTEGER = re.compile(r"-?\d+")


def quote_text(text: str) -> str:
    r"""Return `text` between double quotes, escaped much as in JSON.

    Letters of every script stay unchanged; control, format (bidirectional,
    zero width), separator, private and unassigned characters become
    ``\uXXXX`` or ``\UXXXXXXXX``.
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'  # fast path for nearly every name
    return '"' + "".join(_SHORT_ESCAPES.get(c) or _escape_char(c) for c in text) + '"'


def _escape_char(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unquote_text(token: str) -> str:
    """Return the text of a quoted token; raise ValueError unless `quote_text` wrote it."""
    text = _ESCAPE_SEQUENCE.sub(_unescape_match, token[1:-1])
    if quote_text(text) != token:
        raise ValueError(f"{token} is not a properly quoted text")
    return text


def _unescape_match(match: re.Match[str]) -> str:
    escape = match.group()
    return _LONG_ESCAPES[escape] if escape in _LONG_ESCAPES else chr(int(escape[2:], 16))


def quote_name(name: str, words: Language | None = None) -> str:
    """Return a plain word unchanged, and quote reserved words and all other names."""
    if _PLAIN_NAME.fullmatch(name) and name.isprintable():
        reserved = (words or load_language()).reserved
        return quote_text(name) if name.casefold() in reserved else name
    return quote_text(name)


def parse_name(token: str) -> str:
    """Return the name that `quote_name` wrote."""
    return unquote_text(token) if token.startswith('"') else token


def quote_label(label: Label, words: Language | None = None) -> str:
    """Return a class label: text as a name, numbers and bools unquoted, to preserve the type."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return quote_name(label, words) if isinstance(label, str) else repr(label).replace("e+", "e")


def parse_label(token: str) -> Label:
    """Return the label that `quote_label` wrote."""
    if token in _BOOL_LABELS:
        return _BOOL_LABELS[token]
    if _PLAIN_NAME.fullmatch(token) or token.startswith('"'):
        return parse_name(token)
    return int(token) if _INTEGER.fullmatch(token) else float(token)


def format_numbers(values: npt.NDArray[np.float64], dtype: Dtype = "float64") -> list[str]:
    """Return the shortest text of each finite number that `parse_number` parses to it."""
    distinct, position = np.unique(values + 0.0, return_inverse=True)  # -0.0 becomes 0.0
    texts = [_tidy_numeral(repr(float(value))) for value in distinct]
    if dtype == "float32":
        short = [_format_float32(value) for value in distinct.astype(np.float32)]
        # A text is parsed as a double and then rounded to float32; where this double
        # rounding misses the number, the text of the double is needed.
        same = np.array([float(text) for text in short]).astype(np.float32) == distinct
        texts = [s if ok else long for s, ok, long in zip(short, same, texts, strict=True)]
    return [texts[i] for i in position.tolist()]


def _format_float32(value: np.float32) -> str:
    """Return the shortest text of a float32, in the form that `repr` chooses for a double."""
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        return np.format_float_positional(value, trim="-")
    return _tidy_numeral(str(value))


def _tidy_numeral(text: str) -> str:
    return text.removesuffix(".0").replace("e+", "e")


def parse_number(text: str, dtype: Dtype = "float64") -> float:
    """Return the finite number of type `dtype` nearest to a decimal text."""
    value = float(text)
    if dtype == "float32":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite {dtype}")
    return value


def format_share(units: int, total: int) -> str:
    """Return the shortest decimal d for which `total` times d rounds to `units`.

    >>> share_text(5200937, 2**24)
    '0.31'
    """
    for digits in range(20):
        scale = 10**digits
        numerator = (2 * units * scale + total) // (2 * total)
        if _round_product(numerator, scale, total) == units:
            break
    whole, rest = divmod(numerator, scale)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)


def parse_share(text: str, total: int) -> int:
    """Return the units that `format_share` wrote, in exact integer arithmetic (halves up)."""
    whole, _, fraction = text.partition(".")
    return _round_product(int(whole + fraction), 10 ** len(fraction), total)


def _round_product(numerator: int, scale: int, total: int) -> int:
    return (2 * numerator * total + scale) // (2 * scale)


# ---------------------------------------------------------------- conditions and tests
# `treekit.rules.read_text` parses these texts.

_MAX_GIST = 60
"""Maximum length of a test that is shown in the rules that refer to it."""


def format_levels(levels: Sequence[str], words: Language) -> str:
    """Return categories as a choice.

    >>> levels_text(["red", "green", "dark blue"], language())
    'red, green or "dark blue"'
    """
    texts = [quote_name(level, words) for level in levels]
    say = words.phrases
    if len(texts) < 2:
        return texts[0] if texts else say["if_nothing"]
    return say["if_comma"].join(texts[:-1]) + say["if_or"] + texts[-1]


def format_part(condition: str, low: int, high: int, words: Language) -> str:
    """Return a condition with the bounds of a part of a row's mass, and its percentage."""
    percent = f"{100 * (high - low) / MASS:.3g}"
    said = {"low": str(low), "high": str(high), "percent": percent}
    return words.say("if_part", condition=condition, **said)


def format_test(test: Test, schema: Schema, words: Language | None = None) -> str:
    """Return the clauses of a test as text, by default in English."""
    words = words or load_language()
    return words.phrases["test_otherwise"].join(
        _format_clause(clause, schema, words) for clause in test
    )


def format_test_gist(test: Test, schema: Schema, words: Language, *, holds: bool) -> str:
    """Return the first clause of a test, negated if it fails; empty if it is too long.

    >>> format_test_gist(test, schema, load_language(), holds=False)
    '0.5 * density + -1.25 * sugar > 0.875'
    """
    clause = test[0]
    if isinstance(clause, LinearClause):
        below = clause.below ^ (not holds)
        clause = LinearClause(clause.features, clause.weights, clause.threshold, below)
        text = _format_clause(clause, schema, words)
    else:
        side = 0 if holds else 1
        column = schema.columns[clause.feature]
        codes = [code for code, branch in enumerate(clause.branches) if branch == side]
        text = _format_choice(column, codes, words)
    text = words.say("test_if_known", gist=text) if len(test) > 1 else text
    return text if len(text) <= _MAX_GIST else ""


def _format_clause(clause: Clause, schema: Schema, words: Language) -> str:
    if not isinstance(clause, LinearClause):
        return _format_branches(schema.columns[clause.feature], clause.branches, words)
    names = [quote_name(schema.columns[feature].name, words) for feature in clause.features]
    key = "test_above" if clause.below else "test_upto"
    if (
        clause.weights == (1.0,)
        and floor_to_dtype(clause.threshold, schema.dtype) == clause.threshold
    ):
        (at,) = format_numbers(np.array([clause.threshold]), schema.dtype)
        return words.say(key, sum=names[0], at=at)
    weights = format_numbers(np.array(clause.weights), schema.dtype)
    total = " + ".join(f"{weight} * {name}" for weight, name in zip(weights, names, strict=True))
    (at,) = format_numbers(np.array([clause.threshold]))
    return words.say(key, sum=total, at=at)


def _format_branches(column: Column, branches: Sequence[int], words: Language) -> str:
    """Return the categories that hold, and those that fail unless they are all others."""
    sides = [[code for code, b in enumerate(branches) if b == side] for side in (0, 1)]
    if len(sides[0]) + len(sides[1]) == len(branches):
        return _format_choice(column, sides[0], words)
    holds, fails = (format_levels([column.levels[c] for c in side], words) for side in sides)
    return words.say("test_rather", name=quote_name(column.name, words), levels=holds, others=fails)


def _format_choice(column: Column, codes: Sequence[int], words: Language) -> str:
    levels = format_levels([column.levels[code] for code in codes], words)
    return words.say("if_is", name=quote_name(column.name, words), levels=levels)


def render_conditions(
    rules: RuleList,
    start: int,
    stop: int,
    words: Language | None = None,
    *,
    whole: bool = False,
) -> list[str]:
    """Return the conditions from `start` to `stop` as text, by default in English.

    With `whole`, tests are written in full, for texts that must be self-contained:
    ``(age <= 30; if that is unknown: town is Ulm) fails``.  Otherwise by their numbers.
    """
    table = rules.conditions
    fields = zip(
        range(start, stop),
        table.column[start:stop].tolist(),
        _format_bounds(rules, table.low[start:stop]),
        _format_bounds(rules, table.high[start:stop]),
        table.known[start:stop].tolist(),
        table.missing[start:stop].tolist(),
        strict=True,
    )
    writer = _ConditionWriter(rules, words or load_language(), whole=whole)
    return [writer.format_condition(*some) for some in fields]


class _ConditionWriter:
    """Writer of the conditions of one list; names, categories and tests are cached."""

    def __init__(self, rules: RuleList, words: Language, *, whole: bool) -> None:
        self.rules, self.table, self.words = rules, rules.conditions, words
        self.whole = whole
        self.columns = rules.schema.columns
        self.numeric = [column.kind == "numeric" for column in self.columns]
        self.names = [quote_name(column.name, words) for column in self.columns]
        self.test_names: dict[int, str] = {}
        self.is_level, self.is_known = words.sayer("if_is"), words.sayer("if_known")
        self.above, self.upto = words.sayer("if_above"), words.sayer("if_upto")
        self.between, self.or_missing = words.sayer("if_between"), words.sayer("if_or_missing")
        self.choices: dict[tuple[int, ...], str] = {}
        self.outcomes: dict[tuple[int, bool], str] = {}

    def get_name(self, column: int) -> str:
        """Return the name of a column, or of a test behind the columns."""
        if column < len(self.columns):
            return self.names[column]
        if column not in self.test_names:
            number = column - len(self.columns)
            if self.whole:
                text = format_test(self.rules.tests[number], self.rules.schema, self.words)
                self.test_names[column] = f"({text})"
            else:
                self.test_names[column] = self.words.say("test_name", number=str(number + 1))
        return self.test_names[column]

    def format_condition(
        self, at: int, column: int, low: str, high: str, known: bool, missing: bool
    ) -> str:
        """Return the text of condition `at`; `low` and `high` are empty if unbounded."""
        if not known:
            text = self._format_missing(at, column) if missing else self._format_never(column)
        else:
            if column >= len(self.columns):
                text = self._format_outcome(column, low, high)
            elif self.numeric[column]:
                text = self._format_interval(self.names[column], low, high)
            else:
                text = self._format_levels(at, column)
            if missing:
                text = self._add_missing(at, column, text)
        if missing and self.rules.mass > 1:
            part = int(self.table.part_low[at]), int(self.table.part_high[at])
            if part != (0, MASS):
                text = format_part(text, *part, self.words)
        return text

    def _format_interval(self, name: str, low: str, high: str) -> str:
        if low:
            if high:
                return self.between(name=name, low=low, high=high)
            return self.above(name=name, low=low)
        return self.upto(name=name, high=high) if high else self.is_known(name=name)

    def _format_levels(self, at: int, column: int) -> str:
        fits, _ = self.table.list_codes(at)
        if len(fits) == len(self.columns[column].levels):
            return self.is_known(name=self.names[column])
        return self.is_level(name=self.names[column], levels=self._format_choice(column, fits))

    def _format_choice(self, column: int, codes: list[int]) -> str:
        key = (column, *codes)
        if key not in self.choices:
            levels = self.columns[column].levels
            self.choices[key] = format_levels([levels[code] for code in codes], self.words)
        return self.choices[key]

    def _format_outcome(self, column: int, low: str, high: str) -> str:
        """Return the phrase for the outcome of a test, with the test itself if it is short."""
        name = self.get_name(column)
        if not low and not high:
            return self.words.say("if_decided", test=name)
        key = column, bool(high)
        if key not in self.outcomes and self.whole:
            self.outcomes[key] = self.words.say("if_holds" if high else "if_fails", test=name)
        if key not in self.outcomes:
            test = self.rules.tests[column - len(self.columns)]
            gist = format_test_gist(test, self.rules.schema, self.words, holds=bool(high))
            phrase = ("if_holds" if high else "if_fails") + ("_as" if gist else "")
            fields = {"gist": gist} if gist else {}
            self.outcomes[key] = self.words.say(phrase, test=name, **fields)
        return self.outcomes[key]

    def _format_never(self, column: int) -> str:
        if column < len(self.columns):
            return self.words.say("if_never", name=self.names[column])
        return self.words.say("if_undecidable", test=self.get_name(column))

    def _format_missing(self, at: int, column: int) -> str:
        name = self.get_name(column)
        if column >= len(self.columns):
            return self.words.say("if_unknown", test=name)
        if self.table.dividing[at]:
            levels = self._format_choice(column, self.table.list_codes(at)[1])
            return self.words.say("if_missing_levels", name=name, levels=levels)
        return self.words.say("if_missing", name=name)

    def _add_missing(self, at: int, column: int, text: str) -> str:
        if column >= len(self.columns):
            return self.words.say("if_or_unknown", condition=text)
        if self.table.dividing[at]:
            levels = self._format_choice(column, self.table.list_codes(at)[1])
            return self.words.say("if_or_missing_levels", condition=text, levels=levels)
        return self.or_missing(condition=text)


def _format_bounds(rules: RuleList, bounds: npt.NDArray[np.float64]) -> list[str]:
    """Return numerals of the finite bounds, empty texts for the infinite ones."""
    texts = np.full(len(bounds), "", dtype=object)
    finite = np.isfinite(bounds)
    texts[finite] = format_numbers(bounds[finite], rules.schema.dtype)
    result: list[str] = texts.tolist()
    return result


# ---------------------------------------------------------------- patterns
# Phrases as regular expressions, which recover the field values.
#
# `treekit.rules.wording.quote_name` quotes the words of the language, so that no name can be
# mistaken for a part of a phrase, nor a phrase for a name.

NUMBER_PATTERN = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
SHARE_PATTERN = r"[0-9]+(?:\.[0-9]+)?"
INTEGER_PATTERN = r"[0-9]+"
QUOTED_PATTERN = r'"(?:[^"\\]|\\.)*+"'
OPENED_PATTERN = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
"""A quoted text, or the rest after an unclosed quote, so that no search restarts inside it."""
_FREE_TEXT_PATTERN = rf'[^"]*(?:{QUOTED_PATTERN}[^"]*)*'
_FIELD_PATTERN = re.compile(r"\{([a-z_][a-z_0-9]*)\}")


class FieldPatterns:
    """Regular expressions for the values of phrase fields, in one language."""

    def __init__(self, words: Language) -> None:
        self.words = words
        own = "|".join(sorted(map(re.escape, words.words)))
        say = words.phrases
        self.name = rf"(?:{QUOTED_PATTERN}|(?!(?:{own})(?!\w))[^\W\d]\w*)"
        self.label = rf"(?:{self.name}|{NUMBER_PATTERN})"
        comma, last = re.escape(say["if_comma"]), re.escape(say["if_or"])
        nothing = re.escape(say["if_nothing"])
        self.levels = rf"(?:{self.name}(?:(?:{comma}{self.name})*{last}{self.name})?|{nothing})"
        self.listed = rf"{self.label}(?:{comma}{self.label})*+"
        self.test = re.escape(say["test_name"]).replace(r"\{number\}", INTEGER_PATTERN)
        self._level = re.compile(rf"({self.name})(?:{comma}|{last}|\Z)")

    @cached_property
    def by_field(self) -> dict[str, str]:
        """Patterns of the fields of conditions."""
        return {
            "name": self.name,
            "levels": self.levels,
            "others": self.levels,
            "test": self.test,
            "low": NUMBER_PATTERN,
            "high": NUMBER_PATTERN,
            "gist": _FREE_TEXT_PATTERN,
            "condition": _FREE_TEXT_PATTERN,
            "percent": r"[0-9.e+-]+",
        }

    def parse_levels(self, text: str) -> list[str]:
        """Return the categories in a list of categories."""
        if text == self.words.phrases["if_nothing"]:
            return []
        return [parse_name(match[1]) for match in self._level.finditer(text)]


class PhrasePatterns:
    """Parser of phrases, tried in order.

    Parameters
    ----------
    words : Language
    keys : sequence of str
        The phrases.
    atoms : mapping of str to str
        For each field a pattern without groups.
    """

    def __init__(self, words: Language, keys: Sequence[str], atoms: Mapping[str, str]) -> None:
        self.fields: dict[str, list[tuple[str, int]]] = {}
        parts, count = [], 0
        for key in keys:
            count += 1  # the group of the phrase closes last, so `lastgroup` is its key
            pattern, self.fields[key] = _make_pattern(words.phrases[key], atoms, count)
            parts.append(rf"(?P<{key}>{pattern})")
            count += len(self.fields[key])
        self._match = re.compile("|".join(parts), re.DOTALL).fullmatch

    def match_phrase(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Return the phrase that a text is, and its fields; None if it is none of them."""
        match = self._match(text)
        if match is None or match.lastgroup is None:
            return None
        key = match.lastgroup
        return key, {field: match[group] for field, group in self.fields[key]}


def _make_pattern(
    phrase: str, atoms: Mapping[str, str], groups: int
) -> tuple[str, list[tuple[str, int]]]:
    """Return a phrase's pattern, its groups numbered after `groups`, and each field's group."""
    found: dict[str, int] = {}
    pattern = ""
    for at, part in enumerate(_FIELD_PATTERN.split(phrase)):
        if at % 2 == 0:
            pattern += re.escape(part)
        elif part in found:  # repeated field: the same text
            pattern += rf"(?:\{found[part]})"
        else:
            found[part] = groups + len(found) + 1
            pattern += f"({atoms[part]})"
    return pattern, list(found.items())


def make_plain_pattern(phrase: str, atoms: Mapping[str, str]) -> str:
    """Return the pattern of a phrase without groups, to be a field of another phrase."""
    parts = _FIELD_PATTERN.split(phrase)
    return "".join(atoms[p] if at % 2 else re.escape(p) for at, p in enumerate(parts))


def split_outside_quotes(text: str, separator: str) -> Iterator[str]:
    """Generate the parts of a text between separators outside of quotes."""
    at = 0
    for match in re.finditer(rf"{OPENED_PATTERN}|({re.escape(separator)})", text):
        if match[1]:
            yield text[at : match.start()]
            at = match.end()
    yield text[at:]
