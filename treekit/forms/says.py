"""What each rule says of each target, as texts that stand in documents and tables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label
from treekit.forms import Listing
from treekit.model.model import least_cost
from treekit.rules.wording import label_text, numerals, quote, share_text

__all__ = ["Said", "Says", "shown"]

_TAME = re.compile(r"[\w<>=+-](?:[\w<>=+\-./%()&' ]*[\w<>=+\-.%)])?")

Units = npt.NDArray[np.int64]


def shown(label: Label) -> str:
    """A name or a label that stands by itself: as it is, or quoted where that might mislead."""
    if not isinstance(label, str):
        return label_text(label)
    return label if label.isprintable() and _TAME.fullmatch(label) else quote(label)


class Said(NamedTuple):
    """What one rule says of one target.

    Attributes
    ----------
    target : str
        Its name, where there are several; else empty.
    text : str
        The label, or the number.
    shares : tuple of (str, str)
        Labels that have any votes with their shares, or with what is added to their margins.
    label : int
        Number of the class; -1 if the rule names none.
    """

    target: str
    text: str
    shares: tuple[tuple[str, str], ...] = ()
    label: int = -1

    @property
    def pairs(self) -> str:
        """The shares in one line."""
        return ", ".join(f"{label}: {share}" for label, share in self.shares)


class Says:
    """The answers of a listing; each distinct share is written once."""

    def __init__(self, listing: Listing) -> None:
        self.rules = rules = listing.rules
        self.nothing = listing.language.say("page_nothing")
        outputs = rules.schema.outputs
        self.names = [shown(output.name) if len(outputs) > 1 else "" for output in outputs]
        self.labels = [[shown(label) for label in output.classes] for output in outputs]
        self.votes = rules.schema.task == "classification" and not rules.margins
        self.share: dict[int, str] = {}
        if self.votes:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.share = {units: share_text(units, total) for units in distinct}

    def of(self, first: int, last: int) -> Iterator[tuple[Said, ...]]:
        """For each rule from `first` to `last` what it says of each target."""
        units = self.rules.units[first:last]
        if self.rules.margins:
            return zip(self._margins(units), strict=True)
        blocks = itertools.pairwise(self.rules.schema.blocks)
        say = self._shares if self.votes else self._numbers
        targets = [say(k, units[:, start:end]) for k, (start, end) in enumerate(blocks)]
        return zip(*targets, strict=True)

    def _shares(self, k: int, votes: Units) -> list[Said]:
        labels, share, name = self.labels[k], self.share, self.names[k]
        said = least_cost(votes, self.rules.costs).tolist()
        texts = []
        for label, row in zip(said, votes.tolist(), strict=True):
            named = zip(labels, row, strict=True)
            pairs = tuple((text, share[units]) for text, units in named if units)
            texts.append(Said(name, labels[label], pairs, label))
        return texts

    def _numbers(self, k: int, units: Units) -> list[Said]:
        return [Said(self.names[k], text) for text in self._on_grid(units[:, 0])]

    def _margins(self, units: Units) -> list[Said]:
        texts = iter(self._on_grid(units[units != 0]))
        said = []
        for row in units:
            added = tuple((self.labels[0][k], next(texts)) for k in np.flatnonzero(row).tolist())
            text = ", ".join(f"{label}: {number}" for label, number in added)
            said.append(Said(self.names[0], text or self.nothing, added))
        return said

    def _on_grid(self, units: Units) -> list[str]:
        return numerals(np.ldexp(units.astype(np.float64), self.rules.exponent))
