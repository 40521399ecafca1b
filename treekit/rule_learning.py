"""Learning of short rule lists from models, with reports of their fidelity.

>>> print(treekit.simplify(model, "train.csv", "sirus", rules=20))

The methods are plugins; those of the plugin treekit-rule-learning are "c45rules", "sirus" and
"rulefit".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Simplifier
from treekit.data.dataset import Dataset, make_validation
from treekit.errors import DataError
from treekit.model.links import convert_sums
from treekit.model.model import Model
from treekit.model.scoring import compute_label_codes, sum_leaf_values
from treekit.rules.language import Language, load_language
from treekit.rules.rule_list import RuleList

__all__ = [
    "LearnedList",
    "compute_agreement",
    "compute_r_squared",
    "evaluate_list",
    "simplify",
]


Numbers = npt.NDArray[np.float64]


def simplify(
    model: Model,
    table: Any,
    method: str | Simplifier = "c45rules",
    *,
    test: Any = None,
    **settings: Any,
) -> LearnedList:
    """Learn a short rule list from a model and its training table.

    Parameters
    ----------
    model : Model
    table : table
        Any table that `treekit.train` accepts, with the target.
    method : str or Simplifier
        An installed simplifier; ``treekit plugins`` lists them.
    test : table, optional
        Rows for the report; default those of `table`.
    **settings
        Settings of the method, such as ``rules``, the maximum number of rules.

    Returns
    -------
    LearnedList
        ``rules`` and the figures of the report.

    Raises
    ------
    SettingError
        For an unknown method or setting, or a method whose plugin is not installed.
    ModelError, DataError
        If the method does not support the model, or cannot read the table.
    PluginError
        If the method of a plugin fails.
    """
    simplifier = registry.get("simplifier", method)
    values = registry.settings_of(simplifier, settings)
    learned: LearnedList = registry.call(
        simplifier, simplifier.simplify, model, table, test, **values
    )
    return learned


@dataclass(frozen=True)
class LearnedList:
    """A rule list with its fidelity to the model and its accuracy on some rows.

    Attributes
    ----------
    rules : RuleList
    fidelity : float
        Classification: weighted fraction of rows on which list and model predict the same
        label.  Regression: R squared of the list's predictions for the model's.
    accuracy, accuracy_of_model : float
        Classification: weighted fraction of rows with a correct label.  Regression: R squared.
    """

    rules: RuleList = field(repr=False)
    fidelity: float
    accuracy: float
    accuracy_of_model: float

    @property
    def n_rules(self) -> int:
        """Number of rules with conditions; `len(rules)` includes unconditional ones."""
        return int(np.count_nonzero(np.diff(self.rules.end, prepend=0)))

    @property
    def n_conditions(self) -> int:
        """Number of conditions in all rules."""
        return len(self.rules.conditions.column)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, words: Language | None = None) -> list[str]:
        """Return the figures as lines of text, in English or the given language."""
        words = words or load_language()
        size, *others = self._list_phrase_keys()
        listed = ["learned_listed"] if len(self.rules) > self.n_rules else []
        counts = {"rules": self.n_rules, "conditions": self.n_conditions, "listed": len(self.rules)}
        fields = {name: str(count) for name, count in counts.items()} | self._format_figures()
        return [words.say(key, **fields) for key in (size, *listed, *others)]

    def _format_figures(self) -> dict[str, str]:
        """Return fidelity and accuracies as texts, by the name of their field in the phrases."""
        names = ("fidelity", "accuracy", "accuracy_of_model")
        return {name: f"{getattr(self, name):.4f}" for name in names}

    def _list_phrase_keys(self) -> list[str]:
        """Return the keys of the lines."""
        if self.rules.schema.task == "regression":
            return ["learned_size", "learned_numbers"]
        return ["learned_size", "learned_agrees", "learned_accuracy"]


def evaluate_list(rules: RuleList, model: Model, rows: Any) -> LearnedList:
    """Evaluate a rule list made from `model`, a model with one target.

    Parameters
    ----------
    rules : RuleList
    model : Model
    rows : table or Dataset
        With the target; a dataset has the model's schema.
    """
    if not isinstance(rows, Dataset):
        rows = make_validation(
            rows, model.schema, missing=model.missing, unknown=model.unknown,
            noun="the table of the rules",
        )  # fmt: skip
    matrix = rows.to_matrix()
    ours, theirs = _predict(rules.model(), matrix), _predict(model, matrix)
    compare: Callable[[Any, Any, Numbers | None], float] = (
        compute_agreement if model.schema.task == "classification" else compute_r_squared
    )
    return LearnedList(
        rules=rules,
        fidelity=compare(ours, theirs, rows.weights),
        accuracy=compare(ours, rows.y, rows.weights),
        accuracy_of_model=compare(theirs, rows.y, rows.weights),
    )


def _predict(model: Model, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the class indices (rows,) int64, or numbers float64, of the first target."""
    sums = sum_leaf_values(model, matrix)
    if model.schema.task == "classification":
        return compute_label_codes(model, sums)[:, 0]
    return convert_sums(model, sums)[:, 0]


def compute_agreement(
    predicted: npt.NDArray[Any], true: npt.NDArray[Any], weights: Numbers | None = None
) -> float:
    """Return the weighted fraction of rows on which two arrays (rows,) are equal."""
    return float(np.average(predicted == true, weights=_check_weights(weights, len(predicted))))


def compute_r_squared(
    predicted: npt.NDArray[Any], true: npt.NDArray[Any], weights: Numbers | None = None
) -> float:
    """Return R squared; if `true` is constant, 1 if all predictions are exact, otherwise 0."""
    own = _check_weights(weights, len(predicted))
    wrong = float(np.average((true - predicted) ** 2, weights=own))
    spread = float(np.average((true - np.average(true, weights=own)) ** 2, weights=own))
    return 1.0 - wrong / spread if spread > 0 else float(wrong == 0)


def _check_weights(weights: Numbers | None, n_rows: int) -> Numbers | None:
    """Check that there is a row with positive weight; return the weights."""
    if n_rows == 0 or (weights is not None and not weights.sum() > 0):
        raise DataError(
            "no row has a positive weight, so the rule list cannot be evaluated; give at least one"
        )
    return weights
