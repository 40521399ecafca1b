"""Report on a short list selected from a forest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.model.links import convert_sums
from treekit.model.model import Model, predict_labels
from treekit.model.scoring import compute_label_codes, sum_leaf_values
from treekit.rule_learning import LearnedList, compute_agreement, compute_r_squared
from treekit.rules.language import Language, load_language, load_phrases
from treekit.rules.rule_list import RuleList, take_rules
from treekit_rule_learning.candidates import compute_indicators
from treekit_rule_learning.weighted_rules import sum_rule_units

__all__ = [
    "ShortList",
    "compute_auc",
    "compute_mean_auc",
    "evaluate_short_list",
]


# ---------------------------------------------------------------- report

Numbers = npt.NDArray[np.float64]


# ---------------------------------------------------------------- short lists
# Accuracy and plain fidelity hide rare classes: if 90% of the rows are of one class, a
# constant prediction agrees with most models on 90%.  Reports therefore add fidelity
# averaged over labels, and compare shares by correlation and area under the ROC curve.

Doubles = npt.NDArray[np.float64]

Sums = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShortList(LearnedList):
    """A short list selected from a forest; figures of several targets are averaged.

    Attributes
    ----------
    balanced_fidelity : float
        Classification: fidelity averaged over the labels that the model predicts.
    correlation : float
        Correlation of the list's with the model's predictions: class shares, averaged over
        the classes, or numbers.
    auc, auc_of_model : float
        Classification: area under the ROC curve of a class's share, averaged over the
        classes by weight (for two classes both are equal).
    stability : float
        Dice-Sorensen index of the lists of this size from two halves of the trees; NaN if the
        forest has one tree.
    fold_stability : float
        Mean index for lists from any two folds of the rows if cross-validation chose the
        size; else NaN.
    one_label : bool
        Classification: whether the list predicts a constant label for some target.
    frequency : (rules,) float64
        Fraction of the trees that contain the rule's path; empty for lists not selected by
        frequency.

    Figures that do not apply are NaN.
    """

    balanced_fidelity: float = np.nan
    correlation: float = np.nan
    auc: float = np.nan
    auc_of_model: float = np.nan
    stability: float = np.nan
    fold_stability: float = np.nan
    one_label: bool = False
    frequency: Doubles = field(default_factory=lambda: np.empty(0), repr=False)

    def lines(self, words: Language | None = None) -> list[str]:
        """Return the figures as lines of text, in English or the given language."""
        return super().lines(load_phrases(words or load_language(), "treekit_rule_learning"))

    def _format_figures(self) -> dict[str, str]:
        return {name: f"{getattr(self, name):.4f}" for name in _FIGURE_NAMES}

    def _list_phrase_keys(self) -> list[str]:
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


_FIGURE_NAMES = (
    "fidelity", "accuracy", "accuracy_of_model", "balanced_fidelity", "correlation", "auc",
    "auc_of_model", "stability", "fold_stability",
)  # fmt: skip


def evaluate_short_list(
    rules: RuleList,
    model: Model,
    rows: Dataset,
    *,
    stability: float = np.nan,
    fold_stability: float = np.nan,
    frequency: Doubles | None = None,
) -> ShortList:
    """Evaluate a weighted list selected from `model`, on rows of its schema."""
    matrix = rows.to_matrix()
    conditional = np.flatnonzero(np.diff(rules.end, prepend=0) > 0)
    ours = sum_rule_units(rules, compute_indicators(take_rules(rules, conditional), matrix))
    theirs = sum_leaf_values(model, matrix)
    list_values, model_values = convert_sums(rules, ours), convert_sums(model, theirs)
    y: npt.NDArray[Any] = rows.y.reshape(len(matrix), -1)
    figures: dict[str, Any] = {
        "stability": stability,
        "fold_stability": fold_stability,
        "correlation": _compute_correlation(list_values, model_values, rows.weights),
    }
    if rules.schema.task == "regression":
        figures |= _score_numbers(list_values, model_values, y, rows.weights)
    else:
        blocks = list(itertools.pairwise(rules.schema.blocks))
        labels = np.stack([predict_labels(ours[:, a:b], rules.costs) for a, b in blocks], axis=1)
        figures["one_label"] = bool((labels == labels[:1]).all(axis=0).any())
        figures |= _score_labels(labels, compute_label_codes(model, theirs), y, rows.weights)
        for name, shares in (("auc", list_values), ("auc_of_model", model_values)):
            figures[name] = _average_values(
                compute_mean_auc(shares[:, a:b], y[:, k], rows.weights)
                for k, (a, b) in enumerate(blocks)
            )
    return ShortList(rules, frequency=np.empty(0) if frequency is None else frequency, **figures)


def _score_numbers(
    predicted: Doubles, model_predicted: Doubles, y: Doubles, weights: Doubles | None
) -> dict[str, float]:
    over = range(y.shape[1])
    return {
        "fidelity": _average_values(
            compute_r_squared(predicted[:, k], model_predicted[:, k], weights) for k in over
        ),
        "accuracy": _average_values(
            compute_r_squared(predicted[:, k], y[:, k], weights) for k in over
        ),
        "accuracy_of_model": _average_values(
            compute_r_squared(model_predicted[:, k], y[:, k], weights) for k in over
        ),
    }


def _score_labels(
    predicted: Sums, model_predicted: Sums, y: Sums, weights: Doubles | None
) -> dict[str, float]:
    over = range(y.shape[1])
    return {
        "fidelity": _average_values(
            compute_agreement(predicted[:, k], model_predicted[:, k], weights) for k in over
        ),
        "accuracy": _average_values(
            compute_agreement(predicted[:, k], y[:, k], weights) for k in over
        ),
        "accuracy_of_model": _average_values(
            compute_agreement(model_predicted[:, k], y[:, k], weights) for k in over
        ),
        "balanced_fidelity": _average_values(
            _compute_balanced_agreement(predicted[:, k], model_predicted[:, k], weights)
            for k in over
        ),
    }


def _average_values(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _compute_balanced_agreement(
    predicted: npt.NDArray[np.int64],
    model_predicted: npt.NDArray[np.int64],
    weights: Doubles | None,
) -> float:
    """Return the agreement averaged over the labels in `model_predicted` with positive weight."""
    own = np.ones(len(model_predicted)) if weights is None else weights
    labels = np.unique(model_predicted[own > 0])
    return _average_values(
        compute_agreement(predicted[model_predicted == k], k, own[model_predicted == k])
        for k in labels
    )


def _compute_correlation(
    predicted: Doubles, model_predicted: Doubles, weights: Doubles | None
) -> float:
    """Return Pearson's correlation averaged over the columns that vary; NaN if none does."""
    own = np.ones(len(predicted)) if weights is None else weights
    own = own / own.sum()
    a, b = predicted - own @ predicted, model_predicted - own @ model_predicted
    lengths = np.sqrt((own @ a**2) * (own @ b**2))
    some = lengths > 0
    return float(np.mean((own @ (a * b))[some] / lengths[some])) if some.any() else np.nan


def compute_mean_auc(
    shares: Doubles, y: npt.NDArray[np.int64], weights: Doubles | None = None
) -> float:
    """Return `auc` of each class against the others, averaged by the classes' weights.

    `shares` are (rows, classes); NaN if one class has all weight.
    """
    own = np.ones(len(y)) if weights is None else weights
    part = np.bincount(y, own, shares.shape[1])
    some = np.flatnonzero((part > 0) & (part < own.sum()))
    if not len(some):
        return np.nan
    return float(
        np.average([compute_auc(shares[:, k], y == k, own) for k in some], weights=part[some])
    )


def compute_auc(score: Doubles, positive: npt.NDArray[np.bool_], weights: Doubles) -> float:
    """Return the area under the ROC curve.

    It is the probability that a positive row scores above a negative one; equal scores count
    half (Mann and Whitney 1947).
    """
    value = np.unique(score, return_inverse=True)[1].reshape(-1)
    above, below = (np.bincount(value, weights * side) for side in (positive, ~positive))
    won = above @ (np.cumsum(below) - below / 2)
    return float(won / (above.sum() * below.sum()))
