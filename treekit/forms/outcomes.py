"""What each rule answers, as arrays that the exchange forms write."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from treekit.model.model import least_cost
from treekit.rules.language import Language
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import label_text, name_text, numerals

__all__ = ["label_codes", "numbers", "said", "shares"]


def label_codes(rules: RuleList) -> list[npt.NDArray[np.int64]]:
    """For each target (rules,) int64: the class that a rule names by itself."""
    return [
        least_cost(rules.units[:, first:last], rules.costs)
        for first, last in itertools.pairwise(rules.schema.blocks)
    ]


def shares(rules: RuleList) -> npt.NDArray[np.float64]:
    """(rules, values) float64: each class's part of a rule's votes, one division each."""
    return rules.units / rules.units_each


def numbers(rules: RuleList) -> npt.NDArray[np.float64]:
    """(rules, values) float64: what a rule says or adds, exactly."""
    return np.ldexp(rules.units.astype(np.float64), rules.exponent)


def said(rules: RuleList, words: Language) -> list[str]:
    """Each rule's answer in one line of printable text, hostile names quoted."""
    outputs = rules.schema.outputs
    names = [f"{name_text(o.name, words)}: " if rules.schema.more else "" for o in outputs]
    if rules.schema.task == "classification" and not rules.margins:
        texts = [[label_text(label, words) for label in output.classes] for output in outputs]
        codes = label_codes(rules)
        columns: Iterable[Sequence[str]] = (
            [own[code] for code in found.tolist()] for own, found in zip(texts, codes, strict=True)
        )
    else:
        if rules.margins:
            names = [f"{label_text(label, words)}: " for label in rules.schema.classes]
        columns = (numerals(column) for column in numbers(rules).T)
    told = ([name + text for text in own] for name, own in zip(names, columns, strict=True))
    return [", ".join(row) for row in zip(*told, strict=True)]
