"""What decisions answer: literals of each rule, and sums over the trees in FEEL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from treekit.errors import SettingError
from treekit.forms.feel import literal, number
from treekit.forms.outcomes import label_codes, numbers, shares
from treekit.rules.rule_list import RuleList

__all__ = ["check_sayable", "outputs_of", "rule_answers", "summed", "votes_of"]

Output = tuple[str, str, str]
"""Name, type and label of an output."""


def outputs_of(rules: RuleList) -> list[Output]:
    """What the answer holds: labels and probabilities of each target, or numbers."""
    schema, made = rules.schema, []
    for place, output in enumerate(schema.outputs, 1):
        own = f"_{place}" if schema.more else ""
        if schema.task == "regression":
            made.append((f"value{own}", "number", output.name))
            continue
        made.append((f"label{own}", _type(output.classes[0]), output.name))
        kind = "margin" if rules.margins else "probability"
        for code, label in enumerate(output.classes, 1):
            made.append((f"{kind}{own}_{code}", "number", f"{kind}: {output.name} = {label}"))
    return made


def _type(label: object) -> str:
    if isinstance(label, bool):
        return "boolean"
    return "string" if isinstance(label, str) else "number"


def rule_answers(rules: RuleList) -> Iterator[list[str]]:
    """For each rule of one tree the literals of `outputs_of`."""
    if rules.schema.task == "regression":
        yield from ([number(x) for x in row] for row in numbers(rules).tolist())
        return
    said: dict[float, str] = {}
    values = numbers(rules) if rules.margins else shares(rules)
    labels = [[literal(v) for v in output.classes] for output in rules.schema.outputs]
    codes, blocks = label_codes(rules), list(itertools.pairwise(rules.schema.blocks))
    for place, row in enumerate(values.tolist()):
        texts = [said[x] if x in said else said.setdefault(x, number(x)) for x in row]
        answer = []
        for own, code, (first, last) in zip(labels, codes, blocks, strict=True):
            answer += [own[int(code[place])], *texts[first:last]]
        yield answer


def votes_of(rules: RuleList) -> Iterator[list[str]]:
    """For each rule its whole numbers, to be summed over the trees."""
    return ([str(unit) for unit in row] for row in rules.units.tolist())


def summed(rules: RuleList) -> str:
    """An expression from the trees' decisions to the answer, a context.

    Sums are of whole numbers, so that they are exact; one division follows.
    """
    schema = rules.schema
    single = schema.n_values == 1
    trees = [f"tree_{tree + 1}" for tree in range(rules.n_trees)]
    votes = [
        "sum([" + ", ".join(tree if single else f"{tree}.v_{k + 1}" for tree in trees) + "])"
        for k in range(schema.n_values)
    ]
    parts = [f"s_{k + 1}: {vote}" for k, vote in enumerate(votes)]
    names = iter(name for name, _, _ in outputs_of(rules))
    for output, (first, last) in zip(
        schema.outputs, itertools.pairwise(schema.blocks), strict=True
    ):
        own = [f"s_{k + 1}" for k in range(first, last)]
        if output.classes:
            parts.append(f"{next(names)}: {_label(rules, output.classes, own)}")
        parts += [f"{next(names)}: {_scaled(rules, one)}" for one in own]
    return "{" + ", ".join(parts) + "}"


def _label(rules: RuleList, classes: tuple[bool | int | float | str, ...], sums: list[str]) -> str:
    labels = ", ".join(map(literal, classes))
    least, those = "max", sums
    if rules.costs is not None:
        least = "min"
        those = [
            " + ".join(f"{cost} * {one}" for cost, one in zip(column, sums, strict=True))
            for column in rules.costs.T.tolist()
        ]
    listed = "[" + ", ".join(those) + "]"
    return f"[{labels}][index of({listed}, {least}({listed}))[1]]"


def _scaled(rules: RuleList, total: str) -> str:
    """A sum as the answer's number."""
    if rules.schema.task == "classification" and not rules.margins:
        return f"{total} / {rules.unit_total}"
    above, below = 1, 1 if rules.margins else rules.divisor
    if rules.exponent >= 0:
        above <<= rules.exponent
    else:
        below <<= -rules.exponent
    return total + (f" * {above}" if above > 1 else "") + (f" / {below}" if below > 1 else "")


def check_sayable(rules: RuleList) -> None:
    """Refuse what FEEL cannot say exactly.

    Raises
    ------
    SettingError
    """
    if rules.mass > 1:
        raise SettingError(
            "a decision table cannot divide a row among rules, and the rules' missing policy is "
            "'fractional': write form 'text'"
        )
    if rules.link != "identity" and rules.schema.task == "regression":
        raise SettingError(
            f"FEEL cannot work out the link {rules.link!r} as the model does: write form 'text'"
        )
    if not np.isfinite(numbers(rules)).all():
        raise SettingError("FEEL has no infinite numbers: write form 'text'")
