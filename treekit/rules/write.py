"""Rules as text that an auditor reads and `treekit.rules.read` executes.

Every fact stands once, in words or as the shortest exact numeral; explanations
follow from the facts, and the reader checks that they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column
from treekit.model.portable import units_per_tree
from treekit.rules.rulelist import RuleList
from treekit.rules.words import label_text, name_text, numerals, quote, share_text

__all__ = ["FIRST_LINE", "header", "pieces"]

FIRST_LINE = "treekit rules, format 1"

_RULES_A_PIECE = 2048

_TYPE = {
    "float32": "Every number is first rounded to the nearest float32, ties to the even one; "
    "the numbers in the rules are float32.",
    "float64": "Numbers are compared as they are, in double precision.",
}
_MISSING = {
    "direction": "A missing value meets a condition only where the rule says 'is missing'. "
    "What a rule does not ask may be missing.",
    "error": "A row with a missing value is refused.",
}
_UNKNOWN = {
    "missing": "A category that is not listed above counts as missing.",
    "error": "A row with a category that is not listed above is refused.",
}


def pieces(rules: RuleList, tree: int | None = None) -> Iterator[str]:
    """The text of `rules`, or of those of one tree, some thousand rules at a time."""
    yield "\n".join(header(rules)) + "\n"
    shares = _Shares(rules)
    start, stop = 0, len(rules)
    if tree is not None:  # the rules of a tree stand together, trees in order
        start, stop = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    for first in range(start, stop, _RULES_A_PIECE):
        last = min(first + _RULES_A_PIECE, stop)
        yield "".join(_rule_texts(rules, first, last, shares))


def header(rules: RuleList) -> list[str]:
    """The lines before the first rule: all that holds for every rule."""
    schema = rules.schema
    lines = [FIRST_LINE, "", f"target   {name_text(schema.target)}"]
    if schema.task == "classification":
        lines.append("classes  " + ", ".join(label_text(label) for label in schema.classes))
    else:
        lines.append("classes  none: the target is a number")
    lines.append(f"columns  {schema.n_features}")
    lines.extend(f"  {_column_text(column)}" for column in schema.columns)
    lines += [f"type     {schema.dtype}", f"  {_TYPE[schema.dtype]}"]
    lines += [f"missing  {rules.missing}", f"  {_MISSING[rules.missing]}"]
    lines += [f"unknown  {rules.unknown}", f"  {_UNKNOWN[rules.unknown]}"]
    lines.append(f"trees    {rules.n_trees}")
    lines.append("  Of each tree exactly one rule fits a row: whose conditions are all met.")
    lines += _vote(rules)
    lines += ["  'support' is the training weight that reached the rule.", f"rules    {len(rules)}"]
    return lines


def _column_text(column: Column) -> str:
    if column.kind == "numeric":
        return f"{name_text(column.name)}: a number"
    return f"{name_text(column.name)}: one of {_set_text(column.levels)}"


def _set_text(levels: Sequence[str]) -> str:
    return "{" + ", ".join(quote(level) for level in levels) + "}"


def _vote(rules: RuleList) -> list[str]:
    """How the rules that fit a row make an answer."""
    if rules.schema.task == "regression":
        mean = (
            "its rule's number"
            if rules.n_trees == 1
            else (f"the sum of its {rules.n_trees} rules' numbers, divided by {rules.n_trees}")
        )
        return [
            f"step     2**{rules.exponent}",
            f"  The answer is {mean}.",
            "  Every number is a whole multiple of the step, so that no sum is ever rounded.",
        ]
    units = units_per_tree(rules.n_trees, rules.schema.dtype)
    return [
        f"votes    {units}",
        "  A rule names the classes' shares of its votes; a class that is not named has none.",
        f"  A share times {units}, to the nearest whole number, is a class's votes. The answer",
        "  is the class with most votes over all trees, among equals the one listed first above;",
        f"  its probability is its votes divided by {rules.unit_total}.",
    ]


class _Shares:
    """The texts after 'then': labels and shares, each distinct share written once."""

    def __init__(self, rules: RuleList) -> None:
        self.labels = [label_text(label) for label in rules.schema.classes]
        distinct = np.unique(rules.units) if self.labels else np.empty(0, dtype=np.int64)
        total = units_per_tree(rules.n_trees, rules.schema.dtype)
        self.text = {int(u): share_text(int(u), total) for u in distinct.tolist()}

    def then(self, units: list[int], support: str) -> str:
        """The last line of a rule of a classification model."""
        label = self.labels[units.index(max(units))]
        named = zip(self.labels, units, strict=True)
        shares = ", ".join(f"{name}: {self.text[u]}" for name, u in named if u)
        return f"  then {label}   support {support}   {shares}\n"


def _rule_texts(rules: RuleList, first: int, last: int, shares: _Shares) -> Iterator[str]:
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = _condition_texts(rules, start, stop)
    supports = numerals(rules.support[first:last])
    units = rules.units[first:last].tolist()
    values = _value_texts(rules, first, last)
    places = zip(rules.tree[first:last].tolist(), rules.leaf[first:last].tolist(), strict=True)
    at = 0
    for number, (tree, leaf) in enumerate(places):
        of_tree = f", tree {tree + 1} of {rules.n_trees}" if rules.n_trees > 1 else ""
        end = int(rules.end[first + number]) - start
        mine = "\n  and ".join(conditions[at:end])
        condition = f"  if  {mine}\n" if mine else "  always\n"
        at = end
        if values is None:
            then = shares.then(units[number], supports[number])
        else:
            then = f"  then {values[number]}   support {supports[number]}\n"
        place = f"rule {first + number + 1} of {len(rules)}{of_tree}, node {leaf}"
        yield f"\n{place}\n{condition}{then}"


def _value_texts(rules: RuleList, first: int, last: int) -> list[str] | None:
    if rules.schema.task == "classification":
        return None
    return numerals(np.ldexp(rules.units[first:last, 0].astype(np.float64), rules.exponent))


def _condition_texts(rules: RuleList, start: int, stop: int) -> list[str]:
    table, schema = rules.conditions, rules.schema
    names = [name_text(column.name) for column in schema.columns]
    n_levels, nominal = schema.n_levels.tolist(), schema.nominal.tolist()
    lows = _bound_texts(rules, table.low[start:stop])
    highs = _bound_texts(rules, table.high[start:stop])
    fields = zip(
        table.column[start:stop].tolist(),
        lows,
        highs,
        table.known[start:stop].tolist(),
        table.missing[start:stop].tolist(),
        [table.level_start(at) for at in range(start, stop)],
        table.level_end[start:stop].tolist(),
        strict=True,
    )
    texts = []
    for column, low, high, known, missing, level, level_end in fields:
        name = names[column]
        if not known:
            text = f"{name} is missing" if missing else f"{name} has no possible value"
        elif nominal[column]:
            if level_end - level == n_levels[column]:
                text = f"{name} is known"
            else:
                codes = table.levels[level:level_end].tolist()
                text = name + _level_text(schema.columns[column], codes)
        elif low and high:
            text = f"{name} > {low} and {name} <= {high}"
        elif low or high:
            text = f"{name} > {low}" if low else f"{name} <= {high}"
        else:
            text = f"{name} is known"
        texts.append(text + ", or is missing" if known and missing else text)
    return texts


def _bound_texts(rules: RuleList, bounds: npt.NDArray[np.float64]) -> list[str]:
    """Numerals of the finite bounds, empty texts for the infinite ones."""
    texts = np.full(len(bounds), "", dtype=object)
    finite = np.isfinite(bounds)
    texts[finite] = numerals(bounds[finite], rules.schema.dtype)
    result: list[str] = texts.tolist()
    return result


def _level_text(column: Column, codes: list[int]) -> str:
    levels = [column.levels[code] for code in codes]
    return f" is {quote(levels[0])}" if len(levels) == 1 else f" is one of {_set_text(levels)}"
