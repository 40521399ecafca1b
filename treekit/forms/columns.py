"""A list of rules as a table: the columns that CSV and dataframes share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from treekit.data.schema import Label
from treekit.forms import Listing
from treekit.forms.says import Says
from treekit.forms.wording import rules_said
from treekit.rules.wording import label_text, quote

__all__ = ["Columns", "safe"]

_FORMULA = frozenset("=+-@＝＋－＠")
"""Signs, of single and of double width, at which spreadsheets begin to calculate."""


def safe(label: Label) -> Label:
    """A label as it is, or quoted if a spreadsheet or a reader could mistake it.

    What begins with a double quote was quoted: `treekit.rules.wording.unquote` gives it back.
    """
    if not isinstance(label, str):
        return label
    start = label.strip()[:1]
    tame = start and start != '"' and start not in _FORMULA and label.isprintable()
    return label if tame else quote(label)


class Columns:
    """The columns of a listing, some rules at a time.

    Attributes
    ----------
    names : list of str
        ``rule``, ``tree``, ``node`` (from 1, from 1, and from 0 as in the text), ``if``, what
        each target is said to be, the shares of its classes (or what is added to their
        margins), ``as_parent``, and the measures, of each target where there are several.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing, self.says = listing, Says(listing)
        self.several = bool(listing.rules.schema.more)
        self.names = ["rule", "tree", "node", "if", *self._answer_names(), "as_parent"]
        self.names += [name for name, _ in self._measures()]

    def block(self, first: int, last: int) -> list[list[Any]]:
        """The columns of the rules from `first` to `last`."""
        rules = self.listing.rules
        columns: list[list[Any]] = [
            list(range(first + 1, last + 1)),
            (rules.tree[first:last] + 1).tolist(),
            rules.leaf[first:last].tolist(),
            rules_said(self.listing, first, last),
            *self._answers(first, last),
            rules.as_parent[first:last].tolist(),
        ]
        return columns + [values[first:last].tolist() for _, values in self._measures()]

    def _of(self, what: str, target: str) -> str:
        return f"{what} of {label_text(target)}" if self.several else what

    def _answer_names(self) -> Iterator[str]:
        for output in self.listing.rules.schema.outputs:
            if not self.listing.rules.margins:
                yield self._of("then", output.name)
            what = "margin" if self.listing.rules.margins else "share"
            yield from (
                self._of(f"{what} {label_text(label)}", output.name) for label in output.classes
            )

    def _answers(self, first: int, last: int) -> Iterator[list[Any]]:
        rules, units = self.listing.rules, self.listing.rules.units[first:last]
        if rules.schema.task == "regression" or rules.margins:
            yield from np.ldexp(units.astype(np.float64), rules.exponent).T.tolist()
            return
        labels = [[said.label for said in row] for row in self.says.of(first, last)]
        blocks = itertools.pairwise(rules.schema.blocks)
        for k, (output, (start, end)) in enumerate(zip(rules.schema.outputs, blocks, strict=True)):
            texts = list(map(safe, output.classes))
            yield [texts[row[k]] for row in labels]
            yield from (units[:, start:end] / rules.units_each).T.tolist()

    def _measures(self) -> Iterator[tuple[str, np.ndarray]]:
        measures = self.listing.measures
        if measures.rows is not None:
            yield "rows", measures.rows
        yield "support", measures.weight
        yield "coverage", measures.coverage
        for key in ("confidence", "lift", "mean", "spread"):
            table = getattr(measures, key)
            for k, output in enumerate(self.listing.rules.schema.outputs):
                if not np.isnan(table[:, k]).all():
                    yield self._of(key, output.name), table[:, k]
