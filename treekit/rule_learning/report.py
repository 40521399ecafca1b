"""What a list of rules that was made from a model is worth: its size, fidelity and accuracy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError
from treekit.model.links import values_of
from treekit.model.model import Model, least_cost
from treekit.model.scoring import label_codes, sums
from treekit.rule_learning.candidates import indicators
from treekit.rule_learning.weighted_rules import sums_of
from treekit.rules.language import Language, language
from treekit.rules.rule_list import RuleList, taken

__all__ = [
    "LearnedList",
    "ShortList",
    "agreement",
    "auc",
    "judged",
    "judged_short",
    "mean_auc",
    "r_squared",
]


# ---------------------------------------------------------------- report

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


# ---------------------------------------------------------------- short
# What a short list of rules is worth, beyond labels: a rare class hides behind accuracy.
#
# Where nine rows in ten are of one class, a list that always says so agrees with every
# model on nine rows in ten.  So fidelity is told as the mean over the model's labels too,
# and shares are compared by correlation and by the area under the curve.

Doubles = npt.NDArray[np.float64]
Sums = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShortList(LearnedList):
    """A short list that was drawn from a forest; figures of several targets are their means.

    Attributes
    ----------
    balanced_fidelity : float
        Classification: fidelity for each label that the model says, averaged.
    correlation : float
        Of the list's and the model's answers: shares of a class, averaged over the
        classes, or numbers.
    auc, auc_of_model : float
        Classification: area under the ROC curve of a class's share, averaged over the
        classes by weight (two classes: the same for either).
    stability : float
        The Dice-Sorensen index of lists of that size from the one and the other half of the
        trees.  NaN if the forest has one tree.
    fold_stability : float
        Its mean for lists of any two folds of the rows, where cross-validation chose the
        size; else NaN.
    one_label : bool
        Classification: of some target the list says the same label of every row.
    frequency : (rules,) float64
        The part of the forest's trees that have the rule's path; empty for lists that are
        not chosen by it.

    What does not apply is NaN.
    """

    balanced_fidelity: float = np.nan
    correlation: float = np.nan
    auc: float = np.nan
    auc_of_model: float = np.nan
    stability: float = np.nan
    fold_stability: float = np.nan
    one_label: bool = False
    frequency: Doubles = field(default_factory=lambda: np.empty(0), repr=False)

    def _figures(self) -> dict[str, str]:
        return {name: f"{getattr(self, name):.4f}" for name in _FIGURES}

    def _phrases(self) -> list[str]:
        classes = self.rules.schema.task == "classification"
        keys = ["learned_size"]
        keys += ["learned_fidelity", "learned_accuracy"] if classes else ["learned_numbers"]
        if self.one_label:
            keys.append("learned_one_label")
        if classes and not np.isnan(self.auc):
            keys.append("learned_auc")
        if not np.isnan(self.stability):
            keys.append("learned_stability")
        if not np.isnan(self.fold_stability):
            keys.append("learned_folds")
        return keys


_FIGURES = (
    "fidelity", "accuracy", "accuracy_of_model", "balanced_fidelity", "correlation", "auc",
    "auc_of_model", "stability", "fold_stability",
)  # fmt: skip


def judged_short(
    rules: RuleList,
    model: Model,
    rows: Dataset,
    *,
    stability: float = np.nan,
    fold_stability: float = np.nan,
    frequency: Doubles | None = None,
) -> ShortList:
    """The report of a weighted list drawn from `model`, on rows of its schema."""
    matrix = rows.matrix()
    conditional = np.flatnonzero(np.diff(rules.end, prepend=0) > 0)
    ours = sums_of(rules, indicators(taken(rules, conditional), matrix))
    theirs = sums(model, matrix)
    said, told = values_of(rules, ours), values_of(model, theirs)
    y: npt.NDArray[Any] = rows.y.reshape(len(matrix), -1)
    figures: dict[str, Any] = {
        "stability": stability,
        "fold_stability": fold_stability,
        "correlation": _correlation(said, told, rows.weights),
    }
    if rules.schema.task == "regression":
        figures |= _of_numbers(said, told, y, rows.weights)
    else:
        blocks = list(itertools.pairwise(rules.schema.blocks))
        labels = np.stack([least_cost(ours[:, a:b], rules.costs) for a, b in blocks], axis=1)
        figures["one_label"] = bool((labels == labels[:1]).all(axis=0).any())
        figures |= _of_labels(labels, label_codes(model, theirs), y, rows.weights)
        for name, shares in (("auc", said), ("auc_of_model", told)):
            figures[name] = _mean(
                mean_auc(shares[:, a:b], y[:, k], rows.weights) for k, (a, b) in enumerate(blocks)
            )
    return ShortList(rules, frequency=np.empty(0) if frequency is None else frequency, **figures)


def _of_numbers(
    said: Doubles, told: Doubles, y: Doubles, weights: Doubles | None
) -> dict[str, float]:
    over = range(y.shape[1])
    return {
        "fidelity": _mean(r_squared(said[:, k], told[:, k], weights) for k in over),
        "accuracy": _mean(r_squared(said[:, k], y[:, k], weights) for k in over),
        "accuracy_of_model": _mean(r_squared(told[:, k], y[:, k], weights) for k in over),
    }


def _of_labels(said: Sums, told: Sums, y: Sums, weights: Doubles | None) -> dict[str, float]:
    over = range(y.shape[1])
    return {
        "fidelity": _mean(agreement(said[:, k], told[:, k], weights) for k in over),
        "accuracy": _mean(agreement(said[:, k], y[:, k], weights) for k in over),
        "accuracy_of_model": _mean(agreement(told[:, k], y[:, k], weights) for k in over),
        "balanced_fidelity": _mean(_balanced(said[:, k], told[:, k], weights) for k in over),
    }


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _balanced(
    said: npt.NDArray[np.int64], told: npt.NDArray[np.int64], weights: Doubles | None
) -> float:
    """Agreement for each label of `told`, averaged; labels without weight do not count."""
    own = np.ones(len(told)) if weights is None else weights
    labels = np.unique(told[own > 0])
    return _mean(agreement(said[told == k], k, own[told == k]) for k in labels)


def _correlation(said: Doubles, told: Doubles, weights: Doubles | None) -> float:
    """Pearson's, of each column, averaged; NaN where a column of either does not vary."""
    own = np.ones(len(said)) if weights is None else weights
    own = own / own.sum()
    a, b = said - own @ said, told - own @ told
    lengths = np.sqrt((own @ a**2) * (own @ b**2))
    some = lengths > 0
    return float(np.mean((own @ (a * b))[some] / lengths[some])) if some.any() else np.nan


def mean_auc(shares: Doubles, y: npt.NDArray[np.int64], weights: Doubles | None = None) -> float:
    """`auc` of each class against the others, averaged by the classes' weights.

    `shares` are (rows, classes); NaN if one class has all weight.
    """
    own = np.ones(len(y)) if weights is None else weights
    part = np.bincount(y, own, shares.shape[1])
    some = np.flatnonzero((part > 0) & (part < own.sum()))
    if not len(some):
        return np.nan
    return float(np.average([auc(shares[:, k], y == k, own) for k in some], weights=part[some]))


def auc(score: Doubles, positive: npt.NDArray[np.bool_], weights: Doubles) -> float:
    """Area under the ROC curve: how probably a positive row scores above a negative one.

    Equal scores count half (Mann and Whitney 1947).
    """
    value = np.unique(score, return_inverse=True)[1].reshape(-1)
    above, below = (np.bincount(value, weights * side) for side in (positive, ~positive))
    won = above @ (np.cumsum(below) - below / 2)
    return float(won / (above.sum() * below.sum()))
