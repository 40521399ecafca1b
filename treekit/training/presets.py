"""Algorithms of the literature by name: each is a dict of ordinary settings.

Nothing in treekit asks for an algorithm's name: a model trained by one equals
the model trained by its settings written out.  Explicit settings win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from treekit.data.schema import Task

__all__ = ["PRESETS", "Preset", "preset"]


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
