"""Names, labels, numbers, conditions and outcomes in words, for rules and documents.

The text of rules parses to the same values.  There anything but a plain word is quoted, with
every character escaped that could break a line, be invisible, or change the display order of
a line: a name can neither forge a rule nor be disguised as one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_float
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype, Label, Schema
from treekit.model.fixed_point import MASS, floor_to_dtype, scale_units
from treekit.model.model import expand_exponent, predict_labels
from treekit.model.split_tests import BranchCondition
from treekit.rules.language import Language, load_language
from treekit.rules.rule_list import Clause, ConditionTuple, LinearClause, RuleList, Test

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


def quote_unprintable(text: str) -> str:
    """Return `text`, quoted if it is not printable."""
    return text if text.isprintable() else quote_text(text)


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


_DISPLAY_NAME = re.compile(r"[\w<>=+-](?:[\w<>=+\-./%()&' ]*[\w<>=+\-.%)])?")


def format_label(label: Label) -> str:
    """Return a name or label for display on its own, quoted where it might be misread."""
    if not isinstance(label, str):
        return quote_label(label)
    return label if label.isprintable() and _DISPLAY_NAME.fullmatch(label) else quote_text(label)


_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")
"""Half-width and full-width characters that start a formula in spreadsheets."""


def quote_unsafe(label: Label) -> Label:
    """Return a label, quoted if a spreadsheet or a reader could misinterpret it.

    Labels that begin with a double quote are quoted, too: `unquote_text` restores the original.
    """
    if not isinstance(label, str):
        return label
    start = label.strip()[:1]
    tame = start and start != '"' and start not in _FORMULA_SIGNS and label.isprintable()
    return label if tame else quote_text(label)


def format_number(value: float, dtype: Dtype = "float64") -> str:
    """Return the shortest text of a finite number; see `format_numbers`."""
    return format_numbers(np.array([value]), dtype)[0]


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
    value = _round_to_dtype(float(text), dtype)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite {dtype}")
    return value


def _round_to_dtype(value: float, dtype: Dtype) -> float:
    return c_float(value).value if dtype == "float32" else value


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


# ---------------------------------------------------------------- rounded numbers


def format_rounded(value: float, digits: int) -> str:
    """Format integers exactly, other numbers to some significant digits, and NaN as ""."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return format_number(float(f"{value:.{digits}g}"))


def format_percent(part: float) -> str:
    """Format a fraction in per cent with one decimal; only 0 and 1 themselves give 0% and 100%.

    >>> [format_percent(part) for part in (0.0004, 0.9782, 0.99996)]
    ['<0.1%', '97.8%', '>99.9%']
    """
    if math.isnan(part):
        return ""
    if part in (0, 1):
        return f"{part:.0%}"
    text = f"{part:.1%}"
    return {"0.0%": "<0.1%", "100.0%": ">99.9%"}.get(text, text)


# ---------------------------------------------------------------- conditions and tests
# `treekit.rules.read_text` parses these texts.

_MAX_GIST = 60
"""Maximum length of a test that is shown in the rules that refer to it."""


def format_levels(levels: Sequence[str], words: Language) -> str:
    """Return categories as a choice.

    >>> format_levels(["red", "green", "dark blue"], load_language())
    'red, green or "dark blue"'
    """
    return join_choices([quote_name(level, words) for level in levels], words)


def join_choices(texts: Sequence[str], words: Language, max_length: int | None = None) -> str:
    """Join texts as a choice; those after about `max_length` characters are counted instead.

    >>> join_choices(["aa", "bb", "cc", "dd"], load_language(), 8)
    'aa, bb or 2 more'
    """
    shown = list(texts)
    if max_length is not None:
        lengths = itertools.accumulate(len(text) + 2 for text in texts)
        n = max(sum(length <= max_length for length in lengths), 1)
        if n < len(texts):
            shown[n:] = [words.say("choice_more", count=len(texts) - n)]
    if len(shown) < 2:
        return shown[0] if shown else words.say("if_nothing")
    return words.phrases["if_comma"].join(shown[:-1]) + words.phrases["if_or"] + shown[-1]


def format_part(condition: str, low: int, high: int, words: Language) -> str:
    """Return a condition with the bounds of a part of a row's mass, and its percentage."""
    percent = f"{100 * (high - low) / MASS:.3g}"
    return words.say("if_part", condition=condition, low=low, high=high, percent=percent)


def format_sum(weights: Sequence[float], names: Sequence[str], dtype: Dtype) -> str:
    """Return a weighted sum of columns."""
    texts = format_numbers(np.array(weights), dtype)
    return " + ".join(f"{weight} * {name}" for weight, name in zip(texts, names, strict=True))


def format_branch(
    condition: BranchCondition,
    dtype: Dtype,
    words: Language,
    *,
    max_length: int | None = None,
    style: str = "if",
    quote: Callable[[str], str] | None = None,
    join_sum: Callable[[Sequence[float], Sequence[str]], str] | None = None,
) -> str:
    """Format the condition of a branch as text.

    Parameters
    ----------
    condition : BranchCondition
    dtype : {"float32", "float64"}
        Type of thresholds; thresholds of weighted sums are always float64.
    words : Language
    max_length : int, optional
        Characters after which further categories are counted instead of named.
    style : str
        Prefix of the phrases in the catalogue.
    quote, join_sum : callable, optional
        Functions that format a name, and a weighted sum of names; by default those of rules.
    """
    quote = quote or partial(quote_name, words=words)
    join_sum = join_sum or partial(format_sum, dtype=dtype)
    names = list(map(quote, condition.columns))
    name = join_sum(condition.weights, names) if condition.weights else names[0]
    if not condition.known:
        return words.say(f"{style}_{'missing' if condition.missing else 'never'}", name=name)
    low, high = (
        format_number(end, "float64" if condition.weights else dtype) if math.isfinite(end) else ""
        for end in (condition.low, condition.high)
    )
    levels = list(map(quote, condition.levels or ()))
    choice = join_choices(levels, words, max_length) if levels else ""
    text = _format_known(style, name, low, high, choice, words)
    return words.say(f"{style}_or_missing", condition=text) if condition.missing else text


def _format_known(style: str, name: str, low: str, high: str, levels: str, words: Language) -> str:
    """Return the text of a condition on known values; `low`, `high` and `levels` may be empty."""
    key = "is" if levels else "between" if low and high else "above" if low else "upto"
    if not (levels or low or high):
        key = "known"
    write = words.sayer(f"{style}_{key}")
    return write(name=name, low=low, high=high, levels=levels)


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
    text = _format_clause(test[0], schema, words, side=0 if holds else 1, gist=True)
    text = words.say("test_if_known", gist=text) if len(test) > 1 else text
    return text if len(text) <= _MAX_GIST else ""


def _format_clause(
    clause: Clause, schema: Schema, words: Language, *, side: int = 0, gist: bool = False
) -> str:
    """Return the condition for a side: 0 where the clause holds, 1 where it fails.

    A gist omits the categories that fail, which are named unless they are all others.
    """
    if not isinstance(clause, LinearClause):
        column, branches = schema.columns[clause.feature], clause.branches
        own = [[x for x, b in zip(column.levels, branches, strict=True) if b == s] for s in (0, 1)]
        holds, fails = (format_levels(levels, words) for levels in own)
        fields = {"name": quote_name(column.name, words), "others": fails}
        if gist or {0, 1}.issuperset(branches):
            return words.say("if_is", levels=fails if side else holds, **fields)
        return words.say("test_rather", levels=holds, **fields)
    names = [quote_name(schema.columns[feature].name, words) for feature in clause.features]
    key = "test_above" if clause.below ^ side else "test_upto"
    at, dtype = clause.threshold, schema.dtype
    if clause.weights == (1.0,) and floor_to_dtype(at, dtype) == at:
        return words.say(key, sum=names[0], at=format_number(at, dtype))
    return words.say(key, sum=format_sum(clause.weights, names, dtype), at=format_number(at))


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
    table, dtype = rules.conditions, rules.schema.dtype
    writer = _ConditionWriter(rules, words or load_language(), whole=whole)
    return list(
        map(
            writer.format_condition,
            table.iterate_conditions(start, stop),
            format_bounds(table.low[start:stop], dtype),
            format_bounds(table.high[start:stop], dtype),
        )
    )


class _ConditionWriter:
    """Writer of the conditions of one list; forests repeat theirs, so that texts are cached."""

    def __init__(self, rules: RuleList, words: Language, *, whole: bool) -> None:
        self.rules, self.words, self.whole = rules, words, whole
        self.columns = rules.schema.columns
        self.format_name = cache(self._format_name)
        self.format_choice = cache(self._format_choice)
        self.format_outcome = cache(self._format_outcome)
        self.format_condition = cache(self._format_condition)

    def _format_name(self, column: int) -> str:
        """Return the name of a column, or of a test behind the columns."""
        number = column - len(self.columns)
        if number < 0:
            return quote_name(self.columns[column].name, self.words)
        if self.whole:
            return f"({format_test(self.rules.tests[number], self.rules.schema, self.words)})"
        return self.words.say("test_name", number=number + 1)

    def _format_condition(self, asked: ConditionTuple, low: str, high: str) -> str:
        """Return the text of a condition; `low` and `high` are empty if unbounded."""
        words, column = self.words, asked.column
        name, is_test = self.format_name(column), column >= len(self.columns)
        if asked.known:
            if is_test:
                text = self.format_outcome(column, bool(low), bool(high))
            elif self.columns[column].kind == "nominal":
                text = self._format_levels(column, asked.fits)
            else:
                text = _format_known("if", name, low, high, "", words)
            if not asked.missing:
                return text
        elif not asked.missing:
            return words.say("if_undecidable" if is_test else "if_never", name=name, test=name)
        levels = self.format_choice(column, *asked.dividing) if asked.dividing else ""
        key = "unknown" if is_test else "missing_levels" if levels else "missing"
        if asked.known:
            text = words.say(f"if_or_{key}", condition=text, levels=levels)
        else:
            text = words.say(f"if_{key}", name=name, test=name, levels=levels)
        if self.rules.mass == 1 or asked.part == (0, MASS):
            return text
        return format_part(text, *asked.part, words)

    def _format_levels(self, column: int, fits: tuple[int, ...]) -> str:
        """Return the condition on the categories of a column."""
        name = self.format_name(column)
        if len(fits) == len(self.columns[column].levels):
            return self.words.say("if_known", name=name)
        return self.words.say("if_is", name=name, levels=self.format_choice(column, *fits))

    def _format_choice(self, column: int, *codes: int) -> str:
        levels = self.columns[column].levels
        return format_levels([levels[code] for code in codes], self.words)

    def _format_outcome(self, column: int, fails: bool, holds: bool) -> str:
        """Return the phrase for the outcome of a test, with the test itself if it is short."""
        name, words = self.format_name(column), self.words
        if not fails and not holds:
            return words.say("if_decided", test=name)
        test, schema = self.rules.tests[column - len(self.columns)], self.rules.schema
        gist = "" if self.whole else format_test_gist(test, schema, words, holds=holds)
        key = ("if_holds" if holds else "if_fails") + ("_as" if gist else "")
        return words.say(key, test=name, gist=gist)


def find_otherwise_rules(rules: RuleList) -> npt.NDArray[np.bool_]:
    """Return (rules,) bool: whether a rule covers all rows that the rules before it leave."""
    changes, sizes = np.diff(rules.tree, prepend=-1), np.diff(rules.end, prepend=0)
    return np.logical_not(changes | sizes) & (rules.order == "first")


def format_bounds(bounds: npt.NDArray[np.float64], dtype: Dtype, unbounded: str = "") -> list[str]:
    """Return numerals of the finite bounds, and `unbounded` for the infinite ones."""
    texts = np.full(len(bounds), unbounded, dtype=object)
    finite = np.isfinite(bounds)
    texts[finite] = format_numbers(bounds[finite], dtype)
    result: list[str] = texts.tolist()
    return result


# ---------------------------------------------------------------- outcomes

Units = npt.NDArray[np.int64]


class OutcomeText(NamedTuple):
    """Outcome of one rule for one target.

    Attributes
    ----------
    target : str
        Name of the target if there are several; else empty.
    text : str
        The label, or the number; for margins `shares` in one line.
    shares : tuple of (str, str)
        Labels with votes and their shares, or margins with the amounts added to them.
    label : int
        Number of the class; -1 if the rule names none.
    """

    target: str
    text: str
    shares: tuple[tuple[str, str], ...] = ()
    label: int = -1


def join_outcomes(
    outcomes: Sequence[OutcomeText], separator: str, markup: Callable[[str], str] = str
) -> str:
    """Return the outcomes for each target in one line; texts are passed through `markup`."""
    return separator.join(
        f"{markup(one.target)}: {markup(one.text)}" if one.target else markup(one.text)
        for one in outcomes
    )


class OutcomeFormatter:
    """Texts of the outcomes of rules; each distinct share is formatted once.

    Parameters
    ----------
    rules : RuleList
    words : Language
    name : function from label to str, optional
        Text of names and labels, such as `format_label`; default `quote_label`.
    nothing : str, optional
        Text of a rule that adds to no margin; default that of rule text.
    share : function from units and their total to str
        Text of a share; default the shortest that parses to the units.
    """

    def __init__(
        self,
        rules: RuleList,
        words: Language,
        name: Callable[[Label], str] | None = None,
        nothing: str | None = None,
        share: Callable[[int, int], str] = format_share,
    ) -> None:
        self.rules, self.words, outputs = rules, words, rules.schema.outputs
        self.nothing = words.say("rule_nothing") if nothing is None else nothing
        name = name or partial(quote_label, words=words)
        self.names = [name(output.name) if len(outputs) > 1 else "" for output in outputs]
        self.labels = [list(map(name, output.classes)) for output in outputs]
        self.has_votes = rules.schema.task == "classification" and not rules.margins
        self.share_texts: dict[int, str] = {}
        if self.has_votes:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.share_texts = {units: share(units, total) for units in distinct}

    def format_outcomes(self, first: int, last: int) -> Iterator[tuple[OutcomeText, ...]]:
        """Return the outcomes for each target of the rules from `first` to `last`."""
        targets = (self.format_target(k, first, last) for k in range(len(self.names)))
        return zip(*targets, strict=True)

    def format_target(self, k: int, first: int, last: int) -> list[OutcomeText]:
        """Return the outcomes for target `k` of the rules from `first` to `last`."""
        name, labels = self.names[k], self.labels[k]
        units = self.rules.units[first:last]
        if self.rules.margins:
            texts = iter(self._format_units(units[units != 0], k))
            added = [
                tuple((labels[code], next(texts)) for code in np.flatnonzero(row).tolist())
                for row in units
            ]
            return [OutcomeText(name, self.join_shares(row) or self.nothing, row) for row in added]
        votes = units[:, slice(*self.rules.schema.blocks[k : k + 2])]
        if not self.has_votes:
            return [OutcomeText(name, text) for text in self._format_units(votes[:, 0], k)]
        found, share = [], self.share_texts
        codes = predict_labels(votes, self.rules.costs).tolist()
        for code, row in zip(codes, votes.tolist(), strict=True):
            labelled = zip(labels, row, strict=True)
            pairs = tuple((label, share[own]) for label, own in labelled if own)
            found.append(OutcomeText(name, labels[code], pairs, code))
        return found

    def join_shares(self, shares: tuple[tuple[str, str], ...]) -> str:
        """Return labels and their shares, or amounts, in one line."""
        write = self.words.sayer("rule_share")
        return self.words.phrases["rule_comma"].join(write(label=a, share=b) for a, b in shares)

    def _format_units(self, units: Units, k: int) -> list[str]:
        """Return the numbers of target `k`, from integers (rules,)."""
        return format_numbers(scale_units(units, expand_exponent(self.rules)[k]))


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
FREE_TEXT_PATTERN = rf'[^"]*(?:{QUOTED_PATTERN}[^"]*)*'
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
        self.by_field = {
            "name": self.name,
            "levels": self.levels,
            "others": self.levels,
            "test": self.test,
            "low": NUMBER_PATTERN,
            "high": NUMBER_PATTERN,
            "gist": FREE_TEXT_PATTERN,
            "condition": FREE_TEXT_PATTERN,
            "percent": r"[0-9.e+-]+",
        }
        """Patterns of the fields of conditions."""

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
        self._patterns = [(key, _compile_phrase(words.phrases[key], atoms)) for key in keys]

    def match_phrase(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Return the phrase that a text is, and its fields; None if it is none of them."""
        for key, pattern in self._patterns:
            if (match := pattern.fullmatch(text)) is not None:
                return key, match.groupdict()
        return None


def _compile_phrase(phrase: str, atoms: Mapping[str, str]) -> re.Pattern[str]:
    """Return the pattern of a phrase, with a group for each field."""
    fields: set[str] = set()
    pattern = ""
    for at, part in enumerate(_FIELD_PATTERN.split(phrase)):
        if at % 2 == 0:
            pattern += re.escape(part)
        elif part in fields:  # repeated field: the same text
            pattern += f"(?P={part})"
        else:
            fields.add(part)
            pattern += f"(?P<{part}>{atoms[part]})"
    return re.compile(pattern, re.DOTALL)


def split_outside_quotes(text: str, separator: str) -> Iterator[str]:
    """Generate the parts of a text between separators, a pattern, outside of quotes."""
    at = 0
    for match in re.finditer(rf"{OPENED_PATTERN}|({separator})", text):
        if match[1]:
            yield text[at : match.start()]
            at = match.end()
    yield text[at:]
