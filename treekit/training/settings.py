"""Training settings, shared by the command line, `treekit.train` and the estimators."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treekit.contracts import Setting
from treekit.data.schema import Task
from treekit.errors import SettingError

# ---------------------------------------------------------------- algorithms
# Algorithms of the literature as named sets of ordinary settings.
#
# No code depends on an algorithm's name: its model equals the model trained with the same
# settings given one by one.  Explicit settings take precedence.


@dataclass(frozen=True)
class Preset:
    """A named set of settings.

    Attributes
    ----------
    summary : str
        Description and source.
    settings : mapping
        Settings of `treekit.train`, those of components under dotted names.
    by_task : mapping
        Further settings for one task.
    single_tree : mapping
        Settings of a single tree, not used if a forest is grown.
    """

    summary: str
    settings: Mapping[str, Any]
    by_task: Mapping[Task, Mapping[str, Any]] = field(default_factory=dict)
    single_tree: Mapping[str, Any] = field(default_factory=dict)


PRESETS: dict[str, Preset] = {
    "id3": Preset(
        "information gain, one branch per value (Quinlan 1986)",
        {
            "ensemble": "tree",
            "criterion": "entropy",
            "criterion.base": 2.0,
            "splitter": "exact",
            "nominal_splits": "multiway",
            "empty_branches": True,
            "missing": "error",
        },
    ),
    "c45": Preset(
        "gain ratio, one branch per value (Quinlan 1993, release 8)",
        {
            "ensemble": "tree",
            "criterion": "gain_ratio",
            "criterion.slack": 1e-3,
            "criterion.mdl": True,
            "criterion.many_levels": 0.3,
            "splitter": "exact",
            "nominal_splits": "multiway",
            "empty_branches": True,
            "thresholds": "value_below",
            "numeric_side": "c45",
            "resolution": 1e-5,
            "min_weight_leaf": 2.0,
            "min_gain": -1e-3,
            "missing": "fractional",
        },
        single_tree={"pruner": "error_based", "pruner.limit": "release8"},
    ),
    "cart": Preset(
        "binary splits, cost-complexity pruning (Breiman et al. 1984)",
        {"splitter": "exact", "nominal_splits": "subset", "missing": "surrogate"},
        single_tree={"pruner": "cost_complexity", "pruner.rule": "one_se", "min_weight_split": 6.0},
    ),
    "stump": Preset(
        "a tree with one split (Iba and Langley 1992)",
        {"ensemble": "tree", "splitter": "exact", "max_depth": 1},
    ),
    "bagging": Preset(
        "trees on bootstrap samples, all columns tried at each node (Breiman 1996)",
        {"ensemble": "forest", "bootstrap": True, "max_features": "all"},
        {"classification": {"trees": 50, "voting": "hard"}, "regression": {"trees": 25}},
    ),
    "random_forest": Preset(
        "trees on bootstrap samples, some columns tried at each node (Breiman 2001)",
        {"ensemble": "forest", "bootstrap": True, "trees": 100},
        {
            "classification": {"max_features": "sqrt", "voting": "hard"},
            "regression": {"max_features": 1 / 3, "min_weight_split": 6.0},
        },
    ),
    "extra_trees": Preset(
        "trees on all rows, one random cut of some columns tried at each node (Geurts et al. 2006)",
        {"ensemble": "forest", "bootstrap": False, "trees": 100, "splitter": "random"},
        {
            "classification": {"max_features": "sqrt", "voting": "hard"},
            "regression": {"max_features": "all", "min_weight_split": 5.0},
        },
    ),
}
"""The algorithms: single trees, then ensembles.

id3
    J. R. Quinlan, "Induction of decision trees", Machine Learning 1, 1986, pp.
    81-106.  Quinlan's attributes are nominal; numeric columns split in two.
c45
    J. R. Quinlan, *C4.5: Programs for Machine Learning*, 1993, with the changes of
    release 8 (Quinlan, "Improved use of continuous attributes in C4.5", Journal of
    Artificial Intelligence Research 4, 1996, pp. 77-90).  The book of 1993
    subtracts no penalty from numeric gains: ``criterion.mdl=false``, ``min_gain=0``.  Weka's J48
    (3.9) differs by ``criterion.tolerance=1e-6``, ``min_gain=0``, ``dtype=float64``
    and ``pruner.limit=j48``.  Its options are

    ==========  ================================================================
    ``-M n``    ``min_weight_leaf=n``
    ``-C c``    ``pruner.confidence=c``
    ``-U``      ``pruner.confidence=none``: the grown tree is only collapsed
    ``-O``      ``pruner.collapsing=false``
    ``-S``      ``pruner.raising=false``
    ``-J``      ``criterion.mdl=false``
    ``-B``      ``nominal_splits=one_vs_rest`` and ``criterion.level_by=ratio``
    ==========  ================================================================
cart
    L. Breiman, J. H. Friedman, R. A. Olshen and C. J. Stone, *Classification and
    Regression Trees*, 1984: nodes of up to five rows are not split (section
    3.2), and of the pruned trees the smallest within one standard error of the best
    by tenfold cross-validation is chosen (section 3.4.3).  Missing values are routed by
    surrogate splits (section 5.3), the best five of a node.  R's rpart differs by
    ``min_weight_split=20``, ``min_weight_leaf=7``, ``nominal_surrogates=rpart`` and
    ``pruner.alpha=0.01`` times the risk of the root.
stump
    W. Iba and P. Langley, "Induction of one-level decision trees", Proceedings of
    the Ninth International Conference on Machine Learning, 1992, pp. 233-240.
bagging
    L. Breiman, "Bagging predictors", Machine Learning 24, 1996, pp. 123-140: 50
    samples for classes and 25 for numbers (section 2).
random_forest
    L. Breiman, "Random forests", Machine Learning 45, 2001, pp. 5-32; columns
    tried and smallest nodes as Hastie, Tibshirani and Friedman, *The Elements
    of Statistical Learning*, 2009, section 15.3 recommend (for regression a third of the
    columns, and nodes of up to five rows are not split).
extra_trees
    P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine
    Learning 63, 2006, pp. 3-42: K and n_min of section 2.1.
"""


def get_preset_settings(name: str, task: Task, ensemble: str | None = None) -> dict[str, Any]:
    """Return the settings of an algorithm for a task.

    Parameters
    ----------
    name : str
        A key of `PRESETS`.
    task : {"classification", "regression"}
    ensemble : {"tree", "forest"}, optional
        Default: the algorithm's own.
    """
    found = PRESETS[name]
    settings = {**found.settings, **found.by_task.get(task, {})}
    grown = ensemble or settings.get("ensemble")
    return settings if grown == "forest" else {**settings, **found.single_tree}


# ---------------------------------------------------------------- settings

NAMED_NUMBER_SETTINGS = ("class_weight", "priors", "costs", "monotonic")
"""Settings with a number for each class or column: text, or in Python a mapping."""

SETTINGS: tuple[Setting, ...] = (
    Setting("algorithm", None, "named set of settings to start from; none: the defaults below",
            type=(str, type(None)), choices=tuple(PRESETS)),
    Setting("ensemble", "tree", "a single tree, or a random forest", choices=("tree", "forest")),
    Setting("trees", 100, "forest: number of trees", minimum=1, maximum=100_000),
    Setting(
        "criterion", None, "split criterion; none: gini, or squared_error for regression",
        type=(str, type(None)),
    ),
    Setting(
        "splitter", "auto",
        "split search; auto: exact up to 10,000 rows, histogram above", type=(str, type(None)),
    ),
    Setting("pruner", None, "pruner; none: no pruning", type=(str, type(None))),
    Setting(
        "nominal_splits", "subset",
        "how to split nominal columns: two sets of categories, one branch per category, or one "
        "category against the rest",
        choices=("subset", "multiway", "one_vs_rest"),
    ),
    Setting(
        "exact_levels", 10,
        "with 3+ classes, search all subsets of up to N categories; beyond that, only cuts along "
        "orderings of the categories", minimum=2, maximum=20,
    ),
    Setting("empty_branches", False,
            "multiway: also make branches for categories without rows at the node; they predict "
            "like the node"),
    Setting("thresholds", "readable",
            "between two values of the node: few digits near the midpoint (sums of columns: as few "
            "as keep the side of each row), the midpoint to the last bit, or the largest training "
            "value not above it",
            choices=("readable", "midpoint", "value_below")),
    Setting("numeric_side", "leaf",
            "minimum weight on each side of a numeric split; leaf: min_weight_leaf; c45: also a "
            "tenth of the known weight per class, at most 25", choices=("leaf", "c45")),
    Setting("resolution", 0.0,
            "do not separate numbers of a node that differ by no more than this (C4.5: 1e-5)",
            minimum=0),
    Setting("max_depth", None, "maximum number of edges from root to leaf; none: 5,000",
            type=(int, type(None)), minimum=0, maximum=5000),
    Setting(
        "min_weight_split", None,
        "minimum training weight of a node to be split; none: 2, or no limit for relative weights. "
        "Row weights that are all whole numbers count copies of rows; others are relative: they "
        "are scaled to mean 1", type=(float, type(None)), minimum=0,
    ),
    Setting(
        "min_weight_leaf", None,
        "minimum training weight on each side of a split; none: 1, or 5 in a classification "
        "forest of 5,000 or more unweighted rows without an algorithm, or no limit for relative "
        "weights (see min_weight_split)",
        type=(float, type(None)), minimum=0,
    ),
    Setting("min_gain", 0.0, "score that a split must exceed (in units of the criterion); "
            "negative: also allow splits without gain; none: as scikit-learn, split every impure "
            "node that can be, and send missing values right of two equal branches without any",
            type=(float, type(None))),
    Setting("min_impurity_decrease", 0.0, "score times the node's share of the training weight "
            "that a split needs at least", minimum=0),
    Setting(
        "min_impurity", None,
        "do not split a node of this impurity or less (in units of the criterion; mean squared "
        "error for regression); none: no limit", type=(float, type(None)), minimum=0,
    ),
    Setting("max_leaves", None, "maximum number of leaves, grown best first; none: no limit",
            type=(int, type(None)), minimum=1),
    Setting("max_bins", 255, "histogram splitter: maximum bins per numeric column", minimum=2,
            maximum=255),
    Setting(
        "max_features", None,
        "columns tried at each node: sqrt, log2, all, a number or a share; none: sqrt in a "
        "classification forest, else all",
        type=(str, int, float, type(None)), choices=("sqrt", "log2", "all"),
    ),
    Setting(
        "class_weight", None,
        "factors of row weights by class: yes=2,no=1; balanced: the same total for all classes; "
        "balanced_subsample: the same in the bootstrap sample of each tree",
        type=(str, type(None)),
    ),
    Setting("priors", None, "share of the total weight of each class: yes=0.1,no=0.9",
            type=(str, type(None))),
    Setting(
        "costs", None,
        "misclassification costs, for labels and pruning: yes>no=5 is the cost of predicting no "
        "for yes; others cost 1",
        type=(str, type(None)),
    ),
    Setting(
        "monotonic", None,
        "columns with which the prediction (a number, or the share of the second class) may only "
        "increase (1) or decrease (-1): age=1,debt=-1; a share may fall by the rounding of votes, "
        "at most 2**-24 per tree", type=(str, type(None)),
    ),
    Setting("voting", "soft", "forest: average the class shares of leaves, or count their labels",
            choices=("soft", "hard")),
    Setting("bootstrap", True, "forest: draw rows with replacement for each tree"),
    Setting(
        "max_samples", None,
        "forest with bootstrap: mean number of rows drawn per tree, or a share; none: all rows",
        type=(int, float, type(None)), minimum=0,
    ),
    Setting("oob", True, "forest with bootstrap: score the out-of-bag rows"),
    Setting("missing", "direction",
            "missing cells: a learned branch, fractional instances in every branch (C4.5), "
            "surrogate splits (CART), or an error",
            choices=("direction", "fractional", "surrogate", "error")),
    Setting("surrogates", 5, "missing=surrogate: maximum number of surrogate splits per node",
            minimum=0, maximum=100),
    Setting("surrogate_agreement", "all",
            "missing=surrogate: rank surrogates by their agreement with the split, relative to "
            "all rows where the split column is known, or where both columns are known",
            choices=("all", "known")),
    Setting("nominal_surrogates", "each_way",
            "missing=surrogate: a nominal surrogate must send two rows each way; rpart: must be "
            "right about two rows and wrong about two, as rpart 4.1.19 counts them",
            choices=("each_way", "rpart")),
    Setting("unknown", "missing", "categories not seen in training: missing, or an error",
            choices=("missing", "error")),
    Setting("seed", None, "random seed; none: drawn at random and recorded in the model",
            type=(int, type(None)), minimum=0),
    Setting("n_jobs", None, "number of threads; -1: all cores", type=(int, type(None))),
)  # fmt: skip


COMMON_SETTINGS = (
    "algorithm", "ensemble", "trees", "criterion", "splitter", "pruner", "max_depth",
    "min_weight_leaf", "max_leaves", "max_features", "class_weight", "missing", "seed", "n_jobs",
)  # fmt: skip
"""Settings that are listed first; the others are for special cases and for `algorithm`."""


def select_settings(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a component by their own names, without the prefix `kind`."""
    prefix = f"{kind}."
    return {key[len(prefix) :]: v for key, v in settings.items() if key.startswith(prefix)}


_ALWAYS_CHOSEN = ("ensemble", "criterion", "splitter", "pruner", "seed")


def select_chosen_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Select the settings that differ from their defaults, the components and the seed."""
    usual = {setting.name: setting.default for setting in SETTINGS}
    usual |= {"min_weight_leaf": 1.0, "min_weight_split": 2.0}
    return {
        key: value
        for key, value in settings.items()
        if key in _ALWAYS_CHOSEN or "." in key or value != usual.get(key)
    }


def expand_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those in ``criterion_settings={...}`` under dotted names.

    ``rng``, an integer or a `numpy.random.Generator`, becomes a ``seed`` drawn from it.

    Raises
    ------
    SettingError
        If it is no mapping, or a setting is given in both forms.
    """
    expanded = dict(settings)
    rng = expanded.pop("rng", None)
    if rng is not None:
        if expanded.get("seed") is not None:
            raise SettingError("seed and rng are both given; give one of them")
        expanded["seed"] = _draw_seed(rng)
    for kind in ("criterion", "splitter", "pruner"):
        own = expanded.pop(f"{kind}_settings", None)
        if own is not None and not isinstance(own, Mapping):
            raise SettingError(f"{kind}_settings is {own!r}; give a dict of settings by name")
        for name, value in (own or {}).items():
            if f"{kind}.{name}" in expanded:
                raise SettingError(f"{kind}.{name} is given twice, also in {kind}_settings")
            expanded[f"{kind}.{name}"] = value
    return expanded


def _draw_seed(rng: Any) -> int:
    """Draw a seed from what `numpy.random.default_rng` accepts."""
    try:
        return int(np.random.default_rng(rng).integers(2**32))
    except (TypeError, ValueError):
        raise SettingError(
            f"rng is {rng!r}; give a non-negative integer or a numpy.random.Generator"
        ) from None


def check_n_jobs(n_jobs: Any) -> None:
    """Raise `SettingError` unless `n_jobs` is a number of threads, -1 or None."""
    whole = isinstance(n_jobs, numbers.Integral) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise SettingError(
            f"n_jobs is {n_jobs!r}; give an integer number of threads, -1 for all cores, or None"
        )


def count_features_to_try(max_features: Any, n_features: int) -> int:
    """Return the number of columns tried at each node, 1 to `n_features`."""
    if max_features == "all":
        return n_features
    if max_features == "sqrt":
        count = int(n_features**0.5)
    elif max_features == "log2":
        count = n_features.bit_length() - 1
    elif isinstance(max_features, float):
        if not 0.0 < max_features <= 1.0:
            raise SettingError(
                f"max_features is {max_features}; a share must be above 0.0 and at most 1.0 "
                "(write a number of columns without a decimal point)"
            )
        count = int(max_features * n_features)
    elif max_features < 1:
        raise SettingError(f"max_features is {max_features}; give at least 1 column")
    else:
        count = int(max_features)
    return min(max(count, 1), n_features)
