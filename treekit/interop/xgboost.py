"""XGBoost's boosted trees, from JSON and UBJSON files and from fitted objects, as models.

A file is parsed without XGBoost; of an object its ``save_raw("json")`` is read.
Reading takes about 20 times the file's size in memory.

How the answers compare with XGBoost's:

Paths
    equal.  XGBoost compares float32 numbers, ``x < t``; that is ``x <= t'`` for
    the float32 t' before t.  Infinite numbers, which XGBoost refuses, are
    compared like others here.
Missing values
    take each split's default branch, there and here.
Categories
    a column's levels are those of the training frame where the file has them
    (XGBoost 3.1 and later), else the whole numbers 0, 1, 2, ...; unseen ones
    go left in XGBoost whatever the default branch is, or are refused.  A number
    that is not whole is unseen here, and cut to a whole one there.  Where
    every categorical split sends missing values left they are read as missing;
    else the model refuses them (``unknown="error"``).
Margins
    XGBoost adds T leaves in float32, one after the other; the sum of the same
    float32 leaves is exact here but for the grid of ``2**exponent``, some
    ``T * 2**-53`` of the largest sum.  So margins differ by XGBoost's own
    rounding, at most ``T * 2**-24`` of the sum of the leaves' magnitudes.
Labels
    equal unless two classes are closer than that.
Probabilities and exponentials
    of the same margin within float32's precision, in which XGBoost has them.
Rounds
    up to the best one, if training stopped early, as XGBoost's scikit-learn
    estimators do; ``Booster.predict`` takes all: ask for them by ``iterations``.

`tests/test_import_xgboost.py` measures them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError, ModelFileError
from treekit.interop.boosted import Boosted, Outcome, read_boosted
from treekit.interop.files import beginning, read_whole
from treekit.interop.vocabulary import checked_names, checked_width, columns_of
from treekit.interop.xgboost_json import Forest, Learner, parse
from treekit.interop.xgboost_nodes import SOURCE, array_of, nodes_of, vocabularies_of
from treekit.model.links import Link
from treekit.model.model import Model

__all__ = ["read_xgboost", "recognises_xgboost"]

_JSON = re.compile(rb'\s*\{\s*"(learner|version)"\s*:')
_UBJSON = b"{L" + (7).to_bytes(8, "big") + b"learner"

_IDENTITY: Link = "identity"
_NUMBERS: dict[str, tuple[Link, str]] = {
    "reg:logistic": ("sigmoid", "logit"),
    "count:poisson": ("exp", "log"),
    "reg:gamma": ("exp", "log"),
    "reg:tweedie": ("exp", "log"),
    "survival:cox": ("exp", "log"),
    "survival:aft": ("exp", "log"),
    **dict.fromkeys(
        (
            *("reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:pseudohubererror"),
            *("reg:absoluteerror", "reg:quantileerror", "binary:logitraw"),
            *("rank:pairwise", "rank:ndcg", "rank:map"),
        ),
        (_IDENTITY, ""),
    ),
}
"""Objectives that predict numbers: the link, and what makes a margin of the base score."""


def recognises_xgboost(source: Any) -> bool:
    """Whether `source` is an XGBoost model file (``.json``, ``.ubj``) or object."""
    if _JSON.match(beginning(source, (".json",))):
        return True
    return beginning(source, (".ubj",)).startswith(_UBJSON) or _kind(source) is not None


def _kind(source: Any) -> str | None:
    """``Booster`` or ``XGBModel`` for objects of these classes, without importing them."""
    for kind in type(source).__mro__:
        if kind.__module__.partition(".")[0] == "xgboost":
            for name in ("Booster", "XGBModel"):
                if kind.__name__ == name:
                    return name
    return None


def read_xgboost(
    source: Any, *, answer: str = "predictions", iterations: int | None = None
) -> Model:
    """The model of an XGBoost file or object.

    Parameters
    ----------
    source : pathlib.Path, xgboost.Booster or xgboost.XGBModel
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of the classes, as numbers.
    iterations : int, optional
        Boosting rounds to read; default up to the best one, if it is known.

    Raises
    ------
    ModelError
        If it is no such model, is damaged, or has what treekit cannot express.
    """
    file = parse(_content(source))
    learner = file.learner
    forest, scale = _forest(learner)
    n_margins = _margins(learner, forest)
    outcome, start = _outcome(learner.objective.name, n_margins, file.version)
    kept = _kept(forest, _rounds(learner, iterations), n_margins)
    trees = forest.trees[:kept]
    group = array_of(forest.tree_info[:kept], np.int64, "tree_info")
    if np.any((group < 0) | (group >= n_margins)):
        raise ModelFileError(f"{SOURCE} is damaged: a tree adds to none of the {n_margins} margins")
    told = learner.learner_model_param.num_feature
    n_features = checked_width(_whole(told, "num_feature"), SOURCE)
    vocabularies = vocabularies_of(forest.cats.enc, trees, n_features)
    names = checked_names(learner.feature_names, n_features, SOURCE)
    nodes, unseen_is_missing = nodes_of(trees, scale[:kept], vocabularies, n_margins)
    return read_boosted(
        Boosted(
            source=SOURCE,
            columns=columns_of(names, vocabularies),
            dtype="float32",
            nodes=nodes,
            group=group,
            base=_base(learner.learner_model_param.base_score, n_margins, start),
            outcome=outcome,
            unknown="missing" if unseen_is_missing else "error",
        ),
        answer=answer,
        settings={"objective": learner.objective.name},
        provenance={"importer": "xgboost", "xgboost": ".".join(map(str, file.version))},
    )


def _content(source: Any) -> bytes:
    """The bytes of a file, or of the JSON of an object."""
    kind = _kind(source)
    if kind is None:
        if not isinstance(source, Path) or not recognises_xgboost(source):
            raise ModelError(f"a {type(source).__qualname__} is no XGBoost model")
        return read_whole(source)
    if kind == "XGBModel":
        if not source.__sklearn_is_fitted__():
            raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
        missing = source.missing
        if missing is not None and missing == missing:
            raise ModelError(
                f"the {type(source).__name__} takes {missing!r} for missing, and treekit only NaN; "
                "replace it in the data, and train with missing=nan"
            )
        source = source.get_booster()
    return bytes(source.save_raw("json"))


def _forest(learner: Learner) -> tuple[Forest, npt.NDArray[np.float64]]:
    """The trees, and what each is multiplied by."""
    booster = learner.gradient_booster
    if booster.name == "gblinear":
        raise ModelError(f"{SOURCE} is a linear one (gblinear); train with booster='gbtree'")
    forest = booster.gbtree.model if booster.gbtree is not None else booster.model
    if booster.name not in ("gbtree", "dart") or forest is None:
        raise ModelFileError(f"{SOURCE} has the unknown booster {booster.name!r:.40}")
    n = len(forest.trees)
    if not n or len(forest.tree_info) != n:
        raise ModelFileError(f"{SOURCE} has {n} trees, and {len(forest.tree_info)} entries of them")
    if booster.name == "gbtree":
        return forest, np.ones(n)
    if len(booster.weight_drop) != n:
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(booster.weight_drop)} weights of {n} trees"
        )
    with np.errstate(over="ignore"):
        weights = np.array(booster.weight_drop).astype(np.float32)
    if not np.all(np.isfinite(weights)):
        raise ModelFileError(f"{SOURCE} is damaged: a tree's weight is not finite")
    return forest, weights.astype(np.float64)


def _whole(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ModelFileError(f"{SOURCE} is damaged: {what} is {text!r:.40}")
    return int(text)


def _margins(learner: Learner, forest: Forest) -> int:
    """How many margins there are: each has a tree, or all are in each leaf."""
    param = learner.learner_model_param
    told = max(_whole(param.num_class, "num_class"), _whole(param.num_target, "num_target"), 1)
    if told > max(len(forest.trees), *(len(tree.leaf_weights) for tree in forest.trees)):
        raise ModelFileError(f"{SOURCE} is damaged: it has {told} margins, and not as many trees")
    return told


def _rounds(learner: Learner, asked: int | None) -> int | None:
    best = learner.attributes.get("best_iteration")
    return asked if asked is not None or best is None else _whole(best, "best_iteration") + 1


def _kept(forest: Forest, rounds: int | None, n_margins: int) -> int:
    """How many trees the rounds have."""
    n = len(forest.trees)
    if rounds is None:
        return n
    ends = forest.iteration_indptr
    if not ends:  # before XGBoost 2.0
        parallel = _whole(
            forest.gbtree_model_param.get("num_parallel_tree", "1"), "num_parallel_tree"
        )
        ends = list(range(0, n + 1, max(parallel, 1) * n_margins))
    if rounds >= len(ends):
        raise ModelError(f"{SOURCE} has {len(ends) - 1} iterations, not {rounds}; ask for fewer")
    if not 1 <= ends[rounds] <= n:
        raise ModelFileError(f"{SOURCE} is damaged: iteration_indptr does not fit its {n} trees")
    return ends[rounds]


def _outcome(objective: str, n_margins: int, version: list[int]) -> tuple[Outcome, str]:
    """What becomes of the margins, and what makes one of the base score."""
    if objective == "binary:logistic":
        several = "" if n_margins == 1 else "it has several labels a row"
        return Outcome("sigmoid", (0, 1) if n_margins == 1 else (), refused=several), "logit"
    if objective in ("multi:softprob", "multi:softmax") and n_margins > 1:
        return Outcome("softmax", tuple(range(n_margins))), ""
    if objective == "binary:hinge":
        return Outcome("identity", refused="its objective 'binary:hinge' has no probabilities"), ""
    if objective == "binary:logitraw" and version[:1] < [3]:
        raise ModelError(
            f"{SOURCE} has the objective 'binary:logitraw' and is of a version before 3, of which "
            "some take base_score for a margin and some do not; train again with XGBoost 3"
        )
    if objective not in _NUMBERS:
        raise ModelError(
            f"{SOURCE} has the objective {objective!r:.60}, which treekit does not know; known: "
            f"binary:logistic, multi:softprob, multi:softmax, binary:hinge, {', '.join(_NUMBERS)}"
        )
    link, start = _NUMBERS[objective]
    return Outcome(link), start


def _base(text: str, n_margins: int, start: str) -> npt.NDArray[np.float64]:
    """(margins,) float64: the base score as XGBoost makes margins of it, in float32."""
    parts = text.removeprefix("[").removesuffix("]").split(",")
    try:
        with np.errstate(over="ignore"):
            score = np.array([float(part) for part in parts]).astype(np.float32)
    except ValueError:
        score = np.array([np.nan], dtype=np.float32)
    if len(score) == 1:
        score = np.repeat(score, n_margins)
    one = np.float32(1)
    with np.errstate(all="ignore"):
        odds = one / score - one if start == "logit" else score
        if start:
            # NumPy's float32 logarithm is off by some ulp; C's, as rounded from a double, is not.
            score = np.log(odds.astype(np.float64)).astype(np.float32)
            score = -score if start == "logit" else score
    if len(score) != n_margins or not np.all(np.isfinite(score)):
        raise ModelFileError(f"{SOURCE} is damaged: base_score is {text!r:.60}")
    return score.astype(np.float64) + 0.0
