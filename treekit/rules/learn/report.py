"""What a list of rules that was made from a model is worth: its size, fidelity and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError
from treekit.model.links import values_of
from treekit.model.model import Model
from treekit.model.scoring import label_codes, sums
from treekit.rules.language import Language, language
from treekit.rules.rule_list import RuleList

__all__ = ["LearnedList", "agreement", "judged", "r_squared"]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LearnedList:
    """A list of rules, and how near it is to the model and to the truth on some rows.

    Attributes
    ----------
    rules : RuleList
    fidelity : float
        Classification: the part of the rows' weight on which list and model say the
        same label.  Regression: R squared of the list's numbers about the model's.
    accuracy, accuracy_of_model : float
        Classification: the part of the weight that gets its own label.  Regression: R
        squared.
    """

    rules: RuleList = field(repr=False)
    fidelity: float
    accuracy: float
    accuracy_of_model: float

    @property
    def n_rules(self) -> int:
        """Rules with conditions; `len(rules)` counts those for all other rows, too."""
        return int(np.count_nonzero(np.diff(self.rules.end, prepend=0)))

    @property
    def n_conditions(self) -> int:
        """Conditions of all rules."""
        return len(self.rules.conditions.column)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, words: Language | None = None) -> list[str]:
        """The figures as lines of text, in English or the language given."""
        words = words or language()
        size, *others = self._phrases()
        listed = ["learned_listed"] if len(self.rules) > self.n_rules else []
        counts = {"rules": self.n_rules, "conditions": self.n_conditions, "listed": len(self.rules)}
        said = {name: str(count) for name, count in counts.items()} | self._figures()
        return [words.say(key, **said) for key in (size, *listed, *others)]

    def _figures(self) -> dict[str, str]:
        """What the phrases are filled with."""
        names = ("fidelity", "accuracy", "accuracy_of_model")
        return {name: f"{getattr(self, name):.4f}" for name in names}

    def _phrases(self) -> list[str]:
        """Keys of the lines."""
        if self.rules.schema.task == "regression":
            return ["learned_size", "learned_numbers"]
        return ["learned_size", "learned_agrees", "learned_accuracy"]


def judged(rules: RuleList, said: npt.NDArray[Any], model: Model, rows: Dataset) -> LearnedList:
    """The report of a list made from `model`, of one target.

    Parameters
    ----------
    rules : RuleList
    said : (rows,) int64 or float64
        What the list says of each row: position of the label in the schema, or the number.
    model : Model
    rows : Dataset
        Of the model's schema.
    """
    total = sums(model, rows.matrix())
    compare: Callable[[Any, Any, Numbers | None], float]
    if model.schema.task == "classification":
        theirs: npt.NDArray[Any] = label_codes(model, total)[:, 0]
        compare = agreement
    else:
        theirs = values_of(model, total)[:, 0]
        compare = r_squared
    return LearnedList(
        rules=rules,
        fidelity=compare(said, theirs, rows.weights),
        accuracy=compare(said, rows.y, rows.weights),
        accuracy_of_model=compare(theirs, rows.y, rows.weights),
    )


def agreement(
    said: npt.NDArray[Any], true: npt.NDArray[Any], weights: Numbers | None = None
) -> float:
    """The part of the weight of rows on which two arrays (rows,) are equal."""
    return float(np.average(said == true, weights=_some(weights, len(said))))


def r_squared(
    said: npt.NDArray[Any], true: npt.NDArray[Any], weights: Numbers | None = None
) -> float:
    """One minus the squared error over the variance of `true`; of a constant 1 or 0."""
    own = _some(weights, len(said))
    wrong = float(np.average((true - said) ** 2, weights=own))
    spread = float(np.average((true - np.average(true, weights=own)) ** 2, weights=own))
    return 1.0 - wrong / spread if spread > 0 else float(wrong == 0)


def _some(weights: Numbers | None, n_rows: int) -> Numbers | None:
    """The weights, if anything is left to judge by."""
    if n_rows == 0 or (weights is not None and not weights.sum() > 0):
        raise DataError("there is no row with a weight to judge the list by; give at least one")
    return weights
