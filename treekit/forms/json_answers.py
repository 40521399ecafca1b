"""What rules say, from JSON that is not trusted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from treekit.data.schema import Output
from treekit.forms.json import key_of
from treekit.forms.json_conditions import label_of, named
from treekit.forms.json_values import (
    At,
    JsonError,
    Numeral,
    members,
    numeral,
)
from treekit.model.model import least_cost
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import read_numeral

__all__ = ["Answers"]

_SHARE = re.compile(r"[01](?:\.[0-9]{1,60})?(?:[eE]-[0-9]{1,2})?|[1-9]\.[0-9]{1,60}[eE]-[0-9]{1,2}")
_OFF = Fraction(1, 1_000_000)
"""Shares written by hand may miss 1 by so much; the last place of each is rounded."""


class Answers:
    """Reads what rules say."""

    def __init__(self, listed: RuleList) -> None:
        self.listed, self.outputs = listed, listed.schema.outputs
        self.names = [output.name for output in self.outputs]
        self.keys = [{key_of(c): k for k, c in enumerate(o.classes)} for o in self.outputs]
        self.labels = [
            {(type(label), label): k for k, label in enumerate(o.classes)} for o in self.outputs
        ]
        self.votes: dict[str, int] = {}

    def read(self, value: Any) -> tuple[list[float], list[float] | None]:
        """Votes or numbers, and what training rows say, if the answers of all targets state it."""
        stated = members(value, self.names)
        said: list[float] = []
        training: list[float] | None = []
        for k, output in enumerate(self.outputs):
            with At(output.name):
                answer = members(stated[output.name], (), _answer_keys(self.listed))
                said += self._said(k, output, answer)
                if training is not None and "training" in answer:
                    with At("training"):
                        training = training + self._training(k, output, answer["training"])
                else:
                    training = None
        return said, training

    def _said(self, k: int, output: Output, answer: dict[str, Any]) -> Sequence[float]:
        if self.listed.margins:
            with At("margins"):
                margins = self._by_class(k, answer.get("margins"))
                return [read_numeral(margins.get(at, _ZERO)) for at in range(len(output.classes))]
        if not output.classes:
            with At("value"):
                return [read_numeral(numeral(answer.get("value")))]
        return self._answer(k, output, answer)

    def _answer(self, k: int, output: Output, answer: dict[str, Any]) -> list[int]:
        label = -1
        if "label" in answer:
            with At("label"):
                value = label_of(answer["label"])
                label = self.labels[k].get((type(value), value), -1)
                if label < 0:
                    raise JsonError(f"{value!r} is not a class")
        if "shares" in answer:
            with At("shares"):
                votes = self._shares(k, answer["shares"])
        elif label >= 0:
            votes = [0] * len(output.classes)
            votes[label] = self.listed.units_each
        else:
            raise JsonError("an answer states a label, or shares, or both")
        best = int(least_cost(np.array([votes]), self.listed.costs)[0])
        if label not in (-1, best):
            rule = "with the largest share" if self.listed.costs is None else "of least cost"
            raise JsonError(f"{output.classes[label]!r} is not the class {rule}; that is "
                        f"{output.classes[best]!r}")  # fmt: skip
        return votes

    def _shares(self, k: int, value: Any) -> list[int]:
        """Whole votes: each share to the nearest.

        If these are too many or too few, the largest remainders are rounded up, as they are
        wherever votes are spread.
        """
        total = self.listed.units_each
        stated = self._by_class(k, value)
        votes = [0] * len(self.keys[k])
        for at, share in stated.items():
            if share not in self.votes:
                self.votes[share] = int(_share(share) * total + Fraction(1, 2))
            votes[at] = self.votes[share]
        if sum(votes) == total:
            return votes
        exact = [_share(stated.get(at, _ZERO)) * total for at in range(len(votes))]
        off = sum(exact, Fraction(0)) - total
        if abs(off) > max(_OFF * total, Fraction(len(votes), 2)):
            raise JsonError(f"the shares add to {float(1 + off / total):.6g}, not to 1")
        votes = [int(some) for some in exact]
        order = sorted(range(len(votes)), key=lambda at: (votes[at] - exact[at], at))
        for at in itertools.islice(itertools.cycle(order), max(total - sum(votes), 0)):
            votes[at] += 1
        return votes

    def _training(self, k: int, output: Output, value: Any) -> list[float]:
        if not output.classes:
            return [read_numeral(numeral(value))]
        weights = self._by_class(k, value)
        return [read_numeral(weights.get(at, _ZERO)) for at in range(len(output.classes))]

    def _by_class(self, k: int, value: Any) -> dict[int, str]:
        """Numbers behind the keys of classes."""
        found = {}
        for key, number in members(value).items():
            found[named(self.keys[k], key, "a class")] = numeral(number, key)
        return found


_ZERO = Numeral("0")


def _share(said: str) -> Fraction:
    if not _SHARE.fullmatch(said):
        raise JsonError(f"a share is a decimal from 0 to 1, not {said[:70]}")
    return Fraction(said)


def _answer_keys(listed: RuleList) -> tuple[str, ...]:
    if listed.margins:
        return ("margins", "training")
    if listed.schema.task == "regression":
        return ("value", "training")
    return ("label", "shares", "training")
