"""scikit-learn's gradient boosting as models: `GradientBoosting*` and `HistGradientBoosting*`.

See `treekit.interop.sklearn` for how the answers compare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype, python_label
from treekit.errors import ModelError
from treekit.interop.boosted import Boosted, Outcome, read_boosted
from treekit.interop.build import Nodes
from treekit.interop.vocabulary import (
    Vocabulary,
    checked_names,
    checked_width,
    columns_of,
    named_vocabulary,
)
from treekit.model.fixed_point import floor_to
from treekit.model.model import Model
from treekit.model.tree import ranges

__all__ = ["read_gradient_boosting", "read_histogram_boosting"]

Floats = npt.NDArray[np.float64]

_LOG_LINKS = ("poisson", "gamma")
_ENCODER = "encoder"
"""What `HistGradientBoosting*` calls its OrdinalEncoder."""


def read_gradient_boosting(
    source: Any, kind: str, answer: str, settings: dict[str, Any], provenance: dict[str, Any]
) -> Model:
    """The model of a `GradientBoosting*`, or of what a file says of one."""
    said = f"the {kind}"
    stages = np.asarray(source.estimators_, dtype=object)
    if stages.ndim != 2 or stages.size == 0:
        raise ModelError(f"{said} is damaged: its stages are no table of trees")
    outcome = _outcome(source, said, stages.shape[1])
    names = checked_names(_names(source), checked_width(int(source.n_features_in_), said), said)
    trees = [member.tree_ for member in stages.ravel()]
    return read_boosted(
        Boosted(
            source=said,
            columns=columns_of(names, [None] * len(names)),
            dtype="float32",
            nodes=_plain_nodes(trees, float(source.learning_rate)),
            group=np.arange(len(trees)) % stages.shape[1],
            base=_start(source, outcome, said, stages.shape[1]),
            outcome=outcome,
        ),
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _names(source: Any) -> list[str] | None:
    names = getattr(source, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _outcome(source: Any, said: str, n_margins: int) -> Outcome:
    """What the loss makes of the margins."""
    if not hasattr(source, "classes_"):
        return Outcome("exp" if source.loss in _LOG_LINKS else "identity")
    labels = tuple(python_label(label) for label in source.classes_)
    if n_margins != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(f"{said} is damaged: {len(labels)} classes, and {n_margins} margins")
    if source.loss not in ("log_loss", "exponential"):
        raise ModelError(f"{said} has the loss {source.loss!r:.40}, which treekit does not know")
    if len(labels) > 2:
        return Outcome("softmax", labels)
    # Friedman, Hastie and Tibshirani 2000: half the log odds are what it adds up.
    return Outcome("sigmoid", labels, scale=2.0 if source.loss == "exponential" else 1.0)


def _start(source: Any, outcome: Outcome, said: str, n_margins: int) -> Floats:
    """(margins,) float64: the raw prediction that boosting starts from."""
    if isinstance(source.init, str) and source.init == "zero":
        return np.zeros(n_margins)
    first = source.init_
    name = type(first).__name__ if not hasattr(first, "stored_name") else first.stored_name
    if name == "DummyRegressor" and not outcome.labels:
        return np.asarray(first.constant_, dtype=np.float64).reshape(-1)[:1]
    if name != "DummyClassifier" or first.strategy != "prior" or not outcome.labels:
        raise ModelError(
            f"{said} starts from the predictions of a {name}, which depend on the row; train it "
            "without init, or with init='zero'"
        )
    least = float(np.finfo(np.float64).eps)
    share = np.clip(np.asarray(first.class_prior_, dtype=np.float64), least, 1 - least)
    if len(outcome.labels) > 2:
        log: Floats = np.log(share / np.exp(np.mean(np.log(share))))
        return log
    from scipy.special import logit

    return np.asarray([logit(share[1]) / outcome.scale])


def _plain_nodes(trees: list[Any], rate: float) -> Nodes:
    """Nodes of ``sklearn.tree._tree.Tree``s, their leaves times the learning rate."""
    sizes = np.array([len(tree.children_left) for tree in trees], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_tree = np.repeat(np.arange(len(trees)), sizes)

    def joined(name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.asarray(getattr(tree, name)) for tree in trees])

    left, right = (joined(f"children_{side}").astype(np.int64) for side in ("left", "right"))
    inner = left >= 0
    shift = first[of_tree]
    value = np.concatenate([np.asarray(tree.value, dtype=np.float64)[:, 0, 0] for tree in trees])
    return Nodes(
        roots=first,
        tree=of_tree,
        left=np.where(inner, left + shift, -1),
        right=np.where(inner, right + shift, -1),
        feature=joined("feature").astype(np.int64),
        threshold=floor_to(joined("threshold"), "float32"),
        missing_left=joined("missing_go_to_left") != 0,
        value=(rate * value)[:, None],
        weight=joined("weighted_n_node_samples").astype(np.float64),
        gain=np.zeros(len(left)),
    )


def read_histogram_boosting(
    source: Any,
    kind: str,
    dtype: Dtype,
    answer: str,
    settings: dict[str, Any],
    provenance: dict[str, Any],
) -> Model:
    """The model of a `HistGradientBoosting*`, or of what a file says of one."""
    said = f"the {kind}"
    rounds = [list(stage) for stage in source._predictors]
    n_margins = len(rounds[0]) if rounds else 1
    if not rounds or not n_margins or any(len(stage) != n_margins for stage in rounds):
        raise ModelError(f"{said} is damaged: its rounds do not have as many trees each")
    n_features = checked_width(int(source.n_features_in_), said)
    names = checked_names(_names(source), n_features, said)
    order, vocabularies = _categories(source, n_features, said)
    outcome = _outcome(source, said, n_margins)
    base = np.asarray(source._baseline_prediction, dtype=np.float64).reshape(-1)
    if len(base) != n_margins:
        raise ModelError(f"{said} is damaged: {len(base)} baselines of {n_margins} margins")
    predictors = [predictor for stage in rounds for predictor in stage]
    return read_boosted(
        Boosted(
            source=said,
            columns=columns_of(names, vocabularies),
            dtype=dtype,
            nodes=_histogram_nodes(predictors, order, vocabularies, dtype, said),
            group=np.arange(len(predictors)) % n_margins,
            base=base,
            outcome=outcome,
        ),
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _categories(
    source: Any, n_features: int, said: str
) -> tuple[npt.NDArray[np.int64], list[Vocabulary | None]]:
    """The column behind each of the estimator's own, and the vocabularies of the columns.

    Its preprocessor puts categorical columns first, as whole numbers.
    """
    found: list[Vocabulary | None] = [None] * n_features
    mask = source.is_categorical_
    if mask is None:
        return np.arange(n_features), found
    if getattr(source, "_preprocessor", None) is None:
        raise ModelError(
            f"{said} was trained on categories by a scikit-learn before 1.4; train it again"
        )
    nominal = np.flatnonzero(np.asarray(mask))
    order = np.concatenate([nominal, np.flatnonzero(~np.asarray(mask, dtype=np.bool_))])
    steps = {name: step for name, step, *_ in source._preprocessor.transformers_}
    told = list(steps[_ENCODER].categories_) if _ENCODER in steps else []
    if len(told) != len(nominal) or len(order) != n_features:
        raise ModelError(f"{said} is damaged: its categories do not fit its columns")
    for column, categories in zip(nominal.tolist(), told, strict=True):
        own = np.asarray(categories, dtype=object).tolist()
        if own and (own[-1] is None or own[-1] != own[-1]):
            own.pop()  # missing, which the encoder puts last
        found[column] = named_vocabulary(own, f"column {column} of {said}")
    return order.astype(np.int64), found


def _histogram_nodes(
    predictors: list[Any],
    order: npt.NDArray[np.int64],
    vocabularies: list[Vocabulary | None],
    dtype: Dtype,
    said: str,
) -> Nodes:
    """Nodes of ``TreePredictor``s; their features are numbers of the preprocessed columns."""
    sizes = np.array([len(one.nodes) for one in predictors], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_tree = np.repeat(np.arange(len(predictors)), sizes)
    all_nodes = np.concatenate([one.nodes for one in predictors])
    inner = all_nodes["is_leaf"] == 0
    feature = all_nodes["feature_idx"].astype(np.int64)
    if np.any(feature[inner] >= len(order)) or np.any(feature[inner] < 0):
        raise ModelError(f"{said} is damaged: a split asks a column that it does not have")
    feature = np.where(inner, order[np.where(inner, feature, 0)], -1)
    categorical = inner & (all_nodes["is_categorical"] != 0)
    nominal = np.array([one is not None for one in vocabularies])
    if np.any(nominal[feature[inner]] != categorical[inner]):
        raise ModelError(f"{said} is damaged: a split of categories asks a column of numbers")
    set_node, set_start, set_codes = _bitsets(predictors, all_nodes, of_tree, categorical, said)
    n_levels = np.array([0 if one is None else len(one.levels) for one in vocabularies])
    most = np.repeat(n_levels[feature[set_node]], np.diff(set_start))
    if np.any(set_codes >= most):
        raise ModelError(f"{said} is damaged: a split names a category that it does not have")
    asked = np.where(categorical, 0.0, all_nodes["num_threshold"])
    threshold = floor_to(asked, dtype)
    if np.any(inner & (threshold == -np.inf)):
        raise ModelError(
            f"{said} has a threshold below every finite {dtype}; read it with dtype='float64', or "
            "train it without infinite numbers"
        )
    shift = first[of_tree]
    return Nodes(
        roots=first,
        tree=of_tree,
        left=np.where(inner, all_nodes["left"].astype(np.int64) + shift, -1),
        right=np.where(inner, all_nodes["right"].astype(np.int64) + shift, -1),
        feature=feature,
        threshold=threshold,
        missing_left=all_nodes["missing_go_to_left"] != 0,
        value=all_nodes["value"].astype(np.float64)[:, None],
        weight=all_nodes["count"].astype(np.float64),
        gain=all_nodes["gain"].astype(np.float64),
        set_node=set_node,
        set_start=set_start,
        set_codes=set_codes,
    )


def _bitsets(
    predictors: list[Any],
    all_nodes: npt.NDArray[Any],
    of_tree: npt.NDArray[np.int64],
    categorical: npt.NDArray[np.bool_],
    said: str,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Categorical splits, where the categories of each begin, and those that go left."""
    tables = [np.asarray(one.raw_left_cat_bitsets) for one in predictors]
    words = np.ascontiguousarray(np.concatenate([t.reshape(-1, 8) for t in tables]), dtype="<u4")
    counts = np.array([len(table) for table in tables], dtype=np.int64)
    node = np.flatnonzero(categorical)
    own = all_nodes["bitset_idx"][node].astype(np.int64)
    if np.any(own >= counts[of_tree[node]]):
        raise ModelError(f"{said} is damaged: a split of categories has no set")
    row = own + (np.cumsum(counts) - counts)[of_tree[node]]
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, 256)
    at = np.flatnonzero(bits)
    start = np.searchsorted(at, 256 * np.arange(len(bits) + 1))
    positions, starts = ranges(start, row)
    return node, starts, (at % 256)[positions]
