"""What the text of rules says before the first rule.

Every fact stands once; explanations follow from the facts, and the reader
checks that they do.
"""

from __future__ import annotations

from collections.abc import Iterator

from treekit.data.schema import Column, Output
from treekit.model.links import LN2_HIGH, LN2_LOW, LOG2_E
from treekit.model.portable import MASS
from treekit.rules.phrases import set_text, test_text
from treekit.rules.rulelist import RuleList
from treekit.rules.words import label_text, name_text

__all__ = ["FIRST_LINE", "header"]

FIRST_LINE = "treekit rules, format 1"

_TYPE = {
    "float32": "Every number is first rounded to the nearest float32, ties to the even one; "
    "the numbers in the rules are float32.",
    "float64": "Numbers are compared as they are, in double precision.",
}
_ASKED = (
    "A missing value meets a condition only where the rule says 'is missing'. "
    "What a rule does not ask may be missing."
)
_MISSING = {
    "direction": [_ASKED],
    "surrogate": [_ASKED],
    "fractional": [
        _ASKED,
        f"A row has a mass of {MASS}. Where a rule says 'is missing: A to B', a missing value",
        f"keeps floor(mass * B / {MASS}) - floor(mass * A / {MASS}) of the mass that the",
        "conditions before have left, about as many per cent as stated; the same holds for the",
        "levels named there, and for 'is unknown: A to B'. Else what meets a condition keeps all.",
    ],
    "error": ["A row with a missing value is refused."],
}
_UNKNOWN = {
    "missing": "A category that is not listed above counts as missing.",
    "error": "A row with a category that is not listed above is refused.",
}
_TESTS = (
    "A sum is taken in double precision from left to right, without other rounding; it is",
    "unknown if a number in it is missing, or if infinities cancel. A category is unknown if",
    "it is missing or, where two sets are named, in neither of them.",
)
_FIRST = (
    "  Of each tree the rules are asked in their order, and the first one answers whose conditions",
    "  are all met; 'otherwise' answers where none before did.",
)
_MARGINS = (
    "  A rule names what it adds to the margins of classes; to those not named it adds nothing.",
    "  The answer is the class of the largest margin over all trees, among equals the one listed",
    "  first above.",
)
_LINKS = {
    "exp": ("The answer is exp(margin).",),
    "sigmoid": ("With e = exp(-|margin|), it becomes 1 / (1 + e), or e / (1 + e) below 0.",),
    "softmax": (
        "A class's probability is its exp(margin - the largest margin), divided by the sum of",
        "all these, which are added in the order of the classes.",
    ),
}
_EXP = (
    "exp(x) is computed in double precision: x is kept within -700 and 700; n is the whole",
    f"number floor(x * {LOG2_E!r} + 0.5); r is (x - n * {LN2_HIGH!r})",
    f"- n * {LN2_LOW!r}; p begins as the double nearest to 1/13!, and for k from 12",
    "down to 0 becomes p * r plus the double nearest to 1/k!; exp(x) is p * 2**n.",
)


def header(rules: RuleList) -> list[str]:
    """The lines before the first rule: all that holds for every rule."""
    schema = rules.schema
    lines = [FIRST_LINE, "", *_targets(rules), f"columns  {schema.n_features}"]
    lines.extend(f"  {_column_text(column)}" for column in schema.columns)
    lines += [f"type     {schema.dtype}", f"  {_TYPE[schema.dtype]}"]
    lines += [f"missing  {rules.missing}", *(f"  {line}" for line in _MISSING[rules.missing])]
    lines += [f"unknown  {rules.unknown}", f"  {_UNKNOWN[rules.unknown]}"]
    lines += _tests(rules)
    lines.append(f"trees    {rules.n_trees}")
    if rules.mass > 1:
        lines.append("  A row fits each rule that leaves it some mass: in each tree all of it.")
    elif rules.order == "first":
        lines += ["order    first", *_FIRST]
    else:
        lines.append("  Of each tree exactly one rule fits a row: whose conditions are all met.")
    lines += [*_costs(rules), *_vote(rules)]
    support = "  'support' is the training weight that reached the rule."
    if rules.as_parent.any():
        support += " Where none did, 'as above'"
        lines += [support, "  says that the rule answers as the node above it would."]
    else:
        lines.append(support)
    return [*lines, f"rules    {len(rules)}"]


def _targets(rules: RuleList) -> Iterator[str]:
    first, *more = rules.schema.outputs
    if more:
        yield f"targets  {len(more) + 1}"
        for output in (first, *more):
            kind = f"one of {_labels_text(output)}" if output.classes else "a number"
            yield f"  {name_text(output.name)}: {kind}"
        return
    yield f"target   {name_text(first.name)}"
    yield f"classes  {_labels_text(first) if first.classes else 'none: the target is a number'}"


def _labels_text(output: Output) -> str:
    return ", ".join(label_text(label) for label in output.classes)


def _column_text(column: Column) -> str:
    if column.kind == "numeric":
        return f"{name_text(column.name)}: a number"
    return f"{name_text(column.name)}: one of {set_text(column.levels)}"


def _tests(rules: RuleList) -> Iterator[str]:
    if not rules.tests:
        return
    yield f"tests    {len(rules.tests)}"
    for number, test in enumerate(rules.tests, 1):
        yield f"  test {number}: {test_text(test, rules.schema)}"
    yield from (f"  {line}" for line in _TESTS)


def _costs(rules: RuleList) -> Iterator[str]:
    if rules.costs is None:
        return
    labels = [label_text(label) for label in rules.schema.classes]
    yield f"costs    {len(labels)}"
    for label, row in zip(labels, rules.costs.tolist(), strict=True):
        said = ", ".join(f"{other}: {cost}" for other, cost in zip(labels, row, strict=True))
        yield f"  when it is {label}, what each answer costs   {said}"


def _vote(rules: RuleList) -> list[str]:
    """How the rules that fit a row make an answer."""
    several = bool(rules.schema.more)
    if rules.margins:
        return [*_step(rules), *_MARGINS, *_link(rules)]
    if rules.schema.task == "regression":
        said = f"  The answer is {_mean(rules, several)}."
        if rules.link != "identity":
            said = f"  The margin is {_mean(rules, several)}."
        return [*_step(rules), said, *_link(rules)]
    units = rules.units_each
    counted = ", times the mass of the row" if rules.mass > 1 else ""
    lines = [
        f"votes    {units}",
        "  A rule names the classes' shares of its votes; a class that is not named has none.",
        f"  A share times {units}, to the nearest whole number{counted}, is a class's votes. The "
        "answer",
        "  is the class with most votes over all trees, among equals the one listed first above;",
        f"  its probability is its votes divided by {rules.unit_total}.",
    ]
    if rules.costs is not None:
        lines[3:4] = [
            "  is the class of least cost, among equals the one listed first above: over all",
            "  classes that it may be, the votes over all trees times the cost of that answer;",
        ]
    if several:
        lines.append("  Each target has such votes of its own.")
    return lines


def _step(rules: RuleList) -> Iterator[str]:
    if rules.combine == "sum":
        yield "combine  sum"
    yield f"step     2**{rules.exponent}"
    yield "  Every number is a whole multiple of the step, so that no sum is ever rounded."


def _link(rules: RuleList) -> Iterator[str]:
    if rules.link != "identity":
        yield f"link     {rules.link}"
        yield from (f"  {line}" for line in (*_LINKS[rules.link], *_EXP))


def _mean(rules: RuleList, several: bool) -> str:
    whose = " for its target" if several else ""
    if rules.mass > 1:
        total = rules.n_trees * MASS
        return f"the sum over its rules of their number{whose} times its mass, divided by {total}"
    if rules.combine == "sum" and rules.n_trees > 1:
        return f"the sum of its {rules.n_trees} rules' numbers{whose}"
    if rules.n_trees == 1:
        return f"its rule's number{whose}"
    n = rules.n_trees
    return f"the sum of its {n} rules' numbers{whose}, divided by {n}"
