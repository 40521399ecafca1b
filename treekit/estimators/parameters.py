"""Parameters of the estimators.

Estimators are dataclasses: ``__init__`` has the signature of the fields, including
those of base classes, which scikit-learn's ``get_params`` inspects.
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
from treekit.training.settings import PRESETS, SETTINGS, get_preset_settings

# ---------------------------------------------------------------- parameters


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters:
    """Parameters of all estimators.

    Parameters
    ----------
    algorithm : str, optional
        ``id3``, ``c45``, ``cart``, ...: replaces parameters at their defaults by the
        algorithm's settings, as listed by ``treekit train --help-settings``.  Explicitly
        passed defaults cannot be distinguished; use `train_settings` to override the
        algorithm: ``algorithm="id3", train_settings={"criterion": "gini"}``.
    criterion : str or treekit.Criterion
        Split criterion: the name of an installed one, or a record.  scikit-learn's
        ``log_loss`` is ``entropy``, and its ``friedman_mse`` is ``friedman``.
    splitter : str or treekit.Splitter
        ``auto`` is ``exact`` up to 10,000 rows and ``histogram`` above; scikit-learn's
        ``best`` is ``exact``.
    max_depth : int, optional
    min_samples_split, min_samples_leaf : int or float
        Minimum training weight of a node to be split, and of each branch of a split;
        a float is a share of the total weight.  A row of weight 3 counts three times;
        weights that are not all integers are relative, scaled to mean 1, and the
        smallest sizes, 2 and 1, then mean no limit.
    min_weight_fraction_leaf : float
        Minimum share of the total weight in each branch of a split.
    max_features : {"sqrt", "log2"}, int, float, optional
        Columns tried at a node: a number, or a share; None: all.
    random_state : int, RandomState, optional
        An integer is the seed of ``treekit.train``.
    max_leaf_nodes : int, optional
        Maximum number of leaves, grown best-first.
    min_gain : float, optional
        Score that a split must exceed, in the criterion's units at the node.  None: every
        node whose rows differ in the target is split, if need be without a gain, as in
        scikit-learn (``treekit.train`` requires a gain, and so does `algorithm`).
    min_impurity_decrease : float
        Score times the node's share of the training weight that a split needs at least.
    categorical : "from_dtype", None, or sequence
        ``from_dtype``: columns of text or of a categorical type (pandas,
        polars, Arrow); None: none; otherwise names, positions or a mask.
    categorical_features
        The same under scikit-learn's name; give one of the two.
    nominal_splits : str
        Splits on categories: ``subset`` into two sets, ``one_vs_rest`` one category
        against the others, ``multiway`` one branch per category.
    pruner : str or treekit.Pruner, optional
        ``cost_complexity``, ``reduced_error``, ``error_based``, ... or an installed one.
    ccp_alpha : float
        Cost-complexity pruning by impurity, as in scikit-learn: subtrees that reduce
        the impurity by less than this per leaf are pruned.  0: no pruning.
    missing : str
        Missing cells: ``direction``: take a learned branch; ``fractional``: take all
        branches in fractions; ``surrogate``: use other columns; ``error``: are rejected.
    unknown : {"missing", "error"}
        Categories not in the training data count as missing, or are rejected.
    dtype : {"auto", "float32", "float64"}
        Input type of the model; ``auto`` is float32 unless a column would lose precision.
    criterion_settings, splitter_settings, pruner_settings : dict, optional
        Settings of the components by name, such as ``{"alpha": 0.01}``; `set_params` and
        searches set one of them as ``pruner__alpha``.
    max_bins : int
        Histogram splitter: bins per numeric column, at most 255.
    monotonic_cst : sequence of int or dict, optional
        Constraint per column, in order or by name: predictions (numbers, or the
        probability of the second of two classes) must increase (1) or decrease (-1)
        with the column, or are unconstrained (0).
    train_settings : dict, optional
        Further settings of `treekit.train` by name, such as
        ``{"thresholds": "value_below"}``; they override the parameters.
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
    min_gain: float | None = None
    min_impurity_decrease: float = 0.0
    categorical: Any = "from_dtype"
    categorical_features: Any = "from_dtype"
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
    """Further parameters of classifiers.

    Parameters
    ----------
    class_weight : dict, "balanced" or "balanced_subsample", optional
        Weight of each class, multiplied by the row weights; for several outputs a list of
        dicts, whose weights are multiplied.  ``balanced`` is based on unweighted row counts.
        ``balanced_subsample``, for forests with one output: all classes have the same total
        weight in the bootstrap sample of each tree.
    priors : dict, optional
        Share of the total weight of each label, in place of `class_weight`.
    costs : dict or matrix, optional
        Misclassification costs for labels and pruning: ``{(true, predicted): cost}``,
        or a matrix in the order of ``classes_``.
    """

    class_weight: Any = None
    priors: Any = None
    costs: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class ForestParameters:
    """Further parameters of forests.

    Parameters
    ----------
    n_estimators : int
        Number of trees.
    bootstrap : bool
        Train each tree on rows drawn with replacement, in proportion to their
        weight: each row a Poisson-distributed number of times.  Otherwise on all rows.
    max_samples : int or float, optional
        Expected number of rows drawn for each tree, or as a float their share; None: the
        number of rows.
    oob_score : bool or callable
        Compute the score of out-of-bag predictions: the accuracy (of several outputs, all
        must be correct) or R squared, or ``oob_score(y, predictions)``.
    warm_start : bool
        Keep the trees of the previous fit and add more; the forest equals one that
        is fitted at once with the same seed.
    n_jobs : int, optional
        Number of threads, -1 for all cores; the forest does not depend on it.
    verbose : int
        Above 0: print the number of trees grown, ten times in all.
    """

    n_estimators: int = field(default=100, kw_only=False)
    bootstrap: bool = True
    max_samples: float | None = None
    oob_score: Any = False
    warm_start: bool = False
    n_jobs: int | None = None
    verbose: int = 0


# ---------------------------------------------------------------- algorithms

COMPONENT_NAMES = {
    "criterion": {"log_loss": "entropy", "friedman_mse": "friedman"},
    "splitter": {"best": "exact"},
}
"""treekit's names of scikit-learn's criteria and splitters, where they differ."""

PARAMETERS_OF_SETTINGS: dict[str, tuple[str, ...]] = {
    **{setting.name: (setting.name,) for setting in SETTINGS},
    "trees": ("n_estimators",),
    "min_weight_split": ("min_samples_split",),
    "min_weight_leaf": ("min_samples_leaf", "min_weight_fraction_leaf"),
    "max_leaves": ("max_leaf_nodes",),
    "pruner": ("pruner", "ccp_alpha"),
    "oob": ("oob_score",),
}
"""Training settings and the parameters that determine them, if any, the main one first."""


def drop_algorithm_settings(estimator: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Drop settings whose parameters are at their defaults: the algorithm determines them.

    Parameters
    ----------
    estimator
    settings : mapping
        All parameters as settings of `treekit.train`, including ``algorithm``.
    """
    algorithm = settings.get("algorithm")
    if algorithm not in PRESETS:  # no algorithm, or an unknown one, which training rejects
        return dict(settings)
    ensemble = estimator._ensemble
    if ensemble == "tree" and PRESETS[algorithm].settings.get("ensemble") == "forest":
        raise SettingError(
            f"algorithm={algorithm!r} grows a forest, but {type(estimator).__name__} is one tree; "
            "use RandomForestClassifier or RandomForestRegressor"
        )
    own = get_preset_settings(algorithm, estimator._task, ensemble)
    further = estimator.train_settings or {}
    return {
        name: value
        for name, value in settings.items()
        if name not in (*own, "min_gain")
        or name in ("ensemble", "trees", *further)  # the estimator determines the first two
        or _is_not_default(estimator, name)
    }


def resolve_parameter(estimator: Any, name: str) -> Any:
    """Return a setting: from `train_settings`, a changed parameter, the algorithm, or default."""
    further = estimator.train_settings
    given = {"algorithm": estimator.algorithm} | (
        dict(further) if isinstance(further, Mapping) else {}
    )
    if name in given:
        return given[name]
    own = getattr(estimator, name)
    if given["algorithm"] not in PRESETS or _is_not_default(estimator, name):
        return own
    return get_preset_settings(given["algorithm"], estimator._task).get(name, own)


def _is_not_default(estimator: Any, setting: str) -> bool:
    """Return whether any parameter that determines a setting is not at its default."""
    defaults = {field.name: field.default for field in fields(estimator)}
    names = PARAMETERS_OF_SETTINGS.get(setting, (setting,))
    return any(getattr(estimator, name) != defaults[name] for name in names if name in defaults)


# ---------------------------------------------------------------- parameter conversion


def compute_weight_limits(
    split: Any,
    leaf: Any,
    fraction: Any,
    n_rows: int,
    weights: npt.NDArray[np.float64] | None,
    draw_rate: float = 1.0,
) -> dict[str, float]:
    """Convert scikit-learn's node sizes to ``min_weight_split`` and ``min_weight_leaf``.

    Sizes count weight: a row of weight 3 counts as three rows, and shares are
    shares of the total weight.  If weights are not integers, the smallest sizes, 2 and 1,
    mean no limit.

    Parameters
    ----------
    split, leaf, fraction
        ``min_samples_split``, ``min_samples_leaf``, ``min_weight_fraction_leaf``.
    weights : (rows,) float64, or None
        Weights of rows in nodes, after `treekit.data.dataset.Dataset.scale_weights`.
    draw_rate : float
        Expected number of times that a tree draws each row.  As in scikit-learn, the share
        `fraction` is one of the drawn rows, and the other shares are of all rows.
    """
    whole = weights is None or bool(np.all(weights == np.floor(weights)))
    total = float(n_rows) if weights is None else float(weights.sum())

    def convert_size(name: str, size: Any, least: int) -> float:
        number = float(size) if isinstance(size, Real) else math.nan
        if isinstance(size, Integral) and number >= least and size is not True:
            return number if whole or number > least else 0.0
        if not isinstance(size, Integral) and 0.0 < number <= 1.0:
            share = number * total
            return max(float(least), math.ceil(share)) if whole else share
        raise SettingError(
            f"{name} is {size!r}; give an integer of at least {least}, or a share of the rows "
            "above 0.0 and at most 1.0"
        )

    if not (isinstance(fraction, Real) and 0.0 <= float(fraction) <= 0.5):
        raise SettingError(f"min_weight_fraction_leaf is {fraction!r}; give a share from 0 to 0.5")
    return {
        "min_weight_split": convert_size("min_samples_split", split, 2),
        "min_weight_leaf": max(
            convert_size("min_samples_leaf", leaf, 1), float(fraction) * total * draw_rate
        ),
    }


def make_seed(random_state: Any) -> int:
    """Convert a ``random_state`` to a seed.

    An integer is the seed itself, so that ``random_state=0`` grows the trees of
    ``treekit.train(..., seed=0)``; otherwise the seed is drawn from the
    `numpy.random.RandomState`, or from NumPy's global one for None.
    """
    if isinstance(random_state, Integral) and int(random_state) >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def name_monotonic_signs(given: Any, names: tuple[str, ...]) -> Mapping[Any, Any] | None:
    """Convert monotonic constraints, one per column or by name, to the training setting."""
    if given is None or isinstance(given, Mapping):
        return given
    signs = np.asarray(given)
    if signs.shape != (len(names),):
        raise SettingError(
            f"monotonic_cst has shape {signs.shape}; give one sign for each of the "
            f"{len(names)} columns, or a dict by name"
        )
    return dict(zip(names, signs.tolist(), strict=True))
