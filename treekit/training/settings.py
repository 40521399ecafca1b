"""The one list of training settings: command line, front door and estimators share it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from treekit.contracts import Setting
from treekit.data.schema import Task
from treekit.errors import SettingError

__all__ = [
    "BY_NAME",
    "PRESETS",
    "SETTINGS",
    "Preset",
    "check_threads",
    "features_to_try",
    "preset",
]


# ---------------------------------------------------------------- presets
# Algorithms of the literature by name: each is a dict of ordinary settings.
#
# Nothing in treekit asks for an algorithm's name: a model trained by one equals
# the model trained by its settings written out.  Explicit settings win.


@dataclass(frozen=True)
class Preset:
    """A named set of settings.

    Attributes
    ----------
    summary : str
        What it is and whose.
    settings : mapping
        Settings of `treekit.train`, those of components under dotted names.
    by_task : mapping
        Further settings of one task.
    alone : mapping
        Settings of a tree that stands alone.  A forest that is grown of such
        trees leaves them out.
    """

    summary: str
    settings: Mapping[str, Any]
    by_task: Mapping[Task, Mapping[str, Any]] = field(default_factory=dict)
    alone: Mapping[str, Any] = field(default_factory=dict)


PRESETS: dict[str, Preset] = {
    "id3": Preset(
        "information gain, one branch a value (Quinlan 1986)",
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
        "gain ratio, one branch a value (Quinlan 1993, release 8)",
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
        alone={"pruner": "error_based", "pruner.limit": "release8"},
    ),
    "cart": Preset(
        "two branches, cost-complexity pruning (Breiman et al. 1984)",
        {"splitter": "exact", "nominal_splits": "subset", "missing": "surrogate"},
        alone={"pruner": "cost_complexity", "pruner.rule": "one_se", "min_weight_split": 6.0},
    ),
    "stump": Preset(
        "a tree of one split (Iba and Langley 1992)",
        {"ensemble": "tree", "splitter": "exact", "max_depth": 1},
    ),
    "bagging": Preset(
        "trees of bootstrap samples, each node tries all columns (Breiman 1996)",
        {"ensemble": "forest", "bootstrap": True, "max_features": "all"},
        {"classification": {"trees": 50, "voting": "hard"}, "regression": {"trees": 25}},
    ),
    "random_forest": Preset(
        "trees of bootstrap samples, each node tries some columns (Breiman 2001)",
        {"ensemble": "forest", "bootstrap": True, "trees": 100},
        {
            "classification": {"max_features": "sqrt", "voting": "hard"},
            "regression": {"max_features": 1 / 3, "min_weight_split": 6.0},
        },
    ),
    "extra_trees": Preset(
        "trees of all rows, each node tries one random cut of some columns (Geurts et al. 2006)",
        {"ensemble": "forest", "bootstrap": False, "trees": 100, "splitter": "random"},
        {
            "classification": {"max_features": "sqrt", "voting": "hard"},
            "regression": {"max_features": "all", "min_weight_split": 5.0},
        },
    ),
}
"""The algorithms, in the order of the literature's chapters.

id3
    J. R. Quinlan, "Induction of decision trees", Machine Learning 1, 1986, pp.
    81-106.  Quinlan's attributes are nominal; numeric columns split in two.
c45
    J. R. Quinlan, *C4.5: Programs for Machine Learning*, 1993, with the changes of
    release 8 (Quinlan, "Improved use of continuous attributes in C4.5", Journal of
    Artificial Intelligence Research 4, 1996, pp. 77-90).  The book of 1993 takes no
    penalty off numeric gains: ``criterion.mdl=false``, ``min_gain=0``.  Weka's J48
    (3.9) differs by ``criterion.tolerance=1e-6``, ``min_gain=0``, ``dtype=float64``
    and ``pruner.limit=j48``.  Its options are

    ==========  ================================================================
    ``-M n``    ``min_weight_leaf=n``
    ``-C c``    ``pruner.confidence=c``
    ``-U``      ``pruner.confidence=none``: what is grown is only collapsed
    ``-O``      ``pruner.collapsing=false``
    ``-S``      ``pruner.raising=false``
    ``-J``      ``criterion.mdl=false``
    ``-B``      ``nominal_splits=one_vs_rest`` and ``criterion.level_by=ratio``
    ==========  ================================================================
cart
    L. Breiman, J. H. Friedman, R. A. Olshen and C. J. Stone, *Classification and
    Regression Trees*, 1984: nodes of up to five rows are not split (section
    3.2), and of the pruned trees the smallest within one standard error of the best
    by tenfold cross-validation is taken (section 3.4.3).  Missing values go by
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
    of Statistical Learning*, 2009, section 15.3 recommend (a third of the columns,
    nodes of up to five rows left alone, for numbers).
extra_trees
    P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine
    Learning 63, 2006, pp. 3-42: K and n_min of section 2.1.
"""


def preset(name: str, task: Task, *, forest: bool | None = None) -> dict[str, Any]:
    """The settings of an algorithm for a task.

    Parameters
    ----------
    name : str
        A key of `PRESETS`.
    task : {"classification", "regression"}
    forest : bool, optional
        Whether a forest is grown; default: as the algorithm itself says.
    """
    found = PRESETS[name]
    settings = {**found.settings, **found.by_task.get(task, {})}
    if forest is None:
        forest = settings.get("ensemble") == "forest"
    return settings if forest else {**settings, **found.alone}


# ---------------------------------------------------------------- settings

BY_NAME = ("class_weight", "priors", "costs", "monotonic")
"""Settings of numbers for classes or columns: a text, or a mapping from Python."""

SETTINGS: tuple[Setting, ...] = (
    Setting("algorithm", None, "named set of settings to start from; none: what is listed here",
            type=(str, type(None)), choices=tuple(PRESETS)),
    Setting("ensemble", "tree", "one tree, or a random forest", choices=("tree", "forest")),
    Setting("trees", 100, "trees of a forest", minimum=1, maximum=100_000),
    Setting(
        "criterion", None, "split criterion; none: gini, or squared_error for numbers",
        type=(str, type(None)),
    ),
    Setting(
        "splitter", "auto",
        "split search; auto: exact up to 10,000 rows, histogram above", type=(str, type(None)),
    ),
    Setting("pruner", None, "pruner; none: no pruning", type=(str, type(None))),
    Setting(
        "nominal_splits", "subset",
        "split nominal columns in two sets, one branch a level, or one level against the rest",
        choices=("subset", "multiway", "one_vs_rest"),
    ),
    Setting(
        "exact_levels", 10,
        "several classes: up to so many levels at a node every subset is tried; above, those "
        "along orders of the levels", minimum=2, maximum=20,
    ),
    Setting("empty_branches", False,
            "with one branch a level: also for levels that no row of the node has; such a leaf "
            "answers as the node does"),
    Setting("thresholds", "midpoint",
            "halfway between two values of the node, or the largest training value not above that",
            choices=("midpoint", "value_below")),
    Setting("numeric_side", "leaf",
            "weight on each side of a numeric split; c45: also a tenth of the known weight for "
            "each class, but at most 25", choices=("leaf", "c45")),
    Setting("resolution", 0.0,
            "numbers of a node that are no further apart are not separated (C4.5: 1e-5)",
            minimum=0),
    Setting("max_depth", None, "edges from root to leaf; none: up to 5,000",
            type=(int, type(None)), minimum=0, maximum=5000),
    Setting("min_weight_split", 2.0, "training weight that a node needs to be split", minimum=0),
    Setting(
        "min_weight_leaf", None,
        "training weight that each side of a split needs; none: 1, and without an algorithm 5 in a "
        "classification forest of 5,000 unweighted rows or more",
        type=(float, type(None)), minimum=0,
    ),
    Setting("min_gain", 0.0, "score that a split must exceed (the criterion's own units); below 0: "
            "splits that gain nothing, too"),
    Setting(
        "min_impurity", None,
        "a node whose impurity is at or below it is a leaf (the criterion's own units; mean "
        "squared error for numbers); none: no bound", type=(float, type(None)), minimum=0,
    ),
    Setting("max_leaves", None, "leaves at most, grown best first; none: no bound",
            type=(int, type(None)), minimum=1),
    Setting("max_bins", 255, "histogram splitter: bins a numeric column", minimum=2, maximum=255),
    Setting(
        "max_features", None,
        "columns tried at a node: sqrt, log2, all, a number, or a share; none: all, "
        "and sqrt in a classification forest",
        type=(str, int, float, type(None)), choices=("sqrt", "log2", "all"),
    ),
    Setting(
        "class_weight", None,
        "factor of the weight of a class's rows: yes=2,no=1, or balanced: all classes alike",
        type=(str, type(None)),
    ),
    Setting("priors", None, "share of all weight that each class has: yes=0.1,no=0.9",
            type=(str, type(None))),
    Setting(
        "costs", None,
        "what mistakes cost, in labels and pruning: yes>no=5 for no where it is yes; others 1",
        type=(str, type(None)),
    ),
    Setting(
        "monotonic", None,
        "columns that the answer (a number, or the share of the second class) rises with, or "
        "falls: age=1,debt=-1", type=(str, type(None)),
    ),
    Setting("voting", "soft", "leaves of a forest vote by class shares, or for their label alone",
            choices=("soft", "hard")),
    Setting("bootstrap", True, "forest: draw rows with replacement for each tree"),
    Setting(
        "max_samples", None, "forest with bootstrap: rows drawn, a number or a share; none: all",
        type=(int, float, type(None)), minimum=0,
    ),
    Setting("oob", True, "forest with bootstrap: score the out-of-bag rows"),
    Setting("missing", "direction",
            "missing cells: a learned side; in parts down every branch; by other columns "
            "(surrogate splits); or an error",
            choices=("direction", "fractional", "surrogate", "error")),
    Setting("surrogates", 5, "missing=surrogate: other columns that a node asks instead, at most",
            minimum=0, maximum=100),
    Setting("surrogate_agreement", "all",
            "missing=surrogate: other columns are ordered by the weight on which they agree with "
            "the node's own test, of all rows that it can tell, or of those where the other "
            "column is known too",
            choices=("all", "known")),
    Setting("nominal_surrogates", "each_way",
            "missing=surrogate: a nominal column must send two rows each way; rpart: must be "
            "right about two rows and wrong about two, as rpart 4.1.19 counts them",
            choices=("each_way", "rpart")),
    Setting("unknown", "missing", "categories never seen: as missing, or an error",
            choices=("missing", "error")),
    Setting("seed", None, "seed of all randomness; none: drawn, and kept in the model",
            type=(int, type(None)), minimum=0),
    Setting("n_jobs", None, "threads; -1: all cores", type=(int, type(None))),
)  # fmt: skip


def check_threads(n_jobs: Any) -> None:
    """Refuse what says no number of threads; a `SettingError` for it."""
    whole = isinstance(n_jobs, numbers.Integral) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise SettingError(
            f"n_jobs is {n_jobs!r}; give a whole number of threads, -1 for all cores, or None"
        )


def features_to_try(max_features: Any, n_features: int) -> int:
    """How many columns a node tries, 1 to `n_features`."""
    if max_features == "all":
        return n_features
    if max_features == "sqrt":
        count = int(n_features**0.5)
    elif max_features == "log2":
        count = n_features.bit_length() - 1
    elif isinstance(max_features, float):
        if not 0.0 < max_features <= 1.0:
            raise SettingError(
                f"max_features is {max_features}; as a share it lies above 0.0 and at most at 1.0 "
                "(write a number of columns without a point)"
            )
        count = int(max_features * n_features)
    elif max_features < 1:
        raise SettingError(f"max_features is {max_features}; a node tries at least 1 column")
    else:
        count = int(max_features)
    return min(max(count, 1), n_features)
