"""The estimators' parameters, each declared once.

An estimator is a dataclass: its ``__init__`` has the signature of its fields,
those of its bases included, which is what scikit-learn's ``get_params`` reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import InputType
from treekit.errors import SettingError
from treekit.model.model import UnknownPolicy
from treekit.training.settings import PRESETS, preset

__all__ = [
    "ClassParameters",
    "ForestParameters",
    "Parameters",
    "by_algorithm",
    "effective",
    "seed_of",
    "signs_by_name",
    "weight_limits",
]


# ---------------------------------------------------------------- parameters


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters:
    """What every estimator takes.

    Parameters
    ----------
    algorithm : str, optional
        ``id3``, ``c45``, ``cart``, ...: parameters that are at their defaults are
        then the algorithm's, as ``treekit train --help-settings`` lists them.  A
        default that is written out is no different (scikit-learn's parameters
        cannot tell); `train_settings` says it against the algorithm:
        ``algorithm="id3", train_settings={"criterion": "gini"}``.
    criterion : str or treekit.Criterion
        Split criterion: the name of an installed one, or a record.
    splitter : str or treekit.Splitter
        ``auto`` is ``exact`` up to 10,000 rows and ``histogram`` above.
    max_depth : int, optional
    min_samples_split, min_samples_leaf : int or float
        Training weight that a node needs to be split, and that each side of
        a split needs; a float is a share of all.  A row of weight 3 counts
        three times; with weights that are no whole numbers a size counts in
        mean weights, and 2 and 1 mean no bound.
    min_weight_fraction_leaf : float
        Share of all weight that each side of a split needs.
    max_features : {"sqrt", "log2"}, int, float, optional
        Columns tried at a node: a number, or a share; None: all.
    random_state : int, RandomState, optional
        A whole number is the seed of ``treekit.train``.
    max_leaf_nodes : int, optional
        Leaves at most, grown best first.
    min_gain : float
        Score that a split must exceed, in the criterion's own units at the
        node.  (scikit-learn's ``min_impurity_decrease`` is that score times
        the node's share of the rows.)
    categorical : "from_dtype", None, or sequence
        ``from_dtype``: columns of text or of a categorical type (pandas,
        polars, Arrow); None: none; otherwise names, positions or a mask.
    nominal_splits : str
        How categories are split: ``subset`` in two sets, ``one_vs_rest`` one against
        the others, ``multiway`` one branch each.
    pruner : str or treekit.Pruner, optional
        ``cost_complexity``, ``reduced_error``, ``error_based``, ... or an installed one.
    ccp_alpha : float
        Cost-complexity pruning by impurity, as scikit-learn's: links that
        hold back less than this impurity per leaf are cut.  0: none.
    missing : str
        ``direction``: missing cells take a learned side; ``fractional``: rows go down
        every branch in parts; ``surrogate``: other columns decide; ``error``: refused.
    unknown : {"missing", "error"}
        Categories that training did not see count as missing, or are refused.
    dtype : {"auto", "float32", "float64"}
        Input type of the model; ``auto`` is float32 unless a column would lose by it.
    criterion_settings, splitter_settings, pruner_settings : dict, optional
        The components' own settings by name, such as ``{"alpha": 0.01}``.
    max_bins : int
        Histogram splitter: bins a numeric column, at most 255.
    monotonic_cst : sequence of int or dict, optional
        1 for each column that answers (a number, or the share of the second of
        two classes) must rise with, -1: fall, 0: free; or a dict by name.
    train_settings : dict, optional
        Further settings of `treekit.train` by name, such as
        ``{"thresholds": "value_below"}``; they win over the parameters.
    """

    algorithm: str | None = None
    criterion: Any = None
    splitter: Any = "auto"
    max_depth: int | None = None
    min_samples_split: float = 2
    min_samples_leaf: float = 1
    min_weight_fraction_leaf: float = 0.0
    max_features: Any = None
    random_state: Any = None
    max_leaf_nodes: int | None = None
    min_gain: float = 0.0
    categorical: Any = "from_dtype"
    nominal_splits: str = "subset"
    pruner: Any = None
    ccp_alpha: float = 0.0
    missing: str = "direction"
    unknown: UnknownPolicy = "missing"
    dtype: InputType = "auto"
    criterion_settings: Mapping[str, Any] | None = None
    splitter_settings: Mapping[str, Any] | None = None
    pruner_settings: Mapping[str, Any] | None = None
    max_bins: int = 255
    monotonic_cst: Any = None
    train_settings: Mapping[str, Any] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ClassParameters:
    """What classifiers take besides.

    Parameters
    ----------
    class_weight : dict or "balanced", optional
        Weight of each label, times the rows' own; ``balanced`` is by numbers of
        rows, whatever they weigh; of several outputs a list of dicts, and a row
        weighs the product.  As in scikit-learn.
    priors : dict, optional
        Share of all weight that each label shall have, in place of `class_weight`.
    costs : dict or matrix, optional
        ``{(true, said): cost}``, or a matrix in the order of ``classes_``:
        labels and pruning then count what mistakes cost.
    """

    class_weight: Any = None
    priors: Any = None
    costs: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class ForestParameters:
    """What forests take besides.

    Parameters
    ----------
    n_estimators : int
        Number of trees.
    bootstrap : bool
        Each tree sees rows drawn with replacement, in proportion to their
        weight; otherwise all rows.
    max_samples : int or float, optional
        Rows drawn for each tree, a number or a share; None: as many as there are.
    oob_score : bool
        Judge each row by the trees that did not see it.
    warm_start : bool
        Fit again with more trees: the earlier ones stay, and the forest is the
        one that fitting all at once with the same seed gives.
    n_jobs : int, optional
        Threads, -1 for all cores; the forest does not depend on it.
    """

    n_estimators: int = field(default=100, kw_only=False)
    bootstrap: bool = True
    max_samples: float | None = None
    oob_score: bool = False
    warm_start: bool = False
    n_jobs: int | None = None


# ---------------------------------------------------------------- algorithms
# Algorithms by name for estimators, whose parameters all have a value of their own.

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "min_weight_split": ("min_samples_split",),
    "min_weight_leaf": ("min_samples_leaf", "min_weight_fraction_leaf"),
    "max_leaves": ("max_leaf_nodes",),
    "pruner": ("pruner", "ccp_alpha"),
}
"""Settings of training that are parameters by other names."""

_OWN = ("ensemble", "trees")
"""What the estimator itself says, whatever the algorithm."""


def by_algorithm(estimator: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that the algorithm named among them is to decide.

    These are the ones whose parameters are at their defaults.

    Parameters
    ----------
    estimator
    settings : mapping
        All parameters as settings of `treekit.train`, ``algorithm`` among them.
    """
    own = _preset(estimator, settings.get("algorithm"))
    further = estimator.train_settings or {}
    return {
        name: value
        for name, value in settings.items()
        if name not in own or name in _OWN or name in further or _is_given(estimator, name)
    }


def effective(estimator: Any, name: str) -> Any:
    """The value of a parameter that is a setting of that name, or the algorithm's."""
    further = estimator.train_settings
    given = {"algorithm": estimator.algorithm} | (
        dict(further) if isinstance(further, Mapping) else {}
    )
    if name in given:
        return given[name]
    own = getattr(estimator, name)
    if given["algorithm"] not in PRESETS or _is_given(estimator, name):
        return own
    return preset(given["algorithm"], estimator._task).get(name, own)


def _preset(estimator: Any, name: Any) -> dict[str, Any]:
    if name not in PRESETS:  # none, or a mistake that training will tell
        return {}
    forest = estimator._ensemble == "forest"
    if not forest and PRESETS[name].settings.get("ensemble") == "forest":
        raise SettingError(
            f"algorithm={name!r} grows a forest, and {type(estimator).__name__} is one tree; use "
            "RandomForestClassifier or RandomForestRegressor"
        )
    return preset(name, estimator._task, forest=forest)


def _is_given(estimator: Any, setting: str) -> bool:
    """Whether any of the parameters that stand for a setting is not at its default."""
    defaults = {field.name: field.default for field in fields(estimator)}
    names = _PARAMETERS.get(setting, (setting,))
    return any(getattr(estimator, name) != defaults[name] for name in names if name in defaults)


# ---------------------------------------------------------------- limits
# scikit-learn's numbers as treekit's settings: sizes of nodes and seeds.


def weight_limits(
    split: Any, leaf: Any, fraction: Any, n_rows: int, weights: npt.NDArray[np.float64] | None
) -> dict[str, float]:
    """``min_weight_split`` and ``min_weight_leaf`` from scikit-learn's sizes.

    Sizes count weight: a row of weight 3 counts as three rows, and shares are
    shares of all weight.  Weights that are no whole numbers have no natural
    unit (boosting's sum to 1): there a size of k means k times the mean weight
    of a row, and the smallest sizes, 2 and 1, mean no bound.

    Parameters
    ----------
    split, leaf, fraction
        ``min_samples_split``, ``min_samples_leaf``, ``min_weight_fraction_leaf``.
    weights : (rows,) float64, or None
    """
    whole = weights is None or bool(np.all(weights == np.floor(weights)))
    total = float(n_rows) if weights is None else float(weights.sum())
    unit = 1.0 if whole or weights is None else total / np.count_nonzero(weights)

    def limit(name: str, size: Any, least: int) -> float:
        number = float(size) if isinstance(size, Real) else math.nan
        if isinstance(size, Integral) and number >= least and size is not True:
            return number * unit if whole or number > least else 0.0
        if not isinstance(size, Integral) and 0.0 < number <= 1.0:
            share = number * total
            return max(float(least), math.ceil(share)) if whole else share
        raise SettingError(
            f"{name} is {size!r}; give a whole number of at least {least}, or a share of the rows "
            "above 0.0 and at most 1.0"
        )

    if not (isinstance(fraction, Real) and 0.0 <= float(fraction) <= 0.5):
        raise SettingError(f"min_weight_fraction_leaf is {fraction!r}; give a share from 0 to 0.5")
    return {
        "min_weight_split": limit("min_samples_split", split, 2),
        "min_weight_leaf": max(limit("min_samples_leaf", leaf, 1), float(fraction) * total),
    }


def seed_of(random_state: Any) -> int:
    """The seed that a ``random_state`` stands for.

    A whole number is the seed itself, so that ``random_state=0`` grows the
    trees of ``treekit.train(..., seed=0)``; a `numpy.random.RandomState`, or
    NumPy's global one for None, is asked for one.
    """
    if isinstance(random_state, Integral) and int(random_state) >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def signs_by_name(given: Any, names: tuple[str, ...]) -> Mapping[Any, Any] | None:
    """Monotonic constraints, one a column or by name, as training takes them."""
    if given is None or isinstance(given, Mapping):
        return given
    signs = np.asarray(given)
    if signs.shape != (len(names),):
        raise SettingError(
            f"monotonic_cst has the shape {signs.shape}; give one sign for each of the "
            f"{len(names)} columns, or a dict by name"
        )
    return dict(zip(names, signs.tolist(), strict=True))
